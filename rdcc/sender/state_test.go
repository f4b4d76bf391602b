package sender

import (
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// A cell says what an event does to a message in a state: the next state, what is sent, and whose word that is: the draft's
// table, a decision, or why the event is ignored.
type cell struct{ next, sends, why string }

const (
	draft = "draft"
	same  = "" // the state stays
)

func ignored(reason string) cell { return cell{same, "", "ignored: " + reason} }

var (
	unheard = ignored("the receiver has not heard of the message, so that this is not of it")
	over    = ignored("the message is over, its state is released")
	quiet   = ignored("reports and pauses stop unscheduled transmission only (decision 10)")
	noDelay = ignored("there is no start delay in this state")
	noGrant = ignored("no grant is held, so none ends")
	answer  = ignored("a repeated answer of the same incarnation changes no message")
	open    = ignored("counts only while the association is being asked for (decision 21)")
)

// states are made by these.
var states = [numStates]func(l *lab) uint64{
	func(l *lab) uint64 {
		id := l.submit(Message{Length: 10000})
		l.one(rdcc.TypeAssocRequest)
		return id
	},
	func(l *lab) uint64 { return l.open(Message{Length: 10000}) },
	func(l *lab) uint64 { return l.open(Message{Length: 10000, Scheduled: true}) },
	func(l *lab) uint64 {
		id := l.open(Message{Length: 10000, Scheduled: true})
		l.send(l.r, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 5000, PacingRate: 100000, Lifetime: 30})
		return id
	},
	func(l *lab) uint64 {
		id := l.open(Message{Length: 10000, Scheduled: true})
		l.grant(id, 10000)
		l.transmit(id, 10000)
		return id
	},
	func(l *lab) uint64 {
		id := l.open(Message{Length: 10000})
		l.doneMsg(id, 10000)
		return id
	},
	func(l *lab) uint64 {
		id := l.open(Message{Length: 10000})
		_ = l.x.Cancel(l.now, id)
		l.types()
		return id
	},
}

func refuse(l *lab) {
	l.raw(first, rdcc.Header{}, &rdcc.Error{Reason: rdcc.ReasonAssocRefused})
}

