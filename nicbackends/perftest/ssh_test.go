package perftest

import (
	"errors"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
	"github.com/pcmlab/pcmlab/inventory/remote/sshserver"
)

// overSSH gives two hosts as runs have them: reached by SSH, with this test binary pushed as pcmlab, which is guard and
// tool there.
func overSSH(t *testing.T) (h, r remote.Host) {
	t.Helper()
	home := t.TempDir()
	lab := &inventory.Lab{Name: "test"}
	for _, name := range []string{"h1", "r1"} {
		lab.Hosts = append(lab.Hosts, &inventory.Host{Name: name, SSH: remotetest.Start(t, home, sshserver.Options{SFTP: true}).SSH(t)})
	}
	o := remote.Options{Run: "perftest-ssh", Home: t.TempDir(), ConfigFiles: []string{}, SameMachine: true}
	var hosts []remote.Host
	for _, lh := range lab.Hosts {
		host, err := remote.Dial(t.Context(), lab, lh.Name, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { host.Close() })
		hosts = append(hosts, host)
	}
	return hosts[0], hosts[1]
}

func TestSession_overSSHUnderGuards(t *testing.T) {
	ctx := t.Context()
	h, r := overSSH(t)
	var flows []Flow
	for _, name := range []string{"a", "b", "c"} {
		flows = append(flows, Flow{Name: name, Server: Endpoint{r, testNIC()}, Client: Endpoint{h, testNIC()}, Params: Params{Size: 4096, Iterations: 200}})
	}
	flows[2].Params.Size, flows[2].Params.Iterations, flows[2].Params.Duration = 4096, 0, 600e9
	s := newTestSession(t, flows, SessionOptions{Ports: portBlock(t, 4), Pin: true})
	if err := s.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	results, err := s.Wait(ctx, "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range results {
		if f.State != FlowOK || f.Output.Rows[0].Iterations != 200 || f.Client.BootID == "" || f.Began.IsZero() {
			t.Errorf("flow %s: %s %v %+v", f.Name, f.State, f.Failure, f.Output)
		}
	}
	if err := s.Stop(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	if c := s.Results()[2]; c.State != FlowInterrupted {
		t.Errorf("stopped flow: %s %v", c.State, c.Failure)
	}
	if n := s.Notes(); len(n) == 0 || !strings.Contains(n[0], "not pinned") {
		t.Errorf("notes %q: the loopback has no cores of its own", n)
	}
}

func TestSession_missingToolIsNamedWithItsHost(t *testing.T) {
	h, r := overSSH(t)
	nic := testNIC()
	nic.Backend, nic.GIDIndex = "rxe", ptr(0) // so that the tool is looked up in PATH
	p := Params{Tool: SendBW, Iterations: 10}
	s := newTestSession(t, []Flow{{Name: "a", Server: Endpoint{r, nic}, Client: Endpoint{h, nic}, Params: p}}, SessionOptions{Ports: portBlock(t, 1)})
	err := s.Prepare(t.Context())
	if err == nil || !strings.Contains(err.Error(), "host r1") || !strings.Contains(err.Error(), SendBW) {
		t.Errorf("Prepare: %v", err)
	}
	var f *Failure
	if !errors.Is(err, remote.ErrNotStarted) && !(errors.As(err, &f) && f.Class == ToolMissing) {
		t.Errorf("Prepare: %v: not said as a missing tool", err)
	}
}
