package pages

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/analysis/report"
	"github.com/pcmlab/pcmlab/experiments"
)

// series is one score of one experiment over its runs in time.
type series struct {
	Name   string // of the experiment: playbook, lab, cell
	Score  Score
	Runs   []*experiments.Summary // those that measured it, in time
	Values []float64
	Steps  []Step
	Apart  int // runs that do not count
}

// History writes the page of how metrics went over runs in time, with their steps. Runs of the same playbook, lab and cell
// are one series, whatever changed otherwise: that is what a step is held against.
func History(w io.Writer, paths []string, o Options) error {
	runs, err := Load(paths...)
	if err != nil {
		return err
	}
	scores, err := PickScores(runs, o.Metrics)
	if err != nil {
		return err
	}
	all := historyOf(runs, scores, o.Seed)
	var names []string
	steps := 0
	for _, s := range scores {
		names = append(names, s.Name)
	}
	for _, s := range all {
		steps += len(s.Steps)
	}
	sheet := report.Sheet{Title: "History of " + strings.Join(names, ", "), Subtitle: fmt.Sprintf("%s, %s to %s", counted(len(runs), "run"), day(runs[0]), day(runs[len(runs)-1]))}
	if steps > 0 {
		sheet.Verdict = report.Verdict{Text: counted(steps, "step"), State: report.Unsure}
	} else {
		sheet.Verdict = report.Verdict{Text: "no step", State: report.Good}
	}
	apart := 0
	for _, r := range runs {
		if !counts(r) {
			apart++
		}
	}
	sheet.Tiles = []report.Tile{{Name: "series", Value: fmt.Sprint(len(all))}, {Name: "runs", Value: fmt.Sprint(len(runs))}, {Name: "noisy, partial, unfinished or warm-up: not counted", Value: fmt.Sprint(apart)}, {Name: "steps", Value: fmt.Sprint(steps)}}
	overview := report.Section{Title: "Series", Note: fmt.Sprintf("A step is a change of level that lasted for at least %d runs and that only %g %% of series that did not change would show. Values of a series are taken for independent: a machine that slowly warms up looks like a step.", minLevel, 100*StepAlpha)}
	overview.Tables = append(overview.Tables, seriesTable(all))
	if steps > 0 {
		overview.Tables = append(overview.Tables, stepTable(all))
	}
	sheet.Sections = append(sheet.Sections, overview)
	plots := report.Section{Title: "Over time"}
	for _, s := range all[:min(len(all), maxSeries)] {
		if len(s.Values) > 0 {
			plots.Charts = append(plots.Charts, s.chart())
		}
	}
	if n := len(all); n > maxSeries {
		plots.Note = fmt.Sprintf("The first %d of %d series; the tables have all.", maxSeries, n)
	}
	sheet.Sections = append(sheet.Sections, plots, runSection(runs))
	return report.RenderSheet(w, sheet)
}

// maxSeries is how many series get a plot.
const maxSeries = 40

// counts says that a run is one to judge by.
func counts(r *experiments.Summary) bool {
	return r.State == experiments.StateComplete && (r.Trial == nil || !r.Trial.Warmup)
}

func historyOf(runs []*experiments.Summary, scores []Score, seed uint64) (all []*series) {
	index := map[string]*series{}
	for _, r := range runs {
		experiment := r.Playbook + " on " + r.Lab
		if r.Trial != nil && len(r.Trial.Params) > 0 {
			var parts []string
			for _, p := range r.Trial.Params {
				parts = append(parts, p.Key+"="+p.Value)
			}
			experiment += ", " + strings.Join(parts, " ")
		}
		for _, sc := range scores {
			key := experiment + "\x00" + sc.Name
			s, ok := index[key]
			if !ok {
				s = &series{Name: experiment, Score: sc}
				index[key] = s
				all = append(all, s)
			}
			v := sc.Of(r)
			if !counts(r) || math.IsNaN(v) {
				s.Apart++
				continue
			}
			s.Runs, s.Values = append(s.Runs, r), append(s.Values, v)
		}
	}
	for _, s := range all {
		s.Steps = Steps(s.Values, seed)
	}
	return all
}

// levels are the stretches between steps with their medians.
func (s *series) levels() (list []level) {
	from := 0
	for i := 0; i <= len(s.Steps); i++ {
		to := len(s.Values)
		if i < len(s.Steps) {
			to = s.Steps[i].At
		}
		if from < to {
			list = append(list, level{from, to, median(s.Values[from:to])})
		}
		from = to
	}
	return list
}

