package analysis

import (
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/rdcc"
)

// RDCC is the credit control that the captures show on a UDP port.
type RDCC struct {
	UDPPort   uint16           `json:"udp_port"`
	Datagrams int64            `json:"datagrams"`           // to and from the port, copies left out
	Copies    int64            `json:"copies_removed"`      // same addresses, association, epoch, type and sequence number
	Malformed int64            `json:"malformed_datagrams"` // that receivers must discard
	Truncated int64            `json:"truncated_datagrams"` // cut when they were captured: counted, not read
	Types     map[string]int64 `json:"types"`               // datagrams by type, without malformed and truncated ones

	Associations []RDCCAssociation `json:"associations"`
	Reports      []RDCCReport      `json:"reports"` // of on-path nodes, by flow
	Notes        []string          `json:"notes"`
}

// RDCCAssociation is what a sender and a receiver said to each other.
type RDCCAssociation struct {
	ID       *string          `json:"id"`     // as the receiver gave it; null: the request was not answered
	Sender   string           `json:"sender"` // address and port
	Receiver string           `json:"receiver"`
	Epochs   []int            `json:"epochs"`
	Types    map[string]int64 `json:"types"`

	// The octets are null when there were too many messages to remember.
	Requests         *int64   `json:"requests"`          // messages that were announced
	RequestedBytes   *int64   `json:"requested_bytes"`   // their lengths
	UnscheduledBytes *int64   `json:"unscheduled_bytes"` // sent before there was credit, as announced
	GrantedBytes     *int64   `json:"granted_bytes"`     // the highest Grant Limit of each message, and of the pool
	DoneMessages     *int64   `json:"done_messages"`
	DoneBytes        *int64   `json:"done_bytes"`
	FirstNS          int64    `json:"first_ns"`
	LastNS           int64    `json:"last_ns"`
	Flows            []string `json:"flows"` // data between the two addresses, by id
}

// Name is what long form calls the association.
func (a *RDCCAssociation) Name() string {
	id := "none"
	if a.ID != nil {
		id = *a.ID
	}
	return a.Sender + ">" + a.Receiver + "#" + id
}

// RDCCReport counts CONGESTION_REPORTs of one node about one flow in one direction.
type RDCCReport struct {
	Reporter  string `json:"reporter"`
	Direction string `json:"direction"` // receiver or sender: who was told
	Flow      string `json:"flow"`      // the data packets' addresses and ports
	Reports   int64  `json:"reports"`
	MaxDegree int    `json:"max_degree"` // 0 to 255
	MaxBytes  int64  `json:"max_queue_bytes"`
	FirstNS   int64  `json:"first_ns"`
	LastNS    int64  `json:"last_ns"`
}

// Bounds of what a capture can make us remember. Beyond, a number is null or a list is empty, and a note says so; which it
// is does not depend on how many goroutines read.
const (
	maxRDCCKeys     = 1 << 16
	maxRDCCPages    = 1 << 18 // of 64 sequence numbers
	maxRDCCMessages = 1 << 18
)

// rdccKey tells sequences of datagrams apart in which a sequence number comes once.
type rdccKey struct {
	from, to  netip.AddrPort
	assoc     uint32
	epoch     uint16
	typ       rdcc.Type
	nonce     uint64 // of ASSOC_REQUEST and ASSOC_ACCEPT
	flow      [2]netip.AddrPort
	direction rdcc.Direction // this and flow are of reports
}

// rdccCount is what came with one key. All of it can be added up in any order.
type rdccCount struct {
	datagrams   int64
	seqs        map[uint32]uint64 // a bit for each sequence number
	messages    map[uint64]rdccOctets
	first, last int64
	degree      int
	queue       int64
}

// rdccOctets are the largest numbers of a message: length and unscheduled octets, limit, or octets received.
type rdccOctets struct{ a, b uint64 }

// rdccBook is what one goroutine has read of RDCC.
type rdccBook struct {
	port                 uint16
	udp                  capture.UDP
	d                    rdcc.Datagram
	malformed, truncated int64
	counts               map[rdccKey]*rdccCount
	pages, messages      int
	keysFull             bool
}

