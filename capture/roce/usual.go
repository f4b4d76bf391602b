package roce

import "encoding/binary"

// Usual holds what an analysis needs of the packets that nearly all captures consist of: untagged Ethernet, IPv4 without
// options or fragments, RC or UC, and no extended header but a RETH or an AETH. It is a fraction of a Frame, and reading it
// takes a fraction of the time.
type Usual struct {
	Src, Dst      uint32
	IPID, SrcPort uint16
	TOS, TTL      uint8
	Opcode        Opcode
	QP            uint32 // FECN(1) BECN(1) 0(6) destination QP(24)
	PSN           uint32 // AckReq(1) 0(7) PSN(24)
	DMALen        uint32 // of the RETH, when the opcode has one
	AETH          uint32 // likewise
	Payload       int    // length on the wire, without pad and ICRC
	ICRCOffset    int    // -1 when the ICRC was not captured
}

// Offsets in a usual frame.
const (
	usualIP  = ethLen
	usualUDP = usualIP + ipv4Len
	usualBTH = usualUDP + udpLen
	usualMin = usualBTH + BTHLen
)

// usualOps are the opcodes of usual packets: 1 without an extended header, 2 with a RETH, 3 with an AETH.
var usualOps = func() (t [256]uint8) {
	for i := range t {
		op := Opcode(i)
		if !op.Known() || op == CNP || op.Transport() != RC && op.Transport() != UC {
			continue
		}
		switch op.HeaderLen() {
		case 0:
			t[i] = 1
		case RETHLen:
			if op.HasRETH() {
				t[i] = 2
			}
		case AETHLen:
			if op.HasAETH() {
				t[i] = 3
			}
		}
	}
	return t
}()

// Decode fills u from an Ethernet frame; ok is false for any that is not usual, or was cut before its payload: those are
// for Frame.Decode. For the others both say the same. origLen and port are as there, but neither may be 0.
func (u *Usual) Decode(data []byte, origLen int, port uint16) (ok bool) {
	if len(data) < usualMin {
		return false
	}
	h := (*[usualMin]byte)(data)
	be := binary.BigEndian
	// EtherType, version and header length; flags and offset of fragments; protocol; destination port
	if be.Uint32(h[12:])>>8 != 0x080045 || h[usualIP+6]&0x3f != 0 || h[usualIP+7] != 0 || h[usualIP+9] != protoUDP || be.Uint16(h[usualUDP+2:]) != port {
		return false
	}
	op := Opcode(h[usualBTH])
	kind := usualOps[op]
	ip := int(be.Uint16(h[usualIP+2:])) - ipv4Len // what the IP header says is behind it
	n := int(be.Uint16(h[usualUDP+4:]))
	if kind == 0 || ip < n || usualUDP+ip > max(origLen, len(data)) {
		return false
	}
	n -= udpLen + BTHLen + ICRCLen + int(h[usualBTH+1]>>4&3)
	switch kind {
	case 2:
		n -= RETHLen
		if len(data) < usualMin+RETHLen {
			return false
		}
		u.DMALen = be.Uint32(data[usualMin+12:])
	case 3:
		n -= AETHLen
		if len(data) < usualMin+AETHLen {
			return false
		}
		u.AETH = be.Uint32(data[usualMin:])
	}
	if n < 0 {
		return false
	}
	u.Opcode = op
	u.Payload = n
	u.TOS, u.TTL = h[usualIP+1], h[usualIP+8]
	u.IPID, u.SrcPort = be.Uint16(h[usualIP+4:]), be.Uint16(h[usualUDP:])
	u.Src, u.Dst = be.Uint32(h[usualIP+12:]), be.Uint32(h[usualIP+16:])
	const unused = 0x3f << 24
	u.QP = be.Uint32(h[usualBTH+4:]) &^ unused
	u.PSN = be.Uint32(h[usualBTH+8:]) &^ (0x7f << 24)
	u.ICRCOffset = -1
	if end := usualUDP + int(be.Uint16(h[usualUDP+4:])); end <= len(data) {
		u.ICRCOffset = end - ICRCLen
	}
	return true
}

// CheckICRC is Frame.CheckICRC for a usual packet.
func (u *Usual) CheckICRC(data []byte) (ok, checked bool) {
	if u.ICRCOffset < 0 {
		return false, false
	}
	return binary.LittleEndian.Uint32(data[u.ICRCOffset:]) == ICRC(data[usualIP:u.ICRCOffset]), true
}
