package figures

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"codeberg.org/go-pdf/fpdf"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgpdf"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Format of a figure's file.
type Format string

// The formats.
const (
	SVG Format = "svg"
	PDF Format = "pdf"
)

// style is how one entry is drawn: each differs from its neighbours in grey too, by lightness, dashes and marks.
type style struct {
	line   color.RGBA
	dashes []vg.Length
	mark   draw.GlyphDrawer
	fill   color.RGBA // of bars
}

var styles = []style{
	{line: color.RGBA{0x00, 0x00, 0x00, 0xff}, mark: draw.CircleGlyph{}, fill: color.RGBA{0x68, 0x68, 0x68, 0xff}},
	{line: color.RGBA{0x1f, 0x77, 0xb4, 0xff}, dashes: []vg.Length{4, 1.6}, mark: draw.BoxGlyph{}, fill: color.RGBA{0xcf, 0xe3, 0xf1, 0xff}},
	{line: color.RGBA{0xc4, 0x4f, 0x00, 0xff}, dashes: []vg.Length{1.2, 1.2}, mark: draw.PyramidGlyph{}, fill: color.RGBA{0xa8, 0x5c, 0x30, 0xff}},
	{line: color.RGBA{0x6a, 0x6a, 0x6a, 0xff}, dashes: []vg.Length{6, 1.6, 1.2, 1.6}, mark: draw.RingGlyph{}, fill: color.RGBA{0xf2, 0xd9, 0xb6, 0xff}},
	{line: color.RGBA{0x00, 0x5a, 0x44, 0xff}, dashes: []vg.Length{8, 2}, mark: draw.SquareGlyph{}, fill: color.RGBA{0x4d, 0x7d, 0x6f, 0xff}},
	{line: color.RGBA{0x8a, 0x2c, 0x6b, 0xff}, dashes: []vg.Length{2.4, 1.2}, mark: draw.TriangleGlyph{}, fill: color.RGBA{0xe6, 0xc3, 0xdb, 0xff}},
	{line: color.RGBA{0x8f, 0x65, 0x00, 0xff}, dashes: []vg.Length{1.2, 2.4}, mark: draw.PlusGlyph{}, fill: color.RGBA{0x8f, 0x65, 0x00, 0xff}},
	{line: color.RGBA{0x46, 0x36, 0x8f, 0xff}, dashes: []vg.Length{6, 1.6, 1.2, 1.6, 1.2, 1.6}, mark: draw.CrossGlyph{}, fill: color.RGBA{0xff, 0xff, 0xff, 0xff}},
}

// fixedDates makes PDFs say nothing of when they were made: the same input gives the same bytes.
var fixedDates = sync.OnceFunc(func() {
	fpdf.SetDefaultCreationDate(time.Unix(0, 0).UTC())
	fpdf.SetDefaultModificationDate(time.Unix(0, 0).UTC())
	fpdf.SetDefaultCatalogSort(true)
})

// Draw writes the figure. It draws what is there: Verify says whether that is what the specification pins.
func (f *Figure) Draw(w io.Writer, format Format) error {
	c, err := f.content()
	if err != nil {
		return err
	}
	width, height := f.size()
	switch format {
	case SVG:
		canvas := vgsvg.NewWith(vgsvg.UseWH(width, height))
		if err := f.draw(draw.New(canvas), c); err != nil {
			return err
		}
		var b bytes.Buffer
		if _, err := canvas.WriteTo(&b); err != nil {
			return err
		}
		_, err := io.WriteString(w, fallbackFonts(b.String()))
		return err
	case PDF:
		fixedDates()
		canvas := vgpdf.New(width, height)
		if err := f.draw(draw.New(canvas), c); err != nil {
			return err
		}
		_, err := canvas.WriteTo(w)
		return err
	}
	return fmt.Errorf("figure: no format %q", format)
}

// fallbackFonts lets readers without the Liberation fonts have what is alike.
func fallbackFonts(svg string) string {
	return strings.NewReplacer("font-family:Liberation Serif;", "font-family:'Liberation Serif','Times New Roman',Times,serif;",
		"font-family:Liberation Sans;", "font-family:'Liberation Sans',Arial,Helvetica,sans-serif;").Replace(svg)
}

// size on paper: one column of 84 mm, two of 174 mm.
func (f *Figure) size() (w, h vg.Length) {
	width := 84.0
	if f.spec.Size.Columns == 2 {
		width = 174
	}
	if f.spec.Size.Width > 0 {
		width = f.spec.Size.Width
	}
	return vg.Length(width) * vg.Millimeter, vg.Length(f.spec.Size.Height) * vg.Millimeter
}

