package receiver

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pcmlab/pcmlab/rdcc"
)

// world is a receiver with many senders, some of which lie, under a recount of everything at each instant.
type world struct {
	*lab
	oracle  *oracle
	clients []*worldClient
	draw    func(n int) int // 0 to n-1
	log     []string
	made    uint64
}

type worldClient struct {
	*client
	world    *world
	next     uint64 // Message ID
	pending  []uint64
	liar     bool
	reserved uint64 // its unscheduled message, until that is done or granted
	onQPs    bool
	msn      [2]uint32 // next, of its queue pairs
	late     [2]uint32 // one whose request was overtaken; 0: none
}

func newWorld(t testingT, draw func(n int) int) *world {
	w := &world{draw: draw}
	w.lab = newLab(t, func(c *Config) {
		c.MaxAssociations, c.MaxPerAddress, c.MaxPending, c.MaxMessages, c.MaxUnattributed = 24, 8, 12, 100, 16
		c.Pool = draw(2) == 0
		c.ExpectedSenders = 1 + draw(16)
		c.Idle = time.Second
		c.OutQueue = 4096
		if draw(3) == 0 {
			c.Allocator = BBR{}
		}
	})
	w.oracle = &oracle{cfg: w.r.cfg, assocs: map[uint32]*oracleAssoc{}}
	w.lab.sent = w.saw
	return w
}

func (c *worldClient) send(m rdcc.Message) {
	c.world.note("    %v %+v", m.Type(), m)
	c.client.send(m)
}

func (c *worldClient) arrive(v Arrival) {
	c.world.note("    data %+v", v)
	c.client.arrive(v)
}

func (w *world) saw(d *wire) {
	w.note("    sent %v", d)
	w.oracle.sent(d)
	for _, c := range w.clients {
		if c.id != d.Assoc || c.addr != d.to {
			continue
		}
		if d.Type == rdcc.TypeMsgDone && d.MsgDone.MessageID == c.reserved || d.Type == rdcc.TypeCreditGrant && d.CreditGrant.MessageID == c.reserved {
			c.reserved = 0
		}
	}
}

func (w *world) check() {
	w.t.Helper()
	r, c := w.r, &w.r.cfg
	for id, a := range w.oracle.assocs { // what a lie made the receiver presume is not for the recount to know
		for mid, m := range a.messages {
			if at := r.index.get(key{mid, id, tagMessage}); at >= 0 && r.messages[at].presumed {
				m.received = r.messages[at].received
			}
		}
	}
	total, unscheduled, rates, us := w.oracle.count(w.now)
	fail := func(ok bool, format string, args ...any) {
		if !ok {
			w.t.Fatalf("at %v: %s\n%v\n%s", w.now, fmt.Sprintf(format, args...), w.log[max(0, len(w.log)-12):], w.dump())
		}
	}
	fail(total <= c.G, "%d octets may be on their way, G is %d", total, c.G)
	fail(unscheduled <= c.Gu, "%d unscheduled octets may be on their way, G_u is %d", unscheduled, c.Gu)
	fail(total <= w.charged(), "%d octets may be on their way, %d are charged", total, w.charged())
	fail(w.charged() <= c.G, "%d octets are charged, G is %d", w.charged(), c.G)
	fail(rates <= c.Fabric.Capacity()/1e6, "senders may send %d Mbit/s, the link carries %d", rates, c.Fabric.Capacity()/1e6)
	fail(rates <= r.liveRate, "senders may send %d Mbit/s, counted are %d", rates, r.liveRate)
	fail(us <= c.Gu, "the sum of U is %d, G_u is %d", us, c.Gu)
	fail(r.Counters.InvariantViolations == 0, "%d invariant violations", r.Counters.InvariantViolations)
	w.consistent(fail)
	fail(r.live <= c.MaxAssociations && len(r.assocs) <= c.MaxAssociations, "%d associations, %d places", r.live, len(r.assocs))
	fail(r.pending <= c.MaxMessages && len(r.messages) <= c.MaxMessages, "%d messages, %d places", r.pending, len(r.messages))
	fail(r.index.n <= 2*c.MaxMessages+maxQPs*c.MaxAssociations+c.MaxUnattributed, "%d keys", r.index.n)
}

