package experiments

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

// A tool that says more than crossed the tap for the first time in its window is right when what was sent again explains
// the difference, and wrong otherwise. So it is when the difference is a message that is in at one end and out at the other.
func TestAgreeRate_resent(t *testing.T) {
	const id, bin = "f", int64(time.Second)
	for _, c := range []struct {
		name   string
		tool   float64 // Mbit/s; the capture has 100 over 10 s
		resent int64   // MB
		size   int     // MB of a message, with two queue pairs
		limit  float64 // Gbit/s that the tool is held to, with two messages under way on each
		want   Verdict
	}{
		{"the same", 100, 0, 1, 0, Pass},
		{"within the tolerance", 101.9, 0, 1, 0, Pass},
		{"beyond it", 104, 0, 1, 0, Fail},
		{"explained by 5 % that were sent again", 104, 6, 1, 0, Pass},
		{"more than what was sent again explains", 110, 6, 1, 0, Fail},
		{"a message of each queue pair", 110, 0, 6, 0, Pass}, // 96 of 1000 Mbit
		{"more than a message of each", 114, 0, 6, 0, Fail},
		{"what a flow that is held back had under way", 110, 0, 3, 0.2, Pass},
		{"more than it had", 114, 0, 3, 0.2, Fail},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc := &analysis.Document{Flows: []analysis.Flow{{ID: id, RetransmittedBytes: c.resent * 1e6}}}
			series := analysis.FlowSeries{ID: id}
			for range 10 {
				series.GoodputBps = append(series.GoodputBps, 100e6)
			}
			doc.Series.BinNS, doc.Series.Flows = bin, []analysis.FlowSeries{series}
			window := 10 * bin
			r := &Runner{result: &Result{}, plan: &Plan{Flows: []PlannedFlow{{Name: "h1", params: perftest.Params{Size: c.size * 1e6, QPs: 2, TxDepth: 2, RateLimitGbps: c.limit}}}}}
			tool := c.tool * 1e6
			r.agreeRate(doc, &FlowResult{Name: "h1", ToolBps: &tool, WindowNS: &window, AnalysisID: []string{id}})
			if got := r.result.Agreement[0]; got.Verdict != c.want {
				t.Errorf("tool %v, capture 100, %d MB sent again: %s (%s), want %s", c.tool, c.resent, got.Verdict, got.Reason, c.want)
			}
		})
	}
}

// TestAgreeRate_rounded: a tool that prints 0.000011 Gbit/s may have measured anything from 10.5 to 11.5 kbit/s.
func TestAgreeRate_rounded(t *testing.T) {
	const id = "f"
	for _, c := range []struct {
		capture float64
		mebi    bool
		want    Verdict
	}{
		{10_400, false, Pass},
		{10_000, false, Fail},
		{10_000, true, Pass}, // 0.01 MiB/s is 84 kbit/s
	} {
		doc := &analysis.Document{Flows: []analysis.Flow{{ID: id}}}
		doc.Series.BinNS = int64(10 * time.Second)
		doc.Series.Flows = []analysis.FlowSeries{{ID: id, GoodputBps: []float64{c.capture}}}
		tool, window := 11_000.0, int64(10*time.Second)
		r := &Runner{result: &Result{}, plan: &Plan{Flows: []PlannedFlow{{Name: "h1", params: perftest.Params{Size: 2, QPs: 1, MebiBytes: c.mebi}}}}}
		r.agreeRate(doc, &FlowResult{Name: "h1", ToolBps: &tool, WindowNS: &window, AnalysisID: []string{id}})
		if got := r.result.Agreement[0]; got.Verdict != c.want {
			t.Errorf("tool 11000, capture %v, MiB/s %t: %s (%s), want %s", c.capture, c.mebi, got.Verdict, got.Reason, c.want)
		}
	}
}

// TestPasses: a tap sees what passes its ports in its direction; where the judged one sees some flows only, what it counted is not
// held against a NIC that had them all.
func TestPasses(t *testing.T) {
	tap := func(d inventory.Direction, ports ...string) *inventory.Tap {
		return &inventory.Tap{Name: "tap", Host: "sw", Switch: "sw", Ports: ports, Direction: d}
	}
	for _, c := range []struct {
		name string
		tap  *inventory.Tap
		want string // the first flow that is not seen
	}{
		{"what goes to the receiver", tap(inventory.Egress, "r1"), ""},
		{"what comes from it", tap(inventory.Ingress, "r1"), "h1"},
		{"what comes from both senders", tap(inventory.Ingress, "h1", "h2"), ""},
		{"one sender's link", tap(inventory.Both, "h2"), "h1"},
		{"the receiver's own interface", &inventory.Tap{Name: "tap", Host: "r1", Iface: "eth0"}, ""},
		{"a sender's own interface", &inventory.Tap{Name: "tap", Host: "h1", Iface: "eth0"}, "h2"},
	} {
		r := &Runner{plan: &Plan{Flows: []PlannedFlow{{Name: "h1", From: "h1", To: "r1"}, {Name: "h2", From: "h2", To: "r1"}},
			Captures: []PlannedCapture{{Tap: "beside", tap: tap(inventory.Both, "r1")}, {Tap: "tap", Judge: true, tap: c.tap}}}}
		if got := r.unseen("r1"); got != c.want || r.unseen("") != c.want || r.unseen("h9") != "" {
			t.Errorf("%s: %q is not seen, want %q", c.name, got, c.want)
		}
		if both := c.tap.Direction == inventory.Both || c.tap.Switch == ""; r.passesJudge("r1") != (both || c.tap.Direction == inventory.Ingress && c.want != "") || r.passesJudge("h9") {
			t.Errorf("%s: what r1 sends passes: %t", c.name, r.passesJudge("r1"))
		}
	}
}

// TestNoRoom: what is missing in a NIC that had no room for some packets proves nothing; more than those, or a difference between the others, does.
func TestNoRoom(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	for _, c := range []struct {
		name    string
		values  []float64
		lost    *int64
		verdict Verdict
	}{
		{"explained", []float64{100, 100, 60}, n(40), Skip},
		{"more than that", []float64{100, 100, 59}, n(40), Fail},
		{"the others differ", []float64{100, 99, 60}, n(40), Fail},
		{"too many", []float64{100, 100, 101}, n(40), Fail},
		{"not known", []float64{100, 100, 60}, nil, Fail},
	} {
		k := CheckResult{Verdict: Fail}
		for _, v := range c.values {
			k.Values = append(k.Values, MetricValue{Value: v})
		}
		if noRoom(&k, c.lost); k.Verdict != c.verdict {
			t.Errorf("%s: %s (%s)", c.name, k.Verdict, k.Reason)
		}
	}
	same := CheckResult{Verdict: Pass, Values: []MetricValue{{Value: 1}, {Value: 1}}}
	if noRoom(&same, n(5)); same.Verdict != Pass {
		t.Errorf("what agrees: %s", same.Verdict)
	}
}
