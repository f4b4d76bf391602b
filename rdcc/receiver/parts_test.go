package receiver

import (
	"slices"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// TestWheel: against a list of times.
func TestWheel(t *testing.T) {
	for seed := range uint64(20) {
		d := seeded(seed)
		var w wheel
		want := map[int32]time.Duration{}
		now := time.Duration(d.Uint64N(1 << 40))
		w.now = uint64(now) >> tickBits
		for range 3000 {
			i := int32(d.IntN(200))
			switch d.IntN(4) {
			case 0, 1:
				at := now + time.Duration(d.Uint64N(1<<(10+d.IntN(32))))
				w.set(i, at)
				want[i] = at
			case 2:
				w.clear(i)
				delete(want, i)
			default:
				end := now + time.Duration(d.Uint64N(1<<(8+d.IntN(30))))
				for {
					if next, ok := w.next(); ok && next > end {
						break
					}
					i := w.advance(end)
					if i < 0 {
						break
					}
					at, ok := want[i]
					if !ok || at > end {
						t.Fatalf("seed %d: timer %d of %v fires at %v", seed, i, at, end)
					}
					delete(want, i)
				}
				now = end
				for i, at := range want {
					if at+1<<tickBits <= now-1<<tickBits {
						t.Fatalf("seed %d: timer %d of %v has not fired at %v", seed, i, at, now)
					}
				}
			}
			if w.n != len(want) {
				t.Fatalf("seed %d: %d timers, want %d", seed, w.n, len(want))
			}
		}
	}
}

// TestIndex: against a map.
func TestIndex(t *testing.T) {
	d := seeded(3)
	var x index
	x.init(d.Uint64())
	want := map[key]int32{}
	for n := range 50000 {
		k := key{uint64(d.IntN(300)), uint32(d.IntN(3)), uint32(d.IntN(2))}
		if _, ok := want[k]; ok {
			x.remove(k)
			delete(want, k)
		} else {
			x.put(k, int32(n))
			want[k] = int32(n)
		}
		if n%100 == 0 {
			for k, v := range want {
				if x.get(k) != v {
					t.Fatalf("after %d: %v is at %d, want %d", n, k, x.get(k), v)
				}
			}
		}
		if x.n != len(want) {
			t.Fatalf("%d keys, want %d", x.n, len(want))
		}
	}
	x.remove(key{1 << 60, 9, 0}) // of what is not there
	if x.get(key{1 << 60, 9, 0}) != -1 || x.n != len(want) {
		t.Error("removing what is not there changes the table")
	}
}

// TestHoles: against a set.
func TestHoles(t *testing.T) {
	d := seeded(4)
	for range 200 {
		var h holes
		open := map[uint64]bool{}
		highest := uint64(0)
		for range 60 {
			if id := highest + 1 + uint64(d.IntN(5)); d.IntN(2) == 0 {
				if id > highest+1 {
					h.add(span{highest + 1, id - 1, 0, false})
				}
				for o := highest + 1; o < id; o++ {
					open[o] = true
				}
				highest = id
			} else if highest > 0 {
				id := 1 + d.Uint64N(highest)
				h.remove(id)
				delete(open, id)
			}
			for id := uint64(1); id <= highest; id++ {
				if h.has(id) != open[id] {
					t.Fatalf("%d is a hole: %t, want %t in %v", id, h.has(id), open[id], h.spans)
				}
			}
		}
	}
	var h holes
	for n := range uint64(4) {
		h.add(span{10*n + 1, 10*n + 5, time.Duration(n) * time.Second, false})
	}
	for _, f := range []struct {
		name string
		id   uint64
		now  time.Duration
		gone uint64
		ok   bool
	}{
		{"a fifth hole above", 100, 5 * time.Second, 0, false},
		{"the next, without a hole", 36, 5 * time.Second, 0, true},
		{"at the edge of a hole", 31, 5 * time.Second, 0, true},
		{"in the middle of one", 3, 5 * time.Second, 0, false},
		{"when the oldest has had its time, which is the one that is split", 3, holeAge, 0, false},
		{"when the oldest has had its time", 100, holeAge, 1, true},
		{"then there is room", 23, holeAge, 0, true},
	} {
		if gone, ok := h.fits(f.id, 35, f.now, 4); gone != f.gone || ok != f.ok {
			t.Errorf("%s: %d gone, %t; want %d, %t", f.name, gone, ok, f.gone, f.ok)
		}
	}
	if len(h.spans) != 3 || h.has(1) || !h.has(31) || h.forgotten != 5 {
		t.Errorf("these are left: %v, %d is forgotten", h.spans, h.forgotten)
	}
}

// TestQP_inOrder: octets of a queue pair go to its messages by MSN, also when requests come out of order.
func TestQP_inOrder(t *testing.T) {
	l := newLab(t, func(c *Config) { c.U, c.Gu = 12000, 200000 })
	c := l.client(1)
	on := func(msn uint32, n uint16) func(*rdcc.CreditRequest) {
		return func(m *rdcc.CreditRequest) {
			m.BindingKind, m.BindingValue = rdcc.BindingRoCEv2, rdcc.RoCEBinding{DestQP: 9, MSN: msn, Messages: n}.Value()
		}
	}
	qp := func(octets uint64) {
		c.arrive(Arrival{Kind: rdcc.BindingRoCEv2, Value: 9 << 40, Octets: octets, Packets: 1})
	}
	done := func() (ids []uint64) {
		for _, w := range l.take(rdcc.TypeMsgDone) {
			ids = append(ids, w.MsgDone.MessageID)
		}
		return ids
	}
	c.request(1, 8000, 0, on(0xfffffe, 2))
	c.request(2, 4000, 0, on(0, 1)) // the MSN wraps
	qp(7999)
	l.want("nothing is complete", len(done()), 0)
	qp(1)
	c.l.pass(0)
	qp(4000)
	if got := done(); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("complete: %v, want 1 and 2", got)
	}
	// Message 3 is unscheduled and its request is late: its octets are not message 4's.
	c.request(4, 5000, 0, on(3, 1))
	l.take(rdcc.TypeCreditGrant)
	qp(2000)
	l.want("nothing is complete", len(done()), 0)
	l.want("faults", l.r.Counters.Faults[SentBeyondCredit], uint64(0))
	c.request(3, 2000, 2000, on(1, 2))
	if got := done(); !slices.Equal(got, []uint64{3}) {
		t.Errorf("complete: %v, want 3", got)
	}
	qp(5000)
	if got := done(); !slices.Equal(got, []uint64{4}) {
		t.Errorf("complete: %v, want 4", got)
	}
	// Octets before any request.
	c.arrive(Arrival{Kind: rdcc.BindingRoCEv2, Value: 77 << 40, Octets: 3000})
	c.request(5, 3000, 3000, func(m *rdcc.CreditRequest) {
		m.BindingKind, m.BindingValue = rdcc.BindingRoCEv2, rdcc.RoCEBinding{DestQP: 77, MSN: 5, Messages: 1}.Value()
	})
	if got := done(); !slices.Equal(got, []uint64{5}) {
		t.Errorf("complete: %v, want 5", got)
	}
	// A cancelled message does not hold up the next.
	c.request(6, 3000, 0, on(4, 1))
	c.request(7, 3000, 0, on(5, 1))
	c.send(&rdcc.Cancel{MessageID: 6})
	l.pass(200 * us)
	c.request(7, 3000, 0, on(5, 1))
	qp(3000)
	if got := done(); !slices.Equal(got, []uint64{7}) {
		t.Errorf("complete: %v, want 7", got)
	}
	l.want("charged", l.charged(), int64(0))
}

