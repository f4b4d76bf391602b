package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/process"
)

// statusRow is a run or sweep in `status -o json`. Times are seconds; null: not known.
type statusRow struct {
	Run       string              `json:"run"`
	Dir       string              `json:"dir"`
	Kind      string              `json:"kind"`
	State     string              `json:"state"` // running, died, elsewhere; with a name or --all also ended, interrupted
	Reason    string              `json:"reason,omitempty"`
	Playbook  string              `json:"playbook"`
	Lab       string              `json:"lab"`
	PID       int                 `json:"pid"`
	Began     time.Time           `json:"began"`
	Trial     int                 `json:"trial"`
	Trials    int                 `json:"trials"`
	Params    []experiments.Param `json:"params"`
	Phase     *string             `json:"phase"`
	ElapsedS  float64             `json:"elapsed_s"`
	Remaining *float64            `json:"remaining_s"`
	Basis     string              `json:"remaining_basis,omitempty"`
}

func newStatusCommand(e *env) *cobra.Command {
	var out, output string
	var all bool
	cmd := &cobra.Command{
		Use:   "status [RUN]",
		Short: "Say which runs and sweeps go on, how far they are and how long they will take",
		Long: "List the runs and sweeps below --out that go on, and those that died: their process is gone and they did not end. With RUN, an\n" +
			"id, the beginning of one or a folder, show that one, ended or not.",
		Example: "  pcmlab status\n  pcmlab status 20261130-061823.123-incast-3to1-sweep -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			if len(args) == 1 {
				s, err := findStatus(out, args[0])
				if err != nil {
					return err
				}
				return e.printStatus([]*experiments.Status{s}, 0, out, output)
			}
			found, err := experiments.FindStatus(out)
			var shown []*experiments.Status
			for _, s := range found {
				if all || s.State == experiments.LiveRunning || s.State == experiments.LiveDied || s.State == experiments.LiveElsewhere {
					shown = append(shown, s)
				}
			}
			return errors.Join(e.printStatus(shown, len(found)-len(shown), out, output), err)
		},
	}
	cmd.Flags().StringVar(&out, "out", "runs", "folder of the runs")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.Flags().BoolVar(&all, "all", false, "also sweeps that have ended")
	return cmd
}

// findStatus finds a run by its folder, its id, or the beginning of it.
func findStatus(out, name string) (*experiments.Status, error) {
	dir := name
	if !finishedIn(dir) && !hasStatus(dir) {
		dir = filepath.Join(out, name)
	}
	if !finishedIn(dir) && !hasStatus(dir) {
		matches, _ := filepath.Glob(filepath.Join(out, "*"))
		var ids []string
		for _, m := range matches {
			if strings.HasPrefix(filepath.Base(m), name) && (finishedIn(m) || hasStatus(m)) {
				ids = append(ids, filepath.Base(m))
				dir = m
			}
		}
		switch {
		case len(ids) == 0:
			return nil, usagef("%q: no run or sweep of that name in %s (--out names another folder; pcmlab status --all lists them)", name, out)
		case len(ids) > 1:
			return nil, usagef("%q: %d runs begin so: %s", name, len(ids), strings.Join(ids, ", "))
		}
	}
	if hasStatus(dir) {
		return experiments.LoadStatus(dir)
	}
	if experiments.IsSweepDir(dir) {
		s, err := experiments.LoadSweep(dir)
		if err != nil {
			return nil, err
		}
		return &experiments.Status{Run: s.ID, Dir: dir, Kind: "sweep", Playbook: s.Playbook, Lab: s.Lab, State: experiments.LiveDied, Began: s.Created, Of: len(s.Trials),
			Reason: "it was killed before its first run"}, nil
	}
	run, err := experiments.LoadSummary(dir)
	if err != nil {
		return nil, err
	}
	s := &experiments.Status{Run: run.Run, Dir: dir, Kind: "run", Playbook: run.Playbook, Lab: run.Lab, State: experiments.LiveEnded, Began: run.Began, Number: 1, Of: 1,
		Reason: strings.TrimSuffix(string(run.State)+": "+run.Reason, ": ")}
	switch {
	case run.State == experiments.StateUnfinished:
		s.State = experiments.LiveDied
	case run.Reason == experiments.Interrupted:
		s.State = experiments.LiveInterrupted
	}
	if !run.Ended.IsZero() {
		s.Ended = &run.Ended
	}
	return s, nil
}

func hasStatus(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, experiments.StatusFile))
	return err == nil
}

func rowOf(s *experiments.Status, now time.Time) statusRow {
	r := statusRow{Run: s.Run, Dir: s.Dir, Kind: s.Kind, State: string(s.State), Reason: s.Reason, Playbook: s.Playbook, Lab: s.Lab, PID: s.Process.PID, Began: s.Began,
		Trial: s.Number, Trials: s.Of, Params: []experiments.Param{}, Phase: nullable(s.Phase)}
	if s.Trial != nil && s.Trial.Params != nil {
		r.Params = s.Trial.Params
	}
	until := now
	switch {
	case s.Ended != nil:
		until = *s.Ended
	case s.State != experiments.LiveRunning:
		until = s.Updated
	}
	if until.After(s.Began) {
		r.ElapsedS = until.Sub(s.Began).Seconds()
	}
	if left := s.Remaining(now); left != nil {
		seconds := left.Seconds()
		r.Remaining, r.Basis = &seconds, s.Basis
	}
	return r
}

