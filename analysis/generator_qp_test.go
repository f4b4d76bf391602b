package analysis

import "net/netip"

// genHalf is one direction of a queue pair in one life: a sender with a go-back-N or selective window, and its receiver.
type genHalf struct {
	g          *gen
	name       string // direction id
	src, dst   netip.Addr
	qp         int // destination
	sport      int
	tags       [][2]uint16
	uc         bool
	packets    []genPacket
	psns       []int // of packets, not wrapped
	start      int   // PSN of packets[0]
	base, next int   // sender: first unacknowledged, next to send
	highSent   int
	pace       float64 // 1 is full rate
	expected   int     // receiver
	kept       map[int]bool
	nakSent    bool
	back       *genHalf
	onDone     func()
	done       bool
	sending    bool
	progress   int
	busy       int64
	readNext   int // requester: response of the READ at base that comes next
	reread     bool

	lostBefore, resentSeen, seen, dupCopies int64
	cnps                                    int64
	restarts, alone                         int64 // steps back of the sender that sent again, and packets sent again alone
	lastSent                                int
	rewound                                 bool
}

type genPacket struct {
	op, payload, dmalen int
	ackReq              bool
	psns                int // numbers it takes
}

// workload is messages of all kinds, READs with the chance reads.
func (g *gen) workload(uc bool, reads float64) (ps []genPacket) {
	for range g.p.messages {
		size := 1 + g.r.IntN(6*g.p.mtu)
		if g.chance(0.3) {
			size = 1 + g.r.IntN(g.p.mtu)
		}
		n := (size + g.p.mtu - 1) / g.p.mtu
		kind := g.r.IntN(4)
		if g.p.writes > 0 {
			size, kind = g.p.writes, 0
			n = (size + g.p.mtu - 1) / g.p.mtu
		}
		switch {
		case g.chance(reads):
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
			inv := g.p.imm && kind == 1 && size&1 == 1 && !uc // SEND with invalidate
			switch {
			case first && last && inv:
				p.op = 23
			case last && inv:
				p.op = 22
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

func (h *genHalf) load(ps []genPacket) {
	h.packets = ps
	n := h.start
	for _, p := range ps {
		h.psns = append(h.psns, n)
		n += p.psns
	}
	h.psns = append(h.psns, n)
}

func (h *genHalf) psn(i int) int {
	if i < 0 { // the number before the first
		return (h.start - 1) & 0xffffff
	}
	return h.psns[i] & 0xffffff
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
	h.g.at(int64(float64(genPace+h.g.r.IntN(200))/h.pace), h.sendNext)
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
			h.again(h.base)
		}
		h.arm()
	})
}

// again repeats from packet i on, or packet i alone.
func (h *genHalf) again(i int) {
	if h.g.p.selective && h.packets[i].op != 12 {
		h.alone++
		h.send(i)
		return
	}
	h.next = i
	h.rewound = true
	h.kick()
}

func (h *genHalf) send(i int) {
	g := h.g
	again := i < h.highSent
	h.highSent = max(h.highSent, i+1)
	if h.rewound && i <= h.lastSent && again {
		h.restarts++
	}
	h.rewound, h.lastSent = false, i
	lossless := h.packets[i].op == 12 && !g.p.readLoss || g.p.reuse == "cm" && i == 0 && !again
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
	h.notify(ce)
	if h.uc {
		return
	}
	p := h.packets[i]
	switch {
	case i == h.expected:
		h.expected++
		h.nakSent = false
		for h.kept[h.expected] {
			h.expected++
		}
		if p.op == 12 {
			h.respond(i)
			return
		}
		if last := h.packets[h.expected-1]; p.ackReq || h.expected > i+1 && last.op != 12 {
			h.ack(h.expected - 1)
		}
		h.refuseNext()
	case i > h.expected && h.g.p.selective && p.op != 12:
		h.kept[i] = true
		h.refuse()
	case i > h.expected:
		h.refuse()
	case p.op == 12:
		h.respond(i)
	case (p.ackReq || h.g.p.selective) && p.op != 12: // who repeats one packet waits for an answer to it
		h.ack(h.expected - 1)
	}
}

// notify sends a CNP where the last one is long enough ago in its scope.
func (h *genHalf) notify(ce bool) {
	g := h.g
	if !ce {
		return
	}
	key, gap := h.name, int64(genCNPGap)
	switch g.p.cnpScope {
	case ScopeIPPair:
		key = h.dst.String() + " " + h.src.String()
	case ScopeDestination:
		key = genMAC(h.dst) + " " + h.src.String()
	case ScopePort:
		key = genMAC(h.dst)
	case "none":
		gap = 0
	}
	if last, ok := g.lastCNP[key]; ok && g.now-last < gap {
		return
	}
	g.lastCNP[key] = g.now
	h.answer(0x81, 0, -1, func() {
		if g.p.react {
			h.pace = max(h.pace/2, 1.0/16)
			g.at(100_000, h.faster)
		}
	})
}

func (h *genHalf) faster() {
	if h.pace = min(h.pace*1.3, 1); h.pace < 1 && !h.done {
		h.g.at(100_000, h.faster)
	}
}

// refuse sends a NAK for the packet that is missing, once.
func (h *genHalf) refuse() {
	if h.nakSent {
		return
	}
	h.nakSent = true
	at := h.expected
	h.answer(17, h.psn(at), 0x60, func() {
		h.progress++
		h.acked(at - 1)
		if at >= h.base {
			h.again(at)
		}
	})
}

// refuseNext asks a selective sender for the next hole.
func (h *genHalf) refuseNext() {
	for i := range h.kept {
		if i > h.expected {
			h.refuse()
			return
		}
	}
}

func (h *genHalf) ack(i int) {
	for ; i >= 0 && h.packets[i].op == 12; i-- { // READs are answered by their data
	}
	if i < 0 {
		return
	}
	kind := 17
	if op := h.packets[i].op; op == 19 || op == 20 {
		kind = 18
	}
	h.answer(kind, h.psn(i), 0x1f, func() { h.acked(i) })
}

func (h *genHalf) acked(i int) {
	if i+1 > h.base {
		h.base = i + 1
		h.progress++
		h.readNext, h.reread = 0, false
		h.next = max(h.next, h.base)
		h.kick()
		if h.base == len(h.packets) {
			h.finish()
		}
	}
}

// respond sends the answer to READ request i.
func (h *genHalf) respond(i int) {
	g, p := h.g, h.packets[i]
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
		payload := min(g.p.mtu, p.dmalen-k*g.p.mtu)
		f := g.frame(h.back, op, (h.psn(i)+k)&0xffffff, false, payload, 0, syn, 2)
		h.busy = max(h.busy+500, g.now+2000) // in order, whatever the requests' spacing
		if g.p.readLoss && g.chance(g.p.lossBefore) {
			continue
		}
		g.at(h.busy-g.now, func() {
			g.tap(h.back, f)
			if g.p.readLoss && g.chance(g.p.lossAfter) {
				return
			}
			g.at(genToTap, func() { h.responded(i, k) })
		})
	}
}

