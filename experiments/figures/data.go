package figures

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/text/encoding/charmap"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/analysis/report"
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/pages"
	"github.com/pcmlab/pcmlab/internal/spec"
)

// content is what a figure draws, in the units of its axes.
type content struct {
	x, y       string // labels
	series     []curve
	logX       bool
	categories []string // bars: names along the x axis
	places     []place  // sweep: ticks at the parameter's values
	fromZero   bool
}

// curve is one entry: a line, points with intervals, or bars. NaN in y is a gap.
type curve struct {
	label    string
	x, y     []float64
	low, hi  []float64 // interval of each point, NaN: none; empty: no point has one
	band     bool      // low and hi are drawn as a band
	step     bool
	withDots bool
}

type place struct {
	at   float64
	text string
}

func inFont(r rune) bool {
	_, ok := charmap.Windows1252.EncodeRune(r)
	return ok
}

func contains(list []string, s string) bool { return slices.Contains(list, s) }

func metricNames() (names []string) {
	for _, m := range experiments.MetricCatalogue {
		names = append(names, m.Name)
	}
	return names
}

// load finds complete runs; others are not drawn, and none at all is an error.
func load(paths []string) ([]*experiments.Summary, error) {
	all, err := pages.Load(paths...)
	if err != nil {
		return nil, err
	}
	complete := slices.DeleteFunc(slices.Clone(all), func(r *experiments.Summary) bool {
		return r.State != experiments.StateComplete || r.Trial != nil && r.Trial.Warmup
	})
	if len(complete) == 0 {
		return nil, fmt.Errorf("%w: %s: none of %d runs is complete", experiments.ErrData, strings.Join(paths, ", "), len(all))
	}
	return complete, nil
}

// content gathers what is drawn.
func (f *Figure) content() (*content, error) {
	var c *content
	var err error
	switch f.spec.Kind {
	case "timeline":
		c, err = f.timeline()
	case "cdf":
		c, err = f.cdf()
	default:
		c, err = f.scores()
	}
	if err != nil {
		return nil, err
	}
	if f.spec.XLabel != "" {
		c.x = f.spec.XLabel
	}
	if f.spec.YLabel != "" {
		c.y = f.spec.YLabel
	}
	return c, nil
}

// documents of the runs of an entry.
func documents(e entry) (docs []*analysis.Document, err error) {
	for _, r := range e.runs {
		d, err := pages.LoadDocument(r.Dir)
		if err != nil {
			return nil, err
		}
		docs = append(docs, d)
	}
	return docs, nil
}

// timeline lays the runs of an entry over each other: the median and, behind it, the lowest and highest of them.
func (f *Figure) timeline() (*content, error) {
	c := &content{x: "time (s)", fromZero: true}
	type set struct {
		label string
		lines []report.Line
	}
	var sets []set
	width := f.spec.Bin.Seconds()
	for _, e := range f.entries {
		docs, err := documents(e)
		if err != nil {
			return nil, err
		}
		s := set{label: e.label}
		for _, d := range docs {
			t := report.TotalsOf(d)
			width = max(width, t.BinWidth)
			if f.spec.By == "flow" {
				for _, l := range report.FlowGoodputs(d) {
					i := slices.IndexFunc(sets, func(s set) bool { return s.label == l.Name })
					if i < 0 {
						i = len(sets)
						sets = append(sets, set{label: l.Name})
					}
					sets[i].lines = append(sets[i].lines, l)
				}
				continue
			}
			line := map[string]report.Line{"goodput": t.Goodput, "jain": t.Jain, "ce_share": t.CEShare, "cnp_rate": t.CNPs, "retransmissions": t.Resent}[f.spec.Metric]
			if len(line.X) == 0 {
				return nil, fmt.Errorf("%w: %s: %s over time was not measured", experiments.ErrData, e.runs[0].Dir, f.spec.Metric)
			}
			s.lines = append(s.lines, line)
		}
		if f.spec.By != "flow" {
			sets = append(sets, s)
		}
	}
	top := 0.0
	for _, s := range sets {
		x, y, low, high := pages.Overlay(s.lines, width)
		v := curve{label: s.label, x: x, y: y}
		if len(s.lines) > 1 {
			v.low, v.hi, v.band = low, high, true
		}
		for i := range y {
			if !math.IsNaN(y[i]) {
				top = max(top, y[i], high[i])
			}
		}
		c.series = append(c.series, v)
	}
	unit, factor := "", 1.0
	switch f.spec.Metric {
	case "goodput":
		unit, factor = pages.Axis(pages.Score{Name: "goodput", Unit: "bit/s"}, top)
		c.y = "goodput (" + unit + ")"
	case "jain":
		c.y = "Jain's index"
	case "ce_share":
		c.y, factor = "CE-marked packets (%)", 100
	case "cnp_rate":
		c.y = "CNPs per second"
	case "retransmissions":
		c.y = "retransmitted packets per second"
	}
	c.scale(factor)
	return c, nil
}

