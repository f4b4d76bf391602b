package capture

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// FuzzPacked: any bytes after the magic of gzip or zstd give the records that the decompressors, called alone, unpack to.
func FuzzPacked(f *testing.F) {
	plain := samplePcapng(f)
	f.Add(gzipped(f, plain))
	f.Add(zstdded(f, plain))
	f.Add(zstdded(f, plain)[:60])
	f.Add(append(zstdded(f, plain[:80]), zstdded(f, plain[80:])...))
	f.Add(append([]byte{0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3}, zstdded(f, plain)...))
	f.Add(gzipped(f, manyRecords(200)))
	f.Add(append(gzipped(f, plain), "trailing"...))
	f.Add([]byte("\x28\xb5\x2f\xfd\x04\x90...."))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 || packingOf(binary.LittleEndian.Uint32(b)) == "" {
			return
		}
		got, r, err := readBytes(b)
		if r == nil {
			return
		}
		r.Close()
		// The unpacked prefix by another way of calling the decompressors, read plainly.
		var unpacked []byte
		if b[0] == 0x1f {
			z, zerr := gzip.NewReader(bytes.NewReader(b))
			if zerr != nil {
				t.Fatalf("records from what is no gzip: %v", zerr)
			}
			unpacked, _ = io.ReadAll(io.LimitReader(z, 1<<24))
		} else {
			z, zerr := zstd.NewReader(io.MultiReader(bytes.NewReader(b)), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
			if zerr != nil {
				t.Fatal(zerr)
			}
			unpacked, _ = io.ReadAll(io.LimitReader(z, 1<<24))
			z.Close()
		}
		if len(unpacked) == 1<<24 {
			return
		}
		want, _, perr := readBytes(unpacked)
		if !slices.Equal(want, got) {
			t.Fatalf("%d records, %v; the unpacked bytes give %d, %v", len(got), err, len(want), perr)
		}
		var cut *IncompleteError
		if err == nil && perr != nil {
			t.Fatalf("a clean end, but the unpacked bytes end with %v", perr)
		}
		if errors.As(err, &cut) && (cut.Offset < 0 || cut.Offset > int64(len(unpacked))) {
			t.Fatalf("offset %d of %d", cut.Offset, len(unpacked))
		}
	})
}

// FuzzSequence: two files of any content give the records of each, the earlier one's first, and no interface out of range.
func FuzzSequence(f *testing.F) {
	a := pcapBytes(binary.LittleEndian, magicMicro, []uint32{1, 2, 5, 9}, []uint32{1, 3, 0, 0})
	b := pcapBytes(binary.BigEndian, magicNano, []uint32{5, 2, 5, 9})
	f.Add(a, b)
	f.Add(b, a)
	f.Add(samplePcapng(f), b)
	f.Add(samplePcapng(f), samplePcapng(f)[:200])
	f.Add([]byte{}, zstdded(f, b))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		dir := t.TempDir()
		pa, pb := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		if err := errors.Join(os.WriteFile(pa, a, 0o600), os.WriteFile(pb, b, 0o600)); err != nil {
			t.Fatal(err)
		}
		r, err := OpenSequence(pa, pb)
		if err != nil {
			return
		}
		defer r.Close()
		got, err := readAll(r)
		ra, _, ea := readBytes(a)
		rb, _, eb := readBytes(b)
		if err == nil && (ea != nil || eb != nil) || len(got) > len(ra)+len(rb) || err == nil && len(got) != len(ra)+len(rb) {
			t.Fatalf("%d records, %v; the files have %d, %v and %d, %v", len(got), err, len(ra), ea, len(rb), eb)
		}
		for _, g := range got {
			if g.Iface >= len(r.Interfaces()) || g.Link != int(r.Interfaces()[g.Iface].LinkType) {
				t.Fatalf("%+v with interfaces %+v", g, r.Interfaces())
			}
		}
		again, err2 := OpenSequence(pa, pb)
		if err2 != nil {
			t.Fatal(err2)
		}
		defer again.Close()
		batched, berr := readBatches(again)
		if len(batched) > len(got) || !slices.Equal(batched, got[:len(batched)]) || (berr == nil) != (err == nil) {
			t.Fatalf("in batches %d records, %v; one by one %d, %v", len(batched), berr, len(got), err)
		}
	})
}
