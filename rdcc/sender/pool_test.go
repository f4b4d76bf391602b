package sender

import (
	"testing"

	"github.com/pcmlab/pcmlab/rdcc"
)

// messages submits several to an association that the first pool grant, of nothing, makes one of the pool.
func (l *lab) messages(ms ...Message) (ids []uint64) {
	l.Helper()
	for i, m := range ms {
		m.Scheduled = true
		if i == 0 {
			ids = append(ids, l.open(m))
			continue
		}
		ids = append(ids, l.submit(m))
		l.types()
	}
	return ids
}

// held is what each of the messages holds.
func (l *lab) held(ids ...uint64) (all []uint64) {
	for _, id := range ids {
		m := l.x.messages.get(id)
		all = append(all, m.limit-m.transmitted)
	}
	return all
}

func (l *lab) holds(what string, ids []uint64, want ...uint64) {
	l.Helper()
	got := l.held(ids...)
	for i := range want {
		if got[i] != want[i] {
			l.Fatalf("%s: the messages hold %v, want %v", what, got, want)
		}
	}
}

// TestPoolClasses: strict order, and credit that lower classes have not used is taken back for a higher one.
func TestPoolClasses(t *testing.T) {
	l := newLab(t)
	ids := l.messages(Message{Length: 50000, Class: 5}, Message{Length: 30000, Class: 1}, Message{Length: 90000, Class: 3})
	l.pool(60000)
	l.holds("first grant", ids, 0, 30000, 30000)
	l.transmit(ids[2], 4000)
	ids = append(ids, l.submit(Message{Length: 20000, Class: 0, Scheduled: true}))
	l.holds("not announced yet", ids, 0, 30000, 26000, 0)
	l.types()
	l.holds("taken back", ids, 0, 30000, 6000, 20000)
	l.pool(160000)
	l.holds("second grant", ids, 20000, 30000, 86000, 20000)
	low := l.submit(Message{Length: 1000, Class: 7, Scheduled: true})
	l.types()
	l.state(low, StateWaiting)
	ids = append(ids, l.submit(Message{Length: 106000, Class: 1, Scheduled: true}))
	l.types()
	l.holds("all of the lowest, all of the next", ids, 0, 30000, 0, 20000, 106000)
	l.state(ids[0], StateWaiting)
	l.state(ids[2], StateWaiting)
}

// TestPoolWeights: within a class in proportion, to within one round; work-conserving.
func TestPoolWeights(t *testing.T) {
	l := newLab(t)
	ids := l.messages(
		Message{Length: 1 << 30, Class: 2, Weight: 1}, Message{Length: 1 << 30, Class: 2, Weight: 2}, Message{Length: 1 << 30, Class: 2, Weight: 5})
	const round = 8 * 4096
	for n := uint64(1); n <= 40; n++ {
		l.pool(n * 10000)
		for i, h := range l.held(ids...) {
			w := []uint64{1, 2, 5}[i]
			if fair := n * 10000 * w / 8; h+w*4096 < fair || h > fair+w*4096 {
				t.Fatalf("of %d the message of weight %d of 8 holds %d", n*10000, w, h)
			}
		}
	}
	l.pool(100 * round)
	l.holds("after 100 rounds", ids, 100*4096, 200*4096, 500*4096)
	if err := l.x.Cancel(l.now, ids[2]); err != nil {
		t.Fatal(err)
	}
	rest := l.held(ids[:2]...)
	l.equal("work-conserving: all of it is divided among those left", rest[0]+rest[1], uint64(100*round))
}

// TestPoolSegments: credit is divided in whole segments, which gather until they are whole.
func TestPoolSegments(t *testing.T) {
	l := newLab(t)
	ids := l.messages(Message{Length: 100000, Segment: 40000}, Message{Length: 100000, Segment: 40000})
	l.pool(39999)
	l.holds("less than a segment", ids, 0, 0)
	l.pool(81000)
	l.holds("one each", ids, 40000, 40000)
	l.pool(200000)
	l.holds("all", ids, 100000, 100000)

	// One that waits for a whole segment goes: what it waited for is for the others.
	l = newLab(t)
	ids = l.messages(Message{Length: 100000, Segment: 40000}, Message{Length: 100000})
	l.pool(999)
	l.holds("blocked", ids, 0, 0)
	l.doneMsg(ids[0], 100000)
	l.holds("the other one", ids[1:], 999)
}

