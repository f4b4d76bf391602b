package receiver

import (
	"testing"

	"github.com/pcmlab/pcmlab/rdcc"
)

func onQP(number, msn uint32) func(*rdcc.CreditRequest) {
	return func(m *rdcc.CreditRequest) {
		m.BindingKind, m.BindingValue = rdcc.BindingRoCEv2, rdcc.RoCEBinding{DestQP: number, MSN: msn, Messages: 1}.Value()
	}
}

// granted is the order in which messages got credit, and the lowest rate.
func (l *lab) granted() (ids []uint64, least rdcc.Mbps) {
	for _, g := range l.take(rdcc.TypeCreditGrant) {
		ids = append(ids, g.CreditGrant.MessageID)
		if least == 0 || g.CreditGrant.PacingRate < least {
			least = g.CreditGrant.PacingRate
		}
	}
	return ids, least
}

// TestFlow: messages of a queue pair are sent one behind the other, so that each has the sender's whole rate, which counts once.
func TestFlow(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	for n := range uint64(6) {
		c.request(1+n, 65536, 0, onQP(9, uint32(1+n)))
	}
	ids, rate := l.granted()
	l.want("messages with credit: as many as the budget has room for, and a part of one", len(ids), 5)
	l.want("rate of each", rate, rdcc.Mbps(capacity))
	l.want("rates that count", l.r.liveRate, int64(capacity))
	l.want("charged", l.charged(), int64(4*65536+36864))
	for n := range uint64(6) {
		for range 2 { // the budget ends within a message
			if at := l.r.index.get(key{1 + n, c.id, tagMessage}); at >= 0 {
				c.data(1+n, l.r.messages[at].credit.limit-l.r.messages[at].received)
			}
			l.want("rates that count, at most", max(l.r.liveRate, capacity), int64(capacity))
		}
	}
	l.want("complete", len(l.take(rdcc.TypeMsgDone)), 6)
	l.want("rates that count", l.r.liveRate, int64(0))
	l.want("charged", l.charged(), int64(0))
}

// TestFlow_turn: credit is for the first message that needs some; the one whose request was late is in front again.
func TestFlow_turn(t *testing.T) {
	l := newLab(t, func(c *Config) { c.G, c.Gu = 40960, -1 })
	block, c := l.client(1), l.client(2)
	block.request(1, 40960, 0)
	l.take(rdcc.TypeCreditGrant)
	c.request(3, 20480, 0, onQP(9, 0))
	c.request(1, 20480, 0, onQP(9, 0xfffffe)) // the number wraps
	c.request(2, 20480, 0, onQP(9, 0xffffff))
	block.data(1, 40960)
	var order []uint64
	for _, id := range orderOf(l, c) {
		if len(order) == 0 || order[len(order)-1] != id {
			order = append(order, id)
		}
	}
	if len(order) != 3 || order[0] != 1 || order[1] != 2 || order[2] != 3 {
		t.Errorf("served in the order %v, want 1, 2, 3", order)
	}
}

// TestFlow_share: a queue pair has one share, however many messages it has, and one window.
func TestFlow_share(t *testing.T) {
	l := newLab(t)
	block, c := l.client(1), l.client(2)
	block.request(1, 5000, 0)
	l.take(rdcc.TypeCreditGrant)
	for n := range uint64(10) {
		c.request(1+n, 4096, 0, onQP(9, uint32(1+n)))
	}
	c.request(11, 1<<20, 0, onQP(10, 1))
	block.data(1, 5000)
	for range 400 {
		for _, g := range l.take(rdcc.TypeCreditGrant) {
			if got, id := int64(g.CreditGrant.PacingRate), g.CreditGrant.MessageID; got > capacity/2 && id != 11 {
				t.Errorf("message %d has %d Mbit/s of %d", id, got, capacity)
			}
			at := l.r.index.get(key{g.CreditGrant.MessageID, c.id, tagMessage})
			c.data(g.CreditGrant.MessageID, g.CreditGrant.GrantLimit-l.r.messages[at].received)
		}
	}
	l.want("complete", len(l.take(rdcc.TypeMsgDone)), 12)
}
