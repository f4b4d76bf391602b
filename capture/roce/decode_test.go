package roce

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestDecode_linkTypes(t *testing.T) {
	base := buildOptions{bth: BTH{Opcode: RCWriteOnly, PKey: DefaultPKey, DestQP: 7, PSN: 9}, payload: []byte("hello"), tos: 0x6b}
	v6 := base
	v6.v6 = true
	for _, tt := range []struct {
		name string
		link LinkType
		o    buildOptions
		wrap func(ether []byte) []byte
	}{
		{"ethernet", LinkEthernet, base, func(b []byte) []byte { return b }},
		{"raw", LinkRaw, base, func(b []byte) []byte { return b[ethLen:] }},
		{"raw_v6", LinkRaw, v6, func(b []byte) []byte { return b[ethLen:] }},
		{"ipv4", LinkIPv4, base, func(b []byte) []byte { return b[ethLen:] }},
		{"ipv6", LinkIPv6, v6, func(b []byte) []byte { return b[ethLen:] }},
		{"raw_bsd", linkRawBSD, base, func(b []byte) []byte { return b[ethLen:] }},
		{"cooked_v1", LinkLinuxSLL, base, func(b []byte) []byte {
			return append([]byte{0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0}, b[ethLen:]...)
		}},
		{"cooked_v1_v6", LinkLinuxSLL, v6, func(b []byte) []byte {
			return append([]byte{0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0x86, 0xdd}, b[ethLen:]...)
		}},
		{"cooked_v2", LinkLinuxSLL2, base, func(b []byte) []byte {
			return append([]byte{8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0}, b[ethLen:]...)
		}},
		{"null", LinkNull, base, func(b []byte) []byte { return append([]byte{2, 0, 0, 0}, b[ethLen:]...) }},
		{"loop_v6", LinkLoop, v6, func(b []byte) []byte { return append([]byte{0, 0, 0, 24}, b[ethLen:]...) }},
		{"ethernet_with_trailer", LinkEthernet, base, func(b []byte) []byte { return append(b, 1, 2, 3, 4, 5, 6) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := tt.wrap(buildFrame(tt.o))
			var f Frame
			if err := f.Decode(tt.link, data, len(data), 0); err != nil {
				t.Fatal(err)
			}
			if f.Kind != KindRoCE || string(f.Payload) != "hello" || f.BTH.PSN != 9 || f.ECN() != CE || f.DSCP() != 26 || f.BTH.Pad != 3 {
				t.Errorf("got %v %+v payload %q ECN %d DSCP %d", f.Kind, f.BTH, f.Payload, f.ECN(), f.DSCP())
			}
			if ok, checked := f.CheckICRC(data); !ok || !checked {
				t.Errorf("ICRC ok=%v checked=%v", ok, checked)
			}
		})
	}
	var f Frame
	err := f.Decode(147, nil, 0, 0)
	var le *LinkTypeError
	if !errors.As(err, &le) || le.LinkType != 147 {
		t.Errorf("Decode of link type 147 = %v", err)
	}
}

func TestDecode_vlan(t *testing.T) {
	for _, tt := range []struct {
		name  string
		vlans []uint16
		pcp   uint8
		vid   uint16
		has   bool
	}{
		{"untagged", nil, 0, 0, false},
		{"tagged", []uint16{3<<13 | 100}, 3, 100, true},
		{"priority_only", []uint16{5 << 13}, 5, 0, true},
		{"qinq", []uint16{4<<13 | 10, 6<<13 | 20}, 4, 10, true},
		{"three_tags", []uint16{1<<13 | 1, 2<<13 | 2, 3<<13 | 3}, 1, 1, true},
	} {
		data := buildFrame(buildOptions{vlans: tt.vlans, bth: BTH{Opcode: RCAck}})
		var f Frame
		if err := f.Decode(LinkEthernet, data, 0, 0); err != nil {
			t.Fatal(err)
		}
		pcp, has := f.PCP()
		vid, _ := f.VID()
		if f.Kind != KindRoCE || has != tt.has || has && (pcp != tt.pcp || vid != tt.vid) || int(f.VLANs) != min(2, len(tt.vlans)) {
			t.Errorf("%s: kind %v PCP %d VID %d tags %d", tt.name, f.Kind, pcp, vid, f.VLANs)
		}
		if len(tt.vlans) > 1 && f.VLAN[1] != tt.vlans[1] {
			t.Errorf("%s: inner tag %#x", tt.name, f.VLAN[1])
		}
	}
}

