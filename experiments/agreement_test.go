package experiments

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
)

// A tool that says more than crossed the tap for the first time in its window is right when what was sent again explains
// the difference, and wrong otherwise.
func TestAgreeRate_resent(t *testing.T) {
	const id, bin = "f", int64(time.Second)
	for _, c := range []struct {
		name   string
		tool   float64 // the capture has 100 bit/s over 10 s
		resent int64   // bytes
		want   Verdict
	}{
		{"the same", 100, 0, Pass},
		{"within the tolerance", 101.9, 0, Pass},
		{"beyond it", 104, 0, Fail},
		{"explained by 5 % that were sent again", 104, 6, Pass},
		{"more than what was sent again explains", 110, 6, Fail},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc := &analysis.Document{Flows: []analysis.Flow{{ID: id, RetransmittedBytes: c.resent}}}
			series := analysis.FlowSeries{ID: id}
			for range 10 {
				series.GoodputBps = append(series.GoodputBps, 100)
			}
			doc.Series.BinNS, doc.Series.Flows = bin, []analysis.FlowSeries{series}
			window := 10 * bin
			r := &Runner{result: &Result{}}
			r.agreeRate(doc, &FlowResult{Name: "h1", ToolBps: &c.tool, WindowNS: &window, AnalysisID: []string{id}})
			if got := r.result.Agreement[0]; got.Verdict != c.want {
				t.Errorf("tool %v, capture 100, %d bytes sent again: %s (%s), want %s", c.tool, c.resent, got.Verdict, got.Reason, c.want)
			}
		})
	}
}
