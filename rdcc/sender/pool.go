package sender

import (
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// pool is the credit that an association's scheduled messages share (Traffic Classes and Pool Credit). Offsets are cumulative
// over the association's life and leave unscheduled octets out (decision 4).
//
// Credit is divided as it comes: classes in strict order, within a class by deficit round robin in whole segments. A message
// holds its part as a limit of its own. When a message of a higher class comes, parts that lower ones have not used are
// taken back for it, which is safe because the transport asks Allowance at the instant of sending.
type pool struct {
	limit, used uint64
	divided     uint64 // given to messages and not yet used
	remaining   uint64 // octets that the association's messages have yet to transmit, in whatever mode
	end         time.Duration
	rate        int64
	returned    uint64
	crossing    time.Duration
	pacer       pacer
	want        [rdcc.MaxClass + 1]list // messages that could use more
	have        [rdcc.MaxClass + 1]list // messages with a part that is not used
}

func (p *pool) free() uint64 { return p.limit - p.used - p.divided }

// poolGrant takes a grant to the pool, to which the rules of grants apply as to a message's.
func (x *Machine) poolGrant(a *assoc, g *rdcc.CreditGrant, lifetime time.Duration) {
	first := a.kind != grantsPool
	a.kind = grantsPool
	p := &a.pool
	limit := g.GrantLimit
	if most := p.used + p.remaining; limit > most && x.on(rdcc.RuleLimitInLength) { // decision 4
		x.count.BeyondLength += limit - most
		limit = most
	}
	if limit <= p.returned && x.now < p.crossing && x.on(rdcc.RuleReturnCrossing) {
		x.count.ReturnCross++
		limit = min(limit, p.limit)
	}
	if limit > p.limit {
		x.count.CreditGranted += limit - p.limit
		p.limit = limit
	} else {
		x.count.GrantsRefreshing++
	}
	p.rate = g.PacingRate.BitsPerSecond()
	p.end = never
	if p.limit > p.used {
		p.end = x.now + lifetime
	}
	if first {
		for m := a.first; m != nil; m = m.next {
			x.enlist(m)
		}
	}
	x.divide(a)
	x.hold(a, p.limit-p.used)
	x.armAssoc(a)
}

// wantPool lets a message take part in the division, once it is announced.
func (x *Machine) wantPool(m *message) {
	if !x.enlist(m) {
		return
	}
	a, p := m.a, &m.a.pool
	if need := m.Length - m.limit; p.free() < need && x.on(rdcc.RulePoolClasses) {
		x.takeBack(a, x.classOf(m), need-p.free())
	}
	x.divide(a)
}

// enlist adds a message to those that want credit.
func (x *Machine) enlist(m *message) bool {
	if m.a.kind != grantsPool || m.state != StateWaiting || !m.announced || m.wanting || m.limit == m.Length || m.refused > 0 || m.waitsInLine() {
		return false
	}
	x.want(m)
	return true
}

func (x *Machine) want(m *message) {
	m.wanting = true
	m.deficit = min(m.deficit, 0)
	x.inFront(m)
	m.a.pool.want[x.classOf(m)].pushBack(m, wants)
}

// classOf is the class under which a message is served.
func (x *Machine) classOf(m *message) uint8 {
	if !x.on(rdcc.RulePoolClasses) {
		return 0
	}
	return m.Class
}

// divide gives free credit to the messages that want it.
func (x *Machine) divide(a *assoc) {
	p := &a.pool
	for c := range p.want {
		for w := &p.want[c]; w.head != nil; {
			m := w.head
			if p.free() == 0 {
				return
			}
			if m.deficit <= 0 {
				m.deficit += int64(x.quantum(m))
				if m.deficit <= 0 && m.wantNext != nil {
					w.remove(m, wants)
					w.pushBack(m, wants)
					continue
				}
				m.deficit = max(m.deficit, 1)
			}
			n := min(a.unit, uint64(m.deficit), m.Length-m.limit)
			if m.Segment > 0 {
				n = min(m.Segment-m.limit%m.Segment, m.Length-m.limit)
			}
			if n > p.free() {
				if m.Segment > 0 {
					return // whole segments only; credit gathers until it is enough
				}
				n = p.free()
			}
			m.limit += n
			m.deficit -= int64(n)
			p.divided += n
			if !m.having {
				m.having = true
				p.have[c].pushBack(m, haves)
			}
			if m.limit == m.Length {
				w.remove(m, wants)
				m.wanting = false
				x.nextInLine(m)
			} else if m.deficit <= 0 && m.wantNext != nil {
				w.remove(m, wants)
				w.pushBack(m, wants)
			}
			x.got(m)
			if m.state == StateWaiting {
				x.scheduled(m)
			} else {
				x.allowed(m)
			}
		}
	}
}

// quantum is a message's part of a round.
func (x *Machine) quantum(m *message) uint64 {
	if !x.on(rdcc.RulePoolWeights) {
		return m.a.unit
	}
	return uint64(m.Weight) * m.a.unit
}

// takeBack takes credit that lower classes have not used, the lowest first.
func (x *Machine) takeBack(a *assoc, class uint8, need uint64) {
	for c := rdcc.MaxClass; c > int(class); c-- {
		for m := a.pool.have[c].tail; m != nil && need > 0; {
			before := m.havePrev
			n := min(need, m.limit-m.transmitted)
			if m.Segment > 0 { // down to the end of a segment
				keep := (m.limit - n) / m.Segment * m.Segment
				n = m.limit - max(keep, m.transmitted)
			}
			need -= min(n, need)
			x.take(m, n)
			if !m.wanting {
				x.want(m)
			}
			m = before
		}
	}
}

// take moves credit of a message back into the pool. The request's timer goes on (decision 5).
func (x *Machine) take(m *message, n uint64) {
	m.limit -= n
	m.a.pool.divided -= n
	if m.limit > m.transmitted {
		return
	}
	m.a.pool.have[x.classOf(m)].remove(m, haves)
	m.having = false
	x.to(m, StateWaiting)
}

// poolRefused takes a message that the receiver does not admit for now out of the division: the credit is for those that it knows. It is
// back when a request of it is not refused until the next is due.
func (x *Machine) poolRefused(m *message) {
	if !x.on(rdcc.RulePoolRefusedWaits) {
		return
	}
	m.refused = 2
	if m.having {
		x.take(m, m.limit-m.transmitted)
	}
	if m.wanting {
		m.a.pool.want[x.classOf(m)].remove(m, wants)
		m.wanting = false
	}
	x.divide(m.a)
}

// poolUse notes octets of a scheduled message.
func (x *Machine) poolUse(m *message, n uint64) {
	p := &m.a.pool
	part := min(n, m.limit-min(m.limit, m.transmitted-n)) // the rest is beyond credit, which is counted elsewhere
	p.divided -= part
	p.used += n
	p.limit = max(p.limit, p.used+p.divided)
	if m.having && m.transmitted >= m.limit {
		p.have[x.classOf(m)].remove(m, haves)
		m.having = false
	}
	if p.used == p.limit {
		p.end = never
		x.armAssoc(m.a)
	}
	x.hold(m.a, p.limit-p.used)
}

// leavePool ends a message's part in the division; credit that it did not use goes to the others.
func (x *Machine) leavePool(m *message) {
	c := x.classOf(m)
	was := m.wanting || m.having
	if m.wanting { // others may have waited behind it for a whole segment
		m.a.pool.want[c].remove(m, wants)
		m.wanting = false
	}
	if m.having {
		m.a.pool.divided -= m.limit - m.transmitted
		m.limit = m.transmitted
		m.a.pool.have[c].remove(m, haves)
		m.having = false
	}
	if was {
		x.divide(m.a)
	}
}

// poolExpire ends the pool's lifetime: nothing of it may be used any more. Messages that held a part ask anew.
func (x *Machine) poolExpire(a *assoc, ask bool) {
	p := &a.pool
	p.end = never
	if !x.on(rdcc.RulePoolLifetime) && ask {
		return
	}
	if p.limit > p.used && ask {
		x.count.GrantsExpired++
	}
	for c := range p.have {
		for m := p.have[c].head; m != nil; m = p.have[c].head {
			x.take(m, m.limit-m.transmitted)
			if !m.wanting && !m.waitsInLine() {
				x.want(m)
			}
			if ask {
				x.request(m)
			}
		}
	}
	if !ask {
		for c := range p.want {
			for m := p.want[c].head; m != nil; m = p.want[c].head {
				p.want[c].remove(m, wants)
				m.wanting = false
			}
		}
	}
	x.count.CreditReclaimed += p.limit - p.used
	p.limit, p.divided = p.used, 0
	if a.kind == grantsPool {
		x.hold(a, 0)
	}
}

// poolGiveBack returns pool credit that no message can use any more: after messages ended early (CREDIT_RETURN).
func (x *Machine) poolGiveBack(a *assoc) {
	p := &a.pool
	if a.kind != grantsPool || a.state != assocOpen || p.limit-p.used <= p.remaining || !x.on(rdcc.RulePoolReturns) {
		return
	}
	limit := p.used + p.remaining
	x.count.CreditReturned += p.limit - limit
	p.returned, p.crossing = p.limit, x.now+max(x.timeout(a), x.c.Timing.DMax)
	p.limit = limit
	if p.used == p.limit {
		p.end = never
	}
	x.out.push(item{kind: outReturn, a: a, value: limit})
	x.hold(a, p.limit-p.used)
	x.armAssoc(a)
}

// list is a chain of messages; a message can be in one of each sort.
type list struct{ head, tail *message }

type sort bool

const (
	wants sort = false
	haves sort = true
)

func (m *message) links(s sort) (next, prev **message) {
	if s == haves {
		return &m.haveNext, &m.havePrev
	}
	return &m.wantNext, &m.wantPrev
}

func (l *list) pushBack(m *message, s sort) {
	next, prev := m.links(s)
	*next, *prev = nil, l.tail
	if l.tail == nil {
		l.head = m
	} else {
		n, _ := l.tail.links(s)
		*n = m
	}
	l.tail = m
}

func (l *list) pushFront(m *message, s sort) {
	next, prev := m.links(s)
	*next, *prev = l.head, nil
	if l.head == nil {
		l.tail = m
	} else {
		_, p := l.head.links(s)
		*p = m
	}
	l.head = m
}

func (l *list) remove(m *message, s sort) {
	next, prev := m.links(s)
	if *prev == nil {
		l.head = *next
	} else {
		n, _ := (*prev).links(s)
		*n = *next
	}
	if *next == nil {
		l.tail = *prev
	} else {
		_, p := (*next).links(s)
		*p = *prev
	}
	*next, *prev = nil, nil
}
