package softnic

import (
	"math/bits"
	"time"
)

// Lateness says how late the NIC's thread woke for its schedule. Samples 0 means that nothing was scheduled; then the
// other fields mean nothing.
type Lateness struct {
	P50NS   int64  `json:"p50"`
	P99NS   int64  `json:"p99"`
	MaxNS   int64  `json:"max"`
	Samples uint64 `json:"samples"`
}

// latenessHistogram counts durations in buckets of an eighth of a power of two: quantiles err by at most 12.5 %.
type latenessHistogram struct {
	buckets [64 * 8]uint64
	n       uint64
	max     time.Duration
}

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < 8 {
		return int(v)
	}
	e := bits.Len64(v) - 4 // v>>e is in [8, 16)
	return (e+1)*8 + int(v>>e) - 8
}

// bucketTop is the largest duration that bucket i counts.
func bucketTop(i int) time.Duration {
	if i < 8 {
		return time.Duration(i)
	}
	e := i/8 - 1
	return time.Duration(uint64(i%8+9)<<e - 1)
}

func (h *latenessHistogram) add(d time.Duration) {
	h.buckets[bucketOf(d)]++
	h.n++
	h.max = max(h.max, d)
}

func (h *latenessHistogram) quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.n))
	var seen uint64
	for i, c := range h.buckets {
		if seen += c; seen > rank {
			return min(bucketTop(i), h.max)
		}
	}
	return h.max
}

func (h *latenessHistogram) summary() Lateness {
	return Lateness{P50NS: int64(h.quantile(0.5)), P99NS: int64(h.quantile(0.99)), MaxNS: int64(h.max), Samples: h.n}
}
