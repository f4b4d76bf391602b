package capture

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProgram_Args(t *testing.T) {
	o := TapOptions{Iface: "p_r1", File: "/x/tap.pcap", Snaplen: 128, Filter: "roce or udp port 50321", FileSize: 256 << 20, Files: 4}
	const x = "udp dst port 4791 or udp dst port 50321 or (vlan and (udp dst port 4791 or udp dst port 50321))"
	for p, want := range map[Program][]string{
		Own:     strings.Fields("pcmlab capture --iface p_r1 -w /x/tap.pcap --snaplen 128 --filter FILTER -o json --file-size 268435456 --files 4"),
		Tcpdump: strings.Fields("tcpdump -i p_r1 -n -U --immediate-mode --time-stamp-precision=nano -Z root -s 128 -B 32768 -w /x/tap.pcap -C 268 -W 4 X"),
		Dumpcap: strings.Fields("dumpcap -i p_r1 -s 128 -B 32 -w /x/tap.pcap -b filesize:268435 -b files:4 -f X"),
	} {
		for i, w := range want {
			want[i] = map[string]string{"X": x, "FILTER": o.Filter}[w]
			if want[i] == "" {
				want[i] = w
			}
		}
		if d := cmp.Diff(want, p.Args(o)); d != "" {
			t.Errorf("%s (-want +got)\n%s", p, d)
		}
	}
	for _, p := range Programs {
		if got := strings.Join(p.Args(TapOptions{Iface: "e", File: "f"}), " "); strings.Contains(got, "udp") || !strings.Contains(got, " 262144") || strings.Contains(got, "-C") {
			t.Errorf("%s takes all with %q", p, got)
		}
	}
	if got := pcapFilter("pfc"); got != "ether proto 0x8808 or (vlan and (ether proto 0x8808))" {
		t.Errorf("pfc is %q", got)
	}
}

func TestProgram_Kept(t *testing.T) {
	for name, want := range map[string]string{"tap.pcap": "tap.pcap", "tap.pcap0": "tap_00000.pcap", "tap.pcap03": "tap_00003.pcap", "tap_00001.pcapng": "tap_00001.pcapng", "a.pcap.part": "a.pcap.part"} {
		if got := Tcpdump.Kept(name); got != want {
			t.Errorf("%s is kept as %s, want %s", name, got, want)
		}
	}
}

func TestProgram_Files(t *testing.T) {
	names := []string{"tap.pcapng", "tap_00001.pcapng", "tap_00002.pcapng", "tap_00003_20261130161500.pcapng", "tap-2_00001.pcapng", "tap.pcapng0", "tap.pcapng1", "tap.pcapng.part", "tap_1.pcapng"}
	for _, tt := range []struct {
		p    Program
		size int64
		want []string
	}{
		{Own, 0, names[:1]}, {Tcpdump, 0, names[:1]}, {Own, 1, names[1:3]}, {Dumpcap, 1, names[3:4]}, {Tcpdump, 1, []string{names[0], names[5], names[6]}},
	} {
		if d := cmp.Diff(tt.want, tt.p.Files(TapOptions{File: "/x/tap.pcapng", FileSize: tt.size}, names)); d != "" {
			t.Errorf("%s, %d (-want +got)\n%s", tt.p, tt.size, d)
		}
	}
}
