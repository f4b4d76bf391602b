package analysis

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
)

// shared is what all lanes use.
type shared struct {
	intern    *interner
	sides     sideStore
	cmPackets atomic.Int64
}

// The pipeline runs an analysis on a few goroutines that all do the same: take whatever can be done next.
//
//	read (one at a time a source) and decode ──> order (one at a time) ──> lanes (each one at a time)
//
// Its outcome does not depend on how many there are, since records pass order in one sequence and a lane sees its own in
// that sequence.
type pipeline struct {
	o     *Options
	ctx   context.Context
	order *order

	mu       sync.Mutex
	more     sync.Cond
	err      error
	feeds    []*feed
	ordering bool
	flushed  bool
	inFlight int // batches read and not ordered
	queued   int // chunks that wait in lanes
	working  int
	parsed   []*parsed // spare
	chunks   []*chunk  // spare
	halved   int32
	cells    []laneCells
}

// feed is a judged source on its way.
type feed struct {
	s       *source
	reading bool
	ended   bool // no batch will be read any more
	told    bool // order knows
	seq     int  // of the next batch to read
	next    int  // of the next batch to order
	ready   map[int]*parsed
	high    int64 // highest time decoded
}

// laneCells is what a lane holds: bins between the first and last of its directions, but one each.
type laneCells struct {
	cells, dirs int
	halved      int32
}

// atLeast is the least that is left of them after the bins were halved so often.
func (c laneCells) atLeast(halved int32) int {
	n := c.cells
	for i := c.halved; i < halved && n > 0; i++ {
		n = max(n-c.dirs, 0) / 2
	}
	return n
}

const (
	maxLanes   = 16
	lanesFull  = maxLanes
	maxReading = 4
)

type job func(x *parser) error

// run brings all judged packets through; workers is the number of goroutines.
func (p *pipeline) run(workers int, parsers []*parser) error {
	p.more.L = &p.mu
	stop := context.AfterFunc(p.ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.fail(p.ctx.Err())
	})
	defer stop()
	var done sync.WaitGroup
	for i := 1; i < workers; i++ {
		done.Go(func() { p.work(parsers[i]) })
	}
	p.work(parsers[0])
	done.Wait()
	return p.err
}

func (p *pipeline) fail(err error) {
	if p.err == nil {
		p.err = err
	}
	p.more.Broadcast()
}

func (p *pipeline) work(x *parser) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil {
		if err := p.ctx.Err(); err != nil {
			p.fail(err)
			return
		}
		j, finish := p.pick()
		if j == nil {
			if p.working == 0 && p.flushed {
				p.more.Broadcast()
				return
			}
			p.more.Wait()
			continue
		}
		p.working++
		p.mu.Unlock()
		err := j(x)
		p.mu.Lock()
		p.working--
		finish()
		if err != nil {
			p.fail(err)
		}
		p.more.Broadcast()
	}
}

// pick chooses what to do next: lanes when much waits for them, else order, else another batch, else lanes.
func (p *pipeline) pick() (job, func()) {
	if p.queued >= lanesFull {
		if j, f := p.pickLane(); j != nil {
			return j, f
		}
	}
	if j, f := p.pickOrder(); j != nil {
		return j, f
	}
	if j, f := p.pickRead(); j != nil {
		return j, f
	}
	return p.pickLane()
}

// pickLane takes the lane for which most waits.
func (p *pipeline) pickLane() (job, func()) {
	var best *lane
	at := 0
	for i, l := range p.order.lanes {
		if !l.busy && len(l.queue) > 0 && (best == nil || len(l.queue) > len(best.queue)) {
			best, at = l, i
		}
	}
	if best == nil {
		return nil, nil
	}
	best.busy = true
	work := best.queue
	best.queue = best.spareQueue
	p.queued -= len(work)
	halved := p.halved
	return func(*parser) error {
			best.widen(halved)
			for _, c := range work {
				best.take(c)
			}
			return nil
		}, func() {
			best.busy = false
			for _, c := range work {
				c.n = 0
				p.chunks = append(p.chunks, c)
			}
			clear(work)
			best.spareQueue = work[:0]
			p.cells[at] = laneCells{best.cells, best.all.n, best.halved}
			p.widen()
		}
}

