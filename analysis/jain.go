package analysis

// Jain is Jain's fairness index (sum x)^2 / (n sum x^2) of x: 1 when all are equal, 1/n when one has all. ok is false
// for no values and when all are zero, where the index is not defined.
func Jain(x []float64) (index float64, ok bool) {
	var sum, squares float64
	for _, v := range x {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return 0, false
	}
	return sum * sum / (float64(len(x)) * squares), true
}

// jainOf is Jain for a document: null where the index is not defined.
func jainOf(x []float64) *float64 {
	if v, ok := Jain(x); ok {
		return &v
	}
	return nil
}
