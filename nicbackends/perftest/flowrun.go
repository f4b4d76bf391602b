package perftest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

// end is one end of a flow in a session.
type end struct {
	role     Role
	host     remote.Host
	nic      *inventory.NIC
	params   Params
	gid      GIDChoice
	toolPath string // "": by name, from the host's PATH
	core     *int
}

func newEnd(role Role, e Endpoint, p Params) end {
	return end{role: role, host: e.Host, nic: e.NIC, params: p.On(e.NIC)}
}

// argv is the whole command line of this end.
func (e *end) argv(serverAddress string) []string {
	args := e.params.ServerArgs()
	if e.role == Client {
		args = e.params.ClientArgs(serverAddress)
	}
	if e.toolPath != "" {
		args[0] = e.toolPath
	}
	if e.core != nil {
		args = pinned(*e.core, args)
	}
	return args
}

// proc is one started process and what it left.
type proc struct {
	remote.Process
	done chan struct{} // closed when side is complete

	mu   sync.Mutex
	side Side
}

// view is a copy of what is known of the process now.
func (p *proc) view() *Side {
	p.mu.Lock()
	defer p.mu.Unlock()
	side := p.side
	return &side
}

func (p *proc) set(change func(*Side)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.side)
}

func (p *proc) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// flowRun drives one flow. Its goroutine, started by release, owns the flow until done is closed.
type flowRun struct {
	o              SessionOptions
	flow           Flow
	server, client end
	done           chan struct{} // closed when the flow has ended, or never was let go and was stopped

	mu          sync.Mutex
	sp, cp      *proc
	began       time.Time
	released    bool
	stopping    bool
	retries     int
	notes       []string
	final       *FlowResult
	closeDone   sync.Once
	stopRequest chan struct{} // closed by stop
	stopOnce    sync.Once
}

func newFlowRun(o SessionOptions, f Flow) *flowRun {
	return &flowRun{o: o, flow: f, server: newEnd(Server, f.Server, f.Params), client: newEnd(Client, f.Client, f.Params),
		done: make(chan struct{}), stopRequest: make(chan struct{})}
}

func (r *flowRun) start(ctx context.Context, e *end, hold bool) (*proc, error) {
	meet := r.flow.Meet
	if !meet.IsValid() {
		meet = r.flow.Server.NIC.IP.Addr()
	}
	argv := e.argv(meet.String())
	p := &proc{done: make(chan struct{}), side: Side{Role: e.role, Host: e.host.Name(), Argv: argv, Started: time.Now()}}
	process, err := e.host.Start(ctx, remote.Cmd{
		Args: argv, Deadline: r.o.Life, Hold: hold,
		Step: fmt.Sprintf("start %s %s for flow %s", e.params.ToolName(), e.role, r.flow.Name),
	})
	if err != nil {
		return nil, err
	}
	p.Process = process
	go func() {
		defer close(p.done)
		// The guard's deadline bounds this wait; ctx of the caller must not, since the process outlives it.
		res, err := process.Wait(context.WithoutCancel(ctx))
		if res.Dropped > 0 {
			r.note(fmt.Sprintf("%s: %d bytes of output were dropped", e.role, res.Dropped))
		}
		p.set(func(s *Side) {
			s.Code, s.Signal, s.Stdout, s.Stderr, s.BootID, s.Ended = res.Code, res.Signal, res.Stdout, res.Stderr, res.BootID, res.Ended
			if !res.Started.IsZero() {
				s.Started = res.Started
			}
			if s.Ended.IsZero() {
				s.Ended = time.Now()
			}
			switch {
			// A host that is lost may wrap the end of the time in which it was tried again: that is no deadline of the tool's.
			case !errors.Is(err, remote.ErrLost) && (errors.Is(err, remote.ErrDeadline) || errors.Is(err, context.DeadlineExceeded)):
				s.TimedOut = true
			case err != nil && !s.Stopped && !s.TimedOut:
				s.Transport = err
			}
		})
	}()
	return p, nil
}

func (r *flowRun) note(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, s)
}

