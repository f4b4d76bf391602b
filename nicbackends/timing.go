package nicbackends

import (
	"context"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

// Timing says how late a software device's timers were. A run on a machine that was too busy shows it here.
type Timing struct {
	P50     time.Duration `json:"p50_ns"`
	P99     time.Duration `json:"p99_ns"`
	Max     time.Duration `json:"max_ns"`
	Samples uint64        `json:"samples"`
}

// Timed is a Backend whose NICs keep time in software. Hardware backends do not implement it.
type Timed interface {
	// Timing reads the lateness since Setup; nil means that nothing was scheduled.
	Timing(ctx context.Context, h remote.Host, nic *inventory.NIC) (*Timing, error)
}
