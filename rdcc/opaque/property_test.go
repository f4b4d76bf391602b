package opaque

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// network carries packets between two ends in virtual time, and does to them what networks do.
type network struct {
	rng                               *rand.Rand
	loss, duplicate, corrupt, reorder float64
	ce                                float64
	flying                            []flight
}

type flight struct {
	at     time.Duration
	packet []byte
	ce     bool
	n      int
}

func (w *network) send(now time.Duration, packet []byte) {
	copies := 1
	if w.rng.Float64() < w.loss {
		copies = 0
	}
	if w.rng.Float64() < w.duplicate {
		copies++
	}
	for range copies {
		f := flight{now + 50*time.Microsecond, slices.Clone(packet), w.rng.Float64() < w.ce, len(w.flying)}
		if w.rng.Float64() < w.reorder {
			f.at += time.Duration(w.rng.Int64N(int64(400 * time.Microsecond)))
		}
		if w.rng.Float64() < w.corrupt {
			f.packet[w.rng.IntN(len(packet))] ^= byte(1 + w.rng.IntN(255))
		}
		w.flying = append(w.flying, f)
	}
}

// take removes what is to arrive next.
func (w *network) take() (f flight, ok bool) {
	if len(w.flying) == 0 {
		return f, false
	}
	k := 0
	for i := range w.flying {
		if w.flying[i].at < w.flying[k].at {
			k = i
		}
	}
	f = w.flying[k]
	w.flying = slices.Delete(w.flying, k, k+1)
	return f, true
}

func (w *network) next() (time.Duration, bool) {
	at, ok := time.Duration(0), false
	for i := range w.flying {
		if !ok || w.flying[i].at < at {
			at, ok = w.flying[i].at, true
		}
	}
	return at, ok
}

type message struct {
	data   []byte
	out    *Outbound
	in     *Inbound
	sink   []byte
	writes []int // of each octet
	upTo   uint64
}

// TestProperties: whatever is lost, doubled, reordered and damaged, all octets arrive as they were, each handed over once,
// nothing is sent beyond what is allowed, and the accounts are empty at the end.
func TestProperties(t *testing.T) {
	seeds := 3000
	if testing.Short() {
		seeds = 300
	}
	marked, again := 0, uint64(0)
	for seed := range seeds {
		n, err := run(uint64(seed), &marked, &again)
		if err != nil {
			t.Fatalf("seed %d, %d messages: %v", seed, n, err)
		}
	}
	if marked == 0 || again == 0 {
		t.Errorf("%d windows fell for marks, %d octets were sent again: the test shows nothing", marked, again)
	}
}

func run(seed uint64, marked *int, again *uint64) (int, error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	worst := []float64{0, 0.01, 0.1, 0.4}[rng.IntN(4)]
	w := &network{rng: rng, loss: worst * rng.Float64(), duplicate: worst * rng.Float64(), corrupt: worst * rng.Float64() / 4,
		reorder: worst * rng.Float64(), ce: worst * rng.Float64()}
	packet := []int{1, 100, 1400}[rng.IntN(3)]
	path := NewPath(packet, 64+rng.IntN(1000), 2*time.Millisecond)
	var all []*message
	for range 1 + rng.IntN(3) {
		m := &message{data: make([]byte, 1+rng.IntN(200*packet)), upTo: 0}
		for i := range m.data {
			m.data[i] = byte(rng.Uint32())
		}
		m.out, m.in = NewOutbound(path, packet, uint64(len(m.data))), NewInbound(uint64(len(m.data)))
		m.sink, m.writes = make([]byte, len(m.data)), make([]int, len(m.data))
		all = append(all, m)
	}
	now := time.Millisecond
	for step := 0; ; step++ {
		if now > 20*time.Minute || step > 1e6 {
			return len(all), fmt.Errorf("not done at %v, after %d steps", now, step)
		}
		done := true
		for i, m := range all {
			done = done && m.in.Complete() && m.out.Acked() && m.out.Sent() == uint64(len(m.data))
			if rng.IntN(3) > 0 { // credit comes little by little
				m.upTo = min(m.upTo+rng.Uint64N(uint64(20*packet)), uint64(len(m.data)))
			}
			for {
				r, twice, ok := m.out.Next(now, m.upTo)
				if !ok {
					break
				}
				if r.End > m.upTo {
					return len(all), fmt.Errorf("message %d: octets to %d with credit for %d", i, r.End, m.upTo)
				}
				p := Packet{Assoc: 7, Value: uint64(i), Stamp: Stamp(now), Offset: r.First, Length: uint64(len(m.data)), Again: twice}
				b := append(p.AppendHeader(nil), m.data[r.First:r.End]...)
				Seal(b)
				w.send(now, b)
			}
		}
		if done {
			break
		}
		// What comes next: a packet, a timeout, or more credit.
		next := now + 100*time.Microsecond
		if at, ok := w.next(); ok {
			next = min(next, at)
		}
		now = max(now, next)
		for {
			if at, ok := w.next(); !ok || at > now {
				break
			}
			f, _ := w.take()
			if err := arrive(w, now, f, all); err != nil {
				return len(all), err
			}
		}
		for _, m := range all {
			m.out.Timeout(now)
		}
	}
	for i, m := range all {
		if !bytes.Equal(m.sink, m.data) {
			return len(all), fmt.Errorf("message %d arrived otherwise than it was sent", i)
		}
		for at, n := range m.writes {
			if n != 1 {
				return len(all), fmt.Errorf("message %d: octet %d handed over %d times", i, at, n)
			}
		}
		if m.in.Octets() != uint64(len(m.data)) {
			return len(all), fmt.Errorf("message %d: %d octets counted of %d", i, m.in.Octets(), len(m.data))
		}
		*again += m.out.Again
	}
	if path.inFlight != 0 {
		return len(all), fmt.Errorf("%d octets in flight when all have arrived", path.inFlight)
	}
	if path.marked > 0 {
		*marked++
	}
	return len(all), nil
}