// widen lets the bins become twice as wide when there are too many for certain: lanes that have not followed yet
// count with what must be left of theirs. The width at the end does not depend on who came first.
func (p *pipeline) widen() {
	for {
		sum := 0
		for _, c := range p.cells {
			sum += c.atLeast(p.halved)
		}
		if sum <= p.o.MaxCells {
			return
		}
		p.halved++
	}
}

// full takes a lane's chunk. It is called by order.
func (p *pipeline) full(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.queue = append(l.queue, l.cur)
	p.queued++
	if n := len(p.chunks); n > 0 {
		l.cur, p.chunks = p.chunks[n-1], p.chunks[:n-1]
	} else {
		l.cur = new(chunk)
	}
	p.more.Signal()
}

// take is full for a single goroutine: nobody else could do it, and the chunk is still in the cache.
func (p *pipeline) take(l *lane) {
	l.widen(p.halved)
	l.take(l.cur)
	l.cur.n = 0
	for i, o := range p.order.lanes {
		if o == l {
			p.cells[i] = laneCells{l.cells, l.all.n, l.halved}
		}
	}
	p.widen()
}

func (p *pipeline) pickOrder() (job, func()) {
	if p.ordering || p.flushed {
		return nil, nil
	}
	type item struct {
		source int
		p      *parsed
	}
	var items []item
	ended := true
	news := false
	for i, f := range p.feeds {
		for b := f.ready[f.next]; b != nil; b = f.ready[f.next] {
			delete(f.ready, f.next)
			f.next++
			items = append(items, item{i, b})
			f.s.account(b)
		}
		if f.ended && f.next == f.seq && !f.told {
			f.told, news = true, true
			p.order.end(i)
		}
		ended = ended && f.told
	}
	if len(items) == 0 && !news {
		return nil, nil
	}
	p.ordering = true
	var spare []*parsed
	recycle := func(b *parsed) { spare = append(spare, b) }
	return func(*parser) error {
			for _, it := range items {
				p.order.add(it.source, it.p, recycle)
			}
			p.order.emit(recycle)
			if ended {
				p.order.flush()
			}
			return nil
		}, func() {
			p.ordering = false
			p.inFlight -= len(items)
			p.parsed = append(p.parsed, spare...)
			p.flushed = ended
			for width := int64(p.o.Bin); p.order.started && (p.order.lastNS-p.order.originNS)/(width<<p.halved) >= int64(p.o.MaxCells); {
				p.halved++
			}
		}
}

// pickRead reads on where order waits most.
func (p *pipeline) pickRead() (job, func()) {
	if p.inFlight >= maxReading+len(p.feeds) {
		return nil, nil
	}
	var f *feed
	lowest := int64(math.MaxInt64)
	for _, c := range p.feeds {
		if c.ended {
			continue
		}
		if f == nil || c.high < lowest {
			f, lowest = c, c.high
		}
	}
	if f == nil || f.reading {
		return nil, nil
	}
	f.reading = true
	p.inFlight++
	seq := f.seq
	f.seq++
	var b *parsed
	if n := len(p.parsed); n > 0 {
		b, p.parsed = p.parsed[n-1], p.parsed[:n-1]
	} else {
		b = new(parsed)
	}
	ok := false
	return func(x *parser) (err error) {
			var base int64
			if base, ok, err = f.s.read(&x.batch); err != nil || !ok {
				return err
			}
			p.mu.Lock()
			f.reading = false // another may read on while this one decodes
			p.more.Broadcast()
			p.mu.Unlock()
			return x.parse(f.s, base, b)
		}, func() {
			if !ok {
				f.reading, f.ended = false, true
				f.seq--
				p.inFlight--
				p.parsed = append(p.parsed, b)
				return
			}
			f.ready[seq] = b
			if b.timed {
				f.high = max(f.high, b.highNS)
			}
		}
}
