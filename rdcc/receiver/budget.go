package receiver

import (
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// credit is what was granted to a message or a pool.
type credit struct {
	limit   uint64        // the highest that was ever sent: the sender may hold it (decision 1)
	held    int64         // of it charged to G_s
	sent    time.Duration // last grant
	reclaim time.Duration // when no grant can be used any more (decision 2)
	lower   uint64        // New Limit of a CREDIT_RETURN that waits for grants on their way, and one; zero: none
	lowerAt time.Duration // when it takes effect (decision 6)

	refreshes uint8 // repetitions since something arrived

	expired  bool // it was reclaimed: the sender must ask again
	returned bool // it was returned: likewise

	qp  int32  // queue pair of the message, place and one
	msn uint32 // first message sequence number on it

	own ladder // of rates, if the message is on no queue pair
}

// next is when something of it ends.
func (c *credit) next(l *ladder) (time.Duration, bool) {
	at, ok := time.Duration(0), false
	sooner := func(t time.Duration) {
		if !ok || t < at {
			at, ok = t, true
		}
	}
	if l.n > 0 && (c.qp == 0 || c.held > 0 && c.reclaim > 0) {
		sooner(l.rates[0].until)
	}
	if c.held > 0 && c.reclaim > 0 {
		sooner(c.reclaim)
	}
	if c.lower != 0 {
		sooner(c.lowerAt)
	}
	return at, ok
}

// charge puts octets on the accounts. That the sum stays within G is what all else here is for; it is looked at each time.
func (r *Receiver) charge(a *association, scheduled, unscheduled int64) {
	r.scheduled += scheduled
	r.unscheduled += unscheduled
	a.scheduled += scheduled
	a.unscheduled += unscheduled
	if r.scheduled+r.unscheduled > r.cfg.G || r.unscheduled > r.cfg.Gu {
		r.Counters.InvariantViolations++
	}
}

// uncharge takes octets off the accounts, and says where to count them.
func (r *Receiver) uncharge(a *association, scheduled, unscheduled int64, count *uint64) {
	r.charge(a, -scheduled, -unscheduled)
	if count != nil {
		*count += uint64(scheduled + unscheduled)
	}
	if r.scheduled < 0 || r.unscheduled < 0 || a.scheduled < 0 || a.unscheduled < 0 {
		r.Counters.InvariantViolations++
	}
}

// granted notes a grant that is sent now.
func (r *Receiver) granted(a *association, c *credit, received, limit uint64, rate int64, lifetime time.Duration) {
	if c == &a.poolCredit && limit <= c.limit {
		a.grantedAgain()
	}
	c.limit = max(c.limit, limit)
	c.sent, c.lower = r.now, 0
	ends := r.now + lifetime + 2*r.cfg.Fabric.DMax
	if !r.on(rdcc.RuleReclaimDelay) {
		ends = r.now + lifetime
	}
	if r.on(rdcc.RuleReclaimAfterAll) {
		ends = max(ends, c.reclaim)
	}
	c.reclaim = ends
	if l := r.ladder(c); r.on(rdcc.RuleLiveRates) {
		was := l.live()
		l.add(liveRate{c.position(limit), ends, rate})
		r.setLive(a, l.live()-was)
	}
}

func (r *Receiver) setLive(a *association, by int64) {
	a.live += by
	r.liveRate += by
	r.activity(a)
	if by < 0 {
		r.callUp()
	}
}

// creditDue runs the timers of credit: rates that end, returns that wait, and the time to reclaim. It says whether credit
// was reclaimed.
func (r *Receiver) creditDue(a *association, c *credit, received uint64) (reclaimed bool) {
	r.settle(a, c, received)
	if c.lower != 0 && r.now >= c.lowerAt {
		r.lower(a, c, received)
	}
	if c.held > 0 && c.reclaim > 0 && r.now >= c.reclaim {
		r.uncharge(a, c.held, 0, &r.Counters.ReclaimedOctets)
		r.hold(c, -c.held)
		c.expired = true
		r.Counters.Reclaims++
		return true
	}
	return false
}

// messageDue runs the timers of a message.
func (r *Receiver) messageDue(at int32) {
	m := &r.messages[at]
	a := &r.assocs[m.assoc]
	if m.cancelled && m.end > 0 && r.now >= m.end {
		r.cancelled(at)
		return
	}
	if m.release != 0 && r.now >= m.release {
		r.released(at)
		if r.complete(at) {
			return
		}
		r.want(at)
	}
	// The credit of a cancelled message has a time of its own.
	if !m.cancelled && r.creditDue(a, &m.credit, m.received) {
		r.dequeue(at)
		r.mature(a, m)
		r.hoarded(a)
		r.armAssoc(m.assoc)
	} else if m.cancelled {
		r.settle(a, &m.credit, m.received)
	}
	r.unblock(a)
	r.arm(at)
}

// arm sets the message's timer to what comes first; one that is set earlier stays.
func (r *Receiver) arm(at int32) {
	m := &r.messages[at]
	t, ok := m.credit.next(r.ladder(&m.credit))
	if m.release != 0 && (!ok || m.release < t) {
		t, ok = m.release, true
	}
	if m.cancelled && m.end > 0 {
		t, ok = m.end, true
	}
	if !ok {
		return
	}
	if set, ok := r.messageTimers.at(at); !ok || t < set {
		r.messageTimers.set(at, t)
	}
}

// released ends the reservation of announced octets: what has not arrived is lost, or, after a restart, arrived before.
func (r *Receiver) released(at int32) {
	m := &r.messages[at]
	a := &r.assocs[m.assoc]
	missing := uint64(0)
	if m.announced > m.received {
		missing = m.announced - m.received
	}
	m.release = 0
	if m.unscheduled > 0 || m.credit.limit == 0 && m.credit.held > 0 {
		held := int64(0)
		if m.credit.limit == 0 {
			held = m.credit.held
			r.hold(&m.credit, -held)
		}
		r.uncharge(a, held, m.unscheduled, &r.Counters.ReleasedOctets)
		m.unscheduled = 0
		r.recount(a)
	}
	if m.presumed {
		if m.exact {
			return
		}
		m.received += missing
		r.Counters.PresumedOctets += missing
		return
	}
	if !m.bad && !m.cancelled {
		r.breaker.lost(r, m.announced, missing-min(m.gap, missing))
	}
}
