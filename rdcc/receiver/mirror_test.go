package receiver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// The mirror of the sender's states: what the receiver's accounts say of message 1.
func mirrorState(c *client) string {
	r := c.l.r
	i, ok := r.byID[c.id]
	if !ok {
		return "no association"
	}
	a := &r.assocs[i]
	at := r.index.get(key{1, c.id, tagMessage})
	if at < 0 {
		switch {
		case a.holes.has(1):
			return "hole"
		case a.highest >= 1:
			return "complete"
		case r.index.get(key{1, c.id, tagEarly + tagMessage}) >= 0:
			return "early"
		}
		return "new"
	}
	switch m := &r.messages[at]; {
	case m.lingers:
		return "lingering"
	case m.cancelled && m.byUs:
		return "cancelled by us"
	case m.cancelled:
		return "cancelled"
	case m.bad:
		return "misbehaving"
	case m.presumed && m.release != 0:
		return "presumed"
	case m.credit.returned:
		return "returned"
	case m.credit.expired:
		return "expired"
	case m.credit.held > 0:
		return "granted"
	case m.release != 0:
		return "unscheduled"
	case m.queued != 0:
		return "waiting"
	}
	return "released"
}

const mirrorLength = 10000

// mirrorStates bring message 1 into each state.
var mirrorStates = []struct {
	name string
	to   func(c *client)
}{
	{"no association", func(c *client) { c.l.r.removeAssociation(c.l.r.byID[c.id]) }},
	{"new", func(c *client) {}},
	{"hole", func(c *client) { c.request(2, 0, 0) }},
	{"early", func(c *client) { c.data(1, 1000) }},
	{"unscheduled", func(c *client) { c.request(1, mirrorLength, mirrorLength) }},
	{"released", func(c *client) { c.request(1, mirrorLength, mirrorLength); c.l.pass(200 * us) }},
	{"presumed", func(c *client) {
		c.assoc().update.born = c.l.now
		c.request(1, mirrorLength, mirrorLength)
		c.presume()
	}},
	{"waiting", func(c *client) {
		b := c.l.client(99)
		b.request(1, 1<<30, 0)
		c.request(1, mirrorLength, 0)
	}},
	{"granted", func(c *client) { c.request(1, mirrorLength, 0) }},
	{"expired", func(c *client) { c.request(1, mirrorLength, 0); c.l.pass(200 * us) }},
	{"returned", func(c *client) {
		c.request(1, mirrorLength, 0)
		c.l.pass(20 * us)
		c.send(&rdcc.CreditReturn{MessageID: 1, NewLimit: 7000})
	}},
	{"misbehaving", func(c *client) { c.request(1, mirrorLength, 4000); c.request(1, mirrorLength, 5000) }},
	{"cancelled", func(c *client) { c.request(1, mirrorLength, 0); c.send(&rdcc.Cancel{MessageID: 1}) }},
	{"cancelled by us", func(c *client) { c.request(1, mirrorLength, 0); c.l.r.Cancel(c.l.now, c.id, 1) }},
	{"lingering", func(c *client) {
		c.request(1, mirrorLength, 0)
		c.l.r.Cancel(c.l.now, c.id, 1)
		c.l.pass(30 * us)
	}},
	{"complete", func(c *client) { c.request(1, mirrorLength, mirrorLength); c.data(1, mirrorLength) }},
}

// presume lets the announced octets count as those of before a restart.
func (c *client) presume() {
	at := c.l.r.index.get(key{1, c.id, tagMessage})
	c.l.r.messages[at].presumed = true
}

