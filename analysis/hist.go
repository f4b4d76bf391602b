package analysis

import (
	"math/bits"
	"slices"
)

// A histogram of times, sizes or rates: 32 buckets an octave, so that a quantile read from it is off by at most 1/64 of
// its value. It keeps its first values as they are, then only the octaves that it needs.
type histogram struct {
	n        int64
	min, max int64
	few      []int64  // the values, until there are more than histFew
	counts   []uint32 // 32 buckets for each octave from lo on
	lo       int
}

const (
	histSubBits = 5
	histSub     = 1 << histSubBits
	histOctaves = 44 // values above 2^48 (78 hours in ns) fall into the last
	histFew     = 8
)

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
	if h.counts == nil {
		if len(h.few) < histFew {
			if h.few == nil {
				h.few = make([]int64, 0, 2)
			}
			h.few = append(h.few, v)
			return
		}
		for _, w := range h.few {
			h.count(w, 1)
		}
		h.few = nil
	}
	h.count(v, 1)
}

func (h *histogram) count(v int64, n uint32) {
	octave, sub := histBucket(v)
	if i := octave - h.lo; uint(i) < uint(len(h.counts)/histSub) {
		h.counts[i*histSub+sub] += n
		return
	}
	h.grow(octave)
	h.counts[(octave-h.lo)*histSub+sub] += n
}

// grow makes room for an octave.
func (h *histogram) grow(octave int) {
	have := len(h.counts) / histSub
	lo, hi := octave, octave+1
	if have > 0 {
		lo, hi = min(lo, h.lo), max(hi, h.lo+have)
	}
	counts := make([]uint32, (hi-lo)*histSub)
	if have > 0 {
		copy(counts[(h.lo-lo)*histSub:], h.counts)
	}
	h.counts, h.lo = counts, lo
}

// histBucket: octave 0 holds 0..31 one by one, octave k holds [2^(k+4), 2^(k+5)) in 32 buckets.
func histBucket(v int64) (octave, sub int) {
	n := bits.Len64(uint64(v))
	if n <= histSubBits {
		return 0, int(v)
	}
	octave = n - histSubBits
	if octave >= histOctaves {
		return histOctaves - 1, histSub - 1
	}
	return octave, int(v>>(octave-1)) & (histSub - 1)
}

// histValue is the middle of a bucket.
func histValue(octave, sub int) int64 {
	if octave == 0 {
		return int64(sub)
	}
	lo := int64(histSub+sub) << (octave - 1)
	return lo + (int64(1)<<(octave-1)-1)/2
}

// quantile is the smallest value that at least the share q of samples does not exceed (nearest rank), as exact as
// the buckets are, and exact at the ends and while there are few.
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
	if h.counts == nil {
		few := slices.Clone(h.few)
		slices.Sort(few)
		return few[rank-1]
	}
	var seen int64
	for i, c := range h.counts {
		if seen += int64(c); seen >= rank {
			return h.value(i)
		}
	}
	return h.max
}

// value is what a bucket stands for.
func (h *histogram) value(i int) int64 {
	return min(max(histValue(h.lo+i/histSub, i%histSub), h.min), h.max)
}

// merge adds the samples of o.
func (h *histogram) merge(o *histogram) {
	if o == nil || o.n == 0 {
		return
	}
	if o.counts == nil {
		for _, v := range o.few {
			h.add(v)
		}
		return
	}
	if h.counts == nil {
		for _, v := range h.few {
			h.count(v, 1)
		}
		h.few = nil
	}
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.n += o.n
	h.grow(o.lo)
	h.grow(o.lo + len(o.counts)/histSub - 1)
	to := h.counts[(o.lo-h.lo)*histSub:]
	for i, c := range o.counts {
		to[i] += c
	}
}

// samples lists the values and how often each was seen, ascending.
func (h *histogram) samples() []Sample {
	out := []Sample{}
	if h == nil {
		return out
	}
	put := func(v, n int64) {
		if k := len(out); k > 0 && out[k-1].Value == v {
			out[k-1].Count += n
			return
		}
		out = append(out, Sample{v, n})
	}
	if h.counts == nil {
		few := slices.Clone(h.few)
		slices.Sort(few)
		for _, v := range few {
			put(v, 1)
		}
		return out
	}
	for i, c := range h.counts {
		if c > 0 {
			put(h.value(i), int64(c))
		}
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