// consistent recounts the machine's own books.
func (w *world) consistent(fail func(ok bool, format string, args ...any)) {
	r := w.r
	var s, u, live, sumU int64
	messages, active, ready, squeezed := 0, 0, 0, 0
	for i := range r.assocs {
		a := &r.assocs[i]
		if !a.used {
			continue
		}
		as, au, alive, n, queued := a.poolCredit.held, int64(0), a.poolCredit.own.live(), 0, 0
		for q := a.qp; q != 0; q = r.qps[q-1].next {
			w.consistentFlow(fail, a, &r.qps[q-1])
			alive += r.qps[q-1].rates.live()
		}
		var weights [rdcc.MaxClass + 1]uint32
		for at := a.first; at != 0; at = r.messages[at-1].next {
			m := &r.messages[at-1]
			as += m.credit.held
			au += m.unscheduled
			alive += m.credit.own.live()
			n++
			if m.queued != 0 {
				queued++
				fail(a.queue[m.queued-1] == at-1, "message %d is not at its place in the queue", m.id)
			}
			if m.more {
				weights[m.class] += uint32(m.weight)
			}
			if t, ok := m.credit.next(r.ladder(&m.credit)); ok && !m.cancelled {
				set, armed := r.messageTimers.at(at - 1)
				fail(armed && set <= t+1<<tickBits, "message %d is due at %v, its timer %v %v", m.id, t, set, armed)
			}
			fail(m.received <= m.length, "message %d of %d has %d", m.id, m.length, m.received)
		}
		fail(as == a.scheduled && au == a.unscheduled && alive == a.live, "association %x: %d %d %d, its messages have %d %d %d", a.id, a.scheduled, a.unscheduled, a.live, as, au, alive)
		fail(n == int(a.pending) && queued == len(a.queue), "association %x: %d messages, %d queued; there are %d, %d", a.id, a.pending, len(a.queue), n, queued)
		fail(weights == a.weights, "association %x: weights %v, want %v", a.id, a.weights, weights)
		fail(int(a.pending) <= r.cfg.MaxPending && len(a.holes.spans) <= r.cfg.MaxPending, "association %x: %d messages, %d holes", a.id, a.pending, len(a.holes.spans))
		fail(a.share == max(r.may(a), a.unscheduled), "association %x: share %d of U %d", a.id, a.share, r.may(a))
		fail(a.isOn == (a.live > 0 || len(a.queue) > 0 && a.barredUntil == 0), "association %x: active %t with %d, %d queued", a.id, a.isOn, a.live, len(a.queue))
		fail((a.readyAt != 0) == (len(a.queue) > 0 && !a.blocked), "association %x: ready %d with %d queued, blocked %t", a.id, a.readyAt, len(a.queue), a.blocked)
		fail(!a.blocked || a.live > 0 || a.scheduled > 0 || a.pool || a.barredUntil != 0 || a.inLine && slices.Contains(r.line.all[r.line.head:], a.place) && r.liveRate > 0, "association %x is blocked with nothing that could end", a.id)
		s, u, live, sumU = s+as, u+au, live+alive, sumU+a.share
		messages += n
		if o := w.oracle.assocs[a.id]; o != nil && a.pool {
			fail(o.received == a.poolReceived, "association %x: %d octets of the pool received, want %d", a.id, a.poolReceived, o.received)
		}
		if a.isOn || a.lingers {
			active++
		}
		if a.squeezed {
			squeezed++
		}
		if a.readyAt != 0 {
			ready++
		}
	}
	fail(s == r.scheduled && u == r.unscheduled, "charged %d and %d, the sums are %d and %d", r.scheduled, r.unscheduled, s, u)
	fail(live == r.liveRate && sumU == r.sumU, "live %d, sum of U %d; the sums are %d, %d", r.liveRate, r.sumU, live, sumU)
	fail(squeezed == r.squeezed, "%d have less than an equal share, there are %d", r.squeezed, squeezed)
	fail(messages == r.pending && active == r.active && ready == len(r.ready), "%d messages, %d active, %d ready; there are %d, %d, %d", r.pending, r.active, len(r.ready), messages, active, ready)
}

