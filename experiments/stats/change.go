package stats

import (
	"math"
	"slices"
	"sort"
	"sync"

	moremath "github.com/aclements/go-moremath/stats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Difference is what changed between two samples.
type Difference struct {
	// Shift is by how much the values after exceed those before: the median of all differences after - before (Hodges and
	// Lehmann). nil when a side has no value.
	Shift *float64
	// Interval is that of the shift; nil when no interval of 95 % exists, which takes at least 4 values a side, 3 and 5,
	// or 2 and 8.
	Interval *Interval
	// P is that of the Mann–Whitney test, two-sided; nil when a side has no value.
	P *float64
	// Superiority is the chance that a value after exceeds one before, ties counted half (Vargha and Delaney's A): 0.5 is no
	// difference, 0 and 1 are samples apart.
	Superiority *float64
}

// Change compares two independent samples.
func Change(before, after []float64) Difference {
	if len(before) == 0 || len(after) == 0 {
		return Difference{}
	}
	b, a := sorted(before), sorted(after)
	n := len(b) * len(a)
	shift := (kthDifference(b, a, (n-1)/2) + kthDifference(b, a, n/2)) / 2
	p, superiority := mannWhitney(b, a)
	d := Difference{Shift: &shift, P: &p, Superiority: &superiority}
	if k := intervalRank(len(b), len(a)); k > 0 {
		d.Interval = &Interval{kthDifference(b, a, k-1), kthDifference(b, a, n-k)}
	}
	return d
}

// mannWhitney gives p and U over its greatest value: twice the smaller tail, each tail from the library's one-sided test.
// Its two-sided test takes U to be symmetric about its middle, which ties in samples of different sizes are not: of (0, 0)
// and (0, 0, 1) it gives 0.8 for what is 1.
func mannWhitney(before, after []float64) (p, superiority float64) {
	less, err := moremath.MannWhitneyUTest(after, before, moremath.LocationLess)
	if err != nil { // all values are equal
		return 1, 0.5
	}
	greater, err := moremath.MannWhitneyUTest(before, after, moremath.LocationLess)
	if err != nil {
		return 1, 0.5
	}
	return min(1, 2*min(less.P, greater.P)), less.U / float64(len(before)*len(after))
}

// kthDifference is the k-th smallest (from 0) of all differences a[j] - b[i] of two sorted samples. It bisects over the
// order of floating-point numbers, which takes 64 steps of linear time and needs no memory for the differences.
func kthDifference(b, a []float64, k int) float64 {
	low, high := ordered(a[0]-b[len(b)-1]), ordered(a[len(a)-1]-b[0])
	for low < high {
		mid := low + (high-low)/2
		d, count, j := fromOrdered(mid), 0, 0
		for i := range b { // the bound on a grows with b
			for j < len(a) && a[j]-b[i] <= d {
				j++
			}
			count += j
		}
		if count > k {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return fromOrdered(low)
}

// ordered maps numbers to integers in the same order.
func ordered(f float64) uint64 {
	u := math.Float64bits(f + 0) // -0 is 0
	if u>>63 == 1 {
		return ^u
	}
	return u | 1<<63
}

func fromOrdered(u uint64) float64 {
	if u>>63 == 1 {
		return math.Float64frombits(u &^ (1 << 63))
	}
	return math.Float64frombits(^u)
}

var ranks struct {
	sync.Mutex
	of map[[2]int]int
}

// intervalRank is the k for which the k-th smallest and largest difference are the ends of the interval: the greatest with
// P(U < k) <= 2.5 %. 0: the samples are too small for any.
func intervalRank(n1, n2 int) int {
	ranks.Lock()
	defer ranks.Unlock()
	if ranks.of == nil {
		ranks.of = map[[2]int]int{}
	}
	key := [2]int{min(n1, n2), max(n1, n2)}
	k, ok := ranks.of[key]
	if !ok {
		cdf := func(u int) float64 { return moremath.UDist{N1: key[0], N2: key[1]}.CDF(float64(u)) }
		if key[1] > moremath.MannWhitneyExactLimit {
			n, m := float64(n1), float64(n2)
			normal := distuv.Normal{Mu: n * m / 2, Sigma: math.Sqrt(n * m * (n + m + 1) / 12)}
			cdf = func(u int) float64 { return normal.CDF(float64(u) + 0.5) }
		}
		k = sort.Search(n1*n2/2+1, func(u int) bool { return cdf(u) > (1-Confidence)/2 })
		ranks.of[key] = k
	}
	return k
}

// Spread compares how wide two samples are, whatever their location: the ratio of their mean distances from the own median
// (after over before), and the p of a Mann–Whitney test of those distances. nil when a side has fewer than 5 values or all
// of a side are equal.
func Spread(before, after []float64) (ratio, p *float64) {
	if len(before) < 5 || len(after) < 5 {
		return nil, nil
	}
	b, a := deviations(before), deviations(after)
	if slices.Max(b) == 0 || slices.Max(a) == 0 {
		return nil, nil
	}
	r := stat.Mean(a, nil) / stat.Mean(b, nil)
	return &r, Change(b, a).P
}

// Holm corrects the p of several tests of which none may be a false alarm: the chance of any is then at most that of one
// uncorrected test, however the tests depend on each other.
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case p[a] < p[b]:
			return -1
		case p[a] > p[b]:
			return 1
		}
		return 0
	})
	corrected, highest := make([]float64, len(p)), 0.0
	for i, at := range order {
		highest = max(highest, min(1, p[at]*float64(len(p)-i)))
		corrected[at] = highest
	}
	return corrected
}
