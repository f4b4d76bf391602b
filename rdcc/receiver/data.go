package receiver

import (
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// Arrival is data that the transport received.
type Arrival struct {
	// Message is the Message ID, when the transport knows it. Otherwise the binding says whose the octets are: for RoCEv2
	// Value has the queue pair in bits 63 to 40 and the rest is ignored, since its messages arrive in order.
	Message uint64
	Kind    rdcc.BindingKind
	Value   uint64

	Octets  uint64 // new payload octets; what is sent again counts once (decision 14)
	Packets uint32
	CE      uint32 // of them marked Congestion Experienced
	Gap     uint64 // octets found missing before these

	// Before says that these octets of a message that has just been announced were there before this receiver was: a transport that
	// outlives it tells on MessageAnnounced what it has, nothing included. They count up to what was announced as sent, and what is missing of
	// that is not presumed but waited for (decision 15).
	Before bool

	// Approximate says that Octets may count what was sent again, as counters of queue pairs do: what is over the limit
	// is then no fault (decision 14).
	Approximate bool
}

// Data counts what arrived on an association.
func (r *Receiver) Data(now time.Duration, assoc uint32, v Arrival) {
	r.clock(now)
	i, ok := r.byID[assoc]
	if !ok {
		r.Counters.DataUnknown += v.Octets
		return
	}
	a := &r.assocs[i]
	r.heard(i)
	if v.Before {
		r.before(a, v)
		r.step()
		return
	}
	r.Counters.DataOctets += v.Octets
	a.seen.packets += v.Packets
	a.seen.ce += min(v.CE, v.Packets)
	a.seen.octets += v.Octets
	if v.Message == 0 && v.Kind == rdcc.BindingRoCEv2 {
		r.arrivedOnQP(i, v)
	} else if at := r.find(a, v); at >= 0 {
		r.arrived(at, v)
	} else {
		r.keepEarly(a, v)
	}
	r.step()
}

// before notes what was there: nothing has to be presumed then. The reservation stands until its time, if the message is not complete.
func (r *Receiver) before(a *association, v Arrival) {
	at := r.find(a, v)
	if at < 0 || r.messages[at].exact {
		return
	}
	m := &r.messages[at]
	m.received -= m.atOnce
	r.Counters.PresumedOctets -= m.atOnce
	m.atOnce = 0
	n := min(v.Octets, m.announced, m.length-min(m.length, m.received)) // beside what came since
	m.received += n
	m.exact = true
	r.Counters.PresumedOctets += n
	r.complete(at)
}

// find is the pending message that an arrival names, or -1.
func (r *Receiver) find(a *association, v Arrival) int32 {
	if v.Message != 0 {
		return r.index.get(r.messageKey(a, v.Message))
	}
	if at := r.index.get(key{v.Value, a.id, tagOpaque}); at >= 0 {
		return at
	}
	// A binding that is the Message ID has no entry of its own.
	if at := r.index.get(r.messageKey(a, v.Value)); at >= 0 && r.messages[at].kind == rdcc.BindingOpaque && r.messages[at].value == v.Value {
		return at
	}
	return -1
}

// arrived counts octets of a message and says how many it took.
func (r *Receiver) arrived(at int32, v Arrival) uint64 {
	m := &r.messages[at]
	a := &r.assocs[m.assoc]
	n := r.allowed(a, m, v)
	unscheduled := uint64(0)
	if m.announced > m.received {
		unscheduled = min(m.announced-m.received, n)
	}
	m.received += n
	if v.Gap > 0 && m.release != 0 && m.gap < m.announced {
		gap := min(v.Gap, m.announced-m.gap)
		m.gap += gap
		r.breaker.lost(r, 0, gap)
	}
	r.discharge(a, m, n, unscheduled)
	if m.release != 0 && m.received >= m.announced && !m.presumed {
		// All that was announced has arrived.
		r.breaker.lost(r, m.announced, 0)
		m.release = 0
	}
	if a.probe.message == m.id && a.probe.at != 0 && m.received > a.probe.limit {
		r.rttSample(a, r.now-a.probe.at)
		a.probe = probe{}
	}
	if n > 0 {
		a.hoards = 0
		r.unbar(a)
		r.creditOf(a, m).refreshes = 0
	}
	r.observe(a)
	qp := m.credit.qp
	if done := r.complete(at); qp != 0 && !a.pool { // there is room for the one whose turn it is
		r.wake(r.qps[qp-1].turn - 1)
	} else if !done {
		r.wake(at)
	}
	r.unblock(a)
	return n
}

// wake lets a message ask for more, once little enough is outstanding.
func (r *Receiver) wake(at int32) {
	if at < 0 {
		return
	}
	m := &r.messages[at]
	if m.queued == 0 && m.credit.held+r.ahead(&m.credit)+m.unscheduled <= m.wake {
		r.want(at)
	}
}

// allowed is how many of the octets the message had credit or its unscheduled window for. What is beyond shows a sender
// that does not obey (Error Handling and Recovery).
func (r *Receiver) allowed(a *association, m *message, v Arrival) uint64 {
	limit := max(m.credit.limit, m.announced)
	if a.pool {
		base := max(m.received, m.announced)
		room := a.poolCredit.limit - min(a.poolReceived, a.poolCredit.limit)
		limit = base + min(room, m.length-base)
	}
	if !r.on(rdcc.RuleExcessDetected) {
		limit = m.length
	}
	n := v.Octets
	if room := limit - min(limit, m.received); n > room {
		excess := n - room
		switch {
		case v.Approximate || m.presumed:
			r.Counters.ApproximateOctets += excess
		default:
			r.Counters.ExcessOctets += excess
			r.punish(a, m, SentBeyondCredit)
			if a.pool && r.on(rdcc.RuleExcessStopsGrants) {
				a.poolBad = true
			}
		}
		n = room
	}
	return n
}

// discharge takes arrived octets off the accounts: first what was announced, then what was granted.
func (r *Receiver) discharge(a *association, m *message, n, unscheduled uint64) {
	if n == 0 {
		return
	}
	u := min(int64(n), m.unscheduled)
	if !r.on(rdcc.RuleReleasedOnArrival) || m.presumed && unscheduled == 0 {
		u = 0
	}
	m.unscheduled -= u
	c, received := &m.credit, m.received
	rest := int64(n) - u
	if a.pool {
		a.poolReceived += n - unscheduled
		c, received = &a.poolCredit, a.poolReceived
		rest = int64(n - unscheduled)
		if m.credit.held > 0 { // presumed, after a restart
			own := min(m.credit.held, int64(unscheduled)-min(u, int64(unscheduled)))
			r.hold(&m.credit, -own)
			r.uncharge(a, own, 0, nil)
		}
	}
	s := min(rest, c.held)
	r.hold(c, -s)
	r.uncharge(a, s, u, nil)
	r.settle(a, c, received)
	if u > 0 {
		r.recount(a)
	}
	r.Counters.AcceptedOctets += n
}
