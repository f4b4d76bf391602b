package analysis

import (
	stdcmp "cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Rapid shrinks what fails, and prints what it drew and how to run it again: -rapid.seed, or -rapid.failfile for the
// smallest capture that it found. -rapid.checks=5000 runs thousands.

func drawShare(t *rapid.T, name string, most float64) float64 {
	if !rapid.Bool().Draw(t, "with "+name) {
		return 0
	}
	return rapid.Float64Range(0, most).Draw(t, name)
}

// drawTraffic draws what hosts and the network do, and what the packets look like.
func drawTraffic(t *rapid.T) genParams {
	flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
	return genParams{
		seed:  rapid.Uint64().Draw(t, "seed"),
		pairs: rapid.IntRange(1, 7).Draw(t, "pairs"), hosts: rapid.IntRange(1, 3).Draw(t, "hosts"),
		messages: rapid.IntRange(1, 25).Draw(t, "messages"), lives: rapid.IntRange(1, 3).Draw(t, "lives"),
		lossBefore: drawShare(t, "loss before the tap", 0.1), lossAfter: drawShare(t, "loss after the tap", 0.1), ackLoss: drawShare(t, "lost acknowledgements", 0.2),
		reorder: drawShare(t, "reorder", 0.1), duplicate: drawShare(t, "duplicates", 0.05), ce: drawShare(t, "CE", 0.5),
		samePSN: flag("same PSN"), bidirectional: flag("bidirectional"), uc: flag("UC"), ud: flag("UD"),
		ipv6: flag("IPv6"), vlan: flag("VLAN"), tags: flag("tags"), nearWrap: flag("near wrap"),
		mtu: rapid.SampledFrom([]int{256, 1024}).Draw(t, "MTU"), window: rapid.SampledFrom([]int{8, 16, 64}).Draw(t, "window"),
		readShare: flag("READ"), readLoss: flag("lost READs"), imm: flag("immediate"), selective: flag("selective"), react: flag("react"),
		cnpScope: rapid.SampledFrom([]string{"", ScopeIPPair, ScopeDestination, ScopePort, "none"}).Draw(t, "CNP scope"),
		aliases:  flag("aliases"), pfc: flag("PFC"), ipidZero: flag("no IP identification"),
		reuse: rapid.SampledFrom([]string{"", "", "near", "cm"}).Draw(t, "reuse"),
	}
}

// drawParams draws what the capture does, too.
func drawParams(t *rapid.T) genParams {
	p := drawTraffic(t)
	p.link = rapid.SampledFrom([]string{"", "", "sll", "sll2", "raw"}).Draw(t, "link")
	p.snap = rapid.SampledFrom([]int{0, 128, 112}).Draw(t, "snap")
	p.mirrors = rapid.Bool().Draw(t, "mirrors")
	p.tapLoss = drawShare(t, "missed by the tap", 0.05)
	p.late = drawShare(t, "late records", 0.1)
	p.tick = rapid.SampledFrom([]int64{1, 100, 1000}).Draw(t, "tick")
	p.skip = rapid.SampledFrom([]int{0, 0, 0, 1, 10, 100}).Draw(t, "packets before the capture")
	p.oneWay = rapid.SampledFrom([]string{"", "", "", "data", "answers"}).Draw(t, "one way")
	p.icrc = rapid.Bool().Draw(t, "ICRC")
	p.corrupt = drawShare(t, "corrupt", 0.05)
	return p
}

// settle takes back what no analysis could know, each for its reason. It returns whether times can be known, too.
func settle(p *genParams) (times bool) {
	ambiguous := (p.samePSN || p.nearWrap) && p.pairs > p.hosts // PSNs near each other are told apart late, and times are lost
	if p.lives > 1 && ambiguous {
		p.ce = 0 // a CNP that comes before the first acknowledgement of a life would count for the one before
	}
	if ambiguous || p.nearWrap {
		p.reuse = "" // lives of several QPs would run into each other
	}
	if p.lives > 1 && p.reuse == "near" { // it takes that all was acknowledged
		p.ackLoss, p.tapLoss, p.skip, p.oneWay, p.uc, p.readLoss = 0, 0, 0, "", false, false
	}
	if p.reuse == "cm" { // it takes the handshake
		p.tapLoss, p.skip, p.oneWay, p.uc, p.snap = 0, 0, "", false, 0
	}
	if p.reuse != "" {
		p.duplicate, p.reorder = 0, 0 // the old life's packets would come in the new one
	}
	if (p.skip > 0 || p.tapLoss > 0) && p.bidirectional { // a life of which only acknowledgements are left, and the data of the next, look like one
		p.lives = 1
	}
	if p.tick > 1 { // packets of one time stay in the order of the file
		p.late = 0
	}
	if p.mirrors && (p.ipidZero || p.ipv6) {
		p.duplicate, p.late, p.skip = 0, 0, 0 // the network's copies, packets sent again and the mirror's are the same but for their order
	}
	if p.mirrors && p.tapLoss > 0 { // of two equal packets and their copies, the one and the other's copy are left
		p.duplicate = 0
	}
	return !ambiguous && p.tapLoss == 0 && p.skip == 0 && !p.readLoss
}

// TestRun_syntheticAgreesWithModel holds the analysis of random captures to the model, which is told by the generator
// which packet belongs to which life of which QP, and who answers whom.
func TestRun_syntheticAgreesWithModel(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t)
		times := settle(&p)
		o := Options{Bin: 100 * time.Microsecond, CheckICRC: p.icrc}
		o.TimeScale = rapid.SampledFrom([]float64{0, 0.05, 0.2, 3}).Draw(t, "time scale")
		o.LinkRateBps = rapid.SampledFrom([]float64{0, 1e9, 25e9}).Draw(t, "link rate")
		g := generate(p)
		f := g.file()
		var data []byte
		if p.tick < 1000 {
			data = f.pcap(binary.LittleEndian, 1)
		} else {
			data = f.pcap(binary.BigEndian, 1000)
		}
		in := save(t, dir, "x.pcap", data)
		truth := g.truth(f.records)
		doc, err := Run(t.Context(), []Input{in}, o)
		if err != nil {
			t.Fatal(err)
		}
		want := modelFlows(truth.packets, doc.Series.BinNS, truth.answers)
		forgive(doc, want, truth.weak)
		compareFlows(t, doc, want, times)
		compareMeasures(t, doc, o, truth, want, times)
		if got := doc.Quality.DuplicatesRemoved; got != truth.copies {
			t.Errorf("%d mirror copies removed, the generator made %d", got, truth.copies)
		}
		compareFile(t, doc, f, truth)
		compareConnections(t, g, doc)
		checkKnowledge(t, g, doc, truth)
	})
}

