package analysis

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
)

// genFile is one capture of the generator's packets: what a tap saw, in the order of the file.
type genFile struct {
	link, snap int
	tick       int64
	records    []genRecord
}

// file holds all records, some of them late where that was asked for.
func (g *gen) file() genFile {
	f := genFile{link: g.link(), snap: g.p.snap, tick: max(g.p.tick, 1), records: append([]genRecord(nil), g.records...)}
	if g.p.late > 0 {
		r := rand.New(rand.NewPCG(g.p.seed, 8))
		at := make(map[*byte]int64, len(f.records)) // where each is written
		for i := range f.records {
			t := f.records[i].t
			if r.Float64() < g.p.late {
				t += r.Int64N(int64(DefaultReorderWindow) * 9 / 10)
			}
			at[&f.records[i].frame[0]] = t
		}
		sort.SliceStable(f.records, func(i, j int) bool { return at[&f.records[i].frame[0]] < at[&f.records[j].frame[0]] })
	}
	return f
}

// cut gives the parts of f before and from record i on.
func (f genFile) cut(i int) (genFile, genFile) {
	a, b := f, f
	a.records, b.records = f.records[:i], f.records[i:]
	return a, b
}

// taps gives what two taps on the way saw, of which the second has a clock ahead by skew, a lower TTL, and each missed the
// share drop of all packets; and all that is there by time, copies marked.
func (g *gen) taps(skew int64, drop float64) (files [2]genFile, merged []genRecord) {
	r := rand.New(rand.NewPCG(g.p.seed, 9))
	files = [2]genFile{g.file(), g.file()}
	for k := range files {
		files[k].records = nil
		for _, rec := range g.records {
			if rec.conn == "" && k == 1 || r.Float64() < drop { // pause frames do not travel
				continue
			}
			if k == 1 {
				rec.frame = bytes.Clone(rec.frame)
				rec.t += skew
				rec.frame[ipOffset(g.link(), rec.frame)+8]--
			}
			files[k].records = append(files[k].records, rec)
		}
	}
	merged = append(append(merged, files[0].records...), files[1].records...)
	sort.SliceStable(merged, func(i, j int) bool { return merged[i].t < merged[j].t })
	return files, markCopies(merged)
}

func (f genFile) captured(r genRecord) []byte {
	if f.snap > 0 {
		return r.frame[:min(len(r.frame), f.snap)]
	}
	return r.frame
}

// pcap writes the records as a capture with ns timestamps.
func (g *gen) pcap() []byte { return g.file().pcap(binary.LittleEndian, 1) }

type genOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// pcap writes the classic format in one of its four kinds: unit is 1 or 1000 ns.
func (f genFile) pcap(e genOrder, unit int64) []byte {
	magic := uint32(0xa1b2c3d4)
	if unit == 1 {
		magic = 0xa1b23c4d
	}
	b := e.AppendUint32(nil, magic)
	b = e.AppendUint16(e.AppendUint16(b, 2), 4)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	b = e.AppendUint32(b, 262144)
	b = e.AppendUint32(b, uint32(f.link))
	for _, r := range f.records {
		data := f.captured(r)
		b = e.AppendUint32(b, uint32(r.t/1e9))
		b = e.AppendUint32(b, uint32(r.t%1e9/unit))
		b = e.AppendUint32(b, uint32(len(data)))
		b = e.AppendUint32(b, uint32(max(len(r.frame), r.wire)))
		b = append(b, data...)
	}
	return b
}

// pcapng writes sections of alternating byte order with two interfaces each, of which the first has nanoseconds and an offset of
// years, the second a unit of its own. A direction's packets come through one of them.
func (f genFile) pcapng(sections int) []byte {
	digits := map[int64]byte{1: 9, 100: 7, 1000: 6}[f.tick]
	var b []byte
	per := len(f.records)/sections + 1
	for s := range sections {
		var e genOrder = binary.LittleEndian
		if s%2 == 1 {
			e = binary.BigEndian
		}
		block := func(kind uint32, body []byte) {
			body = append(body, make([]byte, -len(body)&3)...)
			b = e.AppendUint32(e.AppendUint32(b, kind), uint32(len(body)+12))
			b = e.AppendUint32(append(b, body...), uint32(len(body)+12))
		}
		block(0x0a0d0d0a, e.AppendUint64(e.AppendUint16(e.AppendUint16(e.AppendUint32(nil, 0x1a2b3c4d), 1), 0), 1<<64-1))
		const offset = 1_000_000_000 // s
		option := func(b []byte, code uint16, v []byte) []byte {
			b = e.AppendUint16(e.AppendUint16(b, code), uint16(len(v)))
			return append(append(b, v...), make([]byte, -len(v)&3)...)
		}
		for i, tsresol := range []byte{9, digits} {
			iface := e.AppendUint32(e.AppendUint16(e.AppendUint16(nil, uint16(f.link)), 0), uint32(f.snap))
			iface = option(iface, 2, []byte{'p', byte('0' + i)})
			iface = option(iface, 9, []byte{tsresol})
			if i == 0 {
				iface = option(iface, 14, e.AppendUint64(nil, offset))
			}
			block(1, option(iface, 0, nil))
		}
		for _, rec := range f.records[min(s*per, len(f.records)):min((s+1)*per, len(f.records))] {
			iface, t := uint32(0), uint64(rec.t-offset*1e9)
			if len(rec.conn)%2 == 1 {
				iface, t = 1, uint64(rec.t/f.tick)
			}
			data := f.captured(rec)
			body := e.AppendUint32(e.AppendUint32(e.AppendUint32(nil, iface), uint32(t>>32)), uint32(t))
			body = e.AppendUint32(e.AppendUint32(body, uint32(len(data))), uint32(len(rec.frame)))
			block(6, append(body, data...))
		}
	}
	return b
}

func gzipped(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// failer is what *testing.T and *rapid.T share.
type failer interface {
	Helper()
	Fatal(...any)
}

func save(t failer, dir, name string, data []byte) Input {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return Input{Path: path}
}
