// Package stats describes samples of repeated measurements and the difference between two of them. It knows numbers only.
//
// What is computed, and by whom:
//
//   - mean, standard deviation, Student's t and the normal distribution: gonum/stat;
//   - quantiles and the Mann–Whitney test, exact up to 50 values a side (25 with ties): aclements/go-moremath/stats;
//   - the interval of a median: smoothed bootstrap (Silverman and Young 1987), seeded. The plain and the bias-corrected
//     bootstrap of a median cover too little: its resamples take few distinct values. docs/compare.md has the coverages;
//   - the shift between two samples, and its interval: Hodges–Lehmann, the interval by inverting the same Mann–Whitney test
//     that gives p, so that the two cannot contradict each other without ties;
//   - p of many scores: Holm.
//
// Nothing is dropped: outliers are named, and count in every figure.
package stats

// Confidence is that of all intervals.
const Confidence = 0.95

// Interval is a 95 % confidence interval.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Within says that the whole interval lies in [-limit, limit].
func (i Interval) Within(limit float64) bool { return -limit <= i.Low && i.High <= limit }
