package gate

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/nicbackends/softnic/qp"
	"github.com/pcmlab/pcmlab/rdcc/sender"
)

// honest fails the test when one of the gates has counted what must not be.
func (w *world) honest() {
	w.t.Helper()
	for i, h := range w.hosts {
		if h.gate == nil {
			continue
		}
		r := h.gate.Receiver()
		if r.InvariantViolations != 0 || r.ExcessOctets != 0 || r.Faults != [4]uint64{} {
			w.t.Errorf("host %d: %d violations, %d octets in excess, faults %v", i, r.InvariantViolations, r.ExcessOctets, r.Faults)
		}
		if n := h.gate.Sender().BeyondCredit; n != 0 {
			w.t.Errorf("host %d: %d octets beyond credit", i, n)
		}
	}
}

// TestLoss: with data and control lost, everything arrives all the same, nothing goes beyond credit, and what was announced
// comes to its end on both sides.
func TestLoss(t *testing.T) {
	for _, tc := range []struct {
		name        string
		loss, noise float64
		size        int
		setup       func(*Config)
	}{
		{"none", 0, 0, 100_000, nil},
		{"data", 0.01, 0, 100_000, nil},
		{"control", 0, 0.1, 100_000, nil},
		{"both", 0.01, 0.1, 100_000, nil},
		{"both_short", 0.02, 0.1, 1500, nil}, // within U
		{"both_pool", 0.01, 0.1, 100_000, func(c *Config) { c.Receiver.Pool = true }},
		{"both_segments", 0.01, 0.1, 100_000, func(c *Config) { c.Message.Segment = 8192 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, 4, tc.setup)
			w.loss, w.noise = tc.loss, tc.noise
			l := newLedger(w)
			var flows []*flow
			for i := range 3 { // and back, so that each host is both
				flows = append(flows, w.connect(i, 3, tc.size), w.connect(3, i, tc.size))
			}
			for _, f := range flows {
				f.start()
			}
			w.run(5 * time.Millisecond)
			w.finish(time.Second, flows...)
			for i, f := range flows {
				if f.failed != 0 || f.done == 0 {
					t.Errorf("flow %d: status %d, %d done", i, f.failed, f.done)
				}
			}
			w.run(w.now + 300*time.Millisecond)
			l.check()
			w.honest()
			for i, h := range w.hosts {
				if s := h.gate.Status(); s.Announced != 0 || len(h.gate.byID) != 0 || len(h.gate.Status().Peers) == 0 {
					t.Errorf("host %d: %d messages of others and %d of its own do not end", i, s.Announced, len(h.gate.byID))
				}
			}
		})
	}
}

// TestReceiverRestart: the peer's gate begins anew in the middle of messages; its sender asks again, and goes on.
func TestReceiverRestart(t *testing.T) {
	w := newWorld(t, 3, nil)
	l := newLedger(w)
	flows := []*flow{w.connect(0, 2, 200_000), w.connect(1, 2, 200_000)}
	for _, f := range flows {
		f.start()
	}
	for range 5 {
		w.run(w.now + time.Millisecond)
		h := w.hosts[2]
		h.gate = nil // as a program that dies
		h.nic.SetGate(w.now, nil)
		w.run(w.now + 50*time.Microsecond)
		h.on()
	}
	before := flows[0].done
	w.run(w.now + 5*time.Millisecond)
	if flows[0].done < before+10 {
		t.Errorf("%d messages in 5 ms after the last restart", flows[0].done-before)
	}
	w.finish(500*time.Millisecond, flows...)
	if flows[0].failed != 0 || flows[1].failed != 0 {
		t.Errorf("statuses %d and %d", flows[0].failed, flows[1].failed)
	}
	l.check()
	w.honest()
	if n := w.hosts[0].gate.Sender().AssocLost; n == 0 {
		t.Error("the sender has not noticed")
	}
}

// TestSwitchedOff: gates that are closed while work is under way let it through, whichever side it is.
func TestSwitchedOff(t *testing.T) {
	w := newWorld(t, 3, func(c *Config) { c.Sender.OnRefused = sender.RefusedWithout })
	flows := []*flow{w.connect(0, 2, 200_000), w.connect(1, 2, 200_000)}
	for _, f := range flows {
		f.start()
	}
	for _, step := range []struct{ off, flow int }{{0, 0}, {2, 1}} {
		w.run(w.now + 2*time.Millisecond)
		w.honest()
		w.hosts[step.off].off()
		w.run(w.now + 20*time.Millisecond) // a request that waits is repeated first, at a round trip that has grown
		f := flows[step.flow]
		before := f.done
		w.run(w.now + 5*time.Millisecond)
		if f.done < before+10 || f.failed != 0 {
			t.Errorf("host %d off: flow %d did %d messages in 5 ms, status %d", step.off, step.flow, f.done-before, f.failed)
		}
		w.finish(100*time.Millisecond, flows[0]) // it fills the buffer, without
	}
	if c := w.hosts[1].gate.Counters(); c.Without == 0 {
		t.Errorf("%+v: nothing went without", c)
	}
	w.finish(100*time.Millisecond, flows...)
}

// TestPeerWithout: a peer that never answers does not hold up its traffic.
func TestPeerWithout(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.hosts[1].gate = nil
	w.hosts[1].nic.SetGate(0, nil)
	f := w.connect(0, 1, 100_000)
	f.start()
	w.run(250 * time.Millisecond)
	if f.done != 0 {
		t.Errorf("%d messages while the peer was still asked", f.done)
	}
	w.run(300 * time.Millisecond)
	if f.done < 1000 || f.failed != 0 {
		t.Errorf("%d messages, status %d", f.done, f.failed)
	}
	w.finish(10*time.Millisecond, f)
}

