//go:build linux

package vlab

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/fabric"
)

func TestPlan_scalesRatesAndDelaysOnly(t *testing.T) {
	lab := testLab("scaled", 2)
	lab.Links[1].Buffer = 64 * units.KiB
	off := false
	lab.Hosts[1].NICs[0].DCQCN = &off
	l, err := plan(lab)
	if err != nil {
		t.Fatal(err)
	}
	ecn := &fabric.ECNConfig{KMin: 100 * units.KiB, KMax: 400 * units.KiB, PMax: 0.2}
	want := []fabric.PortConfig{
		{Name: "h1", MAC: "02:70:c0:00:02:01", Rate: 500 * units.MbitPerSec, Delay: 50 * time.Microsecond, ECN: ecn},
		{Name: "h2", MAC: "02:70:c0:00:02:02", Rate: 500 * units.MbitPerSec, Delay: 50 * time.Microsecond, Buffer: 64 * units.KiB, ECN: ecn},
	}
	if diff := cmp.Diff(want, l.Fabrics[0].Config.Ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if got := l.Fabrics[0].Config.Buffer; got != 2*units.MiB {
		t.Errorf("buffer %s was scaled", got)
	}
	wantNIC := &nicConfig{Device: "softnic0", Netdev: "eth0", IP: netip.MustParsePrefix("192.0.2.2/24"), MAC: "02:70:c0:00:02:02", RateBps: 5e8,
		MTU: 4200, DSCP: 26, ECN: true, Priority: 3, Scale: 50, Socket: "/run/pcmlab/nic/softnic0.sock", Sysfs: sysfsDir, HostName: "h2"}
	if diff := cmp.Diff(wantNIC, l.Hosts[1].NICs[0].Daemon, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("NIC of h2 (-want +got):\n%s", diff)
	}
	if !l.Hosts[0].NICs[0].Daemon.DCQCN.Enabled {
		t.Error("DCQCN is off although the lab does not say so")
	}
	if got := l.Hosts[0].NICs[0].Neighbours; len(got) != 1 || got[0].MAC != "02:70:c0:00:02:02" {
		t.Errorf("neighbours of h1: %v", got)
	}
}

func TestPlan_refuses(t *testing.T) {
	tests := []struct {
		name, why, want string
		change          func(*inventory.Lab)
	}{
		{"hardware", "its hosts exist already", "no virtual section", func(l *inventory.Lab) { l.Virtual = nil }},
		{"no_link", "its packets would go nowhere", `host "h2": netdev "eth0": no link`, func(l *inventory.Lab) { l.Links = l.Links[:1] }},
		{"two_links", "an interface has one wire", "has two links", func(l *inventory.Lab) { l.Links = append(l.Links, l.Links[0]) }},
		{"same_address", "both would answer", `also that of h1 eth0`, func(l *inventory.Lab) { l.Hosts[1].NICs[0].IP = l.Hosts[0].NICs[0].IP }},
		{"hardware_nic", "there is no such device in a namespace", `backend "mlx5" needs real hardware`, func(l *inventory.Lab) { l.Hosts[0].NICs[0].Backend = "mlx5" }},
		{"long_name", "the kernel takes 15 characters", "1 to 15 characters", func(l *inventory.Lab) { l.Hosts[0].NICs[0].Netdev = "enp3s0f0np0-port" }},
		{"tap_of_nobody", "the mirror would be empty", `port "h7"`, func(l *inventory.Lab) { l.Taps[0].Ports = []string{"h7"} }},
		{"host_to_host", "there is no such wire yet", "put a switch between them", func(l *inventory.Lab) { l.Links[0].B = inventory.End{Host: "h2", Netdev: "eth0"} }},
		{"switch_loop", "flooded packets would run for ever", "closes a loop", func(l *inventory.Lab) {
			l.Switches = append(l.Switches, &inventory.Switch{Name: "s2"})
			trunk := &inventory.Link{A: inventory.End{Switch: "sw"}, B: inventory.End{Switch: "s2"}, Rate: units.GbitPerSec}
			l.Links = append(l.Links, trunk, trunk)
		}},
		{"pfc", "a lab that ignores it would pass for lossless", "pfc", func(l *inventory.Lab) { l.Switches[0].PFC = &inventory.PFC{Priorities: []int{3}} }},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			lab := testLab("bad", 2)
			tc.change(lab)
			_, err := plan(lab)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.why, err, tc.want)
			}
		})
	}
}

func TestPlan_hostWithTwoNICs(t *testing.T) {
	lab := testLab("dual", 2)
	second := *lab.Hosts[0].NICs[0]
	second.Netdev, second.Device, second.IP = "eth1", "softnic1", netip.MustParsePrefix("198.51.100.1/24")
	lab.Hosts[0].NICs = append(lab.Hosts[0].NICs, &second)
	lab.Links = append(lab.Links, &inventory.Link{A: inventory.End{Switch: "sw"}, B: inventory.End{Host: "h1", Netdev: "eth1"}})
	l, err := plan(lab)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range l.Fabrics[0].Config.Ports {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff([]string{"h1/eth0", "h2", "h1/eth1"}, names); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"h1/eth0", "h1/eth1"}, l.Fabrics[0].Config.Mirrors[0].Ports); diff != "" {
		t.Errorf("a mirror of a host sees all its ports (-want +got):\n%s", diff)
	}
	if got := l.Fabrics[0].Config.Ports[2].Rate; got != 500*units.MbitPerSec {
		t.Errorf("a link without a rate runs at its NIC's: %s", got)
	}
}

func TestRing_eachNICSendsAndAnswersOnce(t *testing.T) {
	lab := testLab("ring", 5)
	l, err := plan(lab)
	if err != nil {
		t.Fatal(err)
	}
	var specs []hostSpec
	for _, h := range l.Hosts {
		specs = append(specs, hostSpec{hostPlan: h})
	}
	from, to := map[string]int{}, map[string]int{}
	for _, p := range ring(specs) {
		from[p.From]++
		to[p.To]++
		if p.From == p.To {
			t.Errorf("%s talks to itself", p.From)
		}
	}
	if len(from) != 5 || len(to) != 5 {
		t.Errorf("from %v to %v: want each of 5 once", from, to)
	}
}

func TestID_isAFolderName(t *testing.T) {
	for _, name := range []string{"virtual-4", "../../etc", "", "a b/c", "ümlaut", strings.Repeat("x", 200), ".hidden", "-rf"} {
		a, b := newID(name), newID(name)
		if !validID(a) || a == b {
			t.Errorf("lab %q: ids %q and %q", name, a, b)
		}
	}
	for _, id := range []string{"", ".", "..", "a/b", "-x", strings.Repeat("x", 64), "a b"} {
		if validID(id) {
			t.Errorf("id %q is taken", id)
		}
	}
}
