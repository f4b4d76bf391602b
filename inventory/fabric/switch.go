package fabric

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
)

// Options describe a Switch. Ports are numbered in the order of Links.
type Options struct {
	Links    []Link
	Static   map[[6]byte]int // addresses of hosts that are known to be behind a port
	Mirrors  []Mirror
	Buffer   units.Size // shared by all egress queues; 0: DefaultBuffer
	Overhead int        // bytes per frame on the wire; 0 means 0 here
	Pool     *Pool      // required; shared with the caller, which releases the packets of Outputs
	Rand     *rand.Rand // required; used for RED alone
}

// Mirror gets copies of the packets of some ports.
type Mirror struct {
	Ports     []int // empty: all
	Direction Direction
}

// Output is a packet that leaves the switch: to the host behind port To, or to mirror To-len(Links). The receiver of an
// Output releases P to the pool and must not change its data.
type Output struct {
	At time.Duration
	To int
	P  *Packet
}

// Switch is the machine: an output-queued shared-buffer switch with its links (see the package comment). It holds no
// clock, goroutine or descriptor. Not for concurrent use.
//
// A driver calls Receive for packets as hosts send them, Advance to make virtual time pass, and sleeps until Deadline.
type Switch struct {
	links    []port
	macs     map[uint64]station
	pool     *Pool
	rand     *rand.Rand
	overhead int
	buffer   int64

	now      int64
	events   timeline
	queued   int64 // bytes in all egress queues
	maxRate  int64 // of all links
	minAfter int64 // least time from a departure to an output: 0 with an egress mirror, otherwise the shortest delay

	peak                 int64
	replicated, filtered volume
}

type volume struct{ packets, bytes uint64 }

func (v *volume) add(n int) { v.packets++; v.bytes += uint64(n) }

type port struct {
	link Link
	c    PortCounters

	ingress      queue // on the link to the switch; at = arrival
	ingressLink  serialiser
	ingressBytes int64

	egress      queue // in the switch; at = arrival. The head is being sent
	egressLink  serialiser
	egressBytes int64

	delivery queue // on the link to the host; at = delivery

	mirrorIn, mirrorOut []int // mirrors by number
}

type station struct {
	port   int32
	static bool
}

// maxStations bounds the address table; when it is full, new addresses are not learned and stay flooded.
const maxStations = 8192

// Sources of events. At the same instant departures come before arrivals, so that the room that a packet leaves is
// there for the next one; within a kind ports come in order.
const (
	kindDepart = iota
	kindArrive
	kindDeliver
	kinds
)

// New makes a switch at time 0.
func New(o Options) (*Switch, error) {
	if o.Pool == nil || o.Rand == nil {
		return nil, errors.New("switch: Pool and Rand are required")
	}
	if o.Buffer == 0 {
		o.Buffer = DefaultBuffer
	}
	s := &Switch{
		links: make([]port, len(o.Links)), macs: make(map[uint64]station, 2*len(o.Links)),
		pool: o.Pool, rand: o.Rand, overhead: o.Overhead, buffer: int64(o.Buffer),
		events: newTimeline(kinds * len(o.Links)),
	}
	for i, l := range o.Links {
		if err := l.check(); err != nil {
			return nil, fmt.Errorf("switch: port %d: %w", i, err)
		}
		s.links[i].link = l
	}
	for mac, p := range o.Static {
		if p < 0 || p >= len(o.Links) {
			return nil, fmt.Errorf("switch: static address %x: no port %d", mac, p)
		}
		s.macs[macKey(mac)] = station{int32(p), true}
	}
	for i, m := range o.Mirrors {
		if len(m.Ports) == 0 {
			for p := range s.links {
				m.Ports = append(m.Ports, p)
			}
		}
		for _, p := range m.Ports {
			if p < 0 || p >= len(s.links) {
				return nil, fmt.Errorf("switch: mirror %d: no port %d", i, p)
			}
			if m.Direction == Ingress || m.Direction == Both {
				s.links[p].mirrorIn = append(s.links[p].mirrorIn, len(s.links)+i)
			}
			if m.Direction != Ingress {
				s.links[p].mirrorOut = append(s.links[p].mirrorOut, len(s.links)+i)
			}
		}
	}
	s.bounds()
	return s, nil
}