// transitions has a row for each event and in it a cell for each state: NEW, UNSCHED, WAITING, SCHEDULED, DRAINED, DONE, ABORTED.
var transitions = []struct {
	event string
	do    func(l *lab, id uint64, s State)
	cells [numStates]cell
	make  func(l *lab) uint64 // of SCHEDULED, instead of a message with credit of its own
}{
	{"association established, length <= U and none outstanding", func(l *lab, _ uint64, _ State) { l.accept(l.r) }, [numStates]cell{
		{"UNSCHED", "CREDIT_REQUEST", draft}, answer, answer, answer, answer, over, over}, nil},
	{"association established, otherwise", func(l *lab, _ uint64, _ State) { l.r.accept.UnscheduledLimit = 0; l.accept(l.r) }, [numStates]cell{
		{"WAITING", "CREDIT_REQUEST", draft}, {same, "", "decision 9: looked at when the delay ends"}, answer, answer, answer, over, over}, nil},
	{"no answer to eight ASSOC_REQUEST", func(l *lab, _ uint64, s State) {
		for range 8 {
			if s == StateNew {
				l.take()
				at, _ := l.x.Deadline()
				l.pass(at - l.now)
			}
		}
	}, [numStates]cell{
		{"ABORTED", "", "Association Establishment: the transport sends it without RDCC"}, open, open, open, open, over, over}, nil},
	{"all octets transmitted", func(l *lab, id uint64, s State) {
		l.pass(10 * us)
		if s == StateScheduled {
			l.grant(id, 10000)
		}
		l.transmit(id, 10000)
	}, [numStates]cell{
		ignored("nothing was allowed; counted as beyond credit"), {"DRAINED", "", draft},
		{"DRAINED", "", "nothing was allowed; counted as beyond credit, and true all the same"}, {"DRAINED", "", draft},
		ignored("they are already"), over, over}, nil},
	{"Grant Limit reached before message end", func(l *lab, id uint64, _ State) { l.pass(10 * us); l.transmit(id, 5000) }, [numStates]cell{
		ignored("nothing was allowed; counted as beyond credit"), ignored("no limit holds in unscheduled mode"),
		ignored("nothing was allowed; counted as beyond credit"), {"WAITING", "", draft}, ignored("they are transmitted already"), over, over}, nil},
	{"CONGESTION_REPORT", func(l *lab, _ uint64, _ State) { l.report(reportOf()) }, [numStates]cell{
		quiet, {"WAITING", "CREDIT_REQUEST", draft}, quiet, quiet, quiet, over, over}, nil},
	{"link pause", func(l *lab, _ uint64, _ State) { l.x.Pause(l.now) }, [numStates]cell{
		quiet, {"WAITING", "CREDIT_REQUEST", draft}, quiet, quiet, quiet, over, over}, nil},
	{"start delay over", func(l *lab, _ uint64, _ State) { l.pass(10 * us) }, [numStates]cell{
		noDelay, {same, "", "Unscheduled Transmission 1: transmission may begin"}, noDelay, noDelay, noDelay, over, over}, nil},
	{"start delay over, U fell meanwhile", func(l *lab, _ uint64, s State) {
		if s != StateNew {
			l.r.accept.UnscheduledLimit = 0
			l.accept(l.r)
		}
		l.pass(10 * us)
	}, [numStates]cell{noDelay, {"WAITING", "CREDIT_REQUEST", "decision 9"}, noDelay, noDelay, noDelay, over, over}, nil},
	{"request timeout", func(l *lab, id uint64, s State) {
		if s == StateScheduled { // so that its lifetime is not what ends
			l.grant(id, 5000)
		}
		l.pass(100 * us)
	}, [numStates]cell{
		ignored("ASSOC_REQUEST has a timer of its own"), {same, "CREDIT_REQUEST", "decision 10"}, {same, "CREDIT_REQUEST", draft},
		ignored("it holds credit, no request is out"), {same, "CREDIT_REQUEST", draft}, over, over}, nil},
	{"Lifetime elapsed", func(l *lab, _ uint64, _ State) { l.pass(30 * us) }, [numStates]cell{
		noGrant, noGrant, noGrant, {"WAITING", "CREDIT_REQUEST", draft}, noGrant, over, over}, nil},
	{"CREDIT_GRANT above transmitted offset", func(l *lab, id uint64, _ State) { l.grant(id, 8000) }, [numStates]cell{
		unheard, {same, "", "decision 10: the limit is kept, another message may start"}, {"SCHEDULED", "", draft},
		{same, "", "Credit Requests and Grants 1: the limit is raised"}, ignored("decision 10"),
		{same, "CANCEL", "granted though done: the receiver is told that nothing comes"}, {same, "CANCEL", "our CANCEL was lost"}}, nil},
	{"CREDIT_GRANT not above transmitted offset", func(l *lab, id uint64, _ State) { l.grant(id, 0) }, [numStates]cell{
		unheard, {same, "", "decision 10: no longer outstanding"}, {same, "", "decision 10: timer untouched"},
		{same, "", "Credit Requests and Grants 1: a refresh"}, ignored("decision 10"),
		{same, "CANCEL", "granted though done: the receiver is told that nothing comes"}, {same, "CANCEL", "our CANCEL was lost"}}, nil},
	{"pool CREDIT_GRANT", func(l *lab, _ uint64, _ State) { l.pool(5000) }, [numStates]cell{
		unheard, ignored("it covers scheduled messages"), {"SCHEDULED", "", "Traffic Classes and Pool Credit: its part"},
		ignored("decision 4: the association is one of grants per message"), ignored("decision 4: the association is one of grants per message"),
		over, over}, nil},
	{"pool credit taken by a higher class", func(l *lab, _ uint64, s State) {
		if s == StateScheduled {
			l.submit(Message{Length: 5000, Scheduled: true})
			l.one(rdcc.TypeCreditRequest)
		}
	}, [numStates]cell{
		ignored("holds no pool credit"), ignored("holds no pool credit"), ignored("holds no pool credit"),
		{"WAITING", "", "Traffic Classes and Pool Credit: strict order; the request's timer goes on (decision 5)"}, ignored("holds no pool credit"), over, over},
		func(l *lab) uint64 {
			id := l.open(Message{Length: 10000, Scheduled: true, Class: 1})
			l.pool(5000)
			return id
		}},
	{"Lifetime of the pool elapsed", func(l *lab, _ uint64, s State) {
		if s == StateScheduled {
			l.pass(40 * us)
		}
	}, [numStates]cell{noGrant, noGrant, noGrant, {"WAITING", "CREDIT_REQUEST", draft}, noGrant, over, over},
		func(l *lab) uint64 {
			id := l.open(Message{Length: 10000, Scheduled: true})
			l.send(l.r, &rdcc.CreditGrant{GrantLimit: 5000, PacingRate: 1000, Lifetime: 40}, rdcc.FlagPool)
			return id
		}},
	{"request timeout with pool credit", func(l *lab, _ uint64, s State) {
		if s == StateScheduled {
			l.pass(100 * us)
		}
	}, [numStates]cell{
		ignored("as without pool"), ignored("as without pool"), ignored("as without pool"), {same, "CREDIT_REQUEST", "decision 5"},
		ignored("as without pool"), over, over},
		func(l *lab) uint64 {
			id := l.open(Message{Length: 10000, Scheduled: true})
			l.pool(5000)
			return id
		}},
	{"MSG_DONE", func(l *lab, id uint64, _ State) { l.doneMsg(id, 10000) }, [numStates]cell{
		unheard, {"DONE", "", "decision 10"}, {"DONE", "", "decision 10"}, {"DONE", "", "decision 10"}, {"DONE", "", draft}, over, over}, nil},
	{"CANCEL from the receiver", func(l *lab, _ uint64, _ State) { l.send(l.r, &rdcc.Cancel{MessageID: 1}) }, [numStates]cell{
		unheard, {"ABORTED", "", draft}, {"ABORTED", "", draft}, {"ABORTED", "", draft}, {"ABORTED", "", draft}, over, over}, nil},
	{"CANCEL by the application", func(l *lab, id uint64, _ State) { _ = l.x.Cancel(l.now, id) }, [numStates]cell{
		{"ABORTED", "", draft}, {"ABORTED", "CANCEL", draft}, {"ABORTED", "CANCEL", draft}, {"ABORTED", "CANCEL", draft}, {"ABORTED", "CANCEL", draft}, over, over}, nil},
	{"give-up time without progress", func(l *lab, _ uint64, s State) {
		if s < StateDone {
			l.pass(30 * time.Second)
		}
	}, [numStates]cell{
		{"ABORTED", "ASSOC_REQUEST", "decision 24"}, {"ABORTED", "CANCEL", "decision 24"}, {"ABORTED", "CANCEL", "decision 24"},
		{"ABORTED", "CANCEL", "decision 24"}, {"ABORTED", "CANCEL", "decision 24"}, over, over}, nil},
	{"credit returned by the application", func(l *lab, id uint64, _ State) { _ = l.x.Return(l.now, id, 0) }, [numStates]cell{
		ignored("holds no credit"), ignored("holds no credit"), ignored("holds no credit"),
		{"WAITING", "CREDIT_RETURN", "CREDIT_RETURN: nothing is left to transmit with"}, ignored("holds no credit"), over, over}, nil},
	{"ERROR MESSAGE_TOO_LARGE", func(l *lab, id uint64, _ State) { l.fail(rdcc.ReasonMessageTooLarge, id) }, aborting, nil},
	{"ERROR APPLICATION_ABORT", func(l *lab, id uint64, _ State) { l.fail(rdcc.ReasonApplicationAbort, id) }, aborting, nil},
	{"ERROR UNSUPPORTED_BINDING", func(l *lab, id uint64, _ State) { l.fail(rdcc.ReasonUnsupportedBinding, id) }, aborting, nil},
	{"ERROR BUDGET_EXHAUSTED", func(l *lab, id uint64, _ State) { l.fail(rdcc.ReasonBudgetExhausted, id) }, [numStates]cell{
		unheard, ignored("only those that wait are concerned"), {same, "", draft}, ignored("only those that wait are concerned"),
		ignored("only those that wait are concerned"), over, over}, nil},
	{"ERROR UNSUPPORTED_TYPE or another", func(l *lab, id uint64, _ State) {
		l.fail(rdcc.ReasonUnsupportedType, id)
		l.fail(rdcc.ReasonNoError, id)
		l.fail(0xffff, id)
	}, [numStates]cell{unheard, ignored("says nothing of a message"), ignored("says nothing of a message"), ignored("says nothing of a message"),
		ignored("says nothing of a message"), over, over}, nil},
	{"ERROR ASSOC_REFUSED, twice", func(l *lab, _ uint64, s State) {
		refuse(l)
		if s == StateNew {
			l.pass(ms)
			l.take()
		}
		refuse(l)
	}, [numStates]cell{{"ABORTED", "", draft}, open, open, open, open, over, over}, nil},
	{"ERROR ASSOC_REFUSED, twice, after UNKNOWN_ASSOCIATION", func(l *lab, _ uint64, s State) {
		if s >= StateDone {
			return
		}
		l.unknown()
		refuse(l)
		l.pass(ms)
		l.take()
		refuse(l)
	}, [numStates]cell{{"ABORTED", "", draft}, {"ABORTED", "", draft}, {"ABORTED", "", draft}, {"ABORTED", "", draft}, {"ABORTED", "", draft}, over, over}, nil},
	{"ERROR UNKNOWN_ASSOCIATION", func(l *lab, _ uint64, s State) {
		if s < StateDone {
			l.unknown()
		}
	}, [numStates]cell{
		ignored("there is no association that could be unknown"), {"WAITING", "ASSOC_REQUEST", draft}, {"WAITING", "ASSOC_REQUEST", draft},
		{"WAITING", "ASSOC_REQUEST", draft}, {"WAITING", "ASSOC_REQUEST", draft}, over, over}, nil},
	{"new Epoch in the ASSOC_ACCEPT after it", func(l *lab, _ uint64, s State) {
		if s != StateNew {
			l.unknown()
			l.take()
		}
		l.r.epoch++
		l.accept(l.r)
	}, [numStates]cell{
		{"UNSCHED", "CREDIT_REQUEST", draft}, {"WAITING", "CREDIT_REQUEST", draft}, {"WAITING", "CREDIT_REQUEST", draft},
		{"WAITING", "CREDIT_REQUEST", draft}, {"WAITING", "CREDIT_REQUEST", draft}, over, over}, nil},
	{"ASSOC_ACCEPT of another Epoch that was not asked for", func(l *lab, _ uint64, s State) {
		if s == StateNew { // asked: this is its first
			l.r.nonce++
		}
		l.r.epoch++
		l.accept(l.r)
	}, [numStates]cell{
		ignored("another nonce"), ignored("late, of a former life"), ignored("late, of a former life"), ignored("late, of a former life"),
		ignored("late, of a former life"), over, over}, nil},
	{"parameter update", func(l *lab, _ uint64, s State) {
		if s != StateNew {
			l.accept(l.r, rdcc.FlagParameterUpdate)
		}
	}, [numStates]cell{
		ignored("there is no association to update"), {same, "ASSOC_REQUEST", "decision 8: acknowledged"}, {same, "ASSOC_REQUEST", "decision 8: acknowledged"},
		{same, "ASSOC_REQUEST", "decision 8: acknowledged"}, {same, "ASSOC_REQUEST", "decision 8: acknowledged"}, {same, "ASSOC_REQUEST", "decision 8: acknowledged"},
		{same, "ASSOC_REQUEST", "decision 8: acknowledged"}}, nil},
}

