package analysis

import "slices"

// clock maps time to numbered windows of one width. It keeps the edges of the current one, so that a packet costs a
// comparison. What is older than the origin falls into the first window.
type clock struct {
	width, origin int64
	lo, hi        int64 // edges of window cur
	cur, last     int64 // last: highest used
}

func (c *clock) start(origin, width int64) {
	c.origin, c.width = origin, width
	c.lo, c.hi, c.cur = origin, origin+width, 0
}

func (c *clock) tick(ts int64) {
	if ts < c.lo || ts >= c.hi {
		c.seek(ts)
	}
}

func (c *clock) seek(ts int64) {
	c.cur = max(ts-c.origin, 0) / c.width
	c.lo = c.origin + c.cur*c.width
	c.hi = c.lo + c.width
	c.last = max(c.last, c.cur)
}

// double makes the windows twice as wide.
func (c *clock) double() {
	c.width *= 2
	c.last /= 2
	c.seek(c.lo)
}

// pieceClock cuts time at the boundaries of phases and of their trimmed windows. Counts are kept per piece; a phase
// is the sum of its pieces, so phases may overlap.
type pieceClock struct {
	edges  []int64 // piece i is [edges[i], edges[i+1])
	cur    int32   // -1 outside
	lo, hi int64
}

func newPieceClock(o *Options) pieceClock {
	c := pieceClock{cur: -1}
	for _, p := range o.Phases {
		from, to := p.window(o.TimeScale)
		c.edges = append(c.edges, p.StartNS, from, to, p.EndNS)
	}
	slices.Sort(c.edges)
	c.edges = slices.Compact(c.edges)
	return c
}

func (c *pieceClock) tick(ts int64) {
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
		c.cur, c.lo, c.hi = int32(i), c.edges[i], c.edges[i+1]
	}
}

const (
	minTime = -1 << 63
	maxTime = 1<<63 - 1
)

// sum adds up d's pieces within [from, to).
func (c *pieceClock) sum(d *direction, from, to int64) (s segment) {
	if d == nil {
		return s
	}
	within := func(t *tally) bool { return c.edges[t.index] >= from && c.edges[t.index+1] <= to }
	if d.tx != nil {
		for _, t := range d.tx.pieced() {
			if within(&t) {
				s.unique += t.unique
				s.wire += t.wire
				s.packets += int64(t.packets)
				s.ce += int64(t.ce)
				s.resent += int64(t.resent)
			}
		}
	}
	if n := d.cnps(); n != nil {
		for _, t := range n.pieces {
			if within(&t) {
				s.cnps += int64(t.packets)
			}
		}
	}
	return s
}

// segment is the sum of some tallies.
type segment struct {
	unique, wire              int64
	packets, ce, cnps, resent int64
}
