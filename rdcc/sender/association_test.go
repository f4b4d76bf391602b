package sender

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/rdcctest"
)

var long = Message{Length: 1 << 20, Scheduled: true}

// TestNonceIsSecret: a nonce does not follow from the seed of the other random numbers.
func TestNonceIsSecret(t *testing.T) {
	nonce := func() uint64 {
		l := newLab(t)
		l.submit(long)
		return l.one(rdcc.TypeAssocRequest).AssocRequest.SenderNonce
	}
	if a, b := nonce(), nonce(); a == b || a == 0 {
		t.Errorf("two machines of one seed have the nonces %x and %x", a, b)
	}
	x, err := New(Config{LineRate: 1, Nonce: func() uint64 { return 42 }, off: rdcctest.Off()})
	if err != nil || x.c.Nonce() != 42 {
		t.Error("the configured source of nonces is not used")
	}
}

// TestAssociationRetry: 1 ms, doubling, eight attempts, then without RDCC.
func TestAssociationRetry(t *testing.T) {
	l := newLab(t)
	id := l.submit(long)
	begin, nonce, seq := l.now, uint64(0), uint32(0)
	for n := range 8 {
		d := l.one(rdcc.TypeAssocRequest)
		if n == 0 {
			nonce = d.AssocRequest.SenderNonce
		}
		if d.AssocRequest.SenderNonce != nonce || d.Seq != seq+1 || d.Assoc != 0 || d.Epoch != 0 || d.AssocRequest.LineRate != 100000 {
			t.Fatalf("attempt %d: %+v", n, d)
		}
		seq = d.Seq
		at, ok := l.x.Deadline()
		if want := begin + ms<<(n+1) - ms; !ok || at != want {
			t.Fatalf("after attempt %d the deadline is %v, want %v", n+1, at, want)
		}
		l.pass(at - l.now - 1)
		l.equal("too early", l.types(), "")
		l.pass(1)
	}
	l.equal("after 255 ms", l.now-begin, 255*ms)
	l.equal("after eight attempts", l.types(), "")
	l.gone(id, EventWithout)
	if _, err := l.x.Submit(l.now, Message{To: first, Length: 1}); err != ErrWithout {
		t.Errorf("submit to a receiver without RDCC: %v, want ErrWithout", err)
	}
	l.pass(time.Minute)
	l.submit(long)
	l.equal("asked again after a minute", l.types(), "ASSOC_REQUEST")
}

// TestAcceptNeedsNonce: an answer to nobody's request, or from elsewhere, establishes nothing.
func TestAcceptNeedsNonce(t *testing.T) {
	l := newLab(t)
	id := l.submit(long)
	l.one(rdcc.TypeAssocRequest)
	nonce := l.r.nonce
	l.raw(other, rdcc.Header{Assoc: 1, Epoch: 1, Seq: 1}, &rdcc.AssocAccept{SenderNonce: nonce})
	l.raw(netip.AddrPortFrom(first.Addr(), 1), rdcc.Header{Assoc: 1, Epoch: 1, Seq: 1}, &rdcc.AssocAccept{SenderNonce: nonce})
	l.raw(first, rdcc.Header{Assoc: 0, Epoch: 1, Seq: 1}, &rdcc.AssocAccept{SenderNonce: nonce})
	l.raw(first, rdcc.Header{Assoc: 1, Epoch: 1, Seq: 1}, &rdcc.AssocAccept{SenderNonce: nonce + 1})
	l.state(id, StateNew)
	c := l.x.Counters()
	if c.Stranger != 2 || c.WrongNonce != 1 || c.Unexpected != 1 {
		t.Errorf("counters %+v", c)
	}
	l.accept(l.r)
	l.state(id, StateWaiting)
}

// TestRoundTripSample: of the exchange when it was not repeated, and smoothed afterwards.
func TestRoundTripSample(t *testing.T) {
	l := newLab(t)
	l.open(long)
	l.equal("of the exchange", l.x.byAddr[first].srtt, 20*us)
	l.x.RTTSample(l.now, first, 100*us)
	l.equal("smoothed", l.x.byAddr[first].srtt, 30*us)
	l.x.RTTSample(l.now, first, -1)
	l.equal("less than nothing", l.x.byAddr[first].srtt, 30*us)

	l = newLab(t)
	l.submit(long)
	l.pass(ms)
	l.types()
	l.pass(5 * us)
	l.accept(l.r)
	l.equal("of a repeated exchange", l.x.byAddr[first].srtt, time.Duration(0))
}

