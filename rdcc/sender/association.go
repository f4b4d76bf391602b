package sender

import (
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

type assocState uint8

const (
	assocAsking  assocState = iota // ASSOC_REQUEST is out; after a loss, too
	assocOpen                      // established
	assocWithout                   // never answered: remembered for Timing.Without
	assocGone                      // removed from the machine
)

// attempts of ASSOC_REQUEST before a receiver is taken for one without RDCC (Association Establishment).
const attempts = 8

// assoc is what is shared with one receiver.
type assoc struct {
	slot  int
	to    Addr
	next  *assoc // of the same host
	state assocState

	nonce     uint64
	id        uint32
	epoch     uint16
	known     bool   // was open before: this receiver speaks RDCC
	seq       uint32 // the last one sent; one space for all types (decision 7)
	newest    uint32 // the newest one processed
	acceptSeq uint32 // of the newest ASSOC_ACCEPT of this Epoch

	// Parameters of the newest ASSOC_ACCEPT.
	caps     rdcc.Capabilities
	limit    uint64        // U
	jitter   time.Duration // J
	ncu      uint64        // N_cu
	lifetime time.Duration
	unit     uint64 // Credit Unit

	asked     bool // an ASSOC_REQUEST is unanswered
	attempt   int  // of it
	attemptAt time.Duration
	askedAt   time.Duration
	refusals  int
	refusedOf int // the attempt that the last refusal answered
	srtt      time.Duration
	sentAt    time.Duration // last sign of life
	emptyAt   time.Duration // since when there is no message
	keepAt    time.Duration
	removeAt  time.Duration

	first, last *message // all that are not at their end, oldest first
	messages    int
	lines       []line
	unscheduled []*message    // those in UNSCHED
	outstanding uint64        // the unscheduled message that is outstanding, zero if none
	freeAt      time.Duration // when an outstanding one that was aborted is out of the receiver's books

	kind grantKind
	pool pool

	held      uint64 // octets of credit held and not used
	holding   int    // in backlog.holders, plus one
	hints     [3]int // pending messages by Service Hint
	share     uint64
	statusOn  bool // the last SENDER_STATUS had a level above zero
	statusAt  time.Duration
	statusOf  time.Duration // when the last was made
	statusOut bool          // one waits in the queue

	requestOut, ackOut bool // ASSOC_REQUEST waits in the queue
	coarse             bool // a segment was its own pacing window
	timer              timer
}

// grantKind is whether a receiver grants to the pool or per message: one or the other for an association's life (decision 4).
type grantKind uint8

const (
	grantsUnknown grantKind = iota
	grantsPool
	grantsMessage
)

// association returns that to a receiver, and asks for it when there is none.
func (x *Machine) association(to Addr) (*assoc, error) {
	if a := x.byAddr[to]; a != nil {
		if a.state == assocWithout {
			return nil, ErrWithout
		}
		return a, nil
	}
	if len(x.byAddr) >= x.c.MaxAssociations {
		return nil, ErrAssociations
	}
	n := len(x.slots)
	if k := len(x.free); k > 0 {
		n = x.free[k-1]
		x.free = x.free[:k-1]
	} else {
		x.slots = append(x.slots, slot{})
	}
	a := &assoc{
		slot: n, to: to, nonce: x.c.Nonce(), next: x.byHost[to.Addr()],
		keepAt: never, removeAt: never, freeAt: never, statusAt: never, emptyAt: x.now,
	}
	a.pool.end = never
	a.timer = timer{a: a}
	x.slots[n].a = a
	x.byAddr[to], x.byHost[to.Addr()] = a, a
	x.ask(a)
	return a, nil
}

// remove forgets an association without messages.
func (x *Machine) remove(a *assoc) {
	a.state = assocGone
	x.timers.set(&a.timer, never)
	x.hold(a, 0)
	x.slots[a.slot].a = nil
	x.free = append(x.free, a.slot)
	delete(x.byAddr, a.to)
	if p := x.byHost[a.to.Addr()]; p != a {
		for p.next != a {
			p = p.next
		}
		p.next = a.next
	} else if a.next != nil {
		x.byHost[a.to.Addr()] = a.next
	} else {
		delete(x.byHost, a.to.Addr())
	}
	x.thresholds(a)
}

// ask begins to send ASSOC_REQUEST: for a new association, a lost one, or to keep one alive (decision 24).
func (x *Machine) ask(a *assoc) {
	a.asked, a.attempt, a.refusals, a.refusedOf = true, 0, 0, 0
	x.askAgain(a)
}

func (x *Machine) askAgain(a *assoc) {
	a.attempt++
	a.askedAt = x.now
	wait := x.c.Timing.AssocRetry
	if x.on(rdcc.RuleAssocBackoff) {
		wait <<= min(a.attempt-1, attempts-1)
	}
	if a.known {
		wait = min(wait, x.c.Timing.MaxTimeout)
	}
	a.attemptAt = x.now + wait
	if !a.requestOut {
		a.requestOut = true
		x.out.push(item{kind: outAssocRequest, a: a})
	}
	x.armAssoc(a)
}

// unanswered is what happens when the wait for ASSOC_ACCEPT is over.
func (x *Machine) unanswered(a *assoc) {
	switch {
	case a.state == assocOpen: // a keepalive: what comes of it shows with the next message
		if a.attempt < attempts {
			x.askAgain(a)
			return
		}
		a.asked, a.attemptAt = false, never
		a.keepAt = x.now + x.c.Timing.Keepalive
	case a.known:
		// It did speak RDCC, so that it is unreachable, not without RDCC: sending ungated into what may be a partition
		// would break its budget. The messages' patience ends this.
		x.askAgain(a)
	case a.attempt < attempts || !x.on(rdcc.RuleAssocAttempts):
		x.askAgain(a)
	case a.refusals > 0: // it did answer
		x.turnedDown(a)
	default:
		x.count.AssocUnanswered++
		a.state, a.asked, a.attemptAt = assocWithout, false, never
		for a.first != nil {
			x.without(a.first)
		}
		a.removeAt = x.now + x.c.Timing.Without
	}
}

// accept takes an ASSOC_ACCEPT, which is exempt from the checks of Epoch and Sequence Number, but never lowers them.
func (x *Machine) accept(a *assoc, h *rdcc.Header, m *rdcc.AssocAccept) {
	if m.SenderNonce != a.nonce && x.on(rdcc.RuleNonceEchoed) {
		x.count.WrongNonce++
		return
	}
	update := h.Flags&rdcc.FlagParameterUpdate != 0
	if !a.known || a.id != h.Assoc || a.epoch != h.Epoch {
		// Another incarnation answers what it was asked. One that was not asked is a late answer of a former life.
		if h.Assoc == 0 || !a.asked && x.on(rdcc.RuleEpochAsked) {
			x.count.Unexpected++
			return
		}
		x.incarnation(a, h, m)
		if update {
			x.acknowledge(a)
		}
		return
	}
	if rdcc.Newer(h.Seq, a.acceptSeq) || !x.on(rdcc.RuleUpdateNewest) {
		a.acceptSeq = h.Seq
		x.parameters(a, m)
	}
	if rdcc.Newer(h.Seq, a.newest) || !x.on(rdcc.RuleSequenceNotLowered) {
		a.newest = h.Seq
	}
	if update {
		x.acknowledge(a)
	} else if a.asked {
		x.answered(a, true)
	}
	if a.state == assocAsking { // the receiver had lost nothing: what was announced to it stands
		x.answered(a, false)
		x.open(a)
		for p := a.first; p != nil; {
			n := p.next
			if p.state == StateNew {
				x.begin(p)
			} else {
				x.request(p)
			}
			p = n
		}
	}
	x.armAssoc(a)
}

// incarnation is a new association, or one whose receiver began anew.
func (x *Machine) incarnation(a *assoc, h *rdcc.Header, m *rdcc.AssocAccept) {
	again := a.known
	if again && a.state == assocOpen {
		x.lost(a)
	}
	a.known, a.id, a.epoch = true, h.Assoc, h.Epoch
	a.acceptSeq = h.Seq
	if !again || x.on(rdcc.RuleEpochResetsSequence) {
		a.newest = h.Seq
	}
	a.kind = grantsUnknown
	a.pool.limit, a.pool.used, a.pool.returned = 0, 0, 0
	x.parameters(a, m)
	x.answered(a, h.Flags&rdcc.FlagParameterUpdate == 0)
	x.open(a)
	x.count.Associations++
	for p := a.first; p != nil; {
		n := p.next
		switch {
		case !again:
			x.begin(p)
		case p.state == StateNew: // any state but the last two goes to WAITING
			x.to(p, StateWaiting)
			x.request(p)
		default:
			// To the new incarnation all that was sent is unscheduled, presumed delivered (decision 15).
			p.unscheduled = p.transmitted
			p.refused = 0
			p.returned = 0 // no grant of the former life can cross a CREDIT_RETURN any more
			x.request(p)
		}
		p = n
	}
	x.armAssoc(a)
}

func (x *Machine) open(a *assoc) {
	a.state = assocOpen
	x.thresholds(a)
	x.events.push(Event{Kind: EventOpen, To: a.to})
}

// answered ends the asking; an exchange without repetition is a sample of the round trip (decision 12).
func (x *Machine) answered(a *assoc, sample bool) {
	if sample && a.asked && (a.attempt == 1 || !x.on(rdcc.RuleSampleUnambiguous)) {
		a.sample(x.now - a.askedAt)
	}
	a.asked, a.attemptAt = false, never
	a.keepAt = x.now + x.c.Timing.Keepalive
}

func (x *Machine) parameters(a *assoc, m *rdcc.AssocAccept) {
	a.caps = m.Capabilities
	a.limit, a.jitter = uint64(m.UnscheduledLimit), m.StartJitter.Duration()
	a.ncu = uint64(m.BacklogThreshold)
	// A lifetime or unit of zero would forbid all sending; the specification's least lifetime and a small packet will do.
	a.lifetime = m.GrantLifetime.Duration()
	if a.lifetime == 0 {
		a.lifetime = leastLifetime
	}
	a.unit = uint64(m.CreditUnit)
	if a.unit == 0 {
		a.unit = leastUnit
	}
	x.thresholds(a)
}

const (
	leastLifetime = 100 * time.Microsecond
	leastUnit     = 1024
)

// acknowledge answers a parameter update (Association Establishment), old ones too (decision 7).
func (x *Machine) acknowledge(a *assoc) {
	if !a.ackOut && x.on(rdcc.RuleUpdateAcknowledged) {
		a.ackOut = true
		x.count.Updates++
		x.out.push(item{kind: outUpdateAck, a: a})
	}
}

// unknown takes ERROR (UNKNOWN_ASSOCIATION), which a receiver sends that has forgotten the association.
func (x *Machine) unknown(a *assoc, id uint32) {
	if a.state != assocOpen || id != a.id && x.on(rdcc.RuleUnknownOwn) {
		x.count.Unexpected++
		return
	}
	x.lost(a)
	a.state = assocAsking
	x.thresholds(a)
	x.ask(a)
}

// lost drops all credit of the association: the messages wait until it is established again.
func (x *Machine) lost(a *assoc) {
	x.count.AssocLost++
	x.poolExpire(a, false)
	for p := a.first; p != nil; p = p.next {
		if p.state == StateNew {
			continue
		}
		stopped := p.state == StateUnsched || p.state == StateScheduled
		if p.state == StateUnsched {
			p.unscheduled = p.transmitted // the rest will wait for credit
		}
		if x.on(rdcc.RuleLossDropsCredit) {
			x.drop(p)
		}
		p.requestAt, p.startAt = never, never
		if x.on(rdcc.RuleLossDropsCredit) {
			x.to(p, StateWaiting)
		}
		if stopped {
			x.events.push(Event{Kind: EventStopped, ID: p.id, To: a.to})
		}
		x.arm(p)
	}
}

// refused takes ERROR (ASSOC_REFUSED). It carries no nonce, so that anyone could have sent it: it counts only while the
// association is being asked for, and only the second time (decision 21).
func (x *Machine) refused(a *assoc, id uint32) {
	if a.state != assocAsking || !a.asked || id != 0 {
		if x.on(rdcc.RuleRefusedAsked) {
			x.count.Unexpected++
			return
		}
	}
	if a.attempt == a.refusedOf {
		return // one refusal for each request
	}
	x.count.AssocRefused++
	a.refusedOf = a.attempt
	a.refusals++
	if a.refusals < 2 && x.on(rdcc.RuleRefusedTwice) {
		return // the next attempt comes with the backoff
	}
	x.turnedDown(a)
}

func (x *Machine) turnedDown(a *assoc) {
	for a.first != nil {
		if x.c.OnRefused == RefusedWithout {
			x.without(a.first)
		} else {
			x.abort(a.first, rdcc.ReasonAssocRefused)
		}
	}
	x.remove(a)
}

// assocDue does what is due of an association.
func (x *Machine) assocDue(a *assoc) {
	if a.attemptAt <= x.now {
		x.unanswered(a)
		if a.state == assocGone {
			return
		}
	}
	if a.pool.end <= x.now {
		x.poolExpire(a, true)
	}
	if a.freeAt <= x.now {
		a.outstanding, a.freeAt = 0, never
	}
	if a.statusAt <= x.now {
		x.statusDue(a)
	}
	if a.keepAt <= x.now {
		x.keepalive(a)
	}
	if a.removeAt <= x.now {
		x.remove(a)
		return
	}
	x.armAssoc(a)
}

// keepalive asks again with the same nonce when nothing was sent for a while (decision 24), and lets an association go
// that has had no message for long: the receiver's idle time ends it there.
func (x *Machine) keepalive(a *assoc) {
	t := &x.c.Timing
	switch {
	case a.state != assocOpen || a.asked:
		a.keepAt = never
	case a.messages == 0 && a.emptyAt+t.Idle <= x.now:
		a.keepAt, a.removeAt = never, x.now
	case a.sentAt+t.Keepalive > x.now:
		a.keepAt = a.sentAt + t.Keepalive
	case !x.on(rdcc.RuleKeepalive):
		a.keepAt = x.now + t.Keepalive
	default:
		x.count.Keepalives++
		a.keepAt = never
		x.ask(a)
	}
}

func (x *Machine) armAssoc(a *assoc) {
	if a.state == assocGone {
		return
	}
	x.timers.set(&a.timer, min(a.attemptAt, a.pool.end, a.freeAt, a.statusAt, a.keepAt, a.removeAt))
}

// Info is what there is to know of an association.
type Info struct {
	Open           bool
	Association    uint32
	Epoch          uint16
	Capabilities   rdcc.Capabilities // the receiver's
	U              uint64            // octets
	Jitter         time.Duration     // J
	Backlog        uint64            // N_cu, octets
	Lifetime       time.Duration     // of grants that state none
	CreditUnit     uint64            // octets
	RTT            time.Duration     // smoothed; 0 before the first sample
	Messages       int               // that are not at their end
	Unused         uint64            // octets of credit held and not used
	Pool           bool              // it is one of pool grants
	PacedBySegment bool              // a segment is longer than ten Credit Units (decision 18)
}

// Association tells of the association with a receiver; false when there is none.
func (x *Machine) Association(to Addr) (Info, bool) {
	a := x.byAddr[unmap(to)]
	if a == nil || a.state == assocWithout {
		return Info{}, false
	}
	return Info{
		Open: a.state == assocOpen, Association: a.id, Epoch: a.epoch, Capabilities: a.caps, U: a.limit, Jitter: a.jitter, Backlog: a.ncu,
		Lifetime: a.lifetime, CreditUnit: a.unit, RTT: a.srtt, Messages: a.messages, Unused: a.held, Pool: a.kind == grantsPool,
		PacedBySegment: a.coarse,
	}, true
}
