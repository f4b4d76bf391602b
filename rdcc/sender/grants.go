package sender

import (
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// grant takes a CREDIT_GRANT.
func (x *Machine) grant(a *assoc, flags uint16, g *rdcc.CreditGrant) {
	if g.PacingRate == 0 && x.on(rdcc.RuleRateZeroIgnored) {
		x.count.RateZero++
		return
	}
	lifetime := g.Lifetime.Duration()
	if lifetime == 0 && x.on(rdcc.RuleLifetimeDefault) {
		lifetime = a.lifetime
	}
	kind := grantsMessage
	if flags&rdcc.FlagPool != 0 {
		kind = grantsPool
		if g.MessageID != 0 || !x.c.Capabilities.Has(rdcc.CapPool) && x.on(rdcc.RulePoolAdvertised) {
			x.count.Unexpected++
			return
		}
	}
	if a.kind != kind && a.kind != grantsUnknown && x.on(rdcc.RulePoolOrMessage) {
		x.count.WrongKind++
		return
	}
	if kind == grantsPool {
		x.poolGrant(a, g, lifetime)
		return
	}
	m := x.find(a, g.MessageID)
	if m == nil {
		x.unwanted(a, g.MessageID)
		return
	}
	if m.state == StateDrained && x.on(rdcc.RuleDrainedIgnores) || m.state == StateNew {
		x.count.Unexpected++ // decision 10
		return
	}
	a.kind = kind
	limit := g.GrantLimit
	if limit > m.Length && x.on(rdcc.RuleLimitInLength) { // it must not (rule 5)
		x.count.BeyondLength += limit - m.Length
		limit = m.Length
	}
	if limit <= m.returned && x.now < m.crossing && x.on(rdcc.RuleReturnCrossing) {
		x.count.ReturnCross++ // sent before the return came: a refresh of New Limit (decision 6)
		limit = min(limit, m.limit)
	}
	held := m.limit
	m.limit = max(m.limit, limit)
	if !x.on(rdcc.RuleGrantNeverReduces) {
		m.limit = max(limit, m.transmitted)
	}
	if m.limit > held {
		x.count.CreditGranted += m.limit - held
		x.got(m)
	} else {
		x.count.GrantsRefreshing++
	}
	m.rate = g.PacingRate.BitsPerSecond()
	if m.limit > m.transmitted && (x.on(rdcc.RuleNewestLifetime) || m.grantEnd == never) {
		m.grantEnd = x.now + lifetime // the newest replaces the old, also when it is shorter (decision 2)
	}
	if x.on(rdcc.RuleBackoffReset) {
		m.backoff = x.timeout(a) // decision 12; a timer that runs is left alone (decision 10)
	}
	x.recount(m)
	switch m.state {
	case StateUnsched: // it goes on, and another may start (decision 10)
		if a.outstanding == m.id {
			a.outstanding = 0
		}
	case StateWaiting, StateScheduled:
		if m.limit > m.transmitted {
			x.scheduled(m)
		} else if m.state == StateScheduled {
			x.usedUp(m)
		}
		if a.outstanding == m.id {
			a.outstanding = 0
		}
	}
	x.arm(m)
}

// got notes credit. More than there ever was is progress; what expired unused and comes again is none, or a message that can use
// nothing of what it gets would never be given up (decision 24).
func (x *Machine) got(m *message) {
	if m.limit > m.most || !x.on(rdcc.RuleNewCreditProgress) {
		m.most, m.progressAt = m.limit, x.now
	}
}

// scheduled puts a message with credit above what is transmitted into SCHEDULED.
func (x *Machine) scheduled(m *message) {
	if m.a.kind != grantsPool {
		m.requestAt = never
	}
	x.to(m, StateScheduled)
	x.allowed(m)
	x.arm(m)
}

// expire ends a grant's lifetime: what is held and not used is gone for good (rule 3, decision 1).
func (x *Machine) expire(m *message) {
	m.grantEnd = never
	if m.limit > m.transmitted {
		x.count.GrantsExpired++
	}
	if m.state == StateScheduled && !x.on(rdcc.RuleLifetimeEnds) {
		return
	}
	x.drop(m)
	if m.state == StateScheduled {
		x.to(m, StateWaiting)
		if x.on(rdcc.RuleExpiryRequests) {
			x.request(m)
		} else {
			m.requestAt = never
		}
	}
}

// drop gives up the credit that a message holds.
func (x *Machine) drop(m *message) {
	x.count.CreditReclaimed += m.limit - m.transmitted
	if x.on(rdcc.RuleExpiryDropsLimit) {
		m.limit = m.transmitted
	}
	m.grantEnd = never
	x.recount(m)
}

// unwanted answers a grant to a message that is at its end. The receiver grants nothing to what it knows to be done, and old
// grants are discarded by number: so it has not seen our CANCEL, and hears it again.
func (x *Machine) unwanted(a *assoc, id uint64) {
	if id == 0 || id > x.slots[a.slot].lastID || x.out.n > 2*x.messages.n+64 {
		return
	}
	if m := x.messages.get(uint64(a.slot)<<idBits | id); m != nil || !x.on(rdcc.RuleCancelTold) {
		return
	}
	x.out.push(item{kind: outCancel, a: a, id: id, reason: rdcc.ReasonApplicationAbort})
}

// Return gives back the credit of a message above newLimit, which must not be below what is transmitted (CREDIT_RETURN).
func (x *Machine) Return(now time.Duration, id, newLimit uint64) error {
	x.clock(now)
	defer x.settle()
	m := x.look(id)
	if m == nil {
		return ErrUnknown
	}
	if m.a.kind == grantsPool || m.a.state != assocOpen || newLimit > m.limit {
		return ErrReturn
	}
	if newLimit < m.transmitted && x.on(rdcc.RuleReturnTransmitted) {
		return ErrReturn
	}
	if newLimit == m.limit {
		return nil
	}
	x.count.CreditReturned += m.limit - newLimit
	m.returned, m.crossing = m.limit, x.now+max(x.timeout(m.a), x.c.Timing.DMax)
	m.limit = max(newLimit, m.transmitted)
	x.recount(m)
	x.out.push(item{kind: outReturn, a: m.a, id: m.id, value: newLimit})
	if m.limit == m.transmitted {
		m.grantEnd = never
		if m.state == StateScheduled {
			x.usedUp(m)
		}
	}
	x.arm(m)
	return nil
}

// Allowance is what a message may transmit at this instant: all octets below upTo, no faster than rate bit/s. The transport's
// own congestion control may be slower still (decision 26). An upTo of what is transmitted means: nothing now.
func (x *Machine) Allowance(now time.Duration, id uint64) (upTo uint64, rate int64) {
	x.clock(now)
	m := x.look(id)
	x.settle()
	if m == nil {
		return 0, 0
	}
	switch m.state {
	case StateUnsched:
		if m.startAt != never || !m.announced && x.on(rdcc.RuleRequestFirst) {
			return m.transmitted, x.c.LineRate
		}
		return m.Length, x.c.LineRate
	case StateScheduled:
		rate = min(x.pacing(m), x.c.LineRate)
		if !x.on(rdcc.RulePacing) {
			return m.limit, rate
		}
		if m.selfPaced() {
			// What the NIC is handed must have left it when the lifetime ends, behind what it has already.
			left := m.grantEnd - max(x.now, m.leftAt)
			upTo = min(m.limit, m.transmitted+within(left, rate))
			if piece, burst := x.burst(m, left, rate); burst {
				if p, budget, w := x.pacerOf(m); p.room(x.now, w, budget) >= piece {
					return m.transmitted + piece, x.c.LineRate
				}
			}
			return upTo, rate
		}
		p, budget, w := x.pacerOf(m)
		return min(m.limit, m.transmitted+p.room(x.now, w, budget)), rate
	case StateWaiting:
		if !x.on(rdcc.RuleCreditFirst) {
			return m.Length, x.c.LineRate
		}
	}
	return m.transmitted, x.c.LineRate
}

// Wait is when Allowance grows by itself: at the end of the start delay, or when the pacing rate has room again. False means
// that an event will tell.
func (x *Machine) Wait(now time.Duration, id uint64) (at time.Duration, ok bool) {
	x.clock(now)
	m := x.look(id)
	x.settle()
	switch {
	case m == nil:
	case m.state == StateUnsched && m.startAt != never:
		return m.startAt, true
	case m.state == StateScheduled && m.selfPaced():
		if piece, burst := x.burst(m, m.grantEnd-max(x.now, m.leftAt), min(x.pacing(m), x.c.LineRate)); burst {
			if p, budget, w := x.pacerOf(m); p.room(x.now, w, budget) < piece {
				return p.next(w), true
			}
		}
	case m.state == StateScheduled:
		p, budget, w := x.pacerOf(m)
		if p.room(x.now, w, budget) < min(budget, m.limit-m.transmitted) {
			return p.next(w), true
		}
	}
	return 0, false
}

// selfPaced: with pool credit the rate is of all messages together, which no NIC limits for us.
func (m *message) selfPaced() bool { return m.SelfPaced && m.a.kind != grantsPool }

func (x *Machine) pacing(m *message) int64 {
	if m.a.kind == grantsPool {
		return m.a.pool.rate
	}
	return m.rate
}

// pacerOf is the window in which a message is paced: its own, or the pool's. A segment above ten Credit Units, which cannot
// be stopped, is its own window (decision 18).
func (x *Machine) pacerOf(m *message) (p *pacer, budget uint64, w time.Duration) {
	budget = max(paceUnits*m.a.unit, m.Segment)
	if m.a.kind == grantsPool && x.on(rdcc.RulePoolPaced) {
		p = &m.a.pool.pacer
	} else {
		if m.pacer == nil {
			m.pacer = x.freshPacer()
		}
		p = m.pacer
	}
	return p, budget, window(budget, min(x.pacing(m), x.c.LineRate))
}

func (x *Machine) pace(m *message, n uint64) {
	if m.state != StateScheduled {
		return
	}
	if m.selfPaced() {
		if !x.on(rdcc.RuleNICDrains) {
			return
		}
		rate := min(x.pacing(m), x.c.LineRate)
		if m.Segment > 0 {
			p, budget, _ := x.pacerOf(m)
			p.sent(x.now, n, budget)
			if within(m.grantEnd-max(x.now, m.leftAt), rate) < n { // a burst
				rate = x.c.LineRate
			}
		}
		m.leftAt = max(x.now, m.leftAt) + window(n, rate)
		return
	}
	p, budget, _ := x.pacerOf(m)
	p.sent(x.now, n, budget)
	if budget > paceUnits*m.a.unit {
		x.count.CoarselyPaced += n
		m.a.coarse = true
	}
}

// burst says that the next piece of a message, which its transport can only send whole, does not leave a NIC that keeps the rate
// within what is left of the lifetime: it never would. The pacing rule is for ten Credit Units, so that it may leave as fast as the
// line where these have room (rule 4).
func (x *Machine) burst(m *message, left time.Duration, rate int64) (piece uint64, _ bool) {
	if m.Segment == 0 {
		return 0, false
	}
	piece = min(m.Segment-m.transmitted%m.Segment, m.Length-m.transmitted)
	return piece, m.limit-m.transmitted >= piece && within(left, rate) < piece && within(left, x.c.LineRate) >= piece
}

func (x *Machine) freshPacer() *pacer {
	n := len(x.pacers)
	if n == 0 {
		return new(pacer)
	}
	p := x.pacers[n-1]
	x.pacers = x.pacers[:n-1]
	*p = pacer{}
	return p
}

func (x *Machine) freePacer(m *message) {
	if m.pacer != nil {
		x.pacers = append(x.pacers, m.pacer)
		m.pacer = nil
	}
}

// DSCP is what a message's data packets must be marked with now; false means that the domain configures none.
func (x *Machine) DSCP(id uint64) (dscp uint8, ok bool) {
	m := x.messages.get(id)
	if m == nil {
		return 0, false
	}
	p := x.c.DSCP.Class[m.Class]
	if m.state == StateUnsched && x.on(rdcc.RuleUnscheduledDSCP) {
		p = x.c.DSCP.Unscheduled
	} else if !x.on(rdcc.RuleClassDSCP) {
		p = x.c.DSCP.Class[0]
	}
	if p == nil {
		return 0, false
	}
	return *p, true
}
