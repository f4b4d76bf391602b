package sender

import (
	"errors"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// TestNoCreditNoOctet: a scheduled message waits, however long.
func TestNoCreditNoOctet(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	for range 100 {
		l.pass(ms)
		l.allowance(id, 0)
	}
	l.grant(id, 5000)
	l.allowance(id, 5000)
	l.transmit(id, 5000)
	l.allowance(id, 5000)
	l.transmit(id, 6000) // the transport errs
	l.equal("beyond credit", l.x.Counters().BeyondCredit, uint64(1000))
}

// TestGrantNeverReduces: a limit that is not larger refreshes lifetime and rate.
func TestGrantNeverReduces(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.grant(id, 40000)
	l.pass(900 * us)
	l.send(l.r, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 1000, PacingRate: 5})
	upTo, rate := l.x.Allowance(l.now, id)
	if upTo != 40000 || rate != 5e6 {
		t.Errorf("after the refresh: %d at %d bit/s", upTo, rate)
	}
	l.pass(900 * us)
	l.allowance(id, 40000)
	c := l.x.Counters()
	if c.GrantsRefreshing != 1 || c.CreditGranted != 40000 {
		t.Errorf("counters %+v", c)
	}
}

// TestLifetime: nothing after it has elapsed; fresh credit is asked for at once.
func TestLifetime(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.send(l.r, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 40000, PacingRate: 100000, Lifetime: 300})
	l.transmit(id, 1000)
	l.now += 300*us - 1
	l.allowance(id, 40000)
	l.now++
	l.allowance(id, 1000) // although Advance was late
	l.state(id, StateWaiting)
	d := l.one(rdcc.TypeCreditRequest).CreditRequest
	if d.MessageID != 1 || d.UnscheduledSent != 0 {
		t.Errorf("request %+v", d)
	}
	c := l.x.Counters()
	if c.GrantsExpired != 1 || c.CreditReclaimed != 39000 {
		t.Errorf("counters %+v", c)
	}
}

// TestLifetime_notRevived: a later, smaller limit is all that is held then (decision 1).
func TestLifetime_notRevived(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.grant(id, 40000)
	l.transmit(id, 1000)
	l.pass(ms)
	l.grant(id, 10000)
	l.allowance(id, 10000)
	l.pass(ms)
	l.grant(id, 500)
	l.allowance(id, 1000)
	l.state(id, StateWaiting)
}

// TestLifetime_asksAnew is the request alone.
func TestLifetime_asksAnew(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.grant(id, 40000)
	l.pass(ms)
	l.state(id, StateWaiting)
	l.want("at once", l.types(), "CREDIT_REQUEST")
}

// TestLifetime_default: zero means that of the association.
func TestLifetime_default(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.send(l.r, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 40000, PacingRate: 1000})
	l.pass(ms - 1)
	l.allowance(id, 40000)
	l.pass(1)
	l.allowance(id, 0)
}

// TestLifetime_newest replaces the old one, also when it is shorter (decision 2).
func TestLifetime_newest(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.grant(id, 20000)
	l.send(l.r, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 40000, PacingRate: 100000, Lifetime: 200})
	l.pass(200 * us)
	l.allowance(id, 0)
}

// TestRateZero: such a grant is ignored.
func TestRateZero(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.send(l.r, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 40000})
	l.state(id, StateWaiting)
	l.allowance(id, 0)
	l.equal("counted", l.x.Counters().RateZero, uint64(1))
}

// TestLimitBeyondLength: the rest is not credit.
func TestLimitBeyondLength(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 20000})
	l.grant(id, 30000)
	l.allowance(id, 20000)
	c := l.x.Counters()
	if c.CreditGranted != 20000 || c.BeyondLength != 10000 {
		t.Errorf("counters %+v", c)
	}
}

// TestDrainedIgnoresGrants (decision 10).
func TestDrainedIgnoresGrants(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 20000})
	l.grant(id, 20000)
	l.transmit(id, 20000)
	l.state(id, StateDrained)
	l.run(100 * us)
	l.grant(id, 20000)
	l.state(id, StateDrained)
	l.equal("backoff goes on", len(l.run(200*us-1)), 0)
	l.equal("unexpected", l.x.Counters().Unexpected, uint64(1))
	l.equal("next", len(l.run(1)), 1)
	l.equal("next", len(l.run(400*us-1)), 0)
}

