package experiments

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pcmlab/pcmlab/inventory/remote"
)

// runningCaptures are the taps of a run while they listen.
type runningCaptures struct {
	r    *Runner
	taps []*runningTap
}

type runningTap struct {
	PlannedCapture
	process remote.Process
	file    string // on the host
	stopped bool
}

// captureReady is how long a tap may take until it listens.
const captureReady = 15 * time.Second

// startCaptures starts every tap and returns when each has said that it listens: taps are ready before the first packet.
func (r *Runner) startCaptures(ctx context.Context) (*runningCaptures, error) {
	rc := &runningCaptures{r: r}
	g, gctx := errgroup.WithContext(ctx)
	for _, c := range r.plan.Captures {
		tap := &runningTap{PlannedCapture: c, file: path.Join(r.dirs[c.Host], c.Tap+".pcapng")}
		rc.taps = append(rc.taps, tap)
		g.Go(func() error { return rc.start(gctx, tap) })
	}
	r.onUndo("stop captures", func(ctx context.Context) error { return rc.stop(ctx) })
	return rc, g.Wait()
}

func (rc *runningCaptures) start(ctx context.Context, tap *runningTap) error {
	r := rc.r
	watch := newWatcher("listening on")
	step := "capture " + tap.Tap + " on " + tap.Iface
	p, err := r.hosts[tap.Host].Start(ctx, remote.Cmd{Args: captureCommand(tap.PlannedCapture, tap.file), Sudo: r.Lab.Host(tap.Host).Sudo,
		Stderr: watch, Step: step, Deadline: r.plan.Duration + 20*time.Minute})
	if err != nil {
		return err
	}
	tap.process = p
	wait, cancel := context.WithTimeout(ctx, captureReady)
	defer cancel()
	select {
	case <-watch.seen:
		r.event(Event{Event: "capture_ready", Host: tap.Host, Text: tap.Tap})
		return nil
	case <-p.Done():
		res, err := p.Wait(ctx)
		if err == nil {
			err = fmt.Errorf("exit status %d (%s)", res.Code, lastLine(res.Stderr))
		}
		return &remote.Error{Host: tap.Host, Step: step, Err: err}
	case <-wait.Done():
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &remote.Error{Host: tap.Host, Step: step, Err: fmt.Errorf("does not listen after %v (%s)", captureReady, lastLine(watch.tail()))}
	}
}

// stop ends every tap, which drains it, fetches the files into the bundle and reports what broke.
func (rc *runningCaptures) stop(ctx context.Context) error {
	errs := make([]error, len(rc.taps))
	var wg sync.WaitGroup
	for i, tap := range rc.taps {
		if tap.process == nil || tap.stopped {
			continue
		}
		tap.stopped = true
		wg.Go(func() { errs[i] = rc.collect(ctx, tap) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (rc *runningCaptures) collect(ctx context.Context, tap *runningTap) error {
	r := rc.r
	step := "stop capture " + tap.Tap
	var broke error
	select {
	case <-tap.process.Done(): // it ended before it was told to
		broke = errors.New("ended before the run did")
	default:
		if err := tap.process.Stop(ctx, "INT"); err != nil {
			broke = err
		}
	}
	res, err := tap.process.Wait(ctx)
	switch {
	case err != nil:
		broke = errors.Join(broke, err)
	case res.Code != 0 || broke != nil:
		broke = errors.Join(broke, fmt.Errorf("exit status %d (%s)", res.Code, lastLine(res.Stderr)))
	}
	name := "captures/" + tap.Tap
	if err == nil {
		r.bundle.Write(name+".json", res.Stdout)
	}
	if err := r.fetch(ctx, tap.Host, tap.file, tap.File); err != nil {
		broke = errors.Join(broke, err)
	}
	r.event(Event{Event: "capture_stopped", Host: tap.Host, Text: tap.Tap})
	if broke != nil {
		return &remote.Error{Host: tap.Host, Step: step, Err: broke}
	}
	return nil
}

// fetch copies a file of a host into the bundle.
func (r *Runner) fetch(ctx context.Context, host, from, to string) error {
	p, err := r.bundle.Path(to)
	if err != nil {
		return err
	}
	f, err := os.Create(p)
	if err != nil {
		return err
	}
	return errors.Join(r.hosts[host].Get(ctx, from, f), f.Close())
}

// watcher waits for a word in a stream.
type watcher struct {
	want []byte
	seen chan struct{}

	mu   sync.Mutex
	buf  []byte
	done bool
}

func newWatcher(word string) *watcher {
	return &watcher{want: []byte(word), seen: make(chan struct{})}
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = append(w.buf, p...)
	if !w.done && bytes.Contains(w.buf, w.want) {
		w.done = true
		close(w.seen)
	}
	if len(w.buf) > 8192 {
		w.buf = append(w.buf[:0], w.buf[len(w.buf)-4096:]...)
	}
	return len(p), nil
}

func (w *watcher) tail() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.buf)
}
