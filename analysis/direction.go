package analysis

import (
	"slices"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// direction is one life of one direction of a QP: all packets from an address to a QP at another one. It may carry
// data (requests, or READ responses) and answers to the data of its peer direction (acknowledgements, NAKs, CNPs). What it
// needs for either is there from the first such packet on: there may be a million of them.
type direction struct {
	tx   *sender  // nil: no request and no READ response yet
	rx   *answers // nil: no answer yet
	peer *direction
	more *moreCounts // of packets beyond the first few; nil without

	packets           int64
	id                pairID
	dstQP, srcQP      uint32 // srcQP: of datagrams, plus 1
	psnFirst, psnLast uint32
	life              int32  // 1 for the first
	older             uint32 // one more than the index of the direction before between the same addresses; 0: none
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

// manyCounts are counts modulo 2^32; what is more is in moreCounts.beyond.
type manyCounts struct {
	opcodes [opSlots]uint32
	ecn     [4]uint32
}

// moreCounts are counts of three kinds of packets, of which most directions with answers have no more, and of all others.
type moreCounts struct {
	n      [3]int64
	kind   [3]uint8 // opcode slot and ECN, as in direction.few
	many   *manyCounts
	beyond *counts
}

func (c *moreCounts) add(kind uint8) {
	if c.many != nil {
		c.addMany(kind&0x3f, kind>>6)
		return
	}
	for i := range c.n {
		if c.n[i] == 0 {
			c.kind[i] = kind
		}
		if c.kind[i] == kind {
			c.n[i]++
			return
		}
	}
	c.many = new(manyCounts)
	c.addMany(kind&0x3f, kind>>6)
}

func (c *moreCounts) addMany(slot, ecn uint8) {
	m := c.many
	m.opcodes[slot]++
	m.ecn[ecn]++
	if m.opcodes[slot] == 0 || m.ecn[ecn] == 0 {
		c.wrap(slot, ecn)
	}
}

func (c *moreCounts) wrap(slot, ecn uint8) {
	if c.beyond == nil {
		c.beyond = new(counts)
	}
	if c.many.opcodes[slot] == 0 {
		c.beyond.opcodes[slot] += 1 << 32
	}
	if c.many.ecn[ecn] == 0 {
		c.beyond.ecn[ecn] += 1 << 32
	}
}

// count does what is the same for every packet.
func (d *direction) count(r *record) {
	slot := opSlotOf[r.op()]
	if n := d.packets; n < fewPackets {
		d.few[n] = slot | r.tos<<6
	} else {
		if d.more == nil {
			d.more = new(moreCounts)
		}
		d.more.add(slot | r.tos<<6)
	}
	if d.flags&dirServiceSeen == 0 && slot != slotCNP {
		d.flags |= dirServiceSeen
		d.service, d.srcPort = r.op().Transport(), r.srcPort
	}
	d.packets++
	d.psnLast = r.psn24()
}

// counted are the counts of the direction.
func (d *direction) counted() (c counts) {
	add := func(kind uint8, n int64) {
		c.opcodes[kind&0x3f] += n
		c.ecn[kind>>6] += n
	}
	for _, v := range d.few[:min(d.packets, fewPackets)] {
		add(v, 1)
	}
	if d.more == nil {
		return c
	}
	for i, n := range d.more.n {
		add(d.more.kind[i], n)
	}
	m := d.more.many
	if m == nil {
		return c
	}
	for i, n := range m.opcodes {
		c.opcodes[i] += int64(n)
	}
	for i, n := range m.ecn {
		c.ecn[i] += int64(n)
	}
	if b := d.more.beyond; b != nil {
		for i, n := range b.opcodes {
			c.opcodes[i] += n
		}
		for i, n := range b.ecn {
			c.ecn[i] += n
		}
	}
	return c
}

// sender is what a direction that carries data needs.
type sender struct {
	req     psnTracker
	data    dataCounts
	ackedTo int64 // highest request acknowledged, unwrapped
	window  rateWindow
	samples flowSamples

	pending  *deque[pendingAck] // nil: none
	messages *deque[message]    // nil: none
	more     *senderMore        // nil: nothing of it

	burst        int64 // bytes of the burst that goes on
	rethBytes    int64
	outstanding  int32 // the most PSNs that were not acknowledged
	resendsNoAck int32 // go-back-N restarts since the last progress
	bin, piece   int32 // of the last data packet; piece: of a phase, -1 outside
	lastReqOp    roce.Opcode
	lastHighOp   roce.Opcode // of the highest request
	respLastOp   roce.Opcode
	firstOp      roce.Opcode // of the first request
	flags        txFlags
	note         joinNote
	dscp         uint8 // of the first data packet
	ids          ipIDs
}

// senderMore is what most flows of a few packets do not need.
type senderMore struct {
	bins   tallies     // per bin, once there are several
	pieces tallies     // per piece of a phase, likewise
	resp   *psnTracker // READ responses have the requester's numbers
	react  *reaction
	ceAtNS int64 // first CE mark since the last CNP
	rare   *senderRare
}

// senderRare is what few flows of any length need.
type senderRare struct {
	operations Operations // those with opcodes that are not counted one by one: XRC, RD
	tags       dataTags   // zero: no VLAN, and one DSCP
}

func (t *sender) needMore() *senderMore {
	if t.more == nil {
		t.more = new(senderMore)
	}
	return t.more
}

func (t *sender) needRare() *senderRare {
	m := t.needMore()
	if m.rare == nil {
		m.rare = new(senderRare)
	}
	return m.rare
}

// tags are those of the data; nil: no VLAN, and one DSCP.
func (t *sender) tags() *dataTags {
	if t.more == nil || t.more.rare == nil || t.more.rare.tags.dscp == 0 {
		return nil
	}
	return &t.more.rare.tags
}

func (t *sender) resp() *psnTracker {
	if t.more == nil {
		return nil
	}
	return t.more.resp
}

func (t *sender) reaction() *reaction {
	if t.more == nil {
		return nil
	}
	return t.more.react
}

type txFlags uint8

const (
	txRequests txFlags = 1 << iota
	txReads            // READ requests among them
	txOthers           // others among them
	txAtomics
	txMarked // CE marks that no CNP has answered
)

// dataCounts are over the data packets of a direction: requests other than READ requests, and READ responses.
type dataCounts struct {
	packets, payload, wire int64
	ce, ect                int64
	firstNS, lastNS        int64
}

// dataTags are the DSCPs and VLANs of a flow that has several or any.
type dataTags struct {
	dscp  uint64 // bit per DSCP
	pcp   uint8  // bit per priority
	vlans []uint16
}

// answers is what a direction that answers its peer's data needs.
type answers struct {
	more       *answersMore // nil: nothing of it
	acks       int64        // positive plain ones
	lastAckPSN uint32
	searches   int32 // for the peer, in vain
	confidence int16 // acknowledgements that agreed with the peer
	ackSeen    bool
	responses  bool // READ responses among them
}

// answersMore is what a direction with nothing but acknowledgements does not need.
type answersMore struct {
	candidates *[]candidate
	naks       *NAKs
	cnps       *cnpCounts
}

func (a *answers) needMore() *answersMore {
	if a.more == nil {
		a.more = new(answersMore)
	}
	return a.more
}

// naks are those that d sent; nil without.
func (d *direction) naks() *NAKs {
	if d == nil || d.rx == nil || d.rx.more == nil {
		return nil
	}
	return d.rx.more.naks
}

// cnps are those that d carried; nil without.
func (d *direction) cnps() *cnpCounts {
	if d == nil || d.rx == nil || d.rx.more == nil {
		return nil
	}
	return d.rx.more.cnps
}

// cnpCounts are about the CNPs of a direction.
type cnpCounts struct {
	n      int64
	lastNS int64
	gaps   *histogram
	bins   tallies
	pieces tallies
}

// mark notes the DSCP and VLAN tag of a packet that are not those of the flow's first.
func (t *sender) mark(r *record) {
	g := &t.needRare().tags
	g.dscp |= 1<<t.dscp | 1<<(r.tos>>2)
	if !r.has(flagVLAN) {
		return
	}
	g.pcp |= 1 << (r.vlan >> 13)
	const most = 16
	if vid := r.vlan & 0xfff; len(g.vlans) < most && !slices.Contains(g.vlans, vid) {
		g.vlans = append(g.vlans, vid)
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

// directions yields those from one address to another, the last first.
func (l *lane) directions(id pairID) func(yield func(*direction) bool) {
	return func(yield func(*direction) bool) {
		for i := l.shared.intern.pair(id).newest[id&1]; i != 0; {
			d := l.all.at(i - 1)
			if !yield(d) {
				return
			}
			i = d.older
		}
	}
}

// sends reports that d carried requests.
func (d *direction) sends() bool { return d.tx != nil && d.tx.req.started }

// answers reports that d carries answers to the other direction's data.
func (d *direction) answers() bool {
	return d.rx != nil && (d.rx.acks > 0 || d.cnps() != nil || d.naks() != nil || d.rx.responses)
}

// answered counts what d says about its peer's data.
func (d *direction) answered() (acks, cnps int64, naks NAKs) {
	a := d.rx
	if a == nil {
		return 0, 0, naks
	}
	if n := d.naks(); n != nil {
		naks = *n
	}
	if c := d.cnps(); c != nil {
		cnps = c.n
	}
	return a.acks, cnps, naks
}

// carriesData reports that d is a flow.
func (d *direction) carriesData() bool { return d.tx != nil && d.tx.data.packets > 0 }

// unique is the payload of the flow without what this tap saw again.
func (t *sender) unique() int64 {
	return t.data.payload - t.req.disorderOf().repeatedBytes - t.resp().disorderOf().repeatedBytes
}

// operations are the messages whose last packet was seen.
func (d *direction) operations() (o Operations) {
	if m := d.tx.more; m != nil && m.rare != nil {
		o = m.rare.operations
	}
	c := d.counted()
	for slot, n := range c.opcodes {
		o.add(slotOpcode(slot), n)
	}
	again := d.tx.req.disorderOf().again
	o.Write -= again[msgWrite]
	o.Send -= again[msgSend]
	o.Atomic -= again[msgAtomic]
	o.Read -= d.tx.resp().disorderOf().again[msgRead]
	return o
}

// add counts n packets that end a message of their kind.
func (o *Operations) add(op roce.Opcode, n int64) {
	switch {
	case op.IsReadResponse() && op.IsLast():
		o.Read += n
	case !countedOps[op]:
	case op.IsAtomic():
		o.Atomic += n
	case op.IsWrite():
		o.Write += n
	case op.IsSend():
		o.Send += n
	}
}

// countedOps are the requests that end a message of an operation.
var countedOps = func() (t [256]bool) {
	for i := range t {
		op := roce.Opcode(i)
		t[i] = op.IsRequest() && (op.IsAtomic() || op.IsLast() && (op.IsWrite() || op.IsSend()))
	}
	return t
}()

// rareOperation counts a packet, seen for the first time, whose opcode has no counter.
func (t *sender) rareOperation(op roce.Opcode) {
	t.needRare().operations.add(op, 1)
}

func (d *direction) ackSeen() bool { return d.rx != nil && d.rx.ackSeen }

func (d *direction) confidence() int {
	if d.rx == nil {
		return 0
	}
	return int(d.rx.confidence)
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
