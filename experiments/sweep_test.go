package experiments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/pcmlab/pcmlab/internal/process"
)

// testSweep has cells a, b, c... of one second each.
func testSweep(dir string, cells, repeat, warmup int, seed uint64, shuffled bool) *Sweep {
	s := &Sweep{Schema: "pcmlab/sweep/v1", ID: "s", Dir: dir, Seed: seed, Repeat: repeat, Warmup: warmup, Shuffled: shuffled}
	for i := range cells {
		id := string(rune('a' + i))
		s.Cells = append(s.Cells, SweepCell{ID: id, Params: []Param{{"seed", id}}, Inputs: "inputs of " + id, PhasesNS: int64(time.Second)})
	}
	s.Trials = s.order()
	return s
}

func TestSweep_order(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells, repeat, warmup := rapid.IntRange(1, 8).Draw(t, "cells"), rapid.IntRange(1, 6).Draw(t, "repeat"), rapid.IntRange(0, 2).Draw(t, "warmup")
		seed, shuffled := rapid.Uint64().Draw(t, "seed"), rapid.Bool().Draw(t, "shuffled")
		s := testSweep("", cells, repeat, warmup, seed, shuffled)
		if len(s.Trials) != cells*(repeat+warmup) {
			t.Fatalf("%d trials", len(s.Trials))
		}
		for b := range repeat + warmup { // every block has every cell once
			seen := map[string]bool{}
			for i, tr := range s.Trials[b*cells : (b+1)*cells] {
				seen[tr.Cell] = true
				want := Trial{Sweep: "s", Cell: tr.Cell, Repeat: b + 1, Warmup: true, Params: s.Cell(tr.Cell).Params}
				if b >= warmup {
					want.Repeat, want.Warmup = b+1-warmup, false
				}
				if !shuffled && tr.Cell != s.Cells[i].ID {
					t.Errorf("listed, but block %d is not in the order of the file", b)
				}
				if diff := cmp.Diff(want, tr); diff != "" {
					t.Error(diff)
				}
			}
			if len(seen) != cells {
				t.Errorf("block %d has cells %v", b, seen)
			}
		}
		if diff := cmp.Diff(s.Trials, testSweep("", cells, repeat, warmup, seed, shuffled).Trials); diff != "" {
			t.Error("the same seed gives another order")
		}
		longer := testSweep("", cells, repeat+2, warmup, seed, shuffled)
		if diff := cmp.Diff(s.Trials, longer.Trials[:len(s.Trials)]); diff != "" {
			t.Error("more repeats change the order of those before")
		}
	})
	a, b := testSweep("", 8, 3, 0, 1, true), testSweep("", 8, 3, 0, 2, true)
	if cmp.Equal(a.Trials, b.Trials) {
		t.Error("another seed gives the same order")
	}
	if first, second := a.Trials[:8], a.Trials[8:16]; slices.EqualFunc(first, second, func(x, y Trial) bool { return x.Cell == y.Cell }) {
		t.Error("two blocks have the same order")
	}
	if a.LabSeed(1, a.Trials[0]) == a.LabSeed(1, Trial{Repeat: 2}) {
		t.Error("labs of two repeats draw the same")
	}
}

// fakeRun writes what a run leaves, step by step. It dies after step `die` of five; -1: not at all.
func fakeRun(s *Sweep, t Trial, die int, state BundleState, reason string) bool {
	dir := filepath.Join(s.Dir, t.Folder())
	steps := []func() error{
		func() error { return os.MkdirAll(filepath.Dir(dir), 0o755) },
		func() error { return os.Mkdir(dir, 0o755) }, // fails where a run is: no trial is run over another
		func() error { return os.WriteFile(filepath.Join(dir, "timeline.jsonl"), []byte("{}\n"), 0o644) },
		func() error {
			return quickly(filepath.Join(dir, "command.json"), map[string]string{"inputs_sha256": s.Cell(t.Cell).Inputs})
		},
		func() error {
			return quickly(filepath.Join(dir, "manifest.json"), Manifest{State: state, Reason: reason})
		},
	}
	for i, step := range steps {
		if i == die {
			return false
		}
		if err := step(); err != nil {
			panic(err)
		}
	}
	return true
}