func TestDecode_pauseFrames(t *testing.T) {
	dst := []byte{1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 1, 4}
	pfc := append(append([]byte{}, dst...), 0x88, 0x08, 1, 1, 0, 0x0a)
	for i := range 8 {
		pfc = append(pfc, byte(i), 0xff)
	}
	pause := append(append([]byte{}, dst...), 0x88, 0x08, 0, 1, 0x12, 0x34)
	var f Frame
	if err := f.Decode(LinkEthernet, append(pfc, make([]byte, 26)...), 0, 0); err != nil {
		t.Fatal(err)
	}
	want := Pause{Src: [6]byte{2, 0, 0, 0, 1, 4}, ClassEnable: 0x0a, Quanta: [8]uint16{0xff, 0x1ff, 0x2ff, 0x3ff, 0x4ff, 0x5ff, 0x6ff, 0x7ff}}
	if diff := cmp.Diff(want, f.Pause); f.Kind != KindPFC || diff != "" {
		t.Errorf("PFC: %v (-want +got):\n%s", f.Kind, diff)
	}
	if err := f.Decode(LinkEthernet, pause, 64, 0); err != nil {
		t.Fatal(err)
	}
	want = Pause{Src: [6]byte{2, 0, 0, 0, 1, 4}, Quanta: [8]uint16{0x1234}}
	if diff := cmp.Diff(want, f.Pause); f.Kind != KindPause || diff != "" {
		t.Errorf("PAUSE: %v (-want +got):\n%s", f.Kind, diff)
	}
	for n := range pfc {
		_ = f.Decode(LinkEthernet, bytes.Clone(pfc[:n]), len(pfc), 0)
		if f.Kind != KindOther {
			t.Errorf("PFC cut at %d is %v", n, f.Kind)
		}
	}
}

func TestDecode_whatIsNotRoCE(t *testing.T) {
	good := func() []byte { return buildFrame(buildOptions{bth: BTH{Opcode: RCAck, PSN: 1}}) }
	good6 := func() []byte { return buildFrame(buildOptions{v6: true, bth: BTH{Opcode: RCAck, PSN: 1}}) }
	edit := func(b []byte, at int, v ...byte) []byte { copy(b[at:], v); return b }
	insert := func(b []byte, at int, v ...byte) []byte {
		return append(append(append([]byte{}, b[:at]...), v...), b[at:]...)
	}
	for _, tt := range []struct {
		name, why string
		data      []byte
		port      uint16
		kind      Kind
		problem   Problem
	}{
		{"good", "", good(), 0, KindRoCE, 0},
		{"port_moved", "Lumina-style mirrors rewrite the port", buildFrame(buildOptions{port: 5000, bth: BTH{Opcode: RCAck}}), 5000, KindRoCE, 0},
		{"other_port", "", good(), 5000, KindOther, 0},
		{"source_port_only", "4791 as source port is a client's chance pick", edit(buildFrame(buildOptions{port: 53, bth: BTH{Opcode: RCAck}}), 34, 0x12, 0xb7), 0, KindOther, 0},
		{"tcp", "", edit(good(), 23, 6), 0, KindOther, 0},
		{"arp", "", edit(good(), 12, 8, 6), 0, KindOther, 0},
		{"empty", "", nil, 0, KindOther, 0},
		{"ihl_4", "header shorter than IPv4's", edit(good(), 14, 0x44), 0, KindMalformed, ProblemIPHeader},
		{"version_5", "EtherType and version disagree", edit(good(), 14, 0x55), 0, KindMalformed, ProblemIPHeader},
		{"v6_version", "", edit(good6(), 14, 0x50), 0, KindMalformed, ProblemIPHeader},
		{"ip_length_small", "", edit(good(), 16, 0, 27), 0, KindMalformed, ProblemIPLength},
		{"udp_length_small", "", edit(good(), 38, 0, 7), 0, KindMalformed, ProblemUDPLength},
		{"udp_length_large", "", edit(good(), 38, 0, 200), 0, KindMalformed, ProblemUDPLength},
		{"no_room_for_icrc", "BTH without ICRC", edit(edit(good(), 38, 0, 8+12), 16, 0, 40), 0, KindMalformed, ProblemTransport},
		{"no_room_for_aeth", "", edit(edit(good(), 38, 0, 8+16), 16, 0, 44), 0, KindMalformed, ProblemTransport},
		{"first_fragment", "", edit(good(), 20, 0x20), 0, KindFragment, 0},
		{"later_fragment", "", edit(good(), 20, 0, 9), 0, KindFragment, 0},
		{"v6_fragment", "", insert(edit(good6(), 18, 0, 36, 44), 54, 17, 0, 0, 1, 0, 0, 0, 9), 0, KindFragment, 0},
		{"v6_atomic_fragment", "RFC 6946: a fragment header on a whole packet", insert(edit(good6(), 18, 0, 36, 44), 54, 17, 0, 0, 0, 0, 0, 0, 9), 0, KindRoCE, 0},
		{"v6_hop_by_hop", "", insert(edit(good6(), 18, 0, 36, 0), 54, 17, 0, 1, 4, 0, 0, 0, 0), 0, KindRoCE, 0},
		{"v6_icmp", "", edit(good6(), 20, 58), 0, KindOther, 0},
		{"v6_extension_loop", "eight headers at most", insert(edit(good6(), 18, 0, 100, 0), 54, make([]byte, 80)...), 0, KindOther, 0},
		{"v4_options", "decoded, but the ICRC is not defined", insert(edit(edit(good(), 14, 0x46), 16, 0, 52), 34, 1, 1, 1, 0), 0, KindRoCE, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f Frame
			if err := f.Decode(LinkEthernet, tt.data, 0, tt.port); err != nil {
				t.Fatal(err)
			}
			if f.Kind != tt.kind || f.Problem != tt.problem {
				t.Errorf("%v (%v), want %v (%v)", f.Kind, f.Problem, tt.kind, tt.problem)
			}
			if _, checked := f.CheckICRC(tt.data); checked && f.IPv6 && f.BTHOffset != 62 {
				t.Error("ICRC checked across extension headers")
			}
		})
	}
}

