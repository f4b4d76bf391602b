// Package units holds the quantities that every room speaks in: rates, sizes and the time scale.
//
// Rates are bits per second with SI prefixes (k = 1000), sizes are bytes with IEC prefixes (Ki = 1024) or SI
// prefixes, as network engineers write them: "25Gbit/s", "64KiB". Both print the form they parse.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Rate is a rate in bits per second. The zero value means "not given".
type Rate int64

// Size is a number of bytes. The zero value means "not given" where the field's comment says so.
type Size int64

// Common multiples.
const (
	KbitPerSec Rate = 1e3
	MbitPerSec Rate = 1e6
	GbitPerSec Rate = 1e9

	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
)

var rateUnits = []struct {
	suffix string
	factor float64
}{
	{"tbit/s", 1e12}, {"gbit/s", 1e9}, {"mbit/s", 1e6}, {"kbit/s", 1e3}, {"bit/s", 1},
	{"tb/s", 1e12}, {"gb/s", 1e9}, {"mb/s", 1e6}, {"kb/s", 1e3}, {"b/s", 1},
	{"tbps", 1e12}, {"gbps", 1e9}, {"mbps", 1e6}, {"kbps", 1e3}, {"bps", 1},
}

// ParseRate reads a rate such as "25Gbit/s", "500 Mb/s" or "1.5Gbps"; the unit is always bits, never bytes.
func ParseRate(s string) (Rate, error) {
	if strings.Contains(s, "B/s") || strings.Contains(s, "Bps") {
		return 0, fmt.Errorf("rate %q: a B stands for bytes; rates are in bits: 25Gbit/s or 25Gb/s", s)
	}
	text := strings.ToLower(strings.TrimSpace(s))
	for _, u := range rateUnits {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		v, err := parseNumber(number, u.factor)
		if err != nil {
			return 0, fmt.Errorf("rate %q: %w", s, err)
		}
		return Rate(v), nil
	}
	return 0, fmt.Errorf("rate %q: need a number with a unit such as 25Gbit/s", s)
}

var sizeUnits = []struct {
	suffix string
	factor float64
}{
	{"tib", 1 << 40}, {"gib", 1 << 30}, {"mib", 1 << 20}, {"kib", 1 << 10},
	{"tb", 1e12}, {"gb", 1e9}, {"mb", 1e6}, {"kb", 1e3}, {"b", 1}, {"", 1},
}

// ParseSize reads a size such as "64KiB", "2MB" or "4096" (bytes).
func ParseSize(s string) (Size, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		v, err := parseNumber(number, u.factor)
		if err != nil {
			return 0, fmt.Errorf("size %q: %w", s, err)
		}
		return Size(v), nil
	}
	return 0, fmt.Errorf("size %q: need a number with a unit such as 64KiB", s)
}

func parseNumber(s string, factor float64) (int64, error) {
	s = strings.TrimSpace(s)
	if len(s) > 1 && s[0] == '0' && s[1] != '.' {
		return 0, fmt.Errorf("%q has a leading zero, which some readers take for octal", s)
	}
	for _, c := range s {
		if (c < '0' || c > '9') && c != '.' {
			return 0, fmt.Errorf("%q is not a decimal number", s)
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a decimal number", s)
	}
	if v *= factor; v > math.MaxInt64/2 {
		return 0, fmt.Errorf("%q is too large", s)
	}
	return int64(math.Round(v)), nil
}

// String prints r with the largest prefix that leaves at most three decimals: "25Gbit/s", "62.5Mbit/s".
func (r Rate) String() string {
	return format(float64(r), []string{"Tbit/s", "Gbit/s", "Mbit/s", "kbit/s"}, []float64{1e12, 1e9, 1e6, 1e3}, "bit/s")
}

// String prints s with the largest IEC prefix that leaves at most three decimals: "64KiB", "1000B".
func (s Size) String() string {
	return format(float64(s), []string{"GiB", "MiB", "KiB"}, []float64{1 << 30, 1 << 20, 1 << 10}, "B")
}

func format(v float64, names []string, factors []float64, base string) string {
	for i, f := range factors {
		if scaled := v / f; math.Abs(scaled) >= 1 && scaled*1000 == math.Trunc(scaled*1000) {
			return strconv.FormatFloat(scaled, 'f', -1, 64) + names[i]
		}
	}
	return strconv.FormatFloat(v, 'f', -1, 64) + base
}

// MarshalText and UnmarshalText make rates and sizes readable in JSON and YAML.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is ParseRate.
func (r *Rate) UnmarshalText(b []byte) (err error) { *r, err = ParseRate(string(b)); return err }

// MarshalText prints what ParseSize reads.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseSize.
func (s *Size) UnmarshalText(b []byte) (err error) { *s, err = ParseSize(string(b)); return err }

// Transmit is the time that n bytes take on a link of rate r.
func (r Rate) Transmit(n int) time.Duration {
	if r <= 0 {
		return 0
	}
	return time.Duration(float64(n) * 8e9 / float64(r))
}

// Scale is the time scale S of a virtual lab: rates are divided by it and protocol times multiplied, so that
// sizes, thresholds and ratios keep their value. 1 is hardware time; 0 is read as 1.
type Scale float64

// Factor is S itself, with the zero value read as 1.
func (s Scale) Factor() float64 {
	if s <= 0 {
		return 1
	}
	return float64(s)
}

// Rate gives the rate at which a hardware rate is built.
func (s Scale) Rate(hw Rate) Rate { return Rate(math.Round(float64(hw) / s.Factor())) }

// Time gives the time for which a hardware time is built.
func (s Scale) Time(hw time.Duration) time.Duration {
	return time.Duration(math.Round(float64(hw) * s.Factor()))
}

// HardwareRate gives the hardware-equivalent of a measured rate.
func (s Scale) HardwareRate(measured float64) float64 { return measured * s.Factor() }
