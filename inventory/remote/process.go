package remote

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/pcmlab/pcmlab/inventory/remote/guard"
)

const (
	startWait  = time.Minute // for a guard to say that it is there
	stopWait   = guard.TermWait + 8*time.Second
	ackEvery   = 128 << 10                          // bytes of output
	silentWait = guard.Silence + guard.DefaultGrace // without a frame from the guard, heartbeats included
	// margin is what a guard may need beyond a command's deadline: TERM, KILL, restore, and the way back.
	margin = 20 * time.Second
)

// process is a command under a guard.
type process struct {
	h    *sshHost
	cmd  Cmd
	conf guard.Config
	bin  string

	ready    guard.ReadyInfo // after start
	held     bool
	startedC chan struct{} // closed when the command runs, or never will
	done     chan struct{} // closed after res and err are set
	cancel   context.CancelFunc

	stdout, stderr *sink
	input          *source

	mu       sync.Mutex
	link     *guardLink
	next     uint64 // numbered frames received
	pid      int
	started  time.Time
	released bool   // Go was sent
	stopped  string // the signal that Stop sent
	exit     *guard.ExitInfo
	res      Result
	err      error
}

var _ Process = (*process)(nil)

// guardLink is one SSH session that carries a guard's frames.
type guardLink struct {
	s      *session
	in     io.WriteCloser
	frames *guard.Reader
	stderr *tail

	mu sync.Mutex // writes
}

func (l *guardLink) send(f guard.Frame) error {
	b, err := f.Append(nil)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.in.Write(b)
	return err
}

// openLink runs a command line that speaks frames and reads up to their beginning. first is sent before.
func (h *sshHost) openLink(ctx context.Context, line string, first *guard.Frame) (*guardLink, guard.ReadyInfo, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startWait, fmt.Errorf("guard not ready within %v", startWait))
	defer cancel()
	var ready guard.ReadyInfo
	s, err := h.session(ctx)
	if err != nil {
		return nil, ready, err
	}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	fail := func(err error) (*guardLink, guard.ReadyInfo, error) {
		if !stop() {
			err = context.Cause(ctx)
		}
		s.Close()
		return nil, ready, err
	}
	l := &guardLink{s: s, stderr: newTail(8 << 10)}
	out, err1 := s.StdoutPipe()
	in, err2 := s.StdinPipe()
	if err := errors.Join(err1, err2); err != nil {
		return fail(err)
	}
	l.in = in
	s.Stderr = l.stderr
	if err := s.Session.Start(line); err != nil {
		return fail(fault(Infrastructure, "", "start guard: %w", err))
	}
	if first != nil {
		if err := l.send(*first); err != nil {
			return fail(err)
		}
	}
	br := bufio.NewReaderSize(out, 64<<10)
	if noise, err := skipTo(br, guard.Magic); err != nil {
		settle(s) // so that all of stderr is there
		return fail(fault(Infrastructure, "", "guard did not begin: %w (%q)", err, lastLine(append(noise, l.stderr.bytes()...))))
	}
	l.frames = guard.NewReader(br)
	f, err := l.frames.Read()
	if err == nil && f.Type != guard.Ready {
		err = fmt.Errorf("first frame %q", f.Type)
	}
	if err == nil {
		err = json.Unmarshal(f.Payload, &ready)
	}
	if err != nil {
		return fail(fault(Infrastructure, "", "guard's first frame: %w", err))
	}
	if !stop() {
		return fail(context.Cause(ctx))
	}
	return l, ready, nil
}

// settle waits a moment for a session whose guard ends.
func settle(s *session) {
	ended := make(chan struct{})
	go func() { s.Session.Wait(); close(ended) }()
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
	}
	s.Close()
}

// skipTo reads up to and including the magic line; a login shell may print something before it.
func skipTo(br *bufio.Reader, magic string) (noise []byte, err error) {
	const most = 64 << 10
	for len(noise) < most {
		b, err := br.ReadByte()
		if err != nil {
			return noise, err
		}
		noise = append(noise, b)
		if b == '\n' && strings.HasSuffix(string(noise[max(0, len(noise)-len(magic)):]), magic) {
			return noise, nil
		}
	}
	return noise, fmt.Errorf("%d bytes without its first line", most)
}

