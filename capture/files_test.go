package capture

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/internal/fixtures"
	"pgregory.net/rapid"
)

// order is what the file builders below need of a byte order.
type order interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// pcapBytes writes a pcap file by hand.
func pcapBytes(o order, magic uint32, recs ...[]uint32) []byte {
	b := o.AppendUint32(nil, magic)
	b = o.AppendUint16(b, 2)
	b = o.AppendUint16(b, 4)
	for _, v := range []uint32{0, 0, 65535, 1} {
		b = o.AppendUint32(b, v)
	}
	for _, r := range recs {
		for _, v := range r[:4] {
			b = o.AppendUint32(b, v)
		}
		b = append(b, bytes.Repeat([]byte{0xab}, int(r[2]))...)
	}
	return b
}

// S19: both byte orders and both resolutions at the last instant of a second.
func TestPcap_fourMagics(t *testing.T) {
	for _, o := range []order{binary.LittleEndian, binary.BigEndian} {
		for _, tt := range []struct {
			magic, frac uint32
			want        int64
		}{{magicMicro, 999_999, 999_999_000}, {magicNano, 999_999_999, 999_999_999}} {
			b := pcapBytes(o, tt.magic, []uint32{1_800_000_000, tt.frac, 3, 99}, []uint32{0xffffffff, 0, 0, 0})
			got, r, err := readBytes(b)
			want := []rec{{1_800_000_000*1e9 + tt.want, false, "\xab\xab\xab", 99, 0, 1}, {0xffffffff * 1e9, false, "", 0, 0, 1}}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v magic %x: %v (-want +got):\n%s", o, tt.magic, err, diff)
			}
			if diff := cmp.Diff([]Interface{{LinkType: 1, Snaplen: 65535}}, r.Interfaces()); diff != "" {
				t.Errorf("interfaces (-want +got):\n%s", diff)
			}
		}
	}
}

func TestPcap_nanosecondsUnderTheMicrosecondMagic(t *testing.T) {
	b := pcapBytes(binary.LittleEndian, magicMicro, []uint32{1, 5, 0, 0}, []uint32{1, 1_000_000, 0, 0})
	got, _, err := readBytes(b)
	var fe *FormatError
	if !errors.As(err, &fe) || fe.Offset != 40 || len(got) != 1 || !strings.Contains(err.Error(), "0xa1b23c4d") {
		t.Errorf("%d records, error %v", len(got), err)
	}
}

func TestOpen_whatIsNoCapture(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct{ name, data, want string }{
		{"empty", "", "incomplete at byte 0: no file header: 0 bytes in all"},
		{"three_bytes", "\xd4\xc3\xb2", "incomplete at byte 0: no file header: 3 bytes in all"},
		{"header_cut", "\xd4\xc3\xb2\xa1\x02\x00", "incomplete at byte 0: file header needs 24 bytes, the file has 6 more"},
		{"text", "hello world", "not a capture file: starts with 68 65 6c 6c"},
		{"version_9", "\xd4\xc3\xb2\xa1\x09\x00\x04\x00" + strings.Repeat("\x00", 16), "pcap version 9, want 2"},
		{"patched", "\x34\xcd\xb2\xa1" + strings.Repeat("\x00", 20), "patched pcap format"},
		{"zstd_cut", "\x28\xb5\x2f\xfd", "zstd stream was cut"},
		{"zstd_corrupt", "\x28\xb5\x2f\xfd....", "zstd stream is corrupt"},
		{"zstd_window", "\x28\xb5\x2f\xfd\x04\x90....", "zstd window above 32 MiB"},
		{"gzip_of_nothing", "\x1f\x8b\x08\x00", "gzip: "},
		{"section_without_order", "\x0a\x0d\x0d\x0a\x1c\x00\x00\x00....", "byte-order magic"},
	} {
		path := filepath.Join(dir, tt.name)
		if err := os.WriteFile(path, []byte(tt.data), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: Open = %v, want %q", tt.name, err, tt.want)
		}
	}
	if _, err := Open(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open of an absent file = %v", err)
	}
}