func macKey(m [6]byte) uint64 {
	return uint64(m[0])<<40 | uint64(m[1])<<32 | uint64(m[2])<<24 | uint64(m[3])<<16 | uint64(m[4])<<8 | uint64(m[5])
}

// bounds prepares what Deadline looks ahead by.
func (s *Switch) bounds() {
	s.maxRate, s.minAfter = 1, never
	for i := range s.links {
		l := &s.links[i]
		s.maxRate = max(s.maxRate, int64(l.link.Rate))
		if len(l.mirrorOut) > 0 {
			s.minAfter = 0
		}
		s.minAfter = min(s.minAfter, int64(l.link.Delay))
	}
}

// SetLink changes a port's link from now on. A packet that is being sent keeps its time.
func (s *Switch) SetLink(port int, l Link) error {
	if err := l.check(); err != nil {
		return err
	}
	p := &s.links[port]
	if l.Rate != p.link.Rate { // the remainders are in units of the old rate
		p.ingressLink.rem, p.egressLink.rem = 0, 0
	}
	p.link = l
	s.bounds()
	return nil
}

// Link is the present setting of a port.
func (s *Switch) Link(port int) Link { return s.links[port].link }

// Receive takes a packet that the host behind port sends at time now (not before the time already advanced to). The
// switch owns p from here on.
func (s *Switch) Receive(port int, now time.Duration, p *Packet) {
	l := &s.links[port]
	at := l.ingressLink.send(max(int64(now), s.now), s.wire(len(p.Data)), int64(l.link.Rate)) + int64(l.link.Delay)
	if l.ingress.n > 0 { // a delay that was shortened does not let packets overtake
		at = max(at, l.ingress.ring[(l.ingress.head+l.ingress.n-1)&(len(l.ingress.ring)-1)].at)
	}
	l.ingressBytes += int64(len(p.Data))
	l.c.PeakIngressQueuedBytes = max(l.c.PeakIngressQueuedBytes, uint64(l.ingressBytes))
	l.ingress.push(item{p: p, at: at})
	if l.ingress.n == 1 {
		s.schedule(kindArrive, port, at)
	}
}

// IngressBytes is what the host behind port has sent and what is not at the switch yet.
func (s *Switch) IngressBytes(port int) int64 { return s.links[port].ingressBytes }

// Advance lets virtual time pass until now and appends what leaves the switch until then to out, in order of time.
func (s *Switch) Advance(now time.Duration, out []Output) []Output {
	for {
		source, at := s.events.first()
		if at > int64(now) {
			break
		}
		s.now = at
		kind, n := source/len(s.links), source%len(s.links)
		switch kind {
		case kindDepart:
			out = s.depart(n, at, out)
		case kindArrive:
			out = s.arrive(n, at, out)
		case kindDeliver:
			d := &s.links[n].delivery
			out = append(out, Output{At: time.Duration(at), To: n, P: d.pop().p})
			s.reschedule(kindDeliver, n, d)
		}
	}
	s.now = max(s.now, int64(now))
	return out
}

// Deadline is a time before which Advance gives no output unless something is received; the first output may come
// later. ok is false when the switch is empty.
func (s *Switch) Deadline() (at time.Duration, ok bool) {
	first := int64(never)
	for i := range s.links {
		l := &s.links[i]
		if l.delivery.n > 0 {
			first = min(first, l.delivery.front().at)
		}
		if l.egress.n > 0 {
			t := s.events.at[kindDepart*len(s.links)+i]
			if len(l.mirrorOut) == 0 {
				t += int64(l.link.Delay)
			}
			first = min(first, t)
		}
		if l.ingress.n > 0 {
			t := l.ingress.front().at
			if len(l.mirrorIn) == 0 {
				t = s.soonest(&l.ingress)
			}
			first = min(first, t)
		}
	}
	return time.Duration(first), first != never
}

