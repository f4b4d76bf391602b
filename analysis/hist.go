package analysis

import (
	"math"
	"math/bits"
	"slices"
)

// A histogram of times, sizes or rates. An octave has histSub buckets of equal ratio, so that a quantile read from it is off
// by at most 2.7 % of its value; minimum and maximum are exact. A flow has a dozen of these, most of them with samples in a
// few dozen buckets: those are kept in a short sorted list, and in octaves from the lowest to the highest once there are many.
type histogram struct {
	n        int64
	min, max int64
	list     []bucket
	dense    *octaves // instead of the list
	last     int      // where the last sample went in the list
}

// bucket is its number in the upper half, and its count in the lower.
type bucket uint32

const (
	bucketFull = 1<<16 - 1
	listMost   = 64
)

// octaves are counters for each octave from lo on.
type octaves struct {
	lo     int
	counts []uint32
}

const (
	histSub     = 16
	histExact   = 64 // values below have a bucket each; they are called octaves 0 to 3
	histOctaves = 45 // values above 2^47 (39 hours in ns) fall into the last
)

// histEdge[i] is where bucket i of an octave begins, in 1/256 of the octave's lowest value; histIndex the bucket of a
// mantissa in 1/256.
var histEdge, histIndex = func() (edges [histSub + 1]int, index [256]uint8) {
	for i := range edges {
		edges[i] = int(math.Ceil(256 * math.Exp2(float64(i)/histSub)))
	}
	b := 0
	for m := range index {
		for m+256 >= edges[b+1] {
			b++
		}
		index[m] = uint8(b)
	}
	return edges, index
}()

func (h *histogram) add(v int64) {
	if v < 0 {
		v = 0
	}
	if h.n == 0 || v < h.min {
		h.min = v
	}
	if v > h.max {
		h.max = v
	}
	h.n++
	octave, sub := histBucket(v)
	if h.dense != nil {
		h.dense.add(octave, sub, 1)
		return
	}
	at := bucket(octave*histSub+sub) << 16
	if h.last < len(h.list) {
		if b := h.list[h.last]; b&^bucketFull == at && b&bucketFull < bucketFull {
			h.list[h.last]++
			return
		}
	}
	lo := h.search(at)
	switch found := lo < len(h.list) && h.list[lo]&^bucketFull == at; {
	case found && h.list[lo]&bucketFull < bucketFull:
		h.list[lo]++
		h.last = lo
	case found || len(h.list) == listMost:
		h.spread()
		h.dense.add(octave, sub, 1)
	default:
		if len(h.list) == cap(h.list) {
			grown := make([]bucket, len(h.list), len(h.list)+len(h.list)/4+2)
			copy(grown, h.list)
			h.list = grown
		}
		h.list = slices.Insert(h.list, lo, at+1)
		h.last = lo
	}
}

// search is where the bucket at is in the list, or belongs. The loop has no branch that depends on the values: which way
// it goes cannot be foreseen.
func (h *histogram) search(at bucket) int {
	list := h.list
	if len(list) == 0 {
		return 0
	}
	base, n := 0, len(list)
	for n > 1 {
		half := n >> 1
		if list[base+half-1]|bucketFull < at {
			base += half
		}
		n -= half
	}
	if list[base]|bucketFull < at {
		base++
	}
	return base
}

// newDense is a histogram for very many samples.
func newDense() *histogram { return &histogram{dense: new(octaves)} }

// spread turns the list into octaves.
func (h *histogram) spread() {
	h.dense = new(octaves)
	for _, b := range h.list {
		i := int(b >> 16)
		h.dense.add(i/histSub, i%histSub, uint32(b&bucketFull))
	}
	h.list = nil
}

func (o *octaves) add(octave, sub int, n uint32) {
	i := (octave-o.lo)*histSub + sub
	if octave < o.lo || i >= len(o.counts) {
		o.grow(octave)
		i = (octave-o.lo)*histSub + sub
	}
	o.counts[i] += n
}

// grow makes room for an octave.
func (o *octaves) grow(octave int) {
	lo, hi := octave, octave+1
	if have := len(o.counts) / histSub; have > 0 {
		lo, hi = min(lo, o.lo), max(hi, o.lo+have)
	}
	counts := make([]uint32, (hi-lo)*histSub)
	if len(o.counts) > 0 {
		copy(counts[(o.lo-lo)*histSub:], o.counts)
	}
	o.lo, o.counts = lo, counts
}

