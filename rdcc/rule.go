package rdcc

import "fmt"

// Rule is a normative rule of the specification, or of the decisions where it is silent, that code here enforces. Tests
// switch rules off one at a time: the test that docs/rdcc-conformance.md names for it must then fail. A rule that can be
// switched off is asked for where it is enforced, on the way that is seldom taken.
type Rule uint8

// Rules of the wire (this package). Each is named after what it demands.
const (
	RuleVersion          Rule = 1 + iota // Error Handling and Recovery: unknown versions are discarded
	RuleLengthOfType                     // Error Handling and Recovery: Length at least what the type has
	RuleLengthOfFamily                   // RDCC Message Types: 72 octets when the report's addresses are of IPv6
	RuleLengthInPayload                  // Error Handling and Recovery: Length at most what the datagram has
	RuleFlagsIgnored                     // Common Header: undefined flags are ignored on receipt
	RuleNoAssociation                    // Common Header: Association ID and Epoch zero in ASSOC_REQUEST and from CRNs
	RuleClassClamped                     // CREDIT_REQUEST: a class above 7 is 7
	RuleWeightClamped                    // CREDIT_REQUEST: a weight of zero is 1
	RuleSerialArithmetic                 // Common Header: sequence numbers compare in serial number arithmetic
	RuleRateNotZero                      // CREDIT_GRANT, decision 16: a rate on the wire is never rounded to zero
	RuleUnknownType                      // Error Handling and Recovery: unknown types are discarded
	RuleFlagsNotSent                     // Common Header: undefined flags are zero when sent
	RuleMSN24                            // Transport Bindings, decision 25: the MSN is a number of 24 bits
)

// Rules of the sender (package sender) begin here.
const firstSenderRule Rule = 64