// soonest is a time before which none of the packets of an ingress queue is put out: the first has to be sent on at
// some port, and those behind it, which may be shorter, come later.
func (s *Switch) soonest(q *queue) int64 {
	head := q.front()
	t := head.at + int64(s.wire(len(head.p.Data)))*8e9/s.maxRate
	if q.n > 1 {
		t = min(t, q.ring[(q.head+1)&(len(q.ring)-1)].at+int64(s.wire(0))*8e9/s.maxRate)
	}
	return t + s.minAfter
}

// IngressArrival is when the next packet of the host behind port reaches the switch.
func (s *Switch) IngressArrival(port int) (at time.Duration, ok bool) {
	q := &s.links[port].ingress
	if q.n == 0 {
		return 0, false
	}
	return time.Duration(q.front().at), true
}

func (s *Switch) wire(frame int) int { return max(frame, minFrame) + s.overhead }

func (s *Switch) schedule(kind, port int, at int64) { s.events.set(kind*len(s.links)+port, at) }

func (s *Switch) reschedule(kind, port int, q *queue) {
	at := int64(never)
	if q.n > 0 {
		at = q.front().at
	}
	s.schedule(kind, port, at)
}

// arrive brings the next packet of port n's host into the switch.
func (s *Switch) arrive(n int, at int64, out []Output) []Output {
	l := &s.links[n]
	p := l.ingress.pop().p
	s.reschedule(kindArrive, n, &l.ingress)
	size := len(p.Data)
	l.ingressBytes -= int64(size)
	l.c.RxPackets++
	l.c.RxBytes += uint64(size)
	for _, m := range l.mirrorIn {
		p.refs++
		out = append(out, Output{At: time.Duration(at), To: m, P: p})
	}
	if size < ethernetHeader {
		s.filter(p)
		return out
	}
	p.hdr = parseHeader(p.Data)
	if p.hdr.roce {
		l.c.RxRoCEPackets++
	}
	s.learn(p.hdr.src, n)
	const reserved = 0x0180c2000000 // IEEE 802.1D: not relayed by bridges
	group := p.hdr.dst&(1<<40) != 0
	switch to, known := s.macs[p.hdr.dst]; {
	case p.hdr.dst&^0xf == reserved, known && !group && int(to.port) == n:
		s.filter(p)
	case known && !group:
		s.enqueue(int(to.port), p, at)
	default:
		s.flood(n, p, at)
	}
	return out
}

func (s *Switch) learn(src uint64, port int) {
	if src&(1<<40) != 0 || src == 0 {
		return
	}
	known, ok := s.macs[src]
	if ok && (known.static || int(known.port) == port) || !ok && len(s.macs) >= maxStations {
		return
	}
	s.macs[src] = station{port: int32(port)}
}

func (s *Switch) filter(p *Packet) {
	s.filtered.add(len(p.Data))
	s.pool.Release(p)
}

func (s *Switch) flood(from int, p *Packet, at int64) {
	if len(s.links) == 1 {
		s.filter(p)
		return
	}
	p.refs += int32(len(s.links) - 2)
	size := len(p.Data)
	for range len(s.links) - 2 {
		s.replicated.add(size)
	}
	for i := range s.links {
		if i != from {
			s.enqueue(i, p, at)
		}
	}
}

// enqueue admits p to the egress queue of port n, or drops it.
func (s *Switch) enqueue(n int, p *Packet, at int64) {
	l := &s.links[n]
	size := int64(len(p.Data))
	l.c.OfferedPackets++
	l.c.OfferedBytes += uint64(size)
	if s.queued+size > s.buffer || l.link.Buffer > 0 && l.egressBytes+size > int64(l.link.Buffer) {
		l.c.DroppedPackets++
		l.c.DroppedBytes += uint64(size)
		if p.hdr.roce {
			l.c.DroppedRoCEPackets++
		}
		s.pool.Release(p)
		return
	}
	mark := l.link.ECN != nil && p.hdr.ect() && l.link.ECN.marks(l.egressBytes, s.rand)
	l.egress.push(item{p: p, at: at, mark: mark})
	l.egressBytes += size
	s.queued += size
	l.c.PeakQueueBytes = max(l.c.PeakQueueBytes, uint64(l.egressBytes))
	s.peak = max(s.peak, s.queued)
	if l.egress.n == 1 {
		s.schedule(kindDepart, n, l.egressLink.send(at, s.wire(int(size)), int64(l.link.Rate)))
	}
}

