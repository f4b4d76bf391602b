package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pcmlab/pcmlab/analysis"
)

// svgText is a drawing. Its text is text, in the page's font; its colours are classes that the page's style defines for
// light and dark.
type svgText = template.HTML

// canvas draws into one SVG element.
type canvas struct {
	b strings.Builder
	shape
	left, right, top, bottom float64 // edges of the plot's area
	xLo, xHi, yLo, yHi       float64
	log                      bool
}

func svg(c Chart, s shape) svgText {
	k := &canvas{shape: s, left: 52, right: s.w - 12, top: 40, log: c.LogTime}
	if len(c.Spans) > 0 {
		k.h = 82 + 34*float64(len(c.Spans)) // the left edge stays: times stand below those of the other plots
	}
	k.bottom = k.h - 40
	k.ranges(c)
	fmt.Fprintf(&k.b, `<svg viewBox="0 0 %s %s" role="img" aria-label="%s" font-size="%s">`, num(k.w), num(k.h), html.EscapeString(c.Title), num(k.font))
	k.bands(c.Bands)
	k.events(c.Events)
	k.xAxis(c)
	if len(c.Spans) > 0 {
		k.spans(c.Spans)
	} else {
		k.yAxis(c.YLabel)
	}
	for _, a := range c.Areas {
		k.area(a)
	}
	for _, l := range c.Lines {
		k.line(l)
	}
	for _, p := range c.Points {
		k.dots(p)
	}
	k.marks(c.Marks)
	k.b.WriteString("</svg>")
	return svgText(k.b.String()) // made of numbers and escaped text
}

// ranges finds what the axes must hold.
func (k *canvas) ranges(c Chart) {
	k.xLo, k.xHi, k.yHi = math.Inf(1), math.Inf(-1), c.YMax
	lowest := math.Inf(1)
	x := func(v float64) { k.xLo, k.xHi = min(k.xLo, v), max(k.xHi, v) }
	y := func(v float64) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return
		}
		lowest = min(lowest, v)
		if c.YMax == 0 {
			k.yHi = max(k.yHi, v)
		}
	}
	for _, l := range c.Lines {
		for i := range l.X {
			x(l.X[i])
			y(l.Y[i])
		}
	}
	for _, a := range c.Areas {
		for i := range a.X {
			x(a.X[i])
			y(a.Hi[i])
		}
	}
	for _, p := range c.Points {
		for _, at := range p.At {
			x(at.X)
			y(at.Y)
			y(at.Low)
			y(at.High)
		}
	}
	for _, p := range c.Places {
		x(p.At)
	}
	for _, b := range c.Bands {
		x(b.Start)
		x(b.End)
	}
	for _, s := range c.Spans {
		x(s.Start)
		x(s.End)
	}
	if c.FitY && c.YRange[0] < c.YRange[1] {
		y(c.YRange[0])
		y(c.YRange[1])
	}
	if c.XRange[0] < c.XRange[1] {
		x(c.XRange[0])
		x(c.XRange[1])
	}
	if k.xLo > k.xHi {
		k.xLo, k.xHi = 0, 1
	}
	if k.log {
		k.xLo, k.xHi = max(k.xLo, 1), max(k.xHi, 1)
		if k.xHi < k.xLo*1.5 { // all samples nearly alike
			k.xLo, k.xHi = k.xLo/1.5, k.xHi*1.5
		}
	} else if k.xHi == k.xLo {
		k.xHi = k.xLo + 1e-6
	}
	if len(c.Places) > 0 { // half a step of air, so that no point lies on an edge
		air := (k.xHi - k.xLo) / float64(max(2*(len(c.Places)-1), 2))
		if len(c.Places) == 1 {
			air = 1
		}
		k.xLo, k.xHi = k.xLo-min(air, (k.xHi-k.xLo)/12+1e-9), k.xHi+min(air, (k.xHi-k.xLo)/12+1e-9)
	}
	switch {
	case c.FitY && !math.IsInf(lowest, 1):
		k.fitY(lowest)
	case k.yHi == 0:
		k.yHi = 1
	case c.YMax == 0:
		k.yHi *= 1.05
	}
}

// fitY makes the y axis hold the values from lowest on with a little air. Values that hardly differ get an axis that shows
// them as hardly different; a value below zero is not invented where there is none.
func (k *canvas) fitY(lowest float64) {
	least := math.Abs(k.yHi) * 0.02
	span := max(k.yHi-lowest, least, 1e-9)
	middle := (k.yHi + lowest) / 2
	lo, hi := middle-0.58*span, middle+0.58*span
	if lowest >= 0 && lo < span { // zero is near: show it
		lo = 0
	}
	k.yLo, k.yHi = lo, hi
}

func (k *canvas) x(v float64) float64 {
	if k.log {
		return k.left + (k.right-k.left)*math.Log(max(v, 1)/k.xLo)/math.Log(k.xHi/k.xLo)
	}
	return k.left + (k.right-k.left)*(v-k.xLo)/(k.xHi-k.xLo)
}

