package cpu

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/bench"
	"github.com/pcmlab/pcmlab/pcm/handlers"
	"github.com/pcmlab/pcmlab/pcm/shell"
)

// batchOf makes n events of Swift over eight flows.
func batchOf(t testing.TB, s *shell.Shell, n int) ([]shell.Event, []shell.Output) {
	t.Helper()
	var flows []*shell.Flow
	for range 8 {
		f, err := s.NewFlow(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		flows = append(flows, f)
	}
	events := make([]shell.Event, n)
	for i, in := range benchInputs(bench.Sender, bench.Mixes(bench.Sender)[0], bench.PathOf(handlers.Fabric()), n) {
		events[i] = shell.Event{Flow: flows[i%len(flows)].Handle(), In: in}
	}
	return events, make([]shell.Output, n)
}

func swiftShell(t testing.TB) *shell.Shell {
	t.Helper()
	p, err := handlers.Load("swift", pcm.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir() + "/swift.so"
	if err := Build(t.Context(), p, out, Options{}); err != nil {
		t.Fatal(err)
	}
	s, err := shell.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestBatch_allocatesNothing: a batch of events is one call into the shell, and no garbage.
func TestBatch_allocatesNothing(t *testing.T) {
	s := swiftShell(t)
	events, out := batchOf(t, s, 64)
	if n := testing.AllocsPerRun(1000, func() { s.Batch(events, out) }); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
	if out[0].CWND == 0 || out[63].Fired == 0 {
		t.Errorf("the handler did not run: %+v", out[63])
	}
}

// BenchmarkBatch64 is 64 events from Go, and what each of them costs over the loop in C: batches of 64 and of 65536 events take turns, of
// which the second is that loop, entered so rarely that it does not count.
func BenchmarkBatch64(b *testing.B) {
	const small, large = 64, 1 << 16
	s := swiftShell(b)
	events, out := batchOf(b, s, large)
	b.ReportAllocs()
	var batches, loop time.Duration
	rounds := 0
	for b.Loop() {
		begin := time.Now()
		for i := 0; i < large; i += small {
			s.Batch(events[i:i+small], out[i:i+small])
		}
		middle := time.Now()
		s.Batch(events, out)
		batches, loop = batches+middle.Sub(begin), loop+time.Since(middle)
		rounds++
	}
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(rounds) / large }
	b.ReportMetric(each(batches), "ns/event")
	b.ReportMetric(each(loop), "ns/event-in-C")
	b.ReportMetric(each(batches)-each(loop), "ns/event-over-C")
}
