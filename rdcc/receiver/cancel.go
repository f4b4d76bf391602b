package receiver

import (
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// senderCancel takes a message that the sender abandons. Data may be on its way yet.
func (r *Receiver) senderCancel(i int32, m *rdcc.Cancel) {
	a := &r.assocs[i]
	at := r.index.get(r.messageKey(a, m.MessageID))
	if at < 0 || r.messages[at].cancelled {
		r.Counters.CancelsUnmatched++
		if m.MessageID != 0 && (m.MessageID > a.highest || a.holes.has(m.MessageID)) {
			r.see(a, m.MessageID) // nobody will ask for it any more
		}
		return
	}
	r.Counters.CancelsReceived++
	r.emit(Event{Kind: MessageCancelled, Assoc: a.id, Message: m.MessageID, Reason: m.Reason})
	r.abandon(at)
}

// Cancel abandons a message from this side.
func (r *Receiver) Cancel(now time.Duration, assoc uint32, message uint64) bool {
	r.clock(now)
	i, ok := r.byID[assoc]
	if !ok {
		return false
	}
	a := &r.assocs[i]
	at := r.index.get(r.messageKey(a, message))
	if at < 0 || r.messages[at].cancelled {
		return false
	}
	r.sendCancel(a, message, rdcc.ReasonApplicationAbort)
	r.messages[at].byUs = true
	r.abandon(at)
	r.step()
	return true
}

// abandon stops grants at once and reclaims no earlier than 2 D_max from now (Receiver Credit Budget).
func (r *Receiver) abandon(at int32) {
	m := &r.messages[at]
	a := &r.assocs[m.assoc]
	m.cancelled = true
	m.end = r.now + 2*r.cfg.Fabric.DMax
	if !r.on(rdcc.RuleCancelDelay) {
		m.end = r.now
	}
	r.dequeue(at)
	r.mature(a, m)
	r.nextTurn(m.credit.qp)
	r.unblock(a)
	r.arm(at)
}

// cancelled ends an abandoned message whose time is up.
func (r *Receiver) cancelled(at int32) {
	m := &r.messages[at]
	a := &r.assocs[m.assoc]
	if m.byUs && !m.lingers {
		m.lingers = true
		r.uncharge(a, m.credit.held, m.unscheduled, &r.Counters.ReclaimedOctets)
		r.hold(&m.credit, -m.credit.held)
		m.unscheduled, m.release = 0, 0
		r.silence(a, &m.credit.own)
		r.recount(a)
		r.unblock(a)
		m.end = r.now + 10*r.cfg.MaxTimeout // so that a request which the CANCEL missed is answered with it again
		r.arm(at)
		return
	}
	if a.pool { // what it did not send is no longer asked for; credit of the pool is not freed (decision 4)
		if sent := max(m.received, m.announced); sent < m.length {
			a.poolDemand -= m.length - sent
		}
		if !r.on(rdcc.RulePoolCancelKeeps) {
			drop := min(a.poolCredit.held, int64(m.length-m.received))
			a.poolCredit.held -= drop
			r.uncharge(a, drop, 0, nil)
		}
	}
	id, again := m.id, m.byUs
	r.freeMessage(at)
	if again { // it was never complete
		if len(a.holes.spans) < r.cfg.MaxPending {
			a.holes.add(span{id, id, abandoned, true})
		} else {
			a.holes.forgotten = max(a.holes.forgotten, id)
		}
	}
}

// vain counts requests that a pool's sender repeats although it was answered with a grant.
type vain struct {
	received, limit uint64        // when it asked the last time
	sent            time.Duration // the last grant at that time
	times           uint8
	grants          uint8 // of the same, since something arrived
}

// After maxVain such requests the two sides are taken to count differently. A sender may ask every 100 ms only: when it had the
// same grant maxGrants times, one is enough.
const (
	maxVain   = 3
	maxGrants = 32
)

// grantedAgain notes that the pool is granted what it was granted before.
func (a *association) grantedAgain() {
	c, v := &a.poolCredit, &a.poolVain
	if v.received != a.poolReceived || v.limit != c.limit {
		*v = vain{a.poolReceived, c.limit, c.sent, 0, 0}
	}
	v.grants = min(v.grants+1, maxGrants)
}

// out says that its sender has asked in vain often enough.
func (v *vain) out() bool {
	return v.times >= maxVain || v.times > 0 && v.grants >= maxGrants
}

// outOfStep says that a pool's sender asks again and again, and can use no grant. When it cancels a message of which octets were
// lost, they count in its pool offset for ever (decision 4), and the receiver cannot know how many they were; nor does it always
// know after a restart (decision 15). Its grants then end before that offset. Offsets begin anew with a new association.
func (a *association) outOfStep() bool {
	if !a.pool {
		return false
	}
	c, v := &a.poolCredit, &a.poolVain
	switch {
	case v.received != a.poolReceived || v.limit != c.limit:
		*v = vain{a.poolReceived, c.limit, c.sent, 0, 0}
	case c.limit > 0 && c.sent != v.sent: // it was granted what it had already, and has sent nothing of it
		v.sent = c.sent
		v.times++
	}
	return v.out()
}

// beginAnew removes an association whose pool is out of step once nothing of its credit can be under way, and tells the sender; if that is lost, the
// answer to its next request tells it again. It says whether it did.
func (r *Receiver) beginAnew(i int32) bool {
	a := &r.assocs[i]
	c, v := &a.poolCredit, &a.poolVain
	if !v.out() || v.received != a.poolReceived || v.limit != c.limit || !c.expired || c.held > 0 || a.live > 0 || !r.on(rdcc.RulePoolOutOfStep) {
		return false
	}
	r.Counters.PoolsOutOfStep++
	to, id := a.addr, a.id
	r.removeAssociation(i)
	r.sendUnbound(to, id, rdcc.Error{Reason: rdcc.ReasonUnknownAssociation})
	return true
}

// creditReturn takes credit back that the sender will not use.
func (r *Receiver) creditReturn(i int32, m *rdcc.CreditReturn) {
	a := &r.assocs[i]
	c, received, at := &a.poolCredit, a.poolReceived, int32(-1)
	if m.MessageID != 0 {
		if at = r.index.get(r.messageKey(a, m.MessageID)); at < 0 {
			r.Counters.ReturnsUnmatched++
			return
		}
		c, received = &r.messages[at].credit, r.messages[at].received
	}
	if m.NewLimit >= c.limit || m.NewLimit < received || a.pool != (at < 0) {
		r.Counters.ReturnsUnmatched++
		return
	}
	r.Counters.ReturnsReceived++
	c.returned = true
	if at >= 0 {
		r.dequeue(at)
		r.mature(a, &r.messages[at])
	}
	// A grant may be on its way that the sender has not seen (decision 6).
	c.lower, c.lowerAt = m.NewLimit+1, c.sent+r.cfg.Fabric.DMax
	if r.now >= c.lowerAt || !r.on(rdcc.RuleReturnWaits) {
		r.lower(a, c, received)
	}
	r.unblock(a)
	if at >= 0 {
		r.arm(at)
	} else {
		r.armAssoc(i)
	}
}

// lower frees what was returned. Grants that the sender held can no longer be used beyond the New Limit.
func (r *Receiver) lower(a *association, c *credit, received uint64) {
	to := c.lower - 1
	c.lower = 0
	keep := int64(0)
	if to > received {
		keep = int64(to - received)
	}
	if c.held > keep {
		r.uncharge(a, c.held-keep, 0, &r.Counters.ReturnedOctets)
		r.hold(c, keep-c.held)
	}
	r.ladder(c).lower(c, to)
	r.settle(a, c, received)
}
