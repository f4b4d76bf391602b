package qp

import (
	"bytes"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pcmlab/pcmlab/internal/units"
)

const testRKey = 0x1234

// side is one machine with its memory: the first half is sent from, the second half is the target.
type side struct {
	*Machine
	n       Counters
	mem     []byte
	base    uint64
	written int64 // bytes stored through WriteRemote
	wrote   func(va uint64, b []byte)
	done    []Completion
}

func (s *side) Writable(rkey uint32, va uint64, n uint32) bool {
	return rkey == testRKey && va >= s.base && va+uint64(n) >= va && va+uint64(n) <= s.base+uint64(len(s.mem))
}

func (s *side) WriteRemote(_ uint32, va uint64, b []byte) {
	s.written += int64(len(b))
	copy(s.mem[va-s.base:], b)
	if s.wrote != nil {
		s.wrote(va, b)
	}
}

func (s *side) WriteLocal(local uint64, b []byte) { copy(s.mem[local:], b) }

// frame is a packet on the virtual network.
type frame struct {
	at   time.Duration
	seq  int
	to   *side
	out  Out
	data []byte
}

type frames []frame

func (f frames) Len() int { return len(f) }
func (f frames) Less(i, j int) bool {
	return f[i].at < f[j].at || f[i].at == f[j].at && f[i].seq < f[j].seq
}
func (f frames) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *frames) Push(x any)   { *f = append(*f, x.(frame)) }
func (f *frames) Pop() any {
	x := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return x
}

// network joins two machines in virtual time. Rates are of 1: how often a packet is lost, doubled, delayed past later
// ones, or damaged (which the ICRC turns into a loss). All chance comes from the seed.
type network struct {
	a, b                         *side
	rng                          *rand.Rand
	loss, twice, reorder, damage float64
	delay                        time.Duration
	queue                        frames
	seq                          int
	now                          time.Duration
	log                          func(string)
}

func newPair(t testing.TB, a, b Config, memory int) (x, y *side) {
	t.Helper()
	make1 := func(c Config, base uint64) *side {
		s := &side{mem: make([]byte, memory), base: base}
		m, err := New(c, s, &s.n)
		if err != nil {
			t.Fatal(err)
		}
		s.Machine = m
		return s
	}
	x, y = make1(a, 0x10000), make1(b, 0x7f0000000000)
	if err := x.Connect(b.QPN, b.FirstPSN); err != nil {
		t.Fatal(err)
	}
	if err := y.Connect(a.QPN, a.FirstPSN); err != nil {
		t.Fatal(err)
	}
	return x, y
}

func testConfig(qpn, psn uint32) Config {
	return Config{QPN: qpn, FirstPSN: psn, MTU: 1024, Timeout: 500 * time.Microsecond, RetryCount: 7, RNRRetry: 7, MinRNRTimer: 1,
		RNRScale: 1, SendDepth: 16, RecvDepth: 16, AckEvery: 8, Window: 64, CatchUp: time.Millisecond, Overhead: 66, Rate: 10 * units.GbitPerSec}
}

func (n *network) transmit(from, to *side) {
	var out Out
	for from.Next(n.now, &out) {
		data := append([]byte(nil), from.mem[out.Local:out.Local+uint64(out.Length)]...)
		copies := 1
		if n.rng.Float64() < n.loss {
			copies = 0
		} else if n.rng.Float64() < n.twice {
			copies = 2
		}
		if n.rng.Float64() < n.damage {
			copies = 0 // the receiver's ICRC check drops it
		}
		if n.log != nil {
			n.log(fmt.Sprintf("%v %v psn %d len %d retx %v syn %x copies %d", n.now, out.BTH.Opcode, out.BTH.PSN, out.Length, out.Retransmit, out.AETH.Syndrome, copies))
		}
		for range copies {
			at := n.now + n.delay
			if n.rng.Float64() < n.reorder {
				at += time.Duration(n.rng.Int64N(int64(20 * time.Microsecond)))
			}
			n.seq++
			heap.Push(&n.queue, frame{at, n.seq, to, out, data})
		}
	}
}