// mirrorKinds are all kinds of datagrams, in the variants that matter, and data.
var mirrorKinds = []struct {
	name string
	do   func(c *client)
}{
	{"request", func(c *client) {
		sent := uint64(0)
		if at := c.l.r.index.get(key{1, c.id, tagMessage}); at >= 0 {
			sent = c.l.r.messages[at].announced
		}
		c.request(1, mirrorLength, sent)
	}},
	{"request restated", func(c *client) { c.request(1, mirrorLength, 0) }},
	{"request raised", func(c *client) { c.request(1, mirrorLength, mirrorLength+1) }},
	{"ASSOC_REQUEST", func(c *client) { c.ask(0) }},
	{"acknowledgment", func(c *client) { c.ask(rdcc.FlagUpdateAck) }},
	{"ASSOC_ACCEPT", func(c *client) { c.send(&rdcc.AssocAccept{SenderNonce: c.nonce}) }},
	{"CREDIT_GRANT", func(c *client) { c.send(&rdcc.CreditGrant{MessageID: 1, GrantLimit: 1 << 20, PacingRate: 1}) }},
	{"SENDER_STATUS", func(c *client) { c.send(&rdcc.SenderStatus{SuggestedRate: 50000}) }},
	{"CONGESTION_REPORT", func(c *client) { c.l.report(node, report(255, c)) }},
	{"MSG_DONE", func(c *client) { c.send(&rdcc.MsgDone{MessageID: 1}) }},
	{"CANCEL", func(c *client) { c.send(&rdcc.Cancel{MessageID: 1}) }},
	{"CREDIT_RETURN", func(c *client) { c.send(&rdcc.CreditReturn{MessageID: 1, NewLimit: 5000}) }},
	{"ERROR", func(c *client) { c.send(&rdcc.Error{Reason: rdcc.ReasonApplicationAbort, MessageID: 1}) }},
	{"unknown type", func(c *client) {
		b := (&rdcc.Cancel{MessageID: 1}).Append(nil, c.header())
		b[1] = 0x40
		c.l.receive(c.addr, b)
	}},
	{"another epoch", func(c *client) {
		h := c.header()
		h.Epoch++
		c.l.receive(c.addr, (&rdcc.CreditRequest{MessageID: 1, MessageLength: mirrorLength, BindingKind: rdcc.BindingOpaque}).Append(nil, h))
	}},
	{"data", func(c *client) { c.data(1, 1000) }},
	{"data, all", func(c *client) { c.data(1, mirrorLength) }},
	{"data beyond", func(c *client) { c.data(1, mirrorLength+1) }},
	{"time", func(c *client) { c.l.pass(2 * time.Second) }},
}

