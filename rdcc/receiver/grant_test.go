package receiver

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

func TestGrant_wholeExchange(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	const length = 4 << 20
	c.request(1, length, 0)
	limit, received := uint64(0), uint64(0)
	for received < length {
		grants := l.take(rdcc.TypeCreditGrant)
		if len(grants) == 0 {
			t.Fatalf("no grant after %d octets of %d granted", received, limit)
		}
		for _, g := range grants {
			m := g.CreditGrant
			l.want("limit rises", m.GrantLimit > limit, true)
			l.want("within the length", m.GrantLimit <= length, true)
			l.want("FINAL only with the whole length", g.Flags&rdcc.FlagFinal != 0, m.GrantLimit == length)
			limit = m.GrantLimit
		}
		l.now += 10 * us
		c.data(1, limit-received)
		received = limit
	}
	l.want("octets of MSG_DONE", l.one(rdcc.TypeMsgDone).MsgDone.OctetsReceived, uint64(length))
	l.want("charged", l.charged(), int64(0))
}

func TestGrant_final(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.request(1, 5000, 0)
	g := l.one(rdcc.TypeCreditGrant)
	l.want("limit", g.CreditGrant.GrantLimit, uint64(5000))
	l.want("FINAL", g.Flags, rdcc.FlagFinal)
}

func TestGrant_notBeyondLength(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	for id, n := range []uint64{1, 4095, 5000, 200000} {
		c.request(uint64(id)+1, n, 0)
		for _, g := range l.take(rdcc.TypeCreditGrant) {
			l.want("within the length", g.CreditGrant.GrantLimit <= n, true)
		}
		c.data(uint64(id)+1, n)
	}
}

// TestGrant_budget: what many ask for at once is not granted beyond G.
func TestGrant_budget(t *testing.T) {
	l := newLab(t, func(c *Config) { c.G, c.Gu, c.MaxCredit = 100000, 20000, 1<<20 })
	granted := uint64(0)
	for n := range 40 {
		l.client(n).request(1, 1<<20, 0)
	}
	for _, g := range l.take(rdcc.TypeCreditGrant) {
		granted += g.CreditGrant.GrantLimit
	}
	l.want("granted within G_s", granted > 40000 && granted <= 80000, true)
	l.want("invariant violations", l.r.Counters.InvariantViolations, uint64(0))
}

// TestGrant_wholeUnits: nobody can use credit for a part of a packet. What is left over of G, of a window or of the credit that one
// sender may hold is for the next whole one.
func TestGrant_wholeUnits(t *testing.T) {
	for _, senders := range []int{1, 2, 7} {
		l := newLab(t, func(c *Config) { c.G, c.Gu, c.MaxCredit = 123457, -1, 36001 })
		unit := uint64(l.r.cfg.CreditUnit)
		got := make(map[uint32]uint64)
		limits := make(map[uint32]uint64)
		clients := make(map[uint32]*client)
		for n := range senders {
			c := l.client(n)
			clients[c.id] = c
			c.request(1, 1<<20+1, 0)
		}
		for range 50 {
			for _, g := range l.take(rdcc.TypeCreditGrant) {
				limit := g.CreditGrant.GrantLimit
				l.want("grants end with a Credit Unit or the message", limit%unit == 0 || limit == 1<<20+1, true)
				got[g.Assoc] = max(got[g.Assoc], limit)
			}
			l.pass(5 * us)
			for id, limit := range got {
				clients[id].data(1, limit-limits[id])
				delete(got, id)
				limits[id] = limit
			}
		}
		for id := range clients {
			l.want("grants go on", limits[id] > 1<<19, true)
		}
	}
}

// reclaimed lets one message have credit and returns the time of its only grant.
func reclaimed(t *testing.T, mods ...func(*Config)) (*lab, *client, wire) {
	t.Helper()
	l := newLab(t, mods...)
	c := l.client(1)
	c.request(1, 1<<20, 0)
	return l, c, l.one(rdcc.TypeCreditGrant)
}

// TestReclaim_time: the lifetime of 100 µs and 2 D_max of 16 µs after the grant.
func TestReclaim_time(t *testing.T) {
	l, c, g := reclaimed(t)
	held := int64(g.CreditGrant.GrantLimit)
	l.pass(115 * us)
	l.want("charged just before", l.charged(), held)
	l.pass(3 * us)
	l.want("charged just after", l.charged(), int64(0))
	l.want("reclaimed", l.r.Counters.ReclaimedOctets, uint64(held))
	l.none(rdcc.TypeCreditGrant) // it must ask again
	c.request(1, 1<<20, 0)
	l.one(rdcc.TypeCreditGrant)
}

// TestReclaim_afterAllGrants: a later grant with a shorter lifetime may be lost, and the sender then lives by the earlier.
func TestReclaim_afterAllGrants(t *testing.T) {
	l, c, _ := reclaimed(t)
	l.pass(10 * us)
	p := l.r.Params()
	p.Lifetime = 20 * us
	l.r.SetParams(l.now, p)
	c.request(1, 1<<20, 0) // answered with the shorter lifetime
	l.want("lifetime", l.one(rdcc.TypeCreditGrant).CreditGrant.Lifetime, rdcc.Micros(20))
	l.pass(105 * us)
	l.want("charged just before the first grant's end", l.charged() > 0, true)
	l.pass(3 * us)
	l.want("charged just after", l.charged(), int64(0))
}

