package analysis

import (
	"github.com/pcmlab/pcmlab/capture/roce"
)

// psnTracker follows the packet sequence numbers of one direction. It unwraps the 24-bit numbers, tells new packets
// from repeated ones, and keeps the numbers that were jumped over as a sorted list of holes, so that the count of
// distinct PSNs is exact however far back a go-back-N restart reaches.
//
// Which packet is a retransmission, and which only came late, can be told only by what follows. A go-back-N sender
// steps back and goes on from there, so it passes numbers that this tap has seen; a packet that was overtaken stands
// alone. A backward step therefore starts a run, and the run is judged by its second packet and by the first repeated
// number in it. A packet that came alone into a hole was overtaken, or sent again alone: disorder.go tells which.
type psnTracker struct {
	first   int64     // lowest number seen, unwrapped
	next    int64     // one above the highest
	x       *disorder // nil while all came in order
	run     runState
	started bool
}

type runState uint8

const (
	runNone   runState = iota // in order
	runOpen                   // undecided: late packets, or the start of a resend
	runResend                 // go-back-N
)

// maxStep: a step farther than this is no loss and no resend but another life of the QP.
const maxStep = 1 << 16

type psnClass uint8

const (
	psnNew  psnClass = iota // beyond all seen
	psnFill                 // behind the highest, but not seen before
	psnDup                  // seen before
)

// seen is a packet for the tracker.
type seen struct {
	ts        int64
	psn       uint32
	bytes     int64
	gapOK     bool  // a jump beyond the highest is no loss (a READ request takes more numbers than it has packets)
	afterRead bool  // the packet before was a READ request
	acked     int64 // what is acknowledged comes no more, unless it is sent again
	newer     bool  // for a packet behind the highest: by its IP identification it was sent after that
	older     bool  // or not after it
	quiet     int64 // time since the packet before
	lateNS    int64 // a packet that comes into a hole after more was sent again
}

// unwrap gives the unwrapped number of psn nearest to the highest one.
func (t *psnTracker) unwrap(psn uint32) int64 {
	return t.next + int64(roce.PSNDiff(psn, uint32(t.next)&roce.PSNMask))
}

// distance is how far psn is from the number that would be next in order.
func (t *psnTracker) distance(psn uint32) int { return roce.PSNDiff(psn, uint32(t.next)&roce.PSNMask) }

// inOrder reports that psn is the next number of a sender that goes on in order.
func (t *psnTracker) inOrder(psn uint32) bool {
	return t.run == runNone && t.started && psn == uint32(t.next)&roce.PSNMask
}

// see takes the next packet. resent is how many packets this one let be recognised as retransmissions.
func (t *psnTracker) see(p *seen) (class psnClass, ext, resent int64) {
	if t.inOrder(p.psn) {
		return psnNew, t.advance(), 0
	}
	if !t.started {
		t.started = true
		t.first = int64(p.psn) + 1<<24
		t.next = t.first + 1
		return psnNew, t.first, 0
	}
	ext = t.unwrap(p.psn)
	if t.x == nil {
		t.x = new(disorder)
	}
	x := t.x
	if t.run == runNone {
		x.pos = t.next - 1
	}
	if ext >= t.next {
		return psnNew, ext, t.ahead(p, ext)
	}
	resent = t.step(p, ext)
	if filled, opened := x.fill(t, ext); filled {
		class = psnFill
		if t.run == runResend {
			resent++
			x.retransmitted++
			x.retransmittedBytes += p.bytes
			x.lost++
		} else {
			x.fills++
			x.fillBytes += p.bytes
			if p.newer || !p.older && opened >= 0 && p.ts-opened > p.lateNS {
				x.alone++
				x.aloneBytes += p.bytes
			}
		}
	} else {
		class = psnDup
		x.dupSeen = true
		x.duplicates++
		x.retransmitted++
		x.retransmittedBytes += p.bytes
		resent++
		if t.run == runOpen && (p.newer || !p.older && (p.quiet > p.lateNS || x.event.nak.trigger == byNAK && x.event.nak.psn == p.psn)) {
			x.copies++
		}
	}
	if t.run == runOpen && x.stepped && x.dupSeen {
		resent += x.fills
		t.confirm()
	}
	x.pos = ext
	return class, ext, resent
}

// advance takes the next packet in order and returns its number.
func (t *psnTracker) advance() (ext int64) {
	t.next++
	return t.next - 1
}

