package capture

import (
	"encoding/binary"
	"io"
	"math/bits"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// Block types of pcapng (draft-ietf-opsawg-pcapng).
const (
	blockSection        = 0x0a0d0d0a
	blockInterface      = 1
	blockPacketObsolete = 2
	blockSimplePacket   = 3
	blockStatistics     = 5
	blockEnhancedPacket = 6
	byteOrderMagic      = 0x1a2b3c4d
	blockFrame          = 12 // type, length, and length again
)

// Option codes.
const (
	optEnd            = 0
	optComment        = 1
	optName           = 2 // interface: name
	optDescription    = 3
	optTSResolution   = 9
	optTSOffset       = 14
	optFilter         = 11
	optHardware       = 2 // section: hardware, os, application
	optOS             = 3
	optApplication    = 4
	optReceived       = 4 // statistics
	optDropped        = 5
	optFilterAccepted = 6
	optOSDropped      = 7
	optDelivered      = 8
)

// pcapngReader reads blocks: type, total length, body, total length.
type pcapngReader struct {
	file
	big     bool
	section int
	first   int       // index of the section's first interface
	clocks  []tsClock // one per interface in ifaces
}

var _ Reader = (*pcapngReader)(nil)

func newPcapngReader(f file) (*pcapngReader, error) {
	r := &pcapngReader{file: f, section: -1}
	if err := r.sectionHeader(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *pcapngReader) u16(b []byte) uint16 {
	v := binary.LittleEndian.Uint16(b)
	if r.big {
		v = bits.ReverseBytes16(v)
	}
	return v
}

func (r *pcapngReader) u32(b []byte) uint32 {
	v := binary.LittleEndian.Uint32(b)
	if r.big {
		v = bits.ReverseBytes32(v)
	}
	return v
}

func (r *pcapngReader) u64(b []byte) uint64 {
	v := binary.LittleEndian.Uint64(b)
	if r.big {
		v = bits.ReverseBytes64(v)
	}
	return v
}

// Next implements Reader.
func (r *pcapngReader) Next(p *Packet) error {
	for {
		if r.ended != nil {
			return r.ended
		}
		h, err := r.peek(8)
		if err != nil {
			if r.atEnd() {
				r.ended = io.EOF
				return io.EOF
			}
			return r.cut(err, r.offset(), blockFrame, "block header")
		}
		t, total := binary.LittleEndian.Uint32(h), r.u32(h[4:])
		if t == blockSection {
			if err := r.sectionHeader(); err != nil {
				return err
			}
			continue
		}
		if r.big {
			t = bits.ReverseBytes32(t)
		}
		if total < blockFrame || total%4 != 0 {
			return r.incomplete(r.offset(), "block of type %#x claims %d bytes: not a multiple of 4 from 12 up", t, total)
		}
		switch t {
		case blockEnhancedPacket, blockPacketObsolete, blockSimplePacket, blockInterface, blockStatistics:
		default:
			if err := r.skipBlock(t, int64(total)); err != nil {
				return err
			}
			continue
		}
		body, err := r.block(t, total)
		if err != nil {
			return err
		}
		switch t {
		case blockEnhancedPacket:
			err = r.enhancedPacket(body, p)
		case blockPacketObsolete:
			err = r.obsoletePacket(body, p)
		case blockSimplePacket:
			err = r.simplePacket(body, p)
		case blockInterface:
			err = r.interfaceBlock(body)
		case blockStatistics:
			err = r.statistics(body)
		}
		if err != nil {
			return err
		}
		r.advance(int(total))
		if t != blockInterface && t != blockStatistics {
			return nil
		}
	}
}

// block returns the body of the block at the current offset, with both its lengths checked, and does not consume it.
func (r *pcapngReader) block(t, total uint32) ([]byte, error) {
	if total > maxRecord {
		return nil, r.incomplete(r.offset(), "block of type %#x claims %d bytes, the limit is %d", t, total, maxRecord)
	}
	b, err := r.peek(int(total))
	if err != nil {
		return nil, r.cut(err, r.offset(), int64(total), "block")
	}
	if again := r.u32(b[total-4:]); again != total {
		return nil, r.incomplete(r.offset(), "block of type %#x starts with length %d and ends with %d", t, total, again)
	}
	return b[8 : total-4], nil
}

// skipBlock passes over a block of a type that we do not know, however long, without holding it.
func (r *pcapngReader) skipBlock(t uint32, total int64) error {
	start := r.offset()
	if err := r.skip(total - 4); err != nil {
		return r.cut(err, start, total, "block")
	}
	b, err := r.peek(4)
	if err != nil {
		return r.cut(err, start, total, "block")
	}
	if again := r.u32(b); int64(again) != total {
		return r.incomplete(start, "block of type %#x starts with length %d and ends with %d", t, total, again)
	}
	r.advance(4)
	return nil
}

// sectionHeader reads a section header block, which sets the byte order anew.
func (r *pcapngReader) sectionHeader() error {
	h, err := r.peek(12)
	if err != nil {
		return r.cut(err, r.offset(), 28, "section header")
	}
	switch m := binary.LittleEndian.Uint32(h[8:]); m {
	case byteOrderMagic:
		r.big = false
	case bits.ReverseBytes32(byteOrderMagic):
		r.big = true
	default:
		return r.incomplete(r.offset(), "section header with byte-order magic %#x", m)
	}
	total := r.u32(h[4:])
	if total < 28 || total%4 != 0 {
		return r.incomplete(r.offset(), "section header claims %d bytes: not a multiple of 4 from 28 up", total)
	}
	body, err := r.block(blockSection, total)
	if err != nil {
		return err
	}
	if major := r.u16(body[4:]); major != 1 {
		return r.format(r.offset(), "pcapng version %d, want 1", major)
	}
	r.section++
	r.first = len(r.ifaces)
	r.advance(int(total))
	return nil
}

// iface maps a section's interface number to an index into ifaces.
func (r *pcapngReader) iface(id uint32) (int, error) {
	if n := len(r.ifaces) - r.first; int64(id) >= int64(n) {
		return 0, r.incomplete(r.offset(), "block names interface %d, the section has %d", id, n)
	}
	return r.first + int(id), nil
}

func (r *pcapngReader) enhancedPacket(b []byte, p *Packet) error {
	if len(b) < 20 {
		return r.incomplete(r.offset(), "enhanced packet block: body of %d bytes, need 20", len(b))
	}
	i, err := r.iface(r.u32(b))
	if err != nil {
		return err
	}
	return r.packet(i, b[4:], 16, p)
}

func (r *pcapngReader) obsoletePacket(b []byte, p *Packet) error {
	if len(b) < 20 {
		return r.incomplete(r.offset(), "packet block: body of %d bytes, need 20", len(b))
	}
	i, err := r.iface(uint32(r.u16(b)))
	if err != nil {
		return err
	}
	return r.packet(i, b[4:], 16, p)
}

// packet reads what both packet blocks share: time(8) captured(4) original(4) data.
func (r *pcapngReader) packet(i int, b []byte, head int, p *Packet) error {
	ts := uint64(r.u32(b))<<32 | uint64(r.u32(b[4:]))
	n, orig := r.u32(b[8:]), r.u32(b[12:])
	if int64(n) > int64(len(b)-head) {
		return r.incomplete(r.offset(), "packet of %d captured bytes in a block with room for %d", n, len(b)-head)
	}
	ns, ok := r.clocks[i].ns(ts)
	if !ok {
		return r.incomplete(r.offset(), "time %d in units of %v is outside the years 1678 to 2262", ts, r.clocks[i])
	}
	p.TimeNS, p.NoTime = ns, false
	p.Data = b[head : head+int(n) : head+int(n)]
	p.OrigLen = max(int(orig), int(n))
	p.Iface = i
	p.LinkType = r.ifaces[i].LinkType
	return nil
}

func (r *pcapngReader) simplePacket(b []byte, p *Packet) error {
	if len(b) < 4 {
		return r.incomplete(r.offset(), "simple packet block: body of %d bytes, need 4", len(b))
	}
	i, err := r.iface(0)
	if err != nil {
		return err
	}
	orig := r.u32(b)
	n := int64(orig)
	if s := r.ifaces[i].Snaplen; s > 0 {
		n = min(n, int64(s))
	}
	if n > int64(len(b)-4) {
		return r.incomplete(r.offset(), "packet of %d captured bytes in a block with room for %d", n, len(b)-4)
	}
	p.TimeNS, p.NoTime = 0, true
	p.Data = b[4 : 4+n : 4+n]
	p.OrigLen = max(int(orig), int(n))
	p.Iface = i
	p.LinkType = r.ifaces[i].LinkType
	return nil
}

// maxInterfaces bounds what a corrupt or hostile file makes us remember.
const maxInterfaces = 1 << 16

func (r *pcapngReader) interfaceBlock(b []byte) error {
	if len(b) < 8 {
		return r.incomplete(r.offset(), "interface block: body of %d bytes, need 8", len(b))
	}
	if len(r.ifaces) >= maxInterfaces {
		return r.incomplete(r.offset(), "more than %d interfaces", maxInterfaces)
	}
	in := Interface{LinkType: roce.LinkType(r.u16(b)), Snaplen: snaplen(r.u32(b[4:])), Section: r.section}
	clock := tsClock{resolution: 6}
	for code, v := range r.options(b[8:]) {
		switch {
		case code == optName:
			in.Name = string(v)
		case code == optDescription:
			in.Description = string(v)
		case code == optTSResolution && len(v) >= 1:
			clock.resolution = v[0]
		case code == optTSOffset && len(v) >= 8:
			clock.offset = int64(r.u64(v))
		}
	}
	r.ifaces = append(r.ifaces, in)
	r.clocks = append(r.clocks, clock)
	return nil
}

func (r *pcapngReader) statistics(b []byte) error {
	if len(b) < 12 {
		return r.incomplete(r.offset(), "interface statistics block: body of %d bytes, need 12", len(b))
	}
	i, err := r.iface(r.u32(b))
	if err != nil {
		return err
	}
	if len(r.stats) >= maxInterfaces { // a program that writes them every second stays readable, and bounded
		r.stats = append(r.stats[:0], r.stats[len(r.stats)/2:]...)
	}
	s := Stats{Iface: i}
	s.TimeNS, _ = r.clocks[i].ns(uint64(r.u32(b[4:]))<<32 | uint64(r.u32(b[8:])))
	for code, v := range r.options(b[12:]) {
		if len(v) < 8 {
			continue
		}
		n := r.u64(v)
		switch code {
		case optReceived:
			s.Received = &n
		case optDropped:
			s.Dropped = &n
		case optFilterAccepted:
			s.FilterAccepted = &n
		case optOSDropped:
			s.OSDropped = &n
		case optDelivered:
			s.Delivered = &n
		}
	}
	r.stats = append(r.stats, s)
	return nil
}

// options walks code(2) length(2) value padded to 4; it stops at the end option and at a length that does not fit.
func (r *pcapngReader) options(b []byte) func(yield func(code uint16, v []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= 4 {
			code, n := r.u16(b), int(r.u16(b[2:]))
			if code == optEnd || n > len(b)-4 {
				return
			}
			if !yield(code, b[4:4+n]) {
				return
			}
			b = b[min(len(b), 4+(n+3)&^3):]
		}
	}
}

// ReadBatch implements Reader.
func (r *pcapngReader) ReadBatch(b *Batch) error { return r.readBatch(r, b) }

// buffered implements batchSource.
func (r *pcapngReader) buffered(b *Batch) {
	for len(b.Packets) < cap(b.Packets) && r.have() >= 8 {
		h := r.buf[r.lo:]
		switch r.u32(h) {
		case blockEnhancedPacket, blockSimplePacket, blockPacketObsolete:
		default:
			return // Next passes over such blocks, and may have to read on
		}
		if r.have() < int(r.u32(h[4:])) {
			return
		}
		n := len(b.Packets)
		b.Packets = b.Packets[:n+1]
		if r.Next(&b.Packets[n]) != nil { // it will say so again
			b.Packets = b.Packets[:n]
			return
		}
	}
}
