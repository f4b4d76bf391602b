package analysis

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/pcmlab/pcmlab/capture"
)

// benchCapture is a capture of n packets cut at 128 bytes, of many flows with ACKs, CNPs, loss, reorder and duplicates,
// made by repeating generated traffic with other addresses. The flows are WRITEs of 64 KiB as ib_write_bw sends them; those
// of a mixed one are short messages of all kinds, on which every branch of the analysis is a surprise.
func benchCapture(tb testing.TB, packets, flows int, mixed bool) []byte {
	tb.Helper()
	p := genParams{seed: 1, pairs: 16, hosts: 4, messages: 6, writes: 1 << 16, lives: 1, lossBefore: 0.02, lossAfter: 0.005, reorder: 0.01, duplicate: 0.005,
		ce: 0.2, snap: 128, mtu: 1024, window: 128}
	if mixed {
		p.messages, p.writes, p.window = 60, 0, 64
	}
	g := generate(p)
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
				t := genEpoch + (g.records[i].t-genEpoch+int64(round)*(lastNS+1_000_000))*int64(groups)
				le32(rec, uint32(t/1e9))
				le32(rec[4:], uint32(t%1e9))
				ip := rec[16+14:]
				ip[13], ip[17] = byte(k), byte(k) // second byte of both addresses
				// PSNs go on from round to round: shift them by what a round uses
				if b := ip[28:]; b[0] != 0x81 {
					psn := (uint32(b[9])<<16 | uint32(b[10])<<8 | uint32(b[11])) + uint32(round*(p.messages*p.writes/p.mtu+400))
					b[9], b[10], b[11] = byte(psn>>16), byte(psn>>8), byte(psn)
				}
				out.Write(rec)
			}
		}
	}
	return out.Bytes()
}

func le32(b []byte, v uint32) { b[0], b[1], b[2], b[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24) }

// runOf is an analysis of a capture in memory, after its last packet and before the document.
func runOf(tb testing.TB, o Options, data []byte) *run {
	tb.Helper()
	o, err := o.resolved()
	if err != nil {
		tb.Fatal(err)
	}
	rd, err := capture.NewReader(bytes.NewReader(data), "bench")
	if err != nil {
		tb.Fatal(err)
	}
	r := newRun(o)
	r.sources = []*source{{reader: rd}}
	if err := r.judged(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return r
}

// benchOptions switch every metric on. The records are cut at 128 bytes, which leaves no ICRC to check.
func benchOptions(workers int) Options {
	return Options{Workers: workers, LinkRateBps: 1e11, Phases: []Phase{{Name: "all", StartNS: genEpoch, EndNS: genEpoch + 1e9}}}
}

// BenchmarkRun reads 1 million packets from a file and makes the document, all metrics on.
func BenchmarkRun(b *testing.B) {
	for _, c := range []struct {
		flows, workers int
		mixed          bool
	}{{16, 1, false}, {1000, 1, false}, {1000, 2, false}, {1000, 1, true}} {
		b.Run(fmt.Sprintf("flows=%d/mixed=%v/workers=%d", c.flows, c.mixed, c.workers), func(b *testing.B) {
			const packets = 1_000_000
			path := filepath.Join(b.TempDir(), "bench.pcap")
			data := benchCapture(b, packets, c.flows, c.mixed)
			if err := os.WriteFile(path, data, 0o600); err != nil {
				b.Fatal(err)
			}
			size := int64(len(data))
			data = nil
			o := benchOptions(c.workers)
			b.SetBytes(size)
			b.ReportAllocs()
			cpu := cpuSeconds()
			for b.Loop() {
				doc, err := Run(b.Context(), []Input{{Path: path}}, o)
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

// BenchmarkRunFull reads whole packets of 4 KiB, the ICRC of each checked or not.
func BenchmarkRunFull(b *testing.B) {
	data := fullCapture(b, 60_000)
	path := filepath.Join(b.TempDir(), "full.pcap")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		b.Fatal(err)
	}
	size := int64(len(data))
	data = nil
	for _, check := range []bool{true, false} {
		b.Run(fmt.Sprintf("icrc=%v", check), func(b *testing.B) {
			o := benchOptions(1)
			o.CheckICRC = check
			b.SetBytes(size)
			for b.Loop() {
				doc, err := Run(b.Context(), []Input{{Path: path}}, o)
				if err != nil {
					b.Fatal(err)
				}
				if check && (doc.Totals.ICRCChecked != doc.Totals.RoCEPackets || *doc.Totals.ICRCBad != 0) {
					b.Fatalf("%d of %d checked, %d bad", doc.Totals.ICRCChecked, doc.Totals.RoCEPackets, *doc.Totals.ICRCBad)
				}
			}
		})
	}
}

// fullCapture is a capture of n whole packets, most of them of 4 KiB, with valid ICRCs.
func fullCapture(tb testing.TB, n int) []byte {
	tb.Helper()
	const pairs, message = 16, 1 << 20
	return generate(genParams{seed: 1, pairs: pairs, hosts: 4, messages: n / (pairs * message / 4096), writes: message, lives: 1, ce: 0.2, mtu: 4096, window: 512, icrc: true}).pcap()
}

// cpuSeconds is the processor time of this process.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Sec) + float64(u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

// TestRun_allocatesNothingPerPacket: once all flows and bins exist, a packet allocates nothing on its whole way.
func TestRun_allocatesNothingPerPacket(t *testing.T) {
	o, err := Options{CheckICRC: true, Bin: 1 << 40, Workers: 1, LinkRateBps: 1e11,
		Phases: []Phase{{Name: "all", StartNS: genEpoch, EndNS: genEpoch + 1e12}}}.resolved()
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 40
	data := benchCapture(t, 400_000, 64, true)
	rd, err := capture.NewReader(bytes.NewReader(data), "bench")
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(o)
	s := &source{reader: rd}
	r.order = newOrder(&r.o, 1, r.shared.intern, &r.shared.sides, r.lanes)
	r.order.full = func(l *lane) { l.take(l.cur); l.cur.n = 0 }
	var p parsed
	recycle := func(*parsed) {}
	batch := func() {
		x := r.parsers[0]
		base, ok, err := s.read(&x.batch)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if err := x.parse(s, base, &p); err != nil {
			t.Fatal(err)
		}
		s.account(&p)
		r.order.add(0, &p, recycle)
		r.order.end(0) // nothing waits, since p is used again
		r.order.emit(recycle)
	}
	packets := s.file.Packets
	for s.file.Packets < 300_000 {
		batch()
	}
	packets = s.file.Packets
	allocs := testing.AllocsPerRun(rounds, batch) * rounds
	t.Logf("%.0f allocations for %d packets", allocs, s.file.Packets-packets)
	if allocs > 2*64 { // queues of single flows that had never been so long
		t.Errorf("%.0f allocations for %d packets of 64 flows, want none but for a queue of a flow that grows", allocs, s.file.Packets-packets)
	}
}