// histBucket: octaves 0 to 3 hold 0..63 one by one, octave k from 4 on holds [2^(k+2), 2^(k+3)).
func histBucket(v int64) (octave, sub int) {
	if v < histExact {
		return int(v) / histSub, int(v) % histSub
	}
	n := bits.Len64(uint64(v))
	if octave = n - 3; octave >= histOctaves {
		return histOctaves - 1, histSub - 1
	}
	return octave, int(histIndex[uint8(uint64(v)<<(64-n)>>(64-9))]) // the nine highest bits without the first
}

// histValue is the value from which a bucket's ends are equally far, in ratio.
func histValue(octave, sub int) int64 {
	if octave < histExact/histSub {
		return int64(octave*histSub + sub)
	}
	unit := math.Exp2(float64(octave+2)) / 256
	lo := math.Ceil(float64(histEdge[sub]) * unit)
	hi := max(math.Ceil(float64(histEdge[sub+1])*unit)-1, lo)
	return int64(2*lo*hi/(lo+hi) + 0.5)
}

// all are the buckets with samples, ascending: what each stands for, and its count.
func (h *histogram) all() func(yield func(v, n int64) bool) {
	return func(yield func(int64, int64) bool) {
		value := func(i int) int64 { return min(max(histValue(i/histSub, i%histSub), h.min), h.max) }
		if h.dense == nil {
			for _, b := range h.list {
				if !yield(value(int(b>>16)), int64(b&bucketFull)) {
					return
				}
			}
			return
		}
		for i, c := range h.dense.counts {
			if c > 0 && !yield(value(h.dense.lo*histSub+i), int64(c)) {
				return
			}
		}
	}
}

// quantile is the smallest value that at least the share q of samples does not exceed (nearest rank), as exact as
// the buckets are, and exact at the ends.
func (h *histogram) quantile(q float64) int64 {
	rank := int64(q * float64(h.n))
	if float64(rank) < q*float64(h.n) {
		rank++
	}
	if rank <= 1 {
		return h.min
	}
	if rank >= h.n {
		return h.max
	}
	var seen int64
	for v, n := range h.all() {
		if seen += n; seen >= rank {
			return v
		}
	}
	return h.max
}

// merge adds the samples of o.
func (h *histogram) merge(o *histogram) {
	if o == nil || o.n == 0 {
		return
	}
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.n += o.n
	if h.dense == nil {
		h.spread()
	}
	if o.dense == nil {
		for _, b := range o.list {
			h.dense.add(int(b>>16)/histSub, int(b>>16)%histSub, uint32(b&bucketFull))
		}
		return
	}
	for i, c := range o.dense.counts {
		if c > 0 {
			h.dense.add(o.dense.lo+i/histSub, i%histSub, c)
		}
	}
}

// samples lists the values and how often each was seen, ascending.
func (h *histogram) samples() []Sample {
	out := []Sample{}
	if h == nil {
		return out
	}
	for v, n := range h.all() {
		if k := len(out); k > 0 && out[k-1].Value == v {
			out[k-1].Count += n
			continue
		}
		out = append(out, Sample{v, n})
	}
	return out
}

func (h *histogram) latency(scale float64) Latency {
	if h == nil || h.n == 0 {
		return Latency{}
	}
	at := func(v int64) *int64 { v = int64(float64(v) / scale); return &v }
	return Latency{Samples: h.n, Min: at(h.min), P50: at(h.quantile(0.5)), P90: at(h.quantile(0.9)), P99: at(h.quantile(0.99)),
		P999: at(h.quantile(0.999)), Max: at(h.max)}
}

func (h *histogram) messages(until string, scale float64) Messages {
	if h == nil || h.n == 0 {
		return Messages{}
	}
	l := h.latency(scale)
	return Messages{Count: l.Samples, Until: until, P50: l.P50, P99: l.P99, Max: l.Max}
}

// add puts v into *h, which is made at the first value.
func add(h **histogram, v int64) {
	if *h == nil {
		*h = new(histogram)
	}
	(*h).add(v)
}
