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

// buildOptions describe a packet that buildFrame writes with the package's own encoders.
type buildOptions struct {
	v6      bool
	vlans   []uint16
	bth     BTH
	headers []byte // nil: zero bytes of the length that the opcode asks for
	payload []byte
	tos     uint8
	port    uint16
}

// buildFrame writes an Ethernet frame with a correct ICRC. bth.Pad is computed.
func buildFrame(o buildOptions) []byte {
	if o.port == 0 {
		o.port = Port
	}
	if o.headers == nil {
		o.headers = make([]byte, o.bth.Opcode.HeaderLen())
	}
	pad := -len(o.payload) & 3
	o.bth.Pad = uint8(pad)
	n := BTHLen + len(o.headers) + len(o.payload) + pad + ICRCLen + udpLen
	b := []byte{2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 1}
	for _, tci := range o.vlans {
		b = append(b, 0x81, 0, byte(tci>>8), byte(tci))
	}
	ip := len(b) + 2
	if o.v6 {
		b = append(b, 0x86, 0xdd, 0x60|o.tos>>4, o.tos<<4, 0, 0, byte(n>>8), byte(n), protoUDP, 64)
		b = append(b, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11)
		b = append(b, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x14)
	} else {
		total := n + ipv4Len
		b = append(b, 8, 0, 0x45, o.tos, byte(total>>8), byte(total), 0x12, 0x34, 0x40, 0, 64, protoUDP, 0, 0)
		b = append(b, 192, 0, 2, 11, 192, 0, 2, 14)
	}
	b = append(b, 0xc0, 0, byte(o.port>>8), byte(o.port), byte(n>>8), byte(n), 0, 0)
	b = o.bth.Append(b)
	b = append(b, o.headers...)
	b = append(b, o.payload...)
	b = append(b, make([]byte, pad+ICRCLen)...)
	if err := PutICRC(b[ip:]); err != nil {
		panic(err)
	}
	return b
}
