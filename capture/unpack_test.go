package capture

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/pcmlab/pcmlab/internal/fixtures"
)

func gzipped(t testing.TB, b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return z.Bytes()
}

func zstdded(t testing.TB, b []byte, o ...zstd.EOption) []byte {
	var z bytes.Buffer
	w := must[*zstd.Encoder](t)(zstd.NewWriter(&z, append([]zstd.EOption{zstd.WithEncoderConcurrency(1)}, o...)...))
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return z.Bytes()
}

// manyRecords is a pcap file that several blocks of a compressed stream are needed for.
func manyRecords(n int) []byte {
	recs := make([][]uint32, n)
	for i := range recs {
		recs[i] = []uint32{uint32(i), uint32(i * 7919 % 1_000_000), uint32(i % 97), 100}
	}
	return pcapBytes(binary.LittleEndian, magicMicro, recs...)
}

func TestOpen_packed(t *testing.T) {
	plain := samplePcapng(t)
	half := len(plain) / 2
	for _, tt := range []struct {
		name, why string
		data      []byte
	}{
		{"gzip", "", gzipped(t, plain)},
		{"gzip_members", "gzip files may be joined (RFC 1952, 2.2)", append(gzipped(t, plain[:half]), gzipped(t, plain[half:])...)},
		{"zstd", "", zstdded(t, plain)},
		{"zstd_frames", "so may zstd frames (RFC 8878, 3)", append(zstdded(t, plain[:half]), zstdded(t, plain[half:])...)},
		{"zstd_skippable", "pzstd writes a skippable frame first", append([]byte{0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3}, zstdded(t, plain)...)},
		{"zstd_best", "", zstdded(t, plain, zstd.WithEncoderLevel(zstd.SpeedBestCompression))},
	} {
		got, r, err := readBytes(tt.data)
		if diff := cmp.Diff(sampleRecs(), got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, err, diff)
			continue
		}
		if r.Offset() != int64(len(plain)) {
			t.Errorf("%s: offset %d, want %d: that of the unpacked stream", tt.name, r.Offset(), len(plain))
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: Close = %v", tt.name, err)
		}
	}
	_, _, err := readBytes(gzipped(t, zstdded(t, plain)))
	if err == nil || !strings.Contains(err.Error(), "zstd inside gzip") {
		t.Errorf("packed twice: %v", err)
	}
}

// What the reference tool writes is read, at each kind of level that it has.
func TestOpen_zstdTool(t *testing.T) {
	tool, err := exec.LookPath("zstd")
	if err != nil {
		t.Skip("zstd is not installed")
	}
	plain := filepath.Join(t.TempDir(), "x.pcap")
	if err := os.WriteFile(plain, manyRecords(20_000), 0o644); err != nil {
		t.Fatal(err)
	}
	want := must[[]rec](t)(readAll(must[Reader](t)(Open(plain))))
	for _, args := range [][]string{{"-1"}, {"-3", "--no-check"}, {"-19"}, {"--ultra", "-20"}, {"--fast=5"}} {
		packed := plain + ".zst"
		if out, err := exec.CommandContext(t.Context(), tool, append(args, "-f", "-q", plain, "-o", packed)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
		got, err := readAll(must[Reader](t)(Open(packed)))
		if err != nil || len(got) != len(want) || got[len(got)-1] != want[len(want)-1] {
			t.Errorf("%v: %d records, %v; want %d", args, len(got), err, len(want))
		}
	}
}

// O18 for compressed files: cut or damaged anywhere, what comes out is a prefix of the records, and its end is told as such.
func TestOpen_packedAndCutGivesThePrefix(t *testing.T) {
	plain := manyRecords(20_000)
	want := must2(t)(readBytes(plain))
	for name, packed := range map[string][]byte{"gzip": gzipped(t, plain), "zstd": zstdded(t, plain)} {
		best := 0
		for n := 24; n < len(packed); n += 1 + len(packed)/80 {
			got, r, err := readBytes(packed[:n])
			var ie *IncompleteError
			if !errors.As(err, &ie) || !strings.Contains(ie.Detail, name+" stream was cut") {
				t.Fatalf("%s cut at %d of %d: %d records, %v; want *IncompleteError", name, n, len(packed), len(got), err)
			}
			if !slices.Equal(want[:len(got)], got) {
				t.Fatalf("%s cut at %d: %d records that are no prefix", name, n, len(got))
			}
			if r != nil && ie.Offset != r.Offset() {
				t.Fatalf("%s cut at %d: error at %d, reader at %d", name, n, ie.Offset, r.Offset())
			}
			best = max(best, len(got))
			bad := bytes.Clone(packed)
			bad[n] ^= 0x55
			if got, _, err := readBytes(bad); err == nil && len(got) == len(want) {
				// A byte that nothing depends on, or one that only the checksum at the end would tell.
				if !slices.Equal(want, got) {
					t.Fatalf("%s with byte %d changed reads other records without an error", name, n)
				}
			}
		}
		if best < len(want)/2 {
			t.Errorf("%s: no cut gave more than %d of %d records", name, best, len(want))
		}
	}
}

func must2(t testing.TB) func([]rec, Reader, error) []rec {
	return func(v []rec, _ Reader, err error) []rec {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// An error of the disk below a compressed file is an error of its own, not a cut capture.
func TestOpen_packedKeepsTheErrorBelow(t *testing.T) {
	for name, packed := range map[string][]byte{"gzip": gzipped(t, manyRecords(20_000)), "zstd": zstdded(t, manyRecords(20_000))} {
		r, err := NewReader(io.MultiReader(bytes.NewReader(packed[:len(packed)/2]), failing{}), "disk")
		if err == nil {
			_, err = readAll(r)
		}
		var ie *IncompleteError
		if !errors.Is(err, errFull) || errors.As(err, &ie) {
			t.Errorf("%s: %v, want the error of the file below", name, err)
		}
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errFull }

// A stream that says it refers back 2 GiB is refused before that memory is taken.
func TestOpen_zstdWindowIsBounded(t *testing.T) {
	var z bytes.Buffer
	w := must[*zstd.Encoder](t)(zstd.NewWriter(&z, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(64<<20), zstd.WithSingleSegment(false)))
	for range 20 {
		if _, err := w.Write(manyRecords(2000)); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, err := readBytes(z.Bytes())
	if err == nil || !strings.Contains(err.Error(), "zstd -d --long=31") {
		t.Errorf("window of 64 MiB: %v", err)
	}
}

// What compression costs a reader, over a real capture of headers.
func BenchmarkNext_packed(b *testing.B) {
	plain := must[[]byte](b)(os.ReadFile(filepath.Join(fixtures.Dir(b), "pcap", "incast_ecn_snap128", "incast_ecn_snap128.r1-ingress.pcap")))
	for _, c := range []struct {
		name string
		file []byte
	}{{"plain", plain}, {"gzip", gzipped(b, plain)}, {"zstd", zstdded(b, plain)}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(plain)))
			packets := 0
			for b.Loop() {
				r, err := NewReader(bytes.NewReader(c.file), "bench")
				if err != nil {
					b.Fatal(err)
				}
				var p Packet
				for err = r.Next(&p); err == nil; err = r.Next(&p) {
					packets++
				}
				if err != io.EOF {
					b.Fatal(err)
				}
				r.Close()
			}
			b.ReportMetric(float64(packets)/b.Elapsed().Seconds()/1e6, "Mpkts/s")
			b.ReportMetric(float64(len(plain))/float64(len(c.file)), "ratio")
		})
	}
}
