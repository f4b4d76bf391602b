package analysis

import (
	"slices"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// direction is one life of one direction of a QP: all packets from an address to a QP at another one. It may carry
// data (requests, or READ responses) and answers to the data of its peer direction (acknowledgements, NAKs, CNPs). What it
// needs for either is there from the first such packet on: there may be a million of them.
type direction struct {
	pair *hostPair
	tx   *sender  // nil: no request and no READ response yet
	rx   *answers // nil: no answer yet
	peer *direction
	more *counts // nil while there are few packets

	firstNS, lastNS int64
	packets         int64
	bins            tallies // per bin
	pieces          tallies // per piece of a phase

	id                pairID
	dstQP, srcQP      uint32 // srcQP: of datagrams, plus 1
	psnFirst, psnLast uint32
	life              int32 // 1 for the first
	cmPeerQP          uint32
	srcPort           uint16
	flags             dirFlags
	service           roce.Transport
	few               [fewPackets]uint8 // opcode slot and ECN of the first packets
}

type dirFlags uint8

const (
	dirReplaced   dirFlags = 1 << iota // a later life began
	dirSuperseded                      // the peer began another life: the next packet out of range begins one here, too
	dirExpected                        // a handshake announced another life
	dirServiceSeen
	dirByCM // a handshake named its peer's QP
)

func (d *direction) is(f dirFlags) bool { return d.flags&f != 0 }

// fewPackets are logged one by one before a direction gets counters.
const fewPackets = 15

// counts are per opcode and ECN codepoint.
type counts struct {
	opcodes [opSlots]int64
	ecn     [4]int64
}

// count does what is the same for every packet.
func (d *direction) count(r *record) {
	slot := opSlotOf[r.op()]
	if n := d.packets; n < fewPackets {
		d.few[n] = slot | r.tos<<6
	} else {
		if d.more == nil {
			d.more = d.counted()
		}
		d.more.opcodes[slot]++
		d.more.ecn[r.tos&3]++
	}
	if d.flags&dirServiceSeen == 0 && slot != slotCNP {
		d.flags |= dirServiceSeen
		d.service, d.srcPort = r.op().Transport(), r.srcPort
	}
	d.packets++
	d.lastNS = max(d.lastNS, r.ts)
	d.psnLast = r.psn24()
}

// counted are the counts of the direction.
func (d *direction) counted() *counts {
	if d.more != nil {
		return d.more
	}
	c := new(counts)
	for _, v := range d.few[:d.packets] {
		c.opcodes[v&0x3f]++
		c.ecn[v>>6]++
	}
	return c
}

// sender is what a direction that carries data needs.
type sender struct {
	req  psnTracker
	data dataCounts

	ackedTo     int64 // highest request acknowledged, unwrapped
	outstanding int64 // the most PSNs that were not acknowledged
	pending     deque[pendingAck]
	messages    deque[message]
	times       *flowTimes
	resp        *psnTracker // READ responses have the requester's numbers
	ops         Operations
	window      rateWindow
	react       *reaction
	ceAtNS      int64 // first CE mark since the last CNP
	burst       int64 // bytes of the burst that goes on

	rethBytes, rethLen    int64
	nonRead               int64 // requests other than READs
	backward, gaps        int64
	lastReqPSN            uint32
	resendsNoAck          int32 // go-back-N restarts since the last progress
	lastReqOp             roce.Opcode
	lastHighOp            roce.Opcode // of the highest request
	respLastOp            roce.Opcode
	firstOp               roce.Opcode // of the first request
	requestSeen, readSeen bool
	ceWaiting             bool
	note                  string // how the peer was found, if not by acknowledgements
	ids                   ipIDs
}

// flowTimes are the distributions of a flow.
type flowTimes struct {
	rtt, cnpDelay, bursts *histogram
	acked                 [msgKinds]*histogram // messages until they were acknowledged or, for READs, answered
	last                  [msgKinds]*histogram // messages until their last packet, where no acknowledgements are seen
}

func (t *sender) hist() *flowTimes {
	if t.times == nil {
		t.times = new(flowTimes)
	}
	return t.times
}

// messages are the times of messages by kind, and until what they are.
func (t *flowTimes) messages() (byKind *[msgKinds]*histogram, until string) {
	if t.acked == ([msgKinds]*histogram{}) {
		return &t.last, "last_packet"
	}
	return &t.acked, "ack"
}

// sum is all of them together; nil without any.
func sum(parts []*histogram) (all *histogram) {
	for _, h := range parts {
		switch {
		case h == nil:
		case all == nil:
			all = h
		default:
			both := new(histogram)
			both.merge(all)
			both.merge(h)
			all = both
		}
	}
	return all
}

// answers is what a direction that answers its peer's data needs.
type answers struct {
	candidates []candidate
	acks, cnps int64
	firstCNP   int64
	lastCNP    int64
	naks       *NAKs
	gaps       *histogram // between CNPs
	lastAckPSN uint32
	confidence int32 // acknowledgements that agreed with the peer
	searches   int32 // for the peer, in vain
	ackSeen    bool
	responses  bool // READ responses among them
}

// dataCounts are over the data packets of a direction: requests other than READ requests, and READ responses.
type dataCounts struct {
	packets, payload, unique, wire int64
	ce, ect                        int64
	firstNS, lastNS                int64
	dscp                           uint64 // bit per DSCP
	pcp                            uint8  // bit per priority
	tagged                         bool
	vlan                           uint16   // the first VLAN ID
	vlans                          []uint16 // the others
}

func (c *dataCounts) otherVLAN(vid uint16) {
	const most = 16
	if len(c.vlans) < most && !slices.Contains(c.vlans, vid) {
		c.vlans = append(c.vlans, vid)
	}
}

// ipIDs tells from the IP identification which of two packets was sent first, where the sender counts it up.
type ipIDs struct {
	last      uint16 // of the highest packet
	steps, up uint8
	valid     bool
}

// next takes the identification of a packet in order.
func (i *ipIDs) next(id uint16) {
	if i.valid && i.steps < 255 {
		i.steps++
		if step := id - i.last; step > 0 && step <= 1024 {
			i.up++
		}
	}
	i.last, i.valid = id, true
}

// order says whether a packet with this id was sent after the highest one, or not; both false: it cannot be told.
func (i *ipIDs) order(id uint16) (newer, older bool) {
	if i.steps < 8 || int(i.up)*10 < int(i.steps)*9 {
		return false, false
	}
	newer = int16(id-i.last) > 0
	return newer, !newer
}

// Opcode slots: RC 0..0x1f, UC 0x20..0x2b, UD, CNP, and the rest together.
const (
	slotUD      = 0x2c
	slotUDImm   = 0x2d
	slotCNP     = 0x2e
	slotUnknown = 0x2f
	opSlots     = 0x30
)

var opSlotOf = func() (t [256]uint8) {
	for i := range t {
		switch op := roce.Opcode(i); {
		case op < slotUD:
			t[i] = uint8(op)
		case op == roce.UDSendOnly:
			t[i] = slotUD
		case op == roce.UDSendOnlyImm:
			t[i] = slotUDImm
		case op == roce.CNP:
			t[i] = slotCNP
		default:
			t[i] = slotUnknown
		}
	}
	return t
}()

func slotName(slot int) string {
	if slot == slotUnknown {
		return "other"
	}
	return slotOpcode(slot).String()
}

// slotOpcode is an opcode of the slot.
func slotOpcode(slot int) roce.Opcode {
	switch slot {
	case slotUD:
		return roce.UDSendOnly
	case slotUDImm:
		return roce.UDSendOnlyImm
	case slotCNP:
		return roce.CNP
	case slotUnknown:
		return 0xff
	}
	return roce.Opcode(slot)
}

// reverse are the directions the other way between the same addresses.
func (d *direction) reverse() []*direction {
	if d.pair.a == d.pair.b { // loopback
		return d.pair.dirs[0]
	}
	return d.pair.dirs[d.id&1^1]
}

// siblings are all directions the same way between the same addresses, d itself too.
func (d *direction) siblings() []*direction { return d.pair.dirs[d.id&1] }

// sends reports that d carried requests.
func (d *direction) sends() bool { return d.tx != nil && d.tx.req.started }

// answers reports that d carries answers to the other direction's data.
func (d *direction) answers() bool {
	return d.rx != nil && (d.rx.acks+d.rx.cnps+d.rx.naks.sum() > 0 || d.rx.responses)
}

// carriesData reports that d is a flow.
func (d *direction) carriesData() bool { return d.tx != nil && d.tx.data.packets > 0 }

func (d *direction) ackSeen() bool { return d.rx != nil && d.rx.ackSeen }

func (d *direction) confidence() int32 {
	if d.rx == nil {
		return 0
	}
	return d.rx.confidence
}

func (n *NAKs) sum() int64 {
	if n == nil {
		return 0
	}
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
