package knobs

import (
	"os"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/inventory/remote/knobs/mft"
	"github.com/pcmlab/pcmlab/inventory/remote/knobs/mft/mfttest"
)

// nic is a host with the vendor's tools, which are fakes.
func nic(t *testing.T) *mfttest.NIC {
	t.Helper()
	n := mfttest.New(t)
	t.Setenv("PATH", n.Bin+":"+os.Getenv("PATH"))
	return n
}

// journals is a folder in memory where there is one: each change of a journal is waited for until it is on disk, which takes long on a busy machine.
func journals(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "knobs-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func set(words string) []mft.Assign { return mft.Split(words) }

const ppcc = "local_port=1,pnat=0,lp_msb=0,algo_slot=15,algo_param_index=1"

// Each tool's settings are changed, read back, and put back; what is shown then is what was shown before.
func TestVendor_changedAndPutBack(t *testing.T) {
	for _, c := range []struct {
		name    string
		knob    Knob
		changed func(n *mfttest.NIC) string
		before  string
		after   string
	}{
		{"mlxconfig", Knob{MLXConfig: mfttest.Device, Set: set("USER_PROGRAMMABLE_CC=0 NUM_OF_VFS=4")},
			func(n *mfttest.NIC) string { return n.Config("USER_PROGRAMMABLE_CC") + "; " + n.Config("NUM_OF_VFS") },
			"False(0) True(1) True(1); 8 8 8", "False(0) True(1) False(0); 8 8 4"}, // what runs stays
		{"mlxconfig_words", Knob{MLXConfig: mfttest.Device, Set: set("PCC_INT_EN=True")},
			func(n *mfttest.NIC) string { return n.Config("PCC_INT_EN") }, "True(1) False(0) False(0)", "True(1) False(0) True"},
		{"mlxreg", Knob{MLXReg: mfttest.Device, Reg: "ROCE_ACCL", Set: set("roce_tx_window_en=1 roce_slow_restart_en=0x0")},
			func(n *mfttest.NIC) string { return trim(n.Get("reg/ROCE_ACCL")) },
			"roce_adp_retrans_en 1\nroce_tx_window_en 0\nroce_slow_restart_en 1", "roce_adp_retrans_en 1\nroce_tx_window_en 1\nroce_slow_restart_en 0"},
		{"ppcc", Knob{MLXReg: mfttest.Device, Reg: "PPCC", Indexes: ppcc, GetOp: "cmd_type=6", SetOp: "cmd_type=8", Set: set("value=13000")},
			func(n *mfttest.NIC) string { return trim(n.Get("ppcc/15/params")) }, "6553 0 65536\n15000 2000 100000", "6553 0 65536\n13000 2000 100000"},
		{"pfc", Knob{MLNXQoS: mfttest.Netdev, Set: set("pfc=0,0,0,1,0,0,0,0 prio_tc=0,0,0,3,0,0,6,7 cable_len=30 prio2buffer=0,0,0,1,0,0,0,0 buffer_size=131008,131008,0,0,0,0,0,0")},
			func(n *mfttest.NIC) string {
				return strings.Join([]string{n.Get("qos/pfc"), n.Get("qos/prio_tc"), n.Get("qos/cable_len"), n.Get("qos/prio2buffer"), n.Get("qos/buffer_size")}, " ")
			},
			"0,0,0,0,0,0,0,0 1,0,2,3,4,5,6,7 7 0,0,0,0,0,0,0,0 262016,0,0,0,0,0,0,0", "0,0,0,1,0,0,0,0 0,0,0,3,0,0,6,7 30 0,0,0,1,0,0,0,0 131008,131008,0,0,0,0,0,0"},
		{"dscp", Knob{MLNXQoS: mfttest.Netdev, Set: set("dscp2prio=26:5,48:6")}, func(n *mfttest.NIC) string { return dscp(n, "26 ") }, "dscp 26 3", "dscp 26 5"},
		// A change of trust throws the map away: all of it comes back, what somebody had set in it too.
		{"trust", Knob{MLNXQoS: mfttest.Netdev, Set: set("trust=pcp")}, func(n *mfttest.NIC) string { return dscp(n, "10 ") }, "dscp 10 7", "pcp "},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := nic(t)
			if c.name == "trust" {
				n.Put("qos/dscp2prio", strings.Replace(n.Get("qos/dscp2prio"), "10 1\n", "10 7\n", 1))
			}
			if err := c.knob.Validate(); err != nil {
				t.Fatal(err)
			}
			if got := c.changed(n); got != c.before {
				t.Fatalf("begins with %q, want %q", got, c.before)
			}
			dir := journals(t)
			j := apply(t, dir, c.knob)
			if got := c.changed(n); got != c.after {
				t.Errorf("changed to %q, want %q", got, c.after)
			}
			if err := j.Restore(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := c.changed(n); got != c.before && c.name != "mlxconfig_words" {
				t.Errorf("put back to %q, want %q", got, c.before)
			}
			if len(left(t, dir)) > 0 {
				t.Errorf("journals: %+v", left(t, dir))
			}
		})
	}
}

