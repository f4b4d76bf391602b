package receiver

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

func pooled(c *Config) { c.Pool = true }

func TestPool_needsTheCapability(t *testing.T) {
	l := newLab(t, pooled)
	c := l.newClient(1)
	c.caps = rdcc.CapStatus
	c.join()
	c.request(1, 10000, 0)
	g := l.one(rdcc.TypeCreditGrant)
	l.want("POOL", g.Flags&rdcc.FlagPool, uint16(0))
	l.want("Message ID", g.CreditGrant.MessageID, uint64(1))
}

// TestPool_limit: cumulative over the association's life, no more than was announced, never FINAL.
func TestPool_limit(t *testing.T) {
	l := newLab(t, pooled)
	c := l.client(1)
	limit := uint64(0)
	take := func() {
		t.Helper()
		for _, g := range l.take(rdcc.TypeCreditGrant) {
			l.want("flags", g.Flags, rdcc.FlagPool)
			l.want("Message ID", g.CreditGrant.MessageID, uint64(0))
			limit = g.CreditGrant.GrantLimit
		}
	}
	c.request(1, 5000, 0)
	take()
	l.want("limit", limit, uint64(5000))
	c.request(2, 3000, 3000) // unscheduled octets are none of the pool's
	c.data(2, 3000)
	c.data(1, 5000)
	take()
	l.want("limit", limit, uint64(5000))
	l.want("MSG_DONE", len(l.take(rdcc.TypeMsgDone)), 2)
	c.request(3, 6000, 0)
	take()
	l.want("limit counts what is finished", limit, uint64(11000))
	l.want("charged", l.charged(), int64(6000))
	c.data(3, 6000)
	l.want("charged", l.charged(), int64(0))
}

func TestPool_cancelFreesNothing(t *testing.T) {
	l := newLab(t, pooled)
	c := l.client(1)
	c.request(1, 50000, 0)
	held := l.charged()
	c.send(&rdcc.Cancel{MessageID: 1})
	l.pass(40 * us)
	l.want("messages", l.r.pending, 0)
	l.want("charged", l.charged(), held)
	l.pass(100 * us)
	l.want("charged at the end of the grant", l.charged(), int64(0))
}

// TestPool_outOfStep: what was lost of a cancelled message counts in the sender's offset and not in the receiver's, so that its grants
// end before what the sender can use. After some requests in vain the association begins anew, and offsets with it.
func TestPool_outOfStep(t *testing.T) {
	l := newLab(t, pooled)
	c := l.client(1)
	c.request(1, 50000, 0)
	c.data(1, 10000) // 40000 more were sent, and lost
	c.send(&rdcc.Cancel{MessageID: 1})
	l.pass(time.Millisecond)
	for range maxVain + 2 { // the first is new, the second repeated
		l.take(rdcc.TypeError)
		l.take(rdcc.TypeCreditGrant)
		c.request(2, 3000, 0) // the sender has no use for a limit of 13000
		l.pass(time.Millisecond)
	}
	l.want("associations", l.r.live, 0)
	l.want("reason", l.one(rdcc.TypeError).Error.Reason, rdcc.ReasonUnknownAssociation)
	l.want("charged", l.charged(), int64(0))
	again := l.client(1)
	again.request(2, 3000, 0)
	l.want("limit", l.one(rdcc.TypeCreditGrant).CreditGrant.GrantLimit, uint64(3000))
}

// TestPool_outOfStepWhileGranted: what was granted last is over first, and no further request is waited for: the next one may be 100 ms away.
func TestPool_outOfStepWhileGranted(t *testing.T) {
	l := newLab(t, pooled)
	c := l.client(1)
	c.request(1, 50000, 0)
	c.data(1, 10000)
	c.send(&rdcc.Cancel{MessageID: 1})
	l.pass(time.Millisecond)
	for range maxVain + 2 {
		c.request(2, 3000, 0)
		l.pass(10 * us)
	}
	l.want("associations while credit is under way", l.r.live, 1)
	l.take(rdcc.TypeError)
	l.pass(5 * time.Millisecond)
	l.want("associations", l.r.live, 0)
	l.want("reason", l.one(rdcc.TypeError).Error.Reason, rdcc.ReasonUnknownAssociation)
	l.want("charged", l.charged(), int64(0))
}

// TestPool_inStep: a sender that waits for credit keeps its association however often it asks, and so does one that uses what it gets.
func TestPool_inStep(t *testing.T) {
	l := newLab(t, pooled)
	c, other := l.client(1), l.client(2)
	other.request(1, 1<<20, 0)
	for i := range 3 * maxVain {
		c.request(1, 30000, 0)
		l.pass(time.Millisecond)
		c.data(1, uint64(i+1)*1000)
	}
	l.want("associations", l.r.live, 2)
	l.r.cfg.G = l.r.cfg.Gu // nothing is free
	for range 3 * maxVain {
		c.request(2, 30000, 0)
		l.pass(time.Millisecond)
	}
	l.want("associations", l.r.live, 2)
}

// TestPool_return: CREDIT_RETURN with Message ID 0.
func TestPool_return(t *testing.T) {
	l := newLab(t, pooled)
	c := l.client(1)
	c.request(1, 50000, 0)
	l.pass(10 * us)
	c.send(&rdcc.CreditReturn{MessageID: 1, NewLimit: 10})
	c.send(&rdcc.CreditReturn{NewLimit: 10000})
	l.want("charged", l.charged(), int64(10000))
}

// TestPool_excess: octets beyond the pool's limit end its grants.
func TestPool_excess(t *testing.T) {
	l := newLab(t, pooled)
	c := l.client(1)
	c.request(1, 10000, 0)
	c.request(2, 1<<20, 0)
	l.take(rdcc.TypeCreditGrant)
	c.data(2, 1<<19)
	c.request(3, 1<<20, 0)
	l.none(rdcc.TypeCreditGrant)
	l.want("faults", l.r.Counters.Faults[SentBeyondCredit], uint64(1))
}
