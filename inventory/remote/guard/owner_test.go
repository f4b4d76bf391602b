//go:build linux

package guard

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/internal/testwait"
)

// The test binary is its own pcmlab: called as "guard ..." it is the guard.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "guard" {
		os.Exit(Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	// These tests wait for processes to die; they hardly compute.
	flag.Parse()
	flag.Set("test.parallel", "12")
	goleak.VerifyTestMain(m)
}

// owner is the orchestrator's side of one guard, as simple as can be.
type owner struct {
	t     *testing.T
	cfg   Config
	cache string
	cmd   *exec.Cmd
	in    *os.File
	out   *os.File
	errs  bytes.Buffer

	mu       sync.Mutex
	beating  bool
	ready    *ReadyInfo
	started  *StartedInfo
	exit     *ExitInfo
	next     uint64
	stdout   []byte
	stderr   []byte
	readErr  error
	ended    chan struct{} // reader
	stopBeat chan struct{}
	pause    chan struct{} // the reader waits while it holds this
}

func startGuard(t *testing.T, cfg Config) *owner {
	t.Helper()
	o := newOwner(t, cfg)
	o.start()
	return o
}

func newOwner(t *testing.T, cfg Config) *owner {
	if cfg.Run == "" {
		cfg.Run = "test-" + randomID(6)
	}
	if cfg.Deadline == 0 {
		cfg.Deadline = time.Minute
	}
	return &owner{t: t, cfg: cfg, cache: t.TempDir(), beating: true, ended: make(chan struct{}), stopBeat: make(chan struct{}), pause: make(chan struct{}, 1)}
}

func (o *owner) start() { o.startArgs(o.cfg.Argv()) }

func (o *owner) startArgs(args []string) {
	o.t.Helper()
	inR, inW, err1 := os.Pipe()
	outR, outW, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		o.t.Fatal(err)
	}
	o.cmd = exec.Command(os.Args[0], args...)
	o.cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+o.cache)
	o.cmd.Stdin, o.cmd.Stdout, o.cmd.Stderr = inR, outW, &o.errs
	if err := o.cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	inR.Close()
	outW.Close()
	o.in, o.out = inW, outR
	go o.read(outR)
	go o.beat()
	o.t.Cleanup(func() {
		o.in.Close()
		close(o.stopBeat)
		o.cmd.Wait()
		o.out.Close()
		<-o.ended
		defer func() {
			for _, p := range processesOf(o.cfg.Run) {
				unix.Kill(p.pid, unix.SIGKILL)
			}
		}()
		o.waitGone(12 * time.Second)
	})
}

func (o *owner) send(f Frame) {
	b, err := f.Append(nil)
	if err != nil {
		o.t.Error(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.in.Write(b)
}

func (o *owner) beat() {
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-o.stopBeat:
			return
		}
		o.mu.Lock()
		beating, next := o.beating, o.next
		o.mu.Unlock()
		if beating {
			o.send(Frame{Type: Heartbeat, Payload: binary.BigEndian.AppendUint64(nil, next)})
		}
	}
}

func (o *owner) read(r io.Reader) {
	defer close(o.ended)
	br := bufio.NewReader(r)
	if line, err := br.ReadString('\n'); err != nil || line != Magic {
		o.readErr = fmt.Errorf("first line %q, %v", line, err)
		return
	}
	fr := NewReader(br)
	for {
		o.pause <- struct{}{}
		<-o.pause
		f, err := fr.Read()
		if err != nil {
			o.mu.Lock()
			o.readErr = err
			o.mu.Unlock()
			return
		}
		o.mu.Lock()
		if f.Type.Numbered() {
			o.next++
		}
		switch f.Type {
		case Ready:
			o.ready = new(ReadyInfo)
			json.Unmarshal(f.Payload, o.ready)
			o.next = o.ready.Next
		case Started:
			o.started = new(StartedInfo)
			json.Unmarshal(f.Payload, o.started)
		case Stdout:
			o.stdout = append(o.stdout, f.Payload...)
		case Stderr:
			o.stderr = append(o.stderr, f.Payload...)
		case Exit:
			o.exit = new(ExitInfo)
			json.Unmarshal(f.Payload, o.exit)
		}
		next := o.next
		o.mu.Unlock()
		if f.Type.Numbered() {
			o.send(Frame{Type: Heartbeat, Payload: binary.BigEndian.AppendUint64(nil, next)})
		}
	}
}

