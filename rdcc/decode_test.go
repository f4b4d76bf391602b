package rdcc

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// valid are datagrams of every type, with their encoding.
func valid(t testing.TB) map[string][]byte {
	all := map[string][]byte{}
	for _, g := range golden {
		all[g.name] = unhex(t, g.hex)
	}
	return all
}

func decode(b []byte) (*Datagram, error) {
	d := new(Datagram)
	return d, d.Decode(b)
}

func TestGoldenCoversEveryType(t *testing.T) {
	seen := map[Type]bool{}
	for _, g := range golden {
		seen[g.header.Type] = true
	}
	for n := range 256 {
		if typ := Type(n); typ.Defined() != seen[typ] {
			t.Errorf("%s: defined %t, among the golden datagrams %t", typ, typ.Defined(), seen[typ])
		}
	}
	if len(seen) != 10 {
		t.Errorf("%d types, the specification has ten", len(seen))
	}
}

func TestDecode_versions(t *testing.T) {
	for name, b := range valid(t) {
		for v := range byte(16) {
			b[0] = v << 4
			_, err := decode(b)
			if v == 1 && err != nil || v != 1 && err != ErrVersion {
				t.Errorf("%s, version %d: %v", name, v, err)
			}
		}
	}
}

// TestDecode_everyTruncation: a datagram that was cut anywhere is refused.
func TestDecode_everyTruncation(t *testing.T) {
	for name, b := range valid(t) {
		for n := range len(b) {
			if d, err := decode(b[:n:n]); err == nil {
				t.Errorf("%s cut to %d of %d octets: accepted as %+v", name, n, len(b), d.Message())
			}
		}
	}
}

// TestDecode_everyLength: of all 65536 values of Length in a datagram that is as long as its type, one is right. IPv4 and
// IPv6 reports differ, so that the wrong family's length is among them.
func TestDecode_everyLength(t *testing.T) {
	for name, b := range valid(t) {
		right := int(binary.BigEndian.Uint16(b[2:]))
		for length := range 1 << 16 {
			binary.BigEndian.PutUint16(b[2:], uint16(length))
			_, err := decode(b)
			want := error(nil)
			if length < right {
				want = ErrShort
			} else if length > right {
				want = ErrLong
			}
			if err != want {
				t.Errorf("%s, length %d of %d: got %v, want %v", name, length, right, err, want)
			}
		}
	}
}

// TestDecode_shortForTypeButThere: the octets are all there, but Length does not claim them.
func TestDecode_shortForTypeButThere(t *testing.T) {
	for name, b := range valid(t) {
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)-1))
		if _, err := decode(append(b, make([]byte, 40)...)); err != ErrShort {
			t.Errorf("%s, length one less than the type has, 40 octets more in the datagram: %v", name, err)
		}
	}
}

// TestDecode_reportOfTheOtherFamily: 48 octets are enough for IPv4 alone.
func TestDecode_reportOfTheOtherFamily(t *testing.T) {
	b := unhex(t, golden[7].hex) // IPv6
	binary.BigEndian.PutUint16(b[2:], 48)
	for _, n := range []int{48, 72} {
		if _, err := decode(b[:n]); err != ErrShort {
			t.Errorf("IPv6 report of length 48 in a datagram of %d octets: %v", n, err)
		}
	}
	for af := range 256 {
		b := unhex(t, golden[7].hex)
		b[30] = byte(af)
		_, err := decode(b)
		if known := af == 4 || af == 6; known != (err == nil) || !known && err != ErrAF {
			t.Errorf("AF %d: %v", af, err)
		}
	}
}

// TestDecode_octetsBehind: what the type does not define is ignored, whether Length claims it or not (decision 24).
func TestDecode_octetsBehind(t *testing.T) {
	for _, g := range golden {
		b := unhex(t, g.hex)
		longer := append(bytes.Clone(b), 0xde, 0xad, 0xbe, 0xef)
		claimed := bytes.Clone(longer)
		binary.BigEndian.PutUint16(claimed[2:], uint16(len(claimed)))
		for _, in := range [][]byte{longer, claimed} {
			d, err := decode(in)
			if err != nil {
				t.Errorf("%s: %v", g.name, err)
			} else if got := d.Message().Append(nil, d.Header); !bytes.Equal(got, b) {
				t.Errorf("%s: read as %x", g.name, got)
			}
		}
	}
}

// TestDecode_unknownTypes: discarded, and the header is there for the answer that the receiver may give.
func TestDecode_unknownTypes(t *testing.T) {
	for n := range 256 {
		if Type(n).Defined() {
			continue
		}
		b := unhex(t, golden[2].hex)
		b[1] = byte(n)
		binary.BigEndian.PutUint32(b[4:], 0x5a17c0de)
		d, err := decode(b)
		want := Header{Type: Type(n), Assoc: 0x5a17c0de, Seq: 1}
		if err != ErrType || d.Header != want {
			t.Errorf("type %d: %v, header %+v, want %+v", n, err, d.Header, want)
		}
		if d.Message() != nil {
			t.Errorf("type %d: has a body", n)
		}
		binary.BigEndian.PutUint16(b[2:], 15)
		if _, err := decode(b); err != ErrShort {
			t.Errorf("type %d, length less than the header has: %v", n, err)
		}
	}
}

