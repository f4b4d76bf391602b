package softnic

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/internal/testwait"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

// childConfig makes the test binary serve a NIC, so that it can run in a network namespace of its own.
const childConfig = "PCMLAB_SOFTNIC_TEST_CONFIG"

func TestMain(m *testing.M) {
	path := os.Getenv(childConfig)
	if path == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := LoadConfig(path)
	if err == nil {
		err = Serve(ctx, c, nil)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// hostPair is two NICs in two network namespaces with a veth pair between them.
type hostPair struct {
	dir  string
	conf [2]Config
	cmd  [2]*exec.Cmd
}

// newHostPair needs the right to make network namespaces; a plain user gets it from a user namespace, which a test
// cannot enter with threads running, so such runs are skipped.
func newHostPair(t testing.TB, change func(*Config)) *hostPair {
	t.Helper()
	p := &hostPair{dir: t.TempDir()}
	for i := range p.conf {
		c := Config{Device: fmt.Sprintf("softnic%d", i), Netdev: "eth0", IP: netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", 11+i)),
			RateBps: 20_000_000_000, ECN: true, DSCP: 26, DCQCN: DCQCNConfig{Enabled: true}}
		if change != nil {
			change(&c)
		}
		c.Socket = filepath.Join(p.dir, c.Device+".sock")
		p.conf[i] = c
	}
	step := make(chan error)
	var peer int // a thread in the first namespace, to hand the other end of the veth to
	peerReady, moved := make(chan struct{}), make(chan struct{})
	host := func(i int) error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			close(peerReady)
			return os.NewSyscallError("unshare", err)
		}
		if i == 0 {
			peer = unix.Gettid()
			close(peerReady)
			<-moved
		} else {
			<-peerReady
			err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: 4200}, PeerName: "peer"})
			if err == nil {
				var l netlink.Link
				if l, err = netlink.LinkByName("peer"); err == nil {
					err = netlink.LinkSetNsPid(l, peer)
				}
			}
			close(moved)
			if err != nil {
				return fmt.Errorf("veth: %w", err)
			}
		}
		name := "eth0"
		if i == 0 {
			name = "peer"
		}
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if i == 0 {
			if err := netlink.LinkSetName(l, "eth0"); err != nil {
				return err
			}
			if err := netlink.LinkSetMTU(l, 4200); err != nil {
				return err
			}
		}
		addr, err := netlink.ParseAddr(p.conf[i].IP.String())
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(l, addr); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
		file := filepath.Join(p.dir, fmt.Sprintf("nic%d.json", i))
		b, err := json.Marshal(p.conf[i])
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, b, 0o600); err != nil {
			return err
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childConfig+"="+file)
		cmd.Stderr = os.Stderr
		p.cmd[i] = cmd
		return cmd.Start()
	}
	for i := range p.conf {
		go func() {
			runtime.LockOSThread() // and never unlock: the thread ends in its namespace
			step <- host(i)
		}()
	}
	err1, err2 := <-step, <-step
	t.Cleanup(func() {
		for _, c := range p.cmd {
			if c != nil && c.Process != nil {
				_ = c.Process.Signal(os.Interrupt)
				if err := c.Wait(); err != nil {
					t.Errorf("NIC process: %v", err)
				}
			}
		}
	})
	for _, err := range []error{err1, err2} {
		if err != nil {
			if os.Getuid() != 0 {
				t.Skipf("needs a network namespace: %v", err)
			}
			t.Fatal(err)
		}
	}
	for _, c := range p.conf {
		testwait.For(t, 20*time.Second, "socket of "+c.Device, func() bool {
			k, err := DialControl(c.Socket)
			if err == nil {
				k.Close()
			}
			return err == nil
		})
	}
	return p
}

func (p *hostPair) status(t testing.TB, i int) Status {
	t.Helper()
	k, err := DialControl(p.conf[i].Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	s, err := k.Show()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// BenchmarkHosts_write4KiB sends 64 KiB WRITEs at MTU 4096 from one namespace to another over a veth pair, ICRC on.
func BenchmarkHosts_write4KiB(b *testing.B) {
	for _, receiver := range []string{"udp", "packet"} {
		b.Run("receive="+receiver, func(b *testing.B) { writeHosts(b, receiver) })
	}
}

func writeHosts(b *testing.B, receiver string) {
	p := newHostPair(b, func(c *Config) { c.Receive = receiver })
	x, _ := joined(b, openDevice(b, p.dir, "softnic0"), openDevice(b, p.dir, "softnic1"),
		perftest.QPOptions{BufferSize: 65536, TxDepth: 128, Timeout: 14, RetryCount: 7})
	const packets = 16
	before := [2]Status{p.status(b, 0), p.status(b, 1)}
	b.SetBytes(65536)
	posted, done := 0, 0
	start := time.Now()
	for b.Loop() {
		for posted-done >= 128 {
			n, err := x.Completions(b.Context(), time.Second)
			if err != nil {
				b.Fatal(err)
			}
			done += n
		}
		if err := x.PostWrites(1, 65536); err != nil {
			b.Fatal(err)
		}
		posted++
	}
	await(b, x, posted-done)
	seconds := time.Since(start).Seconds()
	after := [2]Status{p.status(b, 0), p.status(b, 1)}
	total := float64(posted) * packets
	m := counters(b, p.conf[0])
	b.ReportMetric(total/seconds, "pkts/s")
	b.ReportMetric(float64(after[0].IO.Syscalls-before[0].IO.Syscalls)/total, "tx-syscalls/pkt")
	b.ReportMetric(float64(after[1].IO.Syscalls-before[1].IO.Syscalls)/total, "rx-syscalls/pkt")
	b.ReportMetric(float64(after[0].LatenessNS.P50NS)/1e3, "late-p50-us")
	b.ReportMetric(float64(after[0].LatenessNS.P99NS)/1e3, "late-p99-us")
	b.ReportMetric(float64(m["retransmitted_packets"]), "retransmitted")
}
