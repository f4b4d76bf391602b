package fabric

import "encoding/binary"

// udpFrame is an Ethernet frame with IPv4 and UDP to port 4791, ECT(0), of size bytes.
func udpFrame(src, dst [6]byte, size int) []byte {
	f := make([]byte, size)
	copy(f, dst[:])
	copy(f[6:], src[:])
	binary.BigEndian.PutUint16(f[12:], etherIPv4)
	ip := f[14:]
	ip[0], ip[1], ip[8], ip[9] = 0x45, ect0, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(size-14))
	copy(ip[12:], []byte{192, 0, 2, src[5], 192, 0, 2, dst[5]})
	binary.BigEndian.PutUint16(ip[10:], ^checksum(ip[:20]))
	binary.BigEndian.PutUint16(ip[20:], 50000)
	binary.BigEndian.PutUint16(ip[22:], rocePort)
	binary.BigEndian.PutUint16(ip[24:], uint16(size-34))
	return f
}

// checksum is the one's complement sum of RFC 1071, not inverted.
func checksum(b []byte) uint16 {
	var s uint32
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

func station6(i int) [6]byte { return [6]byte{2, 0, 0, 0, 0, byte(i + 1)} }
