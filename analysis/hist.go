package analysis

import "math/bits"

// A histogram of times in ns: 32 buckets an octave, so that a quantile read from it is off by at most 1/64 of its value.
// An octave is allocated when its first sample comes; a flow's round-trip times rarely span more than four.
const (
	histSubBits = 5
	histSub     = 1 << histSubBits
	histOctaves = 44 // values above 2^48 ns (78 hours) fall into the last
)

type histogram struct {
	n        int64
	min, max int64
	octaves  [histOctaves]*[histSub]uint32
}

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
	o, s := histBucket(v)
	p := h.octaves[o]
	if p == nil {
		p = new([histSub]uint32)
		h.octaves[o] = p
	}
	p[s]++
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
	for o := range h.octaves {
		if h.octaves[o] == nil {
			continue
		}
		for s, c := range h.octaves[o] {
			if seen += int64(c); seen >= rank {
				return min(max(histValue(o, s), h.min), h.max)
			}
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
	for i, p := range o.octaves {
		if p == nil {
			continue
		}
		if h.octaves[i] == nil {
			h.octaves[i] = new([histSub]uint32)
		}
		for s, c := range p {
			h.octaves[i][s] += c
		}
	}
}

func (h *histogram) latency(scale float64) Latency {
	if h == nil || h.n == 0 {
		return Latency{}
	}
	at := func(v int64) *int64 { v = int64(float64(v) / scale); return &v }
	return Latency{Samples: h.n, Min: at(h.min), P50: at(h.quantile(0.5)), P99: at(h.quantile(0.99)), Max: at(h.max)}
}

func (h *histogram) messages(until string, scale float64) Messages {
	if h == nil || h.n == 0 {
		return Messages{}
	}
	l := h.latency(scale)
	return Messages{Count: l.Samples, Until: until, P50: l.P50, P99: l.P99, Max: l.Max}
}
