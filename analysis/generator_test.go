package analysis

import (
	"bytes"
	"container/heap"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sort"
)

// The generator simulates RC and UC queue pairs around a tap and writes what the tap sees, with an encoder of its own. It
// knows what it did, so tests can hold the analysis to it.
//
//	sender ──(loss, reorder, duplicates, CE marks)──> tap ──(loss)──> receiver
//	sender <──(loss)── tap <──(loss)── receiver        acknowledgements, NAKs, CNPs

type genParams struct {
	seed                uint64
	pairs               int     // queue pairs
	hosts               int     // senders; all send to one receiver
	messages            int     // per life
	lives               int     // of each QP number
	lossBefore          float64 // before the tap, data
	lossAfter           float64 // after the tap, data
	ackLoss             float64 // each side of the tap
	reorder, duplicate  float64
	ce                  float64
	samePSN             bool // QPs start at the same PSN, and their numbers cross
	bidirectional, uc   bool
	ipv6, vlan          bool
	nearWrap            bool
	snap, mtu, window   int
	mirrors             bool // every packet twice, the copy with a lower TTL
	readShare, imm, big bool
}

type genHalf struct {
	g          *gen
	name       string // direction id
	src, dst   netip.Addr
	qp         int // destination
	sport      int
	uc         bool
	packets    []genPacket
	start      int // PSN of packets[0]
	base, next int // sender: first unacknowledged, next to send
	highSent   int
	expected   int // receiver
	nakSent    bool
	lastCNP    int64
	back       *genHalf
	onDone     func()
	done       bool
	sending    bool
	progress   int
	busy       int64

	lostBefore, resentSeen, seen, dupCopies int64
	cnps                                    int64
}

type genPacket struct {
	op, payload, dmalen int
	ackReq              bool
	psns                int // numbers it takes
}

type genEvent struct {
	t   int64
	seq int
	fn  func()
}

type genHeap []genEvent

func (h genHeap) Len() int { return len(h) }
func (h genHeap) Less(i, j int) bool {
	return h[i].t < h[j].t || h[i].t == h[j].t && h[i].seq < h[j].seq
}
func (h genHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *genHeap) Push(x any)   { *h = append(*h, x.(genEvent)) }
func (h *genHeap) Pop() any     { o := *h; x := o[len(o)-1]; *h = o[:len(o)-1]; return x }

type gen struct {
	p       genParams
	r       *rand.Rand
	now     int64
	seq     int
	events  genHeap
	records []genRecord
	halves  []*genHalf
	ipid    uint16
}

type genRecord struct {
	t     int64
	frame []byte
	conn  string
	copy_ bool
}

func (g *gen) at(d int64, fn func()) {
	g.seq++
	heap.Push(&g.events, genEvent{g.now + d, g.seq, fn})
}

func (g *gen) chance(p float64) bool { return p > 0 && g.r.Float64() < p }

const (
	genToTap   = 10_000 // ns
	genFromTap = 5_000
	genPace    = 1_000
	genTimeout = 2_000_000
	genCNPGap  = 50_000
	genEpoch   = int64(1_795_000_000_000_000_000)
)

func generate(p genParams) *gen {
	g := &gen{p: p, r: rand.New(rand.NewPCG(p.seed, 7))}
	shared := g.r.IntN(1 << 20) // far from the other lives
	for i := range p.pairs {
		src, dst := netip.AddrFrom4([4]byte{192, 0, 2, byte(11 + i%p.hosts)}), netip.AddrFrom4([4]byte{192, 0, 2, 100})
		if p.ipv6 && i%2 == 1 {
			src, dst = netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", 11+i%p.hosts)), netip.MustParseAddr("2001:db8::64")
		}
		srcQP, dstQP := 0x100+i, 0x200+i
		if p.samePSN { // QP numbers cross: what one pair has at the sender another has at the receiver
			srcQP, dstQP = 0x11+i, 0x11+(p.pairs-1-i)
		}
		sport := 49152 + g.r.IntN(1000)
		g.life(1, src, dst, srcQP, dstQP, sport, shared, i)
	}
	heap.Init(&g.events)
	for len(g.events) > 0 {
		e := heap.Pop(&g.events).(genEvent)
		g.now = e.t
		e.fn()
		if len(g.records) > 200_000 {
			panic("generator runs away")
		}
	}
	sort.SliceStable(g.records, func(i, j int) bool { return g.records[i].t < g.records[j].t })
	return g
}

