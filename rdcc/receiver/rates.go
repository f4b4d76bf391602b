package receiver

import (
	"net/netip"
	"slices"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// observed is what was seen of a sender's path since its rate was last adjusted.
type observed struct {
	since   time.Duration
	cut     time.Duration // last reduction
	octets  uint64
	packets uint32
	ce      uint32
	reports uint32        // of the peer, that have been taken into account
	rtt     time.Duration // largest
}

// cePackets are the fewest packets of which a fraction of CE marks means something (decision 19).
const cePackets = 16

// rttSample notes a round-trip time.
func (r *Receiver) rttSample(a *association, rtt time.Duration) {
	if rtt <= 0 {
		return
	}
	r.Counters.RTTSamples++
	a.seen.rtt = max(a.seen.rtt, rtt)
}

// RTTSample takes a round-trip time that the data transport measured.
func (r *Receiver) RTTSample(now time.Duration, assoc uint32, rtt time.Duration) {
	r.clock(now)
	if i, ok := r.byID[assoc]; ok {
		r.rttSample(&r.assocs[i], rtt)
	}
}

// observe adjusts the rate of a sender once an update interval has passed, or at once when there is a sign of congestion
// and none has been heeded for that long. Nothing happens while there is nothing to see (decision 19).
func (r *Receiver) observe(a *association) {
	s, p := &a.seen, &r.peers.all[a.peer]
	every := r.cfg.Fabric.BaseRTT
	reported := p.reports != s.reports && r.on(rdcc.RuleReduceOnReport)
	late := s.rtt > r.cfg.TargetRTT && r.on(rdcc.RuleReduceOnDelay)
	enough := s.packets >= cePackets
	if !(enough && r.now-s.since >= every) && !((reported || late) && r.now-s.cut >= every) {
		if r.on(rdcc.RuleNoDataNoChange) || r.now-s.since < every {
			return
		}
	}
	sig := Signal{Octets: s.octets, Elapsed: r.now - s.since, RTT: s.rtt}
	if enough && r.on(rdcc.RuleReduceOnCE) {
		sig.CE = float64(s.ce) / float64(s.packets)
	}
	if reported {
		degree := p.degree
		if r.on(rdcc.RuleDegreeZeroReduces) {
			degree = max(degree, 1)
		}
		sig.Degree = float64(degree) / 255
	}
	if late {
		sig.Delay = min(float64(s.rtt-r.cfg.TargetRTT)/float64(r.cfg.TargetRTT), 1)
	}
	before := a.flow.Rate
	r.cfg.Allocator.Update(&a.flow, r.now, sig)
	a.flow.Rate = max(min(a.flow.Rate, a.flow.Max), min(a.flow.Min, a.flow.Max))
	if sig.Congestion() > 0 {
		a.flow.Rate = min(a.flow.Rate, before) // whatever the allocator thinks
		s.cut = r.now
		r.Counters.RateCuts++
	}
	if reported && p.rate > 0 { // the node's suggestion can only lower
		a.flow.Rate = min(a.flow.Rate, max(p.rate*1e6, min(a.flow.Min, a.flow.Rate)))
	}
	s.reports, s.rtt = p.reports, 0
	if enough || !r.on(rdcc.RuleNoDataNoChange) {
		s.octets, s.packets, s.ce, s.since = 0, 0, 0, r.now
	}
}

// senderRate is r_i in Mbit/s: what the allocator gives, at most the sender's line rate and its Suggested Rate.
func (r *Receiver) senderRate(a *association) int64 {
	most := a.lineRate
	if s := r.suggestion(a); s > 0 {
		most = min(most, s)
	}
	a.flow.Max = most * 1e6
	r.observe(a)
	return max(min(a.flow.Rate/1e6, most), 1)
}

// suggestion is the Suggested Rate in force, zero when there is none. A lost final SENDER_STATUS must not cap a sender for
// ever (Sender Backlog Indication).
func (r *Receiver) suggestion(a *association) int64 {
	if a.suggested == 0 || !r.on(rdcc.RuleSuggestedRate) {
		return 0
	}
	if r.now-a.suggestedAt > suggestedLifetimes*r.params.Lifetime && r.on(rdcc.RuleSuggestedAges) {
		a.suggested = 0
	}
	return a.suggested
}

const suggestedLifetimes = 4

// rateFor is the pacing rate of the message's next grant: the sender's rate, divided by weight among its messages, within
// what other live grants leave of it and of the access link (decisions 16 and 17).
//
// A rate counts as long as its grant, a round trip at least. So a message that is short for its rate would keep others from
// theirs: while others wait it gets no more than it needs to be through in two round trips. One that has a rate keeps it for the rest,
// though: the newest rate counts for all that it has yet to send, and it would only be longer in the way of others.
func (r *Receiver) rateFor(a *association, m *message, c *credit, left uint64) (int64, verdict) {
	ri := r.senderRate(a)
	own := r.ladder(c).live()
	free := r.capacity - r.liveRate + own
	fair := r.capacity / int64(max(r.active, 1))
	share := min(ri, fair)
	if len(r.ready) <= 1 && !r.othersSqueezed(a) { // nobody else waits: what is free may be used
		share = min(ri, max(fair, free+a.live-own))
	}
	least := min(r.rmin, ri)
	if !r.on(rdcc.RuleRMin) {
		least = 1
	}
	share = max(share, least)
	split, part := share, least
	if w := a.weights[m.class]; !a.pool && w > uint32(m.weight) && r.on(rdcc.RuleSplitByWeight) {
		split = share * int64(m.weight) / int64(w)
		if fair >= least { // all senders have their turn at once: then their messages have, too, down to a Credit Unit a window
			part = max(least/windowRTTs, 1)
		}
	}
	if r.active > 1 || len(a.queue) > 1 {
		split = min(split, max(own, int64(min(left, 1<<40))*8000/(shortRTTs*int64(r.cfg.Fabric.BaseRTT))))
	}
	split = max(split, part)
	mine := share - (a.live - own)
	rate := min(split, mine, free)
	r.squeeze(a, free < min(split, mine) && a.live-own+free < min(ri, fair))
	if own == 0 && fair >= least { // slow credit ends unused, and then the next is late
		part = max(part, min(split, mine)/slowShare)
	}
	if !r.on(rdcc.RuleSumOfRates) {
		rate, free, mine = split, split, split
	}
	if rate >= part {
		return rate, served
	}
	if !r.on(rdcc.RulePacingRateNotZero) {
		return 0, served
	}
	switch {
	case free >= part:
		return 0, barred
	case fair >= least:
		return 0, aside
	}
	return 0, full
}

// shortRTTs is in how many round trips a short message is through while others wait.
const shortRTTs = 2

// senderStatus notes what a sender says of its own congestion.
func (r *Receiver) senderStatus(i int32, m *rdcc.SenderStatus) {
	a := &r.assocs[i]
	a.suggested, a.suggestedAt = int64(m.SuggestedRate), r.now
	r.Counters.StatusReceived++
	r.unblock(a)
}

// report notes what an on-path node says. It can only lower rates (On-Path Congestion Reporting).
func (r *Receiver) report(from netip.AddrPort, m *rdcc.CongestionReport) {
	switch {
	case !slices.Contains(r.cfg.CRNs, from.Addr().Unmap()) && r.on(rdcc.RuleReportOfNode):
		r.Counters.ReportsForeign++
		return
	case m.Direction != rdcc.ToReceiver && r.on(rdcc.RuleReportToReceiver),
		len(r.cfg.Local) > 0 && !slices.Contains(r.cfg.Local, m.Destination.Unmap()) && r.on(rdcc.RuleReportDestination):
		r.Counters.ReportsMisdirected++
		return
	}
	r.Counters.ReportsReceived++
	i, ok := r.peers.byAddr[m.Source.Unmap()]
	if !ok {
		r.Counters.ReportsUnmatched++
		return
	}
	p := &r.peers.all[i]
	if r.now-p.at >= r.cfg.Fabric.BaseRTT {
		p.degree, p.rate = 0, 0
	}
	p.degree = max(p.degree, m.CongestionDegree)
	if s := int64(m.SuggestedRate); s > 0 && (p.rate == 0 || s < p.rate) {
		p.rate = s
	}
	p.at = r.now
	p.reports++
}
