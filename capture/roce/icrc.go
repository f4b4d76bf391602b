package roce

import (
	"encoding/binary"
	"hash/crc32"
)

// ICRCLen is the length of the invariant CRC at the end of a RoCEv2 packet.
const ICRCLen = 4

// icrcStart is the CRC-32 over eight bytes of ones, which stand for the LRH that RoCEv2 does not have (IBTA A17.3.3).
const icrcStart = 0x2144df1c

// slicing is the slicing-by-8 table of the IEEE polynomial. The headers go through it rather than through hash/crc32,
// because that would make their masked copies escape to the heap, and because they are too short for its vector code.
var slicing = func() (t [8][256]uint32) {
	t[0] = *crc32.IEEETable
	for i := range 256 {
		c := t[0][i]
		for j := 1; j < 8; j++ {
			c = t[0][byte(c)] ^ c>>8
			t[j][i] = c
		}
	}
	return t
}()

// crcWord feeds eight bytes, given as a little-endian word; crc is kept inverted as the hardware does.
func crcWord(crc uint32, w uint64) uint32 {
	w ^= uint64(crc)
	return slicing[0][byte(w>>56)] ^ slicing[1][byte(w>>48)] ^ slicing[2][byte(w>>40)] ^ slicing[3][byte(w>>32)] ^
		slicing[4][byte(w>>24)] ^ slicing[5][byte(w>>16)] ^ slicing[6][byte(w>>8)] ^ slicing[7][byte(w)]
}

// icrcV4 feeds the pseudo LRH and the 40 bytes of IPv4, UDP and BTH headers with their variant fields masked.
func icrcV4(h *[ipv4Len + udpLen + BTHLen]byte) uint32 {
	le := binary.LittleEndian
	crc := ^uint32(icrcStart)
	crc = crcWord(crc, le.Uint64(h[0:])|0x0000_0000_0000_ff00)  // type of service
	crc = crcWord(crc, le.Uint64(h[8:])|0x0000_0000_ffff_00ff)  // time to live, header checksum
	crc = crcWord(crc, le.Uint64(h[16:]))                       // destination, UDP ports
	crc = crcWord(crc, le.Uint64(h[24:])|0x0000_0000_ffff_0000) // UDP checksum
	crc = crcWord(crc, le.Uint64(h[32:])|0x0000_0000_0000_00ff) // BTH resv8a
	return ^crc
}

// icrcV6 is the same for the 60 bytes of IPv6, UDP and BTH headers.
func icrcV6(h *[ipv6Len + udpLen + BTHLen]byte) uint32 {
	le := binary.LittleEndian
	crc := ^uint32(icrcStart)
	crc = crcWord(crc, le.Uint64(h[0:])|0xff00_0000_ffff_ff0f) // traffic class, flow label, hop limit
	crc = crcWord(crc, le.Uint64(h[8:]))
	crc = crcWord(crc, le.Uint64(h[16:]))
	crc = crcWord(crc, le.Uint64(h[24:]))
	crc = crcWord(crc, le.Uint64(h[32:]))
	crc = crcWord(crc, le.Uint64(h[40:])|0xffff_0000_0000_0000) // UDP checksum
	crc = crcWord(crc, le.Uint64(h[48:])|0x0000_00ff_0000_0000) // BTH resv8a
	w := le.Uint32(h[56:]) ^ crc
	return ^(slicing[0][byte(w>>24)] ^ slicing[1][byte(w>>16)] ^ slicing[2][byte(w>>8)] ^ slicing[3][byte(w)])
}

// ICRC computes the invariant CRC of an IP packet without its last four bytes: IPv4 (no options) or IPv6 (no extension
// headers), UDP, BTH, and all up to but not including the ICRC itself. The variant fields (type of service, time to live, both
// checksums; traffic class, flow label, hop limit; BTH resv8a) may hold anything. The result is 0 for what is not such a
// packet; use Frame.CheckICRC where that can happen.
func ICRC(ipPacket []byte) uint32 {
	if len(ipPacket) == 0 {
		return 0
	}
	switch ipPacket[0] >> 4 {
	case 4:
		if len(ipPacket) >= ipv4Len+udpLen+BTHLen {
			crc := icrcV4((*[ipv4Len + udpLen + BTHLen]byte)(ipPacket))
			return UpdateICRC(crc, ipPacket[ipv4Len+udpLen+BTHLen:])
		}
	case 6:
		if len(ipPacket) >= ipv6Len+udpLen+BTHLen {
			crc := icrcV6((*[ipv6Len + udpLen + BTHLen]byte)(ipPacket))
			return UpdateICRC(crc, ipPacket[ipv6Len+udpLen+BTHLen:])
		}
	}
	return 0
}