// life starts life n of a queue pair; the next begins when it is done.
func (g *gen) life(n int, src, dst netip.Addr, srcQP, dstQP, sport, shared, index int) {
	suffix := ""
	if n > 1 {
		suffix = fmt.Sprintf("#%d", n)
	}
	psn := func() int {
		switch {
		case g.p.samePSN && n == 1:
			return shared
		case g.p.nearWrap:
			return (1<<24 - 1 - g.r.IntN(50) + (n-1)<<22) & 0xffffff
		}
		return (g.r.IntN(1<<20) + n<<21) & 0xffffff // lives are far from each other
	}
	uc := g.p.uc && index%3 == 2
	a := &genHalf{g: g, name: fmt.Sprintf("%s>%s:0x%06x%s", src, dst, dstQP, suffix), src: src, dst: dst, qp: dstQP, sport: sport, uc: uc, start: psn()}
	b := &genHalf{g: g, name: fmt.Sprintf("%s>%s:0x%06x%s", dst, src, srcQP, suffix), src: dst, dst: src, qp: srcQP, sport: sport, uc: uc, start: psn()}
	a.back, b.back = b, a
	a.packets = g.workload(uc, g.p.readShare && index%4 == 3)
	if g.p.bidirectional && index%2 == 0 && !uc {
		b.packets = g.workload(false, false)
	}
	g.halves = append(g.halves, a, b)
	left := 1
	if len(b.packets) > 0 {
		left = 2
	}
	done := func() {
		if left--; left == 0 && n < g.p.lives {
			g.at(5_000_000, func() { g.life(n+1, src, dst, srcQP, dstQP, sport, shared, index) })
		}
	}
	a.onDone, b.onDone = done, done
	stagger := int64(g.r.IntN(300_000))
	g.at(stagger, func() { a.kick(); a.arm() })
	if len(b.packets) > 0 {
		g.at(stagger+int64(g.r.IntN(50_000)), func() { b.kick(); b.arm() })
	}
}

func (g *gen) workload(uc, reads bool) (ps []genPacket) {
	for range g.p.messages {
		size := 1 + g.r.IntN(6*g.p.mtu)
		if g.chance(0.3) {
			size = 1 + g.r.IntN(g.p.mtu)
		}
		n := (size + g.p.mtu - 1) / g.p.mtu
		kind := g.r.IntN(4)
		switch {
		case reads:
			ps = append(ps, genPacket{op: 12, dmalen: size, ackReq: true, psns: n})
			continue
		case kind == 3 && !uc:
			ps = append(ps, genPacket{op: 19 + g.r.IntN(2), ackReq: true, psns: 1})
			continue
		}
		base := 6 // WRITE
		if kind == 1 {
			base = 0 // SEND
		}
		or := 0
		if uc {
			or = 0x20
		}
		for i := range n {
			p := genPacket{payload: min(g.p.mtu, size-i*g.p.mtu), psns: 1}
			first, last := i == 0, i == n-1
			imm := g.p.imm && kind == 2
			switch {
			case first && last && imm:
				p.op = base + 5
			case first && last:
				p.op = base + 4
			case first:
				p.op = base
			case last && imm:
				p.op = base + 3
			case last:
				p.op = base + 2
			default:
				p.op = base + 1
			}
			p.op |= or
			p.ackReq = last && !uc || !uc && g.chance(0.05)
			if first {
				p.dmalen = size
			}
			ps = append(ps, p)
		}
	}
	return ps
}