// TestOpaque: a binding that is not the Message ID finds its message, and no two are the same.
func TestOpaque(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	value := func(v uint64) func(*rdcc.CreditRequest) {
		return func(m *rdcc.CreditRequest) { m.BindingValue = v }
	}
	c.request(1, 1000, 0, value(2))
	l.one(rdcc.TypeCreditGrant)
	c.request(2, 1000, 0, value(2))
	l.want("reason", l.one(rdcc.TypeError).Error.Reason, rdcc.ReasonUnsupportedBinding)
	c.arrive(Arrival{Kind: rdcc.BindingOpaque, Value: 2, Octets: 1000})
	l.want("complete", l.one(rdcc.TypeMsgDone).MsgDone.MessageID, uint64(1))
	c.request(3, 1000, 0, value(3))
	c.arrive(Arrival{Kind: rdcc.BindingOpaque, Value: 3, Octets: 1000})
	l.want("complete", l.one(rdcc.TypeMsgDone).MsgDone.MessageID, uint64(3))
	l.want("keys", l.r.index.n, 0)
}

// TestAllocators: the formula of the specification, and what holds of any allocator.
func TestAllocators(t *testing.T) {
	f := Flow{Max: 100e9, Min: 2e9}
	AIMD{}.Start(&f, 0)
	steps := []struct {
		s    Signal
		want int64
	}{
		{Signal{CE: 0.5}, 75e9}, {Signal{Degree: 1}, 37.5e9}, {Signal{Delay: 0.2, CE: 0.1}, 33.75e9}, {Signal{}, 34.75e9}, {Signal{}, 35.75e9},
	}
	for n, x := range steps {
		AIMD{}.Update(&f, 0, x.s)
		if d := f.Rate - x.want; d < -10 || d > 10 {
			t.Errorf("step %d: %d bit/s, want %d", n, f.Rate, x.want)
		}
	}
	for _, a := range []Allocator{AIMD{}, BBR{}, AIMD{Beta: 0.9, Alpha: 5e9}, BBR{Beta: 0.9}} {
		d := seeded(1)
		f := Flow{Max: 100e9, Min: 2e9}
		a.Start(&f, 0)
		for range 2000 {
			s := Signal{Octets: d.Uint64N(300000), Elapsed: 16 * us, RTT: 20 * us}
			if d.IntN(3) == 0 {
				s.CE, s.Delay, s.Degree = d.Float64(), d.Float64(), d.Float64()
			}
			before, twin := f.Rate, f
			a.Update(&f, 0, s)
			if f.Rate < f.Min || f.Rate > f.Max {
				t.Fatalf("%T: rate %d", a, f.Rate)
			}
			if s.Congestion() > 0 && before > f.Min && f.Rate >= before {
				t.Fatalf("%T: rate %d after %d and %+v", a, f.Rate, before, s)
			}
			worse := s
			worse.CE = 1
			a.Update(&twin, 0, worse)
			if twin.Rate > f.Rate && s.Congestion() > 0 {
				t.Fatalf("%T: more congestion leaves a higher rate: %d, %d", a, twin.Rate, f.Rate)
			}
		}
	}
	// BBR finds what a path delivers.
	var bbr BBR
	f = Flow{Max: 100e9, Min: 1e9}
	bbr.Start(&f, 0)
	for range 100 {
		rate := min(f.Rate, 40e9) // the bottleneck
		bbr.Update(&f, 0, Signal{Octets: uint64(rate / 8 * 16 / 1e6), Elapsed: 16 * us})
	}
	if f.Rate < 29e9 || f.Rate > 51e9 {
		t.Errorf("BBR paces at %d bit/s behind a bottleneck of 40 Gbit/s", f.Rate)
	}
}

