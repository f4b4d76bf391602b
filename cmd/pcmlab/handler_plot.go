package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/pcmlab/pcmlab/pcm"
)

// plotted is a control over time, which keeps its value from one event to the next.
type plotted struct {
	name   string
	t      []uint64 // ns
	values []float64
}

// plots are the controls of a replay; one that is never set has nothing to be drawn.
func plots(p *pcm.Package, rows []replayed) []plotted {
	var all []plotted
	for _, c := range p.Controls {
		one := plotted{name: c.Name}
		for _, r := range rows {
			if v := r.control(c.Kind); v != math.MaxUint64 {
				one.t, one.values = append(one.t, r.TNS), append(one.values, float64(v))
			}
		}
		if len(one.t) > 0 {
			all = append(all, one)
		}
	}
	return all
}

// scale is what a chart reaches from and to.
func (p *plotted) scale() (from, to uint64, low, high float64) {
	from, to, low, high = p.t[0], p.t[len(p.t)-1], p.values[0], p.values[0]
	for _, v := range p.values {
		low, high = min(low, v), max(high, v)
	}
	return from, to, low, high
}

// The size of a chart in a terminal, without its scale.
const (
	plotWidth  = 80
	plotHeight = 12
)

// chart draws it in characters: in each column a bar from the least value to the largest in that time, and a point where there is but one.
func (p *plotted) chart() string {
	from, to, low, high := p.scale()
	row := func(v float64) int {
		if high == low {
			return plotHeight / 2
		}
		return int(math.Round((v - low) / (high - low) * (plotHeight - 1)))
	}
	least, most := [plotWidth]int{}, [plotWidth]int{}
	for i := range least {
		least[i], most[i] = plotHeight, -1
	}
	mark := func(column int, v float64) {
		least[column], most[column] = min(least[column], row(v)), max(most[column], row(v))
	}
	last, held := 0, p.values[0]
	for i, v := range p.values {
		column := 0
		if to > from {
			column = int(float64(p.t[i]-from) / float64(to-from) * (plotWidth - 1))
		}
		for c := last; c < column; c++ { // until now it kept the value before
			mark(c, held)
		}
		mark(column, held)
		mark(column, v)
		last, held = column, v
	}
	for c := last + 1; c < plotWidth; c++ {
		mark(c, held)
	}
	top, bottom := fmt.Sprintf("%.0f", high), fmt.Sprintf("%.0f", low)
	margin := max(utf8.RuneCountInString(top), utf8.RuneCountInString(bottom))
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", p.name)
	for y := plotHeight - 1; y >= 0; y-- {
		label := ""
		switch {
		case y == plotHeight-1 && high != low:
			label = top
		case y == 0 && high != low, y == plotHeight/2 && high == low:
			label = bottom
		}
		line := make([]rune, plotWidth)
		for c := range line {
			switch {
			case y < least[c] || y > most[c]:
				line[c] = ' '
			case least[c] == most[c]:
				line[c] = '─'
			default:
				line[c] = '│'
			}
		}
		fmt.Fprintf(&b, "%*s ┤%s\n", margin, label, strings.TrimRight(string(line), " "))
	}
	end := spanText(to - from)
	fmt.Fprintf(&b, "%*s └%s\n%*s  0%*s\n", margin, "", strings.Repeat("─", plotWidth), margin, "", plotWidth-1, end)
	return b.String()
}

// spanText is a time in the unit that suits it.
func spanText(ns uint64) string {
	for _, u := range []struct {
		ns   float64
		name string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}} {
		if float64(ns) >= u.ns {
			return fmt.Sprintf("%.4g %s", float64(ns)/u.ns, u.name)
		}
	}
	return fmt.Sprintf("%d ns", ns)
}

// svgPoints bounds the points of a drawing: beyond it each column of pixels has its least and its largest value.
const svgPoints = 4000

// thinned are points that look the same: of each slice of time the first, least, largest and last.
func (p *plotted) thinned() (t []uint64, v []float64) {
	if len(p.t) <= svgPoints {
		return p.t, p.values
	}
	slice := (len(p.t) + svgPoints/4 - 1) / (svgPoints / 4)
	for from := 0; from < len(p.t); from += slice {
		to := min(from+slice, len(p.t))
		least, most := from, from
		for i := from; i < to; i++ {
			if p.values[i] < p.values[least] {
				least = i
			}
			if p.values[i] > p.values[most] {
				most = i
			}
		}
		for _, i := range []int{from, min(least, most), max(least, most), to - 1} {
			t, v = append(t, p.t[i]), append(v, p.values[i])
		}
	}
	return t, v
}

// writeSVG draws the controls below each other, as steps.
func writeSVG(file, title string, all []plotted) error {
	const width, height, left, top, gap = 900, 200, 90, 40, 60
	var b strings.Builder
	total := top + len(all)*(height+gap)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n", left+width+30, total)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="20" font-size="15">%s</text>`+"\n", left, html.EscapeString(title))
	for i := range all {
		p := &all[i]
		from, to, low, high := p.scale()
		y0 := top + i*(height+gap)
		x := func(t uint64) float64 { return left + width*float64(t-from)/math.Max(1, float64(to-from)) }
		y := func(v float64) float64 { return float64(y0) + height - height*(v-low)/math.Max(1e-9, high-low) }
		if high == low {
			y = func(float64) float64 { return float64(y0) + height/2 }
		}
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#999"/>`+"\n", left, y0, width, height)
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text><text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left, y0-6, html.EscapeString(p.name), left+width, y0+height+18, spanText(to-from))
		if high != low {
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%.0f</text>`, left-6, y0+12, high)
		}
		fmt.Fprintf(&b, `<text x="%d" y="%.0f" text-anchor="end">%.0f</text>`+"\n", left-6, y(low), low)
		b.WriteString(`<polyline fill="none" stroke="#1f77b4" points="`)
		times, values := p.thinned()
		for k, v := range values {
			if k > 0 {
				fmt.Fprintf(&b, "%.1f,%.1f ", x(times[k]), y(values[k-1]))
			}
			fmt.Fprintf(&b, "%.1f,%.1f ", x(times[k]), y(v))
		}
		b.WriteString("\"/>\n")
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(file, []byte(b.String()), 0o644)
}
