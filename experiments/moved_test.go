package experiments

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends/counters"
)

// sees makes a reading of a host with an mlx5 NIC, and perhaps another beside it.
func sees(at time.Time, boot string, sets map[string]map[string]uint64) *counters.Reading {
	r := &counters.Reading{At: at, BootID: boot}
	for _, k := range sortedKeys(sets) {
		source, object, _ := strings.Cut(k, " ")
		r.Sets = append(r.Sets, counters.Set{Source: counters.Source(source), Object: object, Values: sets[k]})
	}
	return r
}

type values = map[string]uint64

func movedRunner(t *testing.T, nic *inventory.NIC, marks ...mark) *Runner {
	t.Helper()
	b, err := CreateBundle(t.TempDir(), "run")
	if err != nil {
		t.Fatal(err)
	}
	other := &inventory.NIC{Device: "mlx5_0", Netdev: "eth0"}
	r := &Runner{bundle: b, result: &Result{growth: map[string]map[string]int64{"nic.h1": {"np_cnp_sent": 3, "x": 1}}}, readings: &readings{marks: marks},
		plan: &Plan{Flows: []PlannedFlow{{Name: "a", From: "h1", To: "r1", fromNIC: nic, toNIC: other}}, Phases: []PlannedPhase{{Name: "one"}, {Name: "two"}}}}
	return r
}

