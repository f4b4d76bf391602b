package fabric

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/internal/units"
)

// sink is a packet socket on a host's interface: it sees what the fabric delivers.
type sink struct {
	t  testing.TB
	fd int
}

func newSink(t testing.TB, h *host) *sink {
	t.Helper()
	s := &sink{t: t}
	err := h.do(func() (err error) {
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
		if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all); err != nil {
			return err
		}
		if err = prepare(target{s.fd, KindPacket}); err != nil {
			return err
		}
		index, err := linkIndex(h.iface)
		if err != nil {
			return err
		}
		return unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(s.fd) })
	return s
}

// drain gives the RoCE frames that are there.
func (s *sink) drain() (frames [][]byte) {
	buf := make([]byte, 10000)
	for {
		n, err := unix.Read(s.fd, buf)
		if err != nil {
			return frames
		}
		if f := buf[:n]; n >= ethernetHeader && parseHeader(f).roce {
			frames = append(frames, slices.Clone(f))
		}
	}
}

// TestRun_congestionAddsUp: two hosts burst into one slow port. Every frame is delivered once, in order, or counted as
// dropped; marks and checksums are right on the wire; the mirrors show the same from before and after the queue.
func TestRun_congestionAddsUp(t *testing.T) {
	for _, path := range paths {
		t.Run(fmt.Sprintf("%s_%s", path.io, path.kind), func(t *testing.T) {
			hosts := newHosts(t, 5, path.kind) // 3 hosts, 2 mirrors
			ps := ports(hosts[:3], units.GbitPerSec, 20*time.Microsecond, path.kind)
			ps[2].Rate = 5 * units.MbitPerSec // slower than the busiest machine sends
			ps[2].Buffer = 128 * units.KiB
			ps[2].ECN = &ECNConfig{KMin: 20 * units.KiB, KMax: 60 * units.KiB, PMax: 0.3}
			for i := range ps {
				ps[i].MAC = fmt.Sprintf("02:00:00:00:01:%02x", i) // not the interfaces' own: their hosts ignore the frames
			}
			r := start(t, Config{Name: "incast", IO: path.io, Ports: ps, Mirrors: []MirrorConfig{
				{Name: "in", FD: hosts[3].fd, Kind: path.kind, Direction: Ingress},
				{Name: "out", FD: hosts[4].fd, Kind: path.kind, Ports: []string{"h3"}},
			}})
			sinks := []*sink{newSink(t, hosts[2]), newSink(t, hosts[3]), newSink(t, hosts[4])}
			const each = 320
			for from := range 2 {
				src := [6]byte{2, 0, 0, 0, 1, byte(from)}
				b := newBlaster(t, hosts[from], udpFrame(src, [6]byte{2, 0, 0, 0, 1, 2}, 1500))
				for id := range each {
					binary.BigEndian.PutUint32(b.buf[60:], uint32(id))
					b.send(1)
					if id%40 == 39 { // a plain user's socket buffers are small
						waitUntil(t, "the fabric to read", func() bool {
							p := r.counters(t).Ports[from]
							return p.RxRoCEPackets+p.IngressQueuedBytes/1500 > uint64(id)
						})
					}
				}
			}
			var c Counters
			waitUntil(t, "all frames through", func() bool {
				c = r.counters(t)
				p := c.Port("h3")
				return p.RxRoCEPackets+p.TxRoCEPackets+p.DroppedRoCEPackets == 2*each && p.QueuedPackets == 0 && c.Mirror("out").Packets >= p.TxPackets && c.Mirror("in").Packets >= 2*each
			})
			out := c.Port("h3")
			if out.DroppedPackets == 0 || out.CEMarkedPackets == 0 || out.UndeliveredPackets != 0 || out.TxCEPackets != out.CEMarkedPackets {
				t.Errorf("port h3 %+v: want drops and marks, none undelivered", *out)
			}
			if peak := out.PeakQueueBytes; peak > uint64(128*units.KiB) || peak < 100*1024 {
				t.Errorf("peak queue %d bytes, want it near its limit of 128 KiB", peak)
			}
			got := make([][][]byte, len(sinks))
			wants := []uint64{out.TxRoCEPackets, 2 * each, out.TxRoCEPackets}
			for i, s := range sinks {
				waitUntil(t, "frames at the sink", func() bool {
					got[i] = append(got[i], s.drain()...)
					return uint64(len(got[i])) >= wants[i]
				})
				if uint64(len(got[i])) != wants[i] {
					t.Errorf("sink %d: %d frames, want %d", i, len(got[i]), wants[i])
				}
			}
			marked := uint64(0)
			next := [2]int{}
			for i, f := range got[0] {
				if sum := checksum(f[14:34]); sum != 0xffff {
					t.Fatalf("frame %d: IP header sums to %#x", i, sum)
				}
				if f[15]&3 == ce {
					marked++
				}
				from, id := f[11], int(binary.BigEndian.Uint32(f[60:]))
				if id < next[from] {
					t.Fatalf("frame %d: number %d of sender %d after %d", i, id, from, next[from]-1)
				}
				next[from] = id + 1
				if string(f) != string(got[2][i]) {
					t.Fatalf("frame %d differs from the egress mirror's", i)
				}
			}
			if marked != out.CEMarkedPackets {
				t.Errorf("%d frames came marked, %d were counted", marked, out.CEMarkedPackets)
			}
			for i, f := range got[1] {
				if f[15]&3 != ect0 {
					t.Fatalf("ingress mirror's frame %d has ECN %d: copied after the queue", i, f[15]&3)
				}
			}
		})
	}
}

