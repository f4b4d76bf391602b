package remote_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/guard"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
	"github.com/pcmlab/pcmlab/inventory/remote/sshserver"
)

// TestGuardCleanup_overAHost is how leftovers are found and stopped: by run id, through a command that is guarded
// itself.
func TestGuardCleanup_overAHost(t *testing.T) {
	t.Parallel()
	own := t.TempDir()
	s := remotetest.Start(t, own, sshserver.Options{SFTP: true})
	left, cleaner := options(t), options(t)
	p, err := dial(t, s.Lab(t), left).Start(t.Context(), remote.Cmd{Args: []string{"sh", "-c", "sleep 311 & sleep 312"}})
	if err != nil {
		t.Fatal(err)
	}
	h := dial(t, s.Lab(t), cleaner)
	// Without a run id its own guard would be in the list too; it must not stop itself.
	for _, args := range [][]string{{"list"}, {"cleanup", "--run", "no-such-run"}, {"cleanup"}} {
		res, err := h.Run(t.Context(), remote.Cmd{Args: append([]string{"pcmlab", "guard"}, args...)})
		if err != nil || res.Code != 0 {
			t.Fatalf("guard %v: %+v, %v", args, res, err)
		}
		var runs []string
		for line := range strings.Lines(string(res.Stdout)) {
			var s guard.State
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if s.Token != "" {
				t.Error("the token is printed")
			}
			if s.Run != cleaner.Run {
				runs = append(runs, s.Run)
			}
		}
		if want := len(args) < 2; want != (len(runs) == 1 && runs[0] == left.Run) {
			t.Errorf("guard %v: runs %q", args, runs)
		}
	}
	res, err := p.Wait(t.Context())
	if err == nil || !strings.Contains(err.Error(), string(guard.CauseCleanup)) || res.Signal != "TERM" {
		t.Errorf("%+v, %v; want signal TERM and the cause cleanup", res, err)
	}
	if alive := remotetest.Alive(left.Run); len(alive) > 0 {
		t.Errorf("alive: %q", alive)
	}
}