// step runs to the next event; false when nothing will happen any more.
func (n *network) step() bool {
	n.transmit(n.a, n.b)
	n.transmit(n.b, n.a)
	next, ok := time.Duration(0), false
	for _, s := range []*side{n.a, n.b} {
		if at, has := s.Deadline(); has && (!ok || at < next) {
			next, ok = at, true
		}
	}
	if len(n.queue) > 0 && (!ok || n.queue[0].at < next) {
		next, ok = n.queue[0].at, true
	}
	if !ok {
		return false
	}
	n.now = max(n.now, next)
	for len(n.queue) > 0 && n.queue[0].at <= n.now {
		f := heap.Pop(&n.queue).(frame)
		f.to.Receive(n.now, &In{BTH: f.out.BTH, RETH: f.out.RETH, AETH: f.out.AETH, Payload: f.data})
	}
	for _, s := range []*side{n.a, n.b} {
		s.Tick(n.now)
		for {
			c, ok := s.Poll()
			if !ok {
				break
			}
			s.done = append(s.done, c)
		}
	}
	return true
}

type scenario struct {
	seed                         uint64
	loss, twice, reorder, damage float64
	mtu, window, ackEvery        int
	psn                          uint32
	sizes                        []int
	ops                          []Op
}

func drawScenario(t *rapid.T) scenario {
	odds := rapid.SampledFrom([]float64{0, 0, 0.001, 0.01, 0.05, 0.2})
	s := scenario{
		seed: rapid.Uint64().Draw(t, "seed"),
		loss: odds.Draw(t, "loss"), twice: odds.Draw(t, "twice"), reorder: odds.Draw(t, "reorder"), damage: odds.Draw(t, "damage"),
		mtu:    rapid.SampledFrom([]int{256, 512, 1024, 2048, 4096}).Draw(t, "mtu"),
		window: rapid.SampledFrom([]int{1, 2, 7, 64, 1024}).Draw(t, "window"), ackEvery: rapid.IntRange(1, 20).Draw(t, "ack_every"),
		psn: rapid.SampledFrom([]uint32{0, 1, 0xffffff, 0xfffff0, 0x7fffff, 0x800000, 12345}).Draw(t, "psn"),
	}
	for range rapid.IntRange(1, 12).Draw(t, "messages") {
		s.sizes = append(s.sizes, rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 20000),
			rapid.Map(rapid.IntRange(1, 5), func(k int) int { return k * s.mtu })).Draw(t, "size"))
		s.ops = append(s.ops, rapid.SampledFrom([]Op{Write, Write, Write, Send}).Draw(t, "op"))
	}
	return s
}

type outcome struct {
	Done, Recv []Completion
	A, B       Counters
	Log        []string
	Now        time.Duration
	State      [2]State
	Written    int64
	Ordered    bool
	Target     []byte
	Source     []byte
}

// run plays a scenario to its end: a sends each message to its own place at b.
func (s scenario) run(t testing.TB) outcome {
	const half = 12 * 20480
	ca, cb := testConfig(0x11, s.psn), testConfig(0x22, 99)
	for _, c := range []*Config{&ca, &cb} {
		c.MTU, c.Window, c.AckEvery = s.mtu, s.window, s.ackEvery
	}
	a, b := newPair(t, ca, cb, 2*half)
	o := outcome{Ordered: true}
	n := &network{a: a, b: b, rng: rand.New(rand.NewPCG(s.seed, 1)), loss: s.loss, twice: s.twice, reorder: s.reorder, damage: s.damage,
		delay: 5 * time.Microsecond, log: func(l string) { o.Log = append(o.Log, l) }}
	for i := range half {
		a.mem[i] = byte(n.rng.Uint32())
	}
	var lastVA uint64
	b.wrote = func(va uint64, p []byte) {
		if va < lastVA {
			o.Ordered = false
		}
		lastVA = va + uint64(len(p))
	}
	offset := 0
	for i, size := range s.sizes {
		if s.ops[i] == Send {
			if err := b.PostRecv(RecvRequest{ID: uint64(i), Local: uint64(half + offset), Length: uint32(size)}); err != nil {
				t.Fatal(err)
			}
		}
		w := WorkRequest{ID: uint64(i), Op: s.ops[i], Local: uint64(offset), Length: uint32(size), RemoteVA: b.base + half + uint64(offset), RKey: testRKey}
		if err := a.Post(n.now, w); err != nil {
			t.Fatal(err)
		}
		offset += size
	}
	for i := 0; n.step(); i++ {
		if i > 2_000_000 {
			t.Fatalf("does not end: a %+v", a.req)
		}
	}
	o.Done, o.Recv, o.A, o.B, o.Now, o.State = a.done, b.done, a.n, b.n, n.now, [2]State{a.State(), b.State()}
	o.Written, o.Target, o.Source = b.written, b.mem[half:half+offset], a.mem[:offset]
	return o
}

