package pages

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// noises are the shapes of noise that measured series have. None of them may bring false alarms.
var noises = []struct {
	name, why string
	draw      func(r *rand.Rand) float64
}{
	{"normal", "the usual case", func(r *rand.Rand) float64 { return r.NormFloat64() }},
	{"heavy_tails", "one run in ten meets a busy machine", func(r *rand.Rand) float64 {
		if r.IntN(10) == 0 {
			return 20 * r.NormFloat64()
		}
		return r.NormFloat64()
	}},
	{"skewed", "times have a floor and a long tail", func(r *rand.Rand) float64 { return math.Exp(r.NormFloat64()) }},
	{"counts", "counts are often zero and often equal", func(r *rand.Rand) float64 { return float64(r.IntN(3)) }},
}

// TestSteps_falseAlarms: of series that did not change, no more than the promised share has a mark; 2,000 series of each
// kind of noise and of two lengths. The bound is the promise and three standard errors.
func TestSteps_falseAlarms(t *testing.T) {
	t.Parallel()
	const series = 2000
	bound := StepAlpha + 3*math.Sqrt(StepAlpha*(1-StepAlpha)/series)
	for _, noise := range noises {
		for _, n := range []int{12, 40} {
			r := rand.New(rand.NewPCG(7, uint64(n)))
			alarms := 0
			for i := range series {
				x := make([]float64, n)
				for j := range x {
					x[j] = noise.draw(r)
				}
				if len(Steps(x, uint64(i))) > 0 {
					alarms++
				}
			}
			share := float64(alarms) / series
			t.Logf("%s, %d values: false alarms in %.2f %% of %d series", noise.name, n, 100*share, series)
			if share > bound {
				t.Errorf("%s (%s), %d values: false alarms in %.2f %% of series, want at most %.2f %%", noise.name, noise.why, n, 100*share, 100*bound)
			}
		}
	}
}

// TestSteps_finds: steps of three standard deviations that lasted for ten runs are found, at the right place within two
// runs, in at least 90 of 100 series; so are two steps of one series, up and down.
func TestSteps_finds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why   string
		steps []int // lengths of levels, which alternate between 0 and 3
	}{
		{"one step in the middle", []int{20, 20}},
		{"a step early in the series", []int{10, 30}},
		{"a step that came ten runs ago", []int{30, 10}},
		{"up and down again", []int{15, 15, 15}},
	} {
		t.Run(fmt.Sprint(c.steps), func(t *testing.T) {
			right := 0
			for i := range 100 {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				var x []float64
				var want []int
				for k, n := range c.steps {
					if k > 0 {
						want = append(want, len(x))
					}
					for range n {
						x = append(x, float64(k%2)*3+r.NormFloat64())
					}
				}
				got := Steps(x, uint64(i))
				ok := len(got) == len(want)
				for k := range want {
					ok = ok && math.Abs(float64(got[k].At-want[k])) <= 2
				}
				if ok {
					right++
				}
			}
			t.Logf("%s: right in %d of 100 series", c.why, right)
			if right < 90 {
				t.Errorf("%s: right in %d of 100 series, want at least 90", c.why, right)
			}
		})
	}
}

// TestSteps_edges: what must not be taken for a step, and what must.
func TestSteps_edges(t *testing.T) {
	flat := make([]float64, 50)
	outlier := make([]float64, 40)
	r := rand.New(rand.NewPCG(3, 3))
	for i := range outlier {
		outlier[i] = r.NormFloat64()
	}
	outlier[25] = 1e6
	zeroThenMore := append(make([]float64, 10), 5, 6, 5, 7, 5, 6)
	for _, c := range []struct {
		why  string
		x    []float64
		want int
	}{
		{"nothing is known", nil, 0},
		{"too few values for two levels", []float64{1, 1, 1, 9, 9, 9}, 0},
		{"all values alike", flat, 0},
		{"one outlier is no level", outlier, 0},
		{"retransmissions that were never there begin", zeroThenMore, 1},
	} {
		got := Steps(c.x, 1)
		if len(got) != c.want {
			t.Errorf("%s: steps %v, want %d", c.why, got, c.want)
		}
		if again := Steps(c.x, 1); fmt.Sprint(again) != fmt.Sprint(got) {
			t.Errorf("%s: the same series gives %v and %v", c.why, got, again)
		}
	}
}
