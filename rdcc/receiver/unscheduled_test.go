package receiver

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// old lets an association's first moments pass, in which it may still announce what it sent to the incarnation before.
func (c *client) old() *client {
	for range 30 { // silence does not make it older
		c.l.pass(40 * time.Millisecond)
		c.send(&rdcc.SenderStatus{})
	}
	return c
}

func TestUnscheduled_releasedOnArrival(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.request(1, 10000, 10000)
	l.want("reserved", l.r.unscheduled, int64(10000))
	c.data(1, 4000)
	l.want("reserved after 4000", l.r.unscheduled, int64(6000))
	c.data(1, 6000)
	l.want("reserved after all", l.r.unscheduled, int64(0))
	l.want("octets of MSG_DONE", l.one(rdcc.TypeMsgDone).MsgDone.OctetsReceived, uint64(10000))
}

// TestUnscheduled_releasedInTime: J 16 µs, lifetime 100 µs and 2 D_max 16 µs after the request.
func TestUnscheduled_releasedInTime(t *testing.T) {
	l := newLab(t)
	c := l.client(1).old()
	c.request(1, 10000, 10000)
	c.data(1, 3000)
	l.pass(131 * us)
	l.want("reserved just before", l.r.unscheduled, int64(7000))
	l.pass(3 * us)
	l.want("reserved just after", l.r.unscheduled, int64(0))
	l.want("released", l.r.Counters.ReleasedOctets, uint64(7000))
	c.data(1, 7000) // sent again by the transport, it is no fault
	l.one(rdcc.TypeMsgDone)
	l.want("faults", l.r.Counters.Faults[SentBeyondCredit], uint64(0))
}

func TestUnscheduled_restated(t *testing.T) {
	l := newLab(t)
	c := l.client(1).old()
	c.request(1, 12000, 12000)
	c.data(1, 1000)
	c.request(1, 12000, 2000) // stopped by a report after 2000
	l.want("announced on G_u, or moved to G_s with the grant", l.r.unscheduled, int64(0))
	g := l.one(rdcc.TypeCreditGrant)
	l.want("limit", g.CreditGrant.GrantLimit, uint64(12000))
	l.want("charged once", l.charged(), int64(11000))
	l.want("restated", l.r.Counters.Restated, uint64(1))
}

// TestUnscheduled_counted once: what was announced and not yet here moves to G_s with the first grant.
func TestUnscheduled_countedOnce(t *testing.T) {
	l := newLab(t)
	c := l.client(1).old()
	c.request(1, 50000, 10000)
	g := l.take(rdcc.TypeCreditGrant)
	l.want("grants", len(g), 1)
	l.want("charged", l.charged(), int64(g[0].CreditGrant.GrantLimit))
	l.want("of it on G_u", l.r.unscheduled, int64(0))
}

func TestUnscheduled_lies(t *testing.T) {
	for _, x := range []struct {
		name                string
		length, unscheduled uint64
		reserved            int64
	}{
		{"above_U", 60000, 30000, 12500},
		{"above_the_length", 1000, 5000, 1000},
	} {
		t.Run(x.name, func(t *testing.T) {
			l := newLab(t)
			c := l.client(1).old()
			c.request(1, x.length, x.unscheduled)
			l.want("reserved", l.r.unscheduled, x.reserved)
			l.pass(time.Millisecond)
			c.request(1, x.length, x.unscheduled)
			l.none(rdcc.TypeCreditGrant)
			l.want("faults", l.r.Counters.Faults[LiedAboutUnscheduled], uint64(1))
		})
	}
	t.Run("raised", func(t *testing.T) {
		l := newLab(t)
		c := l.client(1).old()
		c.request(1, 60000, 1000)
		l.one(rdcc.TypeCreditGrant)
		c.request(1, 60000, 9000)
		c.data(1, 60000)
		l.none(rdcc.TypeCreditGrant)
		l.want("faults", l.r.Counters.Faults[LiedAboutUnscheduled], uint64(1))
	})
}

