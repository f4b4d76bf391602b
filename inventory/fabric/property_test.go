package fabric

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pcmlab/pcmlab/internal/units"
)

// drawOptions makes a small switch, often a congested one.
func drawOptions(t *rapid.T) Options {
	n := rapid.IntRange(1, 5).Draw(t, "ports")
	o := Options{
		Buffer:   units.Size(rapid.SampledFrom([]int{2000, 20000, 1 << 20}).Draw(t, "buffer")),
		Overhead: rapid.SampledFrom([]int{0, 24}).Draw(t, "overhead"),
		Static:   map[[6]byte]int{},
	}
	for i := range n {
		l := Link{
			Rate:   units.Rate(rapid.SampledFrom([]int64{1e6, 7e6, 999999937, 1e9, 25e9, 400e9}).Draw(t, "rate")),
			Delay:  time.Duration(rapid.SampledFrom([]int64{0, 1, 1000, 50000}).Draw(t, "delay")),
			Buffer: units.Size(rapid.SampledFrom([]int{0, 0, 3000}).Draw(t, "limit")),
		}
		if rapid.Bool().Draw(t, "ecn") {
			kmin := rapid.IntRange(0, 4000).Draw(t, "kmin")
			l.ECN = &ECNConfig{
				KMin: units.Size(kmin), KMax: units.Size(kmin + rapid.IntRange(0, 4000).Draw(t, "kmax")),
				PMax: rapid.SampledFrom([]float64{0, 0.2, 1}).Draw(t, "pmax"),
			}
		}
		o.Links = append(o.Links, l)
		if rapid.Bool().Draw(t, "static") {
			o.Static[station6(i)] = i
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "mirrors") {
		m := Mirror{Direction: rapid.SampledFrom([]Direction{"", Ingress, Egress, Both}).Draw(t, "direction")}
		if rapid.Bool().Draw(t, "one") {
			m.Ports = []int{rapid.IntRange(0, n-1).Draw(t, "mirrored")}
		}
		if m.Direction == "" {
			m.Direction = Egress
		}
		o.Mirrors = append(o.Mirrors, m)
	}
	return o
}

// drawFrame makes a frame of a kind that the switch treats in its own way, unique by its last bytes.
func drawFrame(t *rapid.T, ports, from, id int) []byte {
	size := rapid.SampledFrom([]int{1, 13, 14, 33, 34, 60, 61, 200, 1500}).Draw(t, "size")
	src, dst := station6(from), station6(rapid.IntRange(0, ports).Draw(t, "dst")) // one more than there are: unknown
	switch rapid.IntRange(0, 12).Draw(t, "special") {
	case 0:
		dst = [6]byte{255, 255, 255, 255, 255, 255}
	case 1:
		dst = [6]byte{1, 0x80, 0xc2, 0, 0, byte(rapid.IntRange(0, 17).Draw(t, "reserved"))}
	case 2:
		src = station6(rapid.IntRange(0, ports-1).Draw(t, "moved"))
	case 3:
		src[0] |= 1
	case 4:
		src = [6]byte{}
	}
	f := make([]byte, max(size, 80))
	copy(f, dst[:])
	copy(f[6:], src[:])
	off := 12
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(t, "tags") {
		binary.BigEndian.PutUint16(f[off:], rapid.SampledFrom([]uint16{etherVLAN, etherQinQ}).Draw(t, "tag"))
		off += 4
	}
	ecn := byte(rapid.IntRange(0, 3).Draw(t, "ecn"))
	port := rapid.SampledFrom([]uint16{rocePort, 53}).Draw(t, "udp")
	switch rapid.IntRange(0, 3).Draw(t, "protocol") {
	case 0, 1:
		binary.BigEndian.PutUint16(f[off:], etherIPv4)
		ip := f[off+2:]
		ip[0], ip[1], ip[9] = 0x45, 0xb8|ecn, 17
		binary.BigEndian.PutUint32(ip[12:], rapid.Uint32().Draw(t, "address"))
		binary.BigEndian.PutUint16(ip[22:], port)
		binary.BigEndian.PutUint16(ip[10:], ^checksum(ip[:20]))
	case 2:
		binary.BigEndian.PutUint16(f[off:], etherIPv6)
		ip := f[off+2:]
		ip[0], ip[1], ip[6] = 0x60, ecn<<4, 17
		binary.BigEndian.PutUint16(ip[42:], port)
	}
	f = f[:size]
	if size >= 60 {
		binary.BigEndian.PutUint16(f[size-2:], uint16(id))
	}
	return f
}

// TestSwitch_doesWhatTheModelDoes holds every output (place, time, bytes) and counter against the slow model, however
// late and irregularly the machine is driven.
func TestSwitch_doesWhatTheModelDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t)
		seed := [2]uint64{rapid.Uint64().Draw(t, "seed"), 1}
		var sends []modelSend
		now := int64(0)
		for id := range rapid.IntRange(1, 80).Draw(t, "packets") {
			port := rapid.IntRange(0, len(o.Links)-1).Draw(t, "port")
			now += rapid.SampledFrom([]int64{0, 0, 0, 1, 500, 12000, 3000000}).Draw(t, "gap")
			sends = append(sends, modelSend{port, now, drawFrame(t, len(o.Links), port, id)})
		}
		want := model(o, sends, seed)

		o.Pool, o.Rand = NewPool(2000), rand.New(rand.NewPCG(seed[0], seed[1]))
		sw, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		got := map[int][]modelOut{}
		var out []Output
		last := time.Duration(0)
		advance := func(to time.Duration) {
			due, ok := sw.Deadline()
			out = sw.Advance(to, out[:0])
			for _, o := range out {
				if !ok || o.At < due {
					t.Fatalf("output at %d before the deadline %d (%v)", o.At, due, ok)
				}
				if o.At < last || o.At > to {
					t.Fatalf("output at %d after one at %d, advanced to %d", o.At, last, to)
				}
				last = o.At
			}
			delivered(got, out, o.Pool)
			holds(t, sw)
		}
		at := int64(0)
		for _, s := range sends {
			for rapid.Bool().Draw(t, "step") && at < s.at {
				at += rapid.Int64Range(1, s.at-at).Draw(t, "by")
				advance(time.Duration(at))
			}
			sw.Receive(s.port, time.Duration(s.at), o.Pool.Copy(s.frame))
		}
		for {
			due, ok := sw.Deadline()
			if !ok {
				break
			}
			advance(due)
		}
		if diff := cmp.Diff(want.out, got); diff != "" {
			t.Fatalf("outputs by target (-model +switch):\n%s", diff)
		}
		var c Counters
		sw.Snapshot(&c)
		for i, p := range c.Ports {
			got := [4]uint64{p.RxPackets, p.TxPackets, p.DroppedPackets, p.CEMarkedPackets}
			if want := [4]uint64{uint64(want.rx[i]), uint64(want.tx[i]), uint64(want.dropped[i]), uint64(want.marks[i])}; got != want {
				t.Fatalf("port %d: rx, tx, dropped, marked %v, want %v", i, got, want)
			}
		}
		if left := o.Pool.InUse(); left != 0 {
			t.Fatalf("%d packets were never released", left)
		}
	})
}

