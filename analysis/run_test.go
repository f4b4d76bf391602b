package analysis

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/internal/fixtures"
)

func writeFile(t *testing.T, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func analyse(t *testing.T, o Options, inputs ...Input) *Document {
	t.Helper()
	doc, err := Run(t.Context(), inputs, o)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func smallIncast() *gen {
	return generate(genParams{seed: 3, pairs: 3, hosts: 3, messages: 60, lives: 1, ce: 0.3, mtu: 1024, window: 32, lossBefore: 0.01})
}

// TestRun_phasesAgreeWithModel: goodput, Jain's indices, CE share, CNPs and retransmissions of phases, by plain loops.
func TestRun_phasesAgreeWithModel(t *testing.T) {
	g := smallIncast()
	packets, _, _, _ := modelPcap(g.pcap())
	t0, end := packets[0].t, packets[len(packets)-1].t
	third := (end - t0) / 3
	// The phases overlap and leave time out, on purpose.
	phases := []Phase{
		{Name: "first", StartNS: t0, EndNS: t0 + third},
		{Name: "most", StartNS: t0 + third/2, EndNS: end, TrimStart: time.Duration(third / 4), TrimEnd: -1},
		{Name: "whole", StartNS: t0 - 1e6, EndNS: end + 1e6, TrimStart: -1, TrimEnd: -1},
	}
	const binNS = 20_000
	doc := analyse(t, Options{Phases: phases, Bin: binNS, LinkRateBps: 1e10, TimeScale: 2}, Input{Path: writeFile(t, "x.pcap", g.pcap())})
	for i, p := range phases {
		got := doc.Aggregate.PerPhase[i]
		lo, hi := p.StartNS+got.TrimNS, p.EndNS-got.TrimEndNS
		seconds := float64(hi-lo) / 1e9
		unique := map[string]float64{}
		seen := map[[2]any]bool{}
		bins := map[int]map[string]float64{}
		var total, wire, ce, data, cnps, whole, wholeCE, wholeCNP int64
		active := map[string][2]int64{}
		for k := range packets {
			q := &packets[k]
			inside, inPhase := q.t >= lo && q.t < hi, q.t >= p.StartNS && q.t < p.EndNS
			if q.isCNP() {
				if inside {
					cnps++
				}
				if inPhase {
					wholeCNP++
				}
				continue
			}
			if !q.isData() {
				continue
			}
			dup := seen[[2]any{q.key(), q.psn}]
			seen[[2]any{q.key(), q.psn}] = true
			if a, ok := active[q.key()]; ok {
				active[q.key()] = [2]int64{a[0], q.t}
			} else {
				active[q.key()] = [2]int64{q.t, q.t}
			}
			if inPhase {
				whole++
				if q.ecn == 3 {
					wholeCE++
				}
			}
			if !dup { // bins lie wholly inside the window or do not count
				b := int((q.t - t0) / binNS)
				if start := t0 + int64(b)*binNS; start >= lo && start+binNS <= hi {
					if bins[b] == nil {
						bins[b] = map[string]float64{}
					}
					bins[b][q.key()] += float64(q.payload)
				}
			}
			if !inside {
				continue
			}
			data++
			wire += int64(q.wire)
			if q.ecn == 3 {
				ce++
			}
			if !dup {
				unique[q.key()] += float64(q.payload)
				total += int64(q.payload)
			}
		}
		var members []string
		for id, a := range active {
			if a[0] < hi && a[1] >= lo {
				members = append(members, id)
			}
		}
		slices.Sort(members)
		var rates []float64
		for _, id := range members {
			rates = append(rates, unique[id])
		}
		var sum float64
		n := 0
		for _, b := range bins {
			var x []float64
			for _, id := range members {
				x = append(x, b[id])
			}
			if j := modelJain(x); !math.IsNaN(j) {
				sum += j
				n++
			}
		}
		check := func(what string, got, want float64) {
			t.Helper()
			if math.Abs(got-want) > 1e-9*math.Abs(want) {
				t.Errorf("phase %s: %s = %g, the model says %g", p.Name, what, got, want)
			}
		}
		check("goodput", got.GoodputBps, float64(total)*8/seconds)
		check("hardware goodput", got.HWGoodputBps, 2*float64(total)*8/seconds)
		check("rate on the wire", got.WireBps, float64(wire)*8/seconds)
		check("utilisation", *got.Utilisation, float64(wire)*8/seconds/1e10)
		check("goodput utilisation", *got.GoodputUtilisation, float64(total)*8/seconds/1e10)
		check("Jain", *got.Jain, modelJain(rates))
		check("Jain of bins", *got.JainMeanOfBins, sum/float64(n))
		check("bins", float64(got.JainBins), float64(n))
		check("CE share", *got.CEShare, float64(ce)/float64(data))
		check("CNP rate", *got.CNPRateHz, float64(cnps)/seconds)
		if diff := cmp.Diff([]int64{whole, wholeCE, wholeCNP}, []int64{got.Packets, got.CEPackets, *got.CNPs}); diff != "" {
			t.Errorf("phase %s: packets, CE, CNPs (-model +analysis):\n%s", p.Name, diff)
		}
	}
	if got, want := doc.Aggregate.PerPhase[2].RetransmittedPackets, doc.Totals.RetransmittedPackets; got != want || want == 0 {
		t.Errorf("retransmissions: %d in the whole phase, %d in all; want equal and some", got, want)
	}
}

// TestRun_phaseMembers: who is left out of a phase's index, and why; who starves stays in.
func TestRun_phaseMembers(t *testing.T) {
	g := smallIncast()
	packets, _, _, _ := modelPcap(g.pcap())
	t0, end := packets[0].t, packets[len(packets)-1].t
	names := map[netip.Addr]string{netip.MustParseAddr("192.0.2.11"): "h1", netip.MustParseAddr("192.0.2.12"): "h2"}
	doc := analyse(t, Options{Names: names, Phases: []Phase{
		{Name: "two", StartNS: t0, EndNS: end, TrimStart: -1, TrimEnd: -1, Flows: []string{"h1", "192.0.2.12", "h9"}},
		{Name: "after", StartNS: end + 1e9, EndNS: end + 2e9, Flows: []string{"h1"}},
	}}, Input{Path: writeFile(t, "x.pcap", g.pcap())})
	two, after := doc.Aggregate.PerPhase[0], doc.Aggregate.PerPhase[1]
	if len(two.Flows) != 3 || len(two.Excluded) != 2 {
		t.Fatalf("phase two: %d flows, excluded %v; want 3 flows of which one unexpected, and h9", len(two.Flows), two.Excluded)
	}
	for i, want := range []string{"not expected", "no packet of it was captured"} {
		if !strings.Contains(two.Excluded[i].Reason, want) {
			t.Errorf("excluded %v, want reason %q", two.Excluded[i], want)
		}
	}
	if after.Jain != nil || len(after.Excluded) != 1 || !strings.Contains(after.Excluded[0].Reason, "sent nothing") {
		t.Errorf("phase after the traffic: Jain %v, excluded %v; want none and h1", after.Jain, after.Excluded)
	}
	if p := doc.Aggregate.PhaseByName("after"); p == nil || p.Name != "after" {
		t.Error("PhaseByName does not find a phase")
	}
}

// TestRun_cut (O18): the good prefix is analysed, the cut named with its offset, the verdict incomplete.
func TestRun_cut(t *testing.T) {
	g := smallIncast()
	whole := g.pcap()
	doc := analyse(t, Options{}, Input{Path: writeFile(t, "cut.pcap", whole[:len(whole)-40])})
	if doc.Quality.Verdict != Incomplete || doc.Files[0].TruncatedAt == nil {
		t.Fatalf("verdict %q, truncated_at %v", doc.Quality.Verdict, doc.Files[0].TruncatedAt)
	}
	last := int64(len(whole)) - int64(len(g.records[len(g.records)-1].frame)) - 16
	if got := *doc.Files[0].TruncatedAt; got != last {
		t.Errorf("cut at byte %d, the last record starts at %d", got, last)
	}
	if got := doc.Totals.RoCEPackets; got != int64(len(g.records)-1) {
		t.Errorf("%d packets analysed, want all but the cut one of %d", got, len(g.records))
	}
	for _, n := range []int{0, 10, 24} {
		doc := analyse(t, Options{}, Input{Path: writeFile(t, "head.pcap", whole[:n])})
		if cut := doc.Files[0].TruncatedAt != nil; cut != (n < 24) {
			t.Errorf("file of %d bytes: cut %v", n, cut)
		}
	}
}

// TestRun_blind (O16): counters that moved and no RoCE packet mean that the tap cannot see, never "0 CNPs".
func TestRun_blind(t *testing.T) {
	empty := smallIncast().pcap()[:24]
	path := writeFile(t, "empty.pcap", empty)
	doc := analyse(t, Options{Counters: &CounterDelta{Packets: 1_000_000, Source: "h1 mlx5_0"}}, Input{Path: path})
	if doc.Quality.Verdict != Blind || !strings.Contains(strings.Join(doc.Quality.Notes, "\n"), "h1 mlx5_0 moved by 1000000") {
		t.Errorf("quality %+v, want blind with whose counters", doc.Quality)
	}
	if doc.Aggregate.Jain != nil || doc.Aggregate.GoodputBps != nil {
		t.Error("a blind capture has numbers")
	}
	if doc := analyse(t, Options{Counters: &CounterDelta{}}, Input{Path: path}); doc.Quality.Verdict != Complete {
		t.Errorf("a quiet link is %q, want complete", doc.Quality.Verdict)
	}
}

// TestRun_mirrorCopies (S06): six packets, two copies with a lower TTL, one true retransmission.
func TestRun_mirrorCopies(t *testing.T) {
	g := generate(genParams{seed: 1, pairs: 1, hosts: 1, messages: 1, lives: 1, mtu: 256, window: 8})
	h := g.halves[0]
	at := func(t int64, psn int, ttl byte, id byte) genRecord {
		f := g.frame(h, 10, psn, true, 100, 100, -1, 0)
		f[14+8], f[14+5] = ttl, id
		return genRecord{t: genEpoch + t, frame: f}
	}
	g.records = []genRecord{at(0, 1, 64, 1), at(900, 1, 63, 1), at(2000, 2, 64, 2), at(2900, 2, 63, 2), at(4000, 3, 64, 3), at(9000, 2, 64, 4)}
	path := writeFile(t, "x.pcap", g.pcap())
	doc := analyse(t, Options{}, Input{Path: path})
	if got := []int64{doc.Quality.DuplicatesRemoved, doc.Totals.RoCEPackets, doc.Totals.RetransmittedPackets, doc.Files[0].Packets}; !slices.Equal(got, []int64{2, 4, 1, 6}) {
		t.Errorf("copies removed, RoCE packets, retransmitted, records = %v, want [2 4 1 6]", got)
	}
	doc = analyse(t, Options{DedupWindow: -1}, Input{Path: path})
	if got := []int64{doc.Quality.DuplicatesRemoved, doc.Totals.DuplicatePackets}; !slices.Equal(got, []int64{0, 3}) {
		t.Errorf("switched off: copies removed, duplicates = %v, want [0 3]", got)
	}
}

// TestRun_icrc (S07): remarked in flight is still valid over IPv4 and IPv6; a flipped payload bit is counted; a snapped
// packet is not checked.
func TestRun_icrc(t *testing.T) {
	g := generate(genParams{seed: 1, pairs: 2, hosts: 1, messages: 1, lives: 1, mtu: 256, window: 8, ipv6: true})
	var frames [][]byte
	for _, h := range []*genHalf{g.halves[0], g.halves[2]} {
		f := g.frame(h, 10, 1, true, 100, 100, -1, 2)
		if err := roce.PutICRC(f[14:]); err != nil {
			t.Fatal(err)
		}
		marked := bytes.Clone(f)
		if h.src.Is6() {
			marked[14+1] |= 0x30 // ECN bits of the traffic class
			marked[14+7]--
		} else {
			marked[14+1] |= 3
			marked[14+8]--
		}
		bad := bytes.Clone(f)
		bad[len(bad)-10] ^= 1
		frames = append(frames, f, marked, bad)
	}
	g.records = nil
	for i, f := range frames {
		g.records = append(g.records, genRecord{t: genEpoch + int64(i)*1e7, frame: f})
	}
	doc := analyse(t, Options{CheckICRC: true}, Input{Path: writeFile(t, "x.pcap", g.pcap())})
	if got := doc.Totals; got.ICRCChecked != 6 || got.ICRCBad == nil || *got.ICRCBad != 2 {
		t.Errorf("%d checked, bad %v; want 6 and 2", got.ICRCChecked, got.ICRCBad)
	}
	g.p.snap = 96
	doc = analyse(t, Options{CheckICRC: true}, Input{Path: writeFile(t, "snap.pcap", g.pcap())})
	if doc.Totals.ICRCBad != nil {
		t.Errorf("snapped: icrc_bad = %d, want null", *doc.Totals.ICRCBad)
	}
}

// TestRun_dscp (O12): the ToS byte that left the host, as DSCP and ECN apart.
func TestRun_dscp(t *testing.T) {
	g := generate(genParams{seed: 1, pairs: 1, hosts: 1, messages: 1, lives: 1, mtu: 256, window: 8})
	g.records = nil
	for i, tos := range []byte{0x00, 0x68, 0x6a, 0x6b} {
		f := g.frame(g.halves[0], 10, i, true, 100, 100, -1, 0)
		f[15] = tos
		g.records = append(g.records, genRecord{t: genEpoch + int64(i), frame: f})
	}
	f := analyse(t, Options{}, Input{Path: writeFile(t, "x.pcap", g.pcap())}).Flows[0]
	if !slices.Equal(f.DSCP, []int{0, 26}) || f.ECTPackets != 1 || f.CEPackets != 1 || f.Packets != 4 {
		t.Errorf("DSCP %v, ECT %d, CE %d of %d packets; want [0 26], 1, 1 of 4", f.DSCP, f.ECTPackets, f.CEPackets, f.Packets)
	}
}

// TestRun_path: what upstream taps saw minus what the judged tap saw is what the queue between them dropped, exactly.
func TestRun_path(t *testing.T) {
	g := smallIncast()
	dropped, up, down := map[string]int64{}, *g, *g
	up.records, down.records = nil, nil
	for i, r := range g.records {
		toReceiver := strings.Contains(r.conn, ">192.0.2.100:")
		up.records = append(up.records, r) // ingress of every port: data and acknowledgements
		if !toReceiver {
			continue // egress of the receiver's port
		}
		if i%37 == 0 {
			dropped[r.conn]++
			continue
		}
		r.t += 500
		down.records = append(down.records, r)
	}
	doc := analyse(t, Options{}, Input{Path: writeFile(t, "r1.pcap", down.pcap()), Tap: "r1"}, Input{Path: writeFile(t, "ingress.pcap", up.pcap()), Role: Upstream})
	if doc.Path == nil {
		t.Fatal("no path")
	}
	var sum int64
	for _, f := range doc.Path.Flows {
		if f.Dst != "192.0.2.100" {
			if f.Control.LostPackets != nil || f.Control.UpstreamPackets == 0 {
				t.Errorf("%s: control %+v; the judged tap does not see that way: want null", f.ID, f.Control)
			}
			continue
		}
		if got := *f.Data.LostPackets; got != dropped[f.ID] {
			t.Errorf("%s: %d data packets lost, %d were dropped", f.ID, got, dropped[f.ID])
		}
		sum += dropped[f.ID]
	}
	if sum == 0 || *doc.Path.Data.LostPackets != sum {
		t.Errorf("lost in all %d, dropped %d", *doc.Path.Data.LostPackets, sum)
	}
	if doc.Files[1].Role != "upstream" || doc.Totals.RoCEPackets != int64(len(down.records)) {
		t.Errorf("the metrics come from %d packets, the judged tap has %d", doc.Totals.RoCEPackets, len(down.records))
	}
}

// TestRun_mergesByTime: two judged taps, one for each direction, give what one tap of both gives.
func TestRun_mergesByTime(t *testing.T) {
	g := smallIncast()
	one := analyse(t, Options{}, Input{Path: writeFile(t, "both.pcap", g.pcap())})
	a, b := *g, *g
	a.records, b.records = nil, nil
	for _, r := range g.records {
		if strings.Contains(r.conn, ">192.0.2.100:") {
			a.records = append(a.records, r)
		} else {
			b.records = append(b.records, r)
		}
	}
	two := analyse(t, Options{}, Input{Path: writeFile(t, "a.pcap", a.pcap())}, Input{Path: writeFile(t, "b.pcap", b.pcap())})
	if diff := cmp.Diff(one.Flows, two.Flows); diff != "" {
		t.Errorf("flows (-one file +two files):\n%s", diff)
	}
	if diff := cmp.Diff(one.Series, two.Series); diff != "" {
		t.Errorf("series (-one file +two files):\n%s", diff)
	}
}

// TestRun_pcapngDrops: drop statistics of the file make the verdict; interfaces are listed.
func TestRun_pcapngDrops(t *testing.T) {
	g := smallIncast()
	for _, drops := range []uint64{0, 12} {
		var b bytes.Buffer
		w, err := capture.NewWriter(&b, capture.WriterOptions{Interfaces: []capture.Interface{{Name: "p_r1", LinkType: roce.LinkEthernet}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range g.records {
			if err := w.Write(&capture.Packet{TimeNS: r.t, Data: r.frame, OrigLen: len(r.frame), LinkType: roce.LinkEthernet}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.WriteStats(0, genEpoch+1e9, uint64(len(g.records))+drops, drops), w.Flush()); err != nil {
			t.Fatal(err)
		}
		doc := analyse(t, Options{}, Input{Path: writeFile(t, "x.pcapng", b.Bytes())})
		want := Complete
		if drops > 0 {
			want = Incomplete
		}
		if q := doc.Quality; q.Drops == nil || *q.Drops != int64(drops) || q.Verdict != want {
			t.Errorf("%d drops: quality %+v, want %s", drops, q, want)
		}
		if f := doc.Files[0]; len(f.Interfaces) != 1 || f.Interfaces[0].Name != "p_r1" || f.LinkType != "ethernet" {
			t.Errorf("file %+v", f)
		}
	}
}

// TestRun_coarsensBins: when there is no room the bins double, and every count stays.
func TestRun_coarsensBins(t *testing.T) {
	path := writeFile(t, "x.pcap", smallIncast().pcap())
	fine := analyse(t, Options{Bin: time.Microsecond}, Input{Path: path})
	coarse := analyse(t, Options{Bin: time.Microsecond, MaxCells: 200}, Input{Path: path})
	if coarse.Series.BinNS <= fine.Series.BinNS {
		t.Fatalf("bins of %d ns under a bound of 200 cells", coarse.Series.BinNS)
	}
	cells := 0
	for i, s := range coarse.Series.Flows {
		cells += len(s.Packets)
		f := fine.Series.Flows[i]
		sum := func(v []int64) (n int64) {
			for _, x := range v {
				n += x
			}
			return n
		}
		got := []int64{sum(s.Packets), sum(s.CE), sum(s.CNPs), sum(s.Retransmits)}
		if want := []int64{sum(f.Packets), sum(f.CE), sum(f.CNPs), sum(f.Retransmits)}; !slices.Equal(got, want) {
			t.Errorf("flow %s: packets, CE, CNPs, retransmits %v, want %v", s.ID, got, want)
		}
	}
	if cells > 2*200 {
		t.Errorf("%d cells under a bound of 200", cells)
	}
}

// TestRun_crossingQPs is the trap of real captures: two QPs of one pair of hosts start at the same PSN, and the number
// of each at the sender is the number of the other at the receiver. Joining by QP number would swap their CNPs.
func TestRun_crossingQPs(t *testing.T) {
	for seed := range uint64(20) {
		g := generate(genParams{seed: seed, pairs: 2, hosts: 1, messages: 40, lives: 1, ce: 0.3, mtu: 256, window: 16, samePSN: true})
		doc := analyse(t, Options{}, Input{Path: writeFile(t, "x.pcap", g.pcap())})
		for _, f := range doc.Flows {
			for _, h := range g.halves {
				if h.name == f.ID && (f.CNPs == nil || *f.CNPs != h.cnps || *f.SrcQP != uint32(h.back.qp)) {
					t.Errorf("seed %d: flow %s: CNPs %v, source QP %v; want %d and 0x%x", seed, f.ID, f.CNPs, f.SrcQP, h.cnps, h.back.qp)
				}
			}
		}
	}
}

func TestRun_refuses(t *testing.T) {
	good := writeFile(t, "x.pcap", smallIncast().pcap())
	for _, tt := range []struct {
		name, why string
		inputs    []Input
		o         Options
		want      []string
	}{
		{"no_input", "nothing to read", nil, Options{}, []string{"no capture given"}},
		{"missing", "names the file", []Input{{Path: "/nonexistent/x.pcap"}}, Options{}, []string{"/nonexistent/x.pcap"}},
		{"not_a_capture", "text is no capture", []Input{{Path: writeFile(t, "x.txt", []byte("hello, world, this is text"))}}, Options{}, []string{"not a capture file"}},
		{"role", "an unknown role", []Input{{Path: good, Role: "side"}}, Options{}, []string{`role "side"`}},
		{"options", "all mistakes at once", []Input{{Path: good}}, Options{Bin: -1, LinkRateBps: -1, Phases: []Phase{{Name: "back", StartNS: 5, EndNS: 5},
			{Name: "gone", EndNS: 10, TrimStart: 6, TrimEnd: 6}}}, []string{"bin -1ns", "link rate", `phase "back"`, `phase "gone": nothing is left`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Run(t.Context(), tt.inputs, tt.o)
			if err == nil {
				t.Fatalf("no error (%s)", tt.why)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not contain %q (%s)", err, w, tt.why)
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, []Input{{Path: good}}, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: error %v", err)
	}
}

// TestDocument_isStableJSON: the same bytes twice, arrays never null, and only what may be unmeasured is null.
func TestDocument_isStableJSON(t *testing.T) {
	path := filepath.Join(fixtures.Dir(t), "pcap", "netem_loss1", "netem_loss1.r1-ingress.pcap")
	var texts []string
	for range 2 {
		b, err := json.MarshalIndent(analyse(t, Options{}, Input{Path: path}), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	if texts[0] != texts[1] {
		t.Error("two runs give different bytes")
	}
	if !strings.HasPrefix(texts[0], "{\n \"schema\": \"pcmlab/analysis/v1\"") {
		t.Errorf("starts with %.60q", texts[0])
	}
	var tree any
	if err := json.Unmarshal([]byte(texts[0]), &tree); err != nil {
		t.Fatal(err)
	}
	nulls := map[string]bool{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case nil:
			nulls[path] = true
		case map[string]any:
			for k, x := range v {
				walk(strings.TrimPrefix(path+"."+k, "."), x)
			}
		case []any:
			for _, x := range v {
				walk(path, x)
			}
		}
	}
	walk("", tree)
	for _, unmeasured := range []string{"flows.cnp_gap_ns", "flows.cnp_delay_ns", "congestion.cnp_scopes.gap_ns"} { // no CNP in this capture
		for _, q := range []string{"min", "p50", "p90", "p99", "p999", "max"} {
			if !nulls[unmeasured+"."+q] {
				t.Errorf("%s.%s is not null, though no CNP was captured", unmeasured, q)
			}
			delete(nulls, unmeasured+"."+q)
		}
	}
	got := slices.Sorted(maps.Keys(nulls))
	want := []string{"aggregate.common", "aggregate.goodput_utilisation", "aggregate.utilisation", "checks.rows.time_ns", "congestion.pacing_ns", "congestion.pacing_scope",
		"congestion.receivers.queue_bytes", "files.drops", "files.interfaces.drops", "files.truncated_at", "flows.completion_ns.atomic", "flows.completion_ns.read", "flows.completion_ns.send",
		"flows.reaction", "flows.request_id", "path", "quality.drops", "series.flows.acks_per_call", "series.flows.cwnd_bytes", "series.flows.pacer_rate_bps", "series.jain", "totals.icrc_bad"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("null fields (-want +got):\n%s", diff)
	}
}

// TestRun_manyMessagesWithoutAnswers: messages that nobody acknowledges are timed to their last packet, all of them, though
// only some are held.
func TestRun_manyMessagesWithoutAnswers(t *testing.T) {
	g := generate(genParams{seed: 5, pairs: 3, hosts: 3, messages: 4 * waitBlind, lives: 1, mtu: 1024, window: 64, uc: true})
	packets, _, _, _ := modelPcap(g.pcap())
	doc := analyse(t, Options{}, Input{Path: writeFile(t, "x.pcap", g.pcap())})
	want := modelFlows(packets, doc.Series.BinNS, map[string]string{})
	n := 0
	for _, f := range doc.Flows {
		if f.Service == "UC" {
			n++
			if f.MessageNS.Until != "last_packet" {
				t.Errorf("flow %s: message times until %q", f.ID, f.MessageNS.Until)
			}
			compareTimes(t, f.ID, want[f.ID].msg, Latency{Samples: f.MessageNS.Count, P50: f.MessageNS.P50, P99: f.MessageNS.P99, Max: f.MessageNS.Max})
		}
	}
	if n != 1 {
		t.Errorf("%d UC flows, want 1", n)
	}
}