// samplePcapng is a small file by our own writer: two interfaces, three packets, statistics.
func samplePcapng(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	w := must[*Writer](t)(NewWriter(&out, WriterOptions{Comment: "a comment", Interfaces: []Interface{
		{Name: "p_h1", Description: "towards h1", LinkType: roce.LinkEthernet, Snaplen: 128}, {Name: "any", LinkType: roce.LinkLinuxSLL2}}}))
	for i, s := range []string{"", "x", "four"} {
		if err := w.Write(&Packet{TimeNS: 1_800_000_000_123_456_789 + int64(i), Data: []byte(s), OrigLen: 1000 + i, Iface: i & 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.WriteStats(0, 42, 7, 3), w.WriteStats(1, 43, 0, 0), w.Flush()); err != nil {
		t.Fatal(err)
	}
	if w.Written() != int64(out.Len()) {
		t.Fatalf("Written = %d of %d", w.Written(), out.Len())
	}
	return out.Bytes()
}

func sampleRecs() []rec {
	return []rec{
		{1_800_000_000_123_456_789, false, "", 1000, 0, 1}, {1_800_000_000_123_456_790, false, "x", 1001, 1, 276},
		{1_800_000_000_123_456_791, false, "four", 1002, 0, 1}}
}

func TestWriter_readsBack(t *testing.T) {
	got, r, err := readBytes(samplePcapng(t))
	if diff := cmp.Diff(sampleRecs(), got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff([]Interface{{"p_h1", "towards h1", 1, 128, 0}, {"any", "", 276, 0, 0}}, r.Interfaces()); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	n := func(v uint64) *uint64 { return &v }
	if diff := cmp.Diff([]Stats{{Iface: 0, TimeNS: 42, Received: n(7), Dropped: n(3)}, {Iface: 1, TimeNS: 43, Received: n(0), Dropped: n(0)}}, r.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

// boundaries are the offsets at which a good prefix of the file may end, with the number of packets before each.
func boundaries(t *testing.T, b []byte) map[int64]int {
	t.Helper()
	r := must[Reader](t)(NewReader(bytes.NewReader(b), "test"))
	m := map[int64]int{r.Offset(): 0}
	if binary.LittleEndian.Uint32(b) == blockSection {
		n := 0
		for off := 0; off < len(b); {
			t := binary.LittleEndian.Uint32(b[off:])
			off += int(binary.LittleEndian.Uint32(b[off+4:]))
			if t == blockEnhancedPacket {
				n++
			}
			m[int64(off)] = n
		}
		return m
	}
	var p Packet
	for n := 1; r.Next(&p) == nil; n++ {
		m[r.Offset()] = n
	}
	return m
}

// O18: cut at every byte, the good prefix comes out and the error names the byte where it ends.
func TestReader_cutAtEveryByte(t *testing.T) {
	for name, b := range map[string][]byte{
		"pcap":     pcapBytes(binary.BigEndian, magicNano, []uint32{1, 2, 5, 9}, []uint32{1, 3, 0, 0}, []uint32{1, 4, 7, 7}),
		"pcapng":   samplePcapng(t),
		"sections": append(samplePcapng(t), samplePcapng(t)...),
	} {
		good := boundaries(t, b)
		whole, _, err := readBytes(b)
		if err != nil {
			t.Fatal(err)
		}
		for n := range len(b) + 1 {
			got, _, err := readBytes(b[:n])
			if want, ok := good[int64(n)]; ok {
				if err != nil || len(got) != want {
					t.Errorf("%s cut at %d: %d records, %v; want %d and a clean end", name, n, len(got), err, want)
				}
				continue
			}
			end, packets := int64(0), 0
			for off, k := range good {
				if off <= int64(n) && off >= end {
					end, packets = off, k
				}
			}
			var ie *IncompleteError
			if !errors.As(err, &ie) || ie.Offset != end || len(got) != packets {
				t.Fatalf("%s cut at %d: %d records, %v; want %d records and offset %d", name, n, len(got), err, packets, end)
			}
			if diff := cmp.Diff(whole[:packets], got, cmpEmpty); diff != "" {
				t.Errorf("%s cut at %d (-want +got):\n%s", name, n, diff)
			}
		}
	}
}

var cmpEmpty = cmp.Transformer("empty", func(r []rec) string { return fmt.Sprint(r) })

// ngBlock writes a pcapng block by hand.
func ngBlock(o order, t uint32, body []byte) []byte {
	body = append(body[:len(body):len(body)], make([]byte, -len(body)&3)...)
	n := uint32(len(body) + 12)
	return o.AppendUint32(append(o.AppendUint32(o.AppendUint32(nil, t), n), body...), n)
}

func ngSection(o order) []byte {
	b := o.AppendUint32(nil, byteOrderMagic)
	b = o.AppendUint16(o.AppendUint16(b, 1), 0)
	return ngBlock(o, blockSection, o.AppendUint64(b, ^uint64(0)))
}

func ngIface(o order, link uint16, snap uint32, opts ...[]byte) []byte {
	b := o.AppendUint32(o.AppendUint16(o.AppendUint16(nil, link), 0), snap)
	return ngBlock(o, blockInterface, append(b, bytes.Join(opts, nil)...))
}

func ngOpt(o order, code uint16, v []byte) []byte {
	b := append(o.AppendUint16(o.AppendUint16(nil, code), uint16(len(v))), v...)
	return append(b, make([]byte, -len(v)&3)...)
}

func ngEPB(o order, iface uint32, ts uint64, data string, orig uint32) []byte {
	b := o.AppendUint32(o.AppendUint32(o.AppendUint32(nil, iface), uint32(ts>>32)), uint32(ts))
	b = o.AppendUint32(o.AppendUint32(b, uint32(len(data))), orig)
	b = append(b, data...)
	b = append(b, make([]byte, -len(data)&3)...)
	return ngBlock(o, blockEnhancedPacket, append(b, ngOpt(o, 2, []byte{1, 2, 3, 4})...))
}

// Two sections of different byte order, each with interfaces of their own resolution and offset, and every packet block.
func TestPcapng_sectionsInterfacesAndBlocks(t *testing.T) {
	var b []byte
	for _, o := range []order{binary.BigEndian, binary.LittleEndian} {
		offset := o.AppendUint64(nil, 1_000_000)
		spb := append(o.AppendUint32(nil, 5000), "0123"...)
		pb := o.AppendUint32(o.AppendUint32(o.AppendUint16(o.AppendUint16(nil, 2), 7), 0), 3<<9)
		pb = append(o.AppendUint32(o.AppendUint32(pb, 3), 10), "old"...)
		isb := o.AppendUint32(o.AppendUint32(o.AppendUint32(nil, 1), 0), 9)
		isb = append(isb, ngOpt(o, optReceived, o.AppendUint64(nil, 100))...)
		isb = append(isb, ngOpt(o, optOSDropped, o.AppendUint64(nil, 4))...)
		b = append(b, bytes.Join([][]byte{
			ngSection(o),
			ngIface(o, 1, 4, ngOpt(o, optName, []byte("eth0")), ngOpt(o, optTSResolution, []byte{6})),
			ngBlock(o, 0xbad, []byte("unknown blocks are skipped")),
			ngIface(o, 113, 0, ngOpt(o, optComment, []byte("c")), ngOpt(o, optTSResolution, []byte{9}), ngOpt(o, optTSOffset, offset)),
			ngIface(o, 101, 0, ngOpt(o, optTSResolution, []byte{0x80 | 10})),
			ngIface(o, 1, 0),
			ngEPB(o, 0, 1_800_000_000_000_001, "abc", 1500),
			ngEPB(o, 1, 77, "defg", 4),
			ngEPB(o, 2, 1<<10|1<<9, "h", 1),
			ngEPB(o, 3, 5, "", 60),
			ngBlock(o, blockSimplePacket, spb),
			ngBlock(o, blockPacketObsolete, pb),
			ngBlock(o, blockStatistics, isb),
			ngBlock(o, 4, make([]byte, 40)),
		}, nil)...)
	}
	got, r, err := readBytes(b)
	var want []rec
	for s := range 2 {
		k := 4 * s
		want = append(want, rec{1_800_000_000_000_001_000, false, "abc", 1500, k, 1}, rec{1_000_000_000_000_077, false, "defg", 4, k + 1, 113},
			rec{1_500_000_000, false, "h", 1, k + 2, 101}, rec{5000, false, "", 60, k + 3, 1},
			rec{0, true, "0123", 5000, k, 1}, rec{1_500_000_000, false, "old", 10, k + 2, 101})
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if in := r.Interfaces(); len(in) != 8 || in[0].Name != "eth0" || in[4].Section != 1 || in[5].LinkType != 113 {
		t.Errorf("interfaces %+v", in)
	}
	n := func(v uint64) *uint64 { return &v }
	st := Stats{Iface: 1, TimeNS: 1_000_000_000_000_009, Received: n(100), OSDropped: n(4)}
	st2 := st
	st2.Iface = 5
	if diff := cmp.Diff([]Stats{st, st2}, r.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

func TestPcapng_corrupt(t *testing.T) {
	o := binary.LittleEndian
	head := append(ngSection(o), ngIface(o, 1, 0)...)
	packet := ngEPB(o, 0, 5, "abcd", 4)
	edit := func(b []byte, at int, v uint32) []byte { b = bytes.Clone(b); o.PutUint32(b[at:], v); return b }
	for _, tt := range []struct {
		name, want string
		block      []byte
	}{
		{"length_huge", "the limit is", edit(packet, 4, 0xfffffffc)},
		{"length_zero", "claims 0 bytes", edit(packet, 4, 0)},
		{"length_odd", "not a multiple of 4", edit(packet, 4, 45)},
		{"length_differs", "ends with", edit(packet, len(packet)-4, 99)},
		{"interface_absent", "names interface 7, the section has 1", edit(packet, 8, 7)},
		{"captured_beyond_block", "room for", edit(packet, 20, 1<<30)},
		{"unknown_cut", "block needs 1073741824 bytes", edit(edit(packet, 0, 99), 4, 1<<30)},
		{"time_beyond_int64", "outside the years", edit(packet, 12, 0xffffffff)},
		{"simple_without_body", "body of 0 bytes", ngBlock(o, blockSimplePacket, nil)},
		{"statistics_short", "need 12", ngBlock(o, blockStatistics, []byte{0})},
		{"interface_short", "need 8", ngBlock(o, blockInterface, []byte{1, 0})},
		{"section_version", "pcapng version 2, want 1", edit(ngSection(o), 12, 2)},
	} {
		got, r, err := readBytes(bytes.Join([][]byte{head, packet, tt.block, packet}, nil))
		if err == nil || !strings.Contains(err.Error(), tt.want) || len(got) != 1 {
			t.Errorf("%s: %d records, %v; want 1 and %q", tt.name, len(got), err, tt.want)
			continue
		}
		if buf := cap(r.(*pcapngReader).buf); buf > 2*readBuffer {
			t.Errorf("%s: a corrupt length made the reader hold %d bytes", tt.name, buf)
		}
		var ie *IncompleteError
		if errors.As(err, &ie) && ie.Offset != int64(len(head)+len(packet)) {
			t.Errorf("%s: offset %d, want %d", tt.name, ie.Offset, len(head)+len(packet))
		}
	}
}

// The conversion of timestamps against exact arithmetic.
func TestClock_matchesExactArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := tsClock{rapid.Uint8().Draw(t, "tsresol"), rapid.Int64Range(-1<<34, 1<<34).Draw(t, "offset")}
		ts := rapid.Uint64().Draw(t, "ts")
		unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(c.resolution)), nil)
		if c.resolution&0x80 != 0 {
			unit.Lsh(big.NewInt(1), uint(c.resolution&0x7f))
		}
		want := new(big.Int).Mul(new(big.Int).SetUint64(ts), big.NewInt(1e9))
		want.Quo(want, unit)
		fits := want.IsInt64()
		want.Add(want, new(big.Int).Mul(big.NewInt(c.offset), big.NewInt(1e9)))
		fits = fits && want.IsInt64() && c.offset <= (1<<63-1)/1_000_000_000 && c.offset >= -(1<<63-1)/1_000_000_000
		got, ok := c.ns(ts)
		if ok != fits || ok && got != want.Int64() {
			t.Fatalf("%v.ns(%d) = %d, %v; want %v, %v", c, ts, got, ok, want, fits)
		}
	})
}

func TestWriters_roundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rec {
			data := rapid.SliceOfN(rapid.Byte(), 0, 90).Draw(t, "data")
			return rec{TimeNS: rapid.Int64Range(0, 1<<32*1e9-1).Draw(t, "ns"), Data: string(data),
				OrigLen: len(data) + rapid.IntRange(0, 5000).Draw(t, "cut"), Link: 1}
		}), 0, 40).Draw(t, "records")
		var ng, classic bytes.Buffer
		w, err := NewWriter(&ng, WriterOptions{Interfaces: []Interface{{LinkType: 1}}, Buffer: rapid.IntRange(1, 600).Draw(t, "buffer")})
		if err != nil {
			t.Fatal(err)
		}
		pw := NewPcapWriter(&classic, 1, 0)
		for _, r := range want {
			p := &Packet{TimeNS: r.TimeNS, Data: []byte(r.Data), OrigLen: r.OrigLen}
			if err := errors.Join(w.Write(p), pw.Write(p)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Flush(), pw.Flush()); err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string][]byte{"pcapng": ng.Bytes(), "pcap": classic.Bytes()} {
			got, _, err := readBytes(b)
			if diff := cmp.Diff(want, got, cmpEmpty); err != nil || diff != "" {
				t.Fatalf("%s: %v (-want +got):\n%s", name, err, diff)
			}
			theirs, err := readByPcapgo(b)
			if diff := cmp.Diff(want, theirs, cmpEmpty); err != nil || diff != "" {
				t.Fatalf("%s by the second implementation: %v (-want +got):\n%s", name, err, diff)
			}
		}
	})
}

