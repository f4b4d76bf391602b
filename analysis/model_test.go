package analysis

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// The model is the second implementation that tests hold the engine against. It shares no code with it or with
// capture/roce: it parses pcap with encoding/binary, keeps every packet, and answers each question by the most
// obvious loop over all of them. It is meant to be read, not to be fast.

type modelPacket struct {
	t             int64
	order         int64 // position among all packets
	src, dst      string
	sport         int
	dscp, ecn     int
	op, qp, psn   int
	ackReq        bool
	syndrome      int // -1 without AETH
	payload, wire int
	srcQP         int // -1 without DETH
	snapped       bool
	conn          string // which direction of which life; the generator knows, else the model's key
	mac           string // of its sender; "" where the link has none
	tags          []int  // VLAN tags, outer first
	ipid          int    // -1 for IPv6
	pause         []byte // MAC control frame from its opcode on
	bytes         []byte // of RoCE: from the BTH on
}

// modelRecord is one record of a capture file.
type modelRecord struct {
	t    int64
	data []byte
	wire int // length on the wire
}

// modelRecords parses a classic pcap file.
func modelRecords(data []byte) (records []modelRecord, link int, cut bool) {
	var order binary.ByteOrder = binary.LittleEndian
	magic := order.Uint32(data)
	if magic != 0xa1b2c3d4 && magic != 0xa1b23c4d {
		order = binary.BigEndian
		magic = order.Uint32(data)
	}
	tick := int64(1000)
	if magic == 0xa1b23c4d {
		tick = 1
	}
	link = int(order.Uint32(data[20:]))
	for off := 24; off < len(data); {
		if off+16 > len(data) {
			return records, link, true
		}
		sec, frac := int64(order.Uint32(data[off:])), int64(order.Uint32(data[off+4:]))
		capLen, wireLen := int(order.Uint32(data[off+8:])), int(order.Uint32(data[off+12:]))
		off += 16
		if off+capLen > len(data) {
			return records, link, true
		}
		records = append(records, modelRecord{sec*1e9 + frac*tick, data[off : off+capLen], wireLen})
		off += capLen
	}
	return records, link, false
}

// modelPcap gives the RoCE packets of a classic pcap file, and how many records it has.
func modelPcap(data []byte) (packets []modelPacket, records int, roce int, cut bool) {
	all, link, cut := modelRecords(data)
	for i, r := range all {
		if p, ok := modelFrame(link, r.data, r.wire); ok {
			p.t, p.order = r.t, int64(i)
			packets = append(packets, p)
		}
	}
	return packets, len(all), len(packets), cut
}

