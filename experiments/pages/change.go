package pages

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/analysis/report"
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/compare"
)

// Change writes the page of a change: before and after laid over each other in time and as distributions, cell by cell, with
// the verdict on every score. Each side is folders of runs, as compare takes them.
func Change(w io.Writer, before, after []string, o compare.Options) error {
	a, err := compare.Gather(before)
	if err != nil {
		return err
	}
	b, err := compare.Gather(after)
	if err != nil {
		return err
	}
	o.Before, o.After = cmp.Or(o.Before, strings.Join(before, ",")), cmp.Or(o.After, strings.Join(after, ","))
	r := compare.Compare(a, b, o)
	sheet := report.Sheet{Title: "Before and after", Subtitle: brief(o.Before) + " and " + brief(o.After), Verdict: report.Verdict{Text: string(r.Verdict), State: stateOf(r.Verdict)}, Warnings: slices.Clone(r.Warnings)}
	judged := map[compare.Verdict]int{}
	var worse []string
	for _, c := range r.Cells {
		for i := range c.Scores {
			s := &c.Scores[i]
			if !s.Judged {
				continue
			}
			judged[s.Verdict]++
			if s.Verdict == compare.Worse {
				worse = append(worse, c.Name+": "+s.Score+": "+s.Reason)
			}
		}
		if c.Verdict == compare.NotApplied || c.Verdict == compare.Incomplete {
			worse = append(worse, c.Name+": "+string(c.Verdict)+": "+c.Reason)
		}
	}
	if len(worse) > 0 {
		sheet.Alarm = &report.Alarm{Title: r.Reason, Lines: first(worse, 12)}
	}
	sheet.Tiles = []report.Tile{{Name: "cells", Value: fmt.Sprint(len(r.Cells))}, {Name: "scores judged", Value: fmt.Sprint(r.Judged)}}
	for _, v := range []compare.Verdict{compare.Worse, compare.Better, compare.Changed, compare.Same, compare.Insufficient} {
		if judged[v] > 0 {
			sheet.Tiles = append(sheet.Tiles, report.Tile{Name: string(v), Value: fmt.Sprint(judged[v])})
		}
	}
	if r.NMore != nil {
		sheet.Warnings = append(sheet.Warnings, fmt.Sprintf("%s of each cell and side would do", counted(*r.NMore, "more repeat")))
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		section := report.Section{Title: c.Name, Note: cellNote(c)}
		if i < maxOverlays {
			if err := overlays(&section, side(a, c.Before), side(b, c.After)); err != nil {
				return err
			}
		} else {
			section.Note += fmt.Sprintf(" Curves are drawn for the first %d cells.", maxOverlays)
		}
		section.Tables = append(section.Tables, scoreTable(c))
		if t := sidesTable(c); len(t.Rows) > 0 {
			section.Tables = append(section.Tables, t)
		}
		sheet.Sections = append(sheet.Sections, section)
	}
	if len(r.Provenance) > 0 {
		t := report.Table{Table: analysis.Table{Title: "What differs besides", Columns: []analysis.Column{{Name: "key"}, {Name: "before", Wrap: true}, {Name: "after", Wrap: true}}}}
		for _, d := range r.Provenance {
			t.Rows = append(t.Rows, []string{d.Key, orDash(strings.Join(d.Before, ", ")), orDash(strings.Join(d.After, ", "))})
		}
		sheet.Sections = append(sheet.Sections, report.Section{Title: "Besides", Tables: []report.Table{t}})
	}
	sheet.Provenance = []report.KV{{Key: "before", Value: o.Before}, {Key: "after", Value: o.After}, {Key: "method", Value: fmt.Sprintf("Mann-Whitney and Hodges-Lehmann, %s over %d scores, at most %g %% false alarms in all, seed %d", r.Correction, r.Tested, 100*r.Alpha, r.Seed)}}
	return report.RenderSheet(w, sheet)
}

// maxOverlays is how many cells get curves: each reads the documents of its runs.
const maxOverlays = 6

func stateOf(v compare.Verdict) report.State {
	switch v {
	case compare.Worse:
		return report.Bad
	case compare.Same, compare.Better:
		return report.Good
	}
	return report.Unsure
}

