package capture

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// WriterOptions describe a pcapng file to be written.
type WriterOptions struct {
	Interfaces  []Interface // at least one; Section is ignored
	Application string      // empty: pcmlab
	Hardware    string
	OS          string
	Comment     string
	Buffer      int // bytes gathered before a write; 0 means 1 MiB
}

// Writer writes a pcapng file of one section, little-endian, with times in nanoseconds. It gathers blocks and writes only
// whole ones. An error of the underlying writer stays and is returned by every later call. Not safe for concurrent use.
type Writer struct {
	w       io.Writer
	buf     []byte
	limit   int
	ifaces  []Interface
	written int64 // bytes handed to w in whole blocks
	packets uint64
	lost    uint64 // packets that an error kept from w
	err     error
}

// NewWriter writes the section header and the interfaces (into its buffer: call Flush to see them in the file).
func NewWriter(w io.Writer, o WriterOptions) (*Writer, error) {
	if len(o.Interfaces) == 0 {
		return nil, fmt.Errorf("capture: writer needs at least one interface")
	}
	if o.Buffer <= 0 {
		o.Buffer = 1 << 20
	}
	if o.Application == "" {
		o.Application = "pcmlab"
	}
	x := &Writer{w: w, limit: o.Buffer, buf: make([]byte, 0, o.Buffer+64<<10), ifaces: append([]Interface(nil), o.Interfaces...)}
	start := x.begin(blockSection)
	x.buf = binary.LittleEndian.AppendUint32(x.buf, byteOrderMagic)
	x.buf = append(x.buf, 1, 0, 0, 0)
	x.buf = binary.LittleEndian.AppendUint64(x.buf, ^uint64(0)) // section length not given
	x.option(optComment, []byte(o.Comment))
	x.option(optHardware, []byte(o.Hardware))
	x.option(optOS, []byte(o.OS))
	x.option(optApplication, []byte(o.Application))
	x.end(start)
	for _, in := range o.Interfaces {
		if in.Snaplen < 0 {
			return nil, fmt.Errorf("capture: interface %q: snap length %d is negative", in.Name, in.Snaplen)
		}
		start := x.begin(blockInterface)
		x.buf = binary.LittleEndian.AppendUint16(x.buf, uint16(in.LinkType))
		x.buf = append(x.buf, 0, 0)
		x.buf = binary.LittleEndian.AppendUint32(x.buf, uint32(in.Snaplen))
		x.option(optName, []byte(in.Name))
		x.option(optDescription, []byte(in.Description))
		x.option(optTSResolution, []byte{9})
		x.end(start)
	}
	return x, nil
}

// begin starts a block and returns where.
func (w *Writer) begin(t uint32) int {
	start := len(w.buf)
	w.buf = binary.LittleEndian.AppendUint32(w.buf, t)
	w.buf = append(w.buf, 0, 0, 0, 0)
	return start
}

// option appends one option; empty values are left out.
func (w *Writer) option(code uint16, v []byte) {
	if len(v) == 0 {
		return
	}
	v = v[:min(len(v), 65532)]
	w.buf = binary.LittleEndian.AppendUint16(w.buf, code)
	w.buf = binary.LittleEndian.AppendUint16(w.buf, uint16(len(v)))
	w.buf = append(w.buf, v...)
	w.pad(len(v))
}

func (w *Writer) pad(n int) { w.buf = append(w.buf, "\x00\x00\x00"[:-n&3]...) }

// end closes the block that began at start, with an end-of-options mark when it has options.
func (w *Writer) end(start int) {
	w.buf = append(w.buf, 0, 0, 0, 0) // opt_endofopt
	total := uint32(len(w.buf) - start + 4)
	w.buf = binary.LittleEndian.AppendUint32(w.buf, total)
	binary.LittleEndian.PutUint32(w.buf[start+4:], total)
}

// Write appends a packet: its time, data, original length and interface (an index into WriterOptions.Interfaces).
func (w *Writer) Write(p *Packet) error {
	return w.write(p.Iface, p.TimeNS, p.OrigLen, p.Data, nil, nil)
}

// write takes the data in up to three pieces, so that a VLAN tag can be put back without another copy.
func (w *Writer) write(iface int, timeNS int64, origLen int, a, b, c []byte) error {
	if w.err != nil {
		return w.err
	}
	n := len(a) + len(b) + len(c)
	if iface < 0 || iface >= len(w.ifaces) || timeNS < 0 || n > maxRecord-64 {
		return fmt.Errorf("capture: packet of %d bytes at %d ns on interface %d: want at most %d bytes, a time from 1970 on and one of %d interfaces",
			n, timeNS, iface, maxRecord-64, len(w.ifaces))
	}
	total := uint32(blockFrame + 20 + (n+3)&^3)
	if len(w.buf) > 0 && len(w.buf)+int(total) > w.limit {
		if err := w.Flush(); err != nil {
			return err
		}
	}
	le := binary.LittleEndian
	var h [28]byte
	le.PutUint32(h[0:], blockEnhancedPacket)
	le.PutUint32(h[4:], total)
	le.PutUint32(h[8:], uint32(iface))
	le.PutUint32(h[12:], uint32(uint64(timeNS)>>32))
	le.PutUint32(h[16:], uint32(timeNS))
	le.PutUint32(h[20:], uint32(n))
	le.PutUint32(h[24:], uint32(max(origLen, n)))
	w.buf = append(w.buf, h[:]...)
	w.buf = append(w.buf, a...)
	w.buf = append(w.buf, b...)
	w.buf = append(w.buf, c...)
	w.pad(n)
	w.buf = le.AppendUint32(w.buf, total)
	w.packets++
	return nil
}

