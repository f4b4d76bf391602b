//go:build linux

package guard

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestGuard_relaysHowTheCommandEnded(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, why string
		args      []string
		code      int
		signal    string
		cause     Cause
		guardCode int
		out, errs string
	}{
		{"success", "nothing must be added to the output", shell("echo a; echo b >&2"), 0, "", "", 0, "a\n", "b\n"},
		{"status", "the exact status", shell("exit 3"), 3, "", "", 3, "", ""},
		{"signal", "a signal is not a status", shell("kill -USR1 $$"), -1, "USR1", "", 128 + 10, "", ""},
		{"missing", "must be told from a command that ran", []string{"no-such-tool"}, -1, "", CauseStart, 125, "", ""},
		{"not_executable", "likewise", []string{"/etc/passwd"}, -1, "", CauseStart, 125, "", ""},
		{"empty_input", "a command that reads must not hang", []string{"cat"}, 0, "", "", 0, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := startGuard(t, Config{Args: tc.args})
			x := o.waitExit()
			if x.Code != tc.code || x.Signal != tc.signal || x.Cause != tc.cause {
				t.Errorf("exit %+v, want code %d signal %q cause %q", x, tc.code, tc.signal, tc.cause)
			}
			if (x.Error != "") != (tc.cause == CauseStart) {
				t.Errorf("exit error %q with cause %q", x.Error, x.Cause)
			}
			o.cmd.Wait()
			if got := o.cmd.ProcessState.ExitCode(); got != tc.guardCode {
				t.Errorf("guard exited with %d, want %d", got, tc.guardCode)
			}
			if d := cmp.Diff([]string{tc.out, tc.errs}, []string{string(o.stdout), string(o.stderr)}); d != "" {
				t.Errorf("output (-want +got):\n%s", d)
			}
			if r, l := o.record(), o.log(); r != nil || l != nil {
				t.Errorf("after a clean end there is a record %+v, and a log %+v", r, l)
			}
			host, boot := identity()
			if o.ready.Host != host || o.ready.BootID != boot || boot == "" {
				t.Errorf("ready %+v, want host %q boot id %q", o.ready, host, boot)
			}
		})
	}
}

func TestGuard_passesEnvironmentDirectoryAndInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := startGuard(t, Config{Args: shell(`cat; pwd; echo "$X|$PCMLAB_RUN"`), Env: []string{"X=a b"}, Dir: dir, Stdin: true})
	o.send(Frame{Type: Stdin, Payload: []byte("typed\n")})
	o.send(Frame{Type: StdinClose})
	o.waitExit()
	if want := "typed\n" + dir + "\na b|" + o.cfg.Run + "\n"; string(o.stdout) != want {
		t.Errorf("output %q, want %q", o.stdout, want)
	}
}

// TestGuard_carriesFloods is O19: 5 MiB on each stream, then exit 3, to a reader that pauses in the middle.
func TestGuard_carriesFloods(t *testing.T) {
	t.Parallel()
	o := newOwner(t, Config{Args: shell(`head -c 5242880 /dev/zero | tr '\0' a & head -c 5242880 /dev/zero | tr '\0' b >&2; wait; exit 3`)})
	o.start()
	o.waitFor("some output", func() bool { return len(o.stdout) > 100<<10 })
	o.pause <- struct{}{} // stop reading
	rss := 0
	for range 20 { // a busy machine needs a while to fill the window; the bound must hold at any time
		rss = max(rss, residentKiB(t, innerOf(o)))
	}
	<-o.pause
	x := o.waitExit()
	if x.Code != 3 || len(o.stdout) != 5<<20 || len(o.stderr) != 5<<20 || x.Dropped != 0 {
		t.Errorf("code %d, %d and %d bytes, %d dropped; want 3 and 5 MiB each", x.Code, len(o.stdout), len(o.stderr), x.Dropped)
	}
	if len(bytes.Trim(o.stdout, "a")) > 0 {
		t.Error("standard output is mixed")
	}
	if rss > 200<<10 {
		t.Errorf("guard uses %d KiB", rss)
	}
}

