package world

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/rdcctest"
	"github.com/pcmlab/pcmlab/rdcc/sender"
)

// message is one of the scenario's, and what its transport did.
type message struct {
	Message
	n      int
	id     uint64 // of the sender's machine
	wire   uint64 // Message ID
	sent   uint64 // handed over or put on the wire
	pieces []piece
	ready  bool // in the transport's list

	over, done bool
	said       bool // to be done, by the receiver
	doomed     bool // cancelled at the receiver: traffic need not flow
	arrived    uint64
	told       uint32        // association for which the receiver's transport has told what was there before
	nicAt      time.Duration // SelfPaced: when the NIC is done with what it has
	nicRate    int64
}

// piece is a packet's payload. It is cut once, so that one which comes twice is known.
type piece struct {
	off, n  uint64
	arrived bool
}

// shost is a sender: the machine, a transport that obeys it, and a NIC.
type shost struct {
	Sender
	w      *World
	i      int
	m      *sender.Machine
	c      clock
	addr   netip.AddrPort
	byID   map[uint64]*message
	ready  []*message // those that may have something to send
	next   int
	free   time.Duration // of the link
	wakeAt time.Duration
	pumpAt time.Duration
	oracle senderOracle
	buf    []byte
}

const port = 50123

func (w *World) addSender(i int) {
	s := &shost{
		Sender: w.s.Senders[i], w: w, i: i, addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i + 1)}), port),
		byID: map[uint64]*message{}, wakeAt: never, pumpAt: never,
	}
	s.c = clock{s.Offset, s.PPM}
	random := &secrets{uint64(i) << 8}
	caps := rdcc.CapStatus | rdcc.CapCRN
	if s.Pool {
		caps |= rdcc.CapPool
	}
	timing := sender.Timing{GiveUp: w.s.GiveUp, Keepalive: 300 * ms, Idle: time.Minute}.Scale(float64(w.s.Scale))
	timing.DMax = w.s.Fabric.DMax
	c := sender.Config{
		LineRate: s.LineRate, Capabilities: caps, BacklogThreshold: s.Backlog, CRNs: []netip.Prefix{netip.PrefixFrom(crn.Addr(), 32)},
		Local: []netip.Addr{s.addr.Addr()}, Timing: timing, Nonce: random.next, Rand: rand.New(random),
	}
	rdcctest.Without(&c, w.off)
	m, err := sender.New(c)
	if err != nil {
		panic(err) // the scenario is wrong
	}
	s.m = m
	s.oracle.init(s)
	w.byAddr[s.addr] = -1 - i
	w.senders = append(w.senders, s)
}

const never = time.Duration(1<<63 - 1)

func (s *shost) local() time.Duration { return s.c.local(s.w.now) }

func (s *shost) submit(m *message) {
	to := s.w.receivers[m.To]
	v := sender.Message{
		To: to.addr, Length: m.Length, Class: m.Class, Weight: m.Weight, Hint: m.Hint, Deadline: m.Deadline, Scheduled: m.Scheduled,
		Segment: m.Segment, SelfPaced: m.SelfPaced, Binding: rdcc.BindingOpaque,
		BindingValue: uint64(m.n) + 1,
	}
	if m.Other {
		v.BindingValue = m.binding()
	}
	id, err := s.m.Submit(s.local(), v)
	if err != nil {
		if err != sender.ErrWithout {
			s.w.fail("submit", "m%d: %v", m.n, err)
		}
		s.w.stats.Without++
		s.w.over(m)
		return
	}
	m.id = id
	_, m.wire, _ = s.m.Wire(id)
	s.byID[id] = m
	to.byWire[uint64(s.i)<<48|m.wire] = m
	s.w.note("s%d submits m%d (%d) of %d octets to r%d", s.i, m.n, m.wire, m.Length, m.To)
	if to.waiting++; to.waiting == 1 {
		to.waitingAt = s.w.now
	}
	s.serve()
}

// over says that a message is at its end.
func (w *World) over(m *message) {
	if m.over {
		w.fail("ends", "m%d ends twice", m.n)
		return
	}
	m.over = true
	w.left--
}