// startServer starts the server and waits until it listens.
func (r *flowRun) startServer(ctx context.Context) error {
	p, err := r.start(ctx, &r.server, false)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.sp = p
	r.mu.Unlock()
	waited := time.Now()
	// A server that ends at once is told by its own end sooner than by the socket table.
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		answer <- WaitListening(wctx, r.server.host, p.PID(), r.server.params.TCPPort(), r.server.params.RDMACM, r.o.Listen)
	}()
	select {
	case <-p.done:
		cancel()
		<-answer
		err = &notListening{port: r.server.params.TCPPort(), gone: true}
	case err = <-answer:
	}
	if err == nil {
		p.set(func(s *Side) { s.Listened = true })
		r.o.Progress(fmt.Sprintf("flow %s: server listens on %s port %d after %v", r.flow.Name, r.server.host.Name(), r.server.params.TCPPort(), time.Since(waited).Round(time.Millisecond)))
		return nil
	}
	return r.serverFailure(ctx, p, err)
}

// serverFailure turns "not listening" into the failure that the server's own words tell.
func (r *flowRun) serverFailure(ctx context.Context, p *proc, err error) error {
	var not *notListening
	if !errors.As(err, &not) {
		return err
	}
	if not.gone {
		select {
		case <-p.done:
		case <-time.After(r.o.Linger):
		}
	}
	if !p.ended() {
		_ = stopProc(ctx, p, r.o.Linger)
		return &Failure{Class: Timeout, Side: Server, Host: r.server.host.Name(), Cause: not.Error(),
			Fix: "start the tool by hand on that host and see what it waits for", ServerTail: tail(p.view())}
	}
	if f := Classify(nil, p.view()); f != nil {
		return f
	}
	return &Failure{Class: NoResult, Side: Server, Host: r.server.host.Name(), Cause: not.Error(), Fix: "read its last lines", ServerTail: tail(p.view())}
}

func (r *flowRun) startClient(ctx context.Context, hold bool) error {
	p, err := r.start(ctx, &r.client, hold)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.cp = p
	r.mu.Unlock()
	return nil
}

// release lets the held client go and starts the goroutine that follows the flow to its end.
func (r *flowRun) release(ctx context.Context) error {
	r.mu.Lock()
	p := r.cp
	switch {
	case p == nil:
		r.mu.Unlock()
		return errors.New("start: the client was not prepared")
	case r.released:
		r.mu.Unlock()
		return errors.New("start: the flow was started before")
	case r.stopping:
		r.mu.Unlock()
		return errors.New("start: the flow was stopped")
	}
	r.released = true
	r.mu.Unlock()
	now := time.Now()
	if err := p.Release(ctx); err != nil {
		r.mu.Lock()
		r.released = false
		r.mu.Unlock()
		return err
	}
	r.mu.Lock()
	r.began = now
	r.mu.Unlock()
	go r.follow(context.WithoutCancel(ctx))
	return nil
}

// limit is how long the client may run.
func (r *flowRun) limit() time.Duration {
	if d := r.flow.Params.Duration; d > 0 {
		return d + r.o.Slack
	}
	return r.o.Life
}

// follow waits for the flow's two processes, ends the one that hangs, repeats a start that met no listener once, and
// keeps the result.
func (r *flowRun) follow(ctx context.Context) {
	defer r.finish()
	for {
		r.mu.Lock()
		cp, sp := r.cp, r.sp
		r.mu.Unlock()
		r.waitBoth(ctx, cp, sp)
		f := Classify(cp.view(), sp.view())
		r.mu.Lock()
		again := f != nil && (f.Class == StartRace || f.Class == Unreachable) && r.retries == 0 && !r.stopping
		if again {
			r.retries++
			r.notes = append(r.notes, fmt.Sprintf("started again after %s: %s", f.Class, f.Cause))
		}
		r.mu.Unlock()
		if !again {
			return
		}
		if err := r.restart(ctx); err != nil {
			r.note(fmt.Sprintf("second start: %v", err))
			return
		}
	}
}

// restart starts the server, if it has ended, and the client anew. When it fails, the processes of the first start are
// what is reported.
func (r *flowRun) restart(ctx context.Context) error {
	r.mu.Lock()
	sp := r.sp
	r.mu.Unlock()
	if sp.ended() {
		if err := r.startServer(ctx); err != nil {
			return err
		}
	} else if err := WaitListening(ctx, r.server.host, sp.PID(), r.server.params.TCPPort(), r.server.params.RDMACM, r.o.Listen); err != nil {
		return err
	}
	return r.startClient(ctx, false)
}

