package world

import (
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/rdcctest"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
)

// rhost is a receiver: the machine and what the transport knows, which outlives it.
type rhost struct {
	Receiver
	w      *World
	i      int
	m      *receiver.Receiver // nil while it is away
	c      clock
	addr   netip.AddrPort
	random *secrets
	epoch  uint16
	lives  int
	lost   *Fault // the restart that is going on

	free     time.Duration // of its port at the switch
	wakeAt   time.Duration
	spins    int
	oracle   receiverOracle
	lifetime time.Duration
	alive    map[uint32]bool      // associations of this life
	way      map[uint32]*[2]int64 // octets on their way by association, all and unscheduled ones
	byWire   map[uint64]*message  // sender<<48 | Message ID

	waiting    int // messages that should arrive
	waitingAt  time.Duration
	progressAt time.Duration
	buf        []byte
}

func (w *World) addReceiver(j int) {
	r := &rhost{
		Receiver: w.s.Receivers[j], w: w, i: j, addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 2, 0, byte(j + 1)}), port),
		random: &secrets{uint64(j)<<8 | 1<<40}, way: map[uint32]*[2]int64{}, byWire: map[uint64]*message{},
	}
	r.c = clock{r.Offset, r.PPM}
	w.byAddr[r.addr] = j
	w.receivers = append(w.receivers, r)
	r.start()
}

func (r *rhost) config() receiver.Config {
	c := receiver.Config{
		Fabric: r.w.s.Fabric, G: r.G, Gu: r.Gu, ExpectedSenders: r.Expected, Lifetime: r.Lifetime, Pool: r.Pool, Idle: max(r.Idle, 3*time.Duration(r.w.s.Scale)*100*ms),
		MaxPending: r.Pending, MaxTimeout: time.Duration(r.w.s.Scale) * 100 * ms, Random: r.random, LastEpoch: r.epoch, CRNs: []netip.Addr{crn.Addr()},
		MaxAssociations: 64, MaxPerAddress: 16,
	}
	if r.BBR {
		c.Allocator = receiver.BBR{}
	}
	rdcctest.Without(&c, r.w.off)
	return c
}

func (r *rhost) start() {
	m, err := receiver.New(r.config())
	if err != nil {
		panic(err) // the scenario is wrong
	}
	if r.lives > 0 && m.Epoch() == r.epoch {
		r.w.fail("epoch", "r%d came back with the Epoch that it had", r.i)
	}
	r.m, r.epoch, r.wakeAt = m, m.Epoch(), never
	r.lives++
	r.lifetime = max(r.lifetime, m.Params().Lifetime)
	r.alive = map[uint32]bool{}
	r.oracle.init(r)
}

func (r *rhost) leave(f *Fault) {
	if r.m != nil {
		r.w.note("r%d is away", r.i)
		r.check()
		r.m, r.lost = nil, f
	}
}

func (r *rhost) comeBack(f *Fault) {
	if r.lost == f {
		r.lost = nil
		r.start()
		r.w.note("r%d is back, epoch %d", r.i, r.epoch)
	}
}

func (r *rhost) local() time.Duration { return r.c.local(r.w.now) }

// receive takes a datagram from the control network.
func (r *rhost) receive(from netip.AddrPort, b []byte) {
	if r.m == nil {
		return
	}
	isReport := len(b) > 1 && rdcc.Type(b[1]) == rdcc.TypeCongestionReport
	if isReport { // all that is due without it comes before it
		r.m.Advance(r.local())
		r.serve()
	}
	r.oracle.receives(from, b)
	r.m.Receive(r.local(), from, b)
	r.oracle.reported = isReport
	r.serve()
	r.oracle.reported = false
}

// data takes a packet from the data network.
func (r *rhost) data(p packet) {
	if r.lost != nil && r.lost.How%2 == 0 {
		r.w.again(p)
		return
	}
	m := p.m
	k := &m.pieces[p.piece]
	n := k.n
	if k.arrived {
		n = 0
	} else {
		k.arrived = true
		m.arrived += n
		r.w.stats.Octets += n
		r.w.stats.BySender[m.From] += n
		if !m.over {
			r.w.progress(r)
		}
	}
	r.w.note("data of m%d %d..%d at r%d", m.n, k.off, k.off+k.n, r.i)
	r.w.land(&p)
	s := r.w.senders[m.From]
	if p.piece%8 == 0 {
		rtt := r.w.now - p.left + s.Delay + r.Delay
		r.w.at(r.w.now+s.Delay+r.Delay, func() { s.m.RTTSample(s.local(), r.addr, rtt) })
	}
	if r.m == nil {
		return
	}
	v := receiver.Arrival{Message: m.wire, Kind: rdcc.BindingOpaque, Octets: n, Packets: 1}
	if m.Other {
		v.Message, v.Value = 0, m.binding()
	}
	if p.ce {
		v.CE = 1
	}
	if assoc := m.told; assoc != 0 && r.alive[assoc] {
		p.assoc = assoc // a transport that has told what it had counts what still comes there, too
	}
	r.oracle.data(&p, n)
	r.m.Data(r.local(), p.assoc, v)
	r.serve()
}

