package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
)

// arrivals are those on a queue pair of a sender's.
type arrivals struct {
	assoc uint32 // 0: no request has named the queue pair yet
	early uint64 // octets that came before that
	rdma  int
	next  uint32 // immediate
	any   bool   // of the immediates seen
}

type incomingKey struct {
	assoc   uint32
	message uint64
}

var (
	errCancelled = errors.New("the sender cancelled it")
	errGone      = errors.New("the association is gone")
)

// serve makes the receiver's half of a queue pair, which lives as long as the connection.
func (t *Transport) serve(c net.Conn) {
	defer c.Close()
	stop := context.AfterFunc(t.ctx, func() { c.Close() })
	defer stop()
	c.SetDeadline(time.Now().Add(exchangeTimeout))
	half, err := t.answer(c)
	if err != nil {
		t.h.Logf("verbs", "queue pair for %v: %v", c.RemoteAddr(), err)
		say(c, welcome{Error: err.Error()})
		return
	}
	if !t.h.Do(func(time.Duration) { t.heard[half.QP] = &arrivals{} }) {
		return
	}
	if say(c, welcome{Half: &half}) == nil {
		untilClosed(c)
	}
	t.p.CloseQP(t.ctx, half.QP)
	t.h.Do(func(time.Duration) { delete(t.heard, half.QP) })
}

func (t *Transport) answer(c net.Conn) (Half, error) {
	ctx, cancel := context.WithTimeout(t.ctx, exchangeTimeout)
	defer cancel()
	var g greeting
	if err := hear(c, &g); err != nil {
		return Half{}, err
	}
	if g.Schema != exchangeSchema {
		return Half{}, fmt.Errorf("schema %q, want %q: is the peer another version?", g.Schema, exchangeSchema)
	}
	if g.Class > rdcc.MaxClass {
		return Half{}, fmt.Errorf("class %d is above %d", g.Class, rdcc.MaxClass)
	}
	if err := g.Half.check(); err != nil {
		return Half{}, err
	}
	own, err := t.p.Make(ctx, t.d)
	if err != nil {
		return Half{}, err
	}
	path := t.c.Path
	path.TrafficClass = t.trafficClass(g.Class) // of acknowledgements
	if err := t.p.Connect(ctx, own, g.Half, path); err != nil {
		return Half{}, errors.Join(err, t.p.CloseQP(ctx, own.QP))
	}
	return own, nil
}

// Incoming learns whose a queue pair is: the request says it.
func (t *Transport) Incoming(now time.Duration, e receiver.Event) {
	key := incomingKey{e.Assoc, e.Message}
	switch e.Kind {
	case receiver.MessageAnnounced:
		t.incoming[key] = endpoint.Incoming{From: e.Addr, Assoc: e.Assoc, Message: e.Message, Length: e.Length, Kind: e.Binding, Value: e.Value}
		qp := uint32(e.Value >> 40)
		a := t.heard[qp]
		switch {
		case a == nil:
			t.h.Logf("verbs", "association %#x announces a message on queue pair %#x, which is none of ours", e.Assoc, qp)
		case a.assoc == 0:
			a.assoc = e.Assoc
			if a.rdma > 0 {
				early, rdma := a.early, a.rdma
				a.early, a.rdma = 0, 0
				t.count(now, e.Assoc, qp, early, rdma)
			}
		case a.assoc != e.Assoc:
			t.h.Logf("verbs", "association %#x announces a message on queue pair %#x, which is association %#x's", e.Assoc, qp, a.assoc)
		}
	case receiver.MessageDone:
		t.ended(now, key, e.Waited, nil)
	case receiver.MessageCancelled:
		t.ended(now, key, e.Waited, errCancelled)
	case receiver.AssociationGone:
		for k := range t.incoming {
			if k.assoc == e.Assoc {
				t.ended(now, k, 0, errGone)
			}
		}
		for _, a := range t.heard {
			if a.assoc == e.Assoc {
				a.assoc = 0
			}
		}
	}
}

// ended tells the endpoint of the end of a message: the receiver's machine knows it, since octets have no content here.
func (t *Transport) ended(now time.Duration, key incomingKey, waited time.Duration, err error) {
	in, ok := t.incoming[key]
	if !ok {
		return
	}
	delete(t.incoming, key)
	in.Waited = waited
	t.h.Received(now, in, err)
}

// arrived counts octets of a queue pair, or keeps them until a request names it.
func (t *Transport) arrived(now time.Duration, r Report) {
	a := t.heard[r.QP]
	if a == nil {
		return // closed meanwhile
	}
	first := (r.Last - uint32(r.RDMA) + 1) & 0xffffff
	if a.any && first != a.next {
		t.counts.OutOfOrder++
	}
	a.next, a.any = (r.Last+1)&0xffffff, true
	t.counts.Arrived += r.Octets
	t.counts.ArrivedRDMA += uint64(r.RDMA)
	if a.assoc == 0 {
		a.early += r.Octets
		a.rdma += r.RDMA
		t.counts.Unannounced += r.Octets
		return
	}
	t.count(now, a.assoc, r.QP, r.Octets, r.RDMA)
}

func (t *Transport) count(now time.Duration, assoc, qp uint32, octets uint64, rdma int) {
	if octets == 0 {
		return
	}
	// What NICs do not tell is how many packets there were, and which had CE: the number is the least that it can be.
	packets := max(uint32(rdma), uint32((octets+uint64(t.d.MTU)-1)/uint64(t.d.MTU)))
	t.h.Arrived(now, assoc, receiver.Arrival{Kind: rdcc.BindingRoCEv2, Value: uint64(qp) << 40, Octets: octets, Packets: packets})
}
