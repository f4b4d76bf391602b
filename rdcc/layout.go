package rdcc

import (
	"fmt"
	"strings"
)

// field is one of a layout: its name in the specification, in JSON, its octets, and what its value means.
type field struct {
	name, key string
	len       int
	kind      kind
}

// kind is what a value means.
type kind uint8

const (
	kNumber kind = iota
	kVersion
	kRsv
	kReserved
	kType
	kFlags
	kHex
	kAssoc
	kOctets
	kRate
	kMicros
	kCapabilities
	kHint
	kBinding
	kReason
	kDirection
	kAddress
	kPart // of the field before
)

var headerLayout = []field{
	{"Version", "version", 1, kVersion}, {"Rsv", "rsv", 1, kRsv}, {"Type", "type", 1, kType}, {"Length", "length_bytes", 2, kNumber},
	{"Association ID", "association_id", 4, kAssoc},
	{"Epoch", "epoch", 2, kNumber}, {"Flags", "flags", 2, kFlags},
	{"Sequence Number", "sequence_number", 4, kNumber},
}

var (
	messageID = field{"Message ID", "message_id", 8, kNumber}
	reason    = field{"Reason", "reason", 2, kReason}
	reserved2 = field{"Reserved", "reserved", 2, kReserved}
	reserved4 = field{"Reserved", "reserved", 4, kReserved}
	suggested = field{"Suggested Rate", "suggested_rate_bps", 4, kRate}
	hint      = field{"Service Hint", "service_hint", 1, kHint}
)

// layouts are the bodies as far as all messages of a type have them; a report's addresses follow.
var layouts = [256][]field{
	TypeAssocRequest: {
		{"Sender Nonce", "sender_nonce", 8, kHex}, {"Capabilities", "capabilities", 4, kCapabilities}, {"Line Rate", "line_rate_bps", 4, kRate},
		reserved4, reserved4, reserved4, reserved4,
	},
	TypeAssocAccept: {
		{"Sender Nonce", "sender_nonce", 8, kHex}, {"Capabilities", "capabilities", 4, kCapabilities},
		{"Unscheduled Limit U", "unscheduled_limit_bytes", 4, kOctets}, {"Start Jitter J", "start_jitter_ns", 4, kMicros},
		{"Backlog Threshold N_cu", "backlog_threshold_bytes", 4, kOctets}, {"Grant Lifetime", "grant_lifetime_ns", 4, kMicros},
		{"Credit Unit", "credit_unit_bytes", 4, kOctets},
	},
	TypeCreditRequest: {
		messageID, {"Message Length", "message_length_bytes", 8, kOctets}, {"Unscheduled Sent", "unscheduled_sent_bytes", 8, kOctets},
		{"Class", "class", 1, kNumber}, {"Weight", "weight", 1, kNumber}, hint, {"Binding Kind", "binding_kind", 1, kBinding},
		{"Deadline", "deadline_ns", 4, kMicros}, {"Binding Value", "binding_value", 8, kHex},
	},
	TypeCreditGrant: {
		messageID, {"Grant Limit", "grant_limit_bytes", 8, kOctets}, {"Pacing Rate", "pacing_rate_bps", 4, kRate}, {"Lifetime", "lifetime_ns", 4, kMicros},
	},
	TypeSenderStatus: {
		{"Unused Credit", "unused_credit_bytes", 8, kOctets}, {"Congestion Level", "congestion_level", 1, kNumber}, hint, reserved2, suggested,
	},
	TypeCongestionReport: {
		{"Reporter ID", "reporter_id", 4, kAssoc}, {"Queue Depth", "queue_depth_bytes", 4, kOctets}, {"Queue Threshold", "queue_threshold_bytes", 4, kOctets},
		{"Congestion Degree", "congestion_degree", 1, kNumber}, {"Direction", "direction", 1, kDirection}, {"AF", "af", 1, kNumber}, {"Protocol", "protocol", 1, kNumber},
		{"Source Port", "source_port", 2, kNumber}, {"Destination Port", "destination_port", 2, kNumber}, suggested,
	},
	TypeMsgDone:      {messageID, {"Octets Received", "received_bytes", 8, kOctets}},
	TypeCancel:       {messageID, reason, reserved2},
	TypeCreditReturn: {messageID, {"New Limit", "new_limit_bytes", 8, kOctets}},
	TypeError:        {reason, reserved2, messageID},
}

// text is a value with its unit or name.
func (k kind) text(v uint64) string {
	switch k {
	case kType:
		return Type(v).String()
	case kFlags:
		return fmt.Sprintf("0x%04x", v)
	case kHex:
		return fmt.Sprintf("0x%016x", v)
	case kAssoc:
		return fmt.Sprintf("0x%08x", v)
	case kOctets:
		return octets(v)
	case kRate:
		return Mbps(v).String()
	case kMicros:
		return Micros(v).String()
	case kCapabilities:
		return Capabilities(v).String()
	case kHint:
		return Hint(v).String()
	case kBinding:
		return BindingKind(v).String()
	case kReason:
		return Reason(v).String()
	case kDirection:
		return Direction(v).String()
	}
	return fmt.Sprint(v)
}

// octets is a number of octets, and in powers of two where that is shorter.
func octets(v uint64) string {
	unit, name := uint64(1), ""
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v%(unit<<10) != 0 || v == 0 {
			break
		}
		unit, name = unit<<10, next
	}
	if name == "" {
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("%d (%d %s)", v, v/unit, name)
}

// String is the rate with its unit.
func (r Mbps) String() string { return fmt.Sprintf("%d Mbit/s", uint32(r)) }

// String is the duration with its unit.
func (m Micros) String() string { return fmt.Sprintf("%d us", uint32(m)) }

// String names the capabilities that are defined, and shows the bits of the others.
func (c Capabilities) String() string {
	var names []string
	for _, known := range []struct {
		bit  Capabilities
		name string
	}{{CapPool, "POOL"}, {CapStatus, "STATUS"}, {CapCRN, "CRN"}} {
		if c.Has(known.bit) {
			names = append(names, known.name)
			c &^= known.bit
		}
	}
	if c != 0 || len(names) == 0 {
		names = append(names, fmt.Sprintf("0x%08x", uint32(c)))
	}
	return strings.Join(names, "|")
}

// String says to whom the report goes.
func (d Direction) String() string {
	switch d {
	case ToReceiver:
		return "to the receiver"
	case ToSender:
		return "to the sender"
	}
	return fmt.Sprintf("direction %d", uint8(d))
}

// FlagNames are the names of the flags of a type that are set, and the bits of those that it does not define.
func FlagNames(t Type, flags uint16) (names []string) {
	name := map[Type][2]string{
		TypeAssocAccept: {"PARAMETER_UPDATE", ""}, TypeAssocRequest: {"", "UPDATE_ACK"}, TypeCreditGrant: {"POOL", "FINAL"},
	}[t]
	for bit, n := range name {
		if n != "" && flags>>bit&1 != 0 {
			names, flags = append(names, n), flags&^(1<<bit)
		}
	}
	if flags != 0 {
		names = append(names, fmt.Sprintf("0x%04x", flags))
	}
	return names
}