func TestPair_deliversExactlyOnceInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawScenario(rt)
		o := s.run(t)
		if len(o.Done) != len(s.sizes) {
			rt.Fatalf("%d completions for %d messages", len(o.Done), len(s.sizes))
		}
		if !o.Ordered {
			rt.Fatal("writes arrived out of order")
		}
		failed := false
		upto, total, writes := 0, 0, 0
		for i, c := range o.Done {
			if c.ID != uint64(i) || c.Op != s.ops[i] {
				rt.Fatalf("completion %d is %+v", i, c)
			}
			if c.Status != Success {
				if !failed && c.Status != RetryExceeded || failed && c.Status != FlushError {
					rt.Fatalf("completion %d has status %d (earlier failure: %v)", i, c.Status, failed)
				}
				failed = true
				continue
			}
			if failed {
				rt.Fatalf("completion %d succeeded after a failure", i)
			}
			upto += s.sizes[i]
			total += s.sizes[i]
			if c.Op == Write {
				writes += s.sizes[i]
			}
		}
		if failed != (o.State[0] == Error) {
			rt.Fatalf("state %v with failure %v", o.State[0], failed)
		}
		if !bytes.Equal(o.Target[:upto], o.Source[:upto]) {
			rt.Fatal("the target's bytes differ")
		}
		if failed {
			if s.loss+s.damage < 0.05 {
				rt.Fatalf("gave up at a loss of %v", s.loss+s.damage)
			}
			return
		}
		// The counters tell the same story from both ends.
		if o.Written != int64(writes) || o.B.RxPayloadBytes != uint64(total) {
			rt.Fatalf("wrote %d (want %d), counted %d (want %d)", o.Written, writes, o.B.RxPayloadBytes, total)
		}
		if got := o.A.TxPayloadBytes - o.A.RetransmittedBytes; got != uint64(total) {
			rt.Fatalf("sent %d first-time bytes, want %d", got, total)
		}
		packets := 0
		for _, size := range s.sizes {
			packets += max(1, (size+s.mtu-1)/s.mtu)
		}
		if got := o.A.TxDataPackets - o.A.RetransmittedPackets; got != uint64(packets) {
			rt.Fatalf("sent %d first-time packets, want %d", got, packets)
		}
		if s.loss+s.damage+s.reorder == 0 && o.A.RetransmittedPackets != 0 {
			rt.Fatalf("%d retransmissions on a clean network", o.A.RetransmittedPackets)
		}
		if got := len(o.Recv); got != slicesCount(s.ops, Send) {
			rt.Fatalf("%d receive completions", got)
		}
	})
}

func slicesCount(ops []Op, op Op) (n int) {
	for _, o := range ops {
		if o == op {
			n++
		}
	}
	return n
}

func TestPair_replaysFromTheSeed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawScenario(rt)
		first, second := s.run(t), s.run(t)
		if diff := cmp.Diff(first, second); diff != "" {
			rt.Fatalf("(-first +second)\n%s", diff)
		}
	})
}