// forgive takes answers out of both sides where nothing but CNPs, or acknowledgements of what the tap missed, tell whose they
// are: an analysis may join them where no other flow could be meant.
func forgive(doc *Document, want map[string]*modelFlow, weak []string) {
	open := map[string]bool{}
	for _, id := range weak {
		open[id] = true
		if f := want[id]; f != nil {
			f.paired, f.missed[0] = false, 0
		}
	}
	for i := range doc.Flows {
		if open[doc.Flows[i].ID] {
			doc.Flows[i].CNPs = nil
			zeroCNPs(doc, i, want)
		}
	}
}

func zeroCNPs(doc *Document, i int, want map[string]*modelFlow) {
	s := &doc.Series.Flows[i]
	for j := range s.CNPs {
		s.CNPs[j] = 0
	}
	if f := want[s.ID]; f != nil {
		f.cnps = 0
		for _, b := range f.bins {
			b.cnps = 0
		}
	}
}

// compareFile: the file's own entry.
func compareFile(t *rapid.T, doc *Document, f genFile, truth *genTruth) {
	want := File{Packets: int64(len(f.records)), RoCEPackets: int64(len(truth.packets))}
	var first, last, before int64
	for i, r := range f.records {
		want.Bytes += int64(len(r.frame))
		want.SnaplenLimited = want.SnaplenLimited || f.snap > 0 && len(r.frame) > f.snap
		if i == 0 {
			first, last = r.t, r.t
		} else if r.t < before {
			want.OutOfOrder++
		}
		first, last, before = min(first, r.t), max(last, r.t), r.t
	}
	got := doc.Files[0]
	if len(f.records) > 0 && (got.FirstNS == nil || got.LastNS == nil || *got.FirstNS != first || *got.LastNS != last) {
		t.Errorf("file from %s to %s, written from %d to %d", text(got.FirstNS), text(got.LastNS), first, last)
	}
	want.RoCEPackets += truth.copies
	a := []any{want.Packets, want.RoCEPackets, want.Bytes, want.SnaplenLimited, want.OutOfOrder}
	b := []any{got.Packets, got.RoCEPackets, got.Bytes, got.SnaplenLimited, got.OutOfOrder}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("file: packets, RoCE packets, bytes, cut by snap length, out of order (-written +analysis):\n%s", diff)
	}
}