func arrive(w *network, now time.Duration, f flight, all []*message) error {
	var p Packet
	if p.Decode(f.packet) != nil {
		return nil // damaged
	}
	if p.Value >= uint64(len(all)) {
		return fmt.Errorf("identifier %d of nobody came through the checksum", p.Value)
	}
	m := all[p.Value]
	if !p.Data {
		m.out.Ack(now, &p)
		return nil
	}
	before := m.in.Octets()
	fresh, _, ok := m.in.Take(&p, f.ce, nil)
	if !ok {
		return nil
	}
	sum := uint64(0)
	for _, r := range fresh {
		copy(m.sink[r.First:r.End], p.Payload[r.First-p.Offset:])
		for i := r.First; i < r.End; i++ {
			m.writes[i]++
		}
		sum += r.End - r.First
	}
	if m.in.Octets()-before != sum {
		return fmt.Errorf("%d octets counted, %d handed over", m.in.Octets()-before, sum)
	}
	if len(m.in.above) > MaxHoles {
		return fmt.Errorf("%d ranges are kept, the bound is %d", len(m.in.above), MaxHoles)
	}
	a := Packet{Assoc: 7, Value: p.Value}
	m.in.Ack(&a)
	w.send(now, a.AppendAck(nil))
	return nil
}

// TestInbound_bound: a sender that leaves a hole after each octet gets no more than the bound.
func TestInbound_bound(t *testing.T) {
	in := NewInbound(1 << 20)
	taken := 0
	for i := uint64(1); i < 4*MaxHoles; i += 2 {
		if _, _, ok := in.Take(&Packet{Offset: i, Length: 1 << 20, Payload: []byte{0}}, false, nil); ok {
			taken++
		}
	}
	if taken != MaxHoles || len(in.above) != MaxHoles {
		t.Errorf("%d taken, %d kept, want %d", taken, len(in.above), MaxHoles)
	}
	if _, _, ok := in.Take(&Packet{Offset: 0, Length: 1 << 20, Payload: make([]byte, 4*MaxHoles)}, false, nil); !ok || in.below != 4*MaxHoles || len(in.above) != 0 {
		t.Errorf("what fills the holes is not taken: below %d, %d ranges", in.below, len(in.above))
	}
}

// TestOutbound_foreignAck: an acknowledgement of what was not sent changes nothing.
func TestOutbound_foreignAck(t *testing.T) {
	path := NewPath(100, 64, time.Millisecond)
	o := NewOutbound(path, 100, 10000)
	for range 3 {
		o.Next(time.Millisecond, 10000)
	}
	for _, a := range []Packet{
		{Cumulative: 400},
		{Cumulative: 0, Ranges: [MaxRanges]Range{{100, 400}}, NumRanges: 1},
		{Cumulative: 1 << 63},
	} {
		if rtt := o.Ack(2*time.Millisecond, &a); rtt != 0 || o.n != 3 || path.inFlight != 300 {
			t.Errorf("%+v: sample %v, %d segments, %d in flight", a, rtt, o.n, path.inFlight)
		}
	}
}

// TestPath_marks: a quarter of marked packets makes the window smaller, none leaves it alone.
func TestPath_marks(t *testing.T) {
	for _, ce := range []uint32{0, 1} {
		path := NewPath(100, 1000, time.Millisecond)
		o := NewOutbound(path, 100, 1<<30)
		in := NewInbound(1 << 30)
		now := time.Duration(0)
		for i := range 2000 {
			now += 10 * time.Microsecond
			for {
				r, _, ok := o.Next(now, 1<<30)
				if !ok {
					break
				}
				in.Take(&Packet{Offset: r.First, Length: 1 << 30, Payload: make([]byte, r.End-r.First), Stamp: Stamp(now)}, i%4 == 0 && ce == 1, nil)
			}
			var a Packet
			in.Ack(&a)
			o.Ack(now+5*time.Microsecond, &a)
		}
		if fell := path.reduction > 0; fell != (ce == 1) || ce == 0 && path.window != 100000 {
			t.Errorf("marks %v: window %d, fell %d times", ce == 1, path.window, path.reduction)
		}
	}
}
