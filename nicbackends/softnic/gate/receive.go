package gate

import (
	"net/netip"
	"slices"
	"time"

	"github.com/pcmlab/pcmlab/nicbackends/softnic/engine"
	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
)

// route is a queue pair of this NIC as a peer names it.
type route struct {
	peer netip.Addr
	qpn  uint32
}

// inbound is the receiving side of a queue pair.
type inbound struct {
	messages []announced // by number
	early    []early     // oldest first
}

// messageKey is a message as the receiver machine names it.
type messageKey struct {
	assoc uint32
	id    uint64
}

// announced is a message that a peer has asked credit for.
type announced struct {
	msn, count uint32 // first message sequence number, and how many RDMA messages it is
	assoc      uint32
	id         uint64
}

// early is what came of an RDMA message of which no CREDIT_REQUEST has.
type early struct {
	msn         uint32
	octets      uint64
	packets, ce uint32
}

// maxEarly is how many such messages a queue pair remembers: the newest, however old they are, since a number tells whose they
// are and a request that was lost again and again comes late. Peers without RDCC announce none, ever.
const maxEarly = 64

const msnMask = 0xffffff

func (a *announced) has(msn uint32) bool { return (msn-a.msn)&msnMask < a.count }

// Arrived implements engine.Gate.
func (g *Gate) Arrived(now time.Duration, q *engine.QP, a engine.Arrival) {
	ip, _ := q.Remote()
	k := route{netip.AddrFrom4(ip), q.QPN()}
	in := g.inbound[k]
	if in == nil {
		in = &inbound{}
		g.inbound[k] = in
	}
	ce := uint32(0)
	if a.CE {
		ce = 1
	}
	for i := range in.messages {
		if m := &in.messages[i]; m.has(a.MSN) {
			g.rcv.Data(now, m.assoc, receiver.Arrival{Message: m.id, Kind: rdcc.BindingRoCEv2, Octets: a.Octets, Packets: 1, CE: ce, Gap: a.Gap})
			g.step(now)
			return
		}
	}
	n := len(in.early)
	if n > 0 && in.early[n-1].msn == a.MSN {
		e := &in.early[n-1]
		e.octets, e.packets, e.ce = e.octets+a.Octets, e.packets+1, e.ce+ce
		return
	}
	if n == maxEarly {
		in.early = in.early[:copy(in.early, in.early[1:])]
	}
	in.early = append(in.early, early{a.MSN, a.Octets, 1, ce})
}

// hear takes what the receiver machine says.
func (g *Gate) hear(now time.Duration, e receiver.Event) {
	switch e.Kind {
	case receiver.AssociationMade:
		g.assocs[e.Assoc] = e.Addr.Addr().Unmap()
	case receiver.AssociationGone:
		delete(g.assocs, e.Assoc)
		for k := range g.routes {
			if k.assoc == e.Assoc {
				g.forget(k)
			}
		}
	case receiver.MessageAnnounced:
		g.announce(now, e)
	case receiver.MessageDone, receiver.MessageCancelled:
		g.forget(messageKey{e.Assoc, e.Message})
	}
}

// forget drops a message that is at its end, and its queue pair if that is none of this NIC.
func (g *Gate) forget(m messageKey) {
	k, ok := g.routes[m]
	if !ok {
		return
	}
	delete(g.routes, m)
	in := g.inbound[k]
	if in == nil {
		return
	}
	in.messages = slices.DeleteFunc(in.messages, func(a announced) bool { return a.assoc == m.assoc && a.id == m.id })
	if len(in.messages) == 0 && g.nic.QP(k.qpn) == nil {
		delete(g.inbound, k)
	}
}

// announce puts a message where its number belongs, nearly always at the end, and gives it what came before its request.
func (g *Gate) announce(now time.Duration, e receiver.Event) {
	if e.Binding != rdcc.BindingRoCEv2 {
		return
	}
	b := rdcc.RoCEBindingOf(e.Value)
	k := route{g.assocs[e.Assoc], b.DestQP}
	in := g.inbound[k]
	if in == nil {
		in = &inbound{}
		g.inbound[k] = in
	}
	g.routes[messageKey{e.Assoc, e.Message}] = k
	m := announced{msn: b.MSN, count: uint32(b.Messages), assoc: e.Assoc, id: e.Message}
	i := len(in.messages)
	for i > 0 && int32((in.messages[i-1].msn-m.msn)<<8) >= 0 { // an older claim to the number comes behind
		i--
	}
	in.messages = slices.Insert(in.messages, i, m)
	var came early
	in.early = slices.DeleteFunc(in.early, func(x early) bool {
		if !m.has(x.msn) {
			return false
		}
		came.octets, came.packets, came.ce = came.octets+x.octets, came.packets+x.packets, came.ce+x.ce
		return true
	})
	if came.packets > 0 {
		g.rcv.Data(now, m.assoc, receiver.Arrival{Message: m.id, Kind: rdcc.BindingRoCEv2, Octets: came.octets, Packets: came.packets, CE: came.ce})
	}
}
