package rdcc

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestInspect_golden: what is right has no mistakes, and its fields cover every octet once.
func TestInspect_golden(t *testing.T) {
	for _, g := range golden {
		b := unhex(t, g.hex)
		in := Inspect(b)
		for _, m := range in.Mistakes {
			if g.name != "pool_grant_final" && g.name != "report_mapped" { // which show what codecs must carry, not what is sensible
				t.Errorf("%s: %s", g.name, m)
			}
		}
		covered := make([]int, len(b))
		for _, f := range in.Fields {
			for i := range f.Len {
				if f.kind != kPart && f.kind != kRsv {
					covered[f.Offset+i]++
				}
			}
		}
		if slices.ContainsFunc(covered, func(n int) bool { return n != 1 }) {
			t.Errorf("%s: octets are covered %v times", g.name, covered)
		}
		keys := map[string]bool{}
		for _, f := range in.Fields {
			if keys[f.Key()] && !f.Reserved() {
				t.Errorf("%s: %s is there twice", g.name, f.Key())
			}
			keys[f.Key()] = true
		}
	}
}

// TestInspect_mistakes: each is named with its offset and field, and those alone are fatal that the specification says.
func TestInspect_mistakes(t *testing.T) {
	const request, grant, assoc, accept, status, report4, report6, done, cancel, fault = 0, 1, 2, 3, 5, 6, 7, 9, 10, 12
	rows := []struct {
		why  string
		base int
		edit string // octet=value, octet+ to append, cut to shorten
		want string // what the only mistake says
	}{
		{"another version", grant, "0=20", "offset 0: Version: 2, and only version 1 is known [discard]"},
		{"a whole packet", grant, "0=45", "offset 0: Version: 4, and only version 1 is known (0x45 is how an IPv4 header begins: the payload of UDP alone is a datagram) [discard]"},
		{"the reserved half", grant, "0=13", "offset 0: Rsv: not zero (ignored)"},
		{"type zero", grant, "1=00", "offset 1: Type: 0x00 is reserved [discard]"},
		{"a type that may come", grant, "1=0b", "offset 1: Type: 0x0b, and the types are 0x01 to 0x0a [discard]"},
		{"somebody's own", grant, "1=c0", "offset 1: Type: 0xc0 is for private use [discard]"},
		{"too short for its type", grant, "3=27", "offset 2: Length: 39, and CREDIT_GRANT has at least 40 octets [discard]"},
		{"longer than the datagram", grant, "3=29", "offset 2: Length: 41, and the datagram has 40 octets [discard]"},
		{"a report that is short for its family", report6, "3=30", "offset 2: Length: 48, and a report of IPv6 has 72 octets [discard]"},
		{"no address family", report4, "30=05", "offset 30: AF: 5: need 4 (IPv4) or 6 (IPv6) [discard]"},
		{"an undefined flag", request, "11=01", "offset 10: Flags: 0x0001 is not defined for CREDIT_REQUEST (ignored)"},
		{"no association", request, "4=00 5=00 6=00 7=00", "offset 4: Association ID: zero: the receiver assigns another one"},
		{"an association before there is one", assoc, "7=01", "offset 4: Association ID: 0x00000001: zero in ASSOC_REQUEST"},
		{"an epoch from a CRN", report4, "9=02", "offset 8: Epoch: 2: zero in CONGESTION_REPORT"},
		{"octets behind", done, "+0000", "offset 32: octets behind the message: 2: a datagram carries one message (ignored)"},
		{"octets that Length claims", done, "3=22 +0000", "offset 32: octets behind the fields: 2 octets that MSG_DONE does not define (ignored)"},
		{"a reserved word", assoc, "40=01", "offset 40: Reserved: not zero (ignored)"},
		{"a capability of the future", accept, "27=0f", "offset 24: Capabilities: 0x00000008 is not defined (ignored)"},
		{"no line rate", assoc, "28=00 29=00 30=00 31=00", "offset 28: Line Rate: zero: the receiver could grant nothing"},
		{"no lifetime", accept, "43=00", "offset 40: Grant Lifetime: zero: grants without one would never hold"},
		{"no credit unit", accept, "46=00", "offset 44: Credit Unit: zero: typically the payload of the path's MTU"},
		{"message zero", request, "22=00 23=00", "offset 16: Message ID: zero is reserved"},
		{"a class beyond", request, "40=08", "offset 40: Class: 8: need 0 to 7 (treated as 7)"},
		{"no weight", request, "41=00", "offset 41: Weight: zero: need 1 to 255 (treated as 1)"},
		{"a hint of the future", request, "42=03", "offset 42: Service Hint: 3: need 0 none, 1 latency-sensitive or 2 throughput-oriented (as good as none)"},
		{"a hint of the future", status, "25=07", "offset 25: Service Hint: 7: need 0 none, 1 latency-sensitive or 2 throughput-oriented (as good as none)"},
		{"a reserved binding", request, "43=00", "offset 43: Binding Kind: 0: need 1 RoCEv2 or 2 Opaque (answered with UNSUPPORTED_BINDING)"},
		{"no RDMA message", request, "55=00", "offset 54: Binding Value: RDMA messages: none for a message of 4194304 octets"},
		{"more sent than there is", request, "36=01", "offset 32: Unscheduled Sent: 16777216 octets of a message of 4194304"},
		{"a grant for no message", grant, "22=00 23=00", "offset 16: Message ID: zero without the POOL flag"},
		{"a pool grant for a message", grant, "11=01", "offset 16: Message ID: 257 with the POOL flag: zero in a pool grant"},
		{"a pool that ends", grant, "11=03 22=00 23=00", "offset 10: Flags: FINAL with POOL: a pool has no end"},
		{"a rate of zero", grant, "33=00 34=00 35=00", "offset 32: Pacing Rate: zero: the sender ignores the grant"},
		{"to nobody", report4, "29=03", "offset 29: Direction: 3: need 1 (to the receiver) or 2 (to the sender) (the report is ignored)"},
		{"nothing to report", report4, "21=00", "offset 20: Queue Depth: 0 octets, not above the threshold of 102400: nothing to report"},
		{"message zero done", done, "22=00", "offset 16: Message ID: zero is reserved"},
		{"message zero cancelled", cancel, "22=00 23=00", "offset 16: Message ID: zero is reserved"},
		{"a reason of the future", cancel, "25=08", "offset 24: Reason: 0x0008: need 0x0000 to 0x0007"},
		{"a reason of the future", fault, "16=01", "offset 16: Reason: 0x0107: need 0x0000 to 0x0007"},
		{"an error without association", fault, "7=00", "offset 4: Association ID: zero, and only a refusal concerns no association"},
	}
	for _, r := range rows {
		b := unhex(t, golden[r.base].hex)
		for _, e := range strings.Fields(r.edit) {
			if more, ok := strings.CutPrefix(e, "+"); ok {
				b = append(b, unhex(t, more)...)
				continue
			}
			var at int
			var v byte
			if _, err := fmt.Sscanf(e, "%d=%x", &at, &v); err != nil {
				t.Fatal(err)
			}
			b[at] = v
		}
		var got []string
		for _, m := range Inspect(b).Mistakes {
			s := m.String()
			if m.Discard {
				s += " [discard]"
			}
			got = append(got, s)
		}
		if len(got) != 1 || got[0] != r.want {
			t.Errorf("%s (%s, %s):\n got %q\nwant %q", r.why, golden[r.base].name, r.edit, got, r.want)
		}
	}
	refusal := (&Error{Reason: ReasonAssocRefused}).Append(nil, Header{Seq: 1})
	if in := Inspect(refusal); len(in.Mistakes) != 0 {
		t.Errorf("a refusal, which has no association: %v", in.Mistakes)
	}
}

