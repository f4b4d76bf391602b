package sender

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/rdcctest"
)

const (
	us  = time.Microsecond
	ms  = time.Millisecond
	kib = 1024
	gig = int64(1e9)
)

var (
	here  = netip.MustParseAddr("192.0.2.100")
	crn   = netip.MustParseAddr("198.51.100.7")
	first = netip.MustParseAddrPort("192.0.2.1:50000")
	other = netip.MustParseAddrPort("192.0.2.2:50000")
)

// peer is a receiver that does what a test tells it.
type peer struct {
	addr   Addr
	assoc  uint32
	epoch  uint16
	seq    uint32
	nonce  uint64
	accept rdcc.AssocAccept
}

func newPeer(addr Addr, assoc uint32) *peer {
	return &peer{addr: addr, assoc: assoc, epoch: 3, accept: rdcc.AssocAccept{
		Capabilities: rdcc.CapPool | rdcc.CapStatus | rdcc.CapCRN, UnscheduledLimit: 16 * kib, StartJitter: 10,
		BacklogThreshold: 1 << 31, GrantLifetime: 1000, CreditUnit: 4096,
	}}
}

// tester is what a lab needs of a *testing.T or *rapid.T.
type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// lab is a machine in virtual time with two receivers.
type lab struct {
	tester
	x    *Machine
	now  time.Duration
	r, o *peer
}

func newLab(t tester, edit ...func(*Config)) *lab {
	t.Helper()
	c := Config{
		LineRate: 100 * gig, CRNs: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, Local: []netip.Addr{here},
		Rand: rand.New(rand.NewPCG(1, 2)), Timing: Timing{Keepalive: time.Hour, Idle: 2 * time.Hour}, off: rdcctest.Off(),
	}
	for _, e := range edit {
		e(&c)
	}
	x, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return &lab{tester: t, x: x, now: ms, r: newPeer(first, 0x5a17c0de), o: newPeer(other, 0x0badcafe)}
}

func (l *lab) peerOf(a Addr) *peer {
	if a == l.o.addr {
		return l.o
	}
	return l.r
}

// take returns all datagrams that the machine sends now.
func (l *lab) take() (all []rdcc.Datagram) {
	l.Helper()
	var buf [rdcc.MaxLen]byte
	for {
		out, ok := l.x.Poll(buf[:0])
		if !ok {
			return all
		}
		var d rdcc.Datagram
		if err := d.Decode(out.Data); err != nil {
			l.Fatalf("the machine sends %x: %v", out.Data, err)
		}
		if d.Type == rdcc.TypeAssocRequest {
			l.peerOf(out.To).nonce = d.AssocRequest.SenderNonce
		}
		all = append(all, d)
	}
}

// types are the names of what the machine sends now.
func (l *lab) types() string {
	l.Helper()
	var names []string
	for _, d := range l.take() {
		names = append(names, d.Type.String())
	}
	return strings.Join(names, " ")
}

func (l *lab) want(what, got, want string) {
	l.Helper()
	if got != want {
		l.Fatalf("%s: got %q, want %q", what, got, want)
	}
}

// one takes the only datagram that must be there, of a type.
func (l *lab) one(t rdcc.Type) rdcc.Datagram {
	l.Helper()
	all := l.take()
	if len(all) != 1 || all[0].Type != t {
		var names []string
		for _, d := range all {
			names = append(names, d.Type.String())
		}
		l.Fatalf("the machine sends %q, want one %s", names, t)
	}
	return all[0]
}

func (l *lab) pass(d time.Duration) {
	l.now += d
	l.x.Advance(l.now)
}

// run lets d pass, waking the machine at each of its deadlines, and returns what it sends meanwhile.
func (l *lab) run(d time.Duration) (all []rdcc.Datagram) {
	end := l.now + d
	for {
		at, ok := l.x.Deadline()
		if !ok || at > end {
			l.now = end
			l.x.Advance(end)
			return append(all, l.take()...)
		}
		l.now = at
		l.x.Advance(at)
		all = append(all, l.take()...)
	}
}

