package domain

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
)

// Size is a number of octets, or a multiple of the access link's bandwidth-delay product. The zero value is "not given",
// which is not an amount of zero.
type Size struct {
	given  bool
	octets units.Size
	bdps   float64
}

// Octets is an amount of n octets.
func Octets(n int64) Size { return Size{given: true, octets: units.Size(n)} }

// BDPs is an amount of x bandwidth-delay products.
func BDPs(x float64) Size { return Size{given: true, bdps: x} }

// Given says that there is an amount.
func (a Size) Given() bool { return a.given }

// IsZero says that there is none.
func (a Size) IsZero() bool { return !a.given }

// Of is the amount in octets on a link with that bandwidth-delay product. Not given it is zero.
func (a Size) Of(bdp int64) int64 {
	if a.bdps != 0 {
		return int64(math.Round(a.bdps * float64(bdp)))
	}
	return int64(a.octets)
}

// Duration is a duration, or a multiple of the domain's base round-trip time. The zero value is "not given".
type Duration struct {
	given bool
	d     time.Duration
	rtts  float64
}

// Time is a span of a duration.
func Time(d time.Duration) Duration { return Duration{given: true, d: d} }

// RTTs is a span of x round-trip times.
func RTTs(x float64) Duration { return Duration{given: true, rtts: x} }

// Given says that there is a span.
func (s Duration) Given() bool { return s.given }

// IsZero says that there is none.
func (s Duration) IsZero() bool { return !s.given }

// relative says that the span needs a round-trip time.
func (s Duration) relative() bool { return s.rtts != 0 }

// Of is the duration where the base round-trip time is rtt and the virtual lab's time scale is scale: a duration is that of
// hardware, and the round-trip time is the lab's already. Not given it is zero.
func (s Duration) Of(rtt time.Duration, scale units.Scale) time.Duration {
	if s.rtts != 0 {
		return time.Duration(math.Round(s.rtts * float64(rtt)))
	}
	return scale.Time(s.d)
}

// Notations. "2 * BDP", "2BDP" and "BDP" are what people also write; they are read, and printed as 2*BDP.
const (
	factor        = `((0|[1-9][0-9]{0,5})(\.[0-9]{1,9})? ?\*? ?)?`
	amountPattern = `^(` + factor + `BDP|(0|[1-9][0-9]{0,8})(\.[0-9]{1,9})? ?([kKmMgG]i?)?B)$`
	spanPattern   = `^(` + factor + `RTT|((0|[1-9][0-9]{0,5})(\.[0-9]{1,9})?(ns|us|µs|ms|s|m|h)){1,6})$`
)

// TextPattern is the notation, for files.
func (Size) TextPattern() (pattern, example string) {
	return amountPattern, "256KiB, 2*BDP or, for none, 0B"
}

// TextPattern is the notation, for files.
func (Duration) TextPattern() (pattern, example string) { return spanPattern, "15us or 2*RTT" }

// multiple reads "2*BDP".
func multiple(text, unit string) (x float64, is bool, err error) {
	number, is := strings.CutSuffix(strings.TrimSpace(text), unit)
	if !is {
		return 0, false, nil
	}
	number = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(number), "*"))
	if number == "" {
		return 1, true, nil
	}
	x, err = strconv.ParseFloat(number, 64)
	if err != nil || !(x >= 0 && x < 1e6) {
		return 0, true, fmt.Errorf("%q: need a number before %s, such as 2*%s", text, unit, unit)
	}
	return x, true, nil
}

// UnmarshalText reads "256KiB" and "2*BDP".
func (a *Size) UnmarshalText(b []byte) error {
	if x, is, err := multiple(string(b), "BDP"); is {
		if *a = BDPs(x); x == 0 {
			*a = Octets(0)
		}
		return err
	}
	n, err := units.ParseSize(string(b))
	if err != nil {
		return err
	}
	*a = Octets(int64(n))
	return nil
}

// MarshalText prints what UnmarshalText reads; nothing when not given.
func (a Size) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// String is the amount as it is written.
func (a Size) String() string {
	switch {
	case !a.given:
		return ""
	case a.bdps != 0:
		return strconv.FormatFloat(a.bdps, 'f', -1, 64) + "*BDP"
	}
	return a.octets.String()
}

// UnmarshalText reads "15us" and "2*RTT".
func (s *Duration) UnmarshalText(b []byte) error {
	if x, is, err := multiple(string(b), "RTT"); is {
		if *s = RTTs(x); x == 0 {
			*s = Time(0)
		}
		return err
	}
	d, err := time.ParseDuration(string(b))
	if err != nil || d < 0 {
		return fmt.Errorf("%q: need a duration with its unit, such as 15us, or a multiple of the round-trip time, such as 2*RTT", b)
	}
	*s = Time(d)
	return nil
}

// MarshalText prints what UnmarshalText reads; nothing when not given.
func (s Duration) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String is the span as it is written.
func (s Duration) String() string {
	switch {
	case !s.given:
		return ""
	case s.rtts != 0:
		return strconv.FormatFloat(s.rtts, 'f', -1, 64) + "*RTT"
	}
	return strings.ReplaceAll(s.d.String(), "µ", "u")
}
