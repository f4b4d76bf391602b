package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/testwait"
)

// tinySweep is the shortest sweep there is: one second a run, which is the least that the tool counts, and no capture, which a busy machine
// would cut.
const tinySweep = `playbook: tiny
hosts: {senders: [h1, h2, h3], receiver: r1}
traffic: {size: 64KiB, margin: 0}
flows:
  h1: {from: h1, to: r1}
  h2: {from: h2, to: r1}
  h3: {from: h3, to: r1}
phases:
  - {name: all, start: [h1, h2, h3], for: 1s}
expect:
  - {name: moves, that: nic.r1.rx_write_requests > 0}
`

// fewCells and manyCells are 2 and 24.
const (
	fewCells  = "matrix: {vary: {senders: [1, 3]}}\n"
	manyCells = "matrix: {vary: {senders: [1, 2, 3], traffic.size: [4KiB, 16KiB, 64KiB, 256KiB], nic.dcqcn: [on, off]}}\n"
)

func (h *home) file(name, text string) string {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
	return path
}

// sweepIn is the only sweep in a folder; nil while there is none.
func (h *home) sweepIn(out string) *experiments.Sweep {
	h.t.Helper()
	dirs, _ := filepath.Glob(filepath.Join(out, "*", experiments.SweepFile))
	switch len(dirs) {
	case 0:
		return nil
	case 1:
	default:
		h.t.Fatalf("%d sweeps in %s", len(dirs), out)
	}
	s, err := experiments.LoadSweep(filepath.Dir(dirs[0]))
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

// finished gives the run ids of the trials that are finished.
func (h *home) finished(s *experiments.Sweep) map[string]string {
	h.t.Helper()
	out := map[string]string{}
	for _, t := range s.Trials {
		if s.Finished(t) {
			m, differences, err := experiments.CheckManifest(filepath.Join(s.Dir, t.Folder()))
			if err != nil || len(differences) > 0 {
				h.t.Errorf("%s counts as finished: %v %v", t.Folder(), err, differences)
				continue
			}
			out[t.Folder()] = m.Run
		}
	}
	return out
}

func (h *home) agreement(dir string) []experiments.CheckResult {
	h.t.Helper()
	var r experiments.Result
	data, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		h.t.Error(err)
	}
	return r.Agreement
}

// shapeOf is what must be equal between two sweeps of the same playbook: every cell and repeat, what was run in it, which scores there are.
func (h *home) shapeOf(s *experiments.Sweep) []string {
	h.t.Helper()
	runs, err := experiments.FindRuns(s.Dir)
	if err != nil {
		h.t.Fatal(err)
	}
	var shape []string
	for _, dir := range runs {
		run, err := experiments.LoadSummary(dir)
		if err != nil {
			h.t.Fatal(err)
		}
		if run.Trial == nil || run.Trial.Folder() != strings.TrimPrefix(dir, s.Dir+"/") || run.Trial.Sweep != s.ID {
			h.t.Errorf("%s: says of itself that it is %+v", dir, run.Trial)
			continue
		}
		if run.State == experiments.StateUnfinished || run.Reason == experiments.Interrupted {
			h.t.Errorf("%s: is %s: %s", run.Trial.Folder(), run.State, run.Reason)
		}
		for _, c := range append(run.Checks, h.agreement(dir)...) {
			if c.Verdict == experiments.Fail {
				h.t.Logf("%s: %s: %s %v", run.Trial.Folder(), c.Name, c.Reason, c.Values)
			}
		}
		shape = append(shape, fmt.Sprintf("%s %s: inputs %s, %d scores, %d checks", run.Trial.Folder(), experiments.ParamText(run.Trial.Params), run.Inputs, len(run.Scores), len(run.Checks)))
	}
	slices.Sort(shape)
	return shape
}

// TestSweep_killed: a sweep that is killed with SIGKILL at random moments and resumed each time has in the end what an undisturbed one has: every
// cell and repeat once, and no run that was finished was run again.
//
// PCMLAB_SWEEP_KILLS=100 does it with 100 kills of a sweep of 24 cells (half an hour, on a busy machine twice that) in place of 3 kills of one of 2.
func TestSweep_killed(t *testing.T) {
	h := newHome(t)
	h.needLab()
	kills, matrix := 3, fewCells
	if text := os.Getenv("PCMLAB_SWEEP_KILLS"); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil || kills < 1 {
			t.Fatalf("PCMLAB_SWEEP_KILLS=%q: need a number of kills", text)
		}
		matrix = manyCells
	}
	k := &killer{home: h, playbook: h.file("tiny.yaml", tinySweep+matrix), want: kills}
	began := time.Now()
	k.through(h.run(k.args("calm")...))
	calm := h.sweepIn(filepath.Join(h.dir, "calm"))
	k.trial = time.Since(began) / time.Duration(len(calm.Trials))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d; %v a trial", seed, k.trial.Round(100*time.Millisecond))
	k.rng = rand.New(rand.NewPCG(seed, 0))
	// A sweep that is through before all kills have hit is followed by another one.
	for round := 1; k.hits < kills; round++ {
		before := k.hits
		k.sweep(fmt.Sprintf("killed%d", round), calm)
		t.Logf("sweep %d: %d kills hit it", round, k.hits-before)
	}
	testwait.For(t, 15*time.Second, "labs of dead runs are gone", func() bool { return strings.Contains(h.run("lab", "ls", "-o", "json").stdout, `"labs": []`) })
}

