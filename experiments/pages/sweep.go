package pages

import (
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/analysis/report"
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/stats"
)

// Options of a page.
type Options struct {
	Metrics []string // names of scores; empty: Usual
	Seed    uint64   // of intervals and of the search for steps
}

// maxMultiples is how many charts stand beside each other for one metric and one parameter; the table has all cells.
const maxMultiples = 12

// sweepPage is a sweep on its way to a page.
type sweepPage struct {
	cells []*cell
	axes  []*parameter // whose values are numbers; without any, all
	all   []*parameter
	seed  uint64
}

// parameter is one that cells differ in.
type parameter struct {
	key     string
	values  []string // in the order of the axis
	at      map[string]float64
	numeric bool
	log     bool
}

// Sweep writes the page of a sweep: the folder of one, or a folder of its runs.
func Sweep(w io.Writer, dir string, o Options) error {
	cells, runs, err := loadCells(dir)
	if err != nil {
		return err
	}
	scores, err := PickScores(runs, o.Metrics)
	if err != nil {
		return err
	}
	s := newSweepPage(cells, o.Seed)
	sheet := report.Sheet{Title: "Sweep of " + name(runs), Subtitle: filepath.Base(filepath.Clean(dir))}
	if len(s.all) > 0 {
		var keys []string
		for _, p := range s.all {
			keys = append(keys, fmt.Sprintf("%s (%d)", p.key, len(p.values)))
		}
		sheet.Subtitle += ": " + strings.Join(keys, ", ")
	}
	s.outcome(&sheet, runs)
	for _, sc := range scores {
		sheet.Sections = append(sheet.Sections, s.section(sc))
	}
	sheet.Sections = append(sheet.Sections, runSection(runs))
	sheet.Provenance = provenance(runs)
	return report.RenderSheet(w, sheet)
}