// readByPcapgo reads a file with gopacket's readers, which fall over some files that are not valid.
func readByPcapgo(b []byte) (out []rec, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("gopacket fell over: %v", r)
		}
	}()
	var src interface {
		ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
	}
	if binary.LittleEndian.Uint32(b) == blockSection {
		src, err = pcapgo.NewNgReader(bytes.NewReader(b), pcapgo.NgReaderOptions{WantMixedLinkType: true})
	} else {
		src, err = pcapgo.NewReader(bytes.NewReader(b))
	}
	if err != nil {
		return nil, err
	}
	for {
		data, ci, err := src.ReadPacketData()
		if err == io.EOF {
			return out, nil
		} else if err != nil {
			return out, err
		}
		link := 1
		if len(ci.AncillaryData) > 0 {
			link = int(ci.AncillaryData[0].(layers.LinkType))
		}
		out = append(out, rec{ci.Timestamp.UnixNano(), ci.Timestamp.IsZero(), string(data), ci.Length, ci.InterfaceIndex, link})
	}
}

// Every real capture gives as many records as its truth file says, and the same ones as the second implementation.
func TestOpen_realCaptures(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(fixtures.Dir(t), "pcap", "*", "*.pcap"))
	if len(files) == 0 {
		t.Fatal("no captures")
	}
	for _, path := range files {
		var truth struct {
			Packets int
			FirstTS string `json:"first_ts"`
			LastTS  string `json:"last_ts"`
		}
		if err := json.Unmarshal(must[[]byte](t)(os.ReadFile(path+".truth.json")), &truth); err != nil {
			t.Fatal(err)
		}
		r := must[Reader](t)(Open(path))
		got, err := readAll(r)
		r.Close()
		if err != nil || len(got) != truth.Packets {
			t.Errorf("%s: %d records, %v; want %d", path, len(got), err, truth.Packets)
			continue
		}
		ts := func(ns int64) string { return fmt.Sprintf("%d.%09d", ns/1e9, ns%1e9) }
		if len(got) > 0 && (ts(got[0].TimeNS) != truth.FirstTS || ts(got[len(got)-1].TimeNS) != truth.LastTS) {
			t.Errorf("%s: from %s to %s, want %s to %s", path, ts(got[0].TimeNS), ts(got[len(got)-1].TimeNS), truth.FirstTS, truth.LastTS)
		}
		theirs, err := readByPcapgo(must[[]byte](t)(os.ReadFile(path)))
		if err != nil || len(theirs) != len(got) {
			t.Errorf("%s: second implementation %d records, %v", path, len(theirs), err)
			continue
		}
		for i := range got {
			if got[i] != theirs[i] {
				t.Errorf("%s: record %d differs", path, i)
				break
			}
		}
	}
	t.Logf("%d files", len(files))
}

