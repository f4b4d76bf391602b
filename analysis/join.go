package analysis

import (
	"slices"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// Joining directions: an acknowledgement travels to the sender's QP, whose number the data packets do not carry. What it
// does carry is a PSN that the sender must have used, and, where the sender asked for an acknowledgement, mostly
// exactly that PSN. So the first acknowledgement of a direction picks, among the directions the other way between the
// same addresses, the one that waits for it. A wrong pick shows when an acknowledgement names a PSN that was not sent yet;
// then the pair is dissolved and sought again.
//
// Where several could be meant (QPs that start at the same PSN), none is picked at once. All are kept as candidates: one
// that has not sent an acknowledged PSN is out, and one that waited for clearly more of them is it. What is still
// undecided after the last packet goes to whoever waited for most.

const (
	sureConfidence = 16      // from here on a misfit is a gap of the capture, not a wrong pair
	ackWindow      = 1 << 15 // an acknowledgement is at most so many PSNs behind what was sent
	searchAlways   = 256     // searches without a find before only every so-manieth packet searches
	slackPSNs      = 1024    // a sure pair may be ahead of a capture that lost packets by so many
	maxCandidates  = 8
	clearLead      = 4
	nearStart      = 4096 // QPs whose first PSNs are closer may be mistaken for each other
)

// candidate is a direction whose data another one may answer.
type candidate struct {
	d     *direction
	exact int // answers that it waited for
}

// answered returns the direction whose requests d acknowledges with psn, or nil while that is not known.
func (l *lane) answered(d *direction, psn uint32, op roce.Opcode, positive bool) *direction {
	a := d.rx
	if p := d.peer; p != nil && p.sends() {
		if fit := p.fits(psn, op, positive); fit > 0 {
			if a.confidence < sureConfidence {
				a.confidence += int16(fit)
			}
			return p
		}
		if a.confidence >= sureConfidence {
			if p.tx.req.distance(psn) > slackPSNs {
				return nil
			}
			return p
		}
		unpair(d)
	}
	var best *direction
	if len(d.candidates()) > 0 {
		best = d.narrow(psn, op, positive)
	} else {
		// A direction that fits nothing (its data passes elsewhere) must not search a thousand QPs at every packet.
		if a.searches++; a.searches > searchAlways && a.searches%searchAlways != 0 {
			return nil
		}
		best = l.search(d, psn, op, positive)
	}
	if best == nil {
		return nil
	}
	if best.peer != nil {
		unpair(best.peer)
	}
	if d.peer != nil {
		unpair(d)
	}
	d.peer, best.peer = best, d
	a.confidence, a.searches = int16(best.fits(psn, op, positive)), 0
	if a.more != nil {
		a.more.candidates = nil
	}
	if c := d.cnps(); c != nil && best.tx.more != nil && best.tx.more.ceAtNS <= c.lastNS { // a CNP has answered that mark before the pair was known
		best.tx.flags &^= txMarked
	}
	return best
}

// taken reports that c is paired beyond doubt.
func (d *direction) taken() bool {
	return d.peer != nil && d.peer.confidence()+d.confidence() >= sureConfidence
}

// search looks at all directions the other way. It returns the only one that can be meant, or nil, having noted the
// candidates.
func (l *lane) search(d *direction, psn uint32, op roce.Opcode, positive bool) *direction {
	var found []candidate
	var best *direction
	fit, rivals := 0, 0
	for c := range l.directions(l.shared.intern.back(d.id)) {
		if c == d || !c.sends() || c.service != roce.RC || c.is(dirSuperseded|dirReplaced) || c.taken() {
			continue
		}
		f := c.fits(psn, op, positive)
		if f == 0 || f == 1 && c.peer != nil { // what is paired needs better evidence to be taken away
			continue
		}
		if len(found) < maxCandidates {
			found = append(found, candidate{c, f - 1})
		}
		if f > fit {
			best, fit = c, f
		}
	}
	for _, c := range found {
		if near := c.d.tx.req.first - best.tx.req.first; c.d != best && (c.exact+1 >= fit || near < nearStart && near > -nearStart) {
			rivals++
		}
	}
	if rivals > 0 {
		d.rx.needMore().candidates = &found
		return nil
	}
	return best
}

// narrow takes another answer into account and returns the candidate that is left or clearly ahead, or nil.
func (d *direction) narrow(psn uint32, op roce.Opcode, positive bool) *direction {
	all := *d.rx.more.candidates
	n := 0
	for _, c := range all {
		f := c.d.fits(psn, op, positive)
		if f == 0 || c.d.taken() || c.d.is(dirReplaced) {
			continue
		}
		c.exact += f - 1
		all[n] = c
		n++
	}
	all = all[:n]
	*d.rx.more.candidates = all
	switch n {
	case 0:
		return nil
	case 1:
		return all[0].d
	}
	first, second := all[0], candidate{exact: -1}
	for _, c := range all[1:] {
		switch {
		case c.exact > first.exact:
			first, second = c, first
		case c.exact > second.exact:
			second = c
		}
	}
	if first.exact-second.exact >= clearLead {
		return first.d
	}
	return nil
}

func unpair(d *direction) {
	p := d.peer
	d.peer = nil
	d.unsure()
	if p == nil {
		return
	}
	p.peer = nil
	p.unsure()
	if p.tx != nil { // samples that were taken for the wrong pair are worth nothing
		for _, kind := range []sampleKind{sampleRTT, sampleAcked + sampleKind(msgWrite), sampleAcked + sampleKind(msgSend), sampleAcked + sampleKind(msgAtomic)} {
			p.tx.samples.drop(kind)
		}
	}
}

func (d *direction) unsure() {
	if d.rx != nil {
		d.rx.confidence = 0
	}
}

// fits says how well an answer with psn fits the requests of d: 0 not at all, 1 possible, 2 it was waited for.
func (d *direction) fits(psn uint32, op roce.Opcode, positive bool) int {
	switch { // the answer must be of the kind that was asked for
	case op.IsReadResponse():
		if d.tx.flags&txReads == 0 {
			return 0
		}
	case isAtomicAck(op):
		if d.tx.flags&txAtomics == 0 {
			return 0
		}
	case positive && d.tx.flags&txOthers == 0:
		return 0
	}
	t := &d.tx.req
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
	case !positive && ext < t.first && ext >= t.first-nearStart:
		return 1 // or one before the first that this tap saw
	case ext >= t.next || ext < t.first-1 || ext < t.next-ackWindow:
		return 0
	case d.tx.isPending(ext):
		return 2
	case !positive && d.tx.isPending(ext-1):
		return 2
	}
	return 1
}