func dscp(n *mfttest.NIC, of string) string {
	for line := range strings.Lines(n.Get("qos/dscp2prio")) {
		if strings.HasPrefix(line, of) {
			return n.Get("qos/trust") + " " + strings.TrimSpace(line)
		}
	}
	return n.Get("qos/trust") + " "
}

// trust alone from pcp: there is no map to put back.
func TestVendor_trustFromPorts(t *testing.T) {
	n := nic(t)
	n.Put("qos/trust", "pcp")
	n.Put("qos/dscp2prio", "")
	j := apply(t, journals(t), Knob{MLNXQoS: mfttest.Netdev, Set: set("trust=dscp dscp2prio=26:5")})
	if got := dscp(n, "26 "); got != "dscp 26 5" {
		t.Errorf("changed to %q", got)
	}
	if err := j.Restore(t.Context()); err != nil || n.Get("qos/trust") != "pcp" || n.Get("qos/dscp2prio") != "" {
		t.Errorf("%v, trust %q, map %q", err, n.Get("qos/trust"), n.Get("qos/dscp2prio"))
	}
}

// Every way in which the tools go wrong is an error that says which, and leaves nothing changed.
func TestVendor_badTools(t *testing.T) {
	config := Knob{MLXConfig: mfttest.Device, Set: set("USER_PROGRAMMABLE_CC=0")}
	reg := Knob{MLXReg: mfttest.Device, Reg: "PPCC", Indexes: ppcc, GetOp: "cmd_type=6", SetOp: "cmd_type=8", Set: set("value=13000")}
	qos := Knob{MLNXQoS: mfttest.Netdev, Set: set("pfc=0,0,0,1,0,0,0,0")}
	with := func(k Knob, words string) Knob { k.Set = set(words); return k }
	for _, c := range []struct {
		tool, mode string
		knob       Knob
		want       string
	}{
		{"mlxconfig", "denied", config, "exit status 3 (fake mlxconfig of pcmlab's tests: no NVIDIA device is behind this -E- Failed to open the device)"},
		{"mlxconfig", "garbled", config, "mlxconfig printed no settings"},
		{"mlxconfig", "silent", config, "mlxconfig printed no settings"},
		{"mlxconfig", "cut", config, "mlxconfig printed no settings"},
		{"mlxconfig", "livefish", config, "Device in Livefish mode is not supported"},
		{"mlxconfig", "refuses", config, "Failed to set configuration"},
		{"mlxconfig", "ignores", config, `USER_PROGRAMMABLE_CC: "0" was set, "True(1)" is read back`},
		{"mlxconfig", "", with(config, "NO_SUCH_SETTING=1"), "The Device doesn't support NO_SUCH_SETTING parameter"},
		{"mlxreg", "denied", reg, "-E- Failed to open device: mlx5_0"},
		{"mlxreg", "garbled", reg, "mlxreg printed no register"},
		{"mlxreg", "silent", reg, "mlxreg printed no register"},
		{"mlxreg", "generic", reg, "FW burnt on device does not support generic access register"},
		{"mlxreg", "novalue", reg, `the register has no field "value"`},
		{"mlxreg", "ignores", reg, `value: "13000" was set, "0x3a98" is read back`},
		{"mlxreg", "", with(reg, "value=1"), `value: "1" was set, "0x3a98" is read back`}, // out of bounds: the firmware says nothing
		{"mlxreg", "", Knob{MLXReg: mfttest.Device, Reg: "NOREG", Set: set("a=1")}, "Can't find access register name: NOREG"},
		{"mlnx_qos", "denied", qos, "[Errno 1] Operation not permitted"},
		{"mlnx_qos", "garbled", qos, "mlnx_qos printed no PFC configuration"},
		{"mlnx_qos", "noets", qos, "ETS features are not supported on your system"},
		{"mlnx_qos", "ignores", qos, `pfc: "0,0,0,1,0,0,0,0" was set, "0,0,0,0,0,0,0,0" is read back`},
		{"mlnx_qos", "nobuffers", with(qos, "prio2buffer=0,0,0,1,0,0,0,0"), "mlnx_qos does not show prio2buffer, so that nobody could put it back"},
		{"mlnx_qos", "", Knob{MLNXQoS: "eth9", Set: set("pfc=0,0,0,1,0,0,0,0")}, "No such device"},
	} {
		t.Run(strings.Trim(c.tool+"_"+c.mode+"_"+c.knob.Set[0].Name, "_"), func(t *testing.T) {
			n := nic(t)
			begin := n.Get("config") + n.Get("ppcc/15/params") + n.Get("qos/pfc")
			n.Mode(c.tool, c.mode)
			dir, f := journals(t), file(t, "1\n")
			_, err := Apply(t.Context(), dir, "run-1", "alice@desk", []Knob{{File: f, Value: "2"}, c.knob})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), c.knob.String()+": ") {
				t.Errorf("%v, want %q", err, c.want)
			}
			if content(t, f) != "1" || len(left(t, dir)) > 0 && !strings.Contains(err.Error(), "by hand") {
				t.Errorf("left %q, %+v", content(t, f), left(t, dir))
			}
			if n.Get("config")+n.Get("ppcc/15/params")+n.Get("qos/pfc") != begin {
				t.Error("settings are changed")
			}
		})
	}
}

