package engine

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/inventory"
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
func (p *fixedProgram) Controls() uint64 {
	return btoi(p.d.Window > 0) | btoi(p.d.Rate > 0)<<1 | 1<<2*btoi(p.d == Decision{})
}

func btoi(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// runWith runs one sender of a world of 25 Gbit/s at scale 50 under a program, and returns its goodput as a share of the line rate.
func runWith(t *testing.T, p *fixedProgram, seconds int) (share float64, w *world) {
	t.Helper()
	w = newWorld(t, 2, 50, nil)
	if err := w.nics[0].SetRules(0, []Rule{{Program: p}}); err != nil {
		t.Fatal(err)
	}
	f := w.connect(0, 1)
	f.start()
	w.run(time.Duration(seconds) * time.Second)
	return float64(f.messages) * 65536 * 8 / float64(seconds) / float64(w.rate), w
}

// A policy's rate is one of hardware, and paces the queue pair whatever the time scale.
func TestPolicy_ratePaces(t *testing.T) {
	share, _ := runWith(t, &fixedProgram{d: Decision{Rate: 25 * units.GbitPerSec / 4, Fired: 1}}, 4)
	if share < 0.24 || share > 0.25 { // headers take part of it
		t.Errorf("a quarter of the line rate gives %.4f of it as goodput", share)
	}
}

// A window bounds the bytes in flight: goodput is a window for each round trip.
func TestPolicy_windowBounds(t *testing.T) {
	p := &fixedProgram{d: Decision{Window: 2 * 4096, Fired: 1}}
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
	if err := w.nics[0].SetRules(0, []Rule{{Program: p}}); err != nil {
		t.Fatal(err)
	}
	f := w.connect(0, 1)
	f.start()
	w.run(2 * time.Second)
	f.on = false
	w.run(8 * time.Second)
	var sum Signals
	most := 0
	for _, s := range p.made[0].told {
		most = max(most, s.Waiting)
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
	if last := p.made[0].told[len(p.made[0].told)-1].Waiting; most > 16*65536 || most < 8*65536 || last != 0 {
		t.Errorf("%d bytes waited at most, %d at the end: 16 messages of 64 KiB are posted, and all were sent", most, last)
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

// Of a policy that asks for probes each probe is a packet, and a packet is one only when it was asked for.
func TestPolicy_probes(t *testing.T) {
	for _, ask := range []bool{true, false} {
		p := &fixedProgram{d: Decision{Rate: 25 * units.GbitPerSec, Probe: ask, Fired: 1}}
		share, _ := runWith(t, p, 1)
		told := p.made[0].told
		n, rtts := 0, 0
		for i, s := range told {
			if s.Feedback.RTT > 0 {
				rtts++
			}
			if s.Feedback.Probe == 0 {
				continue
			}
			if n++; s.Feedback.Probe < s.Feedback.RTT || s.Feedback.Probe > time.Millisecond {
				t.Fatalf("call %d: the probe took %v, the newest packet %v", i, s.Feedback.Probe, s.Feedback.RTT)
			}
		}
		switch {
		case ask && n < len(told)/4 || !ask && n > 0:
			t.Errorf("asked for probes: %v; %d answers in %d calls", ask, n, len(told))
		case rtts == 0 || share < 0.9:
			t.Errorf("asked for probes: %v; %d round trips besides, %.3f of the line rate", ask, rtts, share)
		}
	}
}

// A policy is asked when nothing happens, at its own pace, and closed with its queue pair or when the program goes.
func TestPolicy_polledAndClosed(t *testing.T) {
	p := &fixedProgram{d: Decision{Rate: units.Rate(1), Fired: 1}, poll: 100 * time.Microsecond}
	_, w := runWith(t, p, 1)
	if n := len(p.made[0].told); n < 180 || n > 260 { // 1 s at scale 50 is 20 ms of hardware
		t.Errorf("asked %d times in 20 ms, every 100 us", n)
	}
	if err := w.nics[0].SetRules(w.now, nil); err != nil {
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

// Of several policies, one bounds the window and one paces; each is told everything, and what each did is counted apart.
func TestPolicy_twoDecideTogether(t *testing.T) {
	window := &fixedProgram{d: Decision{Window: 8 * 4096, Fired: 1}}
	pace := &fixedProgram{d: Decision{Rate: 25 * units.GbitPerSec / 10, Fired: 2}}
	w := newWorld(t, 2, 50, nil)
	n := w.nics[0]
	if err := n.SetRules(0, []Rule{{Program: window}, {Program: pace}}); err != nil {
		t.Fatal(err)
	}
	var calls [2]uint64
	var packets [2]int
	n.SetTrace(func(c *Call) { calls[c.Rule]++; packets[c.Rule] += c.Packets })
	f := w.connect(0, 1)
	f.start()
	w.run(4 * time.Second)
	if share := float64(f.messages) * 65536 * 8 / 4 / float64(w.rate); share < 0.095 || share > 0.1 {
		t.Errorf("a tenth of the line rate gives %.4f of it", share)
	}
	in := 0
	for _, s := range window.made[0].told {
		in = max(in, s.InFlight)
	}
	if in > 8*4096 {
		t.Errorf("%d bytes in flight, the window is %d", in, 8*4096)
	}
	if diff := cmp.Diff(window.made[0].told, pace.made[0].told); diff != "" {
		t.Errorf("told differently (-window +pace)\n%s", diff)
	}
	c := n.PolicyCounters()
	for i := range c {
		if c[i].Flows != 1 || c[i].Changes != 1 || c[i].Runs != calls[i] || calls[i] == 0 {
			t.Errorf("rule %d: %+v, %d calls were told of", i, c[i], calls[i])
		}
		if want := f.messages * 16; packets[i] < want || packets[i] > want+16 {
			t.Errorf("rule %d: calls were told of %d packets, %d messages were completed", i, packets[i], f.messages)
		}
	}
	if total := n.Counters().PolicyRuns; total != c[0].Runs+c[1].Runs {
		t.Errorf("%d runs in all, %d and %d", total, c[0].Runs, c[1].Runs)
	}
}

// Rules are chosen when a queue pair is connected: by where it goes, its DSCP and its place in its process. What no rule matches is left to
// DCQCN.
func TestRules_chosenByFlow(t *testing.T) {
	w := newWorld(t, 4, 50, nil)
	n := w.nics[0]
	rate := func(share int) *fixedProgram {
		return &fixedProgram{d: Decision{Rate: 25 * units.GbitPerSec / units.Rate(share), Fired: 1}}
	}
	near, far, second, none := rate(4), rate(10), rate(5), inventory.HandlerMatch{To: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4(hostIP(3)), 32)}}
	other := 3
	err := n.SetRules(0, []Rule{
		{Match: none}, // no program: DCQCN
		{Match: inventory.HandlerMatch{QP: inventory.QPRange{First: 2, Last: 2}}, Program: second},
		{Match: inventory.HandlerMatch{To: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4(hostIP(1)), 32)}}, Program: near},
		{Match: inventory.HandlerMatch{DSCP: &other}, Program: rate(7)},
		{Program: far}, // of near's flows, too: the first that sets a control keeps it
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		to   int
		want []int
		why  string
	}{
		{1, []int{2}, "its network comes first"},
		{1, []int{1}, "the second queue pair of its process, whatever the network"},
		{2, []int{4}, "only the last rule matches"},
		{3, []int{}, "a rule without a handler ends the search"},
	} {
		if got := w.connect(0, tc.to).x.Rules(); !slices.Equal(got, tc.want) {
			t.Errorf("a queue pair to %d has the rules %v, want %v: %s", tc.to, got, tc.want, tc.why)
		}
	}
	if err := n.SetRules(w.now, nil); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*fixedProgram{near, far, second} {
		if len(p.made) != 1 || !p.made[0].closed {
			t.Errorf("%d policies, all closed: %v", len(p.made), p.made[0].closed)
		}
	}
}