func (k *canvas) y(v float64) float64 { return k.bottom - (k.bottom-k.top)*(v-k.yLo)/(k.yHi-k.yLo) }

// num prints a coordinate with the tenth of a pixel.
func num(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

// text writes text that begins, centres or ends ("start", "middle", "end") at a point.
func (k *canvas) text(class, anchor string, x, y float64, s string) {
	fmt.Fprintf(&k.b, `<text class="%s" text-anchor="%s" x="%s" y="%s">%s</text>`, class, anchor, num(x), num(y), html.EscapeString(s))
}

// width estimates how wide text is drawn, on the safe side: the font is the reader's.
func (k *canvas) width(s string) float64 { return 0.62 * k.font * float64(utf8.RuneCountInString(s)) }

// fit shortens s so that it is not wider than w; nothing is left where not even three letters fit.
func (k *canvas) fit(s string, w float64) string {
	if k.width(s) <= w {
		return s
	}
	n := int(w/(0.62*k.font)) - 1
	if n < 3 {
		return ""
	}
	return string([]rune(s)[:n]) + "…"
}

func (k *canvas) bands(list []Band) {
	for i, b := range list {
		from, to := k.x(b.Start), k.x(b.End)
		class := "band"
		if i%2 == 1 {
			class = "band odd"
		}
		fmt.Fprintf(&k.b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"><title>%s</title></rect>`, class, num(from), num(k.top-18), num(max(to-from, 0)),
			num(k.bottom-k.top+18), html.EscapeString(b.Name))
		if name := k.fit(b.Name, to-from-4); name != "" {
			k.text("soft", "middle", (from+to)/2, k.top-5, name)
		}
	}
}

func (k *canvas) xAxis(c Chart) {
	fmt.Fprintf(&k.b, `<path class="axis" d="M%s %sH%s"/>`, num(k.left), num(k.bottom), num(k.right))
	label := c.XLabel
	var list []tick
	if len(c.Places) > 0 {
		list = k.placeTicks(c.Places)
	} else {
		var unit string
		list, unit = k.xTicks()
		if label == "" {
			label = "time"
		}
		if unit != "" {
			label += " (" + unit + ")"
		}
	}
	for _, t := range list {
		x := k.x(t.at)
		fmt.Fprintf(&k.b, `<path class="axis" d="M%s %sv4"/>`, num(x), num(k.bottom))
		half := k.width(t.text) / 2
		at := min(max(x, half), k.w-half)
		if len(c.Spans) == 0 {
			at = max(at, k.left-4+half) // not under the lowest number of the y axis
		}
		k.text("soft", "middle", at, k.bottom+17, t.text)
	}
	k.text("soft", "end", k.right, k.h-6, label)
}

func (k *canvas) yAxis(label string) {
	for _, t := range ticks(k.yLo, k.yHi, 5) {
		y := k.y(t.at)
		class := "grid"
		if t.at == 0 {
			class = "axis"
		}
		fmt.Fprintf(&k.b, `<path class="%s" d="M%s %sH%s"/>`, class, num(k.left), num(y), num(k.right))
		k.text("soft", "end", k.left-6, y+k.font*0.35, t.text)
	}
	k.text("soft", "start", 4, 14, label)
}

// line draws one curve, thinned to what the shape can show.
func (k *canvas) line(l Line) {
	if len(l.X) == 0 {
		return
	}
	xs, ys := l.X, l.Y
	if !l.Step {
		xs, ys = thin(l.X, l.Y, k.points)
	}
	class := "line s" + colour(l.Colour)
	if dashed(l.Colour) {
		class += " dash"
	}
	fmt.Fprintf(&k.b, `<path class="%s" d="`, class)
	pen, last := false, 0.0
	for i := range xs {
		if math.IsNaN(ys[i]) {
			pen = false
			continue
		}
		x, y := k.x(xs[i]), k.y(ys[i])
		switch {
		case !pen:
			k.b.WriteString("M" + num(x) + " " + num(y) + "h0") // a point between gaps is a dot
		case l.Step && num(x) == num(last):
			k.b.WriteString("V" + num(y))
		case l.Step:
			k.b.WriteString("H" + num(x) + "V" + num(y))
		default:
			k.b.WriteString("L" + num(x) + " " + num(y))
		}
		pen, last = true, x
	}
	k.b.WriteString(`">`)
	if l.Name != "" {
		k.b.WriteString("<title>" + html.EscapeString(l.Name) + "</title>")
	}
	k.b.WriteString("</path>")
}

func (k *canvas) area(a Area) {
	xs, hi := thin(a.X, a.Hi, k.points)
	_, lo := thin(a.X, a.Lo, k.points)
	if len(xs) < 2 {
		return
	}
	fmt.Fprintf(&k.b, `<path class="area f%s" d="M`, colour(a.Colour))
	for i := range xs {
		k.b.WriteString(num(k.x(xs[i])) + " " + num(k.y(hi[i])) + " ")
	}
	for i := len(xs) - 1; i >= 0; i-- {
		k.b.WriteString(num(k.x(xs[i])) + " " + num(k.y(lo[i])) + " ")
	}
	k.b.WriteString(`Z"><title>` + html.EscapeString(a.Name) + "</title></path>")
}

func (k *canvas) marks(list []Mark) {
	for _, m := range list {
		from, to, y := k.x(m.Start), k.x(m.End), k.y(m.Y)
		fmt.Fprintf(&k.b, `<path class="mark s1" d="M%s %sH%s"><title>%s</title></path>`, num(from), num(y), num(to), html.EscapeString(m.Text))
		if k.width(m.Text) <= to-from-4 {
			k.text("value", "middle", (from+to)/2, min(y+k.font*1.4, k.bottom-4), m.Text)
		}
	}
}

func (k *canvas) spans(list []Span) {
	for i, s := range list {
		y := k.top + 34*float64(i) + 24
		k.text("soft", "start", k.left+4, y-8, k.fit(s.Text, k.right-k.left-8))
		fmt.Fprintf(&k.b, `<path class="span s0" d="M%s %sH%s"><title>%s</title></path>`, num(k.x(s.Start)), num(y), num(max(k.x(s.End), k.x(s.Start)+3)), html.EscapeString(s.Text))
	}
}

// thin averages neighbours until about n points are left, so that a long run gives a page of bounded size. A gap stays one
// if all of a group is a gap; the ends stay where they are.
func thin(x, y []float64, n int) (xs, ys []float64) {
	group := (len(x) + n - 1) / n
	if group <= 1 {
		return x, y
	}
	last := len(x) - 1
	xs, ys = append(xs, x[0]), append(ys, y[0])
	for i := 1; i < last; i += group {
		end := min(i+group, last)
		var sx, sy, count float64
		for j := i; j < end; j++ {
			sx += x[j]
			if !math.IsNaN(y[j]) {
				sy += y[j]
				count++
			}
		}
		xs, ys = append(xs, sx/float64(end-i)), append(ys, sy/count) // 0/0 is NaN
	}
	return append(xs, x[last]), append(ys, y[last])
}

type tick struct {
	at   float64
	text string
}

// ticks are round steps from lo to hi, about n of them.
func ticks(lo, hi float64, n int) (out []tick) {
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/float64(n))))
	for _, f := range []float64{1, 2, 5, 10} {
		if (hi-lo)/(step*f) <= float64(n) {
			step *= f
			break
		}
	}
	digits := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	for i := math.Ceil(lo/step - 1e-9); i*step <= hi+step*1e-9; i++ {
		v := i*step + 0 // +0 turns minus zero into zero
		out = append(out, tick{v, strconv.FormatFloat(v, 'f', digits, 64)})
	}
	return out
}

