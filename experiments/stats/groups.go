package stats

import "gonum.org/v1/gonum/stat"

// Part is one of two groups that a sample falls into.
type Part struct {
	N    int     `json:"n"`
	Mean float64 `json:"mean"`
}

// TwoGroups says that a sample of at least 8 values falls apart: that splitting it in two, each with a fifth of the values
// or more, leaves less than a twentieth of its variance. A uniform sample keeps a quarter. It describes, it is no test.
func TwoGroups(x []float64) (low, high Part, ok bool) {
	if len(x) < 8 {
		return low, high, false
	}
	s := sorted(x)
	_, total := stat.PopMeanVariance(s, nil)
	least := 0.05 * total * float64(len(s))
	for i := max(2, (len(s)+4)/5); i <= len(s)-max(2, (len(s)+4)/5); i++ {
		m1, v1 := stat.PopMeanVariance(s[:i], nil)
		m2, v2 := stat.PopMeanVariance(s[i:], nil)
		if within := v1*float64(i) + v2*float64(len(s)-i); within < least {
			low, high, ok, least = Part{i, m1}, Part{len(s) - i, m2}, true, within
		}
	}
	return low, high, ok
}
