package sender

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

func ptr(v uint8) *uint8 { return &v }

// TestModeByU: up to U unscheduled, above it, or when asked, with credit only.
func TestModeByU(t *testing.T) {
	for _, c := range []struct {
		why  string
		m    Message
		want State
		sent uint64
	}{
		{"as long as U", Message{Length: 16 * kib}, StateUnsched, 16 * kib},
		{"longer than U", Message{Length: 16*kib + 1}, StateWaiting, 0},
		{"a sender may use scheduled mode for any", Message{Length: 100, Scheduled: true}, StateWaiting, 0},
	} {
		l := newLab(t)
		id := l.submit(c.m)
		l.state(id, StateNew)
		l.types()
		l.accept(l.r)
		l.state(id, c.want)
		if d := l.one(rdcc.TypeCreditRequest).CreditRequest; d.UnscheduledSent != c.sent || d.MessageLength != c.m.Length {
			t.Errorf("%s: request %+v", c.why, d)
		}
	}
	l := newLab(t)
	l.r.accept.UnscheduledLimit = 0
	l.state(l.open(Message{Length: 1}), StateWaiting)
}

// TestStartDelay: uniform in [0, J], after the request, which goes at once.
func TestStartDelay(t *testing.T) {
	const n = 2000
	var quarter [4]int
	for seed := range uint64(n) {
		l := newLab(t, func(c *Config) { c.Rand = rand.New(rand.NewPCG(seed, 1)) })
		l.r.accept.StartJitter = 100
		id := l.open(Message{Length: 100})
		at, ok := l.x.Wait(l.now, id)
		delay := at - l.now
		if !ok || delay < 0 || delay > 100*us {
			t.Fatalf("seed %d: delay %v", seed, delay)
		}
		quarter[min(delay/(25*us), 3)]++
		l.now += delay - 1
		l.allowance(id, 0)
		l.now++
		l.allowance(id, 100)
		l.want("events", l.eventNames(), "allowed")
	}
	for _, k := range quarter { // 500 each; five standard deviations are 97
		if k < 400 || k > 600 {
			t.Errorf("delays by quarters of J: %v", quarter)
		}
	}
}

// TestRequestBeforeData: nothing may be sent while the request has not left.
func TestRequestBeforeData(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 100})
	l.pass(20 * us)
	l.doneMsg(id, 100)
	id = l.submit(Message{Length: 200})
	l.pass(20 * us)
	l.allowance(id, 0)
	l.transmit(id, 50) // the transport errs
	l.equal("beyond credit", l.x.Counters().BeyondCredit, uint64(50))
	l.events()
	l.one(rdcc.TypeCreditRequest)
	l.allowance(id, 200)
	l.want("events", l.eventNames(), "allowed")
	l.transmit(id, 200)
	l.equal("beyond credit", l.x.Counters().BeyondCredit, uint64(50))
}

// TestOneOutstanding: the next unscheduled message waits for MSG_DONE or a grant of the first.
func TestOneOutstanding(t *testing.T) {
	for _, end := range []string{"done", "grant", "cancel", "report"} {
		l := newLab(t)
		id := l.open(Message{Length: 100})
		l.state(id, StateUnsched)
		l.state(l.submit(Message{Length: 100}), StateWaiting)
		o := l.submit(Message{Length: 100, To: other})
		l.take()
		l.accept(l.o)
		l.state(o, StateUnsched) // another association has its own
		freed := true
		switch end {
		case "done":
			l.doneMsg(id, 100)
		case "grant":
			l.grant(id, 100)
			l.state(id, StateUnsched)
		case "cancel": // its octets may be on their way until J + lifetime + 2 D_max
			if err := l.x.Cancel(l.now, id); err != nil {
				t.Fatal(err)
			}
			l.run(10*us + ms + 2*ms - 1)
			l.state(l.submit(Message{Length: 100}), StateWaiting)
			l.run(1)
		case "report":
			l.x.Pause(l.now)
			freed = false
		}
		want := StateUnsched
		if !freed {
			want = StateWaiting
		}
		l.state(l.submit(Message{Length: 100}), want)
	}
}

