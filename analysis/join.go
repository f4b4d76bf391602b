package analysis

import (
	"github.com/pcmlab/pcmlab/capture/roce"
)

// Joining directions: an acknowledgement travels to the sender's QP, whose number the data packets do not carry. What it
// does carry is a PSN that the sender must have used, and, where the sender asked for an acknowledgement, mostly
// exactly that PSN. So the first acknowledgement of a direction picks, among the directions the other way between the
// same addresses, the one that waits for it. A wrong pick shows when an acknowledgement names a PSN that was not sent yet;
// then the pair is dissolved and sought again. When several fit equally well (QPs that start at the same PSN and keep in
// step) none is picked until they differ.

const (
	sureConfidence = 16      // from here on a misfit is a gap of the capture, not a wrong pair
	ackWindow      = 1 << 15 // an acknowledgement is at most so many PSNs behind what was sent
	searchAlways   = 256     // searches without a find before only every so-manieth packet searches
	slackPSNs      = 1024    // a sure pair may be ahead of a capture that lost packets by so many
)

// answered returns the direction whose requests d acknowledges with psn, or nil while that is not known.
func (e *engine) answered(d *direction, psn uint32, op roce.Opcode, positive bool) *direction {
	if p := d.peer; p != nil {
		if fit := p.fits(psn, op, positive); fit > 0 {
			if d.confidence < sureConfidence {
				d.confidence += fit
			}
			return p
		}
		if d.confidence >= sureConfidence {
			if p.req.distance(psn) > slackPSNs {
				return nil
			}
			return p
		}
		unpair(d)
	}
	// A direction that fits nothing (its data passes elsewhere) must not search a thousand QPs at every packet.
	if d.searches++; d.searches > searchAlways && d.searches%searchAlways != 0 {
		return nil
	}
	best, fit, tied := e.candidate(d, psn, op, positive)
	if best == nil || tied {
		return nil
	}
	if best.peer != nil {
		unpair(best.peer)
	}
	if d.peer != nil {
		unpair(d)
	}
	d.peer, best.peer = best, d
	d.confidence, d.searches = fit, 0
	return best
}

func unpair(d *direction) {
	p := d.peer
	d.peer, d.confidence = nil, 0
	if p != nil {
		p.peer, p.confidence = nil, 0
		// Samples that were taken for the wrong pair are worth nothing.
		p.rtt, p.toAck = nil, nil
	}
}

// candidate finds the direction that fits best.
func (e *engine) candidate(d *direction, psn uint32, op roce.Opcode, positive bool) (best *direction, fit int, tied bool) {
	dirs := d.pair.reverse.dirs
	for i := len(dirs) - 1; i >= 0; i-- {
		c := dirs[i]
		if c == d || !c.req.started || c.service != roce.RC || c.superseded || c.replaced {
			continue
		}
		f := c.fits(psn, op, positive)
		if f == 0 {
			continue
		}
		f *= 4
		if c.peer != nil {
			if c.peer.confidence+c.confidence >= sureConfidence {
				continue
			}
			f -= 2 // taken, but not surely
		}
		if c.srcPort == d.srcPort {
			f++ // many NICs derive both ports from the pair of QPs
		}
		switch {
		case f > fit:
			best, fit, tied = c, f, false
		case f == fit:
			tied = true
		}
	}
	return best, fit / 4, tied
}

// fits says how well an answer with psn fits the requests of d: 0 not at all, 1 possible, 2 it was waited for.
func (d *direction) fits(psn uint32, op roce.Opcode, positive bool) int {
	switch { // the answer must be of the kind that was asked for
	case op.IsReadResponse():
		if d.requests == d.nonReadRequests {
			return 0
		}
	case isAtomicAck(op):
		if d.ops.Atomic == 0 {
			return 0
		}
	case positive && d.nonReadRequests == 0:
		return 0
	}
	t := &d.req
	ext := t.unwrap(psn)
	switch {
	case op.IsReadResponse() && !op.IsFirst():
		// Inside a READ the numbers run ahead of the requests seen.
		if ext < t.first || ext < t.next-ackWindow || ext > t.next+ackWindow {
			return 0
		}
		return 1
	case !positive && ext == t.next:
		return 1 // the NAK names the packet that is missing, which may be the next
	case ext >= t.next || ext < t.first-1 || ext < t.next-ackWindow:
		return 0
	case d.isPending(ext):
		return 2
	case !positive && d.isPending(ext-1):
		return 2
	}
	return 1
}

// joinRest pairs, after the last packet, what acknowledgements could not tell apart.
func (e *engine) joinRest() {
	for _, first := range e.all {
		pair := first.pair
		if pair.joined {
			continue
		}
		pair.joined = true
		var data, answers []*direction
		for _, d := range pair.dirs {
			if d.peer == nil && d.req.started && d.service != roce.UD {
				data = append(data, d)
			}
		}
		for _, d := range pair.reverse.dirs {
			if d.peer == nil && d.answers() && d.service != roce.UD {
				answers = append(answers, d)
			}
		}
		joinInOrder(data, answers)
	}
}

// joinInOrder pairs answers with data in the order in which both appeared, where the PSNs do not forbid it.
func joinInOrder(data, answers []*direction) {
	alone := len(data) == 1 && len(answers) == 1
	for _, a := range answers {
		var fit []*direction
		for _, d := range data {
			if d.peer != nil || d == a {
				continue
			}
			switch {
			case a.ackSeen && d.service == roce.RC && d.covers(a.lastAckPSN):
				fit = append(fit, d)
			case !a.ackSeen && alone:
				fit = append(fit, d)
			}
		}
		if len(fit) == 0 {
			continue
		}
		d := fit[0]
		a.peer, d.peer = d, a
		switch {
		case !a.ackSeen:
			d.peerNote = "its CNPs were joined to it because no other flow between the two hosts could be meant"
		case len(fit) > 1:
			d.peerNote = "several QPs between the two hosts kept the same PSNs: its acknowledgements and CNPs were joined in order of appearance"
		}
	}
}

// covers reports that psn lies within all that d sent.
func (d *direction) covers(psn uint32) bool {
	ext := d.req.unwrap(psn)
	return ext >= d.req.first-1 && ext <= d.req.next
}