func (h *sshHost) startGuarded(ctx context.Context, bin string, c Cmd) (*process, error) {
	p := &process{
		h: h, cmd: c, bin: bin, held: c.Hold, startedC: make(chan struct{}), done: make(chan struct{}),
		conf: guard.Config{Run: h.pool.o.Run, Deadline: c.Deadline, Hold: c.Hold, Stdin: c.Stdin != nil, Dir: c.Dir, Env: c.Env, Restore: c.Restore, Args: c.Args, Term: c.Term},
	}
	l, ready, err := h.openLink(ctx, "exec "+quoteAll(append([]string{bin}, p.conf.Argv()...)), nil)
	if err != nil {
		return nil, err
	}
	p.link, p.ready = l, ready
	p.ack(l) // the guard waits only for an owner that it has heard to come back
	if err := h.pool.identify(h.name, ready.Host, ready.BootID); err != nil {
		l.send(guard.Frame{Type: guard.Stop, Payload: []byte("KILL")})
		l.s.Close()
		return nil, err
	}
	run, cancel := context.WithTimeoutCause(context.Background(), c.Deadline+c.Term+margin, fmt.Errorf("no word from the guard %v after the %w", margin, ErrDeadline))
	p.cancel = cancel
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		cancel()
		l.s.Close()
		return nil, ErrClosed
	}
	h.procs[p] = true
	h.mu.Unlock()
	p.stdout, p.stderr = newSink(c.MaxOut, c.Stdout), newSink(c.MaxOut, c.Stderr)
	h.pool.wg.Go(func() { p.run(run) })
	if c.Stdin != nil {
		p.input = newSource()
		// Not in the wait group: nothing can interrupt the caller's Read. It ends with that.
		go p.input.fill(c.Stdin, p.done)
		h.pool.wg.Go(func() { p.input.send(p) })
	}
	if c.Hold {
		return p, nil
	}
	return p, p.waitStarted(ctx)
}

// waitStarted waits until the command runs. A command that could not be executed is an error.
func (p *process) waitStarted(ctx context.Context) error {
	select {
	case <-p.startedC:
	case <-ctx.Done():
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
		defer cancel()
		p.leave(end)
		return context.Cause(ctx)
	}
	select {
	case <-p.done:
		p.mu.Lock()
		defer p.mu.Unlock()
		if errors.Is(p.err, ErrNotStarted) {
			return p.err
		}
	default:
	}
	return nil
}

// run carries the frames of the command to its end, over as many links as that takes.
func (p *process) run(ctx context.Context) {
	defer p.cancel()
	var lost error
	for {
		p.mu.Lock()
		l := p.link
		p.mu.Unlock()
		lost = p.carry(ctx, l)
		if p.exited() {
			// The guard ends now that its last word is acknowledged. Waiting for that keeps the promise that nothing is
			// left when Run returns, and gives the channel back when sshd has it back.
			settle(l.s)
			break
		}
		l.s.Close()
		if ctx.Err() != nil {
			break
		}
		if err := p.comeBack(ctx, lost); err != nil {
			lost = err
			break
		}
	}
	p.end(ctx, lost)
}

func (p *process) exited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit != nil
}

// carry handles the frames of one link until it ends or the command has.
func (p *process) carry(ctx context.Context, l *guardLink) error {
	stop := context.AfterFunc(ctx, func() { l.s.Close() })
	defer stop()
	quiet := time.AfterFunc(silentWait, func() { l.s.Close() })
	defer quiet.Stop()
	beat := make(chan struct{})
	ended := make(chan struct{})
	p.h.pool.wg.Go(func() { p.beats(l, beat, ended) })
	defer close(ended)

	unacked := 0
	for {
		quiet.Reset(silentWait) // only the waiting for a frame counts: a slow writer of the caller is no silence
		f, err := l.frames.Read()
		quiet.Stop()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrLost, p.lossDetail(l, err))
		}
		if err := p.received(ctx, f); err != nil {
			return err
		}
		if f.Type == guard.Exit {
			p.ack(l)
			return nil
		}
		if unacked += len(f.Payload); unacked >= ackEvery {
			unacked = 0
			select {
			case beat <- struct{}{}:
			default:
			}
		}
	}
}

// lossDetail says more about a link that ended than EOF.
func (p *process) lossDetail(l *guardLink, err error) error {
	if !l.s.t.alive() && l.s.t.err != nil {
		return l.s.t.err
	}
	if line := lastLine(l.stderr.bytes()); line != "" {
		return errors.New(line)
	}
	return err
}

func (p *process) beats(l *guardLink, now <-chan struct{}, ended <-chan struct{}) {
	t := time.NewTicker(guard.HeartbeatEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-now:
		case <-ended:
			return
		}
		if p.ack(l) != nil {
			return
		}
	}
}