// A full disk: whole blocks that were written are counted, and the error stays.
func TestWriter_fullDisk(t *testing.T) {
	b := samplePcapng(t)
	good := boundaries(t, b)
	for room := range b {
		lw := &limitedWriter{room: room}
		w := must[*Writer](t)(NewWriter(lw, WriterOptions{Buffer: 4096, Comment: "a comment", Interfaces: []Interface{
			{Name: "p_h1", Description: "towards h1", LinkType: roce.LinkEthernet, Snaplen: 128}, {Name: "any", LinkType: roce.LinkLinuxSLL2}}}))
		for i, s := range []string{"", "x", "four"} {
			if err := w.Write(&Packet{TimeNS: int64(i), Data: []byte(s), Iface: i & 1}); err != nil {
				t.Fatal(err)
			}
		}
		w.WriteStats(0, 42, 7, 3)
		w.WriteStats(1, 43, 0, 0)
		if err := w.Flush(); !errors.Is(err, errFull) || !errors.Is(w.Write(&Packet{}), errFull) {
			t.Fatalf("room %d: Flush = %v", room, err)
		}
		if _, ok := good[w.Written()]; !ok && w.Written() != 0 && w.Written() >= boundariesStart(good) {
			t.Fatalf("room %d: Written = %d is no block boundary", room, w.Written())
		}
		if w.Written() > int64(room) {
			t.Fatalf("room %d: Written = %d", room, w.Written())
		}
	}
}

func boundariesStart(m map[int64]int) int64 {
	least := int64(1 << 62)
	for off := range m {
		least = min(least, off)
	}
	return least
}

var errFull = errors.New("no space left")

type limitedWriter struct{ room int }

func (w *limitedWriter) Write(b []byte) (int, error) {
	if len(b) > w.room {
		n := w.room
		w.room = 0
		return n, errFull
	}
	w.room -= len(b)
	return len(b), nil
}

func TestReader_doesNotAllocatePerPacket(t *testing.T) {
	o := binary.LittleEndian
	ng := append(ngSection(o), ngIface(o, 1, 0)...)
	for range 2000 {
		ng = append(ng, ngEPB(o, 0, 5, "abcd", 4)...)
	}
	recs := make([][]uint32, 2000)
	for i := range recs {
		recs[i] = []uint32{1, 2, 64, 64}
	}
	for name, b := range map[string][]byte{"pcapng": ng, "pcap": pcapBytes(o, magicMicro, recs...)} {
		r := must[Reader](t)(NewReader(bytes.NewReader(b), "test"))
		var p Packet
		if err := r.Next(&p); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(1000, func() {
			if err := r.Next(&p); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations a packet", name, n)
		}
	}
}
