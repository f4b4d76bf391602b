package receiver

import (
	"net/netip"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

const capacity = 96076 // Mbit/s of the test fabric: 100 Gbit/s × 4096/4178 × 0.98

// rates adds up the pacing rates of grants, per address.
func rates(grants []wire) (sum int64, by map[netip.AddrPort]int64) {
	by = map[netip.AddrPort]int64{}
	for _, g := range grants {
		sum += int64(g.CreditGrant.PacingRate)
		by[g.to] += int64(g.CreditGrant.PacingRate)
	}
	return sum, by
}

func TestRates_sum(t *testing.T) {
	l := newLab(t, func(c *Config) { c.G = 1 << 24 })
	for n := range 20 {
		l.client(n).request(1, 1<<20, 0)
	}
	sum, _ := rates(l.take(rdcc.TypeCreditGrant))
	l.want("sum of rates", sum > capacity/2 && sum <= capacity, true)
}

// TestRates_live: a rate counts until its grant is past its time, or used up.
func TestRates_live(t *testing.T) {
	l := newLab(t, func(c *Config) { c.G = 1 << 24 })
	a, b := l.client(1), l.client(2)
	a.request(1, 1<<20, 0)
	sum, _ := rates(l.take(rdcc.TypeCreditGrant))
	l.want("the only one has the link", sum, int64(capacity))
	b.request(1, 1<<20, 0)
	l.pass(110 * us)
	l.none(rdcc.TypeCreditGrant)
	l.pass(8 * us)
	sum, _ = rates(l.take(rdcc.TypeCreditGrant))
	l.want("then the other has", sum > 0, true)
	l.want("live", l.r.liveRate <= capacity, true)
}

// TestRates_usedUp: once all that a grant allowed has arrived, its rate is free.
func TestRates_usedUp(t *testing.T) {
	l := newLab(t)
	a, b := l.client(1), l.client(2)
	a.request(1, 5000, 0)
	l.one(rdcc.TypeCreditGrant)
	b.request(1, 5000, 0)
	l.none(rdcc.TypeCreditGrant)
	a.data(1, 5000)
	l.one(rdcc.TypeCreditGrant)
}

// TestRates_pacingRateNotZero: who finds no rate left waits.
func TestRates_pacingRateNotZero(t *testing.T) {
	l := newLab(t, func(c *Config) { c.G = 1 << 24 })
	for n := range 60 {
		l.client(n).request(1, 1<<20, 0)
		for _, g := range l.take(rdcc.TypeCreditGrant) {
			if g.CreditGrant.PacingRate == 0 {
				t.Fatal("a grant with a Pacing Rate of zero")
			}
		}
	}
}

// TestRates_turns: at most C/R_min = 46 senders have live grants, the others wait for their turn (decision 16).
func TestRates_turns(t *testing.T) {
	l := newLab(t, func(c *Config) { c.G = 1 << 20 })
	first := l.client(99)
	first.request(1, 100, 0) // all others ask while this one has the link
	var all []*client
	for n := range 90 {
		c := l.client(n)
		c.request(1, 1<<20, 0)
		all = append(all, c)
	}
	l.take(rdcc.TypeCreditGrant)
	first.data(1, 100)
	for range 3 {
		live := 0
		for i := range l.r.assocs {
			if r := l.r.assocs[i].live; r > 0 {
				live++
				l.want("at least R_min", r >= 2048, true)
			}
		}
		l.want("senders with live grants", live > 0 && live <= 46, true)
		l.pass(200 * us)
		for _, c := range all {
			c.request(1, 1<<20, 0)
		}
	}
}

// TestRates_splitByWeight: a sender's rate is divided among its messages.
func TestRates_splitByWeight(t *testing.T) {
	l := newLab(t)
	block, c := l.client(1), l.client(2)
	block.request(1, 5000, 0)
	c.request(1, 1<<20, 0, weight(1))
	c.request(2, 1<<20, 0, weight(3))
	l.take(rdcc.TypeCreditGrant)
	block.data(1, 5000)
	got := map[uint64]int64{}
	for _, g := range l.take(rdcc.TypeCreditGrant) {
		if g.to == c.addr && got[g.CreditGrant.MessageID] == 0 {
			got[g.CreditGrant.MessageID] = int64(g.CreditGrant.PacingRate)
		}
	}
	if one, three := got[1], got[2]; one == 0 || three < 29*one/10 || three > 31*one/10 {
		t.Errorf("rates of weights 1 and 3: %d and %d Mbit/s", one, three)
	}
}

// flowing is a sender in the middle of a long message.
func flowing(t *testing.T, mods ...func(*Config)) (*lab, *client) {
	t.Helper()
	l := newLab(t, mods...)
	c := l.client(1)
	c.request(1, 1<<40, 0)
	return l, c
}

// flow lets data arrive for some update intervals and returns the rate of the last grant.
func (c *client) flow(intervals int, ce uint32) (rate int64) {
	c.l.t.Helper()
	for range intervals {
		c.l.pass(17 * us)
		at := c.l.r.index.get(key{1, c.id, tagMessage})
		m := &c.l.r.messages[at]
		n := m.credit.limit - m.received
		c.arrive(Arrival{Message: 1, Octets: n, Packets: 20, CE: ce})
		for _, g := range c.l.take(rdcc.TypeCreditGrant) {
			rate = int64(g.CreditGrant.PacingRate)
		}
	}
	return rate
}

func TestRates_ce(t *testing.T) {
	l, c := flowing(t)
	before := c.flow(2, 0)
	after := c.flow(1, 10)
	l.want("a quarter less with half the packets marked", after > before*74/100 && after < before*76/100, true)
	l.want("and up again", c.flow(3, 0) > after, true)
}

func report(degree uint8, from *client) *rdcc.CongestionReport {
	return &rdcc.CongestionReport{CongestionDegree: degree, Direction: rdcc.ToReceiver, Source: from.addr.Addr(), Destination: node.Addr()}
}

func (l *lab) report(from netip.AddrPort, m *rdcc.CongestionReport) {
	l.t.Helper()
	l.receive(from, m.Append(nil, rdcc.Header{}))
}

func TestRates_report(t *testing.T) {
	l, c := flowing(t)
	before := c.flow(2, 0)
	l.report(node, report(255, c))
	after := c.flow(1, 0)
	l.want("half after a report of degree 255", after > before*49/100 && after < before*51/100, true)
}

func TestRates_reportOfDegreeZero(t *testing.T) {
	l, c := flowing(t)
	c.flow(2, 0)
	cuts, rate := l.r.Counters.RateCuts, c.assoc().flow.Rate
	l.report(node, report(0, c))
	c.flow(1, 0)
	l.want("reductions", l.r.Counters.RateCuts, cuts+1)
	l.want("lower", c.assoc().flow.Rate < rate, true)
}

func TestRates_reportSuggests(t *testing.T) {
	l, c := flowing(t)
	c.flow(2, 0)
	m := report(1, c)
	m.SuggestedRate = 5000
	l.report(node, m)
	l.want("rate", c.flow(1, 0) <= 5000, true)
}

func TestRates_reportNeverRaises(t *testing.T) {
	l, c := flowing(t)
	c.flow(2, 0)
	for range 20 {
		before := l.r.senderRate(c.assoc())
		m := report(3, c)
		m.SuggestedRate = 400000
		l.report(node, m)
		l.want("no more", l.r.senderRate(c.assoc()) <= before, true)
		l.pass(20 * us)
	}
}

func TestReport_onlyOfNodes(t *testing.T) {
	l, c := flowing(t)
	before := c.flow(2, 0)
	l.report(clientAddr(77), report(255, c))
	l.want("rate", c.flow(1, 0) >= before, true)
	l.want("foreign", l.r.Counters.ReportsForeign, uint64(1))
}

func TestReport_toSenders(t *testing.T) {
	l, c := flowing(t)
	before := c.flow(2, 0)
	m := report(255, c)
	m.Direction = rdcc.ToSender
	l.report(node, m)
	l.want("rate", c.flow(1, 0) >= before, true)
}

func TestReport_ofOtherDestinations(t *testing.T) {
	l, c := flowing(t, func(c *Config) { c.Local = []netip.Addr{clientAddr(200).Addr()} })
	before := c.flow(2, 0)
	l.report(node, report(255, c))
	l.want("rate", c.flow(1, 0) >= before, true)
	m := report(255, c)
	m.Destination = clientAddr(200).Addr()
	l.report(node, m)
	l.want("rate", c.flow(1, 0) < before, true)
}

func TestRates_delay(t *testing.T) {
	l, c := flowing(t)
	before := c.flow(2, 0)
	l.r.RTTSample(l.now, c.id, 48*us) // the target is 32 µs: excess 0.5
	after := c.flow(1, 0)
	l.want("a quarter less", after > before*74/100 && after < before*76/100, true)
}

// TestRates_delayOfGrants: the receiver's own samples are from the grant to a waiting sender to its first octet.
func TestRates_delayOfGrants(t *testing.T) {
	l := newLab(t)
	c := l.client(1)
	c.request(1, 1<<20, 0)
	l.pass(40 * us)
	c.data(1, 1)
	l.want("samples", l.r.Counters.RTTSamples, uint64(1))
	l.want("reductions", l.r.Counters.RateCuts, uint64(1))
}

func TestRates_noDataNoChange(t *testing.T) {
	l, c := flowing(t)
	c.flow(2, 20)
	before := c.assoc().flow.Rate
	l.pass(time.Millisecond)
	for range 50 {
		l.pass(20 * us)
		l.r.senderRate(c.assoc())
	}
	l.want("rate", c.assoc().flow.Rate, before)
}

func TestRates_suggested(t *testing.T) {
	l, c := flowing(t)
	c.flow(1, 0)
	c.send(&rdcc.SenderStatus{SuggestedRate: 3000})
	l.want("rate", c.flow(1, 0), int64(3000))
	c.send(&rdcc.SenderStatus{SuggestedRate: 700}) // less than R_min (decision 23)
	l.pass(150 * us)
	c.request(1, 1<<40, 0)
	l.want("rate", l.one(rdcc.TypeCreditGrant).CreditGrant.PacingRate, rdcc.Mbps(700))
}

// TestRates_suggestedAges: after four lifetimes of 100 µs.
func TestRates_suggestedAges(t *testing.T) {
	l, c := flowing(t)
	c.send(&rdcc.SenderStatus{SuggestedRate: 3000})
	l.pass(399 * us)
	l.want("just before", l.r.senderRate(c.assoc()), int64(3000))
	l.pass(2 * us)
	l.want("just after", l.r.senderRate(c.assoc()), int64(capacity))
}

func TestRates_lineRateOfTheSender(t *testing.T) {
	l := newLab(t)
	c := l.newClient(1)
	c.rate = 10000
	c.join()
	c.request(1, 1<<20, 0)
	l.want("rate", l.one(rdcc.TypeCreditGrant).CreditGrant.PacingRate, rdcc.Mbps(10000))
}

// TestReport_families: sockets of both families give IPv4 addresses in IPv6 form, reports have them as the packet had.
func TestReport_families(t *testing.T) {
	mapped := func(a netip.AddrPort) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
	}
	l := newLab(t)
	c := l.newClient(1)
	c.addr = mapped(c.addr)
	c.join()
	c.request(1, 1<<40, 0)
	before := c.flow(2, 0)
	m := report(255, c)
	m.Source = clientAddr(1).Addr()
	l.report(mapped(node), m)
	l.want("rate", c.flow(1, 0) < before, true)
	six := l.newClient(2)
	six.addr = netip.MustParseAddrPort("[fd00::2]:4000")
	six.join()
	m = report(255, six)
	m.Destination = netip.MustParseAddr("fd00::1")
	l.report(node, m)
	l.want("unmatched", l.r.Counters.ReportsUnmatched, uint64(0))
	l.report(node, report(255, &client{addr: clientAddr(55)}))
	l.want("unmatched", l.r.Counters.ReportsUnmatched, uint64(1))
}

