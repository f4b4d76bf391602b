package remotetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/inventory/remote"
)

// Run checks that a Host behaves as the interface says. open is called once; the host must be guarded, and its
// machine must be the one that the test runs on.
func Run(t *testing.T, open func(t *testing.T) remote.Host) {
	h := open(t)
	dir := t.TempDir()
	for _, tc := range []struct {
		name string
		f    func(*testing.T, remote.Host, string)
	}{
		{"relays_how_commands_end", relaysHowCommandsEnd},
		{"passes_words_unchanged", passesWordsUnchanged},
		{"passes_environment_directory_and_input", passesEnvironment},
		{"drains_floods_and_keeps_the_end", drainsFloods},
		{"copies_output_as_it_arrives", copiesOutput},
		{"reports_a_writer_that_fails", reportsFailingWriter},
		{"ends_commands_at_their_deadline", endsAtDeadline},
		{"ends_commands_when_the_context_does", endsWithContext},
		{"does_not_wait_for_background_children", backgroundChildren},
		{"holds_at_a_barrier", holdsAtBarrier},
		{"stops_with_the_signal_asked", stopsWithSignal},
		{"kills_what_ignores_term", killsStubborn},
		{"says_what_cannot_be_started", cannotStart},
		{"runs_the_restore_command", runsRestore},
		{"carries_files", carriesFiles},
		{"runs_more_commands_than_it_has_channels", manyCommands},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.f(t, h, dir)
		})
	}
}

func shell(script string) []string { return []string{"sh", "-c", script} }

func run(t *testing.T, h remote.Host, c remote.Cmd) remote.Result {
	t.Helper()
	res, err := h.Run(t.Context(), c)
	if err != nil {
		t.Fatalf("run %q: %v", c.Args, err)
	}
	return res
}

func relaysHowCommandsEnd(t *testing.T, h remote.Host, _ string) {
	for _, tc := range []struct {
		script string
		code   int
		signal string
	}{{"exit 0", 0, ""}, {"exit 3", 3, ""}, {"kill -USR1 $$", -1, "USR1"}} {
		res := run(t, h, remote.Cmd{Args: shell("echo out; echo err >&2; " + tc.script)})
		if res.Code != tc.code || res.Signal != tc.signal || string(res.Stdout) != "out\n" || string(res.Stderr) != "err\n" {
			t.Errorf("%s: %+v, want code %d signal %q and both streams", tc.script, res, tc.code, tc.signal)
		}
		if res.Host == "" || res.BootID == "" {
			t.Errorf("%s: ran on host %q, boot id %q; want both", tc.script, res.Host, res.BootID)
		}
		if res.Started.IsZero() || res.Ended.Before(res.Started) {
			t.Errorf("%s: from %v to %v", tc.script, res.Started, res.Ended)
		}
	}
}

func passesWordsUnchanged(t *testing.T, h remote.Host, _ string) {
	words := []string{"", "a b", "it's", `"q"`, "$HOME", "`id`", "*", "\\", "a\nb", "-n", "~", "ä€", ";", "#x", "!x"}
	res := run(t, h, remote.Cmd{Args: append([]string{"printf", `%s|`}, words...)})
	if want := strings.Join(words, "|") + "|"; string(res.Stdout) != want {
		t.Errorf("words (-want +got):\n%s", cmp.Diff(want, string(res.Stdout)))
	}
}

func passesEnvironment(t *testing.T, h remote.Host, dir string) {
	input := strings.Repeat("0123456789abcdef", 32<<10) // 512 KiB: more than is sent ahead
	res := run(t, h, remote.Cmd{
		Args: shell(`echo "$X"; pwd; wc -c`), Env: []string{"X=a 'b'"}, Dir: dir, Stdin: strings.NewReader(input),
	})
	if want := fmt.Sprintf("a 'b'\n%s\n%d\n", dir, len(input)); string(res.Stdout) != want {
		t.Errorf("output %q, want %q", res.Stdout, want)
	}
}

const flood = `(head -c 5242880 /dev/zero | tr '\0' a; echo END) & (head -c 5242880 /dev/zero | tr '\0' b; echo END) >&2 & wait; exit 3`

func drainsFloods(t *testing.T, h remote.Host, _ string) {
	res := run(t, h, remote.Cmd{Args: shell(flood), MaxOut: 1000})
	if res.Code != 3 || res.Dropped != 2*(5<<20+4-1000) {
		t.Errorf("code %d, %d bytes dropped; want 3 and %d", res.Code, res.Dropped, 2*(5<<20+4-1000))
	}
	if want := strings.Repeat("a", 996) + "END\n"; string(res.Stdout) != want {
		t.Errorf("standard output is not the last 1000 bytes: %d bytes, end %q", len(res.Stdout), res.Stdout[max(0, len(res.Stdout)-10):])
	}
	if want := strings.Repeat("b", 996) + "END\n"; string(res.Stderr) != want {
		t.Errorf("standard error is not the last 1000 bytes: %d bytes", len(res.Stderr))
	}
}

