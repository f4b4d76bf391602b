package fabric

import "math/bits"

// histogram counts durations in buckets whose width is 1/32 of their value, so that a percentile is exact to 3.2 %.
// It never allocates. The zero value is empty.
type histogram struct {
	counts [60 * 32]uint64
	n      uint64
	max    int64
}

// bucket: values below 64 have their own; above, the five bits after the leading one choose among 32.
func bucket(v int64) int {
	if v < 64 {
		return int(v)
	}
	e := bits.Len64(uint64(v)) - 6
	return e*32 + int(v>>e)
}

// upper is the largest value of a bucket.
func upper(b int) int64 {
	if b < 64 {
		return int64(b)
	}
	e := b/32 - 1
	return (int64(b-e*32)+1)<<e - 1
}

func (h *histogram) add(v int64) {
	v = max(v, 0)
	h.counts[bucket(v)]++
	h.n++
	h.max = max(h.max, v)
}

// quantile is the least bound that at least the share q of the values do not exceed, nil without values.
func (h *histogram) quantile(q float64) *int64 {
	if h.n == 0 {
		return nil
	}
	want := uint64(q * float64(h.n))
	if float64(want) < q*float64(h.n) {
		want++
	}
	var seen uint64
	for b := range h.counts {
		if seen += h.counts[b]; seen >= want && seen > 0 {
			v := min(upper(b), h.max)
			return &v
		}
	}
	v := h.max
	return &v
}

func (h *histogram) summary() Lateness {
	l := Lateness{P50: h.quantile(0.50), P99: h.quantile(0.99), Samples: h.n}
	if h.n > 0 {
		m := h.max
		l.Max = &m
	}
	return l
}