// joinRest pairs, after the last packet, what acknowledgements could not tell apart.
func (l *lane) joinRest() {
	for d := range l.all.each {
		pair := l.shared.intern.pair(d.id)
		if pair.joined {
			continue
		}
		pair.joined = true
		forth := slices.Collect(l.directions(d.id &^ 1))
		slices.Reverse(forth)
		back := slices.Collect(l.directions(d.id | 1))
		slices.Reverse(back)
		joinSide(forth, back)
		if pair.a == pair.b {
			joinSide(forth, forth)
		} else {
			joinSide(back, forth)
		}
	}
}

// joinSide pairs data of dirs with answers of those the other way.
func joinSide(dirs, back []*direction) {
	var data, answers []*direction
	for _, d := range dirs {
		if d.peer == nil && d.sends() && d.service != roce.UD {
			data = append(data, d)
		}
	}
	for _, d := range back {
		if d.peer == nil && d.answers() && d.service != roce.UD {
			answers = append(answers, d)
		}
	}
	joinInOrder(data, answers)
	warnOfRivals(dirs)
}

// joinNote says how the peer was found, if not by acknowledgements alone.
type joinNote uint8

const (
	joinSure joinNote = iota
	joinAmbiguous
	joinAlone
)

// String is the note for people.
func (n joinNote) String() string {
	switch n {
	case joinAmbiguous:
		return ambiguous
	case joinAlone:
		return "its CNPs were joined to it because no other flow between the two hosts could be meant"
	}
	return ""
}