// killer kills sweeps.
type killer struct {
	*home
	playbook string
	trial    time.Duration // what one takes, lately
	rng      *rand.Rand
	want     int
	hits     int // kills that hit a running sweep
}

func (k *killer) args(out string) []string {
	// Whether a run was noisy is chance; that it is the same in both sweeps needs the bound out of the way.
	return []string{"run", k.playbook, "-i", repo("labs/virtual-4.yaml"), "--set", "virtual.max_lateness=10s", "--out", filepath.Join(k.dir, out)}
}

// sweep runs one to its end through kills, and holds it against an undisturbed one.
func (k *killer) sweep(name string, calm *experiments.Sweep) {
	t := k.t
	t.Helper()
	out := filepath.Join(k.dir, name)
	kept := map[string]string{}
	check := func() *experiments.Sweep {
		t.Helper()
		s := k.sweepIn(out)
		if s == nil {
			return nil // killed before there was one
		}
		now := k.finished(s)
		for folder, id := range kept {
			if now[folder] != id {
				t.Fatalf("%s was finished as run %s and is now %q", folder, id, now[folder])
			}
		}
		kept = now
		return s
	}
	next := func() []string {
		if s := k.sweepIn(out); s != nil {
			return []string{"run", "--resume", s.Dir}
		}
		return k.args(name)
	}
	for k.hits < k.want && len(kept) < len(calm.Trials) {
		k.kill(next(), float64(len(calm.Trials)-len(kept)-1)/float64(k.want-k.hits))
		if s := check(); s != nil {
			k.learn(s)
		}
	}
	k.through(k.run(next()...))
	s := check()
	ids := map[string]string{}
	for folder, id := range kept {
		if other, ok := ids[id]; ok {
			t.Errorf("run %s is in %s and %s", id, folder, other)
		}
		ids[id] = folder
	}
	if diff := cmp.Diff(k.shapeOf(calm), k.shapeOf(s)); diff != "" || len(kept) != len(calm.Trials) {
		t.Errorf("%d of %d trials; an undisturbed sweep and this one (-want +got):\n%s", len(kept), len(calm.Trials), diff)
	}
	a, b := k.summary(calm).Counts, k.summary(s).Counts
	if b.Planned != a.Planned || b.Complete+b.Noisy+b.Partial != a.Planned || b.Unfinished+b.Missing > 0 {
		t.Errorf("counts %+v, want those of the undisturbed sweep: %+v", b, a)
	}
	if a != b {
		t.Logf("what the load of this machine changed: undisturbed %+v, killed %+v", a, b)
	}
}

// through: a sweep came to its end. A machine that is busy with something else may make a run partial or a check fail; a kill may not.
func (k *killer) through(o outcome) {
	k.t.Helper()
	if o.code != exitOK && o.code != exitCheckFailed && o.code != exitData && o.code != exitInfra {
		k.t.Fatalf("exit %d\n%s%s", o.code, o.stdout, o.stderr)
	}
}

// kill starts pcmlab and kills it at a random moment. So that the kills hit before the sweep is through, only the given share of them may
// come after the first trial.
func (k *killer) kill(args []string, later float64) {
	span := k.trial
	if k.rng.Float64() < later {
		span *= 2
	}
	life := time.NewTimer(time.Duration(k.rng.Int64N(int64(span))))
	defer life.Stop()
	p := k.start(args...)
	ended := make(chan struct{})
	go func() { p.cmd.Wait(); close(ended) }()
	select {
	case <-life.C:
		if p.cmd.Process.Signal(syscall.SIGKILL) == nil {
			k.hits++
		}
		<-ended
	case <-ended:
	}
}

// learn follows how long trials take: what else the machine does changes.
func (k *killer) learn(s *experiments.Sweep) {
	if status, err := experiments.LoadStatus(s.Dir); err == nil && len(status.OverheadsNS) > 0 {
		n := len(status.OverheadsNS)
		overhead, _ := experiments.Overhead(status.OverheadsNS[max(0, n-3):])
		k.trial = overhead + time.Second
	}
}

func (k *killer) summary(s *experiments.Sweep) (sum experiments.SweepSummary) {
	k.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.Dir, experiments.SummaryFile))
	if err == nil {
		err = json.Unmarshal(data, &sum)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	return sum
}

