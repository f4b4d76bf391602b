package receiver

import (
	"math"

	"github.com/pcmlab/pcmlab/rdcc"
)

// rank says who is served first: the lower class, then the earlier deadline, then who has had less for its weight
// (Credit Allocation).
type rank struct {
	due   int64  // deadline; never, when there is none
	start uint64 // start tag of fair queueing
	class uint8
}

const never = math.MaxInt64

func (x *rank) before(y *rank) bool {
	if x.class != y.class {
		return x.class < y.class
	}
	if x.due != y.due {
		return x.due < y.due
	}
	return x.start < y.start
}

func (r *Receiver) rankOf(m *message) rank {
	k := rank{due: never, start: m.start, class: m.class}
	if m.due != 0 && r.on(rdcc.RuleDeadlineFirst) {
		k.due = m.due
	}
	if !r.on(rdcc.RuleClassFirst) {
		k.class = 0
	}
	return k
}

// want puts a message that can use credit into its association's queue.
func (r *Receiver) want(at int32) {
	m := &r.messages[at]
	a := &r.assocs[m.assoc]
	c := r.creditOf(a, m)
	switch {
	case m.queued != 0:
		if a.pool && !c.expired && !c.returned {
			r.unblock(a)
		}
		return
	case m.bad, m.cancelled, m.received >= m.length:
		return
	case m.announced >= m.length: // all sent, or about to be: nothing to grant (decisions 3 and 10)
		return
	case m.presumed && m.release != 0 && r.on(rdcc.RuleNoGrantWhileReserved):
		return
	case a.pool && a.poolBad:
		return
	case !a.pool && c.limit >= m.length && !m.refresh:
		return
	case c.expired, c.returned:
		return
	case !a.pool && !r.hasTurn(m):
		return
	}
	if !m.more {
		m.more = true
		a.weights[m.class] += uint32(m.weight)
	}
	m.start = max(m.start, r.virtual[m.class])
	m.due = 0
	if m.deadline > r.now { // one that has passed has lost its precedence
		m.due = int64(m.deadline)
	}
	a.queue = append(a.queue, at)
	m.queued = int32(len(a.queue))
	r.siftUp(a, len(a.queue)-1)
	if a.blocked {
		if !a.pool && m.queued != 1 {
			return // blocked by one that comes first
		}
		a.blocked = false
	}
	r.activity(a)
	r.ready.fix(r, m.assoc)
}

// dequeue takes a message out of its association's queue.
func (r *Receiver) dequeue(at int32) {
	m := &r.messages[at]
	if m.queued == 0 {
		return
	}
	a := &r.assocs[m.assoc]
	i, n := int(m.queued-1), len(a.queue)-1
	m.queued = 0
	if moved := a.queue[n]; i < n {
		a.queue[i] = moved
		r.messages[moved].queued = int32(i + 1)
		a.queue = a.queue[:n]
		r.siftUp(a, i)
		r.siftDown(a, int(r.messages[moved].queued)-1)
	} else {
		a.queue = a.queue[:n]
	}
	r.activity(a)
	if i == 0 {
		r.ready.fix(r, m.assoc)
	}
}

// requeue restores the order after the first message of the queue was served.
func (r *Receiver) requeue(a *association, i int32) {
	r.siftDown(a, 0)
	r.ready.fix(r, i)
}

func (r *Receiver) siftUp(a *association, i int) {
	q := a.queue
	at := q[i]
	k := r.rankOf(&r.messages[at])
	for i > 0 {
		up := (i - 1) / 2
		if o := r.rankOf(&r.messages[q[up]]); !k.before(&o) {
			break
		}
		q[i] = q[up]
		r.messages[q[i]].queued = int32(i + 1)
		i = up
	}
	q[i] = at
	r.messages[at].queued = int32(i + 1)
}

func (r *Receiver) siftDown(a *association, i int) {
	q := a.queue
	at := q[i]
	k := r.rankOf(&r.messages[at])
	for {
		down := 2*i + 1
		if down >= len(q) {
			break
		}
		best := r.rankOf(&r.messages[q[down]])
		if down+1 < len(q) {
			if o := r.rankOf(&r.messages[q[down+1]]); o.before(&best) {
				down, best = down+1, o
			}
		}
		if !best.before(&k) {
			break
		}
		q[i] = q[down]
		r.messages[q[i]].queued = int32(i + 1)
		i = down
	}
	q[i] = at
	r.messages[at].queued = int32(i + 1)
}

// readyHeap holds the associations that may be served, by their first message.
type readyHeap []readyEntry

type readyEntry struct {
	rank
	assoc int32
}

// fix brings an association's place up to date: in, out or elsewhere.
func (h *readyHeap) fix(r *Receiver, assoc int32) {
	a := &r.assocs[assoc]
	if len(a.queue) == 0 || a.blocked {
		r.unready(a)
		return
	}
	e := readyEntry{r.rankOf(&r.messages[a.queue[0]]), assoc}
	if a.readyAt == 0 {
		*h = append(*h, e)
		h.up(r, len(*h)-1, e)
		return
	}
	i := int(a.readyAt - 1)
	if !h.up(r, i, e) {
		h.down(r, i, e)
	}
}

func (r *Receiver) unready(a *association) {
	if a.readyAt == 0 {
		return
	}
	h := &r.ready
	i, n := int(a.readyAt-1), len(*h)-1
	a.readyAt = 0
	moved := (*h)[n]
	*h = (*h)[:n]
	if i < n && !h.up(r, i, moved) {
		h.down(r, i, moved)
	}
}

func (h readyHeap) up(r *Receiver, i int, e readyEntry) (moved bool) {
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(&h[up].rank) {
			break
		}
		h.set(r, i, h[up])
		i, moved = up, true
	}
	h.set(r, i, e)
	return moved
}

func (h readyHeap) down(r *Receiver, i int, e readyEntry) {
	for {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if down+1 < len(h) && h[down+1].before(&h[down].rank) {
			down++
		}
		if !h[down].before(&e.rank) {
			break
		}
		h.set(r, i, h[down])
		i = down
	}
	h.set(r, i, e)
}

func (h readyHeap) set(r *Receiver, i int, e readyEntry) {
	h[i] = e
	r.assocs[e.assoc].readyAt = int32(i + 1)
}

// unblock lets an association be served again, when something of its own has ended.
func (r *Receiver) unblock(a *association) {
	if a.blocked && a.used {
		a.blocked = false
		if len(a.queue) > 0 {
			r.ready.fix(r, r.messages[a.queue[0]].assoc)
		}
	}
}
