package receiver

import (
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// EventKind says what an Event is about.
type EventKind uint8

// Kinds of events.
const (
	AssociationMade EventKind = 1 + iota
	AssociationGone
	MessageAnnounced // the transport is to count it: Length, Binding, Value
	MessageDone      // all of it has arrived
	MessageCancelled // by the sender
	Misbehaving      // Fault says how; to be logged
	BreakerOpened    // U is zero for all
	BreakerClosed
)

// Fault is what a sender did wrong.
type Fault uint8

// Faults.
const (
	SentBeyondCredit     Fault = 1 + iota // data beyond the grant and the unscheduled window
	LiedAboutUnscheduled                  // Unscheduled Sent above U or the length, or raised (decision 20)
	SecondUnscheduled                     // an unscheduled message while another is outstanding

	numFaults
)

// Event is something for the transport or the application.
type Event struct {
	Kind    EventKind
	Assoc   uint32
	Message uint64
	Length  uint64
	Binding rdcc.BindingKind
	Value   uint64
	Waited  time.Duration // from its first request
	Reason  rdcc.Reason
	Fault   Fault
	Addr    netip.AddrPort
}

// eventQueue is a ring; who does not ask for events loses the oldest.
type eventQueue struct {
	ring [256]Event
	head uint64
	tail uint64
}

func (r *Receiver) emit(e Event) {
	q := &r.events
	if q.tail-q.head == uint64(len(q.ring)) {
		q.head++
		r.Counters.EventsLost++
	}
	q.ring[q.tail%uint64(len(q.ring))] = e
	q.tail++
}

// Event takes the next event.
func (r *Receiver) Event() (Event, bool) {
	q := &r.events
	if q.head == q.tail {
		return Event{}, false
	}
	e := q.ring[q.head%uint64(len(q.ring))]
	q.head++
	return e, true
}
