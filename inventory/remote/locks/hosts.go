package locks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pcmlab/pcmlab/inventory/remote"
)

// Code is the exit status of `pcmlab locks` when somebody else holds what was asked for; its standard output then has
// the []Held as JSON.
const Code = 5

// Ready is what `pcmlab locks hold` prints when it holds.
const Ready = "held"

// Take makes a person's lock on a host. What it replaced, a lock of the same person, is returned; nil: none.
func Take(ctx context.Context, h remote.Host, l Lock) (before *Lock, err error) {
	const step = "take the lock"
	out, err := ask(ctx, h, step, "take", l)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(out, &before); err != nil {
		return nil, &remote.Error{Host: h.Name(), Step: step, Err: fmt.Errorf("answer %q: %w", out, err)}
	}
	return before, nil
}

// Drop takes a person's lock on a host away.
func Drop(ctx context.Context, h remote.Host, id string) error {
	_, err := ask(ctx, h, "take the lock away", "drop", Lock{ID: id})
	return err
}

// List is the locks of a host.
func List(ctx context.Context, h remote.Host) ([]Lock, error) {
	out, err := ask(ctx, h, "list the locks", "list", nil)
	if err != nil {
		return nil, err
	}
	var all []Lock
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, &remote.Error{Host: h.Name(), Step: "list the locks", Err: fmt.Errorf("answer %q: %w", out, err)}
	}
	return all, nil
}

func ask(ctx context.Context, h remote.Host, step, verb string, arg any) ([]byte, error) {
	args := []string{"pcmlab", "locks", verb}
	if arg != nil {
		data, err := json.Marshal(arg)
		if err != nil {
			return nil, err
		}
		args = append(args, string(data))
	}
	res, err := h.Run(ctx, remote.Cmd{Args: args, Step: step, MaxOut: 8 << 20})
	if err != nil {
		return nil, err
	}
	return res.Stdout, failure(h, step, res)
}

// failure makes an error of a command's end; nil when it went well.
func failure(h remote.Host, step string, res remote.Result) error {
	switch res.Code {
	case 0:
		return nil
	case Code:
		var held []Held
		if err := json.Unmarshal(res.Stdout, &held); err == nil && len(held) > 0 {
			for i := range held {
				held[i].HostName = h.Name()
			}
			return &BusyError{held}
		}
	}
	return &remote.Error{Host: h.Name(), Step: step, Err: fmt.Errorf("exit status %d (%s)", res.Code, strings.TrimSpace(string(res.Stderr)))}
}

// Want is what a run needs on one host.
type Want struct {
	Host remote.Host
	Lock Lock
}

// Hold takes a run's locks on all hosts or on none, and holds them until release is called, this process is lost, or their
// time is over. What others hold is waited for, no longer than wait; say is told whom for, when that changes.
func Hold(ctx context.Context, wants []Want, wait time.Duration, say func(string)) (release func(context.Context) error, err error) {
	until := time.Now().Add(wait)
	told := ""
	for {
		release, err := hold(ctx, wants)
		var busy *BusyError
		if err == nil || !errors.As(err, &busy) {
			return release, err
		}
		// Each waits a little differently, so that two that want each other's hosts do not collide for ever.
		pause := time.Second + rand.N(time.Second)
		if time.Now().Add(pause).After(until) {
			return nil, err
		}
		if text := busy.Error(); text != told && say != nil {
			told = text
			say(text)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// hold tries once.
func hold(ctx context.Context, wants []Want) (func(context.Context) error, error) {
	processes := make([]remote.Process, len(wants))
	errs := make([]error, len(wants))
	var wg sync.WaitGroup
	for i, w := range wants {
		wg.Go(func() { processes[i], errs[i] = holdOne(ctx, w) })
	}
	wg.Wait()
	release := func(ctx context.Context) error {
		errs := make([]error, len(processes))
		var wg sync.WaitGroup
		for i, p := range processes {
			if p == nil {
				continue
			}
			wg.Go(func() {
				if errs[i] = p.Stop(ctx, "TERM"); errs[i] == nil {
					_, errs[i] = p.Wait(ctx)
				}
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	}
	if err := together(errs); err != nil {
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return nil, errors.Join(err, release(back))
	}
	return release, nil
}

// together joins errors; if all are of busy hosts, so is the whole.
func together(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	all := &BusyError{}
	for _, err := range errs {
		var busy *BusyError
		if !errors.As(err, &busy) {
			return errors.Join(errs...)
		}
		all.Held = append(all.Held, busy.Held...)
	}
	if len(all.Held) == 0 {
		return nil
	}
	return all
}

// dropTime is how long the process that holds a lock may take to drop it, on a host that is busy with what the run left.
const dropTime = 10 * time.Second

func holdOne(ctx context.Context, w Want) (remote.Process, error) {
	const step = "take the run's lock"
	data, err := json.Marshal(w.Lock)
	if err != nil {
		return nil, err
	}
	p, ended, err := remote.StartReady(ctx, w.Host, remote.Cmd{Args: []string{"pcmlab", "locks", "hold", string(data)}, Step: step,
		Deadline: max(time.Until(w.Lock.Expires), time.Second), Term: dropTime, MaxOut: 8 << 20}, Ready)
	if err == nil && ended != nil {
		if err = failure(w.Host, step, *ended); err == nil {
			err = &remote.Error{Host: w.Host.Name(), Step: step, Err: errors.New("ended without holding it")}
		}
	}
	return p, err
}
