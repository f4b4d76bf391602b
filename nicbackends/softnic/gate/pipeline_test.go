package gate

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/nicbackends/softnic/engine"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/qp"
)

// utilisation plays for a while and says how much of its link the last host got, in full packets.
func (w *world) utilisation(span time.Duration) float64 {
	r := w.hosts[len(w.hosts)-1].nic
	before := r.Counters().RxPayloadBytes
	w.run(w.now + span)
	return float64(r.Counters().RxPayloadBytes-before) * 8 / span.Seconds() / float64(w.rate) * (mtu + 16 + engine.Overhead) / mtu
}

// TestBackToBack: messages that a program posts one behind the other on one queue pair fill the link, although each is shorter than
// what is on its way.
func TestBackToBack(t *testing.T) {
	for _, tc := range []struct {
		name           string
		senders, pairs int
		size           int
		op             qp.Op
		setup          func(*Config)
		least          float64
	}{
		{"64KiB", 1, 1, 64 << 10, qp.Write, nil, 0.95},
		{"16KiB", 1, 1, 16 << 10, qp.Write, nil, 0.95},
		{"4KiB", 1, 1, 4 << 10, qp.Write, nil, 0.9},
		{"4KiB_send", 1, 1, 4 << 10, qp.Send, nil, 0.9},
		{"4KiB_pool", 1, 1, 4 << 10, qp.Write, func(c *Config) { c.Receiver.Pool = true }, 0.9},
		{"64KiB_pool", 1, 1, 64 << 10, qp.Write, func(c *Config) { c.Receiver.Pool = true }, 0.95},
		{"64KiB_segments", 1, 1, 64 << 10, qp.Write, func(c *Config) { c.Message.Segment = 8192 }, 0.9},
		{"4KiB_eight", 8, 1, 4 << 10, qp.Write, nil, 0.9},
		{"64KiB_eight", 8, 1, 64 << 10, qp.Write, nil, 0.95},
		{"4KiB_two_pairs_each", 4, 2, 4 << 10, qp.Write, nil, 0.9},
		{"1MiB_two_pairs_each", 4, 2, 1 << 20, qp.Write, nil, 0.95},
		{"64KiB_two_pairs_each", 4, 2, 64 << 10, qp.Write, nil, 0.95},
		{"64KiB_four_pairs", 1, 4, 64 << 10, qp.Write, nil, 0.95},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.senders+1, tc.setup)
			w.buffer = 2 * int(testFabric.BDP())
			l := newLedger(w)
			var flows []*flow
			for i := range tc.senders * tc.pairs {
				f := w.connect(i%tc.senders, tc.senders, tc.size)
				f.op, f.depth = tc.op, max(4, min(64, 512<<10/tc.size))
				f.start()
				flows = append(flows, f)
			}
			w.run(time.Millisecond)
			before := make([]uint64, len(flows))
			for i, f := range flows {
				before[i] = f.octets
			}
			used := w.utilisation(4 * time.Millisecond)
			var each []float64
			for i, f := range flows {
				each = append(each, float64(f.octets-before[i]))
			}
			fair := jain(each)
			t.Logf("utilisation %.3f, Jain %.3f, peak queue %d", used, fair, w.peak)
			if used < tc.least || fair < 0.95 || w.drops > 0 {
				t.Errorf("utilisation %.3f, want %.2f; Jain %.3f, want 0.95; %d drops", used, tc.least, fair, w.drops)
			}
			w.finish(50*time.Millisecond, flows...)
			l.check()
			w.honest()
			for i, f := range flows {
				if f.failed != 0 {
					t.Errorf("flow %d: status %d", i, f.failed)
				}
			}
		})
	}
}
