package engine

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/dcqcn"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/qp"
)

// asFrame wraps a datagram as the kernel does, for the independent decoder of capture/roce.
func asFrame(src, dst [4]byte, sport uint16, tos byte, b []byte) []byte {
	n := 28 + len(b)
	f := make([]byte, 14, 14+n)
	f[12] = 8
	f = append(f, 0x45, tos, byte(n>>8), byte(n), 0, 0, 0x40, 0, 64, 17, 0, 0)
	f = append(append(f, src[:]...), dst[:]...)
	f = append(f, byte(sport>>8), byte(sport), 0x12, 0xb7, byte((n-20)>>8), byte(n-20), 0, 0)
	return append(f, b...)
}

func TestTransmit_packetsDecodeWithAValidICRC(t *testing.T) {
	w := newWorld(t, 2, 1, nil)
	f := w.connect(0, 1)
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range f.x.local {
		f.x.local[i] = byte(rng.Uint32())
	}
	var got bytes.Buffer
	var ops []string
	check := func(src, dst [4]byte, d Datagram, b []byte) {
		t.Helper()
		var r roce.Frame
		frame := asFrame(src, dst, d.SrcPort, d.TOS, b)
		if err := r.Decode(roce.LinkEthernet, frame, len(frame), roce.Port); err != nil || r.Kind != roce.KindRoCE {
			t.Fatalf("decode: %v, kind %v", err, r.Kind)
		}
		if ok, checked := r.CheckICRC(frame); !ok || !checked {
			t.Errorf("%v: ICRC ok=%v checked=%v", r.BTH.Opcode, ok, checked)
		}
		if r.BTH.Opcode.IsWrite() {
			got.Write(r.Payload)
		}
		if n := len(ops); n == 0 || ops[n-1] != r.BTH.Opcode.String() {
			ops = append(ops, r.BTH.Opcode.String())
		}
	}
	for _, size := range []uint32{65535, 7, 0} {
		if err := f.x.Post(0, qp.WorkRequest{Length: size, RemoteVA: 0x1000, RKey: first(w.nics[1].regions).RKey}); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 4160)
	var d Datagram
	for now := time.Duration(0); now < time.Millisecond; now += time.Microsecond {
		for w.nics[0].Transmit(now, buf, &d) {
			check(hostIP(0), hostIP(1), d, buf[:d.Len])
			w.nics[1].Receive(now, &Header{Src: hostIP(0), SrcPort: d.SrcPort, TOS: d.TOS | 3, DF: true}, buf[:d.Len])
		}
		for w.nics[1].Transmit(now, buf, &d) {
			check(hostIP(1), hostIP(0), d, buf[:d.Len])
			if d.TOS&3 != 0 {
				t.Errorf("an answer is ECN-capable: TOS %#x", d.TOS)
			}
			w.nics[0].Receive(now, &Header{Src: hostIP(1), SrcPort: d.SrcPort, TOS: d.TOS, DF: true}, buf[:d.Len])
		}
	}
	if want := append(append([]byte(nil), f.x.local[:65535]...), f.x.local[:7]...); !bytes.Equal(got.Bytes(), want) {
		t.Errorf("payload of %d bytes differs from what was posted (%d bytes)", got.Len(), len(want))
	}
	if ops[0] != "RC_WRITE_FIRST" || ops[1] != "CNP" || ops[2] != "RC_WRITE_MIDDLE" {
		t.Errorf("packets begin with %v: want FIRST, the CNP for its mark, MIDDLE", ops[:3])
	}
	if c := w.nics[0].Counters(); c.RPCNPHandled == 0 || c.RxICRCErrors != 0 {
		t.Errorf("%d CNPs handled, %d ICRC errors", c.RPCNPHandled, c.RxICRCErrors)
	}
	if f.messagesDone() != 3 {
		t.Errorf("%d messages completed, want 3", f.messages)
	}
}

func (f *flow) messagesDone() int { f.x.Tag.(func())(); return f.messages }

func first(m map[uint32]*Region) *Region {
	for _, r := range m {
		return r
	}
	return nil
}