func (c *content) scale(factor float64) {
	for _, s := range c.series {
		for _, list := range [][]float64{s.y, s.low, s.hi} {
			for i := range list {
				list[i] *= factor
			}
		}
	}
}

// cdf pools the samples of the runs of an entry.
func (f *Figure) cdf() (*content, error) {
	c := &content{y: "share of samples", logX: true, fromZero: true}
	top := 0.0
	for _, e := range f.entries {
		docs, err := documents(e)
		if err != nil {
			return nil, err
		}
		var lists [][]analysis.Sample
		for _, d := range docs {
			lists = append(lists, map[string][]analysis.Sample{"rtt": d.Distributions.RTTNS, "message": d.Distributions.MessageNS, "cnp_gap": d.Distributions.CNPGapNS}[f.spec.Metric])
		}
		samples := pages.Pool(lists)
		if len(samples) == 0 {
			return nil, fmt.Errorf("%w: %s: %s was not measured", experiments.ErrData, e.runs[0].Dir, f.spec.Metric)
		}
		var n, seen int64
		for _, s := range samples {
			n += s.Count
		}
		v := curve{label: e.label, step: true, x: []float64{max(float64(samples[0].Value), 1)}, y: []float64{0}}
		for _, s := range samples {
			seen += s.Count
			v.x, v.y = append(v.x, max(float64(s.Value), 1)), append(v.y, float64(seen)/float64(n))
			top = max(top, float64(s.Value))
		}
		c.series = append(c.series, v)
	}
	unit, factor := pages.Axis(pages.Score{Unit: "ns"}, top/10)
	for _, s := range c.series {
		for i := range s.x {
			s.x[i] *= factor
		}
	}
	c.x = map[string]string{"rtt": "round-trip time", "message": "message completion time", "cnp_gap": "time between CNPs"}[f.spec.Metric] + " (" + unit + ")"
	return c, nil
}

// scores draws a score of the runs: against a parameter, or an entry beside the other.
func (f *Figure) scores() (*content, error) {
	var all []*experiments.Summary
	for _, e := range f.entries {
		all = append(all, e.runs...)
	}
	picked, err := pages.PickScores(all, []string{f.spec.Metric})
	if err != nil {
		pos := f.doc.Pos(spec.P("metric"))
		return nil, fmt.Errorf("%s:%d:%d: %w", f.File, pos.Line, pos.Col, err)
	}
	score := picked[0]
	c := &content{x: f.spec.X}
	values, at, err := f.axis()
	if err != nil {
		return nil, err
	}
	top := 0.0
	for _, e := range f.entries {
		v := curve{label: e.label, withDots: true}
		for i, value := range values {
			var sample []float64
			for _, r := range e.runs {
				if f.taken(r) && (f.spec.X == "" || parameter(r, f.spec.X) == value) {
					if x := score.Of(r); !math.IsNaN(x) {
						sample = append(sample, x)
					}
				}
			}
			d := experiments.Describe(score.Metric, sample, 1)
			y, low, high := math.NaN(), math.NaN(), math.NaN()
			if d.Median != nil {
				y = *d.Median
				top = max(top, math.Abs(y))
			}
			if d.MedianCI != nil {
				low, high = d.MedianCI.Low, d.MedianCI.High
				top = max(top, math.Abs(high))
			}
			v.x, v.y, v.low, v.hi = append(v.x, at[i]), append(v.y, y), append(v.low, low), append(v.hi, high)
		}
		if !slices.ContainsFunc(v.y, func(y float64) bool { return !math.IsNaN(y) }) {
			return nil, fmt.Errorf("%w: entry %q: %s was measured by none of its runs", experiments.ErrData, e.label, score.Name)
		}
		c.series = append(c.series, v)
	}
	unit, factor := pages.Axis(score, top)
	c.y = score.Name
	if metric, rest, _ := strings.Cut(score.Name, "("); rest == ")" {
		c.y = metric
	}
	if score.Unit != "" {
		c.y += " (" + unit + ")"
	}
	c.scale(factor)
	if f.spec.Kind == "bars" {
		c.fromZero = true
		if c.categories = values; f.spec.X == "" { // the entries stand along the axis
			c.byEntry()
		}
		return c, nil
	}
	for i, value := range values {
		c.places = append(c.places, place{at[i], value})
	}
	return c, nil
}

