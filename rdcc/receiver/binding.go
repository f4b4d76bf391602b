package receiver

import (
	"slices"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// queuePair is a RoCEv2 queue pair of an association. Its messages arrive in the order of their sequence numbers, so that
// octets counted on it belong to the first that is not complete (Transport Bindings, decision 25).
type queuePair struct {
	number      uint32
	assoc       int32
	next        int32 // of the association's, place and one
	first, last int32 // messages by MSN, place and one
	expected    uint32
	known       bool   // expected is
	early       uint64 // octets that came before the request that they belong to
	earlySince  time.Duration
	refused     bool // a message of it was, whose octets wait until it is not

	flow
}

// maxQPs bounds the queue pairs of an association; the gate of a NIC has one for each class and application (decision 25).
const maxQPs = 1024

func msnBefore(a, b uint32) bool { return int32((a-b)<<8) < 0 }

// countable says that the transport can count the message.
func (r *Receiver) countable(a *association, m *rdcc.CreditRequest) bool {
	if !slices.Contains(r.cfg.Bindings, m.BindingKind) {
		return false
	}
	switch m.BindingKind {
	case rdcc.BindingRoCEv2:
		b := rdcc.RoCEBindingOf(m.BindingValue)
		return (b.Messages > 0 || m.MessageLength == 0) &&
			(a.nqps < maxQPs || r.index.get(key{uint64(b.DestQP), a.id, tagQP}) >= 0)
	case rdcc.BindingOpaque: // of two with one identifier nobody could tell the data apart
		return r.opaque == 0 || r.index.get(key{m.BindingValue, a.id, tagOpaque}) < 0
	}
	return false
}

// bind makes the message findable by its binding.
func (r *Receiver) bind(at int32) {
	m := &r.messages[at]
	a := &r.assocs[m.assoc]
	switch m.kind {
	case rdcc.BindingOpaque:
		if m.value != m.id {
			r.index.put(key{m.value, a.id, tagOpaque}, at)
			r.opaque++
		}
	case rdcc.BindingRoCEv2:
		q := r.queuePair(m.assoc, uint32(m.value>>40))
		m.credit.qp, m.credit.msn = q+1, rdcc.RoCEBindingOf(m.value).MSN
		r.qps[q].refused = false
		r.qps[q].insert(r, at)
		r.join(at)
	}
}

func (r *Receiver) queuePair(i int32, number uint32) int32 {
	a := &r.assocs[i]
	k := key{uint64(number), a.id, tagQP}
	if q := r.index.get(k); q >= 0 {
		return q
	}
	var q int32
	if n := len(r.unusedQP); n > 0 {
		q, r.unusedQP = r.unusedQP[n-1], r.unusedQP[:n-1]
	} else {
		q = int32(len(r.qps))
		r.qps = append(r.qps, queuePair{})
	}
	r.qps[q] = queuePair{number: number, assoc: i, next: a.qp}
	a.qp = q + 1
	a.nqps++
	r.index.put(k, q)
	return q
}

func (r *Receiver) freeQP(q int32) {
	p := &r.qps[q]
	a := &r.assocs[p.assoc]
	r.index.remove(key{uint64(p.number), a.id, tagQP})
	a.qp = p.next // the first: they go together with their association
	a.nqps--
	r.unusedQP = append(r.unusedQP, q)
}

// insert puts a message where its MSN belongs, nearly always at the end.
func (q *queuePair) insert(r *Receiver, at int32) {
	msn := func(i int32) uint32 { return rdcc.RoCEBindingOf(r.messages[i-1].value).MSN }
	mine := msn(at + 1)
	if q.first == 0 {
		q.first, q.last = at+1, at+1
		return
	}
	if !msnBefore(mine, msn(q.last)) {
		r.messages[q.last-1].qpNext = at + 1
		q.last = at + 1
		return
	}
	before := &q.first
	for !msnBefore(mine, msn(*before)) {
		before = &r.messages[*before-1].qpNext
	}
	r.messages[at].qpNext = *before
	*before = at + 1
}

// unbind is the end of bind.
func (r *Receiver) unbind(at int32) {
	m := &r.messages[at]
	a := &r.assocs[m.assoc]
	switch {
	case m.kind == rdcc.BindingOpaque && m.value != m.id:
		r.index.remove(key{m.value, a.id, tagOpaque})
		r.opaque--
	case m.credit.qp != 0:
		q := &r.qps[m.credit.qp-1]
		r.part(at)
		before, prev := &q.first, int32(0)
		for *before != at+1 {
			prev = *before
			before = &r.messages[*before-1].qpNext
		}
		*before = m.qpNext
		if q.last == at+1 {
			q.last = prev
		}
		b := rdcc.RoCEBindingOf(m.value)
		if prev == 0 && (!q.known || !msnBefore(b.MSN, q.expected)) {
			q.expected, q.known = (b.MSN+uint32(b.Messages))&0xffffff, true
		}
		r.settle(a, &m.credit, m.received)
	}
}

// arrivedOnQP counts octets of a queue pair.
func (r *Receiver) arrivedOnQP(i int32, v Arrival) {
	a := &r.assocs[i]
	q := r.index.get(key{v.Value >> 40, a.id, tagQP})
	if q < 0 {
		v.Value >>= 40
		r.keepEarly(a, v)
		return
	}
	p := &r.qps[q]
	if p.early > 0 && !p.refused && r.now-p.earlySince > r.holdOf(a) {
		r.Counters.EarlyDropped += p.early
		p.early = 0
	}
	if p.early == 0 {
		p.earlySince = r.now
	}
	p.early += v.Octets
	r.drain(q, v)
}

// drain gives octets of a queue pair to its messages, in order. Where the next in order is not known yet, its request is
// on its way, and the octets wait.
func (r *Receiver) drain(q int32, v Arrival) {
	for {
		p := &r.qps[q]
		if p.early == 0 || p.first == 0 {
			return
		}
		at := p.first - 1
		m := &r.messages[at]
		if p.known && rdcc.RoCEBindingOf(m.value).MSN != p.expected && r.now-m.asked <= r.holdOf(&r.assocs[m.assoc]) {
			return
		}
		v.Octets = min(p.early, m.length-m.received)
		if v.Octets == 0 { // cancelled when it was all there
			return
		}
		p.early -= v.Octets
		r.arrived(at, v)
		v.Gap, v.Packets, v.CE = 0, 0, 0
	}
}

// earlyData are octets of messages whose request is not there yet, or was refused for now. They wait while there is room, longer than a
// request that was sent before them can take, and are no fault (decision 5): what was forgotten would be missing for ever.
type earlyData struct {
	ring []early // in the order of their coming
	head int     // oldest
	n    int
}

type early struct {
	key     key
	octets  uint64
	counted uint64 // of them taken for the pool's already, since their message was refused
}

func (e *earlyData) init(n int) { e.ring = make([]early, max(n, 1)) }

func earlyKey(a *association, v Arrival) key {
	switch {
	case v.Message != 0:
		return key{v.Message, a.id, tagEarly + tagMessage}
	case v.Kind == rdcc.BindingRoCEv2:
		return key{v.Value, a.id, tagEarly + tagQP}
	}
	return key{v.Value, a.id, tagEarly + tagOpaque}
}

// keepEarly remembers octets of an unknown message.
func (r *Receiver) keepEarly(a *association, v Arrival) {
	e := &r.early
	if v.Octets == 0 {
		return
	}
	if v.Message != 0 && v.Message <= a.highest && !a.holes.has(v.Message) {
		r.Counters.DataLate += v.Octets // of a message that is complete
		return
	}
	if !r.on(rdcc.RuleEarlyDataWaits) {
		r.Counters.Faults[SentBeyondCredit]++
		return
	}
	k := earlyKey(a, v)
	if i := r.index.get(k); i >= 0 {
		e.ring[i].octets += v.Octets
		return
	}
	if e.n == len(e.ring) {
		r.dropEarly()
	}
	i := (e.head + e.n) % len(e.ring)
	e.ring[i] = early{key: k, octets: v.Octets}
	e.n++
	r.index.put(k, int32(i))
	r.Counters.EarlyOctets += v.Octets
}

func (r *Receiver) dropEarly() {
	e := &r.early
	if o := &e.ring[e.head]; o.octets > 0 {
		r.Counters.EarlyDropped += o.octets
		r.index.remove(o.key)
		o.octets = 0
	}
	e.head = (e.head + 1) % len(e.ring)
	e.n--
}

// refusedEarly takes octets of a message that is refused for now for the pool's: they were sent with its credit, which would be
// missing for the messages that are there.
func (r *Receiver) refusedEarly(a *association, q *rdcc.CreditRequest) {
	if q.BindingKind == rdcc.BindingRoCEv2 {
		if i := r.index.get(key{q.BindingValue >> 40, a.id, tagQP}); i >= 0 {
			r.qps[i].refused = true
		}
		return
	}
	if !a.pool || r.early.n == 0 || !r.on(rdcc.RuleRefusedPoolCounts) {
		return
	}
	for _, v := range []Arrival{{Message: q.MessageID}, {Kind: q.BindingKind, Value: q.BindingValue}} {
		i := r.index.get(earlyKey(a, v))
		if i < 0 {
			continue
		}
		e := &r.early.ring[i]
		n := e.octets - min(e.octets, q.UnscheduledSent+e.counted)
		e.counted += n
		a.poolReceived += n
		a.poolDemand += n
		held := min(int64(n), a.poolCredit.held)
		a.poolCredit.held -= held
		r.uncharge(a, held, 0, nil)
		r.settle(a, &a.poolCredit, a.poolReceived)
		r.unblock(a)
	}
}

// takeEarly gives a new message what came before its request.
func (r *Receiver) takeEarly(at int32) {
	e := &r.early
	m := &r.messages[at]
	a := &r.assocs[m.assoc]
	id, kind, value, qp := m.id, m.kind, m.value, m.credit.qp
	take := func(v Arrival) (n, counted uint64) {
		i := r.index.get(earlyKey(a, v))
		if i < 0 {
			return 0, 0
		}
		n, counted = e.ring[i].octets, e.ring[i].counted
		r.index.remove(e.ring[i].key)
		e.ring[i] = early{}
		return n, counted
	}
	if qp != 0 {
		p := &r.qps[qp-1]
		if e.n > 0 {
			if n, _ := take(Arrival{Kind: kind, Value: value >> 40}); n > 0 {
				p.early, p.earlySince = p.early+n, r.now
			}
		}
		if p.early > 0 {
			r.drain(qp-1, Arrival{})
		}
		return
	}
	if e.n == 0 {
		return
	}
	n, counted := take(Arrival{Message: id})
	if kind == rdcc.BindingOpaque {
		more, again := take(Arrival{Kind: kind, Value: value})
		n, counted = n+more, counted+again
	}
	if n == 0 {
		return
	}
	if n > counted {
		r.arrived(at, Arrival{Octets: n - counted})
	}
	if counted > 0 { // the pool has had these
		m = &r.messages[at]
		m.received += counted
		a.poolDemand -= min(counted, a.poolDemand)
		r.complete(at)
	}
}