type fataler interface{ Fatalf(string, ...any) }

// holds checks the conservation of packets and bytes.
func holds(t fataler, sw *Switch) {
	var c Counters
	sw.Snapshot(&c)
	var rx, offered [2]uint64
	queued := uint64(0)
	for i, p := range c.Ports {
		if p.OfferedPackets != p.TxPackets+p.DroppedPackets+p.QueuedPackets || p.OfferedBytes != p.TxBytes+p.DroppedBytes+p.QueuedBytes {
			t.Fatalf("port %d: offered is not tx + dropped + queued: %+v", i, p)
		}
		rx[0], rx[1] = rx[0]+p.RxPackets, rx[1]+p.RxBytes
		offered[0], offered[1] = offered[0]+p.OfferedPackets, offered[1]+p.OfferedBytes
		queued += p.QueuedBytes
		if p.QueuedBytes > p.PeakQueueBytes || c.QueuedBytes > c.BufferBytes {
			t.Fatalf("port %d: queue over its peak or the buffer: %+v", i, p)
		}
	}
	if rx[0]+c.ReplicatedPackets != offered[0]+c.FilteredPackets || rx[1]+c.ReplicatedBytes != offered[1]+c.FilteredBytes {
		t.Fatalf("rx + replicated is not offered + filtered: %+v", c)
	}
	if queued != uint64(c.QueuedBytes) {
		t.Fatalf("ports hold %d bytes, the buffer %d", queued, c.QueuedBytes)
	}
}

