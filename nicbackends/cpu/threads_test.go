package cpu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/shell"
)

func loadCounted(t *testing.T, o Options) *pcm.Package {
	t.Helper()
	p, err := pcm.Load(filepath.Join("testdata", "counted.yaml"), pcm.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	if p, err = o.Package(p); err != nil {
		t.Fatal(err)
	}
	return p
}

// program compiles one of the C programs of testdata with the sources of a shell, which change may have changed. Not every program has the
// shell in itself.
func program(t *testing.T, o Options, main string, change func(name, text string) string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := WriteSources(loadCounted(t, o), dir); err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join("testdata", main))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, main), source, 0o644); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		files, _ := filepath.Glob(filepath.Join(dir, "*.[ch]"))
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(f, []byte(change(filepath.Base(f), string(text))), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	out := filepath.Join(dir, "program")
	args := append([]string{"-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-I", dir, "-o", out, filepath.Join(dir, main)}, flags...)
	if !bytes.Contains(source, []byte(`"shell.c"`)) {
		args = append(args, filepath.Join(dir, "shell.c"))
	}
	if said, err := exec.Command("cc", append(args, "-lpthread", "-lm")...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, said)
	}
	return out
}

// countedFlow is a line of threads.c.
type countedFlow struct{ failed, cwnd, runs, worst, total, taken, least, most, a, b uint64 }