// responded is the requester: a gap in the responses makes it read again.
func (h *genHalf) responded(i, k int) {
	before := h.base
	for before < i && h.packets[before].op != 12 {
		before++
	}
	if before == i { // a response acknowledges what was sent before its request
		h.acked(i - 1)
	}
	switch {
	case i < h.base:
	case i == h.base && k == h.readNext:
		if h.readNext++; h.readNext == h.packets[i].psns {
			h.acked(i)
		}
	case !h.reread && (i > h.base || k > h.readNext):
		h.reread, h.readNext = true, 0
		h.again(h.base)
	case i == h.base && k == 0:
		h.readNext = 1
	}
}

// answer sends a control packet back past the tap; then runs when it arrives.
func (h *genHalf) answer(op, psn, syndrome int, then func()) {
	g := h.g
	if g.chance(g.p.ackLoss) {
		return
	}
	f := g.frame(h.back, op, psn, false, 0, 0, syndrome, 0)
	delay := int64(1000)
	if op != 0x81 { // behind the responses to READs
		delay = max(delay, h.busy-g.now+1)
	}
	g.at(delay, func() {
		g.tap(h.back, f)
		if op == 0x81 {
			h.cnps++
		}
		if !g.chance(g.p.ackLoss) {
			g.at(genToTap, then)
		}
	})
}