// onWay counts what is on its way, by the association under which it was sent, and holds it against G: this is what the budget is for.
func (r *rhost) onWay(p *packet, sign int64) {
	v := r.way[p.assoc]
	if v == nil {
		v = new([2]int64)
		r.way[p.assoc] = v
	}
	n := sign * int64(p.m.pieces[p.piece].n)
	v[0] += n
	if p.unscheduled {
		v[1] += n
	}
	if sign < 0 {
		return
	}
	all, unscheduled := int64(0), int64(0)
	for id, v := range r.way {
		if r.alive[id] {
			all, unscheduled = all+v[0], unscheduled+v[1]
		}
	}
	r.w.stats.Flight = max(r.w.stats.Flight, float64(all)/float64(r.G))
	if all > r.G {
		r.w.fail("on the way", "%d octets are on their way to r%d, G is %d", all, r.i, r.G)
	}
	if unscheduled > max(r.Gu, 0) {
		r.w.fail("on the way", "%d unscheduled octets are on their way to r%d, G_u is %d", unscheduled, r.i, r.Gu)
	}
}

func (r *rhost) serve() {
	for r.w.bad == nil && r.m != nil {
		if r.talk() {
			continue
		}
		break
	}
	if r.w.bad != nil || r.m == nil {
		return
	}
	if at, ok := r.m.Deadline(); ok {
		at = max(r.c.when(at), r.w.now)
		if at < r.wakeAt {
			r.wakeAt = at
			r.w.at(at, func() { r.wake(at) })
		}
	}
}

func (r *rhost) wake(at time.Duration) {
	if r.wakeAt != at || r.m == nil {
		return
	}
	r.wakeAt = never
	r.m.Advance(r.local())
	r.serve()
	if r.spins++; r.wakeAt > r.w.now {
		r.spins = 0
	} else if r.spins > 100 {
		r.w.fail("spins", "r%d has something to do at %v again and again", r.i, r.w.now)
	}
}

func (r *rhost) talk() (some bool) {
	for {
		o, ok := r.m.Poll(r.buf[:0])
		if !ok {
			break
		}
		some, r.buf = true, o.Data
		r.oracle.sends(o.To, o.Data)
		r.w.send(r.addr, o.To, o.Data)
	}
	for {
		e, ok := r.m.Event()
		if !ok {
			return some
		}
		switch e.Kind {
		case receiver.AssociationMade:
			r.alive[e.Assoc] = true
			r.oracle.made(e.Assoc, e.Addr)
		case receiver.AssociationGone:
			delete(r.alive, e.Assoc)
			r.oracle.gone(e.Assoc)
		case receiver.MessageAnnounced:
			if m := r.oracle.message(e.Assoc, e.Message); m != nil {
				if n, ok := r.oracle.before(e.Assoc, m); ok {
					m.told = e.Assoc
					r.m.Data(r.local(), e.Assoc, receiver.Arrival{Message: e.Message, Octets: n, Before: true})
					some = true
				}
			}
		case receiver.Misbehaving:
			if m := r.oracle.message(e.Assoc, e.Message); m != nil {
				r.w.fail("blame", "r%d takes s%d for a liar: fault %d with m%d", r.i, m.From, e.Fault, m.n)
			}
		}
	}
}

// check compares what the machine counts of itself.
func (r *rhost) check() {
	if r.m != nil && r.m.Counters.InvariantViolations > 0 {
		r.w.fail("budget", "r%d counts %d violations, which no oracle saw", r.i, r.m.Counters.InvariantViolations)
	}
}

func (r *rhost) atEnd() { r.check() }

// act does what people, operators and links do.
func (w *World) act(a *Act) {
	w.stats.Acts[a.Kind]++
	w.note("%v of %d", a.Kind, a.Of)
	switch a.Kind {
	case SetParams:
		r := w.receivers[a.Of]
		if r.m == nil {
			return
		}
		p := r.m.Params()
		base := w.s.Fabric.BaseRTT
		p.Jitter = base * time.Duration(a.How%4)
		p.Lifetime = base * time.Duration(2+a.How/4%8)
		p.Backlog = uint32(w.s.Fabric.BDP() / int64(1+a.How/32))
		r.lifetime = max(r.lifetime, p.Lifetime)
		r.m.SetParams(r.local(), p)
		r.serve()
		return
	case Pause:
		s := w.senders[a.Of]
		s.m.Advance(s.local())
		s.serve()
		before := s.raises([]byte{0, byte(rdcc.TypeCongestionReport)})
		s.m.Pause(s.local())
		s.oracle.stopped(-1)
		before(s)
		s.serve()
		return
	case SetRate:
		s := w.senders[a.Of]
		s.m.SetRate(s.local(), s.LineRate*int64(a.How)/256)
		s.serve()
		return
	}
	if a.Of >= len(w.messages) {
		return
	}
	m := w.messages[a.Of]
	s, r := w.senders[m.From], w.receivers[m.To]
	if m.over || s.byID[m.id] != m {
		return
	}
	switch a.Kind {
	case CancelSender:
		if err := s.m.Cancel(s.local(), m.id); err != nil {
			w.fail("ends", "cancel of m%d: %v", m.n, err)
		}
	case CancelReceiver:
		assoc, _, ok := s.m.Wire(m.id)
		if ok && r.m != nil && r.m.Cancel(r.local(), assoc, m.wire) {
			m.doomed = true
			r.waiting--
		}
		r.serve()
	case Return:
		// What it holds is what it may send at once and what pacing holds back; New Limit is somewhere up to it.
		if upTo, _ := s.m.Allowance(s.local(), m.id); upTo > m.sent {
			s.oracle.returning(m)
			_ = s.m.Return(s.local(), m.id, m.sent+(upTo-m.sent)*uint64(a.How)/256)
		}
	}
	s.serve()
}