// A warning among the output is none of its settings.
func TestVendor_noisyTools(t *testing.T) {
	n := nic(t)
	n.Mode("mlnx_qos", "lldpad")
	n.Mode("mlxconfig", "old") // the last column alone
	j := apply(t, journals(t), Knob{MLNXQoS: mfttest.Netdev, Set: set("pfc=0,0,0,1,0,0,0,0")}, Knob{MLXConfig: mfttest.Device, Set: set("NUM_OF_VFS=2")})
	if n.Get("qos/pfc") != "0,0,0,1,0,0,0,0" || n.Config("NUM_OF_VFS") != "8 8 2" {
		t.Errorf("%q, %q", n.Get("qos/pfc"), n.Config("NUM_OF_VFS"))
	}
	if err := j.Restore(t.Context()); err != nil {
		t.Error(err)
	}
}

// What could not be put back comes with the command to type.
func TestVendor_byHand(t *testing.T) {
	for _, c := range []struct {
		tool string
		knob Knob
		want string
	}{
		{"mlxconfig", Knob{MLXConfig: mfttest.Device, Set: set("USER_PROGRAMMABLE_CC=0")}, "by hand: sudo mlxconfig -d mlx5_0 -y set USER_PROGRAMMABLE_CC=1"},
		{"mlxreg", Knob{MLXReg: mfttest.Device, Reg: "PPCC", Indexes: ppcc, GetOp: "cmd_type=6", SetOp: "cmd_type=8", Set: set("value=13000")},
			"by hand: sudo mlxreg -d mlx5_0 -y --reg_name PPCC --set cmd_type=8,value=0x3a98 --indexes " + ppcc},
		{"mlnx_qos", Knob{MLNXQoS: mfttest.Netdev, Set: set("pfc=0,0,0,1,0,0,0,0 cable_len=30")},
			"by hand: sudo mlnx_qos -i ens1f0np0 --pfc 0,0,0,0,0,0,0,0 && sudo mlnx_qos -i ens1f0np0 --cable_len 7"},
	} {
		n := nic(t)
		dir := journals(t)
		j := apply(t, dir, c.knob)
		n.Mode(c.tool, "ignores")
		err := j.Restore(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "after it was put back") {
			t.Errorf("%s: %v, want %q", c.tool, err, c.want)
		}
		if len(left(t, dir)) != 1 {
			t.Errorf("%s: the journal is gone", c.tool)
		}
		n.Mode(c.tool, "")
		if err := left(t, dir)[0].Restore(t.Context()); err != nil || len(left(t, dir)) != 0 {
			t.Errorf("%s: %v", c.tool, err)
		}
	}
}

// Descriptions that cannot be, all mistakes of each.
func TestVendor_validate(t *testing.T) {
	for _, c := range []struct {
		knob Knob
		want []string
	}{
		{Knob{MLXConfig: "-d", Set: set("A=1")}, []string{`device "-d"`}},
		{Knob{MLXConfig: "mlx5_0"}, []string{"nothing to set"}},
		{Knob{MLXConfig: "mlx5_0", Set: set("--reset=1 A=1")}, []string{`"--reset": no name of a setting`}},
		{Knob{MLXConfig: "mlx5_0", Set: set("A=1 A=2")}, []string{"A is there twice"}},
		{Knob{MLXConfig: "mlx5_0", Reg: "PPCC", Set: set("A=1")}, []string{"belong to mlxreg"}},
		{Knob{MLXReg: "mlx5_0", Set: set("a=1")}, []string{"mlxreg needs reg"}},
		{Knob{MLXReg: "mlx5_0", Reg: "PPCC", Indexes: "local_port", GetOp: "$(x)=1", Set: set("a=1")}, []string{`indexes "local_port"`, `get_op "$(x)=1"`}},
		{Knob{MLNXQoS: "eth0", Set: set("pcf=0,0,0,1,0,0,0,0")}, []string{`no "pcf": known are pfc`}},
		{Knob{MLNXQoS: "eth0", Set: set("pfc=0,0,0,1")}, []string{"has 4 values, the priorities are 8"}},
		{Knob{MLNXQoS: "eth0", Set: set("pfc=0,0,0,2,0,0,0,0")}, []string{"from 0 to 1"}},
		{Knob{MLNXQoS: "eth0", Set: set("trust=vlan")}, []string{"neither pcp nor dscp"}},
		{Knob{MLNXQoS: "eth0", Set: set("dscp2prio=64:1")}, []string{`"64:1" is no DSCP with its priority`}},
		{Knob{Set: set("a=1")}, []string{"set belongs to", "need one of"}},
		{Knob{MLNXQoS: "eth0", MLXReg: "mlx5_0", Reg: "X", Set: set("pfc=0,0,0,1,0,0,0,0")}, []string{"need one of"}},
	} {
		err := c.knob.Validate()
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q", c.knob, err, want)
			}
		}
	}
}

// trim takes away what the fakes leave at the ends of lines.
func trim(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}
