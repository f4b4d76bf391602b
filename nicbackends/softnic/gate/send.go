package gate

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/engine"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/qp"
	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/sender"
)

// pair is the sending side of a queue pair.
type pair struct {
	q        *engine.QP
	peer     *peer
	base     uint64    // number of the first of requests
	requests []request // in their order; those that the peer has acknowledged go
	head     int       // the first that is not all sent
	next     int       // the first that was not made a message yet
	asked    int       // messages that are not all sent
	octets   uint64    // that they have yet to send

	wakeAt time.Duration // when more may be sent
	waits  bool          // is among the waiting
	full   bool          // is among those that find no room
}

// peer is what all queue pairs to one address share.
type peer struct {
	to      sender.Addr
	pending int           // messages that are not at their end
	busy    int           // queue pairs that have something to send
	refused time.Duration // until when it is not asked again
}

// refusedFor is how long a peer that refused, or never answered, is not asked again: each time costs a millisecond times the time
// scale at least, in which the queue pair waits.
const refusedFor = 5 * time.Second

// request is a work request.
type request struct {
	length, sent uint32
	free         bool // goes without credit: it has no octets, or the peer does not speak RDCC
	cut          bool // its segments were given up
	dscp         int8 // of its packets, as of the newest; -1: the queue pair's
	id           uint64
	short        time.Duration // since when it has credit but not for a segment; 0: not so
}

// place finds the work request of a message.
type place struct {
	p      *pair
	number uint64
}

func (p *pair) at(number uint64) *request {
	if number < p.base || number-p.base >= uint64(len(p.requests)) {
		return nil
	}
	return &p.requests[number-p.base]
}

// Posted implements engine.Gate.
func (g *Gate) Posted(now time.Duration, q *engine.QP, number uint64, length uint32) {
	p := g.pairs[q]
	if p == nil {
		ip, _ := q.Remote()
		to := netip.AddrPortFrom(netip.AddrFrom4(ip), g.c.Port)
		if g.peers[to] == nil {
			g.peers[to] = &peer{to: to}
		}
		p = &pair{q: q, base: number, peer: g.peers[to]}
		g.pairs[q] = p
	}
	p.trim()
	if p.head == len(p.requests) {
		p.peer.busy++
	}
	p.requests = append(p.requests, request{length: length, free: length == 0, dscp: -1})
	g.submit(now, p)
	g.let(now, p)
}

// trim forgets requests that will never be sent again.
func (p *pair) trim() {
	n := min(p.head, int(p.q.Acknowledged()-min(p.q.Acknowledged(), p.base)))
	if n == 0 {
		return
	}
	p.requests = p.requests[n:]
	p.base += uint64(n)
	p.head -= n
	p.next -= n
}

// submit makes messages of what was posted. Who finds no room for one that it could send waits behind those that do already.
func (g *Gate) submit(now time.Duration, p *pair) {
	if len(g.full) == 0 && g.ask(now, p) {
		return
	}
	if !p.full {
		p.full = true
		g.full = append(g.full, p)
	}
	g.roomier(now)
}