// A mirror that truncates hands the tap a short frame: nothing was cut by the capture, yet the lengths are those of the whole.
func TestDecode_truncatingMirror(t *testing.T) {
	data := buildFrame(buildOptions{bth: BTH{Opcode: RCWriteMiddle}, payload: make([]byte, 1024)})
	var f Frame
	if err := f.Decode(LinkEthernet, data[:96], 96, 0); err != nil {
		t.Fatal(err)
	}
	if f.Kind != KindRoCE || !f.MirrorCut || f.PayloadLen != 1024 || f.WireLen != len(data) || f.ICRCOffset != -1 {
		t.Errorf("%v, cut %v, payload %d, wire %d, ICRC at %d", f.Kind, f.MirrorCut, f.PayloadLen, f.WireLen, f.ICRCOffset)
	}
}

// Mirrors over IP: the inner packet is decoded, whatever wraps it.
func TestDecode_mirroredOverGRE(t *testing.T) {
	inner := buildFrame(buildOptions{vlans: []uint16{3<<13 | 7}, bth: BTH{Opcode: RCWriteMiddle, PSN: 77}, payload: []byte("data"), tos: CE})
	plain := buildFrame(buildOptions{bth: BTH{Opcode: RCWriteMiddle, PSN: 77}, payload: []byte("data"), tos: CE})
	pfc := append([]byte{1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 1, 4, 0x88, 8, 1, 1, 0, 8}, make([]byte, 16)...)
	outer4 := func(gre ...byte) []byte {
		b := []byte{2, 0, 0, 0, 9, 1, 2, 0, 0, 0, 9, 2, 0x81, 0, 0, 9, 8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 47, 0, 0, 198, 51, 100, 1, 198, 51, 100, 2}
		return append(b, gre...)
	}
	outer6 := func(gre ...byte) []byte {
		b := append([]byte{2, 0, 0, 0, 9, 1, 2, 0, 0, 0, 9, 2, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 47, 64}, make([]byte, 32)...)
		return append(b, gre...)
	}
	for _, tt := range []struct {
		name string
		head []byte
		body []byte
		kind Kind
		tags uint8
	}{
		{"teb", outer4(0, 0, 0x65, 0x58), inner, KindRoCE, 1},
		{"teb_with_key", outer4(0x20, 0, 0x65, 0x58, 0, 0, 0, 1), inner, KindRoCE, 1},
		{"erspan_1", outer4(0, 0, 0x88, 0xbe), inner, KindRoCE, 1},
		{"erspan_2", outer4(0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0, 1, 0, 0, 0, 0), inner, KindRoCE, 1},
		{"erspan_3", outer4(0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0), inner, KindRoCE, 1},
		{"erspan_3_subheader", outer4(append([]byte{0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1}, make([]byte, 8)...)...), inner, KindRoCE, 1},
		{"over_ipv6", outer6(0, 0, 0x65, 0x58), inner, KindRoCE, 1},
		{"ip_inside", outer4(0, 0, 8, 0), plain[ethLen:], KindRoCE, 0},
		{"pfc_inside", outer4(0, 0, 0x88, 0xbe), pfc, KindPFC, 0},
		{"twice", outer4(0, 0, 0x65, 0x58), outer4(append([]byte{0, 0, 0x65, 0x58}, inner...)...), KindOther, 1},
		{"pptp", outer4(0x30, 1, 0x88, 0x0b), inner, KindOther, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := append(tt.head[:len(tt.head):len(tt.head)], tt.body...)
			var f Frame
			if err := f.Decode(LinkEthernet, data, 0, 0); err != nil {
				t.Fatal(err)
			}
			if f.Kind != tt.kind || f.VLANs != tt.tags {
				t.Fatalf("%v (%v), %d tags", f.Kind, f.Problem, f.VLANs)
			}
			if f.Kind == KindPFC && f.Pause.Src != [6]byte{2, 0, 0, 0, 1, 4} {
				t.Errorf("pause from %x", f.Pause.Src)
			}
			if f.Kind == KindRoCE {
				ok, checked := f.CheckICRC(data)
				if !f.Mirrored || f.BTH.PSN != 77 || f.ECN() != CE || string(f.Payload) != "data" || f.SrcAddr().String() != "192.0.2.11" || !ok || !checked {
					t.Errorf("%+v ICRC %v %v", f, ok, checked)
				}
			}
			for n := range data {
				_ = f.Decode(LinkEthernet, bytes.Clone(data[:n]), len(data), 0)
			}
		})
	}
}

