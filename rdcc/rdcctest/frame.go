package rdcctest

import (
	"encoding/binary"
	"net/netip"
)

// Frame is an Ethernet frame with the UDP datagram from one address to another, of one family. Its UDP checksum is not zero, and not
// right either.
func Frame(from, to netip.AddrPort, payload []byte) []byte {
	udp := binary.BigEndian.AppendUint16(nil, from.Port())
	udp = binary.BigEndian.AppendUint16(udp, to.Port())
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(payload)))
	udp = append(udp, 0xab, 0xcd)
	udp = append(udp, payload...)
	b := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00}
	if from.Addr().Is4() {
		b = append(b, 0x45, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(20+len(udp)))
		b = append(b, 0, 0, 0x40, 0, 64, 17, 0, 0)
	} else {
		b[12], b[13] = 0x86, 0xdd
		b = append(b, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(len(udp)))
		b = append(b, 17, 64)
	}
	b = append(b, from.Addr().AsSlice()...)
	b = append(b, to.Addr().AsSlice()...)
	return append(b, udp...)
}
