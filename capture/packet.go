package capture

import (
	"fmt"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// Packet is one record of a capture.
type Packet struct {
	TimeNS   int64  // nanoseconds since 1970; means nothing when NoTime
	NoTime   bool   // the record has no time (pcapng simple packet block)
	Data     []byte // what was captured; valid until the next Next
	OrigLen  int    // length on the wire, never below len(Data)
	Iface    int    // index into Reader.Interfaces
	LinkType roce.LinkType
}

// Interface describes where packets of a capture were taken.
type Interface struct {
	Name        string // empty in pcap files
	Description string
	LinkType    roce.LinkType
	Snaplen     int // 0: no limit known
	Section     int // pcapng section, from 0
}

// Stats are what a capturing program knew about an interface: a pcapng interface statistics block. A nil count was not given.
type Stats struct {
	Iface          int // index into Reader.Interfaces
	TimeNS         int64
	Received       *uint64 // packets that reached the interface or, for most programs, the capture's filter
	Dropped        *uint64 // packets lost for lack of room (isb_ifdrop, where dumpcap and we write it)
	FilterAccepted *uint64
	OSDropped      *uint64
	Delivered      *uint64
}

// Reader reads the packets of one capture in file order. It is not safe for concurrent use.
type Reader interface {
	// Next fills p with the next packet. io.EOF means a whole file was read; *IncompleteError that a good prefix was;
	// *FormatError that the file contradicts itself. An error stays: every later call returns it again.
	Next(p *Packet) error
	// ReadBatch fills b with the next packets, at least one, and otherwise returns Next's error.
	ReadBatch(b *Batch) error
	// Interfaces are those seen so far; the slice grows while reading a pcapng file.
	Interfaces() []Interface
	// Stats are the interface statistics seen so far, in file order; writers usually put them at the end.
	Stats() []Stats
	// Offset is where the next record starts (for gzip: in the unpacked stream).
	Offset() int64
	Close() error
}

// IncompleteError ends the good prefix of a capture that was cut or whose record lengths are corrupt.
type IncompleteError struct {
	Path   string
	Offset int64  // of the first byte after the good prefix, where the unreadable record starts
	Detail string // what is wrong there
}

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("capture %s: incomplete at byte %d: %s", e.Path, e.Offset, e.Detail)
}

// FormatError is a file that is no capture, or one that cannot be believed.
type FormatError struct {
	Path   string
	Offset int64
	Detail string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("capture %s: byte %d: %s", e.Path, e.Offset, e.Detail)
}
