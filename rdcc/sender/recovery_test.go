package sender

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// flight is a datagram under way.
type flight struct {
	at   time.Duration
	data []byte
	back bool // to the sender
}

// network has one receiver that grants 64 KiB at a time, at the end of a way with a delay, that can be cut.
type network struct {
	*lab
	way                   []flight
	delay                 time.Duration
	cut                   bool
	alive                 bool // the receiver knows the association
	granted, sent, length uint64
	id                    uint64
}

func (n *network) put(data []byte, back bool) {
	if !n.cut {
		n.way = append(n.way, flight{n.now + n.delay, slices.Clone(data), back})
	}
}

// until lets time pass, and stops early when stop says so.
func (n *network) until(end time.Duration, stop func() bool) {
	var buf [rdcc.MaxLen]byte
	for !stop() {
		for out, ok := n.x.Poll(buf[:0]); ok; out, ok = n.x.Poll(buf[:0]) {
			n.put(out.Data, false)
		}
		if upTo, _ := n.x.Allowance(n.now, n.id); upTo > n.sent {
			n.sent = upTo
			n.x.Transmitted(n.now, n.id, upTo)
			continue
		}
		next := end
		if at, ok := n.x.Deadline(); ok {
			next = min(next, at)
		}
		if at, ok := n.x.Wait(n.now, n.id); ok {
			next = min(next, at)
		}
		for _, f := range n.way {
			next = min(next, f.at)
		}
		if n.now >= end {
			return
		}
		n.now = max(next, n.now)
		var due []flight
		n.way = slices.DeleteFunc(n.way, func(f flight) bool {
			if f.at <= n.now {
				due = append(due, f)
			}
			return f.at <= n.now
		})
		for _, f := range due {
			if f.back {
				n.x.Receive(n.now, first, f.data)
			} else {
				n.receiver(f.data)
			}
		}
		n.x.Advance(n.now)
	}
}

func (n *network) answer(m rdcc.Message, h rdcc.Header) { n.put(m.Append(nil, h), true) }

func (n *network) receiver(data []byte) {
	var d rdcc.Datagram
	if d.Decode(data) != nil {
		n.Fatal("not to be decoded")
	}
	if d.Type != rdcc.TypeAssocRequest && !n.alive {
		n.answer(&rdcc.Error{Reason: rdcc.ReasonUnknownAssociation}, rdcc.Header{Assoc: d.Assoc, Epoch: n.r.epoch})
		return
	}
	n.r.seq++
	h := rdcc.Header{Assoc: n.r.assoc, Epoch: n.r.epoch, Seq: n.r.seq}
	switch d.Type {
	case rdcc.TypeAssocRequest:
		n.alive = true
		a := n.r.accept
		a.SenderNonce = d.AssocRequest.SenderNonce
		n.answer(&a, h)
	case rdcc.TypeCreditRequest:
		n.granted = min(n.sent+64*kib, n.length)
		n.answer(&rdcc.CreditGrant{MessageID: d.CreditRequest.MessageID, GrantLimit: n.granted, PacingRate: 100000}, h)
	}
}

// TestRecovery: however long the way was cut and whether or not the receiver restarted, data flows again within
// 2 * 100 ms + lifetime + 4 * D_max after it is whole.
func TestRecovery(t *testing.T) {
	worst := time.Duration(0)
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 5))
		n := &network{lab: newLab(t), delay: time.Duration(r.IntN(1000)+1) * us, length: 1 << 40}
		n.id = n.submit(Message{Length: n.length})
		n.until(50*ms, func() bool { return false })
		if n.sent == 0 {
			t.Fatalf("seed %d: nothing flows", seed)
		}
		n.cut = true
		n.until(n.now+time.Duration(r.IntN(20000))*100*us, func() bool { return false })
		if r.IntN(2) == 0 {
			n.alive = false
			n.r.epoch++
			n.r.assoc += 7
			n.r.seq = 0
			n.way = nil
		}
		n.cut = false
		before, healed := n.sent, n.now
		bound := 2*n.x.c.Timing.MaxTimeout + ms + 4*n.x.c.Timing.DMax
		n.until(healed+bound, func() bool { return n.sent > before })
		if n.sent == before {
			t.Fatalf("seed %d: nothing flows %v after the way is whole, state %v", seed, bound, n.x.messages.get(n.id).state)
		}
		worst = max(worst, n.now-healed)
	}
	t.Logf("worst: %v", worst)
}
