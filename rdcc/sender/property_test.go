package sender

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pcmlab/pcmlab/rdcc"
)

// world is a machine with two receivers, the first of which grants per message and the second to the pool, that say
// whatever comes to the mind of a random source, true or not; and the model beside it.
type world struct {
	*lab
	pick     func(n int) int
	messages map[uint64]*modelled
	pool     history
	newest   map[*peer]uint32
	up       map[*peer]bool // associations that are established, as far as the model knows
	kinds    map[*peer]bool // a first grant has come
	ids      []uint64
}

type modelled struct {
	Message
	p         *peer
	log       history
	announced bool
	granted   bool
	sent      uint64
	unsched   uint64 // of pool associations: octets that were unscheduled
}

func newWorld(t tester, pick func(n int) int) *world {
	l := newLab(t, func(c *Config) { c.Rand = rand.New(rand.NewPCG(uint64(pick(1000)), 1)) })
	for _, p := range []*peer{l.r, l.o} {
		p.accept.UnscheduledLimit = uint32(pick(3) * 8000)
		p.accept.StartJitter = rdcc.Micros(pick(2) * 50)
		p.accept.BacklogThreshold = uint32(20000 << (4 * pick(3)))
		p.accept.CreditUnit = 1000
	}
	return &world{lab: l, pick: pick, messages: map[uint64]*modelled{}, newest: map[*peer]uint32{}, up: map[*peer]bool{}, kinds: map[*peer]bool{}}
}

func (w *world) any() (uint64, *modelled) {
	if len(w.ids) == 0 {
		return 0, nil
	}
	id := w.ids[w.pick(len(w.ids))]
	return id, w.messages[id]
}

func (w *world) either() *peer { return []*peer{w.r, w.o}[w.pick(2)] }

// step does one thing and checks what must hold ever after.
func (w *world) step() string {
	x, name := w.x, ""
	id, m := w.any()
	switch k := w.pick(24); k {
	case 0, 1, 2:
		name = "submit"
		w.submitAny()
	case 3, 4:
		name = "time"
		w.pass(time.Duration(w.pick(200)) * 5 * us)
	case 5:
		name = "long time"
		w.pass(time.Duration(w.pick(20)) * 10 * ms)
	case 6, 7, 8:
		name = "grant"
		w.grantAny(id, m)
	case 9, 10, 11, 12:
		name = "transmit"
		w.transmitAny(id, m)
	case 13, 14:
		name = "accept"
		w.acceptAny(w.either())
	case 15:
		name = "done"
		if m != nil {
			w.say(m.p, &rdcc.MsgDone{MessageID: id & (1<<idBits - 1), OctetsReceived: m.Length})
		}
	case 16:
		name = "error"
		if m != nil {
			reasons := []rdcc.Reason{rdcc.ReasonBudgetExhausted, rdcc.ReasonMessageTooLarge, rdcc.ReasonApplicationAbort, rdcc.ReasonUnsupportedType, 999}
			w.say(m.p, &rdcc.Error{Reason: reasons[w.pick(len(reasons))], MessageID: id & (1<<idBits - 1)})
		}
	case 17:
		name = "unknown association"
		p := w.either()
		own := w.pick(3) > 0
		h := rdcc.Header{Assoc: p.assoc, Seq: uint32(w.pick(5))}
		if !own {
			h.Assoc++
		}
		w.raw(p.addr, h, &rdcc.Error{Reason: rdcc.ReasonUnknownAssociation})
		if own && w.up[p] {
			w.lost(p, "lost")
			w.up[p] = false
		}
	case 18:
		name = "report or pause"
		w.slowDown()
	case 19:
		name = "cancel"
		if m != nil && w.pick(2) == 0 {
			_ = x.Cancel(w.now, id)
		}
	case 20:
		name = "return"
		if m != nil && m.p == w.r {
			limit, _ := m.log.held(w.now, m.Length)
			to := m.sent + uint64(w.pick(3))*(limit-min(limit, m.sent))/2
			cross := max(x.timeout(x.byAddr[m.p.addr]), x.c.Timing.DMax)
			if err := x.Return(w.now, id, to); err == nil && to < limit {
				m.log.add(w.now, "return", to, cross)
			}
		}
	case 21:
		name = "sample"
		x.RTTSample(w.now, w.either().addr, time.Duration(w.pick(300))*us)
	case 22:
		name = "refusal"
		w.raw(w.either().addr, rdcc.Header{}, &rdcc.Error{Reason: rdcc.ReasonAssocRefused})
	case 23:
		name = "cancel from the receiver"
		if m != nil && w.pick(3) == 0 {
			w.say(m.p, &rdcc.Cancel{MessageID: id & (1<<idBits - 1)})
		}
	}
	w.x.Advance(w.now)
	w.cleanUp()
	if w.pick(3) > 0 {
		w.read(w.take())
	}
	w.check(name)
	return name
}

