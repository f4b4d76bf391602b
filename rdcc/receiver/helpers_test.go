package receiver

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/rdcctest"
)

const us = time.Microsecond

// testFabric has a BDP of 200,000 octets, so that G is 400,000 with G_u = 100,000 and U = 12,500 for each of eight.
var testFabric = Fabric{LineRate: 100e9, BaseRTT: 16 * us, DMax: 8 * us, Payload: 4096, Wire: 4178}

var node = netip.MustParseAddrPort("10.9.0.1:50000")

// dice are random numbers of a seed.
type dice struct{ *rand.Rand }

func (d dice) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(d.Uint32())
	}
	return len(b), nil
}

func seeded(n uint64) dice { return dice{rand.New(rand.NewPCG(n, 1))} }

// testingT is what a lab needs of a test, also of one that draws.
type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// wire is a datagram that the receiver sent.
type wire struct {
	to  netip.AddrPort
	len int
	at  time.Duration
	rdcc.Datagram
}

// lab is a receiver with a clock.
type lab struct {
	t   testingT
	r   *Receiver
	now time.Duration
	out []wire

	sent func(w *wire) // sees each datagram, when set
}

func testConfig(mods ...func(*Config)) Config {
	c := Config{Fabric: testFabric, Random: seeded(1), Epoch: 3, CRNs: []netip.Addr{node.Addr()}, off: rdcctest.Off()}
	for _, m := range mods {
		m(&c)
	}
	return c
}

func newLab(t testingT, mods ...func(*Config)) *lab {
	t.Helper()
	r, err := New(testConfig(mods...))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return &lab{t: t, r: r, now: time.Second}
}

// poll takes away what the receiver sends.
func (l *lab) poll() {
	l.t.Helper()
	for {
		o, ok := l.r.Poll(nil)
		if !ok {
			return
		}
		w := wire{to: o.To, len: len(o.Data), at: l.now}
		if err := w.Decode(o.Data); err != nil {
			l.t.Fatalf("the receiver sent %x: %v", o.Data, err)
		}
		if l.sent != nil {
			l.sent(&w)
		}
		l.out = append(l.out, w)
	}
}

// take returns what was sent of a type and forgets it.
func (l *lab) take(t rdcc.Type) (of []wire) {
	l.t.Helper()
	l.poll()
	rest := l.out[:0]
	for _, w := range l.out {
		if w.Type == t {
			of = append(of, w)
		} else {
			rest = append(rest, w)
		}
	}
	l.out = rest
	return of
}

// one is take of exactly one.
func (l *lab) one(t rdcc.Type) wire {
	l.t.Helper()
	of := l.take(t)
	if len(of) != 1 {
		l.t.Fatalf("%d datagrams of type %v sent, want 1: %v", len(of), t, of)
	}
	return of[0]
}

// last is take of the last one.
func (l *lab) last(t rdcc.Type) wire {
	l.t.Helper()
	of := l.take(t)
	if len(of) == 0 {
		l.t.Fatalf("no datagram of type %v sent", t)
	}
	return of[len(of)-1]
}

// none says that nothing of the type was sent.
func (l *lab) none(t rdcc.Type) {
	l.t.Helper()
	if of := l.take(t); len(of) != 0 {
		l.t.Fatalf("%d datagrams of type %v sent, want none; the first: %v", len(of), t, of[0].Datagram.Message())
	}
}

// pass lets time pass, with the receiver's timers run when they are due.
func (l *lab) pass(d time.Duration) {
	l.t.Helper()
	end := l.now + d
	for n := 0; ; n++ {
		at, ok := l.r.Deadline()
		if !ok || at > end {
			break
		}
		l.now = max(l.now, at)
		l.r.Advance(l.now)
		l.poll()
		if n > 1e6 {
			l.t.Fatalf("the receiver is due for ever at %v", at)
		}
	}
	l.now = end
	l.r.Advance(end)
	l.poll()
}

func (l *lab) receive(from netip.AddrPort, b []byte) {
	l.t.Helper()
	l.r.Receive(l.now, from, b)
	l.poll()
}