func TestReceive_dropsAndCountsWhatIsWrong(t *testing.T) {
	w := newWorld(t, 2, 1, nil)
	f := w.connect(0, 1)
	if err := f.x.Post(0, qp.WorkRequest{Length: 8, RemoteVA: 0x1000, RKey: first(w.nics[1].regions).RKey}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4160)
	var d Datagram
	if !w.nics[0].Transmit(0, buf, &d) {
		t.Fatal("nothing to send")
	}
	good := buf[:d.Len]
	n := w.nics[1]
	seal := func(b []byte) []byte {
		body := b[:len(b)-4]
		return roce.AppendICRC(append([]byte(nil), body...), roce.ICRCv4(hostIP(0), hostIP(1), d.SrcPort, roce.Port, 0, true, body))
	}
	edit := func(at int, v byte) []byte { b := append([]byte(nil), good...); b[at] = v; return b }
	for _, tc := range []struct {
		name string
		data []byte
		src  [4]byte
		got  *uint64
	}{
		{"payload_changed", edit(30, good[30]^1), hostIP(0), &n.counters.RxICRCErrors},
		{"other_source_address", good, hostIP(5), &n.counters.RxICRCErrors},
		{"shorter_than_a_header", good[:15], hostIP(0), &n.counters.RxMalformed},
		{"unknown_opcode", seal(edit(0, 0x1f)), hostIP(0), &n.counters.RxMalformed},
		{"unknown_version", seal(edit(1, good[1]|1)), hostIP(0), &n.counters.RxMalformed},
		{"other_partition", seal(edit(3, 1)), hostIP(0), &n.counters.RxMalformed},
		{"pad_without_payload", seal(append(append([]byte(nil), good[:28]...), 0, 0, 0, 0)), hostIP(0), nil},
		{"unknown_queue_pair", seal(edit(7, 0xee)), hostIP(0), &n.counters.RxUnknownQP},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := uint64(0)
			if tc.got != nil {
				before = *tc.got
			}
			n.Receive(0, &Header{Src: tc.src, SrcPort: d.SrcPort, TOS: d.TOS, DF: true}, tc.data)
			if tc.got != nil && *tc.got != before+1 {
				t.Errorf("counter went from %d to %d", before, *tc.got)
			}
			if tc.got != nil && n.counters.RxPayloadBytes != 0 {
				t.Error("it was taken")
			}
		})
	}
}

func TestTransmit_sharesTheLineAmongQueuePairs(t *testing.T) {
	w := newWorld(t, 3, 50, func(c *Config) { c.DCQCN = false })
	w.limit = math.MaxInt
	var flows []*flow
	for i := range 8 {
		flows = append(flows, w.connect(0, 1+i%2))
	}
	for _, f := range flows {
		f.start()
	}
	w.run(2 * time.Second)
	var rates []float64
	var sum float64
	for _, f := range flows {
		r := float64(f.messages)
		rates = append(rates, r)
		sum += r * 65536 * 8 / 2
	}
	if jain(rates) < 0.999 {
		t.Errorf("messages %v: Jain %.4f", rates, jain(rates))
	}
	// Payload of a full packet: 4096 of 4096+16+Overhead bytes; RETH comes once in 16.
	want := float64(w.rate) * 4096 / (4096 + 16 + 1 + Overhead)
	if sum < 0.98*want || sum > 1.001*want {
		t.Errorf("payload at %.0f bit/s, line allows %.0f", sum, want)
	}
}

func TestTransmit_rateDoesNotDependOnWhenTheThreadWakes(t *testing.T) {
	sent := func(wake time.Duration) uint64 {
		w := newWorld(t, 2, 50, func(c *Config) { c.DCQCN = false })
		w.wake, w.limit = wake, math.MaxInt
		w.connect(0, 1).start()
		w.run(time.Second)
		return w.nics[0].Counters().TxDataPackets
	}
	exact := sent(0)
	for _, wake := range []time.Duration{10 * time.Microsecond, 333 * time.Microsecond, 1900 * time.Microsecond} {
		if got := sent(wake); math.Abs(float64(got)-float64(exact)) > 0.003*float64(exact) {
			t.Errorf("woken every %v: %d packets, want %d", wake, got, exact)
		}
	}
}

func TestCNPScope(t *testing.T) {
	for _, tc := range []struct {
		scope dcqcn.Scope
		want  uint64 // CNPs at once for marks on two queue pairs of host 0 and one of host 1
		why   string
	}{
		{dcqcn.PerQP, 3, "each queue pair has its limiter"},
		{dcqcn.PerIP, 2, "two source addresses"},
		{dcqcn.PerPort, 1, "one port"},
	} {
		t.Run(string(tc.scope), func(t *testing.T) {
			w := newWorld(t, 3, 1, func(c *Config) { c.Params.CNPScope = tc.scope })
			n := w.nics[2]
			buf := make([]byte, 4160)
			var d Datagram
			for _, f := range []*flow{w.connect(0, 2), w.connect(0, 2), w.connect(1, 2)} {
				if err := f.x.Post(0, qp.WorkRequest{Length: 8, RemoteVA: 0x1000, RKey: first(n.regions).RKey}); err != nil {
					t.Fatal(err)
				}
				if !w.nics[f.from].Transmit(time.Second, buf, &d) {
					t.Fatal("nothing to send")
				}
				for range 2 {
					n.Receive(time.Second, &Header{Src: hostIP(f.from), SrcPort: d.SrcPort, TOS: d.TOS | 3, DF: true}, buf[:d.Len])
				}
			}
			cnps := func(now time.Duration) uint64 {
				for n.Transmit(now, buf, &d) {
				}
				return n.Counters().NPCNPSent
			}
			if got := cnps(time.Second); got != tc.want {
				t.Errorf("%d CNPs at once, want %d: %s", got, tc.want, tc.why)
			}
			if got := cnps(time.Second + 50*time.Microsecond - 1); got != tc.want {
				t.Errorf("%d CNPs before the interval ended, want %d", got, tc.want)
			}
			if got := cnps(time.Second + 50*time.Microsecond); got != 2*tc.want {
				t.Errorf("%d CNPs when the interval ended, want %d for the marks seen in it", got, 2*tc.want)
			}
			if got := cnps(2 * time.Second); got != 2*tc.want {
				t.Errorf("%d CNPs later, want %d", got, 2*tc.want)
			}
			if n.Counters().NPECNMarked != 6 {
				t.Errorf("%d marks, want 6", n.Counters().NPECNMarked)
			}
		})
	}
}

