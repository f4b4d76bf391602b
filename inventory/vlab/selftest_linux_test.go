package vlab

import (
	"context"
	"strings"
	"testing"
)

// Checksum offload left on: between namespaces nobody computes the checksum, ping would work and data would not.
func TestSelfTest_findsOffloadsLeftOn(t *testing.T) {
	needLab(t)
	before := lookAround(t)
	o := testOptions(t)
	o.IO, o.keepOffloads, o.NoNIC = IOPacket, true, true
	inst, err := Up(context.Background(), testLab("offload", 2), o)
	if err == nil {
		inst.Down(context.Background())
		t.Fatal("up with checksum offload on: no error")
	}
	for _, want := range []string{"self-test from h1 to h2", "self-test from h2 to h1", "192.0.2.1", "UDP payload"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q: %v", want, err)
		}
	}
	nothingLeft(t, before, o)
}

// Packet sockets on veth pairs take the place of TAP devices where /dev/net/tun is closed.
func TestUp_withPacketSockets(t *testing.T) {
	o := testOptions(t)
	o.IO = IOPacket
	inst := up(t, testLab("veth", 3), o)
	p := inst.Provenance()
	if p.IO != IOPacket {
		t.Errorf("io: %q", p.IO)
	}
	ends := map[string]int{}
	for _, off := range p.Offloads {
		ends[off.End]++
		if off.Name == "tx-checksum" && (off.Was == nil || !*off.Was || off.On == nil) {
			t.Errorf("%s %s (%s): was not on before or cannot be read: not switched off", off.Host, off.Netdev, off.End)
		}
		if off.On != nil && *off.On {
			t.Errorf("%s %s (%s): %s is on", off.Host, off.Netdev, off.End, off.Name)
		}
	}
	if ends["host"] == 0 || ends["host"] != ends["fabric"] {
		t.Errorf("offloads by end: %v", ends)
	}
	if got := run(t, inst, "h1", "ls", "/sys/class/net"); got != "eth0\nlo" {
		t.Errorf("/sys/class/net: %q", got)
	}
}
