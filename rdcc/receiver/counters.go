package receiver

import "github.com/pcmlab/pcmlab/rdcc"

// Counters say what a receiver did. The first group is what the specification asks for (Operational Considerations).
type Counters struct {
	GrantedOctets       uint64 // credit granted
	ReclaimedOctets     uint64 // credit reclaimed: expired, cancelled, or of an association that went
	ReturnedOctets      uint64 // credit returned
	UnscheduledOctets   uint64 // announced and reserved
	InvariantViolations uint64 // the sum was above G, or below zero: never

	Received       uint64 // datagrams
	ReceivedByType [rdcc.TypeError + 1]uint64
	Undecodable    [rdcc.NumDecodeErrors]uint64
	Sent           uint64
	SentByType     [rdcc.TypeError + 1]uint64
	OutDropped     uint64 // datagrams that found the queue full
	EventsLost     uint64

	UnknownAssociation uint64 // datagrams
	WrongAddress       uint64 // of an association, from elsewhere
	Stale              uint64 // not newer than what was processed
	Misdirected        uint64 // of a type that receivers send
	Malformed          uint64
	SenderErrors       uint64 // ERROR received

	Associations   uint64
	AssocRepeated  uint64 // ASSOC_REQUEST for one that is there
	AssocRefused   uint64
	AssocRemoved   uint64 // idle, or out of step
	PoolsOutOfStep uint64 // pools whose sides counted differently, and which had to begin anew
	UpdatesSent    uint64 // parameter updates, retransmissions included
	UpdatesAcked   uint64
	AcksIgnored    uint64

	Messages         uint64
	MessagesDone     uint64
	DoneRepeated     uint64 // MSG_DONE on demand
	RequestsRepeated uint64
	Restated         uint64    // Unscheduled Sent lowered
	Refused          [8]uint64 // messages, by reason
	HolesEvicted     uint64    // places in the message numbers that were forgotten
	Grants           uint64
	Refreshes        uint64 // of them repeating a limit
	Reclaims         uint64
	CancelsReceived  uint64
	CancelsUnmatched uint64
	ReturnsReceived  uint64
	ReturnsUnmatched uint64

	DataOctets        uint64 // as the transport counted
	AcceptedOctets    uint64 // within credit and windows
	ExcessOctets      uint64 // beyond
	ApproximateOctets uint64 // beyond, where the transport may count twice
	DataUnknown       uint64 // octets of no association
	DataLate          uint64 // octets of complete messages
	EarlyOctets       uint64 // before their request
	EarlyDropped      uint64
	ReleasedOctets    uint64 // announced, not arrived when the reservation ended
	PresumedOctets    uint64 // delivered before this incarnation, presumably
	UnscheduledLost   uint64
	Faults            [numFaults]uint64
	BreakerTrips      uint64

	ReportsReceived    uint64
	ReportsForeign     uint64 // not of a configured node
	ReportsMisdirected uint64 // for senders, or of data to elsewhere
	ReportsUnmatched   uint64 // of a flow that is none of ours
	StatusReceived     uint64
	RTTSamples         uint64
	RateCuts           uint64
}
