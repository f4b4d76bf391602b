package softnic

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends"
)

var _ nicbackends.Timed = Backend{}

// Timing reads how late the NIC's thread woke.
func (Backend) Timing(ctx context.Context, h remote.Host, nic *inventory.NIC) (*nicbackends.Timing, error) {
	step := "read the lateness of NIC " + nic.Device
	out, err := run(ctx, h, step, "pcmlab", "nic", "show", "--device", nic.Device, "-o", "json")
	if err != nil {
		return nil, err
	}
	var s Status
	if err := json.Unmarshal(out, &s); err != nil {
		return nil, fmt.Errorf("host %s: %s: %w", h.Name(), step, err)
	}
	l := s.LatenessNS
	if l.Samples == 0 {
		return nil, nil
	}
	return &nicbackends.Timing{P50: time.Duration(l.P50NS), P99: time.Duration(l.P99NS), Max: time.Duration(l.MaxNS), Samples: l.Samples}, nil
}
