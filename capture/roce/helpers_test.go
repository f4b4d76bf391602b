package roce

import (
	"encoding/binary"
	"os"
	"testing"
)

// record is one packet of a classic little-endian pcap file, read by code that shares nothing with package capture.
type record struct {
	data    []byte
	origLen int
}

func readPcap(t testing.TB, path string) (LinkType, []record) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) < 24 || binary.LittleEndian.Uint32(b) != 0xa1b2c3d4 {
		t.Fatalf("%s: not a little-endian pcap with microseconds", path)
	}
	link := LinkType(binary.LittleEndian.Uint32(b[20:]))
	var recs []record
	for b = b[24:]; len(b) >= 16; {
		n := int(binary.LittleEndian.Uint32(b[8:]))
		recs = append(recs, record{b[16 : 16+n], int(binary.LittleEndian.Uint32(b[12:]))})
		b = b[16+n:]
	}
	return link, recs
}
