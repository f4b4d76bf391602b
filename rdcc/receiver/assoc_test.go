package receiver

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

func TestAssociate(t *testing.T) {
	l := newLab(t)
	c := l.newClient(1)
	c.ask(0)
	w := l.one(rdcc.TypeAssocAccept)
	want := rdcc.AssocAccept{
		SenderNonce: c.nonce, Capabilities: rdcc.CapStatus | rdcc.CapCRN, UnscheduledLimit: 12500, StartJitter: 16, BacklogThreshold: 400000,
		GrantLifetime: 100, CreditUnit: 4096,
	}
	l.want("ASSOC_ACCEPT", w.AssocAccept, want)
	l.want("address", w.to, c.addr)
	l.want("epoch", w.Epoch, uint16(3))
	l.want("length no more than the request's", w.len <= 48, true)
}

func TestAssocRequest_idempotent(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	for range 5 {
		c.ask(0)
		l.want("Association ID of a repeated request", l.one(rdcc.TypeAssocAccept).Assoc, c.id)
	}
	l.want("associations", l.r.live, 1)
	other := l.newClient(1)
	other.nonce++ // the same address with another nonce: another association, and the first stays (decision 24)
	other.join()
	l.want("another ID for another nonce", other.id != c.id, true)
	l.want("associations", l.r.live, 2)
}

func TestAssociationID_notZero(t *testing.T) {
	id := []byte{0, 0, 0, 0, 0, 0, 0, 9}
	l := newLab(t, func(c *Config) { c.Random = io.MultiReader(bytes.NewReader(make([]byte, 8)), bytes.NewReader(id)) })
	c := l.newClient(1)
	c.ask(0)
	l.want("Association ID", l.one(rdcc.TypeAssocAccept).Assoc, uint32(9))
}

func TestNew_anotherEpochThanBefore(t *testing.T) {
	epochs := []byte{0, 7, 0, 0, 0, 7, 0, 8}
	l := newLab(t, func(c *Config) {
		c.Epoch, c.LastEpoch = 0, 7
		c.Random = io.MultiReader(bytes.NewReader(epochs), seeded(1))
	})
	l.want("epoch", l.r.Epoch(), uint16(8))
}

func TestNew_refusesTheEpochOfBefore(t *testing.T) {
	c := testConfig()
	c.LastEpoch = c.Epoch
	if _, err := New(c); err == nil {
		t.Error("New takes the Epoch of the incarnation before")
	}
}

func TestReceive_boundAddress(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	thief := *c
	thief.addr = clientAddr(2)
	thief.request(1, 100000, 0)
	l.none(rdcc.TypeCreditGrant)
	l.want("wrong address", l.r.Counters.WrongAddress, uint64(1))
	c.request(1, 100000, 0)
	l.want("grants go to", l.take(rdcc.TypeCreditGrant)[0].to, c.addr)
}

func TestReceive_stale(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.request(1, 1000, 0)
	l.one(rdcc.TypeCreditGrant)
	c.data(1, 1000)
	for _, seq := range []uint32{c.seq, c.seq - 1, c.seq + 1<<31} {
		b := (&rdcc.CreditRequest{MessageID: 2, MessageLength: 1000, BindingKind: rdcc.BindingOpaque}).Append(nil, rdcc.Header{Assoc: c.id, Epoch: c.epoch, Seq: seq})
		l.receive(c.addr, b)
		l.none(rdcc.TypeCreditGrant)
	}
	l.want("stale", l.r.Counters.Stale, uint64(3))
	c.seq += 1<<31 - 2 // numbers may be lost, and wrap
	c.request(2, 1000, 0)
	l.one(rdcc.TypeCreditGrant)
}

// TestReceive_exemptNeverLowers: a delayed ASSOC_REQUEST is answered, but what is old stays old.
func TestReceive_exemptNeverLowers(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	old := c.header()
	c.request(1, 1000, 0)
	l.one(rdcc.TypeCreditGrant)
	keep := c.seq
	c.seq = 0
	c.ask(0)
	l.one(rdcc.TypeAssocAccept)
	c.seq = keep
	l.receive(c.addr, (&rdcc.CreditRequest{MessageID: 2, MessageLength: 1000, BindingKind: rdcc.BindingOpaque}).Append(nil, old))
	l.none(rdcc.TypeCreditGrant)
	l.want("stale", l.r.Counters.Stale, uint64(1))
}

func TestReceive_unknownAssociation(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.id ^= 1
	c.request(1, 1000, 0)
	w := l.one(rdcc.TypeError)
	l.want("reason", w.Error.Reason, rdcc.ReasonUnknownAssociation)
	l.want("Association ID", w.Assoc, c.id)
	l.want("to", w.to, c.addr)
	for _, m := range []rdcc.Message{&rdcc.SenderStatus{}, &rdcc.CreditReturn{MessageID: 1}, &rdcc.Cancel{MessageID: 1}, &rdcc.Error{}} {
		c.send(m)
		l.none(rdcc.TypeError)
	}
}

