package sender

import (
	"net/netip"
	"runtime"
	"strconv"
	"testing"
	"unsafe"

	"github.com/pcmlab/pcmlab/rdcc"
)

// load is a machine with many receivers that answer each request at once: a grant of the whole message, or for the pool of
// what was announced, then MSG_DONE.
type load struct {
	x       *Machine
	peers   []*peer
	by      map[Addr]*peer
	l       *lab
	buf     [2 * rdcc.MaxLen]byte
	pool    bool
	granted []uint64
	length  uint64
	done    int
}

func newLoad(t tester, receivers int, length uint64, pool bool) *load {
	l := newLab(t, func(c *Config) { c.MaxAssociations = receivers })
	b := &load{x: l.x, l: l, by: map[Addr]*peer{}, pool: pool, length: length, granted: make([]uint64, receivers)}
	for n := range receivers {
		p := newPeer(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 50000), uint32(n+1))
		p.accept.UnscheduledLimit = 16 * kib
		p.accept.StartJitter = 0
		b.peers = append(b.peers, p)
		b.by[p.addr] = p
		b.submit(p)
	}
	return b
}

func (b *load) submit(p *peer) {
	if _, err := b.x.Submit(b.l.now, Message{To: p.addr, Length: b.length, Scheduled: b.pool}); err != nil {
		b.l.Fatal(err)
	}
}

func (b *load) say(p *peer, m rdcc.Message, flags uint16) {
	p.seq++
	h := rdcc.Header{Assoc: p.assoc, Epoch: p.epoch, Seq: p.seq, Flags: flags}
	switch m := m.(type) { // not through the interface, which would make each escape
	case *rdcc.CreditGrant:
		b.x.Receive(b.l.now, p.addr, m.Append(b.buf[:0], h))
	case *rdcc.MsgDone:
		b.x.Receive(b.l.now, p.addr, m.Append(b.buf[:0], h))
	case *rdcc.AssocAccept:
		b.x.Receive(b.l.now, p.addr, m.Append(b.buf[:0], h))
	}
}

// round takes all that is to be sent, answers it, transmits what is allowed and submits a message for each that is done.
func (b *load) round() {
	var d rdcc.Datagram
	var out [rdcc.MaxLen]byte
	for {
		o, ok := b.x.Poll(out[:0])
		if !ok {
			break
		}
		if d.Decode(o.Data) != nil {
			b.l.Fatal("not to be decoded")
		}
		p := b.by[o.To]
		switch d.Type {
		case rdcc.TypeAssocRequest:
			p.accept.SenderNonce = d.AssocRequest.SenderNonce
			b.say(p, &p.accept, 0)
		case rdcc.TypeCreditRequest:
			r := &d.CreditRequest
			if r.UnscheduledSent > 0 {
				continue
			}
			if b.pool {
				b.granted[p.assoc-1] += r.MessageLength
				b.say(p, &rdcc.CreditGrant{GrantLimit: b.granted[p.assoc-1], PacingRate: 100000}, rdcc.FlagPool)
			} else {
				b.say(p, &rdcc.CreditGrant{MessageID: r.MessageID, GrantLimit: r.MessageLength, PacingRate: 100000}, 0)
			}
		}
	}
	for {
		e, ok := b.x.Event()
		if !ok {
			break
		}
		switch e.Kind {
		case EventAllowed:
			upTo, _ := b.x.Allowance(b.l.now, e.ID)
			b.x.Transmitted(b.l.now, e.ID, upTo)
			if upTo == b.length {
				b.say(b.by[e.To], &rdcc.MsgDone{MessageID: e.ID & (1<<idBits - 1), OctetsReceived: upTo}, 0)
			}
		case EventDone:
			b.done++
			b.submit(b.by[e.To])
		}
	}
	b.l.now += us
	b.x.Advance(b.l.now)
}

var loads = []struct {
	name   string
	length uint64
	pool   bool
}{{"unscheduled", 2 * kib, false}, {"scheduled", 32 * kib, false}, {"pool", 4 * kib, true}}

// TestNoAllocation: in the steady state no datagram, message or timer allocates.
func TestNoAllocation(t *testing.T) {
	for _, c := range loads {
		b := newLoad(t, 50, c.length, c.pool)
		for range 200 {
			b.round()
		}
		before := b.done
		if n := testing.AllocsPerRun(200, b.round); n != 0 {
			t.Errorf("%s: %v allocations a round", c.name, n)
		}
		if b.done-before < 200*50/2 {
			t.Errorf("%s: %d messages only", c.name, b.done-before)
		}
	}
}

// BenchmarkSender has whole messages: CREDIT_REQUEST encoded, grant and MSG_DONE decoded and processed, data allowed and
// told, events taken; the receiver's encoding is in it.
func BenchmarkSender(b *testing.B) {
	for _, c := range loads {
		for _, receivers := range []int{1, 100, 10000} {
			b.Run(c.name+"/receivers="+strconv.Itoa(receivers), func(b *testing.B) {
				l := newLoad(b, receivers, c.length, c.pool)
				for range 10 {
					l.round()
				}
				b.ReportAllocs()
				done := l.done
				b.ResetTimer()
				for range b.N { // one message each, so that ns/op is of a message
					if l.done-done <= b.N {
						l.round()
					}
				}
				b.ReportMetric(float64(l.done-done)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}

// BenchmarkPending prints what a message that waits costs, among 100,000 of them.
func BenchmarkPending(b *testing.B) {
	const pending = 100000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	l := newLab(b)
	l.open(long)
	ids := make([]uint64, pending)
	for i := range ids {
		ids[i] = l.submit(long)
	}
	var buf [rdcc.MaxLen]byte
	for {
		if _, ok := l.x.Poll(buf[:0]); !ok {
			break
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		id := ids[i%pending]
		l.r.seq++
		h := rdcc.Header{Assoc: l.r.assoc, Epoch: l.r.epoch, Seq: l.r.seq}
		g := rdcc.CreditGrant{MessageID: id & (1<<idBits - 1), GrantLimit: uint64(4096 * (i/pending%200 + 1)), PacingRate: 100000}
		l.x.Receive(l.now, first, g.Append(buf[:0], h))
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/pending, "B/message")
	b.ReportMetric(float64(unsafe.Sizeof(assoc{})), "B/association")
	runtime.KeepAlive(l)
}
