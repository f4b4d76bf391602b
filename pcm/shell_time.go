package pcm

import (
	"fmt"
	"math/big"
)

// Tick is the unit of the times that a shell's caller gives, those of RTTs too: Num / Den nanoseconds. The zero value is one nanosecond; 100/1 is
// the tick of DOCA PCC's shells, and 10/21 that of a time stamp counter of 2.1 GHz.
type Tick struct{ Num, Den uint64 }

func (t Tick) orNS() Tick {
	if t == (Tick{}) {
		return Tick{1, 1}
	}
	return t
}

// ratio is that of the caller's tick to the unit of the package, in lowest terms.
func (p *Package) ratio() (n, d *big.Int) {
	unit := timeUnits["ns"]
	if p.Fabric != nil {
		unit = p.Fabric.TimeUnitPS
	}
	tick := p.Tick.orNS()
	n, d = new(big.Int).SetUint64(tick.Num), new(big.Int).SetUint64(tick.Den)
	r := new(big.Rat).SetFrac(n.Mul(n, big.NewInt(1000)), d.Mul(d, big.NewInt(unit)))
	return r.Num(), r.Denom()
}

// CheckTick says why the package's shell cannot convert its caller's ticks: they are nothing, or so odd a fraction of the package's unit that
// 64 bits do not hold their product.
func (p *Package) CheckTick() error {
	tick := p.Tick.orNS()
	if tick.Num == 0 || tick.Den == 0 {
		return fmt.Errorf("a tick of %d/%d ns is no time", tick.Num, tick.Den)
	}
	if n, d := p.ratio(); n.BitLen()+d.BitLen() > 64 {
		return fmt.Errorf("a tick of %d/%d ns is %v/%v of the package's unit, which is too odd to convert: round it", tick.Num, tick.Den, n, d)
	}
	return nil
}

// time converts ticks of the caller into the unit of the package; a remainder is cut off. What is divided by is constant, so that compilers
// multiply instead. The quotient goes before the product: nothing overflows that the result does not, and since it wraps as it would without
// bounds, the time between two of any clock is right.
func (w *shellWriter) time() {
	n, d := w.ratio()
	expr := "t"
	switch one := big.NewInt(1); {
	case n.Cmp(one) == 0 && d.Cmp(one) == 0:
	case d.Cmp(one) == 0:
		expr = fmt.Sprintf("t * UINT64_C(%v)", n)
	case n.Cmp(one) == 0:
		expr = fmt.Sprintf("t / UINT64_C(%v)", d)
	default:
		expr = fmt.Sprintf("t / UINT64_C(%v) * UINT64_C(%v) + t %% UINT64_C(%v) * UINT64_C(%v) / UINT64_C(%v)", d, n, d, n, d)
	}
	w.line("static inline uint64_t pcm_time(uint64_t t) { return %s; }\n", expr)
}
