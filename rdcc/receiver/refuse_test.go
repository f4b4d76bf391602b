package receiver

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

func TestRefuse_binding(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Bindings = []rdcc.BindingKind{rdcc.BindingRoCEv2} })
	c := l.client(1)
	for kind := range rdcc.BindingKind(4) {
		if kind == rdcc.BindingRoCEv2 {
			continue
		}
		c.request(7, 1000, 0, func(m *rdcc.CreditRequest) { m.BindingKind = kind })
		w := l.one(rdcc.TypeError)
		l.want("ERROR", w.Error, rdcc.Error{Reason: rdcc.ReasonUnsupportedBinding, MessageID: 7})
	}
	l.want("messages", l.r.pending, 0)
}

func TestRefuse_length(t *testing.T) {
	l := newLab(t, func(c *Config) { c.MaxLength = 1 << 20 })
	c := l.client(1)
	for range 2 { // and again: it is not taken for complete
		c.request(1, 1<<20+1, 0)
		l.want("ERROR", l.one(rdcc.TypeError).Error, rdcc.Error{Reason: rdcc.ReasonMessageTooLarge, MessageID: 1})
	}
	c.request(2, 1<<20, 0)
	l.one(rdcc.TypeCreditGrant)
	c.request(1, 1<<20+1, 0)
	l.one(rdcc.TypeError)
}

func TestRefuse_pendingOfOne(t *testing.T) {
	l := newLab(t, func(c *Config) { c.MaxPending = 3 })
	c := l.client(1)
	for id := range uint64(5) {
		c.request(id+1, 1<<20, 0)
	}
	l.want("messages", l.r.pending, 3)
	for _, w := range l.take(rdcc.TypeError) {
		l.want("reason", w.Error.Reason, rdcc.ReasonBudgetExhausted)
	}
	c.send(&rdcc.Cancel{MessageID: 1})
	l.pass(20 * us)
	c.request(4, 1<<20, 0) // the request was kept outstanding
	l.none(rdcc.TypeError)
	l.want("messages", l.r.pending, 3)
}

func TestRefuse_pendingOfAll(t *testing.T) {
	l := newLab(t, func(c *Config) { c.MaxMessages = 4 })
	for n := range 6 {
		l.client(n).request(1, 1<<20, 0)
	}
	l.want("messages", l.r.pending, 4)
	l.want("refusals", len(l.take(rdcc.TypeError)), 2)
}

// TestRefuse_waitsLong: who has waited long is told, and stays in the queue.
func TestRefuse_waitsLong(t *testing.T) {
	l := newLab(t, func(c *Config) { c.ExhaustedAfter = 10 * time.Millisecond; c.G, c.Gu = 20000, -1 })
	block, c := l.client(1), l.client(2)
	p := l.r.Params()
	p.Lifetime = time.Second
	l.r.SetParams(l.now, p)
	block.request(1, 1<<20, 0)
	c.request(1, 1000, 0)
	l.pass(5 * time.Millisecond)
	c.request(1, 1000, 0)
	l.none(rdcc.TypeError)
	l.pass(6 * time.Millisecond)
	c.request(1, 1000, 0)
	l.want("ERROR", l.one(rdcc.TypeError).Error, rdcc.Error{Reason: rdcc.ReasonBudgetExhausted, MessageID: 1})
	l.want("queued", len(c.assoc().queue), 1)
}

// TestExcess: data beyond credit is not accepted, and ends grants for the message; other messages go on.
func TestExcess(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.request(1, 1<<20, 0)
	limit := l.one(rdcc.TypeCreditGrant).CreditGrant.GrantLimit
	c.data(1, limit+5000)
	l.none(rdcc.TypeCreditGrant)
	l.want("accepted", l.r.Counters.AcceptedOctets, limit)
	l.want("excess", l.r.Counters.ExcessOctets, uint64(5000))
	l.pass(time.Millisecond)
	c.request(1, 1<<20, 0)
	l.none(rdcc.TypeCreditGrant)
	found := false
	for _, e := range events(l.r) {
		found = found || e.Kind == Misbehaving && e.Fault == SentBeyondCredit && e.Message == 1
	}
	l.want("event", found, true)
	c.request(2, 1000, 0)
	l.one(rdcc.TypeCreditGrant)
}

// TestExcess_stopsGrants is the same with a message whose budget is far from used up.
func TestExcess_stopsGrants(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.request(1, 1<<20, 4096)
	c.data(1, 4097+1<<19)
	l.take(rdcc.TypeCreditGrant)
	l.pass(time.Millisecond)
	c.request(1, 1<<20, 4096)
	l.none(rdcc.TypeCreditGrant)
}