// TestParameterUpdate: applied when newest, acknowledged always.
func TestParameterUpdate(t *testing.T) {
	l := newLab(t)
	l.open(long)
	a := l.x.byAddr[first]
	l.r.accept.UnscheduledLimit = 8 * kib
	l.accept(l.r, rdcc.FlagParameterUpdate)
	d := l.one(rdcc.TypeAssocRequest)
	if d.Flags != rdcc.FlagUpdateAck || d.AssocRequest.SenderNonce != l.r.nonce {
		t.Fatalf("acknowledgement %+v", d)
	}
	l.equal("U", a.limit, uint64(8*kib))

	// An older update, arriving late: acknowledged, not applied.
	old := l.r.accept
	old.SenderNonce, old.UnscheduledLimit = l.r.nonce, 64*kib
	l.raw(first, rdcc.Header{Assoc: l.r.assoc, Epoch: l.r.epoch, Seq: l.r.seq - 1, Flags: rdcc.FlagParameterUpdate}, &old)
	l.equal("the late update is acknowledged", l.types(), "ASSOC_REQUEST")
	l.equal("U after it", a.limit, uint64(8*kib))
	l.equal("updates", l.x.Counters().Updates, uint64(2))
}

// TestParameterUpdate_isAcknowledged is the acknowledgement alone.
func TestParameterUpdate_isAcknowledged(t *testing.T) {
	l := newLab(t)
	l.open(long)
	l.accept(l.r, rdcc.FlagParameterUpdate)
	l.equal("acknowledgement", l.types(), "ASSOC_REQUEST")
	l.accept(l.r)
	l.equal("a repeated answer needs none", l.types(), "")
}

// TestNumbersOfAccept: exempt from the check, they raise the newest number and never lower it (decision 7).
func TestNumbersOfAccept(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.r.seq = 9
	l.grant(id, 4096) // number 10
	a := l.r.accept
	a.SenderNonce = l.r.nonce
	l.raw(first, rdcc.Header{Assoc: l.r.assoc, Epoch: l.r.epoch, Seq: 5}, &a)
	l.raw(first, rdcc.Header{Assoc: l.r.assoc, Epoch: l.r.epoch, Seq: 7},
		&rdcc.CreditGrant{MessageID: 1, GrantLimit: 8192, PacingRate: 1000})
	l.allowance(id, 4096)
	l.equal("stale", l.x.Counters().Stale, uint64(1))
}

// TestStaleIsDiscarded: what is not newer is not processed, across the wrap as well.
func TestStaleIsDiscarded(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.x.byAddr[first].newest = 0xfffffff0
	l.r.seq = 0xfffffffe
	l.grant(id, 1000) // 0xffffffff
	l.grant(id, 2000) // 0
	l.allowance(id, 2000)
	l.r.seq = 0xfffffffd
	l.grant(id, 3000)
	l.r.seq = 0xffffffff
	l.grant(id, 4000) // 0 once more
	l.allowance(id, 2000)
	l.equal("stale", l.x.Counters().Stale, uint64(2))
}

// TestForeignHeader: another Association ID or Epoch is not of this association.
func TestForeignHeader(t *testing.T) {
	for name, h := range map[string]rdcc.Header{
		"association": {Assoc: 1, Epoch: 3, Seq: 100}, "epoch": {Assoc: 0x5a17c0de, Epoch: 4, Seq: 100},
	} {
		l := newLab(t)
		id := l.open(long)
		l.raw(first, h, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 4096, PacingRate: 1000})
		l.allowance(id, 0)
		l.raw(first, h, &rdcc.Error{Reason: rdcc.ReasonMessageTooLarge, MessageID: 1})
		l.state(id, StateWaiting)
		if c := l.x.Counters(); c.WrongAssoc+c.WrongEpoch != 2 {
			t.Errorf("%s: counters %+v", name, c)
		}
		l.grant(id, 4096) // the foreign number was not taken for the newest
		l.allowance(id, 4096)
	}
}

// TestForeignEpoch is the Epoch alone.
func TestForeignEpoch(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.raw(first, rdcc.Header{Assoc: l.r.assoc, Epoch: 4, Seq: 100}, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 4096, PacingRate: 1000})
	l.allowance(id, 0)
}

// TestUnknownAssociation: credit is gone, the association is asked for with the same nonce, the messages anew.
func TestUnknownAssociation(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.grant(id, 40960)
	l.transmit(id, 8192)
	l.allowance(id, 40960)
	l.unknown()
	l.state(id, StateWaiting)
	l.allowance(id, 8192)
	nonce := l.r.nonce
	l.equal("nonce", l.one(rdcc.TypeAssocRequest).AssocRequest.SenderNonce, nonce)
	l.unknown() // again: nothing more
	l.equal("repeated error", l.types(), "")
	l.r.assoc, l.r.epoch, l.r.seq = 0x77, 4, 0
	l.accept(l.r)
	d := l.one(rdcc.TypeCreditRequest)
	if d.Assoc != 0x77 || d.Epoch != 4 || d.CreditRequest.MessageID != 1 || d.CreditRequest.UnscheduledSent != 8192 {
		t.Errorf("request to the new incarnation: %+v", d)
	}
	l.grant(id, 12288) // numbers begin anew
	l.allowance(id, 12288)
	l.equal("reclaimed", l.x.Counters().CreditReclaimed, uint64(32768))
}

