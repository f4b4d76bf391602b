package analysis

import (
	"fmt"
	"math"
	"net"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// compareMeasures holds everything beyond the counts of flows to the model.
func compareMeasures(t reporter, doc *Document, o Options, truth *genTruth, flows map[string]*modelFlow, times bool) {
	t.Helper()
	var origin int64
	if len(truth.packets) > 0 {
		origin = truth.packets[0].t
	}
	for i, f := range doc.Flows {
		w := flows[f.ID]
		if w == nil {
			continue
		}
		if want := float64(w.ce) / float64(w.packets); !nearFloat(f.CEShare, &want) {
			t.Errorf("flow %s: CE share %v, the model says %g", f.ID, f.CEShare, want)
		}
		gap := modelScaled(10_000, o.TimeScale)
		sizes, _ := modelBursts(w.list, func(*modelPacket) int64 { return gap })
		compareBursts(t, f.ID+": bursts", sizes, gap, f.Bursts)
		tags := []map[int]bool{set(f.DSCP), set(f.PCP), set(f.VLAN)}
		if diff := cmp.Diff([]map[int]bool{w.dscp, w.pcp, w.vlan}, tags); diff != "" {
			t.Errorf("flow %s: DSCP, PCP, VLAN (-model +analysis):\n%s", f.ID, diff)
		}
		compareSent(t, doc, i, w)
		if !truth.rivals && w.read == 0 && !w.asksReads() && (f.MissedByTap < w.missed[0] || f.MissedByTap > w.missed[1]) {
			t.Errorf("flow %s: %d packets missed by the tap, the model says %v", f.ID, f.MissedByTap, w.missed)
		}
		if strings.Contains(strings.Join(f.Notes, " "), "may be those of another one") || !times {
			continue
		}
		for op, got := range map[string]*Messages{"write": f.CompletionNS.Write, "send": f.CompletionNS.Send, "read": f.CompletionNS.Read, "atomic": f.CompletionNS.Atomic} {
			if got == nil {
				got = &Messages{}
			}
			compareMessages(t, f.ID+": "+op, w.byOp[op], w.until, *got)
		}
		if w.paired && f.CNPs != nil {
			compareNotified(t, &f, w, origin, o.TimeScale, truth.told)
		}
	}
	compareReceivers(t, doc, o, truth)
	compareScopes(t, doc, truth)
	comparePauses(t, doc, o, truth)
	if len(truth.packets) > 0 {
		compareFairness(t, doc, flows, origin)
	}
	compareTotals(t, doc, truth)
}

func set(x []int) map[int]bool {
	m := map[int]bool{}
	for _, v := range x {
		m[v] = true
	}
	return m
}

// compareNotified: what CNPs did to one flow.
func compareNotified(t reporter, f *Flow, w *modelFlow, origin int64, scale float64, told bool) {
	t.Helper()
	var at []int64
	for _, a := range w.answers {
		if a.isCNP() {
			at = append(at, a.t)
		}
	}
	compareLatency(t, f.ID+": CNP gaps", modelGaps(at), f.CNPGapNS)
	known := w.known()
	if told {
		known = 0
	}
	early := true // a CNP before it was known whose it was: which mark the next one answers is not known either
	for _, a := range w.answers {
		early = early || a.isCNP() && a.order < known
	}
	if !early {
		compareLatency(t, f.ID+": CNP delay", modelDelays(w.list, w.answers, known), f.CNPDelayNS)
	}
	r := modelReactions(w.list, w.answers, origin, scale, known)
	if f.Reaction == nil {
		if r.seen > 0 {
			t.Errorf("flow %s: no reaction to %d CNPs", f.ID, r.seen)
		}
		return
	}
	g := f.Reaction
	got := []int64{g.WindowNS, g.Episodes, g.Cut, g.NoCut, g.Recovered, g.Interrupted, g.Unfinished}
	if diff := cmp.Diff([]int64{modelScaled(100_000, scale), r.episodes, r.cut, r.noCut, r.recovered, r.interrupted, r.unfinished}, got); diff != "" {
		t.Errorf("flow %s: window, episodes, cut, no cut, recovered, interrupted, unfinished (-model +analysis):\n%s", f.ID, diff)
	}
	compareRates(t, f.ID+": before", r.before, g.BeforeBps)
	compareRates(t, f.ID+": lowest", r.lowest, g.LowestBps)
	compareLatency(t, f.ID+": recover", r.recover, g.RecoverNS)
}

// compareSent: whole frames over time.
func compareSent(t reporter, doc *Document, i int, w *modelFlow) {
	t.Helper()
	s := doc.Series.Flows[i]
	if len(s.SentBps) != len(s.Packets) {
		t.Errorf("flow %s: %d bins of sent_bps, %d of packets", s.ID, len(s.SentBps), len(s.Packets))
		return
	}
	for j, v := range s.SentBps {
		want := 0.0
		if b := w.bins[s.FirstBin+j]; b != nil {
			want = float64(b.wire) * 8e9 / float64(doc.Series.BinNS)
		}
		if !near(v, want) {
			t.Errorf("flow %s: bin %d: sent %g bit/s, the model says %g", s.ID, s.FirstBin+j, v, want)
		}
	}
}

// compareReceivers: busy periods and the queue, by destination.
func compareReceivers(t reporter, doc *Document, o Options, truth *genTruth) {
	t.Helper()
	by := map[string][]*modelPacket{}
	for i := range truth.packets {
		if p := &truth.packets[i]; p.isData() {
			by[p.dst] = append(by[p.dst], p)
		}
	}
	var names []string
	for _, r := range doc.Congestion.Receivers {
		names = append(names, r.Dst)
		list := by[r.Dst]
		if len(list) == 0 {
			t.Errorf("receiver %s: the model does not have it", r.Dst)
			continue
		}
		gap := modelScaled(10_000, o.TimeScale)
		of := func(*modelPacket) int64 { return gap }
		want := gap
		if o.LinkRateBps > 0 {
			serialise := func(bytes int) int64 { return int64(2 * float64(bytes) * 8e9 / o.LinkRateBps) }
			of = func(p *modelPacket) int64 { return serialise(p.wire) }
			want = serialise(1024)
		}
		sizes, lengths := modelBursts(list, of)
		compareLatency(t, "receiver "+r.Dst+": busy", lengths, r.BusyNS)
		compareBursts(t, "receiver "+r.Dst+": busy bytes", sizes, want, r.BusyBytes)
		if r.GapNS != want {
			t.Errorf("receiver %s: gap %d, the model says %d", r.Dst, r.GapNS, want)
		}
		var share *float64
		if first, last := list[0].t, list[len(list)-1].t; last > first {
			busy := int64(0)
			for _, l := range lengths {
				busy += l
			}
			share = ptr(float64(busy) / float64(last-first))
		}
		if !nearFloat(share, r.BusyShare) {
			t.Errorf("receiver %s: busy share %v, the model says %v", r.Dst, r.BusyShare, share)
		}
		if (r.QueueBytes != nil) != (o.LinkRateBps > 0) {
			t.Errorf("receiver %s: queue %v with a link of %g bit/s", r.Dst, r.QueueBytes, o.LinkRateBps)
		} else if q := r.QueueBytes; q != nil {
			s := sorted64(modelQueue(list, o.LinkRateBps))
			// a queue in float64 may fall to either side of a whole byte
			if math.Abs(float64(q.Max-s[len(s)-1])) > 1 || !nearSample(&q.P50, modelRank(s, 500)) || !nearSample(&q.P99, modelRank(s, 990)) {
				t.Errorf("receiver %s: queue %+v, the model says %d, %d, %d", r.Dst, *q, modelRank(s, 500), modelRank(s, 990), s[len(s)-1])
			}
		}
	}
	if len(names) != len(by) {
		t.Errorf("receivers %v, the model has %v", names, sortedKeys(by))
	}
}

// compareScopes: gaps between CNPs by what might be paced together.
func compareScopes(t reporter, doc *Document, truth *genTruth) {
	t.Helper()
	c := doc.Congestion
	for i, s := range c.Scopes {
		groups := modelCNPs(truth.packets, modelScopes[i])
		var gaps []int64
		for _, k := range sortedKeys(groups) {
			gaps = append(gaps, modelGaps(groups[k])...)
		}
		if s.Scope != modelScopes[i] || s.Groups != len(groups) {
			t.Errorf("scope %s: %d groups, the model has %d of %s", s.Scope, s.Groups, len(groups), modelScopes[i])
		}
		compareLatency(t, "scope "+s.Scope, gaps, s.GapNS)
	}
	if len(c.Scopes) != len(modelScopes) {
		t.Errorf("%d scopes, want %d", len(c.Scopes), len(modelScopes))
	}
	if len(truth.packets) > 0 && truth.packets[0].mac != "" {
		compareCNPCounts(t, "ports", c.Ports, modelCNPs(truth.packets, ScopePort), func(n CNPCount) string {
			mac, _ := net.ParseMAC(n.Src)
			return string(mac)
		})
	}
	compareCNPCounts(t, "pairs", c.Pairs, modelCNPs(truth.packets, ScopeIPPair), func(n CNPCount) string { return n.Src + ">" + n.Dst })
}

func compareCNPCounts(t reporter, what string, got []CNPCount, want map[string][]int64, key func(CNPCount) string) {
	t.Helper()
	for _, n := range got {
		at := want[key(n)]
		if int(n.CNPs) != len(at) {
			t.Errorf("CNP %s: %d from %s to %s, the model has %d", what, n.CNPs, n.Src, n.Dst, len(at))
			continue
		}
		compareLatency(t, fmt.Sprintf("CNP %s: %s %s", what, n.Src, n.Dst), modelGaps(at), n.GapNS)
		var rate *float64
		if d := at[len(at)-1] - at[0]; d > 0 {
			rate = ptr(float64(len(at)-1) * 1e9 / float64(d))
		}
		if !nearFloat(rate, n.RateHz) {
			t.Errorf("CNP %s: %s %s: rate %v, the model says %v", what, n.Src, n.Dst, n.RateHz, rate)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d CNP %s, the model has %d", len(got), what, len(want))
	}
}

// comparePauses: PFC and PAUSE by port and priority.
func comparePauses(t reporter, doc *Document, o Options, truth *genTruth) {
	t.Helper()
	by := map[string][]modelPause{}
	for _, p := range truth.pauses {
		k := fmt.Sprintf("%s %d", net.HardwareAddr(p.src), p.priority)
		by[k] = append(by[k], p)
	}
	for _, g := range doc.PFC {
		priority := 8
		if g.Priority != nil {
			priority = *g.Priority
		}
		k := fmt.Sprintf("%s %d", g.Src, priority)
		if len(by[k]) == 0 {
			t.Errorf("pause %s: the model does not have it", k)
			continue
		}
		w := modelPausePort(by[k], o.LinkRateBps, truth.end)
		want := []any{w.frames, w.resumes, w.pauses, w.first, w.last, "null", "null"}
		if o.LinkRateBps > 0 {
			want[5], want[6] = fmt.Sprint(w.paused), fmt.Sprint(w.longest)
		}
		got := []any{g.PauseFrames, g.ResumeFrames, g.Pauses, g.FirstNS, g.LastNS, text(g.PausedNS), text(g.LongestNS)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pause %s: frames, resumes, pauses, first, last, paused, longest (-model +analysis):\n%s", k, diff)
		}
	}
	if len(doc.PFC) != len(by) {
		t.Errorf("%d paused ports, the model has %v", len(doc.PFC), sortedKeys(by))
	}
}

// compareFairness: over the flows that take part in Jain's index.
func compareFairness(t reporter, doc *Document, flows map[string]*modelFlow, origin int64) {
	t.Helper()
	var ids, senders []string // those with a rate, and all that sent something
	var rates []float64
	for _, f := range doc.Flows {
		if flows[f.ID] == nil || f.State == StateFailed || f.UniqueBytes == 0 {
			continue
		}
		senders = append(senders, f.ID)
		if f.GoodputBps != nil {
			ids = append(ids, f.ID)
			rates = append(rates, *f.GoodputBps)
		}
	}
	compareIndices(t, "all", rates, doc.Aggregate.Jain, doc.Aggregate.MinMax)
	c := doc.Aggregate.Common
	width := doc.Series.BinNS
	from, to, sums := int64(0), int64(0), []float64(nil)
	if len(ids) >= 2 {
		from, to, sums = modelCommon(flows, ids, origin, width)
	}
	switch {
	case (c != nil) != (len(ids) >= 2 && to > from):
		t.Errorf("common interval %+v, the model has [%d, %d) of %d flows", c, from, to, len(ids))
	case c != nil:
		if c.StartNS != from || c.EndNS != to || c.Flows != len(ids) {
			t.Errorf("common interval %+v, the model has [%d, %d) of %d flows", c, from, to, len(ids))
		}
		compareIndices(t, "common", sums, c.Jain, c.MinMax)
	}
	if len(doc.Series.Jain) != doc.Series.Bins {
		t.Errorf("Jain's index of %d bins of %d", len(doc.Series.Jain), doc.Series.Bins)
		return
	}
	for b, got := range doc.Series.Jain {
		if want, _ := modelBinJain(flows, senders, b, origin, width); !nearFloat(want, got) {
			t.Errorf("bin %d: Jain %v, the model says %v", b, got, want)
		}
	}
	want := modelConvergence(flows, senders, origin, width, doc.Series.Bins)
	got := append([]Convergence(nil), doc.Aggregate.Convergence...)
	for i := range got {
		if (got[i].TimeNS == nil) != (got[i].Reason != "") {
			t.Errorf("convergence %+v: a reason is for what has no time", got[i])
		}
		got[i].Reason = ""
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(nearFloat)); diff != "" {
		t.Errorf("convergence (-model +analysis):\n%s", diff)
	}
}

func compareIndices(t reporter, what string, rates []float64, jain, minMax *float64) {
	t.Helper()
	var wantJain, wantMinMax *float64
	if j := modelJain(rates); !math.IsNaN(j) {
		wantJain = &j
	}
	lo, hi := math.Inf(1), 0.0
	for _, r := range rates {
		lo, hi = min(lo, r), max(hi, r)
	}
	if hi > 0 {
		wantMinMax = ptr(lo / hi)
	}
	if !nearFloat(wantJain, jain) || !nearFloat(wantMinMax, minMax) {
		t.Errorf("%s: Jain %v, min/max %v; the model says %v and %v", what, value(jain), value(minMax), value(wantJain), value(wantMinMax))
	}
}

func value(v *float64) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprint(*v)
}

// compareTotals: over all packets, whatever they belong to.
func compareTotals(t reporter, doc *Document, truth *genTruth) {
	t.Helper()
	want := Totals{Packets: truth.frames}
	ops := map[int]int64{}
	for i := range truth.packets {
		p := &truth.packets[i]
		want.RoCEPackets++
		ops[p.op]++
		switch p.ecn {
		case 0:
			want.ECN.NotECT++
		case 1:
			want.ECN.ECT1++
		case 2:
			want.ECN.ECT0++
		case 3:
			want.ECN.CE++
			if p.isAck() {
				want.CEAckPackets++
			} else {
				want.CEDataPackets++
			}
		}
		switch {
		case p.isCNP():
			want.CNPPackets++
		case p.op == 17 && p.positive():
			want.AckPackets++
		case p.isAck() && p.syndrome>>5 == 3:
			want.NAKPackets++
		case p.op == 0x64 && p.qp == 1:
			want.MADPackets++
			if p.bytes[20+1] == 7 {
				want.CMPackets++
			}
		}
		if p.bytes[4]&0x80 != 0 {
			want.FECNPackets++
		}
		if p.bytes[4]&0x40 != 0 {
			want.BECNPackets++
		}
	}
	want.CEPackets = want.CEDataPackets + want.CEAckPackets
	got := doc.Totals
	totals := func(x Totals) map[string]any {
		return map[string]any{"packets": x.Packets, "roce": x.RoCEPackets, "ce": x.CEPackets, "ce data": x.CEDataPackets, "ce ack": x.CEAckPackets, "cnps": x.CNPPackets,
			"acks": x.AckPackets, "naks": x.NAKPackets, "mads": x.MADPackets, "cm": x.CMPackets, "fecn": x.FECNPackets, "becn": x.BECNPackets, "ecn": x.ECN}
	}
	if diff := cmp.Diff(totals(want), totals(got)); diff != "" {
		t.Errorf("totals (-model +analysis):\n%s", diff)
	}
	var sum, kinds int64
	for _, n := range got.Opcodes {
		sum += n
		kinds++
	}
	if sum != want.RoCEPackets || int(kinds) != len(ops) {
		t.Errorf("%d packets of %d opcodes, the model has %d of %d", sum, kinds, want.RoCEPackets, len(ops))
	}
}
