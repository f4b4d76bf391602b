package compare

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/stats"
)

// Options of a comparison; the zero value is the documented default.
type Options struct {
	// Thresholds make the scores that they name judged; none means the default ones.
	Thresholds []Threshold
	// Alpha is the highest chance of a false alarm of the whole comparison; 0 means 0.05.
	Alpha float64
	// ExcludeFailed leaves out runs of which an expectation does not hold.
	ExcludeFailed bool
	// All gives the medians of all scores their intervals; those of scores that are only shown take most of the time.
	All           bool
	Seed          uint64
	Before, After string // what the sides are called; "" means before and after

	noIntervals bool // of medians: thousands of comparisons in tests, none of whose verdicts needs them
}

// Compare says cell by cell and score by score what changed.
func Compare(before, after []Group, o Options) *Report {
	if o.Alpha == 0 {
		o.Alpha = 0.05
	}
	if len(o.Thresholds) == 0 {
		o.Thresholds, _ = ParseThresholds([]string{Default}) // TestDefaultThresholds: they parse
	}
	r := &Report{Schema: "pcmlab/compare/v1", Before: cmp.Or(o.Before, "before"), After: cmp.Or(o.After, "after"), Alpha: o.Alpha, Correction: "holm", Seed: o.Seed,
		Provenance: []ProvenanceDiff{}, Warnings: []string{}, Cells: []Cell{}}
	for _, p := range match(before, after) {
		c := Cell{Name: p.name(), Params: params(p), Before: newSide(p.before, &o), After: newSide(p.after, &o), Scores: []ScoreChange{}}
		if len(c.Before.used) > 0 && len(c.After.used) > 0 {
			c.Scores = scoresOf(&c, o.Thresholds)
		}
		r.Cells = append(r.Cells, c)
	}
	r.measure(&o)
	r.correct()
	for i := range r.Cells {
		r.Cells[i].judge(r)
	}
	r.provenance()
	r.unused(o.Thresholds)
	r.judge()
	return r
}

func params(p pair) []ParamChange {
	all := []ParamChange{}
	at := map[string]int{}
	for side, g := range []*Group{p.before, p.after} {
		if g == nil {
			continue
		}
		for _, param := range g.Params {
			i, ok := at[param.Key]
			if !ok {
				i = len(all)
				at[param.Key] = i
				all = append(all, ParamChange{Key: param.Key})
			}
			if side == 0 {
				all[i].Before = &param.Value
			} else {
				all[i].After = &param.Value
			}
		}
	}
	return all
}

// scoresOf gathers the values of each score of a cell. A score that no run of either side measured is left out, unless a
// threshold names it.
func scoresOf(c *Cell, thresholds []Threshold) []ScoreChange {
	var all []ScoreChange
	at := map[ScoreName]int{}
	for side, runs := range [][]*experiments.Summary{c.Before.used, c.After.used} {
		for k, run := range runs {
			for i := range run.Scores {
				s := &run.Scores[i]
				name := ScoreName{s.Metric, s.Phase, s.Flow}
				j, ok := at[name]
				if !ok {
					j = len(all)
					at[name] = j
					all = append(all, newScore(name, s.Unit, thresholds))
				}
				into := &all[j].before
				if side == 1 {
					into = &all[j].after
				}
				if s.Value == nil {
					into.missing = cmp.Or(into.missing, s.Reason, "no reason given")
					continue
				}
				into.values, into.runs = append(into.values, *s.Value), append(into.runs, []([]string){c.Before.Runs, c.After.Runs}[side][k])
			}
		}
	}
	all = slices.DeleteFunc(all, func(s ScoreChange) bool {
		return len(s.before.values)+len(s.after.values) == 0 && !(s.Judged && thresholdOf(thresholds, s.name).precision(s.name) > 1)
	})
	line := lineRate(c)
	for i := range all {
		all[i].limit(thresholds, line)
	}
	return all
}

func newScore(name ScoreName, unit string, thresholds []Threshold) ScoreChange {
	s := ScoreChange{Score: name.String(), Metric: name.Metric, Phase: name.Phase, Flow: name.Flow, Unit: unit, Better: experiments.NeitherBetter, name: name}
	if info, ok := experiments.Metric(name.Metric); ok {
		s.Better = info.Better
	}
	if t := thresholdOf(thresholds, name); t != nil {
		s.Judged, s.Threshold, s.Better = true, t.Text, t.Better
	}
	s.lowerGood = s.Better == experiments.LowerIsBetter
	s.eitherBad = s.Judged && s.Better == experiments.NeitherBetter
	return s
}

func (s *ScoreChange) limit(thresholds []Threshold, line *float64) {
	limits := shownLimit
	if t := thresholdOf(thresholds, s.name); t != nil {
		limits = t.Limits
	}
	s.Limit = limitOf(limits, medianOf(s.before.values), line)
}

func medianOf(x []float64) *float64 {
	if len(x) == 0 {
		return nil
	}
	m := stats.Median(x)
	return &m
}

// lineRate is that of the runs before, by which shares of it are meant.
func lineRate(c *Cell) *float64 {
	for _, r := range c.Before.used {
		if r.LineRateBps != nil {
			return r.LineRateBps
		}
	}
	return nil
}

// measure describes and compares the samples of all scores, on all cores.
func (r *Report) measure(o *Options) {
	var work errgroup.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	for i := range r.Cells {
		for j := range r.Cells[i].Scores {
			s := &r.Cells[i].Scores[j]
			seed := seedOf(r.Seed, r.Cells[i].Name, s.Score)
			work.Go(func() error {
				s.measure(seed, !o.noIntervals && (s.Judged || o.All))
				return nil
			})
		}
	}
	work.Wait()
}