// WriteStats appends an interface statistics block: packets received (those dropped included) and dropped, at timeNS.
func (w *Writer) WriteStats(iface int, timeNS int64, received, dropped uint64) error {
	if w.err != nil {
		return w.err
	}
	if iface < 0 || iface >= len(w.ifaces) {
		return fmt.Errorf("capture: statistics of interface %d: the file has %d", iface, len(w.ifaces))
	}
	start := w.begin(blockStatistics)
	le := binary.LittleEndian
	w.buf = le.AppendUint32(w.buf, uint32(iface))
	w.buf = le.AppendUint32(w.buf, uint32(uint64(timeNS)>>32))
	w.buf = le.AppendUint32(w.buf, uint32(timeNS))
	w.option(optReceived, le.AppendUint64(nil, received))
	w.option(optDropped, le.AppendUint64(nil, dropped))
	w.end(start)
	return nil
}

// Flush hands everything gathered to the underlying writer.
func (w *Writer) Flush() error {
	if w.err != nil || len(w.buf) == 0 {
		return w.err
	}
	n, err := w.w.Write(w.buf)
	if err == nil && n < len(w.buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		whole, done := wholeBlocks(w.buf[:n])
		_, all := wholeBlocks(w.buf)
		w.written += int64(whole)
		w.lost = all - done
		w.err = err
		return err
	}
	w.written += int64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}

// Written is the number of bytes that the underlying writer took in whole blocks. After an error the file may hold part of
// a block more: cut it there.
func (w *Writer) Written() int64 { return w.written }

// Buffered is the number of bytes that Flush would write.
func (w *Writer) Buffered() int { return len(w.buf) }

// WrittenPackets is the number of packets in those bytes and in the buffer; after an error, in those bytes alone.
func (w *Writer) WrittenPackets() uint64 { return w.packets - w.lost }

// wholeBlocks is the length of the whole blocks at the start of b, which begins at a block, and the packets in them.
func wholeBlocks(b []byte) (n int, packets uint64) {
	for len(b)-n >= blockFrame {
		total := int(binary.LittleEndian.Uint32(b[n+4:]))
		if total > len(b)-n {
			break
		}
		if binary.LittleEndian.Uint32(b[n:]) == blockEnhancedPacket {
			packets++
		}
		n += total
	}
	return n, packets
}

// PcapWriter writes a classic pcap file with nanoseconds, little-endian, for tools that cannot read pcapng. It gathers
// records like Writer does.
type PcapWriter struct {
	w   io.Writer
	buf []byte
	err error
}

// NewPcapWriter writes the file header into its buffer; snaplen 0 means 262144.
func NewPcapWriter(w io.Writer, link roce.LinkType, snaplen int) *PcapWriter {
	if snaplen <= 0 {
		snaplen = 262144
	}
	le := binary.LittleEndian
	b := make([]byte, 0, 1<<20+64<<10)
	b = le.AppendUint32(b, magicNano)
	b = append(b, 2, 0, 4, 0)
	b = append(b, make([]byte, 8)...)
	b = le.AppendUint32(b, uint32(snaplen))
	b = le.AppendUint32(b, uint32(link))
	return &PcapWriter{w: w, buf: b}
}

// Write appends a packet. The format holds times from 1970 to 2106 and one link type; p's interface is not looked at.
func (w *PcapWriter) Write(p *Packet) error {
	if w.err != nil {
		return w.err
	}
	sec := p.TimeNS / 1e9
	if p.TimeNS < 0 || sec > 1<<32-1 || len(p.Data) > maxRecord {
		return fmt.Errorf("capture: packet of %d bytes at %d ns does not fit a pcap file", len(p.Data), p.TimeNS)
	}
	if len(w.buf) > 1<<20 {
		if err := w.Flush(); err != nil {
			return err
		}
	}
	le := binary.LittleEndian
	w.buf = le.AppendUint32(w.buf, uint32(sec))
	w.buf = le.AppendUint32(w.buf, uint32(p.TimeNS%1e9))
	w.buf = le.AppendUint32(w.buf, uint32(len(p.Data)))
	w.buf = le.AppendUint32(w.buf, uint32(max(p.OrigLen, len(p.Data))))
	w.buf = append(w.buf, p.Data...)
	return nil
}

// Flush hands everything gathered to the underlying writer.
func (w *PcapWriter) Flush() error {
	if w.err != nil {
		return w.err
	}
	if _, err := w.w.Write(w.buf); err != nil {
		w.err = err
		return err
	}
	w.buf = w.buf[:0]
	return nil
}
