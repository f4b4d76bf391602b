package uccl

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/nicbackends/cpu/glue/gluetest"
	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers/handlertest"
)

// apart is p with an asynchronous shell.
func apart(t *testing.T, p *pcm.Package) *pcm.Package { return gluetest.Apart(t, p, "relaxed") }

// counter is a handler whose window is the number of packets acknowledged, and whose rate the sum of their bytes, which it takes as they come. A run
// may fall between the two, so that both have a trigger.
func counter(t *testing.T, snapshot string) *pcm.Package {
	return gluetest.Apart(t, handlertest.Written(t, "counter", `algorithm: {name: counter}
signals:
  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_type: PCM_SIG_TRIGGER_DELTA, trigger_threshold: 1, reset_upon_trigger: "false"}
  - {name: BYTES, type: PCM_SIG_DATA_TX, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}
controls:
  - {name: W, type: PCM_CTRL_CWND, initial_value: 0}
  - {name: R, type: PCM_CTRL_RATE, initial_value: 0}
variables:
  - {name: TOTAL, type: uint, initial_value: 0}
`, `#include "pcmh.h"
#include "counter.h"
int algorithm_main()
{
	set_var_uint(TOTAL, get_var_uint(TOTAL) + get_signal(BYTES));
	set_control(W, get_signal(ACK));
	set_control(R, get_var_uint(TOTAL));
	return PCM_SUCCESS;
}
`), snapshot)
}

// nothingLost holds the lines of the driver: each flow's handler got all that its engine noted, and its engine reads what it decided last.
func nothingLost(t *testing.T, out string, flows int) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != flows {
		t.Fatalf("%d flows, want %d:\n%s", len(lines), flows, out)
	}
	for _, line := range lines {
		var packets, bytes, window, rate uint64
		if _, err := fmt.Sscan(line, &packets, &bytes, &window, &rate); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if packets == 0 || window != packets || rate != bytes {
			t.Errorf("%d packets of %d bytes were acknowledged, the handler got %d of %d", packets, bytes, window, rate)
		}
	}
}

// TestWorker_losesNothing: two engines with several flows each, and flows that come and go, beside the worker.
func TestWorker_losesNothing(t *testing.T) {
	object := platform.DriverObject(t)
	for _, snapshot := range []string{"relaxed", "zero-skew"} {
		p := counter(t, snapshot)
		program := platform.Link(t, object, platform.Folder(t, p), p.Name)
		nothingLost(t, gluetest.Run(t, "", program, "threads", "2", "3", "20000"), 6)
		nothingLost(t, gluetest.RunIn(t, []string{"PCM_WORKER=off"}, "", program, "threads", "2", "3", "2000"), 6)
	}
}

// TestWorker_keepsUp: a worker that is done before the next event decides as the synchronous shell.
func TestWorker_keepsUp(t *testing.T) {
	object := platform.DriverObject(t)
	p := gluetest.Load(t, "swift_uccl", nil)
	csv := gluetest.CSV(rows(p, 3, 600))
	want, calls := platform.Want(t, p, csv, 3, false)
	gluetest.Same(t, csv, gluetest.Run(t, csv, platform.Link(t, object, platform.Folder(t, apart(t, p)), p.Name), "trace", "3"), want, calls)
}

// TestWorker_settings: what is no setting is named, and the worker works.
func TestWorker_settings(t *testing.T) {
	p := counter(t, "relaxed")
	program := platform.Link(t, platform.DriverObject(t), platform.Folder(t, p), p.Name)
	for setting, want := range map[string]string{"PCM_CORE=9999": "pcm: PCM_CORE=9999 is no core", "PCM_CORE=two": "pcm: PCM_CORE=two is no core", "PCM_WORKER=of": "pcm: PCM_WORKER=of is neither on nor off", "PCM_CORE=0": ""} {
		cmd := exec.Command(program, "threads", "1", "1", "200")
		cmd.Env = append(os.Environ(), setting)
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil || !strings.HasPrefix(said.String(), want) || want == "" && said.Len() > 0 {
			t.Errorf("%s: %v: %s", setting, err, said.String())
		}
		nothingLost(t, string(out), 1)
	}
}

// TestWorker_hasNoRaces runs engines and the worker under ThreadSanitizer, which finds nothing, and finds the race when controls are published in
// plain words.
func TestWorker_hasNoRaces(t *testing.T) {
	p := counter(t, "relaxed")
	driver, err := os.ReadFile(platform.Driver)
	if err != nil {
		t.Fatal(err)
	}
	build := func(dir string) string {
		out := t.TempDir()
		main, object, program := filepath.Join(out, "main.cpp"), filepath.Join(out, "shell.o"), filepath.Join(out, "driver")
		if err := os.WriteFile(main, append([]byte("#include \"counter_handler.h\"\n"), driver...), 0o644); err != nil {
			t.Fatal(err)
		}
		gluetest.Compile(t, "gcc", "-fsanitize=thread", "-std=gnu11", "-O1", "-g", "-c", filepath.Join(dir, "counter_shell.c"), "-o", object)
		gluetest.Compile(t, "g++", append(platform.CXX(dir, platform.RowsHeader(t)), "-fsanitize=thread", "-pthread", "-o", program, main, object, "-lm")...)
		return program
	}
	run := func(program string) (string, error) {
		return gluetest.ThreadSanitized(t, program, "threads", "2", "2", "2000")
	}
	out, err := run(build(platform.Folder(t, p)))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	nothingLost(t, out, 4)

	dir := platform.Folder(t, p)
	header := filepath.Join(dir, "pcm_flow.h")
	text, err := os.ReadFile(header)
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.ReplaceAll(string(text), "std::atomic<uint64_t>", "Plain")
	plain = strings.Replace(plain, "namespace pcm {\n", `namespace pcm {
struct Plain {
	uint64_t v;
	Plain(uint64_t begin) : v(begin) {}
	uint64_t load(std::memory_order) const { return *(volatile const uint64_t *)&v; }
	void store(uint64_t to, std::memory_order) { *(volatile uint64_t *)&v = to; }
};
`, 1)
	if plain == string(text) || os.WriteFile(header, []byte(plain), 0o644) != nil {
		t.Fatal("pcm_flow.h publishes otherwise")
	}
	out, err = run(build(dir))
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(out, "WARNING: ThreadSanitizer: data race") {
		t.Errorf("the race was not found: %v\n%s", err, out)
	}
}

// TestWorker_budget: the window in force is the one that was published last; the first one is there from the beginning.
func TestWorker_budget(t *testing.T) {
	p := apart(t, constant(t, "w100", "  - {name: W, type: PCM_CTRL_CWND, initial_value: 102400}\n"))
	got := gluetest.Run(t, "", platform.Link(t, platform.DriverObject(t), platform.Folder(t, p), p.Name), "budget", strconv.Itoa(500<<10), strconv.Itoa(90<<10), strconv.Itoa(90<<10))
	if want := "10240\nqueued 0 at 0 path 31\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