// TestInspect_severalMistakes: all are named, sorted by offset.
func TestInspect_severalMistakes(t *testing.T) {
	b := unhex(t, golden[0].hex)
	b[0], b[11], b[40], b[41], b[42], b[43] = 0x11, 0x80, 9, 0, 9, 9
	var at []int
	for _, m := range Inspect(b).Mistakes {
		at = append(at, m.Offset)
	}
	if !slices.Equal(at, []int{0, 10, 40, 41, 42, 43}) {
		t.Errorf("mistakes at %v", at)
	}
}

// TestInspect_cuts: the field in which a datagram ends is named.
func TestInspect_cuts(t *testing.T) {
	b := unhex(t, golden[1].hex)
	rows := []struct {
		n     int
		field string
	}{{0, "Version"}, {1, "Type"}, {3, "Length"}, {4, "Association ID"}, {15, "Sequence Number"}, {16, "Message ID"}, {39, "Lifetime"}}
	for _, r := range rows {
		in := Inspect(b[:r.n])
		if !slices.ContainsFunc(in.Mistakes, func(m Mistake) bool { return m.Field == r.field && m.Discard && strings.HasPrefix(m.Text, "cut: ") }) {
			t.Errorf("%d octets: %v", r.n, in.Mistakes)
		}
	}
	if in := Inspect(nil); in.HasType {
		t.Error("nothing has a type")
	}
}