// TestRun_slowLinkHoldsItsRate: between two moments with a backlog all along, the link has sent at its rate in virtual
// time, whatever the machine was doing.
func TestRun_slowLinkHoldsItsRate(t *testing.T) {
	for _, path := range paths {
		t.Run(fmt.Sprintf("%s_%s", path.io, path.kind), func(t *testing.T) {
			hosts := newHosts(t, 2, path.kind)
			ps := ports(hosts, 20*units.MbitPerSec, 50*time.Microsecond, path.kind)
			ps[1].MAC = "02:00:00:00:01:02"
			r := start(t, Config{Name: "slow", IO: path.io, Ports: ps, IngressLimit: 4 * units.MiB, MaxFrame: testMTU + 18})
			b := newBlaster(t, hosts[0], udpFrame([6]byte(hosts[0].mac), [6]byte{2, 0, 0, 0, 1, 2}, 4154))
			var before, after Counters
			waitUntil(t, "500 ms with a backlog", func() bool {
				last := after.WallNS
				after = r.counters(t)
				backlog := after.Port("h1").IngressQueuedBytes
				if backlog < 1<<20 {
					b.send(batchSize)
				}
				if backlog < 512<<10 || after.WallNS-last > 200e6 { // 512 KiB last 210 ms
					before = after
				}
				return after.WallNS-before.WallNS > 500e6
			})
			wire := float64(after.Port("h2").TxPackets-before.Port("h2").TxPackets) * (4154 + DefaultOverhead) * 8
			virtual := float64(after.WallNS-after.StallNS-before.WallNS+before.StallNS) / 1e9
			slack := (4154 + DefaultOverhead) * 8 / virtual // only whole packets are counted
			if rate := wire / virtual; math.Abs(rate-20e6) > 20e6*0.001+slack {
				t.Errorf("%.0f bit/s on the wire, want 20 Mbit/s within 0.1 %% and one packet", rate)
			}
		})
	}
}

// TestRun_boundsTheBacklogOfAHost: the fabric stops reading a host at the limit instead of growing, and goes on after.
func TestRun_boundsTheBacklogOfAHost(t *testing.T) {
	for _, path := range paths {
		t.Run(fmt.Sprintf("%s_%s", path.io, path.kind), func(t *testing.T) {
			hosts := newHosts(t, 2, path.kind)
			ps := ports(hosts, 100*units.MbitPerSec, 0, path.kind)
			ps[1].MAC = "02:00:00:00:01:02"
			const limit = 200 * units.KiB
			r := start(t, Config{Name: "limit", IO: path.io, Ports: ps, IngressLimit: limit, MaxFrame: testMTU + 18})
			b := newBlaster(t, hosts[0], udpFrame([6]byte(hosts[0].mac), [6]byte{2, 0, 0, 0, 1, 2}, 4154))
			stop, done := make(chan struct{}), make(chan struct{})
			go blast([]*blaster{b}, 6000, stop, done) // twice the rate
			waitUntil(t, "a full backlog", func() bool { return r.counters(t).Port("h1").PeakIngressQueuedBytes > uint64(limit) })
			full := r.counters(t).Port("h2").TxPackets
			waitUntil(t, "more than the backlog through", func() bool { return r.counters(t).Port("h2").TxPackets > full+600 })
			close(stop)
			<-done
			// Over the limit by what was read at once: the provided buffers of io_uring or the read budget.
			if peak := r.counters(t).Port("h1").PeakIngressQueuedBytes; peak > uint64(limit)+300*4154 {
				t.Errorf("backlog of %d bytes, limit %d", peak, limit)
			}
		})
	}
}

