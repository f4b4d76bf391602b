package analysis

import (
	"slices"
)

// disorder is what a tracker needs from the first gap, step back or NAK on.
type disorder struct {
	holes  []hole
	absent int64 // numbers that were never seen, from the first to the highest

	pos        int64 // the last packet
	resume     int64 // where the run broke in: one after the packet before it
	outer      bool  // the run that this one interrupts is a resend
	stepped    bool  // the undecided run went on by one
	dupSeen    bool  // and passed a number seen before
	fills      int64 // packets of an undecided run that closed holes
	fillBytes  int64
	fillGap    int64 // numbers jumped over inside an undecided run
	alone      int64 // of the fills: sent again alone, if the run is no restart
	aloneBytes int64
	copies     int64 // likewise, of packets seen before

	duplicates                        int64 // packets whose number was seen before
	retransmitted, retransmittedBytes int64
	selective                         int64
	repeatedBytes                     int64
	resentData                        int64           // data packets that let others or themselves be recognised as retransmissions
	again                             [msgKinds]int64 // last packets of messages among the duplicates
	backward, gaps                    int64           // steps from one request to the next
	outOfOrder                        int64
	lost                              int64 // without the holes that are still open
	missed                            int64 // acknowledged, never seen

	nak        nakSeen // that no resend has answered
	rnrWaitNS  int64
	event      resend
	outerEvent resend // which the undecided run interrupts
	log        *recoveryLog
}

// hole is n numbers from one on that were jumped over at atNS; -1: before the first packet. A free one may
// never have had packets: a READ request takes as many numbers as it asks for packets.
type hole struct {
	from, atNS int64
	n          int32
	free       bool
}

func (h *hole) to() int64 { return h.from + int64(h.n) }

// Bounds on the holes that are remembered.
const (
	maxHoles = 1024
	maxFree  = 64
	freeNS   = 10_000_000 // another tap may still have seen a packet there
)

// open adds a hole above all others. Free ones that are acknowledged are forgotten. When there are too many the oldest is
// given up and counts as lost.
func (x *disorder) open(h hole, acked int64) {
	n := 0
	for n < len(x.holes) && x.holes[n].free && (x.holes[n].to() <= acked+1 && h.atNS-x.holes[n].atNS > freeNS || len(x.holes)-n > maxFree) {
		n++
	}
	if n > 0 {
		x.holes = slices.Delete(x.holes, 0, n)
	}
	if len(x.holes) >= maxHoles {
		x.miss(x.holes[0], acked)
		x.holes = slices.Delete(x.holes, 0, 1)
	}
	x.holes = append(x.holes, h)
	x.absent += int64(h.n)
}

// miss counts a hole that stayed open.
func (x *disorder) miss(h hole, ackedTo int64) {
	if h.free {
		return
	}
	var seen int64
	if ackedTo >= h.from {
		seen = min(ackedTo+1-h.from, int64(h.n))
	}
	x.missed += seen
	x.lost += int64(h.n) - seen
}

// fill reports whether ext had not been seen, marks it seen, and says when its hole opened.
func (x *disorder) fill(t *psnTracker, ext int64) (filled bool, openedNS int64) {
	if ext < t.first { // from before the first packet captured
		if ext+1 < t.first {
			x.holes = slices.Insert(x.holes, 0, hole{from: ext + 1, n: int32(t.first - ext - 1), atNS: -1})
		}
		x.absent += t.first - ext - 1
		t.first = ext
		return true, -1
	}
	// Late packets mostly close the newest hole, resends the oldest.
	if n := len(x.holes); n == 0 || ext < x.holes[0].from || ext >= x.holes[n-1].to() {
		return false, 0
	}
	i, found := slices.BinarySearchFunc(x.holes, ext, func(h hole, ext int64) int {
		switch {
		case ext < h.from:
			return 1
		case ext >= h.to():
			return -1
		}
		return 0
	})
	if !found {
		return false, 0
	}
	openedNS = x.holes[i].atNS
	x.absent--
	switch h := &x.holes[i]; {
	case h.n == 1:
		x.holes = slices.Delete(x.holes, i, i+1)
	case ext == h.from:
		h.from++
		h.n--
	case ext == h.to()-1:
		h.n--
	default:
		right := hole{ext + 1, h.atNS, int32(h.to() - ext - 1), h.free}
		h.n = int32(ext - h.from)
		x.holes = slices.Insert(x.holes, i+1, right)
	}
	return true, openedNS
}
