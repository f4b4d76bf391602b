package rdcc

import (
	"fmt"
	"net/netip"
)

// The oracle is a second decoder, slow and obvious: the specification's field diagrams as lists of names and widths, read
// bit by bit. It shares nothing with the codec, not even its constants.

type bits struct {
	name  string
	width int
}

var oracleHeader = []bits{
	{"Version", 4}, {"Rsv", 4}, {"Type", 8}, {"Length", 16},
	{"Association ID", 32},
	{"Epoch", 16}, {"Flags", 16},
	{"Sequence Number", 32},
}

var oracleBodies = map[uint64][]bits{
	0x01: {{"Sender Nonce", 64}, {"Capabilities", 32}, {"Line Rate", 32}, {"r1", 32}, {"r2", 32}, {"r3", 32}, {"r4", 32}},
	0x02: {{"Sender Nonce", 64}, {"Capabilities", 32}, {"U", 32}, {"J", 32}, {"N_cu", 32}, {"Grant Lifetime", 32}, {"Credit Unit", 32}},
	0x03: {
		{"Message ID", 64}, {"Message Length", 64}, {"Unscheduled Sent", 64}, {"Class", 8}, {"Weight", 8}, {"Service Hint", 8},
		{"Binding Kind", 8}, {"Deadline", 32}, {"Binding Value", 64},
	},
	0x04: {{"Message ID", 64}, {"Grant Limit", 64}, {"Pacing Rate", 32}, {"Lifetime", 32}},
	0x05: {{"Unused Credit", 64}, {"Congestion Lvl", 8}, {"Service Hint", 8}, {"Reserved", 16}, {"Suggested Rate", 32}},
	0x06: {
		{"Reporter ID", 32}, {"Queue Depth", 32}, {"Queue Threshold", 32}, {"Cong. Degree", 8}, {"Direction", 8}, {"AF", 8}, {"Protocol", 8},
		{"Source Port", 16}, {"Destination Port", 16}, {"Suggested Rate", 32},
	},
	0x07: {{"Message ID", 64}, {"Octets Received", 64}},
	0x08: {{"Message ID", 64}, {"Reason", 16}, {"Reserved", 16}},
	0x09: {{"Message ID", 64}, {"New Limit", 64}},
	0x0a: {{"Reason", 16}, {"Reserved", 16}, {"Message ID", 64}},
}

// oracleLengths is the table RDCC Message Types.
var oracleLengths = map[uint64]int{0x01: 48, 0x02: 48, 0x03: 56, 0x04: 40, 0x05: 32, 0x06: 48, 0x07: 32, 0x08: 28, 0x09: 32, 0x0a: 28}

var oracleFlags = map[uint64]uint64{0x01: 0x0002, 0x02: 0x0001, 0x04: 0x0003}

// readBits takes the fields from the datagram, the first bit of an octet being its most significant one.
func readBits(b []byte, at int, fields []bits, into map[string]uint64) (next int) {
	for _, f := range fields {
		var v uint64
		for range f.width {
			v = v*2 + uint64(b[at/8]>>(7-at%8)%2)
			at++
		}
		into[f.name] = v
	}
	return at
}

// oracle says what the datagram is, or in one word why it must be discarded.
func oracle(b []byte) (fields map[string]uint64, addrs [2]netip.Addr, discard string) {
	fields = map[string]uint64{}
	if len(b) < 16 {
		return fields, addrs, "truncated"
	}
	at := readBits(b, 0, oracleHeader, fields)
	if fields["Version"] != 1 {
		return fields, addrs, "version"
	}
	t, length := fields["Type"], int(fields["Length"])
	fields["Flags"] &= oracleFlags[t]
	want, known := oracleLengths[t]
	if !known {
		want = 16
	}
	switch {
	case length > len(b):
		return fields, addrs, "long"
	case length < want:
		return fields, addrs, "short"
	case !known:
		return fields, addrs, "type"
	}
	at = readBits(b, at, oracleBodies[t], fields)
	switch t {
	case 0x03:
		if fields["Class"] > 7 {
			fields["Class"] = 7
		}
		if fields["Weight"] == 0 {
			fields["Weight"] = 1
		}
	case 0x06:
		b = b[at/8:]
		switch fields["AF"] {
		case 4:
			addrs[0], _ = netip.AddrFromSlice(b[:4])
			addrs[1], _ = netip.AddrFromSlice(b[4:8])
		case 6:
			if length < 72 {
				return fields, addrs, "short"
			}
			addrs[0], _ = netip.AddrFromSlice(b[:16])
			addrs[1], _ = netip.AddrFromSlice(b[16:32])
		default:
			return fields, addrs, "af"
		}
	}
	return fields, addrs, ""
}

