package mft

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The example of NVIDIA Firmware Tools (MFT) Documentation v4.34.0, "Examples of mlxconfig Usage", for a ConnectX-4 Lx.
const query = `
Device #1:
----------
Device type: ConnectX4LX
PCI device: /dev/mst/mt4117_pciconf0

Configurations:                              Default         Current         Next Boot
*        NUM_OF_VFS                          8               5               5
         SRIOV_EN                            True(1)         True(1)         True(1)
The '*' shows parameters with next value different from default/current value.
`

func TestParseQuery(t *testing.T) {
	for _, c := range []struct {
		name, out string
		want      map[string]Config
	}{
		{"the_manual's", query, map[string]Config{"NUM_OF_VFS": {"8", "5", "5", "5"}, "SRIOV_EN": {"1", "1", "1", "True(1)"}}},
		{"next_boot_alone", "Configurations:      Next Boot\n    SRIOV_EN True(1)\n", map[string]Config{"SRIOV_EN": {"", "", "1", "True(1)"}}},
		{"no_defaults", "Configurations:      Current      Next Boot\n*   SRIOV_EN False(0) True(1)\n", map[string]Config{"SRIOV_EN": {"", "0", "1", "True(1)"}}},
		{"read_only_and_na", "Configurations:  Default Current Next Boot\n*RO     A N/A 1 2\n RO     B Array[0..7] Array[0..7] Array[0..7]\n",
			map[string]Config{"A": {"", "1", "2", "2"}, "B": {"Array[0..7]", "Array[0..7]", "Array[0..7]", "Array[0..7]"}}},
	} {
		got, err := ParseQuery(c.out)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", c.name, err, diff)
		}
	}
	for _, out := range []string{"", "-E- Failed to open the device", "Configurations: Next Boot\n", "    SRIOV_EN True(1)\n", strings.Repeat("\x00\xff", 4000)} {
		if got, err := ParseQuery(out); err == nil {
			t.Errorf("%.40q gives %v", out, got)
		} else if len(err.Error()) > 600 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

func TestUnsupported(t *testing.T) {
	for out, want := range map[string]string{"-E- The Device doesn't support PCC_INT_EN parameter\n": "PCC_INT_EN", "-E- Unknown Parameter X": "X", "-E- Failed to open the device": ""} {
		if got := Unsupported(out); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
}

func TestParseFields(t *testing.T) {
	out := "Sending access register...\n\nField Name              | Data\n=====================================\ncmd_type                | 0x00000003\nvalue                   | 0x00000001\n" +
		"text[0]                 | 0x70636d20\ntext[1]                 | 0x73770000\ntext[3]                 | 0x11111111\n=====================================\n"
	f, err := ParseFields(out)
	if err != nil || f["value"] != 1 || f["cmd_type"] != 3 || f.Text("text") != "pcm sw" || len(f.Words("text")) != 2 {
		t.Errorf("%v, %v, %q", f, err, f.Text("text"))
	}
	if _, err := f.Get("counter_en"); err == nil || !strings.Contains(err.Error(), `no field "counter_en"`) {
		t.Error(err)
	}
	for _, out := range []string{"", "value | 0x00000001\n", "Field Name | Data\nvalue | one\n", "-E- Failed to open device\n"} {
		if f, err := ParseFields(out); err == nil {
			t.Errorf("%q gives %v", out, f)
		}
	}
}

// The example of MLNX_OFED's manual ("Quality of Service"), in the layout of mlnx_qos 1.2.
const shown = `DCBX mode: OS controlled
Priority trust state: dscp
dscp2prio mapping:
	prio:0 dscp:07,06,05,04,03,02,01,00,
	prio:3 dscp:31,30,29,28,27,26,25,24,
	prio:3 dscp:63,
Receive buffer size (bytes): 130944,130944,0,0,0,0,0,0,max_buffer_size=262016
Cable len: 7
PFC configuration:
	priority    0   1   2   3   4   5   6   7
	enabled     0   0   0   1   0   0   0   0   
	buffer      0   0   0   1   0   0   0   0   
tc: 0 ratelimit: unlimited, tsa: ets, bw: 0%
	 priority:  1
tc: 1 ratelimit: 25.0 Gbps, tsa: strict
	 priority:  0
	 priority:  2
	 priority:  3
	 priority:  4
	 priority:  5
	 priority:  6
	 priority:  7
`

func TestParseQoS(t *testing.T) {
	q, err := ParseQoS(shown)
	want := QoS{"trust": "dscp", "dscp2prio": "0:0,1:0,2:0,3:0,4:0,5:0,6:0,7:0,24:3,25:3,26:3,27:3,28:3,29:3,30:3,31:3,63:3", "buffer_size": "130944,130944,0,0,0,0,0,0",
		"cable_len": "7", "pfc": "0,0,0,1,0,0,0,0", "prio2buffer": "0,0,0,1,0,0,0,0", "prio_tc": "1,0,1,1,1,1,1,1"}
	if diff := cmp.Diff(want, q); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	for _, out := range []string{"", "ETS features are not supported on your system\n", "PFC configuration:\n\tenabled  a b c d e f g h\n", shown[:60]} {
		if q, err := ParseQoS(out); err == nil {
			t.Errorf("%q gives %v", out, q)
		}
	}
}

// Whatever a tool prints, the readers end, keep errors short, and what they read back is what they would set.
func FuzzOutputs(f *testing.F) {
	for _, s := range []string{query, shown, "Field Name | Data\n==\nvalue | 0x00000001\ntext[0] | 0x61626364\n", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, out string) {
		if all, err := ParseQuery(out); err == nil {
			for name, c := range all {
				if c.Next != "" && !c.Is(c.Next) {
					t.Errorf("%s: %+v is not what it is", name, c)
				}
			}
		} else if len(err.Error()) > 1000 {
			t.Error("a long error")
		}
		if fields, err := ParseFields(out); err == nil && strings.ContainsFunc(fields.Text("text"), func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("text %q", fields.Text("text"))
		}
		if q, err := ParseQoS(out); err == nil {
			for key, v := range q {
				if v == "none" {
					continue
				}
				if unlike := q.Unlike([]Assign{{key, v}}); len(unlike) > 0 {
					t.Errorf("%v", unlike)
				}
			}
		}
	})
}