// TestECN_probabilityNeverFallsWithTheQueue is the RED curve's shape: 0 up to kmin, pmax at kmax, 1 above.
func TestECN_probabilityNeverFallsWithTheQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kmin := rapid.Int64Range(0, 1<<20).Draw(t, "kmin")
		e := ECNConfig{KMin: units.Size(kmin), KMax: units.Size(kmin + rapid.Int64Range(0, 1<<20).Draw(t, "span")), PMax: rapid.Float64Range(0, 1).Draw(t, "pmax")}
		a := rapid.Int64Range(0, 3<<20).Draw(t, "queue")
		b := a + rapid.Int64Range(0, 1<<20).Draw(t, "more")
		pa, pb := e.probability(a), e.probability(b)
		if pa > pb || pa < 0 || pb > 1 {
			t.Fatalf("%+v: probability %g at %d, %g at %d", e, pa, a, pb, b)
		}
		if at := e.probability(int64(e.KMin)); at != 0 {
			t.Fatalf("%+v: %g at kmin", e, at)
		}
		if at := e.probability(int64(e.KMax)); e.KMax > e.KMin && at != e.PMax {
			t.Fatalf("%+v: %g at kmax", e, at)
		}
		if at := e.probability(int64(e.KMax) + 1); at != 1 {
			t.Fatalf("%+v: %g above kmax", e, at)
		}
	})
}

// TestUpdateChecksum_isThatOfTheWholeHeader compares RFC 1624 with a new sum for any header and any mark.
func TestUpdateChecksum_isThatOfTheWholeHeader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frame := make([]byte, 34)
		ip := frame[14:]
		copy(ip, rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "header"))
		binary.BigEndian.PutUint16(frame[12:], etherIPv4)
		ip[0] = 0x45
		ip[1] = ip[1]&^3 | rapid.SampledFrom([]byte{ect0, ect1}).Draw(t, "ecn")
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^checksum(ip))
		pool := NewPool(100)
		p := pool.Copy(frame)
		p.hdr = parseHeader(p.Data)
		p.setCE()
		if got := checksum(p.Data[14:]); got != 0xffff {
			t.Fatalf("sum of the marked header is %#x, want 0xffff", got)
		}
		if got := p.Data[15] & 3; got != ce || p.hdr.ecn != ce {
			t.Fatalf("ECN field is %d", got)
		}
	})
}

// FuzzParseHeader holds the parser against the model's on any frame: it must not read beyond, nor see an ECN field that
// is not there.
func FuzzParseHeader(f *testing.F) {
	f.Add(udpFrame(station6(0), station6(1), 120))
	f.Add(udpFrame(station6(0), station6(1), 42))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < ethernetHeader || len(frame) > 9000 {
			return
		}
		h := parseHeader(frame)
		ip, version := modelIP(frame)
		if (h.l3 != 0) != (version != 0) || h.v6 != (version == 6) || h.ect() != modelECT(frame) {
			t.Fatalf("%x: %+v, model says IPv%d, ECT %v", frame, h, version, modelECT(frame))
		}
		if version != 0 && &frame[h.l3] != &ip[0] {
			t.Fatalf("%x: IP header at %d", frame, h.l3)
		}
	})
}
