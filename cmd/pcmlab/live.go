package main

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/process"
)

// live keeps status.json of a run or sweep that goes on. A status that cannot be written stops no measurement.
type live struct {
	mu     sync.Mutex
	dir    string
	status experiments.Status
	made   bool // the folder is there
}

func newLive(j *job, kind string, trials int) *live {
	return &live{dir: j.dir, status: experiments.Status{Run: filepath.Base(j.dir), Kind: kind, Playbook: j.playbook.Name, Lab: j.lab.Name, State: experiments.LiveRunning,
		Process: process.This(), Began: time.Now().UTC(), Of: trials}}
}

func (l *live) save() {
	if !l.made {
		if os.MkdirAll(l.dir, 0o755) != nil {
			return
		}
		l.made = true
	}
	l.status.Save(l.dir)
}

// begin says what goes on now, how long it is expected to take, and what comes after it.
func (l *live) begin(t *experiments.Trial, number int, takes, after time.Duration, basis string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.status
	s.Trial, s.Number, s.Phase, s.TrialBegan, s.TrialNS, s.AfterNS, s.Basis = t, number, "", time.Now().UTC(), int64(takes), int64(after), basis
	l.save()
}

// event follows the phases.
func (l *live) event(e experiments.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Event {
	case "phase_start":
		l.status.Phase = e.Phase
	case "phases_end":
		l.status.Phase = "drain"
	case "analysing":
		l.status.Phase = "analysis"
	default:
		return
	}
	l.save()
}

// took keeps what a trial took besides its phases.
func (l *live) took(overhead time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.OverheadsNS = experiments.AddOverhead(l.status.OverheadsNS, overhead)
}

func (l *live) overheads() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status.OverheadsNS
}

// end of a run: its folder says it all, so that no status is left; a run that left no folder keeps its status and the reason.
func (l *live) end(ctx context.Context, result *experiments.Result, err error) {
	if result != nil {
		return // close removes it
	}
	l.ended(ctx, err)
}

// ended writes how a sweep, or a run without a folder of its own, ended.
func (l *live) ended(ctx context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now().UTC()
	s := &l.status
	s.State, s.Ended, s.Trial, s.Phase, s.TrialNS, s.AfterNS = experiments.LiveEnded, &now, nil, "", 0, 0
	if err != nil {
		s.Reason = err.Error()
	}
	if ctx.Err() != nil {
		s.State, s.Reason = experiments.LiveInterrupted, experiments.Interrupted
	}
	l.save()
}

// close removes the status of a run that has a folder, and the folder of one that left nothing else and was not sent to the background.
func (l *live) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.status.Kind == "sweep" {
		return
	}
	if experiments.IsRun(l.dir) {
		os.Remove(filepath.Join(l.dir, experiments.StatusFile))
	} else if entries, err := os.ReadDir(l.dir); err == nil && len(entries) == 1 {
		os.Remove(filepath.Join(l.dir, experiments.StatusFile))
		os.Remove(l.dir)
	}
}
