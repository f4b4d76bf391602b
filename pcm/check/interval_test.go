package check

import (
	"testing"

	"pgregory.net/rapid"
)

// TestIntervals_holdEveryResult: for any two intervals and any values in them, the interval of the result holds the result, as C's
// unsigned and signed words compute it.
func TestIntervals_holdEveryResult(t *testing.T) {
	ops := []string{"+", "-", "*", "/", "%", "&", "|", "^", ">>", "<<"}
	shapes := []shape{{integer: true, bits: 64}, {integer: true, bits: 64, signed: true}, {integer: true, bits: 32}, {integer: true, bits: 32, signed: true}}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(shapes).Draw(t, "type")
		whole := rangeOf(s)
		number := rapid.OneOf(rapid.Int64Range(0, 300), rapid.Int64Range(-300, 300), rapid.Int64Range(whole.lo, whole.hi))
		draw := func(name string) (interval, int64) {
			a, b, c := number.Draw(t, name), number.Draw(t, name), number.Draw(t, name)
			i := around(a, b, c).as(s)
			v := around(c).as(s)
			if v.lo != v.hi {
				return i, i.lo
			}
			return i, c
		}
		i, a := draw("a")
		j, b := draw("b")
		op := rapid.SampledFrom(ops).Draw(t, "op")
		if (op == "/" || op == "%") && b == 0 || (op == ">>" || op == "<<") && (b < 0 || b >= int64(s.bits)) {
			return
		}
		got := apply(op, i, j).as(s)
		if want, ok := compute(op, a, b, s); ok && (want < got.lo || want > got.hi) {
			t.Fatalf("%v %s %v = %v, which does not hold %d %s %d = %d", i, op, j, got, a, op, b, want)
		}
	})
}

// compute is a op b in a word of C; ok is false where C says nothing, or where the result is above what an interval's end can name.
func compute(op string, a, b int64, s shape) (int64, bool) {
	if s.signed {
		var v int64
		switch op {
		case "+":
			v = a + b
			if (v > a) != (b > 0) && b != 0 {
				return 0, false
			}
		case "-":
			v = a - b
			if (v < a) != (b > 0) && b != 0 {
				return 0, false
			}
		case "*":
			v = a * b
			if a != 0 && v/a != b || a == -1 && b == bottom {
				return 0, false
			}
		case "/":
			if a == bottom && b == -1 {
				return 0, false
			}
			v = a / b
		case "%":
			if a == bottom && b == -1 {
				return 0, false
			}
			v = a % b
		case "&":
			v = a & b
		case "|":
			v = a | b
		case "^":
			v = a ^ b
		case ">>":
			v = a >> b
		case "<<":
			v = a << b
			if a < 0 || v>>b != a {
				return 0, false
			}
		}
		return v, v >= rangeOf(s).lo && v <= rangeOf(s).hi
	}
	x, y := uint64(a), uint64(b)
	var v uint64
	switch op {
	case "+":
		v = x + y
	case "-":
		v = x - y
	case "*":
		v = x * y
	case "/":
		v = x / y
	case "%":
		v = x % y
	case "&":
		v = x & y
	case "|":
		v = x | y
	case "^":
		v = x ^ y
	case ">>":
		v = x >> y
	case "<<":
		v = x << y
	}
	if s.bits == 32 {
		v = uint64(uint32(v))
	}
	if v > top {
		return top, true
	}
	return int64(v), true
}
