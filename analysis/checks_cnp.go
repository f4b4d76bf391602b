package analysis

import "fmt"

// Without a pacing that was declared or inferred, a mark must be answered within this time, on hardware.
const answerWithin = 1_000_000 // ns

// markedSurely is how many marks of a flow are enough to miss a CNP where their times are not told apart by the bins.
const markedSurely = 16

// cnpCheck holds CNPs against marks: each notifier answers the first mark at once and later ones once per interval of its
// pacing scope (DCQCN, section 3.1), and sends no CNP without a mark.
type cnpCheck struct {
	findings
	doc      *Document
	scope    string // declared; "": not
	interval int64
	marks    map[string]bool // receivers towards which this tap sees marks: it is behind the queue there
	series   map[string]*FlowSeries
	measured int // marked flows whose way back was captured
	marked   int // marked flows
	unjudged int // flows with CNPs to receivers whose marks the tap does not see
}

func checkCNPs(doc *Document, o *Options) Check {
	c := cnpCheck{doc: doc, interval: int64(answerWithin * o.TimeScale), marks: map[string]bool{}, series: map[string]*FlowSeries{}}
	g := &doc.Congestion
	pacing := "pacing is not known (" + g.PacingReason + ")"
	declared := o.Expect.CNPScope != ""
	switch {
	case declared:
		c.scope, c.interval = o.Expect.CNPScope, int64(o.Expect.CNPInterval)
		pacing = fmt.Sprintf("declared: one per %d ns and %s", c.interval, c.scope)
	case g.PacingScope != nil && g.PacingNS != nil:
		c.interval = *g.PacingNS
		pacing = fmt.Sprintf("inferred: one per %d ns and %s", c.interval, *g.PacingScope)
	}
	for i := range doc.Flows {
		if f := &doc.Flows[i]; f.CEPackets > 0 {
			c.marks[f.Dst] = true
		}
	}
	for i := range doc.Series.Flows {
		c.series[doc.Series.Flows[i].ID] = &doc.Series.Flows[i]
	}
	t := &doc.Totals
	if t.CEDataPackets == 0 && t.CNPPackets == 0 {
		return skip(CheckCNPs, "no CE mark and no CNP was captured: no congestion, or ECN is off on the switch")
	}
	if declared {
		c.gaps()
	}
	for i := range doc.Flows {
		c.flow(i)
	}
	switch {
	case len(c.rows) > 0 && t.CNPPackets == 0 && !declared:
		return c.check(CheckCNPs, Skip, "%d marked data packets and not one CNP: a receiver that sends none, as soft-RoCE and other congestion controls do, or one whose notification point is off "+
			"(say how it should pace, --cnp-scope and --cnp-interval, and it is held to that)", t.CEDataPackets)
	case len(c.rows) > 0:
		return c.check(CheckCNPs, Fail, "%d findings; %s", len(c.rows), pacing)
	case t.CEDataPackets == 0 && !declared:
		return skip(CheckCNPs, "%d CNPs but no mark was captured: this tap is before the queue that marks; judge one behind it", t.CNPPackets)
	case c.marked > 0 && c.measured == 0 && t.CNPPackets == 0:
		return skip(CheckCNPs, "the way back of the %d marked flows was not captured: CNPs are not measured", c.marked)
	}
	if c.unjudged > 0 {
		pacing += fmt.Sprintf("; CNPs of %d flows have no marks to compare with: the tap is before the queue to their receivers", c.unjudged)
	}
	return c.check(CheckCNPs, Pass, "%d CNPs for %d marked data packets; %s", t.CNPPackets, t.CEDataPackets, pacing)
}

