package softnic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends"
)

var (
	_ nicbackends.Backend   = Backend{}
	_ nicbackends.Handled   = Backend{}
	_ nicbackends.Diagnosed = Backend{}
)

// Backend is the software NIC as experiments see it: through pcmlab's own commands on its host. The zero value is ready.
type Backend struct{}

// Name is "softnic".
func (Backend) Name() string { return "softnic" }

// Caps are what the NIC can do. It does not obey PFC: its packets leave through a kernel interface.
func (Backend) Caps() []nicbackends.Cap {
	return []nicbackends.Cap{nicbackends.ECN, nicbackends.CNP, nicbackends.CC}
}

// Setup switches DCQCN as the inventory says, on unless it says off, loads the NIC's handlers or takes them away, and starts the count
// of lateness anew.
func (Backend) Setup(ctx context.Context, h remote.Host, lab *inventory.Lab, nic *inventory.NIC) error {
	on := nic.DCQCN == nil || *nic.DCQCN
	state := "off"
	if on {
		state = "on"
	}
	_, err := run(ctx, h, "set up NIC "+nic.Device, "pcmlab", "nic", "set", "--device", nic.Device, "dcqcn="+state, "handler=none", "lateness=reset")
	if err != nil || len(nic.Handlers) == 0 {
		return err
	}
	return deploy(ctx, h, lab, nic)
}

// Counters reads all counters of the NIC at one instant.
func (Backend) Counters(ctx context.Context, h remote.Host, nic *inventory.NIC) (map[string]uint64, error) {
	out, err := run(ctx, h, "read counters of NIC "+nic.Device, "pcmlab", "nic", "counters", "--device", nic.Device, "-o", "json")
	if err != nil {
		return nil, err
	}
	var doc CountersDocument
	if err := json.Unmarshal(out, &doc); err != nil {
		return nil, fmt.Errorf("host %s: read counters of NIC %s: %w (output %q)", h.Name(), nic.Device, err, tail(out))
	}
	if doc.Schema != CountersSchema || len(doc.Counters) == 0 {
		return nil, fmt.Errorf("host %s: read counters of NIC %s: schema %q with %d counters: want %q", h.Name(), nic.Device, doc.Schema, len(doc.Counters), CountersSchema)
	}
	return doc.Counters, nil
}

// CountersSchema names the document of `pcmlab nic counters -o json`.
const CountersSchema = "pcmlab/nic-counters/v1"

// CountersDocument is what `pcmlab nic counters -o json` prints.
type CountersDocument struct {
	Schema   string            `json:"schema"`
	Device   string            `json:"device"`
	Counters map[string]uint64 `json:"counters"`
}

func run(ctx context.Context, h remote.Host, step string, args ...string) ([]byte, error) {
	r, err := h.Run(ctx, remote.Cmd{Args: args, Deadline: 20 * time.Second, Step: step})
	if err != nil {
		return nil, err // with host and step
	}
	if r.Code != 0 {
		return nil, fmt.Errorf("host %s: %s: %s: exit status %d (stderr: %q)", h.Name(), step, strings.Join(args, " "), r.Code, tail(r.Stderr))
	}
	return r.Stdout, nil
}

// tail is the end of an output, short enough for an error.
func tail(b []byte) string {
	b = bytes.TrimSpace(b)
	return string(b[max(0, len(b)-300):])
}
