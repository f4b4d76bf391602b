package analysis

import (
	"math/bits"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// record is what the analysis needs of one RoCE packet, in one cache line, so that packets can be sorted, handed to
// lanes and counted without the capture's bytes.
type record struct {
	ts       int64
	key      int64  // by which it is sorted: ts, but for records that are late beyond the window
	id       uint64 // hash of the fields that a mirror does not change
	pair     pairID // of the addresses, with the direction
	dstQP    uint32 // opcode in the top byte
	psn      uint32 // flags in the top byte
	word     uint32 // DMA length of a RETH, source QP of a DETH, or the token of a side entry
	aeth     uint32
	payload  uint32
	wire     uint32
	way      uint32 // how the packet came: hash of interface, tags and hop count
	srcPort  uint16
	ipid     uint16
	vlan     uint16 // tag control information of the outer tag
	tos      uint8
	recFlags uint8
}

const (
	flagAckReq = 1 << 24 << iota
	flagAETH
	flagRETH
	flagDETH
	flagVLAN
	flagFECN
	flagBECN
	flagIPID // ipid means something
)

// kinds of records beside data: recFlags.
const (
	recPause    = 1 << iota // PFC or PAUSE: word is the token of its content
	recSide                 // RDMA-CM: word is the token of the message; CNP: aeth and word hold the notifier's MAC address
	recMirrored             // came inside GRE or ERSPAN
	recICRCBad
	recICRCGood
)

func (r *record) op() roce.Opcode   { return roce.Opcode(r.dstQP >> 24) }
func (r *record) qp() uint32        { return r.dstQP & 0xffffff }
func (r *record) psn24() uint32     { return r.psn & roce.PSNMask }
func (r *record) has(f uint32) bool { return r.psn&f != 0 }

// aethKind tells ACK, RNR NAK and NAK; for packets with AETH.
func (r *record) aethOf() roce.AETH {
	return roce.AETH{Syndrome: uint8(r.aeth >> 24), MSN: r.aeth & 0xffffff}
}

// sourceQP is the sending QP of a datagram, plus 1; 0 for others.
func (r *record) sourceQP() uint32 {
	switch {
	case !r.has(flagDETH):
		return 0
	case r.recFlags&recSide != 0:
		return 2 // the side entry took the word; datagrams to QP 1 come from QP 1
	}
	return r.word&0xffffff + 1
}

// mac is the notifier's address of a CNP, 0 where the link has none.
func (r *record) mac() uint64 { return uint64(r.aeth)<<32 | uint64(r.word) }

// encode fills r from a decoded RoCE packet. pair is the id of its addresses, iface tells interfaces of all files apart.
func (r *record) encode(ts int64, f *roce.Frame, pair pairID, iface int) {
	b := &f.BTH
	r.ts, r.key = ts, ts
	r.pair = pair
	r.dstQP = b.DestQP | uint32(b.Opcode)<<24
	psn := b.PSN
	r.word, r.aeth, r.recFlags, r.ipid, r.vlan = 0, 0, 0, 0, 0
	if b.AckReq {
		psn |= flagAckReq
	}
	if b.FECN {
		psn |= flagFECN
	}
	if b.BECN {
		psn |= flagBECN
	}
	switch {
	case f.HasAETH:
		psn |= flagAETH
		r.aeth = uint32(f.AETH.Syndrome)<<24 | f.AETH.MSN
	case f.HasRETH:
		psn |= flagRETH
		r.word = f.RETH.DMALen
	case f.HasDETH:
		psn |= flagDETH
		r.word = f.DETH.SrcQP
	}
	if !f.IPv6 { // stale otherwise
		psn |= flagIPID
		r.ipid = f.IPID
	}
	way := uint64(f.TTL) | uint64(iface)<<8
	if f.VLANs > 0 {
		psn |= flagVLAN
		r.vlan = f.VLAN[0]
		for i := range f.VLANs {
			way ^= uint64(f.VLAN[i])<<(24+16*i) | 1<<(60+i)
		}
	}
	r.psn = psn
	r.payload, r.wire = uint32(f.PayloadLen), uint32(f.WireLen)
	r.srcPort, r.tos = f.SrcPort, f.TOS
	r.identify(way)
	if f.Mirrored {
		r.recFlags |= recMirrored
	}
}

// identify sets what finds copies of the packet.
func (r *record) identify(way uint64) {
	r.way = uint32(way*0x9e3779b97f4a7c15>>32) | 1  // 0 is none
	const changing = flagFECN | flagBECN | flagVLAN // may be set on the way, as the ECN bits
	hi, lo := bits.Mul64(uint64(r.psn&^changing)|uint64(r.dstQP)<<32^0x243f6a8885a308d3, uint64(r.pair)|uint64(r.srcPort)<<32|uint64(r.ipid)<<48)
	hi, lo = bits.Mul64(hi^lo^uint64(r.aeth)^uint64(r.word)<<11^uint64(r.payload)<<40, 0xa0761d6478bd642f)
	r.id = hi ^ lo
}

// The flags of a record's PSN that a BTH has elsewhere.
const (
	bthFECN   = 1 << 31 // in the word of the QP
	bthBECN   = 1 << 30
	bthAckReq = 1 << 31 // in the word of the PSN
)

// encodeUsual is encode for a packet that was read without a frame.
func (r *record) encodeUsual(ts int64, u *roce.Usual, wire int, pair pairID, iface int) {
	psn := u.PSN&roce.PSNMask | flagIPID
	psn |= u.PSN / bthAckReq * flagAckReq
	psn |= u.QP / bthFECN * flagFECN
	psn |= u.QP / bthBECN & 1 * flagBECN
	var word, aeth uint32
	switch op := u.Opcode; {
	case op.HasRETH():
		psn |= flagRETH
		word = u.DMALen
	case op.HasAETH():
		psn |= flagAETH
		aeth = u.AETH
	}
	// Field by field: a literal would be made elsewhere and copied.
	r.ts, r.key, r.pair = ts, ts, pair
	r.dstQP, r.psn = u.QP&0xffffff|uint32(u.Opcode)<<24, psn
	r.word, r.aeth = word, aeth
	r.payload, r.wire = uint32(u.Payload), uint32(wire)
	r.srcPort, r.ipid, r.vlan, r.tos, r.recFlags = u.SrcPort, u.IPID, 0, u.TOS, 0
	r.identify(uint64(u.TTL) | uint64(iface)<<8)
}