// TestExcess_approximate: counters of queue pairs may count what was sent again.
func TestExcess_approximate(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.request(1, 1<<20, 0)
	limit := l.one(rdcc.TypeCreditGrant).CreditGrant.GrantLimit
	c.arrive(Arrival{Message: 1, Octets: limit + 5000, Approximate: true})
	l.take(rdcc.TypeCreditGrant)
	l.want("excess", l.r.Counters.ExcessOctets, uint64(0))
	l.want("approximate", l.r.Counters.ApproximateOctets, uint64(5000))
}

// TestEarly: data that comes before its request waits for it and is no fault.
func TestEarly(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.data(1, 6000)
	c.data(1, 2000)
	l.want("faults", l.r.Counters.Faults[SentBeyondCredit], uint64(0))
	c.request(1, 8000, 8000)
	l.want("octets of MSG_DONE", l.one(rdcc.TypeMsgDone).MsgDone.OctetsReceived, uint64(8000))
	l.want("charged", l.charged(), int64(0))
	// It waits while there is room, since it would be missing for ever.
	c.data(2, 5000)
	l.pass(time.Second)
	c.request(2, 8000, 8000)
	l.none(rdcc.TypeMsgDone)
	l.want("dropped", l.r.Counters.EarlyDropped, uint64(0))
	c.data(2, 3000)
	l.one(rdcc.TypeMsgDone)
	c.data(2, 100) // of a message that is complete
	l.want("late", l.r.Counters.DataLate, uint64(100))
}

// TestEarly_isBounded: others' data cannot fill the memory.
func TestEarly_isBounded(t *testing.T) {
	l := newLab(t, func(c *Config) { c.MaxUnattributed = 8 })
	c := l.client(1)
	for id := range uint64(100) {
		c.data(id+1, 10)
	}
	l.want("records", l.r.early.n, 8)
	l.want("keys", l.r.index.n, 8)
	c.request(100, 10, 10)
	l.one(rdcc.TypeMsgDone)
}

// TestRefused_comesLater: messages that found the pending ones at their bound are admitted later, each once, with what they had sent; what was
// never seen is never said to be done, however many holes that leaves (decision 13).
func TestRefused_comesLater(t *testing.T) {
	l := newLab(t, func(c *Config) { c.MaxPending = 2 })
	c := l.client(1)
	early := func(id uint64) uint64 { // one is sent at once, and refused all the same
		if id == 4 {
			return 3000
		}
		return 0
	}
	for id := uint64(1); id <= 12; id++ {
		c.request(id, 3000, early(id))
	}
	c.data(4, 3000)
	left := map[uint64]bool{}
	for id := uint64(1); id <= 12; id++ {
		left[id] = true
	}
	for _, id := range []uint64{1, 2} {
		c.data(id, 3000)
		delete(left, id)
	}
	l.pass(time.Second)
	l.out = nil
	// The others ask again and again, the last first.
	for round := 0; len(left) > 0; round++ {
		if round > 20 {
			t.Fatalf("%d messages are never admitted: %v", len(left), left)
		}
		for id := uint64(12); id > 0; id-- {
			if !left[id] {
				continue
			}
			c.request(id, 3000, early(id))
			if e := l.take(rdcc.TypeError); len(e) > 0 {
				l.want("reason", e[0].Error.Reason, rdcc.ReasonBudgetExhausted)
				continue
			}
			if early(id) == 0 {
				l.none(rdcc.TypeMsgDone) // it has never come
				c.data(id, 3000)
			}
			l.want("MSG_DONE", l.one(rdcc.TypeMsgDone).MsgDone, rdcc.MsgDone{MessageID: id, OctetsReceived: 3000})
			l.out = nil
			delete(left, id)
		}
	}
	l.want("forgotten", l.r.Counters.HolesEvicted, uint64(0))
}

// TestRefused_forgotten: of what lies below holes that were given up it is not known whether it was complete, which is not to say that it was.
func TestRefused_forgotten(t *testing.T) {
	l := newLab(t, func(c *Config) { c.MaxPending, c.Idle = 2, time.Hour })
	c := l.client(1)
	for _, id := range []uint64{3, 6} { // 1, 2, 4 and 5 are never asked for
		c.request(id, 1000, 0)
		c.data(id, 1000)
	}
	l.out = nil
	c.request(9, 1000, 0)
	l.want("reason", l.one(rdcc.TypeError).Error.Reason, rdcc.ReasonBudgetExhausted)
	l.pass(2 * holeAge)
	c.request(9, 1000, 0)
	l.want("given up", l.r.Counters.HolesEvicted, uint64(1))
	l.out = nil
	c.request(1, 1000, 0)
	l.none(rdcc.TypeMsgDone)
	l.want("reason", l.one(rdcc.TypeError).Error, rdcc.Error{Reason: rdcc.ReasonApplicationAbort, MessageID: 1})
}

