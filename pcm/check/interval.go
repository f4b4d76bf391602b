package check

import (
	"fmt"
	"math"
	"math/bits"
)

// interval is the integers from lo to hi. The ends of int64 stand for "and beyond": all ones of an unsigned word is top.
type interval struct{ lo, hi int64 }

const (
	bottom = math.MinInt64
	top    = math.MaxInt64
)

var everything = interval{bottom, top}

// rangeOf is all that a type can hold.
func rangeOf(s shape) interval {
	switch {
	case !s.integer:
		return everything
	case s.bits >= 64 && s.signed:
		return everything
	case s.bits >= 64:
		return interval{0, top}
	case s.signed:
		return interval{-1 << (s.bits - 1), 1<<(s.bits-1) - 1}
	}
	return interval{0, 1<<s.bits - 1}
}

func (i interval) String() string {
	switch {
	case i.lo == i.hi:
		return fmt.Sprint(i.lo)
	case i.lo == bottom && i.hi == top:
		return "anything"
	case i.hi == top:
		return fmt.Sprintf("%d or more", i.lo)
	case i.lo == bottom:
		return fmt.Sprintf("%d or less", i.hi)
	}
	return fmt.Sprintf("%d to %d", i.lo, i.hi)
}

func (i interval) join(j interval) interval { return interval{min(i.lo, j.lo), max(i.hi, j.hi)} }
func (i interval) meet(j interval) interval { return interval{max(i.lo, j.lo), min(i.hi, j.hi)} }
func (i interval) empty() bool              { return i.lo > i.hi }
func (i interval) within(j interval) bool   { return i.lo >= j.lo && i.hi <= j.hi }
func (i interval) finite() bool             { return i.lo != bottom && i.hi != top }

// as is the value converted to a type: what does not fit may become anything that does.
func (i interval) as(s shape) interval {
	r := rangeOf(s)
	if i.within(r) {
		return i
	}
	return r
}

// plus and times go beyond instead of wrapping.
func plus(a, b int64) int64 {
	if a == bottom || b == bottom {
		return bottom
	}
	if a == top || b == top {
		return top
	}
	switch s := a + b; {
	case a > 0 && b > 0 && s < 0:
		return top
	case a < 0 && b < 0 && s >= 0:
		return bottom
	default:
		return s
	}
}

func negate(a int64) int64 {
	switch a {
	case bottom:
		return top
	case top:
		return bottom
	}
	return -a
}

func times(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	negative := (a < 0) != (b < 0)
	beyond := a == top || a == bottom || b == top || b == bottom
	if !beyond {
		hi, lo := bits.Mul64(magnitude(a), magnitude(b))
		if hi == 0 && lo < math.MaxInt64 {
			if negative {
				return -int64(lo)
			}
			return int64(lo)
		}
	}
	if negative {
		return bottom
	}
	return top
}

func magnitude(a int64) uint64 {
	if a < 0 {
		return uint64(-a)
	}
	return uint64(a)
}

func around(v ...int64) interval {
	out := interval{v[0], v[0]}
	for _, x := range v[1:] {
		out.lo, out.hi = min(out.lo, x), max(out.hi, x)
	}
	return out
}

// apply is a op b for operands that are converted to the result's type already; the result may be beyond the type.
func apply(op string, a, b interval) interval {
	switch op {
	case "+":
		return interval{plus(a.lo, b.lo), plus(a.hi, b.hi)}
	case "-":
		return interval{plus(a.lo, negate(b.hi)), plus(a.hi, negate(b.lo))}
	case "*":
		return around(times(a.lo, b.lo), times(a.lo, b.hi), times(a.hi, b.lo), times(a.hi, b.hi))
	case "/":
		if b.lo > 0 || a.lo >= 0 && b.lo >= 0 { // by zero is nothing that C defines
			lo, hi := max(b.lo, 1), b.hi
			return around(quotient(a.lo, lo), quotient(a.lo, hi), quotient(a.hi, lo), quotient(a.hi, hi))
		}
	case "%":
		if b.lo >= 0 && b.hi > 0 {
			limit := b.hi
			if limit != top {
				limit--
			}
			if a.lo >= 0 {
				if a.hi < max(b.lo, 1) {
					return a
				}
				return interval{0, min(a.hi, limit)}
			}
			return interval{negate(limit), limit}
		}
	case "&":
		switch {
		case a.lo >= 0 && b.lo >= 0:
			return interval{0, min(a.hi, b.hi)}
		case a.lo >= 0:
			return interval{0, a.hi}
		case b.lo >= 0:
			return interval{0, b.hi}
		}
	case "|", "^":
		if a.lo >= 0 && b.lo >= 0 {
			if a.hi == top || b.hi == top {
				return interval{0, top}
			}
			return interval{0, int64(1)<<bits.Len64(uint64(a.hi|b.hi)) - 1}
		}
	case ">>":
		if a.lo >= 0 && b.lo >= 0 {
			lo, hi := int64(0), a.hi
			if hi != top || b.lo > 0 {
				hi >>= min(b.lo, 63)
			}
			if b.hi < 63 && a.lo != top {
				lo = a.lo >> b.hi
			}
			return interval{lo, hi}
		}
	case "<<":
		if a.lo >= 0 && b.lo >= 0 && b.hi < 63 {
			return interval{times(a.lo, 1<<b.lo), times(a.hi, 1<<b.hi)}
		}
	case "<", ">", "<=", ">=", "==", "!=", "&&", "||":
		return interval{0, 1}
	}
	return everything
}

func quotient(a, b int64) int64 {
	switch {
	case b == top || b == bottom:
		return 0
	case a == top || a == bottom:
		if b == 1 {
			return a
		}
		return a / b // at most that
	}
	return a / b
}

// narrowed is what v may be where "v op other" holds.
func narrowed(v interval, op string, other interval) interval {
	switch op {
	case "<":
		return v.meet(interval{bottom, plus(other.hi, -1)})
	case "<=":
		return v.meet(interval{bottom, other.hi})
	case ">":
		return v.meet(interval{plus(other.lo, 1), top})
	case ">=":
		return v.meet(interval{other.lo, top})
	case "==":
		return v.meet(other)
	case "!=":
		if other.lo == other.hi && other.finite() {
			if v.lo == other.lo {
				v.lo++
			}
			if v.hi == other.lo {
				v.hi--
			}
		}
	}
	return v
}

var opposite = map[string]string{"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
var mirrored = map[string]string{"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
