package gate

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/nicbackends/softnic/engine"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/qp"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
)

// withoutUnscheduled leaves all of G to grants: it is no multiple of the Credit Unit.
func withoutUnscheduled(c *Config) {
	c.Receiver.Gu = -1
	c.Message.Scheduled = true
}

// TestIncast is the shape of the incast experiment: senders write to one receiver through a switch whose buffer is the budget G.
// With the gate nothing is dropped, the link is used and shared equally; without, the same buffer drops.
func TestIncast(t *testing.T) {
	bdp := int(testFabric.BDP())
	for _, tc := range []struct {
		name    string
		senders int
		size    int
		op      qp.Op
		setup   func(*Config)
		wake    time.Duration
		least   float64 // utilisation of what the link carries
	}{
		{"one", 1, 1 << 20, qp.Write, nil, 0, 0.9},
		{"eight", 8, 1 << 20, qp.Write, nil, 0, 0.95},
		{"eight_send", 8, 1 << 20, qp.Send, nil, 0, 0.95},
		{"eight_short", 8, 64 << 10, qp.Write, nil, 0, 0.95},
		{"eight_bbr", 8, 1 << 20, qp.Write, func(c *Config) { c.Receiver.Allocator = receiver.BBR{} }, 0, 0.9},
		{"eight_pool", 8, 1 << 20, qp.Write, func(c *Config) { c.Receiver.Pool = true }, 0, 0.95},
		{"one_segments", 1, 1 << 20, qp.Write, func(c *Config) { c.Message.Segment = 8192 }, 0, 0.9},
		{"eight_segments_too_long", 8, 1 << 20, qp.Write, func(c *Config) { c.Message.Segment = 32 << 10 }, 0, 0.8},
		{"two_without_unscheduled", 2, 1 << 20, qp.Write, withoutUnscheduled, 0, 0.95},
		{"eight_without_unscheduled", 8, 1 << 20, qp.Write, withoutUnscheduled, 0, 0.95},
		{"eight_late_threads", 8, 1 << 20, qp.Write, nil, time.Microsecond, 0.9},
	} {
		t.Run(tc.name, func(t *testing.T) {
			play := func(gated bool) (w *world, used, fair float64) {
				w = newWorld(t, tc.senders+1, tc.setup)
				w.buffer, w.wake = 2*bdp, tc.wake
				r := w.hosts[tc.senders]
				var flows []*flow
				for i := range tc.senders {
					f := w.connect(i, tc.senders, tc.size)
					f.op = tc.op
					flows = append(flows, f)
					if !gated {
						w.hosts[i].off()
					}
					f.start()
				}
				w.run(time.Millisecond)
				took := func() (all []float64) {
					for _, f := range flows {
						all = append(all, float64(f.from.nic.Counters().TxPayloadBytes))
					}
					return all
				}
				before, rx := took(), r.nic.Counters().RxPayloadBytes
				const span = 4 * time.Millisecond
				w.run(w.now + span)
				rates := took()
				for i := range rates {
					rates[i] -= before[i]
				}
				used = float64(r.nic.Counters().RxPayloadBytes-rx) * 8 / span.Seconds() / float64(w.rate) * (mtu + 16 + engine.Overhead) / mtu
				if gated {
					w.finish(200*time.Millisecond, flows...)
					for _, f := range flows {
						if f.failed != 0 {
							t.Errorf("a flow failed: status %d", f.failed)
						}
						if n := f.from.gate.Sender().BeyondCredit; n != 0 {
							t.Errorf("%d octets beyond credit", n)
						}
					}
					if c := r.gate.Receiver(); c.ExcessOctets != 0 || c.InvariantViolations != 0 || c.Faults != [4]uint64{} {
						t.Errorf("%d octets in excess, %d violations, faults %v", c.ExcessOctets, c.InvariantViolations, c.Faults)
					}
				}
				return w, used, jain(rates)
			}
			w, used, fair := play(true)
			t.Logf("utilisation %.3f, Jain %.3f, peak queue %d of %d octets", used, fair, w.peak, w.buffer)
			if w.drops > 0 || used < tc.least || fair < 0.95 {
				t.Errorf("%d drops, utilisation %.3f (want %.2f), Jain %.3f (want 0.95)", w.drops, used, tc.least, fair)
			}
			if tc.name == "eight" {
				if w, _, _ := play(false); w.drops == 0 {
					t.Error("without the gate the buffer drops nothing: the test shows nothing")
				}
			}
		})
	}
}
