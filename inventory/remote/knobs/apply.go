package knobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/internal/process"
	"github.com/pcmlab/pcmlab/inventory/remote/knobs/mft"
)

// stepTimeout is how long one command of a knob may take. Writing a firmware setting takes seconds.
const stepTimeout = 20 * time.Second

// Apply makes the changes, in order, each in the journal before it is made. When one fails, those before it are put back.
func Apply(ctx context.Context, dir, run, owner string, list []Knob) (*Journal, error) {
	for i, k := range list {
		if err := k.Validate(); err != nil {
			return nil, fmt.Errorf("knob %d of %d (%v): %w", i+1, len(list), k, err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder of journals: %w", err)
	}
	if old, err := load(dir, run); err == nil {
		return nil, fmt.Errorf("run %s has changed %d settings here already", run, len(old.Steps))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	j := &Journal{Run: run, Owner: owner, Began: time.Now().UTC(), Holder: process.This(), file: journalFile(dir, run, "")}
	for _, k := range list {
		if err := j.change(ctx, k); err != nil {
			return nil, errors.Join(fmt.Errorf("%v: %w", k, err), j.Restore(context.WithoutCancel(ctx)))
		}
	}
	return j, nil
}

func (j *Journal) change(ctx context.Context, k Knob) error {
	before, err := k.state(ctx)
	if err != nil {
		return fmt.Errorf("cannot be read before it is changed: %w", err)
	}
	if k, err = k.settled(before); err != nil {
		return err
	}
	j.Steps = append(j.Steps, Step{Knob: k, Before: before})
	if err := j.save(); err != nil {
		j.Steps = j.Steps[:len(j.Steps)-1]
		return fmt.Errorf("journal: %w", err)
	}
	if err := k.do(ctx); err != nil {
		return err
	}
	after, err := k.state(ctx)
	if err != nil {
		return fmt.Errorf("cannot be read back: %w", err)
	}
	if (k.File != "" || k.CMToS != "") && after != k.Value {
		return fmt.Errorf("%q was written, %q is read back", k.Value, after)
	}
	if k.vendor() != "" {
		if err := k.unlike(ctx); err != nil {
			return err
		}
	} else if k.File == "" && k.CMToS == "" && after == before {
		return fmt.Errorf("changed nothing: %q shows what it showed before", strings.Join(k.show(), " "))
	}
	j.Steps[len(j.Steps)-1].After = &after
	return j.save()
}

// Restore puts everything back in reverse order, as far as it can, and removes the journal, or leaves in it what is left
// to do. The error has a line for each knob that is not as it was, with what to type.
func (j *Journal) Restore(ctx context.Context) error {
	var left []Step
	var errs []error
	for i := len(j.Steps) - 1; i >= 0; i-- {
		s := j.Steps[i]
		if err := s.restore(ctx); err != nil {
			left = append([]Step{s}, left...)
			errs = append(errs, fmt.Errorf("%v: %w; by hand: %s", s.Knob, err, s.Knob.byHand(s.Before)))
		}
	}
	if len(left) > 0 {
		j.Steps = left
		return errors.Join(append(errs, j.save())...)
	}
	if err := os.Remove(j.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

func (s Step) restore(ctx context.Context) error {
	if s.Knob.CMToS != "" {
		return s.cmRestore(ctx)
	}
	now, err := s.Knob.state(ctx)
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	if now == s.Before {
		return nil // a reboot, or a change that was never made
	}
	if s.After != nil && now != *s.After {
		return fmt.Errorf("is now %q, neither what the run made (%q) nor what was before (%q): left as it is", now, *s.After, s.Before)
	}
	undo := s.Knob
	undo.Value, undo.Do = s.Before, s.Knob.Undo
	if undo.vendor() != "" {
		undo.Set = mft.Split(s.Before)
	}
	if err := undo.do(ctx); err != nil {
		return err
	}
	if now, err = s.Knob.state(ctx); err != nil {
		return fmt.Errorf("cannot be read back: %w", err)
	}
	if now != s.Before {
		return fmt.Errorf("is %q after it was put back, it was %q", now, s.Before)
	}
	return nil
}

// state is what the knob is now.
func (k Knob) state(ctx context.Context) (string, error) {
	if k.File != "" {
		data, err := os.ReadFile(k.File)
		return chosen(string(data)), err
	}
	if k.CMToS != "" {
		return k.cmState()
	}
	if k.vendor() != "" {
		return k.vendorState(ctx)
	}
	return command(ctx, k.show())
}

// do turns the knob. Files of the kernel are written in one piece and never made.
func (k Knob) do(ctx context.Context) error {
	if k.vendor() != "" {
		for _, c := range k.setCommands() {
			if _, err := command(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}
	if k.CMToS != "" {
		return k.cmSet(k.Value)
	}
	if k.File == "" {
		_, err := command(ctx, k.Do)
		return err
	}
	return writeInto(k.File, k.Value)
}

func writeInto(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}

func command(ctx context.Context, argv []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.WaitDelay = time.Second
	c.Env = append(os.Environ(), "LC_ALL=C")
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	err := c.Run()
	if ctx.Err() == context.DeadlineExceeded {
		err = fmt.Errorf("not done within %v", stepTimeout)
	}
	if err != nil {
		return "", fmt.Errorf("%q: %w (%s)", strings.Join(argv, " "), err, strings.Join(strings.Fields(said.String()+" "+out.String()), " "))
	}
	return strings.TrimSpace(out.String()), nil
}
