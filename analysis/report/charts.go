package report

import (
	"time"

	"github.com/pcmlab/pcmlab/analysis"
)

// documentCharts makes the plots over time that a document can give.
func documentCharts(d *analysis.Document) []Chart {
	if d.Series.Bins == 0 || len(d.Flows) == 0 {
		return nil
	}
	origin := d.Series.StartNS
	var at []Band
	if phases := d.Aggregate.PerPhase; len(phases) > 0 {
		origin = phases[0].StartNS
		for _, p := range phases {
			at = append(at, Band{p.Name, float64(p.StartNS-origin) / 1e9, float64(p.EndNS-origin) / 1e9})
		}
	}
	unit, name := rateUnit(d)
	goodput := Chart{Title: "Goodput of each flow", Note: "unique payload per " + time.Duration(d.Series.BinNS).String(), YLabel: name, Bands: at}
	ce := Chart{Title: "CE-marked share", Note: "of data packets", YLabel: "% of packets", Bands: at}
	cnp := Chart{Title: "CNPs", Note: "by the flow that they slow down", YLabel: "CNPs per second", Bands: at}
	resent := Chart{Title: "Retransmissions", Note: "when recognised", YLabel: "packets per second", Bands: at}
	perSecond := 1e9 / float64(d.Series.BinNS)
	anyCNP, anyResent := false, false
	for i, s := range d.Series.Flows {
		label := d.Flows[i].Label()
		group := max(1, (d.Series.Bins+wide.points-1)/wide.points)
		add := func(c *Chart, y func(from, to int) float64) {
			l := Line{Name: label, Colour: i}
			at := func(bin float64) float64 {
				return (float64(d.Series.StartNS-origin) + (float64(s.FirstBin)+bin)*float64(d.Series.BinNS)) / 1e9
			}
			point := func(x, y float64) { l.X, l.Y = append(l.X, x), append(l.Y, y) }
			point(at(0), 0) // a flow visibly starts and ends
			for j := 0; j < len(s.GoodputBps); j += group {
				end := min(j+group, len(s.GoodputBps))
				point(at(float64(j+end)/2), y(j, end))
			}
			point(at(float64(len(s.GoodputBps))), 0)
			c.Lines = append(c.Lines, l)
		}
		add(&goodput, func(from, to int) float64 {
			var sum float64
			for _, v := range s.GoodputBps[from:to] {
				sum += v
			}
			return sum / float64(to-from) / unit
		})
		add(&ce, func(from, to int) float64 {
			if n := total(s.Packets[from:to]); n > 0 {
				return 100 * float64(total(s.CE[from:to])) / float64(n)
			}
			return 0
		})
		add(&resent, func(from, to int) float64 {
			n := total(s.Retransmits[from:to])
			anyResent = anyResent || n > 0
			return float64(n) / float64(to-from) * perSecond
		})
		if s.CNPs != nil {
			anyCNP = true
			add(&cnp, func(from, to int) float64 { return float64(total(s.CNPs[from:to])) / float64(to-from) * perSecond })
		}
	}
	charts := []Chart{goodput, ce}
	if anyCNP {
		charts = append(charts, cnp)
	}
	if anyResent {
		charts = append(charts, resent)
	}
	return charts
}

func total(v []int64) (n int64) {
	for _, x := range v {
		n += x
	}
	return n
}

// rateUnit picks the unit in which the fastest flow reads well.
func rateUnit(d *analysis.Document) (unit float64, name string) {
	top := 0.0
	for _, s := range d.Series.Flows {
		for _, v := range s.GoodputBps {
			top = max(top, v)
		}
	}
	switch {
	case top >= 1e9:
		return 1e9, "Gb/s"
	case top >= 1e6:
		return 1e6, "Mb/s"
	case top >= 1e3:
		return 1e3, "kb/s"
	}
	return 1, "b/s"
}
