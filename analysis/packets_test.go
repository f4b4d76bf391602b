package analysis_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
)

// packet is one RoCE packet in a capture made by hand. The zero values are those of an ordinary sender.
type packet struct {
	atNS    int64
	back    bool // from 192.0.2.14 to .11 rather than the other way; with v6 the same last bytes
	v6      bool
	vlans   []uint16
	tos     uint8
	ttl     uint8
	ipID    uint16
	bth     roce.BTH
	headers []byte // the extended headers; nil: zeros
	payload int
	snap    int // 0: captured whole
	edit    func(frame []byte)
}

const (
	ethernet = 14
	epoch    = 1_800_000_000_000_000_000
)

// frame writes the packet with a right ICRC, which edit may spoil.
func (p packet) frame() []byte {
	if p.headers == nil {
		p.headers = make([]byte, p.bth.Opcode.HeaderLen())
	}
	if p.ttl == 0 {
		p.ttl = 64
	}
	p.bth.Pad = uint8(-p.payload & 3)
	p.bth.PKey = roce.DefaultPKey
	n := 8 + roce.BTHLen + len(p.headers) + p.payload + int(p.bth.Pad) + roce.ICRCLen
	src, dst := byte(11), byte(14)
	if p.back {
		src, dst = dst, src
	}
	be := binary.BigEndian
	b := []byte{2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src}
	for _, tci := range p.vlans {
		b = be.AppendUint16(append(b, 0x81, 0), tci)
	}
	at := len(b) + 2
	if p.v6 {
		b = be.AppendUint16(append(b, 0x86, 0xdd, 0x60|p.tos>>4, p.tos<<4, 0, 0), uint16(n))
		b = append(b, 17, p.ttl)
		for _, host := range []byte{src, dst} {
			b = append(b, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host)
		}
	} else {
		b = be.AppendUint16(append(b, 8, 0, 0x45, p.tos), uint16(20+n))
		b = append(be.AppendUint16(b, p.ipID), 0x40, 0, p.ttl, 17, 0, 0, 192, 0, 2, src, 192, 0, 2, dst)
	}
	b = be.AppendUint16(append(b, 0xc0, 0, 0x12, 0xb7), uint16(n))
	b = append(p.bth.Append(append(b, 0, 0)), p.headers...)
	b = append(b, make([]byte, p.payload+int(p.bth.Pad)+roce.ICRCLen)...)
	if err := roce.PutICRC(b[at:]); err != nil {
		panic(err)
	}
	if p.edit != nil {
		p.edit(b)
	}
	return b
}

// pcapOf writes a capture of nanoseconds.
func pcapOf(t testing.TB, packets ...packet) []byte {
	t.Helper()
	var out bytes.Buffer
	w := capture.NewPcapWriter(&out, roce.LinkEthernet, 0)
	for _, p := range packets {
		data := p.frame()
		wire := len(data)
		if p.snap > 0 {
			data = data[:min(len(data), p.snap)]
		}
		if err := w.Write(&capture.Packet{TimeNS: epoch + p.atNS, Data: data, OrigLen: wire}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// run analyses captures given as bytes, each a tap of its own.
func run(t testing.TB, o analysis.Options, captures ...[]byte) *analysis.Document {
	t.Helper()
	var inputs []analysis.Input
	dir := t.TempDir()
	for i, b := range captures {
		path := filepath.Join(dir, string(rune('a'+i)))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, analysis.Input{Path: path})
	}
	doc, err := analysis.Run(t.Context(), inputs, o)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}
