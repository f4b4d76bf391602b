package roce

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"testing"
)

// realPacket is one packet of testdata/real.hex and what another dissector read from it.
type realPacket struct {
	name   string
	fields map[string]string
	data   []byte
}

func realPackets(t testing.TB) []realPacket {
	t.Helper()
	b, err := os.ReadFile("testdata/real.hex")
	if err != nil {
		t.Fatal(err)
	}
	var ps []realPacket
	for _, block := range strings.Split(string(b), "\n\n")[1:] {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		p := realPacket{name: strings.TrimPrefix(lines[0], "# "), fields: map[string]string{}}
		for _, kv := range strings.Fields(lines[1]) {
			k, v, _ := strings.Cut(kv, "=")
			p.fields[k] = v
		}
		if p.data, err = hex.DecodeString(lines[2]); err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	if len(ps) < 30 {
		t.Fatalf("testdata/real.hex holds %d packets", len(ps))
	}
	return ps
}

// fieldsOf prints a frame the way testdata/real.hex does.
func fieldsOf(f *Frame, data []byte) map[string]string {
	m := map[string]string{"frame.len": strconv.Itoa(f.WireLen)}
	set := func(k, format string, v ...any) { m[k] = fmt.Sprintf(format, v...) }
	bit := map[bool]int{true: 1}
	if f.IPv6 {
		set("ipv6.src", "%v", f.SrcAddr())
		set("ipv6.dst", "%v", f.DstAddr())
		set("ipv6.tclass", "0x%08x", f.TOS)
	} else {
		set("ip.src", "%v", f.SrcAddr())
		set("ip.dst", "%v", f.DstAddr())
		set("ip.dsfield", "0x%02x", f.DSCP()<<2|f.ECN())
	}
	set("udp.srcport", "%d", f.SrcPort)
	set("udp.length", "%d", udpLen+BTHLen+f.BTH.Opcode.HeaderLen()+f.PayloadLen+int(f.BTH.Pad)+ICRCLen)
	set("bth.opcode", "%d", uint8(f.BTH.Opcode))
	set("bth.se", "%d", bit[f.BTH.Solicited])
	set("bth.m", "%d", bit[f.BTH.MigReq])
	set("bth.padcnt", "%d", f.BTH.Pad)
	set("bth.p_key", "%d", f.BTH.PKey)
	set("bth.destqp", "0x%06x", f.BTH.DestQP)
	set("bth.a", "%d", bit[f.BTH.AckReq])
	set("bth.psn", "%d", f.BTH.PSN)
	if f.HasRETH {
		set("reth.va", "0x%016x", f.RETH.VA)
		set("reth.r_key", "0x%08x", f.RETH.RKey)
		set("reth.dmalen", "%d", f.RETH.DMALen)
	}
	if f.HasAtomic {
		set("reth.va", "0x%016x", f.Atomic.VA)
		set("reth.r_key", "0x%08x", f.Atomic.RKey)
		set("atomiceth.swapdt", "%d", f.Atomic.SwapOrAdd)
		set("atomiceth.cmpdt", "%d", f.Atomic.Compare)
	}
	if f.HasAtomicAck {
		set("atomicacketh.origremdt", "%d", f.AtomicAck.Original)
	}
	if f.HasAETH {
		set("aeth.syndrome", "%d", f.AETH.Syndrome)
		set("aeth.msn", "%d", f.AETH.MSN)
	}
	if f.HasDETH {
		set("deth.q_key", "0x%016x", f.DETH.QKey)
		set("deth.srcqp", "0x%08x", f.DETH.SrcQP)
	}
	if f.ICRCOffset >= 0 {
		set("invariant.crc", "0x%x", data[f.ICRCOffset:f.ICRCOffset+ICRCLen])
	}
	return m
}

// encode writes the transport part of a frame again, from its fields alone.
func encode(f *Frame) []byte {
	b := f.BTH.Append(nil)
	if f.HasDETH {
		b = f.DETH.Append(b)
	}
	if f.HasRETH {
		b = f.RETH.Append(b)
	}
	if f.HasAtomic {
		b = f.Atomic.Append(b)
	}
	if f.HasAETH {
		b = f.AETH.Append(b)
	}
	if f.HasAtomicAck {
		b = f.AtomicAck.Append(b)
	}
	if f.HasImm {
		b = append(b, byte(f.Imm>>24), byte(f.Imm>>16), byte(f.Imm>>8), byte(f.Imm))
	}
	if f.HasInvalidate {
		b = append(b, byte(f.Invalidate>>24), byte(f.Invalidate>>16), byte(f.Invalidate>>8), byte(f.Invalidate))
	}
	b = append(b, f.Payload...)
	return append(b, make([]byte, f.BTH.Pad)...)
}

func TestDecode_realPacketsMatchAnotherDissector(t *testing.T) {
	var f Frame
	for _, p := range realPackets(t) {
		if err := f.Decode(LinkEthernet, p.data, len(p.data), 0); err != nil || f.Kind != KindRoCE {
			t.Fatalf("%s: Decode = %v, kind %v", p.name, err, f.Kind)
		}
		got := fieldsOf(&f, p.data)
		for k, want := range p.fields {
			if got[k] != want {
				t.Errorf("%s: %s = %q, want %q", p.name, k, got[k], want)
			}
		}
		for k := range got {
			if _, ok := p.fields[k]; !ok && k != "invariant.crc" {
				t.Errorf("%s: %s = %q, which the other dissector does not have", p.name, k, got[k])
			}
		}
		if want := p.data[f.BTHOffset:f.ICRCOffset]; !bytes.Equal(encode(&f), want) {
			t.Errorf("%s: encoded again:\n got %x\nwant %x", p.name, encode(&f), want)
		}
	}
}

// slowICRC is a second implementation, bit by bit on a masked copy, for IPv4 without options and IPv6.
func slowICRC(ip []byte) uint32 {
	b := bytes.Clone(ip)
	l4 := ipv4Len
	if b[0]>>4 == 4 {
		b[1], b[8], b[10], b[11] = 0xff, 0xff, 0xff, 0xff
	} else {
		l4 = ipv6Len
		b[0], b[1], b[2], b[3], b[7] = 0x6f, 0xff, 0xff, 0xff, 0xff
	}
	b[l4+6], b[l4+7] = 0xff, 0xff
	b[l4+udpLen+4] = 0xff
	crc := ^uint32(0)
	for _, c := range append(bytes.Repeat([]byte{0xff}, 8), b...) {
		for i := range 8 {
			if top := crc >> 31; top^uint32(c>>i&1) != 0 {
				crc = crc<<1 ^ 0x04c11db7
			} else {
				crc <<= 1
			}
		}
	}
	return ^bits.Reverse32(crc)
}

// The ICRC holds when a switch remarks what it may, and fails when any other bit changes (S07).
func TestCheckICRC_masksWhatSwitchesMayChange(t *testing.T) {
	var f Frame
	for _, p := range realPackets(t) {
		if err := f.Decode(LinkEthernet, p.data, 0, 0); err != nil {
			t.Fatal(err)
		}
		ip, bth, l4 := f.IPOffset, f.BTHOffset, f.BTHOffset-udpLen
		if got, want := ICRC(p.data[ip:f.ICRCOffset]), slowICRC(p.data[ip:f.ICRCOffset]); got != want {
			t.Errorf("%s: ICRC = %08x, bit by bit %08x", p.name, got, want)
		}
		free := map[int]byte{l4 + 6: 0xff, l4 + 7: 0xff, bth + 4: 0xff}
		if f.IPv6 {
			free[ip], free[ip+1], free[ip+2], free[ip+3], free[ip+7] = 0x0f, 0xff, 0xff, 0xff, 0xff
		} else {
			free[ip+1], free[ip+8], free[ip+10], free[ip+11] = 0xff, 0xff, 0xff, 0xff
		}
		data := bytes.Clone(p.data)
		for i := ip; i < min(len(data), bth+64); i++ {
			for bit := range 8 {
				data[i] ^= 1 << bit
				var g Frame
				if err := g.Decode(LinkEthernet, data, 0, 0); err != nil {
					t.Fatal(err)
				}
				ok, checked := g.CheckICRC(data)
				if masked := free[i]>>bit&1 == 1; masked && !(ok && checked) || !masked && ok {
					t.Errorf("%s: byte %d bit %d flipped: ok=%v checked=%v", p.name, i-ip, bit, ok, checked)
				}
				data[i] ^= 1 << bit
			}
		}
	}
}

func TestICRC_sendersWithoutIPHeaderGetTheSame(t *testing.T) {
	var f Frame
	for _, p := range realPackets(t) {
		if err := f.Decode(LinkEthernet, p.data, 0, 0); err != nil {
			t.Fatal(err)
		}
		body := p.data[f.BTHOffset:f.ICRCOffset]
		var got uint32
		if f.IPv6 {
			got = ICRCv6(f.Src, f.Dst, f.SrcPort, f.DstPort, body)
		} else {
			got = ICRCv4(f.SrcAddr().As4(), f.DstAddr().As4(), f.SrcPort, f.DstPort, f.IPID, f.DF, body)
		}
		if want := p.data[f.ICRCOffset:]; !bytes.Equal(AppendICRC(nil, got), want) {
			t.Errorf("%s: ICRC = %x, wire has %x", p.name, AppendICRC(nil, got), want)
		}
		again := bytes.Clone(p.data[f.IPOffset:])
		clear(again[len(again)-ICRCLen:])
		if err := PutICRC(again); err != nil || !bytes.Equal(again, p.data[f.IPOffset:]) {
			t.Errorf("%s: PutICRC = %v, wrote %x", p.name, err, again[len(again)-ICRCLen:])
		}
	}
}

// Every snap length of every packet gives the payload length of the whole packet as soon as the BTH is there, and never
// a header that was not captured.
func TestDecode_everySnapLength(t *testing.T) {
	for _, p := range realPackets(t) {
		var whole Frame
		if err := whole.Decode(LinkEthernet, p.data, 0, 0); err != nil {
			t.Fatal(err)
		}
		headersEnd := whole.BTHOffset + BTHLen + whole.BTH.Opcode.HeaderLen()
		for n := range p.data {
			data := bytes.Clone(p.data[:n]) // so that reading past the end is caught
			var f Frame
			if err := f.Decode(LinkEthernet, data, len(p.data), 0); err != nil {
				t.Fatal(err)
			}
			want := KindRoCE
			if n < whole.BTHOffset-udpLen+4 {
				want = KindOther
			} else if n < whole.BTHOffset+BTHLen {
				want = KindTruncated
			}
			if f.Kind != want || f.WireLen != len(p.data) {
				t.Fatalf("%s cut at %d: kind %v, wire %d, want %v, %d", p.name, n, f.Kind, f.WireLen, want, len(p.data))
			}
			if _, checked := f.CheckICRC(data); checked {
				t.Fatalf("%s cut at %d: ICRC checked", p.name, n)
			}
			if f.Kind != KindRoCE {
				continue
			}
			if f.BTH != whole.BTH || f.PayloadLen != whole.PayloadLen || f.MirrorCut {
				t.Fatalf("%s cut at %d: %+v, payload %d, want %d", p.name, n, f.BTH, f.PayloadLen, whole.PayloadLen)
			}
			if got, want := len(f.Payload), max(0, min(n-headersEnd, whole.PayloadLen)); got != want {
				t.Fatalf("%s cut at %d: %d bytes of payload, want %d", p.name, n, got, want)
			}
			if n >= headersEnd && (f.HasRETH != whole.HasRETH || f.HasAETH != whole.HasAETH || f.HasDETH != whole.HasDETH ||
				f.HasAtomic != whole.HasAtomic || f.HasAtomicAck != whole.HasAtomicAck) {
				t.Fatalf("%s cut at %d: headers lost", p.name, n)
			}
			if n < headersEnd && f.HasRETH && n < whole.BTHOffset+BTHLen+RETHLen {
				t.Fatalf("%s cut at %d: RETH out of nothing", p.name, n)
			}
		}
	}
}
