package vlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// upAndDie is a caller of Up that is killed at a step, or kills the keeper there: args are state folder, data folder,
// victim (self, keeper), step and, optionally, "ephemeral".
func upAndDie(args []string) error {
	o := Options{StateDir: args[0], DataDir: args[1], ID: "victim", Ephemeral: len(args) > 4}
	o.Progress = func(s Step) {
		if s.What != args[3] {
			return
		}
		if args[2] == "self" {
			unix.Kill(os.Getpid(), unix.SIGKILL)
		}
		s2, err := loadState(filepath.Join(o.StateDir, o.ID))
		if err == nil {
			s2.Keeper.kill(context.Background(), unix.SIGKILL)
		}
	}
	_, err := Up(context.Background(), testLab("victim", 2), o)
	return err
}

func startVictim(t *testing.T, o Options, args ...string) (status string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], append([]string{"up-and-die", o.StateDir, o.DataDir}, args...)...)
	var out strings.Builder
	cmd.Stderr = &out
	cmd.Run()
	return cmd.ProcessState.String() + " " + out.String()
}

// steps lists what Up tells on the way, which is where it can be killed.
func steps(t *testing.T) []string {
	t.Helper()
	var names []string
	o := testOptions(t)
	o.Progress = func(s Step) { names = append(names, s.What) }
	inst := up(t, testLab("victim", 2), o)
	if _, err := inst.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	return names
}

func nothingLeft(t *testing.T, before world, o Options) {
	t.Helper()
	var diff string
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if !waitUntil(ctx, 20*time.Millisecond, func() bool { diff = cmp.Diff(before, lookAround(t)); return diff == "" }) {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
	for _, dir := range []string{o.StateDir, o.DataDir} {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
			t.Errorf("left behind in %s: %v", dir, entries)
		}
	}
}

func TestDown_afterKillAtEachStep(t *testing.T) {
	needLab(t)
	for i, step := range steps(t) {
		for _, victim := range []string{"self", "keeper"} {
			t.Run(fmt.Sprintf("%02d %s %s", i, victim, step), func(t *testing.T) {
				before := lookAround(t)
				o := testOptions(t)
				status := startVictim(t, o, victim, step)
				if victim == "self" && !strings.Contains(status, "killed") {
					t.Fatalf("was to be killed: %s", status)
				}
				r, err := Down(t.Context(), "victim", o)
				if err != nil && !errors.Is(err, ErrNotFound) {
					t.Errorf("down: %v\n%+v", err, r)
				}
				nothingLeft(t, before, o)
				if _, err := Down(t.Context(), "victim", o); !errors.Is(err, ErrNotFound) {
					t.Errorf("second down: got %v, want ErrNotFound", err)
				}
			})
		}
	}
}

func TestUp_outlivesItsCallerUnlessEphemeral(t *testing.T) {
	needLab(t)
	before := lookAround(t)
	o := testOptions(t)
	t.Cleanup(func() { Down(context.Background(), "victim", o) })
	startVictim(t, o, "self", "ready")
	inst, err := Open("victim", o)
	if err != nil {
		t.Fatalf("lab after its caller was killed: %v", err)
	}
	if got := run(t, inst, "h2", "hostname"); got != "h2" {
		t.Errorf("hostname: %q", got)
	}
	if _, err := inst.Down(t.Context()); err != nil {
		t.Error(err)
	}
	nothingLeft(t, before, o)

	began := time.Now()
	startVictim(t, o, "self", "ready", "ephemeral")
	nothingLeft(t, before, o) // without Down, folders too
	t.Logf("ephemeral lab was gone %s after its caller began", time.Since(began).Round(time.Millisecond))
}

func TestDown_afterLabProcessesWereKilled(t *testing.T) {
	tests := []struct {
		name, why, event string
		victim           func(*state) process
	}{
		{"host_init", "its PID namespace dies with it, the others stay", "host h1: killed by SIGKILL", func(s *state) process { return s.Hosts[0].Init }},
		{"fabric", "the links stay, nothing flows", "fabric sw: killed by SIGKILL", func(s *state) process { return s.Fabrics[0].Process }},
		{"keeper", "the kernel ends everything below it", "", func(s *state) process { return s.Keeper }},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			before := lookAround(t)
			o := testOptions(t)
			inst := up(t, testLab("hurt", 2), o)
			run(t, inst, "h2", "sh", "-c", "setsid sleep 1000 </dev/null >/dev/null 2>&1 &")
			spaces := map[string]bool{}
			for _, h := range inst.state.Hosts {
				spaces[pidNamespace(t, h.Init.PID)] = true
			}
			if err := tc.victim(inst.state).kill(t.Context(), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if tc.event != "" {
				select {
				case got := <-inst.Events():
					if got != tc.event {
						t.Errorf("event: got %q, want %q", got, tc.event)
					}
				case <-time.After(10 * time.Second):
					t.Error("no event")
				}
			}
			infos, err := List(o)
			if err != nil || len(infos) != 1 || infos[0].Status == StatusUp || len(infos[0].Problems) == 0 {
				t.Errorf("list: %+v, %v", infos, err)
			}
			r, err := inst.Down(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			gone := 0
			for _, i := range r.Items {
				if i.Result == Gone {
					gone++
				}
			}
			if gone == 0 {
				t.Errorf("the report does not say what was dead already: %+v", r.Items)
			}
			nothingLeft(t, before, o)
			if left := inNamespaces(t, spaces); len(left) > 0 {
				t.Errorf("still running in the hosts: %v", left)
			}
		})
	}
}

func TestDown_ofAFrozenKeeper(t *testing.T) {
	before := lookAround(t)
	o := testOptions(t)
	inst := up(t, testLab("frozen", 2), o)
	if err := inst.state.Keeper.kill(t.Context(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := inst.Down(t.Context()); err != nil {
		t.Error(err)
	}
	nothingLeft(t, before, o)
}

func TestKill_looksAtTheStartTime(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	p, err := identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := process{PID: p.PID, Start: p.Start - 1}
	if err := other.kill(t.Context(), unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if !p.alive() {
		t.Error("killed a process that only has the same number")
	}
}

func pidNamespace(t *testing.T, pid int) string {
	t.Helper()
	l, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func inNamespaces(t *testing.T, spaces map[string]bool) (left []string) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if l, err := os.Readlink(d + "/ns/pid"); err == nil && spaces[l] {
			left = append(left, d)
		}
	}
	return left
}
