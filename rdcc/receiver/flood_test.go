package receiver

import (
	"net/netip"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// TestFlood: forged datagrams of all kinds, from addresses that have no association. State stays within its bounds, no
// answer is larger than what asked for it, and an honest sender goes on.
func TestFlood(t *testing.T) {
	l := newLab(t, func(c *Config) {
		c.MaxAssociations, c.MaxPerAddress, c.MaxMessages, c.MaxPending, c.OutQueue = 200, 50, 1000, 20, 64
	})
	honest := l.client(1)
	honest.request(1, 1<<30, 0)
	l.pass(100 * us)
	l.out = nil
	d := seeded(5)
	kinds := []func() rdcc.Message{
		func() rdcc.Message { return &rdcc.AssocRequest{SenderNonce: d.Uint64()} },
		func() rdcc.Message { return &rdcc.CreditRequest{MessageID: d.Uint64(), MessageLength: d.Uint64()} },
		func() rdcc.Message { return &rdcc.CreditGrant{MessageID: 1, PacingRate: 1} },
		func() rdcc.Message { return &rdcc.SenderStatus{SuggestedRate: 1} },
		func() rdcc.Message { return report(255, honest) },
		func() rdcc.Message { return &rdcc.MsgDone{MessageID: 1} },
		func() rdcc.Message { return &rdcc.Cancel{MessageID: 1} },
		func() rdcc.Message { return &rdcc.CreditReturn{MessageID: 1} },
		func() rdcc.Message { return &rdcc.Error{Reason: rdcc.ReasonUnknownAssociation} },
	}
	before := l.r.senderRate(honest.assoc())
	for n := range 100000 {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(d.Uint32() & 15), byte(d.Uint32())}), uint16(d.Uint32()))
		h := rdcc.Header{Assoc: d.Uint32(), Epoch: uint16(d.Uint32() & 3), Seq: d.Uint32()}
		if d.IntN(4) == 0 { // who has seen the Association ID still has not the address
			h.Assoc, h.Epoch = honest.id, honest.epoch
		}
		b := kinds[d.IntN(len(kinds))]().Append(nil, h)
		if d.IntN(10) == 0 {
			b[d.IntN(len(b))] ^= 1 << d.IntN(8)
		}
		l.r.Receive(l.now, from, b)
		answers := 0
		for o, ok := l.r.Poll(nil); ok; o, ok = l.r.Poll(nil) {
			if o.To != honest.addr && o.To != from { // parameters of associations that forgers made
				continue
			}
			if o.To == from {
				answers++
				if len(o.Data) > len(b) || answers > 1 {
					t.Fatalf("%x is answered with %d datagrams, the last of %d octets", b, answers, len(o.Data))
				}
			}
		}
		if n%1000 == 0 {
			l.pass(10 * us)
		}
	}
	l.want("associations", l.r.live <= 200 && len(l.r.assocs) <= 200 && len(l.r.byNonce) <= 200, true)
	l.want("messages", l.r.pending, 1)
	l.want("keys", l.r.index.n, 1)
	l.want("peers", len(l.r.peers.all) <= 200, true)
	l.want("rate of the honest sender", l.r.senderRate(honest.assoc()), before)
	l.want("refused", l.r.Counters.AssocRefused > 0, true)
	// It has its credit as before.
	l.pass(time.Millisecond)
	l.out = nil
	honest.request(1, 1<<30, 0)
	l.one(rdcc.TypeCreditGrant)
}

// TestOutQueue_strangersTakeHalf: answers to strangers leave room for grants.
func TestOutQueue_strangersTakeHalf(t *testing.T) {
	l := newLab(t, func(c *Config) { c.OutQueue = 32 })
	c := l.client(1)
	for n := range 100 {
		b := (&rdcc.CreditRequest{MessageID: 1}).Append(nil, rdcc.Header{Assoc: uint32(n)})
		l.r.Receive(l.now, node, b)
	}
	l.want("queued", l.r.out.n, 16)
	l.r.Receive(l.now, c.addr, (&rdcc.CreditRequest{MessageID: 1, MessageLength: 9000, BindingKind: rdcc.BindingOpaque}).Append(nil, c.header()))
	l.want("queued", l.r.out.n, 17)
}

