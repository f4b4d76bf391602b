package analysis

import (
	"math"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// lane follows the directions between some of the pairs of hosts. It sees their packets in order, one by one, and keeps
// nothing of them. What happens between two hosts touches no other lane, so lanes work side by side.
type lane struct {
	o       *Options
	shared  *shared
	dirs    table
	all     slab[direction] // every life, in order of appearance
	senders slab[sender]
	answer  slab[answers]

	bins    clock
	windows clock // of the senders' reactions
	pieces  pieceClock
	cells   int   // bins between first and last of all directions, but one each
	halved  int32 // how often the bins were made twice as wide

	pending  spares[pendingAck]
	messages spares[message]
	cm       cmTable

	offloadMerged int64
	burstGap      int64
	lateNS        int64

	cur               *chunk   // being filled by order
	queue, spareQueue []*chunk // filled; guarded by the pipeline, as is busy
	busy              bool
}

func newLane(o *Options, s *shared) *lane {
	l := &lane{o: o, shared: s, cur: new(chunk), pieces: newPieceClock(o), dirs: table{slots: make([]slot, 16)}}
	l.burstGap = int64(burstGap * o.TimeScale)
	l.lateNS = int64(lateAfter * o.TimeScale)
	return l
}

// Times on hardware, in ns; a virtual lab's are longer by its time scale.
const (
	lateAfter = 100_000 // a packet that comes into a hole after more was sent again
)

// start sets the origin of all windows.
func (l *lane) start(originNS int64) {
	l.bins.start(originNS, int64(l.o.Bin))
	l.windows.start(originNS, int64(reactionWindow*l.o.TimeScale))
}

// take follows the packets of a chunk.
func (l *lane) take(c *chunk) {
	for i := range c.recs[:c.n] {
		l.packet(&c.recs[i])
	}
}

func (l *lane) packet(r *record) {
	ts := r.ts
	for ts >= l.bins.hi && (ts-l.bins.origin)/l.bins.width >= int64(l.o.MaxCells) { // before the pipeline could say so
		l.widen(l.halved + 1)
	}
	l.bins.tick(ts)
	l.windows.tick(ts)
	l.pieces.tick(ts)
	d := l.lookup(r)
	d.count(r)
	op := r.op()
	switch {
	case op == roce.CNP:
		l.cnp(d, ts)
	case op.IsRequest():
		if r.recFlags&recSide != 0 {
			l.handshake(r)
		}
		l.request(d, r)
	case op.IsResponse():
		l.response(d, r)
	}
}

// isAtomicAck: IsAtomic holds for requests, too.
func isAtomicAck(op roce.Opcode) bool { return op.IsAtomic() && op.IsResponse() }

// lookup finds the current life of r's direction, or begins one.
func (l *lane) lookup(r *record) *direction {
	qp, srcQP := r.qp(), r.sourceQP()
	s, d := l.dirs.find(&l.all, r.pair, qp, srcQP)
	if d != nil && !d.otherLife(r, qp) {
		return d
	}
	return l.newLife(r, s, d, qp, srcQP)
}

func (l *lane) newLife(r *record, s *slot, before *direction, qp, srcQP uint32) *direction {
	n, index := l.all.add()
	*n = direction{id: r.pair, dstQP: qp, srcQP: srcQP, life: 1, psnFirst: r.psn24(), srcPort: r.srcPort}
	op := r.op()
	n.service = op.Transport()
	if op != roce.CNP {
		n.flags |= dirServiceSeen
	}
	if before != nil {
		n.life = before.life + 1
		before.flags |= dirReplaced
		if before.peer != nil {
			before.peer.flags |= dirSuperseded
		}
		s.index = index + 1
	} else {
		l.dirs.put(s, hashKey(r.pair, qp, srcQP), index)
	}
	newest := &l.shared.intern.pair(r.pair).newest[r.pair&1]
	n.older, *newest = *newest, index+1
	l.meet(n)
	return n
}

// otherLife reports that r cannot belong to d's life of the QP: its PSN is farther from the others than any window or
// loss reaches, or a handshake announced another life. It need not begin a message, since that packet may have been lost.
func (d *direction) otherLife(r *record, qp uint32) bool {
	op := r.op()
	switch {
	case qp == 1: // management datagrams have no life
		return false
	case d.flags&dirExpected != 0 && d.packets > 0:
		return true
	case op.IsRequest():
		t := d.tx
		if t == nil || !t.req.started {
			return d.is(dirSuperseded) && d.ackSeen()
		}
		step := t.req.distance(r.psn24())
		return step > maxStep || step < -maxStep ||
			step < -64 && t.ackedTo >= t.req.next-1 && -step > int(t.outstanding)+64
	case op == roce.CNP:
		return d.is(dirSuperseded)
	case op.IsResponse():
		if !d.ackSeen() {
			return d.is(dirSuperseded) && d.sends()
		}
		step := roce.PSNDiff(r.psn24(), d.rx.lastAckPSN)
		return step > maxStep || step < -maxStep || d.is(dirSuperseded) && d.outlived(r.psn24())
	}
	return false
}

// outlived reports that an answer with psn is none to the peer, whose life is over.
func (d *direction) outlived(psn uint32) bool {
	p := d.peer
	if p == nil || !p.sends() {
		return false
	}
	return !p.covers(psn) || p.tx.ackedTo >= p.tx.req.next-1 && psn != d.rx.lastAckPSN
}

// sender is d's data side, made when first needed.
func (l *lane) sender(d *direction) *sender {
	if d.tx == nil {
		d.tx, _ = l.senders.add()
		d.tx.ackedTo = math.MinInt64
	}
	return d.tx
}

// answers is d's answering side, made when first needed.
func (l *lane) answers(d *direction) *answers {
	if d.rx == nil {
		d.rx, _ = l.answer.add()
	}
	return d.rx
}

// bin is the tally of the current bin.
func (l *lane) bin(t *tallies) *tally {
	s, cur := *t, int32(l.bins.cur)
	if n := len(s); n > 0 {
		if s[n-1].index == cur {
			return &s[n-1]
		}
		l.cells += max(int(cur-s[n-1].index), int(s[0].index-cur), 0)
	}
	return t.at(cur)
}

// widen makes the bins 2^halved times as wide as they were asked for.
func (l *lane) widen(halved int32) {
	for ; l.halved < halved; l.halved++ {
		l.bins.double()
		l.cells = 0
		for t := range l.senders.each {
			t.bin /= 2
			if t.more != nil {
				l.cells += t.more.bins.halve()
			}
		}
		for a := range l.answer.each {
			if a.more != nil && a.more.cnps != nil {
				l.cells += a.more.cnps.bins.halve()
			}
		}
	}
}

// addData counts a data packet, with a number of k that class tells of, which let resent packets be recognised as
// retransmissions.
func (l *lane) addData(t *sender, k *psnTracker, r *record, class psnClass, resent int64) {
	c := &t.data
	if t.bin != int32(l.bins.cur) || t.piece != l.pieces.cur || c.packets == 0 {
		l.turn(t)
	}
	ts, wire, payload := r.ts, int64(r.wire), int64(r.payload)
	if c.packets == 0 {
		c.firstNS = ts
		t.dscp = r.tos >> 2
	} else if ts-c.lastNS > l.burstGap {
		t.samples.add(sampleBurst, t.burst)
		t.burst = 0
	}
	t.burst += wire
	c.packets++
	c.lastNS = max(c.lastNS, ts)
	c.payload += payload
	if class == psnDup {
		k.x.repeatedBytes += payload
	}
	if resent > 0 {
		k.x.resentData += resent
	}
	c.wire += wire
	if r.tos>>2 != t.dscp || r.psn&flagVLAN != 0 {
		t.mark(r)
	}
	if payload > 4096 { // the largest path MTU of RoCE
		l.offloadMerged++
	}
	switch r.tos & 3 {
	case roce.CE:
		c.ce++
		if t.flags&txMarked == 0 {
			t.flags |= txMarked
			t.needMore().ceAtNS = ts
		}
	case roce.ECT0, roce.ECT1:
		c.ect++
	}
	if l.windows.cur > t.window.window {
		t.window.advance(t.reaction(), l.windows.cur)
	}
	t.window.add(uint32(wire))
}

func (l *lane) cnp(d *direction, ts int64) {
	a := l.answers(d)
	m := a.needMore()
	c := m.cnps
	if c == nil {
		c = new(cnpCounts)
		m.cnps = c
	} else {
		add(&c.gaps, ts-c.lastNS)
	}
	c.n++
	c.lastNS = ts
	l.bin(&c.bins).packets++
	if l.pieces.cur >= 0 {
		c.pieces.at(l.pieces.cur).packets++
	}
	if p := d.peer; p != nil && p.tx != nil {
		t := p.tx
		if t.flags&txMarked != 0 {
			t.samples.add(sampleDelay, ts-t.more.ceAtNS)
			t.flags &^= txMarked
		}
		m := t.needMore()
		if m.react == nil {
			m.react = newReaction(l.windows.origin, l.windows.width)
		}
		m.react.cnp(&t.window, ts, l.windows.cur)
	}
}

// request takes a packet from requester to responder.
func (l *lane) request(d *direction, r *record) {
	t := l.sender(d)
	op, psn := r.op(), r.psn24()
	read := op.IsReadRequest()
	before, ordered := t.lastReqOp, t.req.inOrder(psn)
	if t.flags&txRequests == 0 {
		t.flags |= txRequests
		t.firstOp = op
	}
	t.lastReqOp = op
	if r.has(flagRETH) {
		t.rethBytes += int64(r.word)
	}
	if read {
		t.flags |= txReads
	} else {
		t.flags |= txOthers
	}

	pos, started := t.req.pos(), t.req.started
	class, ext, resent := l.see(t, &t.req, r, t.lastHighOp.IsReadRequest(), started && before.IsReadRequest())
	if started && !ordered {
		switch step := ext - pos; {
		case step <= 0:
			t.req.x.backward++
		case step > 1 && !read && !before.IsReadRequest():
			t.req.x.gaps++
		}
	}
	switch class {
	case psnNew:
		t.lastHighOp = op
		t.outstanding = max(t.outstanding, int32(min(ext-max(t.ackedTo, t.req.first-1), maxStep)))
		if r.has(flagAckReq) && op.Transport() == roce.RC {
			l.pending.push(&t.pending, pendingAck{psn: ext, atNS: r.ts}, d.waitLimit())
		}
	case psnFill:
		if ext == t.req.first { // the first packet came late, or was sent again
			t.firstOp = op
		}
	case psnDup:
		t.markResent(ext)
		if ext <= pos {
			t.resendsNoAck++
		}
		if countedOps[op] && opSlotOf[op] != slotUnknown {
			t.req.x.again[kindOf(op)]++
		}
		if op.IsLast() && !read {
			l.ends(d, ext, r.ts)
		}
	}
	if class != psnDup {
		l.messageEdges(d, t, r.ts, op, ext)
	}
	if !read {
		l.addData(t, &t.req, r, class, resent)
	}
}

// see gives the packet to a tracker, with what its IP identification says.
func (l *lane) see(t *sender, k *psnTracker, r *record, gapOK, afterRead bool) (class psnClass, ext, resent int64) {
	psn := r.psn24()
	if k.inOrder(psn) {
		if r.has(flagIPID) {
			t.ids.next(r.ipid)
		}
		return psnNew, k.advance(), 0
	}
	p := seen{ts: r.ts, psn: psn, bytes: int64(r.payload), gapOK: gapOK, afterRead: afterRead, acked: t.ackedTo, quiet: r.ts - t.data.lastNS, lateNS: l.lateNS}
	if r.has(flagIPID) {
		p.newer, p.older = t.ids.order(r.ipid)
	}
	class, ext, resent = k.see(&p)
	if class == psnNew && r.has(flagIPID) {
		t.ids.last, t.ids.valid = r.ipid, true
	}
	return class, ext, resent
}

// messageEdges follows where messages begin and end; the packet is seen for the first time.
func (l *lane) messageEdges(d *direction, t *sender, ts int64, op roce.Opcode, ext int64) {
	if opSlotOf[op] == slotUnknown {
		t.rareOperation(op)
	}
	switch {
	case op.IsReadRequest():
		l.begin(d, ext, ts, msgRead)
		return
	case op.IsAtomic():
		l.begin(d, ext, ts, msgAtomic)
		l.ends(d, ext, ts)
		t.flags |= txAtomics
		return
	}
	if op.IsFirst() {
		l.begin(d, ext, ts, kindOf(op))
	}
	if op.IsLast() {
		l.ends(d, ext, ts)
	}
}

// response takes a packet from responder to requester.
func (l *lane) response(d *direction, r *record) {
	a := l.answers(d)
	op, psn := r.op(), r.psn24()
	by := byTimeout
	var aeth roce.AETH
	if r.has(flagAETH) {
		switch aeth = r.aethOf(); aeth.Kind() {
		case roce.RNRNak:
			by = byRNR
		case roce.Nak:
			by = byNAK
		case roce.Ack:
			if op.IsAck() {
				a.acks++
			}
		}
		if by != byTimeout {
			m := a.needMore()
			if m.naks == nil {
				m.naks = new(NAKs)
			}
			m.naks.count(aeth)
		}
	}
	a.lastAckPSN, a.ackSeen = psn, true

	read := op.IsReadResponse()
	peer := l.answered(d, psn, op, by == byTimeout)
	if peer != nil {
		t := peer.tx
		ext := t.req.unwrap(psn)
		switch {
		case read:
			if op.IsFirst() {
				l.readBegins(l.sender(d), t, ext, r.ts)
			}
		case by == byTimeout:
			l.ackTo(t, ext, r.ts, true)
		default: // a NAK acknowledges what comes before its PSN (IBTA vol 1, 9.7.5.2.2)
			l.ackTo(t, ext-1, r.ts, false)
			l.refused(t, psn, r.ts, by, aeth)
		}
	}
	if read {
		a.responses = true
		l.readResponse(d, peer, r)
	}
}

// refused notes a NAK that names psn.
func (l *lane) refused(t *sender, psn uint32, ts int64, by trigger, aeth roce.AETH) {
	if t.req.x == nil {
		t.req.x = new(disorder)
	}
	t.req.x.refuse(ts, psn, by)
	if by == byRNR {
		t.req.x.rnrWaitNS += int64(aeth.RNRTimer())
	}
}

// readBegins takes the first response to a READ request of t, carried by d.
func (l *lane) readBegins(d, t *sender, ext, ts int64) {
	l.ackTo(t, ext-1, ts, false)
	if t.pending.len() > 0 {
		if p := t.pending.at(0); p.ext() == ext {
			if !p.resent() {
				d.samples.add(sampleRTT, ts-p.atNS)
			}
			t.pending.pop()
			l.pending.release(&t.pending)
		}
	}
}

// readResponse takes a packet that carries what was read.
func (l *lane) readResponse(d, peer *direction, r *record) {
	t := l.sender(d)
	op := r.op()
	m := t.needMore()
	if m.resp == nil {
		m.resp = new(psnTracker)
	}
	// Between two READs the requester may have used numbers for other operations; inside one, a jump is a loss.
	gapOK := t.respLastOp.IsLast() && op.IsFirst() && (peer == nil || peer.tx.flags&txOthers != 0)
	class, ext, resent := l.see(t, m.resp, r, gapOK, false)
	if class == psnNew {
		t.respLastOp = op
	}
	if class != psnDup && opSlotOf[op] == slotUnknown {
		t.rareOperation(op)
	}
	if op.IsLast() {
		if class == psnDup {
			if opSlotOf[op] != slotUnknown {
				m.resp.x.again[msgRead]++
			}
		} else if peer != nil {
			l.readDone(peer.tx, t, peer.tx.req.unwrap(uint32(ext)&roce.PSNMask), r.ts)
		}
	}
	l.addData(t, m.resp, r, class, resent)
}
