package sender

import (
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// Addr is the address and port of a receiver's RDCC endpoint.
type Addr = netip.AddrPort

func unmap(a Addr) Addr { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// Machine is the sender's side of all associations of a host. It is not safe for concurrent use.
type Machine struct {
	c   Config
	now time.Duration

	slots    []slot // associations by the number that message ids carry
	free     []int  // slots without an association
	byAddr   map[Addr]*assoc
	byHost   map[netip.Addr]*assoc // the first of a host's, the others chained: reports name hosts
	messages table
	unused   []*message // for reuse
	pacers   []*pacer   // for reuse
	timers   timers
	out      queue[item]
	events   queue[Event]

	backlog backlog
	count   Counters
	d       rdcc.Datagram
}

// slot outlives its association, so that message ids are never used again.
type slot struct {
	a      *assoc
	lastID uint64
}

const (
	slotBits = 24
	idBits   = 64 - slotBits
)

// New makes a machine with nothing in it.
func New(c Config) (*Machine, error) {
	c, err := c.resolve()
	if err != nil {
		return nil, err
	}
	x := &Machine{c: c, byAddr: map[Addr]*assoc{}, byHost: map[netip.Addr]*assoc{}}
	x.backlog.threshold, x.backlog.least = noThreshold, noThreshold
	x.backlog.rate = c.LineRate
	return x, nil
}

func (x *Machine) on(r rdcc.Rule) bool { return !x.c.off.Has(r) }

// Counters are what the machine has counted.
func (x *Machine) Counters() Counters { return x.count }

// Receive takes a datagram that arrived at the RDCC port. What is not for a sender is counted and ignored.
func (x *Machine) Receive(now time.Duration, from Addr, datagram []byte) {
	x.clock(now)
	x.due()
	x.receive(unmap(from), datagram)
	x.settle()
}

func (x *Machine) receive(from Addr, datagram []byte) {
	x.count.Datagrams++
	d := &x.d
	if d.Decode(datagram) != nil {
		x.count.Malformed++
		return
	}
	if d.Type == rdcc.TypeCongestionReport {
		x.report(from.Addr(), &d.CongestionReport)
		return
	}
	a := x.byAddr[from]
	if a == nil || a.state == assocWithout {
		x.count.Stranger++
		return
	}
	switch {
	case d.Type == rdcc.TypeAssocAccept:
		x.accept(a, &d.Header, &d.AssocAccept)
		return
	case d.Type == rdcc.TypeError && d.Error.Reason == rdcc.ReasonUnknownAssociation:
		x.unknown(a, d.Assoc)
		return
	case d.Type == rdcc.TypeError && d.Error.Reason == rdcc.ReasonAssocRefused:
		x.refused(a, d.Assoc)
		return
	}
	if !x.current(a, &d.Header) {
		return
	}
	switch d.Type {
	case rdcc.TypeCreditGrant:
		x.grant(a, d.Flags, &d.CreditGrant)
	case rdcc.TypeMsgDone:
		x.done(a, &d.MsgDone)
	case rdcc.TypeCancel:
		if m := x.find(a, d.Cancel.MessageID); m != nil {
			x.abort(m, d.Cancel.Reason)
		}
	case rdcc.TypeError:
		x.failed(a, &d.Error)
	default:
		x.count.NotForUs++
	}
}

// current says that a message is of the association as it now is, and newer than all before it (Common Header).
func (x *Machine) current(a *assoc, h *rdcc.Header) bool {
	if a.state != assocOpen || h.Assoc != a.id && x.on(rdcc.RuleAssocMatch) {
		x.count.WrongAssoc++
		return false
	}
	if h.Epoch != a.epoch && x.on(rdcc.RuleEpochMatch) {
		x.count.WrongEpoch++
		return false
	}
	if !rdcc.Newer(h.Seq, a.newest) && x.on(rdcc.RuleSequenceNewer) {
		x.count.Stale++
		return false
	}
	a.newest = h.Seq
	return true
}

// find is the message that a receiver names, if it is announced and not at its end.
func (x *Machine) find(a *assoc, id uint64) *message {
	if id == 0 || id >= 1<<idBits {
		x.count.Unexpected++
		return nil
	}
	m := x.messages.get(uint64(a.slot)<<idBits | id)
	if m == nil || !m.announced && x.on(rdcc.RuleAnnouncedOnly) {
		x.count.Unexpected++
		return nil
	}
	return m
}

// EventKind says what an Event is about.
type EventKind uint8

// Kinds of events.
const (
	EventAllowed   EventKind = 1 + iota // the message may transmit, or transmit more: ask Allowance
	EventStopped                        // the message must not transmit what it has not yet: a report, a pause, a lost association
	EventDone                           // the receiver has all of the message
	EventAborted                        // the message is over; Reason says why
	EventWithout                        // the receiver does not answer, or refuses: the transport sends the message without RDCC
	EventExhausted                      // the receiver is out of budget for a while; the request stands (ID 0: all of the receiver's)
	EventOpen                           // the association is established, or established again
)

// String is the event's name in logs.
func (k EventKind) String() string {
	return [...]string{"none", "allowed", "stopped", "done", "aborted", "without", "exhausted", "open"}[k]
}

// Event is something that the transport or the application should know.
type Event struct {
	Kind   EventKind
	ID     uint64 // of the message, zero when it is about the receiver
	To     Addr
	Reason rdcc.Reason // of EventAborted
	GaveUp bool        // of EventAborted: no progress for Timing.GiveUp
}

// Event takes the next event.
func (x *Machine) Event() (Event, bool) {
	e, ok := x.events.pop()
	if ok && e.Kind == EventAllowed {
		if m := x.messages.get(e.ID); m != nil {
			m.told = false
		}
	}
	return e, ok
}

// allowed tells the transport, once until it has taken the event.
func (x *Machine) allowed(m *message) {
	if !m.told {
		m.told = true
		x.events.push(Event{Kind: EventAllowed, ID: m.id, To: m.a.to})
	}
}

func (x *Machine) inRange(from netip.Addr) bool {
	for _, p := range x.c.CRNs {
		if p.Contains(from) {
			return true
		}
	}
	return false
}
