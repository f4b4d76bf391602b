package roce

import (
	"encoding/binary"
	"net/netip"
)

// LinkType is the link-layer header type of a capture (the LINKTYPE_ numbers of pcap files).
type LinkType uint16

// Link types that Decode knows.
const (
	LinkNull       LinkType = 0   // BSD loopback
	LinkEthernet   LinkType = 1   //
	LinkRaw        LinkType = 101 // IPv4 or IPv6 by version
	LinkLoop       LinkType = 108 // OpenBSD loopback
	LinkLinuxSLL   LinkType = 113 // Linux cooked v1
	LinkIPv4       LinkType = 228
	LinkIPv6       LinkType = 229
	LinkLinuxSLL2  LinkType = 276 // Linux cooked v2
	linkRawBSD     LinkType = 12  // DLT_RAW written raw by some programs
	linkRawOpenBSD LinkType = 14  // likewise
)

// Kind is what a frame turned out to be.
type Kind uint8

// Kinds of frame.
const (
	// KindOther is anything that is not RoCE and not a pause frame. Only WireLen and the VLAN fields mean something.
	KindOther Kind = iota
	// KindRoCE is a RoCEv2 packet with its BTH decoded.
	KindRoCE
	// KindTruncated is a packet for the RoCE port whose capture ends before the end of its BTH: addresses and ports are
	// set. (A packet cut before its ports cannot be told from others and is KindOther.)
	KindTruncated
	// KindMalformed is a packet for the RoCE port whose lengths contradict each other; Problem says how.
	KindMalformed
	// KindFragment is an IP fragment of UDP. RoCEv2 forbids fragmentation (IBTA A17.9.3), so it is only counted.
	KindFragment
	// KindPFC is an IEEE 802.1Qbb priority-based flow control frame; Pause holds it.
	KindPFC
	// KindPause is an IEEE 802.3x PAUSE frame; Pause.Quanta[0] is its time.
	KindPause
)

// String is the kind in words.
func (k Kind) String() string {
	switch k {
	case KindOther:
		return "other"
	case KindRoCE:
		return "RoCE"
	case KindTruncated:
		return "truncated RoCE"
	case KindMalformed:
		return "malformed RoCE"
	case KindFragment:
		return "IP fragment"
	case KindPFC:
		return "PFC"
	case KindPause:
		return "PAUSE"
	}
	return "unknown kind"
}

// Problem is why a frame is KindMalformed.
type Problem uint8

// Problems.
const (
	ProblemNone      Problem = iota
	ProblemIPHeader          // IP version or header length impossible
	ProblemIPLength          // IP length below the headers it must hold
	ProblemUDPLength         // UDP length below its header, or above the IP payload
	ProblemTransport         // no room for BTH, extended headers, pad and ICRC
)

// String is the problem in words.
func (p Problem) String() string {
	switch p {
	case ProblemNone:
		return "none"
	case ProblemIPHeader:
		return "impossible IP header"
	case ProblemIPLength:
		return "IP length too small"
	case ProblemUDPLength:
		return "UDP length contradicts IP length"
	case ProblemTransport:
		return "no room for the transport headers and the ICRC"
	}
	return "unknown problem"
}

