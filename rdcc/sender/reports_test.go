package sender

import (
	"net/netip"
	"testing"

	"github.com/pcmlab/pcmlab/rdcc"
)

// reportOf is a report of a flow from here to the first receiver.
func reportOf() rdcc.CongestionReport {
	return rdcc.CongestionReport{
		ReporterID: 1, QueueDepth: 2000, QueueThreshold: 1000, CongestionDegree: 100, Direction: rdcc.ToSender, Protocol: 17,
		SourcePort: 1, DestinationPort: 4791, SuggestedRate: 400000, Source: here, Destination: first.Addr(),
	}
}

func (l *lab) report(r rdcc.CongestionReport) {
	l.raw(netip.AddrPortFrom(crn, 50000), rdcc.Header{Seq: 1}, &r)
}

// TestReportStops: the rest waits for credit; the new request states what was sent (Unscheduled Transmission 5).
func TestReportStops(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 10000})
	o := l.submit(Message{Length: 10000, To: other})
	l.take()
	l.accept(l.o)
	l.take()
	l.pass(10 * us)
	l.transmit(id, 4000)
	l.events()
	l.report(reportOf())
	l.state(id, StateWaiting)
	l.allowance(id, 4000)
	l.want("events", l.eventNames(), "stopped")
	d := l.one(rdcc.TypeCreditRequest).CreditRequest
	if d.MessageID != 1 || d.UnscheduledSent != 4000 {
		t.Errorf("request %+v", d)
	}
	l.state(o, StateUnsched) // to another receiver
	l.allowance(o, 10000)
	l.report(reportOf()) // nothing left to stop
	c := l.x.Counters()
	if c.ReportsStopping != 1 || c.ReportsIdle != 1 || c.Converted != 1 {
		t.Errorf("counters %+v", c)
	}
}

// TestReportStops_alone is the stop alone, in the start delay.
func TestReportStops_alone(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 10000})
	l.report(reportOf())
	l.pass(20 * us)
	l.allowance(id, 0)
	l.equal("Unscheduled Sent", l.one(rdcc.TypeCreditRequest).CreditRequest.UnscheduledSent, uint64(0))
}

// TestPauseStops: a link pause is as good as a report, for all receivers.
func TestPauseStops(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 10000})
	o := l.submit(Message{Length: 10000, To: other})
	l.take()
	l.accept(l.o)
	l.pass(20 * us)
	l.x.Pause(l.now)
	l.state(id, StateWaiting)
	l.state(o, StateWaiting)
}

// TestReportKeepsGrant: credit that came while the message was unscheduled is used at once (decision 10).
func TestReportKeepsGrant(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 10000})
	l.pass(10 * us)
	l.transmit(id, 1000)
	l.grant(id, 5000)
	l.state(id, StateUnsched)
	l.allowance(id, 10000)
	l.report(reportOf())
	l.state(id, StateScheduled)
	l.allowance(id, 5000)
}

// TestReportsIgnored: not from a CRN of the domain, not to a sender, or not of a flow from here.
func TestReportsIgnored(t *testing.T) {
	for _, c := range []struct {
		why   string
		from  netip.Addr
		edit  func(*rdcc.CongestionReport)
		count func(Counters) uint64
	}{
		{"not a CRN", first.Addr(), func(*rdcc.CongestionReport) {}, func(c Counters) uint64 { return c.ReportsSource }},
		{"to the receiver", crn, func(r *rdcc.CongestionReport) { r.Direction = rdcc.ToReceiver }, func(c Counters) uint64 { return c.ReportsDirection }},
		{"no direction", crn, func(r *rdcc.CongestionReport) { r.Direction = 0 }, func(c Counters) uint64 { return c.ReportsDirection }},
		{"another sender", crn, func(r *rdcc.CongestionReport) { r.Source = other.Addr() }, func(c Counters) uint64 { return c.ReportsFlow }},
		{"another receiver", crn, func(r *rdcc.CongestionReport) { r.Destination = other.Addr() }, func(c Counters) uint64 { return c.ReportsFlow }},
	} {
		l := newLab(t)
		id := l.open(Message{Length: 10000})
		r := reportOf()
		c.edit(&r)
		l.raw(netip.AddrPortFrom(c.from, 50000), rdcc.Header{Seq: 1}, &r)
		l.state(id, StateUnsched)
		l.equal(c.why, c.count(l.x.Counters()), uint64(1))
	}
	for _, addr := range []string{"::ffff:198.51.100.7", "198.51.100.200"} {
		l := newLab(t)
		id := l.open(Message{Length: 10000})
		r := reportOf()
		l.raw(netip.AddrPortFrom(netip.MustParseAddr(addr), 1), rdcc.Header{}, &r)
		l.state(id, StateWaiting)
	}
}

// TestReportOfOtherFlow, TestReportToReceiver and TestReportOfStranger are those alone.
func TestReportOfOtherFlow(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 10000})
	r := reportOf()
	r.Source = other.Addr()
	l.report(r)
	l.state(id, StateUnsched)
}

func TestReportToReceiver(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 10000})
	r := reportOf()
	r.Direction = rdcc.ToReceiver
	l.report(r)
	l.state(id, StateUnsched)
}

func TestReportOfStranger(t *testing.T) {
	l := newLab(t)
	id := l.open(Message{Length: 10000})
	r := reportOf()
	l.raw(other, rdcc.Header{}, &r)
	l.state(id, StateUnsched)
}

// TestReportRaisesNothing: not the rate of a grant, nor what may be sent, whatever the report suggests.
func TestReportRaisesNothing(t *testing.T) {
	l := newLab(t)
	id := l.open(long)
	l.send(l.r, &rdcc.CreditGrant{MessageID: 1, GrantLimit: 20000, PacingRate: 100})
	for degree := range 256 {
		r := reportOf()
		r.CongestionDegree = uint8(degree)
		l.report(r)
		if upTo, rate := l.x.Allowance(l.now, id); upTo != 20000 || rate != 100e6 {
			t.Fatalf("after degree %d: %d at %d", degree, upTo, rate)
		}
	}
	l.equal("answer", l.types(), "")
}
