package endpoint

import (
	"container/heap"
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/sender"
	"github.com/pcmlab/pcmlab/rdcc/udp"
)

// rounds that the loop takes datagrams without looking after anything else.
const burst = 4

func (e *Endpoint) loop(ctx context.Context) error {
	var quietSince time.Duration
	for {
		now := e.now()
		e.stats.Rounds++
		e.commands(now)
		if ctx.Err() != nil {
			return nil
		}
		more := false
		for range burst {
			n, err := e.socket.Recv(func(p *udp.Packet) { e.datagram(now, p) })
			if err != nil {
				return err
			}
			e.after(now)
			if more = n == udp.Batch; !more {
				if n > 0 {
					quietSince = now
				}
				break
			}
			now = e.now()
		}
		for _, t := range e.watched {
			again, err := t.Ready(now)
			if err != nil {
				return err
			}
			more = more || again
		}
		e.due(now)
		e.flush()
		if more {
			quietSince = now
			continue
		}
		if err := e.rest(quietSince); err != nil {
			return err
		}
	}
}

// rest waits for what comes next.
func (e *Endpoint) rest(quietSince time.Duration) error {
	now := e.now()
	if e.o.Busy > 0 && now < quietSince+e.o.Busy {
		return nil
	}
	d := time.Duration(-1)
	if at, ok := e.deadline(); ok {
		if d = at - now; d <= max(e.o.Spin, 0) {
			return nil
		}
		// A little early, to be awake in time.
		d -= max(e.o.Spin, 0) / 2
	}
	e.stats.Waits++
	return e.waiter.Wait(d)
}

func (e *Endpoint) deadline() (at time.Duration, ok bool) {
	sooner := func(t time.Duration, some bool) {
		if some && (!ok || t < at) {
			at, ok = t, true
		}
	}
	if e.sender != nil {
		sooner(e.sender.Deadline())
	}
	if e.receiver != nil {
		sooner(e.receiver.Deadline())
	}
	if len(e.again) > 0 {
		sooner(e.again[0].at, true)
	}
	for _, t := range e.transports {
		sooner(t.Deadline())
	}
	return at, ok
}

// commands runs what others handed in.
func (e *Endpoint) commands(now time.Duration) {
	e.mu.Lock()
	queue := e.queue
	e.queue = nil
	e.mu.Unlock()
	for _, f := range queue {
		f(now)
	}
	if len(queue) > 0 {
		e.after(now)
	}
}

// datagram gives a datagram to the machine that it is for. What only one of them gets goes to that one; CANCEL and ERROR go
// in both directions, and reports say theirs.
func (e *Endpoint) datagram(now time.Duration, p *udp.Packet) {
	e.stats.Datagrams++
	e.asked, e.askedAt = p.From, p.Local
	toSender, toReceiver := false, false
	if len(p.Data) > 1 {
		switch rdcc.Type(p.Data[1]) {
		case rdcc.TypeAssocRequest:
			toReceiver = true
			if p.Local.IsValid() && e.receiver != nil {
				e.remember(p.From, p.Local)
			}
		case rdcc.TypeCreditRequest, rdcc.TypeSenderStatus, rdcc.TypeCreditReturn:
			toReceiver = true
		case rdcc.TypeAssocAccept, rdcc.TypeCreditGrant, rdcc.TypeMsgDone:
			toSender = true
		case rdcc.TypeCongestionReport:
			const direction = 29 // offset in the datagram
			toSender = len(p.Data) > direction && p.Data[direction] == 2
			toReceiver = !toSender
		case rdcc.TypeCancel, rdcc.TypeError:
			toSender, toReceiver = true, true
		default: // an unknown type, which receivers may answer
			toReceiver = true
		}
	} else {
		toReceiver = true // to be counted
	}
	told := false
	if toReceiver && e.receiver != nil {
		e.receiver.Receive(now, p.From, p.Data)
		told = true
		e.answers(e.receiver.Poll)
	}
	if toSender && e.sender != nil {
		e.sender.Receive(now, p.From, p.Data)
		told = true
	}
	if !told {
		e.stats.Unknown++
	}
	e.asked = netip.AddrPort{}
}

