package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

// layOut makes the sweep of a job: its trials, and what it is made of.
func (e *env) layOut(ctx context.Context, o *runOptions, j *job, playbook, lab string) error {
	s := experiments.NewSweep(j.id, j.playbook, j.lab.Name, j.cells, time.Now())
	if o.budget > 0 {
		s.BudgetNS = int64(o.budget)
	}
	s.Sets, s.Command, s.RepeatFlag = j.sets, os.Args, o.repeat
	if err := j.keepInputs(s, playbook, lab); err != nil {
		return err
	}
	hosts := map[string]remote.Host{}
	if j.lab.Virtual == nil || isUp(j.lab) {
		pool, err := remote.NewPool(j.lab, remote.Options{Run: j.id, Log: e.log})
		if err != nil {
			return err
		}
		defer pool.Close()
		for _, ph := range j.cells[0].Plan.Hosts {
			if hosts[ph.Name], err = pool.Host(ctx, ph.Name); err != nil {
				return err
			}
		}
	}
	provenance, err := experiments.Provenance(ctx, j.lab, hosts)
	if err != nil {
		return err
	}
	s.Provenance = provenance
	j.sweep = s
	return nil
}

// keepInputs reads what the sweep's folder keeps: both files as they were given.
func (j *job) keepInputs(s *experiments.Sweep, playbook, lab string) (err error) {
	if j.playbookText, err = os.ReadFile(playbook); err != nil {
		return err
	}
	if s.PlaybookFile, err = filepath.Abs(playbook); err != nil {
		return err
	}
	s.LabFile = lab
	if j.labText, err = os.ReadFile(lab); err == nil {
		s.LabFile, err = filepath.Abs(lab)
		return err
	}
	running, err := runningLab(lab)
	if err != nil {
		return err
	}
	j.labText, err = inventory.Marshal(running)
	return err
}

// prepareResume reads the sweep of --resume and compares it with what would be run now.
func (e *env) prepareResume(ctx context.Context, o *runOptions, args []string) (*job, error) {
	old, err := experiments.LoadSweep(o.resume)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.resume)
	if err != nil {
		return nil, err
	}
	old.Dir = dir
	playbook, lab := old.PlaybookFile, old.LabFile
	if len(args) > 0 {
		playbook = args[0]
	} else if _, err := os.Stat(playbook); err != nil {
		playbook = filepath.Join(dir, "playbook.yaml")
	}
	if o.lab != "" {
		lab = o.lab
	} else if _, err := os.Stat(lab); err != nil && strings.ContainsAny(lab, "/.") {
		lab = filepath.Join(dir, "lab.yaml")
	}
	sets := o.sets
	if len(sets) == 0 {
		for _, s := range old.Sets {
			sets = append(sets, s.Key+"="+s.Value)
		}
	}
	p, l, settings, err := loadBoth(playbook, lab, o.allSets(sets))
	if err != nil {
		return nil, err
	}
	again := *o
	if again.repeat == 0 {
		again.repeat = old.RepeatFlag
	}
	p = again.adjust(p)
	j := &job{playbook: p, lab: l, sets: settings, id: old.ID, dir: dir, resumed: &experiments.Resumption{At: time.Now().UTC(), Differences: []string{}}}
	if j.cells, err = resolve(p, l); err != nil {
		return nil, err
	}
	if err := e.layOut(ctx, &again, j, playbook, lab); err != nil {
		return nil, err
	}
	differences := old.Differences(j.sweep)
	if len(differences) > 0 && !o.force {
		return nil, usagef("%s: this sweep was made of something else; its runs could not be compared:\n  %s%s\nrun it as it was, begin another sweep, or give --force to go on all the same (it is recorded)",
			o.resume, strings.Join(differences, "\n  "), e.changedText(old, p, l))
	}
	j.resumed.Forced = len(differences) > 0
	j.resumed.Differences = append(j.resumed.Differences, differences...)
	j.sweep.Dir, j.sweep.Created, j.sweep.PlaybookFile, j.sweep.LabFile = dir, old.Created, old.PlaybookFile, old.LabFile
	if len(args) > 0 || o.lab != "" {
		j.sweep.PlaybookFile, j.sweep.LabFile = playbook, lab
	}
	j.sweep.Command = old.Command
	j.sweep.Resumed = append(old.Resumed, *j.resumed)
	return j, nil
}

