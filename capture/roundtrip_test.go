package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pcmlab/pcmlab/capture/roce"
	"pgregory.net/rapid"
)

func drawText(t *rapid.T, label string) string {
	return rapid.StringN(0, 12, 40).Draw(t, label)
}

// Everything that the writer is told comes back: interfaces of any link type, packets on all of them, statistics, whatever
// compression the file is put into afterwards, by Next and by ReadBatch.
func TestWriter_roundTrip(t *testing.T) {
	links := []roce.LinkType{roce.LinkEthernet, roce.LinkLinuxSLL, roce.LinkLinuxSLL2, roce.LinkRaw, roce.LinkNull, 65535}
	rapid.Check(t, func(rt *rapid.T) {
		o := WriterOptions{Comment: drawText(rt, "comment"), Application: drawText(rt, "application"), Hardware: drawText(rt, "hardware"),
			OS: drawText(rt, "os"), Buffer: rapid.IntRange(1, 900).Draw(rt, "buffer")}
		for range rapid.IntRange(1, 5).Draw(rt, "interfaces") {
			o.Interfaces = append(o.Interfaces, Interface{Name: drawText(rt, "name"), Description: drawText(rt, "description"),
				LinkType: rapid.SampledFrom(links).Draw(rt, "link"), Snaplen: rapid.IntRange(0, 1<<31-1).Draw(rt, "snaplen")})
		}
		var out bytes.Buffer
		w, err := NewWriter(&out, o)
		if err != nil {
			rt.Fatal(err)
		}
		var want []rec
		var stats []Stats
		for range rapid.IntRange(0, 40).Draw(rt, "blocks") {
			i := rapid.IntRange(0, len(o.Interfaces)-1).Draw(rt, "on")
			ns := rapid.OneOf(rapid.Int64Range(0, 1<<63-1), rapid.Int64Range(1_800_000_000_999_999_990, 1_800_000_001_000_000_010)).Draw(rt, "ns")
			if rapid.IntRange(0, 5).Draw(rt, "kind") == 0 {
				a, b := rapid.Uint64().Draw(rt, "received"), rapid.Uint64().Draw(rt, "dropped")
				stats = append(stats, Stats{Iface: i, TimeNS: ns, Received: &a, Dropped: &b})
				err = w.WriteStats(i, ns, a, b)
			} else {
				data := rapid.SliceOfN(rapid.Byte(), 0, 90).Draw(rt, "data")
				r := rec{TimeNS: ns, Data: string(data), OrigLen: len(data) + rapid.IntRange(0, 70000).Draw(rt, "cut"), Iface: i, Link: int(o.Interfaces[i].LinkType)}
				want = append(want, r)
				err = w.Write(&Packet{TimeNS: ns, Data: data, OrigLen: r.OrigLen, Iface: i})
			}
			if err != nil {
				rt.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			rt.Fatal(err)
		}
		for name, b := range map[string][]byte{"plain": out.Bytes(), "gzip": gzipped(t, out.Bytes()), "zstd": zstdded(t, out.Bytes())} {
			got, r, err := readBytes(b)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				rt.Fatalf("%s: %v (-want +got):\n%s", name, err, diff)
			}
			if diff := cmp.Diff(o.Interfaces, r.Interfaces()); diff != "" {
				rt.Fatalf("%s: interfaces (-want +got):\n%s", name, diff)
			}
			if diff := cmp.Diff(stats, r.Stats(), cmpopts.EquateEmpty()); diff != "" {
				rt.Fatalf("%s: statistics (-want +got):\n%s", name, diff)
			}
			again, err := NewReader(bytes.NewReader(b), "test")
			if err != nil {
				rt.Fatal(err)
			}
			got, err = readBatches(again)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				rt.Fatalf("%s in batches: %v (-want +got):\n%s", name, err, diff)
			}
		}
	})
}

