package experiments

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

// runningCaptures are the taps of a run while they listen.
type runningCaptures struct {
	r        *Runner
	taps     []*runningTap
	together string // the folder on their host in which all files are to be analysed
	left     bool   // the files stay there
}

type runningTap struct {
	*PlannedCapture
	program capture.Program
	options capture.TapOptions // with the file on the host
	process remote.Process
	why     []string // what programs before it said

	stopped bool
	said    *capture.ToolCounts // nil: it said nothing
	stats   *capture.TapStats   // of this program's own tap
	files   []tapFile
}

// tapFile is a file of a capture on its host.
type tapFile struct {
	Name   string `json:"name"` // as it is kept
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256,omitempty"`
	Path   string `json:"path,omitempty"` // on the host, where it stayed there

	made string // the name that the program gave it
}

// captureReady is how long a tap may take until it listens: on a slow host a program of this size takes several seconds to start.
const captureReady = 45 * time.Second

// startCaptures starts every tap and returns when each has said that it listens: taps are ready before the first packet.
func (r *Runner) startCaptures(ctx context.Context) (*runningCaptures, error) {
	rc := &runningCaptures{r: r}
	g, gctx := errgroup.WithContext(ctx)
	for i := range r.plan.Captures {
		tap := &runningTap{PlannedCapture: &r.plan.Captures[i]}
		rc.taps = append(rc.taps, tap)
		g.Go(func() error { return rc.start(gctx, tap) })
	}
	r.captured = rc
	r.onUndo("stop captures", func(ctx context.Context) error { return rc.stop(ctx) })
	err := g.Wait()
	for _, tap := range rc.taps {
		if len(tap.why) > 0 && tap.process != nil {
			r.result.warn(fmt.Sprintf("tap %s on %s is captured by %s: %s", tap.Tap, tap.Host, tap.program, strings.Join(tap.why, "; ")))
		}
	}
	return rc, err
}

// start starts the first program that can.
func (rc *runningCaptures) start(ctx context.Context, tap *runningTap) error {
	programs := capture.Programs
	if tap.PlannedCapture.program != "" {
		programs = []capture.Program{tap.PlannedCapture.program}
	} else if tap.PlannedCapture.options.Hardware {
		programs = programs[:1]
	}
	var errs []error
	for _, p := range programs {
		tap.program, tap.options = p, tap.into(p, rc.r.dirs[tap.Host])
		err := rc.startProgram(ctx, tap)
		if err == nil {
			rc.r.event(Event{Event: "capture_ready", Host: tap.Host, Text: tap.Tap})
			return nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil || !mayNot(err) {
			break
		}
		tap.why = append(tap.why, reason(err))
	}
	return errors.Join(errs...)
}

// errNotHere says that another program may be able to do what this one cannot: it is not there, or has no right to capture.
var errNotHere = errors.New("cannot capture here")

func mayNot(err error) bool {
	return errors.Is(err, errNotHere) || errors.Is(err, remote.ErrNotStarted)
}

// reason is an error in the words of its cause, without host and step.
func reason(err error) string {
	var e *remote.Error
	if errors.As(err, &e) {
		return e.Err.Error()
	}
	return err.Error()
}

// refused are the words with which programs say that they have no right to capture, or are not there. A name, a filter or an interface that is
// wrong is wrong for the next one, too.
var refused = []string{"not allowed here", "don't have permission", "not permitted", "command not found", "not found", "ermission denied"}

func (rc *runningCaptures) startProgram(ctx context.Context, tap *runningTap) error {
	r := rc.r
	step := "capture " + tap.Tap + " on " + tap.Iface
	if tap.program != capture.Own {
		step += " with " + string(tap.program)
	} else if ok, why := r.guarded(tap.Host); !ok {
		return &remote.Error{Host: tap.Host, Step: step, Err: fmt.Errorf("pcmlab %w: %s", errNotHere, why)}
	}
	watch := newWatcher(tap.program.Ready())
	p, err := r.hosts[tap.Host].Start(ctx, remote.Cmd{Args: tap.program.Args(tap.options), Sudo: r.Lab.Host(tap.Host).Sudo,
		Stderr: watch, Step: step, Deadline: r.plan.Duration + 20*time.Minute})
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, captureReady)
	defer cancel()
	select {
	case <-watch.seen:
		tap.process = p
		return nil
	case <-p.Done():
		res, err := p.Wait(ctx)
		if err == nil {
			err = fmt.Errorf("exit status %d (%s)", res.Code, lastLine(res.Stderr))
		}
		for _, words := range refused {
			if bytes.Contains(res.Stderr, []byte(words)) {
				err = fmt.Errorf("%s %w: %w", tap.program, errNotHere, err)
				break
			}
		}
		return &remote.Error{Host: tap.Host, Step: step, Err: err}
	case <-wait.Done():
		tap.process = p // to be stopped with the others
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &remote.Error{Host: tap.Host, Step: step, Err: fmt.Errorf("does not listen after %v (%s)", captureReady, lastLine(watch.tail()))}
	}
}