// modelFrame decodes a captured frame of a link type; ok is false for what is not RoCE.
func modelFrame(link int, b []byte, wireLen int) (p modelPacket, ok bool) {
	be := binary.BigEndian
	p.syndrome, p.srcQP = -1, -1
	t, o := 0, 0
	switch {
	case link == genEthernet && len(b) >= 14:
		t, o = int(be.Uint16(b[12:])), 14
		p.mac = string(b[6:12])
	case link == genSLL && len(b) >= 16:
		t, o = int(be.Uint16(b[14:])), 16
	case link == genSLL2 && len(b) >= 20:
		t, o = int(be.Uint16(b)), 20
	case link == genRaw && len(b) > 0:
		t = map[byte]int{4: 0x0800, 6: 0x86dd}[b[0]>>4]
	}
	if t == 0x8808 && len(b) >= o+4 {
		p.pause = b[o:]
		return p, false
	}
	for (t == 0x8100 || t == 0x88a8) && len(b) >= o+4 {
		p.tags = append(p.tags, int(be.Uint16(b[o:])))
		t, o = int(be.Uint16(b[o+2:])), o+4
	}
	tos := 0
	switch {
	case t == 0x0800 && len(b) >= o+20 && b[o+9] == 17:
		tos = int(b[o+1])
		p.ipid = int(be.Uint16(b[o+4:]))
		p.src, p.dst = netip.AddrFrom4([4]byte(b[o+12:o+16])).String(), netip.AddrFrom4([4]byte(b[o+16:o+20])).String()
		o += int(b[o]&15) * 4
	case t == 0x86dd && len(b) >= o+40 && b[o+6] == 17:
		tos = int(be.Uint16(b[o:])>>4) & 255
		p.ipid = -1
		p.src, p.dst = netip.AddrFrom16([16]byte(b[o+8:o+24])).String(), netip.AddrFrom16([16]byte(b[o+24:o+40])).String()
		o += 40
	default:
		return p, false
	}
	if len(b) < o+20 || be.Uint16(b[o+2:]) != 4791 {
		return p, false
	}
	p.sport = int(be.Uint16(b[o:]))
	udp := int(be.Uint16(b[o+4:])) - 8
	p.dscp, p.ecn = tos>>2, tos&3
	h := b[o+8:]
	p.bytes = h
	p.op, p.qp, p.psn = int(h[0]), int(be.Uint32(h[4:])&0xffffff), int(be.Uint32(h[8:])&0xffffff)
	p.ackReq = h[8]&0x80 != 0
	pad := int(h[1]>>4) & 3
	p.wire = wireLen
	p.snapped = len(b) < wireLen
	ext := 0
	switch op := p.op; {
	case op == 0x81:
		ext = 16 // reserved bytes, no payload
	case op == 6 || op == 10 || op == 12 || op == 0x26 || op == 0x2a: // RETH
		ext = 16
	case op == 11 || op == 0x2b: // RETH and immediate
		ext = 20
	case op == 3 || op == 5 || op == 9 || op == 0x23 || op == 0x25 || op == 0x29 || op == 22 || op == 23: // immediate or R_Key
		ext = 4
	case op == 13 || op == 15 || op == 16 || op == 17: // AETH
		ext = 4
	case op == 18: // AETH and the original value
		ext = 12
	case op == 19 || op == 20: // atomic
		ext = 28
	case op == 0x64:
		ext = 8
	case op == 0x65:
		ext = 12
	}
	if op := p.op; op >= 13 && op <= 18 && op != 14 && len(h) >= 16 {
		p.syndrome = int(h[12])
	}
	if op := p.op; (op == 0x64 || op == 0x65) && len(h) >= 20 {
		p.srcQP = int(be.Uint32(h[16:]) & 0xffffff)
	}
	p.payload = udp - 12 - ext - pad - 4
	return p, true
}

func (p *modelPacket) key() string {
	if p.srcQP >= 0 {
		return fmt.Sprintf("%s/0x%06x>%s:0x%06x", p.src, p.srcQP, p.dst, p.qp)
	}
	return fmt.Sprintf("%s>%s:0x%06x", p.src, p.dst, p.qp)
}

func (p *modelPacket) isRequest() bool {
	return p.op <= 12 || p.op == 19 || p.op == 20 || p.op == 22 || p.op == 23 || (p.op >= 0x20 && p.op <= 0x2b) || p.op == 0x64 || p.op == 0x65
}
func (p *modelPacket) isReadReq() bool  { return p.op == 12 }
func (p *modelPacket) isReadResp() bool { return p.op >= 13 && p.op <= 16 }
func (p *modelPacket) isAck() bool      { return p.op == 17 || p.op == 18 }
func (p *modelPacket) isCNP() bool      { return p.op == 0x81 }
func (p *modelPacket) isAtomic() bool   { return p.op == 19 || p.op == 20 }
func (p *modelPacket) isData() bool     { return (p.isRequest() && !p.isReadReq()) || p.isReadResp() }
func (p *modelPacket) isFirst() bool {
	switch p.op {
	case 0, 4, 5, 6, 10, 11, 13, 16, 23, 0x20, 0x24, 0x25, 0x26, 0x2a, 0x2b, 0x64, 0x65:
		return true
	}
	return p.isAtomic()
}
func (p *modelPacket) isLast() bool {
	switch p.op {
	case 2, 3, 4, 5, 8, 9, 10, 11, 15, 16, 22, 23, 0x22, 0x23, 0x24, 0x25, 0x28, 0x29, 0x2a, 0x2b, 0x64, 0x65:
		return true
	}
	return p.isAtomic()
}
func (p *modelPacket) positive() bool { return p.syndrome>>5 == 0 }

// operation is what a data packet is part of.
func (p *modelPacket) operation() string {
	switch {
	case p.isReadResp():
		return "read"
	case p.isAtomic():
		return "atomic"
	case p.op&31 >= 6 && p.op&31 <= 11 && p.op>>5 != 3:
		return "write"
	}
	return "send"
}

func modelDiff(a, b int) int { // a - b in 24-bit serial arithmetic
	d := (a - b) & 0xffffff
	if d >= 1<<23 {
		d -= 1 << 24
	}
	return d
}