// TestPoolOffset: cumulative over the association's life, unscheduled octets left out, finished messages included.
func TestPoolOffset(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.pool(10000)
	l.transmit(id, 10000)
	u := l.submit(Message{Length: 5000})
	l.types()
	l.pass(10 * us)
	l.transmit(u, 3000)
	l.report(reportOf())
	l.types()
	l.pool(11000)
	l.holds("unscheduled octets cost no pool credit", []uint64{id, u}, 1000, 0)
	l.pool(18192)
	l.holds("the rest", []uint64{id, u}, 6192, 2000)
	l.transmit(u, 5000)
	l.doneMsg(u, 5000)
	l.equal("used", l.x.byAddr[first].pool.used, uint64(12000))
	l.equal("held", l.x.byAddr[first].held, uint64(6192))
}

// TestPoolOrMessage: one or the other for an association's life, and only when advertised (decision 4).
func TestPoolOrMessage(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.grant(id, 4096)
	l.pool(100000)
	l.allowance(id, 4096)
	l.equal("wrong kind", l.x.Counters().WrongKind, uint64(1))

	l = newLab(t)
	id = l.open(long)
	l.pool(4096)
	l.grant(id, 40000)
	l.allowance(id, 4096)
	l.equal("wrong kind", l.x.Counters().WrongKind, uint64(1))

	l = newLab(t)
	id = l.open(long)
	l.send(l.r, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 4096, PacingRate: 1}, rdcc.FlagPool)
	l.allowance(id, 0) // a pool grant has no message
}

// TestPoolNotAdvertised: a receiver must not grant to the pool then; the grant is ignored.
func TestPoolNotAdvertised(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Capabilities = rdcc.CapStatus })
	id := l.submit(long)
	l.equal("capabilities", l.one(rdcc.TypeAssocRequest).AssocRequest.Capabilities, rdcc.CapStatus)
	l.accept(l.r)
	l.types()
	l.pool(4096)
	l.allowance(id, 0)
}

// TestPoolRequestsRepeat: a pool grant acknowledges no request; with backoff until MSG_DONE, in SCHEDULED too (decision 5).
func TestPoolRequestsRepeat(t *testing.T) {
	l := newLab(t)
	l.r.accept.GrantLifetime = 1e6
	id := l.open(long)
	l.pool(4096)
	l.state(id, StateScheduled)
	for n := range 8 {
		all := l.run(100*us<<n - 1)
		l.equal("early", len(all), 0)
		all = l.run(1)
		if len(all) != 1 || all[0].Type != rdcc.TypeCreditRequest {
			t.Fatalf("repetition %d: %+v", n, all)
		}
		l.pool(4096) // resets nothing
		l.state(id, StateScheduled)
	}
	l.doneMsg(id, 1<<20)
	l.equal("after MSG_DONE", len(l.run(1e9)), 0)
}

// TestPoolPacing: the rate is that of all its messages together.
func TestPoolPacing(t *testing.T) {
	l := newLab(t)
	ids := l.messages(long, long)
	l.send(l.r, &rdcc.CreditGrant{GrantLimit: 1 << 20, PacingRate: 8000}, rdcc.FlagPool)
	total, begin := uint64(0), l.now
	for l.now < begin+500*us {
		for _, id := range ids {
			upTo, rate := l.x.Allowance(l.now, id)
			if rate != 8e9 {
				t.Fatalf("rate %d", rate)
			}
			if m := l.x.messages.get(id); upTo > m.transmitted {
				n := min(upTo-m.transmitted, 1000)
				total += n
				l.transmit(id, m.transmitted+n)
			}
		}
		l.pass(us)
	}
	if most := uint64(500*1000 + 40960); total > most || total < 400*1000 {
		t.Errorf("%d octets in 500 us at 1000 a us", total)
	}
	l.equal("beyond credit", l.x.Counters().BeyondCredit, uint64(0))
}

// TestPoolLifetime: nothing of it afterwards, for none of its messages; those that held a part ask anew; nothing revives.
func TestPoolLifetime(t *testing.T) {
	l := newLab(t)
	ids := l.messages(Message{Length: 30000}, Message{Length: 30000, Class: 1}, Message{Length: 30000, Class: 2})
	l.send(l.r, &rdcc.CreditGrant{GrantLimit: 40000, PacingRate: 100000, Lifetime: 50}, rdcc.FlagPool)
	l.transmit(ids[0], 5000)
	l.now += 50 * us
	l.allowance(ids[0], 5000)
	l.allowance(ids[1], 0)
	all := l.take()
	if len(all) != 2 || all[0].CreditRequest.MessageID != 1 || all[1].CreditRequest.MessageID != 2 {
		t.Fatalf("requests %+v", all)
	}
	for _, id := range ids {
		l.state(id, StateWaiting)
	}
	l.pool(9000)
	l.holds("a smaller limit", ids, 4000, 0, 0)
	l.equal("reclaimed", l.x.Counters().CreditReclaimed, uint64(35000))
}