// TestRefused: a message that the receiver does not take is not sent: the queue pair fails, and nothing hangs.
func TestRefused(t *testing.T) {
	w := newWorld(t, 2, func(c *Config) { c.Receiver.MaxLength = 150_000 })
	l := newLedger(w)
	f := w.connect(0, 1, 200_000)
	f.post(100_000)
	f.post(200_000)
	f.post(100_000)
	w.run(5 * time.Millisecond)
	if f.done != 1 || f.failed != qp.RemoteOperation || f.x.State() != qp.Error || f.x.Queued() != 0 {
		t.Errorf("%d done, status %d, state %v, %d queued", f.done, f.failed, f.x.State(), f.x.Queued())
	}
	if got := w.hosts[1].nic.Counters().RxPayloadBytes; got != 100_000 {
		t.Errorf("%d octets arrived, want those of the first alone", got)
	}
	l.check()
	if s := w.hosts[1].gate.Status(); s.Announced != 0 {
		t.Errorf("%d messages are announced still", s.Announced)
	}
}

// TestDestroyed: the messages of a queue pair that goes are cancelled, and their credit serves others.
func TestDestroyed(t *testing.T) {
	w := newWorld(t, 3, nil)
	f, other := w.connect(0, 2, 1<<20), w.connect(1, 2, 1<<20)
	f.start()
	other.start()
	w.run(time.Millisecond)
	f.x.Destroy(w.now)
	w.run(w.now + 200*time.Microsecond)
	r := w.hosts[2].gate
	if c := r.Receiver(); c.CancelsReceived == 0 {
		t.Error("no CANCEL came")
	}
	for m := range r.routes {
		if r.assocs[m.assoc] == ipOf(0) {
			t.Errorf("message %v is still announced", m)
		}
	}
	before := other.to.nic.Counters().RxPayloadBytes
	w.run(w.now + time.Millisecond)
	if got := other.to.nic.Counters().RxPayloadBytes - before; got < 2_600_000 { // of 3.1 MB
		t.Errorf("the other sends %d octets in 1 ms", got)
	}
	w.finish(50*time.Millisecond, other)
	w.honest()
}

// TestCodePoints: unscheduled data and that of a class carry the domain's, ECN bits as they were; repetitions what the first had.
func TestCodePoints(t *testing.T) {
	unscheduled, class := uint8(46), uint8(18)
	w := newWorld(t, 2, func(c *Config) {
		c.Sender.DSCP.Unscheduled, c.Sender.DSCP.Class[3] = &unscheduled, &class
		c.Message.Class = 3
	})
	w.loss = 0.05
	f := w.connect(0, 1, 300_000)
	seen := map[byte]int{}
	w.tap = func(d *wire) {
		if !d.control && d.from == 0 {
			seen[d.tos]++
		}
	}
	f.post(1000) // nothing before it: within U
	w.run(time.Millisecond)
	if seen[46<<2|2] == 0 || len(seen) != 1 {
		t.Errorf("unscheduled: %v", seen)
	}
	clear(seen)
	f.post(300_000)
	w.finish(50*time.Millisecond, f)
	if seen[18<<2|2] < 73 || len(seen) != 1 {
		t.Errorf("class 3: %v", seen)
	}
	if f.from.nic.Counters().RetransmittedPackets == 0 {
		t.Error("nothing was repeated: the test shows less than it says")
	}
}

// TestMixed: messages of no length, short and long ones follow each other on one queue pair, as programs post them.
func TestMixed(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.loss, w.noise = 0.005, 0.05
	l := newLedger(w)
	f := w.connect(0, 1, 200_000)
	total := uint64(0)
	for i := range 60 {
		size := []int{0, 1, 1000, 4096, 4097, 200_000}[i%6]
		f.post(size)
		total += uint64(size)
	}
	w.finish(200*time.Millisecond, f)
	if f.done != 60 || f.failed != 0 || f.octets != total || w.hosts[1].nic.Counters().RxPayloadBytes != total {
		t.Errorf("%d done with %d octets of %d, status %d", f.done, f.octets, total, f.failed)
	}
	l.check()
	w.honest()
}

// TestOnWhileRunning: what was posted before goes without; from then on there is credit.
func TestOnWhileRunning(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.hosts[0].off()
	f := w.connect(0, 1, 100_000)
	f.start()
	w.run(100 * time.Microsecond)
	w.hosts[0].on()
	w.run(5 * time.Millisecond)
	if c := w.hosts[0].gate.Counters(); c.Requests < 20 || c.Without != 0 {
		t.Errorf("%+v", c)
	}
	w.finish(20*time.Millisecond, f)
	if f.failed != 0 {
		t.Errorf("status %d", f.failed)
	}
	w.honest()
}

// TestTooMany: queue pairs that find no room for their message wait for another to end, of whichever peer.
func TestTooMany(t *testing.T) {
	w := newWorld(t, 4, func(c *Config) { c.Sender.MaxMessages, c.MaxPending = 3, 2 })
	var flows []*flow
	for i := range 12 {
		f := w.connect(0, 1+i%3, 20_000)
		f.start()
		flows = append(flows, f)
	}
	w.run(20 * time.Millisecond)
	for i, f := range flows {
		if f.done < 10 || f.failed != 0 {
			t.Errorf("flow %d: %d done, status %d", i, f.done, f.failed)
		}
	}
	w.finish(20*time.Millisecond, flows...)
	w.honest()
}
