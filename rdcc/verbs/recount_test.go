package verbs

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/rdcc"
)

// recount is the slow and obvious judge: it reads a capture at the switch, learns from the control messages what each RDCC
// message had credit for, and looks at each data packet whether it was within. What the switch saw of a grant its sender
// received later, so a packet beyond the grants seen is beyond credit.
type recount struct {
	port   uint16
	forget uint64 // so many octets of each grant are overlooked: then there must be packets beyond

	messages map[messageKey]*counted
	queues   map[flowKey]*flow
	lifetime map[uint32]time.Duration // default of an association

	Data, Beyond, Late, Unasked uint64 // octets: in all; beyond credit; after the lifetime, with slack; on queue pairs without a request
	Again                       uint64 // octets sent again
	Packets, Marked, ECT        uint64 // packets; of them CE; ECT or CE
	Lost                        uint64 // packets missing before the tap, filled later or not
	Wrong                       []string
	slack                       time.Duration // 2 · D_max
	First, Last                 time.Duration
	Control                     map[rdcc.Type]int
	MostOut                     uint64 // most octets granted or announced and not yet seen
}

type messageKey struct {
	assoc uint32
	id    uint64
}

// counted is a message.
type counted struct {
	length, limit, window uint64
	until                 time.Duration
	msn                   uint32
	count                 uint32
	seen                  uint64
	grants                int
}

type flowKey struct {
	src netip.Addr
	qp  uint32
}

// flow is a queue pair: packets in order, and the messages in the order of their numbers.
type flow struct {
	begun    bool
	next     uint32 // PSN
	messages []*counted
	at       int    // message
	begins   uint32 // RDMA messages of it that have begun
	octets   uint64 // of it
}

func newRecount(port uint16) *recount {
	return &recount{port: port, messages: map[messageKey]*counted{}, queues: map[flowKey]*flow{}, lifetime: map[uint32]time.Duration{}, Control: map[rdcc.Type]int{}}
}

// file reads a whole capture.
func (r *recount) file(path string) error {
	in, err := capture.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	var p capture.Packet
	var f roce.Frame
	var u capture.UDP
	for {
		err := in.Next(&p)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		now := time.Duration(p.TimeNS)
		if err := f.Decode(p.LinkType, p.Data, p.OrigLen, roce.Port); err != nil {
			return err
		}
		if f.Kind == roce.KindRoCE {
			r.data(now, &f)
			continue
		}
		ok, err := u.Decode(&p)
		if err != nil {
			return err
		}
		if w := u.Frame(); ok && (w.SrcPort == r.port || w.DstPort == r.port) {
			r.control(now, w.SrcAddr(), u.Payload)
		}
	}
}

func (r *recount) control(now time.Duration, src netip.Addr, b []byte) {
	var d rdcc.Datagram
	if err := d.Decode(b); err != nil {
		r.Wrong = append(r.Wrong, fmt.Sprintf("%v: a datagram: %v", now, err))
		return
	}
	r.Control[d.Type]++
	switch d.Type {
	case rdcc.TypeAssocAccept:
		r.lifetime[d.Assoc] = time.Duration(d.AssocAccept.GrantLifetime) * time.Microsecond
	case rdcc.TypeCreditRequest:
		m := &d.CreditRequest
		k := messageKey{d.Assoc, m.MessageID}
		c := r.messages[k]
		if c == nil {
			b := rdcc.RoCEBindingOf(m.BindingValue)
			c = &counted{length: m.MessageLength, msn: b.MSN, count: uint32(b.Messages)}
			r.messages[k] = c
			q := r.flow(src, b.DestQP)
			q.messages = append(q.messages, c)
			slices.SortStableFunc(q.messages, func(a, b *counted) int { return int(int32((a.msn - b.msn) << 8)) })
		}
		c.window = max(c.window, min(m.UnscheduledSent, m.MessageLength))
	case rdcc.TypeCreditGrant:
		g := &d.CreditGrant
		c := r.messages[messageKey{d.Assoc, g.MessageID}]
		if c == nil {
			r.Wrong = append(r.Wrong, fmt.Sprintf("%v: a grant for message %d, which nobody asked for", now, g.MessageID))
			return
		}
		life := time.Duration(g.Lifetime) * time.Microsecond
		if life == 0 {
			life = r.lifetime[d.Assoc]
		}
		c.limit = max(c.limit, g.GrantLimit-min(g.GrantLimit, r.forget))
		c.until = now + life
		c.grants++
	}
	out := uint64(0)
	for _, c := range r.messages {
		out += max(c.limit, c.window) - min(c.seen, max(c.limit, c.window))
	}
	r.MostOut = max(r.MostOut, out)
}

func (r *recount) flow(src netip.Addr, qp uint32) *flow {
	k := flowKey{src, qp}
	q := r.queues[k]
	if q == nil {
		q = &flow{}
		r.queues[k] = q
	}
	return q
}

func (r *recount) data(now time.Duration, f *roce.Frame) {
	if !f.HasRETH && f.PayloadLen == 0 && !f.HasImm {
		return // acknowledgements
	}
	q := r.flow(f.SrcAddr(), f.BTH.DestQP)
	n := uint64(f.PayloadLen)
	r.Packets++
	if f.ECN() == roce.CE {
		r.Marked++
	}
	if f.ECN() != roce.NotECT {
		r.ECT++
	}
	if r.First == 0 {
		r.First = now
	}
	r.Last = now
	if !q.begun {
		q.begun, q.next = true, f.BTH.PSN
	}
	switch d := roce.PSNDiff(f.BTH.PSN, q.next); {
	case d < 0:
		r.Again += n
		return
	case d > 0:
		r.Lost += uint64(d) // it will be sent again with all behind it: a reliable queue pair takes nothing out of order
		return
	}
	q.next = roce.PSNAdd(q.next, 1)
	r.Data += n
	// An RDMA message begins with a RETH; when it is the first of the next RDCC message, that one begins.
	if f.HasRETH {
		if q.at < len(q.messages) && q.begins == q.messages[q.at].count {
			q.at, q.begins, q.octets = q.at+1, 0, 0
		}
		q.begins++
	}
	if q.at >= len(q.messages) {
		r.Unasked += n
		return
	}
	m := q.messages[q.at]
	q.octets += n
	m.seen = q.octets
	if most := max(m.limit, m.window); q.octets > most {
		r.Beyond += min(n, q.octets-most)
	}
	if q.octets > m.window && m.grants > 0 && now > m.until+r.slack {
		r.Late += n
	}
}