func (w *world) submitAny() {
	p := w.either()
	m := Message{
		To: p.addr, Length: []uint64{1, 1000, 5000, 20000, 100000}[w.pick(5)], Scheduled: w.pick(3) == 0,
		Class: uint8(w.pick(3)), Weight: uint8(w.pick(4)), Hint: rdcc.Hint(w.pick(4)),
	}
	if w.pick(4) == 0 {
		m.Segment = 4000
	}
	id, err := w.x.Submit(w.now, m)
	if err != nil {
		return // the receiver never answered: without RDCC
	}
	w.ids = append(w.ids, id)
	w.messages[id] = &modelled{Message: m, p: p}
}

// say sends something with a header that is right or not, and tells which; the model believes the right ones.
func (w *world) say(p *peer, m rdcc.Message, flags ...uint16) (believed bool) {
	h := rdcc.Header{Assoc: p.assoc, Epoch: p.epoch, Seq: p.seq + 1}
	for _, f := range flags {
		h.Flags |= f
	}
	switch w.pick(8) {
	case 0:
		h.Seq = p.seq - uint32(w.pick(3))
	case 1:
		h.Epoch++
	case 2:
		h.Assoc++
	default:
		p.seq++
	}
	believed = w.up[p] && h.Assoc == p.assoc && h.Epoch == p.epoch && int32(h.Seq-w.newest[p]) > 0
	if believed {
		w.newest[p] = h.Seq
	}
	w.raw(p.addr, h, m)
	return believed
}

func (w *world) grantAny(id uint64, m *modelled) {
	g := rdcc.CreditGrant{PacingRate: rdcc.Mbps(w.pick(3) * 50000), Lifetime: rdcc.Micros([]int{0, 50, 500}[w.pick(3)])}
	life := g.Lifetime.Duration()
	if life == 0 {
		life = ms
	}
	if w.pick(3) == 0 && (w.kinds[w.o] || w.up[w.o]) {
		g.GrantLimit = uint64(w.pick(300)) * 1000
		at := w.now
		if w.say(w.o, &g, rdcc.FlagPool) && g.PacingRate > 0 {
			w.kinds[w.o] = true
			_, most := w.pool.held(at, 1<<62)
			for _, o := range w.messages {
				if o.p == w.o {
					most += o.Length - o.sent
				}
			}
			w.pool.add(at, "grant", min(g.GrantLimit, most), life)
		}
		return
	}
	if m == nil || m.p != w.r {
		return
	}
	g.MessageID = id & (1<<idBits - 1)
	g.GrantLimit = uint64(w.pick(50)) * (m.Length/40 + 1)
	if w.say(w.r, &g) && g.PacingRate > 0 && m.announced {
		m.granted = true
		m.log.add(w.now, "grant", g.GrantLimit, life)
	}
}

func (w *world) transmitAny(id uint64, m *modelled) {
	if m == nil {
		return
	}
	upTo, _ := w.x.Allowance(w.now, id)
	w.cleanUp()
	s, live := w.x.State(id)
	if !live || upTo <= m.sent {
		return
	}
	to := upTo - uint64(w.pick(2))*(upTo-m.sent)/2
	w.x.Transmitted(w.now, id, to)
	n := to - m.sent
	m.sent = to
	m.log.add(w.now, "sent", to, 0)
	if m.p == w.o && s != StateUnsched {
		_, used := w.pool.held(w.now, 1<<62)
		w.pool.add(w.now, "sent", used+n, 0)
	}
}

func (w *world) lost(p *peer, kind string) {
	for _, m := range w.messages {
		if m.p == p {
			if kind == "reset" {
				m.log.add(w.now, "fresh", 0, 0)
			} else {
				m.log.add(w.now, "lost", 0, 0)
			}
		}
	}
	if p == w.o {
		w.pool.add(w.now, kind, 0, 0)
	}
}

