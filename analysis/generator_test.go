package analysis

import (
	"bytes"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sort"
)

// The generator simulates queue pairs around a tap and writes what the tap sees, with an encoder of its own. It knows
// what it did, so tests can hold the analysis to it.
//
//	sender ──(loss, reorder, duplicates, CE marks)──> tap ──(loss)──> receiver
//	sender <──(loss)── tap <──(loss)── receiver        acknowledgements, NAKs, CNPs
//
// Here: what can be asked for, the clock, the lives of QPs. generator_qp_test.go: one queue pair. generator_cm_test.go:
// handshakes, datagrams, pause frames. generator_frame_test.go: the encoder. generator_write_test.go: taps and files.

type genParams struct {
	seed                uint64
	pairs               int     // queue pairs
	hosts               int     // senders; all send to one receiver
	messages            int     // per life
	writes              int     // all of them are WRITEs of so many bytes
	lives               int     // of each QP number
	reuse               string  // PSNs of the next life: "" far away, "near" a step back, "cm" anywhere after a handshake
	lossBefore          float64 // before the tap, data
	lossAfter           float64 // after the tap, data
	ackLoss             float64 // each side of the tap
	readLoss            bool    // READ requests and responses are lost, reordered and doubled like others
	tapLoss             float64 // passes the tap unseen
	reorder, duplicate  float64
	ce                  float64
	cnpScope            string // what the receiver counts CNPs together by; "" is the QP, "none": a CNP for each mark
	react               bool   // senders halve their rate at a CNP and recover
	selective           bool   // senders resend what is missing alone, receivers keep what comes behind a gap
	samePSN             bool   // QPs start at the same PSN, and their numbers cross
	bidirectional, uc   bool
	ud, pfc, aliases    bool // datagrams beside; pause frames; the receiver has two IPv4 addresses
	ipv6, vlan          bool
	tags                bool   // of all kinds, by QP: none, VID 5, VID 0, two tags
	link                string // "" Ethernet; "sll", "sll2", "raw"
	nearWrap            bool
	snap, mtu, window   int
	mirrors             bool // every packet twice, the copy with a lower TTL
	ipidZero            bool // as some NICs do
	icrc                bool // valid; else zeros
	corrupt             float64
	readShare, imm, big bool
	skip                int     // records at the start that the capture missed
	oneWay              string  // "data", "answers": only packets to, or from, the receiver were captured
	late                float64 // records written late, by less than the window in which they are sorted
	tick                int64   // resolution of the timestamps; 0 is 1 ns
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
	records []genRecord // by time
	halves  []*genHalf
	conns   []*genConn // handshakes
	ipid    uint16
	madPSN  map[netip.Addr]int
	lastCNP map[string]int64 // by what the receiver paces
	id      int
}