// TestDSCPOfData: that of unscheduled traffic, then that of the class; none where the domain has none.
func TestDSCPOfData(t *testing.T) {
	l := newLab(t, func(c *Config) { c.DSCP.Unscheduled, c.DSCP.Class[2] = ptr(46), ptr(26) })
	id := l.open(Message{Length: 100, Class: 2})
	if v, ok := l.x.DSCP(id); !ok || v != 46 {
		t.Errorf("unscheduled: %d %t", v, ok)
	}
	l.x.Pause(l.now)
	if v, ok := l.x.DSCP(id); !ok || v != 26 {
		t.Errorf("class 2: %d %t", v, ok)
	}
	if v, ok := l.x.DSCP(l.submit(Message{To: first, Length: 100, Class: 3})); ok {
		t.Errorf("class 3, not configured: %d", v)
	}
}

// TestUFallsBeforeStart: a message that no longer fits when its delay ends waits for credit (decision 9).
func TestUFallsBeforeStart(t *testing.T) {
	l := newLab(t)
	l.r.accept.StartJitter = 1000
	id := l.open(Message{Length: 8 * kib})
	l.r.accept.UnscheduledLimit = 4 * kib
	l.accept(l.r, rdcc.FlagParameterUpdate)
	l.types()
	l.state(id, StateUnsched)
	at, _ := l.x.Wait(l.now, id)
	l.now = at
	l.allowance(id, 0)
	l.state(id, StateWaiting)
	l.equal("Unscheduled Sent", l.one(rdcc.TypeCreditRequest).CreditRequest.UnscheduledSent, uint64(0))
	l.want("events", l.eventNames(), "stopped")
}

// TestRequestTimeouts: twice the round trip, doubling up to 100 ms, in UNSCHED, WAITING and DRAINED.
func TestRequestTimeouts(t *testing.T) {
	for _, s := range []State{StateUnsched, StateWaiting, StateDrained} {
		l := newLab(t)
		l.submit(Message{Length: 100, Scheduled: s == StateWaiting})
		l.types()
		l.pass(80 * us)
		l.accept(l.r)
		l.one(rdcc.TypeCreditRequest)
		id := uint64(1)
		if s == StateDrained {
			l.pass(10 * us)
			l.transmit(id, 100)
		}
		l.state(id, s)
		want := 160 * us
		for range 16 {
			all := l.run(want - 1)
			l.equal("too early", len(all), 0)
			all = l.run(1)
			if len(all) != 1 || all[0].Type != rdcc.TypeCreditRequest {
				t.Fatalf("in %v after %v: %+v", s, want, all)
			}
			l.state(id, s)
			want = min(2*want, 100*ms)
		}
	}
}

// TestRequestTimeout_least: never under 100 microseconds, and 1 ms before there is a sample.
func TestRequestTimeout_least(t *testing.T) {
	l := newLab(t)
	l.open(long) // 20 us
	l.equal("early", len(l.run(100*us-1)), 0)
	l.equal("after 100 us", len(l.run(1)), 1)

	l = newLab(t)
	l.submit(long)
	l.run(ms)
	l.accept(l.r)
	l.take()
	l.equal("without sample, early", len(l.run(ms-1)), 0)
	l.equal("without sample, after 1 ms", len(l.run(1)), 1)
}

// TestBackoffResets on any grant, while a running timer is left alone (decisions 10 and 12).
func TestBackoffResets(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.run(100*us + 200*us + 400*us) // the next is in 800 us, the one after in 1600
	l.pass(100 * us)
	l.grant(id, 0) // nothing above the offset
	l.state(id, StateWaiting)
	l.equal("timer untouched", len(l.run(700*us-1)), 0)
	l.equal("timer untouched", len(l.run(1)), 1)
	l.equal("then from the first timeout on", len(l.run(100*us)), 1)
}