func TestDecode_cnpCarriesNoPayload(t *testing.T) {
	for _, n := range []int{16, 0, 32} { // 16 reserved bytes by the annex; some devices differ
		data := buildFrame(buildOptions{bth: BTH{Opcode: CNP, BECN: true, DestQP: 0x11}, payload: make([]byte, n)})
		var f Frame
		if err := f.Decode(LinkEthernet, data, 0, 0); err != nil {
			t.Fatal(err)
		}
		if f.Kind != KindRoCE || !f.BTH.Opcode.IsCNP() || !f.BTH.BECN || f.PayloadLen != 0 || f.Payload != nil {
			t.Errorf("CNP with %d bytes: %v %+v payload %d", n, f.Kind, f.BTH, f.PayloadLen)
		}
		if ok, checked := f.CheckICRC(data); !ok || !checked {
			t.Errorf("CNP with %d bytes: ICRC ok=%v checked=%v", n, ok, checked)
		}
	}
}

// drawFrame makes any packet that the encoders can write.
func drawFrame(t *rapid.T) (buildOptions, []byte) {
	o := buildOptions{
		v6:  rapid.Bool().Draw(t, "v6"),
		tos: rapid.Uint8().Draw(t, "tos"),
		bth: BTH{
			Opcode: Opcode(rapid.Uint8().Draw(t, "opcode")), Solicited: rapid.Bool().Draw(t, "se"), MigReq: rapid.Bool().Draw(t, "m"),
			Version: rapid.Uint8Range(0, 15).Draw(t, "tver"), PKey: rapid.Uint16().Draw(t, "pkey"), FECN: rapid.Bool().Draw(t, "fecn"),
			BECN: rapid.Bool().Draw(t, "becn"), DestQP: rapid.Uint32Range(0, PSNMask).Draw(t, "qp"),
			AckReq: rapid.Bool().Draw(t, "a"), PSN: rapid.Uint32Range(0, PSNMask).Draw(t, "psn"),
		},
		vlans:   rapid.SliceOfN(rapid.Uint16(), 0, 2).Draw(t, "vlans"),
		payload: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload"),
	}
	n := o.bth.Opcode.HeaderLen()
	o.headers = rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "headers")
	return o, buildFrame(o)
}

