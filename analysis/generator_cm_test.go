package analysis

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// genConn is a handshake of RDMA-CM for one life of a queue pair.
type genConn struct {
	a, b             *genHalf // a asked
	aID, bID         uint32
	want             Connection
	request, replied int64
}

// Attributes of communication management (IBTA volume 1, table 98).
const (
	genREQ  = 0x10
	genREJ  = 0x12
	genREP  = 0x13
	genRTU  = 0x14
	genDREQ = 0x15
	genDREP = 0x16
)

// connect sends REQ, REP and RTU past the tap, in 40 us. The first pair of hosts is refused once before.
func (g *gen) connect(a, b *genHalf) *genConn {
	ids := func() uint32 { return g.r.Uint32() | 1 }
	c := &genConn{a: a, b: b, aID: ids(), bID: ids()}
	if len(g.conns) == 0 {
		no := &genConn{a: a, b: b, aID: ids(), bID: ids()}
		no.want = Connection{Src: a.src.String(), Dst: a.dst.String(), SrcQP: ptr(uint32(0x999)), SrcPSN: ptr(uint32(77)), State: "rejected", RejectReason: ptr(uint16(28)),
			RequestNS: ptr(genEpoch + g.now)}
		g.conns = append(g.conns, no)
		g.mad(a, genREQ, no.aID, 0, 0x999, 77)
		g.at(30_000, func() { g.mad(b, genREJ, no.bID, no.aID, 0, 28) })
	}
	start := int64(50_000)
	g.conns = append(g.conns, c)
	g.at(start, func() {
		c.want = Connection{Src: a.src.String(), Dst: a.dst.String(), SrcQP: ptr(uint32(b.qp)), DstQP: ptr(uint32(a.qp)),
			SrcPSN: ptr(uint32(a.start)), DstPSN: ptr(uint32(b.start)), State: "established", RequestNS: ptr(genEpoch + g.now), SetupNS: ptr(int64(40_000))}
		g.mad(a, genREQ, c.aID, 0, b.qp, a.start)
	})
	g.at(start+20_000, func() { g.mad(b, genREP, c.bID, c.aID, a.qp, b.start) })
	g.at(start+40_000, func() { g.mad(a, genRTU, c.aID, c.bID, 0, 0) })
	return c
}

func (g *gen) disconnect(c *genConn) {
	c.want.State, c.want.DisconnectNS = "disconnected", ptr(genEpoch+g.now)
	g.mad(c.a, genDREQ, c.aID, c.bID, c.a.qp, 0)
	g.at(20_000, func() { g.mad(c.b, genDREP, c.bID, c.aID, 0, 0) })
}

// mad sends one communication management datagram of h's side (IBTA volume 1, 12.6 and 13.4.2).
func (g *gen) mad(h *genHalf, attribute int, local, remote uint32, qp, psn int) {
	be := binary.BigEndian
	b := make([]byte, 256)
	b[0], b[1], b[2], b[3] = 1, 7, 2, 3 // base version, class, class version, method Send
	be.PutUint64(b[8:], uint64(local))
	be.PutUint16(b[16:], uint16(attribute))
	d := b[24:]
	be.PutUint32(d, local)
	be.PutUint32(d[4:], remote)
	switch attribute {
	case genREQ:
		be.PutUint32(d[4:], 0)
		be.PutUint64(d[8:], 0x0000_0000_0106_4853) // service of TCP port 18515
		be.PutUint32(d[32:], uint32(qp)<<8)
		be.PutUint32(d[44:], uint32(psn)<<8)
	case genREP:
		be.PutUint32(d[12:], uint32(qp)<<8)
		be.PutUint32(d[20:], uint32(psn)<<8)
	case genREJ:
		be.PutUint16(d[10:], uint16(psn)) // the reason
	case genDREQ:
		be.PutUint32(d[8:], uint32(qp)<<8)
	}
	g.madPSN[h.src]++
	g.datagram(h, 1, 1, g.madPSN[h.src], 0x80010000, b)
}

// datagram sends a UD SEND in h's direction.
func (g *gen) datagram(h *genHalf, qp, srcQP, psn int, key uint32, payload []byte) {
	be := binary.BigEndian
	ib := []byte{0x64, byte(-len(payload)&3) << 4, 0xff, 0xff}
	ib = be.AppendUint32(ib, uint32(qp))
	ib = be.AppendUint32(ib, uint32(psn&0xffffff))
	ib = be.AppendUint32(ib, key)
	ib = be.AppendUint32(ib, uint32(srcQP))
	ib = append(ib, payload...)
	ib = append(ib, make([]byte, -len(payload)&3+4)...)
	conn := fmt.Sprintf("%s/0x%06x>%s:0x%06x", h.src, srcQP, h.dst, qp)
	g.record(conn, g.wrap(h, 2, ib), h.src.Is6())
}

// datagrams lets two QPs of one host send to one QP of the receiver.
func (g *gen) datagrams() {
	for k := range 2 {
		h := &genHalf{g: g, src: netip.AddrFrom4([4]byte{192, 0, 2, 11}), dst: netip.AddrFrom4([4]byte{192, 0, 2, 100}), sport: 50000 + k}
		psn := g.r.IntN(1 << 24)
		for i := range 5 + g.r.IntN(20) {
			payload := make([]byte, g.r.IntN(1000))
			g.at(int64(i)*7_000+int64(g.r.IntN(6_000)), func() {
				if g.chance(g.p.lossBefore) {
					return
				}
				g.datagram(h, 0x77, 0x500+k, psn+i, 0x11111111, payload)
			})
		}
	}
}

// pauses lets two ports send PFC and PAUSE frames (IEEE 802.1Qbb, 802.3 annex 31B) over the first milliseconds.
func (g *gen) pauses() {
	be := binary.BigEndian
	for i := range 4 + g.r.IntN(40) {
		f := append([]byte{1, 0x80, 0xc2, 0, 0, 1}, 2, 0, 0, 0, 1, byte(g.r.IntN(2)))
		f = append(f, 0x88, 0x08)
		quanta := func() uint16 {
			if g.chance(0.3) {
				return 0
			}
			return uint16(g.r.IntN(0x10000) >> g.r.IntN(12))
		}
		if g.chance(0.2) {
			f = append(f, 0, 1)
			f = be.AppendUint16(f, quanta())
		} else {
			f = append(f, 1, 1)
			f = be.AppendUint16(f, uint16(g.r.IntN(4)<<3|g.r.IntN(2))) // priorities 4, 3 and 0, or none
			for range 8 {
				f = be.AppendUint16(f, quanta())
			}
		}
		f = append(f, make([]byte, 60-len(f))...)
		g.at(int64(i)*40_000+int64(g.r.IntN(40_000)), func() { g.record("", f, false) })
	}
}