func (h *genHalf) psn(i int) int {
	n := h.start
	for _, p := range h.packets[:i] { // short lists
		n += p.psns
	}
	return n & 0xffffff
}

func (h *genHalf) index(psn int) int {
	n := h.start
	for i, p := range h.packets {
		if n&0xffffff == psn {
			return i
		}
		n += p.psns
	}
	return -1
}

// kick sends while the window allows.
func (h *genHalf) kick() {
	if !h.sending {
		h.sending = true
		h.sendNext()
	}
}

func (h *genHalf) sendNext() {
	h.sending = false
	if h.next >= len(h.packets) || h.next >= h.base+h.g.p.window && !h.uc {
		return
	}
	h.send(h.next)
	h.next++
	if h.uc {
		h.base = h.next
		if h.next == len(h.packets) {
			h.finish()
		}
	}
	h.sending = true
	h.g.at(genPace+int64(h.g.r.IntN(200)), h.sendNext)
}

func (h *genHalf) finish() {
	if !h.done {
		h.done = true
		h.g.at(1_000_000, h.onDone)
	}
}

func (h *genHalf) arm() {
	if h.uc || h.done {
		return
	}
	seen := h.progress
	h.g.at(genTimeout, func() {
		if h.done {
			return
		}
		if seen == h.progress && h.next > h.base {
			h.rewind(h.base)
		}
		h.arm()
	})
}

func (h *genHalf) rewind(i int) {
	h.next = i
	h.kick()
}

func (h *genHalf) send(i int) {
	g := h.g
	again := i < h.highSent
	h.highSent = max(h.highSent, i+1)
	lossless := h.packets[i].op == 12
	if !lossless && g.chance(g.p.lossBefore) {
		h.lostBefore++
		return
	}
	p := h.packets[i]
	ecn := 2
	if g.chance(g.p.ce) {
		ecn = 3
	}
	f := g.frame(h, p.op, h.psn(i), p.ackReq, p.payload, p.dmalen, -1, ecn)
	delay := int64(genToTap)
	if g.chance(g.p.reorder) && !lossless {
		delay += int64(g.r.IntN(20_000))
	}
	see := func() {
		g.tap(h, f)
		h.seen++
		if again {
			h.resentSeen++
		}
		if !lossless && g.chance(g.p.lossAfter) {
			return
		}
		g.at(genFromTap, func() { h.arrive(i, ecn == 3) })
	}
	g.at(delay, see)
	if g.chance(g.p.duplicate) && !lossless {
		g.at(delay+1, func() { h.dupCopies++; see() })
	}
}

// arrive is the receiver.
func (h *genHalf) arrive(i int, ce bool) {
	g := h.g
	if ce && (h.lastCNP == 0 || g.now-h.lastCNP >= genCNPGap) {
		h.lastCNP = g.now
		h.answer(0x81, 0, -1, func() {})
	}
	if h.uc {
		return
	}
	p := h.packets[i]
	switch {
	case i == h.expected:
		h.expected++
		h.nakSent = false
		if p.op == 12 {
			h.respond(i)
			return
		}
		if p.ackReq {
			h.ack(i, p.op)
		}
	case i > h.expected:
		if !h.nakSent {
			h.nakSent = true
			at := h.expected
			h.answer(17, h.psn(at), 0x60, func() {
				h.progress++
				h.acked(at - 1)
				if at >= h.base {
					h.rewind(at)
				}
			})
		}
	case p.ackReq && p.op != 12:
		h.ack(h.expected-1, p.op)
	}
}

func (h *genHalf) ack(i, op int) {
	kind := 17
	if op == 19 || op == 20 {
		kind = 18
	}
	h.answer(kind, h.psn(i), 0x1f, func() { h.acked(i) })
}

func (h *genHalf) acked(i int) {
	if i+1 > h.base {
		h.base = i + 1
		h.progress++
		h.next = max(h.next, h.base)
		h.kick()
		if h.base == len(h.packets) {
			h.finish()
		}
	}
}