func (w *world) acceptAny(p *peer) {
	if p.nonce == 0 || w.x.byAddr[p.addr] == nil || w.x.byAddr[p.addr].nonce != p.nonce {
		return
	}
	a := p.accept
	a.SenderNonce = p.nonce
	if w.pick(8) == 0 {
		a.SenderNonce++
	}
	if w.pick(4) == 0 {
		p.accept.UnscheduledLimit = uint32(w.pick(3) * 8000)
		p.accept.BacklogThreshold = uint32(20000 << (4 * w.pick(3)))
		a.UnscheduledLimit, a.BacklogThreshold = p.accept.UnscheduledLimit, p.accept.BacklogThreshold
	}
	asked := w.x.byAddr[p.addr].asked
	p2 := *p
	if again := w.pick(3) == 0; again {
		p2.epoch++
	}
	p2.seq = uint32(w.pick(int(p.seq) + 2))
	h := rdcc.Header{Assoc: p2.assoc, Epoch: p2.epoch, Seq: p2.seq}
	known := w.x.byAddr[p.addr].known
	w.raw(p.addr, h, &a)
	if a.SenderNonce != p.nonce {
		return
	}
	switch fresh := !known || p2.epoch != w.x0epoch(p); {
	case fresh && !asked:
	case fresh:
		*p = p2
		w.newest[p] = h.Seq
		w.kinds[p] = false
		w.lost(p, "reset")
		w.up[p] = true
	default:
		if int32(h.Seq-w.newest[p]) > 0 {
			w.newest[p] = h.Seq
			p.seq = max(p.seq, h.Seq)
		}
		w.up[p] = true
	}
}

// x0epoch is the Epoch in which the model knows the association.
func (w *world) x0epoch(p *peer) uint16 { return p.epoch }

// slowDown sends reports and pauses, which raise nothing.
func (w *world) slowDown() {
	type allowed struct {
		upTo uint64
		rate int64
	}
	look := func() (all []allowed) {
		for _, id := range w.ids {
			upTo, rate := w.x.Allowance(w.now, id)
			all = append(all, allowed{upTo, rate})
		}
		return all
	}
	before := look()
	if w.pick(3) == 0 {
		w.x.Pause(w.now)
	} else {
		r := reportOf()
		r.CongestionDegree = uint8(w.pick(256))
		r.SuggestedRate = rdcc.Mbps(w.pick(1 << 30))
		r.Direction = rdcc.Direction(w.pick(4))
		r.Destination = w.either().addr.Addr()
		w.raw(netip.AddrPortFrom([]netip.Addr{crn, other.Addr()}[w.pick(2)], 1), rdcc.Header{}, &r)
	}
	for i, b := range look() {
		unsched := b.upTo == w.messages[w.ids[i]].Length // its rate was the line's, now it is a grant's
		if after := w.look1(w.ids[i]); after.upTo > b.upTo || after.rate > b.rate && !unsched {
			w.Fatalf("a report or pause raised message %d from %v to %v", w.ids[i], before[i], after)
		}
	}
}

func (w *world) look1(id uint64) (a struct {
	upTo uint64
	rate int64
}) {
	a.upTo, a.rate = w.x.Allowance(w.now, id)
	return a
}

// read notes what was sent.
func (w *world) read(all []rdcc.Datagram) {
	for _, d := range all {
		p := w.r
		if d.Assoc == w.o.assoc {
			p = w.o
		}
		if d.Type == rdcc.TypeCreditRequest {
			for id, m := range w.messages {
				if m.p == p && id&(1<<idBits-1) == d.CreditRequest.MessageID {
					m.announced = true
				}
			}
		}
	}
}

// cleanUp takes the events: messages that are at their end leave the model, and what a pool's others cannot use is returned.
func (w *world) cleanUp() {
	for _, e := range w.events() {
		switch e.Kind {
		case EventDone, EventAborted, EventWithout:
			m := w.messages[e.ID]
			if m == nil {
				w.Fatalf("message %d ends a second time", e.ID)
			}
			delete(w.messages, e.ID)
			w.ids = slices.DeleteFunc(w.ids, func(id uint64) bool { return id == e.ID })
			if e.Kind == EventWithout {
				w.up[m.p] = false
			}
			if m.p == w.o && e.Kind == EventAborted && w.kinds[w.o] && w.up[w.o] {
				limit, used := w.pool.held(w.now, 1<<62)
				rest := uint64(0)
				for _, o := range w.messages {
					if o.p == w.o {
						rest += o.Length - o.sent
					}
				}
				if limit-used > rest {
					w.pool.add(w.now, "return", used+rest, max(w.x.timeout(w.x.byAddr[w.o.addr]), w.x.c.Timing.DMax))
				}
			}
		}
	}
	for _, p := range []*peer{w.r, w.o} {
		if w.x.byAddr[p.addr] == nil {
			w.up[p], w.kinds[p], p.nonce = false, false, 0
		}
	}
}

