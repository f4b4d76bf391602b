package roce

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Tags behind a cooked header: the kernel puts the tag back in front of the payload when the capture asked for it, and
// the protocol field then says VLAN.
func TestDecode_tagsInCookedCaptures(t *testing.T) {
	ether := buildFrame(buildOptions{vlans: []uint16{5<<13 | 100, 2<<13 | 7}, bth: BTH{Opcode: RCWriteMiddle, PSN: 3}, payload: []byte("data"), tos: 26<<2 | ECT0})
	tagged := ether[12:] // from the first EtherType on
	priority := buildFrame(buildOptions{vlans: []uint16{6 << 13}, bth: BTH{Opcode: RCAck, PSN: 3}})[12:]
	v1 := func(b []byte) []byte {
		return append(append([]byte{0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0}, b[:2]...), b[2:]...)
	}
	v2 := func(b []byte) []byte {
		return append(append(bytes.Clone(b[:2]), 0, 0, 0, 0, 0, 3, 0, 1, 4, 6, 2, 0, 0, 0, 0, 1, 0, 0), b[2:]...)
	}
	for _, tt := range []struct {
		name     string
		link     LinkType
		data     []byte
		pcp      uint8
		vid      uint16
		tags     uint8
		innerTag uint16
	}{
		{"v1", LinkLinuxSLL, v1(tagged), 5, 100, 2, 2<<13 | 7},
		{"v2", LinkLinuxSLL2, v2(tagged), 5, 100, 2, 2<<13 | 7},
		{"v1_priority_only", LinkLinuxSLL, v1(priority), 6, 0, 1, 0},
		{"v2_priority_only", LinkLinuxSLL2, v2(priority), 6, 0, 1, 0},
	} {
		var f Frame
		if err := f.Decode(tt.link, tt.data, 0, 0); err != nil {
			t.Fatal(err)
		}
		pcp, ok := f.PCP()
		vid, _ := f.VID()
		if f.Kind != KindRoCE || f.BTH.PSN != 3 || !ok || pcp != tt.pcp || vid != tt.vid || f.VLANs != tt.tags || f.VLANs == 2 && f.VLAN[1] != tt.innerTag {
			t.Errorf("%s: %v PSN %d, PCP %d (%v) VID %d, %d tags, inner %#x", tt.name, f.Kind, f.BTH.PSN, pcp, ok, vid, f.VLANs, f.VLAN[1])
		}
		if ok, checked := f.CheckICRC(tt.data); !ok || !checked {
			t.Errorf("%s: ICRC ok=%v checked=%v", tt.name, ok, checked)
		}
		if mac := f.SrcMAC(tt.data); mac != 0 {
			t.Errorf("%s: MAC address %x out of a cooked header", tt.name, mac)
		}
	}
}

// Every kind of tag that switches write, alone and nested: 802.1Q, 802.1ad, and the older EtherType of QinQ.
func TestDecode_tagTypes(t *testing.T) {
	data := buildFrame(buildOptions{vlans: []uint16{3<<13 | 1<<12 | 4095, 1<<13 | 1}, bth: BTH{Opcode: RCAck, PSN: 8}})
	for _, outer := range [][2]byte{{0x81, 0}, {0x88, 0xa8}, {0x91, 0}} {
		b := bytes.Clone(data)
		copy(b[12:], outer[:])
		var f Frame
		if err := f.Decode(LinkEthernet, b, 0, 0); err != nil {
			t.Fatal(err)
		}
		pcp, _ := f.PCP()
		vid, _ := f.VID()
		if f.Kind != KindRoCE || pcp != 3 || vid != 4095 || f.VLANs != 2 || f.VLAN[1] != 1<<13|1 {
			t.Errorf("outer tag %x: %v, PCP %d VID %d, %d tags", outer, f.Kind, pcp, vid, f.VLANs)
		}
	}
}

// FECN and BECN stand apart from the ECN field of IP: each of the four combinations on a data packet and on an
// acknowledgement, in bytes built by hand (IBTA A17: byte 4 of the BTH).
func TestDecode_congestionBits(t *testing.T) {
	for _, op := range []Opcode{RCWriteMiddle, RCAck} {
		for bits := range 4 {
			b := buildFrame(buildOptions{bth: BTH{Opcode: op}, tos: CE})
			at := ethLen + ipv4Len + udpLen + 4
			b[at] |= byte(bits) << 6
			var f Frame
			if err := f.Decode(LinkEthernet, b, 0, 0); err != nil {
				t.Fatal(err)
			}
			if f.BTH.FECN != (bits&2 != 0) || f.BTH.BECN != (bits&1 != 0) || f.ECN() != CE {
				t.Errorf("%v with bits %02b: FECN %v BECN %v", op, bits, f.BTH.FECN, f.BTH.BECN)
			}
			if ok, checked := f.CheckICRC(b); !ok || !checked {
				t.Errorf("%v with bits %02b: ICRC ok=%v checked=%v; the byte is not covered", op, bits, ok, checked)
			}
		}
	}
}