// Sections of both byte orders, interfaces of any resolution and offset: each packet's time is the exact one, cut to
// nanoseconds.
func TestPcapng_resolutionsAndSections(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var file []byte
		var want []rec
		first := 0
		for range rapid.IntRange(1, 4).Draw(rt, "sections") {
			var o order = binary.LittleEndian
			if rapid.Bool().Draw(rt, "big-endian") {
				o = binary.BigEndian
			}
			file = append(file, ngSection(o)...)
			type clock struct {
				resolution uint8
				offset     int64
			}
			var clocks []clock
			for range rapid.IntRange(1, 3).Draw(rt, "interfaces") {
				var opts [][]byte
				c := clock{resolution: 6}
				if rapid.Bool().Draw(rt, "with resolution") {
					c.resolution = rapid.OneOf(rapid.Uint8Range(0, 18), rapid.Uint8Range(0x80, 0x80+60)).Draw(rt, "tsresol")
					opts = append(opts, ngOpt(o, optTSResolution, []byte{c.resolution}))
				}
				if rapid.Bool().Draw(rt, "with offset") {
					c.offset = rapid.Int64Range(0, 2_000_000_000).Draw(rt, "tsoffset")
					opts = append(opts, ngOpt(o, optTSOffset, o.AppendUint64(nil, uint64(c.offset))))
				}
				clocks = append(clocks, c)
				file = append(file, ngIface(o, 1, 0, opts...)...)
			}
			for range rapid.IntRange(0, 6).Draw(rt, "packets") {
				i := rapid.IntRange(0, len(clocks)-1).Draw(rt, "on")
				c := clocks[i]
				unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(c.resolution)), nil) // units in a second
				if c.resolution&0x80 != 0 {
					unit = new(big.Int).Lsh(big.NewInt(1), uint(c.resolution&0x7f))
				}
				// The seconds are such that neither 64 bits of units nor int64 nanoseconds are passed.
				most := new(big.Int).Div(new(big.Int).SetUint64(1<<64-1), unit)
				sec := big.NewInt(rapid.Int64Range(0, max(0, min(2_000_000_000, most.Int64()-1))).Draw(rt, "seconds"))
				if !most.IsInt64() {
					sec = big.NewInt(1_800_000_000)
				}
				ts := new(big.Int).Mul(sec, unit)
				ts.Add(ts, new(big.Int).Mod(new(big.Int).SetUint64(rapid.Uint64().Draw(rt, "fraction")), unit))
				ns := new(big.Int).Mul(ts, big.NewInt(1e9))
				ns.Quo(ns, unit)
				data := rapid.StringN(0, 10, 10).Draw(rt, "data")
				file = append(file, ngEPB(o, uint32(i), ts.Uint64(), data, uint32(len(data)))...)
				want = append(want, rec{TimeNS: ns.Int64() + c.offset*1e9, Data: data, OrigLen: len(data), Iface: first + i, Link: 1})
			}
			first += len(clocks)
		}
		got, r, err := readBytes(file)
		if diff := cmp.Diff(want, got); err != nil || diff != "" || len(r.Interfaces()) != first {
			rt.Fatalf("%v, %d interfaces, want %d (-want +got):\n%s", err, len(r.Interfaces()), first, diff)
		}
	})
}

// Stamps of all four pcap magics at .999999999 of a second and at both ends of the format, by Next and by ReadBatch (S19).
func TestPcap_roundTripOfAllMagics(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var o order = binary.LittleEndian
		if rapid.Bool().Draw(rt, "big-endian") {
			o = binary.BigEndian
		}
		magic, unit := uint32(magicMicro), int64(1000)
		if rapid.Bool().Draw(rt, "nanoseconds") {
			magic, unit = magicNano, 1
		}
		var recs [][]uint32
		var want []rec
		for range rapid.IntRange(0, 20).Draw(rt, "records") {
			ns := rapid.OneOf(rapid.SampledFrom([]int64{0, 999_999_999, 1<<32*1e9 - 1, 1_800_000_000_999_999_999}), rapid.Int64Range(0, 1<<32*1e9-1)).Draw(rt, "ns")
			n := rapid.Uint32Range(0, 70).Draw(rt, "length")
			recs = append(recs, []uint32{uint32(ns / 1e9), uint32(ns % 1e9 / unit), n, n + 5})
			want = append(want, rec{TimeNS: ns / unit * unit, Data: string(bytes.Repeat([]byte{0xab}, int(n))), OrigLen: int(n) + 5, Link: 1})
		}
		b := pcapBytes(o, magic, recs...)
		got, _, err := readBytes(b)
		r, err2 := NewReader(bytes.NewReader(b), "test")
		if err = errors.Join(err, err2); err != nil {
			rt.Fatal(err)
		}
		batched, err := readBatches(r)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			rt.Fatalf("%v (-want +got):\n%s", err, diff)
		}
		if diff := cmp.Diff(want, batched); diff != "" {
			rt.Fatalf("in batches (-want +got):\n%s", diff)
		}
	})
}
