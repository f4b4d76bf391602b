package stats

import (
	"math"
	"math/rand/v2"
	"slices"

	moremath "github.com/aclements/go-moremath/stats"
	"gonum.org/v1/gonum/stat"
)

// Description is one sample in figures. What the sample is too small for is nil.
type Description struct {
	N        int       `json:"n"`
	Mean     *float64  `json:"mean"`
	Median   *float64  `json:"median"`
	SD       *float64  `json:"sd"` // of the sample, n-1
	Min      *float64  `json:"min"`
	Max      *float64  `json:"max"`
	MeanCI   *Interval `json:"mean_ci95"`   // Student's t; needs two values
	MedianCI *Interval `json:"median_ci95"` // smoothed bootstrap; needs MedianIntervalFrom values
	// Outliers are indexes into the sample as given. They count in all other figures.
	Outliers []int `json:"outliers"`
}

// MedianIntervalFrom is the least number of values for the interval of a median. From 10 on it covers 93 to 97 %, between 5
// and 9 it may cover as little as 91 %.
const MedianIntervalFrom = 5

// resamples of the bootstrap. The ends of the interval then lie on the 15th smallest and largest.
const resamples = 599

// Describe gives the figures of a sample. The seed is that of the bootstrap: the same seed and values give the same interval.
func Describe(x []float64, seed uint64) Description {
	d := Figures(x)
	switch {
	case len(x) < MedianIntervalFrom:
	case *d.Min == *d.Max:
		d.MedianCI = &Interval{*d.Median, *d.Median}
	default:
		d.MedianCI = medianInterval(sorted(x), *d.SD, seed)
	}
	return d
}

// Within is d with intervals that do not go beyond what values there can be: the normal noise and Student's curve know no bounds.
func (d Description) Within(least, most float64) Description {
	for _, ci := range []**Interval{&d.MeanCI, &d.MedianCI} {
		if *ci != nil {
			*ci = &Interval{min(max((*ci).Low, least), most), min(max((*ci).High, least), most)}
		}
	}
	return d
}

// Figures is Describe without the interval of the median, which takes most of the time.
func Figures(x []float64) Description {
	d := Description{N: len(x), Outliers: Outliers(x)}
	if len(x) == 0 {
		return d
	}
	s := sorted(x)
	median := quantile(s, 0.5)
	d.Median, d.Min, d.Max = &median, &s[0], &s[len(s)-1]
	mean, sd, interval := meanInterval(x)
	d.Mean = &mean
	if len(x) < 2 {
		return d
	}
	d.SD, d.MeanCI = &sd, &interval
	return d
}

// meanInterval is Student's; of one value, only the mean is of use.
func meanInterval(x []float64) (mean, sd float64, ci Interval) {
	n := float64(len(x))
	mean, sd = stat.MeanStdDev(x, nil)
	if len(x) > 1 {
		half := studentsT(len(x)-1, (1+Confidence)/2) * stat.StdErr(sd, n)
		ci = Interval{mean - half, mean + half}
	}
	return mean, sd, ci
}

// medianInterval is a percentile interval over resamples to each value of which a little normal noise is added. Its width,
// the scale of the sample over the root of n, vanishes as fast as the interval itself.
func medianInterval(s []float64, sd float64, seed uint64) *Interval {
	scale := sd
	if iqr := (quantile(s, 0.75) - quantile(s, 0.25)) / 1.349; iqr < scale {
		scale = iqr
	}
	h := scale / math.Sqrt(float64(len(s)))
	r := rand.New(rand.NewPCG(seed, 0x5eed0f1e1d))
	medians, resample := make([]float64, resamples), make([]float64, len(s))
	for i := range medians {
		for j := range resample {
			resample[j] = s[r.IntN(len(s))]
			if h > 0 {
				resample[j] += h * r.NormFloat64()
			}
		}
		sortShort(resample)
		medians[i] = (resample[(len(s)-1)/2] + resample[len(s)/2]) / 2
	}
	slices.Sort(medians)
	tail := int(math.Round((1 - Confidence) / 2 * (resamples + 1)))
	return &Interval{medians[tail-1], medians[resamples-tail]}
}

// sortShort sorts few numbers, none of them NaN, in half the time of slices.Sort: most of a comparison is spent here.
func sortShort(x []float64) {
	if len(x) > 24 {
		slices.Sort(x)
		return
	}
	for i := 1; i < len(x); i++ {
		v, j := x[i], i
		for ; j > 0 && x[j-1] > v; j-- {
			x[j] = x[j-1]
		}
		x[j] = v
	}
}

// Median of a sample that is not empty.
func Median(x []float64) float64 { return quantile(sorted(x), 0.5) }

// Outliers are the indexes of values farther from the median than 3.5 robust standard deviations: Iglewicz and Hoaglin's
// modified z-score on the median absolute deviation or, where most values are equal, on the mean one.
func Outliers(x []float64) []int {
	found := []int{}
	if len(x) < 4 {
		return found
	}
	dev := deviations(x)
	scale := 1.4826 * quantile(sorted(dev), 0.5)
	if scale == 0 {
		scale = 1.2533 * stat.Mean(dev, nil)
	}
	for i, d := range dev {
		if scale > 0 && d > 3.5*scale {
			found = append(found, i)
		}
	}
	return found
}

// deviations are the distances from the median.
func deviations(x []float64) []float64 {
	m := quantile(sorted(x), 0.5)
	d := make([]float64, len(x))
	for i, v := range x {
		d[i] = math.Abs(v - m)
	}
	return d
}

func sorted(x []float64) []float64 {
	s := slices.Clone(x)
	slices.Sort(s)
	return s
}

// quantile of a sorted sample.
func quantile(s []float64, q float64) float64 {
	return moremath.Sample{Xs: s, Sorted: true}.Quantile(q)
}