// text is the style of text in the figure's font.
func (f *Figure) text() text.Style {
	variant := font.Variant("Serif")
	if f.spec.Font.Family == "sans" {
		variant = "Sans"
	}
	return text.Style{Color: color.Black, Font: font.Font{Typeface: "Liberation", Variant: variant, Size: vg.Points(f.spec.Font.Size)}, Handler: plot.DefaultTextHandler}
}

const thin = 0.5 // points, of axes

func (f *Figure) draw(dc draw.Canvas, c *content) error {
	p := plot.New()
	p.BackgroundColor = color.White
	style := f.text()
	small := style
	small.Font.Size *= 0.9
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font, a.Tick.Label.Font = style.Font, small.Font
		a.LineStyle.Width, a.Tick.LineStyle.Width, a.Tick.Length = thin, thin, 2.5
		a.Padding = 2
		a.Label.Padding = 1
	}
	p.X.Label.Text, p.Y.Label.Text = c.x, c.y
	if c.logX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	var err error
	if f.spec.Kind == "bars" {
		err = f.bars(p, c)
	} else {
		for i, s := range c.series {
			if err = s.add(p, styles[i%len(styles)]); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	if len(c.places) > 0 {
		var ticks []plot.Tick
		for _, pl := range c.places {
			ticks = append(ticks, plot.Tick{Value: pl.at, Label: pl.text})
		}
		p.X.Tick.Marker = plot.ConstantTicks(ticks)
		air := (p.X.Max - p.X.Min) / 20
		p.X.Min, p.X.Max = p.X.Min-air, p.X.Max+air
	}
	if c.fromZero {
		p.Y.Min = min(p.Y.Min, 0)
	}
	if len(f.spec.XLimits) == 2 {
		p.X.Min, p.X.Max = f.spec.XLimits[0], f.spec.XLimits[1]
	}
	if len(f.spec.YLimits) == 2 {
		p.Y.Min, p.Y.Max = f.spec.YLimits[0], f.spec.YLimits[1]
	} else if p.Y.Max > p.Y.Min {
		p.Y.Max += (p.Y.Max - p.Y.Min) * 0.04
	}
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())
	if f.spec.Legend == "above" && (len(c.series) > 1 || len(f.entries) > 1 && f.spec.Kind != "bars") {
		used := f.legend(dc, c, small)
		dc = draw.Crop(dc, 0, 0, 0, -used)
	}
	p.Draw(draw.Crop(dc, 1, -3, 1, -2))
	return nil
}

// legend names the entries in rows above the plot, and says how much of the height it took.
func (f *Figure) legend(dc draw.Canvas, c *content, ts text.Style) vg.Length {
	const sample, gap, between = 16, 3, 10
	ts.YAlign = draw.YCenter
	line := ts.Font.Size * 1.35
	x, y := dc.Min.X+2, dc.Max.Y-line/2-1
	for i, s := range c.series {
		wide := sample + gap + ts.Width(s.label)
		if x > dc.Min.X+2 && x+wide > dc.Max.X {
			x, y = dc.Min.X+2, y-line
		}
		st := styles[i%len(styles)]
		if f.spec.Kind == "bars" {
			box := vg.Rectangle{Min: vg.Point{X: x + 4, Y: y - 3}, Max: vg.Point{X: x + sample - 2, Y: y + 3}}
			dc.SetColor(st.fill)
			dc.Fill(box.Path())
			dc.SetLineStyle(draw.LineStyle{Color: color.Black, Width: thin})
			dc.Stroke(box.Path())
		} else {
			dc.StrokeLine2(st.stroke(), x, y, x+sample, y)
			if s.withDots {
				dc.DrawGlyph(st.glyph(), vg.Point{X: x + sample/2, Y: y})
			}
		}
		dc.FillText(ts, vg.Point{X: x + sample + gap, Y: y}, s.label)
		x += wide + between
	}
	return dc.Max.Y - y + line/2
}

func (st style) stroke() draw.LineStyle {
	return draw.LineStyle{Color: st.line, Width: 0.8, Dashes: st.dashes}
}

func (st style) glyph() draw.GlyphStyle {
	return draw.GlyphStyle{Color: st.line, Radius: 1.8, Shape: st.mark}
}

