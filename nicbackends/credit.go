package nicbackends

import (
	"context"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/rdcc/domain"
)

// Credited is a Backend whose NICs obey receiver-driven credit control: what they send waits for credit, and what they receive is granted.
type Credited interface {
	// Path completes a configuration with what the lab says of the NIC's way to the others, in hardware terms: line rate, base round-trip
	// time, payload and wire octets of a packet, time scale. What the configuration says itself stays.
	Path(lab *inventory.Lab, nic *inventory.NIC, c domain.Config) domain.Config
	// RDCC is how the NIC is configured now; nil: it has no gate.
	RDCC(ctx context.Context, h remote.Host, nic *inventory.NIC) (*domain.Config, error)
	// SetRDCC configures it, nil like Off, and reads back that it is so.
	SetRDCC(ctx context.Context, h remote.Host, nic *inventory.NIC, c *domain.Config) error
	// RDCCCommand is what does the same from the host itself, for whoever has to restore it.
	RDCCCommand(nic *inventory.NIC, c *domain.Config) []string
}