// TestPoolReturn: what no message can use any more goes back; a grant that crosses the return only refreshes.
func TestPoolReturn(t *testing.T) {
	l := newLab(t)
	ids := l.messages(Message{Length: 30000}, Message{Length: 30000})
	l.pool(60000)
	l.transmit(ids[0], 10000)
	if err := l.x.Cancel(l.now, ids[1]); err != nil {
		t.Fatal(err)
	}
	all := l.take()
	if len(all) != 2 || all[0].Type != rdcc.TypeCancel || all[1].CreditReturn != (rdcc.CreditReturn{NewLimit: 30000}) {
		t.Fatalf("datagrams %+v", all)
	}
	l.pool(60000)
	l.equal("limit", l.x.byAddr[first].pool.limit, uint64(30000))
	l.holds("the other one", ids[:1], 20000)
	l.equal("returned", l.x.Counters().CreditReturned, uint64(30000))
}

// TestPoolBackIntoPool: a lost association takes the pool's credit with it, and the offset begins anew with a new Epoch only.
func TestPoolBackIntoPool(t *testing.T) {
	l := newLab(t)
	ids := l.messages(Message{Length: 30000}, Message{Length: 30000})
	l.pool(20000)
	l.transmit(ids[0], 8000)
	l.unknown()
	l.types()
	l.holds("lost", ids, 0, 0)
	l.accept(l.r)
	l.types()
	l.pool(9000) // the same life: 8000 are used
	l.holds("the same life", ids, 1000, 0)
	l.unknown()
	l.types()
	l.r.epoch++
	l.accept(l.r)
	l.types()
	l.pool(9000)
	l.holds("a new life", ids, 4096+808, 4096)
}

// TestPoolLimit_beyondAll: credit that no message could use is none (decision 4).
func TestPoolLimit_beyondAll(t *testing.T) {
	l := newLab(t)
	ids := l.messages(Message{Length: 30000}, Message{Length: 5000})
	l.pool(1<<64 - 1)
	l.holds("all", ids, 30000, 5000)
	l.equal("held", l.x.byAddr[first].held, uint64(35000))
	l.equal("beyond", l.x.Counters().BeyondLength, uint64(1<<64-1-35000))
}

// TestPoolInLine: messages of a queue pair are sent in their order, so that credit is for the first that needs some; queue pairs share it.
func TestPoolInLine(t *testing.T) {
	on := func(qp uint32, msn uint32, length uint64) Message {
		return Message{Length: length, Binding: rdcc.BindingRoCEv2, BindingValue: rdcc.RoCEBinding{DestQP: qp, MSN: msn, Messages: 1}.Value()}
	}
	l := newLab(t)
	ids := l.messages(on(1, 1, 40960), on(1, 2, 40960), on(1, 3, 1000), on(2, 1, 40960))
	l.pool(40960)
	l.holds("the first of each", ids, 20480, 0, 0, 20480)
	l.pool(2 * 40960)
	l.holds("one after the other", ids, 40960, 0, 0, 40960)
	l.pool(100000)
	l.holds("the next", ids, 40960, 100000-2*40960, 0, 40960)
	l.transmit(ids[0], 1000)
	l.pass(2 * ms) // the lifetime ends
	l.types()
	l.holds("nothing", ids, 0, 0, 0, 0)
	l.pool(101000)
	l.holds("the first again", ids, 40960-1000, 19080, 0, 40960)
	l.pool(3*40960 + 500)
	l.holds("and the last", ids, 40960-1000, 40960, 500, 40960)

	// The first goes: it is the turn of who is behind it.
	l = newLab(t)
	ids = l.messages(on(1, 1, 40960), on(1, 2, 40960))
	l.pool(30000)
	l.holds("the first", ids, 30000, 0)
	l.doneMsg(ids[0], 40960)
	l.holds("the second", ids[1:], 30000)
	if n := len(l.x.byAddr[l.x.messages.get(ids[1]).a.to].lines); n != 1 {
		t.Errorf("%d queue pairs, want 1", n)
	}
	l.doneMsg(ids[1], 40960)
}
