package report

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/pcmlab/pcmlab/analysis"
)

// Chart is a plot of lines over time.
type Chart struct {
	Title  string
	Note   string // what exactly is shown, in a few words
	YLabel string // with the unit
	YMax   float64
	Lines  []Line
	Bands  []Band
}

// Line is one curve; X is in seconds.
type Line struct {
	Name   string
	Colour int // index into the palette; the same flow has the same everywhere
	X, Y   []float64
}

// Band is a named stretch of time, such as a phase.
type Band struct {
	Name       string
	Start, End float64
}

// Plots are drawn in marker colours that are replaced by the page's CSS variables, so that one drawing serves light
// and dark.
const paletteSize = 8

var (
	inkText = color.RGBA{1, 2, 3, 255}
	inkLine = color.RGBA{1, 2, 4, 255}
	inkGrid = color.RGBA{1, 2, 5, 255}
)

func inkSeries(i int) color.RGBA { return color.RGBA{1, 3, uint8(i % paletteSize), 255} }

var inks = func() *strings.Replacer {
	pairs := []string{"#010203", "var(--soft)", "#010204", "var(--soft)", "#010205", "var(--line)", "font-family:Liberation Sans", "font-family:inherit"}
	for i := range paletteSize {
		pairs = append(pairs, fmt.Sprintf("#0103%02X", i), fmt.Sprintf("var(--c%d)", i))
	}
	return strings.NewReplacer(pairs...)
}()

// shape is a size of drawing; points is how many points a curve may have there.
type shape struct {
	w, h   vg.Length
	points int
	ticks  int
}

var (
	wide   = shape{960, 260, 480, 10}
	narrow = shape{400, 240, 200, 5}
)

func newPlot(yLabel string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	sans := font.Font{Typeface: "Liberation", Variant: "Sans", Size: 11}
	for _, t := range []*draw.TextStyle{&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Title.TextStyle} {
		t.Font = sans
		t.Color = inkText
	}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle.Color, a.Tick.LineStyle.Color = inkLine, inkLine
		a.LineStyle.Width, a.Tick.LineStyle.Width = 0.75, 0.75
		a.Padding = 2
	}
	p.Y.Label.Text = yLabel
	g := plotter.NewGrid()
	g.Vertical.Width = 0
	g.Horizontal.Color, g.Horizontal.Width = inkGrid, 0.5
	p.Add(g)
	return p
}

func drawChart(c Chart) (figure, error) {
	f := figure{Title: c.Title, Note: c.Note}
	for _, l := range c.Lines {
		f.Legend = append(f.Legend, legend{l.Name, l.Colour})
	}
	for _, s := range []struct {
		shape
		out *template.HTML
	}{{wide, &f.Wide}, {narrow, &f.Narrow}} {
		p := newPlot(c.YLabel)
		p.X.Label.Text = "time (s)"
		p.X.Tick.Marker = fewerTicks{s.ticks}
		p.Y.Tick.Marker = fewerTicks{6}
		p.Y.Min = 0
		p.Y.Max = c.YMax
		for _, l := range c.Lines {
			for _, y := range l.Y {
				p.Y.Max = max(p.Y.Max, y)
			}
		}
		if p.Y.Max == 0 {
			p.Y.Max = 1
		}
		p.Y.Max *= 1.12 // room for the names of the bands
		for _, l := range c.Lines {
			xy := thin(l, s.points)
			if len(xy) == 0 {
				continue
			}
			line, err := plotter.NewLine(xy)
			if err != nil {
				return f, err
			}
			line.Color, line.Width = inkSeries(l.Colour), 1.4
			if dash := l.Colour / paletteSize; dash > 0 {
				line.Dashes = []vg.Length{vg.Length(2 + 3*dash), 3}
			}
			p.Add(line)
		}
		p.Add(bands{c.Bands, p.Y.Max})
		svg, err := toSVG(p, s.shape, c.Title)
		if err != nil {
			return f, err
		}
		*s.out = svg
	}
	return f, nil
}