// TestGrantUsedUp: back to WAITING; the next request after one timeout (decision 12).
func TestGrantUsedUp(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.grant(id, 4096)
	l.state(id, StateScheduled)
	l.equal("no request while there is credit", len(l.run(500*us)), 0)
	l.transmit(id, 4096)
	l.state(id, StateWaiting)
	l.equal("not at once", len(l.run(100*us-1)), 0)
	l.equal("after one timeout", len(l.run(1)), 1)
}

// TestRequestFields: all that the application said is in each request, the deadline counted from there.
func TestRequestFields(t *testing.T) {
	l := newLab(t)
	l.submit(Message{
		Length: 4 << 20, Class: 2, Weight: 4, Hint: rdcc.HintLatencySensitive, Binding: rdcc.BindingRoCEv2, BindingValue: 0x0123000005_0010,
		Deadline: 200 * us,
	})
	l.types()
	l.pass(80 * us)
	l.accept(l.r)
	want := rdcc.CreditRequest{
		MessageID: 1, MessageLength: 4 << 20, Class: 2, Weight: 4, ServiceHint: rdcc.HintLatencySensitive, BindingKind: rdcc.BindingRoCEv2,
		BindingValue: 0x0123000005_0010, Deadline: 120,
	}
	l.equal("first", l.one(rdcc.TypeCreditRequest).CreditRequest, want)
	want.Deadline = 1 // at least
	l.equal("repeated", l.run(160 * us)[0].CreditRequest, want)
	l.submit(Message{Length: 1 << 20})
	d := l.one(rdcc.TypeCreditRequest).CreditRequest
	if d.MessageID != 2 || d.Weight != 1 || d.Deadline != 0 {
		t.Errorf("second message: %+v", d)
	}
}

// TestMessageIDs increase with each message of an association.
func TestMessageIDs(t *testing.T) {
	l := newLab(t)
	l.open(Message{Length: 10})
	for n := range 100 {
		id := l.submit(Message{Length: 10})
		d := l.one(rdcc.TypeCreditRequest).CreditRequest
		if d.MessageID != uint64(n+2) {
			t.Fatalf("message %d has the ID %d", n+2, d.MessageID)
		}
		l.doneMsg(id, 10)
	}
	id := l.submit(Message{Length: 10, To: other})
	l.take()
	l.accept(l.o)
	if _, m, ok := l.x.Wire(id); !ok || m != 1 || l.one(rdcc.TypeCreditRequest).CreditRequest.MessageID != 1 {
		t.Error("another association does not count for itself")
	}
}

// TestGiveUp: after 30 s without progress the receiver is told and the message is over.
func TestGiveUp(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.run(20 * time.Second)
	l.grant(id, 4096) // progress
	l.transmit(id, 4096)
	all := l.run(30*time.Second - 1)
	if _, ok := l.x.State(id); !ok || len(all) == 0 {
		t.Fatalf("given up too early, %d datagrams", len(all))
	}
	d := l.run(1)
	if len(d) != 1 || d[0].Cancel != (rdcc.Cancel{MessageID: 1, Reason: rdcc.ReasonApplicationAbort}) {
		t.Fatalf("datagrams %+v", d)
	}
	if e := l.gone(id, EventAborted); !e.GaveUp || e.Reason != rdcc.ReasonApplicationAbort {
		t.Errorf("event %+v", e)
	}
	l.equal("timers left", len(l.run(time.Minute)), 0)
}

