package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/experiments"
)

// Group is all runs of one cell on one side.
type Group struct {
	// Name is PLAYBOOK/CELL; of runs outside sweeps, which are one cell when their inputs are equal, PLAYBOOK/first digits of
	// the inputs' hash.
	Name   string
	Params []experiments.Param
	Runs   []*experiments.Summary // in the order in which they ran
}

// Gather reads the runs at or below dirs and sorts them into groups. All that cannot be read is said at once.
func Gather(dirs []string) ([]Group, error) {
	runs, err := experiments.LoadRuns(dirs...)
	if err != nil {
		return nil, err
	}
	return GroupRuns(runs), nil
}

// GroupRuns sorts summaries into groups, ordered by name.
func GroupRuns(runs []*experiments.Summary) []Group {
	groups := map[string]*Group{}
	var names []string
	for _, r := range runs {
		cell, params := r.Inputs, []experiments.Param(nil)
		if r.Trial != nil {
			cell, params = r.Trial.Cell, r.Trial.Params
		} else {
			cell = cell[:min(8, len(cell))]
		}
		name := strings.Trim(cmp.Or(r.Playbook, "unknown")+"/"+cell, "/")
		g := groups[name]
		if g == nil {
			g = &Group{Name: name, Params: params}
			groups[name] = g
			names = append(names, name)
		}
		g.Runs = append(g.Runs, r)
	}
	slices.Sort(names)
	var all []Group
	for _, n := range names {
		g := groups[n]
		slices.SortStableFunc(g.Runs, func(a, b *experiments.Summary) int {
			return cmp.Or(a.Began.Compare(b.Began), strings.Compare(runName(a), runName(b)))
		})
		all = append(all, *g)
	}
	return all
}

// runName tells runs apart: within a sweep the folder, which is that of the sweep and below, else the run's id.
func runName(r *experiments.Summary) string {
	if r.Trial == nil {
		return r.Run
	}
	what := "repeat"
	if r.Trial.Warmup {
		what = "warm-up"
	}
	return fmt.Sprintf("%s/%s %s %d", r.Trial.Sweep, r.Trial.Cell, what, r.Trial.Repeat)
}

// CellSide is what one side of a cell has.
type CellSide struct {
	Group    string     `json:"group"`    // "" when the side lacks the cell
	Runs     []string   `json:"runs"`     // that count
	Excluded []Excluded `json:"excluded"` // that do not
	// FailedChecks are runs whose expectations did not hold. They count: a regression is what makes expectations fail.
	FailedChecks []string `json:"failed_checks"`

	used []*experiments.Summary
}

// Excluded is a run that does not count, and why.
type Excluded struct {
	Run string `json:"run"`
	Why string `json:"why"`
}

// newSide takes apart which runs of a group count.
func newSide(g *Group, o *Options) CellSide {
	s := CellSide{Runs: []string{}, Excluded: []Excluded{}, FailedChecks: []string{}}
	if g == nil {
		return s
	}
	s.Group = g.Name
	traces := map[string]string{}
	for _, r := range g.Runs {
		name, why := runName(r), ""
		checkFailed := slices.ContainsFunc(r.Checks, func(c experiments.CheckResult) bool { return c.Verdict == experiments.Fail })
		twin := ""
		if r.Trace != nil {
			twin = traces[*r.Trace]
		}
		switch {
		case r.Trial != nil && r.Trial.Warmup:
			why = "warm-up"
		case r.State != experiments.StateComplete:
			why = string(r.State)
			if r.Reason != "" {
				why += ": " + r.Reason
			}
		case r.Verdict == experiments.Fail && !checkFailed:
			why = "failed: ways of counting disagree"
		case checkFailed && o.ExcludeFailed:
			why = "failed: an expectation does not hold"
		case twin != "":
			why = "a copy: its trace is that of " + twin
		}
		if why != "" {
			s.Excluded = append(s.Excluded, Excluded{name, why})
			continue
		}
		if r.Trace != nil {
			traces[*r.Trace] = name
		}
		if checkFailed {
			s.FailedChecks = append(s.FailedChecks, name)
		}
		s.Runs, s.used = append(s.Runs, name), append(s.used, r)
	}
	return s
}

// pair is one cell's groups; either may be nil.
type pair struct{ before, after *Group }

// match pairs the groups of two sides: by name, then what is left by playbook where that is the only one left on both sides,
// then the last one of each side: comparing two groups is what was asked for, whatever they are called.
func match(before, after []Group) []pair {
	var pairs []pair
	taken := map[*Group]bool{}
	pairUp := func(key func(*Group) string) {
		for i := range before {
			b := &before[i]
			var same []*Group
			alone := true
			for j := range before {
				alone = alone && (j == i || taken[&before[j]] || key(&before[j]) != key(b))
			}
			for j := range after {
				if a := &after[j]; !taken[a] && key(a) == key(b) {
					same = append(same, a)
				}
			}
			if !taken[b] && alone && len(same) == 1 {
				pairs = append(pairs, pair{b, same[0]})
				taken[b], taken[same[0]] = true, true
			}
		}
	}
	pairUp(func(g *Group) string { return g.Name })
	pairUp(func(g *Group) string { return g.playbook() })
	if len(before) == 1 && len(after) == 1 {
		pairUp(func(*Group) string { return "" })
	}
	for i := range before {
		if b := &before[i]; !taken[b] {
			pairs = append(pairs, pair{b, nil})
		}
	}
	for i := range after {
		if a := &after[i]; !taken[a] {
			pairs = append(pairs, pair{nil, a})
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return strings.Compare(a.name(), b.name()) })
	return pairs
}

func (g *Group) playbook() string {
	name, _, _ := strings.Cut(g.Name, "/")
	return name
}

func (p pair) name() string {
	switch {
	case p.before == nil:
		return p.after.Name
	case p.after == nil || p.before.Name == p.after.Name:
		return p.before.Name
	}
	return p.before.Name + " -> " + p.after.Name
}