// changedText shows the lines that changed in playbook and lab, when both can still be read.
func (e *env) changedText(old *experiments.Sweep, p *experiments.Playbook, l *inventory.Lab) string {
	oldBook, err := experiments.LoadPlaybook(filepath.Join(old.Dir, "playbook.yaml"))
	if err != nil {
		return ""
	}
	oldLab, err := inventory.Load(filepath.Join(old.Dir, "lab.yaml"))
	if err != nil {
		return ""
	}
	if oldBook, err = applySets(oldBook, oldLab, old.Sets); err != nil {
		return ""
	}
	lines, err := experiments.TextDifference(oldBook, p, oldLab, l)
	if err != nil || len(lines) == 0 {
		return ""
	}
	return "\nwhat changed in playbook and lab:\n  " + strings.Join(lines, "\n  ")
}

// runSweep runs what is left of a sweep.
func (e *env) runSweep(ctx context.Context, o *runOptions, j *job) (ret error) {
	s := j.sweep
	if j.resumed == nil {
		if err := experiments.CreateSweep(j.dir, s, j.playbookText, j.labText); err != nil {
			return err
		}
	}
	unlock, err := s.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if j.resumed != nil {
		if err := e.resume(j); err != nil {
			return err
		}
	}
	l := newLive(j, "sweep", len(s.Trials))
	if former, err := experiments.LoadStatus(j.dir); err == nil && len(former.OverheadsNS) > 0 {
		l.status.OverheadsNS = former.OverheadsNS
	} else {
		l.status.OverheadsNS = experiments.FormerOverheads(filepath.Dir(j.dir), s.Lab)
	}
	show := e.newSweepView(s)
	defer show.stop()
	cells := map[string]*experiments.Cell{}
	for i := range j.cells {
		cells[j.cells[i].ID] = &j.cells[i]
	}
	// The estimate is that of the moment: it learns from each trial.
	estimate := func(t experiments.Trial) time.Duration {
		overhead, _ := experiments.Overhead(l.overheads())
		return cells[t.Cell].Plan.Duration + overhead
	}
	driver := &experiments.SweepRun{Trials: s.Trials, Finished: s.Finished, Estimate: estimate, Budget: time.Duration(s.BudgetNS), Now: time.Now,
		Trial: func(ctx context.Context, t experiments.Trial) error {
			return e.trial(ctx, o, j, cells[t.Cell], t, show, l)
		},
		Watch: func(n int, t experiments.Trial, left []experiments.Trial) {
			after := time.Duration(0)
			for _, later := range left {
				after += estimate(later)
			}
			_, basis := experiments.Overhead(l.overheads())
			l.begin(&t, n, estimate(t), after, basis)
			show.begin(n, t, estimate(t)+after)
		},
		After: func(t experiments.Trial, took time.Duration, err error) {
			if err == nil {
				l.took(took - cells[t.Cell].Plan.Duration)
			}
			show.after(s, t, err)
		},
	}
	end := driver.Run(ctx)
	show.stop()
	summary, err := s.Summarise(time.Now())
	if err != nil {
		return err
	}
	err = summary.Save()
	if n := len(end.LeftOut); n > 0 {
		l.ended(ctx, errors.Join(fmt.Errorf("the budget left out %d runs", n), err))
	} else {
		l.ended(ctx, err)
	}
	return errors.Join(err, e.reportSweep(ctx, o, s, summary, end))
}

// resume takes over a sweep: the lock is held.
func (e *env) resume(j *job) error {
	write := j.sweep.Save
	if j.resumed.Forced { // the files in the folder are those that the sweep is made of from now on
		write = func() error { return j.sweep.WriteInputs(j.playbookText, j.labText) }
	}
	if err := write(); err != nil {
		return err
	}
	moved, err := j.sweep.SetAside()
	if len(moved) > 0 && !e.quiet {
		fmt.Fprintf(e.stderr, "set aside in %s: %s\n", relative(filepath.Join(j.dir, experiments.UnfinishedDir)), strings.Join(moved, ", "))
	}
	return err
}

// trial is one run of a sweep.
func (e *env) trial(ctx context.Context, o *runOptions, j *job, cell *experiments.Cell, t experiments.Trial, show *sweepView, l *live) error {
	sets := append(append([]experiments.Param{}, j.sets...), cell.Params...)
	result, err := e.launch(ctx, launch{playbook: cell.Playbook, lab: cell.Lab, out: filepath.Join(j.dir, t.Cell), folder: t.Name(), id: experiments.NewRunID(cell.Playbook.Name, time.Now()),
		trial: &t, sets: sets, seed: j.sweep.LabSeed(cell.Playbook.Seed, t), wait: o.wait,
		step: show.step, event: func(ev experiments.Event) { show.event(ev); l.event(ev) }})
	if result != nil {
		e.noteRun(ctx, filepath.Dir(j.dir), o.store, result.Dir)
	}
	return err
}