// ask makes messages of the request whose turn it is, so that it has credit, and of those behind it, so that theirs is there when it is
// their turn (decision 25); false: there is no room for the first. What is asked for ahead is no more than a receiver could have granted,
// or the last of it would seem to get nowhere for as long as the others take; and a queue pair's part of the messages that its
// peer has pending. It waits for credit: unscheduled, it would be missed where it was announced (Unscheduled Transmission).
func (g *Gate) ask(now time.Duration, p *pair) bool {
	for ; p.next < len(p.requests); p.next++ {
		r := &p.requests[p.next]
		if r.free {
			continue
		}
		if now < p.peer.refused {
			r.free = true
			g.count.Without++
			continue
		}
		ahead := p.next > p.head // the one in front of it is not all sent
		if ahead && (p.octets >= g.ahead || p.asked >= g.c.MaxPending/p.peer.busy) {
			return true
		}
		if p.peer.pending >= g.c.MaxPending {
			return ahead
		}
		number := p.base + uint64(p.next)
		_, qpn := p.q.Remote()
		m := g.c.Message
		m.To, m.Length = p.peer.to, uint64(r.length)
		m.Scheduled = m.Scheduled || ahead
		m.SelfPaced = true // the queue pair holds the rate
		m.Binding = rdcc.BindingRoCEv2
		// The responder counts messages from 1 (IBTA 9.7.5.1.2).
		m.BindingValue = rdcc.RoCEBinding{DestQP: qpn, MSN: uint32(number+1) & 0xffffff, Messages: 1}.Value()
		id, err := g.snd.Submit(now, m)
		switch {
		case errors.Is(err, sender.ErrWithout):
			r.free = true
			g.count.Without++
			continue
		case err != nil: // out of room: another has to end
			return ahead
		}
		g.count.Requests++
		r.id = id
		p.asked++
		p.octets += uint64(r.length)
		g.byID[id] = place{p, number}
		p.peer.pending++
	}
	return true
}

// let sets the queue pair's barrier to what the message whose turn it is may transmit now.
func (g *Gate) let(now time.Duration, p *pair) {
	for i := p.head; i < len(p.requests); i++ {
		r := &p.requests[i]
		if r.free {
			continue
		}
		number := p.base + uint64(i)
		if i > p.head || r.id == 0 {
			p.q.Barrier(now, number, 0, g.nic.Rate())
			return
		}
		upTo, rate := g.snd.Allowance(now, r.id)
		through := g.through(now, r, upTo)
		p.q.Barrier(now, number, through, units.Rate(rate))
		if at, ok := g.snd.Wait(now, r.id); ok && through < r.length {
			g.wait(p, max(at, now+1))
		} else if r.short > 0 {
			g.wait(p, r.short+g.patience)
		}
		return
	}
	p.q.NoBarrier(now)
}

// through is how far a message goes under credit up to an offset: in whole segments. Where credit for one does not come within
// a lifetime it never would, since what there is ends; the message goes on by packets then.
func (g *Gate) through(now time.Duration, r *request, upTo uint64) uint32 {
	segment, sent := g.c.Message.Segment, uint64(r.sent)
	if upTo >= uint64(r.length) {
		r.short = 0
		return r.length
	}
	if segment == 0 || r.cut {
		return uint32(upTo)
	}
	n := max(upTo/segment*segment, sent)
	switch {
	case n > sent:
		r.short = 0
	case upTo > sent && r.short == 0:
		r.short = max(now, 1)
	case r.short > 0 && now-r.short >= g.patience:
		r.cut, r.short = true, 0
		g.count.SegmentsCut++
		return uint32(max(upTo, sent))
	}
	return uint32(n)
}

func (g *Gate) wait(p *pair, at time.Duration) {
	p.wakeAt = at
	if !p.waits {
		p.waits = true
		g.waiting = append(g.waiting, p)
	}
}

func (g *Gate) unwait(p *pair) {
	if p.waits {
		p.waits = false
		g.waiting = slices.DeleteFunc(g.waiting, func(o *pair) bool { return o == p })
	}
}

// Allow implements engine.Gate.
func (g *Gate) Allow(now time.Duration, q *engine.QP) {
	if p := g.pairs[q]; p != nil {
		g.let(now, p)
	}
}

// Sent implements engine.Gate.
func (g *Gate) Sent(now time.Duration, q *engine.QP, number uint64, length int, again bool, tos byte) byte {
	p := g.pairs[q]
	if p == nil {
		return tos
	}
	r := p.at(number)
	if r == nil {
		return tos
	}
	if !again {
		g.first(now, p, r, uint32(length))
	}
	if r.dscp >= 0 {
		tos = byte(r.dscp)<<2 | tos&3
	}
	return tos
}