// quickly writes without waiting for the disk: thousands of runs are made up here.
func quickly(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

type killed struct{}

// TestSweepRun_killedAnywhere: whatever a sweep is killed or interrupted at, and however often, in the end every trial has exactly one run,
// none that was finished was run again, and what was cut short is set aside.
func TestSweepRun_killedAnywhere(t *testing.T) {
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := filepath.Join(root, fmt.Sprint(n))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		s := testSweep(dir, rapid.IntRange(1, 4).Draw(t, "cells"), rapid.IntRange(1, 3).Draw(t, "repeat"), rapid.IntRange(0, 1).Draw(t, "warmup"), 1, true)
		if err := s.Save(); err != nil {
			t.Fatal(err)
		}
		finished := map[string]int{}
		left := 0
		now := time.Unix(0, 0)
		once := func(die func() int, how string) (end SweepEnd, died bool) {
			s, err := LoadSweep(dir) // as a new process would
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.SetAside(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			defer func() {
				if e := recover(); e != nil {
					if _, ok := e.(killed); !ok {
						panic(e)
					}
					died = true
				}
			}()
			return (&SweepRun{Trials: s.Trials, Finished: s.Finished, Now: func() time.Time { return now }, Estimate: func(Trial) time.Duration { return time.Second },
				Trial: func(_ context.Context, tr Trial) error {
					step := die()
					switch {
					case step >= 0 && how == "interrupted":
						cancel()
						fakeRun(s, tr, -1, StatePartial, Interrupted)
						left++
						return context.Canceled
					case step >= 0:
						if fakeRun(s, tr, step, StateComplete, ""); step > 1 {
							left++
						}
						panic(killed{})
					}
					fakeRun(s, tr, -1, StateComplete, "")
					finished[tr.Folder()]++
					return nil
				}}).Run(ctx), false
		}
		for range rapid.IntRange(0, 6).Draw(t, "kills") {
			at := rapid.IntRange(0, len(s.Trials)).Draw(t, "after")
			step := rapid.IntRange(0, 4).Draw(t, "step")
			how := rapid.SampledFrom([]string{"killed", "interrupted"}).Draw(t, "how")
			ran := 0
			once(func() int {
				if ran++; ran > at {
					return step
				}
				return -1
			}, how)
		}
		end, died := once(func() int { return -1 }, "")
		if died || end.Interrupted || len(end.Failed)+len(end.LeftOut) > 0 || end.Ran+end.Skipped != len(s.Trials) {
			t.Fatalf("the last resume: %+v, died %v", end, died)
		}
		for _, tr := range s.Trials {
			if finished[tr.Folder()] != 1 || !s.Finished(tr) {
				t.Errorf("%s was finished %d times, is there: %v", tr.Folder(), finished[tr.Folder()], s.Finished(tr))
			}
		}
		runs, err := FindRuns(dir)
		if err != nil || len(runs) != len(s.Trials) {
			t.Errorf("%d runs in the folder, want %d (%v)", len(runs), len(s.Trials), err)
		}
		aside, _ := filepath.Glob(filepath.Join(dir, UnfinishedDir, "*"))
		if len(aside) != left {
			t.Errorf("%d folders set aside, want %d: %v", len(aside), left, aside)
		}
	})
}

// TestSweepRun_budget: no trial begins that would not end in time, and those left out are named.
func TestSweepRun_budget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := testSweep("", rapid.IntRange(1, 6).Draw(t, "cells"), rapid.IntRange(1, 3).Draw(t, "repeat"), 0, 1, true)
		budget := time.Duration(rapid.IntRange(1, 60).Draw(t, "budget")) * time.Second
		takes := time.Duration(rapid.IntRange(1, 10).Draw(t, "takes")) * time.Second
		done := map[string]bool{}
		for i, tr := range s.Trials {
			done[tr.Folder()] = i%3 == rapid.IntRange(0, 2).Draw(t, "done")
		}
		before := 0
		for _, d := range done {
			if d {
				before++
			}
		}
		now := time.Unix(0, 0)
		ran := 0
		end := (&SweepRun{Trials: s.Trials, Finished: func(tr Trial) bool { return done[tr.Folder()] }, Now: func() time.Time { return now }, Budget: budget,
			Estimate: func(Trial) time.Duration { return takes },
			Trial: func(_ context.Context, tr Trial) error {
				now = now.Add(takes)
				done[tr.Folder()] = true
				if ran++; ran%2 == 0 {
					return errors.New("broken")
				}
				return nil
			}}).Run(t.Context())
		if spent := now.Sub(time.Unix(0, 0)); spent > budget {
			t.Errorf("took %v of %v", spent, budget)
		}
		if want := min(len(s.Trials)-before, int(budget/takes)); end.Ran != want || len(end.LeftOut) != len(s.Trials)-before-want {
			t.Errorf("ran %d, left out %d; want %d of %d", end.Ran, len(end.LeftOut), want, len(s.Trials)-before)
		}
		if len(end.Failed) != ran/2 {
			t.Errorf("%d failed, want %d: a failure is counted and stops nothing", len(end.Failed), ran/2)
		}
	})
}