// TestPacing: no interval of the time of ten Credit Units has more than ten of them, and the rate is reached.
func TestPacing(t *testing.T) {
	for _, piece := range []uint64{100, 1500, 4096, 9000, 1 << 20} {
		l := newLab(t)
		id := l.open(Message{Length: 1 << 30, Scheduled: true})
		const rate = 10 * 1000 // Mbit/s
		w := window(10*4096, rate*1e6)
		type sent struct{ at, n uint64 }
		var log []sent
		total, begin := uint64(0), l.now
		for l.now < begin+2*ms {
			if total%(1<<17) == 0 || l.now%(500*us) == 0 {
				l.send(l.r, &rdcc.CreditGrant{MessageID: 1, GrantLimit: total + 1<<20, PacingRate: rate, Lifetime: 2000})
			}
			upTo, r := l.x.Allowance(l.now, id)
			if r != rate*1e6 {
				t.Fatalf("rate %d", r)
			}
			n := min(upTo-total, piece)
			if n == 0 {
				at, ok := l.x.Wait(l.now, id)
				if !ok || at <= l.now {
					t.Fatalf("nothing allowed, and Wait says %v %t at %v", at, ok, l.now)
				}
				l.pass(at - l.now)
				continue
			}
			total += n
			l.transmit(id, total)
			log = append(log, sent{uint64(l.now), n})
			l.now += time.Duration(n*8/100) + 1 // a link of 100 Gbit/s
		}
		for i := range log {
			sum := uint64(0)
			for j := i; j < len(log) && log[j].at < log[i].at+uint64(w); j++ {
				sum += log[j].n
			}
			if sum > 10*4096 {
				t.Fatalf("pieces of %d: %d octets in %v from %d on", piece, sum, w, log[i].at)
			}
		}
		if want := within(l.now-begin, rate*1e6); total < want*85/100 {
			t.Errorf("pieces of %d: %d octets, at the rate they were %d", piece, total, want)
		}
		l.equal("beyond credit", l.x.Counters().BeyondCredit, uint64(0))
	}
}

// TestPacing_selfPaced: a NIC that holds the rate gets what leaves it before the lifetime ends.
func TestPacing_selfPaced(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 1 << 20, SelfPaced: true})
	l.send(l.r, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 1 << 20, PacingRate: 8000}) // 1000 octets a microsecond, 1 ms
	l.allowance(id, 1000000)
	l.pass(400 * us)
	l.allowance(id, 600000)
	if _, ok := l.x.Wait(l.now, id); ok {
		t.Error("Wait has something to say")
	}
}

// TestPacing_selfPacedDrains: what a NIC has from before leaves first, at its rate; what comes behind it must leave within the lifetime, too.
func TestPacing_selfPacedDrains(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 1 << 20, SelfPaced: true})
	l.send(l.r, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 500000, PacingRate: 4000}) // 500 octets a microsecond, 1 ms
	l.allowance(id, 500000)
	l.transmit(id, 500000) // all of the lifetime
	l.pass(100 * us)
	l.send(l.r, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 1 << 20, PacingRate: 4000})
	l.allowance(id, 550000)
}

// TestPacing_segments: one that is longer than ten units is its own window, and counted (decision 18).
func TestPacing_segments(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 1 << 20, Segment: 1 << 18})
	l.send(l.r, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 1 << 20, PacingRate: 8000})
	l.allowance(id, 1<<18)
	l.transmit(id, 1<<18)
	l.allowance(id, 1<<18)
	l.equal("coarse", l.x.Counters().CoarselyPaced, uint64(1<<18))
	want := Info{
		Open: true, Association: 0x5a17c0de, Epoch: 3, Capabilities: 7, U: 16384, Jitter: 10 * us, Backlog: 1 << 31, Lifetime: ms, CreditUnit: 4096,
		RTT: 20 * us, Messages: 1, Unused: 3 << 18, PacedBySegment: true,
	}
	info, ok := l.x.Association(first)
	if !ok || info != want {
		t.Errorf("association %+v, want %+v", info, want)
	}
	at, _ := l.x.Wait(l.now, id)
	l.equal("for a segment's time", at-l.now, window(1<<18, 8e9))
}

// TestReturn: New Limit is held to, and never below what was transmitted; grants that cross it only refresh (decision 6).
func TestReturn(t *testing.T) {
	l := newLab(t)
	l.r.accept.CreditUnit = 9000
	id := l.open(long)
	l.grant(id, 40000)
	l.transmit(id, 10000)
	for _, limit := range []uint64{9999, 40001} {
		if err := l.x.Return(l.now, id, limit); !errors.Is(err, ErrReturn) {
			t.Errorf("return to %d: %v", limit, err)
		}
	}
	if err := l.x.Return(l.now, id, 20000); err != nil {
		t.Fatal(err)
	}
	l.equal("told", l.one(rdcc.TypeCreditReturn).CreditReturn, rdcc.CreditReturn{MessageID: 1, NewLimit: 20000})
	l.allowance(id, 20000)
	l.grant(id, 40000) // sent before the return came
	l.allowance(id, 20000)
	l.grant(id, 45000) // more than ever before: new
	l.allowance(id, 45000)
	if err := l.x.Return(l.now, id, 10000); err != nil {
		t.Fatal(err)
	}
	l.state(id, StateWaiting)
	l.types()
	l.pass(ms) // D_max, more than the timeout
	l.grant(id, 40000)
	l.allowance(id, 40000)
	c := l.x.Counters()
	if c.CreditReturned != 20000+35000 || c.ReturnCross != 1 {
		t.Errorf("counters %+v", c)
	}
	l.equal("unknown message", l.x.Return(l.now, 99, 0), ErrUnknown)
}

