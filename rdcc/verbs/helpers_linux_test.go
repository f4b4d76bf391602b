package verbs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// built are the program, the fake library, and both in one with sanitizers, compiled once.
var built struct {
	once                     sync.Once
	dir                      string
	program, fake, sanitized string
	err                      error
}

func TestMain(m *testing.M) {
	if os.Getenv("PCMLAB_VERBS_PARENT") != "" {
		parent()
		return
	}
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// compiled returns the program and the fake library.
func compiled(t testing.TB) (program, fake string) {
	t.Helper()
	built.once.Do(func() {
		built.dir, built.err = os.MkdirTemp("", "verbs-")
		cc, err := compiler()
		if built.err = errors.Join(built.err, err); built.err != nil {
			return
		}
		if built.err = compile(t.Context(), cc, built.dir, "-pedantic"); built.err != nil {
			return
		}
		built.program = filepath.Join(built.dir, programName)
		built.fake = filepath.Join(built.dir, "fake.so")
		built.err = run(cc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", built.fake, "testdata/fake/fake.c")
	})
	var missing *BuildError
	if errors.As(built.err, &missing) && missing.Fix != "" {
		t.Skip(built.err)
	}
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.program, built.fake
}

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return errors.New(name + ": " + err.Error() + ": " + string(out))
	}
	return nil
}

// sanitizers compiles C files with AddressSanitizer and UndefinedBehaviorSanitizer.
func sanitizers(t testing.TB, files ...string) string {
	t.Helper()
	compiled(t)
	cc, err := compiler()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "sanitized")
	args := []string{"-std=gnu11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror", "-Iprogram", "-o", out}
	if err := run(cc, append(args, files...)...); err != nil {
		t.Skipf("no sanitizers with this compiler: %v", err)
	}
	return out
}

// reports gathers what a program tells.
type reports struct {
	mu   sync.Mutex
	all  []Report
	more chan struct{}
}

func newReports() *reports { return &reports{more: make(chan struct{}, 1)} }

func (r *reports) add(x Report) {
	r.mu.Lock()
	r.all = append(r.all, x)
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
}

func (r *reports) list() []Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Report(nil), r.all...)
}

// until waits until what was told satisfies f.
func (r *reports) until(t *testing.T, what string, f func([]Report) bool) []Report {
	t.Helper()
	late := time.After(60 * time.Second)
	for {
		if all := r.list(); f(all) {
			return all
		}
		select {
		case <-r.more:
		case <-late:
			t.Fatalf("%s: not within 60 s; reports: %+v", what, r.list())
		}
	}
}

// fakeProgram starts the real program with the fake library; how is what the library does wrong.
func fakeProgram(t *testing.T, how string, o Options) (*Program, Device, *reports, error) {
	t.Helper()
	program, fake := compiled(t)
	o.Command = []string{program}
	o.Env = append(o.Env, "LD_PRELOAD="+fake, "PCMLAB_FAKE_VERBS="+how)
	r := newReports()
	p, d, err := Start(t.Context(), o, r.add)
	if err == nil {
		t.Cleanup(func() { p.Close() })
	}
	return p, d, r, err
}

// pair makes two queue pairs of one program that write to each other.
func pair(t *testing.T, p *Program, d Device) (a, b Half) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	a, err1 := p.Make(ctx, d)
	b, err2 := p.Make(ctx, d)
	if err := errors.Join(err1, err2, p.Connect(ctx, a, b, Path{TrafficClass: 106}), p.Connect(ctx, b, a, Path{})); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func octets(all []Report, qp uint32) (n uint64, rdma int) {
	for _, r := range all {
		if r.Kind == Arrived && r.QP == qp {
			n += r.Octets
			rdma += r.RDMA
		}
	}
	return n, rdma
}
