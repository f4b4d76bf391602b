package receiver

import (
	"slices"
	"time"
)

// holes are the Message IDs below an association's highest that have not been seen: a request for one of them is for a new
// message whose first request was lost, overtaken or refused. What is no hole and not pending is complete (decision 13), so that a
// hole must not be forgotten while its message may come: the sender would be told that it is done. A message that needs a hole when
// there are too many has to wait.
type holes struct {
	spans []span // apart and ascending
	// forgotten is the highest ID of holes that were given up: of what is below, and neither pending nor a hole, it is not known
	// whether it was complete.
	forgotten uint64

	asked   uint64        // lowest ID that was refused for want of room since the last was admitted; 0: none
	askedAt time.Duration // first
}

// span is of IDs from and to, both included. One that is as old as holeAge can be given up: its sender has.
type span struct {
	from, to  uint64
	since     time.Duration
	cancelled bool // by this side: who asks for it is told so
}

// holeAge is longer than senders have patience (decision 24 has 30 s).
const holeAge = time.Minute

// abandoned is since when a hole is there that nobody is expected to ask for.
const abandoned = -holeAge

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

// cancelled says that a message was cancelled by this side.
func (h *holes) cancelled(id uint64) bool {
	i, ok := h.find(id)
	return ok && h.spans[i].cancelled
}

// fits says that there is room for the holes that are left when the ID is seen, highest being the highest that was. One whose
// time is over makes room.
func (h *holes) fits(id, highest uint64, now time.Duration, bound int) (gone uint64, ok bool) {
	more := id > highest+1
	if id <= highest {
		i, is := h.find(id)
		more = is && h.spans[i].from < id && id < h.spans[i].to
	}
	if !more || len(h.spans) < bound {
		return 0, true
	}
	for i := range h.spans {
		s := h.spans[i]
		if s.since+holeAge <= now && (id < s.from || s.to < id) {
			h.forgotten = max(h.forgotten, s.to)
			h.spans = slices.Delete(h.spans, i, i+1)
			return 1, true
		}
	}
	return 0, false
}

// add opens a hole.
func (h *holes) add(s span) {
	i, _ := h.find(s.from)
	h.spans = slices.Insert(h.spans, i, s)
}

// remove closes a hole for one ID, which may leave two.
func (h *holes) remove(id uint64) {
	i, ok := h.find(id)
	if !ok {
		return
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
		low := span{s.from, id - 1, s.since, s.cancelled}
		s.from = id + 1
		h.spans = slices.Insert(h.spans, i, low)
	}
}

// see notes that an ID was seen, if there is room for the holes that this leaves.
func (r *Receiver) see(a *association, id uint64) bool {
	h := &a.holes
	gone, ok := h.fits(id, a.highest, r.now, r.cfg.MaxPending)
	if !ok && h.lowestAsked(id, r.now, r.cfg.MaxTimeout-r.cfg.MaxTimeout/16) {
		gone, ok = h.forgetBelow(id), true
		a.highest = max(a.highest, id-1)
	}
	r.Counters.HolesEvicted += gone
	if !ok {
		return false
	}
	h.asked = 0
	if id <= a.highest {
		h.remove(id)
		return true
	}
	if id > a.highest+1 {
		h.add(span{from: a.highest + 1, to: id - 1, since: r.now})
	}
	a.highest = id
	return true
}

// lowestAsked ends it that all messages wait for room. Each of them asks again within a request's largest timeout, so that what lies below the
// lowest of them for as long (by this clock, which may be slow) is asked for by nobody: it was abandoned, or was complete before this
// receiver began.
func (h *holes) lowestAsked(id uint64, now, wait time.Duration) bool {
	if h.asked == 0 || id < h.asked {
		h.asked, h.askedAt = id, now
		return false
	}
	return id == h.asked && now-h.askedAt >= wait
}

// forgetBelow gives up the holes, and parts of one, below an ID.
func (h *holes) forgetBelow(id uint64) (gone uint64) {
	h.forgotten = max(h.forgotten, id-1)
	i, is := h.find(id)
	if is {
		h.spans[i].from = id
	}
	h.spans = slices.Delete(h.spans, 0, i)
	return uint64(max(i, 1))
}
