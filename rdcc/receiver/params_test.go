package receiver

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// TestU_sum: however many come, the sum of U stays within G_u, also while updates are not acknowledged.
func TestU_sum(t *testing.T) {
	l := newLab(t)
	var all []*client
	for n := range 40 {
		all = append(all, l.client(n))
		sum := int64(0)
		for _, c := range all {
			sum += int64(c.u) // none has acknowledged: all may act on their first U
		}
		if sum > 100000 || l.r.sumU > 100000 {
			t.Fatalf("with %d associations the sum of U is %d, counted as %d, above G_u = 100000", n+1, sum, l.r.sumU)
		}
	}
	l.want("U of the ninth", all[8].u, uint32(0))
	// Once updates are acknowledged, others get some.
	for range 40 {
		l.pass(20 * time.Millisecond)
		for _, w := range l.take(rdcc.TypeAssocAccept) {
			for _, c := range all {
				if c.id == w.Assoc {
					c.u = w.AssocAccept.UnscheduledLimit
					c.ask(rdcc.FlagUpdateAck)
				}
			}
		}
	}
	some, sum := 0, int64(0)
	for _, c := range all {
		sum += int64(c.u)
		if c.u > 0 {
			some++
		}
	}
	l.want("sum in the end", sum <= 100000, true)
	l.want("associations with a U", some >= 20, true)
}

// updated makes two associations and lets the first get an update of its parameters.
func updated(t *testing.T) (*lab, *client, wire) {
	t.Helper()
	l := newLab(t)
	c := l.client(1)
	p := l.r.Params()
	p.Backlog = 77777
	l.r.SetParams(l.now, p)
	w := l.one(rdcc.TypeAssocAccept)
	l.want("flag Parameter Update", w.Flags, rdcc.FlagParameterUpdate)
	l.want("N_cu", w.AssocAccept.BacklogThreshold, uint32(77777))
	l.want("nonce", w.AssocAccept.SenderNonce, c.nonce)
	return l, c, w
}

func TestUpdate_retransmitted(t *testing.T) {
	l, c, _ := updated(t)
	l.pass(100 * time.Millisecond)
	l.want("repeated", len(l.take(rdcc.TypeAssocAccept)) >= 3, true)
	c.ask(rdcc.FlagUpdateAck)
	l.take(rdcc.TypeAssocAccept)
	l.pass(5 * time.Second)
	l.none(rdcc.TypeAssocAccept)
	l.want("acknowledged", l.r.Counters.UpdatesAcked, uint64(1))
}

func TestUpdate_backoff(t *testing.T) {
	l, _, w := updated(t)
	at, gap := w.at, time.Duration(0)
	l.pass(400 * time.Millisecond)
	n := 0
	for _, w := range l.take(rdcc.TypeAssocAccept) {
		if g := w.at - at; g < 2*gap-10*us {
			t.Errorf("update repeated after %v, before that after %v: want twice as long", g, gap)
		} else {
			gap = g
		}
		at = w.at
		n++
	}
	l.want("repetitions", n >= 5, true)
}

func TestUpdate_oneInFlight(t *testing.T) {
	l, c, _ := updated(t)
	p := l.r.Params()
	for n := range 3 {
		p.Backlog = 88880 + uint32(n)
		l.now += 100 * us // long after 2 D_max, but not acknowledged
		l.r.SetParams(l.now, p)
		l.none(rdcc.TypeAssocAccept)
	}
	c.ask(rdcc.FlagUpdateAck)
	l.want("N_cu of the next update", l.one(rdcc.TypeAssocAccept).AssocAccept.BacklogThreshold, uint32(88882))
}

// TestUpdate_spacing: an acknowledgment cannot be taken for one of the previous update, since those have all arrived.
func TestUpdate_spacing(t *testing.T) {
	l, c, w := updated(t)
	l.pass(2 * us)
	c.ask(rdcc.FlagUpdateAck)
	p := l.r.Params()
	p.Backlog = 99999
	l.r.SetParams(l.now, p)
	l.none(rdcc.TypeAssocAccept)
	l.pass(50 * us)
	next := l.one(rdcc.TypeAssocAccept)
	l.want("2 D_max between updates", next.at-w.at >= 16*us, true)
}

// TestUpdate_largerUntilAcked: with seven others there, the U of all halves; until they acknowledge, nothing is free.
func TestUpdate_largerUntilAcked(t *testing.T) {
	l := newLab(t)
	var all []*client
	for n := range 8 {
		all = append(all, l.client(n))
	}
	l.want("sum of U", l.r.sumU, int64(100000))
	ninth := l.client(100)
	l.want("U of the ninth", ninth.u, uint32(0))
	l.pass(2 * time.Millisecond)
	updates := 0
	for _, w := range l.take(rdcc.TypeAssocAccept) {
		if w.Flags == rdcc.FlagParameterUpdate && w.AssocAccept.UnscheduledLimit < 12500 {
			updates++
		}
	}
	l.want("updates with a smaller U", updates >= 8, true)
	l.want("sum of U while nobody acknowledges", l.r.sumU, int64(100000))
	l.want("U of a tenth", l.client(101).u, uint32(0))
	all[0].ask(rdcc.FlagUpdateAck)
	l.want("sum of U once one has", l.r.sumU < 100000 || l.r.assocs[8].update.u > 0 || l.r.assocs[9].update.u > 0, true)
}

// TestUpdate_ignoresStrayAcks: of an update that is over, and of an association that is gone.
func TestUpdate_ignoresStrayAcks(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.ask(rdcc.FlagUpdateAck)
	l.none(rdcc.TypeAssocAccept)
	l.want("ignored", l.r.Counters.AcksIgnored, uint64(1))
	other := l.newClient(2)
	other.ask(rdcc.FlagUpdateAck)
	l.none(rdcc.TypeAssocAccept)
	l.want("associations", l.r.live, 1)
}

// TestWalk_isBounded: an event looks at a few associations only, however many need an update.
func TestWalk_isBounded(t *testing.T) {
	l := newLab(t, func(c *Config) { c.OutQueue = 1 << 14 })
	for n := range 2000 {
		l.client(n)
	}
	l.pass(time.Second)
	l.out = nil
	p := l.r.Params()
	p.Backlog++
	l.r.SetParams(l.now, p)
	l.want("updates with one event", len(l.take(rdcc.TypeAssocAccept)) <= walkOnEvent, true)
	if at, ok := l.r.Deadline(); !ok || at > l.now {
		t.Errorf("deadline %v, %t with updates to do, want now", at, ok)
	}
	l.pass(0)
	got := map[uint32]bool{}
	for _, w := range l.take(rdcc.TypeAssocAccept) {
		got[w.Assoc] = true
	}
	l.want("associations told", len(got) >= 1990, true)
}
