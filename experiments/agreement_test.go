package experiments

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

// A tool that says more than crossed the tap for the first time in its window is right when what was sent again explains
// the difference, and wrong otherwise. So it is when the difference is a message that is in at one end and out at the other.
func TestAgreeRate_resent(t *testing.T) {
	const id, bin = "f", int64(time.Second)
	for _, c := range []struct {
		name   string
		tool   float64 // the capture has 100 bit/s over 10 s
		resent int64   // bytes
		size   int     // of a message, with two queue pairs
		want   Verdict
	}{
		{"the same", 100, 0, 1, Pass},
		{"within the tolerance", 101.9, 0, 1, Pass},
		{"beyond it", 104, 0, 1, Fail},
		{"explained by 5 % that were sent again", 104, 6, 1, Pass},
		{"more than what was sent again explains", 110, 6, 1, Fail},
		{"a message of each queue pair", 110, 0, 6, Pass}, // 96 of 1000 bits
		{"more than a message of each", 114, 0, 6, Fail},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc := &analysis.Document{Flows: []analysis.Flow{{ID: id, RetransmittedBytes: c.resent}}}
			series := analysis.FlowSeries{ID: id}
			for range 10 {
				series.GoodputBps = append(series.GoodputBps, 100)
			}
			doc.Series.BinNS, doc.Series.Flows = bin, []analysis.FlowSeries{series}
			window := 10 * bin
			r := &Runner{result: &Result{}, plan: &Plan{Flows: []PlannedFlow{{Name: "h1", params: perftest.Params{Size: c.size, QPs: 2}}}}}
			r.agreeRate(doc, &FlowResult{Name: "h1", ToolBps: &c.tool, WindowNS: &window, AnalysisID: []string{id}})
			if got := r.result.Agreement[0]; got.Verdict != c.want {
				t.Errorf("tool %v, capture 100, %d bytes sent again: %s (%s), want %s", c.tool, c.resent, got.Verdict, got.Reason, c.want)
			}
		})
	}
}