func TestReceive_anotherEpoch(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.epoch++
	c.request(1, 1000, 0)
	l.none(rdcc.TypeCreditGrant)
	l.want("reason", l.one(rdcc.TypeError).Error.Reason, rdcc.ReasonUnknownAssociation)
}

func TestReceive_unknownType(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	unknown := func(from *client, assoc uint32) {
		b := (&rdcc.Cancel{}).Append(nil, rdcc.Header{Assoc: assoc, Epoch: c.epoch, Seq: 99})
		b[1] = 0x0b
		l.receive(from.addr, b)
	}
	unknown(c, c.id)
	l.want("reason", l.one(rdcc.TypeError).Error.Reason, rdcc.ReasonUnsupportedType)
}

func TestReceive_unknownTypeElsewhere(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	for _, x := range []struct {
		from  int
		assoc uint32
	}{{2, c.id}, {1, c.id ^ 1}, {2, 0}} {
		b := (&rdcc.Cancel{}).Append(nil, rdcc.Header{Assoc: x.assoc, Epoch: c.epoch, Seq: 99})
		b[1] = 0x7f
		l.receive(clientAddr(x.from), b)
		l.none(rdcc.TypeError)
	}
}

func TestIdle_removes(t *testing.T) {
	l := newLab(t)
	a, b := l.client(1), l.client(2)
	a.request(1, 10000, 10000)
	b.request(1, 1<<20, 0)
	l.want("charged", l.charged() > 10000, true)
	l.pass(9999 * time.Millisecond)
	l.want("associations before the idle time", l.r.live, 2)
	l.pass(2 * time.Millisecond)
	l.want("associations after it", l.r.live, 0)
	l.want("messages", l.r.pending, 0)
	l.want("charged", l.charged(), int64(0))
	l.want("sum of U", l.r.sumU, int64(0))
	l.want("live rates", l.r.liveRate, int64(0))
	b.request(2, 1000, 0)
	l.want("reason", l.one(rdcc.TypeError).Error.Reason, rdcc.ReasonUnknownAssociation)
}

// TestIdle_reclaims: what is outstanding goes with its association, were it a pool's. Credit does not live as long as an
// association that is idle; so the end is brought about here.
func TestIdle_reclaims(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Pool = true })
	c := l.client(1)
	c.request(1, 1<<20, 0)
	c.request(2, 10000, 10000)
	l.want("charged", l.charged() > 10000, true)
	l.r.removeAssociation(l.r.byID[c.id])
	l.want("charged", l.charged(), int64(0))
	l.want("sum of U", l.r.sumU, int64(0))
	l.want("live rates", l.r.liveRate, int64(0))
	l.want("active", l.r.active, 0)
}

func TestIdle_trafficKeeps(t *testing.T) {
	l := newLab(t)
	control, data, keepalive := l.client(1), l.client(2), l.client(3)
	for range 5 {
		l.pass(6 * time.Second)
		control.send(&rdcc.SenderStatus{})
		data.data(1, 1)
		keepalive.ask(0)
	}
	l.want("associations", l.r.live, 3)
}

func TestBounds_associations(t *testing.T) {
	l := newLab(t, func(c *Config) { c.MaxAssociations, c.MaxPerAddress = 3, 64 })
	for n := range 3 {
		l.client(n)
	}
	c := l.newClient(9)
	c.ask(0)
	w := l.one(rdcc.TypeError)
	l.want("reason", w.Error.Reason, rdcc.ReasonAssocRefused)
	l.want("Association ID", w.Assoc, uint32(0))
	l.want("associations", l.r.live, 3)
	l.client(1) // the ones that are there still are
	l.want("associations", l.r.live, 3)
}

func TestBounds_refuseNotEvict(t *testing.T) {
	l := newLab(t, func(c *Config) { c.MaxAssociations = 1 })
	first := l.client(1)
	second := l.newClient(2)
	second.ask(0)
	l.want("reason", l.one(rdcc.TypeError).Error.Reason, rdcc.ReasonAssocRefused)
	first.request(1, 1000, 0)
	l.one(rdcc.TypeCreditGrant)
}

func TestBounds_perAddress(t *testing.T) {
	l := newLab(t, func(c *Config) { c.MaxPerAddress = 2 })
	for n := range 3 {
		c := l.newClient(1)
		c.nonce += uint64(n)
		c.ask(0)
	}
	l.want("associations", l.r.live, 2)
	l.one(rdcc.TypeError)
	l.client(2)
}
