package capture

import (
	"encoding/binary"
	"io"
	"math/bits"

	"github.com/pcmlab/pcmlab/capture/roce"
)

const (
	pcapFileHeader   = 24
	pcapRecordHeader = 16
)

// pcapReader reads the classic format: a file header, then records of seconds, fraction, captured and original length.
type pcapReader struct {
	file
	big       bool   // big-endian file
	fraction  uint32 // parts of a second: 1e6 or 1e9
	perUnitNS int64
	link      roce.LinkType
}

var _ Reader = (*pcapReader)(nil)

func newPcapReader(f file, magic uint32) (*pcapReader, error) {
	r := &pcapReader{file: f, fraction: 1e6, perUnitNS: 1000}
	if magic == magicNano || magic == magicNanoSwapped {
		r.fraction, r.perUnitNS = 1e9, 1
	}
	r.big = magic == magicMicroSwapped || magic == magicNanoSwapped
	h, err := r.peek(pcapFileHeader)
	if err != nil {
		return nil, r.cut(err, 0, pcapFileHeader, "file header")
	}
	if major := r.u16(h[4:]); major != 2 {
		return nil, r.format(4, "pcap version %d, want 2", major)
	}
	// The upper half of the last word tells of an Ethernet FCS; the lengths of IP make it harmless.
	r.link = roce.LinkType(r.u32(h[20:]))
	r.ifaces = []Interface{{LinkType: r.link, Snaplen: snaplen(r.u32(h[16:]))}}
	r.advance(pcapFileHeader)
	return r, nil
}

func (r *pcapReader) u16(b []byte) uint16 {
	v := binary.LittleEndian.Uint16(b)
	if r.big {
		v = bits.ReverseBytes16(v)
	}
	return v
}

func (r *pcapReader) u32(b []byte) uint32 {
	v := binary.LittleEndian.Uint32(b)
	if r.big {
		v = bits.ReverseBytes32(v)
	}
	return v
}

// Next implements Reader.
func (r *pcapReader) Next(p *Packet) error {
	if r.ended != nil {
		return r.ended
	}
	h, err := r.peek(pcapRecordHeader)
	if err != nil {
		if r.atEnd() {
			r.ended = io.EOF
			return io.EOF
		}
		return r.cut(err, r.offset(), pcapRecordHeader, "record header")
	}
	sec, frac := r.u32(h), r.u32(h[4:])
	n, orig := r.u32(h[8:]), r.u32(h[12:])
	if n > maxRecord {
		return r.incomplete(r.offset(), "record claims %d captured bytes, the limit is %d", n, maxRecord)
	}
	if frac >= r.fraction {
		return r.badFraction(frac)
	}
	b, err := r.peek(pcapRecordHeader + int(n))
	if err != nil {
		return r.cut(err, r.offset(), pcapRecordHeader+int64(n), "record")
	}
	r.advance(pcapRecordHeader + int(n))
	p.TimeNS = int64(sec)*1e9 + int64(frac)*r.perUnitNS
	p.NoTime = false
	p.Data = b[pcapRecordHeader:]
	p.OrigLen = max(int(orig), int(n))
	p.Iface = 0
	p.LinkType = r.link
	return nil
}

// badFraction refuses a sub-second field that its magic number does not allow: nanoseconds in a file that claims
// microseconds give times that are wrong by up to a thousand seconds, without any other sign.
func (r *pcapReader) badFraction(frac uint32) error {
	if r.fraction == 1e6 && frac < 1e9 {
		return r.format(r.offset(), "sub-second field %d is at least 1000000, but the magic number says microseconds: "+
			"the writer put nanoseconds there (its magic number should be 0xa1b23c4d)", frac)
	}
	return r.incomplete(r.offset(), "sub-second field %d is at least %d: corrupt record", frac, r.fraction)
}

// ReadBatch implements Reader.
func (r *pcapReader) ReadBatch(b *Batch) error { return r.readBatch(r, b) }

// buffered implements batchSource.
func (r *pcapReader) buffered(b *Batch) {
	for len(b.Packets) < cap(b.Packets) && r.have() >= pcapRecordHeader {
		h := r.buf[r.lo:r.hi]
		frac, n, orig := r.u32(h[4:]), r.u32(h[8:]), r.u32(h[12:])
		if uint32(len(h)-pcapRecordHeader) < n || frac >= r.fraction {
			return // Next says what it is
		}
		i := len(b.Packets)
		b.Packets = b.Packets[:i+1]
		p := &b.Packets[i]
		p.TimeNS = int64(r.u32(h))*1e9 + int64(frac)*r.perUnitNS
		p.NoTime = false
		p.Data = h[pcapRecordHeader : pcapRecordHeader+n : pcapRecordHeader+n]
		p.OrigLen = max(int(orig), int(n))
		p.Iface = 0
		p.LinkType = r.link
		r.advance(pcapRecordHeader + int(n))
	}
}
