package receiver

import (
	"fmt"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// oracle is a slow and obvious recount of what may be on its way to the receiver, from nothing but the datagrams that went
// to and fro and the data that arrived. It looks at everything at each instant.
type oracle struct {
	cfg    Config
	assocs map[uint32]*oracleAssoc
}

type oracleAssoc struct {
	us       []int64         // each U that the sender may act on
	holds    []time.Duration // each J and lifetime, together
	pool     bool
	credit   oracleCredit
	received uint64 // in scheduled mode
	messages map[uint64]*oracleMessage
}

type oracleMessage struct {
	length, announced, received uint64
	asked, hold                 time.Duration
	credit                      oracleCredit
	cancelled                   time.Duration // zero: not
	qp                          int           // zero: none
}

type oracleCredit struct {
	grants   []oracleGrant
	returned time.Duration // when the New Limit holds; zero: none
	newLimit uint64
}

type oracleGrant struct {
	limit    uint64
	rate     int64
	sent     time.Duration
	lifetime time.Duration
}

// limit is the offset up to which the sender may still send, or what it sent may still be on its way.
func (c *oracleCredit) limit(now, dmax time.Duration) (limit uint64) {
	alive := false
	for _, g := range c.grants {
		alive = alive || now < g.sent+g.lifetime+2*dmax
		limit = max(limit, g.limit)
	}
	if !alive {
		return 0
	}
	if c.returned != 0 && now >= c.returned {
		return min(limit, c.newLimit)
	}
	return limit
}

// rate is the highest at which the sender may be sending.
func (c *oracleCredit) rate(now, dmax time.Duration, received uint64) (rate int64) {
	for _, g := range c.grants {
		limit := g.limit
		if c.returned != 0 && now >= c.returned {
			limit = min(limit, c.newLimit)
		}
		if now < g.sent+g.lifetime+2*dmax && received < limit {
			rate = max(rate, g.rate)
		}
	}
	return rate
}

func (c *oracleCredit) grant(w *wire) {
	if c.returned != 0 && w.at >= c.returned { // what the sender gave back does not come again with another grant
		for i := range c.grants {
			c.grants[i].limit = min(c.grants[i].limit, c.newLimit)
		}
	}
	c.grants = append(c.grants, oracleGrant{w.CreditGrant.GrantLimit, int64(w.CreditGrant.PacingRate), w.at, w.CreditGrant.Lifetime.Duration()})
	c.returned = 0 // a grant after a return counts in full
}

func less(a, b uint64) int64 {
	if b >= a {
		return 0
	}
	return int64(a - b)
}

// count is the sum over all, in total and of what is unscheduled, the sum of rates and the sum of U.
func (o *oracle) count(now time.Duration) (total, unscheduled, rates, us int64) {
	dmax := o.cfg.Fabric.DMax
	for _, a := range o.assocs {
		most := int64(0)
		for _, u := range a.us {
			most = max(most, u)
		}
		us += most
		if a.pool {
			total += less(a.credit.limit(now, dmax), a.received)
			rates += a.credit.rate(now, dmax, a.received)
		}
		var qps [3]int64 // of each the highest: one message of it is sent at a time
		for _, m := range a.messages {
			if m.cancelled != 0 && now >= m.cancelled+2*dmax {
				continue
			}
			out := less(m.credit.limit(now, dmax), m.received)
			if len(m.credit.grants) == 0 && now < m.asked+m.hold {
				u := less(m.announced, m.received)
				unscheduled += u
				out = max(out, u)
			}
			total += out
			if rate := m.credit.rate(now, dmax, m.received); m.qp != 0 {
				qps[m.qp] = max(qps[m.qp], rate)
			} else {
				rates += rate
			}
		}
		rates += qps[1] + qps[2]
	}
	return total, unscheduled, rates, us
}

// sent sees a datagram of the receiver.
func (o *oracle) sent(w *wire) {
	a := o.assocs[w.Assoc]
	switch w.Type {
	case rdcc.TypeAssocAccept:
		if a == nil {
			a = &oracleAssoc{messages: map[uint64]*oracleMessage{}}
			o.assocs[w.Assoc] = a
		}
		a.us = append(a.us, int64(w.AssocAccept.UnscheduledLimit))
		a.holds = append(a.holds, w.AssocAccept.StartJitter.Duration()+w.AssocAccept.GrantLifetime.Duration())
	case rdcc.TypeCreditGrant:
		if w.Flags&rdcc.FlagPool != 0 {
			a.pool = true
			a.credit.grant(w)
		} else if m := a.messages[w.CreditGrant.MessageID]; m != nil {
			m.credit.grant(w)
		}
	case rdcc.TypeMsgDone:
		delete(a.messages, w.MsgDone.MessageID)
	}
}

// dump is what the receiver and the recount have, for a failure.
func (w *world) dump() string {
	s := ""
	for id, o := range w.oracle.assocs {
		i, ok := w.r.byID[id]
		if !ok {
			s += fmt.Sprintf("%x gone\n", id)
			continue
		}
		a := &w.r.assocs[i]
		s += fmt.Sprintf("%x %v pool %v: limit %d held %d received %d | oracle limit %d received %d\n", id, a.addr, a.pool, a.poolCredit.limit, a.poolCredit.held, a.poolReceived, o.credit.limit(w.now, w.r.cfg.Fabric.DMax), o.received)
		for mid, m := range o.messages {
			at := w.r.index.get(key{mid, id, tagMessage})
			if at < 0 {
				s += fmt.Sprintf("   %d: oracle %+v, not here\n", mid, m)
				continue
			}
			rm := &w.r.messages[at]
			s += fmt.Sprintf("   %d: oracle ann %d rec %d lim %d asked %v cancelled %v| ann %d rec %d unsched %d held %d limit %d release %v bad %v presumed %v cancelled %v\n", mid, m.announced, m.received, m.credit.limit(w.now, w.r.cfg.Fabric.DMax), m.asked, m.cancelled, rm.announced, rm.received, rm.unscheduled, rm.credit.held, rm.credit.limit, rm.release, rm.bad, rm.presumed, rm.cancelled)
		}
	}
	return s
}
