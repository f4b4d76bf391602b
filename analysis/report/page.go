package report

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"strings"

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
	Checks   []analysis.Check // what a run expected; those of Document have a section of their own
	Tables   []analysis.Table // further tables, before those of Document
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

var (
	//go:embed page.html
	pageSource string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
)

// tallTable is how many rows a table may have before it scrolls by itself.
const tallTable = 24

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"css":        func() template.CSS { return template.CSS(pageStyle) },
	"js":         func() template.JS { return template.JS(pageScript) },
	"checkState": checkState,
	"verdict":    verdictText,
	"sortable":   sortable,
	"cell":       cellAttributes,
	"tableOf":    tableOf,
	"spark":      spark,
	"tall":       func(rows [][]string) bool { return len(rows) > tallTable },
}).Parse(pageSource))

// Render writes the page as HTML.
func Render(w io.Writer, p Page) error {
	if p.Document == nil {
		return errors.New("report: page without a document")
	}
	d := p.Document
	v := view{Page: p, Quality: d.Quality, Tiles: tiles(d), NotMeasured: notMeasured(d)}
	for _, s := range []struct {
		title  string
		checks []analysis.Check
	}{{"Expectations", p.Checks}, {"Checks", d.Checks}} {
		section := checkSection{Title: s.title}
		for _, c := range s.checks {
			section.Checks = append(section.Checks, checkView{c, findings(d, c)})
		}
		if len(section.Checks) > 0 {
			v.Checks = append(v.Checks, section)
		}
	}
	v.Badges = append(badges("expectation", p.Checks), badges("check", d.Checks)...)
	if q, ok := qualityBadge(d); ok {
		v.Badges = append([]Verdict{q}, v.Badges...)
	}
	v.Alarm = alarm(d, p.Checks)
	if p.Phases != nil {
		v.Lead = append(v.Lead, *p.Phases)
	} else if len(d.Aggregate.PerPhase) > 0 {
		v.Lead = append(v.Lead, d.PhaseFlowTable(), d.PhaseTable())
	}
	for _, c := range append(overTime(d), p.Charts...) {
		v.OverTime = append(v.OverTime, draw(c))
	}
	for _, c := range distributions(d) {
		v.Spread = append(v.Spread, drawSmall(c))
	}
	v.More = append(v.More, p.Tables...)
	for _, t := range d.Tables() {
		switch {
		case shownElsewhere(t.Title):
		case !facts(t):
			v.More = append(v.More, t)
		default: // one number a row: side by side
			v.Facts = append(v.Facts, t)
		}
	}
	return pageTemplate.Execute(w, v)
}

// shownElsewhere tells the tables of a document that the page has in another form, or further up.
func shownElsewhere(title string) bool {
	for _, t := range []string{"Checks", "Phases", "Goodput by phase"} {
		if title == t || strings.HasPrefix(title, t+" (") {
			return true
		}
	}
	return false
}

// view is Page with everything filled in that the template prints.
type view struct {
	Page
	Badges      []Verdict
	Alarm       *Alarm
	Tiles       []Tile
	Checks      []checkSection // hides Page.Checks
	Quality     analysis.Quality
	Lead        []analysis.Table
	Facts       []analysis.Table
	More        []analysis.Table
	OverTime    []figure
	Spread      []figure
	NotMeasured []string
}

type checkSection struct {
	Title  string
	Checks []checkView
}

type checkView struct {
	analysis.Check
	Findings []string
}

// findings are the rows of a check in words, and how many are not here.
func findings(d *analysis.Document, c analysis.Check) (out []string) {
	for _, r := range c.Rows {
		out = append(out, d.Finding(r))
	}
	if c.More > 0 {
		out = append(out, fmt.Sprintf("and %d more", c.More))
	}
	return out
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

// verdictText has a sign beside the word: colour alone tells nothing to some.
func verdictText(verdict string) string {
	switch verdict {
	case analysis.Pass:
		return "✓ pass"
	case analysis.Fail:
		return "✗ FAIL"
	}
	return "○ " + verdict
}
