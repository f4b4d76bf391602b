package endpoint

import (
	"io"
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/udp"
)

// Transport carries the octets of messages once credit covers them. The endpoint calls it on its one goroutine; what it
// finds out, it tells the Host.
//
// A message at its sender:
//
//	Bind        the transport names the message: an identifier, or a queue pair and message sequence numbers
//	Allowed     there is, or may be, something to transmit: the transport asks Host.Allowance how far it may go and at
//	            which rate, transmits what it can of it (or hands it to a NIC), and says so with Host.Transmitted
//	Allowed     again: a grant came, the pacing has room, the association was made anew, or the transport itself asked for it with
//	            Host.Again
//	Stopped     nothing more until Allowed
//	Ended       the receiver has it all, or it is over; the transport forgets it
//
// At its receiver:
//
//	Incoming    an association was made or is gone, a message is announced (Binding, Value, Length), done or cancelled
//	            by the other side; in between the transport counts what arrives and tells Host.Arrived
type Transport interface {
	// Kind is the binding of this transport's messages. An endpoint has one transport of a kind.
	Kind() rdcc.BindingKind
	// Open starts the transport. Host is valid until Close.
	Open(h Host) error
	// Bind names a message before its first CREDIT_REQUEST. It may set m.Segment and m.SelfPaced.
	Bind(now time.Duration, m *Outgoing) (value uint64, err error)
	// Allowed, Stopped and Ended are about a message that was bound; err is nil when all of it has arrived.
	Allowed(now time.Duration, m *Outgoing)
	Stopped(now time.Duration, m *Outgoing)
	Ended(now time.Duration, m *Outgoing, err error)
	// Incoming is told all events of the receiver about this binding, and of associations.
	Incoming(now time.Duration, e receiver.Event)
	// Advance does what is due; Deadline says when that is.
	Advance(now time.Duration)
	Deadline() (at time.Duration, ok bool)
	// Close ends the transport. Messages that are not at their end were ended before.
	Close() error
}

// Host is what a transport has of its endpoint. All but Do and Now are for calls of the transport's methods, and for
// functions that Do runs.
type Host interface {
	// Allowance is what the message may transmit at this instant: all octets below upTo, no faster than rate bit/s. The
	// transport's own congestion control may be slower still (decision 26).
	Allowance(now time.Duration, m *Outgoing) (upTo uint64, rate int64)
	// DSCP is what the message's data must be marked with now; false when the domain configures none.
	DSCP(m *Outgoing) (dscp uint8, ok bool)
	// Wire is what the receiver calls the message.
	Wire(m *Outgoing) (assoc uint32, message uint64, ok bool)
	// Transmitted says that all octets below upTo are on the wire, or with the NIC (SelfPaced).
	Transmitted(now time.Duration, m *Outgoing, upTo uint64)
	// Again asks for Allowed at that time, once more.
	Again(m *Outgoing, at time.Duration)
	// RTTSample gives a round trip to the peer that the transport measured.
	RTTSample(now time.Duration, m *Outgoing, rtt time.Duration)
	// Abort ends a message that the transport cannot carry; without an error, one that it knows to have arrived whole although
	// no MSG_DONE can tell any more.
	Abort(now time.Duration, m *Outgoing, err error)

	// Arrived counts data of an association at its receiver.
	Arrived(now time.Duration, assoc uint32, v receiver.Arrival)
	// Sink is where the octets of an announced message go; the transport closes it.
	Sink(in Incoming) (Sink, error)
	// Received says that a transport which has a Sink has written the whole message to it.
	Received(now time.Duration, in Incoming, err error)
	// CancelIncoming abandons a message from the receiver's side.
	CancelIncoming(now time.Duration, assoc uint32, message uint64)

	Now() time.Duration
	// Do runs f on the endpoint's goroutine, from any other. False: the endpoint has ended.
	Do(f func(now time.Duration)) bool
	// Logf logs, so many lines a second for each topic.
	Logf(topic, format string, a ...any)
}

// Outgoing is a message that this endpoint sends.
type Outgoing struct {
	To       netip.AddrPort // the receiver's RDCC endpoint
	Kind     rdcc.BindingKind
	Length   uint64
	Data     io.ReaderAt // nil: octets without meaning
	Class    uint8
	Weight   uint8
	Hint     rdcc.Hint
	Deadline time.Duration // from Send on; 0: none

	Scheduled bool   // never without credit
	Segment   uint64 // longest piece that the transport posts at once; 0: it can stop anywhere
	SelfPaced bool   // the transport holds the rate

	// Target is what else a transport needs to know of the receiver, such as the port of its data.
	Target any

	// Ended is called on the endpoint's goroutine.
	Ended func(Result)

	ID    uint64 // the sender machine's; valid from Bind's return on
	Value uint64 // of the binding
	State any    // the transport's own

	result Result
	track  track
}

// Incoming is a message that arrives.
type Incoming struct {
	From    netip.AddrPort // the sender's RDCC endpoint
	Assoc   uint32
	Message uint64
	Length  uint64
	Kind    rdcc.BindingKind
	Value   uint64
	Waited  time.Duration // from its first request to its end
}

// Sink takes the octets of a message, each once, in any order.
type Sink interface {
	io.WriterAt
	// Close ends the message; err says why when it is not whole.
	Close(err error) error
}

// Result says what became of a message. What was not measured is nil.
type Result struct {
	Err           error          `json:"-"`
	To            netip.AddrPort `json:"to"`
	Octets        uint64         `json:"octets"`
	Elapsed       time.Duration  `json:"elapsed_ns"`  // from Send to the receiver's MSG_DONE
	Waited        time.Duration  `json:"waited_ns"`   // of it without credit
	Unscheduled   uint64         `json:"unscheduled"` // octets that needed none
	Transmitted   uint64         `json:"transmitted"`
	Retransmitted *uint64        `json:"retransmitted"` // octets
	CE            *uint64        `json:"ce_packets"`    // packets that arrived marked
	RTT           *time.Duration `json:"rtt_ns"`        // the least
}

// Progress is how far a message is.
type Progress struct {
	Transmitted uint64        `json:"transmitted"`
	Length      uint64        `json:"length"`
	Elapsed     time.Duration `json:"elapsed_ns"`
	Waited      time.Duration `json:"waited_ns"`
	State       string        `json:"state"`
}

// Descriptive is a transport whose sockets the endpoint's wait includes.
type Descriptive interface {
	Transport
	// Sockets are those to wait for, once the transport is open.
	Sockets() []*udp.Socket
	// Ready takes what has arrived, and says that there may be more.
	Ready(now time.Duration) (more bool, err error)
	// Flush sends what the calls before have queued.
	Flush()
}
