package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Magic numbers, as a little-endian machine reads the first four bytes.
const (
	magicMicro        = 0xa1b2c3d4
	magicMicroSwapped = 0xd4c3b2a1
	magicNano         = 0xa1b23c4d
	magicNanoSwapped  = 0x4d3cb2a1
	magicSection      = 0x0a0d0d0a // pcapng section header block, the same in both byte orders
	magicPatched      = 0xa1b2cd34 // pcap of a patched libpcap of 1999
)

// Stdin is the path that means standard input.
const Stdin = "-"

// Open opens a capture file by its magic number. The path Stdin reads standard input, which Close leaves open.
func Open(path string) (Reader, error) {
	if path == Stdin {
		return NewReader(os.Stdin, "stdin")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	r, err := newReader(f, path, f.Close)
	if err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

// NewReader reads a capture from a stream; name is for error messages. Closing the Reader leaves r open.
func NewReader(r io.Reader, name string) (Reader, error) { return newReader(r, name, nil) }

func newReader(r io.Reader, name string, closer func() error) (Reader, error) {
	f := file{source: source{r: r}, path: name, close: closer}
	magic, err := f.magic()
	if err != nil {
		return nil, err
	}
	var unpacked *unpacker
	if packing := packingOf(magic); packing != "" {
		unpacked, err = unpack(packing, io.MultiReader(bytes.NewReader(f.buf[f.lo:f.hi]), r))
		if err != nil {
			return nil, &FormatError{name, 0, fmt.Sprintf("%s: %v", packing, err)}
		}
		f = file{source: source{r: unpacked}, path: name, close: func() error {
			unpacked.close()
			if closer == nil {
				return nil
			}
			return closer()
		}}
		if magic, err = f.magic(); err == nil && packingOf(magic) != "" {
			err = &FormatError{name, 0, fmt.Sprintf("%s inside %s: unpack it once by hand", packingOf(magic), packing)}
		}
		if err != nil {
			unpacked.close()
			return nil, err
		}
	}
	opened, err := newFormat(f, magic)
	if err != nil && unpacked != nil {
		unpacked.close()
	}
	return opened, err
}

// newFormat chooses the reader of an unpacked stream.
func newFormat(f file, magic uint32) (Reader, error) {
	switch magic {
	case magicMicro, magicNano, magicMicroSwapped, magicNanoSwapped:
		return newPcapReader(f, magic)
	case magicSection:
		return newPcapngReader(f)
	case magicPatched, 0x34cdb2a1:
		return nil, &FormatError{f.path, 0, "patched pcap format of 1999 is not supported (convert with: editcap -F pcapng IN OUT)"}
	}
	return nil, &FormatError{f.path, 0, fmt.Sprintf("not a capture file: starts with % x", binary.LittleEndian.AppendUint32(nil, magic))}
}

// magic looks at the first four bytes.
func (f *file) magic() (uint32, error) {
	b, err := f.peek(4)
	if errors.Is(err, errCut) {
		detail := fmt.Sprintf("no file header: %d bytes in all", f.have())
		if f.err != io.EOF { // a compressed stream says more
			detail += ": " + f.err.Error()
		}
		return 0, &IncompleteError{f.path, 0, detail}
	} else if err != nil {
		return 0, fmt.Errorf("capture %s: read: %w", f.path, err)
	}
	return binary.LittleEndian.Uint32(b), nil
}
