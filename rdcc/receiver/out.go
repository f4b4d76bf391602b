package receiver

import (
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// Out is a datagram to be sent.
type Out struct {
	To   netip.AddrPort
	Data []byte
}

// outQueue is a ring of datagrams. Answers to who is not known take at most half of it and grants leave an eighth free, so
// that a flood of strangers cannot hold up credit, nor credit what ends messages. What finds it full is dropped: the sender
// repeats its request.
type outQueue struct {
	ring []slot
	head int
	n    int
}

type slot struct {
	to  netip.AddrPort
	len uint8
	b   [maxOut]byte
}

// maxOut is the longest message that a receiver sends, ASSOC_ACCEPT.
const maxOut = 48

func (q *outQueue) init(n int)  { q.ring = make([]slot, n) }
func (q *outQueue) roomy() bool { return q.n < len(q.ring)-len(q.ring)/8 }
func (q *outQueue) spare() bool { return q.n < len(q.ring)/2 }
func (q *outQueue) pop() (s *slot) {
	s = &q.ring[q.head]
	if q.head++; q.head == len(q.ring) {
		q.head = 0
	}
	q.n--
	return s
}

func (q *outQueue) push() *slot {
	if q.n == len(q.ring) {
		return nil
	}
	i := q.head + q.n
	if i >= len(q.ring) {
		i -= len(q.ring)
	}
	q.n++
	return &q.ring[i]
}

// Poll takes the next datagram to send. Its data is appended to b.
func (r *Receiver) Poll(b []byte) (Out, bool) {
	if r.out.n == 0 {
		return Out{}, false
	}
	s := r.out.pop()
	return Out{To: s.to, Data: append(b, s.b[:s.len]...)}, true
}

// header is that of the association's next message.
func (r *Receiver) header(a *association, flags uint16) rdcc.Header {
	a.seq++
	return rdcc.Header{Flags: flags, Assoc: a.id, Epoch: r.cfg.Epoch, Seq: a.seq}
}

// open takes a place in the ring for a message to an association; nil when it is full.
func (r *Receiver) open(to netip.AddrPort, t rdcc.Type) *slot {
	s := r.out.push()
	if s == nil {
		r.Counters.OutDropped++
		return nil
	}
	r.Counters.Sent++
	r.Counters.SentByType[t]++
	s.to = to
	return s
}

// sendAccept answers an ASSOC_REQUEST, or with FlagParameterUpdate changes the parameters.
func (r *Receiver) sendAccept(i int32, flags uint16) {
	a := &r.assocs[i]
	if s := r.open(a.addr, rdcc.TypeAssocAccept); s != nil {
		caps := rdcc.CapStatus | rdcc.CapCRN
		if r.cfg.Pool {
			caps |= rdcc.CapPool
		}
		p := &r.params
		a.update.hold, a.update.holdNew = max(a.update.hold, p.hold()), max(a.update.holdNew, p.hold())
		m := rdcc.AssocAccept{
			SenderNonce: a.nonce, Capabilities: caps, UnscheduledLimit: uint32(a.update.u),
			StartJitter: rdcc.MicrosOf(p.Jitter), BacklogThreshold: p.Backlog, GrantLifetime: rdcc.MicrosOf(p.Lifetime), CreditUnit: p.CreditUnit,
		}
		s.len = uint8(len(m.Append(s.b[:0], r.header(a, flags))))
	}
}

func (r *Receiver) sendGrant(a *association, of *message, limit uint64, rate int64, lifetime time.Duration) {
	m := rdcc.CreditGrant{MessageID: of.id, GrantLimit: limit, PacingRate: rdcc.Mbps(rate), Lifetime: max(rdcc.MicrosOf(lifetime), 1)}
	flags := uint16(0)
	switch {
	case a.pool:
		m.MessageID, flags = 0, rdcc.FlagPool
	case limit == of.length && r.on(rdcc.RuleFinal):
		flags = rdcc.FlagFinal
	}
	r.Counters.Grants++
	if s := r.open(a.addr, rdcc.TypeCreditGrant); s != nil {
		s.len = uint8(len(m.Append(s.b[:0], r.header(a, flags))))
	}
}

func (r *Receiver) sendDone(a *association, id, octets uint64) {
	if s := r.open(a.addr, rdcc.TypeMsgDone); s != nil {
		s.len = uint8(len((&rdcc.MsgDone{MessageID: id, OctetsReceived: octets}).Append(s.b[:0], r.header(a, 0))))
	}
}

func (r *Receiver) sendCancel(a *association, id uint64, why rdcc.Reason) {
	if s := r.open(a.addr, rdcc.TypeCancel); s != nil {
		s.len = uint8(len((&rdcc.Cancel{MessageID: id, Reason: why}).Append(s.b[:0], r.header(a, 0))))
	}
}

func (r *Receiver) sendError(a *association, m rdcc.Error) {
	if s := r.open(a.addr, rdcc.TypeError); s != nil {
		s.len = uint8(len(m.Append(s.b[:0], r.header(a, 0))))
	}
}

// sendUnbound answers who has no association. It carries the Association ID that was asked for, so that the sender knows
// what is meant; its sequence number means nothing.
func (r *Receiver) sendUnbound(to netip.AddrPort, assoc uint32, m rdcc.Error) {
	if !r.out.spare() {
		r.Counters.OutDropped++
		return
	}
	if s := r.open(to, rdcc.TypeError); s != nil {
		s.len = uint8(len(m.Append(s.b[:0], rdcc.Header{Assoc: assoc, Epoch: r.cfg.Epoch})))
	}
}