// TestUnscheduled_second: one unscheduled message is outstanding; of another only what U leaves counts, and it gets no grant.
func TestUnscheduled_second(t *testing.T) {
	l := newLab(t)
	c := l.client(1).old()
	c.request(1, 10000, 10000)
	c.request(2, 10000, 10000)
	l.want("reserved", l.r.unscheduled, int64(12500))
	l.want("faults", l.r.Counters.Faults[SecondUnscheduled], uint64(1))
}

// TestRestart_presumed: after a restart a sender says what it had sent before; that is charged, and presumed to have
// arrived once it must have.
func TestRestart_presumed(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.request(1, 50000, 50000) // all of it, before the restart
	l.want("charged", l.charged(), int64(50000))
	l.none(rdcc.TypeMsgDone)
	l.pass(140 * us)
	l.want("octets of MSG_DONE", l.one(rdcc.TypeMsgDone).MsgDone.OctetsReceived, uint64(50000))
	l.want("presumed", l.r.Counters.PresumedOctets, uint64(50000))
	l.want("charged", l.charged(), int64(0))
}

func TestRestart_noGrantWhileReserved(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.request(1, 150000, 50000)
	l.none(rdcc.TypeCreditGrant)
	l.pass(130 * us)
	l.none(rdcc.TypeCreditGrant)
	l.pass(5 * us)
	g := l.take(rdcc.TypeCreditGrant)
	l.want("grants", len(g), 1)
	l.want("the first lies above Unscheduled Sent", g[0].CreditGrant.GrantLimit > 50000, true)
}

// TestRestart_beyondBudget: a receiver that starts anew does not charge more than it has.
func TestRestart_beyondBudget(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	for id := range uint64(5) {
		c.request(id+1, 1<<30, 1<<29)
	}
	l.want("charged within G", l.charged() <= 400000, true)
	l.want("invariant violations", l.r.Counters.InvariantViolations, uint64(0))
}

// TestPresumed_amidSilence: who was cut off amid the requests of a fresh association is no liar when the rest of them comes.
func TestPresumed_amidSilence(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.request(1, 1<<20, 50000)
	l.pass(3 * time.Second)
	c.request(2, 1<<20, 50000)
	l.want("faults", l.r.Counters.Faults, [numFaults]uint64{})
}

// TestPresumed_pool: what comes while a message is presumed is of the pool's credit, and the message ends (decision 15).
func TestPresumed_pool(t *testing.T) {
	l := newLab(t, pooled)
	c := l.client(1)
	c.request(1, 1000, 0)
	c.request(2, 54000, 50000)
	c.data(2, 1000) // with the credit of message 1, before the reservation is released
	l.pass(time.Millisecond)
	c.request(1, 1000, 0)
	c.request(2, 54000, 50000)
	c.data(1, 1000)
	c.data(2, 3000)
	l.want("done", l.r.Counters.MessagesDone, uint64(2))
	l.pass(time.Millisecond)
	l.want("charged", l.charged(), int64(0))
}

// TestBefore: what the transport has of a message from before the receiver lost its state.
func TestBefore(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.request(1, 3000, 3000)
	c.arrive(Arrival{Message: 1, Octets: 3000, Before: true})
	l.want("MSG_DONE", l.one(rdcc.TypeMsgDone).MsgDone, rdcc.MsgDone{MessageID: 1, OctetsReceived: 3000})
	l.want("charged", l.charged(), int64(0))
	c.request(2, 100000, 30000)
	c.arrive(Arrival{Message: 2, Octets: 40000, Before: true}) // not more than was announced
	l.none(rdcc.TypeMsgDone)
	l.pass(time.Millisecond)
	c.request(2, 100000, 30000)
	g := l.last(rdcc.TypeCreditGrant).CreditGrant
	l.want("granted beyond what was announced", g.GrantLimit > 30000, true)
	l.want("charged", l.charged(), int64(g.GrantLimit-30000))
	c.arrive(Arrival{Message: 9, Octets: 5, Before: true}) // of one that is not there
}
