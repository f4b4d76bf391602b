package world

import (
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// receiverOracle recounts what may be on its way to a receiver, from the datagrams that went to and fro and the data that came, by
// decisions 1 to 3: each octet once, whatever was granted at most, until no grant can be used any more.
type receiverOracle struct {
	r        *rhost
	assocs   map[uint32]*rassoc
	d        rdcc.Datagram
	reported bool // what is sent now may be an answer to a report
}

type rassoc struct {
	addr     netip.AddrPort
	sender   int
	newest   uint32
	some     bool
	u        uint64
	hold     time.Duration
	pool     rcredit
	isPool   bool
	messages map[uint64]*rmsg
	done     map[uint64]bool
	got      map[uint64]uint64 // octets that came, by message: of those that are not known yet, too
}

type rmsg struct {
	length, announced uint64
	asked, hold       time.Duration
	credit            rcredit
	cancelled         time.Duration // when it ends; 0: not
	presumed          bool
}

type rcredit struct {
	received uint64
	limit    uint64        // the highest that was sent
	until    time.Duration // when none can be used any more
	returned time.Duration // when newLimit holds; 0: none
	newLimit uint64
	sent     time.Duration // the last grant
	rates    []rrate
	rate     int64 // of the last grant
}

type rrate struct {
	limit uint64
	until time.Duration
	rate  int64
}

func (o *receiverOracle) init(r *rhost) { o.r, o.assocs = r, map[uint32]*rassoc{} }

func (o *receiverOracle) made(id uint32, addr netip.AddrPort) {
	if o.assocs[id] == nil {
		o.assocs[id] = o.fresh(addr)
	}
}

func (o *receiverOracle) fresh(addr netip.AddrPort) *rassoc {
	a := &rassoc{addr: addr, sender: -1, messages: map[uint64]*rmsg{}, done: map[uint64]bool{}, got: map[uint64]uint64{}}
	if k, ok := o.r.w.byAddr[addr]; ok && k < 0 {
		a.sender = -1 - k
	}
	return a
}

func (o *receiverOracle) gone(id uint32) { delete(o.assocs, id) }

// message is the scenario's message that an association and a Message ID name.
func (o *receiverOracle) message(assoc uint32, id uint64) *message {
	a := o.assocs[assoc]
	if a == nil || a.sender < 0 {
		return nil
	}
	return o.r.byWire[uint64(a.sender)<<48|id]
}

// receives sees what comes, before the machine does.
func (o *receiverOracle) receives(from netip.AddrPort, b []byte) {
	d, now := &o.d, o.r.local()
	if d.Decode(b) != nil {
		return
	}
	a := o.assocs[d.Assoc]
	if a == nil || a.addr != from || d.Epoch != o.r.epoch || a.some && !rdcc.Newer(d.Seq, a.newest) {
		return
	}
	a.newest, a.some = d.Seq, true
	switch d.Type {
	case rdcc.TypeCreditRequest:
		q := &d.CreditRequest
		m := a.messages[q.MessageID]
		if m == nil {
			if a.done[q.MessageID] {
				return
			}
			m = &rmsg{length: q.MessageLength, announced: q.UnscheduledSent, asked: now, hold: a.hold}
			others := uint64(0)
			for _, x := range a.messages {
				if x.credit.limit == 0 && now < x.asked+x.hold {
					others += x.announced - min(x.announced, x.credit.received)
				}
			}
			m.presumed = m.announced > 0 && others+m.announced > a.u
			a.messages[q.MessageID] = m
			m.credit.received = min(a.got[q.MessageID], m.length)
		} else if q.UnscheduledSent < m.announced && m.credit.limit == 0 {
			m.announced = max(q.UnscheduledSent, m.credit.received)
		}
	case rdcc.TypeCancel:
		if m := a.messages[d.Cancel.MessageID]; m != nil && m.cancelled == 0 {
			m.cancelled = now + 2*o.r.w.s.Fabric.DMax
		}
	case rdcc.TypeCreditReturn:
		c := &a.pool
		if d.CreditReturn.MessageID != 0 {
			m := a.messages[d.CreditReturn.MessageID]
			if m == nil {
				return
			}
			c = &m.credit
		}
		if n := d.CreditReturn.NewLimit; n >= c.received && n < c.limit {
			c.returned, c.newLimit = max(now, c.sent+o.r.w.s.Fabric.DMax), n
		}
	}
}

// data sees octets arrive.
func (o *receiverOracle) data(p *packet, n uint64) {
	a := o.assocs[p.assoc]
	if a == nil {
		return
	}
	if !p.unscheduled {
		a.pool.received += n
	}
	a.got[p.m.wire] += n
	if q := a.messages[p.m.wire]; q != nil {
		q.presume(o.r.local())
		q.credit.received = min(q.credit.received+n, q.length)
	}
}

// before is what the transport has of a message that came under no association of this life; false when nothing was announced.
func (o *receiverOracle) before(assoc uint32, m *message) (uint64, bool) {
	a := o.assocs[assoc]
	q := a.messages[m.wire]
	if q == nil || q.announced == 0 {
		return 0, false
	}
	n := m.arrived - min(m.arrived, a.got[m.wire])
	q.presumed = false
	q.credit.received = min(q.credit.received+min(n, q.announced), q.length)
	return n, true
}

// presume: what was sent before the receiver lost its state has arrived by the time when all that was announced must have (decision 15).
func (m *rmsg) presume(now time.Duration) {
	if m.presumed && now >= m.asked+m.hold {
		m.presumed = false
		m.credit.received = max(m.credit.received, m.announced)
	}
}

// sends sees what the receiver says.
func (o *receiverOracle) sends(to netip.AddrPort, b []byte) {
	d, w, now := &o.d, o.r.w, o.r.local()
	if err := d.Decode(b); err != nil {
		w.fail("wire", "r%d sends what cannot be read: %v", o.r.i, err)
		return
	}
	a := o.assocs[d.Assoc]
	switch d.Type {
	case rdcc.TypeAssocAccept:
		if a == nil {
			a = o.fresh(to)
			o.assocs[d.Assoc] = a
		}
		p := &d.AssocAccept
		a.u = max(a.u, uint64(p.UnscheduledLimit))
		a.hold = max(a.hold, p.StartJitter.Duration()+p.GrantLifetime.Duration()+2*w.s.Fabric.DMax)
	case rdcc.TypeCreditGrant:
		if a == nil || a.addr != to {
			w.fail("wire", "r%d grants to %x at %v, which is not there", o.r.i, d.Assoc, to)
			return
		}
		o.grants(a, now)
	case rdcc.TypeMsgDone:
		if a == nil {
			return
		}
		id := d.MsgDone.MessageID
		if m := o.message(d.Assoc, id); m != nil && d.MsgDone.OctetsReceived != m.Length {
			w.fail("whole", "r%d says that m%d is done with %d octets of %d", o.r.i, m.n, d.MsgDone.OctetsReceived, m.Length)
		} else if m != nil && o.r.lives == 1 && w.senders[m.From].lives() == 1 && m.arrived != m.Length {
			w.fail("whole", "r%d says that m%d is done, and %d octets of %d have arrived", o.r.i, m.n, m.arrived, m.Length)
		}
		if m := o.message(d.Assoc, id); m != nil {
			m.said = true
		}
		delete(a.messages, id)
		a.done[id] = true
	case rdcc.TypeCancel:
		if a == nil {
			return
		}
		if m := a.messages[d.Cancel.MessageID]; m != nil && m.cancelled == 0 {
			m.cancelled = now + 2*w.s.Fabric.DMax
		}
	case rdcc.TypeError:
		if a != nil && d.Error.MessageID != 0 && a.messages[d.Error.MessageID] != nil && a.messages[d.Error.MessageID].credit.limit == 0 {
			// One that has waited for a second is told so, and stays in the queue (Error Handling and Recovery).
			m := a.messages[d.Error.MessageID]
			if d.Error.Reason != rdcc.ReasonBudgetExhausted || m.announced == 0 && now-m.asked < time.Second {
				delete(a.messages, d.Error.MessageID)
			}
		}
	}
}

// grants sees a grant.
func (o *receiverOracle) grants(a *rassoc, now time.Duration) {
	g, w := &o.d.CreditGrant, o.r.w
	c := &a.pool
	switch {
	case g.PacingRate == 0:
		w.fail("rates", "r%d grants with a rate of zero", o.r.i)
	case o.d.Flags&rdcc.FlagPool != 0:
		a.isPool = true
	default:
		m := a.messages[g.MessageID]
		if m == nil || g.GrantLimit > m.length {
			w.fail("wire", "r%d grants %d octets of message %d of s%d", o.r.i, g.GrantLimit, g.MessageID, a.sender)
			return
		}
		if m.cancelled != 0 {
			w.fail("cancel", "r%d grants to a message that is cancelled", o.r.i)
		}
		c = &m.credit
	}
	if c.returned != 0 && now >= c.returned {
		c.limit = min(c.limit, c.newLimit)
	}
	if o.reported && c.rate > 0 && int64(g.PacingRate) > c.rate {
		w.fail("report", "a report raised the rate of s%d from %d to %d Mbit/s", a.sender, c.rate, g.PacingRate)
	}
	until := now + g.Lifetime.Duration() + 2*w.s.Fabric.DMax
	c.returned = 0
	c.limit, c.until, c.sent = max(c.limit, g.GrantLimit), max(c.until, until), now
	c.rate = int64(g.PacingRate)
	c.rates = append(c.rates, rrate{g.GrantLimit, until, c.rate})
	o.sum(now)
}

// left is what may still come under grants.
func (c *rcredit) left(now time.Duration, received uint64) int64 {
	limit := c.limit
	if now >= c.until {
		return 0
	}
	if c.returned != 0 && now >= c.returned {
		limit = min(limit, c.newLimit)
	}
	return int64(limit - min(limit, received))
}

// live is the highest rate of a grant that may still be used.
func (c *rcredit) live(now time.Duration, received uint64) (rate int64) {
	kept := c.rates[:0]
	for _, x := range c.rates {
		limit := x.limit
		if c.returned != 0 && now >= c.returned {
			limit = min(limit, c.newLimit)
		}
		if now < x.until && received < limit {
			rate = max(rate, x.rate)
			kept = append(kept, x)
		}
	}
	c.rates = kept
	return rate
}

// sum holds all that may be on its way against G, and all rates against the link.
func (o *receiverOracle) sum(now time.Duration) {
	total, rates := int64(0), int64(0)
	for _, a := range o.assocs {
		if a.isPool {
			total += a.pool.left(now, a.pool.received)
			rates += a.pool.live(now, a.pool.received)
		}
		unscheduled := int64(0)
		for _, m := range a.messages {
			if m.cancelled != 0 && now >= m.cancelled {
				continue
			}
			m.presume(now)
			received := m.credit.received
			if m.presumed {
				received = max(received, m.announced)
			}
			total += m.credit.left(now, received)
			rates += m.credit.live(now, received)
			if m.credit.limit == 0 && now < m.asked+m.hold {
				unscheduled += int64(m.announced - min(m.announced, received))
			}
		}
		total += min(unscheduled, int64(a.u))
	}
	if total > o.r.G {
		o.r.w.fail("budget", "%d octets may be on their way to r%d, G is %d", total, o.r.i, o.r.G)
	}
	if most := o.r.w.s.Fabric.Capacity() / 1e6; rates > most {
		o.r.w.fail("rates", "r%d has granted %d Mbit/s, its link carries %d", o.r.i, rates, most)
	}
}
