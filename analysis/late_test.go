package analysis

import (
	"bytes"
	"testing"
	"time"
)

// TestRun_capturesOneAfterTheOther: a file in which time starts again, as cat or mergecap -a make it, is read at about the
// speed of any other, and what comes later than the window is counted once.
func TestRun_capturesOneAfterTheOther(t *testing.T) {
	g := generate(genParams{seed: 3, pairs: 8, hosts: 2, messages: 400, lives: 1, mtu: 256, window: 64, snap: 128})
	once := g.pcap()
	twice := append(bytes.Clone(once), once[24:]...)
	r := runOf(t, Options{Workers: 1, DedupWindow: -1}, twice)
	n := int64(len(g.records))
	if r.order.packets != 2*n {
		t.Fatalf("%d packets, want %d", r.order.packets, 2*n)
	}
	want := int64(0)
	for _, rec := range g.records {
		if rec.t < g.records[n-1].t-int64(DefaultReorderWindow) {
			want++
		}
	}
	if late := r.order.late; late != want || want == 0 {
		t.Errorf("%d packets came later than the window of %v, want %d", late, time.Duration(r.order.window), want)
	}
	held := 0
	for _, s := range r.order.queues[0].runs {
		held += len(s.recs)
	}
	if held != 0 {
		t.Errorf("%d records are still held", held)
	}
}

// BenchmarkRunLate is the same with more packets: no time that depends on how many are late.
func BenchmarkRunLate(b *testing.B) {
	g := generate(genParams{seed: 3, pairs: 8, hosts: 2, messages: 2000, lives: 1, mtu: 256, window: 64, snap: 128})
	once := g.pcap()
	twice := append(bytes.Clone(once), once[24:]...)
	for b.Loop() {
		runOf(b, Options{Workers: 1, DedupWindow: -1}, twice)
	}
	b.ReportMetric(float64(2*len(g.records))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpkts/s")
}
