package gate

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/nicbackends/softnic/engine"
	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/sender"
)

// Config describes a gate. Times and rates are those of the NIC's clock.
type Config struct {
	Port     uint16 // of the domain
	Sender   sender.Config
	Receiver receiver.Config
	// Message has what all messages of this host have: class, weight, hint, Scheduled and Segment. Where Segment is zero, a
	// message goes packet by packet as credit comes.
	Message sender.Message
	// MaxPending bounds the messages that a peer is asked credit for at a time; 0 means 256.
	MaxPending int
}

// Gate stands between the queue pairs of a NIC and the wire. It is not safe for concurrent use.
type Gate struct {
	c       Config
	nic     *engine.NIC
	snd     *sender.Machine
	rcv     *receiver.Receiver
	d       rdcc.Datagram
	pairs   map[*engine.QP]*pair
	byID    map[uint64]place // of messages that are not at their end
	peers   map[sender.Addr]*peer
	ahead   uint64  // octets that a queue pair may have asked credit for and not sent, when it asks for more
	waiting []*pair // for a time at which more may be sent
	full    []*pair // that wait for a message to end, since there are too many

	inbound  map[route]*inbound
	routes   map[messageKey]route  // of announced messages
	assocs   map[uint32]netip.Addr // of senders, by Association ID
	patience time.Duration         // credit waits so long for the rest of a segment

	count Counters
}

// Counters are the gate's own.
type Counters struct {
	Requests    uint64 // work requests that became messages
	Without     uint64 // that went without RDCC, since the peer does not speak it or refused
	Refused     uint64 // that failed since their message was aborted
	SegmentsCut uint64 // messages whose segments were given up: credit ended before it was enough for one
	Malformed   uint64 // datagrams at the RDCC port that are none of its messages
}

var _ engine.Gate = (*Gate)(nil)

// New makes a gate in front of the queue pairs of nic; work that they have already goes without.
func New(now time.Duration, nic *engine.NIC, c Config) (*Gate, error) {
	if c.Port == 0 {
		return nil, fmt.Errorf("gate: no port: RDCC has no default")
	}
	if c.MaxPending == 0 {
		c.MaxPending = 256
	}
	c.Receiver.Bindings = []rdcc.BindingKind{rdcc.BindingRoCEv2}
	g := &Gate{c: c, nic: nic, pairs: map[*engine.QP]*pair{}, byID: map[uint64]place{}, peers: map[sender.Addr]*peer{},
		inbound: map[route]*inbound{}, routes: map[messageKey]route{}, assocs: map[uint32]netip.Addr{}}
	var err error
	if g.snd, err = sender.New(c.Sender); err != nil {
		return nil, err
	}
	if g.rcv, err = receiver.New(c.Receiver); err != nil {
		return nil, err
	}
	budget := c.Receiver.G // the domain's: others have the same
	if budget == 0 {
		budget = 2 * c.Receiver.Fabric.BDP()
	}
	g.ahead = 2 * uint64(budget)
	g.patience = max(g.rcv.Params().Lifetime, 1)
	nic.SetGate(now, g)
	return g, nil
}

// Close cancels all messages and lets everything through. Poll has the last datagrams then.
func (g *Gate) Close(now time.Duration) {
	for q := range g.pairs {
		g.cancel(now, q)
	}
	g.step(now)
	g.nic.SetGate(now, nil)
}

// Port is the domain's.
func (g *Gate) Port() uint16 { return g.c.Port }

// Counters are the gate's own, Sender and Receiver those of its machines.
func (g *Gate) Counters() Counters          { return g.count }
func (g *Gate) Sender() sender.Counters     { return g.snd.Counters() }
func (g *Gate) Receiver() receiver.Counters { return g.rcv.Counters }

// SetRate says what the line carries now.
func (g *Gate) SetRate(now time.Duration, bps int64) {
	g.snd.SetRate(now, bps)
	g.step(now)
}

// Receive takes a datagram of the RDCC port.
func (g *Gate) Receive(now time.Duration, from netip.AddrPort, b []byte) {
	if g.d.Decode(b) != nil { // the machines count kinds of mistakes, and may have to answer
		g.count.Malformed++
		g.rcv.Receive(now, from, b)
		g.step(now)
		return
	}
	if g.forSender(from) {
		g.snd.Receive(now, from, b)
	} else {
		g.rcv.Receive(now, from, b)
	}
	g.step(now)
}

// forSender says which machine the datagram in g.d is for.
func (g *Gate) forSender(from netip.AddrPort) bool {
	switch d := &g.d; d.Type {
	case rdcc.TypeAssocAccept, rdcc.TypeCreditGrant, rdcc.TypeMsgDone:
		return true
	case rdcc.TypeCongestionReport:
		return d.CongestionReport.Direction == rdcc.ToSender
	case rdcc.TypeCancel, rdcc.TypeError: // both send these: whose association is it?
		if d.Assoc == 0 {
			return true
		}
		a, ok := g.snd.Association(from)
		return ok && a.Association == d.Assoc
	}
	return false
}

// Poll appends the next datagram to send to b.
func (g *Gate) Poll(b []byte) (to netip.AddrPort, data []byte, ok bool) {
	if o, ok := g.rcv.Poll(b); ok {
		return o.To, o.Data, true
	}
	if o, ok := g.snd.Poll(b); ok {
		return o.To, o.Data, true
	}
	return netip.AddrPort{}, nil, false
}

// Advance does what is due.
func (g *Gate) Advance(now time.Duration) {
	g.snd.Advance(now)
	g.rcv.Advance(now)
	g.step(now)
}

// Deadline is when Advance has something to do; it may have passed.
func (g *Gate) Deadline() (time.Duration, bool) {
	at, ok := g.snd.Deadline()
	if t, some := g.rcv.Deadline(); some && (!ok || t < at) {
		at, ok = t, true
	}
	for _, p := range g.waiting {
		if !ok || p.wakeAt < at {
			at, ok = p.wakeAt, true
		}
	}
	return at, ok
}

// step takes what the machines have to say, and lets go what may.
func (g *Gate) step(now time.Duration) {
	for {
		e, ok := g.rcv.Event()
		if !ok {
			break
		}
		g.hear(now, e)
	}
	for {
		e, ok := g.snd.Event()
		if !ok {
			break
		}
		g.event(now, e)
	}
	for i := 0; i < len(g.waiting); {
		p := g.waiting[i]
		if p.wakeAt > now {
			i++
			continue
		}
		g.unwait(p)
		g.let(now, p)
	}
}
