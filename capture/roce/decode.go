package roce

import "encoding/binary"

const (
	ethLen     = 14
	sllLen     = 16
	sll2Len    = 20
	ipv4Len    = 20 // without options
	ipv6Len    = 40
	udpLen     = 8
	protoUDP   = 17
	protoGRE   = 47
	protoFrag6 = 44

	etherIPv4       = 0x0800
	etherIPv6       = 0x86dd
	etherVLAN       = 0x8100
	etherQinQ       = 0x88a8
	etherQinQOld    = 0x9100
	etherMACControl = 0x8808
)

// Decode reads one captured packet. data is what was captured of it, origLen its length on the wire (0, or less than
// len(data), means that all was captured), port the UDP destination port of RoCE (0 means Port). The frame's slices alias data.
// The error is a *LinkTypeError and nothing else; what is wrong with a packet is told by Kind and Problem.
func (f *Frame) Decode(linkType LinkType, data []byte, origLen int, port uint16) error {
	f.reset(max(origLen, len(data)))
	if port == 0 {
		port = Port
	}
	switch linkType {
	case LinkEthernet:
		f.ethernet(data, 0, port)
	case LinkLinuxSLL:
		if len(data) < sllLen {
			return nil
		}
		f.etherType(data, sllLen, binary.BigEndian.Uint16(data[14:]), port)
	case LinkLinuxSLL2:
		if len(data) < sll2Len {
			return nil
		}
		f.etherType(data, sll2Len, binary.BigEndian.Uint16(data), port)
	case LinkRaw, LinkIPv4, LinkIPv6, linkRawBSD, linkRawOpenBSD:
		f.ip(data, 0, port)
	case LinkNull, LinkLoop:
		f.ip(data, 4, port) // four bytes of address family, whose values differ by system: the version decides
	default:
		return &LinkTypeError{linkType}
	}
	return nil
}

// DecodeIP is Decode for a bare IP packet that is there as a whole.
func (f *Frame) DecodeIP(packet []byte, port uint16) {
	_ = f.Decode(LinkRaw, packet, 0, port)
}

func (f *Frame) reset(wireLen int) {
	f.Kind, f.Problem = KindOther, ProblemNone
	f.HasRETH, f.HasAETH, f.HasDETH, f.HasImm, f.HasInvalidate, f.HasAtomic, f.HasAtomicAck = false, false, false, false, false, false, false
	f.MirrorCut, f.Mirrored, f.IPv6, f.VLANs = false, false, false, 0
	f.PayloadLen, f.Payload = 0, nil
	f.WireLen = wireLen
	f.EtherOffset, f.IPOffset, f.BTHOffset, f.ICRCOffset = -1, 0, 0, -1
}

// ethernet reads a frame that starts at off.
func (f *Frame) ethernet(data []byte, off int, port uint16) {
	if len(data) < off+ethLen {
		return
	}
	f.EtherOffset = off
	f.etherType(data, off+ethLen, binary.BigEndian.Uint16(data[off+12:]), port)
	if (f.Kind == KindPFC || f.Kind == KindPause) && f.Mirrored == (off > 0) { // not the outer frame of a mirrored one
		f.Pause.Src = [6]byte(data[off+6 : off+12])
	}
}

// etherType follows an EtherType and any VLAN tags; off is where its payload starts.
func (f *Frame) etherType(data []byte, off int, t uint16, port uint16) {
	for {
		switch t {
		case etherIPv4:
			f.ipv4(data, off, port)
			return
		case etherIPv6:
			f.ipv6(data, off, port)
			return
		case etherVLAN, etherQinQ, etherQinQOld:
			if len(data) < off+4 {
				return
			}
			if f.VLANs < 2 {
				f.VLAN[f.VLANs] = binary.BigEndian.Uint16(data[off:])
				f.VLANs++
			}
			t = binary.BigEndian.Uint16(data[off+2:])
			off += 4
		case etherMACControl:
			f.macControl(data, off)
			return
		default:
			return
		}
	}
}

// ip looks at the version for links that do not say it.
func (f *Frame) ip(data []byte, off int, port uint16) {
	if len(data) <= off {
		return
	}
	switch data[off] >> 4 {
	case 4:
		f.ipv4(data, off, port)
	case 6:
		f.ipv6(data, off, port)
	}
}

func (f *Frame) malformed(p Problem) { f.Kind, f.Problem = KindMalformed, p }

func (f *Frame) ipv4(data []byte, off int, port uint16) {
	if len(data) < off+ipv4Len {
		return
	}
	h := (*[ipv4Len]byte)(data[off:])
	if h[9] != protoUDP {
		if h[9] == protoGRE && !f.Mirrored && binary.BigEndian.Uint16(h[6:])&0x3fff == 0 {
			f.gre(data, off+int(h[0]&0xf)*4, port)
		}
		return
	}
	hdr := int(h[0]&0xf) * 4
	if h[0]>>4 != 4 || hdr < ipv4Len {
		f.malformed(ProblemIPHeader)
		return
	}
	total := int(binary.BigEndian.Uint16(h[2:]))
	frag := binary.BigEndian.Uint16(h[6:])
	f.IPOffset = off
	f.TOS, f.TTL = h[1], h[8]
	f.IPID = binary.BigEndian.Uint16(h[4:])
	f.DF = frag&0x4000 != 0
	mapV4(&f.Src, h[12:16])
	mapV4(&f.Dst, h[16:20])
	if frag&0x3fff != 0 { // more fragments, or an offset
		f.Kind = KindFragment
		return
	}
	f.udp(data, off+hdr, total-hdr, port)
}