// gaps finds groups of the declared scope with CNPs closer than the interval. A tenth is left to timers and the tap.
func (c *cnpCheck) gaps() {
	g := &c.doc.Congestion
	least := c.interval - c.interval/10
	short := func(l *Latency) bool { return l.Min != nil && *l.Min < least }
	rows := len(c.rows)
	const text = "CNPs as close as %d ns (median %d ns), declared are %d ns per %s"
	switch c.scope {
	case ScopeQP:
		for i := range c.doc.Flows {
			if l := &c.doc.Flows[i].CNPGapNS; short(l) {
				c.add(c.doc, i, nil, text, *l.Min, *l.P50, c.interval, c.scope)
			}
		}
	case ScopeIPPair:
		for i := range g.Pairs {
			if p := &g.Pairs[i]; short(&p.GapNS) {
				c.general("%s to %s: "+text, p.Src, p.Dst, *p.GapNS.Min, *p.GapNS.P50, c.interval, c.scope)
			}
		}
	case ScopePort:
		for i := range g.Ports {
			if p := &g.Ports[i]; short(&p.GapNS) {
				c.general("%s: "+text, p.Src, *p.GapNS.Min, *p.GapNS.P50, c.interval, c.scope)
			}
		}
	}
	if len(c.rows) > rows {
		return
	}
	for i := range g.Scopes { // destinations, and QPs whose flow was not seen
		if s := &g.Scopes[i]; s.Scope == c.scope && short(&s.GapNS) {
			c.general(text, *s.GapNS.Min, *s.GapNS.P50, c.interval, c.scope)
		}
	}
}

// flow looks for marks without a CNP, and CNPs without a mark.
func (c *cnpCheck) flow(i int) {
	f := &c.doc.Flows[i]
	if f.CEPackets > 0 {
		c.marked++
	}
	if f.CNPs == nil {
		return
	}
	if f.CEPackets > 0 {
		c.measured++
	}
	whole := c.doc.Quality.Verdict == Complete && f.MissedByTap == 0 // marks may have been missed, too
	switch {
	case *f.CNPs > 0 && !c.marks[f.Dst]:
		c.unjudged++
	case *f.CNPs > f.CEPackets && !whole:
	case *f.CNPs > 0 && f.CEPackets == 0:
		c.add(c.doc, i, nil, "%d CNPs, but none of its %d data packets carries a mark at this tap (does a queue after the tap mark, or does the NIC answer something else, as ECN on another priority?)", *f.CNPs, f.Packets)
	case *f.CNPs > f.CEPackets:
		c.add(c.doc, i, nil, "%d CNPs for %d marked packets: more than one a mark (does a queue after the tap mark?)", *f.CNPs, f.CEPackets)
	}
	if *f.CNPs > 0 || f.CEPackets == 0 || c.answered(f) {
		return
	}
	if first, last := c.marksOf(f.ID); last-first > 2*c.interval || (f.CEPackets >= markedSurely && c.end()-first > 2*c.interval) {
		at := first
		c.add(c.doc, i, &at, "no CNP for %d marked packets of %d, nor for others that share its pacing: is the notification point of %s on for this priority (mlx5: ecn/roce_np/enable; DCQCN on the receiver), and does it send CNPs to %s?",
			f.CEPackets, f.Packets, f.Dst, f.Src)
	}
}

// answered reports that a CNP was sent within the group that f belongs to; then f's own marks may have come while the group's
// interval ran. Where the scope is not known it is taken as wide as it may be.
func (c *cnpCheck) answered(f *Flow) bool {
	g := &c.doc.Congestion
	sources := map[string]bool{}
	seen := false
	for i := range g.Pairs {
		p := &g.Pairs[i]
		sources[p.Src] = true
		switch c.scope {
		case ScopeQP:
		case ScopeIPPair:
			seen = seen || (p.Src == f.Dst && p.Dst == f.Src)
		case ScopeDestination: // which of the notifier's addresses share a port is not told here
			seen = seen || p.Dst == f.Src
		default:
			seen = seen || p.Src == f.Dst
		}
	}
	if !seen && c.scope != ScopeQP && c.scope != ScopeIPPair && len(g.Ports) < len(sources) {
		return true // some port has several addresses, and this may be one of them
	}
	return seen
}

// marksOf gives the time at which a flow was surely being marked, the end of its first bin with a mark, and the start of its
// last such bin.
func (c *cnpCheck) marksOf(id string) (first, last int64) {
	s := &c.doc.Series
	f := c.series[id]
	if f == nil {
		return c.end(), c.end()
	}
	marked := false
	for b, n := range f.CE {
		if n == 0 {
			continue
		}
		start := s.StartNS + int64(f.FirstBin+b)*s.BinNS
		if !marked {
			first, marked = start+s.BinNS, true
		}
		last = start
	}
	return first, last
}

// end is that of the series.
func (c *cnpCheck) end() int64 {
	return c.doc.Series.StartNS + int64(c.doc.Series.Bins)*c.doc.Series.BinNS
}