// TestGrant_neverBelow: a smaller grant would revive the limit that the sender had (decision 1), and that one is charged.
func TestGrant_neverBelow(t *testing.T) {
	l, c, first := reclaimed(t)
	c.data(1, 1000)
	l.take(rdcc.TypeCreditGrant)
	l.pass(200 * us)
	l.want("charged", l.charged(), int64(0))
	c.send(&rdcc.SenderStatus{SuggestedRate: 2048}) // a small window now
	c.request(1, 1<<20, 0)
	g := l.one(rdcc.TypeCreditGrant)
	l.want("not below the limit that was sent", g.CreditGrant.GrantLimit >= first.CreditGrant.GrantLimit, true)
	l.want("charged in full", l.charged(), int64(g.CreditGrant.GrantLimit)-1000)
}

// TestCancel_reclaims: no earlier than 2 D_max after it was received.
func TestCancel_reclaims(t *testing.T) {
	l, c, g := reclaimed(t)
	c.send(&rdcc.Cancel{MessageID: 1, Reason: rdcc.ReasonApplicationAbort})
	l.pass(15 * us)
	l.want("charged just before", l.charged(), int64(g.CreditGrant.GrantLimit))
	l.pass(3 * us)
	l.want("charged just after", l.charged(), int64(0))
	l.want("messages", l.r.pending, 0)
}

// TestCancel_byReceiver: a request that the CANCEL missed is answered with it again, however late it comes.
func TestCancel_byReceiver(t *testing.T) {
	l, c, _ := reclaimed(t)
	if !l.r.Cancel(l.now, c.id, 1) || l.r.Cancel(l.now, c.id, 1) || l.r.Cancel(l.now, c.id, 2) || l.r.Cancel(l.now, 12345, 1) {
		t.Error("Cancel says whether there was something to cancel")
	}
	l.one(rdcc.TypeCancel)
	c.request(1, 1<<20, 0)
	l.one(rdcc.TypeCancel)
	l.pass(20 * us)
	l.want("charged", l.charged(), int64(0))
	c.request(1, 1<<20, 0)
	l.one(rdcc.TypeCancel)
	l.none(rdcc.TypeCreditGrant)
	l.pass(2 * time.Second)
	l.want("messages", l.r.pending, 0)
	c.request(1, 1<<20, 0)
	l.none(rdcc.TypeMsgDone) // it never was
	l.none(rdcc.TypeCreditGrant)
	l.one(rdcc.TypeCancel)
}

// TestReturn_waits: a grant may be on its way, so what is returned is free D_max after the last grant.
func TestReturn_waits(t *testing.T) {
	l, c, g := reclaimed(t)
	c.send(&rdcc.CreditReturn{MessageID: 1, NewLimit: 5000})
	l.pass(7 * us)
	l.want("charged just before", l.charged(), int64(g.CreditGrant.GrantLimit))
	l.pass(3 * us)
	l.want("charged just after", l.charged(), int64(5000))
	l.want("returned", l.r.Counters.ReturnedOctets, g.CreditGrant.GrantLimit-5000)
	c.data(1, 5000)
	l.none(rdcc.TypeCreditGrant) // until it asks again
	c.request(1, 1<<20, 0)
	l.one(rdcc.TypeCreditGrant)
}

// TestReturn_nonsense: above what was granted, below what has arrived, of an unknown message.
func TestReturn_nonsense(t *testing.T) {
	l, c, g := reclaimed(t)
	l.pass(50 * us)
	c.data(1, 8000)
	held := l.charged()
	for _, m := range []rdcc.CreditReturn{{MessageID: 1, NewLimit: 7999}, {MessageID: 1, NewLimit: g.CreditGrant.GrantLimit + 1<<20}, {MessageID: 2}, {}} {
		c.send(&m)
	}
	l.want("charged", l.charged(), held)
	l.want("unmatched", l.r.Counters.ReturnsUnmatched, uint64(4))
}

func TestDone(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.request(1, 5000, 0)
	c.data(1, 4999)
	l.none(rdcc.TypeMsgDone)
	c.data(1, 1)
	d := l.one(rdcc.TypeMsgDone)
	l.want("MSG_DONE", d.MsgDone, rdcc.MsgDone{MessageID: 1, OctetsReceived: 5000})
	c.request(2, 0, 0) // of no length
	l.want("MSG_DONE", l.one(rdcc.TypeMsgDone).MsgDone, rdcc.MsgDone{MessageID: 2})
}

// TestDone_again: on demand for what is complete, never for what was not seen.
func TestDone_again(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	for _, id := range []uint64{1, 2, 5} {
		c.request(id, 1000, 0)
		c.data(id, 1000)
	}
	l.take(rdcc.TypeMsgDone)
	c.request(2, 1000, 0)
	l.want("MSG_DONE again", l.one(rdcc.TypeMsgDone).MsgDone, rdcc.MsgDone{MessageID: 2, OctetsReceived: 1000})
	c.request(4, 1000, 0) // its first request was lost
	l.none(rdcc.TypeMsgDone)
	c.data(4, 1000)
	l.one(rdcc.TypeMsgDone)
	c.request(3, 1000, 0)
	l.none(rdcc.TypeMsgDone)
}

// TestRefresh: a grant that was lost is sent again on demand, at no cost.
func TestRefresh(t *testing.T) {
	l, c, g := reclaimed(t)
	held := l.charged()
	l.pass(50 * us)
	c.request(1, 1<<20, 0)
	again := l.one(rdcc.TypeCreditGrant)
	l.want("limit", again.CreditGrant.GrantLimit, g.CreditGrant.GrantLimit)
	l.want("charged", l.charged(), held)
	l.pass(100 * us) // it lives from the second on
	l.want("charged", l.charged(), held)
}