// TestUnknownAssociation_nothingLost: the error was forged, or late: what was announced to the receiver stands.
func TestUnknownAssociation_nothingLost(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 8000})
	l.pass(10 * us)
	l.transmit(id, 5000)
	l.unknown()
	l.one(rdcc.TypeAssocRequest)
	late := l.submit(Message{Length: 100})
	l.state(late, StateNew)
	l.accept(l.r)
	all := l.take()
	if len(all) != 2 || all[0].CreditRequest.UnscheduledSent != 5000 || all[1].CreditRequest.UnscheduledSent != 0 {
		t.Fatalf("requests %+v", all)
	}
	l.state(id, StateWaiting)
	l.state(late, StateWaiting) // the first is still outstanding
}

// TestUnknownAssociation_foreign: only the own Association ID counts.
func TestUnknownAssociation_foreign(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.grant(id, 4096)
	l.raw(first, rdcc.Header{Assoc: 12, Epoch: 3, Seq: 99}, &rdcc.Error{Reason: rdcc.ReasonUnknownAssociation})
	l.raw(other, rdcc.Header{Assoc: l.r.assoc, Epoch: 3, Seq: 99}, &rdcc.Error{Reason: rdcc.ReasonUnknownAssociation})
	l.allowance(id, 4096)
	l.equal("answer", l.types(), "")
}

// TestReestablish: a receiver that spoke RDCC is asked until the messages are given up, at most 100 ms apart; nothing is sent
// without credit meanwhile.
func TestReestablish(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.unknown()
	last := l.now
	for range 40 {
		l.one(rdcc.TypeAssocRequest)
		at, _ := l.x.Deadline()
		if at-last > 100*ms {
			t.Fatalf("next attempt after %v", at-last)
		}
		last = at
		l.pass(at - l.now)
		l.allowance(id, 0)
	}
	l.pass(30 * time.Second)
	if e := l.gone(id, EventAborted); !e.GaveUp {
		t.Errorf("event %+v", e)
	}
	l.types()
	l.pass(time.Second)
	l.equal("nobody waits any more", l.types(), "")
}

// TestLateAcceptOfFormerLife: a delayed ASSOC_ACCEPT of an Epoch that is over is not believed.
func TestLateAcceptOfFormerLife(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	old := l.r.accept
	old.SenderNonce = l.r.nonce
	l.unknown()
	l.types()
	l.r.assoc, l.r.epoch = 0x78, 4
	l.accept(l.r)
	l.grant(id, 4096)
	l.raw(first, rdcc.Header{Assoc: 0x5a17c0de, Epoch: 3, Seq: 1}, &old)
	l.allowance(id, 4096)
}

// TestNewEpochInAnswer: a keepalive finds the receiver restarted; the sequence numbers of its new life count from its accept.
func TestNewEpochInAnswer(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Timing.Keepalive = time.Second })
	id := l.open(long)
	l.r.seq = 1000
	l.grant(id, 4096)
	l.transmit(id, 4096)
	l.pass(100 * us)
	l.take()
	for {
		at, _ := l.x.Deadline()
		l.pass(at - l.now)
		if all := l.take(); len(all) > 0 && all[0].Type == rdcc.TypeAssocRequest {
			t.Fatal("keepalive beside requests that are signs of life")
		} else if l.now > 5*time.Second {
			break
		}
	}
	l.unknown()
	l.types()
	l.r.epoch, l.r.seq = 4, 0
	l.accept(l.r)
	l.equal("newest", l.x.byAddr[first].newest, uint32(1))
	l.grant(id, 8192)
	l.allowance(id, 8192)
}