func TestSweep_lockIsForOne(t *testing.T) {
	s := testSweep(t.TempDir(), 1, 1, 0, 1, true)
	unlock, err := s.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lock(); !errors.Is(err, ErrBusy) {
		t.Errorf("a second lock: %v, want ErrBusy", err)
	}
	unlock()
	if unlock, err = s.Lock(); err != nil {
		t.Errorf("after unlock: %v", err)
	} else {
		unlock()
	}
}

// What is no trial's folder is left alone, and what is a run of other inputs is not counted.
func TestSweep_setAside(t *testing.T) {
	s := testSweep(t.TempDir(), 2, 2, 0, 1, false)
	for _, tr := range s.Trials {
		fakeRun(s, tr, -1, StateComplete, "")
	}
	s.Cells[1].Inputs = "changed"
	if err := os.MkdirAll(filepath.Join(s.Dir, "figures", "one"), 0o755); err != nil {
		t.Fatal(err)
	}
	fakeRun(s, Trial{Cell: "a", Repeat: 7}, -1, StateComplete, "")
	moved, err := s.SetAside()
	if diff := cmp.Diff([]string{"a/07", "b/01", "b/02"}, moved); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, there := range []string{"a/01", "a/02", "figures/one", ".unfinished/b-01"} {
		if _, err := os.Stat(filepath.Join(s.Dir, there)); err != nil {
			t.Error(err)
		}
	}
}

func TestSweep_differences(t *testing.T) {
	base := func() *Sweep {
		s := testSweep("", 2, 2, 0, 1, true)
		s.Provenance = map[string]string{"pcmlab.commit": "one"}
		return s
	}
	for _, c := range []struct {
		name   string
		change func(*Sweep)
		want   string
		why    string
	}{
		{"nothing", func(*Sweep) {}, "", ""},
		{"more_repeats", func(s *Sweep) { s.Repeat = 9 }, "", "a sweep may grow"},
		{"budget", func(s *Sweep) { s.BudgetNS = 9 }, "", "the time at hand is no input"},
		{"fewer_repeats", func(s *Sweep) { s.Repeat = 1 }, "repeat: was 2, is 1", "runs would be thrown away"},
		{"seed", func(s *Sweep) { s.Seed = 9 }, "seed: was 1, is 9", ""},
		{"inputs", func(s *Sweep) { s.Cells[1].Inputs = "x" }, "cell b: what is run in it changed", ""},
		{"cell", func(s *Sweep) { s.Cells[1].ID = "z" }, "cell b: is gone\ncell z: is new", ""},
		{"order", func(s *Sweep) { slices.Reverse(s.Cells) }, "the matrix lists its cells in another order", "the order of execution would be another"},
		{"commit", func(s *Sweep) { s.Provenance["pcmlab.commit"] = "two" }, "pcmlab.commit: was one, is two", ""},
		{"new_fact", func(s *Sweep) { s.Provenance["here.kernel"] = "6" }, "here.kernel: was none, is 6", ""},
		{"set", func(s *Sweep) { s.Sets = []Param{{"seed", "4"}} }, "--set: was none, is seed=4", ""},
	} {
		other := base()
		c.change(other)
		if got := strings.Join(base().Differences(other), "\n"); got != c.want {
			t.Errorf("%s: %q, want %q %s", c.name, got, c.want, c.why)
		}
	}
}