var aborting = [numStates]cell{unheard, {"ABORTED", "", draft}, {"ABORTED", "", draft}, {"ABORTED", "", draft}, {"ABORTED", "", draft}, over, over}

// TestStateTable walks each state with each event. What is not in the table fails, as does what it does not say.
func TestStateTable(t *testing.T) {
	counts := map[string]int{}
	for _, row := range transitions {
		for s := range numStates {
			c := row.cells[s]
			l := newLab(t)
			build := states[s]
			if row.make != nil && s == StateScheduled {
				build = row.make
			}
			id := build(l)
			if got := l.stateName(id, s); got != s.String() {
				t.Fatalf("%s: made as %s, want %s", row.event, got, s)
			}
			l.events()
			row.do(l, id, s)
			want := c.next
			if want == same {
				want = s.String()
			}
			sends := l.types()
			if got := l.stateName(id, s); got != want || sends != c.sends {
				t.Errorf("%s x %s: %s, sends %q; want %s, %q (%s)", s, row.event, got, sends, want, c.sends, c.why)
			}
			switch {
			case c.why == draft:
				counts["rows of the draft"]++
			case strings.HasPrefix(c.why, "ignored: ") && len(c.why) > len("ignored: "):
				counts["explicitly ignored"]++
			case c.why != "":
				counts["rows of the decisions or of other sections"]++
			default:
				t.Errorf("%s x %s has no reason", s, row.event)
			}
		}
	}
	t.Logf("%d states x %d events = %d: %v", numStates, len(transitions), int(numStates)*len(transitions), counts)
}

// stateName tells those at their end apart by the events, and without one takes was.
func (l *lab) stateName(id uint64, was State) string {
	if s, ok := l.x.State(id); ok {
		return s.String()
	}
	for _, e := range l.events() {
		switch {
		case e.ID != id:
		case e.Kind == EventDone:
			return StateDone.String()
		case e.Kind == EventAborted || e.Kind == EventWithout:
			return StateAborted.String()
		}
	}
	return was.String()
}

// TestStateTable_newWhenEpochChanges: a message submitted while the association is lost goes to WAITING when a new Epoch
// comes, as all do that are not at their end.
func TestStateTable_newWhenEpochChanges(t *testing.T) {
	l := newLab(t)
	l.open(long)
	l.unknown()
	id := l.submit(Message{Length: 100})
	l.state(id, StateNew)
	l.types()
	l.r.epoch++
	l.accept(l.r)
	l.state(id, StateWaiting)
	l.want("both are announced", l.types(), "CREDIT_REQUEST CREDIT_REQUEST")
}