// mapV4 stores an IPv4 address in its IPv6 form in two words: byte by byte costs a third of the whole decode.
func mapV4(dst *[16]byte, a []byte) {
	binary.BigEndian.PutUint64(dst[0:], 0)
	binary.BigEndian.PutUint64(dst[8:], 0xffff_0000_0000|uint64(binary.BigEndian.Uint32(a)))
}

func (f *Frame) ipv6(data []byte, off int, port uint16) {
	if len(data) < off+ipv6Len {
		return
	}
	h := (*[ipv6Len]byte)(data[off:])
	next, hdr := h[6], ipv6Len
	payload := int(binary.BigEndian.Uint16(h[4:]))
	if next != protoUDP {
		var ok bool
		if next == protoGRE && !f.Mirrored {
			f.gre(data, off+ipv6Len, port)
			return
		}
		if next, hdr, ok = skipExtensions(data[off:], next); !ok {
			return
		}
	}
	if h[0]>>4 != 6 {
		f.malformed(ProblemIPHeader)
		return
	}
	f.IPv6 = true
	f.IPOffset = off
	f.TOS, f.TTL = h[0]<<4|h[1]>>4, h[7]
	f.Src = [16]byte(h[8:24])
	f.Dst = [16]byte(h[24:40])
	if next == protoFrag6 {
		f.Kind = KindFragment
		return
	}
	f.udp(data, off+hdr, payload+ipv6Len-hdr, port)
}

// skipExtensions walks IPv6 extension headers up to UDP or a fragment header of UDP; ok is false for all else.
func skipExtensions(p []byte, next uint8) (proto uint8, hdr int, ok bool) {
	hdr = ipv6Len
	for range 8 {
		if next == protoUDP {
			return next, hdr, true
		}
		if len(p) < hdr+8 {
			return 0, 0, false
		}
		switch next {
		case 0, 43, 60, 135: // hop-by-hop, routing, destination options, mobility
			next, hdr = p[hdr], hdr+8+8*int(p[hdr+1])
		case 51: // authentication
			next, hdr = p[hdr], hdr+8+4*int(p[hdr+1])
		case protoFrag6:
			if f := binary.BigEndian.Uint16(p[hdr+2:]); f&0xfff9 == 0 { // an atomic fragment (RFC 6946): whole
				next, hdr = p[hdr], hdr+8
				continue
			}
			return protoFrag6, hdr, p[hdr] == protoUDP
		default:
			return 0, 0, false
		}
	}
	return 0, 0, false
}

// udp reads the UDP header at off, whose IP payload is ipPayload bytes long by the IP header.
func (f *Frame) udp(data []byte, off, ipPayload int, port uint16) {
	if len(data) < off+4 {
		// Cut inside the IP options, or before the ports: nobody can tell whether it was RoCE.
		return
	}
	f.DstPort = binary.BigEndian.Uint16(data[off+2:])
	if f.DstPort != port {
		return
	}
	f.SrcPort = binary.BigEndian.Uint16(data[off:])
	f.BTHOffset = off + udpLen
	if ipPayload < udpLen {
		f.malformed(ProblemIPLength)
		return
	}
	if end := off + ipPayload; end > f.WireLen {
		f.MirrorCut = true
		f.WireLen = end
	}
	if len(data) < off+udpLen {
		f.Kind = KindTruncated
		return
	}
	n := int(binary.BigEndian.Uint16(data[off+4:]))
	if n < udpLen || n > ipPayload {
		f.malformed(ProblemUDPLength)
		return
	}
	f.transport(data, off+udpLen, n-udpLen)
}

// transport reads BTH and extended headers; n is the length of the UDP payload by its header.
func (f *Frame) transport(data []byte, off, n int) {
	if n < BTHLen+ICRCLen {
		f.malformed(ProblemTransport)
		return
	}
	if len(data) < off+BTHLen {
		f.Kind = KindTruncated
		return
	}
	f.BTH.decode((*[BTHLen]byte)(data[off:]))
	op := f.BTH.Opcode
	start := off + BTHLen + int(headerLen[op])
	payload := n - BTHLen - int(headerLen[op]) - int(f.BTH.Pad) - ICRCLen
	if payload < 0 {
		f.malformed(ProblemTransport)
		return
	}
	f.Kind = KindRoCE
	if end := off + n; end <= len(data) {
		f.ICRCOffset = end - ICRCLen
	}
	if headerLen[op] != 0 {
		f.extended(data, off+BTHLen, opcodes[op])
	}
	if op == CNP {
		return
	}
	f.PayloadLen = payload
	if start < len(data) {
		end := min(start+payload, len(data))
		f.Payload = data[start:end:end]
	}
}

