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

// Rules of the receiver (package receiver) begin here.
const firstReceiverRule Rule = 160

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
