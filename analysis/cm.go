package analysis

import "github.com/pcmlab/pcmlab/capture/roce"

// cmTable follows the handshakes of RDMA-CM between the pairs of a lane. A handshake says which two QPs belong together,
// where their PSNs start, and that whatever these QP numbers did before is over.
type cmTable struct {
	byID  map[cmID]*handshake
	all   []*handshake
	peers map[cmQP]cmPeer
	named map[*direction]uint32 // the QP that a handshake named as the direction's sender
}

// cmID names a handshake: who asked whom, and the asker's communication identifier.
type cmID struct {
	pair pairID
	id   uint32
}

// cmQP is the receiving end of a direction.
type cmQP struct {
	pair pairID
	qp   uint32
}

type cmPeer struct {
	qp    uint32 // of the direction back
	fresh bool   // its next direction is the announced one
}

type handshake struct {
	id                 cmID
	replyID            uint32
	srcQP, dstQP       *uint32
	srcPSN, dstPSN     *uint32
	state              string
	reject             *uint16
	requestNS, readyNS *int64
	disconnectNS       *int64
}

// States of a connection.
const (
	ConnRequested    = "requested"
	ConnReplied      = "replied"
	ConnEstablished  = "established"
	ConnRejected     = "rejected"
	ConnDisconnected = "disconnected"
)

// maxHandshakes bounds what is remembered of one lane's connections.
const maxHandshakes = 1 << 14

// handshake takes a message of communication management.
func (l *lane) handshake(r *record) {
	m := l.shared.sides.take(r.word).cm
	l.shared.cmPackets.Add(1)
	t := &l.cm
	pair := r.pair
	back := l.shared.intern.back(pair)
	switch m.Kind {
	case roce.CMRequest:
		h := t.of(cmID{pair, m.LocalID}, true)
		if h == nil || h.requestNS != nil && h.state != ConnDisconnected && h.state != ConnRejected {
			return // sent again
		}
		if h.requestNS != nil { // the identifier begins another life
			h = t.renew(h.id)
		}
		h.state = ConnRequested
		h.requestNS = ptr(r.ts)
		h.srcQP, h.srcPSN = ptr(m.QPN), ptr(m.PSN)
	case roce.CMReply:
		h := t.of(cmID{back, m.RemoteID}, true)
		if h == nil || h.dstQP != nil {
			return
		}
		h.replyID = m.LocalID
		h.dstQP, h.dstPSN = ptr(m.QPN), ptr(m.PSN)
		if h.state == "" || h.state == ConnRequested {
			h.state = ConnReplied
		}
		if h.srcQP != nil {
			l.announce(h, back, pair)
		}
	case roce.CMReadyToUse:
		if h := t.of(cmID{pair, m.LocalID}, false); h != nil && h.readyNS == nil {
			h.state = ConnEstablished
			h.readyNS = ptr(r.ts)
		}
	case roce.CMReject:
		h := t.of(cmID{back, m.RemoteID}, false)
		if h == nil {
			h = t.of(cmID{pair, m.LocalID}, false)
		}
		if h != nil && h.reject == nil {
			h.state = ConnRejected
			h.reject = ptr(m.RejectReason)
		}
	case roce.CMDisconnectRequest, roce.CMDisconnectReply:
		h := t.of(cmID{pair, m.LocalID}, false)
		if h == nil {
			h = t.of(cmID{back, m.RemoteID}, false)
		}
		if h != nil && h.disconnectNS == nil {
			h.state = ConnDisconnected
			h.disconnectNS = ptr(r.ts)
		}
	}
}

// of finds a handshake, or makes it; nil when it is unknown or there are too many.
func (t *cmTable) of(id cmID, make_ bool) *handshake {
	if h := t.byID[id]; h != nil || !make_ {
		return h
	}
	return t.renew(id)
}

func (t *cmTable) renew(id cmID) *handshake {
	if len(t.all) >= maxHandshakes {
		return nil
	}
	if t.byID == nil {
		t.byID, t.peers, t.named = map[cmID]*handshake{}, map[cmQP]cmPeer{}, map[*direction]uint32{}
	}
	h := &handshake{id: id}
	t.byID[id] = h
	t.all = append(t.all, h)
	return h
}

// announce says that the two QPs of a handshake begin another life, and belong together.
func (l *lane) announce(h *handshake, forth, backward pairID) {
	for _, e := range []struct {
		pair     pairID
		qp, peer uint32
	}{{forth, *h.dstQP, *h.srcQP}, {backward, *h.srcQP, *h.dstQP}} {
		l.cm.peers[cmQP{e.pair, e.qp}] = cmPeer{e.peer, true}
		if _, d := l.dirs.find(&l.all, e.pair, e.qp, 0); d != nil {
			d.flags |= dirExpected
		}
	}
}

// meet joins a new direction with its peer where a handshake named the two.
func (l *lane) meet(d *direction) {
	t := &l.cm
	p, ok := t.peers[cmQP{d.id, d.dstQP}]
	if !ok || !p.fresh || d.srcQP != 0 {
		return
	}
	d.flags |= dirByCM
	t.named[d] = p.qp
	t.peers[cmQP{d.id, d.dstQP}] = cmPeer{p.qp, false}
	for o := range l.directions(l.shared.intern.back(d.id)) {
		if o != d && o.is(dirByCM) && o.dstQP == p.qp && t.named[o] == d.dstQP && o.peer == nil && !o.is(dirReplaced) {
			d.peer, o.peer = o, d
			return
		}
	}
}

// connections lists the handshakes.
func (l *lane) connections() (out []Connection) {
	for _, h := range l.cm.all {
		c := Connection{Src: l.shared.intern.addr(l.shared.intern.src(h.id.pair)).String(), Dst: l.shared.intern.addr(l.shared.intern.dst(h.id.pair)).String(),
			SrcQP: h.srcQP, DstQP: h.dstQP, SrcPSN: h.srcPSN, DstPSN: h.dstPSN, State: h.state, RejectReason: h.reject,
			RequestNS: h.requestNS, DisconnectNS: h.disconnectNS}
		if h.requestNS != nil && h.readyNS != nil {
			c.SetupNS = ptr(*h.readyNS - *h.requestNS)
		}
		out = append(out, c)
	}
	return out
}