func residentKiB(t *testing.T, pid int) int {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.Fields(string(b))[1])
	return n * os.Getpagesize() / 1024
}

func TestGuard_holdsUntilGo(t *testing.T) {
	t.Parallel()
	marker := filepath.Join(t.TempDir(), "ran")
	o := startGuard(t, Config{Args: []string{"touch", marker}, Hold: true})
	o.waitFor("ready", func() bool { return o.ready != nil })
	if !o.ready.Held {
		t.Error("ready does not say held")
	}
	if _, err := os.Stat(marker); err == nil || o.get(func() bool { return o.started != nil }) {
		t.Error("the command ran before Go")
	}
	o.send(Frame{Type: Go})
	if x := o.waitExit(); x.Code != 0 || x.Started == nil {
		t.Errorf("exit %+v, want code 0 and a start time", x)
	}
	if _, err := os.Stat(marker); err != nil {
		t.Error(err)
	}
}

func TestGuard_heldCommandNeverRunsWhenTheOwnerIsLost(t *testing.T) {
	t.Parallel()
	marker := filepath.Join(t.TempDir(), "ran")
	o := startGuard(t, Config{Args: []string{"touch", marker}, Hold: true, Grace: 100 * time.Millisecond})
	o.waitFor("ready", func() bool { return o.ready != nil })
	o.in.Close()
	o.waitGone(5 * time.Second)
	if _, err := os.Stat(marker); err == nil {
		t.Error("the command ran")
	}
}

// TestGuard_leavesNothing ends commands that do not want to die in every way a guard can lose its owner.
func TestGuard_leavesNothing(t *testing.T) {
	t.Parallel()
	ends := []struct {
		name, why string
		end       func(*owner)
		cause     Cause
		limit     time.Duration
	}{
		{"channel_closed", "the owner was killed", func(o *owner) { o.in.Close() }, CauseLost, 20 * time.Second},
		{"silence", "the path was cut: no EOF", func(o *owner) { o.mu.Lock(); o.beating = false; o.mu.Unlock() }, CauseLost, 20 * time.Second},
		{"outer_killed", "kill -9 of the outer guard", func(o *owner) { o.cmd.Process.Kill() }, CauseGuardKilled, 20 * time.Second},
		{"inner_killed", "kill -9 of the inner guard", func(o *owner) { unix.Kill(innerOf(o), unix.SIGKILL) }, CauseGuardKilled, 20 * time.Second},
		{"stop", "the owner asks", func(o *owner) { o.send(Frame{Type: Stop, Payload: []byte("INT")}) }, CauseStop, 20 * time.Second},
		{"terminated", "somebody sends TERM to the guard", func(o *owner) { o.cmd.Process.Signal(unix.SIGTERM) }, CauseSignal, 20 * time.Second},
	}
	for _, end := range ends {
		for name, script := range stubborn {
			t.Run(end.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				restored := filepath.Join(t.TempDir(), "restored")
				o := startGuard(t, Config{Args: shell(script), Grace: 300 * time.Millisecond, Silence: 2 * time.Second, Restore: []string{"touch", restored}})
				o.waitOutput("up")
				end.end(o)
				took := o.waitGone(end.limit)
				t.Logf("gone after %v", took.Round(time.Millisecond))
				if _, err := os.Stat(restored); err != nil {
					t.Errorf("not restored: %v (%s)", err, &o.errs)
				}
				if left, _ := filepath.Glob(filepath.Join(o.cache, "pcmlab", "guards", "*", "*")); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
				switch recs := o.log(); {
				case end.cause == CauseStop:
					if x := o.waitExit(); x.Cause != CauseStop || x.Restore == nil || x.Restore.Code != 0 {
						t.Errorf("exit %+v, want cause stop and a restore", x)
					}
				case len(recs) != 1 || recs[0].Exit == nil || recs[0].Exit.Cause != end.cause || recs[0].Exit.Restore == nil || recs[0].Token != "":
					t.Errorf("log %+v, want one end with cause %s", recs, end.cause)
				}
			})
		}
	}
}

