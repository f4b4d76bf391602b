package receiver

import (
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

type verdict uint8

const (
	served verdict = iota // granted, or has enough
	barred                // this association can have no more until something of its own ends
	aside                 // it can have none until others send slower
	full                  // nobody can
)

// windowRTTs is how many base RTTs of its rate a message may have outstanding: one that is on its way, and one for grants
// that wait for arrivals.
const windowRTTs = 2

// schedule gives what is free to those who wait, until nothing is free or nobody waits.
func (r *Receiver) schedule() {
	r.parked = false
	for len(r.ready) > 0 {
		if !r.out.roomy() {
			r.parked = true
			return
		}
		i := r.ready[0].assoc
		a := &r.assocs[i]
		switch r.offer(i, a.queue[0]) {
		case full:
			return
		case barred:
			a.blocked = true
			r.unready(a)
		case aside:
			r.stepAside(a)
		}
	}
}

// offer grants the message what it can have now.
func (r *Receiver) offer(i, at int32) verdict {
	a, m := &r.assocs[i], &r.messages[at]
	c, received, length := &m.credit, m.received, m.length
	base := max(c.limit, m.announced)
	if a.pool {
		c, received, length = &a.poolCredit, a.poolReceived, a.poolDemand
		base = c.limit
		if c.expired || c.returned || a.poolBad {
			return barred
		}
		if !r.on(rdcc.RulePoolLimit) {
			length += uint64(r.cfg.CreditUnit)
		}
	}
	if !r.on(rdcc.RuleNeverBelow) {
		base = received
	}
	if !r.on(rdcc.RuleNotBeyondLength) {
		length += uint64(r.cfg.CreditUnit)
	}
	if r.now < a.barredUntil {
		return barred
	}
	r.settle(a, c, received)
	free := r.cfg.G - r.cfg.Gu - r.scheduled
	if !r.on(rdcc.RuleBudget) {
		free = r.cfg.G
	}
	if free < r.cfg.CreditUnit && !m.refresh && free < int64(length-base) {
		return full
	}
	left := length - min(length, received)
	if !a.pool {
		left += r.others(m)
	}
	rate, v := r.rateFor(a, m, c, left)
	if v != served {
		return v
	}
	window := r.window(a, rate)
	chunk := min(max(r.cfg.CreditUnit, min(window/4, (r.cfg.G-r.cfg.Gu)/8)), r.cfg.MaxCredit)
	chunk -= chunk % min(chunk, r.cfg.CreditUnit)
	reach := max(window-r.ahead(c), 0) // what others of its queue pair leave
	limit := r.wholeUnits(a, base, length, received+uint64(reach))
	// What the limit asks for beyond what is charged: all that may still come. A reservation moves over (decision 10).
	need := int64(limit-received) - c.held
	room, own := free, false
	if r.on(rdcc.RuleCreditCap) {
		mine := min(r.cfg.MaxCredit, r.window(a, r.senderRate(a))) - a.scheduled
		if a.scheduled == 0 { // what the sender may hold already cannot be less
			mine = max(mine, int64(base-received))
		}
		if mine < room {
			room, own = mine, true
		}
	}
	if need > room {
		limit = received + uint64(max(c.held+room, 0))
		if limit > base {
			limit = r.wholeUnits(a, base, length, limit)
		}
		need = int64(limit-received) - c.held
		if limit < base || limit-base < min(uint64(chunk), length-base) {
			if own {
				return barred
			}
			if !m.refresh || limit < base {
				return full
			}
		}
	}
	grow := limit - base
	if grow == 0 && c.held > 0 && m.refresh {
		if c.refreshes >= maxRefreshes && r.on(rdcc.RuleRefreshBounded) {
			m.refresh = false // what it holds ends with its time, and then it may have some again
		} else {
			c.refreshes++
		}
	}
	if grow < min(uint64(chunk), length-base) && !m.refresh || grow == 0 && c.held == 0 && limit <= received {
		r.satisfied(i, at, window, chunk, length-min(length, base))
		if a.pool {
			return barred
		}
		return served
	}
	r.grant(i, at, c, received, limit, rate, need)
	m.refresh = false
	class := m.class
	if r.on(rdcc.RuleWeightShare) {
		r.virtual[class] = max(r.virtual[class], m.start)
		m.start = r.virtual[class] + max(grow, 1)<<8/uint64(m.weight)
	}
	left = length - min(length, limit)
	if left == 0 || reach-int64(limit-received) < min(chunk, int64(left)) {
		r.satisfied(i, at, window, chunk, left)
		if a.pool {
			r.requeue(a, i)
			return barred
		}
		return served
	}
	r.requeue(a, i)
	return served
}

// wholeUnits is the highest limit up to most that ends with a Credit Unit or the message, and is not below base. A sender cannot use
// credit for a part of a packet: it would ask for more of it, and keep what others wait for. The packets of a pool's messages end
// anywhere; they begin where what arrived ends.
func (r *Receiver) wholeUnits(a *association, base, length, most uint64) uint64 {
	if most >= length {
		return max(base, length)
	}
	from := uint64(0)
	if a.pool {
		from = min(a.poolReceived, most)
	}
	return max(base, most-(most-from)%uint64(r.cfg.CreditUnit))
}

// satisfied lets a message that has enough wait for arrivals. A pool's messages stay in the queue until they are complete:
// which of them the credit went to is the sender's to know.
func (r *Receiver) satisfied(i, at int32, window, chunk int64, left uint64) {
	a, m := &r.assocs[i], &r.messages[at]
	m.wake = window - min(chunk, int64(min(left, 1<<62)))
	if a.pool {
		return
	}
	m.refresh = false
	r.dequeue(at)
	if left == 0 {
		r.mature(a, m)
		r.nextTurn(m.credit.qp)
	}
}

// window is how much may be outstanding at a rate. A sender that lets its credit expire gets half of it each time, until it sends
// again, but never less than a segment that a transport can only send whole (decision 18): with less it could not send at all.
func (r *Receiver) window(a *association, rate int64) int64 {
	w := rate * int64(r.cfg.Fabric.BaseRTT) / 8000 * windowRTTs
	return max(w>>a.hoards, min(segmentUnits*r.cfg.CreditUnit, (r.cfg.G-r.cfg.Gu)/segmentShare), r.cfg.CreditUnit)
}

// A segment has at most eight Credit Units (decision 18) and a sixteenth of G_s, so that others have some, too.
const (
	segmentUnits = 8
	segmentShare = 16
)

// hoarded is what comes of credit that expires unused: the next is smaller, and later, up to a bound within which traffic must flow again
// when the reason was a fault.
func (r *Receiver) hoarded(a *association) {
	a.hoards = min(a.hoards+1, maxHoards)
	if a.hoards > 1 && r.on(rdcc.RuleHoarderWaits) { // once can be an accident
		once := r.params.Lifetime + 2*r.cfg.Fabric.DMax
		a.barredUntil = r.now + max(min(once<<a.hoards, maxHoardWait), once)
		r.activity(a)
	}
}

func (r *Receiver) unbar(a *association) {
	if a.barredUntil != 0 {
		a.barredUntil = 0
		r.activity(a)
	}
}

const (
	maxHoards    = 6 // how often the window is halved, and the wait doubled
	maxHoardWait = 50 * time.Millisecond
)

// grant sends a grant and charges it. limit is not below any that was sent (decision 1).
func (r *Receiver) grant(i, at int32, c *credit, received, limit uint64, rate, need int64) {
	a, m := &r.assocs[i], &r.messages[at]
	if a.probe.at == 0 && c.held+r.ahead(c) == 0 && !a.pool && m.unscheduled == 0 && !m.refresh {
		a.probe = probe{message: m.id, limit: max(c.limit, received), at: r.now}
	}
	moved := int64(0)
	if !a.pool && r.on(rdcc.RuleNoDoubleCount) {
		moved, m.unscheduled = m.unscheduled, 0
		m.release = 0
	}
	r.hold(c, need)
	r.charge(a, need, -moved)
	if moved > 0 {
		r.recount(a)
	}
	lifetime := r.params.Lifetime
	if limit > c.limit {
		r.Counters.GrantedOctets += limit - max(c.limit, m.announced)
	}
	r.granted(a, c, received, limit, rate, lifetime)
	r.sendGrant(a, m, limit, rate, lifetime)
	if a.pool {
		r.armAssoc(i)
	} else {
		r.arm(at)
	}
}

// refreshNow answers a request for a message that has credit, at a rate that it has already: the grant was lost, or the
// sender's has expired. It says whether it did.
func (r *Receiver) refreshNow(at int32) bool {
	m := &r.messages[at]
	i := m.assoc
	a := &r.assocs[i]
	c, received := r.creditOf(a, m), m.received
	if m.bad || a.poolBad || m.cancelled || c.lower != 0 {
		return false
	}
	if a.pool {
		received = a.poolReceived
		if r.now-c.sent < 2*r.cfg.Fabric.BaseRTT { // every request is repeated there (decision 5)
			return false
		}
	}
	if c.refreshes >= maxRefreshes && r.on(rdcc.RuleRefreshBounded) {
		return false // the sender cannot use it: its rate is for others, when its time is over
	}
	if c.held != int64(c.limit-received) { // some was returned: it must be charged again, like new credit
		return false
	}
	r.settle(a, c, received)
	rate := min(r.ladder(c).live(), r.senderRate(a))
	if rate < 1 || !r.out.roomy() {
		return false
	}
	r.grant(i, at, c, received, c.limit, rate, 0)
	m.refresh = false
	c.refreshes++
	r.Counters.Refreshes++
	return true
}

// maxRefreshes is how often a grant is repeated of which nothing arrives.
const maxRefreshes = 2

// probe is a grant whose answer tells the round-trip time: one to a sender that had no credit left (decision 19).
type probe struct {
	message uint64
	limit   uint64
	at      time.Duration
}