func newRDCCBook(port uint16) *rdccBook {
	return &rdccBook{port: port, counts: map[rdccKey]*rdccCount{}}
}

// take looks at a packet that is not RoCE.
func (b *rdccBook) take(k *capture.Packet) error {
	ok, err := b.udp.Decode(k)
	if err != nil || !ok {
		return err
	}
	f := b.udp.Frame()
	if f.SrcPort != b.port && f.DstPort != b.port {
		return nil
	}
	if len(b.udp.Payload) < b.udp.Len {
		b.truncated++
		return nil
	}
	if b.d.Decode(b.udp.Payload) != nil {
		b.malformed++
		return nil
	}
	key := rdccKey{from: netip.AddrPortFrom(f.SrcAddr(), f.SrcPort), to: netip.AddrPortFrom(f.DstAddr(), f.DstPort),
		assoc: b.d.Assoc, epoch: b.d.Epoch, typ: b.d.Type}
	switch d := &b.d; d.Type {
	case rdcc.TypeAssocRequest:
		key.nonce = d.AssocRequest.SenderNonce
	case rdcc.TypeAssocAccept:
		key.nonce = d.AssocAccept.SenderNonce
	case rdcc.TypeCongestionReport:
		r := &d.CongestionReport
		key.nonce, key.direction = uint64(r.ReporterID), r.Direction
		key.flow = [2]netip.AddrPort{netip.AddrPortFrom(r.Source, r.SourcePort), netip.AddrPortFrom(r.Destination, r.DestinationPort)}
	}
	c := b.counts[key]
	if c == nil {
		if len(b.counts) >= maxRDCCKeys {
			b.keysFull = true
			return nil
		}
		c = &rdccCount{seqs: map[uint32]uint64{}, messages: map[uint64]rdccOctets{}, first: k.TimeNS, last: k.TimeNS}
		b.counts[key] = c
	}
	c.datagrams++
	c.first, c.last = min(c.first, k.TimeNS), max(c.last, k.TimeNS)
	page := b.d.Seq >> 6
	if _, known := c.seqs[page]; known || b.pages <= maxRDCCPages {
		if !known {
			b.pages++
		}
		c.seqs[page] |= 1 << (b.d.Seq & 63)
	}
	switch d := &b.d; d.Type {
	case rdcc.TypeCreditRequest:
		b.message(c, d.CreditRequest.MessageID, rdccOctets{d.CreditRequest.MessageLength, d.CreditRequest.UnscheduledSent})
	case rdcc.TypeCreditGrant:
		b.message(c, d.CreditGrant.MessageID, rdccOctets{a: d.CreditGrant.GrantLimit})
	case rdcc.TypeMsgDone:
		b.message(c, d.MsgDone.MessageID, rdccOctets{a: d.MsgDone.OctetsReceived})
	case rdcc.TypeCongestionReport:
		c.degree, c.queue = max(c.degree, int(d.CongestionReport.CongestionDegree)), max(c.queue, int64(d.CongestionReport.QueueDepth))
	}
	return nil
}

func (b *rdccBook) message(c *rdccCount, id uint64, o rdccOctets) {
	old, known := c.messages[id]
	if !known {
		if b.messages > maxRDCCMessages {
			return
		}
		b.messages++
	}
	c.messages[id] = rdccOctets{max(old.a, o.a), max(old.b, o.b)}
}

// add takes another book's counts over.
func (b *rdccBook) add(o *rdccBook) {
	b.malformed += o.malformed
	b.truncated += o.truncated
	b.keysFull = b.keysFull || o.keysFull
	for key, from := range o.counts {
		c := b.counts[key]
		if c == nil {
			b.counts[key] = from
			b.pages += len(from.seqs)
			b.messages += len(from.messages)
			continue
		}
		c.datagrams += from.datagrams
		c.first, c.last = min(c.first, from.first), max(c.last, from.last)
		c.degree, c.queue = max(c.degree, from.degree), max(c.queue, from.queue)
		for page, set := range from.seqs {
			if _, known := c.seqs[page]; !known {
				b.pages++
			}
			c.seqs[page] |= set
		}
		for id, v := range from.messages {
			old, known := c.messages[id]
			if !known {
				b.messages++
			}
			c.messages[id] = rdccOctets{max(old.a, v.a), max(old.b, v.b)}
		}
	}
}

