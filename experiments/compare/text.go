package compare

import (
	"fmt"
	"math"
	"time"
)

// Number prints a value with its unit: 4.12 Mb/s, 1.24ms, 35/s, 0.971.
func Number(v float64, unit string) string {
	switch unit {
	case "bit/s":
		for _, u := range []struct {
			factor float64
			name   string
		}{{1e9, "Gb/s"}, {1e6, "Mb/s"}, {1e3, "kb/s"}} {
			if math.Abs(v) >= u.factor {
				return fmt.Sprintf("%.4g %s", v/u.factor, u.name)
			}
		}
		return fmt.Sprintf("%.4g bit/s", v)
	case "ns":
		if math.Abs(v) < float64(time.Hour) {
			return digits(time.Duration(v)).String()
		}
		return fmt.Sprintf("%.4g s", v/1e9)
	}
	if unit == "1/s" {
		return fmt.Sprintf("%.4g/s", v)
	}
	return fmt.Sprintf("%.4g", v) // a ratio, or a count of what the metric's name says
}

// digits rounds a time to four digits.
func digits(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for abs := d.Abs(); abs/unit >= 10000; {
		unit *= 10
	}
	return d.Round(unit)
}

// changeText prints the change: as a share of the median before where the threshold is one, else with its unit.
func (s *ScoreChange) changeText() string {
	show := func(v float64) string {
		if s.asShare() {
			return percent(v / *s.Before.Median)
		}
		return signed(v, s.Unit)
	}
	if s.asShare() {
		text := percent(*s.ChangeShare) + " %"
		if s.Interval != nil {
			low, high := s.Interval.Low, s.Interval.High
			if *s.Before.Median < 0 {
				low, high = high, low
			}
			text += fmt.Sprintf(" (%s to %s)", show(low), show(high))
		}
		return text
	}
	text := show(*s.Change)
	if s.Interval != nil {
		text += fmt.Sprintf(" (%s to %s)", show(s.Interval.Low), show(s.Interval.High))
	}
	return text
}

// percent prints a share without a sign that stands for nothing.
func percent(share float64) string {
	if math.Abs(share) < 5e-6 {
		return "0"
	}
	if math.Abs(share) >= 0.995 {
		return fmt.Sprintf("%+.0f", 100*share)
	}
	return fmt.Sprintf("%+.2g", 100*share)
}

func signed(v float64, unit string) string {
	if v == 0 {
		return "0" // also of -0
	}
	if v < 0 {
		return Number(v, unit)
	}
	return "+" + Number(v, unit)
}

// asShare says that the change reads best as a share: the unit is one of size, and there is something to be a share of.
func (s *ScoreChange) asShare() bool { return s.ChangeShare != nil && s.Unit != "" }

func (s *ScoreChange) limitText() string {
	if s.asShare() && *s.Before.Median != 0 {
		return fmt.Sprintf("%.3g %%", math.Abs(100**s.Limit / *s.Before.Median))
	}
	return Number(*s.Limit, s.Unit)
}

// ChangeText is the change with its interval, as tables show it; "-" when it was not measured.
func (s *ScoreChange) ChangeText() string {
	if s.Change == nil {
		return "-"
	}
	return s.changeText()
}

// LimitText is the limit as tables show it.
func (s *ScoreChange) LimitText() string {
	if s.Limit == nil {
		return "-"
	}
	return s.limitText()
}