// xTicks gives the ticks and the unit of the x axis; on a logarithmic scale each tick has its own unit.
func (k *canvas) xTicks() (list []tick, unit string) {
	if k.log {
		return logTicks(k.xLo, k.xHi, k.ticks), ""
	}
	factor, unit := 1.0, "s"
	switch span := k.xHi - k.xLo; {
	case span < 2e-3:
		factor, unit = 1e6, "us"
	case span < 2:
		factor, unit = 1e3, "ms"
	}
	list = ticks(k.xLo*factor, k.xHi*factor, k.ticks)
	for i := range list {
		list[i].at /= factor
	}
	return list, unit
}

// logTicks are the numbers 1, 2, 5 of each decade of ns, the decades alone, or every few of them, whatever is at most n.
func logTicks(lo, hi float64, n int) []tick {
	first, last := int(math.Floor(math.Log10(lo))), int(math.Ceil(math.Log10(hi)))
	var best []tick
	for _, c := range []struct {
		within []float64
		every  int
	}{{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9}, 1}, {[]float64{1, 2, 5}, 1}, {[]float64{1, 3}, 1}, {[]float64{1}, 1}, {[]float64{1}, 2}, {[]float64{1}, 3}, {[]float64{1}, 4}} {
		var list []tick
		for d := first; d <= last; d += c.every {
			for _, f := range c.within {
				if v := f * math.Pow(10, float64(d)); v >= lo*0.999 && v <= hi*1.001 {
					list = append(list, tick{v, shortDuration(v)})
				}
			}
		}
		if best = list; len(list) <= n {
			break
		}
	}
	return best
}

// shortDuration is a duration without digits that say nothing: 10 us, not 10.0 us.
func shortDuration(ns float64) string {
	number, unit, _ := strings.Cut(analysis.FormatDuration(ns), " ")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	return number + " " + unit
}