// pos is the number of the last packet.
func (t *psnTracker) pos() int64 {
	if t.run == runNone || t.x == nil {
		return t.next - 1
	}
	return t.x.pos
}

// unique is how many distinct numbers were seen.
func (t *psnTracker) unique() int64 { return t.next - t.first - t.disorderOf().absent }

// ahead handles a packet beyond all seen: it ends any run.
func (t *psnTracker) ahead(p *seen, ext int64) (resent int64) {
	x := t.x
	switch t.run {
	case runResend:
		x.lost += t.next - (x.pos + 1) // copies that should have been passed on the way back up
		x.event.skipped += int32(t.next - (x.pos + 1))
	case runOpen:
		resent = t.late()
		if x.outer {
			x.lost += t.next - x.resume
			x.resumeEvent(t.next - x.resume)
		}
	}
	x.endEvent()
	t.run, x.outer = runNone, false
	if ext > t.next {
		x.open(hole{t.next, p.ts, int32(ext - t.next), p.gapOK}, p.acked)
	}
	t.next = ext + 1
	x.pos = ext
	return resent
}

// step moves the run on to ext, which is behind the highest number.
func (t *psnTracker) step(p *seen, ext int64) (resent int64) {
	x := t.x
	switch {
	case t.run != runOpen && (t.run == runNone || ext <= x.pos):
		x.resume, x.outer = x.pos+1, t.run == runResend
		t.begin(p, ext)
		return 0
	case t.run == runResend:
		if !p.afterRead {
			x.lost += ext - x.pos - 1
			x.event.skipped += int32(ext - x.pos - 1)
		}
	case ext <= x.pos:
		resent = t.late()
		t.begin(p, ext)
		return resent
	case ext == x.pos+1:
		x.stepped = true
	case ext < x.resume:
		if !p.afterRead {
			x.fillGap += ext - x.pos - 1
			x.event.skipped += int32(ext - x.pos - 1)
		}
	case x.outer: // the packets before stood alone; the resend that they interrupted goes on
		resent = t.late()
		x.lost += ext - x.resume
		x.resumeEvent(ext - x.resume)
		t.run, x.outer = runResend, false
	default:
		resent = t.late()
		t.begin(p, ext)
		return resent
	}
	x.event.packets++
	return resent
}

// begin starts an undecided run at ext.
func (t *psnTracker) begin(p *seen, ext int64) {
	t.x.startEvent(p, ext, t.next-1)
	t.run, t.x.stepped, t.x.dupSeen = runOpen, false, false
}

// late takes an undecided run for packets that were overtaken, but for those that were sent again alone. It returns the
// number of those.
func (t *psnTracker) late() (resent int64) {
	x := t.x
	x.outOfOrder += x.fills - x.alone
	x.retransmitted += x.alone
	x.retransmittedBytes += x.aloneBytes
	x.selective += x.alone
	x.lost += x.alone
	resent = x.alone
	if !x.event.tail { // that is a restart of one packet
		x.selective += x.copies
		x.event.alone = x.event.alone || x.alone+x.copies > 0
	}
	x.fills, x.fillBytes, x.fillGap, x.alone, x.aloneBytes, x.copies = 0, 0, 0, 0, 0, 0
	return resent
}

// confirm turns an undecided run into a resend: what it jumped over, and what it filled, was lost before.
func (t *psnTracker) confirm() {
	x := t.x
	x.retransmitted += x.fills
	x.retransmittedBytes += x.fillBytes
	x.lost += x.fills + x.fillGap
	x.fills, x.fillBytes, x.fillGap, x.alone, x.aloneBytes, x.copies = 0, 0, 0, 0, 0, 0
	t.run, x.outer = runResend, false
	x.restarted()
}

// close ends the tracking. What is still missing was lost before the tap, but for what the receiver acknowledged up to
// ackedTo: that passed the tap unseen.
func (t *psnTracker) close(ackedTo int64) {
	x := t.x
	if x == nil {
		return
	}
	t.late()
	x.endOuter()
	x.endEvent()
	for _, h := range x.holes {
		x.miss(h, ackedTo)
	}
	x.holes = nil
	t.run = runNone
}

// disorderOf gives what went out of order; all zero where nothing did.
func (t *psnTracker) disorderOf() *disorder {
	if t == nil || t.x == nil {
		return &noDisorder
	}
	return t.x
}

var noDisorder disorder // never written
