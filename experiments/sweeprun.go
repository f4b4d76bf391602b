package experiments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// SweepRun decides which trial of a sweep comes next. It runs none itself and keeps nothing: what is finished is asked anew, so that it
// can be killed between any two of its steps.
type SweepRun struct {
	Trials   []Trial                            // in the order of execution
	Finished func(Trial) bool                   // its run is there, whole
	Trial    func(context.Context, Trial) error // runs one; an error is counted and does not stop the sweep
	Estimate func(Trial) time.Duration          // how long one will take
	Budget   time.Duration                      // 0: none
	Now      func() time.Time                   //
	Watch    func(n int, t Trial, left []Trial) // before trial n of len(Trials), from 1, with those that come after it; may be nil
	After    func(Trial, time.Duration, error)  // may be nil
	Skipped  func(t Trial)                      // of a trial that is finished already; may be nil
}

// SweepEnd is how a sweep ended.
type SweepEnd struct {
	Ran         int
	Skipped     int // finished before
	Failed      []FailedTrial
	LeftOut     []Trial // the budget did not allow them
	Interrupted bool
}

// FailedTrial is a trial that did not go through.
type FailedTrial struct {
	Trial Trial
	Err   error
}

// Run runs what is not finished, until all is, the budget is spent or ctx ends.
func (r *SweepRun) Run(ctx context.Context) SweepEnd {
	var end SweepEnd
	began := r.Now()
	for i, t := range r.Trials {
		if r.Finished(t) {
			end.Skipped++
			if r.Skipped != nil {
				r.Skipped(t)
			}
			continue
		}
		if ctx.Err() != nil {
			end.Interrupted = true
			return end
		}
		if r.Budget > 0 && r.Now().Sub(began)+r.Estimate(t) > r.Budget {
			end.LeftOut = r.unfinished(r.Trials[i:])
			return end
		}
		if r.Watch != nil {
			r.Watch(i+1, t, r.unfinished(r.Trials[i+1:]))
		}
		start := r.Now()
		err := r.Trial(ctx, t)
		end.Ran++
		if r.After != nil {
			r.After(t, r.Now().Sub(start), err)
		}
		if ctx.Err() != nil {
			end.Interrupted = true
			return end
		}
		if err != nil {
			end.Failed = append(end.Failed, FailedTrial{t, err})
		}
	}
	return end
}

func (r *SweepRun) unfinished(trials []Trial) (out []Trial) {
	for _, t := range trials {
		if !r.Finished(t) {
			out = append(out, t)
		}
	}
	return out
}

// Interrupted is the reason of a run that ended by Ctrl-C. A sweep runs it again.
const Interrupted = "interrupted"

// Finished says that the run of a trial is there: it ended, what was run is what the cell asks for, and nobody interrupted it.
func (s *Sweep) Finished(t Trial) bool {
	cell := s.Cell(t.Cell)
	dir := filepath.Join(s.Dir, t.Folder())
	var m Manifest
	var cmd struct {
		Inputs string `json:"inputs_sha256"`
	}
	if cell == nil || readJSON(filepath.Join(dir, "manifest.json"), &m) != nil || readJSON(filepath.Join(dir, "command.json"), &cmd) != nil {
		return false
	}
	return cmd.Inputs == cell.Inputs && (m.State != StatePartial || m.Reason != Interrupted)
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	return err
}

// UnfinishedDir holds what trials left that were killed, interrupted or are no part of the sweep any more.
const UnfinishedDir = ".unfinished"

// SetAside moves every folder of a trial that is not finished to .unfinished, and says which.
func (s *Sweep) SetAside() ([]string, error) {
	keep := map[string]bool{}
	for _, t := range s.Trials {
		if s.Finished(t) {
			keep[t.Folder()] = true
		}
	}
	folders, err := filepath.Glob(filepath.Join(s.Dir, "*", "*"))
	if err != nil {
		return nil, err
	}
	var moved []string
	for _, dir := range folders {
		rel, err := filepath.Rel(s.Dir, dir)
		if st, serr := os.Lstat(dir); err != nil || serr != nil || !st.IsDir() || keep[rel] || strings.HasPrefix(rel, ".") || !trialFolder.MatchString(filepath.Base(rel)) {
			continue
		}
		if err := s.moveAside(dir, strings.ReplaceAll(rel, string(filepath.Separator), "-")); err != nil {
			return moved, err
		}
		moved = append(moved, rel)
		os.Remove(filepath.Dir(dir)) // of a cell without runs
	}
	slices.Sort(moved)
	return moved, nil
}

// trialFolder is the form of Trial.Name; other folders are somebody's own.
var trialFolder = regexp.MustCompile(`^(warmup-)?[0-9]{2,}$`)

func (s *Sweep) moveAside(dir, name string) error {
	to := filepath.Join(s.Dir, UnfinishedDir)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for i := 1; ; i++ {
		target := filepath.Join(to, name)
		if i > 1 {
			target = fmt.Sprintf("%s.%d", target, i)
		}
		if _, err := os.Lstat(target); errors.Is(err, fs.ErrNotExist) {
			return os.Rename(dir, target)
		}
	}
}

// SweepLock is the file that keeps two from running one sweep.
const SweepLock = ".lock"

// Lock takes the sweep's folder for this process, until it ends or unlock is called. It matches ErrBusy when another has it.
func (s *Sweep) Lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.Dir, SweepLock), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s: this sweep goes on already (pcmlab status)", ErrBusy, s.Dir)
		}
		return nil, fmt.Errorf("%s: lock: %w", s.Dir, err)
	}
	return func() { f.Close() }, nil
}