// consistentFlow recounts a queue pair.
func (w *world) consistentFlow(fail func(ok bool, format string, args ...any), a *association, p *queuePair) {
	var held int64
	var octets uint64
	turned := p.turn == 0 // the turn has not come to those from here on
	behind := false
	for at := p.first; at != 0; at = w.r.messages[at-1].qpNext {
		m := &w.r.messages[at-1]
		held, octets = held+m.credit.held, octets+m.length
		if a.pool {
			continue
		}
		if at == p.turn {
			turned = true
			fail(!w.r.content(m), "message %d has all it needs, and the turn", m.id)
		} else if !behind && p.turn != 0 && !turned || p.turn == 0 {
			fail(w.r.content(m), "message %d needs credit, and the turn is behind it", m.id)
		} else {
			// One that has all its credit and asks for it again need not be in turn: requests of messages in front may come later.
			fail(m.queued == 0 && !m.more || w.r.content(m), "message %d waits for credit before its turn", m.id)
		}
		behind = behind || at == p.turn
	}
	fail(held == p.held && octets == p.octets, "queue pair %d: %d octets held of %d, its messages have %d of %d", p.number, p.held, p.octets, held, octets)
	fail(turned || a.pool, "queue pair %d: the turn is with none of its messages", p.number)
}

// act is one random event.
func (w *world) act() {
	if len(w.clients) == 0 {
		w.newClient()
		return
	}
	c := w.clients[w.draw(len(w.clients))]
	n := w.draw(100)
	w.note("%d client %v", n, c.addr)
	switch {
	case n < 3:
		w.newClient()
	case n < 6:
		w.repeatAsk(c)
	case n < 26:
		w.request(c)
	case n < 32:
		w.requestAgain(c)
	case n < 66:
		w.data(c)
	case n < 69:
		w.cancel(c)
	case n < 73:
		w.giveBack(c)
	case n < 76:
		w.status(c)
	case n < 80:
		w.report(c)
	case n < 82:
		w.garbage(c)
	case n < 83:
		w.newParams()
	default:
		w.time()
	}
	w.poll()
	w.out = w.out[:0]
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...)+"\n")
}

func (w *world) newClient() {
	c := &worldClient{world: w, client: w.lab.newClient(1 + w.draw(30)), next: 1 + uint64(w.draw(3)), liar: w.draw(4) == 0, onQPs: w.draw(3) == 0}
	c.msn = [2]uint32{1, 0xfffffc}
	w.made++
	c.nonce += w.made << 40
	c.rate = rdcc.Mbps([]int{0, 1000, 100000, 400000}[w.draw(4)])
	if w.draw(3) == 0 {
		c.caps = rdcc.CapStatus
	}
	c.ask(0)
	for _, d := range w.take(rdcc.TypeAssocAccept) {
		if d.AssocAccept.SenderNonce == c.nonce {
			c.id, c.epoch, c.u = d.Assoc, d.Epoch, d.AssocAccept.UnscheduledLimit
		}
	}
	if c.id != 0 {
		w.clients = append(w.clients, c)
	}
}

