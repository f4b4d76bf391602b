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

	"github.com/pcmlab/pcmlab/inventory"
)

// sshHost is a Host that is reached by SSH.
type sshHost struct {
	pool  *Pool
	owner *Pool // not nil: Close closes the pool too
	name  string
	lab   *inventory.Host

	ready    sync.Mutex // held while settings are worked out
	settings Settings
	resolved bool
	growing  semaphore     // one connection is opened at a time
	freed    chan struct{} // a channel was given back

	mu     sync.Mutex
	conns  []*transport
	procs  map[*process]bool
	closed bool

	bin binaryState
}

var _ Host = (*sshHost)(nil)

func newSSHHost(p *Pool, lh *inventory.Host) *sshHost {
	return &sshHost{
		pool: p, name: lh.Name, lab: lh,
		growing: make(semaphore, 1), freed: make(chan struct{}, 1), procs: map[*process]bool{},
	}
}

// connect works out the settings and opens the first connection.
func (h *sshHost) connect(ctx context.Context) error {
	h.ready.Lock()
	if !h.resolved {
		s, err := resolve(h.name, h.lab.SSH, h.pool.o)
		if err != nil {
			h.ready.Unlock()
			return err
		}
		h.settings, h.resolved = s, true
	}
	h.ready.Unlock()
	return h.grow(ctx, 0)
}

func (h *sshHost) Name() string { return h.name }

// Settings are what is in force for the host.
func (h *sshHost) Settings() Settings { return h.settings }

// Close ends the connections; what still runs is stopped by its guard.
func (h *sshHost) Close() error {
	if h.owner != nil {
		return h.owner.Close()
	}
	h.pool.mu.Lock()
	delete(h.pool.hosts, h.name)
	h.pool.mu.Unlock()
	h.shut()
	return nil
}

// closeWait is how long Close waits for the guards to take leave.
const closeWait = time.Second

func (h *sshHost) shut() {
	h.mu.Lock()
	h.closed = true
	conns := h.conns
	var procs []*process
	for p := range h.procs {
		procs = append(procs, p)
	}
	h.mu.Unlock()
	// A guard that is told need not wait out the grace that it leaves a lost owner.
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	for _, p := range procs {
		p.leave(ctx)
	}
	for _, t := range conns {
		t.close()
	}
}

// Run runs c to its end. See Host.
func (h *sshHost) Run(ctx context.Context, c Cmd) (Result, error) {
	c.Hold = false
	p, err := h.Start(ctx, c)
	if err != nil {
		return Result{Code: -1}, err
	}
	res, err := p.Wait(ctx)
	if ctx.Err() == nil || isDone(p) {
		return res, err
	}
	// Nobody waits for the command any more: end it, and give its guard the time it needs for that.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWait)
	defer cancel()
	p.Stop(end, "TERM")
	res, _ = p.Wait(end)
	return res, wrap(h.name, stepOf(c), context.Cause(ctx))
}

func isDone(p Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// Start starts c. ctx bounds the starting only; the command lives until it ends, its deadline, Stop, or the end of
// the host. See Host.
func (h *sshHost) Start(ctx context.Context, c Cmd) (Process, error) {
	p, err := h.start(ctx, c)
	if err != nil {
		return nil, wrap(h.name, stepOf(c), err)
	}
	return p, nil
}

func (h *sshHost) start(ctx context.Context, c Cmd) (Process, error) {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return nil, fault(Usage, "", "no command")
	}
	if c.Deadline < 0 {
		return nil, fault(Usage, "", "deadline %v: want a positive time", c.Deadline)
	}
	if c.Deadline == 0 {
		c.Deadline = defaultDeadline
	}
	if c.MaxOut == 0 {
		c.MaxOut = defaultMaxOut
	}
	if c.Plain && c.Args[0] == "pcmlab" {
		h.bin.mu.Lock()
		there := h.bin.path
		h.bin.mu.Unlock()
		if there == "" {
			return nil, fault(Usage, "", "a plain command pushes nothing, and so cannot be pcmlab before that is there")
		}
		c.Args = append([]string{there}, c.Args[1:]...)
	}
	var bin string
	err := errNoBinary
	if !c.Plain {
		bin, err = h.binary(ctx)
	}
	if err != nil && !errors.Is(err, errNoBinary) {
		return nil, err
	}
	guarded := err == nil
	if c.Args[0] == "pcmlab" {
		if !guarded {
			return nil, err
		}
		c.Args = append([]string{bin}, c.Args[1:]...)
	}
	if c.Sudo {
		c = withSudo(c)
	}
	if !guarded {
		return h.startPlain(ctx, c)
	}
	return h.startGuarded(ctx, bin, c)
}

// stepOf names a command in errors.
func stepOf(c Cmd) string {
	if c.Step != "" {
		return c.Step
	}
	if len(c.Args) == 0 {
		return "run"
	}
	name := c.Args[0]
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		name = name[i+1:]
	}
	return "run " + name
}

// output is what a plain command left.
type output struct {
	code           int
	signal         string
	stdout, stderr []byte
}

// probe runs a short POSIX shell script without a guard, for what must be known before there is one.
func (h *sshHost) probe(ctx context.Context, script string) (output, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, defaultDeadline, fmt.Errorf("no end within %v", defaultDeadline))
	defer cancel()
	s, err := h.session(ctx)
	if err != nil {
		return output{}, err
	}
	defer s.Close()
	stdout, stderr := newTail(64<<10), newTail(64<<10)
	s.Stdout, s.Stderr = stdout, stderr
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	err = s.Session.Run("sh -c " + quote(script))
	out := output{stdout: stdout.bytes(), stderr: stderr.bytes()}
	if ctx.Err() != nil {
		return out, fault(Infrastructure, "", "%w", context.Cause(ctx))
	}
	out.code, out.signal, err = exitOf(err)
	return out, err
}

// exitOf splits what Session.Wait returns.
func exitOf(err error) (code int, signal string, _ error) {
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return 0, "", nil
	case errors.As(err, &exit):
		if exit.Signal() != "" {
			return -1, exit.Signal(), nil
		}
		return exit.ExitStatus(), "", nil
	}
	return -1, "", err
}

// tail keeps the last bytes written to it. It is safe for concurrent use and never fails.
type tail struct {
	mu      sync.Mutex
	max     int
	buf     []byte
	dropped int64
}

func newTail(max int) *tail { return &tail{max: max} }

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	// Let it grow to twice the size, so that the bytes are not moved for every write.
	if len(t.buf) > 2*t.max {
		t.cutLocked()
	}
	return len(p), nil
}

func (t *tail) cutLocked() {
	if n := len(t.buf) - t.max; n > 0 {
		t.dropped += int64(n)
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
}

func (t *tail) bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cutLocked()
	return append([]byte(nil), t.buf...)
}

func (t *tail) droppedBytes() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cutLocked()
	return t.dropped
}

var _ io.Writer = (*tail)(nil)

// lastLine is the last line of some output, shortened, for errors.
func lastLine(b []byte) string {
	s := strings.TrimSpace(string(b))
	if i := strings.LastIndexByte(s, '\n'); i >= 0 {
		s = s[i+1:]
	}
	if len(s) > 300 {
		s = s[:300] + "..."
	}
	return s
}
