package receiver

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// lose lets an unscheduled message of the client get lost.
func (c *client) lose(id uint64) {
	c.l.t.Helper()
	c.request(id, 4096, 4096)
	c.l.pass(200 * us)
}

func tripped(t *testing.T) (*lab, *client) {
	t.Helper()
	l := newLab(t)
	c := l.client(1).old()
	for id := range uint64(200) {
		c.request(id+1, 4096, 4096)
		c.data(id+1, 4096)
	}
	l.take(rdcc.TypeAssocAccept)
	c.lose(201)
	l.want("one of 201 is no reason", l.r.Counters.BreakerTrips, uint64(0))
	c.lose(202)
	c.lose(203)
	return l, c
}

func TestBreaker(t *testing.T) {
	l, c := tripped(t)
	l.want("trips", l.r.Counters.BreakerTrips, uint64(1))
	w := l.take(rdcc.TypeAssocAccept)
	l.want("updates", len(w) > 0, true)
	for _, w := range w {
		l.want("U", w.AssocAccept.UnscheduledLimit, uint32(0))
		l.want("update", w.Flags, rdcc.FlagParameterUpdate)
	}
	c.ask(rdcc.FlagUpdateAck)
	l.want("U of a newcomer", l.client(2).u, uint32(0))
	l.want("sum of U", l.r.sumU, int64(0))
}

// TestBreaker_holds: for a clean second at least; then U comes back.
func TestBreaker_holds(t *testing.T) {
	l, c := tripped(t)
	c.ask(rdcc.FlagUpdateAck)
	l.take(rdcc.TypeAssocAccept)
	l.pass(990 * time.Millisecond)
	l.none(rdcc.TypeAssocAccept)
	l.pass(200 * time.Millisecond)
	again := l.take(rdcc.TypeAssocAccept)
	l.want("U again", len(again) > 0 && again[0].AssocAccept.UnscheduledLimit > 0, true)
}

// TestBreaker_doubles: each trip holds twice as long, a minute at most.
func TestBreaker_doubles(t *testing.T) {
	l, c := tripped(t)
	id := uint64(300)
	for _, hold := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		at := l.now
		for l.r.breaker.open {
			l.pass(100 * time.Millisecond)
			c.ask(rdcc.FlagUpdateAck)
			c.ask(0)
		}
		if held := l.now - at; held < hold*time.Second-200*time.Millisecond || held > hold*time.Second+300*time.Millisecond {
			t.Errorf("held for %v, want %v", held, hold*time.Second)
		}
		for !l.r.breaker.open {
			c.ask(rdcc.FlagUpdateAck)
			id++
			c.lose(id)
		}
	}
}

// TestBreaker_gap: what the transport reports out of sequence is lost, too.
func TestBreaker_gap(t *testing.T) {
	l := newLab(t)
	c := l.client(1).old()
	c.request(1, 10000, 10000)
	c.arrive(Arrival{Message: 1, Octets: 4096, Gap: 4096})
	l.want("lost", l.r.Counters.UnscheduledLost, uint64(4096))
	l.want("trips", l.r.Counters.BreakerTrips, uint64(1))
	l.pass(time.Millisecond)
	l.want("lost, each octet once", l.r.Counters.UnscheduledLost, uint64(5904))
}
