package rdcc

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// addresses compare as values.
var addresses = cmpopts.EquateComparable(netip.Addr{})

// golden are datagrams beside what they say. The first two are those of the specification's appendix (Example Exchange and
// Encodings); the others were written octet by octet from the field diagrams.
var golden = []struct {
	name, why string
	header    Header
	message   Message
	hex       string
}{
	{
		"appendix_credit_request", "the specification's own bytes",
		Header{Type: TypeCreditRequest, Assoc: 0x5a17c0de, Epoch: 3, Seq: 7},
		&CreditRequest{
			MessageID: 0x101, MessageLength: 4 << 20, Class: 2, Weight: 4, ServiceHint: HintLatencySensitive,
			BindingKind: BindingRoCEv2, BindingValue: RoCEBinding{DestQP: 0x123, MSN: 5, Messages: 16}.Value(),
		},
		`10 03 00 38 5a 17 c0 de 00 03 00 00 00 00 00 07 00 00 00 00 00 00 01 01 00 00 00 00 00 40 00 00
		 00 00 00 00 00 00 00 00 02 04 01 01 00 00 00 00 00 01 23 00 00 05 00 10`,
	},
	{
		"appendix_credit_grant", "the specification's own bytes",
		Header{Type: TypeCreditGrant, Assoc: 0x5a17c0de, Epoch: 3, Seq: 42},
		&CreditGrant{MessageID: 0x101, GrantLimit: 262144, PacingRate: 100000, Lifetime: 2000},
		`10 04 00 28 5a 17 c0 de 00 03 00 00 00 00 00 2a 00 00 00 00 00 00 01 01 00 00 00 00 00 04 00 00
		 00 01 86 a0 00 00 07 d0`,
	},
	{
		"assoc_request", "its flag, and four reserved words that make it as long as its answer",
		Header{Type: TypeAssocRequest, Flags: FlagUpdateAck, Seq: 1},
		&AssocRequest{SenderNonce: 0x0123456789abcdef, Capabilities: CapPool | CapCRN, LineRate: 100000},
		`10 01 00 30 00000000 0000 0002 00000001 0123456789abcdef 00000005 000186a0
		 00000000 00000000 00000000 00000000`,
	},
	{
		"assoc_accept", "every parameter a number of its own",
		Header{Type: TypeAssocAccept, Flags: FlagParameterUpdate, Assoc: 0xa1b2c3d4, Epoch: 0xe5f6, Seq: 0xfffffffe},
		&AssocAccept{
			SenderNonce: 0xfedcba9876543210, Capabilities: 7, UnscheduledLimit: 0x4000, StartJitter: 0x1e,
			BacklogThreshold: 0x5b8d8, GrantLifetime: 0x64, CreditUnit: 0x1000,
		},
		`10 02 00 30 a1b2c3d4 e5f6 0001 fffffffe fedcba9876543210 00000007 00004000
		 0000001e 0005b8d8 00000064 00001000`,
	},
	{
		"pool_grant_final", "both flags",
		Header{Type: TypeCreditGrant, Flags: FlagPool | FlagFinal, Assoc: 9, Epoch: 1, Seq: 2},
		&CreditGrant{GrantLimit: 0x1122334455667788, PacingRate: 1, Lifetime: 0},
		`10 04 00 28 00000009 0001 0003 00000002 0000000000000000 1122334455667788 00000001 00000000`,
	},
	{
		"sender_status", "level and hint share a word with what is reserved",
		Header{Type: TypeSenderStatus, Assoc: 9, Epoch: 1, Seq: 3},
		&SenderStatus{UnusedCredit: 0x0102030405060708, CongestionLevel: 0xf0, ServiceHint: HintThroughputOriented, SuggestedRate: 25000},
		`10 05 00 20 00000009 0001 0000 00000003 0102030405060708 f0 02 0000 000061a8`,
	},
	{
		"report_ipv4", "48 octets",
		Header{Type: TypeCongestionReport, Seq: 4},
		&CongestionReport{
			ReporterID: 0xc0a80001, QueueDepth: 0x30000, QueueThreshold: 0x19000, CongestionDegree: 77, Direction: ToReceiver,
			Protocol: 17, SourcePort: 49193, DestinationPort: 4791, SuggestedRate: 12500,
			Source: netip.MustParseAddr("10.0.0.1"), Destination: netip.MustParseAddr("10.0.0.9"),
		},
		`10 06 00 30 00000000 0000 0000 00000004 c0a80001 00030000 00019000 4d 01 04 11 c029 12b7 000030d4
		 0a000001 0a000009`,
	},
	{
		"report_ipv6", "72 octets",
		Header{Type: TypeCongestionReport, Seq: 5},
		&CongestionReport{
			ReporterID: 1, QueueDepth: 2, QueueThreshold: 1, CongestionDegree: 255, Direction: ToSender,
			Protocol: 17, SourcePort: 1, DestinationPort: 4791,
			Source: netip.MustParseAddr("2001:db8::1"), Destination: netip.MustParseAddr("2001:db8::9"),
		},
		`10 06 00 48 00000000 0000 0000 00000005 00000001 00000002 00000001 ff 02 06 11 0001 12b7 00000000
		 20010db8000000000000000000000001 20010db8000000000000000000000009`,
	},
	{
		"report_mapped", "IPv4 in IPv6 form stays IPv6, as the data packet had it",
		Header{Type: TypeCongestionReport, Seq: 6},
		&CongestionReport{Direction: ToSender, Source: netip.MustParseAddr("::ffff:10.0.0.1"), Destination: netip.MustParseAddr("::1")},
		`10 06 00 48 00000000 0000 0000 00000006 00000000 00000000 00000000 00 02 06 00 0000 0000 00000000
		 00000000000000000000ffff0a000001 00000000000000000000000000000001`,
	},
	{
		"msg_done", "",
		Header{Type: TypeMsgDone, Assoc: 9, Epoch: 1, Seq: 7},
		&MsgDone{MessageID: 0x100, OctetsReceived: 2048},
		`10 07 00 20 00000009 0001 0000 00000007 0000000000000100 0000000000000800`,
	},
	{
		"cancel", "the Message ID comes first",
		Header{Type: TypeCancel, Assoc: 9, Epoch: 1, Seq: 8},
		&Cancel{MessageID: 0x101, Reason: ReasonApplicationAbort},
		`10 08 00 1c 00000009 0001 0000 00000008 0000000000000101 0006 0000`,
	},
	{
		"credit_return", "",
		Header{Type: TypeCreditReturn, Assoc: 9, Epoch: 1, Seq: 9},
		&CreditReturn{MessageID: 0x101, NewLimit: 0x20000},
		`10 09 00 20 00000009 0001 0000 00000009 0000000000000101 0000000000020000`,
	},
	{
		"error", "the Reason comes first",
		Header{Type: TypeError, Assoc: 9, Epoch: 1, Seq: 10},
		&Error{Reason: ReasonUnsupportedBinding, MessageID: 0x101},
		`10 0a 00 1c 00000009 0001 0000 0000000a 0007 0000 0000000000000101`,
	},
}