// TestCancel: the receiver is told, once it has heard of the message; and again when it still grants.
func TestCancel(t *testing.T) {
	l := newLab(t)
	id := l.submit(long)
	if err := l.x.Cancel(l.now, id); err != nil {
		t.Fatal(err)
	}
	l.gone(id, EventAborted)
	l.want("of a message that nobody knows", l.types(), "ASSOC_REQUEST")
	if err := l.x.Cancel(l.now, id); !errors.Is(err, ErrUnknown) {
		t.Errorf("again: %v", err)
	}
	l.accept(l.r)
	id = l.submit(long)
	l.types()
	if err := l.x.Cancel(l.now, id); err != nil {
		t.Fatal(err)
	}
	want := rdcc.Cancel{MessageID: 2, Reason: rdcc.ReasonApplicationAbort}
	l.equal("cancel", l.one(rdcc.TypeCancel).Cancel, want)
	l.grant(id, 4096) // our CANCEL was lost
	l.equal("cancel again", l.one(rdcc.TypeCancel).Cancel, want)
	l.send(l.r, &rdcc.CreditGrant{MessageID: 99, GrantLimit: 1, PacingRate: 1})
	l.equal("a message that never was", l.types(), "")
}

// TestSubmitRefuses what cannot be sent, with its reason.
func TestSubmitRefuses(t *testing.T) {
	l := newLab(t, func(c *Config) { c.MaxAssociations, c.MaxMessages = 1, 2 })
	for _, m := range []Message{{To: first}, {Length: 1}, {To: first, Length: 1, Class: 8}} {
		if _, err := l.x.Submit(l.now, m); !errors.Is(err, ErrMessage) {
			t.Errorf("%+v: %v", m, err)
		}
	}
	l.submit(long)
	if _, err := l.x.Submit(l.now, Message{To: other, Length: 1}); !errors.Is(err, ErrAssociations) {
		t.Errorf("second association: %v", err)
	}
	l.submit(long)
	if _, err := l.x.Submit(l.now, Message{To: first, Length: 1}); !errors.Is(err, ErrMessages) {
		t.Errorf("third message: %v", err)
	}
}

// TestErrorsOfMessages end the one that they name, in each state; BUDGET_EXHAUSTED ends none.
func TestErrorsOfMessages(t *testing.T) {
	for _, r := range []rdcc.Reason{rdcc.ReasonMessageTooLarge, rdcc.ReasonApplicationAbort, rdcc.ReasonUnsupportedBinding} {
		l := newLab(t)
		id, next := l.open(long), l.submit(long)
		l.types()
		l.fail(r, id)
		l.equal("reason", l.gone(id, EventAborted).Reason, r)
		l.state(next, StateWaiting)
		l.equal("told", l.types(), "")
	}
	l := newLab(t)
	id := l.open(long)
	l.fail(rdcc.ReasonUnsupportedType, id)
	l.fail(0x99, id)
	l.fail(rdcc.ReasonNoError, id)
	l.state(id, StateWaiting)
	l.send(l.r, &rdcc.Cancel{MessageID: 1, Reason: rdcc.ReasonMessageTooLarge})
	l.equal("cancelled by the receiver", l.gone(id, EventAborted).Reason, rdcc.ReasonMessageTooLarge)
}

// TestBudgetExhausted: the application hears of it, the request goes on.
func TestBudgetExhausted(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.fail(rdcc.ReasonBudgetExhausted, id)
	l.fail(rdcc.ReasonBudgetExhausted, 0)
	l.state(id, StateWaiting)
	e := l.events()
	if len(e) != 2 || e[0].Kind != EventExhausted || e[0].ID != id || e[1].ID != 0 || e[1].To != first {
		t.Errorf("events %+v", e)
	}
	l.equal("requests", len(l.run(100*us)), 1)
	l.grant(id, 4096)
	l.fail(rdcc.ReasonBudgetExhausted, id)
	l.equal("not waiting: events", l.eventNames(), "allowed")
}

// TestDoneOfUnannounced: nothing is believed of a message that the receiver cannot know.
func TestDoneOfUnannounced(t *testing.T) {
	l := newLab(t)
	l.open(long)
	id := l.submit(long)
	l.doneMsg(id, 1<<20)
	l.grant(id, 4096)
	l.state(id, StateWaiting)
	l.allowance(id, 0)
	l.types()
	l.doneMsg(id, 5)
	l.gone(id, EventDone)
	l.equal("mismatch", l.x.Counters().DoneMismatch, uint64(1))
}
