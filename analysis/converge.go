package analysis

import (
	"cmp"
	"slices"
)

// rateCurve is a flow's goodput per bin: from is the first bin of rates, and outside of them it is 0.
type rateCurve struct {
	id              string
	firstNS, lastNS int64 // of its data packets
	from            int
	rates           []float64
}

// fairness is Jain's index over time, over the flows that are active in the whole of a bin.
type fairness struct {
	startNS, binNS int64
	jain           []*float64 // null where none is, or all are at zero
	active         []int
}

// fairnessOf sums up the flows' rates bin by bin: each cell is looked at once.
func fairnessOf(flows []rateCurve, startNS, binNS int64, bins int) fairness {
	f := fairness{startNS: startNS, binNS: binNS, jain: make([]*float64, bins), active: make([]int, bins)}
	sum, squares := make([]float64, bins), make([]float64, bins)
	for i := range flows {
		c := &flows[i]
		first := 0
		if c.firstNS > startNS {
			first = int((c.firstNS - startNS + binNS - 1) / binNS)
		}
		end := min(int((c.lastNS-startNS)/binNS), bins) // its last packet is in this bin, which it does not fill
		for b := first; b < end; b++ {
			f.active[b]++
			if k := b - c.from; k >= 0 && k < len(c.rates) {
				x := c.rates[k]
				sum[b] += x
				squares[b] += x * x
			}
		}
	}
	for b := range f.jain {
		if squares[b] > 0 {
			f.jain[b] = ptr(sum[b] * sum[b] / (float64(f.active[b]) * squares[b]))
		}
	}
	return f
}

// bin is the number of a time's bin; what is older than the first bin counts as in it.
func (f *fairness) bin(ns int64) int { return int(max(ns-f.startNS, 0) / f.binNS) }

// Events of Convergence.
const (
	eventJoin  = "join"
	eventLeave = "leave"
)

// convergence says, after each flow that joined or left within the capture, how long the others took to share fairly. Flows
// that come or go within a bin of each other are one change, measured from the last of them. A flow's first and last packet
// near the ends of the capture are no events: the capture, not the flow, began or ended there.
func (f *fairness) convergence(flows []rateCurve) []Convergence {
	bins := len(f.jain)
	margin := ConvergedBins * f.binNS
	out := []Convergence{}
	for i := range flows {
		c := &flows[i]
		if c.firstNS-f.startNS > margin {
			out = append(out, Convergence{AtNS: c.firstNS, Event: eventJoin, Flow: c.id})
		}
		if f.startNS+int64(bins)*f.binNS-c.lastNS > margin {
			out = append(out, Convergence{AtNS: c.lastNS, Event: eventLeave, Flow: c.id})
		}
	}
	slices.SortFunc(out, func(a, b Convergence) int {
		return cmp.Or(cmp.Compare(a.AtNS, b.AtNS), -cmp.Compare(a.Event, b.Event), cmp.Compare(a.Flow, b.Flow))
	})
	for i := 0; i < len(out); {
		n := 1
		for i+n < len(out) && out[i+n].AtNS-out[i].AtNS <= f.binNS {
			n++
		}
		first := f.bin(out[i+n-1].AtNS) + 1
		end, next := bins, false
		if i+n < len(out) {
			end, next = f.bin(out[i+n].AtNS), true
		}
		f.settle(out[i:i+n], first, end, next)
		i += n
	}
	return out
}

// settle fills in events that are one change, from what follows in the bins [first, end). next tells that another change
// comes then, and not the end of the capture.
func (f *fairness) settle(events []Convergence, first, end int, next bool) {
	active, at, reason := 0, -1, ""
	var lowest *float64
	if first < len(f.active) {
		active = f.active[first]
	}
	switch {
	case first >= end && next:
		reason = "the next flow came or left first"
	case first >= end:
		reason = "the capture ended first"
	case active == 0:
		reason = "no flow was left"
	case active == 1:
		reason = "one flow is always fair"
	default:
		run := 0
		for b := first; b < end && at < 0; b++ {
			run++
			if j := f.jain[b]; j == nil || *j < ConvergedJain {
				run = 0
			}
			if run == ConvergedBins {
				at = b - ConvergedBins + 1
			}
		}
		upTo := end
		if at >= 0 {
			upTo = at + 1
		} else if next {
			reason = "not before the next flow came or left"
		} else {
			reason = "not within the capture"
		}
		for _, j := range f.jain[first:upTo] {
			if j != nil && (lowest == nil || *j < *lowest) {
				lowest = j
			}
		}
	}
	for i := range events {
		e := &events[i]
		e.Active, e.Reason = active, reason
		if lowest != nil {
			e.LowestJain = ptr(*lowest)
		}
		if at >= 0 {
			e.TimeNS = ptr(f.startNS + int64(at)*f.binNS - e.AtNS)
		}
	}
}