func TestDecode_roundTrip(t *testing.T) {
	var f Frame // reused: nothing of the packet before may show
	rapid.Check(t, func(t *rapid.T) {
		o, data := drawFrame(t)
		snap := rapid.IntRange(0, len(data)).Draw(t, "snap")
		if err := f.Decode(LinkEthernet, data, 0, 0); err != nil {
			t.Fatal(err)
		}
		want := o.bth
		want.Pad = uint8(-len(o.payload) & 3)
		payload := o.payload
		if o.bth.Opcode == CNP {
			payload = nil
		}
		if f.Kind != KindRoCE || f.BTH != want || !bytes.Equal(f.Payload, payload) || f.PayloadLen != len(payload) || f.TOS != o.tos ||
			int(f.VLANs) != len(o.vlans) || f.IPv6 != o.v6 {
			t.Fatalf("got %v %+v payload %x tos %x, want %+v payload %x", f.Kind, f.BTH, f.Payload, f.TOS, want, payload)
		}
		if ok, checked := f.CheckICRC(data); !ok || !checked {
			t.Fatalf("ICRC ok=%v checked=%v", ok, checked)
		}
		if got, want := ICRC(data[f.IPOffset:f.ICRCOffset]), slowICRC(data[f.IPOffset:f.ICRCOffset]); got != want {
			t.Fatalf("ICRC = %08x, bit by bit %08x", got, want)
		}
		var cut Frame
		if err := cut.Decode(LinkEthernet, bytes.Clone(data[:snap]), len(data), 0); err != nil {
			t.Fatal(err)
		}
		if cut.Kind == KindRoCE && (cut.BTH != f.BTH || cut.PayloadLen != f.PayloadLen || !bytes.HasPrefix(f.Payload, cut.Payload)) {
			t.Fatalf("cut at %d: %+v payload %d", snap, cut.BTH, cut.PayloadLen)
		}
	})
}

func TestDecode_doesNotAllocate(t *testing.T) {
	var f Frame
	packets := realPackets(t)
	if n := testing.AllocsPerRun(100, func() {
		for _, p := range packets {
			if f.Decode(LinkEthernet, p.data, 0, 0) != nil || f.Kind != KindRoCE {
				t.Fatal("not decoded")
			}
			if ok, _ := f.CheckICRC(p.data); !ok {
				t.Fatal("ICRC")
			}
			_ = f.SrcAddr()
		}
	}); n != 0 {
		t.Errorf("%v allocations a run, want 0", n)
	}
	body := make([]byte, 4096+BTHLen)
	if n := testing.AllocsPerRun(100, func() {
		_ = ICRCv4([4]byte{1}, [4]byte{2}, 3, Port, 0, true, body)
		_ = ICRCv6([16]byte{1}, [16]byte{2}, 3, Port, body)
	}); n != 0 {
		t.Errorf("sender's ICRC: %v allocations a run, want 0", n)
	}
}