// byEntry turns bars of one place each into one row of places.
func (c *content) byEntry() {
	row := curve{withDots: true}
	c.categories = nil
	for i, s := range c.series {
		c.categories = append(c.categories, s.label)
		row.x, row.y, row.low, row.hi = append(row.x, float64(i)), append(row.y, s.y[0]), append(row.low, s.low[0]), append(row.hi, s.hi[0])
	}
	c.series = []curve{row}
}

// parameter of a run's cell; "" when it has none of that name.
func parameter(r *experiments.Summary, key string) string {
	if r.Trial != nil {
		for _, p := range r.Trial.Params {
			if p.Key == key {
				return p.Value
			}
		}
	}
	return ""
}

// taken says that a run is of a cell that `where` asks for.
func (f *Figure) taken(r *experiments.Summary) bool {
	for _, w := range f.spec.Where {
		if parameter(r, w.Key) != string(w.Value) {
			return false
		}
	}
	return true
}

// axis are the values of the parameter of the x axis, in order, and where they stand. Runs without the parameter, and cells
// that differ in others too, are errors: a figure must not mix what was not the same.
func (f *Figure) axis() (values []string, at []float64, err error) {
	varies := map[string][]string{}
	var missing []string
	n := 0
	for _, e := range f.entries {
		within := map[string][]string{}
		for _, r := range e.runs {
			if r.Trial != nil {
				for _, p := range r.Trial.Params {
					if f.taken(r) && !contains(within[p.Key], p.Value) {
						within[p.Key] = append(within[p.Key], p.Value)
					}
				}
			}
			for _, key := range append(keysOf(f.spec.Where), f.spec.X) {
				if key != "" && parameter(r, key) == "" {
					missing = append(missing, fmt.Sprintf("run %s has no parameter %q (it has %s)", pinName(r), key, parameters(r)))
				}
			}
			if f.taken(r) {
				n++
			}
		}
		for key, list := range within {
			if len(list) > 1 && len(list) > len(varies[key]) {
				varies[key] = list
			}
		}
		for _, v := range within[f.spec.X] {
			if !contains(values, v) {
				values = append(values, v)
			}
		}
	}
	if len(missing) > 0 {
		return nil, nil, fmt.Errorf("%w: %s: %s", experiments.ErrData, f.File, strings.Join(missing, "\n"))
	}
	if n == 0 {
		pos := f.doc.Pos(spec.P("where"))
		return nil, nil, fmt.Errorf("%w: %s:%d:%d: no run has these parameters", experiments.ErrInput, f.File, pos.Line, pos.Col)
	}
	for key, list := range varies {
		if key != f.spec.X {
			return nil, nil, fmt.Errorf("%w: %s: the runs of one entry differ in %s too (%s): choose one by where: {%s: %s}", experiments.ErrInput, f.File, key, strings.Join(list, ", "), key, list[0])
		}
	}
	if f.spec.X == "" {
		return []string{""}, []float64{0}, nil
	}
	numeric := true
	where := map[string]float64{}
	for _, v := range values {
		x, _, ok := pages.Number(v)
		numeric, where[v] = numeric && ok, x
	}
	if !numeric && f.spec.Kind == "sweep" {
		pos := f.doc.Pos(spec.P("x"))
		return nil, nil, fmt.Errorf("%w: %s:%d:%d: %s is no number (%s): draw it as kind: bars", experiments.ErrInput, f.File, pos.Line, pos.Col, f.spec.X, strings.Join(values, ", "))
	}
	if numeric {
		slices.SortFunc(values, func(a, b string) int {
			if where[a] < where[b] {
				return -1
			}
			return 1
		})
	}
	lo, hi := where[values[0]], where[values[len(values)-1]]
	for i, v := range values {
		switch {
		case f.spec.Kind == "bars":
			at = append(at, float64(i))
		case lo > 0 && hi/lo >= 20: // values that grow by factors stand evenly
			at = append(at, math.Log10(where[v]))
		default:
			at = append(at, where[v])
		}
	}
	return values, at, nil
}

func keysOf(m spec.Map[spec.Scalar]) (keys []string) {
	for _, e := range m {
		keys = append(keys, e.Key)
	}
	return keys
}

// parameters of a run, in words.
func parameters(r *experiments.Summary) string {
	if r.Trial == nil || len(r.Trial.Params) == 0 {
		return "none: it is part of no sweep"
	}
	var keys []string
	for _, p := range r.Trial.Params {
		keys = append(keys, p.Key)
	}
	return strings.Join(keys, ", ")
}
