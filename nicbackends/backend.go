// Package nicbackends is what pcmlab knows about kinds of NIC: what each can do and how it is asked.
package nicbackends

import (
	"context"
	"fmt"
	"sort"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

// Cap is something that a NIC can do and that an expectation may need.
type Cap string

// The capabilities that playbooks may name in `needs:`.
const (
	ECN Cap = "ecn" // marks its data ECN-capable
	CNP Cap = "cnp" // answers CE marks with CNPs
	CC  Cap = "cc"  // lowers its rate on CNPs
	PFC Cap = "pfc" // obeys PFC

	RDCC        Cap = "rdcc"         // this run is under receiver-driven credit control
	WithoutRDCC Cap = "without_rdcc" // it is not
)

// Backend knows one kind of NIC. Implementations are stateless values; every call names the host and NIC.
type Backend interface {
	Name() string
	Caps() []Cap
	// Setup makes the NIC ready for a run as its inventory entry says; it is idempotent.
	Setup(ctx context.Context, h remote.Host, lab *inventory.Lab, nic *inventory.NIC) error
	// Counters reads the NIC's cumulative counters under the names of hw_counters. A counter that the NIC does not
	// have is absent, never zero.
	Counters(ctx context.Context, h remote.Host, nic *inventory.NIC) (map[string]uint64, error)
}

// Registry finds backends by the name an inventory uses.
type Registry map[string]Backend

// NewRegistry holds the given backends.
func NewRegistry(backends ...Backend) Registry {
	r := Registry{}
	for _, b := range backends {
		r[b.Name()] = b
	}
	return r
}

// Find returns the named backend or an error that lists the known ones.
func (r Registry) Find(name string) (Backend, error) {
	if b, ok := r[name]; ok {
		return b, nil
	}
	names := make([]string, 0, len(r))
	for n := range r {
		names = append(names, n)
	}
	sort.Strings(names)
	return nil, fmt.Errorf("NIC backend %q: unknown (known: %v)", name, names)
}
