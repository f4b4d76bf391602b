package opaque

import (
	"bytes"
	"errors"
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/udp"
)

// data takes a DATA packet: of an association from whose address it comes, and of a message that is announced.
func (t *Transport) data(now time.Duration, u *udp.Packet) {
	p := &t.p
	if addr, ok := t.assocs[p.Assoc]; !ok || addr != u.From.Addr() {
		t.Counts.Strangers++
		return
	}
	key := inKey{p.Assoc, p.Value}
	ce := u.TOS&3 == 3
	if r := t.in[key]; r != nil {
		r.from, r.at = u.From, u.Local
		t.take(now, r, p, ce)
		return
	}
	if length, ok := t.finished[key]; ok { // the acknowledgement got lost
		t.Counts.Doubled++
		a := Packet{Assoc: key.assoc, Value: key.value, Cumulative: length, Stamp: p.Stamp}
		t.ack(&a, u.From, u.Local)
		return
	}
	t.keepEarly(now, key, u, ce)
}

// keepEarly keeps data that has overtaken its request, within bounds; beyond them it comes again.
func (t *Transport) keepEarly(now time.Duration, key inKey, u *udp.Packet, ce bool) {
	for len(t.early) > 0 && (t.earlySum+len(u.Data) > t.o.MaxEarly || now-t.early[0].at > time.Second) {
		if now-t.early[0].at < 10*time.Millisecond {
			t.Counts.Unannounced++
			return
		}
		t.earlySum -= len(t.early[0].data)
		t.early = t.early[1:]
	}
	t.early = append(t.early, early{key, u.From, u.Local, bytes.Clone(u.Data), ce, now})
	t.earlySum += len(u.Data)
}

func (t *Transport) take(now time.Duration, r *receiving, p *Packet, ce bool) {
	fresh, gap, ok := r.Take(p, ce, t.fresh[:0])
	t.fresh = fresh
	if !ok {
		t.Counts.Untaken++
		return
	}
	t.Counts.Received++
	if len(fresh) == 0 {
		t.Counts.Doubled++
	}
	if !r.isOn {
		r.isOn = true
		t.dirty = append(t.dirty, r)
	}
	r.packets++
	if ce {
		r.ce++
		t.Counts.MarkedPackets++
	}
	r.gap += gap
	for _, f := range fresh {
		r.octets += f.End - f.First
		if _, err := r.sink.WriteAt(p.Payload[f.First-p.Offset:f.End-p.Offset], int64(f.First)); err != nil {
			t.Counts.SinkErrors++
			t.h.Logf("sink", "message %d of %v cannot be kept: %v", r.info.Message, r.info.From, err)
			t.drop(r, err)
			t.h.CancelIncoming(now, r.key.assoc, r.info.Message)
			return
		}
	}
}

// settle counts and acknowledges what one round has brought.
func (t *Transport) settle(now time.Duration) {
	for _, r := range t.dirty {
		if !r.isOn {
			continue // dropped meanwhile
		}
		r.isOn = false
		a := Packet{Assoc: r.key.assoc, Value: r.key.value}
		r.Ack(&a)
		t.ack(&a, r.from, r.at)
		v := receiver.Arrival{
			Message: r.info.Message, Kind: rdcc.BindingOpaque, Value: r.key.value, Octets: r.octets, Packets: r.packets, CE: r.ce, Gap: r.gap,
		}
		r.octets, r.packets, r.ce, r.gap = 0, 0, 0, 0
		if r.Complete() {
			t.finish(r)
			err := r.sink.Close(nil)
			delete(t.in, r.key)
			t.h.Arrived(now, r.key.assoc, v)
			t.h.Received(now, r.info, err)
			continue
		}
		t.h.Arrived(now, r.key.assoc, v)
	}
	t.dirty = t.dirty[:0]
}

func (t *Transport) ack(a *Packet, to netip.AddrPort, from netip.Addr) {
	b := a.AppendAck(t.socket.Next())
	t.socket.Put(len(b), to, from, -1)
}

func (t *Transport) finish(r *receiving) {
	delete(t.finished, t.order[t.oldest])
	t.order[t.oldest] = r.key
	t.oldest = (t.oldest + 1) % len(t.order)
	t.finished[r.key] = r.length
}

// drop ends a message that will not be whole.
func (t *Transport) drop(r *receiving, err error) {
	if t.in[r.key] != r {
		return
	}
	delete(t.in, r.key)
	r.isOn = false
	_ = r.sink.Close(err)
	t.h.Received(t.h.Now(), r.info, err)
}

// Incoming follows the receiver: which associations there are, and which messages are to be expected.
func (t *Transport) Incoming(now time.Duration, e receiver.Event) {
	key := inKey{e.Assoc, e.Value}
	switch e.Kind {
	case receiver.AssociationMade:
		t.assocs[e.Assoc] = e.Addr.Addr().Unmap()
	case receiver.AssociationGone:
		delete(t.assocs, e.Assoc)
		for k, r := range t.in { // seldom
			if k.assoc == e.Assoc {
				t.drop(r, errors.New("its sender is gone"))
			}
		}
	case receiver.MessageAnnounced:
		t.announced(now, key, e)
	case receiver.MessageCancelled:
		if r := t.in[key]; r != nil {
			t.drop(r, errors.New("its sender gave it up"))
		}
	case receiver.MessageDone:
		if r := t.in[key]; r != nil { // by count it is there, and it is not
			t.drop(r, errors.New("only its end has arrived since this receiver began"))
		}
	}
}

func (t *Transport) announced(now time.Duration, key inKey, e receiver.Event) {
	if t.in[key] != nil || len(t.in) >= t.o.MaxIncoming {
		if t.in[key] == nil {
			t.h.Logf("bound", "more than %d messages at a time: message %d of %v is refused", t.o.MaxIncoming, e.Message, e.Addr)
			t.h.CancelIncoming(now, e.Assoc, e.Message)
		}
		return
	}
	info := endpoint.Incoming{From: e.Addr, Assoc: e.Assoc, Message: e.Message, Length: e.Length, Kind: e.Binding, Value: e.Value}
	sink, err := t.h.Sink(info)
	if err != nil {
		t.Counts.SinkErrors++
		t.h.Logf("sink", "message %d of %v is refused: %v", e.Message, e.Addr, err)
		t.h.CancelIncoming(now, e.Assoc, e.Message)
		return
	}
	// Of what was sent to an earlier incarnation nothing is here: it must not be presumed to have arrived (decision 15).
	t.h.Arrived(now, e.Assoc, receiver.Arrival{Message: e.Message, Kind: e.Binding, Value: e.Value, Before: true})
	r := &receiving{Inbound: NewInbound(e.Length), key: key, info: info, sink: sink}
	t.in[key] = r
	if len(t.early) == 0 {
		return
	}
	kept := t.early[:0]
	for _, x := range t.early {
		if x.key != key || t.in[key] != r {
			kept = append(kept, x)
			continue
		}
		t.earlySum -= len(x.data)
		if t.p.Decode(x.data) == nil {
			r.from, r.at = x.from, x.to
			t.take(now, r, &t.p, x.ce)
		}
	}
	t.early = kept
	t.settle(now)
}
