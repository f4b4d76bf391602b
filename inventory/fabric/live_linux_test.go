package fabric

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/internal/units"
)

// running is a fabric that a test has started.
type running struct {
	socket string
	cancel context.CancelFunc
	ended  chan error
}

// start runs a fabric until the test ends and waits until it is ready.
func start(t testing.TB, cfg Config) *running {
	t.Helper()
	dir, err := os.MkdirTemp("", "fabric") // t.TempDir's paths are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg.Control = filepath.Join(dir, "control")
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{socket: cfg.Control, cancel: cancel, ended: make(chan error, 1)}
	heard, say := io.Pipe()
	go func() {
		err := Run(ctx, cfg, say, nil)
		say.CloseWithError(fmt.Errorf("fabric ended: %w", err))
		r.ended <- err
	}()
	line, err := io.ReadAll(heard)
	if string(line) != "ready\n" {
		t.Fatalf("fabric said %q (%v), want ready", line, err)
	}
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-r.ended:
			if err != nil {
				t.Errorf("fabric ended with %v", err)
			}
			r.ended <- err
		case <-time.After(5 * time.Second):
			t.Error("fabric did not end within 5s of its context")
		}
	})
	return r
}

func (r *running) counters(t testing.TB) Counters {
	t.Helper()
	c, err := Query(r.socket)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// waitUntil polls cond with a deadline.
func waitUntil(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10s: %s", what)
		}
		tick := time.NewTimer(2 * time.Millisecond)
		<-tick.C
	}
}

// udp opens a socket of h; its namespace stays that of the host wherever it is used.
func udp(t testing.TB, h *host, port int) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	err := h.do(func() (err error) {
		c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: h.ip, Port: port})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func ports(hosts []*host, rate units.Rate, delay time.Duration, kind Kind) []PortConfig {
	var ps []PortConfig
	for _, h := range hosts {
		ps = append(ps, PortConfig{Name: h.name, FD: h.fd, Kind: kind, MAC: h.mac.String(), Rate: rate, Delay: delay})
	}
	return ps
}

// paths are the ways to move packets that a test holds to the same behaviour.
var paths = []struct {
	io   IO
	kind Kind
}{
	{IOUring, KindTAP},
	{IOReadWrite, KindTAP},
	{IOUring, KindPacket},
	{IOPacket, KindPacket},
}

func TestRun_carriesDatagramsBothWays(t *testing.T) {
	for _, path := range paths {
		t.Run(string(path.io)+"_"+string(path.kind), func(t *testing.T) {
			hosts := newHosts(t, 2, path.kind)
			r := start(t, Config{Name: "t", IO: path.io, Ports: ports(hosts, units.GbitPerSec, 50*time.Microsecond, path.kind)})
			a, b := udp(t, hosts[0], 4791), udp(t, hosts[1], 4791)
			payload := make([]byte, 4096)
			for i := range payload {
				payload[i] = byte(i * 7)
			}
			const n = 200
			got := make([]byte, 8192)
			for i := range n {
				payload[0] = byte(i)
				from, to := a, b
				if i%2 == 1 {
					from, to = b, a
				}
				if _, err := from.WriteTo(payload, to.LocalAddr()); err != nil {
					t.Fatal(err)
				}
				if err := to.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
					t.Fatal(err)
				}
				size, err := to.Read(got)
				if err != nil {
					t.Fatalf("datagram %d: %v; counters %+v", i, err, r.counters(t))
				}
				if string(got[:size]) != string(payload) {
					t.Fatalf("datagram %d came changed", i)
				}
			}
			c := r.counters(t)
			if c.IO != path.io {
				t.Errorf("io %q, want %q", c.IO, path.io)
			}
			for _, p := range c.Ports {
				if p.RxRoCEPackets != n/2 || p.TxRoCEPackets != n/2 || p.DroppedPackets != 0 {
					t.Errorf("port %s: %d RoCE packets in, %d out, %d dropped, want %d, %d, 0", p.Name, p.RxRoCEPackets, p.TxRoCEPackets, p.DroppedPackets, n/2, n/2)
				}
			}
			if c.Lateness.Samples < n || c.Lateness.P50 == nil || c.Syscalls == 0 || c.CPUNS == 0 {
				t.Errorf("lateness %+v, syscalls %d, CPU %d ns: not measured", c.Lateness, c.Syscalls, c.CPUNS)
			}
		})
	}
}

// TestRun_tuned runs with what trades lateness against processor time, and without priority where that is refused.
func TestRun_tuned(t *testing.T) {
	for _, path := range paths {
		t.Run(fmt.Sprintf("%s_%s", path.io, path.kind), func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			hosts := newHosts(t, 2, path.kind)
			t.Cleanup(func() {
				goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("github.com/pcmlab/pcmlab/inventory/fabric.newHost.func1"))
			})
			const quantum = 300 * time.Microsecond
			r := start(t, Config{Name: "q", IO: path.io, Quantum: quantum, Realtime: true, Ports: ports(hosts, units.GbitPerSec, 0, path.kind)})
			a, b := udp(t, hosts[0], 4791), udp(t, hosts[1], 4791)
			const n = 2000
			syscalls := r.counters(t).Syscalls
			got := 0
			buf := make([]byte, 100)
			for i := range n {
				if _, err := a.WriteTo(buf, b.LocalAddr()); err != nil {
					t.Fatal(err)
				}
				for got < i-50 || i == n-1 && got < n { // never more under way than a plain user's socket buffer holds
					if err := b.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
						t.Fatal(err)
					}
					if _, err := b.Read(buf); err != nil {
						t.Fatalf("datagram %d: %v; %+v", got, err, r.counters(t))
					}
					got++
				}
			}
			c := r.counters(t)
			if path.io == IOUring && c.Syscalls-syscalls > n {
				t.Errorf("%d system calls for %d packets: nothing was gathered", c.Syscalls-syscalls, n)
			}
		})
	}
}

func TestRun_endsWhenAllInterfacesAreGone(t *testing.T) {
	hosts := newHosts(t, 1, KindTAP)
	cfg := Config{Name: "gone", Ports: ports(hosts, units.GbitPerSec, 0, KindTAP)}
	heard, say := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Run(t.Context(), cfg, say, nil) }()
	if _, err := io.ReadAll(heard); err != nil {
		t.Fatal(err)
	}
	if err := hosts[0].do(func() error { return delLink("eth0") }); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, ErrPortsGone) {
			t.Errorf("ended with %v, want %v", err, ErrPortsGone)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("still running 5s after its only interface was removed")
	}
	if _, err := unix.FcntlInt(uintptr(hosts[0].fd), unix.F_GETFD, 0); err == nil {
		t.Error("descriptor was left open")
	}
}
