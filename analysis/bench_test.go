package analysis

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
)

// benchCapture is a capture of n packets cut at 128 bytes, of many flows with ACKs, CNPs, loss, reorder and duplicates,
// made by repeating generated traffic with other addresses.
func benchCapture(tb testing.TB, packets, flows int) []byte {
	tb.Helper()
	g := generate(genParams{seed: 1, pairs: 16, hosts: 4, messages: 60, lives: 1, lossBefore: 0.02, lossAfter: 0.005, reorder: 0.01, duplicate: 0.005,
		ce: 0.2, snap: 128, mtu: 1024, window: 64})
	out := bytes.NewBuffer(make([]byte, 0, packets*144+24))
	out.Write(g.pcap()[:24])
	groups := max(1, flows/16)
	// All groups run side by side: record i of every group, then record i+1.
	hdr := g.pcap()[24:]
	var recs [][]byte
	for len(hdr) > 0 {
		n := 16 + int(uint32(hdr[8])|uint32(hdr[9])<<8)
		recs = append(recs, hdr[:n])
		hdr = hdr[n:]
	}
	lastNS := g.records[len(g.records)-1].t - g.records[0].t
	for n, round := 0, 0; n < packets; round++ {
		for i, r := range recs {
			for k := range groups {
				if n++; n > packets {
					return out.Bytes()
				}
				rec := bytes.Clone(r)
				t := g.records[i].t + int64(round)*(lastNS+1_000_000)
				le32(rec, uint32(t/1e9))
				le32(rec[4:], uint32(t%1e9))
				ip := rec[16+14:]
				ip[13], ip[17] = byte(k), byte(k) // second byte of both addresses
				// PSNs go on from round to round: shift them by what a round uses
				if b := ip[28:]; b[0] != 0x81 {
					psn := (uint32(b[9])<<16 | uint32(b[10])<<8 | uint32(b[11])) + uint32(round*400)
					b[9], b[10], b[11] = byte(psn>>16), byte(psn>>8), byte(psn)
				}
				out.Write(rec)
			}
		}
	}
	return out.Bytes()
}

func le32(b []byte, v uint32) { b[0], b[1], b[2], b[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24) }

// feed runs all packets of a capture in memory through the engine, as Run does for one file.
func feed(tb testing.TB, e *engine, data []byte) (n int) {
	r, err := capture.NewReader(bytes.NewReader(data), "bench")
	if err != nil {
		tb.Fatal(err)
	}
	var p capture.Packet
	var f roce.Frame
	for {
		if err := r.Next(&p); err != nil {
			if !errors.Is(err, io.EOF) {
				tb.Fatal(err)
			}
			return n
		}
		if err := f.Decode(p.LinkType, p.Data, p.OrigLen, 4791); err != nil {
			tb.Fatal(err)
		}
		e.frame(p.TimeNS, &f, p.Data, 0)
		n++
	}
}

// BenchmarkRun reads 1 million packets from a file and makes the document, all metrics on.
func BenchmarkRun(b *testing.B) {
	for _, flows := range []int{16, 1000} {
		b.Run("flows="+integer(int64(flows)), func(b *testing.B) {
			const packets = 1_000_000
			path := filepath.Join(b.TempDir(), "bench.pcap")
			data := benchCapture(b, packets, flows)
			if err := os.WriteFile(path, data, 0o600); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			cpu := cpuSeconds()
			for b.Loop() {
				doc, err := Run(b.Context(), []Input{{Path: path}}, Options{})
				if err != nil {
					b.Fatal(err)
				}
				if doc.Totals.RoCEPackets != packets {
					b.Fatalf("%d packets", doc.Totals.RoCEPackets)
				}
			}
			b.ReportMetric(packets*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpkts/s")
			b.ReportMetric(packets*float64(b.N)/(cpuSeconds()-cpu)/1e6, "Mpkts/cpu-s") // what a quiet machine would give
		})
	}
}

// cpuSeconds is the processor time of this process.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Sec) + float64(u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

// TestEngine_allocatesNothingPerPacket: once all flows and bins exist, a packet allocates nothing.
func TestEngine_allocatesNothingPerPacket(t *testing.T) {
	data := benchCapture(t, 60_000, 64)
	o, err := Options{CheckICRC: true, Bin: 1 << 40, Phases: []Phase{{Name: "all", StartNS: genEpoch, EndNS: genEpoch + 1e12}}}.resolved()
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(o)
	type rec struct {
		t int64
		b []byte
	}
	var recs []rec
	r, err := capture.NewReader(bytes.NewReader(data), "test")
	if err != nil {
		t.Fatal(err)
	}
	var p capture.Packet
	var f roce.Frame
	for r.Next(&p) == nil {
		recs = append(recs, rec{p.TimeNS, bytes.Clone(p.Data)})
	}
	i := 0
	one := func() {
		if err := f.Decode(roce.LinkEthernet, recs[i].b, 1100, 4791); err != nil {
			t.Fatal(err)
		}
		e.frame(recs[i].t, &f, recs[i].b, 0)
		i++
	}
	for i < len(recs)/2 {
		one()
	}
	if n := testing.AllocsPerRun(len(recs)-i-1, one); n != 0 {
		t.Errorf("%g allocations per packet, want 0", n)
	}
}

// TestEngine_memoryIsBounded: ten times the packets of the same flows hold the same memory.
func TestEngine_memoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("needs half a second")
	}
	held := func(packets int) uint64 {
		data := benchCapture(t, packets, 200)
		o, _ := Options{MaxCells: 1 << 14}.resolved()
		e := newEngine(o)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		feed(t, e, data)
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(e)
		runtime.KeepAlive(data)
		return after.HeapAlloc - min(before.HeapAlloc, after.HeapAlloc)
	}
	short, long := held(30_000), held(300_000)
	t.Logf("held: %d KiB after 30 k packets, %d KiB after 300 k", short>>10, long>>10)
	if long > 2*short+1<<20 {
		t.Errorf("memory grew from %d to %d bytes with the length of the capture", short, long)
	}
}
