package analysis

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// Link types of capture files.
const (
	genEthernet = 1
	genRaw      = 101
	genSLL      = 113
	genSLL2     = 276
)

func (g *gen) link() int {
	switch g.p.link {
	case "raw":
		return genRaw
	case "sll":
		return genSLL
	case "sll2":
		return genSLL2
	}
	return genEthernet
}

// genMAC is the port of an address: that of the receiver has several.
func genMAC(a netip.Addr) string {
	b := a.AsSlice()
	n := b[len(b)-1]
	if n == 101 {
		n = 100
	}
	return string([]byte{2, 0, 0, 0, 0, n})
}

// ipOffset is where the IP header of a frame of ours starts.
func ipOffset(link int, f []byte) int {
	at, off := 0, 0 // of the protocol, and what follows
	switch link {
	case genRaw:
		return 0
	case genEthernet:
		at, off = 12, 14
	case genSLL:
		at, off = 14, 16
	case genSLL2:
		at, off = 0, 20
	}
	for t := binary.BigEndian.Uint16(f[at:]); t == 0x8100 || t == 0x88a8; t = binary.BigEndian.Uint16(f[at:]) {
		at, off = off+2, off+4
	}
	return off
}

// linkHeader is everything before the IP header.
func (g *gen) linkHeader(h *genHalf, t uint16) (b []byte) {
	be := binary.BigEndian
	proto, rest := t, []byte{} // the tags stand between the protocol of the link header and the packet
	for i := len(h.tags) - 1; i >= 0; i-- {
		rest = append(be.AppendUint16(be.AppendUint16(nil, h.tags[i][1]), proto), rest...)
		proto = h.tags[i][0]
	}
	src := genMAC(h.src)
	switch g.link() {
	case genEthernet:
		b = append(append(b, genMAC(h.dst)...), src...)
		b = be.AppendUint16(b, proto)
	case genSLL:
		b = append(b, 0, 0, 0, 1, 0, 6)
		b = append(append(b, src...), 0, 0)
		b = be.AppendUint16(b, proto)
	case genSLL2:
		b = be.AppendUint16(b, proto)
		b = append(b, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6)
		b = append(append(b, src...), 0, 0)
	case genRaw:
		return nil
	}
	return append(b, rest...)
}

// frame encodes a packet of h's direction.
func (g *gen) frame(h *genHalf, op, psn int, ackReq bool, payload, dmalen, syndrome, ecn int) []byte {
	be := binary.BigEndian
	var ib []byte
	pad := -payload & 3
	ib = append(ib, byte(op), byte(pad<<4), 0xff, 0xff)
	ib = be.AppendUint32(ib, uint32(h.qp))
	w := uint32(psn)
	if ackReq {
		w |= 1 << 31
	}
	ib = be.AppendUint32(ib, w)
	switch o := op & 0x1f; {
	case op == 0x81:
		ib = append(ib, make([]byte, 16)...)
		ib[4] |= 0x40
	case o == 6 || o == 10 || o == 11 || o == 12:
		ib = be.AppendUint64(ib, 0x7f0000000000)
		ib = be.AppendUint32(ib, 0x1234)
		ib = be.AppendUint32(ib, uint32(dmalen))
	case o == 19 || o == 20:
		ib = append(ib, make([]byte, 28)...)
	case syndrome >= 0:
		ib = be.AppendUint32(ib, uint32(syndrome)<<24|7)
		if o == 18 {
			ib = append(ib, make([]byte, 8)...)
		}
	}
	if o := op & 0x1f; op != 0x81 && (o == 3 || o == 5 || o == 9 || o == 11 || o == 22 || o == 23) {
		ib = be.AppendUint32(ib, 42)
	}
	return g.wrap(h, ecn, append(ib, make([]byte, payload+pad+4)...))
}

// wrap puts UDP, IP and the link around ib, whose last four bytes are the ICRC.
func (g *gen) wrap(h *genHalf, ecn int, ib []byte) []byte {
	be := binary.BigEndian
	tos := byte(26<<2 | ecn)
	udp := len(ib) + 8
	var ip []byte
	etherType := uint16(0x0800)
	if h.src.Is6() {
		etherType = 0x86dd
		ip = append(ip, 0x60|tos>>4, tos<<4, 0, 0)
		ip = be.AppendUint16(ip, uint16(udp))
		ip = append(ip, 17, 64)
	} else {
		if g.ipid++; g.p.ipidZero {
			g.ipid = 0
		}
		ip = append(ip, 0x45, tos)
		ip = be.AppendUint16(ip, uint16(udp+20))
		ip = be.AppendUint16(ip, g.ipid)
		ip = append(ip, 0x40, 0, 64, 17, 0, 0)
	}
	ip = append(append(ip, h.src.AsSlice()...), h.dst.AsSlice()...)
	ip = be.AppendUint16(ip, uint16(h.sport))
	ip = be.AppendUint16(ip, 4791)
	ip = be.AppendUint16(ip, uint16(udp))
	ip = append(ip, 0, 0)
	ip = append(ip, ib...)
	if g.p.icrc {
		binary.LittleEndian.PutUint32(ip[len(ip)-4:], modelICRC(ip))
	}
	return append(g.linkHeader(h, etherType), ip...)
}

// modelICRC is the invariant CRC (IBTA volume 1, A17.3.3) of a whole IP packet, over a copy with ones in what may change.
func modelICRC(ip []byte) uint32 {
	c := bytes.Clone(ip[:len(ip)-4])
	ones := func(at ...int) {
		for _, i := range at {
			c[i] = 0xff
		}
	}
	udp := 20
	if c[0]>>4 == 6 {
		udp = 40
		c[0] |= 0x0f // traffic class and flow label
		ones(1, 2, 3, 7)
	} else {
		ones(1, 8, 10, 11) // ToS, TTL, checksum
	}
	ones(udp+6, udp+7, udp+8+4) // checksum of UDP; resv8a of BTH
	return crc32.ChecksumIEEE(append(bytes.Repeat([]byte{0xff}, 8), c...))
}