// TestReturn_associationLost: to a receiver that had lost nothing the return stands, and grants that crossed it only refresh.
func TestReturn_associationLost(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.grant(id, 40000)
	if err := l.x.Return(l.now, id, 0); err != nil {
		t.Fatal(err)
	}
	l.unknown()
	l.types()
	l.accept(l.r)
	l.grant(id, 40000)
	l.allowance(id, 0)
	l.unknown()
	l.types()
	l.r.epoch++
	l.accept(l.r)
	l.types()
	l.grant(id, 30000) // of a new incarnation, which has never seen the return
	l.allowance(id, 30000)
}

// TestRateOfLine: a Pacing Rate above the host's link is the link's (decision 26).
func TestRateOfLine(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.send(l.r, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 40000, PacingRate: 400000})
	if _, rate := l.x.Allowance(l.now, id); rate != 100*gig {
		t.Errorf("rate %d bit/s on a link of 100 Gbit/s", rate)
	}
}

// TestRepeatedOctets: what the transport sends again is within the credit that it had.
func TestRepeatedOctets(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.grant(id, 30000)
	l.transmit(id, 20000)
	l.transmit(id, 5000)
	l.transmit(id, 20000)
	l.allowance(id, 30000)
	c := l.x.Counters()
	if c.ScheduledSent != 20000 || c.BeyondCredit != 0 {
		t.Errorf("counters %+v", c)
	}
}

// TestGiveUp_grantsWithoutUse: credit that comes, expires and comes again is no progress (decision 24).
func TestGiveUp_grantsWithoutUse(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 1 << 20, Segment: 1 << 16})
	for end := l.now + 31*time.Second; l.now < end; {
		l.send(l.r, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 1000, PacingRate: 8000})
		l.pass(500 * ms)
	}
	if s, ok := l.x.State(id); ok {
		t.Errorf("the message is in %s after 31 s in which it could send nothing", s)
	}
}

// TestPool_refusedWaits: a message that the receiver does not admit for now gets none of the pool's credit, until a request of it was not
// refused for as long as a timeout (decision 4).
func TestPool_refusedWaits(t *testing.T) {
	l := newLab(t)
	first := l.open(Message{Length: 10000, Scheduled: true})
	second, err := l.x.Submit(l.now, Message{To: l.r.addr, Length: 10000, Scheduled: true})
	if err != nil {
		t.Fatal(err)
	}
	l.take()
	l.send(l.r, &rdcc.Error{Reason: rdcc.ReasonBudgetExhausted, MessageID: 2})
	grant := func() { l.send(l.r, &rdcc.CreditGrant{GrantLimit: 15000, PacingRate: 8000}, rdcc.FlagPool) }
	grant()
	l.allowance(first, 10000)
	l.allowance(second, 0)
	for range 3 { // it asks again, and is not refused
		l.pass(10 * ms)
		l.take()
	}
	grant()
	if upTo, _ := l.x.Allowance(l.now, second); upTo == 0 {
		t.Error("it gets nothing when it is admitted")
	}
}

// TestPacing_selfPacedBursts: a segment that takes a NIC which keeps the rate longer than the lifetime would never go. It leaves as fast as
// the line, as far as ten Credit Units have room in the time that they take at the rate.
func TestPacing_selfPacedBursts(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 1 << 20, SelfPaced: true, Segment: 20480})
	grant := func() {
		l.send(l.r, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 1 << 20, PacingRate: 80}) // 10 octets a microsecond, 1 ms
	}
	grant()
	begin := l.now
	for n := range uint64(2) {
		upTo, rate := l.x.Allowance(l.now, id)
		l.equal("allowed", upTo, 20480*(n+1))
		l.equal("rate", rate, 100*gig)
		l.transmit(id, upTo)
		l.pass(2 * us) // on the line
	}
	l.pass(300 * us)
	upTo, _ := l.x.Allowance(l.now, id)
	l.equal("a segment less than allowed", upTo < 3*20480, true)
	at, ok := l.x.Wait(l.now, id)
	l.equal("there is a time to wait for", ok, true)
	l.equal("the first is out of its window", at, begin+4096*us)
	l.pass(at - l.now)
	grant()
	upTo, _ = l.x.Allowance(l.now, id)
	l.equal("allowed again", upTo, uint64(3*20480))
}
