package counters

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/internal/fixtures"
)

// vendor is what one kind of NIC says of a truth: the names are those of its driver (see meanings).
type vendor struct {
	device, netdev string
	sysfs          func(t truth) map[string]uint64 // below ports/1
	ethtool        func(t truth) map[string]uint64
}

type truth struct {
	txPackets, rxPackets, txBytes            uint64
	cnpSent, cnpReceived, marked, nakSeq, oo uint64
	pauseReceived                            [8]uint64
}

var vendors = map[string]vendor{
	"mlx5": {"mlx5_0", "ens1f0np0", func(t truth) map[string]uint64 {
		return map[string]uint64{"hw_counters/np_cnp_sent": t.cnpSent, "hw_counters/rp_cnp_handled": t.cnpReceived - 1, "hw_counters/rp_cnp_ignored": 1,
			"hw_counters/np_ecn_marked_roce_packets": t.marked, "hw_counters/packet_seq_err": t.nakSeq, "hw_counters/out_of_sequence": t.oo, "hw_counters/lifespan": 10,
			"counters/port_xmit_packets": t.txPackets, "counters/port_rcv_packets": t.rxPackets, "counters/port_xmit_data": t.txBytes / 4, "hw_counters/roce_slow_restart": 7}
	}, func(t truth) map[string]uint64 { return perPriority("rx_prio%d_pause", t.pauseReceived) }},
	"bnxt_re": {"bnxt_re0", "enp65s0f0np0", func(t truth) map[string]uint64 {
		return map[string]uint64{"hw_counters/tx_cnp_pkts": t.cnpSent, "hw_counters/rx_cnp_pkts": t.cnpReceived, "hw_counters/rx_ecn_marked_pkts": t.marked,
			"hw_counters/seq_err_naks_rcvd": t.nakSeq, "hw_counters/oos_drop_count": t.oo, "hw_counters/tx_roce_only_pkts": t.txPackets, "hw_counters/rx_roce_only_pkts": t.rxPackets,
			"hw_counters/tx_roce_only_bytes": t.txBytes, "hw_counters/active_qps": 3, "hw_counters/pacing_alerts": 7}
	}, func(t truth) map[string]uint64 { return perPriority("rx_pfc_ena_frames_pri%d", t.pauseReceived) }},
	"ionic": {"ionic_0", "enp5s0", func(t truth) map[string]uint64 {
		return map[string]uint64{"hw_counters/tx_rdma_cnp_pkts": t.cnpSent, "hw_counters/rx_rdma_cnp_pkts": t.cnpReceived, "hw_counters/rx_rdma_ecn_pkts": t.marked,
			"hw_counters/req_rx_pkt_seq_err": t.nakSeq, "hw_counters/resp_rx_outouf_seq": t.oo, "hw_counters/tx_rdma_ucast_pkts": t.txPackets, "hw_counters/rx_rdma_ucast_pkts": t.rxPackets,
			"hw_counters/tx_rdma_ucast_bytes": t.txBytes, "hw_counters/rx_rdma_mtu_discard_pkts": 7}
	}, func(t truth) map[string]uint64 { return perPriority("frames_rx_pripause%d", t.pauseReceived) }},
}

func perPriority(name string, values [8]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for p, v := range values {
		out[fmt.Sprintf(name, p)] = v
	}
	return out
}

// tree writes /sys and the tools of a host with such a NIC.
func (v vendor) tree(t testing.TB, root string, values truth) {
	t.Helper()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, n := range v.sysfs(values) {
		write("sys/class/infiniband/"+v.device+"/ports/1/"+name, fmt.Sprint(n))
	}
	write("sys/class/infiniband/"+v.device+"/ports/1/counters/VL15_dropped", "N/A (no PMA)")
	write("sys/class/net/"+v.netdev+"/ifindex", "5")
	write("sys/class/net/"+v.netdev+"/statistics/tx_packets", "11")
	write("proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555")
	text := "#!/bin/sh\necho 'NIC statistics:'\n"
	for name, n := range v.ethtool(values) {
		text += fmt.Sprintf("echo '     %s: %d'\n", name, n)
	}
	write("bin/ethtool", text)
	write("bin/tc", "#!/bin/sh\necho 'qdisc mq 0: root'; echo ' Sent 10 bytes 1 pkt (dropped 0, overlimits 0 requeues 0)'; echo ' backlog 0b 0p requeues 0'")
}

