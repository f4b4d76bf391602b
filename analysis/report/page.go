package report

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"

	"github.com/pcmlab/pcmlab/analysis"
)

// Page is what a report shows, top to bottom. Only Title and Document are needed.
type Page struct {
	Title    string
	Subtitle string // e.g. lab, date and duration, ready to print
	Verdict  Verdict
	Warnings []string // above all else: what a reader must know before the numbers

	Document *analysis.Document
	Phases   *analysis.Table  // nil: made from Document
	Checks   []analysis.Check // nil: those of Document
	Tables   []analysis.Table // further tables, after the flows
	Charts   []Chart          // further plots over time, after those made from Document

	Provenance []KV
	Links      []Link
}

// Verdict is the outcome in a word or two, with the colour it gets.
type Verdict struct {
	Text  string // empty: no badge
	State State
}

// State chooses the colour of a verdict.
type State string

// States. The zero value is neutral.
const (
	Neutral State = ""
	Good    State = "good"
	Bad     State = "bad"
	Unsure  State = "unsure" // incomplete, skipped, not judged
)

// KV is one line of provenance.
type KV struct{ Key, Value string }

// Link points to a file of the bundle, relative to the page.
type Link struct{ Text, Href string }

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"checkState": checkState,
	"palette":    paletteName,
}).Parse(pageSource))

// Render writes the page as HTML.
func Render(w io.Writer, p Page) error {
	if p.Document == nil {
		return errors.New("report: page without a document")
	}
	v := view{Page: p}
	if v.Checks == nil {
		v.Checks = p.Document.Checks
	}
	v.Quality = p.Document.Quality
	if p.Phases != nil {
		v.Lead = append(v.Lead, *p.Phases)
	} else if len(p.Document.Aggregate.PerPhase) > 0 {
		v.Lead = append(v.Lead, p.Document.PhaseFlowTable(), p.Document.PhaseTable())
	}
	v.More = append(v.More, p.Document.FlowTable())
	if p.Document.Path != nil {
		v.More = append(v.More, p.Document.PathTable())
	}
	v.More = append(append(v.More, p.Tables...), p.Document.TotalsTable(), p.Document.QualityTable())
	for _, c := range append(documentCharts(p.Document), p.Charts...) {
		d, err := drawChart(c)
		if err != nil {
			return fmt.Errorf("report: plot %q: %w", c.Title, err)
		}
		v.Figures = append(v.Figures, d)
	}
	if f, ok, err := drawJain(p.Document); err != nil {
		return fmt.Errorf("report: plot of Jain's index: %w", err)
	} else if ok {
		at := min(1, len(v.Figures))
		v.Figures = append(v.Figures[:at:at], append([]figure{f}, v.Figures[at:]...)...)
	}
	return pageTemplate.Execute(w, v)
}

// view is Page with everything filled in that the template prints.
type view struct {
	Page
	Checks  []analysis.Check
	Quality analysis.Quality
	Lead    []analysis.Table
	More    []analysis.Table
	Figures []figure
}

// figure is one plot in two shapes; the page shows the one that fits.
type figure struct {
	Title        string
	Note         string
	Wide, Narrow template.HTML
	Legend       []legend
}

type legend struct {
	Name   string
	Colour int
}

func checkState(verdict string) State {
	switch verdict {
	case analysis.Pass:
		return Good
	case analysis.Fail:
		return Bad
	}
	return Unsure
}

func paletteName(i int) string { return fmt.Sprintf("c%d", i%paletteSize) }