// serve takes what the machine has to say after each call, lets the transport send, and sees when to come back.
func (s *shost) serve() {
	for s.w.bad == nil {
		if s.talk() {
			continue
		}
		if s.listen() {
			continue
		}
		if !s.pump() {
			break
		}
	}
	if at, ok := s.m.Deadline(); ok {
		at = s.c.when(at)
		if at <= s.w.now {
			// What is due now is done by Advance; a machine that has more after that would spin.
			at = s.w.now
		}
		if at < s.wakeAt {
			s.wakeAt = at
			s.w.at(at, func() { s.wake(at) })
		}
	}
}

func (s *shost) wake(at time.Duration) {
	if s.wakeAt != at {
		return // a later one was set
	}
	s.wakeAt = never
	s.m.Advance(s.local())
	if d, ok := s.m.Deadline(); ok && d <= s.local() {
		s.w.fail("spins", "s%d has a deadline %v ago after Advance", s.i, s.local()-d)
		return
	}
	s.serve()
}

func (s *shost) talk() (some bool) {
	for {
		o, ok := s.m.Poll(s.buf[:0])
		if !ok {
			return some
		}
		some = true
		s.buf = o.Data
		s.oracle.sends(o.To, o.Data)
		s.w.send(s.addr, o.To, o.Data)
	}
}

func (s *shost) listen() (some bool) {
	for {
		e, ok := s.m.Event()
		if !ok {
			return some
		}
		some = true
		m := s.byID[e.ID]
		switch e.Kind {
		case sender.EventAllowed:
			if m != nil && !m.ready {
				m.ready = true
				s.ready = append(s.ready, m)
			}
		case sender.EventDone, sender.EventAborted, sender.EventWithout:
			if m == nil {
				s.w.fail("ends", "s%d: %v of %x, which is not there", s.i, e.Kind, e.ID)
				return true
			}
			s.ended(m, e)
		}
	}
}

func (s *shost) ended(m *message, e sender.Event) {
	s.w.note("s%d: m%d %v %v, %d of %d arrived", s.i, m.n, e.Kind, e.Reason, m.arrived, m.Length)
	delete(s.byID, m.id)
	r := s.w.receivers[m.To]
	s.w.over(m)
	if s.w.bad != nil {
		return
	}
	s.w.progress(r)
	if !m.doomed {
		r.waiting--
	}
	switch e.Kind {
	case sender.EventDone:
		m.done = true
		s.w.stats.Done++
	case sender.EventAborted:
		s.w.stats.Aborted++
	default:
		s.w.stats.Without++
	}
	s.oracle.ended(m)
	s.drop(m)
}

func (s *shost) drop(m *message) {
	if m.ready {
		m.ready = false
		s.ready = slices.DeleteFunc(s.ready, func(o *message) bool { return o == m })
	}
}

// pump puts the next packet on the wire, if the link is free and the machine allows one. It says whether it asked in vain.
func (s *shost) pump() (sent bool) {
	if s.w.now < s.free {
		s.pumpLater(s.free)
		return false
	}
	for k := 0; k < len(s.ready); k++ {
		m := s.ready[(s.next+k)%len(s.ready)]
		upTo, rate := s.m.Allowance(s.local(), m.id)
		if upTo > m.Length {
			s.w.fail("credit", "s%d may send m%d up to %d of %d octets", s.i, m.n, upTo, m.Length)
			return false
		}
		if s.transmit(m, upTo, rate) {
			s.next++
			return true
		}
	}
	for k := 0; k < len(s.ready); k++ {
		m := s.ready[k]
		if at, ok := s.m.Wait(s.local(), m.id); ok && m.sent < m.Length {
			if at = s.c.when(at); at <= s.w.now {
				s.w.fail("spins", "s%d: m%d may go on now, it says, and may not", s.i, m.n)
			}
			s.pumpLater(at)
		} else {
			s.drop(m)
			k--
		}
	}
	return false
}

func (s *shost) pumpLater(at time.Duration) {
	if at >= s.pumpAt {
		return
	}
	s.pumpAt = at
	s.w.at(at, func() {
		if s.pumpAt != at {
			return
		}
		s.pumpAt = never
		s.serve()
	})
}

