package analysis

import (
	"math"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// engine follows all directions of the judged captures. Packets go in by time, one by one; nothing is kept of them.
type engine struct {
	o      Options
	dirs   table[direction]
	pairs  map[addrPair]*hostPair
	all    []*direction // every life, in order of appearance
	totals Totals
	slots  [256]int64 // opcodes
	merged int64

	bins     binClock
	segments segmentClock
	dedup    *dedup

	icrcChecked, icrcBad int64
	started              bool
	firstNS, lastNS      int64
}

type addrPair struct{ srcHi, srcLo, dstHi, dstLo uint64 }

func newEngine(o Options) *engine {
	e := &engine{o: o, pairs: map[addrPair]*hostPair{}}
	e.bins.width = int64(o.Bin)
	e.bins.budget = o.MaxCells
	e.segments = newSegmentClock(o)
	if o.DedupWindow > 0 {
		e.dedup = newDedup(int64(o.DedupWindow))
	}
	return e
}

// frame takes one packet captured at ts on an interface; data is its captured bytes.
func (e *engine) frame(ts int64, f *roce.Frame, data []byte, iface int) {
	var k dirKey
	var hash uint64
	if f.Kind == roce.KindRoCE {
		k = keyOf(f)
		hash = k.hash()
		if e.dedup != nil && e.dedup.copyOf(ts, f, hash, iface) {
			return
		}
	}
	t := &e.totals
	t.Packets++
	switch f.Kind {
	case roce.KindRoCE:
	case roce.KindTruncated:
		t.TruncatedRoCE++
		return
	case roce.KindPFC, roce.KindPause:
		t.PFCPauseFrames++
		return
	default:
		return
	}
	if e.o.CheckICRC {
		if ok, checked := f.CheckICRC(data); checked {
			e.icrcChecked++
			if !ok {
				e.icrcBad++ // counted, and analysed as it is: the receiver drops it
			}
		}
	}
	if !e.started {
		e.started = true
		e.firstNS = ts
		e.bins.start(ts)
	}
	e.lastNS = max(e.lastNS, ts)
	t.RoCEPackets++
	e.slots[f.BTH.Opcode]++
	switch f.TOS & 3 {
	case roce.NotECT:
		t.ECN.NotECT++
	case roce.ECT1:
		t.ECN.ECT1++
	case roce.ECT0:
		t.ECN.ECT0++
	case roce.CE:
		t.ECN.CE++
		if op := f.BTH.Opcode; op.IsAck() || isAtomicAck(op) {
			t.CEAckPackets++
		} else {
			t.CEDataPackets++
		}
	}
	if f.IsMAD() {
		t.MADPackets++
	}
	e.bins.tick(ts)
	e.segments.tick(ts)

	d := e.lookup(ts, f, &k, hash)
	d.count(ts, f)
	op := f.BTH.Opcode
	switch {
	case op == roce.CNP:
		e.cnp(d, ts)
	case op.IsRequest():
		e.request(d, ts, f)
	case op.IsResponse():
		e.response(d, ts, f)
	}
}

// isAtomicAck: IsAtomic holds for requests, too.
func isAtomicAck(op roce.Opcode) bool { return op.IsAtomic() && op.IsResponse() }

// lookup finds the current life of f's direction, or begins one.
func (e *engine) lookup(ts int64, f *roce.Frame, k *dirKey, hash uint64) *direction {
	s := e.dirs.find(k, hash)
	d := s.v
	if d != nil && !d.otherLife(f) {
		return d
	}
	n := &direction{key: *k, life: 1, firstNS: ts, lastNS: ts, psnFirst: f.BTH.PSN, srcPort: f.SrcPort, ackedTo: math.MinInt64}
	n.service = f.BTH.Opcode.Transport()
	if d != nil {
		n.life = d.life + 1
		d.replaced = true
		n.pair = d.pair
		if d.peer != nil {
			d.peer.superseded = true
		}
		s.v = n
	} else {
		n.pair = e.pairOf(k)
		e.dirs.put(s, k, n)
	}
	e.all = append(e.all, n)
	n.pair.dirs = append(n.pair.dirs, n)
	return n
}

func (e *engine) pairOf(k *dirKey) *hostPair {
	a := addrPair{k.srcHi, k.srcLo, k.dstHi, k.dstLo}
	p := e.pairs[a]
	if p == nil {
		p = &hostPair{}
		b := addrPair{k.dstHi, k.dstLo, k.srcHi, k.srcLo}
		if a == b {
			p.reverse = p // loopback: both directions are one
		} else {
			p.reverse = &hostPair{reverse: p}
			e.pairs[b] = p.reverse
		}
		e.pairs[a] = p
	}
	return p
}

// otherLife reports that f cannot belong to d's life of the QP: its PSN is farther from the others than any window or
// loss reaches. It need not begin a message, since that packet may have been lost.
func (d *direction) otherLife(f *roce.Frame) bool {
	op := f.BTH.Opcode
	switch {
	case f.BTH.DestQP == 1: // management datagrams have no life
		return false
	case op.IsRequest():
		if !d.req.started {
			return d.superseded && d.ackSeen
		}
		step := d.req.distance(f.BTH.PSN)
		return step > maxStep || step < -maxStep
	case op == roce.CNP:
		return d.superseded
	case op.IsResponse():
		if !d.ackSeen {
			return d.superseded && d.req.started
		}
		step := roce.PSNDiff(f.BTH.PSN, d.lastAckPSN)
		return step > maxStep || step < -maxStep
	}
	return false
}

// count does what is the same for every packet.
func (d *direction) count(ts int64, f *roce.Frame) {
	d.packets++
	d.lastNS = max(d.lastNS, ts)
	d.opcodes[opSlot(f.BTH.Opcode)]++
	d.psnLast = f.BTH.PSN
	if f.TOS&3 == roce.CE {
		d.ce++
	}
	if f.HasRETH {
		d.rethLen++
		d.rethBytes += int64(f.RETH.DMALen)
	}
	if !d.serviceSeen && f.BTH.Opcode != roce.CNP {
		d.serviceSeen = true
		d.service = f.BTH.Opcode.Transport()
		d.srcPort = f.SrcPort
	}
}

// addData counts a data packet, of which unique bytes were new and resent packets were recognised as retransmissions.
func (e *engine) addData(d *direction, ts int64, f *roce.Frame, unique, resent int64) {
	c := &d.data
	if c.packets == 0 {
		c.firstNS = ts
	}
	c.packets++
	c.lastNS = max(c.lastNS, ts)
	payload := int64(f.PayloadLen)
	c.payload += payload
	c.unique += unique
	c.wire += int64(f.WireLen)
	c.dscp |= 1 << (f.TOS >> 2)
	e.totals.PayloadBytes += payload
	e.totals.UniqueBytes += unique
	if f.PayloadLen > 4096 { // the largest path MTU of RoCE
		e.merged++
	}
	var ce uint32
	switch f.TOS & 3 {
	case roce.CE:
		ce = 1
		c.ce++
	case roce.ECT0, roce.ECT1:
		c.ect++
	}
	if b := e.cell(d); b != nil {
		b.unique += unique
		b.packets++
		b.ce += ce
		b.resent += uint32(resent)
	}
	if s := e.segment(d); s != nil {
		s.unique += unique
		s.wire += int64(f.WireLen)
		s.packets++
		s.ce += int64(ce)
		s.resent += resent
	}
}

func (e *engine) cnp(d *direction, ts int64) {
	e.totals.CNPPackets++
	if d.cnps == 0 {
		d.firstCNP = ts
	}
	d.cnps++
	d.lastCNP = ts
	if b := e.cell(d); b != nil {
		b.cnps++
	}
	if s := e.segment(d); s != nil {
		s.cnps++
	}
}

// request takes a packet from requester to responder.
func (e *engine) request(d *direction, ts int64, f *roce.Frame) {
	op, psn := f.BTH.Opcode, f.BTH.PSN
	read := op.IsReadRequest()
	if d.requests == 0 {
		d.firstOp = op
	} else {
		switch step := roce.PSNDiff(psn, d.lastReqPSN); {
		case step <= 0:
			d.backward++
		case step > 1 && !read && !d.lastReqOp.IsReadRequest():
			d.gaps++
		}
	}
	d.lastReqPSN, d.lastReqOp = psn, op
	d.requests++
	if !read {
		d.nonReadRequests++
	}

	pos := d.req.pos
	class, ext, resent := d.req.see(psn, int64(f.PayloadLen), d.lastHighOp.IsReadRequest())
	switch class {
	case psnNew:
		d.lastHighOp = op
		if f.BTH.AckReq && op.Transport() == roce.RC {
			d.awaitAck(ext, ts)
		}
	case psnFill:
		if ext == d.req.first { // the first packet came late, or was sent again
			d.firstOp = op
		}
	case psnDup:
		d.markResent(ext)
		if ext <= pos {
			d.resendsNoAck++
		}
		if op.IsLast() {
			d.end(ext, ts)
		}
	}
	var unique int64
	if class != psnDup {
		unique = int64(f.PayloadLen)
		e.messageEdges(d, ts, op, ext, read)
	}
	if !read {
		e.addData(d, ts, f, unique, resent)
	}
}

// messageEdges follows where messages begin and end; the packet is seen for the first time.
func (e *engine) messageEdges(d *direction, ts int64, op roce.Opcode, ext int64, read bool) {
	switch {
	case read:
		d.begin(ext, ts, true)
		return
	case op.IsAtomic():
		d.begin(ext, ts, false)
		d.end(ext, ts)
		d.ops.Atomic++
		return
	}
	if op.IsFirst() {
		d.begin(ext, ts, false)
	}
	if op.IsLast() {
		d.end(ext, ts)
		switch {
		case op.IsWrite():
			d.ops.Write++
		case op.IsSend():
			d.ops.Send++
		}
	}
}

// response takes a packet from responder to requester.
func (e *engine) response(d *direction, ts int64, f *roce.Frame) {
	op, psn := f.BTH.Opcode, f.BTH.PSN
	d.responses++
	positive := true
	if f.HasAETH {
		switch f.AETH.Kind() {
		case roce.RNRNak:
			d.naks.count(f.AETH)
			e.totals.RNRNAKPackets++
			positive = false
		case roce.Nak:
			d.naks.count(f.AETH)
			e.totals.NAKPackets++
			positive = false
		case roce.Ack:
			if op.IsAck() {
				d.acks++
				e.totals.AckPackets++
			}
		}
	}
	d.lastAckPSN, d.ackSeen = psn, true

	read := op.IsReadResponse()
	peer := e.answered(d, psn, op, positive)
	if peer != nil {
		ext := peer.req.unwrap(psn)
		switch {
		case read:
			if op.IsFirst() {
				e.readBegins(d, peer, ext, ts)
			}
		case positive:
			peer.ackTo(ext, ts, true)
		default: // a NAK acknowledges what comes before its PSN (IBTA vol 1, 9.7.5.2.2)
			peer.ackTo(ext-1, ts, false)
		}
	}
	if read {
		e.readResponse(d, peer, ts, f)
	}
}

// readBegins takes the first response to a READ request of peer.
func (e *engine) readBegins(d, peer *direction, ext, ts int64) {
	peer.ackTo(ext-1, ts, false)
	if peer.pending.n > 0 {
		if p := peer.pending.at(0); p.psn == ext {
			if !p.resent {
				add(&d.rtt, ts-p.atNS)
			}
			peer.pending.pop()
		}
	}
}

// readResponse takes a packet that carries what was read.
func (e *engine) readResponse(d, peer *direction, ts int64, f *roce.Frame) {
	op := f.BTH.Opcode
	if d.resp == nil {
		d.resp = new(psnTracker)
	}
	// Between two READs the requester may have used numbers for other operations; inside one, a jump is a loss.
	gapOK := d.respLastOp.IsLast() && op.IsFirst() && (peer == nil || peer.nonReadRequests > 0)
	class, ext, resent := d.resp.see(f.BTH.PSN, int64(f.PayloadLen), gapOK)
	if class == psnNew {
		d.respLastOp = op
	}
	var unique int64
	if class != psnDup {
		unique = int64(f.PayloadLen)
		if op.IsLast() {
			d.ops.Read++
			if peer != nil {
				peer.readDone(d, peer.req.unwrap(uint32(ext)&roce.PSNMask), ts)
			}
		}
	}
	e.addData(d, ts, f, unique, resent)
}
