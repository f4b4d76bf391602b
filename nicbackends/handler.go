package nicbackends

import (
	"context"
	"fmt"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/pcm/calls"
)

// Handled is a Backend whose NICs run PCM handlers.
type Handled interface {
	// Handlers resolves the NIC's rules for the lab, one a rule; all mistakes of their packages, and what the NIC cannot do, come here,
	// before anything is touched.
	Handlers(lab *inventory.Lab, nic *inventory.NIC) ([]Handler, []HandlerMistake)
}

// Diagnosed is a Backend whose NICs log every invocation of their handlers (package calls).
type Diagnosed interface {
	// LogCalls begins a log, or throws it away, as Setup does too.
	LogCalls(ctx context.Context, h remote.Host, nic *inventory.NIC, on bool) error
	// WriteCalls writes it to a file of the host.
	WriteCalls(ctx context.Context, h remote.Host, nic *inventory.NIC, path string) (calls.Header, error)
}

// Handler is a handler as it will be deployed.
type Handler struct {
	Name      string            `json:"name"`      // inventory.NoHandler: the NIC's own control loop
	Hash      string            `json:"hash"`      // of its sources, constants and the shell around it
	Match     string            `json:"match"`     // flows that it is for, in words; "": all
	Counter   string            `json:"counter"`   // what its counters end with: handler_runs_COUNTER
	Controls  []string          `json:"controls"`  // that it sets
	Set       []string          `json:"set"`       // constants that have another value: NAME=EXPRESSION
	Constants map[string]string `json:"constants"` // all, as resolved
	Limits    []string          `json:"limits"`    // what the NIC makes of signals that it does not have as they are

	Probes bool `json:"probes,omitempty"` // it lives on round trips, and the NIC measures them with probes

	Mask uint64 `json:"-"` // of the controls
}

// HandlerMistake is a mistake of one of a NIC's rules.
type HandlerMistake struct {
	Rule    int
	Key     string // of the rule: handler, match.to, set.NAME
	Message string
	Fix     string // may be empty
	Other   int    // one more than the rule that it also speaks of; 0: none
}

// Error is the mistake without its place.
func (m HandlerMistake) Error() string {
	if m.Fix != "" {
		return fmt.Sprintf("%s (%s)", m.Message, m.Fix)
	}
	return m.Message
}

// Overlaps finds rules that no flow can come to: one before matches all of theirs and sets one of their controls, or ends the search.
func Overlaps(rules []inventory.HandlerRule, handlers []Handler) (out []HandlerMistake) {
	for j := range rules {
		for i := range j {
			a, b := &rules[i], &rules[j]
			if !a.Match.Covers(&b.Match) {
				continue
			}
			if shared := common(handlers[i].Controls, handlers[j].Controls); shared != "" {
				out = append(out, HandlerMistake{Rule: j, Other: i + 1, Message: fmt.Sprintf("handler %q sets %s, which handler %q sets for every flow that this rule matches", b.Handler, shared, a.Handler),
					Fix: "give the one before a narrower match, or leave one out"})
				break
			}
			if a.Handler == inventory.NoHandler {
				out = append(out, HandlerMistake{Rule: j, Other: i + 1, Message: fmt.Sprintf("handler %q is given to no flow: a rule before leaves all that this one matches to the NIC", b.Handler),
					Fix: "put it before that rule, or leave one out"})
				break
			}
		}
	}
	return out
}

func common(a, b []string) string {
	for _, x := range a {
		for _, y := range b {
			if x == y {
				return x
			}
		}
	}
	return ""
}
