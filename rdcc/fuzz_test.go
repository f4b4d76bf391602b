package rdcc

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// drawDatagram is bytes that look like a datagram: a right header more often than not, any body, a length near the right one.
func drawDatagram(t *rapid.T) []byte {
	b := rapid.SliceOfN(rapid.Byte(), 0, 90).Draw(t, "bytes")
	if len(b) < 4 || rapid.IntRange(0, 9).Draw(t, "raw") == 0 {
		return b
	}
	b[0] = rapid.SampledFrom([]byte{0x10, 0x10, 0x10, 0x1f, 0x20}).Draw(t, "version")
	b[1] = rapid.ByteRange(0, 0x0c).Draw(t, "type")
	length := len(b) + rapid.IntRange(-3, 1).Draw(t, "slack")
	b[2], b[3] = byte(length>>8), byte(length)
	if len(b) > 30 {
		b[30] = rapid.SampledFrom([]byte{4, 6, b[30]}).Draw(t, "af")
	}
	return b
}

// held returns what is wrong with the codec's reading of b: against the oracle, and after encoding it again.
func held(b []byte) string {
	before := bytes.Clone(b)
	if diff := compare(b); diff != "" {
		return diff
	}
	if !bytes.Equal(b, before) {
		return "Decode changed its input"
	}
	var first, second Datagram
	if first.Decode(b) != nil {
		return ""
	}
	// ASSOC_REQUEST and reports lose an association that they must not have had.
	if first.Type == TypeAssocRequest || first.Type == TypeCongestionReport {
		first.Assoc, first.Epoch = 0, 0
	}
	once := first.Message().Append(nil, first.Header)
	if err := second.Decode(once); err != nil || second != first {
		return "encoded and decoded again it is another"
	}
	if twice := second.Message().Append(nil, second.Header); !bytes.Equal(twice, once) {
		return "encoded again it is another"
	}
	return ""
}

func TestDecodeAgreesWithOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawDatagram(t)
		if diff := held(b); diff != "" {
			t.Fatalf("%x: %s", b, diff)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, b := range valid(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if diff := held(b); diff != "" {
			t.Fatalf("%x: %s", b, diff)
		}
	})
}