// name of the experiments that runs are of.
func name(runs []*experiments.Summary) string {
	var names []string
	for _, r := range runs {
		if n := r.Playbook + " on " + r.Lab; !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return strings.Join(first(names, 3), ", ")
}

func newSweepPage(cells []*cell, seed uint64) *sweepPage {
	s := &sweepPage{cells: cells, seed: seed}
	var keys []string
	for _, c := range cells {
		for _, p := range c.Params {
			if !slices.Contains(keys, p.Key) {
				keys = append(keys, p.Key)
			}
		}
	}
	for _, key := range keys {
		p := newParameter(key, cells)
		if len(p.values) < 2 { // the same everywhere
			continue
		}
		s.all = append(s.all, p)
		if p.numeric {
			s.axes = append(s.axes, p)
		}
	}
	if len(s.axes) == 0 {
		s.axes = s.all
	}
	return s
}

func newParameter(key string, cells []*cell) *parameter {
	p := &parameter{key: key, numeric: true, at: map[string]float64{}}
	kinds := map[string]bool{}
	for _, c := range cells {
		text := c.value(key)
		if _, ok := p.at[text]; ok {
			continue
		}
		v, kind, ok := Number(text)
		p.values, p.at[text] = append(p.values, text), v
		p.numeric = p.numeric && ok
		if kind != "number" { // 0 is 0 of anything
			kinds[kind] = true
		}
	}
	if p.numeric = p.numeric && len(kinds) < 2; !p.numeric {
		for i, text := range p.values {
			p.at[text] = float64(i)
		}
		return p
	}
	slices.SortFunc(p.values, func(a, b string) int {
		if p.at[a] < p.at[b] {
			return -1
		}
		return 1
	})
	lo, hi := p.at[p.values[0]], p.at[p.values[len(p.values)-1]]
	if p.log = lo > 0 && hi/lo >= 20; p.log {
		for text, v := range p.at {
			p.at[text] = math.Log10(v)
		}
	}
	return p
}

func (p *parameter) label() string {
	if p.log {
		return p.key + " (logarithmic)"
	}
	return p.key
}

func (p *parameter) places() (list []report.Place) {
	for _, text := range p.values {
		shown := text
		if text == "" {
			shown = "-"
		}
		list = append(list, report.Place{At: p.at[text], Text: shown})
	}
	return list
}

// outcome says at the top what the sweep has and what it lacks.
func (s *sweepPage) outcome(sheet *report.Sheet, runs []*experiments.Summary) {
	counted, apart, missed, failed := 0, 0, 0, 0
	var empty []string
	for _, c := range s.cells {
		counted, apart, missed = counted+len(c.Runs), apart+len(c.Apart), missed+c.Missed
		if len(c.Runs) == 0 {
			line := c.ID + ": no complete run"
			if why := c.notCounted(); why != "" {
				line += " (" + why + ")"
			}
			empty = append(empty, line)
		}
		for _, r := range c.Runs {
			if r.Verdict == experiments.Fail {
				failed++
			}
		}
	}
	sheet.Tiles = []report.Tile{{Name: "cells", Value: fmt.Sprint(len(s.cells))}, {Name: "complete runs", Value: fmt.Sprint(counted)}, {Name: "noisy, partial or unfinished", Value: fmt.Sprint(apart)},
		{Name: "planned and not run", Value: fmt.Sprint(missed)}, {Name: "runs with a failed expectation", Value: fmt.Sprint(failed)}}
	if len(empty) > 0 {
		sheet.Alarm = &report.Alarm{Title: fmt.Sprintf("%d of %d cells have no result", len(empty), len(s.cells)), Lines: first(empty, 10)}
	}
	switch {
	case apart > 0 || missed > 0:
		sheet.Badges = append(sheet.Badges, report.Verdict{Text: fmt.Sprintf("%d of %d runs count", counted, counted+apart+missed), State: report.Unsure})
	default:
		sheet.Badges = append(sheet.Badges, report.Verdict{Text: fmt.Sprintf("all %d runs count", counted), State: report.Good})
	}
	if failed > 0 {
		sheet.Badges = append(sheet.Badges, report.Verdict{Text: fmt.Sprintf("expectations failed in %d runs", failed), State: report.Bad})
	}
	if scale := runs[0].TimeScale; scale != 1 {
		sheet.Warnings = append(sheet.Warnings, fmt.Sprintf("time scale %g: rates and times are as measured in the virtual lab", scale))
	}
}

// described is a cell's score with its statistics.
type described struct {
	*cell
	d      stats.Description
	values []float64
	runs   []*experiments.Summary // of the values
}

func describe(c *cell, s Score, seed uint64) described {
	out := described{cell: c}
	for _, r := range c.Runs {
		if v := s.Of(r); !math.IsNaN(v) {
			out.values, out.runs = append(out.values, v), append(out.runs, r)
		}
	}
	out.d = experiments.Describe(s.Metric, out.values, seed)
	return out
}

// outliers names the runs that lie far from the others of their cell.
func (d *described) outliers(unit string) []string {
	var list []string
	for _, i := range d.d.Outliers {
		list = append(list, d.runs[i].Run+" ("+show(unit, d.values[i])+")")
	}
	return list
}

// section is one metric: against each parameter, and in a table.
func (s *sweepPage) section(sc Score) report.Section {
	all := make([]described, len(s.cells))
	var g errgroup.Group // bootstraps take most of the time of a page
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, c := range s.cells {
		g.Go(func() error {
			all[i] = describe(c, sc, s.seed)
			return nil
		})
	}
	g.Wait()
	top := 0.0
	limits := [2]float64{math.Inf(1), math.Inf(-1)}
	for _, d := range all {
		for _, v := range d.values {
			top = max(top, math.Abs(v))
			limits = [2]float64{min(limits[0], v), max(limits[1], v)}
		}
	}
	unit, factor := Axis(sc, top)
	metric, _, _ := strings.Cut(sc.Name, "(")
	out := report.Section{Title: sc.Name}
	if info, ok := experiments.Metric(metric); ok {
		out.Note = info.Gives
		if info.Better != experiments.NeitherBetter {
			out.Note += "; " + string(info.Better) + " is better"
		}
		out.Note += ". A small ring is one run, a dot the median of its cell with its 95 % interval."
	}
	for _, p := range s.axes {
		rest := slices.DeleteFunc(slices.Clone(s.all), func(o *parameter) bool { return o == p })
		groups, names := groupBy(all, rest)
		for i, g := range groups[:min(len(groups), maxMultiples)] {
			c := chartOf(g, p, unit, factor, sc.Unit)
			c.Title = sc.Name + " by " + p.key
			c.YRange = [2]float64{limits[0] * factor, limits[1] * factor}
			c.Note = names[i]
			if len(groups) == 1 {
				out.Charts = append(out.Charts, c)
			} else {
				out.Small = append(out.Small, c)
			}
		}
		if n := len(groups); n > maxMultiples {
			out.Note += fmt.Sprintf(" Of the %d charts by %s the first %d are drawn; the table has all cells.", n, p.key, maxMultiples)
		}
	}
	out.Tables = append(out.Tables, s.table(sc, all))
	return out
}

// groupBy puts cells together that are alike in all of the parameters.
func groupBy(all []described, params []*parameter) (groups [][]described, names []string) {
	index := map[string]int{}
	for _, d := range all {
		var parts []string
		for _, p := range params {
			parts = append(parts, p.key+" = "+d.value(p.key))
		}
		name := strings.Join(parts, ", ")
		i, ok := index[name]
		if !ok {
			i = len(groups)
			index[name] = i
			groups, names = append(groups, nil), append(names, name)
		}
		groups[i] = append(groups[i], d)
	}
	return groups, names
}

// chartOf draws the cells of one group against a parameter.
func chartOf(group []described, p *parameter, label string, factor float64, unit string) report.Chart {
	c := report.Chart{YLabel: label, XLabel: p.label(), FitY: true, Places: p.places()}
	nan := math.NaN()
	runs := report.Points{Name: "single runs", Colour: report.Ink, Small: true}
	far := report.Points{Name: "outliers", Colour: 1, Small: true}
	medians := report.Points{Name: "median and 95 % interval", Colour: 0}
	slices.SortStableFunc(group, func(a, b described) int {
		if x, y := p.at[a.value(p.key)], p.at[b.value(p.key)]; x < y {
			return -1
		} else if x > y {
			return 1
		}
		return 0
	})
	line := report.Line{Colour: 0}
	for _, d := range group {
		x := p.at[d.value(p.key)]
		for i, v := range d.values {
			at := report.Point{X: x, Y: v * factor, Low: nan, High: nan, Text: d.runs[i].Run + ": " + show(unit, v)}
			if slices.Contains(d.d.Outliers, i) {
				far.At = append(far.At, at)
			} else {
				runs.At = append(runs.At, at)
			}
		}
		if len(d.values) == 0 {
			line.X, line.Y = append(line.X, x), append(line.Y, nan)
			continue
		}
		at := report.Point{X: x, Y: *d.d.Median * factor, Low: nan, High: nan, Text: d.ID + ": median " + show(unit, *d.d.Median) + " of " + fmt.Sprint(d.d.N)}
		if ci := d.d.MedianCI; ci != nil {
			at.Low, at.High = ci.Low*factor, ci.High*factor
		}
		medians.At = append(medians.At, at)
		line.X, line.Y = append(line.X, x), append(line.Y, *d.d.Median*factor)
	}
	if p.numeric {
		c.Lines = []report.Line{line}
	}
	c.Points = []report.Points{runs, medians}
	if len(far.At) > 0 {
		c.Points = append(c.Points, far)
	}
	return c
}

// table has a row for each cell.
func (s *sweepPage) table(sc Score, all []described) report.Table {
	t := analysis.Table{Title: sc.Name + ", by cell", Columns: []analysis.Column{{Name: "cell"}}}
	for _, p := range s.all {
		t.Columns = append(t.Columns, analysis.Column{Name: p.key, Numeric: p.numeric})
	}
	for _, name := range []string{"n", "median", "from", "to", "mean", "sd", "min", "max"} {
		t.Columns = append(t.Columns, analysis.Column{Name: name, Numeric: true})
	}
	t.Columns = append(t.Columns, analysis.Column{Name: "outliers", Wrap: true}, analysis.Column{Name: "not counted"})
	for _, d := range all {
		row := []string{d.ID}
		for _, p := range s.all {
			row = append(row, orDash(d.value(p.key)))
		}
		row = append(row, d.numbers(sc.Unit)...)
		t.Rows = append(t.Rows, append(row, orDash(strings.Join(d.outliers(sc.Unit), ", ")), orDash(d.notCounted())))
	}
	return report.Table{Table: t}
}

// numbers are n, median with its interval, mean, sd, min and max.
func (d *described) numbers(unit string) []string {
	value := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return show(unit, *v)
	}
	from, to := "-", "-"
	if ci := d.d.MedianCI; ci != nil {
		from, to = show(unit, ci.Low), show(unit, ci.High)
	}
	return []string{fmt.Sprint(d.d.N), value(d.d.Median), from, to, value(d.d.Mean), value(d.d.SD), value(d.d.Min), value(d.d.Max)}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// runSection lists every run and how it ended.
func runSection(runs []*experiments.Summary) report.Section {
	t := analysis.Table{Title: "Every run", Columns: []analysis.Column{{Name: "run"}, {Name: "cell"}, {Name: "repeat", Numeric: true}, {Name: "began"}, {Name: "state"}, {Name: "expectations"}, {Name: "why", Wrap: true}}}
	for _, r := range runs {
		cell, repeat := "-", "-"
		if r.Trial != nil {
			cell, repeat = r.Trial.Cell, fmt.Sprint(r.Trial.Repeat)
			if r.Trial.Warmup {
				repeat = "warm-up"
			}
		}
		t.Rows = append(t.Rows, []string{r.Run, cell, repeat, r.Began.UTC().Format("2006-01-02 15:04:05"), stateText(r.State), verdictText(r), orDash(why(r))})
	}
	return report.Section{Title: "Runs", Tables: []report.Table{{Table: t}}}
}

func stateText(s experiments.BundleState) string {
	if s == experiments.StateComplete {
		return "✓ complete"
	}
	return "○ " + string(s)
}

func verdictText(r *experiments.Summary) string {
	switch r.Verdict {
	case experiments.Pass:
		return "✓ hold"
	case experiments.Fail:
		return "✗ FAIL"
	}
	return "○ not judged"
}

// why a run does not count, or which expectations failed.
func why(r *experiments.Summary) string {
	if r.State != experiments.StateComplete {
		return r.Reason
	}
	var failed []string
	for _, c := range r.Checks {
		if c.Verdict == experiments.Fail {
			failed = append(failed, c.Name)
		}
	}
	return strings.Join(failed, ", ")
}

// provenance is what runs depended on: what all have in common, and how many ways the rest differs.
func provenance(runs []*experiments.Summary) (kv []report.KV) {
	values := map[string][]string{}
	note := func(k, v string) {
		if v != "" && !slices.Contains(values[k], v) {
			values[k] = append(values[k], v)
		}
	}
	for _, r := range runs {
		note("inputs", r.Inputs)
		for k, v := range r.Provenance {
			note(k, v)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		kv = append(kv, report.KV{Key: k, Value: strings.Join(first(values[k], 3), "; ")})
	}
	return kv
}
