package analysis

import (
	"github.com/pcmlab/pcmlab/capture/roce"
)

// direction is one life of one direction of a QP: all packets from an address to a QP at another one. It may carry
// data (requests, or READ responses) and answers to the data of its peer direction (acknowledgements, NAKs, CNPs).
type direction struct {
	key        dirKey
	life       int  // 1 for the first
	replaced   bool // a later life began
	superseded bool // the peer began another life: the next packet out of range begins one here, too
	pair       *hostPair
	peer       *direction // the other direction of the same QP pair, once known
	confidence int        // acknowledgements that agreed with the peer
	searches   int        // for the peer, in vain
	candidates []candidate
	peerNote   string // how the peer was found, if not by acknowledgements

	service            roce.Transport
	serviceSeen        bool
	srcPort            uint16
	firstNS, lastNS    int64 // of any packet
	packets, ce        int64
	opcodes            [opSlots]int64
	requests           int64
	responses          int64
	psnFirst, psnLast  uint32
	req                psnTracker
	resp               *psnTracker // READ responses have the requester's numbers
	lastHighOp         roce.Opcode // of the highest request
	respLastOp         roce.Opcode
	firstOp            roce.Opcode // of the first request
	nonReadRequests    int64
	backward, gaps     int64
	lastReqPSN         uint32
	lastReqOp          roce.Opcode
	rethBytes, rethLen int64

	data dataCounts
	ops  Operations

	// Answers to the peer's data.
	acks          int64
	naks          NAKs
	cnps, ceAcks  int64
	lastAckPSN    uint32
	ackSeen       bool
	resendsNoAck  int64 // go-back-N restarts since the last progress; on the data side
	ackedTo       int64 // highest request acknowledged, unwrapped; on the data side
	pending       deque[pendingAck]
	messages      deque[message]
	rtt           *histogram
	toAck, toLast *histogram
	firstCNP      int64
	lastCNP       int64

	cells    []cell
	firstBin int
	segs     []segment
}

// dataCounts are over the data packets of a direction: requests other than READ requests, and READ responses.
type dataCounts struct {
	packets, payload, unique, wire int64
	ce, ect                        int64
	firstNS, lastNS                int64
	dscp                           uint64 // bit per DSCP
	merged                         int64
}

// pendingAck is a request that asked to be acknowledged.
type pendingAck struct {
	psn    int64
	atNS   int64
	resent bool // no round-trip time: nobody knows which copy is answered (Karn)
}

// message is one whose completion is awaited.
type message struct {
	first, last int64 // unwrapped PSNs; last is -1 until it was seen
	atNS        int64 // when its first packet was first seen
	lastNS      int64 // when its last packet was first seen
	read        bool
}

// cell is one bin of one direction.
type cell struct {
	unique                    int64
	packets, ce, cnps, resent uint32
}

// segment is one elementary interval between boundaries of phases.
type segment struct {
	unique, wire              int64
	packets, ce, cnps, resent int64
}

// Bounds on what is awaited per direction. Without any acknowledgement the tap probably does not see them.
const (
	waitBlind = 256
	waitAcks  = 4096
)

func (d *direction) waitLimit() int {
	if d.peer != nil || d.key.srcQP != 0 {
		return waitAcks
	}
	return waitBlind
}

// Opcode slots: RC 0..0x1f, UC 0x20..0x2b, UD, CNP, and the rest together.
const (
	slotUD      = 0x2c
	slotUDImm   = 0x2d
	slotCNP     = 0x2e
	slotUnknown = 0x2f
	opSlots     = 0x30
)

func opSlot(op roce.Opcode) int {
	switch {
	case op < slotUD:
		return int(op)
	case op == roce.UDSendOnly:
		return slotUD
	case op == roce.UDSendOnlyImm:
		return slotUDImm
	case op == roce.CNP:
		return slotCNP
	}
	return slotUnknown
}

func slotName(slot int) string {
	switch slot {
	case slotUD:
		return roce.UDSendOnly.String()
	case slotUDImm:
		return roce.UDSendOnlyImm.String()
	case slotCNP:
		return roce.CNP.String()
	case slotUnknown:
		return "other"
	}
	return roce.Opcode(slot).String()
}

// hostPair holds the directions from one address to another, for joining answers to data.
type hostPair struct {
	joined  bool
	reverse *hostPair
	dirs    []*direction
}

// answers reports that d carries answers to the other direction's data.
func (d *direction) answers() bool { return d.acks+d.cnps+d.naks.sum() > 0 || d.resp != nil }

// carriesData reports that d is a flow.
func (d *direction) carriesData() bool { return d.data.packets > 0 }

