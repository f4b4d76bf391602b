package rdcc

import (
	"math"
	"time"
)

// Mbps is a rate on the wire, in units of 10^6 bit/s.
type Mbps uint32

// MbpsOf is a rate in bit/s as the wire has it: rounded down, but a rate that is there never becomes zero, which would mean
// none (decision 16). Zero and less are zero.
func MbpsOf(bps int64) Mbps {
	if bps <= 0 {
		return 0
	}
	if !on(RuleRateNotZero) {
		return Mbps(min(bps/1e6, math.MaxUint32))
	}
	return Mbps(min(max(bps/1e6, 1), math.MaxUint32))
}

// BitsPerSecond is the rate in bit/s.
func (r Mbps) BitsPerSecond() int64 { return int64(r) * 1e6 }

// Micros is a duration on the wire, in microseconds.
type Micros uint32

// MicrosOf is a duration as the wire has it: rounded down, at most what fits (71 minutes). Less than nothing is zero.
func MicrosOf(d time.Duration) Micros {
	return Micros(min(max(d/time.Microsecond, 0), math.MaxUint32))
}

// Duration is the duration.
func (m Micros) Duration() time.Duration { return time.Duration(m) * time.Microsecond }

// Newer says that sequence number a is newer than b in serial number arithmetic (RFC 1982). Of two that are 2^31 apart
// neither is newer.
func Newer(a, b uint32) bool {
	if !on(RuleSerialArithmetic) {
		return a > b
	}
	return int32(a-b) > 0
}
