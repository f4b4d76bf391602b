package sender

import (
	"net/netip"
	"slices"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// report takes a CONGESTION_REPORT. All that it can do is stop unscheduled transmission (On-Path Congestion Reporting): its
// Suggested Rate is for receivers. What is not of a CRN of the domain, not for a sender, or not of a flow from here to a
// receiver is ignored (decision 23).
func (x *Machine) report(from netip.Addr, r *rdcc.CongestionReport) {
	if !x.inRange(from) && x.on(rdcc.RuleReportSource) {
		x.count.ReportsSource++
		return
	}
	if r.Direction != rdcc.ToSender && x.on(rdcc.RuleReportDirection) {
		x.count.ReportsDirection++
		return
	}
	a := x.byHost[r.Destination.Unmap()]
	if a == nil || !slices.Contains(x.c.Local, r.Source.Unmap()) && x.on(rdcc.RuleReportFlow) {
		x.count.ReportsFlow++
		return
	}
	stopped := false
	for ; a != nil; a = a.next {
		if x.on(rdcc.RuleReportStops) {
			stopped = x.stop(a) || stopped
		}
	}
	if stopped {
		x.count.ReportsStopping++
	} else {
		x.count.ReportsIdle++
	}
}

// Pause says that the link was paused (PFC), which stops unscheduled transmission to all receivers (Unscheduled
// Transmission, decision 10).
func (x *Machine) Pause(now time.Duration) {
	x.clock(now)
	x.due()
	x.count.Pauses++
	if x.on(rdcc.RulePauseStops) {
		for i := range x.slots {
			if a := x.slots[i].a; a != nil {
				x.stop(a)
			}
		}
	}
	x.settle()
}

// stop converts what is left of unscheduled messages to scheduled mode.
func (x *Machine) stop(a *assoc) bool {
	n := len(a.unscheduled)
	for i := n - 1; i >= 0; i-- {
		x.convert(a.unscheduled[i])
	}
	return n > 0
}

// failed takes an ERROR about the association as it is, or about one of its messages.
func (x *Machine) failed(a *assoc, e *rdcc.Error) {
	switch e.Reason {
	case rdcc.ReasonMessageTooLarge, rdcc.ReasonApplicationAbort, rdcc.ReasonUnsupportedBinding:
		if m := x.find(a, e.MessageID); m != nil {
			x.abort(m, e.Reason)
		}
	case rdcc.ReasonBudgetExhausted:
		x.count.BudgetExhausted++
		if e.MessageID == 0 {
			x.events.push(Event{Kind: EventExhausted, To: a.to})
			return
		}
		m := x.find(a, e.MessageID)
		switch {
		case m == nil:
		case a.kind == grantsPool && m.state == StateScheduled:
			x.poolRefused(m)
		case m.state != StateWaiting:
			x.count.Unexpected++
		case x.on(rdcc.RuleExhaustedKeeps):
			x.poolRefused(m)
			x.events.push(Event{Kind: EventExhausted, ID: m.id, To: a.to})
		default:
			m.requestAt = never
			x.arm(m)
		}
	default:
		x.count.Unexpected++
	}
}