// first notes octets that leave for the first time.
func (g *Gate) first(now time.Duration, p *pair, r *request, length uint32) {
	r.sent += length
	if r.id != 0 {
		r.dscp = -1
		if d, ok := g.snd.DSCP(r.id); ok { // before Transmitted: the state says which it is
			r.dscp = int8(d)
		}
		g.snd.Transmitted(now, r.id, uint64(r.sent))
		p.octets -= uint64(length)
	}
	if r.sent < r.length {
		return
	}
	if r.id != 0 {
		p.asked--
	}
	g.unwait(p)
	if p.head++; p.head == len(p.requests) {
		p.peer.busy--
	}
	g.submit(now, p)
	g.let(now, p)
}

// RoundTrip implements engine.Gate.
func (g *Gate) RoundTrip(now time.Duration, q *engine.QP, rtt time.Duration) {
	if p := g.pairs[q]; p != nil {
		g.snd.RTTSample(now, p.peer.to, rtt)
	}
}

// event takes what the sender machine says of a message.
func (g *Gate) event(now time.Duration, e sender.Event) {
	at, ok := g.byID[e.ID]
	if !ok {
		return
	}
	p := at.p
	switch e.Kind {
	case sender.EventAllowed, sender.EventStopped:
		g.let(now, p)
		return
	case sender.EventExhausted: // the request stands
		return
	}
	g.over(e.ID, p)
	r := p.at(at.number)
	if r == nil { // sent and acknowledged long ago
		r = &request{}
	}
	if r.id != 0 && r.sent < r.length {
		p.asked--
		p.octets -= uint64(r.length - r.sent)
	}
	r.id = 0
	switch e.Kind {
	case sender.EventWithout:
		r.free = true
		p.peer.refused = now + refusedFor
		g.count.Without++
	case sender.EventDone:
		r.free = true // if the receiver wants no more of it, the queue pair has to send it all the same
	case sender.EventAborted:
		if r.sent == r.length {
			break
		}
		// It must not be sent, and a queue pair cannot leave a message out. Without progress it is as if the peer were
		// not there.
		status := qp.RemoteOperation
		if e.GaveUp {
			status = qp.RetryExceeded
		}
		g.count.Refused++
		p.q.Abort(now, status)
		g.Gone(now, p.q)
		return
	}
	g.submit(now, p)
	g.let(now, p)
	g.roomier(now)
}

// over forgets a message that is at its end.
func (g *Gate) over(id uint64, p *pair) {
	delete(g.byID, id)
	p.peer.pending--
}

// roomier lets those ask that waited for a message to end.
func (g *Gate) roomier(now time.Duration) {
	kept := g.full[:0]
	for _, p := range g.full {
		if p.full = !g.ask(now, p); p.full {
			kept = append(kept, p)
		} else {
			g.let(now, p)
		}
	}
	clear(g.full[len(kept):])
	g.full = kept
}

// Gone implements engine.Gate.
func (g *Gate) Gone(now time.Duration, q *engine.QP) {
	g.cancel(now, q)
	ip, _ := q.Remote()
	delete(g.inbound, route{netip.AddrFrom4(ip), q.QPN()})
	g.step(now)
}

// cancel ends the messages of a queue pair that the peer may not have all of. It may be done with the others: MSG_DONE is on its
// way.
func (g *Gate) cancel(now time.Duration, q *engine.QP) {
	p := g.pairs[q]
	if p == nil {
		return
	}
	delete(g.pairs, q)
	if p.head < len(p.requests) {
		p.peer.busy--
	}
	g.full = slices.DeleteFunc(g.full, func(o *pair) bool { return o == p })
	g.unwait(p)
	for i := range p.requests {
		r := &p.requests[i]
		if r.id == 0 || p.base+uint64(i) < q.Acknowledged() {
			continue
		}
		g.over(r.id, p)
		_ = g.snd.Cancel(now, r.id) // unknown: it has ended, and its event waits
	}
	p.requests = nil
}
