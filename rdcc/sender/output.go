package sender

import (
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

type itemKind uint8

const (
	outAssocRequest itemKind = iota
	outUpdateAck
	outRequest
	outReturn
	outCancel
	outStatus
)

// item is a datagram that waits to be taken. It is written when it is taken, so that it says what is true then and numbers
// go up in the order of sending; an association and a message have at most one of most kinds.
type item struct {
	kind   itemKind
	reason rdcc.Reason
	level  uint8 // of outStatus
	hint   rdcc.Hint
	rate   rdcc.Mbps
	a      *assoc
	id     uint64
	value  uint64 // New Limit, Unused Credit
}

// Out is a datagram to send.
type Out struct {
	To   Addr
	Data []byte // what was appended, and what was in front of it
}

// Poll appends the next datagram to b. False means that there is none now.
func (x *Machine) Poll(b []byte) (Out, bool) {
	for {
		o, ok := x.out.pop()
		if !ok {
			x.settle()
			return Out{}, false
		}
		a := o.a
		if a.state == assocGone || a.state == assocWithout {
			continue
		}
		if data := x.write(b, o); data != nil {
			a.sentAt = x.now
			return Out{To: a.to, Data: data}, true
		}
	}
}

func (x *Machine) write(b []byte, o item) []byte {
	a := o.a
	h := rdcc.Header{Assoc: a.id, Epoch: a.epoch, Seq: a.seq + 1}
	switch o.kind {
	case outAssocRequest:
		a.requestOut = false
		m := rdcc.AssocRequest{SenderNonce: a.nonce, Capabilities: x.c.Capabilities, LineRate: rdcc.MbpsOf(x.c.LineRate)}
		return x.numbered(a, rdcc.TypeAssocRequest, m.Append(b, h))
	case outUpdateAck:
		a.ackOut = false
		h.Flags = rdcc.FlagUpdateAck
		m := rdcc.AssocRequest{SenderNonce: a.nonce, Capabilities: x.c.Capabilities, LineRate: rdcc.MbpsOf(x.c.LineRate)}
		return x.numbered(a, rdcc.TypeAssocRequest, m.Append(b, h))
	}
	if o.kind == outStatus {
		a.statusOut = false
	}
	if a.state != assocOpen {
		if m := x.messages.get(o.id); m != nil && o.kind == outRequest {
			m.requestOut = false // requested again when the association is established
		}
		return nil
	}
	id := o.id & (1<<idBits - 1)
	switch o.kind {
	case outRequest:
		m := x.messages.get(o.id)
		if m == nil {
			return nil
		}
		m.requestOut = false
		if m.state == StateScheduled && m.announced && a.kind != grantsPool {
			return nil // a grant has come meanwhile
		}
		first := !m.announced
		m.announced = true
		x.count.Requests++
		b = (&rdcc.CreditRequest{
			MessageID: id, MessageLength: m.Length, UnscheduledSent: m.unscheduled, Class: m.Class, Weight: m.Weight,
			ServiceHint: m.Hint, BindingKind: m.Binding, BindingValue: m.BindingValue, Deadline: x.deadline(m),
		}).Append(b, h)
		if first && m.state == StateUnsched && m.startAt == never {
			x.allowed(m) // the request was all that it waited for
		}
		x.wantPool(m)
		return x.numbered(a, rdcc.TypeCreditRequest, b)
	case outReturn:
		return x.numbered(a, rdcc.TypeCreditReturn, (&rdcc.CreditReturn{MessageID: id, NewLimit: o.value}).Append(b, h))
	case outCancel:
		return x.numbered(a, rdcc.TypeCancel, (&rdcc.Cancel{MessageID: id, Reason: o.reason}).Append(b, h))
	default:
		x.count.Statuses++
		return x.numbered(a, rdcc.TypeSenderStatus, (&rdcc.SenderStatus{
			UnusedCredit: o.value, CongestionLevel: o.level, ServiceHint: o.hint, SuggestedRate: o.rate,
		}).Append(b, h))
	}
}

// numbered takes the Sequence Number that was written: one more for each message, repetitions included.
func (x *Machine) numbered(a *assoc, t rdcc.Type, b []byte) []byte {
	if x.on(rdcc.RuleSequenceIncremented) {
		a.seq++
	}
	x.count.Sent[t]++
	return b
}

// deadline is what is left of a message's, from this transmission on; at least 1, since 0 means none (decision 24).
func (x *Machine) deadline(m *message) rdcc.Micros {
	if m.deadlineAt == never {
		return 0
	}
	if !x.on(rdcc.RuleDeadlineRecomputed) {
		return rdcc.MicrosOf(m.Deadline)
	}
	return rdcc.MicrosOf(max(m.deadlineAt-x.now, time.Microsecond))
}

// request queues a CREDIT_REQUEST and waits for what comes of it, from the first timeout on.
func (x *Machine) request(m *message) {
	m.backoff = x.timeout(m.a)
	x.post(m)
	x.wait(m)
}

func (x *Machine) post(m *message) {
	if !m.requestOut {
		m.requestOut = true
		x.out.push(item{kind: outRequest, a: m.a, id: m.id})
	}
}

// wait sets the request's timer, and doubles the next timeout (Credit Requests and Grants).
func (x *Machine) wait(m *message) {
	m.requestAt = x.now + m.backoff
	if x.on(rdcc.RuleRequestBackoff) {
		m.backoff *= 2
	}
	if x.on(rdcc.RuleBackoffMost) {
		m.backoff = min(m.backoff, x.c.Timing.MaxTimeout)
	}
	x.arm(m)
}

// requestTimeout repeats CREDIT_REQUEST: in UNSCHED, WAITING and DRAINED, and with pool credit in SCHEDULED, since a pool
// grant acknowledges no request (decisions 5 and 10).
func (x *Machine) requestTimeout(m *message) {
	m.requestAt = never
	if m.a.state != assocOpen || m.state == StateNew || m.state == StateScheduled && (m.a.kind != grantsPool || !x.on(rdcc.RulePoolRequests)) {
		return
	}
	if !x.on(rdcc.RuleRequestRepeated) {
		return
	}
	x.count.RequestTimeouts++
	m.refused -= min(m.refused, 1)
	x.post(m)
	x.wait(m)
}
