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
	cells    []bucket // a sorted list or, when dense, the counters of the octaves
	dense    int16    // 1 more than the first octave; 0: a list
	last     uint16   // where the last sample went in the list
}

// bucket is its number in the upper half and its count in the lower; when dense only the count.
type bucket uint32

const (
	bucketFull = 1<<16 - 1
	listMost   = 64
)

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
	number := histBucket(v)
	if h.dense > 0 {
		if i := number - int(h.dense-1)*histSub; uint(i) < uint(len(h.cells)) {
			h.cells[i]++
			return
		}
		h.count(number, 1)
		return
	}
	at := bucket(number) << 16
	if int(h.last) < len(h.cells) {
		if b := h.cells[h.last]; b&^bucketFull == at && b&bucketFull < bucketFull {
			h.cells[h.last]++
			return
		}
	}
	i := h.search(at)
	switch found := i < len(h.cells) && h.cells[i]&^bucketFull == at; {
	case found && h.cells[i]&bucketFull < bucketFull:
		h.cells[i]++
		h.last = uint16(i)
	case found || len(h.cells) == listMost:
		h.spread()
		h.count(number, 1)
	default:
		if len(h.cells) == cap(h.cells) {
			grown := make([]bucket, len(h.cells), len(h.cells)+len(h.cells)/4+2)
			copy(grown, h.cells)
			h.cells = grown
		}
		h.cells = slices.Insert(h.cells, i, at+1)
		h.last = uint16(i)
	}
}

// spread turns the list into counters.
func (h *histogram) spread() {
	list := h.cells
	h.cells, h.dense = nil, 1
	for _, b := range list {
		h.count(int(b>>16), b&bucketFull)
	}
}

// count adds to a counter, for which it makes room.
func (h *histogram) count(number int, n bucket) {
	octave := number / histSub
	lo, hi := octave, octave+1
	if have := len(h.cells) / histSub; have > 0 {
		first := int(h.dense - 1)
		lo, hi = min(lo, first), max(hi, first+have)
	}
	if len(h.cells) != (hi-lo)*histSub {
		cells := make([]bucket, (hi-lo)*histSub)
		if len(h.cells) > 0 {
			copy(cells[(int(h.dense-1)-lo)*histSub:], h.cells)
		}
		h.cells, h.dense = cells, int16(lo+1)
	}
	h.cells[number-lo*histSub] += n
}

// search is where the bucket at is in the list, or belongs. The loop has no branch that depends on the values: which way
// it goes cannot be foreseen.
func (h *histogram) search(at bucket) int {
	list := h.cells
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
func newDense() *histogram { return &histogram{dense: 1} }

// histBucket: octaves 0 to 3 hold 0..63 one by one, octave k from 4 on holds [2^(k+2), 2^(k+3)).
func histBucket(v int64) (number int) {
	if v < histExact {
		return int(v)
	}
	n := bits.Len64(uint64(v))
	octave := n - 3
	if octave >= histOctaves {
		return histOctaves*histSub - 1
	}
	return octave*histSub + int(histIndex[uint8(uint64(v)<<(64-n)>>(64-9))]) // the nine highest bits without the first
}

// histValues is, for each bucket, the value from which its ends are equally far, in ratio.
var histValues = func() (t [histOctaves * histSub]int64) {
	for i := range t {
		octave, sub := i/histSub, i%histSub
		if i < histExact {
			t[i] = int64(i)
			continue
		}
		unit := math.Exp2(float64(octave+2)) / 256
		lo := math.Ceil(float64(histEdge[sub]) * unit)
		hi := max(math.Ceil(float64(histEdge[sub+1])*unit)-1, lo)
		t[i] = int64(2*lo*hi/(lo+hi) + 0.5)
	}
	return t
}()

// all are the buckets with samples, ascending: what each stands for, and its count.
func (h *histogram) all() func(yield func(v, n int64) bool) {
	return func(yield func(int64, int64) bool) {
		value := func(i int) int64 { return min(max(histValues[i], h.min), h.max) }
		if h.dense == 0 {
			for _, b := range h.cells {
				if !yield(value(int(b>>16)), int64(b&bucketFull)) {
					return
				}
			}
			return
		}
		for i, c := range h.cells {
			if c > 0 && !yield(value(int(h.dense-1)*histSub+i), int64(c)) {
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

// repeat makes h the distribution of n times the small value v.
func (h *histogram) repeat(v, n int64) {
	if n == 0 {
		return
	}
	*h = *newDense()
	h.n, h.min, h.max = n, v, v
	h.count(histBucket(v), bucket(n))
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
	if h.dense == 0 {
		h.spread()
	}
	for i, b := range o.cells {
		switch {
		case o.dense == 0:
			h.count(int(b>>16), b&bucketFull)
		case b > 0:
			h.count(int(o.dense-1)*histSub+i, b)
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
	v := &[...]int64{h.min, h.quantile(0.5), h.quantile(0.9), h.quantile(0.99), h.quantile(0.999), h.max}
	for i := range v {
		v[i] = int64(float64(v[i]) / scale)
	}
	return Latency{Samples: h.n, Min: &v[0], P50: &v[1], P90: &v[2], P99: &v[3], P999: &v[4], Max: &v[5]}
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