// Rules of the sender.
const (
	RuleNonceSecret         Rule = firstSenderRule + iota // Association Establishment: the nonce is of a cryptographically secure generator
	RuleAssocBackoff                                      // Association Establishment: ASSOC_REQUEST is repeated after 1 ms, doubling
	RuleAssocAttempts                                     // Association Establishment: at most eight attempts
	RuleNonceEchoed                                       // Association Establishment: ASSOC_ACCEPT counts only with the current nonce
	RuleUpdateAcknowledged                                // Association Establishment: a parameter update is acknowledged
	RuleUpdateNewest                                      // decision 7: only the newest ASSOC_ACCEPT of an Epoch sets parameters
	RuleEpochAsked                                        // Association Establishment: another incarnation counts only as an answer
	RuleUnknownOwn                                        // Association Establishment: UNKNOWN_ASSOCIATION counts only with the own Association ID
	RuleLossDropsCredit                                   // Association Establishment: a lost association drops all credit
	RuleRefusedAsked                                      // decision 21: ASSOC_REFUSED counts only while the association is being asked for
	RuleRefusedTwice                                      // decision 21: the request is repeated once before giving up
	RuleKeepalive                                         // decision 24: ASSOC_REQUEST with the same nonce keeps an association alive
	RuleSampleUnambiguous                                 // decision 12: a repeated exchange is no sample of the round trip
	RuleAssocMatch                                        // Error Handling and Recovery: another Association ID is not ours
	RuleEpochMatch                                        // Association Establishment: another Epoch is not believed without ASSOC_ACCEPT
	RuleSequenceNewer                                     // Common Header: what is not newer is discarded
	RuleSequenceNotLowered                                // decision 7: exempt messages never lower the newest number
	RuleEpochResetsSequence                               // Common Header: a new Epoch resets the newest number
	RuleSequenceIncremented                               // Common Header: numbers go up by one, repetitions included
	RuleAnnouncedOnly                                     // Sender Message State Machine: nothing can be said of a message that was not announced
	RuleUnscheduledLimit                                  // Transmission Mode Selection: unscheduled only up to U
	RuleStartJitter                                       // Unscheduled Transmission 1: a random delay within J
	RuleRequestFirst                                      // Unscheduled Transmission 2: CREDIT_REQUEST before data
	RuleOneOutstanding                                    // Unscheduled Transmission 3: one unscheduled message at a time
	RuleUnscheduledDSCP                                   // Unscheduled Transmission 4: the DSCP of unscheduled traffic
	RuleClassDSCP                                         // Traffic Classes and Pool Credit: the DSCP of the class
	RuleReportStops                                       // Unscheduled Transmission 5: a report stops it
	RulePauseStops                                        // Unscheduled Transmission 5: a link pause stops it
	RuleConvertAnnounces                                  // Unscheduled Transmission: the new request states what was transmitted
	RuleLimitChecked                                      // decision 9: U is checked again when the delay ends
	RuleCreditFirst                                       // Transmission Mode Selection: no octet without credit
	RuleIDsIncrease                                       // Credit Requests and Grants: Message IDs increase
	RuleRequestRepeated                                   // Credit Requests and Grants, decision 10: a request without an answer is repeated
	RuleTimeoutTwiceRTT                                   // Credit Requests and Grants: first after twice the smoothed round trip
	RuleTimeoutLeast                                      // Credit Requests and Grants: not sooner than 100 microseconds
	RuleRequestBackoff                                    // Credit Requests and Grants: doubling
	RuleBackoffMost                                       // Credit Requests and Grants: up to 100 ms
	RuleBackoffReset                                      // decision 12: a grant resets the backoff
	RuleDeadlineRecomputed                                // CREDIT_REQUEST, decision 24: the deadline is relative to this transmission
	RuleGiveUp                                            // decision 24: without progress a message is cancelled
	RuleCancelTold                                        // Credit Requests and Grants: the receiver hears of an abandoned message
	RuleRateZeroIgnored                                   // CREDIT_GRANT: a grant without a rate is ignored
	RuleLifetimeDefault                                   // CREDIT_GRANT: a lifetime of zero is the association's
	RuleLimitInLength                                     // Credit Requests and Grants 5: nothing beyond the length
	RuleGrantNeverReduces                                 // Credit Requests and Grants 1: a smaller limit reduces nothing
	RuleLifetimeEnds                                      // Credit Requests and Grants 3: nothing after the lifetime
	RuleExpiryDropsLimit                                  // decision 1: a limit is not revived after its lifetime
	RuleExpiryRequests                                    // Credit Requests and Grants 3: fresh credit is asked for
	RuleNewestLifetime                                    // decision 2: the newest grant's lifetime replaces the old one
	RulePacing                                            // Credit Requests and Grants 4: no faster than the Pacing Rate
	RuleDrainedIgnores                                    // decision 10: DRAINED ignores grants
	RuleReturnTransmitted                                 // CREDIT_RETURN: New Limit is not below what was transmitted
	RuleReturnCrossing                                    // decision 6: grants that cross a CREDIT_RETURN only refresh
	RulePoolAdvertised                                    // Credit Requests and Grants: pool grants only with POOL advertised
	RulePoolOrMessage                                     // decision 4: pool or per message for an association's life
	RulePoolOffset                                        // decision 4: the pool's offset leaves unscheduled octets out
	RulePoolClasses                                       // Traffic Classes and Pool Credit: strict order of classes
	RulePoolWeights                                       // Traffic Classes and Pool Credit: by weight within a class
	RulePoolRequests                                      // decision 5: requests are repeated until MSG_DONE, in SCHEDULED too
	RulePoolPaced                                         // Credit Requests and Grants 4: the pool's rate is that of its messages together
	RulePoolLifetime                                      // Credit Requests and Grants 3: nothing of the pool after its lifetime
	RulePoolReturns                                       // Credit Requests and Grants: pool credit that nothing can use is returned
	RuleStatusAbove                                       // Sender Backlog Indication: SENDER_STATUS above the threshold
	RuleStatusRepeated                                    // Sender Backlog Indication: repeated once per round trip
	RuleStatusFinal                                       // Sender Backlog Indication: a last one with level zero
	RuleStatusCapability                                  // decision 23: SENDER_STATUS only to receivers with STATUS
	RuleThresholdSmallest                                 // Sender Backlog Indication: the smallest N_cu counts
	RuleThresholdLocal                                    // Sender Backlog Indication: a smaller local value counts
	RuleSharesSum                                         // Sender Backlog Indication: the shares sum to at most one
	RuleSharesHints                                       // Sender Backlog Indication: shares follow the Service Hints
	RuleReportSource                                      // On-Path Congestion Reporting: only CRNs of the domain
	RuleReportDirection                                   // decision 23: only reports to a sender
	RuleReportFlow                                        // decision 23: only reports of a flow from here
	RuleExhaustedKeeps                                    // Sender Message State Machine: BUDGET_EXHAUSTED leaves the request
	RulePoolRefusedWaits                                  // decision 4: a refused message gets no pool credit, which the receiver gives for others
	RuleNewCreditProgress                                 // decision 24: credit that comes again unused is no progress
	RuleNICDrains                                         // Credit Requests and Grants 3: what a NIC is handed leaves it within the lifetime
)

