package analysis

import (
	"fmt"
	"slices"
)

// aggregate is about all flows together, and about each phase.
func (r *run) aggregate(flows []*direction, doc *Document) Aggregate {
	a := Aggregate{Excluded: []Excluded{}, PerPhase: []PhaseSummary{}, Convergence: []Convergence{}}
	var unique, wire, first, last int64
	var rates []float64
	var members []int
	for i := range doc.Flows {
		f := &doc.Flows[i]
		if a.ActiveFlows == 0 || f.FirstNS < first {
			first = f.FirstNS
		}
		last = max(last, f.LastNS)
		unique += f.UniqueBytes
		wire += f.WireBytes
		a.ActiveFlows++
		switch {
		case f.State == StateFailed:
			a.Excluded = append(a.Excluded, Excluded{f.ID, "failed: " + f.Notes[0]})
		case f.GoodputBps == nil:
			a.Excluded = append(a.Excluded, Excluded{f.ID, "has no rate: all its data came at one instant"})
		case f.UniqueBytes == 0:
			a.Excluded = append(a.Excluded, Excluded{f.ID, "carries no payload"})
		default:
			rates = append(rates, *f.GoodputBps)
			members = append(members, i)
		}
	}
	a.Jain, a.MinMax = jainOf(rates), minMax(rates)
	a.Common = common(doc, members)
	if seconds := float64(last-first) / 1e9; seconds > 0 {
		a.GoodputBps = ptr(float64(unique) * 8 / seconds)
		a.HWGoodputBps = ptr(*a.GoodputBps * r.o.TimeScale)
		a.WireBps = ptr(float64(wire) * 8 / seconds)
		a.Utilisation = r.utilisation(*a.WireBps)
		a.GoodputUtilisation = r.utilisation(*a.GoodputBps)
	}
	for _, p := range r.o.Phases {
		a.PerPhase = append(a.PerPhase, r.phase(p, flows, doc))
	}
	return a
}

// minMax is the lowest of x over the highest; null for none, and when all are zero.
func minMax(x []float64) *float64 {
	if len(x) == 0 || slices.Max(x) == 0 {
		return nil
	}
	return ptr(slices.Min(x) / slices.Max(x))
}

// common is about the interval in which all members, flows of doc, are active; null when there is none.
func common(doc *Document, members []int) *Common {
	if len(members) < 2 {
		return nil
	}
	c := &Common{StartNS: minTime, EndNS: maxTime, Flows: len(members)}
	for _, i := range members {
		c.StartNS, c.EndNS = max(c.StartNS, doc.Flows[i].FirstNS), min(c.EndNS, doc.Flows[i].LastNS)
	}
	if c.EndNS <= c.StartNS {
		return nil
	}
	first, end := wholeBins(&doc.Series, c.StartNS, c.EndNS)
	if end <= first {
		return c
	}
	rates := make([]float64, len(members))
	for j, i := range members {
		s := &doc.Series.Flows[i]
		for b := first; b < end; b++ {
			if k := b - s.FirstBin; k >= 0 && k < len(s.GoodputBps) {
				rates[j] += s.GoodputBps[k]
			}
		}
	}
	c.Jain, c.MinMax = jainOf(rates), minMax(rates)
	return c
}

func (r *run) utilisation(bps float64) *float64 {
	if r.o.LinkRateBps <= 0 {
		return nil
	}
	return ptr(bps / r.o.LinkRateBps)
}

