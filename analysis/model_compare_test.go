package analysis

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// Comparison of documents with the model. Counts, times of events and extremes are equal; quantiles are as near as the
// histograms are exact: 2.7 %, and 1 for rounding.

type reporter interface {
	Helper()
	Errorf(string, ...any)
}

func near(a, b float64) bool {
	return a == b || math.Abs(a-b) <= 1e-9*math.Max(math.Abs(a), math.Abs(b))
}

func nearFloat(a, b *float64) bool {
	if a == nil || b == nil {
		return a == b
	}
	return near(*a, *b)
}

func nearSample(got *int64, want int64) bool {
	return got != nil && math.Abs(float64(*got-want)) <= 0.027*float64(want)+1
}

// modelRank is the nearest-rank quantile of sorted samples, permille given.
func modelRank(sorted []int64, permille int) int64 {
	return sorted[max((len(sorted)*permille+999)/1000, 1)-1]
}

func sorted64(x []int64) []int64 {
	s := append([]int64(nil), x...)
	sort.Slice(s, func(i, j int) bool { return s[i] < s[j] })
	return s
}

// compareLatency holds a summary to its samples.
func compareLatency(t reporter, what string, want []int64, got Latency) {
	t.Helper()
	if int(got.Samples) != len(want) {
		t.Errorf("%s: %d samples, the model has %d", what, got.Samples, len(want))
		return
	}
	if len(want) == 0 {
		if got != (Latency{}) {
			t.Errorf("%s: numbers without samples", what)
		}
		return
	}
	s := sorted64(want)
	if got.Min == nil || got.Max == nil || *got.Min != s[0] || *got.Max != s[len(s)-1] {
		t.Errorf("%s: min %s, max %s; the model has %d and %d", what, text(got.Min), text(got.Max), s[0], s[len(s)-1])
	}
	for _, q := range []struct {
		name     string
		permille int
		got      *int64
	}{{"p50", 500, got.P50}, {"p90", 900, got.P90}, {"p99", 990, got.P99}, {"p999", 999, got.P999}} {
		if w := modelRank(s, q.permille); !nearSample(q.got, w) {
			t.Errorf("%s: %s of %d samples is %s, the model says %d", what, q.name, len(s), text(q.got), w)
		}
	}
}

func text(v *int64) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprint(*v)
}

func compareMessages(t reporter, what string, want []int64, until string, got Messages) {
	t.Helper()
	if int(got.Count) != len(want) {
		t.Errorf("%s: %d, the model has %d", what, got.Count, len(want))
		return
	}
	if len(want) == 0 {
		return
	}
	s := sorted64(want)
	if got.Until != until {
		t.Errorf("%s: until %q, the model says %q", what, got.Until, until)
	}
	if *got.Max != s[len(s)-1] || !nearSample(got.P50, modelRank(s, 500)) || !nearSample(got.P99, modelRank(s, 990)) {
		t.Errorf("%s: p50 %d, p99 %d, max %d; the model says %d, %d, %d", what, *got.P50, *got.P99, *got.Max, modelRank(s, 500), modelRank(s, 990), s[len(s)-1])
	}
}

func compareBursts(t reporter, what string, want []int64, gap int64, got Bursts) {
	t.Helper()
	if int(got.Count) != len(want) || got.GapNS != gap {
		t.Errorf("%s: %d with gap %d, the model has %d with gap %d", what, got.Count, got.GapNS, len(want), gap)
		return
	}
	if len(want) == 0 {
		return
	}
	s := sorted64(want)
	if got.Max == nil || *got.Max != s[len(s)-1] || !nearSample(got.P50, modelRank(s, 500)) || !nearSample(got.P99, modelRank(s, 990)) {
		t.Errorf("%s: p50 %s, p99 %s, max %s; the model says %d, %d, %d", what, text(got.P50), text(got.P99), text(got.Max), modelRank(s, 500), modelRank(s, 990), s[len(s)-1])
	}
}

func compareRates(t reporter, what string, want []int64, got *Rates) {
	t.Helper()
	if len(want) == 0 || got == nil {
		if len(want) > 0 || got != nil {
			t.Errorf("%s: %+v, the model has %d samples", what, got, len(want))
		}
		return
	}
	s := sorted64(want)
	r := func(v float64) *int64 { return ptr(int64(math.Round(v))) }
	if !nearSample(r(got.Min), s[0]) || !nearSample(r(got.P50), modelRank(s, 500)) || !nearSample(r(got.Max), s[len(s)-1]) {
		t.Errorf("%s: %+v, the model says %d, %d, %d", what, *got, s[0], modelRank(s, 500), s[len(s)-1])
	}
}

