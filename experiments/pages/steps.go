package pages

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Step is a place where a series changed its level for good.
type Step struct {
	At int     // index of the first value of the new level
	P  float64 // how often a series that did not change looks like this or worse
}

// The bounds of Steps.
const (
	StepAlpha = 0.01 // false alarms: the share of unchanged series in which a step is marked
	minLevel  = 4    // values that make a level
	shuffles  = 1999
)

// Steps finds where a series of independent values changed its level. Values count by their ranks, so that neither the
// distribution nor a single outlier matters. Of many stretches of the series (seeded binary segmentation: Kovács, Li,
// Bühlmann and Munk, 2020) and all ways to cut them in two, the one is taken whose parts' mean ranks differ most, in units
// of the standard deviation of that difference. Whether that is more than chance is told by shuffling the series (seeded,
// 1,999 times): there is a step when at most 1 % of the shuffled series look as bad anywhere, so that 1 % of the series that
// did not change get a mark, whatever their length and distribution. Both sides are then searched in the same way. A level
// has at least four values: a change is seen when it has lasted for four runs.
func Steps(values []float64, seed uint64) []Step {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	var steps []Step
	var search func(from, to int)
	search = func(from, to int) {
		at, p, ok := split(values[from:to], r)
		if !ok {
			return
		}
		search(from, from+at)
		steps = append(steps, Step{from + at, p})
		search(from+at, to)
	}
	search(0, len(values))
	return steps
}

// split tests one stretch for one step.
func split(x []float64, r *rand.Rand) (at int, p float64, ok bool) {
	if len(x) < 2*minLevel {
		return 0, 0, false
	}
	ranks, spread := ranksOf(x)
	if spread == 0 { // all alike
		return 0, 0, false
	}
	s := newScanner(len(x), spread)
	worst, at := s.scan(ranks)
	limit := int(StepAlpha * (shuffles + 1)) // as bad or worse, the series itself among them
	reached := 1
	shuffled := slices.Clone(ranks)
	for range shuffles {
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if z, _ := s.scan(shuffled); z >= worst-1e-9 {
			if reached++; reached > limit {
				return 0, 0, false
			}
		}
	}
	return at, float64(reached) / (shuffles + 1), true
}

// scanner looks at the same stretches of one series and of its shuffles.
type scanner struct {
	stretches [][2]int
	weight    [][]float64 // by length and cut: one over the standard deviation of the difference of mean ranks
	sums      []float64   // of the first i ranks
}

// newScanner chooses stretches: the whole, and shorter and shorter ones that overlap by half.
func newScanner(n int, spread float64) *scanner {
	s := &scanner{weight: make([][]float64, n+1), sums: make([]float64, n+1)}
	for length := float64(n); length >= 2*minLevel; length /= math.Sqrt2 {
		m := int(math.Ceil(length))
		if s.weight[m] != nil {
			continue
		}
		s.weight[m] = make([]float64, m)
		for k := minLevel; k <= m-minLevel; k++ {
			s.weight[m][k] = 1 / math.Sqrt(spread*(1/float64(k)+1/float64(m-k)))
		}
		count := 2*int(math.Ceil(float64(n)/length)) - 1
		for i := range count {
			from := 0
			if count > 1 {
				from = (n - m) * i / (count - 1)
			}
			s.stretches = append(s.stretches, [2]int{from, from + m})
		}
	}
	return s
}

// scan finds the cut whose parts differ most.
func (s *scanner) scan(ranks []float64) (worst float64, at int) {
	for i, rank := range ranks {
		s.sums[i+1] = s.sums[i] + rank
	}
	for _, part := range s.stretches {
		from, to := part[0], part[1]
		weight := s.weight[to-from]
		for k := minLevel; k <= to-from-minLevel; k++ {
			left, right := s.sums[from+k]-s.sums[from], s.sums[to]-s.sums[from+k]
			if z := math.Abs(left/float64(k)-right/float64(to-from-k)) * weight[k]; z > worst {
				worst, at = z, from+k
			}
		}
	}
	return worst, at
}

// ranksOf gives each value its rank, equal values their mean rank, and the variance of a rank.
func ranksOf(x []float64) (ranks []float64, spread float64) {
	n := len(x)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case x[a] < x[b]:
			return -1
		case x[a] > x[b]:
			return 1
		}
		return 0
	})
	ranks = make([]float64, n)
	for i := 0; i < n; {
		j := i
		for j < n && x[order[j]] == x[order[i]] {
			j++
		}
		for _, k := range order[i:j] {
			ranks[k] = float64(i+j+1) / 2
		}
		i = j
	}
	mean := float64(n+1) / 2
	for _, rank := range ranks {
		spread += (rank - mean) * (rank - mean)
	}
	return ranks, spread / float64(n-1)
}
