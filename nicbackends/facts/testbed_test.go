package facts

import (
	"net/netip"
	"os"
	"testing"
)

// twenty are the facts that a host of the testbed has, by their flat names; nothing less is provenance. The testbed's
// hosts are virtual: they have no firmware, cpufreq, NUMA or PFC, which a ConnectX host adds (TestRead_fakeConnectX).
var twenty = []string{
	"hostname", "kernel", "machine", "system", "cpus", "cpu", "clock_source", "memlock", "rdma_core", "perftest", "rdma_netns", "user",
	"nic.rxe0.state", "nic.rxe0.link_layer", "nic.rxe0.rdma_rate", "nic.rxe0.model", "nic.rxe0.driver", "nic.rxe0.gid_index", "nic.rxe0.mtu", "nic.rxe0.offloads",
	"nic.rxe0.qdiscs", "nic.rxe0.operstate",
}

var rxe0 = Question{Sudo: true, NICs: []Ask{{Device: "rxe0", Netdev: "eth0", IP: netip.MustParseAddr("192.0.2.11")}}}

// TestRead_testbedRecorded reads what the script printed on the testbed's machines, as three users
// (testdata/testbed-*.txt: Linux 6.1 with rdma_rxe, Debian 12, recorded 2026-11-30).
func TestRead_testbedRecorded(t *testing.T) {
	t.Parallel()
	// The machine was so busy that sudo of lab did not answer in time.
	for _, tc := range []struct{ file, user, sudo, capture string }{
		{"testbed-h1", "root (0)", "not needed: root", "root"},
		{"testbed-h1-lab", "lab (1000)", "unavailable: no answer within 10 s", "unavailable: needs root"},
		{"testbed-h1-nosudo", "nosudo (1001)", "unavailable: exit status 1: sudo: a password is required", "unavailable: needs root"},
	} {
		b, err := os.ReadFile("testdata/" + tc.file + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		f := Parse(string(b), nonce, rxe0)
		complete(t, f)
		got := f.Flat()
		for _, name := range twenty {
			if got[name] == "" {
				t.Errorf("%s: %s has no value: %q", tc.file, name, f.flat()[name])
			}
		}
		if !f.BootID.Known() || !f.ClockNS.Known() || f.Cut != "" {
			t.Errorf("%s: boot %q, clock %q, cut %q", tc.file, f.BootID, f.ClockNS, f.Cut)
		}
		for name, want := range map[string]string{"user": tc.user, "sudo": tc.sudo, "capture": tc.capture, "perftest": "6.06", "rdma_core": "44.0-2", "nic.rxe0.model": "soft-RoCE",
			"nic.rxe0.driver": "rdma_rxe", "nic.rxe0.gid_index": "1", "nic.rxe0.mtu": "1500", "rdma_netns": "exclusive"} {
			if v := f.flat()[name]; v != want {
				t.Errorf("%s: %s is %q, want %q", tc.file, name, v, want)
			}
		}
		if len(f.NICs[0].GIDs) != 3 {
			t.Errorf("%s: GIDs\n%v\nwant the three in use", tc.file, f.NICs[0].GIDs)
		}
	}
}
