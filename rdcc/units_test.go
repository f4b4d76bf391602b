package rdcc

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// rfc1982 is the definition of RFC 1982, section 3.2, written out: "s1 is said to be greater than s2 if ...".
func rfc1982(a, b uint32) bool {
	s1, s2 := uint64(a), uint64(b)
	return s1 < s2 && s2-s1 > 1<<31 || s1 > s2 && s1-s2 < 1<<31
}

func TestNewer(t *testing.T) {
	rows := []struct {
		why  string
		a, b uint32
		want bool
	}{
		{"equal is not newer", 7, 7, false},
		{"the next", 8, 7, true},
		{"the one before", 7, 8, false},
		{"the next after the wrap", 0, math.MaxUint32, true},
		{"the one before the wrap", math.MaxUint32, 0, false},
		{"far over the wrap", 5, 0xfffffff0, true},
		{"the farthest", 1<<31 - 1, 0, true},
		{"half the space apart: neither", 1 << 31, 0, false},
		{"half the space apart: neither", 0, 1 << 31, false},
		{"beyond half: older", 1<<31 + 1, 0, false},
	}
	for _, r := range rows {
		if got := Newer(r.a, r.b); got != r.want || rfc1982(r.a, r.b) != r.want {
			t.Errorf("%s: Newer(%d, %d) = %t, RFC 1982 says %t, want %t", r.why, r.a, r.b, got, rfc1982(r.a, r.b), r.want)
		}
	}
}

func TestNewerIsRFC1982(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Uint32().Draw(t, "a")
		b := a + rapid.OneOf(rapid.Uint32(), rapid.Uint32Range(1<<31-2, 1<<31+2), rapid.Uint32Range(0, 3)).Draw(t, "step")
		if got := Newer(a, b); got != rfc1982(a, b) {
			t.Fatalf("Newer(%d, %d) = %t", a, b, got)
		}
		if Newer(a, b) && Newer(b, a) {
			t.Fatalf("%d and %d are newer than each other", a, b)
		}
	})
}

func TestMbps(t *testing.T) {
	rows := []struct {
		why  string
		bps  int64
		want Mbps
	}{
		{"none stays none", 0, 0},
		{"less than nothing is none", -1, 0},
		{"a rate below the unit is not none", 1, 1},
		{"just below the unit", 999_999, 1},
		{"the unit", 1_000_000, 1},
		{"rounded down", 1_999_999, 1},
		{"100 Gbit/s", 100_000_000_000, 100_000},
		{"what fits", math.MaxUint32 * 1e6, math.MaxUint32},
		{"more than fits", math.MaxInt64, math.MaxUint32},
	}
	for _, r := range rows {
		if got := MbpsOf(r.bps); got != r.want {
			t.Errorf("%s: MbpsOf(%d) = %d, want %d", r.why, r.bps, got, r.want)
		}
	}
	if got := Mbps(math.MaxUint32).BitsPerSecond(); got != 4_294_967_295_000_000 {
		t.Errorf("the largest rate is %d bit/s", got)
	}
}

func TestMicros(t *testing.T) {
	rows := []struct {
		why  string
		d    time.Duration
		want Micros
	}{
		{"nothing", 0, 0},
		{"less than nothing", -time.Second, 0},
		{"rounded down", 1999 * time.Nanosecond, 1},
		{"what fits", math.MaxUint32 * time.Microsecond, math.MaxUint32},
		{"more than fits", math.MaxInt64, math.MaxUint32},
	}
	for _, r := range rows {
		if got := MicrosOf(r.d); got != r.want {
			t.Errorf("%s: MicrosOf(%v) = %d, want %d", r.why, r.d, got, r.want)
		}
	}
	if got := Micros(math.MaxUint32).Duration(); got != 4294967295*time.Microsecond {
		t.Errorf("the longest is %v", got)
	}
}

// TestRoCEBinding: bits 63 to 40, 39 to 16, 15 to 0 (Transport Bindings).
func TestRoCEBinding(t *testing.T) {
	b := RoCEBinding{DestQP: 0xabcdef, MSN: 0x123456, Messages: 0x789a}
	if got := b.Value(); got != 0xabcdef_123456_789a {
		t.Errorf("got %#x", got)
	}
	if got := RoCEBindingOf(0xabcdef_123456_789a); got != b {
		t.Errorf("got %+v", got)
	}
	if got := (RoCEBinding{MSN: 0x1000005}).Value(); got != 5<<16 {
		t.Errorf("an MSN beyond 24 bits runs into the queue pair: %#x", got)
	}
}