// stop ends every tap, which drains it, and reports what broke.
func (rc *runningCaptures) stop(ctx context.Context) error {
	errs := make([]error, len(rc.taps))
	var wg sync.WaitGroup
	for i, tap := range rc.taps {
		if tap.process == nil || tap.stopped {
			continue
		}
		tap.stopped = true
		wg.Go(func() { errs[i] = rc.end(ctx, tap) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// end ends one tap and keeps what it said.
func (rc *runningCaptures) end(ctx context.Context, tap *runningTap) error {
	r := rc.r
	var broke error
	early := false
	select {
	case <-tap.process.Done(): // it ended before it was told to
		early = true
	default:
		broke = errors.Join(rc.settle(ctx, tap), tap.process.Stop(ctx, "INT"))
	}
	res, err := tap.process.Wait(ctx)
	switch {
	case err != nil:
		broke = errors.Join(broke, err)
	case early && res.Signal != "":
		broke = fmt.Errorf("ended before the run did, by signal %s; find out who ended it: a user, or the kernel (dmesg: out of memory)", strings.TrimPrefix(res.Signal, "SIG"))
	case early:
		broke = fmt.Errorf("ended before the run did, with exit status %d (%s)", res.Code, lastLine(res.Stderr))
	// Without a guard the signal goes to the user's shell, too, which may die of it although the program ends well: what that said counts.
	case res.Code != 0 && strings.TrimPrefix(res.Signal, "SIG") != "INT" || broke != nil:
		broke = errors.Join(broke, fmt.Errorf("exit status %d (%s)", res.Code, lastLine(res.Stderr)))
	}
	if err == nil {
		broke = errors.Join(broke, rc.counted(tap, res))
	}
	var names error
	tap.files, names = rc.list(ctx, tap)
	broke = errors.Join(broke, names)
	r.event(Event{Event: "capture_stopped", Host: tap.Host, Text: tap.Tap})
	if broke != nil {
		return &remote.Error{Host: tap.Host, Step: "stop capture " + tap.Tap, Err: broke}
	}
	return nil
}

// counted keeps what a tap said of itself.
func (rc *runningCaptures) counted(tap *runningTap, res remote.Result) error {
	text := res.Stderr
	if tap.program == capture.Own {
		if text = res.Stdout; len(text) == 0 && res.Code != 0 {
			return nil // it could not say
		}
		var s capture.TapStats
		if err := json.Unmarshal(text, &s); err != nil {
			return fmt.Errorf("its statistics: %w", err)
		}
		tap.stats = &s
		if err := rc.r.bundle.Write("captures/"+tap.Tap+".json", text); err != nil {
			return err
		}
		text, _ = json.Marshal(s) // on one line
	} else if err := rc.r.bundle.Write("captures/"+tap.Tap+".stderr", text); err != nil {
		return err
	}
	said, err := capture.ParseToolCounts(string(text))
	if err != nil {
		return err
	}
	said.Ring = said.Ring || tap.options.Files > 0
	tap.said = &said
	return nil
}

// settle waits until a program of others has written what it has taken: its files have not grown for as long as it may hold something back.
func (rc *runningCaptures) settle(ctx context.Context, tap *runningTap) error {
	idle := tap.program.Idle()
	if idle == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	tick := time.NewTicker(idle)
	defer tick.Stop()
	last := int64(-1)
	for {
		files, err := rc.list(ctx, tap)
		if ctx.Err() != nil {
			rc.r.event(Event{Event: "note", Text: fmt.Sprintf("capture %s goes on growing %v after the traffic", tap.Tap, drainTimeout)})
			return nil
		}
		if err != nil {
			return err
		}
		size := int64(len(files)) << 48
		for _, f := range files {
			size += f.Bytes
		}
		if size == last {
			return nil
		}
		last = size
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// list finds the files of a tap in the run's folder on its host.
func (rc *runningCaptures) list(ctx context.Context, tap *runningTap) ([]tapFile, error) {
	const script = `cd "$1" && for f in *; do [ -f "$f" ] && printf '%s %s\n' "$(wc -c <"$f")" "$f"; done; true`
	step := "look for the files of capture " + tap.Tap
	res, err := rc.r.hosts[tap.Host].Run(ctx, remote.Cmd{Args: []string{"sh", "-c", script, "files", path.Dir(tap.options.File)}, Sudo: rc.r.Lab.Host(tap.Host).Sudo, Step: step, MaxOut: 4 << 20})
	if err == nil && res.Code != 0 {
		err = &remote.Error{Host: tap.Host, Step: step, Err: fmt.Errorf("exit status %d (%s)", res.Code, lastLine(res.Stderr))}
	}
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	var names []string
	for line := range strings.Lines(string(res.Stdout)) {
		size, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		var n int64
		if _, err := fmt.Sscan(size, &n); err == nil {
			sizes[name] = n
			names = append(names, name)
		}
	}
	var out []tapFile
	for _, name := range tap.program.Files(tap.options, names) {
		out = append(out, tapFile{Name: tap.program.Kept(name), Bytes: sizes[name], made: name})
	}
	if len(out) == 0 {
		return nil, &remote.Error{Host: tap.Host, Step: step, Err: fmt.Errorf("there is none like %s", tap.options.File)}
	}
	return out, nil
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
