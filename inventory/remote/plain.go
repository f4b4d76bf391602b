package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/pcmlab/pcmlab/inventory/remote/guard"
)

// plainProcess is a command on a host that cannot take a guard. Signals go over the channel, which not every server
// heeds; a command that does not end is left behind, and the error says so.
type plainProcess struct {
	h    *sshHost
	cmd  Cmd
	s    *session
	done chan struct{}
	stop chan string
	end  context.CancelCauseFunc

	stdout, stderr *sink

	mu  sync.Mutex
	res Result
	err error
}

var _ Process = (*plainProcess)(nil)

func (h *sshHost) startPlain(ctx context.Context, c Cmd) (*plainProcess, error) {
	switch {
	case c.Hold:
		return nil, fault(Usage, "", "a held start needs a guard: %w", errNoBinary)
	case len(c.Restore) > 0:
		return nil, fault(Usage, "", "a restore command needs a guard: %w", errNoBinary)
	}
	line := quoteAll(c.Args)
	if len(c.Env) > 0 {
		line = "env " + quoteAll(c.Env) + " " + line
	}
	if c.Dir != "" {
		line = "cd " + quote(c.Dir) + " && " + line
	}
	s, err := h.session(ctx)
	if err != nil {
		return nil, err
	}
	p := &plainProcess{h: h, cmd: c, s: s, done: make(chan struct{}), stop: make(chan string, 1), stdout: newSink(c.MaxOut, c.Stdout), stderr: newSink(c.MaxOut, c.Stderr)}
	run, cancel := context.WithTimeoutCause(context.Background(), c.Deadline, fmt.Errorf("%w: not done within %v", ErrDeadline, c.Deadline))
	run, p.end = context.WithCancelCause(run)
	var in io.WriteCloser
	if c.Stdin != nil {
		if in, err = s.StdinPipe(); err != nil {
			cancel()
			p.end(nil)
			s.Close()
			return nil, fault(Infrastructure, "", "%w", err)
		}
	}
	s.Stdout, s.Stderr = sinkWriter{run, p.stdout}, sinkWriter{run, p.stderr}
	p.res.Started = time.Now()
	if err := s.Session.Start(line); err != nil {
		cancel()
		p.end(nil)
		s.Close()
		p.stdout.finish(run)
		p.stderr.finish(run)
		return nil, fault(Infrastructure, "", "%w", err)
	}
	if in != nil {
		// Not the session's own copy, which Wait would wait for, and not in the wait group: nothing can interrupt the
		// caller's Read. It ends with that.
		go func() {
			io.Copy(in, c.Stdin)
			in.Close()
		}()
	}
	h.pool.wg.Go(func() {
		defer cancel()
		p.run(run)
	})
	return p, nil
}

type sinkWriter struct {
	ctx context.Context
	s   *sink
}

func (w sinkWriter) Write(b []byte) (int, error) {
	w.s.write(w.ctx, b)
	return len(b), nil
}

func (p *plainProcess) run(ctx context.Context) {
	waited := make(chan error, 1)
	p.h.pool.wg.Go(func() { waited <- p.s.Session.Wait() })
	var err, why error
	stopped := false
	select {
	case err = <-waited:
	case sig := <-p.stop:
		stopped = true
		err, why = p.finish(sig, waited)
	case <-ctx.Done():
		why = context.Cause(ctx)
		var left error
		err, left = p.finish("TERM", waited)
		why = errors.Join(why, left)
	}
	p.s.Close()
	p.end(nil)
	end, cancel := context.WithTimeout(context.Background(), guard.TermWait)
	defer cancel()
	p.stdout.finish(end)
	p.stderr.finish(end)
	p.mu.Lock()
	p.res.Ended = time.Now()
	p.res.Code, p.res.Signal, err = exitOf(err)
	p.res.Stdout, p.res.Stderr = p.stdout.kept.bytes(), p.stderr.kept.bytes()
	p.res.Dropped = p.stdout.kept.droppedBytes() + p.stderr.kept.droppedBytes()
	if why == nil && !stopped && err != nil {
		why = fmt.Errorf("%w: %w", ErrLost, err)
	}
	if says, tty, ok := sudoRefused(p.res.Stderr); ok && p.cmd.Sudo && p.res.Code != 0 && why == nil {
		p.mu.Unlock()
		why = p.h.sudoFault(context.Background(), p.cmd, says, tty, p.stderr.kept.bytes())
		p.mu.Lock()
	}
	why = errors.Join(why, p.stdout.failure("standard output"), p.stderr.failure("standard error"))
	p.err = wrap(p.h.name, stepOf(p.cmd), why)
	p.mu.Unlock()
	close(p.done)
}

// finish ends the command: a signal, KILL after 2 s, and after another 2 s the channel.
func (p *plainProcess) finish(signal string, waited <-chan error) (err, left error) {
	for _, sig := range []string{signal, "KILL"} {
		p.s.Signal(ssh.Signal(sig))
		t := time.NewTimer(guard.TermWait)
		select {
		case err := <-waited:
			t.Stop()
			return err, nil
		case <-t.C:
		}
	}
	p.s.Close()
	return <-waited, fault(Infrastructure, "stop it by hand", "it may still run: there is no guard on this host, and its server does not pass signals on")
}

func (p *plainProcess) PID() int { return 0 }

func (p *plainProcess) Release(context.Context) error {
	return &Error{Host: p.h.name, Step: stepOf(p.cmd), Kind: Usage, Err: errors.New("release: it was not held")}
}

func (p *plainProcess) Stop(_ context.Context, signal string) error {
	select {
	case p.stop <- strings.TrimPrefix(signal, "SIG"):
	default: // being stopped already
	}
	return nil
}

func (p *plainProcess) Wait(ctx context.Context) (Result, error) {
	select {
	case <-p.done:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.res, p.err
	case <-ctx.Done():
		return Result{Code: -1}, &Error{Host: p.h.name, Step: stepOf(p.cmd), Err: fmt.Errorf("wait: %w", context.Cause(ctx))}
	}
}

func (p *plainProcess) Done() <-chan struct{} { return p.done }