// repeatAsk keeps the association alive, or acknowledges what the oracle then takes for the only U.
func (w *world) repeatAsk(c *worldClient) {
	a := w.oracle.assocs[c.id]
	if w.draw(2) == 0 {
		c.ask(0)
		return
	}
	if i, ok := w.r.byID[c.id]; ok && w.r.assocs[i].update.inFlight {
		u, sent := w.r.assocs[i].update.u, len(a.us)
		c.ask(rdcc.FlagUpdateAck)
		a.us = append([]int64{u}, a.us[sent:]...)
		a.holds = append(a.holds[sent-1:sent:sent], a.holds[sent:]...)
		c.u = uint32(u)
	}
}

func (w *world) request(c *worldClient) {
	a := w.oracle.assocs[c.id]
	i, known := w.r.byID[c.id]
	if !known {
		return
	}
	id := c.next
	c.next += 1 + uint64(w.draw(10)/9)
	length := uint64([]int{0, 1, 100, 2048, 4096, 12000, 65536, 1 << 20, 1 << 30}[w.draw(9)])
	unscheduled := uint64(0)
	most := slices.Min(append([]int64{int64(c.u)}, a.us...))
	switch {
	case c.liar && w.draw(2) == 0:
		unscheduled = uint64(w.draw(30000))
	case length <= uint64(most) && c.reserved == 0 && w.draw(2) == 0 && w.r.assocs[i].unscheduled == 0:
		unscheduled = length
	}
	before, pool := w.r.pending, w.r.assocs[i].poolReceived
	m := &oracleMessage{length: length, announced: unscheduled, asked: w.now, hold: slices.Max(a.holds) + 2*w.r.cfg.Fabric.DMax}
	bind := c.bind(m)
	w.note("    request %d, %d octets, %d unscheduled, on %x", id, length, unscheduled, m.qp)
	c.request(id, length, unscheduled, class(uint8(w.draw(9))), weight(uint8(w.draw(4))), deadline(time.Duration(w.draw(3))*50*us), bind)
	a.received += w.r.assocs[i].poolReceived - pool // what came before the request
	if w.r.pending == before {
		return // refused, or complete at once
	}
	if c.liar && unscheduled > 0 { // what counts of a lie is the receiver's choice, within its books
		at := w.r.index.get(key{id, c.id, tagMessage})
		m.announced = min(w.r.messages[at].announced, uint64(w.r.messages[at].unscheduled+w.r.messages[at].credit.held))
	} else if unscheduled > 0 {
		c.reserved = id
	}
	// Its first grant may have come with the request.
	for _, d := range w.out {
		if d.Type == rdcc.TypeCreditGrant && d.Assoc == c.id && d.CreditGrant.MessageID == id {
			m.credit.grant(&d)
		}
	}
	m.received = w.r.messages[w.r.index.get(key{id, c.id, tagMessage})].received
	a.messages[id] = m
	c.pending = append(c.pending, id)
}

// bind gives a message a place on a queue pair, if the client has some. Requests overtake each other, and numbers are left out.
func (c *worldClient) bind(m *oracleMessage) func(*rdcc.CreditRequest) {
	if !c.onQPs {
		return func(*rdcc.CreditRequest) {}
	}
	w := c.world
	k := w.draw(2)
	msn := c.msn[k] & 0xffffff
	switch {
	case c.late[k] != 0:
		msn, c.late[k] = c.late[k], 0
	case w.draw(6) == 0:
		c.late[k] = msn
		msn = (msn + 1) & 0xffffff
		c.msn[k] += 2
	default:
		c.msn[k] += 1 + uint32(w.draw(10)/9)
	}
	m.qp = 1 + k
	return func(q *rdcc.CreditRequest) {
		q.BindingKind, q.BindingValue = rdcc.BindingRoCEv2, rdcc.RoCEBinding{DestQP: uint32(m.qp), MSN: msn, Messages: 1}.Value()
	}
}

// pick is a message that is pending.
func (w *world) pick(c *worldClient) (uint64, *oracleMessage) {
	a := w.oracle.assocs[c.id]
	c.pending = slices.DeleteFunc(c.pending, func(id uint64) bool { return a.messages[id] == nil })
	if _, ok := w.r.byID[c.id]; !ok || len(c.pending) == 0 {
		return 0, nil
	}
	id := c.pending[w.draw(len(c.pending))]
	return id, a.messages[id]
}

