package perftest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/guard"
)

// localHost runs commands as processes of this machine, in place of a host reached by SSH. It keeps remote.Host's
// promises as far as the driver relies on them: a barrier, process groups, deadlines.
type localHost struct {
	name   string
	home   string
	env    []string
	binary string

	mu    sync.Mutex
	procs []*localProcess
	steps []string
}

func newLocalHost(t *testing.T, name string, env ...string) *localHost {
	t.Helper()
	h := &localHost{name: name, home: t.TempDir(), env: env}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h.binary = filepath.Join(h.home, "pcmlab")
	if err := os.Symlink(self, h.binary); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, p := range h.procs {
			if !p.endedNow() {
				t.Errorf("host %s: process %d (%v) was left", name, p.PID(), p.cmd.Args)
				_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
				<-p.done
			}
		}
	})
	return h
}

func (h *localHost) Name() string { return h.name }

func (h *localHost) command(c remote.Cmd, hold bool) *exec.Cmd {
	h.mu.Lock()
	h.steps = append(h.steps, c.Step)
	h.mu.Unlock()
	args := c.Args
	if hold {
		args = append([]string{"sh", "-c", `read -r go && exec "$@"`, "sh"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "HOME="+h.home, "PATH="+h.home+":"+os.Getenv("PATH"))
	cmd.Env = append(append(cmd.Env, h.env...), c.Env...)
	cmd.Dir = c.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

func (h *localHost) Run(ctx context.Context, c remote.Cmd) (remote.Result, error) {
	p, err := h.start(c, false)
	if err != nil {
		return remote.Result{}, err
	}
	res, err := p.Wait(ctx)
	if err != nil {
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
		<-p.done
	}
	return res, err
}

func (h *localHost) Start(_ context.Context, c remote.Cmd) (remote.Process, error) {
	return h.start(c, c.Hold)
}

func (h *localHost) start(c remote.Cmd, hold bool) (*localProcess, error) {
	if path, err := exec.LookPath(filepath.Join(h.home, c.Args[0])); err == nil {
		c.Args = append([]string{path}, c.Args[1:]...)
	}
	cmd := h.command(c, hold)
	p := &localProcess{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.out, &p.err
	var err error
	if hold {
		if p.barrier, err = cmd.StdinPipe(); err != nil {
			return nil, err
		}
	}
	p.res.Started = time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	deadline := c.Deadline
	if deadline == 0 {
		deadline = 30 * time.Second
	}
	kill := time.AfterFunc(deadline, func() {
		p.late.Store(true)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	})
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
		kill.Stop()
		p.res.Ended = time.Now()
		ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
		p.res.Code = ws.ExitStatus()
		if ws.Signaled() {
			p.res.Code, p.res.Signal = -1, strings.ToUpper(ws.Signal().String())
		}
		p.res.Stdout, p.res.Stderr = p.out.Bytes(), p.err.Bytes()
	}()
	h.mu.Lock()
	h.procs = append(h.procs, p)
	h.mu.Unlock()
	return p, nil
}

func (h *localHost) Put(_ context.Context, path string, mode fs.FileMode, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, mode)
}

func (h *localHost) Get(_ context.Context, path string, w io.Writer) error {
	b, err := os.ReadFile(path)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

func (h *localHost) Binary(context.Context) (string, error) { return h.binary, nil }
func (h *localHost) Close() error                           { return nil }

type localProcess struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
	barrier  io.WriteCloser
	res      remote.Result
	late     atomicBool
	done     chan struct{}
}

type atomicBool struct {
	mu sync.Mutex
	v  bool
}

func (b *atomicBool) Store(v bool) { b.mu.Lock(); b.v = v; b.mu.Unlock() }
func (b *atomicBool) Load() bool   { b.mu.Lock(); defer b.mu.Unlock(); return b.v }

func (p *localProcess) PID() int { return p.cmd.Process.Pid }

func (p *localProcess) endedNow() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *localProcess) Release(context.Context) error {
	if p.barrier == nil {
		return errors.New("not held")
	}
	_, err := io.WriteString(p.barrier, "go\n")
	return err
}

func (p *localProcess) Stop(_ context.Context, signal string) error {
	sig := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM}[signal]
	err := syscall.Kill(-p.PID(), sig)
	time.AfterFunc(2*time.Second, func() {
		if !p.endedNow() {
			_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
		}
	})
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

func (p *localProcess) Wait(ctx context.Context) (remote.Result, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return remote.Result{}, ctx.Err()
	}
	if p.late.Load() {
		return p.res, context.DeadlineExceeded
	}
	return p.res, nil
}

func (p *localProcess) Done() <-chan struct{} { return p.done }

var (
	_ remote.Host    = (*localHost)(nil)
	_ remote.Process = (*localProcess)(nil)
)

// TestMain lets the test binary be the tool, as pcmlab is: called as ib_write_bw it runs Tool over the fake fabric.
// There each process has a fabric of its own, so nothing arrives anywhere; what is real are processes, ports, signals
// and the exchange. FAKE_TOOL changes what it does before.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case WriteBW, SendBW, ReadBW:
		os.Exit(fakeTool())
	}
	if len(os.Args) > 1 && os.Args[1] == "guard" {
		os.Exit(guard.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// hold listens on the port of -p and never accepts.
func hold(args []string) int {
	port := args[slices.Index(args, "-p")+1]
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Couldn't listen to port "+port)
		return 1
	}
	defer l.Close()
	<-time.After(time.Hour)
	return 0
}

func fakeTool() int {
	mode := os.Getenv("FAKE_TOOL")
	if text, err := os.ReadFile(filepath.Join(os.Getenv("HOME"), "fake_tool")); mode == "" && err == nil {
		mode = string(text)
	}
	server := len(os.Args) > 1 && strings.HasPrefix(os.Args[len(os.Args)-1], "-")
	v := newFakeFabric().host("fake0", clientGID)
	switch {
	case mode == "slow" && server: // listens after 1.5 s, as a busy host does
		<-time.After(1500 * time.Millisecond)
	case mode == "stubborn" && server: // holds its port for ever and ignores who asks it to end
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		return hold(os.Args)
	case mode == "dies" && !server:
		fmt.Fprintln(os.Stderr, "Killed")
		return 137
	case mode == "never" && server:
		<-time.After(time.Hour)
	case mode == "completion" && !server:
		v.fail = func(done int) *WCError {
			if done > 0 {
				return &WCError{Status: WCRetryExcErr}
			}
			return nil
		}
	case mode == "hang" && !server:
		v.block = true
	}
	return Tool(context.Background(), os.Args, v, os.Stdin, os.Stdout, os.Stderr)
}
