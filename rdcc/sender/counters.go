package sender

import "github.com/pcmlab/pcmlab/rdcc"

// Counters count from the machine's beginning: those that the specification asks for (Operational Considerations), and more.
// Octets unless said otherwise.
type Counters struct {
	CreditGranted    uint64 `json:"credit_granted"`    // by grants that raised a limit
	CreditReclaimed  uint64 `json:"credit_reclaimed"`  // held and not used when a lifetime ended or an association was lost
	CreditReturned   uint64 `json:"credit_returned"`   // by CREDIT_RETURN
	UnscheduledSent  uint64 `json:"unscheduled_sent"`  // transmitted without credit, within U
	ScheduledSent    uint64 `json:"scheduled_sent"`    // transmitted under grants
	BeyondCredit     uint64 `json:"beyond_credit"`     // transmitted by the transport beyond what it was allowed
	BeyondLength     uint64 `json:"beyond_length"`     // granted beyond a message's length, not used
	CoarselyPaced    uint64 `json:"coarsely_paced"`    // in segments longer than ten Credit Units (decision 18)
	MessagesNew      uint64 `json:"messages_new"`      // messages
	MessagesDone     uint64 `json:"messages_done"`     // messages
	MessagesAborted  uint64 `json:"messages_aborted"`  // messages, those given up and left without RDCC included
	MessagesGivenUp  uint64 `json:"messages_given_up"` // messages
	MessagesWithout  uint64 `json:"messages_without"`  // messages left to the transport, without RDCC
	Converted        uint64 `json:"converted"`         // messages from unscheduled to scheduled mode
	DoneMismatch     uint64 `json:"done_mismatch"`     // MSG_DONE with other octets than the message has
	Requests         uint64 `json:"requests"`          // CREDIT_REQUEST sent
	RequestTimeouts  uint64 `json:"request_timeouts"`  // of these, because a timeout passed
	GrantsRefreshing uint64 `json:"grants_refreshing"` // grants that raised nothing
	GrantsExpired    uint64 `json:"grants_expired"`    // lifetimes that ended with credit held
	Associations     uint64 `json:"associations"`      // established, with a new Association ID or Epoch
	AssocLost        uint64 `json:"assoc_lost"`        // UNKNOWN_ASSOCIATION and new Epochs
	AssocRefused     uint64 `json:"assoc_refused"`     // ERROR received
	AssocUnanswered  uint64 `json:"assoc_unanswered"`  // receivers that never answered
	BudgetExhausted  uint64 `json:"budget_exhausted"`  // ERROR received
	Updates          uint64 `json:"updates"`           // parameter updates acknowledged
	Statuses         uint64 `json:"statuses"`          // SENDER_STATUS sent
	Keepalives       uint64 `json:"keepalives"`        // sent

	ReportsStopping  uint64 `json:"reports_stopping"`  // CONGESTION_REPORT that stopped a message
	ReportsIdle      uint64 `json:"reports_idle"`      // with nothing to stop
	ReportsSource    uint64 `json:"reports_source"`    // not from a CRN of the domain
	ReportsDirection uint64 `json:"reports_direction"` // not for a sender
	ReportsFlow      uint64 `json:"reports_flow"`      // not of a flow from here to a receiver
	Pauses           uint64 `json:"pauses"`            // link pauses

	Datagrams   uint64 `json:"datagrams"`    // received
	Malformed   uint64 `json:"malformed"`    // of these, not decodable
	NotForUs    uint64 `json:"not_for_us"`   // of a type that only receivers get
	Stranger    uint64 `json:"stranger"`     // from an address without an association
	WrongNonce  uint64 `json:"wrong_nonce"`  // ASSOC_ACCEPT
	WrongAssoc  uint64 `json:"wrong_assoc"`  // another Association ID
	WrongEpoch  uint64 `json:"wrong_epoch"`  // another Epoch
	Stale       uint64 `json:"stale"`        // Sequence Number not newer
	Unexpected  uint64 `json:"unexpected"`   // understood, and ignored in the state in which the message or association was
	RateZero    uint64 `json:"rate_zero"`    // grants without a rate
	WrongKind   uint64 `json:"wrong_kind"`   // pool grants on a per-message association or the reverse
	ReturnCross uint64 `json:"return_cross"` // grants that crossed a CREDIT_RETURN (decision 6)

	Sent [rdcc.TypeError + 1]uint64 `json:"sent"` // datagrams, by type
}
