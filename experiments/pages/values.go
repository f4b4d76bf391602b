package pages

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/units"
)

// Usual are the scores of a page that is asked for no others: of the whole run, what most readers look for.
var Usual = []string{"goodput()", "utilisation()", "jain()", "ce_share()", "cnps()", "retransmissions()", "lost()", "rtt_p50()", "rtt_p99()", "message_p50()", "message_p99()"}

// Score is one number that runs have: a metric of a run, a phase or a flow.
type Score struct {
	Name   string
	Unit   string
	Metric string

	phase, flow string
}

// Of is the score of a run; NaN when it was not measured.
func (s Score) Of(r *experiments.Summary) float64 {
	for i := range r.Scores {
		if x := &r.Scores[i]; x.Metric == s.Metric && x.Phase == s.phase && x.Flow == s.flow {
			if x.Value == nil {
				return math.NaN()
			}
			return *x.Value
		}
	}
	return math.NaN()
}

// PickScores resolves names of scores against the runs: jain, jain() and jain(phase="three") are understood. Without names
// it takes the usual ones that any run has. All names that no run has are one error.
func PickScores(runs []*experiments.Summary, names []string) ([]Score, error) {
	var known []Score
	seen, measured := map[string]int{}, map[string]bool{}
	nameOf := map[[3]string]string{}
	for _, r := range runs {
		for i := range r.Scores {
			s := &r.Scores[i]
			id := [3]string{s.Metric, s.Phase, s.Flow}
			name, ok := nameOf[id]
			if !ok {
				name = s.Name()
				nameOf[id], seen[name] = name, len(known)
				known = append(known, Score{name, s.Unit, s.Metric, s.Phase, s.Flow})
			}
			measured[name] = measured[name] || s.Value != nil
		}
	}
	var out []Score
	if len(names) == 0 {
		for _, name := range Usual {
			if measured[name] {
				out = append(out, known[seen[name]])
			}
		}
		if len(out) == 0 {
			return nil, fmt.Errorf("%w: none of the runs measured anything: no run was captured to its end", experiments.ErrData)
		}
		return out, nil
	}
	var wrong []string
	for _, name := range names {
		full := strings.TrimSpace(name)
		if !strings.Contains(full, "(") {
			full += "()"
		}
		if i, ok := seen[full]; ok {
			out = append(out, known[i])
			continue
		}
		metric, _, _ := strings.Cut(full, "(")
		if _, ok := experiments.Metric(metric); !ok {
			wrong = append(wrong, fmt.Sprintf("%q: no such metric (known: %s)", name, strings.Join(metricNames(), ", ")))
			continue
		}
		var of []string
		for _, k := range known {
			if strings.HasPrefix(k.Name, metric+"(") {
				of = append(of, k.Name)
			}
		}
		wrong = append(wrong, fmt.Sprintf("%q: no run has it (they have: %s)", name, strings.Join(first(of, 8), ", ")))
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%w: metric %s", experiments.ErrInput, strings.Join(wrong, "\nmetric "))
	}
	return out, nil
}

func metricNames() (names []string) {
	for _, m := range experiments.MetricCatalogue {
		names = append(names, m.Name)
	}
	return names
}

// first n of a list, and how many more there are.
func first(list []string, n int) []string {
	if len(list) <= n {
		return list
	}
	return append(slices.Clone(list[:n]), fmt.Sprintf("and %d more", len(list)-n))
}

// show prints a value with its unit, as tables do.
func show(unit string, v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case unit == "bit/s":
		return analysis.FormatRate(v)
	case unit == "ns":
		return analysis.FormatDuration(v)
	}
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if v != math.Trunc(v) || math.Abs(v) >= 1e7 {
		text = strconv.FormatFloat(v, 'g', 4, 64)
	}
	if unit != "" {
		text += " " + unit
	}
	return text
}

// Axis is the unit in which the values of a chart read well, and the factor to it.
func Axis(s Score, top float64) (label string, factor float64) {
	pick := func(steps []float64, names []string) (string, float64) {
		for i, step := range steps {
			if top >= step {
				return names[i], 1 / step
			}
		}
		return names[len(names)-1], 1 / steps[len(steps)-1]
	}
	switch s.Unit {
	case "bit/s":
		return pick([]float64{1e9, 1e6, 1e3, 1}, []string{"Gb/s", "Mb/s", "kb/s", "b/s"})
	case "ns":
		return pick([]float64{1e9, 1e6, 1e3, 1}, []string{"s", "ms", "us", "ns"})
	case "":
		return s.Name, 1
	}
	if top >= 1e4 {
		return "1,000 " + s.Unit, 1e-3
	}
	return s.Unit, 1
}

// Number is the value of a parameter as a number, and what kind of quantity it is.
func Number(text string) (v float64, kind string, ok bool) {
	if s, found := strings.CutSuffix(strings.TrimSpace(text), "%"); found {
		if v, err := strconv.ParseFloat(strings.TrimSpace(s), 64); err == nil {
			return v / 100, "share", true
		}
	}
	if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
		return v, "number", true
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds(), "time", true
	}
	if r, err := units.ParseRate(text); err == nil {
		return float64(r), "rate", true
	}
	if s, err := units.ParseSize(text); err == nil {
		return float64(s), "size", true
	}
	return 0, "", false
}
