package receiver

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// Receiver is the machine. Make one with New.
type Receiver struct {
	cfg Config
	now time.Duration // never goes back
	d   rdcc.Datagram // the one that is being processed

	assocs  []association
	spare   []int32 // free places in assocs
	live    int     // associations
	byID    map[uint32]int32
	byNonce map[binding]int32
	peers   peers

	messages []message
	unused   []int32 // free places in messages
	pending  int     // messages
	index    index
	opaque   int // keys of opaque bindings in it
	qps      []queuePair
	unusedQP []int32
	early    earlyData

	scheduled   int64 // charged to G_s
	unscheduled int64 // charged to G_u
	sumU        int64 // what associations may send unscheduled (share of each)
	liveRate    int64 // Mbit/s that senders may be sending at, under all grants that are alive
	capacity    int64 // of the access link in payload, Mbit/s
	rmin        int64 // R_min, Mbit/s
	active      int   // associations that wait for credit or have some
	leaving     fifo  // associations that have nothing to send, in the order in which they will leave
	squeezed    int   // of them, that have less than an equal share, since others have more
	line        fifo  // those that wait until others send slower, first come

	ready   readyHeap
	virtual [rdcc.MaxClass + 1]uint64 // start tag of what was served last, by class
	parked  bool                      // scheduling stopped at a full output queue

	params  params
	breaker breaker

	messageTimers, assocTimers wheel

	out    outQueue
	events eventQueue

	// Counters say what happened; the caller may read them between calls.
	Counters Counters
}

// New checks the configuration and returns a receiver without associations.
func New(c Config) (*Receiver, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	if err := c.drawEpoch(); err != nil {
		return nil, err
	}
	r := &Receiver{
		cfg: c, byID: map[uint32]int32{}, byNonce: map[binding]int32{},
		capacity: c.Fabric.Capacity() / 1e6,
		rmin:     max(c.CreditUnit*8*int64(time.Second)/int64(c.Fabric.BaseRTT)/1e6, 1),
	}
	var seed [8]byte
	if _, err := io.ReadFull(c.Random, seed[:]); err != nil {
		return nil, fmt.Errorf("rdcc receiver: draw a seed: %w", err)
	}
	r.index.init(binary.BigEndian.Uint64(seed[:]))
	r.rmin = min(r.rmin, r.capacity)
	r.peers.init()
	r.out.init(c.OutQueue)
	r.early.init(c.MaxUnattributed)
	r.params.init(&r.cfg)
	r.breaker.init(&r.cfg)
	return r, nil
}

// Epoch is this incarnation's.
func (r *Receiver) Epoch() uint16 { return r.cfg.Epoch }

func (r *Receiver) on(x rdcc.Rule) bool { return !r.cfg.off.Has(x) }

func (r *Receiver) clock(now time.Duration) {
	r.now = max(r.now, now)
	r.leave()
}

// Receive processes one datagram of the RDCC port.
func (r *Receiver) Receive(now time.Duration, from netip.AddrPort, datagram []byte) {
	r.clock(now)
	r.Counters.Received++
	if err := r.d.Decode(datagram); err != nil {
		r.undecodable(from, err)
		return
	}
	d := &r.d
	r.Counters.ReceivedByType[d.Type]++
	switch d.Type {
	case rdcc.TypeAssocRequest:
		r.assocRequest(from, d.Seq, d.Flags, &d.AssocRequest)
	case rdcc.TypeCongestionReport:
		r.report(from, &d.CongestionReport)
	case rdcc.TypeCreditRequest, rdcc.TypeSenderStatus, rdcc.TypeCreditReturn, rdcc.TypeCancel, rdcc.TypeError:
		r.ofAssociation(from)
	default: // what receivers send: not for us
		r.Counters.Misdirected++
		return
	}
	r.step()
}

// ofAssociation processes a message of an association: of a known one, from its address, newer than all before.
func (r *Receiver) ofAssociation(from netip.AddrPort) {
	d := &r.d
	i, ok := r.byID[d.Assoc]
	if ok && d.Epoch != r.cfg.Epoch && r.on(rdcc.RuleEpochRecognized) {
		ok = false
	}
	if !ok {
		r.Counters.UnknownAssociation++
		// Only a request is answered (Error Handling and Recovery), and the answer is half as long.
		if d.Type == rdcc.TypeCreditRequest && r.on(rdcc.RuleUnknownAssociation) {
			r.sendUnbound(from, d.Assoc, rdcc.Error{Reason: rdcc.ReasonUnknownAssociation})
		}
		return
	}
	a := &r.assocs[i]
	if a.addr != from && r.on(rdcc.RuleBoundAddress) {
		r.Counters.WrongAddress++
		return
	}
	if !rdcc.Newer(d.Seq, a.newest) && r.on(rdcc.RuleSequence) {
		r.Counters.Stale++
		return
	}
	a.newest = d.Seq
	r.heard(i)
	switch d.Type {
	case rdcc.TypeCreditRequest:
		r.creditRequest(i, &d.CreditRequest)
	case rdcc.TypeSenderStatus:
		r.senderStatus(i, &d.SenderStatus)
	case rdcc.TypeCreditReturn:
		r.creditReturn(i, &d.CreditReturn)
	case rdcc.TypeCancel:
		r.senderCancel(i, &d.Cancel)
	case rdcc.TypeError:
		r.Counters.SenderErrors++
	}
}

// undecodable counts what must be discarded. An unknown type alone may be answered, and only to whom the association is
// bound (Error Handling and Recovery).
func (r *Receiver) undecodable(from netip.AddrPort, err error) {
	code, _ := err.(rdcc.DecodeError)
	r.Counters.Undecodable[code]++
	if code != rdcc.ErrType {
		return
	}
	i, ok := r.byID[r.d.Assoc]
	if !ok || r.d.Epoch != r.cfg.Epoch || r.assocs[i].addr != from {
		if !r.on(rdcc.RuleUnknownTypeUnbound) {
			r.sendUnbound(from, r.d.Assoc, rdcc.Error{Reason: rdcc.ReasonUnsupportedType})
		}
		return
	}
	if r.on(rdcc.RuleUnknownTypeAnswer) {
		r.sendError(&r.assocs[i], rdcc.Error{Reason: rdcc.ReasonUnsupportedType})
	}
}

// Advance runs what is due.
func (r *Receiver) Advance(now time.Duration) {
	r.clock(now)
	for i := r.messageTimers.advance(r.now); i >= 0; i = r.messageTimers.advance(r.now) {
		r.messageDue(i)
	}
	for i := r.assocTimers.advance(r.now); i >= 0; i = r.assocTimers.advance(r.now) {
		r.assocDue(i)
	}
	r.breakerDue()
	r.walk(walkOnAdvance)
	r.step()
}

// step is what follows each event: a few associations' parameters, then credit for who waits.
func (r *Receiver) step() {
	r.walk(walkOnEvent)
	r.schedule()
}

// Deadline is when Advance is to be called, at the latest; false while nothing is pending. It may have passed.
func (r *Receiver) Deadline() (at time.Duration, ok bool) {
	if r.parked && r.out.roomy() || r.params.walking && r.out.roomy() {
		return r.now, true
	}
	at, ok = r.messageTimers.next()
	if t, some := r.assocTimers.next(); some && (!ok || t < at) {
		at, ok = t, true
	}
	if t, some := r.breaker.next(); some && (!ok || t < at) {
		at, ok = t, true
	}
	return at, ok
}
