package rdcc

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Inspection is all that can be said of a datagram, for people. See [Inspect].
type Inspection struct {
	Type     Type // of the header, when that much is there
	HasType  bool
	Octets   int // of the UDP payload
	Fields   []Field
	Mistakes []Mistake
}

// Field is a field of a datagram as it is on the wire: nothing is clamped or masked.
type Field struct {
	Name   string // as the specification has it
	Offset int    // of its first octet in the datagram
	Len    int    // octets; 1 for the two halves of the first
	Value  uint64
	Addr   netip.Addr // of the two addresses of a report
	Text   string     // the value with its unit or name
	key    string
	kind   kind
}

// Mistake is what a sender must not, or would not, send. Offset and Field say where.
type Mistake struct {
	Offset  int
	Field   string
	Text    string // what is there, and what would be right
	Discard bool   // the datagram must be discarded; otherwise the receiver goes on as the specification says
}

func (m Mistake) String() string { return fmt.Sprintf("offset %d: %s: %s", m.Offset, m.Field, m.Text) }

// Discarded says that the datagram must be discarded: Decode returns an error for it.
func (in *Inspection) Discarded() bool {
	return slices.ContainsFunc(in.Mistakes, func(m Mistake) bool { return m.Discard })
}

// Inspect reads the payload of a UDP datagram field by field, as far as it goes, and says everything that is wrong with it.
// It agrees with Decode on what must be discarded; beyond that it names what receivers overlook. It is slow and allocates.
func Inspect(b []byte) *Inspection {
	in := &Inspection{Octets: len(b)}
	rest := in.read(b, 0, headerLayout)
	if len(b) > 1 {
		in.Type, in.HasType = Type(b[1]), true
	}
	if len(b) >= 1 && b[0]>>4 != Version {
		hint := ""
		if b[0] == 0x45 {
			hint = " (0x45 is how an IPv4 header begins: the payload of UDP alone is a datagram)"
		}
		in.wrong(true, "Version", "%d, and only version %d is known%s", b[0]>>4, Version, hint)
		return in
	}
	if rest < HeaderLen {
		return in
	}
	length := int(binary.BigEndian.Uint16(b[2:]))
	need := int(ofType[in.Type].len)
	if length > len(b) {
		in.wrong(true, "Length", "%d, and the datagram has %d octets", length, len(b))
	} else if length < max(need, HeaderLen) {
		in.wrong(true, "Length", "%d, and %s has at least %d octets", length, in.what(), max(need, HeaderLen))
	}
	if need == 0 {
		in.wrong(true, "Type", "0x%02x%s", uint8(in.Type), whatType(in.Type))
		return in
	}
	rest = in.read(b, rest, layouts[in.Type])
	if f, ok := in.Field("AF"); ok {
		rest = in.addresses(b, rest, length, f)
	}
	if !in.Discarded() {
		in.behind(rest, length)
		in.judge()
	}
	slices.SortStableFunc(in.Mistakes, func(a, b Mistake) int { return a.Offset - b.Offset })
	return in
}

func (in *Inspection) what() string {
	if in.Type.Defined() {
		return in.Type.String()
	}
	return "the common header"
}

// whatType says why a type is not one of ours (RDCC Registries).
func whatType(t Type) string {
	switch {
	case t == 0:
		return " is reserved"
	case t >= 0xc0:
		return " is for private use"
	}
	return ", and the types are 0x01 to 0x0a"
}

// read takes the fields of a layout from b, and returns where the last whole one ends. A field that is cut is a mistake.
func (in *Inspection) read(b []byte, at int, layout []field) int {
	for _, f := range layout {
		if at+f.len > len(b) {
			in.Mistakes = append(in.Mistakes, Mistake{at, f.name, fmt.Sprintf("cut: it ends at octet %d, and the datagram has %d", at+f.len, len(b)), true})
			return at
		}
		var v uint64
		for _, octet := range b[at : at+f.len] {
			v = v<<8 | uint64(octet)
		}
		switch f.kind {
		case kVersion:
			v >>= 4
		case kRsv:
			v &= 0x0f
		}
		in.Fields = append(in.Fields, Field{Name: f.name, Offset: at, Len: f.len, Value: v, Text: f.kind.text(v), key: f.key, kind: f.kind})
		if f.kind != kVersion { // which shares its octet with Rsv
			at += f.len
		}
	}
	return at
}