func (o *owner) get(f func() bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return f()
}

func (o *owner) waitStarted() {
	o.t.Helper()
	o.waitFor("the command to start", func() bool { return o.started != nil })
}

func (o *owner) waitExit() ExitInfo {
	o.t.Helper()
	o.waitFor("the exit frame", func() bool { return o.exit != nil })
	return *o.exit
}

func (o *owner) waitOutput(text string) {
	o.t.Helper()
	o.waitFor(fmt.Sprintf("output %q", text), func() bool { return bytes.Contains(o.stdout, []byte(text)) })
}

func (o *owner) waitFor(what string, f func() bool) {
	o.t.Helper()
	testwait.For(o.t, 40*time.Second, what, func() bool { return o.get(f) })
}

// waitGone waits until nothing of the run is alive, guards included, and returns how long that took.
func (o *owner) waitGone(limit time.Duration) time.Duration {
	o.t.Helper()
	begin := time.Now()
	testwait.For(o.t, limit, "every process of the run to end", func() bool { return len(processesOf(o.cfg.Run)) == 0 })
	return time.Since(begin)
}

// record is the guard's own file; nil when it is not there.
func (o *owner) record() []Record {
	o.t.Helper()
	files, _ := filepath.Glob(filepath.Join(o.cache, "pcmlab", "guards", o.cfg.Run, "*.json"))
	if len(files) == 0 {
		return nil
	}
	return o.records(files[0])
}

// log is what the guard says it had to do.
func (o *owner) log() []Record {
	o.t.Helper()
	file := filepath.Join(o.cache, "pcmlab", "guards.log")
	if _, err := os.Stat(file); err != nil {
		return nil
	}
	return o.records(file)
}

func (o *owner) records(file string) []Record {
	o.t.Helper()
	recs, err := readRecords(file)
	if err != nil {
		o.t.Fatal(err)
	}
	return recs
}

// processesOf finds what a run has started, by the variable that each of them inherits, and its guards, by their
// arguments. Zombies do not count.
func processesOf(run string) []proc {
	var out []proc
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		env, _ := os.ReadFile(d + "/environ")
		args, _ := os.ReadFile(d + "/cmdline")
		if !slices.Contains(strings.Split(string(env), "\x00"), "PCMLAB_RUN="+run) &&
			!slices.Contains(strings.Split(string(args), "\x00"), run) {
			continue
		}
		if p, err := readProc(pid); err == nil && !p.dead() && pid != os.Getpid() {
			out = append(out, p)
		}
	}
	return out
}

// Commands that do not want to die.
const (
	ignoresTERM = `trap '' TERM HUP INT; echo up; while :; do sleep 1; done`
	doubleFork  = `(setsid sh -c 'trap "" TERM HUP; setsid sleep 301 & sleep 302' >/dev/null 2>&1 &) ; echo up; sleep 303`
	holdsStdout = `trap '' TERM; sleep 304 & echo up; sleep 305`
	// Each link of the chain starts the next one in a session of its own and ends.
	forkChain = `export LINK='setsid sh -c "sleep 0.05; eval \"\$LINK\"" &'; eval "$LINK"; echo up; sleep 306`
)

var stubborn = map[string]string{
	"ignores_term": ignoresTERM, "double_fork": doubleFork, "holds_stdout": holdsStdout, "fork_chain": forkChain,
}

func shell(script string) []string { return []string{"sh", "-c", script} }
