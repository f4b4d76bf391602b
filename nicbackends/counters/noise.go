package counters

import (
	"math"
	"time"
)

// Own bounds what of a counter's growth is a run's own, when others use the device, too: from what it moved by while the run was idle. Counters of devices
// count everybody's events, and events come by chance, so that a run of the same length has as many of others only within three standard deviations
// (of both counts, as of Poisson's). Below least it is not; above most neither.
func Own(idle int64, idleFor time.Duration, growth int64, runFor time.Duration) (least, most int64) {
	if idleFor <= 0 || runFor <= 0 || idle < 0 {
		return 0, growth
	}
	times := float64(runFor) / float64(idleFor)
	others := float64(idle) * times
	spread := 3 * math.Sqrt(others+float64(idle)*times*times)
	if idle == 0 {
		return growth, growth // nothing else was there
	}
	return max(growth-int64(math.Ceil(others+spread)), 0), max(growth-int64(math.Floor(math.Max(others-spread, 0))), 0)
}