// TestAllocator_isHeld: whatever an allocator does, a sign of congestion raises nothing and bounds hold.
type wild struct{}

func (wild) Start(f *Flow, _ time.Duration)            { f.Rate = f.Max / 2 }
func (wild) Update(f *Flow, _ time.Duration, _ Signal) { f.Rate = 1 << 60 }

func TestAllocator_isHeld(t *testing.T) {
	l, c := flowing(t, func(c *Config) { c.Allocator = wild{} })
	before := l.r.senderRate(c.assoc())
	c.flow(1, 20)
	l.want("rate with congestion", l.r.senderRate(c.assoc()) <= before, true)
	c.flow(1, 0)
	l.want("rate without", l.r.senderRate(c.assoc()), int64(capacity))
}

// TestNoAllocation: in the steady state a message costs no allocation.
func TestNoAllocation(t *testing.T) {
	w := newCrowd(t, 200, 2000)
	w.run(5000)
	seen := make([]bool, len(w.clients))
	if n := testing.AllocsPerRun(20, func() { w.carry(200, seen) }); n != 0 {
		t.Errorf("%v allocations for 200 messages", n)
	}
}

// TestConfig_mistakes: all at once, and each with its numbers.
func TestConfig_mistakes(t *testing.T) {
	for name, f := range map[string]func(*Config){
		"line_rate":  func(c *Config) { c.Fabric.LineRate = 0 },
		"rtt":        func(c *Config) { c.Fabric.BaseRTT = 0 },
		"wire":       func(c *Config) { c.Fabric.Wire = 100 },
		"budget":     func(c *Config) { c.G, c.Gu = 10000, 8000 },
		"u":          func(c *Config) { c.U = 1 << 33 },
		"idle":       func(c *Config) { c.Idle = time.Microsecond },
		"bounds":     func(c *Config) { c.MaxPending = -1 },
		"out_queue":  func(c *Config) { c.OutQueue = 3 },
		"max_credit": func(c *Config) { c.MaxCredit = -5 },
	} {
		c := testConfig(f)
		if _, err := New(c); err == nil {
			t.Errorf("%s: New takes it", name)
		}
	}
}