// TestRun_interfaceThatIsDownLosesOnlyItsOwn: frames for it are counted, everyone else goes on, and it works again
// when it is up.
func TestRun_interfaceThatIsDownLosesOnlyItsOwn(t *testing.T) {
	for _, path := range paths {
		t.Run(fmt.Sprintf("%s_%s", path.io, path.kind), func(t *testing.T) {
			hosts := newHosts(t, 4, path.kind)
			r := start(t, Config{
				Name: "down", IO: path.io, Ports: ports(hosts[:3], units.GbitPerSec, 0, path.kind),
				Mirrors: []MirrorConfig{{Name: "m", FD: hosts[3].fd, Kind: path.kind, Direction: Ingress}},
			})
			up := func(h *host, up bool) {
				t.Helper()
				if err := h.do(func() error { return setLink(h.iface, up) }); err != nil {
					t.Fatal(err)
				}
			}
			up(hosts[1], false)
			up(hosts[3], false)
			to2 := newBlaster(t, hosts[0], udpFrame([6]byte(hosts[0].mac), [6]byte(hosts[1].mac), 500))
			to3 := newBlaster(t, hosts[0], udpFrame([6]byte(hosts[0].mac), [6]byte(hosts[2].mac), 500))
			const n = 100
			sent := uint64(0)
			for range n {
				to2.send(1)
				to3.send(1)
				sent++
			}
			waitUntil(t, "frames for the third host", func() bool {
				c := r.counters(t)
				return c.Port("h3").TxRoCEPackets == n && c.Port("h2").TxRoCEPackets == n
			})
			up(hosts[1], true)
			up(hosts[3], true)
			waitUntil(t, "the second host and the mirror taking frames again", func() bool {
				before := r.counters(t)
				to2.send(1)
				sent++
				waitUntil(t, "one frame", func() bool { return r.counters(t).Port("h2").TxRoCEPackets >= sent })
				after := r.counters(t)
				return after.Port("h2").UndeliveredPackets == before.Port("h2").UndeliveredPackets && after.Mirror("m").Lost == before.Mirror("m").Lost
			})
			c := r.counters(t)
			if lost, m := c.Port("h2").UndeliveredPackets, c.Mirror("m"); lost < n/2 || m.Lost < n || c.Port("h3").UndeliveredPackets != 0 {
				t.Errorf("undelivered to h2 %d, to h3 %d, mirror %+v: want most of %d, 0, most of %d lost", lost, c.Port("h3").UndeliveredPackets, m, n, 2*n)
			}
			if c.Port("h2").Down {
				t.Error("an interface that was only down counts as gone")
			}
		})
	}
}

// TestRun_countsOversizeFrames that are longer than it was built for, and carries on.
func TestRun_countsOversizeFrames(t *testing.T) {
	for _, path := range paths {
		t.Run(fmt.Sprintf("%s_%s", path.io, path.kind), func(t *testing.T) {
			hosts := newHosts(t, 2, path.kind)
			r := start(t, Config{Name: "big", IO: path.io, Ports: ports(hosts, units.GbitPerSec, 0, path.kind), MaxFrame: 1518})
			newBlaster(t, hosts[0], udpFrame([6]byte(hosts[0].mac), [6]byte(hosts[1].mac), 4154)).send(3)
			newBlaster(t, hosts[0], udpFrame([6]byte(hosts[0].mac), [6]byte(hosts[1].mac), 1518)).send(2)
			waitUntil(t, "frames", func() bool {
				c := r.counters(t)
				return c.Port("h1").OversizePackets == 3 && c.Port("h2").TxRoCEPackets == 2
			})
		})
	}
}
