package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
)

// handlers are the charts of what the senders' handlers did, where their NICs logged it.
func (t *timeline) handlers() (charts []Chart) {
	add := func(c Chart, of func(*analysis.FlowSeries) []*float64, finish func(*Chart)) {
		if !slices.ContainsFunc(t.d.Series.Flows, func(s analysis.FlowSeries) bool { return of(&s) != nil }) {
			return
		}
		c.Note += t.cutNote()
		t.perFlow(&c, false, func(s *analysis.FlowSeries, from, to int) float64 { return known(of(s), from, to) })
		c.Lines = slices.DeleteFunc(c.Lines, func(l Line) bool { return !slices.ContainsFunc(l.Y, func(v float64) bool { return !math.IsNaN(v) }) })
		if finish != nil {
			finish(&c)
		}
		charts = append(charts, c)
	}
	add(Chart{Title: "Pacer rate", Note: t.note("what the sender's handler paces with")}, func(s *analysis.FlowSeries) []*float64 { return s.PacerRateBps }, inUnit)
	add(Chart{Title: "Window", Note: t.note("what the sender's handler lets be in flight"), YLabel: "KiB"}, func(s *analysis.FlowSeries) []*float64 { return s.CwndBytes },
		func(c *Chart) {
			for _, l := range c.Lines {
				for i := range l.Y {
					l.Y[i] /= 1024
				}
			}
			for _, a := range c.Areas {
				for i := range a.Lo {
					a.Lo[i], a.Hi[i] = a.Lo[i]/1024, a.Hi[i]/1024
				}
			}
		})
	add(Chart{Title: "ACKs per call", Note: t.note("acknowledged packets that a call of the sender's handler was told of"), YLabel: "packets"},
		func(s *analysis.FlowSeries) []*float64 { return s.AcksPerCall }, nil)
	return charts
}

// known is the mean of the bins that have a value; NaN for none.
func known(v []*float64, from, to int) float64 {
	var sum, n float64
	for i := from; i < min(to, len(v)); i++ {
		if v[i] != nil {
			sum, n = sum+*v[i], n+1
		}
	}
	return sum / n
}

// cutNote says which logs end early.
func (t *timeline) cutNote() (note string) {
	for _, l := range t.d.HandlerLogs {
		if l.CutNS != nil {
			note += fmt.Sprintf("; the log of %s was full after %v and holds %d of %d calls", l.Src, time.Duration(*l.CutNS-t.origin).Round(time.Millisecond), l.Logged, l.Calls)
		}
	}
	return note
}
