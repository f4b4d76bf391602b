package capture

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"
)

// ClockSample is one comparison of a capturing host's clock with the clock that captures are put on.
type ClockSample struct {
	AtNS     int64         `json:"at_ns"`     // by the latter, nanoseconds since 1970
	OffsetNS time.Duration `json:"offset_ns"` // how far the host was ahead
	ErrorNS  time.Duration `json:"error_ns"`  // the true offset is within this
}

// maxDrift is how fast two clocks that nobody steps may drift apart: what Linux may slew a clock by (adjtimex(2), 500 ppm), on both.
const maxDrift = 1000e-6

// worthless is how many times the least error the error of a sample may be that is still looked at: a comparison that took long beside
// one that did not says nothing.
const worthless = 4

// ClockMap puts the times of one host on another clock. Between samples the offset is interpolated. Nil changes nothing.
type ClockMap struct {
	samples []ClockSample // by time
	host    []int64       // the host's own time at each
	apply   bool
	err     time.Duration
	steps   []ClockStep
}

// ClockStep says that a clock was set.
type ClockStep struct {
	FromNS, ToNS int64         // between these two samples
	By           time.Duration // forward; what it was more than drift is not told apart
}

func (s ClockStep) String() string {
	at := func(ns int64) string { return time.Unix(0, ns).UTC().Format("15:04:05.000") }
	return fmt.Sprintf("by %v between %s and %s UTC", s.By.Round(time.Microsecond), at(s.FromNS), at(s.ToNS))
}

// NewClockMap makes a map of samples; nil when there are none. Where zero is within the error of every sample nothing is changed: the clocks
// agree as far as can be known, and they may agree better than that (PTP).
func NewClockMap(samples []ClockSample) *ClockMap {
	if len(samples) == 0 {
		return nil
	}
	samples = slices.Clone(samples)
	slices.SortStableFunc(samples, func(a, b ClockSample) int { return cmp.Compare(a.AtNS, b.AtNS) })
	least := slices.MinFunc(samples, func(a, b ClockSample) int { return cmp.Compare(a.ErrorNS, b.ErrorNS) }).ErrorNS
	m := &ClockMap{}
	last := len(samples) - 1
	for i, s := range samples {
		var step *ClockStep
		if n := len(m.samples); n > 0 {
			was := m.samples[n-1]
			by := s.OffsetNS - was.OffsetNS
			if drift := time.Duration(maxDrift * float64(s.AtNS-was.AtNS)); by.Abs() > s.ErrorNS+was.ErrorNS+drift {
				step = &ClockStep{was.AtNS, s.AtNS, by}
			}
		}
		if s.ErrorNS > worthless*least && i != 0 && i != last && step == nil { // one that took long still knows of a step
			continue
		}
		if step != nil {
			m.steps = append(m.steps, *step)
		}
		m.samples = append(m.samples, s)
		m.host = append(m.host, s.AtNS+int64(s.OffsetNS))
		m.err = max(m.err, s.ErrorNS)
		m.apply = m.apply || s.OffsetNS.Abs() > s.ErrorNS
	}
	return m
}

// Samples is how many samples count.
func (m *ClockMap) Samples() int {
	if m == nil {
		return 0
	}
	return len(m.samples)
}

// Applied says that times are changed.
func (m *ClockMap) Applied() bool { return m != nil && m.apply }

// Error bounds the error of every time, away from steps.
func (m *ClockMap) Error() time.Duration {
	if m == nil {
		return 0
	}
	return m.err
}

// Steps are the times at which the host's clock was set.
func (m *ClockMap) Steps() []ClockStep {
	if m == nil {
		return nil
	}
	return m.steps
}

// Offsets are the first and the last offset.
func (m *ClockMap) Offsets() (first, last time.Duration) {
	if m == nil {
		return 0, 0
	}
	return m.samples[0].OffsetNS, m.samples[len(m.samples)-1].OffsetNS
}

// Map is the time that the host calls ns.
func (m *ClockMap) Map(ns int64) int64 {
	if m == nil || !m.apply {
		return ns
	}
	last := len(m.samples) - 1
	i := 0
	if len(m.steps) == 0 { // else a few samples at most are looked at for nothing
		i = max(sort.Search(len(m.host), func(i int) bool { return m.host[i] > ns })-1, 0)
	}
	// A clock that was set back has times twice: the first are meant.
	for ; i < last; i++ {
		if ns >= m.host[i+1] && m.host[i+1] >= m.host[i] {
			continue
		}
		from, to := m.samples[i], m.samples[i+1]
		span := to.AtNS - from.AtNS
		if ns <= m.host[i] || span <= 0 {
			return ns - int64(from.OffsetNS)
		}
		if m.stepped(from.AtNS) { // when between them is not known: the nearer one counts
			if ns-m.host[i] <= span/2 {
				return ns - int64(from.OffsetNS)
			}
			return ns - int64(to.OffsetNS)
		}
		share := float64(ns-m.host[i]) / float64(m.host[i+1]-m.host[i])
		return ns - int64(from.OffsetNS) - int64(share*float64(to.OffsetNS-from.OffsetNS))
	}
	return ns - int64(m.samples[last].OffsetNS)
}

func (m *ClockMap) stepped(from int64) bool {
	return slices.ContainsFunc(m.steps, func(s ClockStep) bool { return s.FromNS == from })
}
