package capture

import (
	"bufio"
	"bytes"
	"compress/gzip"
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
	magicZstd         = 0xfd2fb528
)

// Open opens a capture file by its magic number.
func Open(path string) (Reader, error) {
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
	if err == nil && magic&0xffffff == 0x088b1f { // gzip, deflate
		zr, zerr := gzip.NewReader(bufio.NewReaderSize(io.MultiReader(bytes.NewReader(f.buf[:f.hi]), r), readBuffer))
		if zerr != nil {
			return nil, &FormatError{name, 0, "gzip: " + zerr.Error()}
		}
		f = file{source: source{r: zr}, path: name, close: closer}
		magic, err = f.magic()
	}
	if err != nil {
		return nil, err
	}
	switch magic {
	case magicMicro, magicNano, magicMicroSwapped, magicNanoSwapped:
		return newPcapReader(f, magic)
	case magicSection:
		return newPcapngReader(f)
	case magicPatched, 0x34cdb2a1:
		return nil, &FormatError{name, 0, "patched pcap format of 1999 is not supported (convert with: editcap -F pcapng IN OUT)"}
	case magicZstd:
		return nil, &FormatError{name, 0, "zstd-compressed (unpack it first: zstd -d)"}
	}
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], magic)
	return nil, &FormatError{name, 0, fmt.Sprintf("not a capture file: starts with % x", b)}
}

// magic looks at the first four bytes.
func (f *file) magic() (uint32, error) {
	b, err := f.peek(4)
	if errors.Is(err, errCut) {
		return 0, &IncompleteError{f.path, 0, fmt.Sprintf("no file header: %d bytes in all", f.have())}
	} else if err != nil {
		return 0, fmt.Errorf("capture %s: read: %w", f.path, err)
	}
	return binary.LittleEndian.Uint32(b), nil
}
