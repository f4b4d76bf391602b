package report

// Chart is one plot. Its x axis is time in seconds, with LogTime a duration in ns on a logarithmic scale, and with Places
// whatever they name.
type Chart struct {
	Title  string
	Note   string // what exactly is shown, in a few words
	YLabel string // with the unit
	YMax   float64
	XLabel string     // empty: time since the start
	XRange [2]float64 // what the x axis holds at least; equal: as much as there is
	YRange [2]float64 // what the y axis of a chart with FitY holds at least, so that charts beside each other compare; equal: as much as there is
	Lines  []Line
	Areas  []Area
	Bands  []Band
	Marks  []Mark
	Spans  []Span // a chart of spans has rows instead of a y axis
	Points []Points
	Places []Place // of the x axis: it has no other numbers then
	Events []Place // upright lines, each with its text

	LogTime bool
	FitY    bool // the y axis holds the values alone and not zero: for points, whose differences count
}

// Points are single values, with their intervals where they have one.
type Points struct {
	Name   string
	Colour int
	Small  bool // single values behind the points that sum them up
	At     []Point
}

// Point is one value. Low and High are NaN where there is no interval.
type Point struct {
	X, Y      float64
	Low, High float64
	Text      string // what it is, for readers who point at it
}

// Place is a named place of an axis.
type Place struct {
	At   float64
	Text string
}

// Line is one curve. A NaN in Y is a gap: nothing was measured there.
type Line struct {
	Name   string
	Colour int // index into the palette, the same flow has the same everywhere; Ink for what is about all
	Step   bool
	X, Y   []float64
}

// Ink is the colour of text: for lines about everything.
const Ink = -1

// Area is what lies between two curves: many flows in one shape.
type Area struct {
	Name   string
	Colour int
	X      []float64
	Lo, Hi []float64
}

// Band is a named stretch of time, such as a phase.
type Band struct {
	Name       string
	Start, End float64
}

// Mark is a level that holds for a stretch of time, with its value as text.
type Mark struct {
	Start, End, Y float64
	Text          string
}

// Span is a row of a chart of spans: from its first to its last event.
type Span struct {
	Text       string
	Start, End float64
}

// paletteSize is how many colours the page has for lines; from dashFrom on they are dashed too, so that nobody has to tell
// eight colours apart.
const (
	paletteSize = 8
	dashFrom    = 4
)

// shape is a size of drawing, in CSS pixels at which its text has the page's size.
type shape struct {
	w, h   float64
	points int // of a curve
	ticks  int // on the x axis
	font   float64
}

var (
	wide   = shape{1080, 280, 480, 12, 13}
	narrow = shape{360, 250, 180, 5, 12}
	small  = shape{360, 260, 400, 5, 12} // distributions stand side by side
)

// figure is a chart drawn: in two shapes, of which the page shows the one that fits, or in one for all.
type figure struct {
	Title, Note  string
	Wide, Narrow svgText
	Legend       []legend
}

type legend struct {
	Name   string
	Class  string
	Dashed bool
	Area   bool
	Points bool
}

// draw draws a chart over time for wide and narrow pages.
func draw(c Chart) figure {
	f := figure{Title: c.Title, Note: c.Note, Legend: legendOf(c)}
	f.Wide, f.Narrow = svg(c, wide), svg(c, narrow)
	return f
}

// drawSmall draws a chart once, for all widths.
func drawSmall(c Chart) figure {
	return figure{Title: c.Title, Note: c.Note, Narrow: svg(c, small), Legend: legendOf(c)}
}

// legendOf names lines and areas; a single unnamed line needs no legend.
func legendOf(c Chart) (list []legend) {
	for _, l := range c.Lines {
		if l.Name != "" {
			list = append(list, legend{l.Name, "s" + colour(l.Colour), dashed(l.Colour), false, false})
		}
	}
	for _, p := range c.Points {
		if p.Name != "" {
			class := "d" + colour(p.Colour)
			if p.Small {
				class = "o" + colour(p.Colour)
			}
			list = append(list, legend{p.Name, class, false, false, true})
		}
	}
	for _, a := range c.Areas {
		list = append(list, legend{a.Name, "f" + colour(a.Colour), false, true, false})
	}
	if len(c.Marks) > 0 {
		list = append(list, legend{"mean of the phase's bins", "s" + colour(1), false, false, false})
	}
	return list
}

func dashed(colour int) bool { return colour >= 0 && colour%paletteSize >= dashFrom }

func colour(i int) string {
	if i < 0 {
		return "i"
	}
	return string(rune('0' + i%paletteSize))
}
