package perftest

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

// saidHost answers every command with the same words: sysfs of a device that this machine lacks.
type saidHost struct {
	*localHost
	said remote.Result
}

func (h saidHost) Run(context.Context, remote.Cmd) (remote.Result, error) { return h.said, nil }

func TestPlain_looksAtThePortAndReadsItsCounters(t *testing.T) {
	t.Parallel()
	nic := &inventory.NIC{Device: "rxe0", Netdev: "eth0"}
	for _, tt := range []struct{ name, stdout, want string }{
		{"active", "4: ACTIVE\nEthernet\n", ""},
		{"down", "1: DOWN\nEthernet\n", "ip link set eth0 up"},
		{"infiniband", "4: ACTIVE\nInfiniBand\n", "RoCE needs Ethernet"},
	} {
		err := Plain{}.Setup(t.Context(), saidHost{&localHost{name: "h1"}, remote.Result{Stdout: []byte(tt.stdout)}}, nil, nic)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	if err := (Plain{}).Setup(t.Context(), newLocalHost(t, "here"), nil, &inventory.NIC{Device: "no-such-device"}); err == nil {
		t.Error("a device that is not there was accepted")
	}
	text := "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts:1600\n/sys/class/infiniband/rxe0/ports/1/hw_counters/lifespan:10\n" +
		"/sys/class/infiniband/rxe0/ports/1/counters/port_xmit_data:77\n/sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts:25\n"
	got, err := Plain{}.Counters(t.Context(), saidHost{&localHost{name: "h1"}, remote.Result{Code: 2, Stdout: []byte(text)}}, nic)
	if diff := cmp.Diff(map[string]uint64{"sent_pkts": 1600, "rcvd_pkts": 25, "port_xmit_data": 77}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