// checkKnowledge holds the analysis to what only the generator knows.
func checkKnowledge(t *rapid.T, g *gen, doc *Document, truth *genTruth) {
	if b := doc.Totals.ICRCBad; g.p.icrc && g.p.snap == 0 && len(truth.packets) > 0 && (b == nil || *b != truth.bad || doc.Totals.ICRCChecked != int64(len(truth.packets))) {
		t.Errorf("ICRC: bad %s of %d, the generator made %d of %d", text(b), doc.Totals.ICRCChecked, truth.bad, len(truth.packets))
	}
	if g.p.tapLoss > 0 || g.p.skip > 0 || g.p.oneWay != "" {
		return
	}
	known := map[string]*genHalf{} // "#unseen" has no flow
	names := g.names(g.records)
	for _, h := range g.halves {
		known[names[h.name]] = h
	}
	for _, f := range doc.Flows {
		h := known[f.ID]
		if h == nil || h.uc || strings.Contains(f.ID, "read") || f.Operations.Read > 0 {
			continue
		}
		if g.p.lossBefore == 0 && g.p.reorder == 0 && g.p.duplicate == 0 && g.p.late == 0 && !g.p.readLoss { // a restart may begin with a READ that nobody saw
			checkRecovery(t, h, &f)
		}
		if g.p.lossBefore == 0 && g.p.reorder == 0 && g.p.duplicate == 0 {
			got := []int64{f.RetransmittedPackets, f.OutOfOrderPackets, f.LostBeforeTap}
			// Packets repeated one after the other look like a restart of which those between them were lost; who reads again
			// leaves out what was acknowledged meanwhile.
			if g.p.selective || g.p.readShare && g.p.readLoss {
				got[2] = 0
			}
			if diff := cmp.Diff([]int64{h.resentSeen, 0, 0}, got); diff != "" {
				t.Errorf("flow %s: retransmitted, out of order, lost (-generator +analysis):\n%s", f.ID, diff)
			}
		}
		// A sender that reads again leaves out what was acknowledged meanwhile.
		reread := g.p.readShare && g.p.readLoss
		if f.LostBeforeTap > h.lostBefore && !reread && g.p.reorder == 0 && g.p.duplicate == 0 && !g.p.selective {
			t.Errorf("flow %s: %d packets lost before the tap, but the generator dropped only %d", f.ID, f.LostBeforeTap, h.lostBefore)
		}
	}
}

// checkRecovery: the sender knows when it stepped back. One packet sent again alone looks the same whether the sender went
// back to it or chose it.
func checkRecovery(t *rapid.T, h *genHalf, f *Flow) {
	r := f.Recovery
	if r == nil {
		if h.resentSeen > 0 {
			t.Errorf("flow %s: no recovery, but %d packets were sent again", f.ID, h.resentSeen)
		}
		return
	}
	back := h.restarts + h.alone
	least := back
	if h.g.p.selective { // two packets sent again one after the other are a restart to who sees no more
		least = min(back, 1)
	}
	if r.Restarts > back || r.Restarts+r.Selective < least || r.Restarts != r.ByNAK+r.ByRNR+r.ByTimeout {
		t.Errorf("flow %s: %d restarts (%d by NAK, %d by RNR NAK, %d by timeout) and %d packets alone; the sender stepped back %d times and sent %d alone",
			f.ID, r.Restarts, r.ByNAK, r.ByRNR, r.ByTimeout, r.Selective, h.restarts, h.alone)
	}
	if h.alone == 0 && f.SelectivePackets > h.restarts {
		t.Errorf("flow %s: %d packets resent alone, but the sender goes back N", f.ID, f.SelectivePackets)
	}
	for _, e := range r.Events {
		if e.Trigger == "nak" && (e.NAKPSN == nil || e.DelayNS == nil || *e.DelayNS < 0) {
			t.Errorf("flow %s: event %+v by a NAK that nobody saw", f.ID, e)
		}
		if e.Packets > f.RetransmittedPackets || e.Skipped != 0 && !h.g.p.selective { // those look like a restart that leaves some out
			t.Errorf("flow %s: event %+v, but nothing was skipped and %d packets were resent", f.ID, e, f.RetransmittedPackets)
		}
	}
}

// compareConnections: every handshake, in the order of its beginning.
func compareConnections(t *rapid.T, g *gen, doc *Document) {
	if g.p.tapLoss > 0 || g.p.skip > 0 || g.p.oneWay != "" || g.p.snap > 0 {
		return
	}
	var want []Connection
	tick := max(g.p.tick, 1)
	for _, c := range g.conns {
		w := c.want
		for _, v := range []**int64{&w.RequestNS, &w.DisconnectNS} {
			if *v != nil {
				*v = ptr(**v - **v%tick)
			}
		}
		if w.SetupNS != nil {
			w.SetupNS = ptr((*c.want.RequestNS+*c.want.SetupNS)/tick*tick - *w.RequestNS)
		}
		want = append(want, w)
	}
	got := append([]Connection(nil), doc.Connections...)
	byTime := func(a, b Connection) int {
		return stdcmp.Or(stdcmp.Compare(*a.RequestNS, *b.RequestNS), stdcmp.Compare(a.Src+a.Dst+fmt.Sprint(*a.SrcQP), b.Src+b.Dst+fmt.Sprint(*b.SrcQP)))
	}
	slices.SortFunc(want, byTime)
	slices.SortFunc(got, byTime)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("connections (-generator +analysis):\n%s", diff)
	}
}