// status of the only run that `pcmlab status` finds in a folder.
func (h *home) status(out string, args ...string) (row statusRow) {
	h.t.Helper()
	o := h.run(append([]string{"status", "--out", out, "-o", "json"}, args...)...)
	var doc struct{ Runs []statusRow }
	if err := json.Unmarshal([]byte(o.stdout), &doc); err != nil || len(doc.Runs) > 1 {
		h.t.Fatalf("status: %v\n%s%s", err, o.stdout, o.stderr)
	}
	if len(doc.Runs) == 1 {
		row = doc.Runs[0]
	}
	return row
}

// TestRun_detached: a sweep in the background says truthfully how far it is, two cannot run it, a kill shows as died, stop ends it with what it
// has kept.
func TestRun_detached(t *testing.T) {
	h := newHome(t)
	h.needLab()
	out := filepath.Join(h.dir, "runs")
	playbook := h.file("tiny.yaml", strings.Replace(tinySweep, "for: 1s", "for: 30s", 1)+fewCells)
	o := h.run("run", playbook, "-i", repo("labs/virtual-4.yaml"), "--out", out, "--detach", "-o", "json")
	var d detached
	if err := json.Unmarshal([]byte(o.stdout), &d); o.code != exitOK || err != nil {
		t.Fatalf("exit %d, %v\n%s%s", o.code, err, o.stdout, o.stderr)
	}
	var row statusRow
	testwait.For(t, time.Minute, "a phase begins", func() bool { row = h.status(out); return row.Phase != nil && *row.Phase == "all" })
	if row.State != "running" || row.PID != d.PID || row.Run != d.Run || row.Trial != 1 || row.Trials != 2 || len(row.Params) != 1 {
		t.Errorf("status %+v", row)
	}
	// Two runs of 30 s and what they take besides: the first has just begun.
	if row.Remaining == nil || *row.Remaining < 45 || *row.Remaining > 85 || !strings.Contains(row.Basis, "assumed") {
		t.Errorf("remaining %v (%s)", show(row.Remaining), row.Basis)
	}
	if o := h.run("run", "--resume", d.Dir); o.code != exitBusy || !strings.Contains(o.stderr, "goes on already") {
		t.Errorf("a second one: exit %d\n%s", o.code, o.stderr)
	}
	syscall.Kill(d.PID, syscall.SIGKILL)
	testwait.For(t, 10*time.Second, "the kill shows", func() bool { return h.status(out).State == "died" })
	if o := h.run("stop", d.Run, "--out", out); o.code != exitUsage || !strings.Contains(o.stderr, "does not go on: it is died") {
		t.Errorf("stop of a dead one: exit %d\n%s", o.code, o.stderr)
	}

	if o := h.run("run", "--resume", d.Dir, "--detach"); o.code != exitOK || !strings.Contains(o.stdout, d.Run) {
		t.Fatalf("resume in the background: exit %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	testwait.For(t, time.Minute, "a phase begins again", func() bool { row = h.status(out); return row.State == "running" && row.Phase != nil })
	if o := h.run("stop", d.Run, "--out", out); o.code != exitOK || !strings.Contains(o.stdout, "0 of 2 runs are finished") {
		t.Errorf("stop: exit %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	if row = h.status(out, d.Run); row.State != "interrupted" {
		t.Errorf("after stop: %+v", row)
	}
	s := h.sweepIn(out)
	if run, err := experiments.LoadSummary(filepath.Join(d.Dir, s.Trials[0].Folder())); err != nil || run.State != experiments.StatePartial || run.Reason != experiments.Interrupted {
		t.Errorf("what was measured is not kept: %+v %v", run, err)
	}
	if aside, _ := filepath.Glob(filepath.Join(d.Dir, experiments.UnfinishedDir, "*")); len(aside) != 1 {
		t.Errorf("set aside: %v, want what the kill left", aside)
	}
	if log, err := os.ReadFile(d.Log); err != nil || !strings.Contains(string(log), "run 1 of 2") {
		t.Errorf("log: %s %v", log, err)
	}
}

// TestRun_detachedAlone: one run in the background; stop --now ends it at once.
func TestRun_detachedAlone(t *testing.T) {
	h := newHome(t)
	h.needLab()
	out := filepath.Join(h.dir, "runs")
	playbook := h.file("tiny.yaml", strings.Replace(tinySweep, "for: 1s", "for: 30s", 1))
	o := h.run("run", playbook, "-i", repo("labs/virtual-4.yaml"), "--out", out, "--detach")
	if o.code != exitOK {
		t.Fatalf("exit %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	var row statusRow
	testwait.For(t, time.Minute, "a phase begins", func() bool { row = h.status(out); return row.Phase != nil })
	if row.Kind != "run" || row.State != "running" || !strings.Contains(o.stdout, row.Run) {
		t.Errorf("status %+v; printed\n%s", row, o.stdout)
	}
	began := time.Now()
	if o := h.run("stop", row.Run, "--out", out, "--now"); o.code != exitOK {
		t.Errorf("stop --now: exit %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("stop --now took %v", took)
	}
	if row = h.status(out, row.Run); row.State != "died" {
		t.Errorf("after stop --now: %+v", row)
	}
}
