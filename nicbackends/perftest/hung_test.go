package perftest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/testwait"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
)

// labOverOpenSSH is a sender and a receiver reached through OpenSSH, each with its own home and what its tool does there
// (see fakeTool), and a way to reach them as a run.
func labOverOpenSSH(t *testing.T, client, server string) func(t *testing.T, run string) (h, r remote.Host) {
	t.Helper()
	lab := &inventory.Lab{Name: "test"}
	for name, mode := range map[string]string{"h1": client, "r1": server} {
		home := t.TempDir()
		if err := os.WriteFile(filepath.Join(home, "fake_tool"), []byte(mode), 0o644); err != nil {
			t.Fatal(err)
		}
		lab.Hosts = append(lab.Hosts, &inventory.Host{Name: name, SSH: remotetest.StartSSHD(t, home, "").SSH(t)})
	}
	return func(t *testing.T, run string) (h, r remote.Host) {
		t.Helper()
		var hosts []remote.Host
		for _, name := range []string{"h1", "r1"} {
			host, err := remote.Dial(t.Context(), lab, name, remote.Options{Run: run, Home: t.TempDir(), ConfigFiles: []string{}, SameMachine: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { host.Close() })
			hosts = append(hosts, host)
		}
		return hosts[0], hosts[1]
	}
}

func oneFlow(h, r remote.Host) []Flow {
	return []Flow{{Name: "a", Server: Endpoint{r, testNIC()}, Client: Endpoint{h, testNIC()}, Params: Params{Size: 4096, Iterations: 20}}}
}

// TestSession_hungServer is USERS O09: a server that holds its port for ever and ignores who asks it to end is ended all the
// same, when its client dies and when the whole run is lost, and the next run finds the port free; while it is not, it is told who
// holds it.
func TestSession_hungServer(t *testing.T) {
	dial := labOverOpenSSH(t, "dies", "stubborn")
	ports := portBlock(t, 2)
	ports.Count = 1

	h, r := dial(t, "hung-1")
	s := newTestSession(t, oneFlow(h, r), SessionOptions{Run: "hung-1", Ports: ports})
	if err := s.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	results, err := s.Wait(t.Context())
	if err != nil || results[0].State != FlowFailed || results[0].Failure.Class != PeerLost || results[0].Failure.Side != Client {
		t.Errorf("%+v, %v; want the client that died", results[0], err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left := remotetest.Alive("hung-1"); len(left) > 0 || listens(ports.First) {
		t.Errorf("left %q, port %d taken: %v", left, ports.First, listens(ports.First))
	}

	// The run is lost: nobody stops the server, gives the port back, or says a word.
	h, r = dial(t, "hung-2")
	lost, err := NewSession(oneFlow(h, r), SessionOptions{Run: "hung-2", Owner: "alice@desk", Ports: ports})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := r.Start(t.Context(), remote.Cmd{Args: []string{"sleep", "600"}, Deadline: time.Minute, Restore: ForgetPorts("hung-2"), Step: "hold the run's folder"})
	if err != nil {
		t.Fatal(err)
	}
	if err := lost.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, next := dial(t, "hung-3")
	claim := func() error {
		lease, err := ClaimPorts(t.Context(), next, PortClaim{Run: "hung-3", Range: ports, Count: 1})
		if err == nil {
			err = lease.Release(t.Context())
		}
		return err
	}
	var busy *PortsError
	if err := claim(); !errors.As(err, &busy) || !strings.Contains(err.Error(), "run hung-2.pool of alice@desk until ") {
		t.Errorf("while the run goes on: %v", err)
	}
	// Without its claim, as after a host's cache was cleared, the process itself says whose it is.
	if _, err := next.Run(t.Context(), remote.Cmd{Args: ForgetPorts("hung-2"), Plain: true}); err != nil {
		t.Fatal(err)
	}
	if err := claim(); !errors.As(err, &busy) || !strings.Contains(err.Error(), "left by run hung-2: pcmlab cleanup --run hung-2") || !strings.Contains(err.Error(), "(ib_write_bw -d fake0") {
		t.Errorf("with the process alone: %v", err)
	}
	// A claim that only the lease's guard can give back.
	if _, err := ClaimPorts(t.Context(), next, PortClaim{Run: "hung-2", Ports: []int{ports.First + 1}}); err != nil {
		t.Fatal(err)
	}
	h.Close()
	r.Close()
	<-lease.Done()
	testwait.For(t, 30*time.Second, "guards to end what the lost run had started", func() bool { return len(remotetest.Alive("hung-2")) == 0 })
	if err := claim(); err != nil {
		t.Errorf("the next run: %v", err)
	}
	if held, err := ListPorts(t.Context(), next); err != nil || len(held) > 0 {
		t.Errorf("claims of a run that is lost: %v, %v", held, err)
	}
}
