package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pcmlab/pcmlab/capture/roce"
	"pgregory.net/rapid"
)

func writeAll(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// readBatches reads by ReadBatch what readAll reads by Next.
func readBatches(r Reader) ([]rec, error) {
	var out []rec
	var b Batch
	for {
		if err := r.ReadBatch(&b); err != nil {
			if err == io.EOF {
				err = nil
			}
			return out, err
		}
		for i := range b.Packets {
			p := &b.Packets[i]
			out = append(out, rec{p.TimeNS, p.NoTime, string(p.Data), p.OrigLen, p.Iface, int(p.LinkType)})
		}
	}
}

// Files of a ring read as the capture that they were cut from, whatever their order, format and packing, by Next and by
// ReadBatch.
func TestOpenSequence_readsAsOneCapture(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		var want []rec
		var paths []string
		now := int64(1_800_000_000_000_000_000)
		files := rapid.IntRange(2, 6).Draw(rt, "files")
		for i := range files {
			var out bytes.Buffer
			w, err := NewWriter(&out, WriterOptions{Interfaces: []Interface{{Name: "a", LinkType: 1}, {Name: "a", LinkType: 1}, {Name: "b", LinkType: 276}}})
			if err != nil {
				rt.Fatal(err)
			}
			for k := range rapid.IntRange(1, 30).Draw(rt, "records") {
				now += rapid.Int64Range(0, 5e9).Draw(rt, "gap")
				r := rec{TimeNS: now, Data: fmt.Sprint("packet ", i, k), OrigLen: 2000, Iface: rapid.IntRange(0, 2).Draw(rt, "iface"), Link: 1}
				if r.Iface == 2 {
					r.Link = 276
				}
				if err := w.Write(&Packet{TimeNS: r.TimeNS, Data: []byte(r.Data), OrigLen: r.OrigLen, Iface: r.Iface}); err != nil {
					rt.Fatal(err)
				}
				want = append(want, r)
			}
			now++ // files that begin in the same nanosecond have no order
			if err := errors.Join(w.WriteStats(1, now, 100, 3), w.Flush()); err != nil {
				rt.Fatal(err)
			}
			b := out.Bytes()
			switch rapid.IntRange(0, 2).Draw(rt, "packing") {
			case 1:
				b = gzipped(t, b)
			case 2:
				b = zstdded(t, b)
			}
			path := filepath.Join(dir, fmt.Sprint("ring_", i))
			if err := os.WriteFile(path, b, 0o644); err != nil {
				rt.Fatal(err)
			}
			paths = append(paths, path)
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "order"), 0))
		rng.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
		for name, read := range map[string]func(Reader) ([]rec, error){"Next": readAll, "ReadBatch": readBatches} {
			r, err := OpenSequence(paths...)
			if err != nil {
				rt.Fatal(err)
			}
			got, err := read(r)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				rt.Fatalf("%s: %v (-want +got):\n%s", name, err, diff)
			}
			if in := r.Interfaces(); len(in) != 3 || in[2].Name != "b" {
				rt.Fatalf("%s: interfaces %+v", name, in)
			}
			last := r.Stats()[len(r.Stats())-1]
			if *last.Received != uint64(100*files) || *last.Dropped != uint64(3*files) || last.Iface != 1 || last.OSDropped != nil {
				rt.Fatalf("%s: statistics %+v of %d files", name, last, files)
			}
			if err := r.Close(); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

func TestOpenSequence_interfacesOfFilesThatDiffer(t *testing.T) {
	le := binary.LittleEndian
	opt := func(name string) []byte { return ngOpt(le, optName, []byte(name)) }
	dir := writeAll(t, map[string][]byte{
		"1": bytes.Join([][]byte{ngSection(le), ngIface(le, 1, 128, opt("x")), ngIface(le, 1, 256, opt("x")), ngEPB(le, 0, 1e6, "a", 1), ngEPB(le, 1, 1e6, "b", 1)}, nil),
		"2": bytes.Join([][]byte{ngSection(le), ngIface(le, 1, 256, opt("x")), ngIface(le, 1, 128, opt("y")), ngEPB(le, 0, 2e6, "c", 1), ngEPB(le, 1, 2e6, "d", 1)}, nil),
		"3": pcapBytes(binary.BigEndian, magicMicro, []uint32{3, 0, 1, 1}),
	})
	r := must[Reader](t)(OpenSequence(filepath.Join(dir, "3"), filepath.Join(dir, "1"), filepath.Join(dir, "2")))
	defer r.Close()
	recs := must[[]rec](t)(readAll(r))
	var got []int
	for _, p := range recs {
		got = append(got, p.Iface)
	}
	if diff := cmp.Diff([]int{0, 1, 1, 2, 3}, got); diff != "" {
		t.Errorf("interfaces of packets (-want +got):\n%s", diff)
	}
	want := []Interface{{Name: "x", LinkType: 1, Snaplen: 128}, {Name: "x", LinkType: 1, Snaplen: 256}, {Name: "y", LinkType: 1, Snaplen: 128}, {LinkType: roce.LinkEthernet, Snaplen: 65535}}
	if diff := cmp.Diff(want, r.Interfaces()); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
}

