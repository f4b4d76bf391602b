package sender

import (
	"testing"

	"github.com/pcmlab/pcmlab/rdcc"
)

func hot(l *lab) { l.r.accept.BacklogThreshold, l.o.accept.BacklogThreshold = 10000, 30000 }

// TestStatus: above the threshold at once, repeated each round trip, ended by one of level zero.
func TestStatus(t *testing.T) {
	l := newLab(t)
	hot(l)
	id := l.open(Message{Length: 1 << 20, Scheduled: true, Hint: rdcc.HintThroughputOriented})
	l.grant(id, 10000)
	l.equal("at the threshold", l.types(), "")
	l.grant(id, 14000)
	want := rdcc.SenderStatus{UnusedCredit: 14000, CongestionLevel: 102, ServiceHint: rdcc.HintThroughputOriented, SuggestedRate: 100000}
	l.equal("above", l.one(rdcc.TypeSenderStatus).SenderStatus, want)
	for range 3 {
		l.equal("early", len(l.run(20*us-1)), 0)
		all := l.run(1)
		if len(all) != 1 || all[0].SenderStatus != want {
			t.Fatalf("repeated: %+v", all)
		}
	}
	l.grant(id, 40000)
	l.pass(20 * us)
	l.equal("saturated", l.one(rdcc.TypeSenderStatus).SenderStatus.CongestionLevel, uint8(255))
	l.transmit(id, 30000)
	want = rdcc.SenderStatus{UnusedCredit: 10000, ServiceHint: rdcc.HintThroughputOriented}
	l.equal("the end", l.one(rdcc.TypeSenderStatus).SenderStatus, want)
	l.equal("afterwards", len(l.run(100*us)), 0)
	l.grant(id, 50000)
	l.want("again", l.types(), "SENDER_STATUS")
	l.transmit(id, 50000)
	l.types()
	l.grant(id, 70000)
	l.want("not twice within a round trip", l.types(), "")
	l.equal("then", len(l.run(20*us)), 1)
}

// TestStatus_above and TestStatus_repeats are those alone.
func TestStatus_above(t *testing.T) {
	l := newLab(t)
	hot(l)
	l.grant(l.open(long), 10001)
	l.want("above", l.types(), "SENDER_STATUS")
}

func TestStatus_repeats(t *testing.T) {
	l := newLab(t)
	hot(l)
	l.grant(l.open(long), 10001)
	l.types()
	l.equal("in three round trips", len(l.run(60*us)), 3)
}

// TestStatusAcrossReceivers: the sum over all counts; each that holds credit is told, with its share.
func TestStatusAcrossReceivers(t *testing.T) {
	l := newLab(t)
	hot(l)
	a := l.open(Message{Length: 1 << 20, Scheduled: true, Hint: rdcc.HintLatencySensitive})
	b := l.open(Message{Length: 1 << 20, Scheduled: true, To: other, Hint: rdcc.HintThroughputOriented})
	l.grant(a, 6000)
	l.equal("alone", l.types(), "")
	l.send(l.o, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 6000, PacingRate: 1000})
	all := l.take()
	if len(all) != 2 {
		t.Fatalf("datagrams %+v", all)
	}
	sum := rdcc.Mbps(0)
	for _, d := range all {
		want := rdcc.Mbps(80000)
		if d.Assoc == l.o.assoc {
			want = 20000
		}
		if d.SenderStatus.SuggestedRate != want || d.SenderStatus.UnusedCredit != 6000 {
			t.Errorf("to association %x: %+v", d.Assoc, d.SenderStatus)
		}
		sum += d.SenderStatus.SuggestedRate
	}
	if sum > 100000 {
		t.Errorf("the suggestions sum to %d Mbit/s", sum)
	}
	l.x.SetRate(l.now, 10*gig)
	l.transmit(b, 6000) // the condition ends, with one last for each that was told
	all = l.take()
	if len(all) != 2 || all[0].SenderStatus.CongestionLevel != 0 || all[1].SenderStatus.CongestionLevel != 0 {
		t.Errorf("the end: %+v", all)
	}
	l.grant(a, 12000)
	l.pass(20 * us)
	l.equal("of the rate that there is", l.one(rdcc.TypeSenderStatus).SenderStatus.SuggestedRate, rdcc.Mbps(8000))
}

// TestStatusCapability: only to receivers that can use it (decision 23).
func TestStatusCapability(t *testing.T) {
	l := newLab(t)
	hot(l)
	l.r.accept.Capabilities = rdcc.CapPool
	id := l.open(long)
	l.grant(id, 20000)
	l.equal("told", l.types(), "")
}

// TestThreshold: the smallest N_cu of the receivers, or a smaller local value.
func TestThreshold(t *testing.T) {
	l := newLab(t)
	hot(l)
	l.open(Message{Length: 1 << 20, Scheduled: true, To: other})
	l.equal("one receiver", l.x.backlog.threshold, uint64(30000))
	id := l.open(long)
	l.equal("the smaller of two", l.x.backlog.threshold, uint64(10000))
	l.grant(id, 20000)
	l.want("above the smaller", l.types(), "SENDER_STATUS")
	l.r.accept.BacklogThreshold = 40000
	l.accept(l.r, rdcc.FlagParameterUpdate)
	l.equal("after an update", l.x.backlog.threshold, uint64(30000))
}

// TestThreshold_local: smaller than what the receivers say, it counts.
func TestThreshold_local(t *testing.T) {
	for local, want := range map[uint64]uint64{5000: 5000, 50000: 10000} {
		l := newLab(t, func(c *Config) { c.BacklogThreshold = local })
		hot(l)
		l.open(long)
		l.equal("threshold", l.x.backlog.threshold, want)
	}
}

// TestStatusOfPool: the pool's credit counts once.
func TestStatusOfPool(t *testing.T) {
	l := newLab(t)
	hot(l)
	ids := l.messages(long, long)
	l.pool(11000)
	l.equal("unused", l.one(rdcc.TypeSenderStatus).SenderStatus.UnusedCredit, uint64(11000))
	l.transmit(ids[0], 1000)
	d := l.one(rdcc.TypeSenderStatus).SenderStatus
	if d.UnusedCredit != 10000 || d.CongestionLevel != 0 {
		t.Errorf("the end: %+v", d)
	}
}

// TestDominantHint: of most pending messages; the more urgent of equals; messages that are transmitted no longer count.
func TestDominantHint(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 1 << 20, Scheduled: true, Hint: rdcc.HintThroughputOriented})
	a := l.x.byAddr[first]
	l.equal("one", a.dominant(), rdcc.HintThroughputOriented)
	l.submit(Message{Length: 1 << 20, Hint: 99})
	l.equal("a tie without urgency", a.dominant(), rdcc.HintNone)
	l.submit(Message{Length: 1 << 20, Hint: rdcc.HintLatencySensitive})
	l.equal("urgent of equals", a.dominant(), rdcc.HintLatencySensitive)
	l.equal("share", a.share, uint64(4))
	l.grant(id, 1<<20)
	l.transmit(id, 1<<20)
	l.equal("transmitted", a.hints, [3]int{1, 1, 0})
	l.equal("shares", l.x.backlog.shares, uint64(4))
}
