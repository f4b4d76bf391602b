package fabric

import "encoding/binary"

const (
	ethernetHeader = 14
	minFrame       = 60 // without FCS; shorter ones are padded on the wire (IEEE 802.3)
	rocePort       = 4791

	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	etherVLAN = 0x8100
	etherQinQ = 0x88a8
)

// ECN codepoints (RFC 3168).
const (
	notECT = 0
	ect1   = 1
	ect0   = 2
	ce     = 3
)

// header is what the switch reads of a frame, once.
type header struct {
	dst, src uint64 // addresses in the low 48 bits
	l3       uint16 // offset of the IP header, 0 if there is none
	v6       bool
	ecn      uint8
	roce     bool // UDP to port 4791, not a later fragment
}

// parseHeader reads frame, which has at least an Ethernet header.
func parseHeader(frame []byte) header {
	h := header{
		dst: uint64(binary.BigEndian.Uint16(frame))<<32 | uint64(binary.BigEndian.Uint32(frame[2:])),
		src: uint64(binary.BigEndian.Uint16(frame[6:]))<<32 | uint64(binary.BigEndian.Uint32(frame[8:])),
	}
	etherType, off := binary.BigEndian.Uint16(frame[12:]), ethernetHeader
	for range 2 {
		if (etherType != etherVLAN && etherType != etherQinQ) || len(frame) < off+4 {
			break
		}
		etherType = binary.BigEndian.Uint16(frame[off+2:])
		off += 4
	}
	ip := frame[off:]
	switch {
	case etherType == etherIPv4 && len(ip) >= 20 && ip[0]>>4 == 4:
		h.l3, h.ecn = uint16(off), ip[1]&3
		udp := int(ip[0]&15) * 4
		first := binary.BigEndian.Uint16(ip[6:])&0x1fff == 0
		h.roce = ip[9] == 17 && first && udp >= 20 && len(ip) >= udp+4 && binary.BigEndian.Uint16(ip[udp+2:]) == rocePort
	case etherType == etherIPv6 && len(ip) >= 40 && ip[0]>>4 == 6:
		h.l3, h.v6, h.ecn = uint16(off), true, ip[1]>>4&3
		h.roce = ip[6] == 17 && len(ip) >= 44 && binary.BigEndian.Uint16(ip[42:]) == rocePort
	}
	return h
}

// ect says whether the packet may be marked.
func (h *header) ect() bool { return h.ecn == ect0 || h.ecn == ect1 }

// setCE marks p's frame, whose ECN field is ECT(0) or ECT(1). The caller owns the only reference.
func (p *Packet) setCE() {
	ip := p.Data[p.hdr.l3:]
	if p.hdr.v6 {
		ip[1] |= ce << 4
	} else {
		before := binary.BigEndian.Uint16(ip)
		after := before | ce
		binary.BigEndian.PutUint16(ip, after)
		binary.BigEndian.PutUint16(ip[10:], updateChecksum(binary.BigEndian.Uint16(ip[10:]), before, after))
	}
	p.hdr.ecn = ce
}

// updateChecksum is RFC 1624 equation 3: the Internet checksum after one 16-bit word changed.
func updateChecksum(sum, before, after uint16) uint16 {
	s := uint32(^sum) + uint32(^before) + uint32(after)
	s = s&0xffff + s>>16
	s = s&0xffff + s>>16
	return ^uint16(s)
}
