package analysis

import (
	"slices"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// psnTracker follows the packet sequence numbers of one direction. It unwraps the 24-bit numbers, tells new packets
// from repeated ones, and keeps the numbers that were jumped over as a sorted list of holes, so that the count of
// distinct PSNs is exact however far back a go-back-N restart reaches.
//
// Which packet is a retransmission, and which only came late, can be told only by what follows. A go-back-N sender
// steps back and goes on from there, so it passes numbers that this tap has seen; a packet that was overtaken stands
// alone. A backward step therefore starts a run, and the run is judged by its second packet and by the first repeated
// number in it.
type psnTracker struct {
	started bool
	first   int64 // lowest number seen, unwrapped
	next    int64 // one above the highest
	pos     int64 // the last packet
	holes   []hole

	run       runState
	resume    int64 // where the run broke in: one after the packet before it
	outer     bool  // the run that this one interrupts is a resend
	stepped   bool  // the undecided run went on by one
	dupSeen   bool  // and passed a number seen before
	fills     int64 // packets of an undecided run that closed holes
	fillBytes int64
	fillGap   int64 // numbers jumped over inside an undecided run

	unique     int64
	duplicates int64 // packets whose number was seen before

	retransmitted, retransmittedBytes int64
	outOfOrder                        int64
	lost                              int64 // without the holes that are still open
	rewinds                           int64 // runs that were resends
}

type hole struct{ from, to int64 } // [from, to)

type runState uint8

const (
	runNone   runState = iota // in order
	runOpen                   // undecided: late packets, or the start of a resend
	runResend                 // go-back-N
)

// Limits of a tracker. A step farther than maxStep is no loss and no resend but another life of the QP.
const (
	maxHoles = 4096
	maxStep  = 1 << 16
)

type psnClass uint8

const (
	psnNew  psnClass = iota // beyond all seen
	psnFill                 // behind the highest, but not seen before
	psnDup                  // seen before
)

// unwrap gives the unwrapped number of psn nearest to the highest one.
func (t *psnTracker) unwrap(psn uint32) int64 {
	return t.next + int64(roce.PSNDiff(psn, uint32(t.next)&roce.PSNMask))
}

// distance is how far psn is from the number that would be next in order.
func (t *psnTracker) distance(psn uint32) int { return roce.PSNDiff(psn, uint32(t.next)&roce.PSNMask) }

// see takes the next packet. gapOK says that a jump forward is no loss (a READ request takes more numbers than
// it has packets). resent is how many packets this one let be recognised as retransmissions.
func (t *psnTracker) see(psn uint32, bytes int64, gapOK bool) (class psnClass, ext, resent int64) {
	if !t.started {
		t.started = true
		t.first = int64(psn) + 1<<24
		t.next, t.pos = t.first+1, t.first
		t.unique = 1
		return psnNew, t.first, 0
	}
	ext = t.unwrap(psn)
	if ext >= t.next {
		t.ahead(ext, gapOK)
		t.unique++
		return psnNew, ext, 0
	}
	t.step(ext)
	if t.fill(ext) {
		class = psnFill
		t.unique++
		if t.run == runResend {
			resent = 1
			t.retransmitted++
			t.retransmittedBytes += bytes
			t.lost++
		} else {
			t.fills++
			t.fillBytes += bytes
		}
	} else {
		class = psnDup
		t.dupSeen = true
		t.duplicates++
		t.retransmitted++
		t.retransmittedBytes += bytes
		resent = 1
	}
	if t.run == runOpen && t.stepped && t.dupSeen {
		resent += t.fills
		t.confirm()
	}
	t.pos = ext
	return class, ext, resent
}

// ahead handles a packet beyond all seen: it ends any run.
func (t *psnTracker) ahead(ext int64, gapOK bool) {
	switch t.run {
	case runResend:
		t.lost += t.next - (t.pos + 1) // copies that should have been passed on the way back up
	case runOpen:
		t.late()
		if t.outer {
			t.lost += t.next - t.resume
		}
	}
	t.run, t.outer = runNone, false
	if ext > t.next && !gapOK {
		t.open(hole{t.next, ext})
	}
	t.next = ext + 1
	t.pos = ext
}

// step moves the run on to ext, which is behind the highest number.
func (t *psnTracker) step(ext int64) {
	switch {
	case t.run != runOpen && (t.run == runNone || ext <= t.pos):
		t.resume, t.outer = t.pos+1, t.run == runResend
		t.begin()
	case t.run == runResend:
		t.lost += ext - t.pos - 1
	case ext <= t.pos:
		t.late()
		t.begin()
	case ext == t.pos+1:
		t.stepped = true
	case ext < t.resume:
		t.fillGap += ext - t.pos - 1
	case t.outer: // the packets before stood alone; the resend that they interrupted goes on
		t.late()
		t.lost += ext - t.resume
		t.run, t.outer = runResend, false
	default:
		t.late()
		t.begin()
	}
}

func (t *psnTracker) begin() { t.run, t.stepped, t.dupSeen = runOpen, false, false }

// late takes an undecided run for packets that were overtaken.
func (t *psnTracker) late() {
	t.outOfOrder += t.fills
	t.fills, t.fillBytes, t.fillGap = 0, 0, 0
}

// confirm turns an undecided run into a resend: what it jumped over, and what it filled, was lost before.
func (t *psnTracker) confirm() {
	t.retransmitted += t.fills
	t.retransmittedBytes += t.fillBytes
	t.lost += t.fills + t.fillGap
	t.fills, t.fillBytes, t.fillGap = 0, 0, 0
	t.run, t.outer = runResend, false
	t.rewinds++
}

// open adds a hole above all others. When there are too many the oldest is given up and counts as lost.
func (t *psnTracker) open(h hole) {
	if len(t.holes) >= maxHoles {
		t.lost += t.holes[0].to - t.holes[0].from
		t.holes = slices.Delete(t.holes, 0, 1)
	}
	t.holes = append(t.holes, h)
}

// fill reports whether ext had not been seen, and marks it seen.
func (t *psnTracker) fill(ext int64) bool {
	if ext < t.first { // from before the first packet captured
		if ext+1 < t.first {
			t.holes = slices.Insert(t.holes, 0, hole{ext + 1, t.first})
		}
		t.first = ext
		return true
	}
	// Late packets mostly close the newest hole, resends the oldest.
	if n := len(t.holes); n == 0 || ext < t.holes[0].from || ext >= t.holes[n-1].to {
		return false
	}
	i, found := slices.BinarySearchFunc(t.holes, ext, func(h hole, ext int64) int {
		switch {
		case ext < h.from:
			return 1
		case ext >= h.to:
			return -1
		}
		return 0
	})
	if !found {
		return false
	}
	switch h := &t.holes[i]; {
	case h.from+1 == h.to:
		t.holes = slices.Delete(t.holes, i, i+1)
	case ext == h.from:
		h.from++
	case ext == h.to-1:
		h.to--
	default:
		right := hole{ext + 1, h.to}
		h.to = ext
		t.holes = slices.Insert(t.holes, i+1, right)
	}
	return true
}

// close ends the tracking and returns what is still missing.
func (t *psnTracker) close() {
	t.late()
	for _, h := range t.holes {
		t.lost += h.to - h.from
	}
	t.run = runNone
}
