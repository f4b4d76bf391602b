package world

import (
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// senderOracle recounts what a sender may send, from the datagrams that reached it and those that it sent.
type senderOracle struct {
	s      *shost
	assocs map[uint32]*sassoc
	by     map[*message]*smsg
	d      rdcc.Datagram
}

// sassoc is an association as the sender can know it.
type sassoc struct {
	to          int
	epoch       uint16
	newest      uint32
	accept      uint32
	lost        bool // UNKNOWN_ASSOCIATION came, and no ASSOC_ACCEPT since
	u           uint64
	unit        uint64
	lifetime    time.Duration
	hold        time.Duration // how long an abandoned unscheduled message is outstanding
	pool        scredit
	isPool      bool
	outstanding *message
}

// scredit is credit that the sender holds, of a message or of the pool.
type scredit struct {
	limit, used uint64
	end         time.Duration // by the sender's clock
	rate        int64
	returned    uint64        // the limit of which some was returned
	crossing    time.Duration // until when grants up to it are ones that the return has crossed (decision 6)
	log         []sent
}

type sent struct {
	at   time.Duration
	n    uint64
	rate int64
}

type smsg struct {
	credit  scredit
	assoc   uint32 // under which it was asked for last
	asked   bool
	free    bool // announced as unscheduled in full, and not stopped since
	started bool // unscheduled octets have left
	over    bool // CANCEL was sent or came, or MSG_DONE came
	granted bool
}

func (o *senderOracle) init(s *shost) {
	o.s, o.assocs, o.by = s, map[uint32]*sassoc{}, map[*message]*smsg{}
}

func (o *senderOracle) of(m *message) *smsg {
	v := o.by[m]
	if v == nil {
		v = &smsg{}
		o.by[m] = v
	}
	return v
}

// find is the message that a receiver means.
func (o *senderOracle) find(to int, wire uint64) *message {
	return o.s.w.receivers[to].byWire[uint64(o.s.i)<<48|wire]
}

// expire ends credit whose lifetime is over: what is not used is gone (decision 1).
func (c *scredit) expire(now time.Duration) {
	if now >= c.end {
		c.limit = c.used
	}
}

func (c *scredit) grant(now time.Duration, g *rdcc.CreditGrant, lifetime time.Duration) {
	c.expire(now)
	if g.GrantLimit > c.returned || now >= c.crossing {
		c.limit = max(c.limit, g.GrantLimit)
	}
	if c.limit > c.used {
		c.end = now + lifetime
	}
	c.rate = g.PacingRate.BitsPerSecond()
}

func (c *scredit) giveBack(to uint64, s *shost) {
	c.returned, c.crossing = c.limit, s.local()+s.w.s.Fabric.DMax
	c.limit = to
}

// receives sees what came. Forged datagrams are not for this oracle: nothing of them may have an effect.
func (o *senderOracle) receives(from netip.AddrPort, b []byte, genuine bool) {
	d, now := &o.d, o.s.local()
	if d.Decode(b) != nil {
		return
	}
	if d.Type == rdcc.TypeCongestionReport {
		if from == crn && d.CongestionReport.Direction == rdcc.ToSender && d.CongestionReport.Source == o.s.addr.Addr() {
			if to, ok := o.s.w.byAddr[netip.AddrPortFrom(d.CongestionReport.Destination, port)]; ok {
				o.stopped(to)
			}
		}
		return
	}
	to, ok := o.s.w.byAddr[from]
	if !genuine || !ok || to < 0 {
		return
	}
	a := o.assocs[d.Assoc]
	if d.Type == rdcc.TypeAssocAccept {
		o.accept(to, a)
		return
	}
	if a == nil {
		return
	}
	if d.Type == rdcc.TypeError && d.Error.Reason == rdcc.ReasonUnknownAssociation {
		if !a.lost {
			a.lost = true
			o.lose(d.Assoc, a)
		}
		return
	}
	if a.lost || d.Epoch != a.epoch || !rdcc.Newer(d.Seq, a.newest) {
		return
	}
	a.newest = d.Seq
	switch d.Type {
	case rdcc.TypeCreditGrant:
		g := &d.CreditGrant
		lifetime := g.Lifetime.Duration()
		if lifetime == 0 {
			lifetime = a.lifetime
		}
		if d.Flags&rdcc.FlagPool != 0 {
			a.isPool = true
			a.pool.grant(now, g, lifetime)
			break
		}
		if m := o.find(to, g.MessageID); m != nil {
			v := o.of(m)
			v.granted = true
			v.credit.used = m.sent
			v.credit.grant(now, g, lifetime)
			if a.outstanding == m {
				a.outstanding = nil
			}
		}
	case rdcc.TypeMsgDone, rdcc.TypeCancel:
		id := d.MsgDone.MessageID
		if d.Type == rdcc.TypeCancel {
			id = d.Cancel.MessageID
		}
		if m := o.find(to, id); m != nil {
			o.of(m).over = true
			if a.outstanding == m && d.Type == rdcc.TypeMsgDone {
				a.outstanding = nil
			}
		}
	}
	o.rates(to)
}

// accept sees an ASSOC_ACCEPT of a true receiver, which echoes what it was sent.
func (o *senderOracle) accept(to int, a *sassoc) {
	d := &o.d
	if a == nil {
		a = &sassoc{to: to, epoch: d.Epoch, newest: d.Seq, accept: d.Seq - 1}
		o.assocs[d.Assoc] = a
	}
	a.lost = false
	if rdcc.Newer(d.Seq, a.newest) {
		a.newest = d.Seq
	}
	if !rdcc.Newer(d.Seq, a.accept) {
		return
	}
	p := &d.AssocAccept
	a.accept, a.u, a.unit, a.lifetime = d.Seq, uint64(p.UnscheduledLimit), uint64(p.CreditUnit), p.GrantLifetime.Duration()
	a.hold = p.StartJitter.Duration() + a.lifetime + 2*o.s.w.s.Fabric.DMax
	r, sum := o.s.w.receivers[to], uint64(0)
	for _, s := range o.s.w.senders {
		for id, a := range s.oracle.assocs {
			if r.alive[id] {
				sum += a.u
			}
		}
	}
	if sum > uint64(max(r.Gu, 0)) {
		o.s.w.fail("sum of U", "senders to r%d may send %d octets unscheduled, G_u is %d", to, sum, r.Gu)
	}
}

// lose drops all credit of an association.
func (o *senderOracle) lose(id uint32, a *sassoc) {
	a.pool.limit, a.pool.end = a.pool.used, 0
	for _, v := range o.by {
		if v.assoc == id {
			v.credit.limit, v.credit.end, v.free = 0, 0, false
		}
	}
}

// stopped: unscheduled transmission to a receiver must stop, or to all.
func (o *senderOracle) stopped(to int) {
	for m, v := range o.by {
		if to < 0 || m.To == to {
			v.free = false
		}
	}
}

// sends sees what the sender says.
func (o *senderOracle) sends(to netip.AddrPort, b []byte) {
	d, w := &o.d, o.s.w
	if err := d.Decode(b); err != nil {
		w.fail("wire", "s%d sends what cannot be read: %v", o.s.i, err)
		return
	}
	j := w.byAddr[to]
	switch d.Type {
	case rdcc.TypeCreditRequest:
		q := &d.CreditRequest
		m := o.s.message(j, q.MessageID)
		a := o.assocs[d.Assoc]
		if m == nil || a == nil {
			w.fail("wire", "s%d asks for message %d of r%d under %x, which nobody knows", o.s.i, q.MessageID, j, d.Assoc)
			return
		}
		v := o.of(m)
		if v.over {
			w.fail("cancel", "s%d asks for m%d, which is over", o.s.i, m.n)
		}
		if v.assoc != d.Assoc { // of a new life: what it held is gone, what it sent is unscheduled (decision 15)
			v.credit, v.assoc, v.granted = scredit{}, d.Assoc, false
		}
		v.asked = true
		free := q.UnscheduledSent == m.Length && m.sent < m.Length
		switch {
		case !free:
			v.free = false
			if q.UnscheduledSent > m.sent {
				w.fail("credit", "s%d announces %d octets of m%d as unscheduled, %d are sent", o.s.i, q.UnscheduledSent, m.n, m.sent)
			}
		case m.Length > a.u && m.sent == 0 && !v.free:
			w.fail("credit", "s%d announces all %d octets of m%d as unscheduled, U is %d", o.s.i, m.Length, m.n, a.u)
		case a.outstanding != nil && a.outstanding != m:
			w.fail("credit", "s%d announces m%d as unscheduled, and m%d is outstanding", o.s.i, m.n, a.outstanding.n)
		case !v.free && !v.granted:
			v.free, a.outstanding = true, m
		}
	case rdcc.TypeCancel:
		if m := o.s.message(j, d.Cancel.MessageID); m != nil {
			o.of(m).over = true
		}
	case rdcc.TypeCreditReturn:
		n := d.CreditReturn.NewLimit
		if d.CreditReturn.MessageID == 0 {
			if a := o.assocs[d.Assoc]; a != nil {
				a.pool.giveBack(max(n, a.pool.used), o.s)
			}
		} else if m := o.s.message(j, d.CreditReturn.MessageID); m != nil {
			if n < m.sent {
				w.fail("credit", "s%d returns m%d down to %d, %d are sent", o.s.i, m.n, n, m.sent)
			}
			o.of(m).credit.giveBack(max(n, m.sent), o.s)
		}
	}
}

// returning is before a CREDIT_RETURN.
func (o *senderOracle) returning(m *message) { o.of(m).credit.expire(o.s.local()) }

// transmits sees octets leave, and says whether they are unscheduled.
func (o *senderOracle) transmits(m *message, assoc uint32, n uint64) (unscheduled bool) {
	w, v, a, now := o.s.w, o.of(m), o.assocs[assoc], o.s.local()
	end := m.sent + n
	switch {
	case a == nil || a.lost || v.assoc != assoc || !v.asked:
		w.fail("credit", "s%d sends m%d up to %d under %x, where it has not asked", o.s.i, m.n, end, assoc)
		return false
	case v.over:
		w.fail("cancel", "s%d sends m%d up to %d, which is over", o.s.i, m.n, end)
		return false
	}
	if v.free {
		if m.Length > a.u && !v.started {
			w.fail("credit", "s%d sends m%d of %d octets unscheduled, U is %d", o.s.i, m.n, m.Length, a.u)
		}
		v.started = true
		return true
	}
	c, used := &v.credit, end
	if a.isPool {
		c, used = &a.pool, a.pool.used+n
	}
	switch {
	case used > c.limit:
		w.fail("credit", "s%d sends m%d up to %d, or the pool up to %d; the limit is %d", o.s.i, m.n, end, used, c.limit)
	case now >= c.end:
		w.fail("credit", "s%d sends m%d up to %d at %v, the grant ended at %v", o.s.i, m.n, end, now, c.end)
	}
	c.used = used
	if !m.SelfPaced || a.isPool {
		o.paced(m, a, c, now, n)
	}
	return false
}

// paced: no more than ten Credit Units, or a segment that cannot be stopped, in the time that these take at the Pacing Rate, the highest of those
// that were in force meanwhile.
func (o *senderOracle) paced(m *message, a *sassoc, c *scredit, now time.Duration, n uint64) {
	most := 10 * a.unit
	for _, x := range o.s.w.messages {
		if x.From == m.From && x.To == m.To && (x == m || a.isPool) {
			most = max(most, x.Segment)
		}
	}
	c.log = append(c.log, sent{now, n, min(c.rate, o.s.LineRate)})
	sum, fastest := uint64(0), int64(1)
	for i := len(c.log) - 1; i >= 0; i-- {
		x := &c.log[i]
		fastest = max(fastest, x.rate)
		span := time.Duration(int64(most) * 8 * int64(time.Second) / fastest)
		if x.at <= now-span {
			if i > 1000 {
				c.log = append(c.log[:0], c.log[i:]...)
			}
			return
		}
		if sum += x.n; sum > most {
			o.s.w.fail("pacing", "s%d sent %d octets of m%d within %v, where %d Mbit/s allow %d", o.s.i, sum, m.n, now-x.at, fastest/1e6, most)
			return
		}
	}
}

// leaves sees a packet leave a NIC that keeps the rate.
func (o *senderOracle) leaves(m *message, assoc uint32, at time.Duration) {
	v := o.of(m)
	if a := o.assocs[assoc]; a != nil && !a.isPool && !v.free && o.s.c.local(at) >= v.credit.end {
		o.s.w.fail("credit", "a packet of m%d leaves s%d at %v, the grant ends at %v", m.n, o.s.i, o.s.c.local(at), v.credit.end)
	}
}

// ended: who was abandoned with octets on their way is outstanding until the receiver has released them.
func (o *senderOracle) ended(m *message) {
	for _, a := range o.assocs {
		if a.outstanding == m {
			o.s.w.at(o.s.c.when(o.s.local()+a.hold), func() {
				if a.outstanding == m {
					a.outstanding = nil
				}
			})
		}
	}
	delete(o.by, m)
}

// rates adds up how fast senders may send to a receiver now: within its access link.
func (o *senderOracle) rates(to int) {
	w := o.s.w
	r, sum := w.receivers[to], int64(0)
	for _, s := range w.senders {
		now := s.local()
		for id, a := range s.oracle.assocs {
			if r.alive[id] && a.isPool && now < a.pool.end && a.pool.used < a.pool.limit {
				sum += a.pool.rate
			}
		}
		for m, v := range s.oracle.by {
			if c := &v.credit; r.alive[v.assoc] && m.To == to && !m.said && now < c.end && m.sent < c.limit {
				sum += c.rate
			}
		}
	}
	if most := w.s.Fabric.Capacity(); sum > most {
		w.fail("rates", "senders may send %d Mbit/s to r%d, whose link carries %d", sum/1e6, to, most/1e6)
	}
}