func threads(t *testing.T, program string, events uint64) []countedFlow {
	t.Helper()
	said, err := exec.Command(program, fmt.Sprint(events)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	var flows []countedFlow
	for _, line := range strings.Split(strings.TrimSpace(string(said)), "\n") {
		var f countedFlow
		if _, err := fmt.Sscan(line, &f.failed, &f.cwnd, &f.runs, &f.worst, &f.total, &f.taken, &f.least, &f.most, &f.a, &f.b); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		flows = append(flows, f)
	}
	if len(flows) != 2 {
		t.Fatalf("no two flows: %s", said)
	}
	return flows
}

// held are the properties that every policy has, and the skew of those that bound it: what two threads sent is what the handler got, in a
// flow whose neighbour failed, too.
func held(t *testing.T, flows []countedFlow, events, skew uint64) {
	t.Helper()
	good, bad := flows[0], flows[1]
	sent := 2 * events
	if good.failed != 0 || good.a != sent || good.b != sent || good.cwnd != sent || good.total != 3*sent || good.taken != 2*sent {
		t.Errorf("%d events were sent, and arrived as %+v", sent, good)
	}
	if good.least != 1000 || good.most != 10999 {
		t.Errorf("round trips from %d to %d, want 1000 to 10999", good.least, good.most)
	}
	if good.worst > skew || bad.worst > skew {
		t.Errorf("signals that move together were %d and %d apart, want at most %d", good.worst, bad.worst, skew)
	}
	if bad.failed != 7 || bad.a != sent || bad.b != sent {
		t.Errorf("the flow whose handler fails: %+v", bad)
	}
	if bad.cwnd > sent || bad.runs == 0 {
		t.Errorf("the flow whose handler fails ran %d times, window %d", bad.runs, bad.cwnd)
	}
	t.Logf("%d events: the handler ran %d times, signals were at most %d apart", sent, good.runs, good.worst)
}

const anySkew = 1<<64 - 1

var threaded = []struct {
	o    Options
	skew uint64
}{{Options{Snapshot: "relaxed"}, anySkew}, {Options{Snapshot: "zero-skew"}, 0}, {Options{Snapshot: "bounded-skew", Skew: 1}, 1}}

// TestAsync_losesNoCounts runs two threads of the datapath and one of the control plane as fast as they go.
func TestAsync_losesNoCounts(t *testing.T) {
	for _, c := range threaded {
		t.Run(c.o.Snapshot, func(t *testing.T) {
			const events = 300_000
			held(t, threads(t, program(t, c.o, "threads.c", nil, "-O2"), events), events, c.skew)
		})
	}
}

// sanitized runs a program of ThreadSanitizer. Some kernels move memory to where it cannot live; without their randomness it can.
func sanitized(t *testing.T, program string, events uint64) (string, error) {
	t.Helper()
	said, err := exec.Command(program, fmt.Sprint(events)).CombinedOutput()
	if bytes.Contains(said, []byte("unexpected memory mapping")) {
		machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
		said, err = exec.Command("setarch", machine, "-R", program, fmt.Sprint(events)).CombinedOutput()
		if err != nil && !bytes.Contains(said, []byte("WARNING: ThreadSanitizer")) {
			t.Skipf("ThreadSanitizer does not run on this kernel: %v: %s", err, said)
		}
	}
	return string(said), err
}

// TestAsync_hasNoRaces runs the same under ThreadSanitizer, which finds nothing, and finds the races of a shell whose sums are no longer
// atomic, and those of the synchronous one.
func TestAsync_hasNoRaces(t *testing.T) {
	const events = 3000
	tsan := []string{"-O1", "-fsanitize=thread"}
	sanitized(t, program(t, threaded[0].o, "threads.c", nil, tsan...), 1) // or skips all
	for _, c := range threaded {
		t.Run(c.o.Snapshot, func(t *testing.T) {
			said, err := sanitized(t, program(t, c.o, "threads.c", nil, tsan...), events)
			if err != nil || strings.Contains(said, "WARNING") {
				t.Errorf("%v\n%s", err, said)
			}
		})
	}
	plain := func(name, text string) string {
		if name != "pcm_cells.h" {
			return text
		}
		const atomic = "(void)atomic_fetch_add_explicit(c, v, PCM_GIVES)"
		if !strings.Contains(text, atomic) {
			t.Errorf("%s has no %s", name, atomic)
		}
		return strings.Replace(text, atomic, "*(volatile uint64_t *)c += v", 1)
	}
	for _, c := range []struct {
		name   string
		o      Options
		change func(name, text string) string
	}{
		{"sums_that_are_not_atomic", Options{Snapshot: "relaxed"}, plain},
		{"synchronous", Options{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			said, err := sanitized(t, program(t, c.o, "threads.c", c.change, tsan...), events)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !strings.Contains(said, "WARNING: ThreadSanitizer: data race") {
				t.Errorf("the race was not found: %v\n%s", err, said)
			}
		})
	}
}

// TestSnapshot_policies holds what a policy does with updates that are half done: how many it bears, that a snapshot it discards leaves all
// signals as they were, and that nothing is lost afterwards.
func TestSnapshot_policies(t *testing.T) {
	for _, c := range []struct {
		o     Options
		bears int
	}{{Options{Snapshot: "relaxed"}, 4}, {Options{Snapshot: "zero-skew"}, 0}, {Options{Snapshot: "bounded-skew", Skew: 1}, 1}, {Options{Snapshot: "bounded-skew", Skew: 3}, 3}} {
		t.Run(fmt.Sprintf("%s_%d", c.o.Snapshot, c.o.Skew), func(t *testing.T) {
			said, err := exec.Command(program(t, c.o, "halfway.c", nil, "-O1")).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			var want strings.Builder
			for under := range 5 {
				low, high, newest := 40, 40, 9
				if under > 0 {
					low, high, newest = 30, 50, 8
				}
				if under <= c.bears { // it ran, saw A ahead of B by those under way, and what resets is as at first
					fmt.Fprintf(&want, "1 1 %d 0 %d 5 18446744073709551615 0 0", under, 1+under)
				} else { // it did not, is still due, and all signals are as they were
					fmt.Fprintf(&want, "1 0 0 1 %d %d %d %d %d", 1+under, 5+3+3*under, low, high, newest)
				}
				fmt.Fprintf(&want, " | 1 %d %d 4 %d %d\n", 2+under, 6+3*under, low, high)
			}
			if string(said) != want.String() {
				t.Errorf("got\n%swant\n%s", said, want.String())
			}
		})
	}
}

// TestFailure_stopsItsFlow: a handler that fails is stopped for its flow alone, which keeps its controls, in all kinds of shells.
func TestFailure_stopsItsFlow(t *testing.T) {
	for _, o := range append([]Options{{}}, policies...) {
		t.Run("kind_"+o.Snapshot, func(t *testing.T) {
			b := buildPackage(t, loadCounted(t, Options{}), o)
			var flows [2]*shell.Flow
			for i := range flows {
				f, err := b.shell.NewFlow(0, 1)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				flows[i] = f
			}
			var out [2]shell.Output
			for i := range 10 {
				for k, f := range flows {
					in := &shell.Input{}
					give(in, pcm.ACK, 1)
					if k == 1 && i == 5 {
						give(in, pcm.RTO, 1)
					}
					f.Flush(in, &out[k])
				}
			}
			if out[0].Failed != 0 || out[0].Fired == 0 || out[0].CWND != 10 || flows[0].Peek(shell.Variable, 0) != 10 {
				t.Errorf("the flow beside it: %+v after %d runs", out[0], flows[0].Peek(shell.Variable, 0))
			}
			if out[1].Failed != 7 || out[1].Fired != 0 || out[1].CWND != 5 || flows[1].Peek(shell.Variable, 0) != 6 {
				t.Errorf("the flow that failed: %+v after %d runs", out[1], flows[1].Peek(shell.Variable, 0))
			}
			in := &shell.Input{}
			give(in, pcm.ACK, 1)
			if flows[1].Note(in) || flows[1].Serve(0, &out[1]) || out[1].Fired != 0 {
				t.Error("a flow that failed is due")
			}
		})
	}
}
