package fabric

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/internal/units"
)

// blaster sends the same frame from a host's interface in batches, as fast as it may.
type blaster struct {
	fd   int
	hdrs [batchSize]mmsghdr
	iov  unix.Iovec
	buf  []byte
}

func newBlaster(t testing.TB, h *host, frame []byte) *blaster {
	t.Helper()
	b := &blaster{buf: frame}
	err := h.do(func() (err error) {
		if b.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		const packetQdiscBypass = 20
		if err := unix.SetsockoptInt(b.fd, unix.SOL_PACKET, packetQdiscBypass, 1); err != nil {
			return err
		}
		index, err := linkIndex(h.iface)
		if err != nil {
			return err
		}
		return unix.Bind(b.fd, &unix.SockaddrLinklayer{Ifindex: index})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(b.fd) })
	b.iov.Base = &frame[0]
	b.iov.SetLen(len(frame))
	for i := range b.hdrs {
		b.hdrs[i].hdr.Iov = &b.iov
		b.hdrs[i].hdr.SetIovlen(1)
	}
	return b
}

func (b *blaster) send(n int) {
	unix.Syscall6(unix.SYS_SENDMMSG, uintptr(b.fd), uintptr(unsafe.Pointer(&b.hdrs[0])), uintptr(min(n, batchSize)), 0, 0, 0)
	runtime.KeepAlive(b)
}

// BenchmarkFabric drives frames of 4 KiB payload from one half of the hosts to the other half, whose interfaces have
// other addresses and so drop them at once: what is measured is the fabric. Each operation is one frame delivered.
func BenchmarkFabric(b *testing.B) {
	for _, path := range paths {
		for _, load := range []struct {
			name string
			n    int
			rate units.Rate
			pace int // frames per second offered in all; 0: as many as go
			q    time.Duration
		}{
			{"flood/hosts=2", 2, 40 * units.GbitPerSec, 0, 0},
			{"flood/hosts=4", 4, 40 * units.GbitPerSec, 0, 0},
			{"paced=15k/hosts=4", 4, 500 * units.MbitPerSec, 15000, 0},
			{"paced=95k/hosts=16", 16, 500 * units.MbitPerSec, 95000, 0},
			{"paced=15k/hosts=4/quantum=100us", 4, 500 * units.MbitPerSec, 15000, 100 * time.Microsecond},
			{"paced=15k/hosts=4/quantum=250us", 4, 500 * units.MbitPerSec, 15000, 250 * time.Microsecond},
		} {
			b.Run(fmt.Sprintf("io=%s/kind=%s/%s", path.io, path.kind, load.name), func(b *testing.B) {
				hosts := newHosts(b, load.n, path.kind)
				ps := ports(hosts, load.rate, 50*time.Microsecond, path.kind)
				for i := range ps {
					ps[i].MAC = fmt.Sprintf("02:00:00:00:01:%02x", i)
				}
				r := start(b, Config{Name: "bench", IO: path.io, Ports: ps, Quantum: load.q, MaxFrame: testMTU + 18})
				stop := make(chan struct{})
				done := make(chan struct{})
				senders := make([]*blaster, load.n/2)
				for i := range senders {
					src, dst := [6]byte{2, 0, 0, 0, 1, byte(i)}, [6]byte{2, 0, 0, 0, 1, byte(load.n/2 + i)}
					senders[i] = newBlaster(b, hosts[i], udpFrame(src, dst, 4154))
				}
				before := r.counters(b)
				go blast(senders, load.pace, stop, done)
				b.ResetTimer()
				want := before.delivered() + uint64(b.N)
				waitLong(b, func() bool { return r.counters(b).delivered() >= want })
				b.StopTimer()
				after := r.counters(b)
				close(stop)
				<-done
				n := float64(after.delivered() - before.delivered())
				wall := float64(after.WallNS - before.WallNS)
				b.ReportMetric(n/wall*1e9, "pkts/s")
				b.ReportMetric(float64(after.Syscalls-before.Syscalls)/n, "syscalls/pkt")
				b.ReportMetric(float64(after.CPUNS-before.CPUNS)/n, "cpu-ns/pkt")
				if l := after.Lateness; l.P50 != nil {
					b.ReportMetric(float64(*l.P50)/1e3, "late-p50-us")
					b.ReportMetric(float64(*l.P99)/1e3, "late-p99-us")
				}
			})
		}
	}
}

func (c Counters) delivered() (n uint64) {
	for _, p := range c.Ports {
		n += p.TxPackets - p.UndeliveredPackets
	}
	return n
}

// blast sends until stop, at pace frames a second in all or as many as go.
func blast(senders []*blaster, pace int, stop, done chan struct{}) {
	defer close(done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	from, sent := time.Now(), 0
	for {
		select {
		case <-stop:
			return
		default:
		}
		if pace == 0 {
			for _, s := range senders {
				s.send(batchSize)
			}
			continue
		}
		due := int(time.Since(from).Seconds() * float64(pace))
		for ; sent < due; sent++ {
			senders[sent%len(senders)].send(1)
		}
		ts := unix.Timespec{Nsec: 60000}
		_ = unix.Nanosleep(&ts, nil)
	}
}

func waitLong(b *testing.B, cond func() bool) {
	b.Helper()
	deadline := time.Now().Add(time.Minute)
	for !cond() {
		if time.Now().After(deadline) {
			b.Fatal("not delivered within a minute")
		}
		tick := time.NewTimer(5 * time.Millisecond)
		<-tick.C
	}
}
