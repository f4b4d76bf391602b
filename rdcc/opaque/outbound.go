package opaque

import (
	"sort"
	"time"
)

// MaxInFlight bounds what an Outbound keeps: this many packets that are not acknowledged.
const MaxInFlight = 4096

// lateBy is how many packets that were sent later must have arrived until one counts as lost.
const lateBy = 3

// segment is a packet that is not acknowledged.
type segment struct {
	Range
	order uint64 // of its last transmission
	at    time.Duration
	again bool
	acked bool
	lost  bool
}

// Outbound is one message at its sender: what of it is under way.
type Outbound struct {
	path   *Path
	packet uint64
	length uint64
	sent   uint64 // one past the highest octet that was transmitted

	ring    []segment // unacknowledged, in the order of their octets, from head on
	head, n int
	losses  int // segments that are to be sent again
	highest uint64
	newest  time.Duration // when the newest of those that have arrived was sent
	oldest  time.Duration // since when nothing was heard; the timeout runs from here

	packets, ce uint32 // as last acknowledged
	Again       uint64 // octets sent again
	Marked      uint64 // packets that arrived marked
}

// NewOutbound is a message of which nothing is transmitted.
func NewOutbound(path *Path, packet int, length uint64) *Outbound {
	return &Outbound{path: path, packet: uint64(packet), length: length}
}

// Sent is one past the highest octet that was transmitted.
func (o *Outbound) Sent() uint64 { return o.sent }

// Acked says that all octets that were transmitted have arrived.
func (o *Outbound) Acked() bool { return o.n == 0 }

func (o *Outbound) at(i int) *segment { return &o.ring[(o.head+i)%len(o.ring)] }

func (o *Outbound) push(s segment) {
	if o.n == len(o.ring) {
		bigger := make([]segment, max(16, 2*len(o.ring)))
		for i := range o.n {
			bigger[i] = *o.at(i)
		}
		o.ring, o.head = bigger, 0
	}
	*o.at(o.n) = s
	o.n++
}

// Next is the next packet to transmit now: one that was lost, or new octets below upTo. Not ok: none, until an
// acknowledgement, the timeout, or more credit. Octets that are sent again are within the credit that they had.
func (o *Outbound) Next(now time.Duration, upTo uint64) (r Range, again, ok bool) {
	p := o.path
	if o.losses > 0 {
		for i := range o.n {
			s := o.at(i)
			if !s.lost {
				continue
			}
			if size := s.End - s.First; p.Room() < size && p.inFlight > 0 {
				return Range{}, false, false
			}
			s.lost, s.again = false, true
			o.losses--
			o.transmit(now, s)
			o.Again += s.End - s.First
			return s.Range, true, true
		}
	}
	size := min(o.packet, min(upTo, o.length)-min(upTo, o.sent))
	if size == 0 || o.n >= MaxInFlight || p.Room() < size && p.inFlight > 0 {
		return Range{}, false, false
	}
	o.push(segment{Range: Range{o.sent, o.sent + size}})
	s := o.at(o.n - 1)
	o.sent = s.End
	o.transmit(now, s)
	return s.Range, false, true
}

func (o *Outbound) transmit(now time.Duration, s *segment) {
	if o.path.inFlight == 0 || o.oldest == 0 {
		o.oldest = now
	}
	o.path.order++
	s.order, s.at = o.path.order, now
	o.path.inFlight += s.End - s.First
}

// Ack takes an acknowledgement. A sample of the round trip is more than zero. The stamp is of a clock in microseconds of
// which now is the present time.
func (o *Outbound) Ack(now time.Duration, a *Packet) (rtt time.Duration) {
	if a.Cumulative > o.sent {
		return 0 // of octets that were never sent: not of our peer
	}
	for _, r := range a.Ranges[:a.NumRanges] {
		if r.End > o.sent {
			return 0
		}
	}
	p := o.path
	packets, ce := uint64(a.Packets-o.packets), uint64(a.CE-o.ce)
	if packets > 1<<31 || ce > packets {
		packets, ce = 0, 0 // older than one that came before
	} else {
		o.packets, o.ce = a.Packets, a.CE
	}
	o.Marked += ce
	octets, order := uint64(0), uint64(0)
	stamped := Elapsed(now, a.Stamp)
	take := func(s *segment) {
		if s.acked {
			return
		}
		s.acked = true
		size := s.End - s.First
		octets += size
		if s.lost {
			s.lost = false
			o.losses--
		} else {
			p.inFlight -= size
		}
		if !s.again || now-s.at >= stamped { // else the first transmission may be meant
			order = max(order, s.order)
			o.newest = max(o.newest, s.at)
		}
	}
	for i := 0; i < o.n && o.at(i).End <= a.Cumulative; i++ {
		take(o.at(i))
	}
	for _, r := range a.Ranges[:a.NumRanges] {
		i := sort.Search(o.n, func(i int) bool { return o.at(i).First >= r.First })
		for ; i < o.n && o.at(i).End <= r.End; i++ {
			take(o.at(i))
		}
	}
	for o.n > 0 && o.at(0).acked {
		o.head = (o.head + 1) % len(o.ring)
		o.n--
	}
	if octets == 0 {
		return 0
	}
	o.oldest = now
	o.highest = max(o.highest, order)
	if stamped < mostRTO*4 {
		p.sample(stamped)
		rtt = max(stamped, time.Microsecond)
	}
	p.acked(octets, packets, ce, order)
	o.findLost()
	return rtt
}

// findLost marks what others that were sent later have overtaken: by several packets, or by a part of the round trip.
func (o *Outbound) findLost() {
	for i := range o.n {
		s := o.at(i)
		if s.order+lateBy > o.highest && s.at+o.path.Srtt/2 >= o.newest {
			if !s.again {
				return // all that follow were sent later
			}
			continue
		}
		if s.acked || s.lost {
			continue
		}
		o.lose(s)
		o.path.lost(s.order)
	}
}

func (o *Outbound) lose(s *segment) {
	s.lost = true
	o.losses++
	o.path.inFlight -= s.End - s.First
}

// Deadline is when Timeout is to be called, if nothing is heard.
func (o *Outbound) Deadline() (at time.Duration, ok bool) {
	if o.n == 0 || o.losses == o.n {
		return 0, false
	}
	return o.oldest + o.path.rto(), true
}

// Timeout marks all that is under way as lost, if it is time.
func (o *Outbound) Timeout(now time.Duration) bool {
	at, ok := o.Deadline()
	if !ok || now < at {
		return false
	}
	o.path.timeout()
	for i := range o.n {
		if s := o.at(i); !s.acked && !s.lost {
			o.lose(s)
		}
	}
	o.oldest = now
	return true
}

// Forget takes what is under way out of the path's account, when the message is at its end.
func (o *Outbound) Forget() {
	for i := range o.n {
		if s := o.at(i); !s.acked && !s.lost {
			o.path.inFlight -= s.End - s.First
		}
	}
	o.n, o.losses = 0, 0
}

// Stamp is the clock of packets.
func Stamp(now time.Duration) uint32 { return uint32(now / time.Microsecond) }

// Elapsed is how long ago a stamp is.
func Elapsed(now time.Duration, stamp uint32) time.Duration {
	return time.Duration(Stamp(now)-stamp) * time.Microsecond
}