func FuzzDecode(f *testing.F) {
	links := []LinkType{LinkEthernet, LinkRaw, LinkLinuxSLL, LinkLinuxSLL2, LinkNull}
	for _, p := range realPackets(f) {
		f.Add(uint8(0), p.data, uint16(len(p.data)))
		f.Add(uint8(0), p.data[:min(len(p.data), 96)], uint16(len(p.data)))
		f.Add(uint8(1), p.data[ethLen:], uint16(0))
	}
	f.Add(uint8(0), buildFrame(buildOptions{v6: true, vlans: []uint16{1, 2}, bth: BTH{Opcode: RCSendOnlyInvalidate}, payload: []byte("x")}), uint16(0))
	f.Add(uint8(0), append([]byte{2, 0, 0, 0, 9, 1, 2, 0, 0, 0, 9, 2, 8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 47, 0, 0, 1, 2, 3, 4, 1, 2, 3, 5, 0, 0, 0x65, 0x58},
		buildFrame(buildOptions{bth: BTH{Opcode: RCAck}})...), uint16(0))
	var used Frame
	f.Fuzz(func(t *testing.T, l uint8, data []byte, origLen uint16) {
		link := links[int(l)%len(links)]
		var g Frame
		if err := g.Decode(link, data, int(origLen), 0); err != nil {
			t.Fatal(err)
		}
		_ = used.Decode(link, data, int(origLen), 0)
		if g.Kind != used.Kind || g.PayloadLen != used.PayloadLen || !bytes.Equal(g.Payload, used.Payload) || g.ICRCOffset != used.ICRCOffset {
			t.Fatalf("a used Frame decodes %v %d, a fresh one %v %d", used.Kind, used.PayloadLen, g.Kind, g.PayloadLen)
		}
		if g.WireLen < len(data) {
			t.Fatalf("wire length %d below the %d captured bytes", g.WireLen, len(data))
		}
		if g.Kind != KindRoCE {
			if g.Payload != nil || g.PayloadLen != 0 || g.ICRCOffset != -1 {
				t.Fatalf("%v with payload %d", g.Kind, g.PayloadLen)
			}
			return
		}
		bth, _, err := ParseBTH(data[g.BTHOffset:])
		if err != nil || bth != g.BTH || g.DstPort != Port {
			t.Fatalf("BTH %+v, parsed alone %+v, %v", g.BTH, bth, err)
		}
		end := g.BTHOffset + BTHLen + bth.Opcode.HeaderLen() + g.PayloadLen + int(bth.Pad) + ICRCLen
		if bth.Opcode != CNP && (end > g.WireLen || g.ICRCOffset >= 0 && g.ICRCOffset != end-ICRCLen || len(g.Payload) > g.PayloadLen) {
			t.Fatalf("packet ends at %d of %d, ICRC at %d, payload %d of %d", end, g.WireLen, g.ICRCOffset, len(g.Payload), g.PayloadLen)
		}
		if ok, checked := g.CheckICRC(data); checked {
			b := bytes.Clone(data[g.IPOffset : g.ICRCOffset+ICRCLen])
			want := AppendICRC(nil, slowICRC(b[:len(b)-ICRCLen]))
			if ok != bytes.Equal(want, b[len(b)-ICRCLen:]) {
				t.Fatalf("ICRC verdict %v, bit by bit %x, wire %x", ok, want, b[len(b)-ICRCLen:])
			}
		}
		// What was read, written again, reads the same, and is the same bytes but for reserved bits and pad.
		if g.ICRCOffset >= 0 && bth.Opcode != CNP && bth.Opcode.Transport() != RD && bth.Opcode.Transport() != XRC && bth.Opcode != RCFlush {
			got, want := encode(&g), bytes.Clone(data[g.BTHOffset:g.ICRCOffset])
			want[4] &^= 0x3f
			want[8] &^= 0x7f
			if g.HasDETH {
				want[BTHLen+4] = 0
			}
			clear(want[len(want)-int(bth.Pad):])
			if !bytes.Equal(got, want) {
				t.Fatalf("encoded again:\n got %x\nwant %x", got, want)
			}
		}
	})
}

func ExampleFrame_Decode() {
	packet := buildFrame(buildOptions{bth: BTH{Opcode: RCWriteFirst, DestQP: 0x11, PSN: 42}, payload: make([]byte, 1024), tos: 26<<2 | ECT0})
	var f Frame
	if err := f.Decode(LinkEthernet, packet[:96], len(packet), Port); err != nil { // snapped at 96 bytes
		fmt.Println(err)
	}
	fmt.Println(f.Kind, f.BTH.Opcode, f.SrcAddr(), "->", f.DstAddr(), "PSN", f.BTH.PSN, "payload", f.PayloadLen)
	// Output: RoCE RC_WRITE_FIRST 192.0.2.11 -> 192.0.2.14 PSN 42 payload 1024
}

// A new field that reset forgets would leak from packet to packet: every flag and length is written by each Decode.
func TestFrame_resetCoversTheFlags(t *testing.T) {
	var f Frame
	v := reflect.ValueOf(&f).Elem()
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Bool && v.Type().Field(i).Name != "DF" {
			v.Field(i).SetBool(true)
		}
	}
	f.VLANs, f.PayloadLen, f.Payload, f.Kind, f.Problem, f.BTHOffset = 2, 5, []byte{1}, KindRoCE, ProblemTransport, 9
	_ = f.Decode(LinkEthernet, nil, 0, 0)
	f.DF = false
	if diff := cmp.Diff(Frame{ICRCOffset: -1, EtherOffset: -1}, f); diff != "" {
		t.Errorf("after decoding nothing (-want +got):\n%s", diff)
	}
}