// innerOf finds the inner guard, the child of the outer one.
func innerOf(o *owner) int {
	kids, err := children(o.cmd.Process.Pid)
	if err != nil || len(kids) != 1 {
		o.t.Fatalf("children of the outer guard: %v, %v", kids, err)
	}
	return kids[0]
}

func TestGuard_usesItsDefaultsWithinTenSeconds(t *testing.T) {
	t.Parallel()
	o := startGuard(t, Config{Args: shell(ignoresTERM)})
	o.waitOutput("up")
	o.in.Close()
	took := o.waitGone(10 * time.Second)
	if took < DefaultGrace {
		t.Errorf("gone after %v, before the grace of %v was over", took, DefaultGrace)
	}
	t.Logf("gone after %v", took.Round(time.Millisecond))
}

func TestGuard_endsAtItsDeadline(t *testing.T) {
	t.Parallel()
	o := startGuard(t, Config{Args: shell("echo before; sleep 100"), Deadline: 3 * time.Second})
	x := o.waitExit()
	if x.Cause != CauseDeadline || x.Signal != "TERM" || string(o.stdout) != "before\n" {
		t.Errorf("exit %+v with output %q, want cause deadline, signal TERM and the output so far", x, o.stdout)
	}
	o.cmd.Wait()
	if recs := o.log(); len(recs) != 1 || o.record() != nil {
		t.Errorf("log %+v, record %+v; want the end in the log alone", recs, o.record())
	}
}

func TestGuard_stopsWhatTheCommandLeavesBehind(t *testing.T) {
	t.Parallel()
	o := startGuard(t, Config{Args: shell("sleep 300 & echo done")})
	x := o.waitExit()
	if x.Code != 0 || x.Cause != "" || x.Leftover != 1 {
		t.Errorf("exit %+v, want code 0 and one leftover", x)
	}
}

func TestGuard_stopSendsTheSignalAsked(t *testing.T) {
	t.Parallel()
	o := startGuard(t, Config{Args: shell(`trap 'echo drained; exit 5' INT; echo up; while :; do sleep 0.05; done`)})
	o.waitOutput("up")
	o.send(Frame{Type: Stop, Payload: []byte("INT")})
	if x := o.waitExit(); x.Code != 5 || x.Cause != CauseStop || !strings.Contains(string(o.stdout), "drained") {
		t.Errorf("exit %+v with output %q, want code 5, cause stop, and what was printed on INT", x, o.stdout)
	}
}

func TestGuard_reportsAFailedRestore(t *testing.T) {
	t.Parallel()
	for range 5 { // what is printed last must not be lost, however fast the command ends
		o := startGuard(t, Config{Args: []string{"true"}, Restore: shell("echo no device; exit 4")})
		x := o.waitExit()
		want := &RestoreInfo{Args: o.cfg.Restore, Code: 4, Output: "no device\n"}
		if d := cmp.Diff(want, x.Restore); d != "" {
			t.Errorf("restore (-want +got):\n%s", d)
		}
		o.cmd.Wait()
		if recs := o.record(); len(recs) != 2 || recs[1].Exit == nil || recs[1].Exit.Restore.Code != 4 {
			t.Errorf("record %+v, want one that says what was not restored", recs)
		}
	}
}

func TestGuard_letsTheOwnerComeBack(t *testing.T) {
	t.Parallel()
	o := startGuard(t, Config{Args: shell(`for i in 1 2 3 4 5 6 7 8 9; do echo line $i; sleep 0.2; done; exit 6`), Grace: 5 * time.Second})
	o.waitOutput("line 2")
	o.in.Close() // the connection is cut
	o.out.Close()
	<-o.ended

	back := newOwner(t, o.cfg)
	back.cache, back.next, back.stdout = o.cache, o.next, o.stdout
	back.attach(o.ready.ID, "wrong")
	<-back.ended
	if back.ready != nil {
		t.Error("a wrong token was let in")
	}

	back = newOwner(t, o.cfg)
	back.cache, back.next, back.stdout = o.cache, o.next, o.stdout
	back.attach(o.ready.ID, o.ready.Token)
	x := back.waitExit()
	var want strings.Builder
	for i := '1'; i <= '9'; i++ {
		want.WriteString("line " + string(i) + "\n")
	}
	if x.Code != 6 || x.Cause != "" || string(back.stdout) != want.String() {
		t.Errorf("exit %+v, output %q; want code 6 and every line once", x, back.stdout)
	}
}