func (p *process) ack(l *guardLink) error {
	p.mu.Lock()
	next := p.next
	p.mu.Unlock()
	return l.send(guard.Frame{Type: guard.Heartbeat, Payload: binary.BigEndian.AppendUint64(nil, next)})
}

func (p *process) received(ctx context.Context, f guard.Frame) error {
	switch f.Type {
	case guard.Stdout:
		p.stdout.write(ctx, f.Payload)
	case guard.Stderr:
		p.stderr.write(ctx, f.Payload)
	case guard.Started:
		var s guard.StartedInfo
		if err := json.Unmarshal(f.Payload, &s); err != nil {
			return fmt.Errorf("guard's frame %q: %w", f.Type, err)
		}
		p.mu.Lock()
		p.pid, p.started = s.PID, s.At
		p.mu.Unlock()
		close(p.startedC)
	case guard.Exit:
		var x guard.ExitInfo
		if err := json.Unmarshal(f.Payload, &x); err != nil {
			return fmt.Errorf("guard's frame %q: %w", f.Type, err)
		}
		p.mu.Lock()
		p.exit = &x
		p.mu.Unlock()
	case guard.Heartbeat:
		if p.input != nil && len(f.Payload) == 8 {
			p.input.consumed(binary.BigEndian.Uint64(f.Payload))
		}
	}
	if f.Type.Numbered() {
		p.mu.Lock()
		p.next++
		p.mu.Unlock()
	}
	return nil
}

// comeBack attaches to the guard again after the connection was cut, within the guard's grace.
func (p *process) comeBack(ctx context.Context, lost error) error {
	if p.ready.Token == "" {
		return lost
	}
	ctx, cancel := context.WithTimeout(ctx, guard.DefaultGrace)
	defer cancel()
	p.mu.Lock()
	next := p.next
	p.mu.Unlock()
	hello, err := json.Marshal(guard.AttachInfo{Token: p.ready.Token, Next: next})
	if err != nil {
		return err
	}
	line := "exec " + quoteAll([]string{p.bin, "guard", "attach", "--run", p.ready.Run, "--id", p.ready.ID})
	for n := 1; ; n++ {
		l, ready, err := p.h.openLink(ctx, line, &guard.Frame{Type: guard.Attach, Payload: hello})
		if err == nil {
			p.h.pool.o.Log.Info("came back to a running command", "host", p.h.name, "step", stepOf(p.cmd))
			p.mu.Lock()
			p.link = l
			released, stopped := p.released, p.stopped
			p.mu.Unlock()
			// What was asked for may have been lost with the old connection.
			if released && ready.Held {
				l.send(guard.Frame{Type: guard.Go})
			}
			if stopped != "" {
				l.send(guard.Frame{Type: guard.Stop, Payload: []byte(stopped)})
			}
			if p.input != nil {
				p.input.resume(ready.Input)
			}
			return nil
		}
		if errors.Is(err, ErrClosed) || strings.Contains(err.Error(), guard.GuardGone) {
			return lost
		}
		if pause(ctx, backoff(n, 0.5)) != nil {
			return fmt.Errorf("%w; coming back: %w", lost, err)
		}
	}
}

// end sets the result and tells everybody who waits.
func (p *process) end(ctx context.Context, lost error) {
	p.stdout.finish(ctx)
	p.stderr.finish(ctx)
	res := Result{
		Code: -1, Stdout: p.stdout.kept.bytes(), Stderr: p.stderr.kept.bytes(),
		Dropped: p.stdout.kept.droppedBytes() + p.stderr.kept.droppedBytes(),
		Host:    p.ready.Host, BootID: p.ready.BootID,
	}
	p.mu.Lock()
	x := p.exit
	res.Started = p.started
	p.mu.Unlock()
	res.Ended = time.Now()
	var err error
	switch {
	case x != nil:
		res.Code, res.Signal, res.Ended = x.Code, x.Signal, x.Ended
		res.Dropped += x.Dropped
		if x.Started != nil {
			res.Started = *x.Started
		}
		err = p.exitError(x, res)
	case ctx.Err() != nil:
		err = fault(Infrastructure, "", "%w", context.Cause(ctx))
	default:
		err = fault(Infrastructure, "while the host is up, its guard stops it; pcmlab cleanup --run "+p.conf.Run+" -i "+cmp.Or(p.h.pool.lab.File, "LAB")+" shows what was left", "%w", lost)
	}
	err = errors.Join(err, p.stdout.failure("standard output"), p.stderr.failure("standard error"))
	p.h.mu.Lock()
	delete(p.h.procs, p)
	p.h.mu.Unlock()

	p.mu.Lock()
	p.res, p.err = res, wrap(p.h.name, stepOf(p.cmd), err)
	p.mu.Unlock()
	close(p.done)
	select {
	case <-p.startedC:
	default:
		close(p.startedC)
	}
}