// Frame is one decoded packet. It is filled by Decode, reused for the next packet, and holds no memory of the previous one.
// Fields of a header that the packet does not have are stale unless a Has field says otherwise: look at Kind and Has first.
type Frame struct {
	Kind    Kind
	Problem Problem // for KindMalformed

	// Headers found after the BTH. They are false also when the opcode has the header but the capture was cut before its end.
	HasRETH, HasAETH, HasDETH, HasImm, HasInvalidate, HasAtomic, HasAtomicAck bool

	// MirrorCut: the IP packet was longer than the frame that reached the tap, as truncating mirrors make them.
	MirrorCut bool
	// Mirrored: the packet came inside GRE or ERSPAN. Addresses, tags and offsets are those of the inner packet, WireLen is
	// that of the outer frame.
	Mirrored bool
	IPv6     bool
	VLANs    uint8     // number of VLAN tags, 0 to 2 (more are skipped, outermost kept)
	VLAN     [2]uint16 // tag control information, outer first: PCP(3) DEI(1) VID(12)

	TOS              uint8    // type of service or traffic class; see DSCP and ECN
	TTL              uint8    // or hop limit
	IPID             uint16   // IPv4 only
	DF               bool     // IPv4 only
	SrcPort, DstPort uint16   //
	Src, Dst         [16]byte // IPv4 as ::ffff:a.b.c.d; see SrcAddr

	BTH        BTH
	RETH       RETH
	AETH       AETH
	DETH       DETH
	Imm        uint32 // immediate data
	Invalidate uint32 // R_Key that a SEND with invalidate names
	Atomic     AtomicETH
	AtomicAck  AtomicAckETH

	// PayloadLen is the payload's length on the wire, without pad and ICRC, right also when the capture is snapped. The 16
	// reserved bytes of a CNP are no payload.
	PayloadLen int
	// Payload is what was captured of it. It aliases the input.
	Payload []byte
	// WireLen is the length of the frame on the wire from the link header on, without the Ethernet FCS.
	WireLen int
	// EtherOffset is where the Ethernet header starts in the data, -1 when the link has none; of a mirrored packet it is
	// that of the inner frame. See SrcMAC.
	EtherOffset int
	// IPOffset and BTHOffset are where the IP header and the BTH start in the data.
	IPOffset, BTHOffset int
	// ICRCOffset is where the ICRC starts, -1 when it was not captured.
	ICRCOffset int

	// Pause is filled for KindPFC and KindPause only.
	Pause Pause
}

// Pause is the content of a MAC control pause frame.
type Pause struct {
	Src         [6]byte   // the MAC address that asks for the pause
	ClassEnable uint8     // PFC: bit i set means that Quanta[i] counts
	Quanta      [8]uint16 // pause times in units of 512 bit times; 0 means resume
}

// SrcAddr is the source address; an IPv4 address is returned as such.
func (f *Frame) SrcAddr() netip.Addr { return netip.AddrFrom16(f.Src).Unmap() }

// DstAddr is the destination address; an IPv4 address is returned as such.
func (f *Frame) DstAddr() netip.Addr { return netip.AddrFrom16(f.Dst).Unmap() }

// SrcMAC is the Ethernet source address of a frame that f was decoded from, as a number of 48 bits, and 0 when the link
// has none: Linux cooked, raw IP, or IP inside GRE.
func (f *Frame) SrcMAC(data []byte) uint64 {
	if f.EtherOffset < 0 {
		return 0
	}
	return binary.BigEndian.Uint64(data[f.EtherOffset+6:]) >> 16
}

// DSCP is the differentiated services code point.
func (f *Frame) DSCP() uint8 { return f.TOS >> 2 }

// ECN codepoints (RFC 3168).
const (
	NotECT = 0
	ECT1   = 1
	ECT0   = 2
	CE     = 3
)

// ECN is the congestion notification field: NotECT, ECT1, ECT0 or CE.
func (f *Frame) ECN() uint8 { return f.TOS & 3 }

// PCP is the priority of the outer VLAN tag; ok is false when there is no tag. A tag with VID 0 carries a priority, too.
func (f *Frame) PCP() (pcp uint8, ok bool) { return uint8(f.VLAN[0] >> 13), f.VLANs > 0 }

// VID is the VLAN identifier of the outer tag; ok is false when there is no tag.
func (f *Frame) VID() (vid uint16, ok bool) { return f.VLAN[0] & 0xfff, f.VLANs > 0 }

// IsMAD reports a management datagram on the general services interface (QP 1): RDMA-CM and its like.
func (f *Frame) IsMAD() bool {
	return f.Kind == KindRoCE && f.BTH.DestQP == 1 && f.BTH.Opcode.Transport() == UD
}
