package perftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/testwait"
	"github.com/pcmlab/pcmlab/inventory"
)

func testNIC() *inventory.NIC {
	return &inventory.NIC{Device: "fake0", Netdev: "lo", IP: netip.MustParsePrefix("127.0.0.1/8"), Backend: SoftBackend, DSCP: 26, ECN: true}
}

// portBlock finds n consecutive ports that nothing uses, far from the ephemeral ones of other tests.
func portBlock(t *testing.T, n int) PortRange {
	t.Helper()
	for first := 20000 + os.Getpid()%5000; first < 32000; first += n {
		free := true
		for i := range n {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+i))
			if err != nil {
				free = false
				break
			}
			l.Close()
		}
		if free {
			return PortRange{First: first, Count: n}
		}
	}
	t.Fatal("no free block of ports")
	return PortRange{}
}

func incast(h, r *localHost, n int, p Params) (flows []Flow) {
	for i := range n {
		flows = append(flows, Flow{Name: fmt.Sprintf("h%d", i+1), Server: Endpoint{r, testNIC()}, Client: Endpoint{h, testNIC()}, Params: p})
	}
	return flows
}

func newTestSession(t *testing.T, flows []Flow, o SessionOptions) *Session {
	t.Helper()
	if o.Run == "" {
		o.Run = strings.ReplaceAll(t.Name(), "/", "-")
	}
	if o.Linger == 0 {
		o.Linger = time.Second
	}
	s, err := NewSession(flows, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestSession_incastRunsFlowsAtABarrier(t *testing.T) {
	ctx := t.Context()
	r, h := newLocalHost(t, "r1"), newLocalHost(t, "h1")
	s := newTestSession(t, incast(h, r, 3, Params{Size: 4096, Iterations: 100}), SessionOptions{Ports: portBlock(t, 8)})
	if err := s.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	for _, f := range s.Results() {
		if f.State != FlowNotStarted {
			t.Errorf("flow %s before Start: %s", f.Name, f.State)
		}
	}
	if err := s.Start(ctx, "h1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(ctx, "h2", "h3"); err != nil {
		t.Fatal(err)
	}
	results, err := s.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ports := map[int]bool{}
	for _, f := range results {
		if f.State != FlowOK || f.Failure != nil || f.Output.Rows[0].Iterations != 100 {
			t.Errorf("flow %s: %s %v", f.Name, f.State, f.Failure)
			continue
		}
		ports[f.Port] = true
		// DSCP 26 with ECT(0) is 106.
		if want := "--tclass=106"; !slices.Contains(f.Client.Argv, want) || !slices.Contains(f.Server.Argv, want) {
			t.Errorf("flow %s: argv %v without %s", f.Name, f.Client.Argv, want)
		}
	}
	if len(ports) != 3 {
		t.Errorf("ports %v: want one for each flow", ports)
	}
	if err := s.Start(ctx, "h1"); err == nil {
		t.Error("a flow could be started twice")
	}
	if err := s.Start(ctx, "h9"); err == nil {
		t.Error("an unknown flow could be started")
	}
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(r.home + "/.cache/pcmlab/ports"); len(left) > 1 || len(left) == 1 && left[0].Name() != ".lock" {
		t.Errorf("port claims left: %v", left)
	}
}

func TestSession_waitsForASlowListener(t *testing.T) {
	ctx := t.Context()
	r, h := newLocalHost(t, "r1", "FAKE_TOOL=slow"), newLocalHost(t, "h1")
	s := newTestSession(t, incast(h, r, 1, Params{Iterations: 10}), SessionOptions{Ports: portBlock(t, 1)})
	began := time.Now()
	if err := s.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d < 1500*time.Millisecond {
		t.Errorf("ready after %v, before the server listened", d)
	}
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	results, err := s.Wait(ctx)
	if err != nil || results[0].State != FlowOK || results[0].Retries != 0 {
		t.Errorf("%v, %+v", err, results)
	}
}

func TestSession_serverThatNeverListensFailsBounded(t *testing.T) {
	r, h := newLocalHost(t, "r1", "FAKE_TOOL=never"), newLocalHost(t, "h1")
	s := newTestSession(t, incast(h, r, 1, Params{Iterations: 10}), SessionOptions{Ports: portBlock(t, 1), Listen: 300 * time.Millisecond, Linger: 200 * time.Millisecond})
	err := s.Prepare(t.Context())
	var f *Failure
	if !errors.As(err, &f) || f.Class != Timeout || f.Side != Server || f.Host != "r1" {
		t.Errorf("Prepare: %v", err)
	}
}

func TestSession_busyPortIsRefusedBeforeAnythingStarts(t *testing.T) {
	r, h := newLocalHost(t, "r1"), newLocalHost(t, "h1")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := Params{Iterations: 10, Port: l.Addr().(*net.TCPAddr).Port}
	s := newTestSession(t, incast(h, r, 1, p), SessionOptions{})
	var ports *PortsError
	if err := s.Prepare(t.Context()); !errors.As(err, &ports) || !strings.Contains(err.Error(), fmt.Sprintf("process %d of user ", os.Getpid())) {
		t.Errorf("Prepare: %v", err)
	}
	for _, step := range r.steps {
		if strings.HasPrefix(step, "start ") {
			t.Errorf("%q was done", step)
		}
	}
}

// O08: two runs of 16 flows each share a receiver whose range has 20 ports.
func TestSession_secondRunIsToldWhoHoldsThePorts(t *testing.T) {
	ctx := t.Context()
	r := newLocalHost(t, "r1")
	block := portBlock(t, 20)
	first, err := ClaimPorts(ctx, r, PortClaim{Run: "run-a", Owner: "alice@desk", Range: block, Count: 16})
	if err != nil {
		t.Fatal(err)
	}
	if held, err := ListPorts(ctx, r); err != nil || len(held) != 16 || held[0].Port != first.Ports[0] || held[0].Run != "run-a" || held[0].Owner != "alice@desk" || time.Until(held[0].Expires) > time.Hour {
		t.Errorf("16 claims are listed as %+v, %v", held, err)
	}
	_, err = ClaimPorts(ctx, r, PortClaim{Run: "run-b", Owner: "bob@desk", Range: block, Count: 16})
	var ports *PortsError
	if !errors.As(err, &ports) || ports.Need != 16 || ports.Free != 4 || len(ports.Held) != 16 {
		t.Fatalf("second claim: %v", err)
	}
	for _, want := range []string{"host r1", "16 flows", "run run-a of alice@desk until "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q: no %q in it", err, want)
		}
	}
	four, err := ClaimPorts(ctx, r, PortClaim{Run: "run-b", Owner: "bob@desk", Range: block, Count: 4})
	if err != nil {
		t.Fatalf("the refused claim kept ports: %v", err)
	}
	if slices.ContainsFunc(four.Ports, func(p int) bool { return slices.Contains(first.Ports, p) }) {
		t.Errorf("ports %v and %v overlap", first.Ports, four.Ports)
	}
	if err := first.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := four.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := ClaimPorts(ctx, r, PortClaim{Run: "run-b", Range: block, Count: 20}); err != nil {
		t.Errorf("after release: %v", err)
	}
}

func TestClaimPorts_lapsedAndTornClaimsAreTaken(t *testing.T) {
	ctx := t.Context()
	r := newLocalHost(t, "r1")
	block := portBlock(t, 2)
	dir := r.home + "/.cache/pcmlab/ports"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{fmt.Sprint(block.First): "dead-run 1000 nobody\n", fmt.Sprint(block.First + 1): ""} {
		if err := os.WriteFile(dir+"/"+name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := ClaimPorts(ctx, r, PortClaim{Run: "run-a", Range: block, Count: 2})
	if err != nil || !slices.Equal(l.Ports, []int{block.First, block.First + 1}) {
		t.Errorf("claim over an expired and an empty file: %v, %v", l, err)
	}
}

func TestSession_failedCompletionFailsItsFlowAlone(t *testing.T) {
	ctx := t.Context()
	r, good, bad := newLocalHost(t, "r1"), newLocalHost(t, "h1"), newLocalHost(t, "h2", "FAKE_TOOL=completion")
	flows := append(incast(good, r, 1, Params{Iterations: 50}), Flow{Name: "bad", Server: Endpoint{r, testNIC()}, Client: Endpoint{bad, testNIC()}, Params: Params{Iterations: 1000}})
	s := newTestSession(t, flows, SessionOptions{Ports: portBlock(t, 2)})
	if err := s.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	results, err := s.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if results[0].State != FlowOK {
		t.Errorf("the good flow: %s %v", results[0].State, results[0].Failure)
	}
	f := results[1].Failure
	if results[1].State != FlowFailed || f == nil || f.Class != Completion || f.WC != WCRetryExcErr || f.Host != "h2" || len(f.ServerTail) == 0 {
		t.Errorf("the bad flow: %s %v", results[1].State, f)
	}
}

func TestSession_stopEndsARunningFlowAsInterrupted(t *testing.T) {
	ctx := t.Context()
	r, h := newLocalHost(t, "r1"), newLocalHost(t, "h1")
	s := newTestSession(t, incast(h, r, 2, Params{Size: 4096, Duration: 600 * time.Second}), SessionOptions{Ports: portBlock(t, 2)})
	if err := s.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(ctx, "h1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	results := s.Results()
	if results[0].State != FlowInterrupted || results[0].Failure != nil {
		t.Errorf("running flow: %s %v", results[0].State, results[0].Failure)
	}
	if results[1].State != FlowNotStarted || results[1].Failure != nil {
		t.Errorf("held flow: %s %v", results[1].State, results[1].Failure)
	}
}

func TestSession_killedServerIsPeerLost(t *testing.T) {
	ctx := t.Context()
	r, h := newLocalHost(t, "r1"), newLocalHost(t, "h1", "FAKE_TOOL=hang")
	s := newTestSession(t, incast(h, r, 1, Params{Size: 4096, Iterations: 1000000}), SessionOptions{Ports: portBlock(t, 1), Linger: 300 * time.Millisecond})
	if err := s.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	pid := r.procs[len(r.procs)-1].PID()
	for _, p := range r.procs {
		if !p.endedNow() {
			pid = p.PID()
		}
	}
	r.mu.Unlock()
	testwait.For(t, 10*time.Second, "the server's port to be taken by the client", func() bool { return !listens(s.Results()[0].Port) })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	results, err := s.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if f := results[0].Failure; f == nil || f.Class != PeerLost || f.Side != Server {
		t.Errorf("%s %v", results[0].State, f)
	}
}

// A server that is gone when the client comes is the start race; it is run again once.
func TestSession_startRaceIsRetriedOnce(t *testing.T) {
	ctx := t.Context()
	r, h := newLocalHost(t, "r1"), newLocalHost(t, "h1")
	s := newTestSession(t, incast(h, r, 1, Params{Iterations: 20}), SessionOptions{Ports: portBlock(t, 1)})
	if err := s.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	// Somebody's connection uses up the server before the client is let go.
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.Results()[0].Port))
	if err != nil {
		t.Fatal(err)
	}
	testwait.For(t, 10*time.Second, "the server to stop listening", func() bool { return !listens(s.Results()[0].Port) })
	conn.Close()
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	results, err := s.Wait(ctx)
	if err != nil || results[0].State != FlowOK || results[0].Retries != 1 || len(results[0].Notes) == 0 {
		t.Errorf("%v: state %s retries %d notes %v failure %v", err, results[0].State, results[0].Retries, results[0].Notes, results[0].Failure)
	}
}

func TestNewSession_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	h := &localHost{name: "h"}
	nic := testNIC()
	_, err := NewSession([]Flow{
		{Name: "a", Server: Endpoint{h, nic}, Client: Endpoint{h, nic}, Params: Params{Duration: 10 * time.Second, AllSizes: true}},
		{Name: "a", Server: Endpoint{h, nic}, Client: Endpoint{h, nic}},
		{Name: "b", Server: Endpoint{h, nic}},
	}, SessionOptions{})
	for _, want := range []string{"flow a: duration, sizes: ", `flow "a": need a name of its own`, "flow b: need a host"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewSession: %v\nwant %q in it", err, want)
		}
	}
}
