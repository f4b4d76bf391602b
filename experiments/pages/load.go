package pages

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/experiments"
)

// Load reads the summaries of all runs at or below the paths, in the order in which the runs began.
func Load(paths ...string) ([]*experiments.Summary, error) {
	all, err := experiments.LoadRuns(paths...)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b *experiments.Summary) int {
		if c := a.Began.Compare(b.Began); c != 0 {
			return c
		}
		return cmp.Compare(a.Run, b.Run)
	})
	return all, nil
}

// cell is what is known of one combination of parameters.
type cell struct {
	ID     string
	Params []experiments.Param
	Runs   []*experiments.Summary // complete: these count
	Apart  []*experiments.Summary // noisy, partial, unfinished
	Warm   []*experiments.Summary
	Missed int // repeats that were planned and are not there
}

// value of a parameter; "" when the cell has none of that name.
func (c *cell) value(key string) string {
	for _, p := range c.Params {
		if p.Key == key {
			return p.Value
		}
	}
	return ""
}

// notCounted says which runs do not count, and why: "1 noisy, 2 partial".
func (c *cell) notCounted() string {
	count := map[experiments.BundleState]int{}
	for _, r := range c.Apart {
		count[r.State]++
	}
	var parts []string
	for _, state := range []experiments.BundleState{experiments.StateNoisy, experiments.StatePartial, experiments.StateUnfinished} {
		if n := count[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if c.Missed > 0 {
		parts = append(parts, fmt.Sprintf("%d not run", c.Missed))
	}
	if len(c.Warm) > 0 {
		parts = append(parts, fmt.Sprintf("%d warm-up", len(c.Warm)))
	}
	return strings.Join(parts, ", ")
}

// add puts a run where it counts.
func (c *cell) add(r *experiments.Summary) {
	switch {
	case r.Trial != nil && r.Trial.Warmup:
		c.Warm = append(c.Warm, r)
	case r.State != experiments.StateComplete:
		c.Apart = append(c.Apart, r)
	default:
		c.Runs = append(c.Runs, r)
	}
}

// loadCells reads the runs of one sweep, by cell in the order of the plan.
func loadCells(dir string) ([]*cell, []*experiments.Summary, error) {
	plan := &experiments.Sweep{} // a folder of runs alone says nothing of what was planned
	if _, err := os.Stat(filepath.Join(dir, experiments.SweepFile)); err == nil {
		if plan, err = experiments.LoadSweep(dir); err != nil {
			return nil, nil, err
		}
	}
	runs, err := Load(dir)
	if err != nil {
		return nil, nil, err
	}
	var cells []*cell
	byID := map[string]*cell{}
	of := func(id string, params []experiments.Param) *cell {
		c, ok := byID[id]
		if !ok {
			c = &cell{ID: id, Params: params}
			byID[id] = c
			cells = append(cells, c)
		}
		return c
	}
	for _, c := range plan.Cells {
		of(c.ID, c.Params)
	}
	sweeps := map[string]bool{}
	for _, r := range runs {
		if r.Trial == nil {
			return nil, nil, fmt.Errorf("%w: %s: run %s is part of no sweep (it has no trial.json): a sweep page is made of the folder of one sweep; report A B compares two runs, report --history METRIC RUNS shows runs in time", experiments.ErrInput, dir, r.Run)
		}
		sweeps[r.Trial.Sweep] = true
		of(r.Trial.Cell, r.Trial.Params).add(r)
	}
	if len(sweeps) > 1 {
		return nil, nil, fmt.Errorf("%w: %s: holds runs of %d sweeps (%s): give the folder of one", experiments.ErrInput, dir, len(sweeps), strings.Join(slices.Sorted(maps.Keys(sweeps)), ", "))
	}
	planned := map[string]int{}
	for _, t := range plan.Trials {
		if !t.Warmup {
			planned[t.Cell]++
		}
	}
	for _, c := range cells {
		c.Missed = max(0, planned[c.ID]-len(c.Runs)-len(c.Apart))
	}
	return cells, runs, nil
}