func (w *world) requestAgain(c *worldClient) {
	id, m := w.pick(c)
	if m == nil {
		return
	}
	unscheduled := m.announced
	if at := w.r.index.get(key{id, c.id, tagMessage}); at >= 0 {
		unscheduled = w.r.messages[at].announced
		if w.draw(3) == 0 && len(m.credit.grants) == 0 && !c.liar {
			unscheduled = m.received + uint64(w.draw(int(less(m.announced, m.received))+1)) // stopped by a report
			m.announced = unscheduled
		}
		// A pool's messages know no grant of their own.
		if c.liar && w.draw(4) == 0 {
			unscheduled += uint64(w.draw(1000))
		}
	}
	w.note("    request %d again, %d unscheduled", id, unscheduled)
	c.request(id, m.length, unscheduled, weight(1))
}

func (w *world) data(c *worldClient) {
	id, m := w.pick(c)
	if m == nil || w.draw(20) == 0 {
		c.arrive(Arrival{Message: c.next + uint64(w.draw(5)), Octets: uint64(w.draw(5000)), Packets: 1})
		return
	}
	at := w.r.index.get(key{id, c.id, tagMessage})
	if at < 0 {
		return
	}
	a := w.oracle.assocs[c.id]
	rm := &w.r.messages[at]
	limit := max(rm.credit.limit, rm.announced)
	if w.r.assocs[rm.assoc].pool {
		limit = max(rm.received, rm.announced) + less64(w.r.assocs[rm.assoc].poolCredit.limit, w.r.assocs[rm.assoc].poolReceived)
	}
	n := less(min(limit, rm.length), rm.received)
	all := n
	switch w.draw(4) {
	case 0:
		n = min(n, 4096)
	case 1:
		n = int64(w.draw(int(min(n, 1<<30)) + 1))
	}
	extra := int64(0)
	if c.liar && w.draw(3) == 0 {
		extra = int64(w.draw(10000))
		n, extra = min(n+extra, all), max(n+extra-all, 0)
	}
	unscheduled := min(less(rm.announced, rm.received), n)
	m.received += uint64(n)
	a.received += uint64(n - unscheduled)
	packets := uint32(n/4096) + 1
	c.arrive(Arrival{Message: id, Octets: uint64(n + extra), Packets: packets, CE: uint32(w.draw(int(packets)+1)) * uint32(w.draw(2)), Gap: uint64(w.draw(2000)) * uint64(w.draw(10)/9)})
}

func less64(a, b uint64) uint64 { return uint64(less(a, b)) }

func (w *world) cancel(c *worldClient) {
	id, m := w.pick(c)
	if m == nil || m.cancelled != 0 {
		return
	}
	if w.draw(2) == 0 {
		c.send(&rdcc.Cancel{MessageID: id, Reason: rdcc.ReasonApplicationAbort})
	} else {
		w.r.Cancel(w.now, c.id, id)
	}
	m.cancelled = w.now
}

func (w *world) giveBack(c *worldClient) {
	id, m := w.pick(c)
	if m == nil {
		return
	}
	credit, received := &m.credit, m.received
	if a := w.oracle.assocs[c.id]; a.pool {
		id, credit, received = 0, &a.credit, a.received
	}
	if len(credit.grants) == 0 {
		return
	}
	limit, last := uint64(0), time.Duration(0)
	for _, g := range credit.grants {
		limit, last = max(limit, g.limit), max(last, g.sent)
	}
	to := received + uint64(w.draw(int(less(limit, received))+1))
	if to >= limit {
		return
	}
	// What the sender promises holds once no grant is on its way.
	was := credit.returned
	if was != 0 && w.now >= was {
		to = min(to, credit.newLimit)
	}
	credit.newLimit, credit.returned = to, max(w.now, last+w.r.cfg.Fabric.DMax)
	c.send(&rdcc.CreditReturn{MessageID: id, NewLimit: to})
}