func (r *flowRun) waitBoth(ctx context.Context, cp, sp *proc) {
	limit := time.NewTimer(r.limit())
	defer limit.Stop()
	linger := r.o.Linger
	if sp.ended() {
		linger = r.o.Slack // the client has yet to find out that nobody listens
	}
	select {
	case <-cp.done:
	case <-sp.done:
		// A server ends after its client. When it ends first the client has little left to do, or hangs.
		if !waitDone(cp, linger, r.stopRequest) {
			cp.set(stopped)
			_ = stopProc(ctx, cp, r.o.Linger)
		}
	case <-limit.C:
		cp.set(timedOut)
		_ = stopProc(ctx, cp, r.o.Linger)
	case <-r.stopRequest:
		cp.set(stopped)
		_ = stopProc(ctx, cp, r.o.Linger)
	}
	// A client that met no listener leaves a server that waits: it is kept for the second start.
	if failure := Classify(cp.view(), nil); failure != nil && failure.Class == StartRace && r.canRetry() {
		return
	}
	if !waitDone(sp, r.o.Linger, nil) {
		if c := cp.view(); failed(c) || c.Stopped {
			sp.set(stopped)
		} else {
			sp.set(timedOut)
		}
		_ = stopProc(ctx, sp, r.o.Linger)
	}
}

func (r *flowRun) canRetry() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.retries == 0 && !r.stopping
}

func stopped(s *Side)  { s.Stopped = true }
func timedOut(s *Side) { s.TimedOut = true }

// waitDone waits for a process to have ended; stop cuts the wait short.
func waitDone(p *proc, within time.Duration, stop <-chan struct{}) bool {
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
	case <-stop:
	}
	return p.ended()
}

// stopProc asks a process of ours to end, as its guard makes sure it does, and waits for that.
func stopProc(ctx context.Context, p *proc, linger time.Duration) error {
	if p.ended() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, linger+10*time.Second)
	defer cancel()
	err := p.Stop(ctx, "INT")
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("host %s: process %d did not end: %w", p.view().Host, p.PID(), ctx.Err()))
	}
}

// stop ends the flow before its time. A flow that was never let go has its processes stopped here.
func (r *flowRun) stop(ctx context.Context) error {
	r.mu.Lock()
	r.stopping = true
	released, cp, sp := r.released, r.cp, r.sp
	r.mu.Unlock()
	r.stopOnce.Do(func() { close(r.stopRequest) })
	if released {
		select {
		case <-r.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var errs []error
	for _, p := range []*proc{cp, sp} {
		if p == nil || p.ended() {
			continue
		}
		p.set(stopped)
		errs = append(errs, stopProc(ctx, p, r.o.Linger))
	}
	r.finish()
	return errors.Join(errs...)
}

// finish makes the result and closes done. It is called when both processes have ended, or could not be ended.
func (r *flowRun) finish() {
	r.closeDone.Do(func() {
		res := r.snapshot()
		r.mu.Lock()
		r.final = &res
		r.mu.Unlock()
		close(r.done)
	})
}

func (r *flowRun) result() FlowResult {
	r.mu.Lock()
	final := r.final
	r.mu.Unlock()
	if final != nil {
		return *final
	}
	return r.snapshot()
}

// snapshot is the result as far as it is known: sides that still run are not judged.
func (r *flowRun) snapshot() FlowResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := FlowResult{Name: r.flow.Name, State: FlowNotStarted, Port: r.server.params.TCPPort(), ClientGID: r.client.gid, ServerGID: r.server.gid,
		Began: r.began, Retries: r.retries, Notes: slices.Clone(r.notes)}
	if r.cp != nil && r.cp.ended() && r.released {
		res.Client = r.cp.view()
	}
	if r.sp != nil && r.sp.ended() {
		res.Server = r.sp.view()
	}
	if !r.released {
		if res.Server != nil && !res.Server.Stopped {
			if res.Failure = Classify(nil, res.Server); res.Failure != nil {
				res.State = FlowFailed
			}
		}
		return res
	}
	res.State = FlowInterrupted
	if res.Client == nil || res.Server == nil {
		return res // still running
	}
	res.Output, res.Failure = Judge(res.Client, res.Server, nil, r.o.ToolVersion)
	switch {
	case res.Failure == nil:
		res.State = FlowOK
	case res.Client.Stopped && r.stopping:
		res.Failure = nil
	default:
		res.State = FlowFailed
	}
	return res
}