// O24: the same events have other names on other NICs, and come out the same, with where they are from; what a NIC does not count is not there, and what
// we have no name for is kept.
func TestNamed_sameTruthOnThreeNICs(t *testing.T) {
	t.Parallel()
	was := truth{txPackets: 1000, rxPackets: 50, txBytes: 4 << 20, cnpSent: 3, cnpReceived: 8, marked: 4, nakSeq: 1, oo: 2, pauseReceived: [8]uint64{3: 6}}
	is := truth{txPackets: 4000, rxPackets: 150, txBytes: 16 << 20, cnpSent: 13, cnpReceived: 48, marked: 104, nakSeq: 6, oo: 7, pauseReceived: [8]uint64{3: 16, 0: 2}}
	want := map[string]int64{"tx_roce_packets": 3000, "rx_roce_packets": 100, "tx_roce_bytes": 12 << 20, "cnp_sent": 10, "cnp_received": 40, "ecn_marked_received": 100, "nak_sequence_received": 5, "out_of_sequence": 5,
		"pause_received_prio0": 2, "pause_received_prio3": 10, "pause_received_prio1": 0, "pause_received_prio2": 0, "pause_received_prio4": 0, "pause_received_prio5": 0, "pause_received_prio6": 0, "pause_received_prio7": 0,
		"netdev_tx_packets": 0}
	for name, v := range vendors {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			v.tree(t, root, was)
			before := runScript(t, root, v.netdev)
			v.tree(t, root, is)
			after := runScript(t, root, v.netdev)
			changes := Compare(before, after)
			got := map[string]int64{}
			for _, c := range Named(changes, v.device+"/1", v.netdev) {
				if c.Growth == nil || c.Kind != Counted || len(c.Raw) == 0 || c.Source == "" || c.Scope == "" || c.Unit == "" {
					t.Errorf("%+v: wants a growth, and where it is from", c)
					continue
				}
				got[c.Name] = *c.Growth
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("growth (-want +got)\n%s", d)
			}
			kept := 0
			for _, c := range changes {
				if c.After != nil && *c.After == 7 {
					kept++ // roce_slow_restart, pacing_alerts, rx_rdma_mtu_discard_pkts, or a value that is 7 by itself
				}
				if c.Name == "lifespan" || c.Name == "active_qps" {
					t.Errorf("%s is no counter", c.Name)
				}
			}
			if kept == 0 {
				t.Error("a counter without a name of ours was lost")
			}
		})
	}
}

// S20: since-boot counters are never compared by hand: how far each moved, over the end of its 32 or 64 bits too, and which of them began again.
func TestCompare_tellsApart(t *testing.T) {
	t.Parallel()
	at := func(boot, birth string, values map[string]uint64) *Reading {
		return &Reading{BootID: boot, Sets: []Set{{Source: HWCounters, Object: "mlx5_0/1", Birth: birth, Values: values}, {Source: PortCounters, Object: "mlx5_0/1", Values: map[string]uint64{"symbol_error": 65535}}}}
	}
	type values = map[string]uint64
	for _, tt := range []struct {
		name, why     string
		before, after *Reading
		kind          Kind
		growth        string // of x
	}{
		{"grown", "", at("a", "1", values{"x": 5, "y": 1}), at("a", "1", values{"x": 12, "y": 1}), Counted, "7"},
		{"still", "not moved is not unknown", at("a", "1", values{"x": 5}), at("a", "1", values{"x": 5}), Counted, "0"},
		{"wrapped_32", "a counter of 32 bits at 100 Gbit/s wraps within minutes", at("a", "1", values{"x": 1<<32 - 10, "y": 1}), at("a", "1", values{"x": 90, "y": 2}), Wrapped, "100"},
		{"wrapped_64", "", at("a", "1", values{"x": 1<<64 - 10}), at("a", "1", values{"x": 90}), Wrapped, "100"},
		{"cleared", "x cannot have wrapped from 1000", at("a", "1", values{"x": 1000, "y": 1}), at("a", "1", values{"x": 90, "y": 2}), Reset, "-"},
		{"cleared_beside", "y shows that all were cleared, so x did not wrap", at("a", "1", values{"x": 1<<32 - 10, "y": 1000}), at("a", "1", values{"x": 90, "y": 2}), Reset, "-"},
		{"rebooted", "x grew over what it was, and counts from zero all the same", at("a", "1", values{"x": 5}), at("b", "1", values{"x": 12}), Reset, "-"},
		{"driver_loaded_again", "the folder in sysfs is another", at("a", "1", values{"x": 5}), at("a", "2", values{"x": 12}), Reset, "-"},
		{"gone", "", at("a", "1", values{"x": 5}), at("a", "1", values{"y": 12}), Absent, "-"},
		{"new", "absent before is not zero before", at("a", "1", values{"y": 5}), at("a", "1", values{"x": 12, "y": 5}), Absent, "-"},
		{"device_gone", "", at("a", "1", values{"x": 5}), &Reading{BootID: "a"}, Absent, "-"},
	} {
		var x *Change
		for _, c := range Compare(tt.before, tt.after) {
			if c.Name == "x" {
				x = &c
			}
			if c.Name == "symbol_error" && c.After != nil && tt.name != "rebooted" && (c.Kind != Saturated || c.Growth != nil) {
				t.Errorf("%s: a counter that stands at its end: %+v", tt.name, c)
			}
		}
		if x == nil {
			t.Errorf("%s: x is lost", tt.name)
			continue
		}
		growth := "-"
		if x.Growth != nil {
			growth = fmt.Sprint(*x.Growth)
		}
		if x.Kind != tt.kind || growth != tt.growth || x.Kind != Counted && x.Kind != Wrapped && x.Why == "" {
			t.Errorf("%s: %s %s (%s), want %s %s", tt.name, x.Kind, growth, x.Why, tt.kind, tt.growth)
		}
	}
}

