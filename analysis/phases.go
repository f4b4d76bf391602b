package analysis

import (
	"fmt"
	"slices"
)

// aggregate is about all flows together, and about each phase.
func (e *engine) aggregate(flows []*direction, docs []Flow) Aggregate {
	a := Aggregate{Excluded: []Excluded{}, PerPhase: []PhaseSummary{}}
	var unique, wire, first, last int64
	var rates []float64
	for i, d := range flows {
		f := &docs[i]
		if a.ActiveFlows == 0 || f.FirstNS < first {
			first = f.FirstNS
		}
		last = max(last, f.LastNS)
		unique += f.UniqueBytes
		wire += d.data.wire
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
		}
	}
	a.Jain = jainOf(rates)
	if seconds := float64(last-first) / 1e9; seconds > 0 {
		a.GoodputBps = ptr(float64(unique) * 8 / seconds)
		a.HWGoodputBps = ptr(*a.GoodputBps * e.o.TimeScale)
		a.WireBps = ptr(float64(wire) * 8 / seconds)
		a.Utilisation = e.utilisation(*a.WireBps)
		a.GoodputUtilisation = e.utilisation(*a.GoodputBps)
	}
	for _, p := range e.o.Phases {
		a.PerPhase = append(a.PerPhase, e.phase(p, flows, docs))
	}
	return a
}

func (e *engine) utilisation(bps float64) *float64 {
	if e.o.LinkRateBps <= 0 {
		return nil
	}
	return ptr(bps / e.o.LinkRateBps)
}

// phase sums up one phase. Rates are over the trimmed window, counts over the whole phase.
func (e *engine) phase(p Phase, flows []*direction, docs []Flow) PhaseSummary {
	from, to := p.window(e.o.TimeScale)
	seconds := float64(to-from) / 1e9
	s := PhaseSummary{Name: p.Name, StartNS: p.StartNS, EndNS: p.EndNS, TrimNS: from - p.StartNS, TrimEndNS: p.EndNS - to,
		Flows: []PhaseFlow{}, Excluded: []Excluded{}}
	var sum, whole segment
	var members []*direction
	var rates []float64
	cnps, measured := segment{}, false
	expected := map[string]bool{}
	for i, d := range flows {
		f := &docs[i]
		in, all := e.segments.sum(d, from, to), e.segments.sum(d, p.StartNS, p.EndNS)
		sum.add(&in)
		whole.add(&all)
		reason := e.exclude(p, f, &in, from, to, expected)
		if answers := e.segments.sum(d.peer, p.StartNS, p.EndNS); all.packets == 0 && answers.cnps == 0 && reason != "" {
			if reason == notActive {
				continue
			}
			s.Excluded = append(s.Excluded, Excluded{f.ID, reason})
			continue
		}
		pf := PhaseFlow{Flow: f.ID, Name: f.Name, GoodputBps: float64(in.unique) * 8 / seconds, WireBps: float64(in.wire) * 8 / seconds,
			Packets: all.packets, CEPackets: all.ce, RetransmittedPackets: all.resent, CEShare: share(in.ce, in.packets)}
		pf.HWGoodputBps = pf.GoodputBps * e.o.TimeScale
		pf.Utilisation = e.utilisation(pf.WireBps)
		if d.peer != nil {
			c, call := e.segments.sum(d.peer, from, to), e.segments.sum(d.peer, p.StartNS, p.EndNS)
			pf.CNPs = ptr(call.cnps)
			pf.CNPRateHz = ptr(float64(c.cnps) / seconds)
			cnps.cnps += c.cnps
			whole.cnps += call.cnps
			measured = true
		}
		if reason != "" {
			s.Excluded = append(s.Excluded, Excluded{f.ID, reason})
		} else {
			members = append(members, d)
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
	s.HWGoodputBps = s.GoodputBps * e.o.TimeScale
	s.WireBps = float64(sum.wire) * 8 / seconds
	s.Utilisation, s.GoodputUtilisation = e.utilisation(s.WireBps), e.utilisation(s.GoodputBps)
	s.CEShare = share(sum.ce, sum.packets)
	s.Packets, s.CEPackets, s.RetransmittedPackets = whole.packets, whole.ce, whole.resent
	if measured {
		s.CNPs = ptr(whole.cnps)
		s.CNPRateHz = ptr(float64(cnps.cnps) / seconds)
		s.HWCNPRateHz = ptr(*s.CNPRateHz * e.o.TimeScale)
	}
	s.Jain = jainOf(rates)
	s.JainMeanOfBins, s.JainBins = e.jainOfBins(members, from, to)
	return s
}

const notActive = "not active"

// exclude gives the reason why a flow is left out of a phase's indices, or "". A flow that was there before and after
// but sent nothing within the window starved; it stays in, with zero.
func (e *engine) exclude(p Phase, f *Flow, in *segment, from, to int64, expected map[string]bool) string {
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
func (e *engine) jainOfBins(members []*direction, from, to int64) (*float64, int) {
	if len(members) == 0 {
		return nil, 0
	}
	b := &e.bins
	first := int((max(from, b.origin) - b.origin + b.width - 1) / b.width)
	end := int((to - b.origin) / b.width)
	end = min(end, b.last+1)
	x := make([]float64, len(members))
	var sum float64
	n := 0
	for i := first; i < end; i++ {
		for j, d := range members {
			x[j] = 0
			if k := i - d.firstBin; k >= 0 && k < len(d.cells) {
				x[j] = float64(d.cells[k].unique)
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
