package fabric

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/internal/units"
)

// udpFrame is an Ethernet frame with IPv4 and UDP to port 4791, ECT(0), of size bytes.
func udpFrame(src, dst [6]byte, size int) []byte {
	f := make([]byte, size)
	copy(f, dst[:])
	copy(f[6:], src[:])
	binary.BigEndian.PutUint16(f[12:], etherIPv4)
	ip := f[14:]
	ip[0], ip[1], ip[8], ip[9] = 0x45, ect0, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(size-14))
	copy(ip[12:], []byte{192, 0, 2, src[5], 192, 0, 2, dst[5]})
	binary.BigEndian.PutUint16(ip[10:], ^checksum(ip[:20]))
	binary.BigEndian.PutUint16(ip[20:], 50000)
	binary.BigEndian.PutUint16(ip[22:], rocePort)
	binary.BigEndian.PutUint16(ip[24:], uint16(size-34))
	return f
}

// checksum is the one's complement sum of RFC 1071, not inverted.
func checksum(b []byte) uint16 {
	var s uint32
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

func station6(i int) [6]byte { return [6]byte{2, 0, 0, 0, 0, byte(i + 1)} }

// loadedSwitch is a switch of n ports in a steady overload of one egress in four, with marks and drops.
func loadedSwitch(t testing.TB, n int) (step func(), packets func() uint64) {
	t.Helper()
	pool := NewPool(DefaultMaxFrame)
	o := Options{Pool: pool, Rand: rand.New(rand.NewPCG(1, 2)), Overhead: DefaultOverhead, Static: map[[6]byte]int{}}
	for i := range n {
		o.Links = append(o.Links, Link{
			Rate: units.GbitPerSec, Delay: 50 * time.Microsecond, Buffer: 256 * units.KiB,
			ECN: &ECNConfig{KMin: 32 * units.KiB, KMax: 128 * units.KiB, PMax: 0.2},
		})
		o.Static[station6(i)] = i
	}
	sw, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	frames := make([][]byte, n)
	for i := range frames {
		frames[i] = udpFrame(station6(i), station6((i/4*4+1)%n), 4154)
	}
	frames[1] = udpFrame(station6(1), station6(0), 4154)
	var out []Output
	now := time.Duration(0)
	sent := uint64(0)
	step = func() {
		for i := range n {
			sw.Receive(i, now, pool.Copy(frames[i]))
			sent++
		}
		now += 34 * time.Microsecond
		out = sw.Advance(now, out[:0])
		for i := range out {
			pool.Release(out[i].P)
		}
		sw.Deadline()
	}
	return step, func() uint64 { return sent }
}

func BenchmarkSwitch(b *testing.B) {
	for _, n := range []int{4, 16} {
		b.Run(fmt.Sprintf("ports=%d", n), func(b *testing.B) {
			step, packets := loadedSwitch(b, n)
			for range 2000 {
				step()
			}
			before := packets()
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets()-before), "ns/packet")
		})
	}
}

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