func TestPair_wrapsThePSN(t *testing.T) {
	s := scenario{seed: 1, mtu: 256, window: 64, ackEvery: 8, psn: 0xffffff - 10, sizes: []int{20000}, ops: []Op{Write}, loss: 0.05}
	o := s.run(t)
	if o.Done[0].Status != Success || !bytes.Equal(o.Source, o.Target) {
		t.Fatalf("completion %+v, equal %v", o.Done[0], bytes.Equal(o.Source, o.Target))
	}
	if o.A.RetransmittedPackets == 0 {
		t.Error("the seed lost no packet; the test shows nothing")
	}
}

func TestPair_pacesAtTheRate(t *testing.T) {
	for _, rate := range []units.Rate{500 * units.MbitPerSec, 7 * units.MbitPerSec, 25 * units.GbitPerSec, 400 * units.GbitPerSec} {
		c := testConfig(1, 0)
		c.Rate, c.MTU, c.Window, c.SendDepth, c.Timeout = rate, 4096, 1<<20, 64, 0
		a, _ := newPair(t, c, testConfig(2, 0), 1<<20)
		for range 64 {
			if err := a.Post(0, WorkRequest{Length: 1 << 18, RKey: testRKey}); err != nil {
				t.Fatal(err)
			}
		}
		var out Out
		var bits float64
		for {
			now, ok := a.Deadline()
			if !ok {
				break
			}
			for a.Next(now, &out) {
				bits += float64(out.WireLen()+c.Overhead) * 8
			}
		}
		if got := bits / a.slot.Seconds(); got < 0.9999*float64(rate) || got > 1.0001*float64(rate) {
			t.Errorf("rate %v: sent at %.0f bit/s", rate, got)
		}
	}
}

func TestPair_allocatesNothingPerPacket(t *testing.T) {
	c := testConfig(1, 0)
	c.Window = 1024
	a, b := newPair(t, c, testConfig(2, 0), 1<<17)
	var out Out
	var in In
	var now time.Duration
	exchange := func() {
		if a.Queued() == 0 {
			if err := a.Post(now, WorkRequest{Length: 65536, RemoteVA: b.base, RKey: testRKey}); err != nil {
				t.Fatal(err)
			}
		}
		now += time.Microsecond
		for a.Next(now, &out) {
			in = In{BTH: out.BTH, RETH: out.RETH, Payload: a.mem[out.Local : out.Local+uint64(out.Length)]}
			b.Receive(now, &in)
		}
		for b.Next(now, &out) {
			in = In{BTH: out.BTH, AETH: out.AETH}
			a.Receive(now, &in)
		}
		a.Poll()
	}
	if n := testing.AllocsPerRun(2000, exchange); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
	if b.n.RxPayloadBytes == 0 {
		t.Error("nothing was delivered")
	}
}

func BenchmarkPair(b *testing.B) {
	for _, mtu := range []int{1024, 4096} {
		b.Run(fmt.Sprintf("mtu=%d", mtu), func(b *testing.B) {
			c, d := testConfig(1, 0), testConfig(2, 0)
			c.MTU, d.MTU, c.Rate, c.CatchUp = mtu, mtu, 400*units.GbitPerSec, time.Hour
			x, y := newPair(b, c, d, 1<<17)
			var out Out
			var in In
			now := time.Hour
			b.ReportAllocs()
			b.SetBytes(int64(mtu))
			for b.Loop() {
				if x.Queued() == 0 {
					_ = x.Post(now, WorkRequest{Length: 65536, RemoteVA: y.base, RKey: testRKey})
				}
				now += time.Millisecond
				if x.Next(now, &out) {
					in = In{BTH: out.BTH, RETH: out.RETH, Payload: x.mem[out.Local : out.Local+uint64(out.Length)]}
					y.Receive(now, &in)
				}
				if y.Next(now, &out) {
					in = In{BTH: out.BTH, AETH: out.AETH}
					x.Receive(now, &in)
					x.Poll()
				}
			}
			if y.n.RxPayloadBytes == 0 {
				b.Fatal("nothing was delivered")
			}
		})
	}
}
