package analysis

import (
	"math"
	"net/netip"
)

// Data that come in one go: a longer gap than this, on hardware, ends a burst of a flow, and a busy period where the link's
// rate is not known.
const burstGap = 10_000 // ns

// burst is a run of data packets without a long gap. The zero value has seen none.
type burst struct {
	first, last int64
	bytes       int64 // of whole frames; 0: no packet yet
	sizes       *histogram
}

// add takes a packet of wire bytes; a gap above most ends the burst before it and reports how long that took.
func (b *burst) add(ts, most int64, wire int) (length int64, ended bool) {
	if b.bytes > 0 && ts-b.last <= most {
		b.last = max(b.last, ts)
		b.bytes += int64(wire)
		return 0, false
	}
	length, ended = b.end()
	b.first, b.last, b.bytes = ts, ts, int64(wire)
	return length, ended
}

// end ends the burst that is going on, if there is one.
func (b *burst) end() (length int64, ended bool) {
	if b.bytes == 0 {
		return 0, false
	}
	add(&b.sizes, b.bytes)
	b.bytes = 0
	return b.last - b.first, true
}

// summary is what the document says; gap is the one that ends a burst. It may be taken once the last was ended.
func (b *burst) summary(gap int64) Bursts {
	out := Bursts{GapNS: gap}
	if h := b.sizes; h != nil && h.n > 0 {
		out.Count = h.n
		out.P50, out.P99, out.Max = ptr(h.quantile(0.5)), ptr(h.quantile(0.99)), ptr(h.max)
	}
	return out
}

// arrivals follows the data for each destination: busy periods, and the queue that a port of the link's rate would have
// built. Packets come in order of time. Nothing is allocated per packet once a destination is known.
type arrivals struct {
	gap      int64   // where the rate is not known
	perNS    float64 // bytes that the link takes in a ns; 0: not known
	twoBytes float64 // ns that two of them take
	byDst    []int32 // index in all, by addrID; -1: none
	all      []arrival
}

type arrival struct {
	dst         addrID
	first, last int64
	busy        burst
	busyNS      histogram
	busySum     int64
	backlog     float64 // bytes
	queue       histogram

	// Of packets that are a busy period of their own and find the queue empty, the size is all that there is to keep.
	alone histogram
	fresh bool // the busy period that goes on is such a packet so far, which alone has not got yet
}

func newArrivals(o *Options) *arrivals {
	a := &arrivals{gap: int64(burstGap * o.TimeScale)}
	if o.LinkRateBps > 0 {
		a.perNS, a.twoBytes = o.LinkRateBps/8e9, 16e9/o.LinkRateBps
	}
	return a
}

// see takes a data packet of wire bytes for dst.
func (a *arrivals) see(ts int64, dst addrID, wire int) {
	for int(dst) >= len(a.byDst) {
		a.byDst = append(a.byDst, -1)
	}
	i := a.byDst[dst]
	if i < 0 {
		i = int32(len(a.all))
		a.byDst[dst] = i
		a.all = append(a.all, arrival{dst: dst, first: ts, last: ts, busy: burst{sizes: newDense()}, busyNS: *newDense(), queue: *newDense(), alone: *newDense()})
	}
	r := &a.all[i]
	gap, elapsed := a.gap, ts-r.last
	empty := a.perNS == 0
	if a.perNS > 0 {
		gap = int64(a.twoBytes * float64(wire))
		r.backlog = max(0, r.backlog-float64(max(elapsed, 0))*a.perNS) + float64(wire)
		empty = r.backlog == float64(wire)
	}
	if r.fresh {
		r.fresh = false
		if size := r.busy.bytes; elapsed > gap { // it stayed alone
			r.alone.add(size)
			r.busy.bytes = 0
		} else if a.perNS > 0 {
			r.queue.add(size)
		}
	}
	if r.busy.bytes > 0 && elapsed <= gap { // the usual case of burst.add, without the call
		r.busy.last = max(r.busy.last, ts)
		r.busy.bytes += int64(wire)
	} else {
		if length, ended := r.busy.add(ts, gap, wire); ended {
			r.ended(length)
		}
		r.fresh = empty
	}
	if a.perNS > 0 && !r.fresh {
		r.queue.add(int64(r.backlog))
	}
	r.last = max(r.last, ts)
}

func (r *arrival) ended(length int64) {
	r.busyNS.add(length)
	r.busySum += length
}

// settle gives the packets that were alone to the distributions that they belong to.
func (r *arrival) settle(queued bool) {
	r.busy.sizes.merge(&r.alone)
	var none histogram
	none.repeat(0, r.alone.n)
	r.busyNS.merge(&none)
	if queued {
		r.queue.merge(&r.alone)
	}
}

// finish gives the destinations by address; a takes no packet afterwards.
func (a *arrivals) finish(addr func(addrID) netip.Addr) []QueueAt {
	gap := a.gap
	if a.perNS > 0 {
		gap = int64(math.Round(a.twoBytes * 1024)) // it depends on the packet; of one of 1 KiB
	}
	out := make([]QueueAt, 0, len(a.all))
	for _, i := range sorted(len(a.all), func(x, y int) int { return addr(a.all[x].dst).Compare(addr(a.all[y].dst)) }) {
		r := &a.all[i]
		if r.fresh {
			r.alone.add(r.busy.bytes)
			r.busy.bytes = 0
		}
		if length, ended := r.busy.end(); ended {
			r.ended(length)
		}
		r.settle(a.perNS > 0)
		q := QueueAt{Dst: addr(r.dst).String(), GapNS: gap, BusyNS: r.busyNS.latency(1), BusyBytes: r.busy.summary(gap), BusyShare: share(r.busySum, r.last-r.first)}
		if h := &r.queue; a.perNS > 0 {
			q.QueueBytes = &Queue{P50: h.quantile(0.5), P99: h.quantile(0.99), Max: h.max}
		}
		out = append(out, q)
	}
	return out
}