var oracleWords = map[error]string{
	nil: "", ErrTruncated: "truncated", ErrVersion: "version", ErrType: "type", ErrShort: "short", ErrLong: "long", ErrAF: "af",
}

// compare holds the codec's reading of b against the oracle's, and returns what differs, or "".
func compare(b []byte) string {
	var d Datagram
	err := d.Decode(b)
	fields, addrs, discard := oracle(b)
	if word, ok := oracleWords[err]; !ok || word != discard {
		return fmt.Sprintf("Decode: %v; the oracle says %q", err, discard)
	}
	if err != nil && err != ErrType {
		return ""
	}
	got := map[string]uint64{
		"Type": uint64(d.Type), "Flags": uint64(d.Flags), "Association ID": uint64(d.Assoc), "Epoch": uint64(d.Epoch), "Sequence Number": uint64(d.Seq),
	}
	var gotAddrs [2]netip.Addr
	switch m := d.Message().(type) {
	case *AssocRequest:
		got["Sender Nonce"], got["Capabilities"], got["Line Rate"] = m.SenderNonce, uint64(m.Capabilities), uint64(m.LineRate)
	case *AssocAccept:
		got["Sender Nonce"], got["Capabilities"], got["U"] = m.SenderNonce, uint64(m.Capabilities), uint64(m.UnscheduledLimit)
		got["J"], got["N_cu"] = uint64(m.StartJitter), uint64(m.BacklogThreshold)
		got["Grant Lifetime"], got["Credit Unit"] = uint64(m.GrantLifetime), uint64(m.CreditUnit)
	case *CreditRequest:
		got["Message ID"], got["Message Length"], got["Unscheduled Sent"] = m.MessageID, m.MessageLength, m.UnscheduledSent
		got["Class"], got["Weight"], got["Service Hint"] = uint64(m.Class), uint64(m.Weight), uint64(m.ServiceHint)
		got["Binding Kind"], got["Deadline"], got["Binding Value"] = uint64(m.BindingKind), uint64(m.Deadline), m.BindingValue
	case *CreditGrant:
		got["Message ID"], got["Grant Limit"] = m.MessageID, m.GrantLimit
		got["Pacing Rate"], got["Lifetime"] = uint64(m.PacingRate), uint64(m.Lifetime)
	case *SenderStatus:
		got["Unused Credit"], got["Congestion Lvl"] = m.UnusedCredit, uint64(m.CongestionLevel)
		got["Service Hint"], got["Suggested Rate"] = uint64(m.ServiceHint), uint64(m.SuggestedRate)
	case *CongestionReport:
		got["Reporter ID"], got["Queue Depth"], got["Queue Threshold"] = uint64(m.ReporterID), uint64(m.QueueDepth), uint64(m.QueueThreshold)
		got["Cong. Degree"], got["Direction"], got["AF"] = uint64(m.CongestionDegree), uint64(m.Direction), uint64(m.AF())
		got["Protocol"], got["Source Port"], got["Destination Port"] = uint64(m.Protocol), uint64(m.SourcePort), uint64(m.DestinationPort)
		got["Suggested Rate"] = uint64(m.SuggestedRate)
		gotAddrs = [2]netip.Addr{m.Source, m.Destination}
	case *MsgDone:
		got["Message ID"], got["Octets Received"] = m.MessageID, m.OctetsReceived
	case *Cancel:
		got["Message ID"], got["Reason"] = m.MessageID, uint64(m.Reason)
	case *CreditReturn:
		got["Message ID"], got["New Limit"] = m.MessageID, m.NewLimit
	case *Error:
		got["Message ID"], got["Reason"] = m.MessageID, uint64(m.Reason)
	}
	for _, skip := range []string{"Version", "Rsv", "Length", "Reserved", "r1", "r2", "r3", "r4"} {
		delete(fields, skip)
	}
	for name, want := range fields {
		if v, ok := got[name]; !ok || v != want {
			return fmt.Sprintf("%s %s: got %d (present: %t), the oracle says %d", d.Type, name, v, ok, want)
		}
	}
	if len(got) != len(fields) || gotAddrs != addrs {
		return fmt.Sprintf("%s: got %v %v, the oracle says %v %v", d.Type, got, gotAddrs, fields, addrs)
	}
	return ""
}
