package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"

	"github.com/pcmlab/pcmlab/experiments"
)

// sweepView shows a sweep as it happens: one bar on a terminal, a line a trial elsewhere, nothing with --quiet.
type sweepView struct {
	e     *env
	began time.Time
	total int
	bar   progress.Writer
	track *progress.Tracker
	once  sync.Once
}

func (e *env) newSweepView(s *experiments.Sweep) *sweepView {
	v := &sweepView{e: e, began: time.Now(), total: len(s.Trials)}
	if e.terminal && !e.quiet {
		v.bar = e.newBars()
		v.bar.SetMessageLength(70)
		v.track = &progress.Tracker{Message: s.ID, Total: int64(len(s.Trials))}
		v.bar.AppendTracker(v.track)
		go v.bar.Render()
	}
	return v
}

func (v *sweepView) say(format string, a ...any) {
	text := fmt.Sprintf("%8s  %s", roughly(time.Since(v.began)), fmt.Sprintf(format, a...))
	switch {
	case v.e.quiet:
	case v.bar != nil:
		v.bar.Log("%s", text)
	default:
		fmt.Fprintln(v.e.stderr, text)
	}
}

// step and event are of single runs: only -v shows them.
func (v *sweepView) step(format string, a ...any) { v.e.log.Info(fmt.Sprintf(format, a...)) }

func (v *sweepView) event(ev experiments.Event) {
	if ev.Event == "flow_failed" {
		v.say("  flow %s FAILED: %s", ev.Flow, ev.Text)
	}
	if v.track != nil && ev.Event == "phase_start" {
		v.e.log.Info("phase", "phase", ev.Phase)
	}
}

func trialName(t experiments.Trial) string {
	name := experiments.ParamText(t.Params)
	if name == "" {
		name = "as the playbook says"
	}
	if t.Warmup {
		return fmt.Sprintf("%s, warm-up %d", name, t.Repeat)
	}
	return fmt.Sprintf("%s, repeat %d", name, t.Repeat)
}

func (v *sweepView) begin(n int, t experiments.Trial, left time.Duration) {
	if v.track != nil {
		v.track.SetValue(int64(n - 1))
		v.track.UpdateMessage(fmt.Sprintf("run %d of %d: %s; %s left", n, v.total, trialName(t), roughly(left)))
		return
	}
	v.say("run %d of %d: %s; about %s left", n, v.total, trialName(t), roughly(left))
}