func TestOpenSequence_whatGoesWrong(t *testing.T) {
	le := binary.LittleEndian
	at := func(secs ...uint32) []byte {
		var recs [][]uint32
		for _, s := range secs {
			recs = append(recs, []uint32{s, 0, 8, 8})
		}
		return pcapBytes(le, magicMicro, recs...)
	}
	for _, tt := range []struct {
		name, why string
		files     map[string][]byte // read as a, b, c
		records   int
		want      string // "" for a clean end
	}{
		{"whole", "", map[string][]byte{"a": at(1, 2), "b": at(3), "c": at(4, 5)}, 5, ""},
		{"empty_one_last", "a header and no packet: the file was just begun", map[string][]byte{"a": at(), "b": at(3), "c": at(4, 5)}, 3, ""},
		{"nothing_at_all", "three captures of silence", map[string][]byte{"a": at(), "b": at(), "c": at()}, 0, ""},
		{"cut_in_the_middle", "the good prefix of the tap ends there", map[string][]byte{"a": at(1), "b": at(3, 4)[:60], "c": at(5)}, 2,
			"b: incomplete at byte 48: record header needs 16 bytes, the file has 12 more; 1 files of the sequence after it were not read"},
		{"cut_in_the_last", "", map[string][]byte{"a": at(1), "b": at(3), "c": at(5, 6)[:70]}, 3, "c: incomplete at byte 48: record needs 24 bytes, the file has 22 more"},
		{"zero_bytes", "a file that was opened and never written", map[string][]byte{"a": {}, "b": at(3), "c": at(5)}, 2, "a: incomplete at byte 0: no file header"},
		{"another_tap", "files of two taps overlap", map[string][]byte{"a": at(1, 9), "b": at(2), "c": at(10)}, 2, "b: byte 0: begins 7s before the end of "},
	} {
		dir := writeAll(t, tt.files)
		r, err := OpenSequence(filepath.Join(dir, "c"), filepath.Join(dir, "a"), filepath.Join(dir, "b"))
		if err != nil {
			t.Errorf("%s: OpenSequence = %v", tt.name, err)
			continue
		}
		got, err := readAll(r)
		if len(got) != tt.records || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), filepath.Join(dir, tt.want)) {
			t.Errorf("%s: %d records, %v; want %d and %q", tt.name, len(got), err, tt.records, tt.want)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: Close = %v", tt.name, err)
		}
	}
}

// All that is wrong with the arguments is said at once.
func TestOpenSequence_refuses(t *testing.T) {
	dir := writeAll(t, map[string][]byte{"a": pcapBytes(binary.LittleEndian, magicMicro), "text": []byte("hello")})
	a := filepath.Join(dir, "a")
	_, err := OpenSequence(a, "-", filepath.Join(dir, ".", "a"), filepath.Join(dir, "absent"), filepath.Join(dir, "text"))
	for _, want := range []string{"stdin: cannot be one of several", a + ": given twice", "absent: no such file", "text: byte 0: not a capture file"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	if _, err := OpenSequence(); err == nil {
		t.Error("a sequence of no files was opened")
	}
	r := must[Reader](t)(OpenSequence(a, filepath.Join(writeAll(t, map[string][]byte{"b": pcapBytes(binary.LittleEndian, magicMicro)}), "b")))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Next(&Packet{}); err == nil || !strings.Contains(err.Error(), "read after Close") {
		t.Errorf("Next after Close = %v", err)
	}
}

// A ring of a thousand files needs one file descriptor.
func TestOpenSequence_oneFileOpen(t *testing.T) {
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skipf("counting open files: %v", err)
		}
		return len(entries)
	}
	files := map[string][]byte{}
	var names []string
	for i := range 30 {
		name := fmt.Sprint("f", i)
		files[name] = pcapBytes(binary.LittleEndian, magicMicro, []uint32{uint32(i), 0, 8, 8})
		names = append(names, name)
	}
	dir := writeAll(t, files)
	for i := range names {
		names[i] = filepath.Join(dir, names[i])
	}
	before := open()
	r := must[Reader](t)(OpenSequence(names...))
	var p Packet
	for n := 0; ; n++ {
		if now := open(); now > before+1 {
			t.Fatalf("%d files open after %d packets, %d before", now, n, before)
		}
		if err := r.Next(&p); err != nil {
			if err != io.EOF || n != len(names) {
				t.Errorf("%d packets, %v", n, err)
			}
			break
		}
	}
	r.Close()
	if now := open(); now != before {
		t.Errorf("%d files open at the end, %d before", now, before)
	}
}