func copiesOutput(t *testing.T, h remote.Host, _ string) {
	var out, errs bytes.Buffer
	res := run(t, h, remote.Cmd{Args: shell("seq 100000; seq 100000 >&2; exit 3"), Stdout: &out, Stderr: &errs})
	if res.Code != 3 || out.Len() != 588895 || errs.Len() != 588895 {
		t.Errorf("code %d, %d and %d bytes; want 3 and 588895 each", res.Code, out.Len(), errs.Len())
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func reportsFailingWriter(t *testing.T, h remote.Host, _ string) {
	res, err := h.Run(t.Context(), remote.Cmd{Args: []string{"echo", "hello"}, Stdout: failingWriter{}, Step: "write log"})
	if err == nil || !strings.Contains(err.Error(), "write log: copy standard output: no space left") || res.Code != 0 {
		t.Errorf("code %d, error %v; want code 0 and the writer's error", res.Code, err)
	}
}

func endsAtDeadline(t *testing.T, h remote.Host, _ string) {
	begin := time.Now()
	res, err := h.Run(t.Context(), remote.Cmd{Args: shell("echo before; sleep 100"), Deadline: 3 * time.Second, Step: "hang"})
	if !errors.Is(err, remote.ErrDeadline) || string(res.Stdout) != "before\n" {
		t.Errorf("output %q, error %v; want the output so far and ErrDeadline", res.Stdout, err)
	}
	var e *remote.Error
	if !errors.As(err, &e) || e.Host != h.Name() || e.Step != "hang" || e.Kind != remote.Infrastructure {
		t.Errorf("error %#v, want one of host %s, step hang, kind infrastructure", e, h.Name())
	}
	if took := time.Since(begin); took > 25*time.Second {
		t.Errorf("took %v", took)
	}
}

func endsWithContext(t *testing.T, h remote.Host, _ string) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	defer w.Close()
	go func() {
		io.ReadFull(r, make([]byte, 3))
		cancel()
		io.Copy(io.Discard, r)
	}()
	begin := time.Now()
	_, err := h.Run(ctx, remote.Cmd{Args: shell("echo up; sleep 100"), Stdout: w})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if took := time.Since(begin); took > 25*time.Second {
		t.Errorf("took %v", took)
	}
}

func backgroundChildren(t *testing.T, h remote.Host, _ string) {
	begin := time.Now()
	res := run(t, h, remote.Cmd{Args: shell("sleep 300 & (setsid sleep 301 >/dev/null 2>&1 &); echo done")})
	if string(res.Stdout) != "done\n" || time.Since(begin) > 25*time.Second {
		t.Errorf("output %q after %v; want it at once", res.Stdout, time.Since(begin))
	}
}

func start(t *testing.T, h remote.Host, c remote.Cmd) remote.Process {
	t.Helper()
	p, err := h.Start(t.Context(), c)
	if err != nil {
		t.Fatalf("start %q: %v", c.Args, err)
	}
	return p
}

func wait(t *testing.T, p remote.Process) remote.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	res, err := p.Wait(ctx)
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	return res
}

