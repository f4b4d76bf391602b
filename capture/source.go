package capture

import (
	"errors"
	"fmt"
	"io"
)

const (
	readBuffer = 256 << 10 // stays in a core's second-level cache while it is parsed
	maxRecord  = 16 << 20  // longest record that is held in memory; real ones stay below 300 KiB
)

// errCut is peek's verdict that the stream ends before the wanted bytes.
var errCut = errors.New("stream ends inside a record")

// source is a stream read in large pieces, of which records are handed out without copying.
type source struct {
	r      io.Reader
	buf    []byte
	lo, hi int    // unread bytes are buf[lo:hi]
	base   int64  // offset of buf[0] in the stream
	err    error  // from r, io.EOF included; no more bytes will come
	own    []byte // set aside while a batch's buffer is in use
}

func (s *source) offset() int64 { return s.base + int64(s.lo) }

// fill makes at least n unread bytes available. It is called when there are fewer. The buffer grows only as bytes really
// come, at most doubling, so that a corrupt length in a short file costs nothing.
func (s *source) fill(n int) error {
	for s.hi-s.lo < n {
		if s.err != nil {
			if errors.Is(s.err, io.EOF) || errors.Is(s.err, io.ErrUnexpectedEOF) {
				return errCut
			}
			return s.err
		}
		if s.lo > 0 {
			s.base += int64(s.lo)
			copy(s.buf, s.buf[s.lo:s.hi])
			s.lo, s.hi = 0, s.hi-s.lo
		}
		if s.hi == len(s.buf) {
			bigger := make([]byte, max(readBuffer, 2*len(s.buf)))
			copy(bigger, s.buf[:s.hi])
			s.buf = bigger
		}
		var got int
		for tries := 0; got == 0 && s.err == nil; tries++ {
			if tries == 100 {
				return io.ErrNoProgress
			}
			got, s.err = s.r.Read(s.buf[s.hi:])
		}
		s.hi += got
	}
	return nil
}

// peek returns the next n bytes without consuming them.
func (s *source) peek(n int) ([]byte, error) {
	if s.hi-s.lo < n {
		if err := s.fill(n); err != nil {
			return nil, err
		}
	}
	return s.buf[s.lo : s.lo+n : s.lo+n], nil
}

// have is how many unread bytes are in memory; after errCut, how many there are at all.
func (s *source) have() int { return s.hi - s.lo }

// atEnd reports a stream that ended by itself after the last whole record. A gzip stream that was cut did not.
func (s *source) atEnd() bool { return s.lo == s.hi && s.err == io.EOF }

func (s *source) advance(n int) { s.lo += n }

// skip drops n bytes without holding them. On errCut the source stands at its end.
func (s *source) skip(n int64) error {
	for n > 0 {
		if s.lo == s.hi {
			if err := s.fill(1); err != nil {
				return err
			}
		}
		step := min(n, int64(s.hi-s.lo))
		s.lo += int(step)
		n -= step
	}
	return nil
}

// file is what both formats share: the source, its name, and the error that ended it.
type file struct {
	source
	path   string
	close  func() error
	ended  error
	ifaces []Interface
	stats  []Stats
}

func (f *file) Interfaces() []Interface { return f.ifaces }
func (f *file) Stats() []Stats          { return f.stats }
func (f *file) Offset() int64           { return f.offset() }

// Close closes what Open opened; further calls do nothing.
func (f *file) Close() error {
	c := f.close
	f.close = nil
	if f.ended == nil {
		f.ended = fmt.Errorf("capture %s: read after Close", f.path)
	}
	if c == nil {
		return nil
	}
	return c()
}

// cut ends reading at the record that starts at offset and needs need bytes.
func (f *file) cut(err error, offset, need int64, what string) error {
	if errors.Is(err, errCut) {
		end := f.offset() + int64(f.have())
		detail := fmt.Sprintf("%s needs %d bytes, the file has %d more", what, need, end-offset)
		if f.err != io.EOF { // a compressed stream knows more
			detail += ": " + f.err.Error()
		}
		f.ended = &IncompleteError{f.path, offset, detail}
	} else {
		f.ended = fmt.Errorf("capture %s: read at byte %d: %w", f.path, offset, err)
	}
	return f.ended
}

func (f *file) incomplete(offset int64, format string, args ...any) error {
	f.ended = &IncompleteError{f.path, offset, fmt.Sprintf(format, args...)}
	return f.ended
}

func (f *file) format(offset int64, format string, args ...any) error {
	f.ended = &FormatError{f.path, offset, fmt.Sprintf(format, args...)}
	return f.ended
}

// snaplen is a file's snap length; those beyond what any program means are "no limit".
func snaplen(v uint32) int {
	if v > 1<<31-1 {
		return 0
	}
	return int(v)
}
