package receiver

import "slices"

// holes are the Message IDs below an association's highest that have not been seen: a request for one of them is for a new
// message whose first request was lost or overtaken. What is no hole and not pending is complete (decision 13).
type holes struct {
	spans []span // apart and ascending
}

type span struct{ from, to uint64 } // both included

func (h *holes) find(id uint64) (int, bool) {
	return slices.BinarySearchFunc(h.spans, id, func(s span, id uint64) int {
		switch {
		case s.to < id:
			return -1
		case s.from > id:
			return 1
		}
		return 0
	})
}

func (h *holes) has(id uint64) bool {
	if len(h.spans) == 0 {
		return false
	}
	_, ok := h.find(id)
	return ok
}

// add opens a hole; of more than bound the lowest are given up, and counted.
func (h *holes) add(from, to uint64, bound int) (gone uint64) {
	i, _ := h.find(from)
	h.spans = slices.Insert(h.spans, i, span{from, to})
	return h.trim(bound)
}

// remove closes a hole for one ID, which may leave two.
func (h *holes) remove(id uint64, bound int) (gone uint64) {
	i, ok := h.find(id)
	if !ok {
		return 0
	}
	s := &h.spans[i]
	switch {
	case s.from == s.to:
		h.spans = slices.Delete(h.spans, i, i+1)
	case id == s.from:
		s.from++
	case id == s.to:
		s.to--
	default:
		low := span{s.from, id - 1}
		s.from = id + 1
		h.spans = slices.Insert(h.spans, i, low)
	}
	return h.trim(bound)
}

func (h *holes) trim(bound int) (gone uint64) {
	if n := len(h.spans) - bound; n > 0 {
		h.spans = slices.Delete(h.spans, 0, n)
		return uint64(n)
	}
	return 0
}
