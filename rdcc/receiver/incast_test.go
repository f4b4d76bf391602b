package receiver

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// incast is a fabric of one switch port before the receiver: packets and datagrams take half a base RTT, data queues
// at the port, senders pace as they are told.
type incast struct {
	*lab
	senders []*incastSender
	toPort  []incastPacket // on their way, in the order of their arrival
	queue   []incastPacket
	grants  []wire  // on their way
	carry   float64 // octets that the port may still send
	peak    uint64  // queue
	done    uint64
}

type incastSender struct {
	*client
	id, length  uint64
	sent, limit uint64
	rate        int64
	until       time.Duration
	next        time.Duration // of its pacer
	asked       time.Duration
	got         uint64 // octets that arrived
}

type incastPacket struct {
	s      *incastSender
	octets uint64
	at     time.Duration
}

// run lets time pass in steps of a tenth of a microsecond.
func (x *incast) run(d time.Duration) {
	const step = 100 * time.Nanosecond
	half := testFabric.BaseRTT / 2
	perStep := float64(testFabric.LineRate) / 8 * step.Seconds() * float64(testFabric.Payload) / float64(testFabric.Wire)
	for end := x.now + d; x.now < end; {
		x.now += step
		if at, ok := x.r.Deadline(); ok && at <= x.now {
			x.r.Advance(x.now)
		}
		for len(x.toPort) > 0 && x.toPort[0].at <= x.now {
			x.queue = append(x.queue, x.toPort[0])
			x.toPort = x.toPort[1:]
		}
		waiting := uint64(0)
		for _, p := range x.queue {
			waiting += p.octets
		}
		x.peak = max(x.peak, waiting)
		x.carry = min(x.carry+perStep, perStep+4096)
		for len(x.queue) > 0 && x.carry >= float64(x.queue[0].octets) {
			p := x.queue[0]
			x.queue = x.queue[1:]
			x.carry -= float64(p.octets)
			x.done += p.octets
			p.s.got += p.octets
			x.r.Data(x.now, p.s.client.id, Arrival{Message: p.s.id, Octets: p.octets, Packets: 1})
		}
		for {
			o, ok := x.r.Poll(nil)
			if !ok {
				break
			}
			w := wire{to: o.To, at: x.now + half}
			if w.Decode(o.Data) != nil {
				panic("undecodable")
			}
			x.grants = append(x.grants, w)
		}
		for len(x.grants) > 0 && x.grants[0].at <= x.now {
			w := x.grants[0]
			x.grants = x.grants[1:]
			for _, s := range x.senders {
				if s.client.id == w.Assoc {
					s.hear(x, &w)
				}
			}
		}
		for _, s := range x.senders {
			s.step(x, half)
		}
	}
}

func (s *incastSender) hear(x *incast, w *wire) {
	switch {
	case w.Type == rdcc.TypeMsgDone && w.MsgDone.MessageID == s.id:
		s.begin(x)
	case w.Type == rdcc.TypeCreditGrant && w.CreditGrant.MessageID == s.id:
		s.limit = max(s.limit, w.CreditGrant.GrantLimit)
		s.rate, s.until = w.CreditGrant.PacingRate.BitsPerSecond(), x.now+w.CreditGrant.Lifetime.Duration()
	}
}

// begin starts the next message. Its request is there at once: the receiver has half an RTT less to react to than it would.
func (s *incastSender) begin(x *incast) {
	s.id++
	s.sent, s.limit, s.asked = 0, 0, x.now
	h := s.header()
	x.r.Receive(x.now, s.addr, (&rdcc.CreditRequest{MessageID: s.id, MessageLength: s.length, Weight: 1, Class: 2, BindingKind: rdcc.BindingOpaque, BindingValue: s.id}).Append(nil, h))
}

func (s *incastSender) step(x *incast, half time.Duration) {
	if s.sent < s.length && (s.limit <= s.sent || x.now >= s.until) {
		if s.limit > s.sent && x.now >= s.until {
			s.limit = s.sent // expired
		}
		if x.now-s.asked >= 200*us { // request timeout
			s.asked = x.now
			x.r.Receive(x.now, s.addr, (&rdcc.CreditRequest{MessageID: s.id, MessageLength: s.length, Weight: 1, Class: 2, BindingKind: rdcc.BindingOpaque, BindingValue: s.id}).Append(nil, s.header()))
		}
		return
	}
	for x.now >= s.next && s.sent < s.limit {
		n := min(4096, s.limit-s.sent)
		s.sent += n
		x.toPort = append(x.toPort, incastPacket{s, n, x.now + half})
		s.next = max(s.next, x.now-us) + time.Duration(float64(n)*8/float64(s.rate)*1e9)
	}
}

// TestIncast: senders of long messages, back to back, share the link: it is used well, the shares are equal, and the queue
// stays within what the budget leaves above a BDP, and a packet each.
func TestIncast(t *testing.T) {
	for _, x := range []struct {
		name      string
		senders   int
		length    uint64
		g         int64
		apart     time.Duration // between their starts
		allocator Allocator
		least     float64 // utilisation of what the link carries
		jain      float64
	}{
		{"one", 1, 4 << 20, 0, 0, nil, 0.9, 1},
		{"eight", 8, 1 << 20, 0, 0, nil, 0.93, 0.95},
		{"eight_one_after_the_other", 8, 1 << 20, 0, 90 * us, nil, 0.92, 0.95},
		{"eight_one_after_the_other_3BDP", 8, 1 << 20, 3 * testFabric.BDP(), 90 * us, nil, 0.92, 0.95},
		{"eight_bbr", 8, 1 << 20, 0, 0, BBR{}, 0.85, 0.9},
		{"forty", 40, 1 << 20, 0, 0, nil, 0.85, 0.9},
		{"eight_short", 8, 64 << 10, 0, 0, nil, 0.5, 0.9},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := &incast{lab: newLab(t, func(c *Config) { c.Allocator, c.G = x.allocator, x.g })}
			for n := range x.senders {
				w.senders = append(w.senders, &incastSender{client: w.client(n), length: x.length})
			}
			w.out = nil
			for _, s := range w.senders {
				s.begin(w)
				w.run(x.apart)
			}
			w.run(500 * us)
			w.done = 0
			for _, s := range w.senders {
				s.got = 0
			}
			const span = 3 * time.Millisecond
			w.run(span)
			carried := float64(testFabric.LineRate) / 8 * span.Seconds() * float64(testFabric.Payload) / float64(testFabric.Wire)
			used := float64(w.done) / carried
			sum, squares := 0.0, 0.0
			for _, s := range w.senders {
				sum += float64(s.got)
				squares += float64(s.got) * float64(s.got)
			}
			jain := sum * sum / (squares * float64(x.senders))
			t.Logf("utilisation %.3f, Jain %.3f, peak queue %d octets, %d messages", used, jain, w.peak, w.r.Counters.MessagesDone)
			gs := w.r.cfg.G - w.r.cfg.Gu
			bound := uint64(w.r.cfg.Gu+max(0, gs-testFabric.BDP())) + uint64(x.senders)*4096
			if used < x.least || jain < x.jain || w.peak > bound {
				t.Errorf("utilisation %.3f, want %.2f; Jain %.3f, want %.2f; peak queue %d, want at most %d", used, x.least, jain, x.jain, w.peak, bound)
			}
			if w.r.Counters.ExcessOctets != 0 || w.r.Counters.InvariantViolations != 0 {
				t.Errorf("%d excess octets, %d violations", w.r.Counters.ExcessOctets, w.r.Counters.InvariantViolations)
			}
		})
	}
}
