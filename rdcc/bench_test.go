package rdcc

import (
	"errors"
	"testing"
)

// TestNoAllocation: encoding into a buffer that is long enough and decoding do not allocate, whatever comes.
func TestNoAllocation(t *testing.T) {
	buf := make([]byte, 0, MaxLen)
	var d Datagram
	for _, g := range golden {
		if n := testing.AllocsPerRun(100, func() { buf = g.message.Append(buf[:0], g.header) }); n != 0 {
			t.Errorf("encode %s: %v allocations", g.name, n)
		}
		b := unhex(t, g.hex)
		var err error
		if n := testing.AllocsPerRun(100, func() { err = d.Decode(b) }); n != 0 || err != nil {
			t.Errorf("decode %s: %v allocations, %v", g.name, n, err)
		}
	}
	refused := map[error][]byte{
		ErrTruncated: make([]byte, 15), ErrVersion: make([]byte, 16), ErrType: unhex(t, "10 63 00 10 00000000 00000000 00000000"),
		ErrShort: unhex(t, "10 04 00 10 00000000 00000000 00000000"), ErrLong: unhex(t, "10 04 00 28 00000000 00000000 00000000"),
		ErrAF: append(unhex(t, "10 06 00 30"), make([]byte, 44)...),
	}
	if len(refused) != int(NumDecodeErrors)-1 {
		t.Errorf("%d reasons to refuse are tried, there are %d", len(refused), NumDecodeErrors-1)
	}
	for want, b := range refused {
		var err error
		if n := testing.AllocsPerRun(100, func() { err = d.Decode(b) }); n != 0 || !errors.Is(err, want) || err.Error() == "" {
			t.Errorf("refusing for %v: %v allocations, %v", want, n, err)
		}
	}
}

// BenchmarkEncode and BenchmarkDecode print every message; asked of CREDIT_GRANT and CREDIT_REQUEST are at most 15 ns each
// and no allocation.
func BenchmarkEncode(b *testing.B) {
	buf := make([]byte, 0, MaxLen)
	for _, g := range golden {
		b.Run("message="+g.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(unhex(b, g.hex))))
			for b.Loop() {
				buf = g.message.Append(buf[:0], g.header)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	var d Datagram
	for _, g := range golden {
		b.Run("message="+g.name, func(b *testing.B) {
			in := unhex(b, g.hex)
			b.ReportAllocs()
			b.SetBytes(int64(len(in)))
			for b.Loop() {
				if err := d.Decode(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
