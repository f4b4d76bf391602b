package inventory

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/internal/units"
)

func mustLoad(t *testing.T, name string) *Lab {
	t.Helper()
	lab, err := Load("../labs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return lab
}

func TestOverride_changesWhatItNames(t *testing.T) {
	t.Parallel()
	off := false
	everyNIC := func(l *Lab, f func(*NIC)) {
		for _, h := range l.Hosts {
			for _, n := range h.NICs {
				f(n)
			}
		}
	}
	rows := []struct {
		key, value string
		want       func(*Lab)
	}{
		{"nic.dcqcn", "off", func(l *Lab) { everyNIC(l, func(n *NIC) { n.DCQCN = &off }) }},
		{"nic.handler", "swift", func(l *Lab) { everyNIC(l, func(n *NIC) { n.Handlers = []HandlerRule{{Handler: "swift"}} }) }},
		{"nic.handler", "none", func(*Lab) {}},
		{"nic.dcqcn", "default", func(*Lab) {}},
		{"nic.ecn", "off", func(l *Lab) { everyNIC(l, func(n *NIC) { n.ECN = false }) }},
		{"nic.mtu", "1500", func(l *Lab) { everyNIC(l, func(n *NIC) { n.MTU = 1500 }) }},
		{"nic.dscp", "0", func(l *Lab) { everyNIC(l, func(n *NIC) { n.DSCP = 0 }) }},
		{"nic.rate", "10Gbit/s", func(l *Lab) { everyNIC(l, func(n *NIC) { n.Rate = 10 * units.GbitPerSec }) }},
		{"nic.h2.dcqcn", "off", func(l *Lab) { l.Host("h2").NICs[0].DCQCN = &off }},
		{"nic.h2.eth0.priority", "5", func(l *Lab) { l.Host("h2").NICs[0].Priority = 5 }},
		{"link.buffer", "64KiB", func(l *Lab) {
			for _, k := range l.Links {
				k.Buffer = 64 * units.KiB
			}
		}},
		{"link.buffer", "off", func(*Lab) {}},
		{"link.r1.rate", "10Gbit/s", func(l *Lab) { l.Links[3].Rate = 10 * units.GbitPerSec }},
		{"link.h1.eth0.delay", "0s", func(l *Lab) { l.Links[0].Delay = 0 }},
		{"link.sw.delay", "5us", func(l *Lab) {
			for _, k := range l.Links {
				k.Delay = 5 * time.Microsecond
			}
		}},
		{"switch.buffer", "1MiB", func(l *Lab) { l.Switches[0].Buffer = units.MiB }},
		{"switch.sw.ecn.kmin", "50KiB", func(l *Lab) { l.Switches[0].ECN.KMin = 50 * units.KiB }},
		{"switch.ecn.pmax", "1", func(l *Lab) { l.Switches[0].ECN.PMax = 1 }},
		{"switch.ecn", "off", func(l *Lab) { l.Switches[0].ECN = nil }},
		{"switch.ecn", "500KiB,900KiB,0.5", func(l *Lab) { l.Switches[0].ECN = &ECN{KMin: 500 * units.KiB, KMax: 900 * units.KiB, PMax: 0.5} }},
		{"virtual.time_scale", "100", func(l *Lab) { l.Virtual.TimeScale = 100 }},
		{"virtual.max_lateness", "5ms", func(l *Lab) { l.Virtual.MaxLateness = 5 * time.Millisecond }},
	}
	for _, row := range rows {
		t.Run(row.key+"="+row.value, func(t *testing.T) {
			t.Parallel()
			if !IsOverride(row.key) {
				t.Errorf("IsOverride(%q) = false", row.key)
			}
			got, want := mustLoad(t, "virtual-4.yaml"), mustLoad(t, "virtual-4.yaml")
			row.want(want)
			if err := Override(got, row.key, row.value); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, compare); diff != "" {
				t.Errorf("Override(%s, %s) (-want +got):\n%s", row.key, row.value, diff)
			}
		})
	}
}