func (w *world) status(c *worldClient) {
	c.send(&rdcc.SenderStatus{SuggestedRate: rdcc.Mbps(w.draw(4) * 700), CongestionLevel: uint8(w.draw(256))})
}

// report checks that none ever raises a rate.
func (w *world) report(c *worldClient) {
	before := map[uint32]int64{}
	for i := range w.r.assocs {
		if a := &w.r.assocs[i]; a.used {
			before[a.id] = w.r.senderRate(a)
		}
	}
	from := node
	if w.draw(5) == 0 {
		from = clientAddr(99)
	}
	m := rdcc.CongestionReport{
		CongestionDegree: uint8(w.draw(256)), Direction: rdcc.Direction(w.draw(3)), SuggestedRate: rdcc.Mbps(w.draw(3) * 100000),
		Source: c.addr.Addr(), Destination: clientAddr(0).Addr(),
	}
	w.receive(from, m.Append(nil, rdcc.Header{}))
	for i := range w.r.assocs {
		if a := &w.r.assocs[i]; a.used && w.r.senderRate(a) > before[a.id] {
			w.t.Fatalf("a report raised the rate of %x from %d to %d Mbit/s", a.id, before[a.id], w.r.senderRate(a))
		}
	}
}

func (w *world) garbage(c *worldClient) {
	b := (&rdcc.CreditRequest{MessageID: uint64(w.draw(9))}).Append(nil, rdcc.Header{Assoc: c.id, Epoch: c.epoch, Seq: uint32(w.draw(100))})
	for range w.draw(4) {
		b[w.draw(len(b))] ^= byte(1 << w.draw(8))
	}
	// From elsewhere: what an attacker off the path can do.
	w.receive(clientAddr(98), b[:w.draw(len(b)+1)])
}

func (w *world) newParams() {
	p := w.r.Params()
	p.Lifetime = time.Duration(50+w.draw(200)) * us
	p.Jitter = time.Duration(w.draw(50)) * us
	w.r.SetParams(w.now, p)
}

func (w *world) time() {
	d := time.Duration([]int{1, 3, 10, 30, 100, 300, 2000, 30000, 400000}[w.draw(9)]) * us
	switch w.draw(3) {
	case 0: // the timers run late
		w.now += d
		w.check()
		w.r.Advance(w.now)
	case 1:
		w.now += time.Duration(w.draw(3000)) // and nobody notices yet
	default:
		w.pass(d)
	}
	for id := range w.oracle.assocs {
		if _, ok := w.r.byID[id]; !ok {
			delete(w.oracle.assocs, id)
		}
	}
	w.clients = slices.DeleteFunc(w.clients, func(c *worldClient) bool { return w.oracle.assocs[c.id] == nil })
}

// TestProperties: over random histories of many senders, honest and not, all that the receiver promises holds at each instant.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "n") })
		for range rapid.IntRange(1, 150).Draw(rt, "events") {
			w.act()
			w.check()
		}
	})
}

// TestProperties_long is the same over longer histories; a seed replays.
func TestProperties_long(t *testing.T) {
	seeds, events := 40, 1500
	if testing.Short() {
		seeds = 10
	}
	var done, reclaims uint64
	for seed := range seeds {
		d := seeded(uint64(seed))
		w := newWorld(t, d.IntN)
		w.note("seed %d", seed)
		for range events {
			w.act()
			w.check()
		}
		done += w.r.Counters.MessagesDone
		reclaims += w.r.Counters.Reclaims
	}
	t.Logf("%d histories of %d events: %d messages done, credit reclaimed %d times", seeds, events, done, reclaims)
	if done < uint64(seeds) || reclaims < uint64(seeds) {
		t.Errorf("%d messages done, credit reclaimed %d times: the histories show nothing", done, reclaims)
	}
}
