package receiver

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// waiting fills a small budget with one message, lets others ask, and then frees it.
func waiting(t *testing.T, ask func(c *client)) (*lab, *client) {
	t.Helper()
	l := newLab(t, func(c *Config) { c.G, c.Gu = 20000, -1 })
	block, c := l.client(1), l.client(2)
	block.request(1, 20000, 0)
	l.take(rdcc.TypeCreditGrant)
	ask(c)
	l.none(rdcc.TypeCreditGrant)
	block.data(1, 20000)
	return l, c
}

// orderOf is the order in which messages get their first grants, as they use them up.
func orderOf(l *lab, c *client) (ids []uint64) {
	l.t.Helper()
	for range 1000 {
		grants := l.take(rdcc.TypeCreditGrant)
		if len(grants) == 0 {
			break
		}
		for _, g := range grants {
			id, limit := g.CreditGrant.MessageID, g.CreditGrant.GrantLimit
			ids = append(ids, id)
			if at := l.r.index.get(key{id, c.id, tagMessage}); at >= 0 {
				c.data(id, limit-l.r.messages[at].received)
			}
		}
	}
	return ids
}

func TestOrder_classFirst(t *testing.T) {
	l, c := waiting(t, func(c *client) {
		c.request(1, 9000, 0, class(5))
		c.request(2, 9000, 0, class(3))
		c.request(3, 9000, 0, class(0))
	})
	seen := []uint64{}
	for _, id := range orderOf(l, c) {
		if len(seen) == 0 || seen[len(seen)-1] != id {
			seen = append(seen, id)
		}
	}
	if len(seen) != 3 || seen[0] != 3 || seen[1] != 2 || seen[2] != 1 {
		t.Errorf("served in the order %v, want 3, 2, 1", seen)
	}
}

func TestOrder_deadlineFirst(t *testing.T) {
	l, c := waiting(t, func(c *client) {
		c.request(1, 4000, 0)
		c.request(2, 4000, 0, deadline(900*us))
		c.request(3, 4000, 0, deadline(500*us))
	})
	ids := orderOf(l, c)
	if len(ids) < 3 || ids[0] != 3 || ids[1] != 2 || ids[2] != 1 {
		t.Errorf("served in the order %v, want 3, 2, 1", ids)
	}
}

// TestOrder_pastDeadline: one that has passed has no precedence left.
func TestOrder_pastDeadline(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.request(1, 1<<20, 0, deadline(10*us))
	l.pass(200 * us)
	at := l.r.index.get(key{1, c.id, tagMessage})
	m := &l.r.messages[at]
	m.credit.expired = false
	l.r.want(at)
	l.want("counts as", m.due, int64(0))
}

// TestOrder_weight: within a class credit goes by weight.
func TestOrder_weight(t *testing.T) {
	l, c := waiting(t, func(c *client) {
		c.request(1, 1<<20, 0, weight(1))
		c.request(2, 1<<20, 0, weight(4))
	})
	got := map[uint64]uint64{}
	for n := 0; n < 200; n++ {
		for _, g := range l.take(rdcc.TypeCreditGrant) {
			id, limit := g.CreditGrant.MessageID, g.CreditGrant.GrantLimit
			at := l.r.index.get(key{id, c.id, tagMessage})
			got[id] += limit - l.r.messages[at].received
			c.data(id, limit-l.r.messages[at].received)
			if got[2] > 1<<19 {
				n = 200
			}
		}
	}
	if got[2] < 3*got[1] || got[2] > 5*got[1] {
		t.Errorf("weights 1 and 4 got %d and %d octets", got[1], got[2])
	}
}

// TestCap: one association cannot have all the credit, whatever it asks for.
func TestCap(t *testing.T) {
	l := newLab(t, func(c *Config) { c.MaxCredit = 50000 })
	c := l.client(1)
	for id := range uint64(40) {
		c.request(id+1, 1<<20, 0)
		l.pass(0)
	}
	l.want("charged", l.charged() > 0 && l.charged() <= 50000, true)
	// A fresh association is served from what is left.
	block := l.client(2)
	block.request(1, 1<<20, 0)
	l.pass(300 * us)
	l.want("charged to the other", block.assoc().scheduled > 0 || l.r.Counters.Grants > 1, true)
}

// TestHoarder: who lets credit expire gets less each time and has to wait for it, until data comes again. What it gets is enough for a
// segment (decision 18).
func TestHoarder(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	for range 8 {
		c.request(1, 1<<20, 0)
		l.pass(10 * time.Millisecond)
		l.want("charged", l.charged(), int64(0))
	}
	a := c.assoc()
	l.want("window", l.r.window(a, capacity), int64(300000/16))
	l.take(rdcc.TypeCreditGrant)
	c.request(1, 1<<20, 0)
	l.one(rdcc.TypeCreditGrant)
	l.pass(200 * us)
	c.request(1, 1<<20, 0)
	l.none(rdcc.TypeCreditGrant)
	l.pass(5 * time.Millisecond)
	l.none(rdcc.TypeCreditGrant)
	l.pass(3 * time.Millisecond)
	l.one(rdcc.TypeCreditGrant)
	c.data(1, 1)
	l.want("window", l.r.window(a, capacity) > 300000, true)
	l.pass(time.Millisecond)
	l.take(rdcc.TypeCreditGrant)
	c.request(1, 1<<20, 0)
	l.one(rdcc.TypeCreditGrant)
}

// TestRefresh_bounded: a grant of which nothing arrives is not repeated for ever, so that its rate is for others again.
func TestRefresh_bounded(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.request(1, 1<<20, 0, class(7))
	l.take(rdcc.TypeCreditGrant)
	other := l.client(2)
	other.request(1, 1<<20, 0, class(1))
	l.take(rdcc.TypeCreditGrant)
	grants := 0
	for range 40 {
		l.pass(50 * us)
		c.request(1, 1<<20, 0, class(7))
		for _, g := range l.take(rdcc.TypeCreditGrant) {
			if g.Assoc == other.id {
				grants++
			}
		}
	}
	l.want("grants to the other", grants > 0, true)
}

// TestRefresh_ends: not even where nobody else waits does asking again keep credit alive of which nothing arrives.
func TestRefresh_ends(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	for range 12 {
		c.request(1, 1<<20, 0)
		l.pass(50 * us)
	}
	l.want("reclaims within 600 us", l.r.Counters.Reclaims > 0, true)
}
