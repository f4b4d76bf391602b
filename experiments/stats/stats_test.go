package stats

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gonum.org/v1/gonum/stat/combin"
	"pgregory.net/rapid"
)

func TestDescribe_textbookSample(t *testing.T) {
	// Mean 5, sum of squares 32; t(7, 0.975) = 2.364624.
	d := Describe([]float64{2, 4, 4, 4, 5, 5, 7, 9}, 1)
	sd := math.Sqrt(32.0 / 7)
	half := 2.364624 * sd / math.Sqrt(8)
	got := []float64{*d.Mean, *d.Median, *d.SD, *d.Min, *d.Max, d.MeanCI.Low, d.MeanCI.High}
	want := []float64{5, 4.5, sd, 2, 9, 5 - half, 5 + half}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-5)); diff != "" {
		t.Errorf("mean, median, sd, min, max, interval (-want +got):\n%s", diff)
	}
	if !d.MedianCI.holds(4.5) || d.MedianCI.Low < 1 || d.MedianCI.High > 10 {
		t.Errorf("interval of the median %+v", *d.MedianCI)
	}
}

// What a sample is too small for is null, not 0.
func TestDescribe_tooSmall(t *testing.T) {
	for n, want := range []string{
		`{"n":0,"mean":null,"median":null,"sd":null,"min":null,"max":null,"mean_ci95":null,"median_ci95":null,"outliers":[]}`,
		`{"n":1,"mean":3,"median":3,"sd":null,"min":3,"max":3,"mean_ci95":null,"median_ci95":null,"outliers":[]}`,
	} {
		got, err := json.Marshal(Describe([]float64{3, 4}[:n], 0))
		if err != nil || string(got) != want {
			t.Errorf("Describe of %d values:\ngot  %s %v\nwant %s", n, got, err, want)
		}
	}
	if d := Describe([]float64{1, 2, 3, 4}, 0); d.MedianCI != nil || d.MeanCI == nil {
		t.Errorf("of 4 values: median %v, mean %v", d.MedianCI, d.MeanCI)
	}
}

func TestDescribe_sameSeedSameInterval(t *testing.T) {
	x := []float64{3, 1, 4, 1, 5, 9, 2, 6}
	a, b, c := Describe(x, 7), Describe(x, 7), Describe(x, 8)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("same seed (-first +second):\n%s", diff)
	}
	if *a.MedianCI == *c.MedianCI {
		t.Errorf("another seed gives the same interval %+v", *a.MedianCI)
	}
	if !slices.Equal(x, []float64{3, 1, 4, 1, 5, 9, 2, 6}) {
		t.Error("the sample was sorted in place")
	}
	if d := Describe([]float64{2, 2, 2, 2, 2}, 1); *d.MedianCI != (Interval{2, 2}) || *d.SD != 0 {
		t.Errorf("of equal values: %+v", *d.MedianCI)
	}
}

func TestOutliers(t *testing.T) {
	for _, row := range []struct {
		name, why string
		x         []float64
		want      []int
	}{
		{"one_far_value", "named by its place in the sample", []float64{10, 11, 90, 10, 12, 9}, []int{2}},
		{"most_equal", "the median deviation is 0, the mean one is not", []float64{5, 5, 5, 5, 5, 5, 5, 5, 9}, []int{8}},
		{"all_equal", "no scale, no outlier", []float64{5, 5, 5, 5}, []int{}},
		{"three_values", "too few to call one of them far", []float64{1, 1, 100}, []int{}},
		{"two_groups", "half of the values are no outliers", []float64{1, 1.1, 0.9, 9, 9.1, 8.9}, []int{}},
	} {
		if diff := cmp.Diff(row.want, Outliers(row.x)); diff != "" {
			t.Errorf("%s (%s) (-want +got):\n%s", row.name, row.why, diff)
		}
	}
}

// The oracle of p is the definition: of all ways to label the values, the share whose U is as low or as high, twice.
func TestChange_pIsThatOfAllPermutations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.IntRange(0, rapid.SampledFrom([]int{2, 4, 1000}).Draw(t, "range")), 4, 10).Draw(t, "values")
		n1 := rapid.IntRange(2, len(values)-2).Draw(t, "n1")
		u := func(isBefore []bool) float64 {
			sum := 0.0
			for i, b := range isBefore {
				for j, c := range isBefore {
					switch {
					case !b || c:
					case values[j] > values[i]:
						sum++
					case values[j] == values[i]:
						sum += 0.5
					}
				}
			}
			return sum
		}
		label := func(at []int) []bool {
			l := make([]bool, len(values))
			for _, i := range at {
				l[i] = true
			}
			return l
		}
		first := make([]int, n1)
		for i := range first {
			first[i] = i
		}
		observed := u(label(first))
		low, high, all := 0, 0, 0
		for _, c := range combin.Combinations(len(values), n1) {
			all++
			if v := u(label(c)); v <= observed {
				low++
			}
			if v := u(label(c)); v >= observed {
				high++
			}
		}
		var before, after []float64
		for i, v := range values {
			if i < n1 {
				before = append(before, float64(v))
			} else {
				after = append(after, float64(v))
			}
		}
		got := Change(before, after)
		if want := min(1, 2*float64(min(low, high))/float64(all)); math.Abs(*got.P-want) > 1e-9 {
			t.Fatalf("Change(%v, %v): p %g, want %g of %d permutations", before, after, *got.P, want, all)
		}
		if want := observed / float64(n1*(len(values)-n1)); math.Abs(*got.Superiority-want) > 1e-12 {
			t.Fatalf("Change(%v, %v): superiority %g, want %g", before, after, *got.Superiority, want)
		}
	})
}

