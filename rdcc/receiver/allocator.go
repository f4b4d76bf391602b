package receiver

import "time"

// Flow is what an allocator keeps of one sender. The receiver reads Rate, within Min and Max.
type Flow struct {
	Rate int64 // r_i, bit/s
	Max  int64 // R_max: the smaller of line rate and Suggested Rate
	Min  int64 // R_min
	// State is the allocator's own; it is here so that ten thousand senders need no memory beside.
	State [4]int64
}

// Signal is what was seen of a sender's path since the last update.
type Signal struct {
	CE     float64 // fraction of packets marked Congestion Experienced
	Degree float64 // Congestion Degree of a report, 0 to 1; any report is more than 0
	Delay  float64 // excess delay in units of the target, 0 to 1

	Octets  uint64        // that arrived
	Elapsed time.Duration // since the last update
	RTT     time.Duration // largest sample, 0 when there is none
}

// Congestion is s_i: the largest of the three signs.
func (s *Signal) Congestion() float64 { return max(s.CE, s.Degree, s.Delay) }

// Allocator decides the rate of each sender. It keeps nothing of its own, so that one serves all. The receiver sees to the
// rest: the sum of rates, Suggested Rates, and that no sign of congestion ever raises a rate.
type Allocator interface {
	// Start sets the rate of a new sender.
	Start(f *Flow, now time.Duration)
	// Update adjusts it. It is called once per update interval in which there was something to see.
	Update(f *Flow, now time.Duration, s Signal)
}

// AIMD is the allocator that the specification recommends: additive increase, multiplicative decrease.
type AIMD struct {
	Beta  float64 // of the decrease; zero means 0.5
	Alpha int64   // increase per update, bit/s; zero means one percent of the sender's R_max
}

// Start begins at the full rate: the budget bounds what that can do.
func (AIMD) Start(f *Flow, _ time.Duration) { f.Rate = f.Max }

// Update is the specification's formula (Credit Allocation).
func (c AIMD) Update(f *Flow, _ time.Duration, s Signal) {
	if c.Beta == 0 {
		c.Beta = 0.5
	}
	if c.Alpha == 0 {
		c.Alpha = max(f.Max/100, 1)
	}
	if sign := s.Congestion(); sign > 0 {
		f.Rate = max(f.Min, int64(float64(f.Rate)*(1-c.Beta*sign)))
		return
	}
	f.Rate = min(f.Max, f.Rate+c.Alpha)
}

// BBR is an allocator in the style of BBR: it models the bandwidth that a sender's path delivers as the highest of the
// recent past, paces at that, probes above it one update in eight and drains one update after, and lowers the model on a
// sign of congestion.
type BBR struct {
	Beta float64 // of the decrease; zero means 0.3
}

// Places in Flow.State.
const (
	bbrBest  = iota // bandwidth of the current bucket, bit/s
	bbrPrior        // of the bucket before
	bbrPhase        // updates so far
)

// bbrGains are the pacing gains of a cycle, in percent; bbrBucket is how many updates a bucket of the filter has.
var bbrGains = [8]int64{125, 75, 100, 100, 100, 100, 100, 100}

const bbrBucket = 16

// Start begins at the full rate, as BBR's startup would find it.
func (BBR) Start(f *Flow, _ time.Duration) {
	f.Rate = f.Max
	f.State = [4]int64{bbrBest: f.Max, bbrPrior: f.Max}
}

// Update feeds one interval's delivery into the model.
func (c BBR) Update(f *Flow, _ time.Duration, s Signal) {
	if c.Beta == 0 {
		c.Beta = 0.3
	}
	if sign := s.Congestion(); sign > 0 {
		keep := 1 - c.Beta*sign
		f.State[bbrBest] = max(f.Min, int64(float64(f.State[bbrBest])*keep))
		f.State[bbrPrior] = max(f.Min, int64(float64(f.State[bbrPrior])*keep))
		f.Rate = max(f.Min, int64(float64(f.Rate)*keep))
		return
	}
	if s.Elapsed > 0 {
		f.State[bbrBest] = max(f.State[bbrBest], int64(float64(s.Octets)*8/s.Elapsed.Seconds()))
	}
	f.State[bbrPhase]++
	if f.State[bbrPhase]%bbrBucket == 0 {
		f.State[bbrPrior], f.State[bbrBest] = f.State[bbrBest], 0
	}
	bandwidth := max(f.State[bbrBest], f.State[bbrPrior], f.Min)
	f.Rate = min(f.Max, max(f.Min, bandwidth/100*bbrGains[f.State[bbrPhase]%int64(len(bbrGains))]))
}