// Each AETH syndrome on the wire, as the frame shows it.
func TestDecode_syndromes(t *testing.T) {
	for _, tt := range []struct {
		syndrome uint8
		kind     AETHKind
		what     string
	}{
		{0x00, Ack, "0 credits"}, {0x1f, Ack, "no limit"}, {0x0e, Ack, "128 credits"}, // 14: table 46
		{0x20, RNRNak, "655.36ms"}, {0x21, RNRNak, "10µs"}, {0x2c, RNRNak, "640µs"}, {0x3f, RNRNak, "491.52ms"},
		{0x60, Nak, "sequence"}, {0x61, Nak, "invalid"}, {0x62, Nak, "access"}, {0x63, Nak, "remote"}, {0x64, Nak, "invalid_rd"}, {0x65, Nak, "code_5"},
		{0x40, AETHReserved, ""}, {0xe0, AETHReserved, ""},
	} {
		b := buildFrame(buildOptions{bth: BTH{Opcode: RCAck, PSN: 5}, headers: []byte{tt.syndrome, 0x12, 0x34, 0x56}})
		var f Frame
		if err := f.Decode(LinkEthernet, b, 0, 0); err != nil || !f.HasAETH || f.AETH.MSN != 0x123456 {
			t.Fatalf("syndrome %#x: %v, %+v", tt.syndrome, err, f.AETH)
		}
		what := ""
		switch f.AETH.Kind() {
		case Ack:
			what = "no limit"
			if n, limited := f.AETH.Credits(); limited {
				what = strconv.Itoa(n) + " credits"
			}
		case RNRNak:
			what = f.AETH.RNRTimer().String()
		case Nak:
			what = f.AETH.Code().String()
		}
		if f.AETH.Kind() != tt.kind || what != tt.what {
			t.Errorf("syndrome %#x: %v %q, want %v %q", tt.syndrome, f.AETH.Kind(), what, tt.kind, tt.what)
		}
	}
}

// PFC and PAUSE inside tags and with all eight classes, from bytes by hand.
func TestDecode_taggedPause(t *testing.T) {
	head := []byte{1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 1, 4, 0x81, 0, 0xe0, 0, 0x88, 8}
	pfc := append(bytes.Clone(head), 1, 1, 0, 0xff, 0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0xff, 0xff)
	var f Frame
	if err := f.Decode(LinkEthernet, pfc, 64, 0); err != nil {
		t.Fatal(err)
	}
	want := Pause{Src: [6]byte{2, 0, 0, 0, 1, 4}, ClassEnable: 0xff, Quanta: [8]uint16{0, 1, 2, 3, 4, 5, 6, 0xffff}}
	pcp, _ := f.PCP()
	if diff := cmp.Diff(want, f.Pause); f.Kind != KindPFC || pcp != 7 || diff != "" {
		t.Errorf("%v, PCP %d (-want +got):\n%s", f.Kind, pcp, diff)
	}
	if err := f.Decode(LinkEthernet, append(bytes.Clone(head), 0, 2, 0, 1), 64, 0); err != nil || f.Kind != KindOther {
		t.Errorf("MAC control of another opcode: %v, %v", f.Kind, err) // 0x0002 is EPON's GATE
	}
}

// The MAC address that a CNP came from names the port that sent it, also behind a mirror.
func TestFrame_SrcMAC(t *testing.T) {
	plain := buildFrame(buildOptions{bth: BTH{Opcode: CNP}})
	outer := []byte{2, 0, 0, 0, 9, 1, 2, 0, 0, 0, 9, 2, 8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 47, 0, 0, 198, 51, 100, 1, 198, 51, 100, 2}
	mirrored := append(append(bytes.Clone(outer), 0, 0, 0x65, 0x58), plain...)
	ipInside := append(append(bytes.Clone(outer), 0, 0, 8, 0), plain[ethLen:]...)
	for _, tt := range []struct {
		name string
		link LinkType
		data []byte
		want uint64
	}{
		{"ethernet", LinkEthernet, plain, 0x020000000001},
		{"tagged", LinkEthernet, buildFrame(buildOptions{vlans: []uint16{1}, bth: BTH{Opcode: CNP}}), 0x020000000001},
		{"mirrored", LinkEthernet, mirrored, 0x020000000001},
		{"mirrored_ip", LinkEthernet, ipInside, 0},
		{"raw", LinkRaw, plain[ethLen:], 0},
		{"nothing", LinkEthernet, nil, 0},
	} {
		var f Frame
		if err := f.Decode(tt.link, tt.data, 0, 0); err != nil {
			t.Fatal(err)
		}
		if got := f.SrcMAC(tt.data); got != tt.want {
			t.Errorf("%s: %012x, want %012x", tt.name, got, tt.want)
		}
	}
}
