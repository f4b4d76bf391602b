package engine

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
)

// fixed is a policy that wants the same for ever.
type fixed struct {
	d      Decision
	told   []Signals
	closed bool
}

func (f *fixed) Flush(s *Signals) Decision { f.told = append(f.told, *s); return f.d }
func (f *fixed) Close()                    { f.closed = true }

type fixedProgram struct {
	d    Decision
	poll time.Duration
	made []*fixed
}

func (p *fixedProgram) New(time.Duration, uint64) (Policy, error) {
	f := &fixed{d: p.d}
	p.made = append(p.made, f)
	return f, nil
}
func (p *fixedProgram) Poll() time.Duration { return p.poll }

// runWith runs one sender of a world of 25 Gbit/s at scale 50 under a program, and returns its goodput as a share of the line rate.
func runWith(t *testing.T, p *fixedProgram, seconds int) (share float64, w *world) {
	t.Helper()
	w = newWorld(t, 2, 50, nil)
	if err := w.nics[0].SetProgram(0, p); err != nil {
		t.Fatal(err)
	}
	f := w.connect(0, 1)
	f.start()
	w.run(time.Duration(seconds) * time.Second)
	return float64(f.messages) * 65536 * 8 / float64(seconds) / float64(w.rate), w
}

// A policy's rate is one of hardware, and paces the queue pair whatever the time scale.
func TestPolicy_ratePaces(t *testing.T) {
	share, _ := runWith(t, &fixedProgram{d: Decision{Rate: 25 * units.GbitPerSec / 4, Ran: true}}, 4)
	if share < 0.24 || share > 0.25 { // headers take part of it
		t.Errorf("a quarter of the line rate gives %.4f of it as goodput", share)
	}
}

// A window bounds the bytes in flight: goodput is a window for each round trip.
func TestPolicy_windowBounds(t *testing.T) {
	p := &fixedProgram{d: Decision{Window: 2 * 4096, Ran: true}}
	share, w := runWith(t, p, 4)
	in := 0
	var rtt time.Duration
	for _, s := range p.made[0].told {
		in = max(in, s.InFlight)
		if s.Feedback.RTT > 0 {
			rtt = s.Feedback.RTT
		}
	}
	if in > 2*4096 {
		t.Errorf("%d bytes in flight, the window is 8192", in)
	}
	// Two packets a round trip; the second leaves a packet's time after the first.
	want := 2 * 4096 * 8 / (rtt.Seconds() * 25e9)
	if share < want*0.8 || share > want*1.6 {
		t.Errorf("goodput %.3f of line rate with a round trip of %v in hardware terms, want about %.3f", share, rtt, want)
	}
	if w.nics[0].Counters().PolicyRuns == 0 {
		t.Error("no run was counted")
	}
}

// What the policy was told adds up to what the queue pair did.
func TestPolicy_isToldEverything(t *testing.T) {
	p := &fixedProgram{d: Decision{}}
	w := newWorld(t, 2, 50, nil)
	w.loss = 0.01
	if err := w.nics[0].SetProgram(0, p); err != nil {
		t.Fatal(err)
	}
	f := w.connect(0, 1)
	f.start()
	w.run(2 * time.Second)
	f.on = false
	w.run(8 * time.Second)
	var sum Signals
	for _, s := range p.made[0].told {
		sum.Feedback.Bytes += s.Feedback.Bytes
		sum.Feedback.Packets += s.Feedback.Packets
		sum.Feedback.Naks += s.Feedback.Naks
		sum.Feedback.Timeouts += s.Feedback.Timeouts
		sum.CNPs += s.CNPs
		sum.Sent += s.Sent
		if s.Feedback.RTT > 0 && s.Feedback.RTT < 4*time.Microsecond {
			t.Fatalf("a round trip of %v: the links alone take 4 us", s.Feedback.RTT)
		}
	}
	c := w.nics[0].Counters()
	if want := f.messages * 65536; sum.Feedback.Bytes != want || sum.Feedback.Packets != want/4096 {
		t.Errorf("told of %d bytes in %d packets, %d bytes were completed", sum.Feedback.Bytes, sum.Feedback.Packets, want)
	}
	if uint64(sum.Feedback.Naks) != c.PacketSeqErr || uint64(sum.Feedback.Timeouts) != c.LocalAckTimeoutErr || uint64(sum.CNPs) != c.RPCNPHandled || uint64(sum.Sent) > c.TxPayloadBytes {
		t.Errorf("told of %d NAKs, %d timeouts, %d CNPs, %d bytes sent; counted %d, %d, %d, %d", sum.Feedback.Naks, sum.Feedback.Timeouts, sum.CNPs, sum.Sent,
			c.PacketSeqErr, c.LocalAckTimeoutErr, c.RPCNPHandled, c.TxPayloadBytes)
	}
	if c.PacketSeqErr == 0 {
		t.Error("nothing was lost: the test shows nothing")
	}
}

// A policy is asked when nothing happens, at its own pace, and closed with its queue pair or when the program goes.
func TestPolicy_polledAndClosed(t *testing.T) {
	p := &fixedProgram{d: Decision{Rate: units.Rate(1), Ran: true}, poll: 100 * time.Microsecond}
	_, w := runWith(t, p, 1)
	if n := len(p.made[0].told); n < 180 || n > 260 { // 1 s at scale 50 is 20 ms of hardware
		t.Errorf("asked %d times in 20 ms, every 100 us", n)
	}
	if err := w.nics[0].SetProgram(w.now, nil); err != nil {
		t.Fatal(err)
	}
	if !p.made[0].closed {
		t.Error("the policy was not closed")
	}
	before := w.nics[0].Counters().TxDataPackets
	w.run(w.now + time.Second)
	if sent := w.nics[0].Counters().TxDataPackets - before; sent < 1000 {
		t.Errorf("%d packets in a second after the policy went: the queue pair is not back at line rate", sent)
	}
}
