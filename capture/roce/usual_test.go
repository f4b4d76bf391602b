package roce

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// compareUsual holds a usual packet to what Frame.Decode says of the same bytes; it reports whether it was usual.
func compareUsual(t testing.TB, data []byte, origLen int) bool {
	t.Helper()
	var u Usual
	var f Frame
	if err := f.Decode(LinkEthernet, data, origLen, Port); err != nil {
		t.Fatal(err)
	}
	if !u.Decode(data, origLen, Port) {
		return false
	}
	src, dst := binary.BigEndian.Uint32(f.Src[12:]), binary.BigEndian.Uint32(f.Dst[12:])
	b := f.BTH
	qp, psn := b.DestQP, b.PSN
	if b.FECN {
		qp |= 1 << 31
	}
	if b.BECN {
		qp |= 1 << 30
	}
	if b.AckReq {
		psn |= 1 << 31
	}
	switch {
	case f.Kind != KindRoCE || f.IPv6 || f.VLANs != 0 || f.Mirrored || f.MirrorCut || f.WireLen != max(origLen, len(data)):
		t.Fatalf("% x (%d): usual, but the frame is %+v", data, origLen, f)
	case u.Src != src || u.Dst != dst || u.IPID != f.IPID || u.SrcPort != f.SrcPort || u.TOS != f.TOS || u.TTL != f.TTL:
		t.Fatalf("% x: usual %+v, frame %+v: headers differ", data, u, f)
	case u.Opcode != b.Opcode || u.QP != qp || u.PSN != psn || u.Payload != f.PayloadLen || u.ICRCOffset != f.ICRCOffset:
		t.Fatalf("% x: usual %+v, frame %+v: transport differs", data, u, f)
	case f.HasDETH || f.HasAtomic || f.HasAtomicAck || f.HasImm || f.HasInvalidate:
		t.Fatalf("% x: usual, but the frame has other headers: %+v", data, f)
	case f.HasRETH != (usualOps[u.Opcode] == 2) || f.HasRETH && u.DMALen != f.RETH.DMALen:
		t.Fatalf("% x: RETH of usual %+v, frame %+v", data, u, f)
	case f.HasAETH != (usualOps[u.Opcode] == 3) || f.HasAETH && u.AETH != uint32(f.AETH.Syndrome)<<24|f.AETH.MSN:
		t.Fatalf("% x: AETH of usual %+v, frame %+v", data, u, f)
	}
	ok, checked := u.CheckICRC(data)
	if ok2, checked2 := f.CheckICRC(data); ok != ok2 || checked != checked2 {
		t.Fatalf("% x: ICRC %v %v, of the frame %v %v", data, ok, checked, ok2, checked2)
	}
	return true
}

// TestUsual_agreesWithFrame: packets of all opcodes, whole, cut anywhere, and with any byte changed.
func TestUsual_agreesWithFrame(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	usual := 0
	for i := range 60_000 {
		op := byte(i)
		if i%3 > 0 {
			op &= 0x3f
		}
		n := BTHLen + int(headerLen[op]) + r.IntN(40) + ICRCLen
		b := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0}, make([]byte, ipv4Len+udpLen+n)...)
		for k := ethLen; k < len(b); k++ {
			b[k] = byte(r.Uint32())
		}
		ip := b[ethLen:]
		ip[0] = 0x45
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		ip[6], ip[7], ip[9] = 0x40, 0, protoUDP
		binary.BigEndian.PutUint16(ip[22:], Port)
		binary.BigEndian.PutUint16(ip[24:], uint16(udpLen+n))
		ip[28] = op
		if i%2 == 0 {
			if err := PutICRC(ip); err != nil {
				t.Fatal(err)
			}
		}
		orig := len(b)
		switch i % 5 {
		case 1:
			b = b[:r.IntN(len(b))]
		case 2:
			b[r.IntN(len(b))] = byte(r.Uint32())
		case 3: // padded to the least length of Ethernet
			b = append(b, make([]byte, r.IntN(9))...)
			orig = len(b)
		}
		if compareUsual(t, b, orig) {
			usual++
		}
	}
	if usual < 10_000 {
		t.Errorf("only %d of 60,000 packets were usual", usual)
	}
}

func FuzzUsual(f *testing.F) {
	b := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 2, 0, 60, 0, 1, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0xc0, 0, 4791 >> 8, 4791 & 0xff, 0, 40, 0, 0},
		make([]byte, 32)...)
	f.Add(b, 0)
	f.Fuzz(func(t *testing.T, data []byte, orig int) {
		compareUsual(t, data, min(max(orig, len(data)), 1<<20))
	})
}
