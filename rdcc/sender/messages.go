package sender

import (
	"errors"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// Errors of Submit that a caller acts on.
var (
	ErrWithout      = errors.New("rdcc sender: the receiver does not speak RDCC")
	ErrAssociations = errors.New("rdcc sender: too many associations")
	ErrMessages     = errors.New("rdcc sender: too many messages")
	ErrMessage      = errors.New("rdcc sender: message without length, with an invalid address or a class above 7")
	ErrUnknown      = errors.New("rdcc sender: no such message")
	ErrReturn       = errors.New("rdcc sender: new limit below the octets transmitted, or above those granted")
)

// Message is what an application wants transmitted.
type Message struct {
	To           Addr
	Length       uint64 // octets, not zero
	Class        uint8  // 0 to 7, 0 first
	Weight       uint8  // within the class; 0 means 1
	Hint         rdcc.Hint
	Binding      rdcc.BindingKind
	BindingValue uint64
	Deadline     time.Duration // from Submit on, by which it should be delivered; 0 means none

	Scheduled bool // wait for credit, however short the message is
	// Segment is the length of the pieces that the transport can only send whole, such as RDMA messages; 0 means that it
	// can stop anywhere. Pool credit is given in whole segments (decision 25).
	Segment uint64
	// SelfPaced says that the transport itself holds the rate that Allowance gives, as a NIC with a rate limit for each
	// queue pair does; octets count as transmitted when they are handed to it, and leave at the rate of that moment.
	SelfPaced bool
}

// message is one that is not at its end.
type message struct {
	Message
	a          *assoc
	id         uint64 // slot and Message ID
	state      State
	next, prev *message // of the association

	ahead, behind *message // on the queue pair

	transmitted uint64
	limit       uint64 // credit is held up to here; never below transmitted
	most        uint64 // the highest limit that it ever had
	unscheduled uint64 // Unscheduled Sent as announced
	announced   bool   // a CREDIT_REQUEST has left
	requestOut  bool   // one waits in the queue
	told        bool   // EventAllowed waits in the queue

	startAt    time.Duration // end of the start delay
	grantEnd   time.Duration // of the lifetime, never without credit of its own
	leftAt     time.Duration // SelfPaced: when what the transport was handed has left it
	rate       int64         // bit/s
	requestAt  time.Duration
	backoff    time.Duration // the next request timeout
	progressAt time.Duration
	deadlineAt time.Duration

	returned uint64        // the limit before CREDIT_RETURN
	crossing time.Duration // until when grants up to it only refresh

	counted uint64 // of the association's held credit
	pacer   *pacer
	timer   timer

	// Pool credit.
	refused            uint8 // by BUDGET_EXHAUSTED: requests until it may have credit again
	deficit            int64
	wantNext, wantPrev *message
	wanting            bool
	haveNext, havePrev *message
	having             bool
}

// Submit takes a message. The id names it here; Wire tells what the receiver calls it. Drain Poll before sending data.
func (x *Machine) Submit(now time.Duration, m Message) (id uint64, err error) {
	x.clock(now)
	x.due()
	defer x.settle()
	if m.Length == 0 || !m.To.IsValid() || m.Class > rdcc.MaxClass {
		return 0, ErrMessage
	}
	if x.messages.n >= x.c.MaxMessages {
		return 0, ErrMessages
	}
	m.To = unmap(m.To)
	a, err := x.association(m.To)
	if err != nil {
		return 0, err
	}
	s := &x.slots[a.slot]
	if x.on(rdcc.RuleIDsIncrease) || s.lastID == 0 {
		s.lastID++ // dense, so that the receiver can tell what it has not seen (decision 13)
	}
	p := x.fresh()
	*p = message{
		Message: m, a: a, id: uint64(a.slot)<<idBits | s.lastID, startAt: never, grantEnd: never, requestAt: never,
		progressAt: x.now, deadlineAt: never,
	}
	p.Weight = max(m.Weight, 1)
	p.timer = timer{m: p}
	if m.Deadline > 0 {
		p.deadlineAt = x.now + m.Deadline
	}
	x.messages.put(p)
	if a.last == nil {
		a.first = p
	} else {
		a.last.next, p.prev = p, a.last
	}
	a.last = p
	a.lineUp(p)
	a.messages++
	a.pool.remaining += p.Length
	a.removeAt = never
	x.count.MessagesNew++
	x.pend(p, 1)
	if a.state == assocOpen {
		x.begin(p)
	} else {
		x.arm(p)
	}
	return p.id, nil
}

// begin selects the mode of a NEW message (Transmission Mode Selection).
func (x *Machine) begin(m *message) {
	m.unscheduled = m.transmitted // of a transport that did not wait
	if m.transmitted == 0 && !m.Scheduled && x.fits(m) && (m.a.outstanding == 0 || !x.on(rdcc.RuleOneOutstanding)) {
		m.a.outstanding = m.id
		m.unscheduled = m.Length
		delay := time.Duration(0)
		if x.on(rdcc.RuleStartJitter) && m.a.jitter > 0 {
			delay = time.Duration(x.c.Rand.Int64N(int64(m.a.jitter) + 1))
		}
		m.startAt = x.now + delay
		x.to(m, StateUnsched)
	} else {
		x.to(m, StateWaiting)
	}
	x.request(m) // at once, before the delay (decision 11)
}

func (x *Machine) fits(m *message) bool {
	return m.Length <= m.a.limit || !x.on(rdcc.RuleUnscheduledLimit) && m.a.limit > 0
}

// start ends the start delay. U may have fallen meanwhile (decision 9).
func (x *Machine) start(m *message) {
	m.startAt = never
	if m.transmitted == 0 && m.Length > m.a.limit && x.on(rdcc.RuleLimitChecked) {
		x.convert(m)
		return
	}
	x.allowed(m)
}

// convert takes a message out of unscheduled mode: what was transmitted is announced, the rest needs credit.
func (x *Machine) convert(m *message) {
	x.count.Converted++
	m.startAt = never
	if x.on(rdcc.RuleConvertAnnounces) {
		m.unscheduled = m.transmitted
	}
	x.to(m, StateWaiting)
	x.events.push(Event{Kind: EventStopped, ID: m.id, To: m.a.to})
	x.request(m)
	if m.limit > m.transmitted && m.grantEnd > x.now { // kept of a grant while it was unscheduled (decision 10)
		x.scheduled(m)
	}
}

// to is the only writer of a message's state.
func (x *Machine) to(m *message, s State) {
	if m.state == s {
		return
	}
	if m.state == StateUnsched {
		u := m.a.unscheduled
		for i, o := range u {
			if o == m {
				u[i], u[len(u)-1] = u[len(u)-1], nil
				m.a.unscheduled = u[:len(u)-1]
				break
			}
		}
	}
	if s == StateUnsched {
		m.a.unscheduled = append(m.a.unscheduled, m)
	}
	was := m.state
	m.state = s
	if was.pending() && !s.pending() {
		x.pend(m, -1)
	} else if !was.pending() && s.pending() {
		x.pend(m, 1)
	}
}

// Transmitted says that the transport has put all octets below upTo on the wire (or, SelfPaced, handed them to the NIC) at
// this instant. Octets that it repeats are not told: they are within the credit (Sender Message State Machine).
func (x *Machine) Transmitted(now time.Duration, id, upTo uint64) {
	x.clock(now)
	defer x.settle()
	m := x.look(id)
	if m == nil {
		return
	}
	upTo = min(upTo, m.Length)
	if upTo <= m.transmitted {
		return
	}
	a, n := m.a, upTo-m.transmitted
	if m.state != StateUnsched && upTo > m.limit {
		x.count.BeyondCredit += upTo - max(m.limit, m.transmitted)
	} else if m.state == StateUnsched && (m.startAt != never || !m.announced) {
		x.count.BeyondCredit += n // too early
	}
	m.transmitted = upTo
	m.progressAt = x.now
	a.sentAt = x.now
	a.pool.remaining -= n
	switch {
	case m.state == StateUnsched:
		x.count.UnscheduledSent += n
		if a.kind == grantsPool && !x.on(rdcc.RulePoolOffset) {
			a.pool.used += n
		}
	default:
		x.count.ScheduledSent += n
		x.pace(m, n)
		if a.kind == grantsPool {
			x.poolUse(m, n)
		}
	}
	m.limit = max(m.limit, m.transmitted)
	x.recount(m)
	switch {
	case m.transmitted == m.Length:
		x.drained(m)
	case m.state == StateScheduled && m.limit == m.transmitted:
		x.usedUp(m)
	}
	x.arm(m)
}

// drained: all octets are transmitted, MSG_DONE is to come.
func (x *Machine) drained(m *message) {
	x.leavePool(m)
	x.freePacer(m)
	m.grantEnd, m.startAt = never, never
	if m.a.state != assocOpen {
		return // it waits to be announced again
	}
	x.to(m, StateDrained)
	m.backoff = x.timeout(m.a)
	x.wait(m)
}

// usedUp: the limit is reached before the message's end. The next request goes after one timeout (decision 12).
func (x *Machine) usedUp(m *message) {
	m.grantEnd = never
	x.to(m, StateWaiting)
	if m.a.kind != grantsPool { // there the request's timer goes on (decision 5)
		m.backoff = x.timeout(m.a)
		x.wait(m)
	}
}

// done takes MSG_DONE, in any state in which the message is announced (decision 10).
func (x *Machine) done(a *assoc, d *rdcc.MsgDone) {
	m := x.find(a, d.MessageID)
	if m == nil {
		return
	}
	if d.OctetsReceived != m.Length {
		x.count.DoneMismatch++ // its count may be approximate (decision 14); it is content all the same
	}
	x.count.MessagesDone++
	if a.outstanding == m.id {
		a.outstanding = 0
	}
	e := Event{Kind: EventDone, ID: m.id, To: a.to}
	x.release(m, StateDone)
	x.events.push(e)
}

// Cancel abandons a message.
func (x *Machine) Cancel(now time.Duration, id uint64) error {
	x.clock(now)
	x.due()
	defer x.settle()
	m := x.messages.get(id)
	if m == nil {
		return ErrUnknown
	}
	x.cancel(m)
	x.abort(m, rdcc.ReasonApplicationAbort)
	return nil
}

// cancel tells the receiver, if it has heard of the message.
func (x *Machine) cancel(m *message) {
	if m.announced && x.on(rdcc.RuleCancelTold) {
		x.out.push(item{kind: outCancel, a: m.a, id: m.id, reason: rdcc.ReasonApplicationAbort})
	}
}

// giveUp ends a message that gets nowhere (decision 24).
func (x *Machine) giveUp(m *message) {
	x.count.MessagesGivenUp++
	x.cancel(m)
	x.end(m, Event{Kind: EventAborted, ID: m.id, To: m.a.to, Reason: rdcc.ReasonApplicationAbort, GaveUp: true})
}

func (x *Machine) abort(m *message, why rdcc.Reason) {
	x.end(m, Event{Kind: EventAborted, ID: m.id, To: m.a.to, Reason: why})
}

// without leaves a message to the transport.
func (x *Machine) without(m *message) {
	x.count.MessagesWithout++
	x.end(m, Event{Kind: EventWithout, ID: m.id, To: m.a.to})
}

func (x *Machine) end(m *message, e Event) {
	a := m.a
	if a.outstanding == m.id {
		if !m.announced {
			a.outstanding = 0
		} else if a.freeAt == never {
			// No MSG_DONE will come, and octets may be on their way: the next may start when the receiver has released
			// the reservation (Unscheduled Transmission).
			a.freeAt = x.now + a.jitter + a.lifetime + 2*x.c.Timing.DMax
			x.armAssoc(a)
		}
	}
	x.count.MessagesAborted++
	x.release(m, StateAborted)
	x.poolGiveBack(a)
	x.events.push(e)
}

// release forgets a message.
func (x *Machine) release(m *message, s State) {
	a := m.a
	x.leavePool(m)
	x.freePacer(m)
	x.to(m, s)
	a.pool.remaining -= m.Length - m.transmitted
	m.limit = m.transmitted
	x.recount(m)
	x.timers.set(&m.timer, never)
	x.messages.remove(m)
	if m.prev == nil {
		a.first = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next == nil {
		a.last = m.prev
	} else {
		m.next.prev = m.prev
	}
	a.messages--
	if a.messages == 0 {
		a.emptyAt = x.now
		if a.state == assocAsking && a.known {
			a.removeAt = x.now // nobody waits for it any more
			x.armAssoc(a)
		}
	}
	a.stepOut(m)
	if b := m.behind; b != nil && x.enlist(b) {
		x.divide(a)
	}
	m.a, m.next, m.prev, m.ahead, m.behind = nil, nil, nil, nil, nil
	x.unused = append(x.unused, m)
}

func (x *Machine) fresh() *message {
	if n := len(x.unused); n > 0 {
		m := x.unused[n-1]
		x.unused = x.unused[:n-1]
		return m
	}
	return new(message)
}

// look finds a message with all done that is due of it, so that a driver which is late with Advance is never told too much.
func (x *Machine) look(id uint64) *message {
	m := x.messages.get(id)
	if m == nil {
		return nil
	}
	if a := m.a; a.pool.end <= x.now {
		x.assocDue(a)
	}
	if m.timer.pos != 0 && m.timer.at <= x.now {
		x.messageDue(m)
		return x.messages.get(id)
	}
	return m
}

// State is where a message is; false when it is at its end, or never was.
func (x *Machine) State(id uint64) (State, bool) {
	if m := x.messages.get(id); m != nil {
		return m.state, true
	}
	return 0, false
}

// Wire is what the receiver calls a message: its Message ID, and the Association ID of its association.
func (x *Machine) Wire(id uint64) (association uint32, messageID uint64, ok bool) {
	m := x.messages.get(id)
	if m == nil || m.a.state != assocOpen {
		return 0, id & (1<<idBits - 1), false
	}
	return m.a.id, id & (1<<idBits - 1), true
}