// seedOf gives each score a seed of its own that does not depend on which others there are.
func seedOf(seed uint64, parts ...string) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, seed, strings.Join(parts, "\x00"))
	return h.Sum64()
}

func (s *ScoreChange) measure(seed uint64, interval bool) {
	if interval {
		s.Before, s.After = experiments.Describe(s.Metric, s.before.values, seed), experiments.Describe(s.Metric, s.after.values, seed+1)
	} else {
		s.Before, s.After = stats.Figures(s.before.values), stats.Figures(s.after.values)
	}
	d := stats.Change(s.before.values, s.after.values)
	s.Change, s.Interval, s.P, s.Superiority = d.Shift, d.Interval, d.P, d.Superiority
	if d.Shift != nil && *s.Before.Median != 0 {
		share := *d.Shift / *s.Before.Median
		s.ChangeShare = &share
	}
	if s.Judged {
		s.SpreadRatio, s.spread = stats.Spread(s.before.values, s.after.values)
	}
}

// correct corrects p by Holm in families of their own: what can turn the verdict red, what is only shown, and the spreads of
// the former. Scores whose values are all equal could never be significant, and do not count.
func (r *Report) correct() {
	for _, judged := range []bool{true, false} {
		var p, spread []float64
		var of, spreadOf []*ScoreChange
		for i := range r.Cells {
			for j := range r.Cells[i].Scores {
				s := &r.Cells[i].Scores[j]
				if s.Judged != judged || s.P == nil {
					continue
				}
				one := *s.P
				s.PCorrected = &one
				if min(*s.Before.Min, *s.After.Min) != max(*s.Before.Max, *s.After.Max) {
					p, of = append(p, *s.P), append(of, s)
				}
				if s.spread != nil {
					spread, spreadOf = append(spread, *s.spread), append(spreadOf, s)
				}
			}
		}
		for i, c := range stats.Holm(p) {
			of[i].PCorrected = &c
			of[i].fewRepeats = stats.LeastRepeats(r.Alpha / float64(len(p)))
		}
		for i, c := range stats.Holm(spread) {
			spreadOf[i].SpreadP = &c
		}
		if judged {
			r.Tested = len(p)
		}
	}
	for _, c := range r.Cells {
		for _, s := range c.Scores {
			if s.Judged {
				r.Judged++
			}
		}
	}
}

// provenance lists what differs between the runs of the two sides that count.
func (r *Report) provenance() {
	values := map[string]*[2][]string{}
	note := func(side int, key, value string) {
		v := values[key]
		if v == nil {
			v = &[2][]string{{}, {}}
			values[key] = v
		}
		if at, found := slices.BinarySearch(v[side], value); !found {
			v[side] = slices.Insert(v[side], at, value)
		}
	}
	for _, c := range r.Cells {
		if len(c.Before.used) == 0 || len(c.After.used) == 0 {
			continue
		}
		for side, runs := range [][]*experiments.Summary{c.Before.used, c.After.used} {
			for _, run := range runs {
				for k, v := range run.Provenance {
					note(side, k, v)
				}
				note(side, "playbook", run.Playbook)
				note(side, "lab", run.Lab)
				note(side, "lab.time_scale", fmt.Sprintf("%g", run.TimeScale))
				if run.LineRateBps != nil {
					note(side, "lab.line_rate", fmt.Sprintf("%g bit/s", *run.LineRateBps))
				}
				if run.Inputs != "" {
					note(side, "inputs of "+c.Name, run.Inputs[:min(12, len(run.Inputs))])
				}
			}
		}
	}
	for k, v := range values {
		if !slices.Equal(v[0], v[1]) && !notAsked(values, k) {
			r.Provenance = append(r.Provenance, ProvenanceDiff{k, v[0], v[1]})
		}
	}
	slices.SortFunc(r.Provenance, func(a, b ProvenanceDiff) int { return strings.Compare(a.Key, b.Key) })
}

// notAsked says that one side knows nothing of a fact because its version of pcmlab did not ask the host for it: the host
// is known there, and the user, whom later versions always know, is not.
func notAsked(values map[string]*[2][]string, key string) bool {
	rest, ok := strings.CutPrefix(key, "host.")
	host, _, _ := strings.Cut(rest, ".")
	kernel, user := values["host."+host+".kernel"], values["host."+host+".user"]
	if !ok || kernel == nil || user == nil {
		return false
	}
	for side := range 2 {
		if len(values[key][side]) == 0 && len(kernel[side]) > 0 && len(user[side]) == 0 {
			return true
		}
	}
	return false
}

// unused warns of thresholds that name no score of these runs: a mistyped phase would otherwise be a check that never fails.
func (r *Report) unused(thresholds []Threshold) {
	defaults := map[string]bool{}
	for _, t := range DefaultTexts {
		defaults[t] = true
	}
	for _, t := range thresholds {
		used := defaults[t.Text]
		for _, c := range r.Cells {
			used = used || len(c.Scores) == 0 || slices.ContainsFunc(c.Scores, func(s ScoreChange) bool { return t.precision(s.name) > 0 })
		}
		if !used {
			r.Warnings = append(r.Warnings, fmt.Sprintf("threshold %q names no score of these runs", t.Text))
		}
	}
}
