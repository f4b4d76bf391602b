package experiments

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/inventory/remote/knobs"
	"github.com/pcmlab/pcmlab/inventory/remote/knobs/mft"
)

func TestPlan_settings(t *testing.T) {
	p, err := ParsePlaybook("book.yaml", []byte(strings.Replace(threeFlows, "HANDLER", `setup:
  - {host: sw, dev: p_r1, tc: netem loss 1%}
  - {host: r1, file: /proc/sys/net/core/netdev_max_backlog, value: 2000}
  - {host: r1, cma_roce_tos: mlx5_0, port: 2, value: 106}
  - {host: h1, show: [ethtool, -k, eth0], do: [ethtool, -K, eth0, gro, off], undo: [ethtool, -K, eth0, gro, on]}`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(p, labWith(t, "        mtu: 4200\n"), softBackends)
	if err != nil {
		t.Fatal(err)
	}
	want := []PlannedSetting{
		{"sw", knobs.Knob{Dev: "p_r1", TC: "netem loss 1%"}, false},
		{"r1", knobs.Knob{File: "/proc/sys/net/core/netdev_max_backlog", Value: "2000"}, false},
		{"r1", knobs.Knob{CMToS: "mlx5_0", Port: 2, Value: "106"}, false},
		{"h1", knobs.Knob{Show: []string{"ethtool", "-k", "eth0"}, Do: []string{"ethtool", "-K", "eth0", "gro", "off"}, Undo: []string{"ethtool", "-K", "eth0", "gro", "on"}}, false},
	}
	if d := cmp.Diff(want, plan.Settings); d != "" {
		t.Error(d)
	}
	for _, h := range plan.Hosts {
		if h.Name == "sw" && !strings.Contains(strings.Join(h.Parts, " "), "setting") {
			t.Errorf("sw takes part by %q", h.Parts)
		}
	}
}

// All mistakes of settings at once, each at its line.
func TestPlan_settingsMistakes(t *testing.T) {
	_, err := ParsePlaybook("book.yaml", []byte(strings.Replace(threeFlows, "HANDLER", `setup:
  - {host: sw, dev: p_r1}
  - {host: r1, file: proc/sys, value: 2000}
  - {host: h1, do: [ethtool, -K, eth0, gro, off]}
  - {host: h1}
  - {host: r1, cma_roce_tos: mlx5_0, value: AF31}`, 1)))
	for _, want := range []string{"book.yaml:4:5: setup[0]", "dev and tc belong together", "book.yaml:5:5: setup[1]", "absolute path",
		"book.yaml:6:5: setup[2]", "without show nobody can tell", "book.yaml:7:5: setup[3]", "need one of",
		"book.yaml:8:5: setup[4]", "106 is DSCP 26"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	p, err := ParsePlaybook("book.yaml", []byte(strings.Replace(threeFlows, "HANDLER", "setup: [{host: swx, dev: p_r1, tc: netem loss 1%}]", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewPlan(p, labWith(t, "        mtu: 4200\n"), softBackends); err == nil || !strings.Contains(err.Error(), `no host "swx"`) || !strings.Contains(err.Error(), `"sw"`) {
		t.Errorf("%v", err)
	}
}

// Settings of NVIDIA's tools: what is set is in the plan, and that staging changes nothing now is said.
func TestPlan_settingsOfVendorTools(t *testing.T) {
	p, err := ParsePlaybook("book.yaml", []byte(strings.Replace(threeFlows, "HANDLER", `setup:
  - {host: r1, mlnx_qos: ens1f0np0, set: {trust: dscp, dscp2prio: "26:3,48:6"}}
  - {host: h1, mlxreg: mlx5_0, reg: PPCC, indexes: "local_port=1,algo_slot=1", get_op: cmd_type=6, set_op: cmd_type=8, set: {value: 13000}}
  - {host: h1, mlxconfig: mlx5_0, set: {USER_PROGRAMMABLE_CC: 1}}`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(p, labWith(t, "        mtu: 4200\n"), softBackends)
	if err != nil {
		t.Fatal(err)
	}
	want := []PlannedSetting{
		{"r1", knobs.Knob{MLNXQoS: "ens1f0np0", Set: mft.Split("trust=dscp dscp2prio=26:3,48:6")}, false},
		{"h1", knobs.Knob{MLXReg: "mlx5_0", Reg: "PPCC", Indexes: "local_port=1,algo_slot=1", GetOp: "cmd_type=6", SetOp: "cmd_type=8", Set: mft.Split("value=13000")}, false},
		{"h1", knobs.Knob{MLXConfig: "mlx5_0", Set: mft.Split("USER_PROGRAMMABLE_CC=1")}, false},
	}
	if d := cmp.Diff(want, plan.Settings); d != "" {
		t.Error(d)
	}
	if !slices.Contains(plan.Notes, "USER_PROGRAMMABLE_CC=1 on h1 is staged for the next boot and put back at the end: this run sees what the NIC has now") {
		t.Errorf("notes: %q", plan.Notes)
	}
	_, err = ParsePlaybook("book.yaml", []byte(strings.Replace(threeFlows, "HANDLER", `setup:
  - {host: r1, mlnx_qos: ens1f0np0, set: {pfcs: 1}}
  - {host: h1, mlxreg: mlx5_0, set: {value: 1}}
  - {host: h1, mlxconfig: mlx5_0, reg: PPCC, set: {A: 1}}
  - {host: h1, set: {A: 1}}`, 1)))
	for _, want := range []string{"book.yaml:4:5: setup[0]", `no "pfcs"`, "book.yaml:5:5: setup[1]", "mlxreg needs reg", "book.yaml:6:5: setup[2]", "belong to mlxreg", "book.yaml:7:5: setup[3]", "set belongs to"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
}
