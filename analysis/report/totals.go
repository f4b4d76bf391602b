package report

import (
	"github.com/pcmlab/pcmlab/analysis"
)

// Totals are the curves over time of all flows of a document together, one point a bin: what pages lay over each other to
// compare runs. The times are seconds since the first phase, or since the first packet where there are no phases. A curve
// is empty where nothing of its kind was measured.
type Totals struct {
	Bands    []Band
	Goodput  Line // bit/s
	Jain     Line // index over the flows that are active
	CEShare  Line // of data packets, 0 to 1
	CNPs     Line // per second
	Resent   Line // retransmitted packets per second
	BinWidth float64
}

// TotalsOf makes the curves of a document.
func TotalsOf(d *analysis.Document) Totals {
	if d.Series.Bins == 0 || len(d.Series.Flows) == 0 || d.Series.BinNS <= 0 {
		return Totals{}
	}
	t := newTimeline(d)
	t.group, t.points = 1, d.Series.Bins
	out := Totals{Bands: t.bands, BinWidth: float64(d.Series.BinNS) / 1e9}
	perSecond := 1 / out.BinWidth
	out.Goodput = t.total(func(s *analysis.FlowSeries, from, to int) (float64, float64) { return add(s.GoodputBps[from:to]), 0 },
		func(a, _, bins float64) float64 { return a / bins })
	if c, ok := t.jain(); ok && len(c.Lines) > 0 {
		out.Jain = c.Lines[0]
	}
	out.CEShare = t.total(func(s *analysis.FlowSeries, from, to int) (float64, float64) {
		return float64(add(s.CE[from:to])), float64(add(s.Packets[from:to]))
	}, func(ce, all, _ float64) float64 { return ce / all }) // 0/0 is NaN: no packets, no share
	if seen(d) {
		out.CNPs = t.total(func(s *analysis.FlowSeries, from, to int) (float64, float64) {
			if s.CNPs == nil {
				return 0, 0
			}
			return float64(add(s.CNPs[from:to])), 0
		}, func(n, _, bins float64) float64 { return n / bins * perSecond })
	}
	out.Resent = t.total(func(s *analysis.FlowSeries, from, to int) (float64, float64) {
		return float64(add(s.Retransmits[from:to])), 0
	}, func(n, _, bins float64) float64 { return n / bins * perSecond })
	return out
}

// seen says that CNPs of some flow could be seen.
func seen(d *analysis.Document) bool {
	for i := range d.Series.Flows {
		if d.Series.Flows[i].CNPs != nil {
			return true
		}
	}
	return false
}

// Distribution is the share of samples that are not above a value, with a name.
type Distribution struct {
	Name    string
	Colour  int
	Samples []analysis.Sample // values ascending
}

// CDF draws distributions of times in ns over each other; those without a sample are left out.
func CDF(title string, list []Distribution) (Chart, bool) {
	c := Chart{Title: title, YLabel: "share of samples", YMax: 1, XLabel: "logarithmic scale", LogTime: true}
	for _, d := range list {
		if len(d.Samples) == 0 {
			continue
		}
		one := cdf(title, d.Samples)
		l := one.Lines[0]
		l.Name, l.Colour = d.Name+": "+one.Note, d.Colour
		c.Lines = append(c.Lines, l)
	}
	return c, len(c.Lines) > 0
}

// FlowGoodputs are the goodputs of the flows over time in bit/s, one point a bin, by the name of the flow's sender where it
// has one.
func FlowGoodputs(d *analysis.Document) (lines []Line) {
	if d.Series.Bins == 0 || d.Series.BinNS <= 0 {
		return nil
	}
	t := newTimeline(d)
	names := map[string]string{}
	for i := range d.Flows {
		f := &d.Flows[i]
		if names[f.ID] = f.Name; f.Name == "" {
			names[f.ID] = f.ID
		}
	}
	for i := range d.Series.Flows {
		s := &d.Series.Flows[i]
		l := Line{Name: names[s.ID], Colour: i}
		for j, v := range s.GoodputBps {
			l.X, l.Y = append(l.X, t.at(float64(s.FirstBin+j)+0.5)), append(l.Y, v)
		}
		lines = append(lines, l)
	}
	return lines
}