// client is a sender that says what it is told to.
type client struct {
	l     *lab
	addr  netip.AddrPort
	nonce uint64
	caps  rdcc.Capabilities
	rate  rdcc.Mbps
	id    uint32
	epoch uint16
	seq   uint32
	u     uint32
}

func clientAddr(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 40000)
}

// ask sends ASSOC_REQUEST.
func (c *client) ask(flags uint16) {
	c.l.t.Helper()
	c.seq++
	m := rdcc.AssocRequest{SenderNonce: c.nonce, Capabilities: c.caps, LineRate: c.rate}
	c.l.receive(c.addr, m.Append(nil, rdcc.Header{Flags: flags, Seq: c.seq}))
}

// newClient is a client that has no association yet.
func (l *lab) newClient(n int) *client {
	return &client{l: l, addr: clientAddr(n), nonce: uint64(n)*1000003 + 7, caps: rdcc.CapPool | rdcc.CapStatus}
}

// client is one with an association.
func (l *lab) client(n int) *client {
	l.t.Helper()
	c := l.newClient(n)
	c.join()
	return c
}

func (c *client) join() {
	c.l.t.Helper()
	c.ask(0)
	for _, w := range c.l.take(rdcc.TypeAssocAccept) {
		if w.AssocAccept.SenderNonce == c.nonce && w.Flags == 0 {
			c.id, c.epoch, c.u = w.Assoc, w.Epoch, w.AssocAccept.UnscheduledLimit
		}
	}
	if c.id == 0 {
		c.l.t.Fatalf("no ASSOC_ACCEPT for %v", c.addr)
	}
}

func (c *client) header() rdcc.Header {
	c.seq++
	return rdcc.Header{Assoc: c.id, Epoch: c.epoch, Seq: c.seq}
}

func (c *client) send(m rdcc.Message) {
	c.l.t.Helper()
	c.l.receive(c.addr, m.Append(nil, c.header()))
}

// request announces a message of class 2, weight 1 and an opaque binding that is its ID, changed by mods.
func (c *client) request(id, length, unscheduled uint64, mods ...func(*rdcc.CreditRequest)) {
	c.l.t.Helper()
	m := rdcc.CreditRequest{
		MessageID: id, MessageLength: length, UnscheduledSent: unscheduled, Class: 2, Weight: 1,
		BindingKind: rdcc.BindingOpaque, BindingValue: id,
	}
	for _, f := range mods {
		f(&m)
	}
	c.send(&m)
}

func class(n uint8) func(*rdcc.CreditRequest)  { return func(m *rdcc.CreditRequest) { m.Class = n } }
func weight(n uint8) func(*rdcc.CreditRequest) { return func(m *rdcc.CreditRequest) { m.Weight = n } }
func deadline(d time.Duration) func(*rdcc.CreditRequest) {
	return func(m *rdcc.CreditRequest) { m.Deadline = rdcc.MicrosOf(d) }
}

func (c *client) data(id, octets uint64) {
	c.l.t.Helper()
	c.arrive(Arrival{Message: id, Octets: octets, Packets: uint32(octets/4096) + 1})
}

func (c *client) arrive(v Arrival) {
	c.l.t.Helper()
	c.l.r.Data(c.l.now, c.id, v)
	c.l.poll()
}

func (c *client) assoc() *association { return &c.l.r.assocs[c.l.r.byID[c.id]] }

// charged is what the receiver's accounts hold.
func (l *lab) charged() int64 { return l.r.scheduled + l.r.unscheduled }

func (l *lab) want(what string, got, want any) {
	l.t.Helper()
	if got != want {
		l.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func events(r *Receiver) (all []Event) {
	for e, ok := r.Event(); ok; e, ok = r.Event() {
		all = append(all, e)
	}
	return all
}

func (w *wire) String() string {
	return fmt.Sprintf("%v to %v at %v: %+v", w.Type, w.to, w.at, w.Datagram.Message())
}

var _ testingT = (*testing.T)(nil)
