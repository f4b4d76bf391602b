package roce

import (
	"encoding/binary"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// cmPackets are the datagrams of a real connection.
func cmPackets(t testing.TB) [][]byte {
	t.Helper()
	file, err := os.ReadFile("testdata/cm.hex")
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for line := range strings.Lines(string(file)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		data, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, data)
	}
	return out
}

// FuzzCM: any bytes on QP 1 either are no connection message, or are one whose fields stand where IBTA volume 1, 12.6 puts
// them; a message that was cut is an error and never a message with zeros in it.
func FuzzCM(f *testing.F) {
	for _, p := range cmPackets(f) {
		var frame Frame
		if err := frame.Decode(LinkEthernet, p, 0, 0); err != nil {
			f.Fatal(err)
		}
		f.Add(frame.Payload)
		f.Add(frame.Payload[:40])
	}
	f.Add([]byte{1, MADClassCM, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		mad, n, err := ParseMAD(b)
		if err != nil {
			if len(b) >= madHeaderLen || n != 0 || mad != (MAD{}) {
				t.Fatalf("%d bytes: %+v, %d, %v", len(b), mad, n, err)
			}
			return
		}
		m, ok, err := ParseCM(mad, b)
		if err != nil && ok || !ok && m != (CM{}) {
			t.Fatalf("%+v, %v, %v", m, ok, err)
		}
		if !ok {
			return
		}
		if mad.Class != MADClassCM || m.QPN > PSNMask || m.PSN > PSNMask || strings.HasPrefix(m.Kind.String(), "CM ") {
			t.Fatalf("%+v of class %d", m, mad.Class)
		}
		// The same by bits rather than by words.
		bits := func(at, width int) (v uint64) {
			for i := range width {
				bit := at + i
				v = v<<1 | uint64(b[madHeaderLen+bit/8]>>(7-bit%8)&1)
			}
			return v
		}
		want := CM{Kind: m.Kind, LocalID: uint32(bits(0, 32))}
		if m.Kind != CMRequest {
			want.RemoteID = uint32(bits(32, 32))
		}
		switch m.Kind {
		case CMRequest: // 12.6.5
			want.ServiceID, want.QPN, want.PSN = bits(8*8, 64), uint32(bits(32*8, 24)), uint32(bits(44*8, 24))
		case CMReply: // 12.6.8
			want.QPN, want.PSN = uint32(bits(12*8, 24)), uint32(bits(20*8, 24))
		case CMDisconnectRequest: // 12.6.10
			want.QPN = uint32(bits(8*8, 24))
		case CMReject: // 12.6.7
			want.RejectedByKind, want.RejectReason = uint8(bits(8*8, 2)), uint16(bits(10*8, 16))
		}
		if m != want {
			t.Fatalf("%+v, by bits %+v", m, want)
		}
		// One byte less than the message needs is an error.
		for cut := madHeaderLen; cut < len(b); cut++ {
			if short, ok, err := ParseCM(mad, b[:cut]); ok && short != m || !ok && err == nil {
				t.Fatalf("cut at %d: %+v, %v, %v", cut, short, ok, err)
			}
		}
		if binary.BigEndian.Uint16(b[16:]) != uint16(m.Kind) {
			t.Fatalf("attribute %x is %v", b[16:18], m.Kind)
		}
	})
}