// addresses takes the two addresses at the end of a report.
func (in *Inspection) addresses(b []byte, at, length int, af Field) int {
	n, need := 4, reportLen4
	switch af.Value {
	case af4:
	case af6:
		n, need = 16, reportLen6
	default:
		in.wrong(true, "AF", "%d: need 4 (IPv4) or 6 (IPv6)", af.Value)
		return at
	}
	if length < need && length >= reportLen4 && length <= len(b) {
		in.wrong(true, "Length", "%d, and a report of IPv%d has %d octets", length, af.Value, need)
	}
	for _, f := range []field{{"Source Address", "source_address", n, kAddress}, {"Destination Address", "destination_address", n, kAddress}} {
		if at+n > len(b) {
			in.Mistakes = append(in.Mistakes, Mistake{at, f.name, fmt.Sprintf("cut: it ends at octet %d, and the datagram has %d", at+n, len(b)), true})
			break
		}
		addr, _ := netip.AddrFromSlice(b[at : at+n])
		in.Fields = append(in.Fields, Field{Name: f.name, Offset: at, Len: n, Addr: addr, Text: addr.String(), key: f.key, kind: f.kind})
		at += n
	}
	return at
}

// behind says what follows the fields, which all receivers ignore.
func (in *Inspection) behind(end, length int) {
	if length > end {
		in.Mistakes = append(in.Mistakes, Mistake{end, "octets behind the fields", fmt.Sprintf("%d octets that %s does not define (ignored)", length-end, in.what()), false})
	}
	if in.Octets > length {
		in.Mistakes = append(in.Mistakes, Mistake{length, "octets behind the message", fmt.Sprintf("%d: a datagram carries one message (ignored)", in.Octets-length), false})
	}
}

// Field is the first field of that name.
func (in *Inspection) Field(name string) (Field, bool) {
	i := slices.IndexFunc(in.Fields, func(f Field) bool { return f.Name == name })
	if i < 0 {
		return Field{}, false
	}
	return in.Fields[i], true
}

func (in *Inspection) value(name string) uint64 {
	f, _ := in.Field(name)
	return f.Value
}

// wrong notes a mistake in a field that was read.
func (in *Inspection) wrong(discard bool, field, format string, args ...any) {
	f, _ := in.Field(field)
	in.Mistakes = append(in.Mistakes, Mistake{f.Offset, field, fmt.Sprintf(format, args...), discard})
}

// Key is the field's name in JSON, with its unit, and JSON the value in that unit: rates in bit/s, durations in ns.
func (f *Field) Key() string { return f.key }

// JSON is the value for JSON; numbers that programs could round are hexadecimal text.
func (f *Field) JSON() any {
	switch f.kind {
	case kRate:
		return Mbps(f.Value).BitsPerSecond()
	case kMicros:
		return Micros(f.Value).Duration().Nanoseconds()
	case kHex, kAssoc:
		return fmt.Sprintf("0x%0*x", f.Len*2, f.Value)
	case kType, kHint, kBinding, kReason, kDirection:
		return f.Text
	case kAddress:
		return f.Addr.String()
	}
	return f.Value
}

// Reserved says that the field means nothing.
func (f *Field) Reserved() bool { return f.kind == kRsv || f.kind == kReserved }

// Summary is the message in a line, without its header.
func (in *Inspection) Summary() string {
	var parts []string
	for _, f := range in.Fields {
		if f.Offset >= HeaderLen && !f.Reserved() && f.kind != kPart {
			parts = append(parts, f.Name+" "+f.Text)
		}
	}
	return strings.Join(parts, ", ")
}