// drawJain draws the two indices of every phase as bars.
func drawJain(d *analysis.Document) (figure, bool, error) {
	f := figure{Title: "Jain's fairness index per phase", Legend: []legend{{"of the phase's mean goodputs", 0}, {"mean of the bins' indices", 1}}}
	var names []string
	var means, bins plotter.Values
	for _, p := range d.Aggregate.PerPhase {
		if p.Jain == nil && p.JainMeanOfBins == nil {
			continue
		}
		names = append(names, p.Name)
		means = append(means, orZero(p.Jain))
		bins = append(bins, orZero(p.JainMeanOfBins))
	}
	if len(names) == 0 {
		return f, false, nil
	}
	for _, s := range []struct {
		shape
		out *template.HTML
	}{{wide, &f.Wide}, {narrow, &f.Narrow}} {
		p := newPlot("index")
		width := min(s.w/vg.Length(len(names))/4, 28)
		for i, v := range []plotter.Values{means, bins} {
			b, err := plotter.NewBarChart(v, width)
			if err != nil {
				return f, false, err
			}
			b.Color = inkSeries(i)
			b.LineStyle.Width = 0
			b.Offset = (vg.Length(i) - 0.5) * (width + 1)
			p.Add(b)
		}
		p.NominalX(names...)
		p.X.Min, p.X.Max = -0.5, float64(len(names))-0.5
		p.Y.Min, p.Y.Max = 0, 1
		p.Y.Tick.Marker = fewerTicks{6}
		svg, err := toSVG(p, s.shape, f.Title)
		if err != nil {
			return f, false, err
		}
		*s.out = svg
	}
	return f, true, nil
}

func orZero(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

func toSVG(p *plot.Plot, s shape, title string) (template.HTML, error) {
	c := vgsvg.New(s.w, s.h)
	p.Draw(draw.Crop(draw.New(c), 0, -10, 0, 0)) // room for half of the last tick's label
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	_, body, ok := strings.Cut(b.String(), "<svg ")
	if !ok {
		return "", fmt.Errorf("no svg element in the drawing")
	}
	_, body, _ = strings.Cut(body, ">\n")
	head := fmt.Sprintf(`<svg viewBox="0 0 %g %g" role="img" aria-label=%q>`, s.w.Points(), s.h.Points(), html.EscapeString(title))
	return template.HTML(head + "\n" + inks.Replace(body)), nil // drawn by us; text was escaped by vgsvg
}

// thin averages neighbours until at most n points are left, so that a long run gives a page of bounded size.
func thin(l Line, n int) plotter.XYs {
	group := max(1, (len(l.X)+n-1)/n)
	xy := make(plotter.XYs, 0, n)
	for i := 0; i < len(l.X); i += group {
		end := min(i+group, len(l.X))
		var p plotter.XY
		for j := i; j < end; j++ {
			p.X += l.X[j] / float64(end-i)
			p.Y += l.Y[j] / float64(end-i)
		}
		if !math.IsNaN(p.Y) && !math.IsInf(p.Y, 0) {
			xy = append(xy, p)
		}
	}
	return xy
}

// fewerTicks are round steps, about n of them.
type fewerTicks struct{ n int }

// Ticks implements plot.Ticker.
func (t fewerTicks) Ticks(lo, hi float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/float64(t.n))))
	for _, f := range []float64{1, 2, 5, 10} {
		if (hi-lo)/(step*f) <= float64(t.n) {
			step *= f
			break
		}
	}
	digits := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	var out []plot.Tick
	for k := math.Ceil(lo/step - 1e-9); k*step <= hi+step*1e-9; k++ {
		v := k*step + 0 // +0 turns minus zero into zero
		out = append(out, plot.Tick{Value: v, Label: fmt.Sprintf("%.*f", digits, v)})
	}
	return out
}

// bands draws where named stretches of time begin and end, and their names.
type bands struct {
	list []Band
	top  float64
}

// Plot implements plot.Plotter.
func (b bands) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	style := draw.TextStyle{Color: inkText, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: 10}, XAlign: draw.XCenter, YAlign: draw.YTop, Handler: plot.DefaultTextHandler}
	for _, band := range b.list {
		from, to := tx(band.Start), tx(band.End)
		for _, x := range []vg.Length{from, to} {
			if x >= c.Min.X && x <= c.Max.X {
				c.StrokeLine2(draw.LineStyle{Color: inkGrid, Width: 1, Dashes: []vg.Length{4, 3}}, x, c.Min.Y, x, c.Max.Y)
			}
		}
		name := band.Name
		for len(name) > 1 && style.Width(name) > to-from-4 {
			name = name[:len(name)-1]
		}
		if to-from > 8 {
			c.FillText(style, vg.Point{X: (from + to) / 2, Y: ty(b.top)}, name)
		}
	}
}