// TestRefused: only while asking, only with Association ID zero, only the second time.
func TestRefused(t *testing.T) {
	refuse := func(l *lab, assoc uint32) {
		l.raw(first, rdcc.Header{Assoc: assoc, Seq: 1}, &rdcc.Error{Reason: rdcc.ReasonAssocRefused})
	}
	l := newLab(t)
	id := l.submit(long)
	l.one(rdcc.TypeAssocRequest)
	refuse(l, 5)
	refuse(l, 0)
	refuse(l, 0) // the same once more, not a second refusal
	l.state(id, StateNew)
	l.pass(ms)
	l.one(rdcc.TypeAssocRequest)
	l.raw(other, rdcc.Header{}, &rdcc.Error{Reason: rdcc.ReasonAssocRefused})
	l.state(id, StateNew)
	refuse(l, 0)
	l.equal("reason", l.gone(id, EventAborted).Reason, rdcc.ReasonAssocRefused)
	l.submit(long)
	l.equal("asked again for the next message", l.types(), "ASSOC_REQUEST")

	l = newLab(t, func(c *Config) { c.OnRefused = RefusedWithout })
	id = l.submit(long)
	l.take()
	refuse(l, 0)
	l.pass(ms)
	l.take()
	refuse(l, 0)
	l.gone(id, EventWithout)

	l = newLab(t)
	id = l.submit(long)
	l.take()
	refuse(l, 0)
	l.run(time.Second)
	l.equal("refused once, then silence: reason", l.gone(id, EventAborted).Reason, rdcc.ReasonAssocRefused)
}

// TestRefused_whenOpen: without a nonce anyone can say it, so an open association does not hear it.
func TestRefused_whenOpen(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Timing.Keepalive = ms; c.Timing.MaxTimeout = time.Second })
	id := l.open(long)
	l.grant(id, 1<<20)
	l.pass(ms)
	for range 3 {
		l.raw(first, rdcc.Header{}, &rdcc.Error{Reason: rdcc.ReasonAssocRefused})
		l.pass(ms)
	}
	if _, ok := l.x.State(id); !ok {
		t.Error("a forged refusal ended a message of an open association")
	}
}

// TestKeepalive: after silence, with the same nonce; not for ever without messages.
func TestKeepalive(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Timing.Keepalive, c.Timing.Idle = 3*time.Second, 10*time.Second })
	id := l.open(Message{Length: 100})
	l.doneMsg(id, 100)
	l.events()
	l.pass(3 * time.Second)
	d := l.one(rdcc.TypeAssocRequest)
	if d.AssocRequest.SenderNonce != l.r.nonce || d.Flags != 0 {
		t.Fatalf("keepalive %+v", d)
	}
	l.pass(ms)
	l.equal("repeated", l.types(), "ASSOC_REQUEST")
	l.accept(l.r)
	n := 0
	for l.now < time.Minute {
		at, ok := l.x.Deadline()
		if !ok {
			break
		}
		l.pass(at - l.now)
		if len(l.take()) > 0 {
			n++
			l.accept(l.r)
		}
	}
	if n < 2 || len(l.x.byAddr) != 0 || len(l.x.byHost) != 0 {
		t.Errorf("%d keepalives, %d associations left", n, len(l.x.byAddr))
	}
	again := l.submit(Message{Length: 100})
	if again == id || again&(1<<idBits-1) != 2 {
		t.Errorf("message %d after the association was let go, before it %d", again, id)
	}
	l.equal("associations are asked for anew", l.types(), "ASSOC_REQUEST")
}

// TestSequenceNumbers: one space for all types, one more for each datagram, repetitions included.
func TestSequenceNumbers(t *testing.T) {
	l := newLab(t)
	id := l.submit(long)
	var got []uint32
	add := func() {
		for _, d := range l.take() {
			got = append(got, d.Seq)
		}
	}
	add()
	l.accept(l.r)
	add()
	for range 5 {
		at, _ := l.x.Deadline()
		l.pass(at - l.now)
		add()
	}
	l.accept(l.r, rdcc.FlagParameterUpdate)
	add()
	if err := l.x.Cancel(l.now, id); err != nil {
		t.Fatal(err)
	}
	add()
	for i, s := range got {
		if s != uint32(i+1) || len(got) != 9 {
			t.Fatalf("sequence numbers %v", got)
		}
	}
}

// TestConfig: mistakes are named together; a copy is kept; the zero value has its defaults.
func TestConfig(t *testing.T) {
	_, err := New(Config{MaxMessages: -1, OnRefused: 9, Timing: Timing{DMax: -1, MinTimeout: time.Second}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"line rate", "messages", "on_refused", "DMax", "MinTimeout"} {
		if !contains(err.Error(), want) {
			t.Errorf("error %q does not name %s", err, want)
		}
	}
	x, err := New(Config{LineRate: 1, Rand: rand.New(rand.NewPCG(1, 1)), Capabilities: NoCapabilities})
	if err != nil || x.c.Capabilities != 0 || x.c.Timing != (Timing{}).defaults() || x.c.MaxMessages != 1<<20 {
		t.Errorf("config %+v, %v", x.c, err)
	}
	s := Timing{AssocRetry: 2 * ms}.Scale(10)
	if s.AssocRetry != 20*ms || s.MaxTimeout != time.Second || s.GiveUp != 30*time.Second || s.Keepalive != 3*time.Second {
		t.Errorf("scaled %+v", s)
	}
}