// Counters of each phase, of the whole run and of the idle time before, under names of ours; the raw ones of a run stay.
func TestCountersMoved(t *testing.T) {
	t0 := time.Unix(1_800_000_000, 0)
	at := func(sec int, cnp, tx uint64) *counters.Reading {
		return sees(t0.Add(time.Duration(sec)*time.Second), "b", map[string]map[string]uint64{"hw_counters mlx5_0/1": {"np_cnp_sent": cnp}, "counters mlx5_0/1": {"port_xmit_packets": tx}, "netdev eth0": {"rx_dropped": uint64(5 * sec)}})
	}
	r := movedRunner(t, &inventory.NIC{Device: "mlx5_0", Netdev: "eth0"}, mark{"h1", "idle", "", at(0, 1, 0)}, mark{"h1", "before", "", at(2, 1, 0)}, mark{"h1", "phase", "one", at(3, 1, 10)},
		mark{"h1", "phase", "two", at(5, 4, 110)}, mark{"h1", "end", "", at(7, 9, 310)}, mark{"h1", "after", "", at(8, 10, 320)})
	set := func(cnp uint64) *counterSet {
		return &counterSet{NICs: map[string]map[string]uint64{"h1": {"np_cnp_sent": cnp, "x": 2}}}
	}
	r.countersMoved(set(1), set(11)) // the backend was asked a little later
	var doc CountersMoved
	data, err := os.ReadFile(filepath.Join(r.bundle.Dir, filepath.FromSlash(CountersFile)))
	if err == nil {
		err = json.Unmarshal(data, &doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	numbers := func(rows []CounterRow) map[string]int64 {
		out := map[string]int64{}
		for _, row := range rows {
			out[row.Name] = *row.Growth
		}
		return out
	}
	got := []map[string]int64{numbers(doc.Run["nic.h1"])}
	for _, p := range doc.Phases {
		got = append(got, numbers(p.NICs["nic.h1"]))
	}
	if d := cmp.Diff([]map[string]int64{{"cnp_sent": 10, "tx_roce_packets": 320, "netdev_rx_dropped": 30}, {"cnp_sent": 3, "tx_roce_packets": 100, "netdev_rx_dropped": 10},
		{"cnp_sent": 5, "tx_roce_packets": 200, "netdev_rx_dropped": 10}}, got); d != "" {
		t.Errorf("run and phases (-want +got)\n%s", d)
	}
	for _, row := range doc.Run["nic.h1"] {
		if row.Name == "netdev_rx_dropped" && (row.Idle == nil || *row.Idle != 10 || *row.OwnLeast != 0 || *row.OwnMost != 30) { // 10 in 2 s, 30 in 6 s
			t.Errorf("drops beside the run's: %+v", row)
		}
	}
	if d := cmp.Diff(map[string]int64{"np_cnp_sent": 3, "x": 1, "cnp_sent": 10, "tx_roce_packets": 320, "netdev_rx_dropped": 30}, r.result.growth["nic.h1"]); d != "" {
		t.Errorf("what expectations see (-want +got)\n%s", d)
	}
	if len(r.result.Warnings) > 0 || len(doc.Notes) > 0 || len(r.result.Agreement) > 0 {
		t.Errorf("warnings %q, notes %q, checks %+v", r.result.Warnings, doc.Notes, r.result.Agreement)
	}
}

// A device whose counters began again between has none that moved, and expectations are told why: a fresh count over the old one would pass for growth.
func TestCountersMoved_reset(t *testing.T) {
	set := &counterSet{NICs: map[string]map[string]uint64{"h1": {}}}
	for name, after := range map[string]*counters.Reading{
		"rebooted": sees(time.Time{}, "c", map[string]map[string]uint64{"hw_counters mlx5_0/1": {"np_cnp_sent": 900}}),
		"cleared":  sees(time.Time{}, "b", map[string]map[string]uint64{"hw_counters mlx5_0/1": {"np_cnp_sent": 2}}),
	} {
		before := sees(time.Time{}, "b", map[string]map[string]uint64{"hw_counters mlx5_0/1": {"np_cnp_sent": 500}})
		r := movedRunner(t, &inventory.NIC{Device: "mlx5_0", Netdev: "eth0"}, mark{"h1", "before", "", before}, mark{"h1", "after", "", after})
		r.countersMoved(set, set)
		g := r.result.growth["nic.h1"]
		if has(g, "np_cnp_sent") || has(g, "cnp_sent") || len(r.result.Warnings) != 1 || !strings.Contains(r.result.Warnings[0], "counters of mlx5_0/1 on h1") {
			t.Errorf("%s: growth %v, warnings %q", name, g, r.result.Warnings)
		}
	}
}

// O11: the packets that should have passed mlx5_0 passed another device, and the run says so; where there is no other, or both moved, it does not.
func TestCountersMoved_wrongPath(t *testing.T) {
	set := &counterSet{NICs: map[string]map[string]uint64{"h1": {}}}
	for _, tt := range []struct {
		name   string
		asked  uint64
		others map[string]uint64
		want   string // verdict and reason
	}{
		{"wrong", 0, values{"mlx5_1/1": 1000}, "fail wrong path: mlx5_1/1 moved by 1000 packets, mlx5_0/1 by none"},
		{"right", 900, values{"mlx5_1/1": 0}, "pass "},
		{"both", 900, values{"mlx5_1/1": 1000}, "pass "},
		{"idle", 0, values{"mlx5_1/1": 0}, "pass "},
		{"alone", 0, nil, ""},
	} {
		before, after := map[string]map[string]uint64{"counters mlx5_0/1": {"port_xmit_packets": 5}}, map[string]map[string]uint64{"counters mlx5_0/1": {"port_xmit_packets": 5 + tt.asked}}
		for o, n := range tt.others {
			before["counters "+o], after["counters "+o] = values{"port_xmit_packets": 7}, values{"port_xmit_packets": 7 + n}
		}
		r := movedRunner(t, &inventory.NIC{Device: "mlx5_0", Netdev: "eth0"}, mark{"h1", "before", "", sees(time.Time{}, "b", before)}, mark{"h1", "after", "", sees(time.Time{}, "b", after)})
		r.countersMoved(set, set)
		got := ""
		for _, c := range r.result.Agreement {
			got = string(c.Verdict) + " " + c.Reason
		}
		if !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// S20: all bytes turn out to be in priority 0: the map from DSCP to priority was never applied.
func TestCountersMoved_priority(t *testing.T) {
	set := &counterSet{NICs: map[string]map[string]uint64{"h1": {}}}
	for _, tt := range []struct {
		name         string
		priority     int
		prio0, prio3 uint64
		want         string
	}{
		{"never_applied", 3, 1 << 30, 0, "fail tx_prio0_bytes moved by 1073741824 of 1073741824 bytes"},
		{"applied", 3, 1000, 1 << 30, "pass "},
		{"not_asked_for", 0, 1 << 30, 0, ""},
		{"nothing_moved", 3, 0, 0, ""},
	} {
		text := func(a, b uint64) map[string]map[string]uint64 {
			return map[string]map[string]uint64{"ethtool eth0": {"tx_prio0_bytes": a, "tx_prio3_bytes": b}}
		}
		r := movedRunner(t, &inventory.NIC{Device: "mlx5_0", Netdev: "eth0", Priority: tt.priority}, mark{"h1", "before", "", sees(time.Time{}, "b", text(9e9, 5))},
			mark{"h1", "after", "", sees(time.Time{}, "b", text(9e9+tt.prio0, 5+tt.prio3))})
		r.countersMoved(set, set)
		got := ""
		for _, c := range r.result.Agreement {
			got = string(c.Verdict) + " " + c.Reason
		}
		if !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
