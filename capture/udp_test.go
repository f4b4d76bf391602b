package capture

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// udpFrame is an Ethernet frame of UDP over IPv4, written field by field.
func udpFrame(src, dst uint16, payload []byte) []byte {
	b := []byte{0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 8, 0, 0x45, 0}
	b = binary.BigEndian.AppendUint16(b, uint16(28+len(payload)))
	b = append(b, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 9)
	b = binary.BigEndian.AppendUint16(b, src)
	b = binary.BigEndian.AppendUint16(b, dst)
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(payload)))
	return append(append(b, 0, 0), payload...)
}

func TestUDP(t *testing.T) {
	payload := []byte("forty octets that are a datagram's alone")
	whole := udpFrame(40000, 52001, payload)
	tagged := append(append(bytes.Clone(whole[:12]), 0x81, 0, 0x60, 5), whole[12:]...)
	tcp, fragment, short := bytes.Clone(whole), bytes.Clone(whole), bytes.Clone(whole)
	tcp[23] = 6
	fragment[20] = 0x20
	short[39] = 7
	rows := []struct {
		why      string
		data     []byte
		origLen  int
		ok       bool
		captured int
	}{
		{"a datagram", whole, 0, true, len(payload)},
		{"in a VLAN", tagged, 0, true, len(payload)},
		{"padded to the least length of Ethernet", append(bytes.Clone(whole), 0, 0, 0, 0), 0, true, len(payload)},
		{"to port 1, which the decoder uses itself", udpFrame(7, 1, payload), 0, true, len(payload)},
		{"shorter than any RoCE packet", udpFrame(7, 8, payload[:3]), 0, true, 3},
		{"without payload", udpFrame(7, 8, nil), 0, true, 0},
		{"cut in its payload", whole[:50], len(whole), true, 8},
		{"cut in its header", whole[:40], len(whole), false, 0},
		{"cut before its ports", whole[:36], len(whole), false, 0},
		{"TCP", tcp, 0, false, 0},
		{"a fragment", fragment, 0, false, 0},
		{"a length that cannot be", short, 0, false, 0},
		{"nothing", nil, 0, false, 0},
	}
	var u UDP
	for _, r := range rows {
		ok, err := u.Decode(&Packet{Data: r.data, OrigLen: max(r.origLen, len(r.data)), LinkType: roce.LinkEthernet})
		if err != nil || ok != r.ok {
			t.Errorf("%s: %t, %v", r.why, ok, err)
			continue
		}
		if !ok {
			continue
		}
		if want := payload[:r.captured]; !bytes.Equal(u.Payload, want) {
			t.Errorf("%s: payload %q, want %q", r.why, u.Payload, want)
		}
		if src := u.Frame().SrcAddr().String(); src != "10.0.0.1" || !u.NoChecksum {
			t.Errorf("%s: from %s, no checksum: %t", r.why, src, u.NoChecksum)
		}
		if r.why == "cut in its payload" && u.Len != len(payload) {
			t.Errorf("%s: %d octets on the wire", r.why, u.Len)
		}
	}
	if _, err := u.Decode(&Packet{LinkType: 9999}); err == nil {
		t.Error("an unknown link type passes")
	}
}