func (n *NAKs) sum() int64 {
	return n.Sequence + n.RNR + n.Invalid + n.Access + n.Remote + n.InvalidRequest + n.Other
}

func (n *NAKs) count(a roce.AETH) {
	if a.Kind() == roce.RNRNak {
		n.RNR++
		return
	}
	switch a.Code() {
	case roce.NakSequence:
		n.Sequence++
	case roce.NakInvalidRequest:
		n.Invalid++
	case roce.NakRemoteAccess:
		n.Access++
	case roce.NakRemoteOperational:
		n.Remote++
	case roce.NakInvalidRDRequest:
		n.InvalidRequest++
	default:
		n.Other++
	}
}

// awaitAck notes a new request that asked for an acknowledgement.
func (d *direction) awaitAck(ext, ts int64) {
	d.pending.push(pendingAck{psn: ext, atNS: ts}, d.waitLimit())
}

// markResent takes a repeated request out of the round-trip times.
func (d *direction) markResent(ext int64) {
	for i := d.pending.n - 1; i >= 0; i-- {
		p := d.pending.at(i)
		if p.psn == ext {
			p.resent = true
		}
		if p.psn <= ext {
			return
		}
	}
}

// isPending reports that ext asked for an acknowledgement and has none.
func (d *direction) isPending(ext int64) bool {
	lo, hi := 0, d.pending.n
	for lo < hi {
		if mid := (lo + hi) / 2; d.pending.at(mid).psn < ext {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo < d.pending.n && d.pending.at(lo).psn == ext
}

// begin notes the first packet of a message at ext.
func (d *direction) begin(ext, ts int64, read bool) {
	m := message{first: ext, last: -1, atNS: ts, read: read}
	i := d.messages.n
	for i > 0 && d.messages.at(i-1).first > ext {
		i--
	}
	if d.messages.n >= d.waitLimit() { // nobody acknowledges: the oldest is as complete as it gets
		d.outlast()
		i--
	}
	if i > 0 {
		before := d.messages.at(i - 1)
		if before.first == ext {
			return
		}
		if before.last >= ext { // that end is this message's: the one before lost its own
			m.last, m.lastNS, before.last = before.last, before.lastNS, -1
		}
	}
	d.messages.insert(max(i, 0), m, d.waitLimit())
}

// end notes the last packet of a message at ext, also when it is seen again: a message ends at the first end at or
// after its beginning, however late either is seen.
func (d *direction) end(ext, ts int64) {
	for i := d.messages.n - 1; i >= 0; i-- {
		m := d.messages.at(i)
		switch {
		case m.first > ext:
			continue
		case m.read:
		case m.last < 0 || ext < m.last:
			m.last, m.lastNS = ext, ts
		}
		return
	}
}

// outlast drops the oldest message that no acknowledgement completed and takes its time to its last packet.
func (d *direction) outlast() {
	if m := d.messages.at(0); !m.read && m.last >= 0 && m.lastNS >= m.atNS {
		add(&d.toLast, m.lastNS-m.atNS)
	}
	d.messages.pop()
}

func add(h **histogram, v int64) {
	if *h == nil {
		*h = new(histogram)
	}
	(*h).add(v)
}

// ackTo takes a cumulative acknowledgement of all requests up to ext. A sample of the round trip is taken only from a
// positive one.
func (d *direction) ackTo(ext, ts int64, positive bool) {
	if ext > d.ackedTo {
		d.ackedTo = ext
		d.resendsNoAck = 0
	}
	for d.pending.n > 0 {
		p := d.pending.at(0)
		if p.psn > ext {
			break
		}
		if positive && !p.resent {
			add(&d.rtt, ts-p.atNS)
		}
		d.pending.pop()
	}
	for d.messages.n > 0 {
		m := d.messages.at(0)
		if m.first > ext || m.last > ext {
			break
		}
		if m.last < 0 && (d.messages.n == 1 || d.messages.at(1).first > ext+1) {
			break // its end was not seen, and may lie beyond what is acknowledged
		}
		if !m.read && m.last >= 0 {
			add(&d.toAck, ts-m.atNS)
		}
		d.messages.pop()
	}
}

// readDone takes the last READ response, at ext, seen on r for the request that d sent.
func (d *direction) readDone(r *direction, ext, ts int64) {
	for d.messages.n > 0 {
		m := d.messages.at(0)
		if m.first > ext {
			return
		}
		last := d.messages.n == 1 || d.messages.at(1).first > ext
		if last && m.read {
			add(&r.toAck, ts-m.atNS)
		}
		d.messages.pop()
		if last {
			return
		}
	}
}
