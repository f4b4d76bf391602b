package receiver

import (
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// message is what is kept of one pending message: the mirror of the sender's state (Sender Message State Machine).
type message struct {
	id, length uint64
	received   uint64
	announced  uint64 // Unscheduled Sent in force
	gap        uint64 // octets that were reported out of sequence
	value      uint64 // Binding Value
	credit     credit

	unscheduled int64         // charged to G_u
	release     time.Duration // of what was announced; zero: released or never reserved
	end         time.Duration // of a cancelled message
	asked       time.Duration // first request
	deadline    time.Duration // zero: none
	due         int64         // the deadline that counts in the queue
	start       uint64        // start tag of fair queueing within the class

	assoc      int32
	next, prev int32 // of the association's messages, place and one
	qpNext     int32 // next message on its queue pair, place and one
	queued     int32 // place in the association's heap, and one
	wake       int64 // want more once no more than this is outstanding
	class      uint8
	weight     uint8
	kind       rdcc.BindingKind

	bad       bool // sent what it had no credit for: no further grants
	cancelled bool
	byUs      bool   // the cancel was ours
	lingers   bool   // only to answer requests that the cancel overtook
	refresh   bool   // asked again although it has credit: the grant was lost, or a smaller one expired
	presumed  bool   // announced octets arrived before this incarnation, presumably (decision 15)
	atOnce    uint64 // octets of these that count as received since it was announced
	exact     bool   // the transport has told what arrived before
	more      bool   // counts in the association's weights
}

func (r *Receiver) messageKey(a *association, id uint64) key { return key{id, a.id, tagMessage} }

// creditRequest processes a CREDIT_REQUEST of an association that is known.
func (r *Receiver) creditRequest(i int32, m *rdcc.CreditRequest) {
	a := &r.assocs[i]
	if m.MessageID == 0 { // reserved
		r.Counters.Malformed++
		return
	}
	if at := r.index.get(r.messageKey(a, m.MessageID)); at >= 0 {
		if a.outOfStep() && r.on(rdcc.RulePoolOutOfStep) {
			a.poolCredit.expired = true // no more of it; what was granted last is over first
			r.beginAnew(i)
			return
		}
		r.requestedAgain(at, m)
		return
	}
	if m.MessageID <= a.highest && !a.holes.has(m.MessageID) {
		if m.MessageID <= a.holes.forgotten && r.on(rdcc.RuleForgottenNotDone) { // perhaps complete, perhaps never seen
			r.Counters.Refused[rdcc.ReasonApplicationAbort]++
			r.sendError(a, rdcc.Error{Reason: rdcc.ReasonApplicationAbort, MessageID: m.MessageID})
			return
		}
		// Complete, and its MSG_DONE was lost (decision 13).
		r.Counters.DoneRepeated++
		if r.on(rdcc.RuleDoneAgain) {
			r.sendDone(a, m.MessageID, m.MessageLength)
		}
		return
	}
	if a.holes.cancelled(m.MessageID) {
		r.sendCancel(a, m.MessageID, rdcc.ReasonApplicationAbort)
		return
	}
	reason := r.refuses(a, m)
	if reason == rdcc.ReasonNoError && !r.see(a, m.MessageID) {
		reason = rdcc.ReasonBudgetExhausted // others that were refused come first
	}
	if reason != rdcc.ReasonNoError {
		r.Counters.Refused[reason&7]++
		if reason == rdcc.ReasonBudgetExhausted {
			r.refusedEarly(a, m)
		}
		r.sendError(a, rdcc.Error{Reason: reason, MessageID: m.MessageID})
		return
	}
	r.newMessage(i, m)
}

// refuses says why a new message is not admitted.
func (r *Receiver) refuses(a *association, m *rdcc.CreditRequest) rdcc.Reason {
	switch {
	case m.MessageLength > r.cfg.MaxLength && r.on(rdcc.RuleMessageTooLarge):
		return rdcc.ReasonMessageTooLarge
	case !r.countable(a, m) && r.on(rdcc.RuleUnsupportedBinding):
		return rdcc.ReasonUnsupportedBinding
	case int(a.pending) >= r.cfg.MaxPending && r.on(rdcc.RuleBoundPending), r.pending >= r.cfg.MaxMessages && r.on(rdcc.RuleBoundMessages):
		// The sender keeps the request outstanding and repeats it (Error Handling and Recovery).
		return rdcc.ReasonBudgetExhausted
	}
	return rdcc.ReasonNoError
}

func (r *Receiver) newMessage(i int32, q *rdcc.CreditRequest) {
	a := &r.assocs[i]
	var at int32
	if n := len(r.unused); n > 0 {
		at, r.unused = r.unused[n-1], r.unused[:n-1]
	} else {
		at = int32(len(r.messages))
		r.messages = append(r.messages, message{})
	}
	m := &r.messages[at]
	*m = message{
		id: q.MessageID, length: q.MessageLength, class: q.Class, weight: q.Weight, kind: q.BindingKind, value: q.BindingValue,
		assoc: i, asked: r.now, next: a.first, start: r.virtual[q.Class],
	}
	if q.Deadline != 0 {
		m.deadline = r.now + q.Deadline.Duration()
	}
	if a.first != 0 {
		r.messages[a.first-1].prev = at + 1
	}
	a.first = at + 1
	a.pending++
	r.pending++
	r.index.put(r.messageKey(a, m.id), at)
	r.announce(a, m, q.UnscheduledSent)
	if a.pool {
		a.poolDemand += m.length - min(m.announced, m.length)
	}
	r.Counters.Messages++
	r.emit(Event{Kind: MessageAnnounced, Assoc: a.id, Message: m.id, Length: m.length, Binding: m.kind, Value: m.value})
	r.bind(at)
	if r.complete(at) { // of no length
		return
	}
	if a.pool {
		a.poolCredit.expired, a.poolCredit.returned = false, false
	}
	r.arm(at)
	r.want(at)
	r.nextTurn(m.credit.qp)
	r.takeEarly(at)
	if m = &r.messages[at]; m.presumed && a.pool && m.announced < m.length && r.index.get(r.messageKey(a, q.MessageID)) == at && r.on(rdcc.RulePresumedPool) {
		// The pool's credit, which others may have asked for, covers the rest of it already: what comes now is of that.
		m.atOnce = m.announced - min(m.announced, m.received)
		m.received += m.atOnce
		r.Counters.PresumedOctets += m.atOnce
	}
}

// announce reserves what the message has sent, or is about to send, without credit.
func (r *Receiver) announce(a *association, m *message, sent uint64) {
	if sent == 0 {
		return
	}
	fresh := r.now-a.update.born <= r.freshness()
	legal := min(uint64(r.may(a)), m.length)
	if sent > legal && !fresh && r.on(rdcc.RuleLies) || sent > m.length {
		// What was announced against the rules counts as far as the rules go (decision 20).
		sent = legal
		r.punish(a, m, LiedAboutUnscheduled)
	}
	m.announced = sent
	room := max(r.may(a)-a.unscheduled, 0)
	u := min(int64(min(sent, 1<<62)), room)
	over := int64(min(sent, 1<<62)) - u
	if over > 0 && !m.bad {
		if !fresh || !r.on(rdcc.RulePresumed) {
			// A second unscheduled message while one is outstanding.
			r.punish(a, m, SecondUnscheduled)
			over = 0
		} else {
			// Sent before this receiver lost its state: charged as far as the budget has room, and presumed to have
			// arrived (decision 15). No more than a part for each association, or who lies about it would hold all of the budget.
			m.presumed = true
			part := (r.cfg.G-r.cfg.Gu)/int64(max(r.live, 1)) - a.scheduled
			over = min(over, r.cfg.G-r.cfg.Gu-r.scheduled, max(part, 0))
		}
	}
	if m.bad {
		over = 0
	}
	m.unscheduled = u
	r.hold(&m.credit, over-m.credit.held)
	r.charge(a, over, u)
	r.recount(a)
	r.Counters.UnscheduledOctets += uint64(u)
	m.release = r.now + r.holdOf(a)
	if !r.on(rdcc.RuleReleasedInTime) {
		m.release = r.now + 1
	}
}

// holdOf is when unscheduled data that was announced now has arrived or is lost: J, the default lifetime and 2 D_max
// (Unscheduled Transmission), of the parameters that the sender may still act on.
func (r *Receiver) holdOf(a *association) time.Duration {
	return max(a.update.hold, r.params.hold()) + 2*r.cfg.Fabric.DMax
}

// freshness is how long after its first request an association may re-request what it sent before, silence not counted: ten
// retransmissions of a request at their slowest, and what it takes to notice.
func (r *Receiver) freshness() time.Duration {
	return 10*r.cfg.MaxTimeout + r.params.Lifetime + 4*r.cfg.Fabric.DMax
}

// requestedAgain processes a CREDIT_REQUEST for a message that is pending.
func (r *Receiver) requestedAgain(at int32, q *rdcc.CreditRequest) {
	m := &r.messages[at]
	a := &r.assocs[m.assoc]
	r.Counters.RequestsRepeated++
	if m.cancelled {
		if m.byUs {
			r.sendCancel(a, m.id, rdcc.ReasonApplicationAbort)
		}
		return
	}
	switch {
	case q.UnscheduledSent < m.announced && m.credit.limit == 0:
		r.restate(at, q.UnscheduledSent)
		m = &r.messages[at]
	case q.UnscheduledSent > m.announced && !m.bad && r.on(rdcc.RuleLies):
		r.punish(a, m, LiedAboutUnscheduled)
	}
	if q.Deadline != 0 {
		m.deadline = r.now + q.Deadline.Duration() // recomputed by the sender (decision 24)
	}
	c := r.creditOf(a, m)
	c.expired, c.returned = false, false
	m.refresh = c.limit > 0
	if a.probe.message == m.id {
		a.probe = probe{} // a grant may have been lost: what comes is no answer to it
	}
	if m.credit.limit == 0 && !a.pool && r.now-m.asked >= r.cfg.ExhaustedAfter && r.on(rdcc.RuleBudgetExhausted) && m.announced < m.length {
		r.sendError(a, rdcc.Error{Reason: rdcc.ReasonBudgetExhausted, MessageID: m.id})
		r.Counters.Refused[rdcc.ReasonBudgetExhausted]++
	}
	r.arm(at)
	if m.refresh && c.held > 0 && r.refreshNow(at) {
		return
	}
	r.want(at)
}

// creditOf is the credit that covers the message: its own, or the pool's.
func (r *Receiver) creditOf(a *association, m *message) *credit {
	if a.pool {
		return &a.poolCredit
	}
	return &m.credit
}

// restate lowers what was announced: the sender stopped, and the rest becomes scheduled (decision 3).
func (r *Receiver) restate(at int32, sent uint64) {
	m := &r.messages[at]
	a := &r.assocs[m.assoc]
	sent = max(sent, m.received)
	if !r.on(rdcc.RuleRestated) || sent >= m.announced {
		return
	}
	if a.pool {
		a.poolDemand += m.announced - sent
	}
	m.announced = sent
	keep := int64(sent - m.received)
	if drop := m.unscheduled - keep; drop > 0 {
		m.unscheduled = keep
		r.uncharge(a, 0, drop, nil)
		r.recount(a)
	}
	if m.unscheduled == 0 && !m.presumed {
		m.release = 0
	}
	r.Counters.Restated++
	r.lineUp(at)
}

// punish marks a message whose sender broke the rules: no further grants for it (Error Handling and Recovery).
func (r *Receiver) punish(a *association, m *message, why Fault) {
	r.Counters.Faults[why]++
	r.emit(Event{Kind: Misbehaving, Assoc: a.id, Message: m.id, Fault: why})
	if r.on(rdcc.RuleExcessStopsGrants) {
		m.bad = true
		if m.queued != 0 {
			r.dequeue(a.queue[m.queued-1])
		}
		r.mature(a, m)
		r.nextTurn(m.credit.qp)
	}
}

// complete ends a message that has arrived: MSG_DONE, and its state goes.
func (r *Receiver) complete(at int32) bool {
	m := &r.messages[at]
	if m.received < m.length || m.cancelled {
		return false
	}
	a := &r.assocs[m.assoc]
	if !r.on(rdcc.RuleDone) {
		return false
	}
	r.sendDone(a, m.id, m.received)
	r.Counters.MessagesDone++
	r.emit(Event{Kind: MessageDone, Assoc: a.id, Message: m.id, Length: m.length, Waited: r.now - m.asked})
	r.freeMessage(at)
	return true
}

// freeMessage ends all accounts of a message. What is outstanding is credited: the message has arrived, or its time is up.
func (r *Receiver) freeMessage(at int32) {
	m := &r.messages[at]
	a := &r.assocs[m.assoc]
	r.dequeue(at)
	r.mature(a, m)
	r.silence(a, &m.credit.own)
	if m.credit.held > 0 || m.unscheduled > 0 {
		r.uncharge(a, m.credit.held, m.unscheduled, &r.Counters.ReclaimedOctets)
		r.hold(&m.credit, -m.credit.held)
		m.unscheduled = 0
		r.recount(a)
	}
	r.unbind(at)
	r.index.remove(r.messageKey(a, m.id))
	if m.prev != 0 {
		r.messages[m.prev-1].next = m.next
	} else {
		a.first = m.next
	}
	if m.next != 0 {
		r.messages[m.next-1].prev = m.prev
	}
	r.messageTimers.clear(at)
	a.pending--
	r.pending--
	r.unused = append(r.unused, at)
	r.unblock(a)
}

// mature takes the message out of those that share the sender's rate.
func (r *Receiver) mature(a *association, m *message) {
	if m.more {
		m.more = false
		a.weights[m.class] -= uint32(m.weight)
	}
}
