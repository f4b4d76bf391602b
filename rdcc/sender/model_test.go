package sender

import "time"

// The oracle: what credit a message, or a pool, holds, worked out anew from all that ever happened to it.

type happening struct {
	at   time.Duration
	kind string // grant, sent, lost, fresh, reset, return
	n    uint64 // limit, offset sent, new limit
	d    time.Duration
}

type history []happening

func (h *history) add(at time.Duration, kind string, n uint64, d time.Duration) {
	*h = append(*h, happening{at, kind, n, d})
}

// held is the limit and what was sent of it, at an instant.
func (h history) held(now time.Duration, length uint64) (limit, sent uint64) {
	end := never
	before, crossing := uint64(0), time.Duration(0)
	expire := func(at time.Duration) {
		if at >= end {
			limit, end = sent, never
		}
	}
	for _, e := range h {
		expire(e.at)
		switch e.kind {
		case "grant":
			n := min(e.n, length)
			if n <= before && e.at < crossing {
				n = min(n, limit)
			}
			limit = max(limit, n)
			if limit > sent {
				end = e.at + e.d
			}
		case "sent":
			sent = max(sent, e.n)
			limit = max(limit, sent)
		case "lost":
			limit = sent
		case "fresh": // a new incarnation, to which what was sent remains sent
			limit, before = sent, 0
		case "reset":
			limit, sent, before, end = 0, 0, 0, never
		case "return":
			before, crossing = limit, e.at+e.d
			limit = e.n
		}
		if limit == sent {
			end = never
		}
	}
	expire(now)
	return limit, sent
}