// genRecord is a packet at the tap.
type genRecord struct {
	t     int64
	frame []byte
	wire  int    // its length on the wire where the frame is cut, else 0
	conn  string // the direction and life it belongs to; "" for what is not RoCE
	id    int    // of the packet: a mirror's copy has the same
	copy_ bool   // it was seen before
	bad   bool   // its ICRC is wrong
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

// genLife is what is the same in all lives of a pair of QPs.
type genLife struct {
	src, dst     netip.Addr
	srcQP, dstQP int
	sport        int
	shared       int // first PSN where all start at the same
	index        int
	psns         [2]int // where the life before started
	tags         [][2]uint16
}

func generate(p genParams) *gen {
	g := &gen{p: p, r: rand.New(rand.NewPCG(p.seed, 7)), madPSN: map[netip.Addr]int{}, lastCNP: map[string]int64{}}
	shared := g.r.IntN(1 << 20) // far from the other lives
	for i := range p.pairs {
		l := &genLife{src: netip.AddrFrom4([4]byte{192, 0, 2, byte(11 + i%p.hosts)}), dst: netip.AddrFrom4([4]byte{192, 0, 2, 100}), shared: shared, index: i}
		if p.aliases && i/p.hosts%2 == 1 {
			l.dst = netip.AddrFrom4([4]byte{192, 0, 2, 101})
		}
		if p.ipv6 && i%2 == 1 {
			l.src, l.dst = netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", 11+i%p.hosts)), netip.MustParseAddr("2001:db8::64")
		}
		l.srcQP, l.dstQP = 0x100+i, 0x200+i
		if p.samePSN { // QP numbers cross: what one pair has at the sender another has at the receiver
			l.srcQP, l.dstQP = 0x11+i, 0x11+(p.pairs-1-i)
		}
		l.sport = 49152 + g.r.IntN(1000)
		switch {
		case p.vlan:
			l.tags = [][2]uint16{{0x8100, 0x6005}}
		case p.tags:
			l.tags = [][][2]uint16{nil, {{0x8100, 0x6005}}, {{0x8100, 0x6000}}, {{0x88a8, 0x0007}, {0x8100, 0xa064}}}[i%4]
		}
		g.life(1, l)
	}
	if p.ud {
		g.datagrams()
	}
	if p.pfc && p.link == "" {
		g.pauses()
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
	g.capture()
	return g
}

// capture makes of what passed the tap what the capture holds.
func (g *gen) capture() {
	var kept []genRecord
	for _, r := range g.records {
		if r.bad = g.chance(g.p.corrupt); r.bad {
			r.frame[len(r.frame)-1] ^= 1
		}
		toReceiver := g.toReceiver(r.frame)
		if g.p.oneWay == "data" && !toReceiver || g.p.oneWay == "answers" && toReceiver {
			continue
		}
		r.t -= r.t % max(g.p.tick, 1)
		kept = append(kept, r)
	}
	sort.SliceStable(kept, func(i, j int) bool { return kept[i].t < kept[j].t })
	g.records = markCopies(kept[min(g.p.skip, len(kept)):])
}

// markCopies marks what is seen again, in order of time.
func markCopies(records []genRecord) []genRecord {
	seen := map[int]bool{}
	for i := range records {
		r := &records[i]
		r.copy_ = r.id > 0 && seen[r.id]
		seen[r.id] = true
	}
	return records
}

// toReceiver: by its name where it belongs to a queue pair.
func (g *gen) toReceiver(frame []byte) bool {
	p, ok := modelFrame(g.link(), frame, len(frame))
	return !ok || p.dst == "192.0.2.100" || p.dst == "192.0.2.101" || p.dst == "2001:db8::64"
}

// life starts life n of a queue pair; the next begins when it is done.
func (g *gen) life(n int, l *genLife) {
	suffix := ""
	if n > 1 {
		suffix = fmt.Sprintf("#%d", n)
	}
	uc := g.p.uc && l.index%3 == 2
	half := func(src, dst netip.Addr, qp, side int) *genHalf {
		l.psns[side] = g.startPSN(n, l, side)
		return &genHalf{g: g, name: fmt.Sprintf("%s>%s:0x%06x%s", src, dst, qp, suffix), src: src, dst: dst, qp: qp, sport: l.sport, tags: l.tags,
			uc: uc, start: l.psns[side], base: 0, pace: 1, kept: map[int]bool{}}
	}
	a, b := half(l.src, l.dst, l.dstQP, 0), half(l.dst, l.src, l.srcQP, 1)
	a.back, b.back = b, a
	reads := 0.0
	if g.p.readShare && !uc {
		reads = []float64{0, 0.3, 0, 1}[l.index%4]
	}
	a.load(g.workload(uc, reads))
	if g.p.bidirectional && l.index%2 == 0 && !uc {
		b.load(g.workload(false, 0))
	}
	g.halves = append(g.halves, a, b)
	left := 1
	if len(b.packets) > 0 {
		left = 2
	}
	var conn *genConn
	done := func() {
		if left--; left > 0 {
			return
		}
		if conn != nil {
			g.disconnect(conn)
		}
		if n < g.p.lives {
			g.at(5_000_000, func() { g.life(n+1, l) })
		}
	}
	a.onDone, b.onDone = done, done
	stagger := int64(g.r.IntN(300_000))
	if g.p.reuse == "cm" {
		conn = g.connect(a, b)
		stagger += 200_000
	}
	g.at(stagger, func() { a.kick(); a.arm() })
	if len(b.packets) > 0 {
		g.at(stagger+int64(g.r.IntN(50_000)), func() { b.kick(); b.arm() })
	}
}

// startPSN picks where life n starts, so that the definition of another life (docs/analysis.md) holds.
func (g *gen) startPSN(n int, l *genLife, side int) int {
	before := l.psns[side]
	switch {
	case n > 1 && g.p.reuse == "near": // farther back than all that was sent, and 64
		return (before - 400 - g.r.IntN(2000)) & 0xffffff
	case n > 1 && g.p.reuse == "cm":
		return (before + []int{0, 3, -3, 5000}[g.r.IntN(4)]) & 0xffffff
	case g.p.samePSN && n == 1:
		return l.shared
	case g.p.nearWrap:
		return (1<<24 - 1 - g.r.IntN(50) + (n-1)<<22) & 0xffffff
	}
	return ((2*l.index+side)<<15 + g.r.IntN(1<<14) + n<<21) & 0xffffff // QPs and lives are far from each other
}

// tap records a frame of h's direction.
func (g *gen) tap(h *genHalf, f []byte) { g.record(h.name, f, h.src.Is6()) }

func (g *gen) record(conn string, f []byte, v6 bool) {
	if g.chance(g.p.tapLoss) {
		return
	}
	g.id++
	g.records = append(g.records, genRecord{t: genEpoch + g.now, frame: bytes.Clone(f), conn: conn, id: g.id})
	if g.p.mirrors && conn != "" {
		c := bytes.Clone(f)
		ttl := ipOffset(g.link(), f) + 8
		if v6 {
			ttl--
		}
		c[ttl]--
		g.records = append(g.records, genRecord{t: genEpoch + g.now + 300, frame: c, conn: conn, id: g.id})
	}
}
