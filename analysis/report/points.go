package report

import (
	"fmt"
	"html"
	"math"
)

// placeTicks are the named places of an x axis, as many as stand beside each other.
func (k *canvas) placeTicks(places []Place) (list []tick) {
	free := math.Inf(-1)
	for _, p := range places {
		text := k.fit(p.Text, max((k.right-k.left)/2, 60))
		half := k.width(text)/2 + 4
		at := min(max(k.x(p.At), half-4), k.w-half+4)
		if at-half < free {
			continue
		}
		free = at + half
		list = append(list, tick{p.At, text})
	}
	return list
}

// dots draws values as dots with their intervals behind them.
func (k *canvas) dots(p Points) {
	c, r := colour(p.Colour), 4.5
	if p.Small {
		r = 2.6
	}
	for _, at := range p.At {
		if math.IsNaN(at.Y) {
			continue
		}
		x, y := k.x(at.X), k.y(at.Y)
		if !math.IsNaN(at.Low) && !math.IsNaN(at.High) && !p.Small {
			lo, hi := k.y(at.Low), k.y(at.High)
			fmt.Fprintf(&k.b, `<path class="line s%s" d="M%s %sV%sM%s %sh8M%s %sh8"/>`, c, num(x), num(lo), num(hi), num(x-4), num(lo), num(x-4), num(hi))
		}
		class := "d" + c
		if p.Small {
			class = "o" + c
		}
		fmt.Fprintf(&k.b, `<circle class="%s" cx="%s" cy="%s" r="%s">`, class, num(x), num(y), num(r))
		if at.Text != "" {
			fmt.Fprintf(&k.b, `<title>%s</title>`, html.EscapeString(at.Text))
		}
		k.b.WriteString("</circle>")
	}
}

// events draws upright lines; the text of one that has no room is left to those who point at it.
func (k *canvas) events(list []Place) {
	free := math.Inf(-1)
	for _, e := range list {
		x := k.x(e.At)
		fmt.Fprintf(&k.b, `<path class="line si dash" d="M%s %sV%s"><title>%s</title></path>`, num(x), num(k.top-14), num(k.bottom), html.EscapeString(e.Text))
		w := k.width(e.Text) + 8
		at := min(max(x, w/2), k.w-w/2)
		if e.Text == "" || at-w/2 < free {
			continue
		}
		free = at + w/2
		k.text("soft", "middle", at, k.top-18, e.Text)
	}
}

// spark is a curve without axes, as high as a line of text, with a mark on its last value.
func spark(values []float64) svgText {
	const w, h = 120.0, 20.0
	lo, hi, n := math.Inf(1), math.Inf(-1), 0
	for _, v := range values {
		if !math.IsNaN(v) {
			lo, hi, n = min(lo, v), max(hi, v), n+1
		}
	}
	if n == 0 {
		return none
	}
	if hi == lo {
		lo, hi = lo-1, hi+1
	}
	x := func(i int) float64 { return 3 + (w-6)*float64(i)/float64(max(len(values)-1, 1)) }
	y := func(v float64) float64 { return h - 3 - (h-6)*(v-lo)/(hi-lo) }
	path, pen, last := "", "M", -1
	for i, v := range values {
		if math.IsNaN(v) {
			pen = "M"
			continue
		}
		path += pen + num(x(i)) + " " + num(y(v))
		pen, last = "L", i
	}
	return svgText(fmt.Sprintf(`<svg class="spark" viewBox="0 0 %s %s" aria-hidden="true"><path class="line s0" d="%sh0"/><circle class="d1" cx="%s" cy="%s" r="2.4"/></svg>`,
		num(w), num(h), path, num(x(last)), num(y(values[last]))))
}
