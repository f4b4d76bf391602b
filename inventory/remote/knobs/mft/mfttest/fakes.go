// Package mfttest has fakes of NVIDIA's tools for tests: small programs that replay transcripts as the vendor documents them, each of which says
// in its head what it was made of, and each time that it is run that it is a fake. They also misbehave when they are told to.
package mfttest

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

//go:embed fakes
var fakes embed.FS

// Device and Netdev are those of the host with a NIC that the fakes pretend.
const (
	Device = "mlx5_0"
	Netdev = "ens1f0np0"
)

// NIC is what the fakes of one host share.
type NIC struct {
	T   testing.TB
	Dir string // what the tools read and change
	Bin string // the tools themselves
}

// New writes the fakes and what they begin with: a ConnectX-8 that takes programs, and on which nothing was changed.
func New(t testing.TB) *NIC {
	t.Helper()
	dir := t.TempDir()
	return At(t, dir, t.TempDir(), dir)
}

// At writes them into folders that will be elsewhere: the tools look for what they share in the folder there.
func At(t testing.TB, dir, bin, there string) *NIC {
	t.Helper()
	n := &NIC{T: t, Dir: dir, Bin: bin}
	for _, tool := range []string{"mlxconfig", "mlxreg", "mlnx_qos"} {
		text, err := fakes.ReadFile("fakes/" + tool)
		if err != nil {
			t.Fatal(err)
		}
		n.write(filepath.Join(n.Bin, tool), strings.ReplaceAll(string(text), "@STATE@", there), 0o755)
	}
	for name, text := range map[string]string{
		"device": Device, "netdev": Netdev, "type": "ConnectX8",
		"config": "USER_PROGRAMMABLE_CC False(0) True(1) True(1)\nREAL_TIME_CLOCK_ENABLE False(0) True(1) True(1)\nROCE_CC_RTT_TIMESTAMP_FORMAT 0 2 2\n" +
			"PCC_INT_EN True(1) False(0) False(0)\nFLEX_PARSER_PROFILE_ENABLE 0 10 10\nNUM_OF_VFS 8 8 8\nLINK_TYPE_P1 ETH(2) ETH(2) ETH(2)\nHOST_CHAINING_DESCRIPTORS Array[0..7] Array[0..7] Array[0..7]",
		"reg/ROCE_ACCL": "roce_adp_retrans_en 1\nroce_tx_window_en 0\nroce_slow_restart_en 1",
		"qos/trust":     "dscp", "qos/pfc": "0,0,0,0,0,0,0,0", "qos/prio_tc": "1,0,2,3,4,5,6,7", "qos/cable_len": "7", "qos/prio2buffer": "0,0,0,0,0,0,0,0",
		"qos/buffer_size": "262016,0,0,0,0,0,0,0", "asked": "",
	} {
		n.Put(name, text)
	}
	var dscp strings.Builder
	for d := range 64 {
		fmt.Fprintf(&dscp, "%d %d\n", d, d/8)
	}
	n.Put("qos/dscp2prio", strings.TrimSpace(dscp.String()))
	n.Slot("15", "ffff0100", "NVIDIA's own DCQCN, of the fake", true)
	return n
}

// Slot puts an algorithm into a slot of the register PPCC.
func (n *NIC) Slot(slot, id, about string, enabled bool) {
	on := "0"
	if enabled {
		on = "1"
	}
	for name, text := range map[string]string{"id": id, "enabled": on, "counter_en": "0", "about": about, "params": "6553 0 65536\n15000 2000 100000", "counters": "0\n0"} {
		n.Put("ppcc/"+slot+"/"+name, text)
	}
}

// Put writes a file of the state.
func (n *NIC) Put(name, text string) { n.write(filepath.Join(n.Dir, name), text+"\n", 0o644) }

// Get reads one.
func (n *NIC) Get(name string) string {
	n.T.Helper()
	data, err := os.ReadFile(filepath.Join(n.Dir, name))
	if err != nil {
		n.T.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// Mode makes a tool misbehave; "" well again. The heads of the fakes' sources list how.
func (n *NIC) Mode(tool, mode string) { n.Put(tool+".mode", mode) }

// Config is a setting of the firmware as words: default, running, next boot.
func (n *NIC) Config(name string) string {
	for line := range strings.Lines(n.Get("config")) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// SetConfig gives a setting other values; "" takes it away.
func (n *NIC) SetConfig(name, values string) {
	var lines []string
	for line := range strings.Lines(n.Get("config")) {
		if !strings.HasPrefix(line, name+" ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if values != "" {
		lines = append(lines, name+" "+values)
	}
	n.Put("config", strings.Join(lines, "\n"))
}

func (n *NIC) write(path, text string, mode os.FileMode) {
	n.T.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.T.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		n.T.Fatal(err)
	}
}
