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
			l.handshake(d, r)
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
	s := l.dirs.find(r.pair, qp, srcQP)
	var d *direction
	if s.index != 0 {
		d = l.all.at(int(s.index - 1))
		if !d.otherLife(r, qp) {
			return d
		}
	}
	return l.newLife(r, s, d, qp, srcQP)
}

func (l *lane) newLife(r *record, s *slot, before *direction, qp, srcQP uint32) *direction {
	n, index := l.all.add()
	*n = direction{id: r.pair, dstQP: qp, srcQP: srcQP, life: 1, firstNS: r.ts, lastNS: r.ts, psnFirst: r.psn24(), srcPort: r.srcPort}
	n.pair = l.shared.intern.pair(r.pair)
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
		s.index = uint32(index + 1)
	} else {
		l.dirs.put(s, r.pair, qp, srcQP, uint32(index))
	}
	side := r.pair & 1
	n.pair.dirs[side] = append(n.pair.dirs[side], n)
	l.cm.meet(n)
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
			step < -64 && t.ackedTo == t.req.next-1 && int64(-step) > t.outstanding+64
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
	return !p.covers(psn) || p.tx.ackedTo == p.tx.req.next-1 && psn != d.rx.lastAckPSN
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

// bin is d's tally of the current bin.
func (l *lane) bin(d *direction) *tally {
	s, cur := d.bins, l.bins.cur
	if n := len(s); n > 0 {
		if s[n-1].index == cur {
			return &s[n-1]
		}
		l.cells += max(int(cur-s[n-1].index), int(s[0].index-cur), 0)
	}
	return d.bins.at(cur)
}

// widen makes the bins 2^halved times as wide as they were asked for.
func (l *lane) widen(halved int32) {
	for ; l.halved < halved; l.halved++ {
		l.bins.double()
		l.cells = 0
		for i := range l.all.n {
			d := l.all.at(i)
			if d.bins.halve(); len(d.bins) > 0 {
				l.cells += int(d.bins[len(d.bins)-1].index - d.bins[0].index)
			}
		}
	}
}

// piece is d's tally of the current piece of the phases; nil outside of them.
func (l *lane) piece(d *direction) *tally {
	if l.pieces.cur < 0 {
		return nil
	}
	return d.pieces.at(l.pieces.cur)
}

// addData counts a data packet, of which unique bytes were new and resent packets were recognised as retransmissions.
func (l *lane) addData(d *direction, t *sender, r *record, unique, resent int64) {
	c := &t.data
	ts, wire := r.ts, int64(r.wire)
	if c.packets == 0 {
		c.firstNS = ts
	} else if ts-c.lastNS > l.burstGap {
		add(&t.hist().bursts, t.burst)
		t.burst = 0
	}
	t.burst += wire
	c.packets++
	c.lastNS = max(c.lastNS, ts)
	payload := int64(r.payload)
	c.payload += payload
	c.unique += unique
	c.wire += wire
	c.dscp |= 1 << (r.tos >> 2)
	if r.psn&flagVLAN != 0 {
		c.tag(r.vlan)
	}
	if payload > 4096 { // the largest path MTU of RoCE
		l.offloadMerged++
	}
	var ce uint32
	switch r.tos & 3 {
	case roce.CE:
		ce = 1
		c.ce++
		if !t.ceWaiting {
			t.ceWaiting, t.ceAtNS = true, ts
		}
	case roce.ECT0, roce.ECT1:
		c.ect++
	}
	t.window.add(t.react, int64(l.windows.cur), int(wire))
	b := l.bin(d)
	b.unique += unique
	b.wire += wire
	b.packets++
	b.ce += ce
	b.resent += uint32(resent)
	if s := l.piece(d); s != nil {
		s.unique += unique
		s.wire += wire
		s.packets++
		s.ce += ce
		s.resent += uint32(resent)
	}
}

// tag notes a VLAN tag.
func (c *dataCounts) tag(tci uint16) {
	c.pcp |= 1 << (tci >> 13)
	vid := tci & 0xfff
	switch {
	case !c.tagged:
		c.tagged, c.vlan = true, vid
	case vid != c.vlan:
		c.otherVLAN(vid)
	}
}

func (l *lane) cnp(d *direction, ts int64) {
	a := l.answers(d)
	if a.cnps == 0 {
		a.firstCNP = ts
	} else {
		add(&a.gaps, ts-a.lastCNP)
	}
	a.cnps++
	a.lastCNP = ts
	if p := d.peer; p != nil && p.tx != nil {
		t := p.tx
		if t.ceWaiting {
			add(&t.hist().cnpDelay, ts-t.ceAtNS)
			t.ceWaiting = false
		}
		if t.react == nil {
			t.react = newReaction(l.windows.origin, l.windows.width)
		}
		t.react.cnp(&t.window, ts, int64(l.windows.cur))
	}
	l.bin(d).cnps++
	if s := l.piece(d); s != nil {
		s.cnps++
	}
}

