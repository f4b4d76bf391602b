package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/internal/fixtures"
)

func counterFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Counters come in as many forms as there are tools that print them.
func TestReadCounters_forms(t *testing.T) {
	dir := counterFiles(t, map[string]string{
		"rdma.json":    `[ {"ifindex": 0, "ifname": "rxe0", "port": 1, "sent_pkts": 174543, "rcvd_pkts": 9007199254740993} ]`,
		"rdma.txt":     "link rxe0/1 sent_pkts 174543 rcvd_pkts 9507 duplicate_request 0 \nlink rxe1/1 sent_pkts 7 rcvd_pkts 8 \n",
		"grep.txt":     "grep: /sys/class/infiniband/rxe0/ports/1/counters: No such file or directory\n/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts:5\n/sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts:6\n",
		"ethtool.txt":  "NIC statistics:\n     rx_packets: 99\n     tx_vport_rdma_unicast_packets: 12\n     rx_vport_rdma_unicast_packets: 13\n",
		"softnic.json": `{"schema": "pcmlab/nic-counters/v1", "device": "softnic0", "counters": {"tx_roce_packets": 3, "rx_roce_packets": 4}}`,
		"plain.json":   `{"port_xmit_packets": 3, "port_rcv_packets": 4, "note": "text", "temperature": -3}`,
		"plain.txt":    "port_xmit_packets 3\nport_rcv_packets = 4\n",

		"sysfs/rxe0/ports/1/hw_counters/sent_pkts": "174543\n", "sysfs/rxe0/ports/1/hw_counters/rcvd_pkts": "9507\n",
		"port/hw_counters/sent_pkts": "1\n", "port/counters/port_rcv_packets": "2\n",
		"hosts/h1/rdma.txt": "link rxe0/1 sent_pkts 1 rcvd_pkts 2\n", "hosts/h2/rdma.txt": "link rxe0/1 sent_pkts 3 rcvd_pkts 4\n", "hosts/h2/dmesg.txt": "[    1.5] rxe0: up\n",
	})
	for name, want := range map[string]counterSets{
		"rdma.json":    {"rxe0/1": {"sent_pkts": 174543, "rcvd_pkts": 9007199254740993, "ifindex": 0}}, // more than a float64 holds
		"rdma.txt":     {"rxe0/1": {"sent_pkts": 174543, "rcvd_pkts": 9507, "duplicate_request": 0}, "rxe1/1": {"sent_pkts": 7, "rcvd_pkts": 8}},
		"grep.txt":     {"rxe0/1": {"sent_pkts": 5, "rcvd_pkts": 6}},
		"ethtool.txt":  {"": {"rx_packets": 99, "tx_vport_rdma_unicast_packets": 12, "rx_vport_rdma_unicast_packets": 13}},
		"softnic.json": {"softnic0": {"tx_roce_packets": 3, "rx_roce_packets": 4}},
		"plain.json":   {"": {"port_xmit_packets": 3, "port_rcv_packets": 4}},
		"plain.txt":    {"": {"port_xmit_packets": 3, "port_rcv_packets": 4}},
		"sysfs":        {"rxe0/1": {"sent_pkts": 174543, "rcvd_pkts": 9507}},
		"port":         {"": {"sent_pkts": 1, "port_rcv_packets": 2}},
		"hosts":        {"h1/rxe0/1": {"sent_pkts": 1, "rcvd_pkts": 2}, "h2/rxe0/1": {"sent_pkts": 3, "rcvd_pkts": 4}},
	} {
		got, err := readCounters(filepath.Join(dir, name))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// What two readings say together, and what is refused.
func TestMovedCounters(t *testing.T) {
	dir := counterFiles(t, map[string]string{
		"a.txt": "link rxe0/1 sent_pkts 100 rcvd_pkts 10\n", "b.txt": "link rxe0/1 sent_pkts 160 rcvd_pkts 15\n",
		"less.txt": "link rxe0/1 sent_pkts 100 rcvd_pkts 9\n", "other.txt": "link rxe1/1 sent_pkts 1 rcvd_pkts 1\n",
		"soft0.json": `{"device": "s", "counters": {"tx_roce_packets": 1, "rx_roce_packets": 1, "port_xmit_packets": 1, "port_rcv_packets": 1}}`,
		"soft1.json": `{"device": "s", "counters": {"tx_roce_packets": 11, "rx_roce_packets": 6, "port_xmit_packets": 11, "port_rcv_packets": 6}}`,
		"nothing":    "hello\n", "cpu.json": `{"busy": 4}`,
		"before/h1/c": "link rxe0/1 sent_pkts 0 rcvd_pkts 0\n", "before/r1/c": "link rxe0/1 sent_pkts 0 rcvd_pkts 0\n",
		"after/h1/c": "link rxe0/1 sent_pkts 100 rcvd_pkts 7\n", "after/r1/c": "link rxe0/1 sent_pkts 8 rcvd_pkts 99\n",
	})
	for _, tt := range []struct {
		before, after, why string
		packets            int64
		want               string // of the source, or of the error
	}{
		{"a.txt", "b.txt", "sent and received of one NIC are different packets", 65, "counters rxe0/1 sent_pkts (+60), rxe0/1 rcvd_pkts (+5)"},
		{"a.txt", "a.txt", "nothing moved", 0, "(+0)"},
		{"soft0.json", "soft1.json", "the same packets under two names count once", 15, "s tx_roce_packets (+10)"},
		{"before", "after", "what one host sent the other received: 108 at least", 108, "h1/rxe0/1 sent_pkts (+100)"},
		{"b.txt", "a.txt", "", -1, "went back from 160 to 100: the NIC was reset between, or BEFORE and AFTER are swapped"},
		{"a.txt", "less.txt", "", -1, "rxe0/1 rcvd_pkts went back from 10 to 9"},
		{"a.txt", "other.txt", "", -1, "has no counters of rxe0/1"},
		{"nothing", "absent", "both mistakes", -1, "absent: no such file"},
		{"nothing", "a.txt", "", -1, "no counters in"},
		{"cpu.json", "cpu.json", "", -1, "no counter of RoCE packets"},
	} {
		got, err := movedCounters(filepath.Join(dir, tt.before), filepath.Join(dir, tt.after))
		switch {
		case tt.packets < 0:
			if err == nil || !strings.Contains(err.Error(), tt.want) || exitCode(err) != exitUsage {
				t.Errorf("%s %s: %v (exit %d), want %q and exit 2", tt.before, tt.after, err, exitCode(err), tt.want)
			}
		case err != nil || got.Packets != tt.packets || !strings.Contains(got.Source, tt.want):
			t.Errorf("%s %s: %+v, %v; want %d and %q", tt.before, tt.after, got, err, tt.packets, tt.want)
		}
	}
}

// Real dumps of a host before and after a day of runs, in which each counter stands in three files.
func TestMovedCounters_realDumps(t *testing.T) {
	state := filepath.Join(fixtures.Dir(t), "state")
	got, err := movedCounters(filepath.Join(state, "before", "h1"), filepath.Join(state, "after", "h1"))
	if err != nil || got.Packets != 125041+22339 || got.Source != "counters rxe0/1 sent_pkts (+125041), rxe0/1 rcvd_pkts (+22339)" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPairCounters(t *testing.T) {
	for _, tt := range [][2]string{
		{"analyze --counters a b x.pcap", "analyze --counters=a --counters=b x.pcap"},
		{"analyze x.pcap --counters a b", "analyze x.pcap --counters=a --counters=b"},
		{"analyze x.pcap --counters a,b y.pcap", "analyze x.pcap --counters a,b y.pcap"},
		{"analyze x.pcap --counters a --bin 1ms", "analyze x.pcap --counters a --bin 1ms"},
		{"analyze x.pcap --counters a", "analyze x.pcap --counters a"},
		{"analyze -- --counters a b", "analyze -- --counters a b"},
		{"nic counters", "nic counters"},
	} {
		if got := pairCounters(strings.Fields(tt[0])); !slices.Equal(got, strings.Fields(tt[1])) {
			t.Errorf("%s becomes %q, want %q", tt[0], got, tt[1])
		}
	}
}
