package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A frame on the guard's channel:
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+-----------------------------------------------+
//	| type          | length (big-endian)                           |
//	+---------------+-----------------------------------------------+
//	| payload ...
//
// The guard's frames follow one line, Magic, so that a login shell that prints something before does no harm.
// Started, Stdout, Stderr and Exit are numbered by counting; a Heartbeat from the owner carries how many of them it
// has, one from the guard how many bytes of input the command has read (the owner sends InputWindow beyond that). An unknown type is an error: both sides are always the same binary.

// Magic is the line before the guard's first frame.
const Magic = "\x00pcmlab-guard/1\n"

// Type is the type of a frame.
type Type byte

// Frames of the guard.
const (
	Ready   Type = 'R' // JSON ReadyInfo: first frame, and first after each attach
	Started Type = 'S' // JSON StartedInfo: the command runs
	Stdout  Type = 'o' // output of the command
	Stderr  Type = 'e'
	Exit    Type = 'X' // JSON ExitInfo: last frame
)

// Frames of the owner.
const (
	Go         Type = 'g' // start the held command
	Signal     Type = 's' // signal name without SIG: sent to the command and what it started
	Stop       Type = 't' // signal name: sent likewise, and after 2 s KILL
	Stdin      Type = 'i' // input for the command, at most InputWindow bytes beyond what it has consumed
	StdinClose Type = 'c'
	Attach     Type = 'A' // JSON AttachInfo: first frame on the guard's socket
)

// Heartbeat goes both ways, with 8 bytes: from the owner the number of numbered frames received, from the guard the
// number of bytes of input consumed.
const Heartbeat Type = 'h'

const (
	headerLen = 4
	// MaxPayload bounds a frame.
	MaxPayload = 64 << 10
)

// Numbered reports whether frames of the type are counted and kept until acknowledged.
func (t Type) Numbered() bool {
	return t == Started || t == Stdout || t == Stderr || t == Exit
}

func (t Type) known() bool {
	switch t {
	case Ready, Started, Stdout, Stderr, Exit, Go, Signal, Stop, Stdin, StdinClose, Attach, Heartbeat:
		return true
	}
	return false
}

// Frame is one frame. Payload aliases the buffer it was parsed from.
type Frame struct {
	Type    Type
	Payload []byte
}

// ErrTruncated says that a frame goes on beyond the bytes at hand.
var ErrTruncated = errors.New("guard: truncated frame")

// Append appends the frame to b.
func (f Frame) Append(b []byte) ([]byte, error) {
	if len(f.Payload) > MaxPayload {
		return b, fmt.Errorf("guard: frame %q: payload of %d bytes, at most %d", f.Type, len(f.Payload), MaxPayload)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(f.Type)<<24|uint32(len(f.Payload)))
	return append(b, f.Payload...), nil
}

// ParseFrame reads the frame that b begins with. It returns the number of bytes consumed; on error n is 0.
func ParseFrame(b []byte) (f Frame, n int, err error) {
	if len(b) < headerLen {
		return Frame{}, 0, fmt.Errorf("header: need %d bytes, have %d: %w", headerLen, len(b), ErrTruncated)
	}
	t, size, err := parseHeader(b)
	if err != nil {
		return Frame{}, 0, err
	}
	if len(b) < headerLen+size {
		return Frame{}, 0, fmt.Errorf("frame %q: need %d bytes, have %d: %w", t, headerLen+size, len(b), ErrTruncated)
	}
	return Frame{Type: t, Payload: b[headerLen : headerLen+size : headerLen+size]}, headerLen + size, nil
}

func parseHeader(b []byte) (Type, int, error) {
	h := binary.BigEndian.Uint32(b)
	t, size := Type(h>>24), int(h&0xffffff)
	if !t.known() {
		return 0, 0, fmt.Errorf("guard: unknown frame type %q (0x%02x)", byte(t), byte(t))
	}
	if size > MaxPayload {
		return 0, 0, fmt.Errorf("guard: frame %q: payload of %d bytes, at most %d", byte(t), size, MaxPayload)
	}
	return t, size, nil
}

// Reader reads frames. A frame's payload is valid until the next Read.
type Reader struct {
	r   io.Reader
	buf []byte
}

// NewReader returns a Reader on r, which should be buffered where calls are dear.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: r, buf: make([]byte, headerLen+4096)}
}

// Read returns the next frame. The end of the stream is io.EOF between frames and io.ErrUnexpectedEOF inside one.
func (r *Reader) Read() (Frame, error) {
	if _, err := io.ReadFull(r.r, r.buf[:headerLen]); err != nil {
		return Frame{}, err
	}
	t, size, err := parseHeader(r.buf)
	if err != nil {
		return Frame{}, err
	}
	if len(r.buf) < size {
		r.buf = make([]byte, MaxPayload)
	}
	if _, err := io.ReadFull(r.r, r.buf[:size]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return Frame{Type: t, Payload: r.buf[:size:size]}, nil
}