// Rules of the receiver (package receiver) begin here.
const firstReceiverRule Rule = 160

// Rules of the receiver.
const (
	RuleNewEpoch             Rule = firstReceiverRule + iota // Association Establishment: a receiver that lost its state uses a different Epoch
	RuleAssocIdempotent                                      // Association Establishment: the same nonce gets the same Association ID
	RuleAssocIDNotZero                                       // Association Establishment: Association IDs are not zero
	RuleBoundAddress                                         // Association Establishment: an association's messages come from and go to the bound address
	RuleUpdateRetransmitted                                  // Association Establishment: a parameter update is repeated until it is acknowledged
	RuleUpdateBackoff                                        // Association Establishment: with exponential backoff
	RuleLargerUntilAcked                                     // Association Establishment: until then the larger of old and new U counts
	RuleOneUpdate                                            // decision 8: one update is in flight
	RuleUpdateSpacing                                        // decision 8: the next waits 2 D_max after the last transmission of the previous
	RuleTrafficKeepsAlive                                    // Association Establishment: traffic keeps an association
	RuleIdleReclaims                                         // Association Establishment: all credit of an association that is removed is reclaimed
	RuleBoundAssociations                                    // Security Considerations: associations are bounded
	RuleBoundPerAddress                                      // Security Considerations: one address cannot take all
	RuleRefuseNotEvict                                       // Security Considerations: new associations are refused, active ones not evicted
	RuleBoundPending                                         // Security Considerations: pending messages of an association are bounded
	RuleBoundMessages                                        // Security Considerations: pending messages are bounded
	RuleCreditCap                                            // Security Considerations: credit of an association is capped
	RuleHoarderWaits                                         // Security Considerations: who lets credit expire waits for more
	RuleRefreshBounded                                       // Security Considerations: a grant that is not used is not repeated for ever
	RuleSumU                                                 // Unscheduled Transmission: the sum of U stays within G_u
	RuleReleasedOnArrival                                    // Unscheduled Transmission: a reservation ends when the octets have arrived
	RuleReleasedInTime                                       // Unscheduled Transmission: or J, the lifetime and 2 D_max after the request, not before
	RuleRestated                                             // decision 3: a lower Unscheduled Sent shrinks the reservation
	RuleLies                                                 // decision 20: Unscheduled Sent above U or the length stops grants
	RulePresumed                                             // decision 15: what was sent before a restart is presumed to have arrived
	RulePresumedPool                                         // decision 15: with pool credit it is presumed at once
	RuleFreshWhileSilent                                     // decision 15: silence does not make an association old
	RuleNoGrantWhileReserved                                 // decision 10: no grant before the reservation is released or moved
	RuleNoDoubleCount                                        // decision 3: outstanding octets are counted once
	RuleNotBeyondLength                                      // Credit Requests and Grants: no grant beyond the message
	RuleFinal                                                // Credit Requests and Grants: FINAL in the grant that reaches the length
	RulePacingRateNotZero                                    // Credit Requests and Grants: the Pacing Rate is not zero
	RulePoolCapability                                       // Credit Requests and Grants: no pool grants without the capability
	RulePoolLimit                                            // decision 4: a pool's limit is no more than what was announced
	RulePoolCancelKeeps                                      // decision 4: CANCEL frees no pool credit
	RulePoolOutOfStep                                        // decision 4: a pool whose sides count differently begins anew
	RuleDone                                                 // Credit Requests and Grants: MSG_DONE when all octets have arrived
	RuleDoneAgain                                            // decision 13: MSG_DONE again for a message that is complete
	RuleForgottenNotDone                                     // decision 13: what was never seen is not said to be done
	RuleBudget                                               // Receiver Credit Budget: the sum stays within G
	RuleReclaimDelay                                         // Receiver Credit Budget: reclaim no earlier than Lifetime and 2 D_max after the grant
	RuleReclaimAfterAll                                      // decision 2: of all grants the one that lasts longest counts
	RuleCancelDelay                                          // Receiver Credit Budget: cancelled credit no earlier than 2 D_max
	RuleNeverBelow                                           // decision 1: no grant below a limit that was sent, and it is charged in full
	RuleReturnWaits                                          // decision 6: returned credit is freed D_max after the last grant
	RuleSumOfRates                                           // Credit Allocation: the pacing rates stay within the access link
	RuleLiveRates                                            // decision 17: a rate counts until its grant cannot be used any more
	RuleSplitByWeight                                        // decision 17: a sender's rate is split by weight
	RuleRMin                                                 // decision 16: no live grant below R_min: the others wait
	RuleReduceOnCE                                           // Credit Allocation: CE marks reduce the rate
	RuleReduceOnReport                                       // Credit Allocation: a report reduces the rate
	RuleReduceOnDelay                                        // Credit Allocation: a round-trip time above the target reduces the rate
	RuleDegreeZeroReduces                                    // decision 19: a report of degree 0 reduces
	RuleNoDataNoChange                                       // decision 19: without data nothing changes
	RuleSuggestedRate                                        // Credit Allocation: the rate is no more than the Suggested Rate
	RuleSuggestedAges                                        // Sender Backlog Indication: a Suggested Rate ends after four lifetimes
	RuleEpochRecognized                                      // Credit Allocation: no credit for an Epoch that is not ours
	RuleUnknownAssociation                                   // Error Handling and Recovery: a request of an unknown association is answered
	RuleSequence                                             // Common Header: what is not newer is discarded
	RuleExemptNeverLowers                                    // decision 7: exempt messages never lower the newest number
	RuleClassFirst                                           // Credit Allocation: lower classes first
	RuleWeightShare                                          // Credit Allocation: by weight within a class
	RuleDeadlineFirst                                        // Credit Allocation: earlier deadlines first
	RuleReportOfNode                                         // On-Path Congestion Reporting: only configured nodes are believed
	RuleReportToReceiver                                     // decision 23: reports for senders are ignored
	RuleReportDestination                                    // decision 23: reports of other destinations are ignored
	RuleUnsupportedBinding                                   // Transport Bindings: what cannot be counted is refused
	RuleMessageTooLarge                                      // decision 20: a message above the maximum is refused
	RuleBudgetExhausted                                      // Error Handling and Recovery: who waits long is told
	RuleExcessDetected                                       // Error Handling and Recovery: data beyond credit is not accepted
	RuleExcessStopsGrants                                    // Error Handling and Recovery: and ends grants for the message
	RuleEarlyDataWaits                                       // decision 5: data of an unknown message waits for its request
	RuleRefusedPoolCounts                                    // decision 4: octets of a refused message are the pool's
	RuleUnknownTypeAnswer                                    // Error Handling and Recovery: an unknown type may be answered to the bound address
	RuleUnknownTypeUnbound                                   // Error Handling and Recovery: and never elsewhere
	RuleBreaker                                              // Congestion Control Considerations: loss of unscheduled data takes U away
	RuleBreakerHolds                                         // Congestion Control Considerations: until a second was clean
	RuleBreakerDoubles                                       // decision 22: each trip doubles the hold
)

