package capture

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// maxZstdWindow is how far back a zstd stream may refer, which is memory that unpacking needs. All levels up to 20 keep to
// it; RFC 8878 asks readers for 8 MiB at least.
const maxZstdWindow = 32 << 20

// packingOf names the compression that a stream's first four bytes (little-endian) tell of; "" for none.
func packingOf(magic uint32) string {
	switch {
	case magic&0xffffff == 0x088b1f: // gzip, deflate
		return "gzip"
	case magic == 0xfd2fb528, magic&^0xf == 0x184d2a50: // zstd, or a frame to be skipped as pzstd writes first
		return "zstd"
	}
	return ""
}

// unpacker reads a compressed stream. A stream that was cut or is corrupt ends with io.ErrUnexpectedEOF, which the source
// takes for a cut, so that a good prefix comes out; an error of the file below stays what it is.
type unpacker struct {
	packing string
	below   *errorKeeper
	r       io.Reader
	close   func()
	err     error
}

// errorKeeper remembers the error of a reader.
type errorKeeper struct {
	r   io.Reader
	err error
}

func (k *errorKeeper) Read(b []byte) (int, error) {
	n, err := k.r.Read(b)
	if err != nil {
		k.err = err
	}
	return n, err
}

func unpack(packing string, r io.Reader) (*unpacker, error) {
	u := &unpacker{packing: packing, below: &errorKeeper{r: r}, close: func() {}}
	if packing == "gzip" {
		z, err := gzip.NewReader(bufio.NewReaderSize(u.below, readBuffer))
		u.r = z
		return u, err
	}
	// One decoder in the caller's goroutine: nothing has to be stopped, and memory is the window and a block.
	z, err := zstd.NewReader(bufio.NewReaderSize(u.below, readBuffer), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxZstdWindow), zstd.WithDecoderMaxMemory(maxZstdWindow))
	if err != nil {
		return nil, err
	}
	u.r, u.close = z, z.Close
	return u, nil
}

func (u *unpacker) Read(b []byte) (int, error) {
	if u.err != nil {
		return 0, u.err
	}
	n, err := u.r.Read(b)
	switch {
	case err == nil, err == io.EOF:
	case u.below.err != nil && u.below.err != io.EOF: // the disk, not the compression
		err = u.below.err
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		err = fmt.Errorf("zstd window above %d MiB (unpack it first: zstd -d --long=31)", maxZstdWindow>>20)
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("%s stream was cut: %w", u.packing, io.ErrUnexpectedEOF)
	default:
		err = fmt.Errorf("%s stream is corrupt: %w: %w", u.packing, err, io.ErrUnexpectedEOF)
	}
	u.err = err
	return n, err
}