// attach comes back to a guard through its socket.
func (o *owner) attach(id, token string) {
	o.t.Helper()
	cfg := o.cfg
	attachArgs := []string{"guard", "attach", "--run", cfg.Run, "--id", id}
	o.startArgs(attachArgs)
	b, _ := json.Marshal(AttachInfo{Token: token, Next: o.next})
	o.send(Frame{Type: Attach, Payload: b})
}

func TestCleanup_stopsARunsGuardsAndRemovesTheirRecords(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	mine, other := newOwner(t, Config{Args: shell(ignoresTERM)}), newOwner(t, Config{Args: []string{"sleep", "300"}})
	dead := newOwner(t, Config{Args: []string{"sleep", "300"}, Run: mine.cfg.Run, Deadline: 50 * time.Millisecond, Restore: []string{"false"}})
	for _, o := range []*owner{mine, other, dead} {
		o.cache = cache
		o.start()
		o.waitStarted()
	}
	mine.waitOutput("up")
	dead.waitExit()
	dead.cmd.Wait()

	states, err := List(mine.cfg.Run)
	if err != nil || len(states) != 2 {
		t.Fatalf("List: %+v, %v; want two guards", states, err)
	}
	for _, s := range states {
		if s.Alive != (s.Ended == nil) || (s.Ended != nil && s.Ended.Exit.Cause != CauseDeadline) {
			t.Errorf("state %+v, want either alive or ended by its deadline", s)
		}
	}
	if _, err := Cleanup(t.Context(), mine.cfg.Run); err != nil {
		t.Fatal(err)
	}
	if left := processesOf(mine.cfg.Run); len(left) > 0 {
		t.Errorf("alive after Cleanup: %v", left)
	}
	if states, err := List(mine.cfg.Run); err != nil || len(states) != 0 {
		t.Errorf("List after Cleanup: %+v, %v; want nothing", states, err)
	}
	if states, err := List(""); err != nil || len(states) != 1 || !states[0].Alive {
		t.Errorf("List of all: %+v, %v; want the other run's guard alive", states, err)
	}
}

func TestGuard_worksWithoutAPlaceForItsRecord(t *testing.T) {
	t.Parallel()
	o := newOwner(t, Config{Args: []string{"echo", "hello"}})
	o.cache = "/proc/nowhere"
	o.start()
	if x := o.waitExit(); x.Code != 0 || o.ready.Token != "" {
		t.Errorf("exit %+v, token %q; want code 0 and no token", x, o.ready.Token)
	}
}

// TestLog_isKeptShort: guards of years leave two files of a bounded size, and the latest ends are in them.
func TestLog_isKeptShort(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if err := os.MkdirAll(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "pcmlab"), 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{strings.Repeat("x", 16<<10)}
	for i := range 64 {
		if err := logEnd(Record{Event: "ended", Run: "run-" + strconv.Itoa(i), Args: args}); err != nil {
			t.Fatal(err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "pcmlab", "*"))
	if len(files) != 2 {
		t.Errorf("files %v, want two", files)
	}
	for _, f := range files {
		if st, err := os.Stat(f); err != nil || st.Size() > logLimit+32<<10 {
			t.Errorf("%s: %d bytes, %v", f, st.Size(), err)
		}
	}
	if ends, err := Log("run-63"); err != nil || len(ends) != 1 {
		t.Errorf("the latest end: %d, %v", len(ends), err)
	}
	if ends, err := Log("run-0"); err != nil || len(ends) != 0 {
		t.Errorf("the first end is still there: %d, %v", len(ends), err)
	}
}