// maxLocals bounds the addresses remembered; beyond, the system chooses which of its addresses answers.
const maxLocals = 1 << 17

func (e *Endpoint) remember(peer netip.AddrPort, local netip.Addr) {
	if _, known := e.locals[peer]; known || len(e.locals) < maxLocals {
		e.locals[peer] = local
	}
}

// answers takes what a machine has to send. Both have the same way to say it.
func (e *Endpoint) answers(poll func([]byte) (receiver.Out, bool)) {
	for {
		out, ok := poll(e.socket.Next())
		if !ok {
			return
		}
		e.put(out.To, len(out.Data), e.localFor(out.To))
	}
}

func (e *Endpoint) put(to netip.AddrPort, n int, local netip.Addr) {
	e.stats.Sent++
	e.socket.Put(n, to, local, -1)
}

// localFor is the address from which a receiver's answers go: that to which its peer wrote, since the peer takes them from
// no other. A sender's own messages go from the one that the system chooses, always the same.
func (e *Endpoint) localFor(peer netip.AddrPort) netip.Addr {
	switch {
	case peer == e.asked:
		return e.askedAt
	case len(e.locals) > 0:
		return e.locals[peer]
	}
	return netip.Addr{}
}

// after lets everything see what an input has brought: datagrams to send, events, and what follows of those.
func (e *Endpoint) after(now time.Duration) {
	for {
		busy := false
		if e.receiver != nil {
			for ev, ok := e.receiver.Event(); ok; ev, ok = e.receiver.Event() {
				busy = true
				e.received(now, ev)
			}
			e.answers(e.receiver.Poll)
		}
		if e.sender != nil {
			// Requests leave before the data that they announce.
			for out, ok := e.sender.Poll(e.socket.Next()); ok; out, ok = e.sender.Poll(e.socket.Next()) {
				e.put(out.To, len(out.Data), netip.Addr{})
			}
			for ev, ok := e.sender.Event(); ok; ev, ok = e.sender.Event() {
				busy = true
				e.sent(now, ev)
			}
		}
		if !busy {
			return
		}
	}
}

// due does what is due by time.
func (e *Endpoint) due(now time.Duration) {
	if e.receiver != nil {
		if at, ok := e.receiver.Deadline(); ok && at <= now {
			e.receiver.Advance(now)
		}
	}
	if e.sender != nil {
		if at, ok := e.sender.Deadline(); ok && at <= now {
			e.sender.Advance(now)
		}
	}
	for _, t := range e.transports {
		if at, ok := t.Deadline(); ok && at <= now {
			t.Advance(now)
		}
	}
	e.after(now)
	for n := len(e.again); n > 0 && len(e.again) > 0 && e.again[0].at <= now; n-- {
		m := heap.Pop(&e.again).(againAt).m
		e.allow(now, m)
		e.after(now)
	}
}

func (e *Endpoint) flush() {
	e.socket.Flush() // control before the data that it announces
	for _, t := range e.watched {
		t.Flush()
	}
}

// sent takes an event of the sender.
func (e *Endpoint) sent(now time.Duration, ev sender.Event) {
	if ev.Kind == sender.EventOpen { // perhaps by a receiver that has forgotten everything
		for _, m := range e.outgoing {
			if netip.AddrPortFrom(m.To.Addr().Unmap(), m.To.Port()) == ev.To && m.result.Transmitted > 0 {
				e.allow(now, m)
			}
		}
		return
	}
	m := e.outgoing[ev.ID]
	if m == nil {
		return
	}
	switch ev.Kind {
	case sender.EventAllowed:
		e.allow(now, m)
	case sender.EventStopped:
		e.track(now, m)
		m.transport(e).Stopped(now, m)
	case sender.EventDone:
		e.end(now, m, nil)
	case sender.EventAborted:
		switch {
		case m.track.over:
			e.end(now, m, m.track.aborted)
		case ev.GaveUp:
			e.end(now, m, ErrGaveUp)
		case ev.Reason == rdcc.ReasonAssocRefused:
			e.end(now, m, ErrRefused)
		default:
			e.end(now, m, &AbortedError{ev.Reason})
		}
	case sender.EventWithout:
		e.end(now, m, ErrWithout)
	}
}