// depart ends the sending of the head of port n's egress queue and begins that of the next packet.
func (s *Switch) depart(n int, at int64, out []Output) []Output {
	l := &s.links[n]
	it := l.egress.pop()
	p, size := it.p, len(it.p.Data)
	if l.egress.n > 0 {
		next := l.egress.front()
		s.schedule(kindDepart, n, l.egressLink.send(next.at, s.wire(len(next.p.Data)), int64(l.link.Rate)))
	} else {
		s.schedule(kindDepart, n, never)
	}
	l.egressBytes -= int64(size)
	s.queued -= int64(size)
	if it.mark {
		if p.refs > 1 { // other ports or mirrors still need it as it is
			own := s.pool.Copy(p.Data)
			own.hdr = p.hdr
			s.pool.Release(p)
			p = own
		}
		p.setCE()
		l.c.CEMarkedPackets++
	}
	l.c.TxPackets++
	l.c.TxBytes += uint64(size)
	if p.hdr.roce {
		l.c.TxRoCEPackets++
	}
	if p.hdr.ecn == ce {
		l.c.TxCEPackets++
	}
	for _, m := range l.mirrorOut {
		p.refs++
		out = append(out, Output{At: time.Duration(at), To: m, P: p})
	}
	due := at + int64(l.link.Delay)
	if d := &l.delivery; d.n > 0 {
		due = max(due, d.ring[(d.head+d.n-1)&(len(d.ring)-1)].at)
	}
	l.delivery.push(item{p: p, at: due})
	if l.delivery.n == 1 {
		s.schedule(kindDeliver, n, due)
	}
	return out
}

// marks draws whether a packet is marked that finds queue bytes before it.
func (e *ECNConfig) marks(queue int64, r *rand.Rand) bool {
	p := e.probability(queue)
	return p >= 1 || p > 0 && r.Float64() < p
}

// probability is the RED curve; it never falls as the queue grows.
func (e *ECNConfig) probability(queue int64) float64 {
	kmin, kmax := int64(e.KMin), int64(e.KMax)
	switch {
	case queue <= kmin:
		return 0
	case queue > kmax:
		return 1
	default: // kmin < queue <= kmax
		return e.PMax * (float64(queue-kmin) / float64(kmax-kmin))
	}
}

// Snapshot writes the machine's counters into c, reusing its slices. Names are left as they are.
func (s *Switch) Snapshot(c *Counters) {
	for len(c.Ports) < len(s.links) {
		c.Ports = append(c.Ports, PortCounters{})
	}
	for i := range s.links {
		l, p := &s.links[i], &c.Ports[i]
		name := p.Name
		*p = l.c
		p.Name = name
		p.QueuedPackets = uint64(l.egress.n)
		p.QueuedBytes = uint64(l.egressBytes)
		p.IngressQueuedBytes = uint64(l.ingressBytes)
	}
	c.BufferBytes, c.QueuedBytes, c.PeakQueuedBytes = s.buffer, s.queued, s.peak
	c.ReplicatedPackets, c.ReplicatedBytes = s.replicated.packets, s.replicated.bytes
	c.FilteredPackets, c.FilteredBytes = s.filtered.packets, s.filtered.bytes
}

// ResetPeaks sets the peaks to the present values.
func (s *Switch) ResetPeaks() {
	s.peak = s.queued
	for i := range s.links {
		s.links[i].c.PeakQueueBytes = uint64(s.links[i].egressBytes)
		s.links[i].c.PeakIngressQueuedBytes = uint64(s.links[i].ingressBytes)
	}
}