// mirrorWant says what each pair sends and to which state it leads; a pair that is not here must be ignored: nothing is
// sent, and the state stays, since the type is one that receivers send, or because nothing of it concerns the state.
var mirrorWant = map[string]string{
	"no association / request":           "UNKNOWN_ASSOCIATION -> no association",
	"no association / request restated":  "UNKNOWN_ASSOCIATION -> no association",
	"no association / request raised":    "UNKNOWN_ASSOCIATION -> no association",
	"no association / ASSOC_REQUEST":     "ASSOC_ACCEPT -> no association",
	"no association / another epoch":     "UNKNOWN_ASSOCIATION -> no association",
	"new / request":                      "CREDIT_GRANT -> granted",
	"new / request restated":             "CREDIT_GRANT -> granted",
	"new / request raised":               " -> misbehaving",
	"new / ASSOC_REQUEST":                "ASSOC_ACCEPT -> new",
	"new / unknown type":                 "UNSUPPORTED_TYPE -> new",
	"new / another epoch":                "UNKNOWN_ASSOCIATION -> new",
	"new / CANCEL":                       " -> complete", // of a message that was refused: nobody will ask for it any more
	"hole / CANCEL":                      " -> complete",
	"early / CANCEL":                     " -> complete",
	"new / data":                         " -> early",
	"new / data, all":                    " -> early",
	"new / data beyond":                  " -> early",
	"hole / request":                     "CREDIT_GRANT -> granted",
	"hole / request restated":            "CREDIT_GRANT -> granted",
	"hole / request raised":              " -> misbehaving",
	"hole / ASSOC_REQUEST":               "ASSOC_ACCEPT -> hole",
	"hole / unknown type":                "UNSUPPORTED_TYPE -> hole",
	"hole / another epoch":               "UNKNOWN_ASSOCIATION -> hole",
	"early / request":                    " -> misbehaving",
	"early / request restated":           " -> misbehaving",
	"early / request raised":             " -> misbehaving",
	"early / ASSOC_REQUEST":              "ASSOC_ACCEPT -> early",
	"early / unknown type":               "UNSUPPORTED_TYPE -> early",
	"early / another epoch":              "UNKNOWN_ASSOCIATION -> early",
	"unscheduled / request restated":     "CREDIT_GRANT -> granted",
	"unscheduled / request raised":       " -> misbehaving",
	"unscheduled / ASSOC_REQUEST":        "ASSOC_ACCEPT -> unscheduled",
	"unscheduled / CANCEL":               " -> cancelled",
	"unscheduled / unknown type":         "UNSUPPORTED_TYPE -> unscheduled",
	"unscheduled / another epoch":        "UNKNOWN_ASSOCIATION -> unscheduled",
	"unscheduled / data, all":            "MSG_DONE -> complete",
	"unscheduled / data beyond":          "MSG_DONE -> complete",
	"unscheduled / time":                 "ASSOC_ACCEPT -> released",
	"released / request restated":        "CREDIT_GRANT -> granted",
	"released / request raised":          " -> misbehaving",
	"released / ASSOC_REQUEST":           "ASSOC_ACCEPT -> released",
	"released / CANCEL":                  " -> cancelled",
	"released / unknown type":            "UNSUPPORTED_TYPE -> released",
	"released / another epoch":           "UNKNOWN_ASSOCIATION -> released",
	"released / data, all":               "MSG_DONE -> complete",
	"released / data beyond":             "MSG_DONE -> complete",
	"released / time":                    "ASSOC_ACCEPT -> released",
	"presumed / request raised":          " -> misbehaving",
	"presumed / ASSOC_REQUEST":           "ASSOC_ACCEPT -> presumed",
	"presumed / CANCEL":                  " -> cancelled",
	"presumed / unknown type":            "UNSUPPORTED_TYPE -> presumed",
	"presumed / another epoch":           "UNKNOWN_ASSOCIATION -> presumed",
	"presumed / data, all":               "MSG_DONE -> complete",
	"presumed / data beyond":             "MSG_DONE -> complete",
	"presumed / time":                    "MSG_DONE -> complete",
	"waiting / request raised":           " -> misbehaving",
	"waiting / ASSOC_REQUEST":            "ASSOC_ACCEPT -> waiting",
	"waiting / CANCEL":                   " -> cancelled",
	"waiting / unknown type":             "UNSUPPORTED_TYPE -> waiting",
	"waiting / another epoch":            "UNKNOWN_ASSOCIATION -> waiting",
	"waiting / data":                     " -> misbehaving",
	"waiting / data, all":                " -> misbehaving",
	"waiting / data beyond":              " -> misbehaving",
	"waiting / time":                     "CREDIT_GRANT -> expired",
	"granted / request":                  "CREDIT_GRANT -> granted",
	"granted / request restated":         "CREDIT_GRANT -> granted",
	"granted / request raised":           " -> misbehaving",
	"granted / ASSOC_REQUEST":            "ASSOC_ACCEPT -> granted",
	"granted / CANCEL":                   " -> cancelled",
	"granted / CREDIT_RETURN":            " -> returned",
	"granted / unknown type":             "UNSUPPORTED_TYPE -> granted",
	"granted / another epoch":            "UNKNOWN_ASSOCIATION -> granted",
	"granted / data, all":                "MSG_DONE -> complete",
	"granted / data beyond":              "MSG_DONE -> complete",
	"granted / time":                     " -> expired",
	"expired / request":                  "CREDIT_GRANT -> granted",
	"expired / request restated":         "CREDIT_GRANT -> granted",
	"expired / request raised":           " -> misbehaving",
	"expired / ASSOC_REQUEST":            "ASSOC_ACCEPT -> expired",
	"expired / CANCEL":                   " -> cancelled",
	"expired / CREDIT_RETURN":            " -> returned",
	"expired / unknown type":             "UNSUPPORTED_TYPE -> expired",
	"expired / another epoch":            "UNKNOWN_ASSOCIATION -> expired",
	"expired / data, all":                "MSG_DONE -> complete",
	"expired / data beyond":              "MSG_DONE -> complete",
	"returned / request":                 "CREDIT_GRANT -> granted",
	"returned / request restated":        "CREDIT_GRANT -> granted",
	"returned / request raised":          " -> misbehaving",
	"returned / ASSOC_REQUEST":           "ASSOC_ACCEPT -> returned",
	"returned / CANCEL":                  " -> cancelled",
	"returned / unknown type":            "UNSUPPORTED_TYPE -> returned",
	"returned / another epoch":           "UNKNOWN_ASSOCIATION -> returned",
	"returned / data, all":               "MSG_DONE -> complete",
	"returned / data beyond":             "MSG_DONE -> complete",
	"misbehaving / ASSOC_REQUEST":        "ASSOC_ACCEPT -> misbehaving",
	"misbehaving / CANCEL":               " -> cancelled",
	"misbehaving / unknown type":         "UNSUPPORTED_TYPE -> misbehaving",
	"misbehaving / another epoch":        "UNKNOWN_ASSOCIATION -> misbehaving",
	"misbehaving / data, all":            "MSG_DONE -> complete",
	"misbehaving / data beyond":          "MSG_DONE -> complete",
	"cancelled / ASSOC_REQUEST":          "ASSOC_ACCEPT -> cancelled",
	"cancelled / unknown type":           "UNSUPPORTED_TYPE -> cancelled",
	"cancelled / another epoch":          "UNKNOWN_ASSOCIATION -> cancelled",
	"cancelled / time":                   " -> complete",
	"cancelled by us / request":          "CANCEL -> cancelled by us",
	"cancelled by us / request restated": "CANCEL -> cancelled by us",
	"cancelled by us / request raised":   "CANCEL -> cancelled by us",
	"cancelled by us / ASSOC_REQUEST":    "ASSOC_ACCEPT -> cancelled by us",
	"cancelled by us / unknown type":     "UNSUPPORTED_TYPE -> cancelled by us",
	"cancelled by us / another epoch":    "UNKNOWN_ASSOCIATION -> cancelled by us",
	"cancelled by us / time":             " -> hole",
	"lingering / request":                "CANCEL -> lingering",
	"lingering / request restated":       "CANCEL -> lingering",
	"lingering / request raised":         "CANCEL -> lingering",
	"lingering / ASSOC_REQUEST":          "ASSOC_ACCEPT -> lingering",
	"lingering / unknown type":           "UNSUPPORTED_TYPE -> lingering",
	"lingering / another epoch":          "UNKNOWN_ASSOCIATION -> lingering",
	"lingering / time":                   " -> hole",
	"complete / request":                 "MSG_DONE -> complete",
	"complete / request restated":        "MSG_DONE -> complete",
	"complete / request raised":          "MSG_DONE -> complete",
	"complete / ASSOC_REQUEST":           "ASSOC_ACCEPT -> complete",
	"complete / unknown type":            "UNSUPPORTED_TYPE -> complete",
	"complete / another epoch":           "UNKNOWN_ASSOCIATION -> complete",
}