// TestInspectAgrees: what Decode refuses, Inspect calls a reason to discard, and nothing else; and the fields are the oracle's.
func TestInspectAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawDatagram(t)
		in := Inspect(b)
		var d Datagram
		if err := d.Decode(b); (err != nil) != in.Discarded() {
			t.Fatalf("%x: Decode says %v, Inspect %v", b, err, in.Mistakes)
		} else if err != nil {
			return
		}
		same := map[string]string{"U": "Unscheduled Limit U", "J": "Start Jitter J", "N_cu": "Backlog Threshold N_cu", "Cong. Degree": "Congestion Degree", "Congestion Lvl": "Congestion Level"}
		fields := map[string]uint64{}
		readBits(b, readBits(b, 0, oracleHeader, fields), oracleBodies[fields["Type"]], fields)
		for name, want := range fields {
			if s, ok := same[name]; ok {
				name = s
			}
			if f, ok := in.Field(name); name != "Reserved" && !strings.HasPrefix(name, "r") && (!ok || f.Value != want) {
				t.Fatalf("%x: %s: got %+v, want %d", b, name, f, want)
			}
		}
		if m, ok := d.Message().(*CongestionReport); ok {
			src, _ := in.Field("Source Address")
			dst, _ := in.Field("Destination Address")
			if src.Addr != m.Source || dst.Addr != m.Destination {
				t.Fatalf("%x: %v %v", b, src, dst)
			}
		}
	})
}

func FuzzInspect(f *testing.F) {
	for _, b := range valid(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in := Inspect(b)
		var d Datagram
		if err := d.Decode(b); (err != nil) != in.Discarded() {
			t.Fatalf("%x: Decode says %v, Inspect %v", b, err, in.Mistakes)
		}
		for _, m := range in.Mistakes {
			if m.Offset < 0 || m.Offset > len(b) || m.Field == "" || m.Text == "" {
				t.Fatalf("%x: mistake %+v", b, m)
			}
		}
		for _, field := range in.Fields {
			if field.Offset+field.Len > len(b) || field.JSON() == nil || field.Key() == "" {
				t.Fatalf("%x: field %+v", b, field)
			}
		}
		_ = in.Summary()
	})
}

func TestFlagNames(t *testing.T) {
	rows := []struct {
		typ   Type
		flags uint16
		want  string
	}{
		{TypeCreditGrant, 0x0003, "POOL FINAL"}, {TypeCreditGrant, 0x8002, "FINAL 0x8000"}, {TypeAssocRequest, 0x0003, "UPDATE_ACK 0x0001"},
		{TypeAssocAccept, 0x0001, "PARAMETER_UPDATE"}, {TypeMsgDone, 0x0001, "0x0001"}, {TypeMsgDone, 0, ""},
	}
	for _, r := range rows {
		if got := strings.Join(FlagNames(r.typ, r.flags), " "); got != r.want {
			t.Errorf("%s %#x: got %q, want %q", r.typ, r.flags, got, r.want)
		}
	}
}