func (l *lab) submit(m Message) uint64 {
	l.Helper()
	if !m.To.IsValid() {
		m.To = first
	}
	id, err := l.x.Submit(l.now, m)
	if err != nil {
		l.Fatal(err)
	}
	return id
}

// raw hands in a datagram with the header as it is.
func (l *lab) raw(from Addr, h rdcc.Header, m rdcc.Message) {
	l.x.Receive(l.now, from, m.Append(nil, h))
}

// send hands in what a receiver sends next.
func (l *lab) send(p *peer, m rdcc.Message, flags ...uint16) {
	p.seq++
	h := rdcc.Header{Assoc: p.assoc, Epoch: p.epoch, Seq: p.seq}
	for _, f := range flags {
		h.Flags |= f
	}
	l.raw(p.addr, h, m)
}

func (l *lab) accept(p *peer, flags ...uint16) {
	a := p.accept
	a.SenderNonce = p.nonce
	l.send(p, &a, flags...)
}

func (l *lab) grant(id, limit uint64) {
	l.send(l.r, &rdcc.CreditGrant{MessageID: id & (1<<idBits - 1), GrantLimit: limit, PacingRate: 100000})
}

func (l *lab) pool(limit uint64) {
	l.send(l.r, &rdcc.CreditGrant{GrantLimit: limit, PacingRate: 100000}, rdcc.FlagPool)
}

func (l *lab) doneMsg(id, n uint64) {
	l.send(l.r, &rdcc.MsgDone{MessageID: id & (1<<idBits - 1), OctetsReceived: n})
}

func (l *lab) fail(reason rdcc.Reason, id uint64) {
	l.send(l.r, &rdcc.Error{Reason: reason, MessageID: id & (1<<idBits - 1)})
}

func (l *lab) unknown() {
	l.raw(l.r.addr, rdcc.Header{Assoc: l.r.assoc, Epoch: 77, Seq: 1}, &rdcc.Error{Reason: rdcc.ReasonUnknownAssociation})
}

// open establishes the association with a message, which it returns, announced.
func (l *lab) open(m Message) uint64 {
	l.Helper()
	id := l.submit(m)
	l.one(rdcc.TypeAssocRequest)
	l.pass(20 * us)
	l.accept(l.peerOf(m.To))
	l.one(rdcc.TypeCreditRequest)
	l.events()
	return id
}

func (l *lab) events() (all []Event) {
	for {
		e, ok := l.x.Event()
		if !ok {
			return all
		}
		all = append(all, e)
	}
}

func (l *lab) eventNames() string {
	var names []string
	for _, e := range l.events() {
		names = append(names, e.Kind.String())
	}
	return strings.Join(names, " ")
}

func (l *lab) state(id uint64, want State) {
	l.Helper()
	if s, ok := l.x.State(id); !ok || s != want {
		l.Fatalf("message %d is in %v (there: %t), want %v", id&(1<<idBits-1), s, ok, want)
	}
}

func (l *lab) gone(id uint64, kind EventKind) Event {
	l.Helper()
	if s, ok := l.x.State(id); ok {
		l.Fatalf("message %d is in %v, want it gone", id, s)
	}
	for _, e := range l.events() {
		if e.ID == id && e.Kind == kind {
			return e
		}
	}
	l.Fatalf("no event %v of message %d", kind, id)
	return Event{}
}

func (l *lab) allowance(id, want uint64) {
	l.Helper()
	if upTo, _ := l.x.Allowance(l.now, id); upTo != want {
		l.Fatalf("message %d may be transmitted up to %d, want %d", id&(1<<idBits-1), upTo, want)
	}
}

func (l *lab) transmit(id, upTo uint64) { l.x.Transmitted(l.now, id, upTo) }

func (l *lab) equal(what string, got, want any) {
	l.Helper()
	if got != want {
		l.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func contains(s, part string) bool { return strings.Contains(s, part) }