// TestMirror walks all kinds of datagrams in all states.
func TestMirror(t *testing.T) {
	pairs, ignored := 0, 0
	for _, s := range mirrorStates {
		for _, k := range mirrorKinds {
			pairs++
			l := newLab(t, func(c *Config) { c.G, c.Gu, c.U, c.ExpectedSenders = 60000, 40000, 10000, 2 })
			c := l.client(1).old()
			s.to(c)
			if got := mirrorState(c); got != s.name {
				t.Fatalf("%s: set up as %q", s.name, got)
			}
			l.poll()
			l.out = nil
			k.do(c)
			var sent []string
			for _, w := range l.out {
				name := w.Type.String()
				if w.Type == rdcc.TypeError {
					name = w.Error.Reason.String()
				}
				if w.to == c.addr && !slices.Contains(sent, name) {
					sent = append(sent, name)
				}
			}
			got := fmt.Sprintf("%s -> %s", strings.Join(sent, " "), mirrorState(c))
			want, listed := mirrorWant[s.name+" / "+k.name]
			if !listed {
				want = " -> " + s.name
				ignored++
			}
			if got != want {
				t.Errorf("%s / %s: %q, want %q", s.name, k.name, got, want)
			}
			if l.r.Counters.InvariantViolations != 0 || l.charged() > 60000 {
				t.Errorf("%s / %s: %d charged, %d invariant violations", s.name, k.name, l.charged(), l.r.Counters.InvariantViolations)
			}
		}
	}
	t.Logf("%d pairs of state and datagram: %d are rows, %d are ignored", pairs, pairs-ignored, ignored)
}
