package analysis

import "slices"

// binClock maps time to bins. It keeps the edges of the current bin, so that a packet costs a comparison.
type binClock struct {
	width  int64
	origin int64
	lo, hi int64 // edges of bin cur
	cur    int
	last   int // highest bin used

	budget int // on cells of all directions
	cells  int
}

func (c *binClock) start(ts int64) {
	c.origin = ts
	c.lo, c.hi, c.cur = ts, ts+c.width, 0
}

// tick moves to the bin of ts. What is older than the first packet falls into the first bin.
func (c *binClock) tick(ts int64) {
	if ts >= c.lo && ts < c.hi {
		return
	}
	c.seek(ts)
}

func (c *binClock) seek(ts int64) {
	c.cur = int(max(ts-c.origin, 0) / c.width)
	c.lo = c.origin + int64(c.cur)*c.width
	c.hi = c.lo + c.width
	c.last = max(c.last, c.cur)
}

// cell gives d's cell of the current bin.
func (e *engine) cell(d *direction) *cell {
	i := e.bins.cur - d.firstBin
	if uint(i) < uint(len(d.cells)) {
		return &d.cells[i]
	}
	return e.growCells(d)
}

func (e *engine) growCells(d *direction) *cell {
	if len(d.cells) == 0 {
		d.firstBin = e.bins.cur
	}
	for e.bins.cells+max(e.bins.cur-d.firstBin+1-len(d.cells), d.firstBin-e.bins.cur) > e.bins.budget && e.bins.cells > 0 {
		before := e.bins.cells
		e.coarsen()
		if e.bins.cells == before { // nothing left to merge: more directions than cells
			break
		}
		if len(d.cells) == 0 {
			d.firstBin = e.bins.cur
		}
	}
	if back := d.firstBin - e.bins.cur; back > 0 { // an older packet after a newer one
		d.cells = slices.Insert(d.cells, 0, make([]cell, back)...)
		d.firstBin = e.bins.cur
		e.bins.cells += back
	}
	i := e.bins.cur - d.firstBin
	if grow := i + 1 - len(d.cells); grow > 0 {
		e.bins.cells += grow
		d.cells = slices.Grow(d.cells, grow)
		n := len(d.cells)
		d.cells = d.cells[:n+grow]
		clear(d.cells[n:])
	}
	return &d.cells[i]
}

// coarsen doubles the width of the bins.
func (e *engine) coarsen() {
	e.bins.width *= 2
	e.bins.last /= 2
	e.bins.seek(e.bins.lo)
	e.bins.cells = 0
	for _, d := range e.all {
		first := d.firstBin / 2
		n := 0
		for i := range d.cells {
			j := (d.firstBin+i)/2 - first
			c := d.cells[i]
			if j >= n {
				d.cells[j] = cell{}
				n = j + 1
			}
			t := &d.cells[j]
			t.unique += c.unique
			t.packets += c.packets
			t.ce += c.ce
			t.cnps += c.cnps
			t.resent += c.resent
		}
		d.firstBin = first
		d.cells = d.cells[:n]
		e.bins.cells += n
	}
}

// segmentClock cuts time at the boundaries of phases and of their trimmed windows. Counts are kept per piece; a phase
// is the sum of its pieces, so phases may overlap.
type segmentClock struct {
	edges  []int64 // piece i is [edges[i], edges[i+1])
	cur    int     // -1 outside
	lo, hi int64
}

func newSegmentClock(o Options) segmentClock {
	c := segmentClock{cur: -1}
	for _, p := range o.Phases {
		from, to := p.window(o.TimeScale)
		c.edges = append(c.edges, p.StartNS, from, to, p.EndNS)
	}
	slices.Sort(c.edges)
	c.edges = slices.Compact(c.edges)
	return c
}

func (c *segmentClock) tick(ts int64) {
	if len(c.edges) == 0 || (ts >= c.lo && ts < c.hi) {
		return
	}
	i, found := slices.BinarySearch(c.edges, ts)
	if !found {
		i--
	}
	switch {
	case i < 0:
		c.cur, c.lo, c.hi = -1, minTime, c.edges[0]
	case i >= len(c.edges)-1:
		c.cur, c.lo, c.hi = -1, c.edges[len(c.edges)-1], maxTime
	default:
		c.cur, c.lo, c.hi = i, c.edges[i], c.edges[i+1]
	}
}

const (
	minTime = -1 << 63
	maxTime = 1<<63 - 1
)

func (e *engine) segment(d *direction) *segment {
	if e.segments.cur < 0 {
		return nil
	}
	if d.segs == nil {
		d.segs = make([]segment, len(e.segments.edges)-1)
	}
	return &d.segs[e.segments.cur]
}

// sum adds up d's pieces within [from, to).
func (c *segmentClock) sum(d *direction, from, to int64) (s segment) {
	if d == nil || d.segs == nil {
		return s
	}
	for i := range d.segs {
		if c.edges[i] >= from && c.edges[i+1] <= to {
			g := &d.segs[i]
			s.unique += g.unique
			s.wire += g.wire
			s.packets += g.packets
			s.ce += g.ce
			s.cnps += g.cnps
			s.resent += g.resent
		}
	}
	return s
}