// once is how many datagrams came without their copies; unknown when not all sequence numbers were remembered.
func (c *rdccCount) once(all bool) int64 {
	if !all {
		return c.datagrams
	}
	n := 0
	for _, set := range c.seqs {
		n += bits.OnesCount64(set)
	}
	return int64(n)
}

// rdccPair is an association: who sends, who receives, and its number or, while it has none, the nonce.
type rdccPair struct {
	sender, receiver netip.AddrPort
	assoc            uint32
	nonce            uint64
}

func (p rdccPair) compare(o rdccPair) int {
	return cmp.Or(p.sender.Compare(o.sender), p.receiver.Compare(o.receiver), cmp.Compare(p.assoc, o.assoc), cmp.Compare(p.nonce, o.nonce))
}

// rdccSum is an association while it is added up.
type rdccSum struct {
	rdccPair
	epochs                  map[int]bool
	types                   map[string]int64
	requests, grants, dones map[uint64]rdccOctets
	first, last             int64
}

// document makes what the books say. The flows are known by then.
func (b *rdccBook) document(flows []Flow) *RDCC {
	doc := &RDCC{UDPPort: b.port, Malformed: b.malformed, Truncated: b.truncated, Types: map[string]int64{},
		Datagrams: b.malformed + b.truncated, Associations: []RDCCAssociation{}, Reports: []RDCCReport{}, Notes: []string{}}
	if b.keysFull || len(b.counts) > maxRDCCKeys {
		doc.Notes = append(doc.Notes, fmt.Sprintf("more than %d associations and epochs: not RDCC on this port, or a flood; nothing is said of them", maxRDCCKeys))
		return doc
	}
	unique := b.pages <= maxRDCCPages
	if !unique {
		doc.Notes = append(doc.Notes, "too many sequence numbers to remember: copies are counted, too")
	}
	whole := b.messages <= maxRDCCMessages
	if !whole {
		doc.Notes = append(doc.Notes, fmt.Sprintf("more than %d messages: their octets are not added up", maxRDCCMessages))
	}
	sums := b.sums(doc, unique)
	for _, s := range sums {
		doc.Associations = append(doc.Associations, s.document(flows, whole))
	}
	slices.SortFunc(doc.Reports, func(a, b RDCCReport) int {
		return cmp.Or(cmp.Compare(a.Reporter, b.Reporter), cmp.Compare(a.Flow, b.Flow), cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.FirstNS, b.FirstNS))
	})
	return doc
}

// sums adds the counts up by association, and puts reports and totals into doc.
func (b *rdccBook) sums(doc *RDCC, unique bool) []*rdccSum {
	numbers := map[rdccPair]uint32{} // what a request's nonce was answered with
	known := map[rdccPair]bool{}
	for key := range b.counts {
		switch key.typ {
		case rdcc.TypeAssocAccept:
			numbers[rdccPair{key.to, key.from, 0, key.nonce}] = key.assoc
			known[rdccPair{key.to, key.from, key.assoc, 0}] = true
		case rdcc.TypeCreditRequest, rdcc.TypeSenderStatus, rdcc.TypeCreditReturn:
			known[rdccPair{key.from, key.to, key.assoc, 0}] = true
		case rdcc.TypeCreditGrant, rdcc.TypeMsgDone:
			known[rdccPair{key.to, key.from, key.assoc, 0}] = true
		}
	}
	sums := map[rdccPair]*rdccSum{}
	for key, c := range b.counts {
		n := c.once(unique)
		doc.Datagrams += n
		doc.Copies += c.datagrams - n
		doc.Types[key.typ.String()] += n
		if key.typ == rdcc.TypeCongestionReport {
			doc.Reports = append(doc.Reports, key.report(c, n))
			continue
		}
		pair := key.pair(known, numbers)
		s := sums[pair]
		if s == nil {
			s = &rdccSum{rdccPair: pair, epochs: map[int]bool{}, types: map[string]int64{}, first: c.first, last: c.last,
				requests: map[uint64]rdccOctets{}, grants: map[uint64]rdccOctets{}, dones: map[uint64]rdccOctets{}}
			sums[pair] = s
		}
		s.first, s.last = min(s.first, c.first), max(s.last, c.last)
		s.types[key.typ.String()] += n
		if key.assoc != 0 {
			s.epochs[int(key.epoch)] = true
		}
		into := map[rdcc.Type]map[uint64]rdccOctets{rdcc.TypeCreditRequest: s.requests, rdcc.TypeCreditGrant: s.grants, rdcc.TypeMsgDone: s.dones}[key.typ]
		for id, v := range c.messages {
			old := into[id]
			into[id] = rdccOctets{max(old.a, v.a), max(old.b, v.b)}
		}
	}
	all := make([]*rdccSum, 0, len(sums))
	for _, s := range sums {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *rdccSum) int { return a.compare(b.rdccPair) })
	return all
}