// compareFlows compares every flow with the model's, whose keys are the flows' ids; times only where asked.
func compareFlows(t reporter, doc *Document, want map[string]*modelFlow, times bool) {
	t.Helper()
	for id := range want {
		if strings.HasSuffix(id, ":0x000001") { // management is no flow
			delete(want, id)
		}
	}
	if len(doc.Flows) != len(want) {
		t.Errorf("analysis has %d flows, the model %d: %v", len(doc.Flows), len(want), sortedKeys(want))
	}
	for i, f := range doc.Flows {
		w := want[f.ID]
		if w == nil {
			t.Errorf("flow %s: the model does not have it", f.ID)
			continue
		}
		counts := func(f *Flow) map[string]int64 {
			return map[string]int64{"packets": f.Packets, "payload": f.PayloadBytes, "unique": f.UniqueBytes, "wire": f.WireBytes, "ce": f.CEPackets,
				"ect": f.ECTPackets, "duplicates": f.DuplicatePackets, "first": f.FirstNS, "last": f.LastNS,
				"write": f.Operations.Write, "send": f.Operations.Send, "read": f.Operations.Read, "atomic": f.Operations.Atomic}
		}
		model := map[string]int64{"packets": w.packets, "payload": w.payload, "unique": w.unique, "wire": w.wire, "ce": w.ce,
			"ect": w.ect, "duplicates": w.duplicates, "first": w.first, "last": w.last,
			"write": w.write, "send": w.send, "read": w.read, "atomic": w.atomic}
		if diff := cmp.Diff(model, counts(&f)); diff != "" {
			t.Errorf("flow %s (-model +analysis):\n%s", f.ID, diff)
		}
		if f.GoodputBps != nil && !near(*f.GoodputBps, w.goodput) {
			t.Errorf("flow %s: goodput %g, the model says %g", f.ID, *f.GoodputBps, w.goodput)
		}
		if strings.Contains(strings.Join(f.Notes, " "), "may be those of another one") { // said so: not held to it
			for _, b := range w.bins {
				b.cnps = 0
			}
			zeroCNPs(doc, i, want)
		} else if (f.CNPs != nil) != w.paired {
			t.Errorf("flow %s: answers found %v, the model says %v", f.ID, f.CNPs != nil, w.paired)
		} else if w.paired && f.Service == "RC" {
			got := []int64{*f.CNPs, *f.Acks, f.NAKs.sum() - f.NAKs.RNR, f.NAKs.RNR}
			if diff := cmp.Diff([]int64{w.cnps, w.acks, w.naks, w.rnr}, got); diff != "" {
				t.Errorf("flow %s: CNPs, ACKs, NAKs, RNR NAKs (-model +analysis):\n%s", f.ID, diff)
			}
		}
		if times {
			compareTimes(t, f.ID+": rtt", w.rtt, f.RTTNS)
			compareMessages(t, f.ID+": messages", w.msg, w.until, f.MessageNS)
		}
		compareBins(t, doc, i, w)
	}
}

func compareTimes(t reporter, what string, want []int64, got Latency) {
	t.Helper()
	if int(got.Samples) != len(want) {
		t.Errorf("%s: %d samples, the model has %d", what, got.Samples, len(want))
		return
	}
	if len(want) == 0 {
		return
	}
	s := sorted64(want)
	if *got.Max != s[len(s)-1] || !nearSample(got.P50, modelRank(s, 500)) || !nearSample(got.P99, modelRank(s, 990)) {
		t.Errorf("%s: p50 %d, p99 %d, max %d; the model says %d, %d, %d", what, *got.P50, *got.P99, *got.Max, modelRank(s, 500), modelRank(s, 990), s[len(s)-1])
	}
}

func compareBins(t reporter, doc *Document, i int, w *modelFlow) {
	t.Helper()
	s := doc.Series.Flows[i]
	got := map[int]modelBin{}
	for j := range s.Packets {
		b := modelBin{unique: int64(math.Round(s.GoodputBps[j] * float64(doc.Series.BinNS) / 8e9)), packets: s.Packets[j], ce: s.CE[j]}
		if s.CNPs != nil {
			b.cnps = s.CNPs[j]
		}
		if b != (modelBin{}) {
			got[s.FirstBin+j] = b
		}
	}
	want := map[int]modelBin{}
	for j, b := range w.bins {
		if b := *b; b != (modelBin{}) {
			b.wire = 0 // compareSent
			want[j] = b
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(modelBin{})); diff != "" {
		t.Errorf("flow %s: bins (-model +analysis):\n%s", s.ID, diff)
	}
}
