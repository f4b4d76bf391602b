package experiments

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/inventory/remote/knobs"
)

func TestPlan_settings(t *testing.T) {
	p, err := ParsePlaybook("book.yaml", []byte(strings.Replace(threeFlows, "HANDLER", `setup:
  - {host: sw, dev: p_r1, tc: netem loss 1%}
  - {host: r1, file: /proc/sys/net/core/netdev_max_backlog, value: 2000}
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
  - {host: h1}`, 1)))
	for _, want := range []string{"book.yaml:4:5: setup[0]", "dev and tc belong together", "book.yaml:5:5: setup[1]", "absolute path",
		"book.yaml:6:5: setup[2]", "without show nobody can tell", "book.yaml:7:5: setup[3]", "need one of"} {
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
