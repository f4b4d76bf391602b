package receiver

import "time"

// flow is a queue pair as what credit is given to. Its messages leave the sender one behind the other (Transport Bindings, decision
// 25), so that credit for one is of use only behind credit for all in front of it, and only one of them is sent at a time:
// they take turns, share a window, and the rate of one is the rate of all. Without that a sender that asks ahead would have its rate
// divided among messages of which all but one wait.
//
// Grants to the pool cover all queue pairs at once; what is here is for grants to messages.
type flow struct {
	turn   int32  // the message whose turn it is to have credit, place and one; those in front of it have all
	held   int64  // credit of all its messages that is charged to G_s
	octets uint64 // lengths of its messages
	rates  ladder
}

// liveRates is how many different rates are told apart; more are merged, to the higher rate and the later end.
const liveRates = 3

// liveRate is a rate at which the sender may send under grants up to a position.
type liveRate struct {
	upTo  uint64
	until time.Duration
	rate  int64 // Mbit/s
}

// ladder has the rates of grants that are alive, falling: a rate counts until the one above it is over.
type ladder struct {
	rates [liveRates]liveRate
	n     uint8
}

// live is what the sender may be sending at: the highest of the live grants'.
func (l *ladder) live() int64 {
	if l.n == 0 {
		return 0
	}
	return l.rates[0].rate
}

// add notes a rate. Grants of no higher rate that end no later need no memory of their own.
func (l *ladder) add(x liveRate) {
	for l.n > 0 && l.rates[l.n-1].rate <= x.rate || l.n == liveRates {
		l.n--
		last := &l.rates[l.n]
		x.rate, x.until = max(x.rate, last.rate), max(x.until, last.until)
		if int64(last.upTo-x.upTo) > 0 { // a request was late, and its message is in front of one that had credit already
			x.upTo = last.upTo
		}
	}
	l.rates[l.n] = x
	l.n++
}

// lower takes back what was returned of a message's credit: a rate holds no longer than that.
func (l *ladder) lower(c *credit, to uint64) {
	was, now := c.position(c.limit), c.position(to)
	for i := range l.rates[:l.n] {
		if x := &l.rates[i]; int64(x.upTo-now) > 0 && int64(was-x.upTo) >= 0 {
			x.upTo = now
		}
	}
}

// positionBits are those of an offset in a position. The rest is the message's number, so that positions are compared as
// serial numbers.
const positionBits = 40

// position is where an offset of a message is in the order of what its sender sends.
func (c *credit) position(offset uint64) uint64 {
	if c.qp == 0 {
		return offset
	}
	return uint64(c.msn)<<positionBits | min(offset, 1<<positionBits-1)
}

// ladder is the one that the rates of a credit are in.
func (r *Receiver) ladder(c *credit) *ladder {
	if c.qp == 0 {
		return &c.own
	}
	return &r.qps[c.qp-1].rates
}

// settle drops rates that cannot be used any more: the grant is past its time, or all it allowed has arrived, so that the
// sender is done with it or has a newer one (decision 17).
func (r *Receiver) settle(a *association, c *credit, received uint64) {
	l := r.ladder(c)
	if l.n == 0 {
		return
	}
	at := c.position(received)
	if c.qp != 0 {
		first := r.qps[c.qp-1].first
		for first != 0 && r.messages[first-1].lingers {
			first = r.messages[first-1].qpNext
		}
		if first == 0 {
			r.silence(a, l)
			return
		}
		m := &r.messages[first-1]
		at = m.credit.position(m.received)
	}
	was, gone := l.live(), uint8(0)
	for gone < l.n && (r.now >= l.rates[gone].until || int64(at-l.rates[gone].upTo) >= 0) {
		gone++
	}
	if gone == 0 {
		return
	}
	copy(l.rates[:], l.rates[gone:l.n])
	l.n -= gone
	r.setLive(a, l.live()-was)
}

// silence drops all rates.
func (r *Receiver) silence(a *association, l *ladder) {
	was := l.live()
	l.n = 0
	r.setLive(a, -was)
}

// hold changes what a credit has of G_s.
func (r *Receiver) hold(c *credit, by int64) {
	c.held += by
	if c.qp != 0 {
		r.qps[c.qp-1].held += by
	}
}

// ahead is what other messages of the queue pair have outstanding.
func (r *Receiver) ahead(c *credit) int64 {
	if c.qp == 0 {
		return 0
	}
	return r.qps[c.qp-1].held - c.held
}

// others are the octets of the queue pair's other messages: as long as there are some, it does not need its rate for a short time only.
func (r *Receiver) others(m *message) uint64 {
	if m.credit.qp == 0 {
		return 0
	}
	return r.qps[m.credit.qp-1].octets - m.length
}

// join puts a message into the line of its queue pair.
func (r *Receiver) join(at int32) {
	m := &r.messages[at]
	f := &r.qps[m.credit.qp-1].flow
	f.held += m.credit.held
	f.octets += m.length
	r.lineUp(at)
}

// lineUp gives the turn to a message that belongs in front of the one that has it: its request was overtaken, or it needs credit after all.
func (r *Receiver) lineUp(at int32) {
	m := &r.messages[at]
	if m.credit.qp == 0 {
		return
	}
	f := &r.qps[m.credit.qp-1].flow
	if f.turn != 0 {
		other := &r.messages[f.turn-1]
		if !msnBefore(m.credit.msn, other.credit.msn) {
			return
		}
		r.dequeue(f.turn - 1)
		r.mature(&r.assocs[m.assoc], other)
	}
	f.turn = at + 1
}

// part takes a message out of the line.
func (r *Receiver) part(at int32) {
	m := &r.messages[at]
	f := &r.qps[m.credit.qp-1].flow
	f.octets -= m.length
	if f.turn == at+1 {
		r.turnTo(f, m.qpNext, m.start)
	}
}

// hasTurn says that a message may have credit: it is its turn, or was and asks again.
func (r *Receiver) hasTurn(m *message) bool {
	if m.credit.qp == 0 {
		return true
	}
	turn := r.qps[m.credit.qp-1].turn
	return turn == 0 || !msnBefore(r.messages[turn-1].credit.msn, m.credit.msn)
}

// nextTurn lets the next message ask, if the one whose turn it is needs no more credit.
func (r *Receiver) nextTurn(qp int32) {
	if qp == 0 {
		return
	}
	if f := &r.qps[qp-1].flow; f.turn != 0 && r.content(&r.messages[f.turn-1]) {
		r.turnTo(f, f.turn, 0)
	}
}

// turnTo gives the turn to the first from at on that needs credit. It goes on where the ones before it were in the order of
// fair queueing.
func (r *Receiver) turnTo(f *flow, at int32, start uint64) {
	for at != 0 && r.content(&r.messages[at-1]) {
		start = max(start, r.messages[at-1].start)
		at = r.messages[at-1].qpNext
	}
	if f.turn = at; at != 0 {
		m := &r.messages[at-1]
		m.start = max(m.start, start)
		r.want(at - 1)
	}
}

// content says that a message needs no more credit.
func (r *Receiver) content(m *message) bool {
	return m.bad || m.cancelled || max(m.received, m.announced, m.credit.limit) >= m.length
}