func TestLineDifference(t *testing.T) {
	got := lineDifference("a\nb\nc\n", "a\nx\nc\nd\n")
	if diff := cmp.Diff([]string{"- b", "+ x", "+ d"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestStatus_remaining(t *testing.T) {
	now := time.Unix(1000, 0)
	s := Status{State: LiveRunning, TrialBegan: now.Add(-4 * time.Second), TrialNS: int64(10 * time.Second), AfterNS: int64(20 * time.Second)}
	for at, want := range map[time.Duration]time.Duration{0: 26 * time.Second, 6 * time.Second: 20 * time.Second, time.Minute: 20 * time.Second} {
		if got := s.Remaining(now.Add(at)); got == nil || *got != want {
			t.Errorf("after %v: %v, want %v", at, got, want)
		}
	}
	if s.State = LiveDied; s.Remaining(now) != nil {
		t.Error("what died takes no more time")
	}
	if d, basis := Overhead(nil); d != AssumedOverhead || !strings.Contains(basis, "assumed") {
		t.Errorf("%v, %s", d, basis)
	}
	if d, basis := Overhead([]int64{int64(time.Second), int64(9 * time.Second), int64(3 * time.Second)}); d != 3*time.Second || !strings.Contains(basis, "measured") {
		t.Errorf("%v, %s", d, basis)
	}
}

// TestSweep_summarise: runs are counted by what became of them, and only whole ones give figures.
func TestSweep_summarise(t *testing.T) {
	s := testSweep(t.TempDir(), 1, 6, 1, 1, false)
	value := 0.0
	write := func(tr Trial, state BundleState, verdict Verdict, measured bool) {
		t.Helper()
		value++
		fakeRun(s, tr, -1, state, "")
		score := Score{Metric: "goodput", Unit: "bit/s", Reason: "blind"}
		if measured {
			score.Value = ptr(value)
		}
		sum := Summary{State: state, Verdict: verdict, Scores: []Score{score}}
		if err := writeJSONFile(filepath.Join(s.Dir, tr.Folder(), SummaryFile), sum); err != nil {
			t.Fatal(err)
		}
	}
	write(s.Trials[0], StateComplete, Pass, true) // a warm-up
	write(s.Trials[1], StateComplete, Pass, true) // 2
	write(s.Trials[2], StateNoisy, Skip, true)
	write(s.Trials[3], StateComplete, Fail, true) // 4
	write(s.Trials[4], StateComplete, Pass, false)
	fakeRun(s, s.Trials[5], 4, "", "")
	sum, err := s.Summarise(time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	want := TrialCounts{Planned: 6, Complete: 3, Noisy: 1, Unfinished: 1, Missing: 1, Passed: 2, Failed: 1, Warmups: 1}
	if diff := cmp.Diff(want, sum.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	g := sum.Cells[0].Score("goodput()")
	if g == nil || g.N != 2 || *g.Mean != 3 || g.NotMeasured != 1 || !slices.Equal(g.Runs, []string{"a/01", "a/03"}) {
		data, _ := json.Marshal(g)
		t.Errorf("goodput: %s", data)
	}
	if diff := cmp.Diff([]string{"a/06"}, sum.LeftOut); diff != "" {
		t.Error(diff)
	}
}

// TestSweep_summarisePartial: what a partial run could judge is told beside the cells, and is in none of their counts of checks.
func TestSweep_summarisePartial(t *testing.T) {
	s := testSweep(t.TempDir(), 1, 1, 0, 1, false)
	tr := s.Trials[0]
	fakeRun(s, tr, -1, StatePartial, "a flow failed")
	drops := CheckResult{Name: "overflows", That: "switch.sw.dropped_packets > 0", Verdict: Pass, Values: []MetricValue{{Call: "switch.sw.dropped_packets", Value: 12}}}
	sum := Summary{State: StatePartial, Verdict: Skip, Checks: []CheckResult{{Name: "fair", Verdict: Skip, Reason: "a flow failed"}, drops}}
	if err := writeJSONFile(filepath.Join(s.Dir, tr.Folder(), SummaryFile), sum); err != nil {
		t.Fatal(err)
	}
	got, err := s.Summarise(time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]PartialRun{{tr.Folder(), []CheckResult{drops}}}, got.Partial, cmpopts.IgnoreUnexported(CheckResult{})); diff != "" {
		t.Errorf("partial runs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(TrialCounts{Planned: 1, Partial: 1}, got.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// What ran on another machine, or whose process is gone, is not running here.
func TestStatus_asksForItsProcess(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		change func(*Status)
		want   LiveState
	}{
		{func(*Status) {}, LiveRunning},
		{func(s *Status) { s.Process.Start++ }, LiveDied},
		{func(s *Status) { s.Process.Host = "elsewhere" }, LiveElsewhere},
		{func(s *Status) { s.State, s.Process.Start = LiveEnded, 0 }, LiveEnded},
	} {
		s := Status{State: LiveRunning, Process: process.This()}
		c.change(&s)
		if err := s.Save(dir); err != nil {
			t.Fatal(err)
		}
		if got, err := LoadStatus(dir); err != nil || got.State != c.want {
			t.Errorf("%v %v, want %s", got, err, c.want)
		}
	}
}