func TestGolden(t *testing.T) {
	for _, g := range golden {
		t.Run(g.name, func(t *testing.T) {
			want := unhex(t, g.hex)
			prefix := []byte("before")
			got := g.message.Append(prefix, g.header)
			if !bytes.Equal(got[:6], prefix) || !bytes.Equal(got[6:], want) {
				t.Errorf("Append (%s):\n got %x\nwant %x", g.why, got[6:], want)
			}
			var d Datagram
			if err := d.Decode(want); err != nil {
				t.Fatalf("Decode: %v", err)
			}
			if d.Header != g.header {
				t.Errorf("header: got %+v, want %+v", d.Header, g.header)
			}
			if diff := cmp.Diff(g.message, d.Message(), addresses); diff != "" {
				t.Errorf("%s (-want +got):\n%s", g.why, diff)
			}
		})
	}
}

// TestAppendOverwrites: the room behind b may hold anything, and nothing of it shows.
func TestAppendOverwrites(t *testing.T) {
	for _, g := range golden {
		dirty := bytes.Repeat([]byte{0xff}, 100)
		if got, want := g.message.Append(dirty[:0], g.header), unhex(t, g.hex); !bytes.Equal(got, want) {
			t.Errorf("%s: got %x, want %x", g.name, got, want)
		}
	}
}