// sign stands before a verdict, so that it is told without colour.
func sign(v compare.Verdict) string {
	switch stateOf(v) {
	case report.Bad:
		return "✗ "
	case report.Good:
		return "✓ "
	}
	return "○ "
}

func brief(list string) string {
	return strings.Join(first(strings.Split(list, ","), 3), ", ")
}

func cellNote(c *compare.Cell) string {
	note := fmt.Sprintf("%s before, %s after: %s, %s.", counted(len(c.Before.Runs), "run"), counted(len(c.After.Runs), "run"), c.Verdict, c.Reason)
	for _, p := range c.Params {
		if p.Differs() {
			text := func(v *string) string {
				if v == nil {
					return "-"
				}
				return *v
			}
			note += fmt.Sprintf(" %s: %s, then %s.", p.Key, text(p.Before), text(p.After))
		}
	}
	return note
}

// side finds the runs of a side of a cell that count.
func side(groups []compare.Group, s compare.CellSide) (runs []*experiments.Summary) {
	for _, g := range groups {
		if g.Name != s.Group {
			continue
		}
		for _, r := range g.Runs {
			name := r.Run // as the comparison calls it
			if r.Trial != nil {
				name = fmt.Sprintf("%s/%s repeat %d", r.Trial.Sweep, r.Trial.Cell, r.Trial.Repeat)
			}
			if counts(r) && slices.Contains(s.Runs, name) {
				runs = append(runs, r)
			}
		}
	}
	return runs
}

// overlays draws both sides of a cell over each other. A side of several runs is the median of each bin, with a band from
// the lowest to the highest; distributions pool the samples of a side.
func overlays(section *report.Section, before, after []*experiments.Summary) error {
	type sideOf struct {
		name   string
		colour int
		runs   []*experiments.Summary
		totals []report.Totals
		rtt    [][]analysis.Sample
		done   [][]analysis.Sample
	}
	sides := []*sideOf{{name: "before", colour: 0, runs: before}, {name: "after", colour: 1, runs: after}}
	var bands []report.Band
	width := 0.0
	for _, s := range sides {
		for _, r := range s.runs {
			if r.Dir == "" { // of a baseline: it has scores, not curves
				continue
			}
			d, err := LoadDocument(r.Dir)
			if err != nil {
				return err
			}
			t := report.TotalsOf(d)
			s.totals = append(s.totals, t)
			s.rtt, s.done = append(s.rtt, d.Distributions.RTTNS), append(s.done, d.Distributions.MessageNS)
			width = max(width, t.BinWidth)
			if bands == nil {
				bands = t.Bands
			}
		}
	}
	if width == 0 {
		section.Note += " No run has curves: nothing was captured."
		return nil
	}
	for _, k := range []struct {
		title, label string
		pick         func(report.Totals) report.Line
		factor, top  float64
	}{
		{"Goodput of all flows", "", func(t report.Totals) report.Line { return t.Goodput }, 1, 0},
		{"Jain's fairness index", "index", func(t report.Totals) report.Line { return t.Jain }, 1, 1},
		{"CE-marked share", "% of packets", func(t report.Totals) report.Line { return t.CEShare }, 100, 0},
		{"CNPs", "CNPs per second", func(t report.Totals) report.Line { return t.CNPs }, 1, 0},
	} {
		c := report.Chart{Title: k.title, YLabel: k.label, YMax: k.top, Bands: bands}
		highest, most := 0.0, 0
		for _, s := range sides {
			var lines []report.Line
			for _, t := range s.totals {
				if l := k.pick(t); len(l.X) > 0 {
					lines = append(lines, l)
				}
			}
			if len(lines) == 0 {
				continue
			}
			most = max(most, len(lines))
			x, y, low, high := Overlay(lines, width)
			for _, list := range [][]float64{y, low, high} {
				for i := range list {
					list[i] *= k.factor
				}
			}
			c.Lines = append(c.Lines, report.Line{Name: fmt.Sprintf("%s (%s)", s.name, counted(len(lines), "run")), Colour: s.colour, X: x, Y: y})
			area := report.Area{Name: s.name + ", lowest to highest run", Colour: s.colour}
			for i := range x {
				if !math.IsNaN(high[i]) {
					highest = max(highest, high[i])
					area.X, area.Lo, area.Hi = append(area.X, x[i]), append(area.Lo, low[i]), append(area.Hi, high[i])
				}
			}
			if len(lines) > 1 {
				c.Areas = append(c.Areas, area)
			}
		}
		if len(c.Lines) == 0 || highest == 0 {
			continue
		}
		if most > 1 {
			c.Note = "the median run of each bin, and the range of the runs"
		}
		if k.label == "" {
			unit, factor := Axis(Score{Unit: "bit/s"}, highest)
			c.YLabel = unit
			scale(&c, factor)
		}
		section.Charts = append(section.Charts, c)
	}
	for _, k := range []struct {
		title string
		of    func(*sideOf) [][]analysis.Sample
	}{{"Round-trip time", func(s *sideOf) [][]analysis.Sample { return s.rtt }}, {"Message completion time", func(s *sideOf) [][]analysis.Sample { return s.done }}} {
		var list []report.Distribution
		for _, s := range sides {
			list = append(list, report.Distribution{Name: s.name, Colour: s.colour, Samples: Pool(k.of(s))})
		}
		if c, ok := report.CDF(k.title, list); ok {
			c.Note = "all samples of the side's runs together"
			section.Small = append(section.Small, c)
		}
	}
	return nil
}

