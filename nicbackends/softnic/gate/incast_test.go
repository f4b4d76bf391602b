package gate

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc/receiver"
)

func TestIncastTry(t *testing.T) {
	for _, tc := range []struct {
		name    string
		senders int
		size    int
		setup   func(*Config)
	}{
		{"one_1M", 1, 1 << 20, nil},
		{"one_64K", 1, 64 << 10, nil},
		{"one_4K", 1, 4 << 10, nil},
		{"eight_1M", 8, 1 << 20, nil},
		{"eight_64K", 8, 64 << 10, nil},
		{"eight_1M_pool", 8, 1 << 20, func(c *Config) { c.Receiver.Pool = true }},
		{"one_1M_pool", 1, 1 << 20, func(c *Config) { c.Receiver.Pool = true }},
		{"one_64K_pool", 1, 64 << 10, func(c *Config) { c.Receiver.Pool = true }},
		{"eight_bbr", 8, 1 << 20, func(c *Config) { c.Receiver.Allocator = receiver.BBR{} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.senders+1, tc.setup)
			var flows []*flow
			for i := range tc.senders {
				f := w.connect(i, tc.senders, tc.size)
				flows = append(flows, f)
				f.start()
			}
			w.run(time.Millisecond)
			before := make([]uint64, len(flows))
			rx := w.hosts[tc.senders].nic.Counters().RxPayloadBytes
			for i, f := range flows {
				before[i] = w.hosts[f.from.i].nic.Counters().TxPayloadBytes
			}
			const span = 10 * time.Millisecond
			w.run(w.now + span)
			var rates []float64
			for i, f := range flows {
				rates = append(rates, float64(w.hosts[f.from.i].nic.Counters().TxPayloadBytes-before[i]))
			}
			used := float64(w.hosts[tc.senders].nic.Counters().RxPayloadBytes-rx) * 8 / span.Seconds() / 25e9 * (4096 + 82) / 4096
			r := w.hosts[tc.senders].gate.Receiver()
			s := w.hosts[0].gate.Sender()
			t.Logf("utilisation %.3f jain %.3f peak %d drops %d; excess %d violations %d faults %v beyond %d expired %d reqs %d timeouts %d grants %d done %d", used, jain(rates), w.peak, w.drops,
				r.ExcessOctets, r.InvariantViolations, r.Faults, s.BeyondCredit, s.GrantsExpired, s.Requests, s.RequestTimeouts, r.Grants, r.MessagesDone)
			w.finish(50*time.Millisecond, flows...)
		})
	}
}