// request takes a packet from requester to responder.
func (l *lane) request(d *direction, r *record) {
	t := l.sender(d)
	op, psn := r.op(), r.psn24()
	read := op.IsReadRequest()
	if !t.requestSeen {
		t.requestSeen = true
		t.firstOp = op
	} else {
		switch step := roce.PSNDiff(psn, t.lastReqPSN); {
		case step <= 0:
			t.backward++
		case step > 1 && !read && !t.lastReqOp.IsReadRequest():
			t.gaps++
		}
	}
	afterRead := t.lastReqOp.IsReadRequest() && t.requestSeen
	t.lastReqPSN, t.lastReqOp = psn, op
	if r.has(flagRETH) {
		t.rethLen++
		t.rethBytes += int64(r.word)
	}
	if read {
		t.readSeen = true
	} else {
		t.nonRead++
	}

	pos := t.req.pos
	class, ext, resent := l.see(t, &t.req, r, t.lastHighOp.IsReadRequest(), afterRead)
	switch class {
	case psnNew:
		t.lastHighOp = op
		t.outstanding = max(t.outstanding, ext-max(t.ackedTo, t.req.first-1))
		if r.has(flagAckReq) && op.Transport() == roce.RC {
			t.pending.push(pendingAck{psn: ext, atNS: r.ts}, d.waitLimit(), &l.pending)
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
		if op.IsLast() {
			l.ends(d, ext, r.ts)
		}
	}
	var unique int64
	if class != psnDup {
		unique = int64(r.payload)
		l.messageEdges(d, t, r.ts, op, ext)
	}
	if !read {
		l.addData(d, t, r, unique, resent)
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
	switch {
	case op.IsReadRequest():
		l.begin(d, ext, ts, msgRead)
		return
	case op.IsAtomic():
		l.begin(d, ext, ts, msgAtomic)
		l.ends(d, ext, ts)
		t.ops.Atomic++
		return
	}
	if op.IsFirst() {
		l.begin(d, ext, ts, kindOf(op))
	}
	if op.IsLast() {
		l.ends(d, ext, ts)
		switch {
		case op.IsWrite():
			t.ops.Write++
		case op.IsSend():
			t.ops.Send++
		}
	}
}

// response takes a packet from responder to requester.
func (l *lane) response(d *direction, r *record) {
	a := l.answers(d)
	op, psn := r.op(), r.psn24()
	trigger := ""
	var aeth roce.AETH
	if r.has(flagAETH) {
		switch aeth = r.aethOf(); aeth.Kind() {
		case roce.RNRNak:
			trigger = TriggerRNR
		case roce.Nak:
			trigger = TriggerNAK
		case roce.Ack:
			if op.IsAck() {
				a.acks++
			}
		}
		if trigger != "" {
			if a.naks == nil {
				a.naks = new(NAKs)
			}
			a.naks.count(aeth)
		}
	}
	a.lastAckPSN, a.ackSeen = psn, true

	read := op.IsReadResponse()
	peer := l.answered(d, psn, op, trigger == "")
	if peer != nil {
		t := peer.tx
		ext := t.req.unwrap(psn)
		switch {
		case read:
			if op.IsFirst() {
				l.readBegins(l.sender(d), t, ext, r.ts)
			}
		case trigger == "":
			l.ackTo(t, ext, r.ts, true)
		default: // a NAK acknowledges what comes before its PSN (IBTA vol 1, 9.7.5.2.2)
			l.ackTo(t, ext-1, r.ts, false)
			l.refused(t, ext, r.ts, trigger, aeth)
		}
	}
	if read {
		a.responses = true
		l.readResponse(d, peer, r)
	}
}

// refused notes a NAK that names ext.
func (l *lane) refused(t *sender, ext, ts int64, trigger string, aeth roce.AETH) {
	if t.req.x == nil {
		t.req.x = &disorder{lateNS: l.lateNS}
	}
	t.req.x.refuse(ts, ext, trigger)
	if trigger == TriggerRNR {
		t.req.x.rnrWaitNS += int64(aeth.RNRTimer())
	}
}

// readBegins takes the first response to a READ request of t, carried by d.
func (l *lane) readBegins(d, t *sender, ext, ts int64) {
	l.ackTo(t, ext-1, ts, false)
	if t.pending.len() > 0 {
		if p := t.pending.at(0); p.ext() == ext {
			if !p.resent() {
				add(&d.hist().rtt, ts-p.atNS)
			}
			t.pending.pop()
			t.pending.release(&l.pending)
		}
	}
}

// readResponse takes a packet that carries what was read.
func (l *lane) readResponse(d, peer *direction, r *record) {
	t := l.sender(d)
	op := r.op()
	if t.resp == nil {
		t.resp = new(psnTracker)
	}
	// Between two READs the requester may have used numbers for other operations; inside one, a jump is a loss.
	gapOK := t.respLastOp.IsLast() && op.IsFirst() && (peer == nil || peer.tx.nonRead > 0)
	class, ext, resent := l.see(t, t.resp, r, gapOK, false)
	if class == psnNew {
		t.respLastOp = op
	}
	var unique int64
	if class != psnDup {
		unique = int64(r.payload)
		if op.IsLast() {
			t.ops.Read++
			if peer != nil {
				l.readDone(peer.tx, t, peer.tx.req.unwrap(uint32(ext)&roce.PSNMask), r.ts)
			}
		}
	}
	l.addData(d, t, r, unique, resent)
}