func holdsAtBarrier(t *testing.T, h remote.Host, dir string) {
	var procs []remote.Process
	for i := range 3 {
		procs = append(procs, start(t, h, remote.Cmd{Args: shell(fmt.Sprintf("echo %d", i)), Hold: true}))
	}
	for _, p := range procs {
		if p.PID() != 0 {
			t.Errorf("held command has pid %d", p.PID())
		}
		select {
		case <-p.Done():
			t.Error("held command has ended")
		default:
		}
	}
	released := time.Now()
	for _, p := range procs {
		if err := p.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("three commands released within %v", time.Since(released).Round(100*time.Microsecond))
	for i, p := range procs {
		if res := wait(t, p); string(res.Stdout) != fmt.Sprintf("%d\n", i) || p.PID() == 0 {
			t.Errorf("command %d: %+v, pid %d", i, res, p.PID())
		}
	}
}

func stopsWithSignal(t *testing.T, h remote.Host, _ string) {
	r, w := io.Pipe()
	p := start(t, h, remote.Cmd{Args: shell(`trap 'echo drained; exit 5' INT; echo up; while :; do sleep 0.05; done`), Stdout: w})
	if _, err := io.ReadFull(r, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, r)
	if err := p.Stop(t.Context(), "INT"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 { // several may wait
		wg.Go(func() {
			res, err := p.Wait(t.Context())
			if err != nil || res.Code != 5 || string(res.Stdout) != "up\ndrained\n" {
				t.Errorf("%+v, %v; want code 5 and what was printed on INT", res, err)
			}
		})
	}
	wg.Wait()
	w.Close()
}

func killsStubborn(t *testing.T, h remote.Host, _ string) {
	r, w := io.Pipe()
	p := start(t, h, remote.Cmd{Args: shell(`trap '' TERM INT HUP; (setsid sh -c 'trap "" TERM; sleep 302; sleep 303' &); echo up; while :; do sleep 1; done`), Stdout: w})
	if _, err := io.ReadFull(r, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, r)
	begin := time.Now()
	if err := p.Stop(t.Context(), "TERM"); err != nil {
		t.Fatal(err)
	}
	if res := wait(t, p); res.Signal != "KILL" {
		t.Errorf("%+v, want signal KILL", res)
	}
	if took := time.Since(begin); took > 25*time.Second {
		t.Errorf("took %v", took)
	}
	w.Close()
}

func cannotStart(t *testing.T, h remote.Host, _ string) {
	_, err := h.Start(t.Context(), remote.Cmd{Args: []string{"no-such-tool", "-x"}, Step: "start server"})
	var e *remote.Error
	if !errors.Is(err, remote.ErrNotStarted) || !errors.As(err, &e) || e.Host != h.Name() || e.Step != "start server" || !strings.Contains(e.Fix, "installed") {
		t.Errorf("error %v, want ErrNotStarted with host, step and fix", err)
	}
	if _, err := h.Run(t.Context(), remote.Cmd{}); !errors.As(err, &e) || e.Kind != remote.Usage {
		t.Errorf("no command: %v, want a usage error", err)
	}
}

func runsRestore(t *testing.T, h remote.Host, dir string) {
	file := path.Join(dir, "restored")
	run(t, h, remote.Cmd{Args: []string{"false"}, Restore: []string{"touch", file}})
	var got bytes.Buffer
	if err := h.Get(t.Context(), file, &got); err != nil {
		t.Error(err)
	}
	_, err := h.Run(t.Context(), remote.Cmd{Args: []string{"true"}, Restore: shell("echo busy; exit 4")})
	if err == nil || !strings.Contains(err.Error(), "restore") || !strings.Contains(err.Error(), "busy") {
		t.Errorf("failed restore: %v, want an error with its output", err)
	}
}

func carriesFiles(t *testing.T, h remote.Host, dir string) {
	ctx := t.Context()
	for name, size := range map[string]int{"empty": 0, "small": 10, "large": 3<<20 + 1} {
		data := make([]byte, size)
		rand.Read(data)
		file := path.Join(dir, "new folder", name)
		if err := h.Put(ctx, file, 0o640, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		if err := h.Put(ctx, file, 0o640, bytes.NewReader(data)); err != nil { // over itself
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := h.Get(ctx, file, &got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), data) {
			t.Errorf("%s: got %d bytes, want the %d that were put", name, got.Len(), size)
		}
	}
	ls := run(t, h, remote.Cmd{Args: []string{"stat", "-c", "%a %n", "empty", "small", "large"}, Dir: path.Join(dir, "new folder")})
	if want := "640 empty\n640 small\n640 large\n"; string(ls.Stdout) != want {
		t.Errorf("modes %q, want %q", ls.Stdout, want)
	}
	if left := run(t, h, remote.Cmd{Args: shell("ls | wc -l"), Dir: path.Join(dir, "new folder")}); strings.TrimSpace(string(left.Stdout)) != "3" {
		t.Errorf("%s files, want 3: temporary ones were left", strings.TrimSpace(string(left.Stdout)))
	}
	var got bytes.Buffer
	if err := h.Get(ctx, "/proc/sys/kernel/ostype", &got); err != nil || got.String() != "Linux\n" {
		t.Errorf("file without a size: %q, %v", got.String(), err)
	}
	var e *remote.Error
	if err := h.Get(ctx, path.Join(dir, "nothing"), io.Discard); !errors.As(err, &e) || !strings.Contains(err.Error(), "get "+path.Join(dir, "nothing")) {
		t.Errorf("missing file: %v, want an error that names it", err)
	}
	if err := h.Put(ctx, "/proc/nowhere/file", 0o644, strings.NewReader("x")); err == nil {
		t.Error("put under /proc succeeded")
	}
}

func manyCommands(t *testing.T, h remote.Host, _ string) {
	var wg sync.WaitGroup
	var procs [20]remote.Process
	for i := range procs {
		wg.Go(func() {
			p, err := h.Start(t.Context(), remote.Cmd{Args: []string{"sleep", "300"}, Deadline: time.Minute})
			if err != nil {
				t.Errorf("start %d: %v", i, err)
				return
			}
			procs[i] = p
		})
	}
	wg.Wait()
	for _, p := range procs {
		if p != nil {
			p.Stop(t.Context(), "TERM")
		}
	}
	for i, p := range procs {
		if p == nil {
			continue
		}
		if res := wait(t, p); res.Signal != "TERM" {
			t.Errorf("command %d: %+v, want signal TERM", i, res)
		}
	}
}