// A sum is known when its parts are.
func TestNamed_ofPartsThatAreNotKnown(t *testing.T) {
	t.Parallel()
	r := func(handled, ignored uint64) *Reading {
		return &Reading{Sets: []Set{{Source: HWCounters, Object: "mlx5_0/1", Values: map[string]uint64{"rp_cnp_handled": handled, "rp_cnp_ignored": ignored}}}}
	}
	got := Named(Compare(r(1<<32-1, 5), r(4, 6)), "mlx5_0/1", "eth0")
	if len(got) != 1 || got[0].Kind != Wrapped || *got[0].Growth != 6 {
		t.Errorf("%+v", got)
	}
	after := r(4, 6)
	delete(after.Sets[0].Values, "rp_cnp_ignored")
	if got = Named(Compare(r(1, 5), after), "mlx5_0/1", "eth0"); len(got) != 1 || got[0].Kind != Absent || got[0].Growth != nil || got[0].After != nil {
		t.Errorf("%+v", got)
	}
}

// What real machines printed.
func TestParse_realDumps(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(fixtures.Dir(t), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	before, after := &Reading{Sets: ParsePorts(read("state/before/r1/counters.txt"))}, &Reading{Sets: ParsePorts(read("state/during/r1/counters.txt"))}
	named := map[string]int64{}
	for _, c := range Named(Compare(before, after), "rxe0/1", "eth0") {
		if c.Growth != nil {
			named[c.Name] = *c.Growth
		}
	}
	if named["rx_roce_packets"] <= 0 || named["tx_roce_packets"] <= 0 || len(named) < 6 {
		t.Errorf("rxe moved by %v", named)
	}
	if e := ParseEthtool("eth0", read("state/before/h1/ethtool_S.txt")); len(e.Values) != 14 || e.Values["sg_ok"] != 511 {
		t.Errorf("ethtool: %+v", e)
	}
	q := ParseQdiscs("p_r1", read("qemu_stock/incast_ecn.tc.txt"))
	var red *Set
	for i := range q {
		if strings.Contains(q[i].Object, " red ") {
			red = &q[i]
		}
	}
	if red == nil || red.Values["marked"] != 5431 {
		t.Errorf("red of the recorded incast: %+v", q)
	}
	if e := ParseEthtool("lo", "no stats available\n"); e.Missing != "no stats available" {
		t.Errorf("an interface without: %+v", e)
	}
	if q := ParseQdiscs("eth9", "Cannot find device \"eth9\"\n"); len(q) != 1 || q[0].Missing == "" {
		t.Errorf("no interface: %+v", q)
	}
}
