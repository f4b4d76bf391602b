package perftest

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends"
)

// Plain is a kernel RDMA device that is used as it is set up: nothing is changed, counters are read from sysfs. The zero
// value is soft-RoCE, which marks its data ECN-capable by traffic class and answers no marks (rxe sends no CNP and
// ignores CE).
type Plain struct {
	Kind string            // name in inventories; "" means rxe
	Can  []nicbackends.Cap // what the hardware can do; nil means ECN alone
}

var _ nicbackends.Backend = Plain{}

// Name is the inventory's word for this kind.
func (p Plain) Name() string {
	if p.Kind == "" {
		return "rxe"
	}
	return p.Kind
}

// Caps is what such a NIC can do; whether it is switched on is not read.
func (p Plain) Caps() []nicbackends.Cap {
	if p.Can == nil {
		return []nicbackends.Cap{nicbackends.ECN}
	}
	return p.Can
}

func portDir(nic *inventory.NIC) string {
	return fmt.Sprintf("/sys/class/infiniband/%s/ports/%d", nic.Device, max(nic.Port, 1))
}

// Setup sees that the device is there and its port active. It changes nothing.
func (Plain) Setup(ctx context.Context, h remote.Host, _ *inventory.Lab, nic *inventory.NIC) error {
	step := "look at RDMA device " + nic.Device
	dir := portDir(nic)
	res, err := h.Run(ctx, remote.Cmd{Args: []string{"cat", dir + "/state", dir + "/link_layer"}, Step: step, Plain: true})
	if err != nil {
		return err
	}
	if res.Code != 0 {
		return fmt.Errorf("host %s: %s: no %s (load the driver, or name another device: ls /sys/class/infiniband)", h.Name(), step, dir)
	}
	state, layer, _ := strings.Cut(strings.TrimSpace(string(res.Stdout)), "\n")
	if !strings.Contains(state, "ACTIVE") {
		return fmt.Errorf("host %s: %s: port %d is %q, not ACTIVE (ip link set %s up; check cable and switch port)", h.Name(), step, max(nic.Port, 1), state, nic.Netdev)
	}
	if layer != "Ethernet" {
		return fmt.Errorf("host %s: %s: port %d has link layer %q; RoCE needs Ethernet", h.Name(), step, max(nic.Port, 1), layer)
	}
	return nil
}

// Counters reads hw_counters and counters of the port from sysfs. A name that is in both is hw_counters' own.
func (Plain) Counters(ctx context.Context, h remote.Host, nic *inventory.NIC) (map[string]uint64, error) {
	step := "read the counters of " + nic.Device
	dir := portDir(nic)
	// rxe has no counters folder, which ends grep with 2.
	res, err := h.Run(ctx, remote.Cmd{Args: []string{"grep", "-rs", ".", dir + "/counters", dir + "/hw_counters"}, Step: step, Plain: true})
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for _, hw := range []bool{false, true} {
		for _, line := range strings.Split(string(res.Stdout), "\n") {
			file, value, ok := strings.Cut(line, ":")
			if !ok || strings.HasSuffix(path.Dir(file), "/hw_counters") != hw || path.Base(file) == "lifespan" {
				continue
			}
			if v, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64); err == nil {
				out[path.Base(file)] = v
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("host %s: %s: nothing at %s", h.Name(), step, dir)
	}
	return out, nil
}