const ambiguous = "several QPs between the two hosts started at nearly the same PSN: its acknowledgements and CNPs may be those of another one"

// warnOfRivals adds a note to flows that were joined on little evidence while another could have been meant.
func warnOfRivals(dirs []*direction) {
	for _, d := range dirs {
		if !d.sends() || d.service != roce.RC || d.taken() {
			continue
		}
		for _, o := range dirs {
			if o == d || !o.sends() || o.service != roce.RC {
				continue
			}
			if near := o.tx.req.first - d.tx.req.first; near < nearStart && near > -nearStart {
				d.tx.note = joinAmbiguous
				break
			}
		}
	}
}

// joinInOrder pairs answers with data: first those whose candidates waited for most answers, then, where the PSNs do not
// forbid it, in the order in which both appeared.
func joinInOrder(data, answers []*direction) {
	taker := map[*direction]*direction{} // data to answers
	for _, a := range answers {
		slices.SortStableFunc(a.candidates(), func(x, y candidate) int { return y.exact - x.exact })
	}
	byClaim := slices.Clone(answers)
	slices.SortStableFunc(byClaim, func(x, y *direction) int { return y.bestClaim() - x.bestClaim() })
	for _, a := range byClaim {
		a.settle(taker, map[*direction]bool{})
	}
	for _, a := range answers {
		for _, c := range a.candidates() {
			if taker[c.d] != a {
				continue
			}
			a.peer, c.d.peer = c.d, a
			for _, o := range a.candidates() {
				if o.d != c.d && o.exact >= c.exact {
					c.d.tx.note = joinAmbiguous
				}
			}
		}
	}
	alone := len(data) == 1 && len(answers) == 1
	for _, a := range answers {
		if a.peer != nil {
			continue
		}
		var fit []*direction
		for _, d := range data {
			if d.peer != nil || d == a {
				continue
			}
			switch {
			case a.ackSeen() && d.service == roce.RC && d.covers(a.rx.lastAckPSN):
				fit = append(fit, d)
			case !a.ackSeen() && alone:
				fit = append(fit, d)
			}
		}
		if len(fit) == 0 {
			continue
		}
		d := fit[0]
		a.peer, d.peer = d, a
		switch {
		case !a.ackSeen():
			d.tx.note = joinAlone
		case len(fit) > 1:
			d.tx.note = joinAmbiguous
		}
	}
}

// candidates are whom d may answer, while that is open.
func (d *direction) candidates() []candidate {
	if d.rx.more == nil || d.rx.more.candidates == nil {
		return nil
	}
	return *d.rx.more.candidates
}

func (d *direction) bestClaim() int {
	if c := d.candidates(); len(c) > 0 {
		return c[0].exact
	}
	return -1
}

// settle finds data for the answers a, moving others to their next choice where needed, so that as many as possible are
// paired (Kuhn's algorithm).
func (d *direction) settle(taker map[*direction]*direction, tried map[*direction]bool) bool {
	for _, c := range d.candidates() {
		if tried[c.d] || c.d.peer != nil {
			continue
		}
		tried[c.d] = true
		if o := taker[c.d]; o == nil || o.settle(taker, tried) {
			taker[c.d] = d
			return true
		}
	}
	return false
}

// covers reports that psn lies within all that d sent.
func (d *direction) covers(psn uint32) bool {
	ext := d.tx.req.unwrap(psn)
	return ext >= d.tx.req.first-1 && ext <= d.tx.req.next
}
