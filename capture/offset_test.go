package capture

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever the offset and the drift, times come out right within the error that the map claims.
func TestClockMap_withinItsError(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		offset := rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(rt, "offset")
		ppm := rapid.Float64Range(-200, 200).Draw(rt, "drift")
		start := int64(1_800_000_000_000_000_000)
		length := int64(rapid.IntRange(1, 600).Draw(rt, "seconds")) * 1e9
		trueOffset := func(at int64) int64 { return offset + int64(ppm*1e-6*float64(at-start)) }
		var samples []ClockSample
		for i := range rapid.IntRange(2, 20).Draw(rt, "samples") {
			at := start + length*int64(i)/19
			e := rapid.Int64Range(1000, 3_000_000).Draw(rt, "error")
			off := rapid.Int64Range(-e, e).Draw(rt, "off")
			samples = append(samples, ClockSample{at, time.Duration(trueOffset(at) + off), time.Duration(e)})
		}
		m := NewClockMap(samples)
		if len(m.Steps()) > 0 {
			rt.Fatalf("a step in a clock that drifts: %v", m.Steps())
		}
		end := samples[len(samples)-1].AtNS
		for range 20 {
			at := rapid.Int64Range(start, end).Draw(rt, "at")
			host := at + trueOffset(at)
			got := m.Map(host)
			// The error of both ends, and what the clock drifts by within an error of its own.
			if off := time.Duration(got - at).Abs(); off > m.Error()+time.Microsecond {
				rt.Fatalf("%v off, error %v (offset %v, %v ppm, applied %v)", off, m.Error(), time.Duration(offset), ppm, m.Applied())
			}
		}
	})
}

func TestClockMap_steps(t *testing.T) {
	const s = int64(time.Second)
	at := func(sec int64, offset, err time.Duration) ClockSample {
		return ClockSample{1000*s + sec*s, offset, err}
	}
	ms := time.Millisecond
	for _, tt := range []struct {
		name, why string
		samples   []ClockSample
		steps     int
		applied   bool
		in, want  int64 // seconds after 1000
	}{
		{"none", "", nil, 0, false, 5, 5},
		{"agree", "an offset within its error is none: clocks may agree better than can be known", []ClockSample{at(0, ms, 2*ms), at(10, -ms, 2*ms)}, 0, false, 5, 5},
		{"ahead", "", []ClockSample{at(0, 3*time.Second, ms), at(10, 3*time.Second, ms)}, 0, true, 8, 5},
		{"before_the_first", "", []ClockSample{at(0, 3*time.Second, ms), at(10, 3*time.Second, ms)}, 0, true, -1, -4},
		{"after_the_last", "", []ClockSample{at(0, 3*time.Second, ms), at(10, 3*time.Second, ms)}, 0, true, 20, 17},
		{"forward", "set forward by 2 s between 4 and 5", []ClockSample{at(0, 0, ms), at(4, 0, ms), at(5, 2*time.Second, ms), at(9, 2*time.Second, ms)}, 1, true, 9, 7},
		{"before_it_was_set", "", []ClockSample{at(0, 0, ms), at(4, 0, ms), at(5, 2*time.Second, ms), at(9, 2*time.Second, ms)}, 1, true, 3, 3},
		{"back", "set back by 2 s: times come twice", []ClockSample{at(0, 0, ms), at(4, 0, ms), at(5, -2*time.Second, ms), at(9, -2*time.Second, ms)}, 1, true, 7, 9},
		{"slow_comparison_of_a_step", "one that took long beside the others still tells when the clock was set", []ClockSample{at(0, 0, ms), at(4, 0, 50*ms), at(5, 2*time.Second, 50*ms), at(30, 2*time.Second, ms)}, 1, true, 7, 5},
		{"slow_comparison", "a comparison that took long is no step, and is not looked at", []ClockSample{at(0, 0, ms), at(4, 300*ms, 301*ms), at(5, 0, ms)}, 0, false, 4, 4},
	} {
		m := NewClockMap(tt.samples)
		if len(m.Steps()) != tt.steps || m.Applied() != tt.applied {
			t.Errorf("%s: steps %v, applied %v", tt.name, m.Steps(), m.Applied())
		}
		if got := m.Map(1000*s + tt.in*s); got != 1000*s+tt.want*s {
			t.Errorf("%s: %d maps to %g, want %d", tt.name, tt.in, float64(got-1000*s)/1e9, tt.want)
		}
	}
	if text := NewClockMap([]ClockSample{at(0, 0, ms), at(1, 2*time.Second, ms)}).Steps()[0].String(); text != "by 2s between 00:16:40.000 and 00:16:41.000 UTC" {
		t.Errorf("a step says %q", text)
	}
}