// TestRates_keptToTheEnd: while others wait a short message asks for no more than it needs, but what is under way is not slowed for
// its last octets: the newest rate counts for all that has yet to be sent.
func TestRates_keptToTheEnd(t *testing.T) {
	l := newLab(t)
	var all []*client
	for i := range 3 {
		c := l.client(i + 1)
		c.request(1, 512<<10, 0)
		all = append(all, c)
	}
	rates := map[uint32][]rdcc.Mbps{}
	upTo := map[uint32]uint64{}
	for arrived := uint64(0); arrived < 512<<10; arrived += 4096 {
		for _, w := range l.take(rdcc.TypeCreditGrant) {
			rates[w.Assoc] = append(rates[w.Assoc], w.CreditGrant.PacingRate)
			upTo[w.Assoc] = w.CreditGrant.GrantLimit
		}
		l.pass(1 * us)
		for _, c := range all {
			if next := min(arrived+4096, 512<<10-1); next <= upTo[c.id] {
				c.data(1, next)
			}
		}
	}
	long := 0
	for id, r := range rates {
		if len(r) < 5 { // had most of its credit before the other came
			continue
		}
		long++
		if last := r[len(r)-1]; last < r[1] {
			t.Errorf("association %08x: the last of %d grants has %d Mbit/s, the second had %d", id, len(r), last, r[1])
		}
	}
	if long == 0 {
		t.Errorf("nobody had several grants: %v", rates)
	}
}