// transmit sends a packet, a segment or, to a NIC that paces, all that is allowed.
func (s *shost) transmit(m *message, upTo uint64, rate int64) bool {
	if upTo <= m.sent {
		return false
	}
	n := min(upTo-m.sent, uint64(s.w.s.Fabric.Payload))
	if m.SelfPaced {
		n = upTo - m.sent
	}
	if m.Segment > 0 {
		if k := min(m.Segment-m.sent%m.Segment, m.Length-m.sent); k > upTo-m.sent {
			return false
		} else if n = max(n, k); m.SelfPaced && upTo < m.Length {
			n = upTo - m.sent - upTo%m.Segment
		}
	}
	assoc, _, open := s.m.Wire(m.id)
	if !open {
		s.w.fail("credit", "s%d may send %d octets of m%d without an association", s.i, upTo-m.sent, m.n)
		return false
	}
	free := s.oracle.transmits(m, assoc, n)
	if s.w.bad != nil {
		return false
	}
	s.w.note("s%d sends m%d %d..%d", s.i, m.n, m.sent, m.sent+n)
	from := len(m.pieces)
	for off, end := m.sent, m.sent+n; off < end; {
		k := min(end-off, uint64(s.w.s.Fabric.Payload))
		m.pieces = append(m.pieces, piece{off: off, n: k})
		off += k
	}
	m.sent += n
	s.m.Transmitted(s.local(), m.id, m.sent)
	at := s.w.now
	for k := from; k < len(m.pieces); k++ {
		if m.SelfPaced {
			at = max(at, m.nicAt)
			m.nicAt = at + time.Duration(int64(m.pieces[k].n)*8*int64(time.Second)/rate)
			s.oracle.leaves(m, assoc, at)
		} else {
			at = max(at, s.free)
			s.free = at + s.w.wireTime(m.pieces[k].n, s.LineRate)
		}
		s.w.launch(packet{m: m, piece: k, assoc: assoc, unscheduled: free, first: true}, at)
	}
	return true
}

func (w *World) wireTime(n uint64, rate int64) time.Duration {
	f := &w.s.Fabric
	return time.Duration((int64(n) + int64(f.Wire-f.Payload)) * 8 * int64(time.Second) / rate)
}

// receive takes a datagram from the control network.
func (s *shost) receive(from netip.AddrPort, b []byte, genuine bool) {
	s.m.Advance(s.local())
	s.serve()
	if s.w.bad != nil {
		return
	}
	before := s.raises(b)
	s.m.Receive(s.local(), from, b)
	s.oracle.receives(from, b, genuine)
	before(s)
	s.serve()
}

// raises looks at what all messages may send, when the datagram is a report, and afterwards whether it was raised.
func (s *shost) raises(b []byte) func(*shost) {
	if len(b) < 2 || rdcc.Type(b[1]) != rdcc.TypeCongestionReport {
		return func(*shost) {}
	}
	type may struct {
		m     *message
		upTo  uint64
		rate  int64
		state sender.State
	}
	var all []may
	for _, m := range s.w.messages {
		if m.From == s.i && s.byID[m.id] == m {
			v := may{m: m}
			v.upTo, v.rate = s.m.Allowance(s.local(), m.id)
			v.state, _ = s.m.State(m.id)
			all = append(all, v)
		}
	}
	return func(*shost) {
		for _, v := range all {
			upTo, rate := s.m.Allowance(s.local(), v.m.id)
			if upTo > v.upTo || rate > v.rate && v.state != sender.StateUnsched {
				s.w.fail("report", "a report raised m%d of s%d from %d, %d bit/s to %d, %d bit/s", v.m.n, s.i, v.upTo, v.rate, upTo, rate)
			}
		}
	}
}

// message is the one that a receiver knows by an ID.
func (s *shost) message(to int, wire uint64) *message {
	if to < 0 {
		return nil
	}
	return s.w.receivers[to].byWire[uint64(s.i)<<48|wire]
}

// lives is how many associations there were, at most one for each receiver in a world without restarts.
func (s *shost) lives() int { return max(len(s.oracle.assocs)-len(s.w.receivers)+1, 1) }

func (m *message) binding() uint64 { return uint64(m.n)<<32 | 0xb1d<<20 }