func (w *world) check(what string) {
	if err := w.x.invariants(); err != nil {
		w.Fatalf("after %s: %v", what, err)
	}
	if at, ok := w.x.Deadline(); ok && at <= w.now {
		w.Fatalf("after %s: at %v the deadline is %v", what, w.now, at)
	}
	outstanding := map[*peer]int{}
	for _, id := range w.ids {
		m := w.messages[id]
		upTo, _ := w.x.Allowance(w.now, id)
		s, _ := w.x.State(id)
		if s == StateUnsched && !m.granted {
			outstanding[m.p]++
		}
		if m.p == w.r {
			limit, sent := m.log.held(w.now, m.Length)
			if got := w.x.messages.get(id); got.limit != limit || got.transmitted != sent {
				w.Fatalf("after %s: message %d in %s holds %d and sent %d, by the model %d and %d", what, id, s, got.limit, got.transmitted, limit, sent)
			}
			if upTo > limit && (s != StateUnsched || !m.announced) {
				w.Fatalf("after %s: message %d in %s may send up to %d, by the model %d", what, id, s, upTo, limit)
			}
		}
		if upTo > m.Length || upTo > m.sent && s != StateUnsched && s != StateScheduled {
			w.Fatalf("after %s: message %d of %d in %s may send up to %d", what, id, m.Length, s, upTo)
		}
	}
	for p, n := range outstanding {
		if n > 1 {
			w.Fatalf("after %s: %d unscheduled messages are outstanding to %v", what, n, p.addr)
		}
	}
	if w.kinds[w.o] {
		limit, used := w.pool.held(w.now, 1<<62)
		if p := &w.x.byAddr[w.o.addr].pool; p.limit != limit || p.used != used {
			w.Fatalf("after %s: the pool has %d used of %d, by the model %d of %d", what, p.used, p.limit, used, limit)
		}
	}
}

// heal answers all requests rightly until all messages are at their end.
func (w *world) heal(answering bool, within time.Duration) {
	end := w.now + within
	for len(w.ids) > 0 && w.now <= end {
		for _, d := range w.take() {
			if !answering {
				continue
			}
			p := w.r
			if d.Assoc == w.o.assoc {
				p = w.o
			}
			switch d.Type {
			case rdcc.TypeAssocRequest:
				for _, p := range []*peer{w.r, w.o} {
					if p.nonce == d.AssocRequest.SenderNonce {
						w.accept(p)
					}
				}
			case rdcc.TypeCreditRequest:
				id := d.CreditRequest.MessageID
				for full, m := range w.messages {
					if m.p != p || full&(1<<idBits-1) != id {
						continue
					}
					switch a := w.x.byAddr[p.addr]; {
					case m.sent == m.Length:
						w.send(p, &rdcc.MsgDone{MessageID: id, OctetsReceived: m.Length})
					case a.kind == grantsPool || a.kind == grantsUnknown && p == w.o:
						w.send(p, &rdcc.CreditGrant{GrantLimit: a.pool.used + a.pool.remaining, PacingRate: 100000}, rdcc.FlagPool)
					default:
						w.send(p, &rdcc.CreditGrant{MessageID: id, GrantLimit: m.Length, PacingRate: 100000})
					}
				}
			}
		}
		for _, id := range w.ids {
			if upTo, _ := w.x.Allowance(w.now, id); upTo > w.messages[id].sent {
				w.messages[id].sent = upTo
				w.x.Transmitted(w.now, id, upTo)
			}
		}
		w.cleanUp()
		at, ok := w.x.Deadline()
		if next := w.now + 10*us; !answering && ok {
			w.now = at
		} else {
			w.now = next
		}
		w.x.Advance(w.now)
		w.cleanUp()
	}
	if len(w.ids) > 0 {
		s, _ := w.x.State(w.ids[0])
		w.Fatalf("after %v of answers (%t) %d messages are left, the first in %s", within, answering, len(w.ids), s)
	}
	if err := w.x.invariants(); err != nil {
		w.Fatal(err)
	}
}

// TestProperties: random sequences of datagrams, true and false, of time and of transmissions. A failing one is made small.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, func(k int) int { return rapid.IntRange(0, k-1).Draw(t, "pick") })
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			w.step()
		}
		w.heal(true, 5*time.Second)
	})
}

// seeded runs steps of a seed's world.
func seeded(t *testing.T, seed uint64, steps int) *world {
	random := rand.New(rand.NewPCG(seed, 7))
	w := newWorld(t, random.IntN)
	for n := range steps {
		func() {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d, step %d", seed, n)
				}
			}()
			w.step()
		}()
	}
	return w
}

// TestSeeds: the same over many more and longer sequences; afterwards, with answers or without, all messages end.
func TestSeeds(t *testing.T) {
	seeds := uint64(3000)
	if testing.Short() {
		seeds = 300
	}
	for seed := range seeds {
		w := seeded(t, seed, 150)
		w.heal(true, 5*time.Second)
		w = seeded(t, seed, 50)
		w.heal(false, 62*time.Second)
	}
}