// ruleNames are what docs/rdcc-conformance.md and PCMLAB_RDCC_OFF call the rules.
var ruleNames = [256]string{
	RuleVersion:          "Version",
	RuleLengthOfType:     "LengthOfType",
	RuleLengthOfFamily:   "LengthOfFamily",
	RuleLengthInPayload:  "LengthInPayload",
	RuleFlagsIgnored:     "FlagsIgnored",
	RuleNoAssociation:    "NoAssociation",
	RuleClassClamped:     "ClassClamped",
	RuleWeightClamped:    "WeightClamped",
	RuleSerialArithmetic: "SerialArithmetic",
	RuleRateNotZero:      "RateNotZero",
	RuleUnknownType:      "UnknownType",
	RuleFlagsNotSent:     "FlagsNotSent",
	RuleMSN24:            "MSN24",

	RuleNonceSecret:          "NonceSecret",
	RuleAssocBackoff:         "AssocBackoff",
	RuleAssocAttempts:        "AssocAttempts",
	RuleNonceEchoed:          "NonceEchoed",
	RuleUpdateAcknowledged:   "UpdateAcknowledged",
	RuleUpdateNewest:         "UpdateNewest",
	RuleEpochAsked:           "EpochAsked",
	RuleUnknownOwn:           "UnknownOwn",
	RuleLossDropsCredit:      "LossDropsCredit",
	RuleRefusedAsked:         "RefusedAsked",
	RuleRefusedTwice:         "RefusedTwice",
	RuleKeepalive:            "Keepalive",
	RuleSampleUnambiguous:    "SampleUnambiguous",
	RuleAssocMatch:           "AssocMatch",
	RuleEpochMatch:           "EpochMatch",
	RuleSequenceNewer:        "SequenceNewer",
	RuleSequenceNotLowered:   "SequenceNotLowered",
	RuleEpochResetsSequence:  "EpochResetsSequence",
	RuleSequenceIncremented:  "SequenceIncremented",
	RuleAnnouncedOnly:        "AnnouncedOnly",
	RuleUnscheduledLimit:     "UnscheduledLimit",
	RuleStartJitter:          "StartJitter",
	RuleRequestFirst:         "RequestFirst",
	RuleOneOutstanding:       "OneOutstanding",
	RuleUnscheduledDSCP:      "UnscheduledDSCP",
	RuleClassDSCP:            "ClassDSCP",
	RuleReportStops:          "ReportStops",
	RulePauseStops:           "PauseStops",
	RuleConvertAnnounces:     "ConvertAnnounces",
	RuleLimitChecked:         "LimitChecked",
	RuleCreditFirst:          "CreditFirst",
	RuleIDsIncrease:          "IDsIncrease",
	RuleRequestRepeated:      "RequestRepeated",
	RuleTimeoutTwiceRTT:      "TimeoutTwiceRTT",
	RuleTimeoutLeast:         "TimeoutLeast",
	RuleRequestBackoff:       "RequestBackoff",
	RuleBackoffMost:          "BackoffMost",
	RuleBackoffReset:         "BackoffReset",
	RuleDeadlineRecomputed:   "DeadlineRecomputed",
	RuleGiveUp:               "GiveUp",
	RuleCancelTold:           "CancelTold",
	RuleRateZeroIgnored:      "RateZeroIgnored",
	RuleLifetimeDefault:      "LifetimeDefault",
	RuleLimitInLength:        "LimitInLength",
	RuleGrantNeverReduces:    "GrantNeverReduces",
	RuleLifetimeEnds:         "LifetimeEnds",
	RuleExpiryDropsLimit:     "ExpiryDropsLimit",
	RuleExpiryRequests:       "ExpiryRequests",
	RuleNewestLifetime:       "NewestLifetime",
	RulePacing:               "Pacing",
	RuleDrainedIgnores:       "DrainedIgnores",
	RuleReturnTransmitted:    "ReturnTransmitted",
	RuleReturnCrossing:       "ReturnCrossing",
	RulePoolAdvertised:       "PoolAdvertised",
	RulePoolOrMessage:        "PoolOrMessage",
	RulePoolOffset:           "PoolOffset",
	RulePoolClasses:          "PoolClasses",
	RulePoolWeights:          "PoolWeights",
	RulePoolRequests:         "PoolRequests",
	RulePoolPaced:            "PoolPaced",
	RulePoolLifetime:         "PoolLifetime",
	RulePoolReturns:          "PoolReturns",
	RuleStatusAbove:          "StatusAbove",
	RuleStatusRepeated:       "StatusRepeated",
	RuleStatusFinal:          "StatusFinal",
	RuleStatusCapability:     "StatusCapability",
	RuleThresholdSmallest:    "ThresholdSmallest",
	RuleThresholdLocal:       "ThresholdLocal",
	RuleSharesSum:            "SharesSum",
	RuleSharesHints:          "SharesHints",
	RuleReportSource:         "ReportSource",
	RuleReportDirection:      "ReportDirection",
	RuleReportFlow:           "ReportFlow",
	RuleExhaustedKeeps:       "ExhaustedKeeps",
	RulePoolRefusedWaits:     "PoolRefusedWaits",
	RuleNewCreditProgress:    "NewCreditProgress",
	RuleNICDrains:            "NICDrains",
	RuleNewEpoch:             "NewEpoch",
	RuleAssocIdempotent:      "AssocIdempotent",
	RuleAssocIDNotZero:       "AssocIDNotZero",
	RuleBoundAddress:         "BoundAddress",
	RuleUpdateRetransmitted:  "UpdateRetransmitted",
	RuleUpdateBackoff:        "UpdateBackoff",
	RuleLargerUntilAcked:     "LargerUntilAcked",
	RuleOneUpdate:            "OneUpdate",
	RuleUpdateSpacing:        "UpdateSpacing",
	RuleTrafficKeepsAlive:    "TrafficKeepsAlive",
	RuleIdleReclaims:         "IdleReclaims",
	RuleBoundAssociations:    "BoundAssociations",
	RuleBoundPerAddress:      "BoundPerAddress",
	RuleRefuseNotEvict:       "RefuseNotEvict",
	RuleBoundPending:         "BoundPending",
	RuleBoundMessages:        "BoundMessages",
	RuleCreditCap:            "CreditCap",
	RuleHoarderWaits:         "HoarderWaits",
	RuleRefreshBounded:       "RefreshBounded",
	RuleSumU:                 "SumU",
	RuleReleasedOnArrival:    "ReleasedOnArrival",
	RuleReleasedInTime:       "ReleasedInTime",
	RuleRestated:             "Restated",
	RuleLies:                 "Lies",
	RulePresumed:             "Presumed",
	RulePresumedPool:         "PresumedPool",
	RuleFreshWhileSilent:     "FreshWhileSilent",
	RuleNoGrantWhileReserved: "NoGrantWhileReserved",
	RuleNoDoubleCount:        "NoDoubleCount",
	RuleNotBeyondLength:      "NotBeyondLength",
	RuleFinal:                "Final",
	RulePacingRateNotZero:    "PacingRateNotZero",
	RulePoolCapability:       "PoolCapability",
	RulePoolLimit:            "PoolLimit",
	RulePoolCancelKeeps:      "PoolCancelKeeps",
	RulePoolOutOfStep:        "PoolOutOfStep",
	RuleDone:                 "Done",
	RuleDoneAgain:            "DoneAgain",
	RuleForgottenNotDone:     "ForgottenNotDone",
	RuleBudget:               "Budget",
	RuleReclaimDelay:         "ReclaimDelay",
	RuleReclaimAfterAll:      "ReclaimAfterAll",
	RuleCancelDelay:          "CancelDelay",
	RuleNeverBelow:           "NeverBelow",
	RuleReturnWaits:          "ReturnWaits",
	RuleSumOfRates:           "SumOfRates",
	RuleLiveRates:            "LiveRates",
	RuleSplitByWeight:        "SplitByWeight",
	RuleRMin:                 "RMin",
	RuleReduceOnCE:           "ReduceOnCE",
	RuleReduceOnReport:       "ReduceOnReport",
	RuleReduceOnDelay:        "ReduceOnDelay",
	RuleDegreeZeroReduces:    "DegreeZeroReduces",
	RuleNoDataNoChange:       "NoDataNoChange",
	RuleSuggestedRate:        "SuggestedRate",
	RuleSuggestedAges:        "SuggestedAges",
	RuleEpochRecognized:      "EpochRecognized",
	RuleUnknownAssociation:   "UnknownAssociation",
	RuleSequence:             "Sequence",
	RuleExemptNeverLowers:    "ExemptNeverLowers",
	RuleClassFirst:           "ClassFirst",
	RuleWeightShare:          "WeightShare",
	RuleDeadlineFirst:        "DeadlineFirst",
	RuleReportOfNode:         "ReportOfNode",
	RuleReportToReceiver:     "ReportToReceiver",
	RuleReportDestination:    "ReportDestination",
	RuleUnsupportedBinding:   "UnsupportedBinding",
	RuleMessageTooLarge:      "MessageTooLarge",
	RuleBudgetExhausted:      "BudgetExhausted",
	RuleExcessDetected:       "ExcessDetected",
	RuleExcessStopsGrants:    "ExcessStopsGrants",
	RuleEarlyDataWaits:       "EarlyDataWaits",
	RuleRefusedPoolCounts:    "RefusedPoolCounts",
	RuleUnknownTypeAnswer:    "UnknownTypeAnswer",
	RuleUnknownTypeUnbound:   "UnknownTypeUnbound",
	RuleBreaker:              "Breaker",
	RuleBreakerHolds:         "BreakerHolds",
	RuleBreakerDoubles:       "BreakerDoubles",
}

// String is the rule's name, as in docs/rdcc-conformance.md.
func (r Rule) String() string {
	if name := ruleNames[r]; name != "" {
		return name
	}
	return fmt.Sprintf("rule %d", uint8(r))
}

// RuleNamed is the rule of that name.
func RuleNamed(name string) (Rule, bool) {
	for r, n := range ruleNames {
		if n == name && name != "" {
			return Rule(r), true
		}
	}
	return 0, false
}

// RuleSet is a set of rules; the zero value is empty.
type RuleSet [4]uint64

// Has says that r is in the set.
func (s *RuleSet) Has(r Rule) bool { return s[r/64]>>(r%64)&1 != 0 }

// Add puts r into the set.
func (s *RuleSet) Add(r Rule) { s[r/64] |= 1 << (r % 64) }

// off holds what a test has switched off in this package; nothing else ever writes it.
var off RuleSet

func on(r Rule) bool { return !off.Has(r) }
