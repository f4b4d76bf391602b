package nicbackends

import (
	"context"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/locks"
)

// Deployer is a Handled whose handlers are programs in the NIC, each kept there for the time of a run by a process of the host. A Handled that
// is none loads its handlers in Setup.
type Deployer interface {
	// Claims are what a run needs of the host's NIC for itself: to send with a handler, or to receive from such a sender.
	Claims(ctx context.Context, h remote.Host, nic *inventory.NIC, sends bool) ([]locks.Resource, error)
	// Ready looks at what a NIC needs to send with a handler (that of the deployment; without one, with any), or to answer what the senders' handlers
	// need of it. It changes nothing. The error says that the host could not be asked.
	Ready(ctx context.Context, d Deployment, sends bool) (Readiness, error)
	// Deploy builds the NIC's handler, loads it, and returns when the NIC says that it runs. It does not ask before it builds: Ready does.
	Deploy(ctx context.Context, d Deployment) (Deployed, error)
}

// Readiness is what a NIC needs, each held against what was found.
type Readiness struct {
	Conditions []Condition
	Notes      []string // for people
}

// Condition is one thing that a NIC needs.
type Condition struct {
	What  string // firmware, USER_PROGRAMMABLE_CC, ...
	State ConditionState
	Found string // "": nothing
	Why   string // it does not hold, or is not known to
	Fix   string
}

// ConditionState says whether a condition holds.
type ConditionState int

// The states of a condition.
const (
	Holds    ConditionState = iota
	Lacks                   // handlers do not run, or not rightly
	HoldsNow                // but the next boot changes it
	NotKnown                // it cannot be judged
)

// Deployment is a handler that is to be loaded.
type Deployment struct {
	Host  remote.Host
	Sudo  bool        // of the host
	Build remote.Host // that builds it; nil: Host
	Lab   *inventory.Lab
	NIC   *inventory.NIC
	Run   string
	Owner string
	For   time.Duration // at most
	Say   func(string)  // what happens, for the timeline; nil: nobody listens
}

// Deployed is a handler in a NIC.
type Deployed interface {
	// Counters are those of the handler, under the names of a run's checks (handler_runs_NAME).
	Counters(ctx context.Context) (map[string]uint64, error)
	// Remove takes it out, sees that the NIC is as it was, and says what became of it. A second call says the same.
	Remove(ctx context.Context) (DeployReport, error)
}

// DeployReport is what became of a handler in a NIC, for a run's record.
type DeployReport struct {
	Schema  string `json:"schema"` // pcmlab/deployment/v1
	Backend string `json:"backend"`
	Handler string `json:"handler"`
	Hash    string `json:"hash"`
	Device  string `json:"device"`
	BuiltOn string `json:"built_on"`
	Compile string `json:"compiler"` // its version, as the build host tells

	Start   string    `json:"state_at_start"` // active, ...
	End     string    `json:"state_at_end"`
	Stopped string    `json:"stopped,omitempty"` // why it did not run to the end; "": it did
	At      time.Time `json:"stopped_at,omitzero"`
	Found   any       `json:"found"`  // what was read of the NIC before
	Events  []any     `json:"events"` // all that happened, in order
	Notes   []string  `json:"notes"`
}