type level struct {
	from, to int
	median   float64
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v) == 0 {
		return math.NaN()
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// change is how much a level differs from the one before, in words.
func change(unit string, before, after float64) string {
	if before != 0 {
		return fmt.Sprintf("%+.3g %%", 100*(after-before)/math.Abs(before))
	}
	sign := ""
	if after > 0 {
		sign = "+"
	}
	return sign + show(unit, after-before)
}

func (s *series) chart() report.Chart {
	top := 0.0
	for _, v := range s.Values {
		top = max(top, math.Abs(v))
	}
	unit, factor := Axis(s.Score, top)
	c := report.Chart{Title: s.Score.Name, Note: s.Name + "; a ring is one run, a line the median of a level", YLabel: unit, XLabel: "runs in time", FitY: true}
	runs := report.Points{Colour: report.Ink, Small: true}
	last := ""
	for i, v := range s.Values {
		runs.At = append(runs.At, report.Point{X: float64(i), Y: v * factor, Low: math.NaN(), High: math.NaN(), Text: s.Runs[i].Run + ": " + show(s.Score.Unit, v)})
		if d := day(s.Runs[i]); d != last {
			c.Places = append(c.Places, report.Place{At: float64(i), Text: d})
			last = d
		}
	}
	if len(c.Places) == 1 { // all of one day: the hour says more
		c.Places = nil
		for i, r := range s.Runs {
			c.Places = append(c.Places, report.Place{At: float64(i), Text: r.Began.UTC().Format("15:04")})
		}
	}
	levels := s.levels()
	for _, l := range levels {
		y := l.median * factor
		c.Lines = append(c.Lines, report.Line{Colour: 0, X: []float64{float64(l.from) - 0.4, float64(l.to) - 0.6}, Y: []float64{y, y}})
	}
	for i, st := range s.Steps {
		c.Events = append(c.Events, report.Place{At: float64(st.At) - 0.5, Text: change(s.Score.Unit, levels[i].median, levels[i+1].median)})
	}
	c.Points = []report.Points{runs}
	return c
}

func seriesTable(all []*series) report.Table {
	t := report.Table{SparkName: "over time", Table: analysis.Table{Title: "Series", Columns: []analysis.Column{{Name: "experiment", Wrap: true}, {Name: "metric"}, {Name: "n", Numeric: true}, {Name: "not counted", Numeric: true},
		{Name: "first", Numeric: true}, {Name: "last", Numeric: true}, {Name: "median", Numeric: true}, {Name: "level now", Numeric: true}, {Name: "steps", Numeric: true}}}}
	for _, s := range all {
		row := []string{s.Name, s.Score.Name, fmt.Sprint(len(s.Values)), fmt.Sprint(s.Apart), "-", "-", "-", "-", fmt.Sprint(len(s.Steps))}
		if n := len(s.Values); n > 0 {
			levels := s.levels()
			unit := s.Score.Unit
			row[4], row[5], row[6], row[7] = show(unit, s.Values[0]), show(unit, s.Values[n-1]), show(unit, median(s.Values)), show(unit, levels[len(levels)-1].median)
		}
		t.Rows, t.Sparks = append(t.Rows, row), append(t.Sparks, s.Values)
	}
	return t
}

// stepTable says of each step where it came, how far it went, whether for the better, and what else changed there.
func stepTable(all []*series) report.Table {
	t := report.Table{Table: analysis.Table{Title: "Steps", Columns: []analysis.Column{{Name: "metric"}, {Name: "experiment", Wrap: true}, {Name: "from run", Wrap: true}, {Name: "before", Numeric: true}, {Name: "after", Numeric: true},
		{Name: "change", Numeric: true}, {Name: "for the"}, {Name: "p", Numeric: true}, {Name: "what changed with it", Wrap: true}}}}
	for _, s := range all {
		levels := s.levels()
		for i, st := range s.Steps {
			before, after := levels[i].median, levels[i+1].median
			t.Rows = append(t.Rows, []string{s.Score.Name, s.Name, s.Runs[st.At].Run, show(s.Score.Unit, before), show(s.Score.Unit, after), change(s.Score.Unit, before, after),
				direction(s.Score.Name, before, after), fmt.Sprintf("%.2g", st.P), orDash(strings.Join(first(differences(s.Runs[st.At-1], s.Runs[st.At]), 6), "; "))})
		}
	}
	return t
}

// direction says whether a change is one for the better.
func direction(name string, before, after float64) string {
	metric, _, _ := strings.Cut(name, "(")
	info, ok := experiments.Metric(metric)
	switch {
	case !ok || info.Better == experiments.NeitherBetter:
		return "-"
	case (after > before) == (info.Better == experiments.HigherIsBetter):
		return "✓ better"
	}
	return "✗ worse"
}

// differences are what two runs do not have in common: inputs and provenance.
func differences(a, b *experiments.Summary) (list []string) {
	if a.Inputs != b.Inputs {
		list = append(list, "playbook or lab")
	}
	keys := map[string]bool{}
	for k := range a.Provenance {
		keys[k] = true
	}
	for k := range b.Provenance {
		keys[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if a.Provenance[k] != b.Provenance[k] {
			list = append(list, fmt.Sprintf("%s: %s, then %s", k, orDash(a.Provenance[k]), orDash(b.Provenance[k])))
		}
	}
	return list
}

func day(r *experiments.Summary) string { return r.Began.UTC().Format("2006-01-02") }

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
