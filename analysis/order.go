package analysis

import (
	"cmp"
	"math"
	"slices"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// order puts the records of the judged captures into one sequence by time. Here, and only here, every packet passes in
// order, one goroutine at a time: copies are removed, what must see all flows together looks on, and each record goes
// to the lane of its pair of hosts.
type order struct {
	o      *Options
	window int64 // records that are late by less are sorted; negative: file order
	queues []queue
	intern *interner
	sides  *sideStore
	lanes  []*lane
	full   func(*lane) // takes a lane's full chunk and gives it an empty one
	dedup  *dedup
	next   int32 // lane of the next new pair

	pauses   *pauses
	scopes   *cnpScopes
	arrivals *arrivals

	started                    bool
	originNS, lastNS           int64
	packets, removed           int64
	truncated, pauseFrames     int64
	icrcChecked, icrcBad, late int64
	mirrored, ceData, ceAcks   int64
	fecn, becn                 int64
	opcodes                    [256]int64
}

// queue holds what is parsed of one source and not handed out: stretches that are sorted and follow each other.
type queue struct {
	runs  []stretch
	high  int64 // highest time seen
	ended bool
}

type stretch struct {
	recs []record
	from *parsed // to be used again with recs; nil when it was merged
}

// chunk is a lane's portion of records.
type chunk struct {
	n    int
	recs [chunkRecords]record
}

// chunkRecords is how many.
const chunkRecords = 1024

// maxHeld bounds the records that wait for late ones.
const maxHeld = 1 << 18

func newOrder(o *Options, sources int, intern *interner, sides *sideStore, lanes []*lane) *order {
	x := &order{o: o, window: int64(o.ReorderWindow), queues: make([]queue, sources), intern: intern, sides: sides, lanes: lanes,
		pauses: newPauses(o.LinkRateBps), scopes: newCNPScopes(), arrivals: newArrivals(o)}
	for i := range x.queues {
		x.queues[i].high = math.MinInt64
	}
	if o.DedupWindow > 0 {
		x.dedup = newDedup(int64(o.DedupWindow))
	}
	return x
}

// add takes the next batch of source i. The batch belongs to the queue until its records are handed out.
//
// A record that is late by no more than the window is put where it belongs. One that is later goes to the front of what is
// not handed out for certain, which is the same place whatever the batches are.
func (x *order) add(i int, p *parsed, recycle func(*parsed)) {
	x.packets += p.packets
	x.truncated += p.truncated
	q := &x.queues[i]
	recs := p.records
	if len(recs) == 0 {
		recycle(p)
		return
	}
	if p.sorted && recs[0].ts >= q.high {
		q.high = recs[len(recs)-1].ts
		q.runs = append(q.runs, stretch{recs, p})
		return
	}
	window := max(x.window, 0)
	for j := range recs {
		r := &recs[j]
		if q.high = max(q.high, r.ts); r.ts < q.high-window {
			r.key = q.high - window
			x.late++
		}
	}
	if window > 0 {
		slices.SortStableFunc(recs, byKey)
	}
	switch n := len(q.runs); {
	case n == 0 || recs[0].key >= q.runs[n-1].last():
		q.runs = append(q.runs, stretch{recs, p})
	case recs[len(recs)-1].key < q.head(): // all of them are late
		q.runs = slices.Insert(q.runs, 0, stretch{recs, p})
	default:
		q.merge(recs, recycle)
		recycle(p)
	}
}

func byKey(a, b record) int { return cmp.Compare(a.key, b.key) }

func (r *stretch) last() int64 { return r.recs[len(r.recs)-1].key }

// merge sorts recs into the stretches that they overlap.
func (q *queue) merge(recs []record, recycle func(*parsed)) {
	n := len(q.runs)
	for n > 0 && q.runs[n-1].last() > recs[0].key {
		n--
	}
	var all []record
	for i := n; i < len(q.runs); i++ {
		all = append(all, q.runs[i].recs...)
		if q.runs[i].from != nil {
			recycle(q.runs[i].from)
		}
	}
	all = append(all, recs...)
	slices.SortStableFunc(all, byKey)
	q.runs = append(q.runs[:n], stretch{recs: all})
}

// end says that source i has no more batches.
func (x *order) end(i int) { x.queues[i].ended = true }

// safe is the key below which no record of the queue will come.
func (q *queue) safe(window int64) int64 {
	switch {
	case q.ended:
		return math.MaxInt64
	case q.high == math.MinInt64:
		return math.MinInt64
	}
	return q.high - max(window, 0)
}

// emit hands out all records that nothing older can precede. Of records with one key those of the first source go first,
// and those of one source in file order.
func (x *order) emit(recycle func(*parsed)) {
	limit, owner := int64(math.MaxInt64), 0
	held := 0
	for i := range x.queues {
		if safe := x.queues[i].safe(x.window); safe < limit {
			limit, owner = safe, i
		}
		for _, r := range x.queues[i].runs {
			held += len(r.recs)
		}
	}
	for {
		first, second := -1, -1
		for i := range x.queues {
			switch k := x.queues[i].head(); {
			case k == math.MaxInt64:
			case first < 0 || k < x.queues[first].head():
				first, second = i, first
			case second < 0 || k < x.queues[second].head():
				second = i
			}
		}
		if first < 0 {
			return
		}
		to := limit // not included
		if limit < math.MaxInt64 && first <= owner {
			to++
		}
		if x.queues[first].head() >= to && held <= maxHeld {
			return
		}
		if second >= 0 {
			if k := x.queues[second].head(); first < second { // ties are the first's
				to = min(to, k+1)
			} else {
				to = min(to, k)
			}
		}
		held -= x.queues[first].emit(x, to, recycle)
	}
}

// head is the key of the queue's first record.
func (q *queue) head() int64 {
	if len(q.runs) == 0 {
		return math.MaxInt64
	}
	return q.runs[0].recs[0].key
}

// emit hands out the records of the first stretch with keys below to, at least one.
func (q *queue) emit(x *order, to int64, recycle func(*parsed)) (n int) {
	r := &q.runs[0]
	for n < len(r.recs) && (n == 0 || r.recs[n].key < to) {
		x.hand(&r.recs[n])
		n++
	}
	if r.recs = r.recs[n:]; len(r.recs) == 0 {
		if r.from != nil {
			recycle(r.from)
		}
		q.runs = append(q.runs[:0], q.runs[1:]...)
	}
	return n
}

// hand passes one record on.
func (x *order) hand(r *record) {
	if r.recFlags&recPause != 0 {
		s := x.sides.take(r.word)
		x.pauseFrames++
		x.pauses.see(r.ts, s.kind, &s.pause)
		return
	}
	pair := x.intern.pair(r.pair)
	if x.dedup != nil && x.dedup.copyOf(r, &pair.way[r.pair&1]) {
		x.removed++
		return
	}
	if !x.started {
		x.started = true
		x.originNS = r.ts
		for _, l := range x.lanes {
			l.start(r.ts)
		}
	}
	x.lastNS = max(x.lastNS, r.ts)
	if r.recFlags&^recSide != 0 {
		x.flags(r)
	}
	if r.psn&(flagFECN|flagBECN) != 0 {
		x.fecn += int64(r.psn / flagFECN & 1)
		x.becn += int64(r.psn / flagBECN & 1)
	}
	op := r.op()
	x.opcodes[op]++
	switch {
	case op == roce.CNP:
		x.scopes.see(r.ts, r.mac(), pair.src(r.pair), pair.dst(r.pair), r.qp())
	case dataOps[op]:
		if r.tos&3 == roce.CE {
			x.ceData++
		}
		x.arrivals.see(r.ts, pair.dst(r.pair), int(r.wire))
	case r.tos&3 == roce.CE && isControl(op):
		x.ceAcks++
	}
	if pair.lane < 0 {
		pair.lane = x.next
		x.next = (x.next + 1) % int32(len(x.lanes))
	}
	l := x.lanes[pair.lane]
	c := l.cur
	c.recs[c.n] = *r
	if c.n++; c.n == len(c.recs) {
		x.full(l)
	}
}

// flush hands the lanes what they have not got yet.
func (x *order) flush() {
	for _, l := range x.lanes {
		if l.cur.n > 0 {
			x.full(l)
		}
	}
}

func (x *order) flags(r *record) {
	if r.recFlags&recMirrored != 0 {
		x.mirrored++
	}
	if r.recFlags&(recICRCGood|recICRCBad) != 0 {
		x.icrcChecked++
		if r.recFlags&recICRCBad != 0 {
			x.icrcBad++
		}
	}
}

func (p *hostPair) src(id pairID) addrID {
	if id&1 == 0 {
		return p.a
	}
	return p.b
}

func (p *hostPair) dst(id pairID) addrID { return p.src(id ^ 1) }

// dataOps are the opcodes that carry data: requests other than READ requests, and READ responses.
var dataOps = func() (t [256]bool) {
	for i := range t {
		op := roce.Opcode(i)
		t[i] = op.IsRequest() && !op.IsReadRequest() || op.IsReadResponse()
	}
	return t
}()
