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
	// It does not wait for ever.
	c.data(2, 5000)
	l.pass(time.Millisecond)
	c.request(2, 8000, 8000)
	l.none(rdcc.TypeMsgDone)
	l.want("dropped", l.r.Counters.EarlyDropped, uint64(5000))
	c.data(2, 8000)
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