// add draws one entry as a line with what belongs to it.
func (s curve) add(p *plot.Plot, st style) error {
	if s.band {
		if err := s.addBand(p, st); err != nil {
			return err
		}
	}
	for _, piece := range s.pieces() {
		l, err := plotter.NewLine(piece)
		if err != nil {
			return err
		}
		l.LineStyle = st.stroke()
		if s.step {
			l.StepStyle = plotter.PostStep
		}
		p.Add(l)
		if s.withDots {
			points, err := plotter.NewScatter(piece)
			if err != nil {
				return err
			}
			points.GlyphStyle = st.glyph()
			p.Add(points)
		}
	}
	if s.band || len(s.low) == 0 {
		return nil
	}
	return addIntervals(p, s, 0, draw.LineStyle{Color: st.line, Width: thin})
}

// pieces are the stretches between gaps.
func (s curve) pieces() (list []plotter.XYs) {
	var piece plotter.XYs
	for i := range s.x {
		if math.IsNaN(s.y[i]) {
			if len(piece) > 0 {
				list, piece = append(list, piece), nil
			}
			continue
		}
		piece = append(piece, plotter.XY{X: s.x[i], Y: s.y[i]})
	}
	if len(piece) > 0 {
		list = append(list, piece)
	}
	return list
}

// addBand fills between the lowest and the highest of the runs.
func (s curve) addBand(p *plot.Plot, st style) error {
	for i := 0; i < len(s.x); {
		j := i
		for j < len(s.x) && !math.IsNaN(s.low[j]) {
			j++
		}
		if j-i >= 2 {
			var outline plotter.XYs
			for k := i; k < j; k++ {
				outline = append(outline, plotter.XY{X: s.x[k], Y: s.hi[k]})
			}
			for k := j - 1; k >= i; k-- {
				outline = append(outline, plotter.XY{X: s.x[k], Y: s.low[k]})
			}
			area, err := plotter.NewPolygon(outline)
			if err != nil {
				return err
			}
			pale := func(v uint8) uint8 { return 0xff - (0xff-v)/5 } // opaque: PDF readers differ in transparency
			area.Color = color.RGBA{pale(st.line.R), pale(st.line.G), pale(st.line.B), 0xff}
			area.LineStyle.Width = 0
			p.Add(area)
		}
		i = max(j, i+1)
	}
	return nil
}

// intervals are the error bars of a series, moved along the x axis by a part of the unit.
type intervals struct {
	plotter.XYs
	plotter.YErrors
}

func addIntervals(p *plot.Plot, s curve, shift float64, line draw.LineStyle) error {
	var e intervals
	for i := range s.x {
		if !math.IsNaN(s.low[i]) && !math.IsNaN(s.y[i]) {
			e.XYs = append(e.XYs, plotter.XY{X: s.x[i] + shift, Y: s.y[i]})
			e.YErrors = append(e.YErrors, struct{ Low, High float64 }{s.y[i] - s.low[i], s.hi[i] - s.y[i]})
		}
	}
	if len(e.XYs) == 0 {
		return nil
	}
	bars, err := plotter.NewYErrorBars(e)
	if err != nil {
		return err
	}
	bars.LineStyle, bars.CapWidth = line, 3
	p.Add(bars)
	return nil
}

// bars stand in groups: a group for each place of the x axis, in it a bar for each entry.
func (f *Figure) bars(p *plot.Plot, c *content) error {
	each := 0.8 / float64(len(c.series))
	for i, s := range c.series {
		shift := (float64(i) - float64(len(c.series)-1)/2) * each
		for j := range s.x {
			if math.IsNaN(s.y[j]) {
				continue
			}
			lo, hi := s.x[j]+shift-each*0.45, s.x[j]+shift+each*0.45
			box, err := plotter.NewPolygon(plotter.XYs{{X: lo, Y: 0}, {X: lo, Y: s.y[j]}, {X: hi, Y: s.y[j]}, {X: hi, Y: 0}})
			if err != nil {
				return err
			}
			box.Color, box.LineStyle = styles[i%len(styles)].fill, draw.LineStyle{Color: color.Black, Width: thin}
			p.Add(box)
		}
		if err := addIntervals(p, s, shift, draw.LineStyle{Color: color.Gray{0x55}, Width: 0.8}); err != nil {
			return err
		}
	}
	var ticks []plot.Tick
	for i, name := range c.categories {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: name})
	}
	p.X.Tick.Marker, p.X.Tick.Length = plot.ConstantTicks(ticks), 0
	p.X.Min, p.X.Max = -0.6, float64(len(c.categories))-0.4
	return nil
}