// exitError is the error that an end stands for. A command that ran and failed is none.
func (p *process) exitError(x *guard.ExitInfo, res Result) error {
	var errs []error
	switch x.Cause {
	case "":
		if p.cmd.Sudo && x.Code != 0 {
			if says, tty, ok := sudoRefused(res.Stderr); ok {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				errs = append(errs, p.h.sudoFault(ctx, p.cmd, says, tty, res.Stderr))
			}
		}
	case guard.CauseStop:
	case guard.CauseDeadline:
		errs = append(errs, fault(Infrastructure, "", "%w: not done within %v", ErrDeadline, p.conf.Deadline))
	case guard.CauseStart:
		fix := ""
		if strings.Contains(x.Error, "not found") || strings.Contains(x.Error, "no such file") {
			fix = fmt.Sprintf("is %s installed on %s?", p.cmd.Args[0], p.h.name)
		}
		kind := Infrastructure
		if strings.Contains(x.Error, "permission denied") {
			kind = Permission
		}
		errs = append(errs, fault(kind, fix, "%w: %s", ErrNotStarted, x.Error))
	default:
		errs = append(errs, fault(Infrastructure, "", "%w: its guard stopped it: %s", ErrLost, x.Cause))
	}
	if len(x.Left) > 0 {
		errs = append(errs, fault(Permission, "allow sudo -n kill on "+p.h.name+", or stop them by hand", "could not be stopped: %s", strings.Join(x.Left, ", ")))
	}
	if r := x.Restore; r != nil && r.Code != 0 {
		errs = append(errs, fault(Infrastructure, "restore it by hand", "restore %q: status %d %s: %q", r.Args, r.Code, r.Error, lastLine([]byte(r.Output))))
	}
	return errors.Join(errs...)
}

// PID is the number of the command on the host; 0 while it is held.
func (p *process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Release lets a held command start and waits until it runs.
func (p *process) Release(ctx context.Context) error {
	if !p.held {
		return &Error{Host: p.h.name, Step: stepOf(p.cmd), Kind: Usage, Err: errors.New("release: it was not held")}
	}
	p.mu.Lock()
	l := p.link
	p.released = true
	p.mu.Unlock()
	l.send(guard.Frame{Type: guard.Go}) // on a link that has just died: sent again on the next one
	return wrap(p.h.name, stepOf(p.cmd), p.waitStarted(ctx))
}

// Stop sends a signal to the command and all that it started; what is left after 2 s is killed. It does not wait.
func (p *process) Stop(ctx context.Context, signal string) error {
	if isDone(p) {
		return nil
	}
	signal = strings.TrimPrefix(signal, "SIG")
	p.mu.Lock()
	l := p.link
	if p.stopped == "" {
		p.stopped = signal
	}
	p.mu.Unlock()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		l.send(guard.Frame{Type: guard.Stop, Payload: []byte(signal)}) // a dead link: sent again on the next one
	}()
	select {
	case <-sent:
		return nil
	case <-p.done:
		return nil
	case <-ctx.Done():
		return &Error{Host: p.h.name, Step: stepOf(p.cmd), Err: fmt.Errorf("stop: %w", context.Cause(ctx))}
	}
}

// leave stops the command since its host is being closed; what the guard has to say is not awaited for long.
func (p *process) leave(ctx context.Context) {
	p.Stop(ctx, "TERM")
	select {
	case <-p.done:
	case <-ctx.Done():
	}
	p.cancel()
}

// Wait waits for the end of the command. The result is whole also with an error about its end.
func (p *process) Wait(ctx context.Context) (Result, error) {
	select {
	case <-p.done:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.res, p.err
	case <-ctx.Done():
		select {
		case <-p.done:
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.res, p.err
		default:
		}
		return Result{Code: -1}, &Error{Host: p.h.name, Step: stepOf(p.cmd), Err: fmt.Errorf("wait: %w", context.Cause(ctx))}
	}
}

// Done is closed when the command has ended.
func (p *process) Done() <-chan struct{} { return p.done }