// pair says whose a datagram is. CANCEL and ERROR go both ways: what else the association carried tells which this was.
func (key *rdccKey) pair(known map[rdccPair]bool, numbers map[rdccPair]uint32) rdccPair {
	there, back := rdccPair{key.from, key.to, key.assoc, 0}, rdccPair{key.to, key.from, key.assoc, 0}
	switch key.typ {
	case rdcc.TypeAssocRequest:
		there.assoc = numbers[rdccPair{key.from, key.to, 0, key.nonce}]
		if there.assoc == 0 {
			there.nonce = key.nonce
		}
		return there
	case rdcc.TypeAssocAccept, rdcc.TypeCreditGrant, rdcc.TypeMsgDone:
		return back
	case rdcc.TypeError:
		if known[there] && !known[back] {
			return there
		}
		return back
	case rdcc.TypeCancel:
		if known[back] && !known[there] {
			return back
		}
	}
	return there
}

func (key *rdccKey) report(c *rdccCount, n int64) RDCCReport {
	to := map[rdcc.Direction]string{rdcc.ToReceiver: "receiver", rdcc.ToSender: "sender"}[key.direction]
	if to == "" {
		to = key.direction.String()
	}
	return RDCCReport{Reporter: fmt.Sprintf("0x%08x", key.nonce), Direction: to, Flow: key.flow[0].String() + ">" + key.flow[1].String(), Reports: n,
		MaxDegree: c.degree, MaxBytes: c.queue, FirstNS: c.first, LastNS: c.last}
}

func (s *rdccSum) document(flows []Flow, whole bool) RDCCAssociation {
	a := RDCCAssociation{Sender: s.sender.String(), Receiver: s.receiver.String(), Epochs: []int{}, Types: s.types, FirstNS: s.first, LastNS: s.last, Flows: []string{}}
	if s.assoc != 0 {
		id := fmt.Sprintf("0x%08x", s.assoc)
		a.ID = &id
	}
	for e := range s.epochs {
		a.Epochs = append(a.Epochs, e)
	}
	slices.Sort(a.Epochs)
	if whole {
		number := func(n int) *int64 { v := int64(n); return &v }
		sum := func(m map[uint64]rdccOctets, of func(rdccOctets) uint64) *int64 {
			var n uint64
			for _, v := range m {
				n = min(n+min(of(v), 1<<62), 1<<62) // whoever lies cannot make it negative
			}
			v := int64(n)
			return &v
		}
		first := func(o rdccOctets) uint64 { return o.a }
		a.Requests, a.RequestedBytes, a.UnscheduledBytes = number(len(s.requests)), sum(s.requests, first), sum(s.requests, func(o rdccOctets) uint64 { return o.b })
		a.GrantedBytes = sum(s.grants, first)
		a.DoneMessages, a.DoneBytes = number(len(s.dones)), sum(s.dones, first)
	}
	src, dst := s.sender.Addr().String(), s.receiver.Addr().String()
	for i := range flows {
		if flows[i].Src == src && flows[i].Dst == dst {
			a.Flows = append(a.Flows, flows[i].ID)
		}
	}
	return a
}
