package vlab

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
)

func TestUp_saysWhatFailedAndLeavesNothing(t *testing.T) {
	needLab(t)
	tests := []struct {
		name, why string
		lab       func() *inventory.Lab
		options   func(*Options)
		want      []string
	}{
		{"nic_daemon_dies", "its last words tell why", func() *inventory.Lab {
			lab := testLab("fail", 2)
			lab.Hosts[1].NICs[0].Device = "broken0"
			return lab
		}, nil, []string{`host "h2"`, "NIC daemon broken0", "exit status 1", "broken on purpose"}},
		{"mtu", "the kernel refuses it", func() *inventory.Lab {
			lab := testLab("fail", 2)
			lab.Hosts[0].NICs[0].MTU = 99999
			return lab
		}, nil, []string{`host "h1"`, "interface eth0", "mtu 99999"}},
		{"no_binary", "a typo in an option", nil, func(o *Options) { o.Binary = "/nonexistent/pcmlab" }, []string{"/nonexistent"}},
		{"bad_id", "it is a folder's name", nil, func(o *Options) { o.ID = "../x" }, []string{`"../x"`}},
		{"open_state_folder", "keys would be there", nil, func(o *Options) {
			os.MkdirAll(o.StateDir, 0o700)
			os.Chmod(o.StateDir, 0o777)
		}, []string{"chmod 700"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			before := lookAround(t)
			o := testOptions(t)
			o.Ephemeral = true
			lab := testLab("fail", 2)
			if tc.lab != nil {
				lab = tc.lab()
			}
			if tc.options != nil {
				tc.options(&o)
			}
			inst, err := Up(context.Background(), lab, o)
			if err == nil {
				inst.Down(context.Background())
				t.Fatalf("%s: no error", tc.why)
			}
			for _, want := range append(tc.want, `lab "fail"`) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %q lacks %q", tc.why, err, want)
				}
			}
			nothingLeft(t, before, o)
		})
	}
}

func TestUp_cancelledAtAnyStep(t *testing.T) {
	needLab(t)
	before := lookAround(t)
	for _, at := range []string{"begin folders", "keeper started", "begin hosts", "host h1", "fabric sw", "begin ready"} {
		ctx, cancel := context.WithCancel(t.Context())
		o := testOptions(t)
		o.Ephemeral = true
		o.Progress = func(s Step) {
			if s.What == at {
				cancel()
			}
		}
		inst, err := Up(ctx, testLab("cancel", 2), o)
		cancel()
		if err == nil { // it was too late to matter
			inst.Down(context.Background())
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled at %q: %v", at, err)
		}
		nothingLeft(t, before, o)
	}
}

func TestUp_idIsTaken(t *testing.T) {
	o := testOptions(t)
	o.ID = "mine"
	inst := up(t, testLab("taken", 2), o)
	_, err := Up(t.Context(), testLab("taken", 2), o)
	if err == nil || !strings.Contains(err.Error(), "lab down mine") {
		t.Errorf("second lab with the same id: %v", err)
	}
	if got := run(t, inst, "h1", "hostname"); got != "h1" {
		t.Errorf("the first lab was hurt: hostname %q", got)
	}
}

func TestUp_severalAtOnce(t *testing.T) {
	needLab(t)
	before := lookAround(t)
	o := testOptions(t)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			oo := o
			oo.Ephemeral = true
			inst, err := Up(context.Background(), testLab("crowd", 2), oo)
			if err != nil {
				t.Errorf("up: %v", err)
				return
			}
			if _, err := inst.Down(context.Background()); err != nil {
				t.Errorf("down: %v", err)
			}
		})
	}
	wg.Wait()
	nothingLeft(t, before, o)
}

// A host with two NICs on two subnets, one of them IPv6, and a switch that no host stands for.
func TestUp_twoSubnetsAndIPv6(t *testing.T) {
	lab := testLab("dual", 2)
	for i, ip := range []string{"2001:db8::1/64", "2001:db8::2/64"} {
		h := lab.Hosts[i]
		h.NICs = append(h.NICs, &inventory.NIC{Netdev: "eth1", IP: netip.MustParsePrefix(ip), Rate: h.NICs[0].Rate, MTU: 1500})
		lab.Links = append(lab.Links, &inventory.Link{A: inventory.End{Host: h.Name, Netdev: "eth1"}, B: inventory.End{Switch: "sw"}})
	}
	lab.Switches[0].Host = ""
	o := testOptions(t)
	inst := up(t, lab, o)
	if got := inst.Provenance().SelfTest; !strings.HasPrefix(got, "4 pairs") {
		t.Errorf("self-test: %q: want both subnets", got)
	}
	if got := run(t, inst, "h1", "cat", "/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "/proc/sys/net/ipv6/conf/eth1/disable_ipv6"); got != "1\n0" {
		t.Errorf("IPv6 off on eth0, eth1: %q", got)
	}
	if _, err := os.Stat(filepath.Join(inst.Dir, fabricSocket)); err != nil {
		t.Errorf("control socket of a switch without a host: %v", err)
	}
}

// Three switches in a row, the outer ones with hosts: packets cross two trunks, whose delay counts once.
func TestUp_switchesInARow(t *testing.T) {
	for _, io := range []IO{IOAuto, IOPacket} {
		lab := testLab("row", 4)
		lab.Switches = append(lab.Switches, &inventory.Switch{Name: "middle", Host: "sw"}, &inventory.Switch{Name: "far"})
		for i := 2; i < 4; i++ {
			lab.Links[i].B.Switch = "far"
		}
		for _, pair := range [][2]string{{"sw", "middle"}, {"middle", "far"}} {
			lab.Links = append(lab.Links, &inventory.Link{A: inventory.End{Switch: pair[0]}, B: inventory.End{Switch: pair[1]}, Rate: lab.Links[0].Rate, Delay: 100 * time.Microsecond})
		}
		o := testOptions(t)
		o.IO = io
		inst := up(t, lab, o)
		if got := inst.Provenance(); !strings.HasPrefix(got.SelfTest, "4 pairs") || len(got.FabricIO) != 3 {
			t.Errorf("self-test %q over fabrics %v", got.SelfTest, got.FabricIO)
		}
		run(t, inst, "sw", "test", "-S", "/run/pcmlab/fabric.sock")
		run(t, inst, "sw", "test", "-S", "/run/pcmlab/fabric-middle.sock")
		// Two trunks of 100 us at scale 50, there and back: 20 ms and a little, not 40.
		out := run(t, inst, "h1", "pcmlab", "rtt", "192.0.2.4:22")
		if rtt, err := time.ParseDuration(out); err != nil || rtt < 20*time.Millisecond || rtt > 38*time.Millisecond {
			t.Errorf("least round-trip time over two trunks: %s, %v, want 20ms to 38ms", out, err)
		}
		if _, err := inst.Down(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