// allow lets the transport transmit, and looks when it may again.
func (e *Endpoint) allow(now time.Duration, m *Outgoing) {
	if e.outgoing[m.ID] != m {
		return
	}
	e.track(now, m)
	if e.socket.Queued() > 0 {
		e.socket.Flush() // its request, before data could fill the transport's batch
	}
	m.transport(e).Allowed(now, m)
	if at, ok := e.sender.Wait(now, m.ID); ok && e.outgoing[m.ID] == m {
		e.allowAgain(m, at)
	}
}

// received takes an event of the receiver.
func (e *Endpoint) received(now time.Duration, ev receiver.Event) {
	key := incomingKey{ev.Assoc, ev.Message}
	if ev.Kind == receiver.AssociationMade {
		e.peers[ev.Assoc] = ev.Addr
	}
	if !ev.Addr.IsValid() {
		ev.Addr = e.peers[ev.Assoc]
	}
	if in, ok := e.incoming[key]; ok && ev.Message != 0 {
		ev.Binding, ev.Value = in.Kind, in.Value
	}
	switch ev.Kind {
	case receiver.MessageAnnounced:
		e.incoming[key] = Incoming{From: ev.Addr, Assoc: ev.Assoc, Message: ev.Message, Length: ev.Length, Kind: ev.Binding, Value: ev.Value}
	case receiver.AssociationGone:
		delete(e.locals, ev.Addr)
		delete(e.peers, ev.Assoc)
		for k := range e.incoming { // seldom
			if k.assoc == ev.Assoc {
				delete(e.incoming, k)
			}
		}
	case receiver.Misbehaving:
		e.stats.Misbehaving++
		e.log.printf("misbehaving", "%v does not obey: it %s (association %08x, message %d)", ev.Addr, faultText(ev.Fault), ev.Assoc, ev.Message)
	case receiver.BreakerOpened:
		e.log.printf("breaker", "unscheduled data is lost: the unscheduled window is closed for all senders")
	case receiver.BreakerClosed:
		e.log.printf("breaker", "the unscheduled window is open again")
	}
	for _, t := range e.transports {
		if ev.Kind == receiver.AssociationMade || ev.Kind == receiver.AssociationGone || ev.Binding == t.Kind() || ev.Binding == 0 {
			t.Incoming(now, ev)
		}
	}
	if ev.Kind == receiver.MessageDone || ev.Kind == receiver.MessageCancelled {
		delete(e.incoming, key)
	}
}

// goodbye ends all messages in both directions and tells the peers, so that nobody waits for a host that is gone: a sender
// gives back what it was granted by CANCEL, and so does a receiver whose messages will not be taken.
func (e *Endpoint) goodbye() {
	now := e.now()
	e.closing = true
	e.commands(now)
	if e.sender != nil {
		for id, m := range e.outgoing {
			m.track.over, m.track.aborted = true, ErrClosed
			_ = e.sender.Cancel(now, id)
		}
	}
	if e.receiver != nil {
		for k := range e.incoming {
			e.receiver.Cancel(now, k.assoc, k.message)
		}
	}
	e.after(now)
	for _, m := range e.outgoing { // nobody will tell them
		e.end(now, m, ErrClosed)
	}
	e.flush()
}

func faultText(f receiver.Fault) string {
	switch f {
	case receiver.SentBeyondCredit:
		return "sent data beyond its credit"
	case receiver.LiedAboutUnscheduled:
		return "said that more was sent unscheduled than it may"
	case receiver.SecondUnscheduled:
		return "sends a second unscheduled message while another is outstanding"
	}
	return fmt.Sprintf("made mistake %d", f)
}
