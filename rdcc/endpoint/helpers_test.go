package endpoint_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
	"github.com/pcmlab/pcmlab/rdcc/opaque"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/udp"
)

// patience is for machines that are busy with other tests.
const patience = time.Minute

const (
	port     = 52011
	dataPort = 52012
)

// fabric is a path that loopback keeps up with on a busy machine.
var fabric = receiver.Fabric{LineRate: 2e9, BaseRTT: 500 * time.Microsecond, DMax: 2 * time.Millisecond, Payload: 1400, Wire: opaque.Wire(1400)}

// node is a running endpoint with the opaque transport.
type node struct {
	*endpoint.Endpoint
	t      testing.TB
	tr     *opaque.Transport
	got    chan endpoint.Incoming
	cancel context.CancelFunc
}

func newNode(t testing.TB, at string, o endpoint.Options) *node {
	t.Helper()
	n := &node{t: t, got: make(chan endpoint.Incoming, 1<<16)}
	o.Listen = netip.MustParseAddr(at)
	if o.Domain.Port == 0 {
		o.Domain.Port = port
	}
	if o.Fabric == (receiver.Fabric{}) {
		o.Fabric = fabric
	}
	tr, err := opaque.New(opaque.Options{Listen: o.Listen, Port: dataPort, AnyPort: o.AnyPort, MinRTO: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	n.tr = tr
	o.Transports = []endpoint.Transport{tr}
	if o.Arrived == nil {
		o.Arrived = func(in endpoint.Incoming, err error) {
			if err == nil {
				n.got <- in
			}
		}
	}
	if n.Endpoint, err = endpoint.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	go n.Run(ctx)
	t.Cleanup(n.stop)
	return n
}

func (n *node) stop() {
	n.cancel()
	<-n.Done()
}

// send sends a message of n octets and waits for its end.
func (n *node) send(to netip.AddrPort, length uint64) endpoint.Result {
	n.t.Helper()
	done := make(chan endpoint.Result, 1)
	m := &endpoint.Outgoing{To: to, Kind: rdcc.BindingOpaque, Length: length, Ended: func(r endpoint.Result) { done <- r }}
	if err := n.Send(m); err != nil {
		return endpoint.Result{Err: err}
	}
	select {
	case r := <-done:
		return r
	case <-time.After(patience):
		p, _ := n.Progress(m)
		n.t.Fatalf("a message of %d octets is at %+v after %v", length, p, patience)
		return endpoint.Result{}
	}
}

// obeyed says that both machines kept the rules.
func (n *node) obeyed() {
	n.t.Helper()
	n.Call(func(time.Duration) {
		if r := n.Receiver(); r != nil {
			if k := r.Counters; k.InvariantViolations != 0 || k.ExcessOctets != 0 {
				n.t.Errorf("the receiver counts %d violations of its budget, %d octets beyond credit", k.InvariantViolations, k.ExcessOctets)
			}
		}
		if s := n.Sender(); s != nil {
			if k := s.Counters(); k.BeyondCredit != 0 {
				n.t.Errorf("%d octets were sent beyond credit", k.BeyondCredit)
			}
		}
	})
}

// raw is a UDP socket that says what it likes.
func raw(t testing.TB, at string) *udp.Socket {
	t.Helper()
	s, err := udp.Open(udp.Options{Addr: netip.AddrPortFrom(netip.MustParseAddr(at), 0)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func say(s *udp.Socket, to netip.AddrPort, b []byte) {
	s.Put(copy(s.Next()[:len(b)], b), to, netip.Addr{}, -1)
	s.Flush()
}

// hear waits for one datagram.
func hear(t testing.TB, s *udp.Socket) (p udp.Packet, data []byte) {
	t.Helper()
	w, err := udp.NewWaiter(s)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		n := 0
		if _, err := s.Recv(func(q *udp.Packet) {
			if n == 0 {
				p, data = *q, append([]byte(nil), q.Data...)
			}
			n++
		}); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return p, data
		}
		_ = w.Wait(100 * time.Millisecond)
	}
	t.Fatal("no datagram")
	return p, nil
}

func u8(v uint8) *uint8 { return &v }

func addrPort(a string, p uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(a), p)
}