func TestOverride_refusesAndLeavesTheLabAlone(t *testing.T) {
	t.Parallel()
	rows := []struct{ lab, key, value, want string }{
		{"virtual-4.yaml", "nic.dcqnc", "off", `--set nic.dcqnc=off: unknown key (did you mean "nic.dcqcn"? known: nic.backend, nic.dcqcn, nic.device, nic.dscp, nic.ecn, nic.gid_index, nic.handler, nic.mtu, nic.port, nic.priority, nic.rate)`},
		{"virtual-4.yaml", "nic.h1.mut", "1500", `--set nic.h1.mut=1500: unknown key (did you mean "nic.h1.mtu"? known: nic.h1.backend, nic.h1.dcqcn, nic.h1.device, nic.h1.dscp, nic.h1.ecn, nic.h1.gid_index, nic.h1.handler, nic.h1.mtu, nic.h1.port, nic.h1.priority, nic.h1.rate)`},
		{"virtual-4.yaml", "nic.h9.mtu", "1500", `--set nic.h9.mtu=1500: no nic is called "h9" (did you mean "h1"? known: h1, h1.eth0, h2, h2.eth0, h3, h3.eth0, r1, r1.eth0)`},
		{"virtual-4.yaml", "nic.mtu", "big", `--set nic.mtu=big: "big" is text, need a whole number`},
		{"virtual-4.yaml", "nic.mtu", "010", `--set nic.mtu=010: "010" has a leading zero, which some readers take for octal (write 10)`},
		{"virtual-4.yaml", "nic.mtu", "900", `--set nic.mtu=900: hosts.h1.nics[0].mtu: MTU 900 leaves a RoCE path MTU of 512, the software NIC needs 1024 (write 1500 (path MTU 1024) or 4200 (path MTU 4096))`},
		{"virtual-4.yaml", "nic.h1.dscp", "64", `--set nic.h1.dscp=64: hosts.h1.nics[0].dscp: 64 is outside the limits (must be at least 0 and at most 63)`},
		{"virtual-4.yaml", "nic.h1.backend", "mlx5", `--set nic.h1.backend=mlx5: hosts.h1.nics[0].backend: a virtual lab has software NICs, not mlx5 (write backend: softnic)`},
		{"virtual-4.yaml", "nic.ecn", "maybe", `--set nic.ecn=maybe: "maybe" is neither on nor off`},
		{"virtual-4.yaml", "switch.ecn.kmin", "500KiB", `--set switch.ecn.kmin=500KiB: switches.sw.ecn.kmin: kmin 500KiB is above kmax 400KiB (kmin is at most kmax)`},
		{"virtual-4.yaml", "switch.ecn", "lots", `--set switch.ecn=lots: "lots" is not a marking curve (write off, or KMIN,KMAX,PMAX such as 100KiB,400KiB,0.2)`},
		{"virtual-4.yaml", "switch.pfc.xoff", "1KiB", `--set switch.pfc.xoff=1KiB: PFC is off on this switch (add pfc: to the lab file)`},
		{"virtual-4.yaml", "virtual.time_scale", "0.5", `--set virtual.time_scale=0.5: virtual.time_scale: 0.5 is outside the limits (must be at least 1 and at most 100000)`},
		{"virtual-4.yaml", "virtual.time_scale", "50000", `--set virtual.time_scale=50000: links[0]: at time scale 50000 the link is built with 500kbit/s (at least 1Mbit/s is needed: lower virtual.time_scale or raise the rate)`},
		{"testbed.yaml", "virtual.time_scale", "2", `--set virtual.time_scale=2: the lab is not virtual (add virtual: to the lab file)`},
		{"virtual-4.yaml", "duration", "2", `--set duration=2: unknown key`},
		{"virtual-4.yaml", "link.h1.rate", "25GB/s", `--set link.h1.rate=25GB/s: "25GB/s" is not a rate with its unit (rates are bits per second, written with a small b, such as 25Gbit/s)`},
	}
	for _, row := range rows {
		t.Run(row.key+"="+row.value, func(t *testing.T) {
			t.Parallel()
			got, want := mustLoad(t, row.lab), mustLoad(t, row.lab)
			err := Override(got, row.key, row.value)
			if err == nil {
				t.Fatal("accepted")
			}
			if first, _, _ := strings.Cut(err.Error(), "\n"); !strings.HasPrefix(first, row.want) {
				t.Errorf("got  %s\nwant %s", first, row.want)
			}
			if diff := cmp.Diff(want, got, compare); diff != "" {
				t.Errorf("the lab changed (-want +got):\n%s", diff)
			}
		})
	}
}

// Two settings that only together make sense are checked together, and every mistake is named.
func TestOverrideAll_checksAtTheEnd(t *testing.T) {
	t.Parallel()
	lab := mustLoad(t, "virtual-4.yaml")
	if err := OverrideAll(lab, []Setting{{"switch.ecn.kmin", "500KiB"}, {"switch.ecn.kmax", "800KiB"}}); err != nil {
		t.Fatal(err)
	}
	err := OverrideAll(lab, []Setting{{"nic.x", "1"}, {"link.y", "2"}})
	if err == nil || strings.Count(err.Error(), "unknown key") != 2 {
		t.Errorf("got %v, want two unknown keys", err)
	}
}

func TestIsOverride(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{"nic.mtu": true, "nic.h1.foo": true, "switch.ecn.kmin": true, "virtual.time_scale": true,
		"duration": false, "nic": false, "phases.one.duration": false, "nics.mtu": false, "": false} {
		if got := IsOverride(key); got != want {
			t.Errorf("IsOverride(%q) = %v, want %v", key, got, want)
		}
	}
}

func TestRoCEPathMTU(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		mtu  int
		v6   bool
		want int
	}{{1500, false, 1024}, {4200, false, 4096}, {4200, true, 4096}, {4160, false, 4096}, {4159, false, 2048}, {4096, false, 2048}, {9000, false, 4096}, {1088, false, 1024}, {1088, true, 512}, {300, false, 0}} {
		if got := RoCEPathMTU(row.mtu, row.v6); got != row.want {
			t.Errorf("RoCEPathMTU(%d, %v) = %d, want %d", row.mtu, row.v6, got, row.want)
		}
	}
}

func TestParse_takesPathsFromTheLabFilesFolder(t *testing.T) {
	t.Parallel()
	lab, err := Parse("/etc/labs/x.yaml", []byte("lab: x\ndefaults: {ssh: {key: keys/id, known_hosts: ~/kh}}\nhosts: {a: {}, b: {ssh: {key: /k}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []*Host{{Name: "a", SSH: SSH{Key: "/etc/labs/keys/id", KnownHosts: "~/kh"}}, {Name: "b", SSH: SSH{Key: "/k", KnownHosts: "~/kh"}}}
	if diff := cmp.Diff(want, lab.Hosts, compare); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBroadcast(t *testing.T) {
	t.Parallel()
	for p, want := range map[string]string{"192.0.2.11/24": "192.0.2.255", "10.1.2.3/8": "10.255.255.255", "198.51.100.9/30": "198.51.100.11"} {
		if got := broadcast(netip.MustParsePrefix(p)); got.String() != want {
			t.Errorf("broadcast(%s) = %s, want %s", p, got, want)
		}
	}
}