// The oracle of the bisection is the sorted list of all differences.
func TestKthDifference(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 300 {
		b, a := make([]float64, 1+r.IntN(12)), make([]float64, 1+r.IntN(12))
		for _, x := range [][]float64{b, a} {
			for i := range x {
				x[i] = math.Round(r.NormFloat64()*20) / 4
			}
			slices.Sort(x)
		}
		var all []float64
		for _, x := range b {
			for _, y := range a {
				all = append(all, y-x)
			}
		}
		slices.Sort(all)
		for k, want := range all {
			if got := kthDifference(b, a, k); got != want {
				t.Fatalf("difference %d of %v and %v: %g, want %g", k, b, a, got, want)
			}
		}
	}
}

// p and the interval come from one test: without ties, an interval without 0 is one with p of at most 5 %.
func TestChange_pAndIntervalAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	for i := range 2000 {
		n1, n2 := 4+r.IntN(12), 4+r.IntN(12)
		before, after := distributions[0].sample(r, n1), distributions[0].sample(r, n2)
		for j := range after {
			after[j] += float64(i%3) * 0.6
		}
		d := Change(before, after)
		if away := !d.Interval.holds(0); away != (*d.P <= 0.05) {
			t.Fatalf("%d and %d values: p %g, interval %+v", n1, n2, *d.P, *d.Interval)
		}
	}
}

func TestChange_smallSamples(t *testing.T) {
	if d := Change(nil, []float64{1}); d.P != nil || d.Shift != nil || d.Interval != nil {
		t.Errorf("without values: %+v", d)
	}
	// Three against three cannot be significant however far apart: 2 of 20 permutations.
	if d := Change([]float64{1, 2, 3}, []float64{7, 8, 9}); math.Abs(*d.P-0.1) > 1e-12 || d.Interval != nil || *d.Shift != 6 || *d.Superiority != 1 {
		t.Errorf("three and three: p %g, interval %v, shift %g, superiority %g", *d.P, d.Interval, *d.Shift, *d.Superiority)
	}
	if d := Change([]float64{0, 0, 0, 0}, []float64{0, 0, 0, 0, 0}); *d.P != 1 || *d.Shift != 0 || *d.Interval != (Interval{}) {
		t.Errorf("all equal: %+v", d)
	}
}

func TestHolm(t *testing.T) {
	// Holm's own scheme: 4·0.005, then the largest so far of 3·0.01, 2·0.03 and 0.04.
	got := Holm([]float64{0.01, 0.04, 0.03, 0.005})
	if diff := cmp.Diff([]float64{0.03, 0.06, 0.06, 0.02}, got, cmpopts.EquateApprox(0, 1e-12)); diff != "" {
		t.Errorf("Holm (-want +got):\n%s", diff)
	}
	if got := Holm([]float64{0.9, 0.8}); got[0] != 1 || got[1] != 1 {
		t.Errorf("above 1: %v", got)
	}
	if got := Holm(nil); len(got) != 0 {
		t.Errorf("of none: %v", got)
	}
}

func TestTwoGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 11))
	for _, d := range distributions[:2] {
		found := 0
		for range draws {
			if _, _, ok := TwoGroups(d.sample(r, 10)); ok {
				found++
			}
		}
		if found > draws/50 {
			t.Errorf("%s: %d of %d samples fall apart, want at most 2 %%", d.name, found, draws)
		}
	}
	low, high, ok := TwoGroups([]float64{10, 20, 10.1, 9.9, 20.1, 10, 19.9, 10, 10, 20})
	if !ok || low.N != 6 || high.N != 4 || math.Abs(low.Mean-10) > 1e-9 || math.Abs(high.Mean-20) > 1e-9 {
		t.Errorf("two groups: %+v %+v %v", low, high, ok)
	}
	if _, _, ok := TwoGroups([]float64{1, 1, 1, 1, 1, 1, 1, 1, 50}); ok {
		t.Error("one value is no group")
	}
}

func TestWithin(t *testing.T) {
	d := Describe([]float64{0, 0, 0, 0, 871}, 1)
	if d.MedianCI.Low >= 0 || d.MeanCI.Low >= 0 {
		t.Fatalf("intervals %v and %v of a skewed count do not go below 0: the test proves nothing", d.MedianCI, d.MeanCI)
	}
	whole := *d.MeanCI
	w := d.Within(0, 1000)
	if w.MedianCI.Low != 0 || w.MeanCI.Low != 0 || w.MeanCI.High != min(1000, whole.High) || w.Median != d.Median {
		t.Errorf("within 0 and 1000: median %v %v, mean %v", *w.Median, *w.MedianCI, *w.MeanCI)
	}
	if *d.MeanCI != whole {
		t.Error("the interval that was there before is changed")
	}
	if w := Describe([]float64{0.99, 0.97, 0.999, 1, 0.96}, 1).Within(0, 1); w.MeanCI.High > 1 || w.MedianCI.High > 1 {
		t.Errorf("intervals of an index end at %v and %v", w.MeanCI.High, w.MedianCI.High)
	}
	Describe(nil, 1).Within(0, 1)
}
