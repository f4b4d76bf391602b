package bench

import (
	"fmt"
	"math"
	"slices"
)

// Figure is what several measurements of one thing come to.
type Figure struct {
	Median, Low, High float64 // ns an event of one worker; Low and High are the 10th and 90th percentile
	Calls             float64 // of handlers a second, all workers together
	Each              float64 // events for each call; 0: it was never called
	Lost              float64 // share of the time in which a thread was kept from its core
	Full              bool    // the datapath waited for the control plane
}

// Spread is how far the measurements lie apart, as a share of their median.
func (f Figure) Spread() float64 { return (f.High - f.Low) / f.Median }

// What makes a figure doubtful: spread above NoisySpread, threads kept from their cores for more than NoisyLost of the time, or other
// programs that used more than NoisyLoad of the machine.
const (
	NoisySpread = 0.10
	NoisyLost   = 0.02
	NoisyLoad   = 0.10
)

// Doubts are the reasons not to trust a figure; load is the share of the machine that others used meanwhile, negative: not known.
func (f Figure) Doubts(load float64) []string {
	var all []string
	if s := f.Spread(); s > NoisySpread {
		all = append(all, fmt.Sprintf("spread of %.0f %%", 100*s))
	}
	if f.Lost > NoisyLost {
		all = append(all, fmt.Sprintf("kept from its core for %.0f %% of the time", 100*f.Lost))
	}
	if load > NoisyLoad {
		all = append(all, fmt.Sprintf("other programs used %.0f %% of the machine", 100*load))
	}
	return all
}

// perEvent is ns an event of one worker.
func (s Sample) perEvent(workers int) float64 {
	return float64(s.NS) * float64(workers) / float64(s.Events)
}

// Summary makes a figure of the samples of one row, from one run or several.
func Summary(samples []Sample, r Row) Figure {
	var ns, calls []float64
	var events, ran, time, lost float64
	f := Figure{}
	for _, s := range samples {
		ns = append(ns, s.perEvent(r.Workers()))
		calls = append(calls, float64(s.Calls)*1e9/float64(s.NS))
		events, ran = events+float64(s.Events), ran+float64(s.Calls)
		time, lost = time+float64(s.NS)*float64(len(r.Cores)), lost+float64(s.Lost)
		f.Full = f.Full || s.Full > 0
	}
	if len(samples) == 0 {
		return f
	}
	f.Median, f.Low, f.High, f.Calls = Quantile(ns, 0.5), Quantile(ns, 0.1), Quantile(ns, 0.9), Quantile(calls, 0.5)
	f.Lost = lost / time
	if ran > 0 {
		f.Each = events / ran
	}
	return f
}

// Ratio is how many times as long a takes as b: the median over pairs that were measured one right after the other.
func Ratio(a, b []Sample, ra, rb Row) float64 {
	type key struct{ run, repetition int }
	of := map[key]float64{}
	runs := map[int]int{}
	for _, s := range b {
		of[key{runs[s.Repetition], s.Repetition}] = s.perEvent(rb.Workers())
		runs[s.Repetition]++
	}
	clear(runs)
	var all []float64
	for _, s := range a {
		if other, ok := of[key{runs[s.Repetition], s.Repetition}]; ok {
			all = append(all, s.perEvent(ra.Workers())/other)
		}
		runs[s.Repetition]++
	}
	if len(all) == 0 {
		return math.NaN()
	}
	return Quantile(all, 0.5)
}

// Quantile interpolates between the values next to it.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Clone(values)
	slices.Sort(v)
	at := q * float64(len(v)-1)
	i := int(at)
	if i+1 == len(v) {
		return v[i]
	}
	return v[i] + (at-float64(i))*(v[i+1]-v[i])
}

// BudgetPacket is the packet that the paper counts in.
const BudgetPacket = 4096

// PacketsEach is one reaction in so many packets of 4 KiB at a rate (bit/s), for workers that make so many calls a second together; 1
// where they keep up with every packet.
func PacketsEach(bps, calls float64) float64 {
	return max(1, bps/(8*BudgetPacket)/calls)
}

// Budget is that in words.
func Budget(bps, calls float64) string {
	switch k := PacketsEach(bps, calls); {
	case k == 1:
		return "every packet"
	case k < 1.05:
		return "nearly every packet"
	case k < 10:
		return fmt.Sprintf("one in %.1f packets", k)
	default:
		return fmt.Sprintf("one in %.0f packets", k)
	}
}

// PaperNumber is a figure that the PCM paper gives, section 7. It is the paper's, of the paper's machines.
type PaperNumber struct {
	What string `json:"what"`
	Text string `json:"text"`
}

// Paper are those that stand beside ours.
var Paper = []PaperNumber{
	{"asynchronous shell, eleven handlers, one Xeon core", "11.8 to 37.3 M calls/s"},
	{"Swift in it", "77.1 ns an acknowledgement"},
	{"shell and Swift on the Xeon, synchronous / SMT sibling / another core", "66 / 87 / 192 ns, of which Swift 35 to 40"},
	{"generator of events on the Xeon", "saturates the sibling at 35 M events/s"},
}

// PaperFractions are the paper's for square roots on a core without a divide (figure 6 b), in calls a second of a ConnectX-8 DPA thread.
var PaperFractions = map[string]string{"newton": "0.105 M calls/s", "digit": "0.532 M calls/s", "transformed": "above 0.9 M calls/s"}
