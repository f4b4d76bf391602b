package capture

import (
	"fmt"
	"math"
	"math/bits"
)

// tsClock turns an interface's timestamps into nanoseconds: if_tsresol and if_tsoffset of pcapng.
type tsClock struct {
	resolution uint8 // bit 7 clear: units of 10^-n s; set: of 2^-n s
	offset     int64 // seconds to add
}

// String is the unit, for messages.
func (c tsClock) String() string {
	if c.resolution&0x80 != 0 {
		return fmt.Sprintf("2^-%d s", c.resolution&0x7f)
	}
	return fmt.Sprintf("10^-%d s", c.resolution)
}

// ns is the time in nanoseconds since 1970; ok is false where that does not fit. Fractions of a nanosecond are cut.
func (c tsClock) ns(ts uint64) (ns int64, ok bool) {
	var v uint64
	switch {
	case c.resolution == 9:
		v = ts
	case c.resolution < 9:
		hi, lo := bits.Mul64(ts, pow10(9-int(c.resolution)))
		if hi != 0 {
			return 0, false
		}
		v = lo
	case c.resolution <= 9+19:
		v = ts / pow10(int(c.resolution)-9)
	case c.resolution < 0x80:
		v = 0 // 2^64 units of 10^-29 s are less than a nanosecond
	default:
		n := uint(c.resolution & 0x7f)
		hi, lo := bits.Mul64(ts, 1e9)
		if n >= 64 {
			v = hi >> (n - 64)
		} else if hi>>n != 0 {
			return 0, false
		} else {
			v = hi<<(64-n) | lo>>n
		}
	}
	if v > math.MaxInt64 {
		return 0, false
	}
	if c.offset == 0 {
		return int64(v), true
	}
	const limit = math.MaxInt64 / 1_000_000_000
	if c.offset > limit || c.offset < -limit {
		return 0, false
	}
	sum := int64(v) + c.offset*1e9
	if c.offset > 0 && sum < int64(v) {
		return 0, false
	}
	return sum, true
}

func pow10(n int) uint64 { return powers[n] }

var powers = func() (t [20]uint64) {
	t[0] = 1
	for i := 1; i < len(t); i++ {
		t[i] = t[i-1] * 10
	}
	return t
}()
