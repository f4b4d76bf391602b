package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// fuzzReader holds a reader to what must be so of any input: no panic, bounded memory, records inside the file and in order,
// and the same records again from the good prefix alone, which then ends cleanly.
func fuzzReader(t *testing.T, b []byte) ([]rec, error) {
	got, r, err := readBytes(b)
	if r == nil {
		return nil, err
	}
	total := 0
	for _, g := range got {
		total += len(g.Data)
		if g.OrigLen < len(g.Data) || g.Iface >= len(r.Interfaces()) {
			t.Fatalf("record %+v with %d interfaces", g, len(r.Interfaces()))
		}
	}
	if total > len(b) {
		t.Fatalf("%d bytes of packets from a file of %d", total, len(b))
	}
	var ie *IncompleteError
	if errors.As(err, &ie) {
		if ie.Offset < 0 || ie.Offset > int64(len(b)) {
			t.Fatalf("offset %d of %d", ie.Offset, len(b))
		}
		prefix, _, perr := readBytes(b[:ie.Offset])
		if ie.Offset > 0 && (perr != nil || len(prefix) != len(got)) {
			t.Fatalf("good prefix of %d bytes: %d records, %v; the whole gave %d, %v", ie.Offset, len(prefix), perr, len(got), err)
		}
	}
	return got, err
}

func FuzzPcap(f *testing.F) {
	for _, o := range []order{binary.LittleEndian, binary.BigEndian} {
		f.Add(pcapBytes(o, magicMicro, []uint32{1, 2, 5, 9}, []uint32{1, 3, 0, 0}))
		f.Add(pcapBytes(o, magicNano, []uint32{1, 999_999_999, 5, 9}))
	}
	f.Add(pcapBytes(binary.LittleEndian, magicMicro, []uint32{1, 1_000_000, 5, 9}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 4 && (binary.LittleEndian.Uint32(b) == blockSection || packingOf(binary.LittleEndian.Uint32(b)) != "") {
			return
		}
		got, err := fuzzReader(t, b)
		if err != nil {
			return
		}
		theirs, terr := readByPcapgo(b)
		if terr != nil { // it refuses captured lengths above the snap length, and more
			return
		}
		for i := range got {
			theirs[i].Link, theirs[i].NoTime = got[i].Link, got[i].NoTime
			if theirs[i].OrigLen < len(theirs[i].Data) {
				theirs[i].OrigLen = got[i].OrigLen
			}
		}
		if len(got) != len(theirs) {
			t.Fatalf("%d records, second implementation %d", len(got), len(theirs))
		}
		for i := range got {
			if got[i] != theirs[i] {
				t.Fatalf("record %d: %+v, second implementation %+v", i, got[i], theirs[i])
			}
		}
	})
}

func FuzzPcapng(f *testing.F) {
	f.Add(samplePcapng(f))
	for _, o := range []order{binary.LittleEndian, binary.BigEndian} {
		f.Add(bytes.Join([][]byte{ngSection(o), ngIface(o, 1, 0, ngOpt(o, optTSResolution, []byte{0x8a}), ngOpt(o, optTSOffset, make([]byte, 8))),
			ngEPB(o, 0, 7, "abc", 3), ngBlock(o, blockSimplePacket, []byte{4, 0, 0, 0, 1, 2, 3, 4}), ngBlock(o, 77, []byte("x"))}, nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 4 && binary.LittleEndian.Uint32(b) != blockSection {
			return
		}
		_, _ = fuzzReader(t, b)
		b = repair(bytes.Clone(b))
		got, err := fuzzReader(t, b)
		if err != nil || hasStatistics(b) {
			return
		}
		theirs, terr := readByPcapgo(b)
		if terr != nil {
			return
		}
		// The second implementation numbers interfaces per section, has no simple packet blocks without time, converts
		// times through floats for unusual resolutions, and takes an option that does not fit for the end of the file:
		// the bytes of the packets are compared, and that we read no fewer.
		if len(got) < len(theirs) {
			t.Fatalf("%d records, second implementation %d", len(got), len(theirs))
		}
		for i := range theirs {
			if got[i].Data != theirs[i].Data {
				t.Fatalf("record %d: %q, second implementation %q", i, got[i].Data, theirs[i].Data)
			}
		}
	})
}

// repair makes the second length of each block equal the first, so that mutations reach the blocks' bodies.
func repair(b []byte) []byte {
	var o order = binary.LittleEndian
	for off := 0; len(b)-off >= 28; {
		if o.Uint32(b[off:]) == blockSection {
			o = binary.LittleEndian
			if b[off+8] == 0x1a {
				o = binary.BigEndian
			}
		}
		n := int(o.Uint32(b[off+4:]))
		if n < 12 || n > len(b)-off {
			break
		}
		o.PutUint32(b[off+n-4:], uint32(n))
		off += n
	}
	return b
}

// hasStatistics: the second implementation stops at some statistics blocks; files with any are left out of the comparison.
func hasStatistics(b []byte) bool {
	_, r, _ := readBytes(b)
	return r == nil || len(r.Stats()) > 0
}
