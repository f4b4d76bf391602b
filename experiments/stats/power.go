package stats

import (
	"math"
	"sort"
	"sync"

	"gonum.org/v1/gonum/stat/distuv"
)

// MaxRepeats is where planning ends: who needs more repeats has another problem.
const MaxRepeats = 1000

// Power is the chance with which the planned number of repeats leads to a verdict, if the truth is what was observed.
const Power = 0.8

// efficiency of the Mann–Whitney test relative to the t test on normal samples: 3/pi.
const efficiency = 3 / math.Pi

// RepeatsToDetect is how many values each side needs for a shift to be found: to be significant at alpha and estimated
// beyond the limit. ok is false when MaxRepeats would not do.
func RepeatsToDetect(sd, shift, limit, alpha float64) (n int, ok bool) {
	shift = math.Abs(shift)
	return least(alpha, func(n float64) float64 {
		se := sd * math.Sqrt(2/(n*efficiency))
		if se == 0 {
			return 1
		}
		critical := studentsT(int(2*n)-2, 1-alpha/2) * se
		return distuv.UnitNormal.CDF((shift - math.Max(limit, critical)) / se)
	})
}

// RepeatsToRuleOut is how many values each side needs for the interval of a shift to lie within ±limit.
func RepeatsToRuleOut(sd, shift, limit float64) (n int, ok bool) {
	return least(1-Confidence, func(n float64) float64 {
		se := sd * math.Sqrt(2/(n*efficiency))
		if se == 0 {
			return 1
		}
		room := limit - studentsT(int(2*n)-2, (1+Confidence)/2)*se
		if room <= 0 {
			return 0
		}
		return distuv.UnitNormal.CDF((room-shift)/se) - distuv.UnitNormal.CDF((-room-shift)/se)
	})
}

var quantiles sync.Map // of studentsT: gonum finds them by iteration, and the same ones are asked for thousands of times

// studentsT is the quantile q of Student's t.
func studentsT(freedom int, q float64) float64 {
	key := [2]float64{float64(freedom), q}
	if v, ok := quantiles.Load(key); ok {
		return v.(float64)
	}
	v := distuv.StudentsT{Sigma: 1, Nu: float64(freedom)}.Quantile(q)
	quantiles.Store(key, v)
	return v
}

// least n whose chance reaches Power, and at which the exact test can reach alpha at all.
func least(alpha float64, chance func(n float64) float64) (int, bool) {
	from := LeastRepeats(alpha)
	n := from + sort.Search(max(0, MaxRepeats-from+1), func(i int) bool { return chance(float64(from+i)) >= Power })
	return n, n <= MaxRepeats
}

// LeastRepeats is how many values each side needs for the exact test to reach alpha: 2 of all ways to label them are as
// extreme as samples that are apart.
func LeastRepeats(alpha float64) int {
	n := 2
	for logChoose(2*n, n)+math.Log(alpha/2) < 0 {
		n++
	}
	return n
}

func logChoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}
