package knobs_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/testwait"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/guard"
	"github.com/pcmlab/pcmlab/inventory/remote/knobs"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
	"github.com/pcmlab/pcmlab/inventory/remote/sshserver"
)

// TestMain lets the test binary be pcmlab on the hosts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "guard":
			os.Exit(guard.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case "knobs":
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			os.Exit(knobs.Main(ctx, os.Args[2:], os.Stdout, os.Stderr))
		}
	}
	flag.Parse()
	os.Unsetenv("SSH_AUTH_SOCK")
	os.Exit(m.Run())
}

// lab is a host with a knob, and a way to reach it as somebody.
func lab(t *testing.T) (dial func(run string) remote.Host, knob string) {
	t.Helper()
	t.Setenv("PCMLAB_KNOBS_DIR", t.TempDir())
	knob = filepath.Join(t.TempDir(), "knob")
	if err := os.WriteFile(knob, []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := remotetest.Start(t, t.TempDir(), sshserver.Options{SFTP: true})
	return func(run string) remote.Host {
		l := s.Lab(t)
		h, err := remote.Dial(t.Context(), l, l.Hosts[0].Name, remote.Options{Run: run, Home: t.TempDir(), ConfigFiles: []string{}, SameMachine: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		return h
	}, knob
}

func is(t *testing.T, knob, want string) {
	t.Helper()
	testwait.For(t, 20*time.Second, "the knob to be "+want, func() bool { // a guard may be at work
		data, err := os.ReadFile(knob)
		return err == nil && strings.TrimSpace(string(data)) == want
	})
}

func runID(t *testing.T) string { return fmt.Sprintf("test-%d", time.Now().UnixNano()) }

func TestHold_andRelease(t *testing.T) {
	dial, knob := lab(t)
	run := runID(t)
	h := dial(run)
	held, err := knobs.Hold(t.Context(), h, run, "alice@desk", false, time.Minute, []knobs.Knob{{File: knob, Value: "2"}})
	if err != nil {
		t.Fatal(err)
	}
	is(t, knob, "2")
	if left, err := knobs.Left(t.Context(), h, false); err != nil || len(left) != 0 {
		t.Errorf("what is held counts as left: %+v, %v", left, err)
	}
	if changed, err := held.Changed(t.Context()); err != nil || len(changed) != 0 {
		t.Errorf("what nobody touched counts as changed: %+v, %v", changed, err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	is(t, knob, "1")
}

// What somebody else turned during the run is told apart from what was not touched.
func TestHeld_changed(t *testing.T) {
	dial, knob := lab(t)
	run := runID(t)
	held, err := knobs.Hold(t.Context(), dial(run), run, "alice@desk", false, time.Minute, []knobs.Knob{{File: knob, Value: "2"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(knob, []byte("9\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	changed, err := held.Changed(t.Context())
	if err != nil || len(changed) != 1 || changed[0].Knob.File != knob || changed[0].Made != "2" || changed[0].Now != "9" {
		t.Errorf("%+v, %v; want 2 turned into 9", changed, err)
	}
	if err := held.Release(t.Context()); err == nil || !strings.Contains(err.Error(), `is now \"9\"`) {
		t.Errorf("release: %v", err)
	}
}

func TestHold_refused(t *testing.T) {
	dial, knob := lab(t)
	run := runID(t)
	h := dial(run)
	_, err := knobs.Hold(t.Context(), h, run, "alice@desk", false, time.Minute, []knobs.Knob{{File: knob, Value: "2"}, {File: knob + "-none", Value: "2"}})
	if err == nil || !strings.Contains(err.Error(), knob+"-none") || !strings.Contains(err.Error(), h.Name()) || !strings.Contains(err.Error(), "change settings") {
		t.Fatalf("%v", err)
	}
	is(t, knob, "1")
}

// The orchestrator is lost: the guard puts back.
func TestHold_ownerLost(t *testing.T) {
	dial, knob := lab(t)
	run := runID(t)
	h := dial(run)
	if _, err := knobs.Hold(t.Context(), h, run, "alice@desk", false, time.Minute, []knobs.Knob{{File: knob, Value: "2"}}); err != nil {
		t.Fatal(err)
	}
	h.Close()
	is(t, knob, "1")
}

// What cannot be put back is in the error of Release, with what to type, and stays in the journal for cleanup.
func TestRelease_reportsWhatIsLeft(t *testing.T) {
	dial, knob := lab(t)
	run := runID(t)
	h := dial(run)
	held, err := knobs.Hold(t.Context(), h, run, "alice@desk", false, time.Minute, []knobs.Knob{{File: knob, Value: "2"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(knob, []byte("3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := held.Release(t.Context()); err == nil || !strings.Contains(err.Error(), `is now \"3\"`) || !strings.Contains(err.Error(), "sudo tee "+knob) {
		t.Errorf("%v", err)
	}
	other := dial(runID(t))
	left, err := knobs.Left(t.Context(), other, false)
	if err != nil || len(left) != 1 || left[0].Run != run || left[0].Owner != "alice@desk" {
		t.Fatalf("%+v, %v", left, err)
	}
	if err := knobs.Restore(t.Context(), other, false, run); err == nil {
		t.Error("put back over somebody's change")
	}
	if err := os.WriteFile(knob, []byte("2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := knobs.Restore(t.Context(), other, false, run); err != nil {
		t.Fatal(err)
	}
	is(t, knob, "1")
	if left, err := knobs.Left(t.Context(), other, false); err != nil || len(left) != 0 {
		t.Errorf("%+v, %v", left, err)
	}
}
