package engine

import "time"

// dueHeap is a binary heap of queue pairs by deadline; each knows its place, so that it can be moved.
type dueHeap []*QP

func (h *dueHeap) put(q *QP, at time.Duration) {
	if q.index < 0 {
		q.dueAt, q.index = at, len(*h)
		*h = append(*h, q)
		h.up(q.index)
		return
	}
	before := q.dueAt
	if q.dueAt = at; at < before {
		h.up(q.index)
	} else if at > before {
		h.down(q.index)
	}
}

func (h *dueHeap) remove(q *QP) {
	i := q.index
	if i < 0 {
		return
	}
	last := len(*h) - 1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	q.index = -1
	if i < last {
		h.up(i)
		h.down(i)
	}
}

func (h dueHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h dueHeap) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if h[p].dueAt <= h[i].dueAt {
			return
		}
		h.swap(i, p)
		i = p
	}
}

func (h dueHeap) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1].dueAt < h[c].dueAt {
			c++
		}
		if h[i].dueAt <= h[c].dueAt {
			return
		}
		h.swap(i, c)
		i = c
	}
}