func TestQP_writesOnlyWhereItsDomainMay(t *testing.T) {
	n := newWorld(t, 1, 1, nil).nics[0]
	mem := make([]byte, 100)
	mine, other := n.Register(1, mem, 1<<40), n.Register(2, mem, 1<<40)
	q, err := n.CreateQP(Options{PD: 1, SendDepth: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		key    uint32
		va     uint64
		length uint32
		want   bool
	}{
		{"whole", mine.RKey, 1 << 40, 100, true},
		{"end", mine.RKey, 1<<40 + 99, 1, true},
		{"past_the_end", mine.RKey, 1<<40 + 99, 2, false},
		{"before", mine.RKey, 1<<40 - 1, 2, false},
		{"wraps", mine.RKey, math.MaxUint64, 2, false},
		{"far", mine.RKey, 0, 1, false},
		{"huge", mine.RKey, 1 << 40, math.MaxUint32, false},
		{"other_domain", other.RKey, 1 << 40, 1, false},
		{"no_such_key", mine.RKey ^ other.RKey ^ 1, 1 << 40, 1, false},
	} {
		if got := q.Writable(tc.key, tc.va, tc.length); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	n.Deregister(mine)
	if q.Writable(mine.RKey, 1<<40, 1) {
		t.Error("a closed region can be written")
	}
}

func TestPathMTU(t *testing.T) {
	for mtu, want := range map[int]int{4200: 4096, 4160: 4096, 4159: 2048, 1500: 1024, 9000: 4096, 320: 256, 319: 0} {
		got, err := PathMTU(mtu)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("PathMTU(%d) = %d, %v, want %d", mtu, got, err, want)
		}
	}
}

func TestWorld_sameSeedSameRun(t *testing.T) {
	play := func() Counters {
		w := newWorld(t, 3, 50, nil)
		w.loss = 0.002
		for _, f := range []*flow{w.connect(0, 2), w.connect(1, 2)} {
			f.start()
		}
		w.run(time.Second)
		return *w.nics[2].Counters()
	}
	if diff := cmp.Diff(play(), play()); diff != "" {
		t.Errorf("(-first +second)\n%s", diff)
	}
}

// pump moves packets between two NICs without a network.
func pump(a, b *NIC, now time.Duration, buf []byte) (packets int) {
	var d Datagram
	for a.Transmit(now, buf, &d) {
		b.Receive(now, &Header{Src: a.c.IP, SrcPort: d.SrcPort, TOS: d.TOS, DF: true}, buf[:d.Len])
		packets++
	}
	return packets
}

func TestNIC_allocatesNothingPerPacket(t *testing.T) {
	w := newWorld(t, 2, 1, nil)
	f := w.connect(0, 1)
	f.start()
	buf := make([]byte, 4160)
	var now time.Duration
	packets := 0
	n := testing.AllocsPerRun(1000, func() {
		now += 2 * time.Microsecond
		w.now = now
		packets += pump(w.nics[0], w.nics[1], now, buf)
		pump(w.nics[1], w.nics[0], now, buf)
		if q := w.nics[0].Finished(); q != nil {
			q.Tag.(func())()
		}
	})
	if n != 0 || packets < 500 {
		t.Errorf("%v allocations a step, %d packets", n, packets)
	}
}

func BenchmarkNIC_pair(b *testing.B) {
	w := newWorld(b, 2, 1, func(c *Config) { c.Rate = 400 * units.GbitPerSec })
	f := w.connect(0, 1)
	f.start()
	buf := make([]byte, 4160)
	b.ReportAllocs()
	b.SetBytes(4096)
	var now time.Duration
	packets := 0
	for b.Loop() {
		now += 85
		w.now = now
		packets += pump(w.nics[0], w.nics[1], now, buf)
		pump(w.nics[1], w.nics[0], now, buf)
		if q := w.nics[0].Finished(); q != nil {
			q.Tag.(func())()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/pkt")
}
