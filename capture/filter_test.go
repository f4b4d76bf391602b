package capture

import (
	"strings"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// frameTo is an Ethernet frame with UDP to a port, and with tags in the data.
func frameTo(v6 bool, port uint16, tags ...uint16) []byte {
	b := []byte{2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 1}
	for _, t := range tags {
		b = append(b, byte(t>>8), byte(t), 0x60, 0x64)
	}
	if v6 {
		b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 60, 17, 64)
		b = append(b, make([]byte, 32)...)
	} else {
		b = append(b, 8, 0, 0x45, 0, 0, 80, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2)
	}
	b = append(b, 0xc0, 0, byte(port>>8), byte(port), 0, 60, 0, 0)
	return append(b, make([]byte, 52)...)
}

func TestFilter(t *testing.T) {
	edit := func(b []byte, at int, v ...byte) []byte { copy(b[at:], v); return b }
	options := frameTo(false, 0)
	options[14] = 0x46
	options = append(append(options[:34:34], 1, 1, 1, 1, 0xc0, 0, 0x12, 0xb7, 0, 60, 0, 0), make([]byte, 20)...)
	pfc := append([]byte{1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 8, 1, 1}, make([]byte, 46)...)
	for _, tt := range []struct {
		name, filter string
		link         roce.LinkType
		data         []byte
		want         bool
	}{
		{"all", "", 1, []byte("anything"), true},
		{"v4", "roce", 1, frameTo(false, 4791), true},
		{"v6", "roce", 1, frameTo(true, 4791), true},
		{"other_port", "roce", 1, frameTo(false, 4792), false},
		{"v6_other_port", "roce", 1, frameTo(true, 53), false},
		{"source_port", "roce", 1, edit(frameTo(false, 53), 34, 0x12, 0xb7), false},
		{"vlan", "roce", 1, frameTo(false, 4791, 0x8100), true},
		{"qinq", "roce", 1, frameTo(true, 4791, 0x88a8, 0x8100), true},
		{"three_tags", "roce", 1, frameTo(false, 4791, 0x88a8, 0x8100, 0x8100), false},
		{"options", "roce", 1, options, true},
		{"later_fragment", "roce", 1, edit(frameTo(false, 4791), 20, 0, 5), false},
		{"first_fragment", "roce", 1, edit(frameTo(false, 4791), 20, 0x20, 0), true},
		{"tcp", "roce", 1, edit(frameTo(false, 4791), 23, 6), false},
		{"v6_icmp", "roce", 1, edit(frameTo(true, 4791), 20, 58), false},
		{"arp", "roce", 1, edit(frameTo(false, 4791), 12, 8, 6), false},
		{"short", "roce", 1, frameTo(false, 4791)[:36], false},
		{"raw_v4", "roce", 101, frameTo(false, 4791)[14:], true},
		{"raw_v6", "roce", 101, frameTo(true, 4791)[14:], true},
		{"raw_other", "roce", 101, frameTo(false, 4790)[14:], false},
		{"pfc_not_asked", "roce", 1, pfc, false},
		{"pfc", "roce or pfc", 1, pfc, true},
		{"two_ports", "udp port 5000, roce", 1, frameTo(true, 5000), true},
		{"two_ports_second", "udp port 5000 or roce", 1, frameTo(false, 4791, 0x8100), true},
	} {
		raw, err := compileFilter(tt.filter, tt.link, 128)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		ins, ok := bpf.Disassemble(raw)
		if !ok {
			t.Fatalf("%s: does not disassemble", tt.name)
		}
		vm, err := bpf.NewVM(ins)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		n, err := vm.Run(tt.data)
		if err != nil || (n > 0) != tt.want || n > 0 && n != min(128, max(n, 128)) {
			t.Errorf("%s: filter %q keeps %d bytes, %v; want accepted = %v", tt.name, tt.filter, n, err, tt.want)
		}
	}
	for text, want := range map[string]string{"tcp": `term "tcp"`, "udp port 0": "1 to 65535", "roce or": `term ""`, "udp port x": `port "x"`} {
		if _, err := compileFilter(text, 1, 128); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(want, `""`)) {
			t.Errorf("filter %q: %v, want %q", text, err, want)
		}
	}
}