func (e *env) printStatus(found []*experiments.Status, ended int, out, output string) error {
	rows := []statusRow{}
	for _, s := range found {
		rows = append(rows, rowOf(s, time.Now()))
	}
	if output == "json" {
		return writeJSON(e.stdout, map[string]any{"schema": "pcmlab/runs-status/v1", "runs": rows})
	}
	if len(rows) > 0 {
		t := e.newTable("run", "state", "trial", "parameters", "phase", "elapsed", "remaining")
		for _, r := range rows {
			left, phase, trial := "-", "-", fmt.Sprintf("%d of %d", r.Trial, r.Trials)
			if r.Remaining != nil {
				left = roughly(time.Duration(*r.Remaining * float64(time.Second)))
			}
			if r.Phase != nil {
				phase = *r.Phase
			}
			if r.Trial == 0 {
				trial = fmt.Sprintf("- of %d", r.Trials)
			}
			t.row(r.Run, r.State, trial, nonEmpty(experiments.ParamText(r.Params)), phase, roughly(time.Duration(r.ElapsedS*float64(time.Second))), left)
		}
		if err := t.print(); err != nil {
			return err
		}
	}
	for _, r := range rows {
		switch {
		case r.Remaining != nil:
			fmt.Fprintf(e.stdout, "%s: remaining time %s\n", r.Run, r.Basis)
		case r.Reason != "":
			fmt.Fprintf(e.stdout, "%s: %s\n", r.Run, r.Reason)
		}
		if r.Kind == "sweep" && r.State != string(experiments.LiveRunning) && r.State != string(experiments.LiveElsewhere) && r.Reason != "" {
			fmt.Fprintf(e.stdout, "%s: go on with: pcmlab run --resume %s\n", r.Run, relative(r.Dir))
		}
	}
	if len(rows) == 0 && !e.quiet {
		fmt.Fprintf(e.stderr, "nothing goes on in %s\n", out)
	}
	if ended > 0 && !e.quiet {
		fmt.Fprintf(e.stderr, "%d more have ended (--all)\n", ended)
	}
	return nil
}

func nonEmpty(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func newStopCommand(e *env) *cobra.Command {
	var out, output string
	var now bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "stop RUN",
		Short: "Stop a run or sweep that goes on, as Ctrl-C does, and say what was kept",
		Long: "Stop a run or sweep: traffic ends, captures are drained, settings restored, what was measured is kept; a sweep can be resumed. Waits\n" +
			"until it has ended. With --now it ends at once, as a second Ctrl-C does; guards on the hosts still clean up.",
		Example: "  pcmlab stop 20261130-061823.123-incast-3to1-sweep",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			s, err := findStatus(out, args[0])
			if err != nil {
				return err
			}
			if s.State != experiments.LiveRunning {
				return usagef("%s does not go on: it is %s%s", s.Run, s.State, strings.TrimSuffix(": "+s.Reason, ": "))
			}
			if err := stopProcess(c.Context(), s.Process, now, timeout); err != nil {
				return fmt.Errorf("%s: %w", s.Run, err)
			}
			after, err := findStatus(filepath.Dir(s.Dir), s.Run)
			if err != nil {
				return err
			}
			if output == "json" {
				return writeJSON(e.stdout, map[string]any{"schema": "pcmlab/runs-status/v1", "runs": []statusRow{rowOf(after, time.Now())}})
			}
			return e.printKept(after)
		},
	}
	cmd.Flags().StringVar(&out, "out", "runs", "folder of the runs")
	cmd.Flags().BoolVar(&now, "now", false, "end at once; what the run measured so far is kept, but not analysed")
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "how long to wait until it has ended")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// stopProcess interrupts a process once, or with now until it is gone, and waits for its end.
func stopProcess(ctx context.Context, p process.ID, now bool, timeout time.Duration) error {
	proc, err := os.FindProcess(p.PID) // holds the process itself where the system can: its number may be given away meanwhile
	if err != nil {
		return err
	}
	defer proc.Release()
	if !p.Alive() {
		return nil
	}
	if err := proc.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for p.Alive() {
		select {
		case <-deadline.C:
			return fmt.Errorf("process %d has not ended after %v (stop --now ends it at once)", p.PID, timeout)
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if now { // a shell may have made it deaf to interrupts
			proc.Signal(syscall.SIGTERM)
		}
	}
	return nil
}

// printKept says what a run or sweep that was stopped left.
func (e *env) printKept(s *experiments.Status) error {
	if s.Kind == "sweep" {
		sweep, err := experiments.LoadSweep(s.Dir)
		if err != nil {
			return err
		}
		n := 0
		for _, t := range sweep.Trials {
			if sweep.Finished(t) {
				n++
			}
		}
		_, err = fmt.Fprintf(e.stdout, "stopped: %d of %d runs are finished and kept\nsweep   %s\ngo on   pcmlab run --resume %[3]s\n", n, len(sweep.Trials), relative(s.Dir))
		return err
	}
	if !experiments.IsRun(s.Dir) {
		_, err := fmt.Fprintf(e.stdout, "stopped before anything was measured\n")
		return err
	}
	run, err := experiments.LoadSummary(s.Dir)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.stdout, "stopped: the run is %s and kept\nrun     %s\n", run.State, relative(s.Dir))
	return err
}