// extended reads the headers between BTH and payload, in the order of the bits, as far as they were captured.
func (f *Frame) extended(data []byte, off int, bits opcodeBits) {
	if bits&(bitRDETH|bitDETH|bitXRCETH|bitFETH) != 0 {
		off = f.extendedRare(data, off, bits)
	}
	if bits&bitRETH != 0 {
		if len(data) < off+RETHLen {
			return
		}
		h := (*[RETHLen]byte)(data[off:])
		f.RETH.VA = binary.BigEndian.Uint64(h[0:])
		f.RETH.RKey = binary.BigEndian.Uint32(h[8:])
		f.RETH.DMALen = binary.BigEndian.Uint32(h[12:])
		f.HasRETH = true
		off += RETHLen
	}
	if bits&bitAtomicETH != 0 {
		if len(data) < off+AtomicETHLen {
			return
		}
		f.Atomic, _, _ = ParseAtomicETH(data[off:])
		f.HasAtomic = true
		off += AtomicETHLen
	}
	if bits&bitAETH != 0 {
		if len(data) < off+AETHLen {
			return
		}
		w := binary.BigEndian.Uint32(data[off:])
		f.AETH = AETH{Syndrome: uint8(w >> 24), MSN: w & PSNMask}
		f.HasAETH = true
		off += AETHLen
	}
	if bits&bitAtomicAckETH != 0 {
		if len(data) < off+AtomicAckETHLen {
			return
		}
		f.AtomicAck.Original = binary.BigEndian.Uint64(data[off:])
		f.HasAtomicAck = true
		off += AtomicAckETHLen
	}
	if bits&(bitImm|bitIETH) != 0 {
		if len(data) < off+ImmLen {
			return
		}
		w := binary.BigEndian.Uint32(data[off:])
		if bits&bitImm != 0 {
			f.Imm, f.HasImm = w, true
		} else {
			f.Invalidate, f.HasInvalidate = w, true
		}
	}
}

// extendedRare reads the datagram headers and skips those of RD, XRC and flush. It returns where the next header starts.
func (f *Frame) extendedRare(data []byte, off int, bits opcodeBits) int {
	if bits&bitRDETH != 0 {
		off += RDETHLen
	}
	if bits&bitDETH != 0 {
		if len(data) < off+DETHLen {
			return len(data)
		}
		f.DETH, _, _ = ParseDETH(data[off:])
		f.HasDETH = true
		off += DETHLen
	}
	if bits&bitXRCETH != 0 {
		off += XRCETHLen
	}
	if bits&bitFETH != 0 {
		off += FETHLen
	}
	return off
}

// gre reads what a switch sends when it mirrors over IP: GRE (RFC 2784, 2890) with an Ethernet frame (transparent bridging or
// ERSPAN type I, II, III) or an IP packet inside. One level only; the tags of the outer frame are forgotten.
func (f *Frame) gre(data []byte, off int, port uint16) {
	if len(data) < off+4 {
		return
	}
	flags, proto := binary.BigEndian.Uint16(data[off:]), binary.BigEndian.Uint16(data[off+2:])
	if flags&7 != 0 { // version 1 is PPTP
		return
	}
	off += 4
	for _, bit := range [...]uint16{0x8000, 0x2000, 0x1000} { // checksum, key, sequence number
		if flags&bit != 0 {
			off += 4
		}
	}
	f.Mirrored, f.VLANs, f.EtherOffset = true, 0, -1
	switch proto {
	case 0x6558: // transparent Ethernet bridging
		f.ethernet(data, off, port)
	case 0x88be: // ERSPAN: type II has a sequence number and a header of 8 bytes, type I neither
		if flags&0x1000 != 0 {
			off += 8
		}
		f.ethernet(data, off, port)
	case 0x22eb: // ERSPAN type III: 12 bytes, and 8 more when the O bit says so
		if len(data) < off+12 {
			return
		}
		if data[off+11]&1 != 0 {
			off += 8
		}
		f.ethernet(data, off+12, port)
	case etherIPv4, etherIPv6:
		f.ip(data, off, port)
	}
}

// macControl reads PAUSE (IEEE 802.3 annex 31B) and PFC (802.1Qbb, annex 31D) frames.
func (f *Frame) macControl(data []byte, off int) {
	if len(data) < off+4 {
		return
	}
	op := binary.BigEndian.Uint16(data[off:])
	switch op {
	case 0x0001:
		f.Kind = KindPause
		f.Pause = Pause{Quanta: [8]uint16{binary.BigEndian.Uint16(data[off+2:])}}
	case 0x0101:
		if len(data) < off+4+16 {
			return
		}
		f.Kind = KindPFC
		f.Pause = Pause{ClassEnable: data[off+3]}
		for i := range f.Pause.Quanta {
			f.Pause.Quanta[i] = binary.BigEndian.Uint16(data[off+4+2*i:])
		}
	}
}