// TestOutQueue_grantsWait: scheduling stops while the queue is full and goes on when it is polled.
func TestOutQueue_grantsWait(t *testing.T) {
	l := newLab(t, func(c *Config) { c.OutQueue, c.G = 16, 1<<24 })
	var all []*client
	for n := range 40 {
		all = append(all, l.client(n))
	}
	block := l.client(99)
	block.request(1, 100, 0)
	for _, c := range all {
		c.request(1, 1<<20, 0)
	}
	l.poll()
	l.out = nil
	l.r.Data(l.now, block.id, Arrival{Message: 1, Octets: 100})
	l.want("parked", l.r.parked, true)
	l.pass(0)
	l.want("grants", len(l.take(rdcc.TypeCreditGrant)) >= 30, true)
}

// FuzzReceiver feeds random datagrams, some of a known association, and data; the books must agree with themselves.
func FuzzReceiver(f *testing.F) {
	for n := range uint64(8) {
		d, b := seeded(n), make([]byte, 400)
		d.Read(b)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		at := 0
		w := newWorld(t, func(n int) int {
			if at+1 >= len(script) {
				return 0
			}
			v := int(script[at])<<8 | int(script[at+1])
			at += 2
			return v % n
		})
		for at+2 < len(script) && at < 800 {
			if script[at]&7 == 0 && len(w.clients) > 0 { // bare octets behind a header that is believed
				c := w.clients[int(script[at+1])%len(w.clients)]
				n := min(len(script)-at, 72)
				b := append([]byte(nil), script[at:at+n]...)
				at += n
				for len(b) < 16 {
					b = append(b, 0)
				}
				b[0], b[1], b[2], b[3] = 0x10, b[1]%12, 0, byte(len(b))
				w.receive(clientAddr(300), b) // not from the bound address: the recount need not know it
				b[4], b[5], b[6], b[7] = byte(c.id>>24), byte(c.id>>16), byte(c.id>>8), byte(c.id)
				w.receive(clientAddr(301), b)
			}
			w.act()
			w.check()
		}
	})
}

// FuzzDatagrams feeds datagrams as they are, from the bound address: nothing may break the books.
func FuzzDatagrams(f *testing.F) {
	f.Add((&rdcc.CreditRequest{MessageID: 1, MessageLength: 1 << 40, UnscheduledSent: 1 << 50, BindingKind: 1, BindingValue: 1 << 41}).Append(nil, rdcc.Header{}), uint64(7))
	f.Add((&rdcc.CreditReturn{MessageID: 1}).Append(nil, rdcc.Header{}), uint64(1)<<63)
	f.Add((&rdcc.Cancel{MessageID: 3}).Append(nil, rdcc.Header{}), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, octets uint64) {
		w := &world{draw: func(int) int { return 0 }}
		w.lab = newLab(t, func(c *Config) { c.MaxPending = 8; c.Pool = octets&1 == 0 })
		w.oracle = &oracle{cfg: w.r.cfg, assocs: map[uint32]*oracleAssoc{}}
		c := w.lab.client(1)
		for n := 0; len(b) > 0 && n < 64; n++ {
			piece := append([]byte(nil), b[:min(len(b), 56)]...)
			b = b[len(piece):]
			for len(piece) < 56 {
				piece = append(piece, 0)
			}
			h := c.header()
			head := (&rdcc.Cancel{}).Append(nil, h)
			copy(piece, head[:16])
			piece[1] = piece[16] % 12
			piece[2], piece[3] = 0, 56
			w.receive(c.addr, piece)
			c.arrive(Arrival{Message: uint64(piece[23]), Kind: rdcc.BindingKind(piece[43]), Value: octets, Octets: octets >> (n & 63), Packets: 1, CE: 9})
			w.pass(time.Duration(piece[20]) * us)
			w.consistent(func(ok bool, format string, args ...any) {
				if !ok {
					t.Fatalf(format, args...)
				}
			})
			if w.charged() > w.r.cfg.G || w.r.Counters.InvariantViolations != 0 {
				t.Fatalf("%d charged, %d violations", w.charged(), w.r.Counters.InvariantViolations)
			}
		}
	})
}