// phase sums up one phase. Rates are over the trimmed window, counts over the whole phase.
func (r *run) phase(p Phase, flows []*direction, doc *Document) PhaseSummary {
	clock := &r.lanes[0].pieces
	from, to := p.window(r.o.TimeScale)
	seconds := float64(to-from) / 1e9
	s := PhaseSummary{Name: p.Name, StartNS: p.StartNS, EndNS: p.EndNS, TrimNS: from - p.StartNS, TrimEndNS: p.EndNS - to,
		Flows: []PhaseFlow{}, Excluded: []Excluded{}}
	var sum, whole segment
	var members []int
	var rates []float64
	cnps, measured := segment{}, false
	expected := map[string]bool{}
	for i, d := range flows {
		f := &doc.Flows[i]
		in, all := clock.sum(d, from, to), clock.sum(d, p.StartNS, p.EndNS)
		sum.add(&in)
		whole.add(&all)
		reason := r.exclude(p, f, &in, from, to, expected)
		if answers := clock.sum(d.peer, p.StartNS, p.EndNS); all.packets == 0 && answers.cnps == 0 && reason != "" {
			if reason == notActive {
				continue
			}
			s.Excluded = append(s.Excluded, Excluded{f.ID, reason})
			continue
		}
		pf := PhaseFlow{Flow: f.ID, Name: f.Name, GoodputBps: float64(in.unique) * 8 / seconds, WireBps: float64(in.wire) * 8 / seconds,
			Packets: all.packets, CEPackets: all.ce, RetransmittedPackets: all.resent, CEShare: share(in.ce, in.packets)}
		pf.HWGoodputBps = pf.GoodputBps * r.o.TimeScale
		pf.Utilisation = r.utilisation(pf.WireBps)
		if d.peer != nil {
			c, call := clock.sum(d.peer, from, to), clock.sum(d.peer, p.StartNS, p.EndNS)
			pf.CNPs = ptr(call.cnps)
			pf.CNPRateHz = ptr(float64(c.cnps) / seconds)
			cnps.cnps += c.cnps
			whole.cnps += call.cnps
			measured = true
		}
		if reason != "" {
			s.Excluded = append(s.Excluded, Excluded{f.ID, reason})
		} else {
			members = append(members, i)
			rates = append(rates, pf.GoodputBps)
		}
		s.Flows = append(s.Flows, pf)
	}
	for _, name := range p.Flows {
		if !expected[name] {
			s.Excluded = append(s.Excluded, Excluded{name, "expected, but no packet of it was captured"})
		}
	}
	s.GoodputBps = float64(sum.unique) * 8 / seconds
	s.HWGoodputBps = s.GoodputBps * r.o.TimeScale
	s.WireBps = float64(sum.wire) * 8 / seconds
	s.Utilisation, s.GoodputUtilisation = r.utilisation(s.WireBps), r.utilisation(s.GoodputBps)
	s.CEShare = share(sum.ce, sum.packets)
	s.Packets, s.CEPackets, s.RetransmittedPackets = whole.packets, whole.ce, whole.resent
	if measured {
		s.CNPs = ptr(whole.cnps)
		s.CNPRateHz = ptr(float64(cnps.cnps) / seconds)
		s.HWCNPRateHz = ptr(*s.CNPRateHz * r.o.TimeScale)
	}
	s.Jain = jainOf(rates)
	s.MinMax = minMax(rates)
	s.JainMeanOfBins, s.JainBins = jainOfBins(&doc.Series, members, from, to)
	return s
}

const notActive = "not active"

// exclude gives the reason why a flow is left out of a phase's indices, or "". A flow that was there before and after
// but sent nothing within the window starved; it stays in, with zero.
func (r *run) exclude(p Phase, f *Flow, in *segment, from, to int64, expected map[string]bool) string {
	wanted := len(p.Flows) == 0
	for _, name := range p.Flows {
		if name == f.Src || (f.Name != "" && name == f.Name) {
			wanted = true
			expected[name] = true
		}
	}
	active := f.FirstNS < to && f.LastNS >= from
	switch {
	case !wanted && in.packets > 0:
		return "not expected to send in this phase"
	case !wanted:
		return notActive
	case f.State == StateFailed:
		return "failed: " + f.Notes[0]
	case !active && len(p.Flows) > 0:
		return fmt.Sprintf("expected, but sent nothing between %.3f s and %.3f s of the phase", float64(from-p.StartNS)/1e9, float64(to-p.StartNS)/1e9)
	case !active:
		return notActive
	case f.UniqueBytes == 0:
		return "carries no payload"
	}
	return ""
}

// jainOfBins is the mean of the indices of the bins that lie wholly within [from, to).
func jainOfBins(s *Series, members []int, from, to int64) (*float64, int) {
	if len(members) == 0 {
		return nil, 0
	}
	first, end := wholeBins(s, from, to-1)
	x := make([]float64, len(members))
	var sum float64
	n := 0
	for b := first; b < end; b++ {
		for j, i := range members {
			x[j] = 0
			if f := &s.Flows[i]; b >= f.FirstBin && b < f.FirstBin+len(f.GoodputBps) {
				x[j] = f.GoodputBps[b-f.FirstBin]
			}
		}
		if v, ok := Jain(x); ok {
			sum += v
			n++
		}
	}
	if n == 0 {
		return nil, 0
	}
	return ptr(sum / float64(n)), n
}

func (s *segment) add(o *segment) {
	s.unique += o.unique
	s.wire += o.wire
	s.packets += o.packets
	s.ce += o.ce
	s.cnps += o.cnps
	s.resent += o.resent
}

func share(part, whole int64) *float64 {
	if whole == 0 {
		return nil
	}
	return ptr(float64(part) / float64(whole))
}

// PhaseByName finds a phase's summary, or nil.
func (a *Aggregate) PhaseByName(name string) *PhaseSummary {
	if i := slices.IndexFunc(a.PerPhase, func(p PhaseSummary) bool { return p.Name == name }); i >= 0 {
		return &a.PerPhase[i]
	}
	return nil
}