// TestDecode_undefinedFlags: each of the 16 is either of the type and seen, or not and invisible.
func TestDecode_undefinedFlags(t *testing.T) {
	defined := map[Type]uint16{
		TypeAssocRequest: 0x0002, TypeAssocAccept: 0x0001, TypeCreditGrant: 0x0003, // RDCC Message Flags
	}
	for name, b := range valid(t) {
		for bit := range 16 {
			binary.BigEndian.PutUint16(b[10:], 1<<bit)
			d, err := decode(b)
			if err != nil {
				t.Errorf("%s, flag %#04x: %v", name, 1<<bit, err)
			} else if want := defined[d.Type] & (1 << bit); d.Flags != want {
				t.Errorf("%s, flag %#04x: got %#04x, want %#04x", name, 1<<bit, d.Flags, want)
			}
		}
	}
}

func TestAppend_undefinedFlagsAreNotSent(t *testing.T) {
	for _, g := range golden {
		h := g.header
		h.Flags = 0xffff
		got := g.message.Append(nil, h)
		if flags := binary.BigEndian.Uint16(got[10:]); flags != uint16(oracleFlags[uint64(h.Type)]) {
			t.Errorf("%s: all flags asked for, %#04x written", g.name, flags)
		}
	}
}

// TestAppend_noAssociation: whatever the caller has at hand, ASSOC_REQUEST and reports carry no association and no epoch.
func TestAppend_noAssociation(t *testing.T) {
	for _, g := range golden {
		got := g.message.Append(nil, Header{Assoc: 0x01020304, Epoch: 0x0506, Seq: 1})
		assoc, epoch := binary.BigEndian.Uint32(got[4:]), binary.BigEndian.Uint16(got[8:])
		without := g.header.Type == TypeAssocRequest || g.header.Type == TypeCongestionReport
		if want := [2]uint32{0x01020304, 0x0506}; without && (assoc != 0 || epoch != 0) || !without && [2]uint32{assoc, uint32(epoch)} != want {
			t.Errorf("%s: association %#x, epoch %#x", g.name, assoc, epoch)
		}
	}
}

// TestReserved: reserved bits are zero when sent and change nothing when received.
func TestReserved(t *testing.T) {
	reserved := map[Type][]int{ // octets
		TypeAssocRequest: {32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47},
		TypeSenderStatus: {26, 27}, TypeCancel: {26, 27}, TypeError: {18, 19},
	}
	for _, g := range golden {
		b := unhex(t, g.hex)
		b[0] |= 0x0f
		for _, at := range reserved[g.header.Type] {
			if b[at] != 0 {
				t.Errorf("%s: reserved octet %d is sent as %#x", g.name, at, b[at])
			}
			b[at] = 0xff
		}
		d, err := decode(b)
		if err != nil {
			t.Errorf("%s: reserved bits set: %v", g.name, err)
		} else if got := d.Message().Append(nil, d.Header); !bytes.Equal(got, unhex(t, g.hex)) {
			t.Errorf("%s: reserved bits set: read as %x", g.name, got)
		}
	}
}

func TestClassClamped(t *testing.T) {
	for class := range 256 {
		b := unhex(t, golden[0].hex)
		b[40] = byte(class)
		d, err := decode(b)
		if want := uint8(min(class, 7)); err != nil || d.CreditRequest.Class != want {
			t.Errorf("class %d: got %d, %v, want %d", class, d.CreditRequest.Class, err, want)
		}
		m := CreditRequest{Class: uint8(class), Weight: 1}
		if got := m.Append(nil, Header{})[40]; got != uint8(min(class, 7)) {
			t.Errorf("class %d is sent as %d", class, got)
		}
	}
}

func TestWeightClamped(t *testing.T) {
	for weight := range 256 {
		b := unhex(t, golden[0].hex)
		b[41] = byte(weight)
		d, err := decode(b)
		if want := uint8(max(weight, 1)); err != nil || d.CreditRequest.Weight != want {
			t.Errorf("weight %d: got %d, %v, want %d", weight, d.CreditRequest.Weight, err, want)
		}
		m := CreditRequest{Weight: uint8(weight)}
		if got := m.Append(nil, Header{})[41]; got != uint8(max(weight, 1)) {
			t.Errorf("weight %d is sent as %d", weight, got)
		}
	}
}

// TestDecode_reuse: what an earlier datagram left is not seen in a later one of the type.
func TestDecode_reuse(t *testing.T) {
	var d Datagram
	for range 2 {
		for _, g := range golden {
			ones := bytes.Repeat([]byte{0xff}, MaxLen)
			ones[0], ones[1], ones[30] = 0x10, byte(g.header.Type), 6
			binary.BigEndian.PutUint16(ones[2:], MaxLen)
			if err := d.Decode(ones); err != nil {
				t.Fatalf("%s: %v", g.name, err)
			}
			b := unhex(t, g.hex)
			if err := d.Decode(b); err != nil || !bytes.Equal(d.Message().Append(nil, d.Header), b) {
				t.Errorf("%s after one full of ones: %+v, %v", g.name, d.Message(), err)
			}
		}
	}
}