// TestRefused_oldHoles: a receiver that began anew sees some of a sender's messages, and takes those in between, which were complete
// before, for ones that may come. They leave no room for a new message, until it is clear that nobody asks for them.
func TestRefused_oldHoles(t *testing.T) {
	l := newLab(t, func(c *Config) { c.MaxPending, c.Idle = 2, time.Hour })
	c := l.client(1)
	for _, id := range []uint64{3, 6} {
		c.request(id, 1000, 0)
		c.data(id, 1000)
	}
	asked := time.Duration(0)
	for timeout := 200 * us; ; timeout = min(2*timeout, l.r.cfg.MaxTimeout) {
		l.out = nil
		c.request(9, 1000, 0)
		if len(l.take(rdcc.TypeError)) == 0 {
			break
		}
		if asked > 2*l.r.cfg.MaxTimeout {
			t.Fatalf("refused for %v", asked)
		}
		l.pass(timeout)
		asked += timeout
	}
	l.want("holes given up", l.r.Counters.HolesEvicted, uint64(2))
	l.want("holes", len(c.assoc().holes.spans), 0)
	c.data(9, 1000)
	l.one(rdcc.TypeMsgDone)
}

// TestRefused_overtaken: a new message asks often at first, and an old one that was refused seldom. It is not forgotten for that.
func TestRefused_overtaken(t *testing.T) {
	l := newLab(t, func(c *Config) { c.MaxPending, c.Idle = 2, time.Hour })
	c := l.client(1)
	for _, id := range []uint64{3, 6} {
		c.request(id, 1000, 0)
		c.data(id, 1000)
	}
	l.pass(l.r.cfg.MaxTimeout / 8)
	for timeout := 200 * us; timeout < l.r.cfg.MaxTimeout; timeout *= 2 {
		c.request(9, 1000, 0)
		l.pass(timeout)
		if 2*timeout >= l.r.cfg.MaxTimeout {
			c.request(8, 1000, 0) // its turn comes once in the largest timeout
		}
	}
	c.request(9, 1000, 0)
	l.want("holes given up", l.r.Counters.HolesEvicted, uint64(0))
}

// TestRefused_cancelled: who abandons a message that was refused leaves no hole.
func TestRefused_cancelled(t *testing.T) {
	l := newLab(t, func(c *Config) { c.MaxPending = 2 })
	c := l.client(1)
	for id := uint64(1); id <= 9; id++ {
		c.request(id, 1000, 0)
	}
	for _, id := range []uint64{3, 5, 7} {
		c.send(&rdcc.Cancel{MessageID: id})
	}
	for _, id := range []uint64{1, 2, 4, 6, 8, 9} {
		c.request(id, 1000, 0)
		c.data(id, 1000)
	}
	l.want("done", l.r.Counters.MessagesDone, uint64(6))
	l.want("holes", len(c.assoc().holes.spans), 0)
}

// TestRefused_poolCredit: what a refused message sent with the pool's credit is not missing for the others (decision 4).
func TestRefused_poolCredit(t *testing.T) {
	l := newLab(t, func(c *Config) { c.MaxPending, c.Pool = 2, true })
	c := l.newClient(1)
	c.caps |= rdcc.CapPool
	c.join()
	for id := uint64(1); id <= 3; id++ {
		c.request(id, 5000, 0)
	}
	l.want("limit", l.last(rdcc.TypeCreditGrant).CreditGrant.GrantLimit, uint64(10000))
	c.data(1, 4000)
	c.data(2, 3000)
	c.data(3, 3000) // with the last of the credit
	l.out = nil
	c.request(3, 5000, 0)
	l.want("reason", l.one(rdcc.TypeError).Error.Reason, rdcc.ReasonBudgetExhausted)
	l.want("limit", l.last(rdcc.TypeCreditGrant).CreditGrant.GrantLimit, uint64(13000))
	c.data(1, 1000)
	c.data(2, 2000)
	l.out = nil
	c.request(3, 5000, 0)
	l.want("limit", l.last(rdcc.TypeCreditGrant).CreditGrant.GrantLimit, uint64(15000))
	c.data(3, 2000)
	l.want("done", l.r.Counters.MessagesDone, uint64(3))
	l.want("charged", l.charged(), int64(0))
}
