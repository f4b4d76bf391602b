package sender

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// bytePick takes decisions from a fuzzer's octets; when they are used up it decides for the first choice.
type bytePick struct{ b []byte }

func (p *bytePick) pick(n int) int {
	if len(p.b) == 0 || n <= 1 {
		return 0
	}
	if n <= 256 {
		v := int(p.b[0]) % n
		p.b = p.b[1:]
		return v
	}
	var v [4]byte
	p.b = p.b[copy(v[:], p.b):]
	return int(binary.BigEndian.Uint32(v[:])) % n
}

// FuzzSequences lets octets choose what happens; all properties hold, and every message ends.
func FuzzSequences(f *testing.F) {
	for seed := range byte(20) {
		b := make([]byte, 400)
		for i := range b {
			b[i] = byte(i*i)*seed + byte(i)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := &bytePick{b[:min(len(b), 4000)]}
		w := newWorld(t, p.pick)
		for len(p.b) > 0 {
			w.step()
		}
		w.heal(true, 5*time.Second)
	})
}

// FuzzReceive hands in raw octets as datagrams, from the receiver's address, with time between them; the machine stays
// in one piece, sends nothing that cannot be decoded, and allows nothing beyond the grants that were in them.
func FuzzReceive(f *testing.F) {
	h := rdcc.Header{Assoc: 0x5a17c0de, Epoch: 3, Seq: 2}
	for _, m := range []rdcc.Message{
		&rdcc.CreditGrant{MessageID: 1, GrantLimit: 5000, PacingRate: 1000, Lifetime: 100}, &rdcc.MsgDone{MessageID: 1},
		&rdcc.Cancel{MessageID: 2}, &rdcc.Error{Reason: rdcc.ReasonUnknownAssociation}, &rdcc.Error{Reason: rdcc.ReasonBudgetExhausted},
		&rdcc.AssocAccept{SenderNonce: 1, UnscheduledLimit: 100}, &rdcc.SenderStatus{}, &rdcc.CreditRequest{MessageID: 1},
	} {
		f.Add(m.Append(nil, h), uint16(10))
		h.Flags = rdcc.FlagPool
		f.Add(m.Append(m.Append(nil, h), h), uint16(1000))
	}
	r := reportOf()
	f.Add(r.Append(nil, rdcc.Header{}), uint16(0))
	f.Fuzz(func(t *testing.T, b []byte, wait uint16) {
		l := newLab(t, func(c *Config) { c.Nonce = func() uint64 { return 1 } })
		ids := []uint64{l.open(Message{Length: 20000, Scheduled: true}), l.submit(Message{Length: 10000}), l.submit(Message{Length: 50000, Class: 3})}
		l.types()
		most := uint64(0)
		for len(b) > 0 {
			n := min(len(b), rdcc.MaxLen)
			if len(b) >= 4 {
				n = min(max(int(binary.BigEndian.Uint16(b[2:])), 1), len(b))
			}
			var d rdcc.Datagram
			if d.Decode(b[:n]) == nil && d.Type == rdcc.TypeCreditGrant {
				most = max(most, d.CreditGrant.GrantLimit)
			}
			l.x.Receive(l.now, first, b[:n])
			b = b[n:]
			for _, id := range ids {
				upTo, rate := l.x.Allowance(l.now, id)
				if s, ok := l.x.State(id); ok && s == StateScheduled && upTo > most || rate < 0 || rate > 100*gig {
					t.Fatalf("message %d: up to %d at %d, the largest grant had %d", id, upTo, rate, most)
				}
			}
			l.pass(time.Duration(wait) * us)
			l.take()
			if err := l.x.invariants(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