func (v *sweepView) after(s *experiments.Sweep, t experiments.Trial, err error) {
	dir := filepath.Join(s.Dir, t.Folder())
	switch run, lerr := experiments.LoadSummary(dir); {
	case err != nil:
		v.say("  %s: failed: %s", t.Folder(), firstLine(err.Error()))
	case lerr != nil:
		v.say("  %s: %v", t.Folder(), lerr)
	case run.State != experiments.StateComplete:
		v.say("  %s: %s: %s", t.Folder(), run.State, run.Reason)
	case run.Verdict == experiments.Fail:
		v.say("  %s: a check does not hold", t.Folder())
	}
	if v.track != nil {
		v.track.Increment(1)
	}
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

func (v *sweepView) stop() {
	v.once.Do(func() {
		if v.bar != nil {
			v.track.MarkAsDone()
			stopBars(v.bar)
		}
	})
}

// roughly is a duration as people say it.
func roughly(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// reportSweep prints the table per cell, what is missing, and gives the exit code.
func (e *env) reportSweep(ctx context.Context, o *runOptions, s *experiments.Sweep, sum *experiments.SweepSummary, end experiments.SweepEnd) error {
	if o.output == "json" {
		if err := writeJSON(e.stdout, sum); err != nil {
			return err
		}
	} else if err := e.printSweep(s, sum, end); err != nil {
		return err
	}
	errs := []error{ctx.Err()}
	for _, f := range end.Failed {
		errs = append(errs, f.Err)
	}
	if c := sum.Counts; c.Failed > 0 {
		errs = append(errs, &codedError{exitCheckFailed, nil})
	}
	if c := sum.Counts; c.Noisy+c.Partial+c.Unfinished+c.Missing > 0 {
		errs = append(errs, &codedError{exitData, nil})
	}
	if err := errors.Join(errs...); err != nil {
		return &codedError{exitCode(err), nil} // all has been said
	}
	return nil
}

func (e *env) printSweep(s *experiments.Sweep, sum *experiments.SweepSummary, end experiments.SweepEnd) error {
	if err := e.sweepTable(s, sum); err != nil {
		return err
	}
	for _, f := range end.Failed {
		fmt.Fprintf(e.stdout, "failed: %s: %v\n", f.Trial.Folder(), f.Err)
	}
	for _, p := range sum.Partial {
		for _, c := range p.Checks {
			var values []string
			for _, v := range c.Values {
				values = append(values, fmt.Sprintf("%s = %.6g", v.Call, v.Value))
			}
			fmt.Fprintf(e.stdout, "partial: %s: check %q was judged all the same: %s (%s)\n", p.Folder, c.Name, c.Verdict, strings.Join(values, ", "))
		}
	}
	c := sum.Counts
	fmt.Fprintf(e.stdout, "%d of %d runs are complete", c.Complete, c.Planned)
	for _, part := range []struct {
		n    int
		what string
	}{{c.Noisy, "noisy"}, {c.Partial, "partial"}, {c.Unfinished, "unfinished"}, {c.Missing, "not there"}} {
		if part.n > 0 {
			fmt.Fprintf(e.stdout, ", %d %s", part.n, part.what)
		}
	}
	fmt.Fprintf(e.stdout, "; in %d a check does not hold\n", c.Failed)
	if len(end.LeftOut) > 0 {
		fmt.Fprintf(e.stdout, "the budget of %v left out %d runs: %s\n", time.Duration(s.BudgetNS), len(end.LeftOut), folders(end.LeftOut))
	}
	if len(sum.LeftOut) > 0 {
		fmt.Fprintf(e.stdout, "go on   pcmlab run --resume %s\n", relative(s.Dir))
	}
	fmt.Fprintf(e.stdout, "sweep   %s\n", relative(s.Dir))
	return nil
}

func folders(trials []experiments.Trial) string {
	const shown = 8
	var out []string
	for _, t := range trials[:min(len(trials), shown)] {
		out = append(out, t.Folder())
	}
	if len(trials) > shown {
		out = append(out, fmt.Sprintf("and %d more (left_out in %s)", len(trials)-shown, experiments.SummaryFile))
	}
	return strings.Join(out, ", ")
}

// shownScores are the columns of the table: of the whole run, and those that the playbook has thresholds for.
func shownScores(s *experiments.Sweep) []string {
	names := []string{"goodput()", "utilisation()", "jain()", "retransmissions()"}
	for _, t := range s.Thresholds {
		if name := t.Key; strings.HasSuffix(name, ")") && !strings.HasSuffix(name, "()") && len(names) < 7 {
			names = append(names, name)
		}
	}
	return names
}

func (e *env) sweepTable(s *experiments.Sweep, sum *experiments.SweepSummary) error {
	header := []string{}
	keys := parameters(s)
	header = append(header, keys...)
	header = append(header, "runs", "checks hold")
	names := shownScores(s)
	for _, n := range names {
		if n == "goodput()" {
			n += " Gb/s"
		}
		header = append(header, n)
	}
	t := e.newTable(header...)
	t.title(fmt.Sprintf("%s on %s: median over complete runs, with its 95 %% interval where there are enough", s.Playbook, s.Lab))
	for _, c := range sum.Cells {
		row := []string{}
		for _, k := range keys {
			row = append(row, paramOf(c.Params, k))
		}
		row = append(row, fmt.Sprintf("%d of %d", c.Counts.Complete, c.Counts.Planned), fmt.Sprintf("%d of %d", c.Counts.Passed, c.Counts.Complete))
		for _, n := range names {
			row = append(row, medianText(c.Score(n)))
		}
		t.row(row...)
	}
	return t.print()
}

// parameters are all that cells have, in the order of the file.
func parameters(s *experiments.Sweep) []string {
	var keys []string
	seen := map[string]bool{}
	for _, c := range s.Cells {
		for _, p := range c.Params {
			if !seen[p.Key] {
				seen[p.Key] = true
				keys = append(keys, p.Key)
			}
		}
	}
	return keys
}

func paramOf(params []experiments.Param, key string) string {
	for _, p := range params {
		if p.Key == key {
			return p.Value
		}
	}
	return "-"
}

func medianText(s *experiments.ScoreSummary) string {
	if s == nil || s.Median == nil {
		return "-"
	}
	factor, format := 1.0, "%.4g"
	if s.Unit == "bit/s" {
		factor, format = 1e-9, "%.4f"
	}
	text := fmt.Sprintf(format, *s.Median*factor)
	if ci := s.MedianCI; ci != nil {
		text += fmt.Sprintf(" ["+format+", "+format+"]", ci.Low*factor, ci.High*factor)
	}
	return text
}