// UpdateICRC continues an ICRC over what follows the BTH: extended headers, payload, pad.
func UpdateICRC(crc uint32, p []byte) uint32 { return crc32.Update(crc, crc32.IEEETable, p) }

// StartICRCv4 begins the ICRC of a packet that the kernel will wrap into IPv4 and UDP: a sender on a UDP socket has no IP
// header in hand. bth is the packet's BTH, length the number of bytes from the BTH to the end of the pad, ipID and df what the
// kernel will put there (an unconnected socket with IP_PMTUDISC_PROBE: 0 and true). Go on with UpdateICRC.
func StartICRCv4(src, dst [4]byte, sport, dport, ipID uint16, df bool, bth *[BTHLen]byte, length int) uint32 {
	var h [ipv4Len + udpLen + BTHLen]byte
	h[0] = 0x45
	binary.BigEndian.PutUint16(h[2:], uint16(ipv4Len+udpLen+length+ICRCLen))
	binary.BigEndian.PutUint16(h[4:], ipID)
	if df {
		h[6] = 0x40
	}
	h[9] = protoUDP
	copy(h[12:], src[:])
	copy(h[16:], dst[:])
	putUDP(h[ipv4Len:], sport, dport, length)
	copy(h[ipv4Len+udpLen:], bth[:])
	return icrcV4(&h)
}

// StartICRCv6 is StartICRCv4 for IPv6, which has neither identification nor DF.
func StartICRCv6(src, dst [16]byte, sport, dport uint16, bth *[BTHLen]byte, length int) uint32 {
	var h [ipv6Len + udpLen + BTHLen]byte
	h[0] = 0x60
	binary.BigEndian.PutUint16(h[4:], uint16(udpLen+length+ICRCLen))
	h[6] = protoUDP
	copy(h[8:], src[:])
	copy(h[24:], dst[:])
	putUDP(h[ipv6Len:], sport, dport, length)
	copy(h[ipv6Len+udpLen:], bth[:])
	return icrcV6(&h)
}

func putUDP(h []byte, sport, dport uint16, length int) {
	binary.BigEndian.PutUint16(h[0:], sport)
	binary.BigEndian.PutUint16(h[2:], dport)
	binary.BigEndian.PutUint16(h[4:], uint16(udpLen+length+ICRCLen))
}

// ICRCv4 is the whole ICRC of a datagram whose payload (BTH to pad) lies in one piece; 0 when that is shorter than a BTH.
func ICRCv4(src, dst [4]byte, sport, dport, ipID uint16, df bool, bthAndPayload []byte) uint32 {
	if len(bthAndPayload) < BTHLen {
		return 0
	}
	crc := StartICRCv4(src, dst, sport, dport, ipID, df, (*[BTHLen]byte)(bthAndPayload), len(bthAndPayload))
	return UpdateICRC(crc, bthAndPayload[BTHLen:])
}

// ICRCv6 is ICRCv4 for IPv6.
func ICRCv6(src, dst [16]byte, sport, dport uint16, bthAndPayload []byte) uint32 {
	if len(bthAndPayload) < BTHLen {
		return 0
	}
	crc := StartICRCv6(src, dst, sport, dport, (*[BTHLen]byte)(bthAndPayload), len(bthAndPayload))
	return UpdateICRC(crc, bthAndPayload[BTHLen:])
}

// AppendICRC appends a computed ICRC as it stands on the wire: lowest byte first.
func AppendICRC(dst []byte, icrc uint32) []byte { return binary.LittleEndian.AppendUint32(dst, icrc) }

// PutICRC computes the ICRC of a whole IP packet and stores it in the packet's last four bytes.
func PutICRC(ipPacket []byte) error {
	const need = ipv4Len + udpLen + BTHLen + ICRCLen
	if len(ipPacket) < need || ipPacket[0]>>4 == 6 && len(ipPacket) < need+ipv6Len-ipv4Len {
		return &LengthError{"RoCEv2 packet", need, len(ipPacket)}
	}
	n := len(ipPacket) - ICRCLen
	binary.LittleEndian.PutUint32(ipPacket[n:], ICRC(ipPacket[:n]))
	return nil
}

// CheckICRC verifies the ICRC of a frame that f was decoded from. checked is false where that cannot be done: the frame
// was cut, is no RoCE packet, or has IP options or extension headers, for which the specification gives no masking.
func (f *Frame) CheckICRC(data []byte) (ok, checked bool) {
	if f.ICRCOffset < 0 || f.ICRCOffset+ICRCLen > len(data) {
		return false, false
	}
	headers := ipv4Len
	if f.IPv6 {
		headers = ipv6Len
	}
	if int(f.BTHOffset)-int(f.IPOffset) != headers+udpLen {
		return false, false
	}
	got := binary.LittleEndian.Uint32(data[f.ICRCOffset:])
	return got == ICRC(data[f.IPOffset:f.ICRCOffset]), true
}