// scale puts the curves of a chart into another unit.
func scale(c *report.Chart, factor float64) {
	var lists [][]float64
	for _, l := range c.Lines {
		lists = append(lists, l.Y)
	}
	for _, a := range c.Areas {
		lists = append(lists, a.Lo, a.Hi)
	}
	for _, list := range lists {
		for i := range list {
			list[i] *= factor
		}
	}
}

// scoreTable has the verdict on every score of a cell, the judged ones first.
func scoreTable(c *compare.Cell) report.Table {
	t := report.Table{Table: analysis.Table{Title: c.Name + ": scores", Columns: []analysis.Column{{Name: "score"}, {Name: "verdict"}, {Name: "before", Numeric: true}, {Name: "n before", Numeric: true}, {Name: "after", Numeric: true}, {Name: "n after", Numeric: true},
		{Name: "change (95 %)", Numeric: true}, {Name: "allowed", Numeric: true}, {Name: "p", Numeric: true}, {Name: "why", Wrap: true}}}}
	median := func(v *float64, unit string) string {
		if v == nil {
			return "-"
		}
		return show(unit, *v)
	}
	for _, judged := range []bool{true, false} {
		for i := range c.Scores {
			s := &c.Scores[i]
			if s.Judged != judged {
				continue
			}
			verdict, p := sign(s.Verdict)+string(s.Verdict), "-"
			if !judged {
				verdict = string(s.Verdict) + ", not judged"
			}
			if s.PCorrected != nil {
				p = fmt.Sprintf("%.2g", *s.PCorrected)
			}
			t.Rows = append(t.Rows, []string{s.Score, verdict, median(s.Before.Median, s.Unit), fmt.Sprint(s.Before.N), median(s.After.Median, s.Unit), fmt.Sprint(s.After.N), s.ChangeText(), s.LimitText(), p,
				orDash(strings.Join(append([]string{s.Reason}, s.Notes...), "; "))})
		}
	}
	return t
}

// sidesTable names the runs that do not count, and those of which an expectation does not hold.
func sidesTable(c *compare.Cell) report.Table {
	t := report.Table{Table: analysis.Table{Title: c.Name + ": runs that need a look", Columns: []analysis.Column{{Name: "side"}, {Name: "run", Wrap: true}, {Name: "counts"}, {Name: "why", Wrap: true}}}}
	for _, s := range []struct {
		name string
		side *compare.CellSide
	}{{"before", &c.Before}, {"after", &c.After}} {
		for _, x := range s.side.Excluded {
			t.Rows = append(t.Rows, []string{s.name, x.Run, "○ no", x.Why})
		}
		for _, run := range s.side.FailedChecks {
			t.Rows = append(t.Rows, []string{s.name, run, "yes", "an expectation does not hold"})
		}
	}
	return t
}