// respond sends the answer to READ request i, without loss.
func (h *genHalf) respond(i int) {
	p := h.packets[i]
	for k := range p.psns {
		op, syn := 14, -1
		switch {
		case p.psns == 1:
			op, syn = 16, 0x1f
		case k == 0:
			op, syn = 13, 0x1f
		case k == p.psns-1:
			op, syn = 15, 0x1f
		}
		payload := min(h.g.p.mtu, p.dmalen-k*h.g.p.mtu)
		f := h.g.frame(h.back, op, (h.psn(i)+k)&0xffffff, false, payload, 0, syn, 2)
		last := k == p.psns-1
		h.busy = max(h.busy+500, h.g.now+2000) // in order, whatever the requests' spacing
		h.g.at(h.busy-h.g.now, func() {
			h.g.tap(h.back, f)
			if last {
				h.acked(i)
			}
		})
	}
}

// answer sends a control packet back past the tap; then runs when it arrives.
func (h *genHalf) answer(op, psn, syndrome int, then func()) {
	g := h.g
	if g.chance(g.p.ackLoss) {
		return
	}
	f := g.frame(h.back, op, psn, false, 0, 0, syndrome, 0)
	g.at(1000, func() {
		g.tap(h.back, f)
		if op == 0x81 {
			h.cnps++
		}
		if !g.chance(g.p.ackLoss) {
			g.at(genToTap, then)
		}
	})
}

func (g *gen) tap(h *genHalf, f []byte) {
	g.records = append(g.records, genRecord{t: genEpoch + g.now, frame: f, conn: h.name})
	if g.p.mirrors {
		c := bytes.Clone(f)
		ttl := 14 + 8
		if g.p.vlan {
			ttl += 4
		}
		if h.src.Is6() {
			ttl--
		}
		c[ttl]--
		g.records = append(g.records, genRecord{t: genEpoch + g.now + 300, frame: c, conn: h.name, copy_: true})
	}
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
	if o := op & 0x1f; op != 0x81 && (o == 3 || o == 5 || o == 9 || o == 11) {
		ib = be.AppendUint32(ib, 42)
	}
	ib = append(ib, make([]byte, payload+pad+4)...)
	b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	if g.p.vlan {
		b = append(b, 0x81, 0, 0x60, 0x05)
	}
	tos := byte(26<<2 | ecn)
	udp := len(ib) + 8
	if h.src.Is6() {
		b = append(b, 0x86, 0xdd, 0x60|tos>>4, tos<<4, 0, 0)
		b = be.AppendUint16(b, uint16(udp))
		b = append(b, 17, 64)
	} else {
		g.ipid++
		b = append(b, 8, 0, 0x45, tos)
		b = be.AppendUint16(b, uint16(udp+20))
		b = be.AppendUint16(b, g.ipid)
		b = append(b, 0x40, 0, 64, 17, 0, 0)
	}
	b = append(append(b, h.src.AsSlice()...), h.dst.AsSlice()...)
	b = be.AppendUint16(b, uint16(h.sport))
	b = be.AppendUint16(b, 4791)
	b = be.AppendUint16(b, uint16(udp))
	b = append(b, 0, 0)
	return append(b, ib...)
}

// pcap writes the records as a capture with ns timestamps.
func (g *gen) pcap() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 0xa1b23c4d)
	b = append(b, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b = le.AppendUint32(b, 262144)
	b = le.AppendUint32(b, 1)
	for _, r := range g.records {
		n := len(r.frame)
		if g.p.snap > 0 {
			n = min(n, g.p.snap)
		}
		b = le.AppendUint32(b, uint32(r.t/1e9))
		b = le.AppendUint32(b, uint32(r.t%1e9))
		b = le.AppendUint32(b, uint32(n))
		b = le.AppendUint32(b, uint32(len(r.frame)))
		b = append(b, r.frame[:n]...)
	}
	return b
}
