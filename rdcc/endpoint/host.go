package endpoint

import (
	"fmt"
	"time"

	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/sender"
)

// track is what an endpoint notes of a message on its way.
type track struct {
	began   time.Duration
	since   time.Duration // of the state that was last looked at
	waiting bool
	waited  time.Duration
	over    bool  // the transport has ended it
	aborted error // why
	heap    int   // place in the heap of those that are allowed again, and one
}

func (m *Outgoing) transport(e *Endpoint) Transport {
	for _, t := range e.transports {
		if t.Kind() == m.Kind {
			return t
		}
	}
	return nil // never: submit has looked
}

func (e *Endpoint) submit(now time.Duration, m *Outgoing) error {
	if e.sender == nil || e.closing {
		return ErrClosed
	}
	t := m.transport(e)
	if t == nil {
		return fmt.Errorf("rdcc: no transport for binding %v", m.Kind)
	}
	m.track = track{began: now, since: now, waiting: true}
	m.result = Result{To: m.To}
	m.Scheduled = m.Scheduled || !e.o.Domain.MayUnschedule()
	value, err := t.Bind(now, m)
	if err != nil {
		return err
	}
	m.Value = value
	m.ID, err = e.sender.Submit(now, sender.Message{
		To: m.To, Length: m.Length, Class: m.Class, Weight: m.Weight, Hint: m.Hint, Binding: m.Kind, BindingValue: value,
		Deadline: m.Deadline, Scheduled: m.Scheduled, Segment: m.Segment, SelfPaced: m.SelfPaced,
	})
	if err != nil {
		t.Ended(now, m, err)
		if err == sender.ErrWithout {
			return ErrWithout
		}
		return err
	}
	e.outgoing[m.ID] = m
	e.after(now)
	return nil
}

// track notes for how long a message has waited for credit. The start delay of unscheduled data is no such wait.
func (e *Endpoint) track(now time.Duration, m *Outgoing) {
	if m.track.waiting {
		m.track.waited += now - m.track.since
	}
	s, ok := e.sender.State(m.ID)
	m.track.since, m.track.waiting = now, ok && (s == sender.StateNew || s == sender.StateWaiting)
}

// end is the end of a message at its sender.
func (e *Endpoint) end(now time.Duration, m *Outgoing, err error) {
	delete(e.outgoing, m.ID)
	e.forgetAgain(m)
	e.track(now, m)
	r := &m.result
	r.Err, r.Octets, r.Elapsed, r.Waited = err, m.Length, now-m.track.began, m.track.waited
	m.transport(e).Ended(now, m, err)
	if m.Ended != nil {
		m.Ended(*r)
	}
}

// host is what transports see of an endpoint.
type host struct{ e *Endpoint }

func (h host) Now() time.Duration                     { return h.e.now() }
func (h host) Do(f func(now time.Duration)) bool      { return h.e.Do(f) }
func (h host) Logf(topic, format string, a ...any)    { h.e.log.printf(topic, format, a...) }
func (h host) Again(m *Outgoing, at time.Duration)    { h.e.allowAgain(m, at) }
func (h host) DSCP(m *Outgoing) (dscp uint8, ok bool) { return h.e.sender.DSCP(m.ID) }

func (h host) Allowance(now time.Duration, m *Outgoing) (upTo uint64, rate int64) {
	return h.e.sender.Allowance(now, m.ID)
}

func (h host) Wire(m *Outgoing) (assoc uint32, message uint64, ok bool) { return h.e.sender.Wire(m.ID) }

func (h host) Transmitted(now time.Duration, m *Outgoing, upTo uint64) {
	if upTo <= m.result.Transmitted {
		return
	}
	if s, _ := h.e.sender.State(m.ID); s == sender.StateUnsched {
		m.result.Unscheduled += upTo - m.result.Transmitted
	}
	m.result.Transmitted = upTo
	h.e.track(now, m)
	h.e.sender.Transmitted(now, m.ID, upTo)
	h.e.track(now, m)
}

func (h host) RTTSample(now time.Duration, m *Outgoing, rtt time.Duration) {
	if m.result.RTT == nil || *m.result.RTT > rtt {
		m.result.RTT = &rtt
	}
	h.e.sender.RTTSample(now, m.To, rtt)
}

func (h host) Abort(now time.Duration, m *Outgoing, err error) {
	m.track.over, m.track.aborted = true, err
	_ = h.e.sender.Cancel(now, m.ID)
	// The event comes with the next look at them all.
	h.e.allowAgain(m, now)
}

func (h host) Arrived(now time.Duration, assoc uint32, v receiver.Arrival) {
	h.e.receiver.Data(now, assoc, v)
}

func (h host) Sink(in Incoming) (Sink, error) {
	if h.e.o.Accept == nil {
		return discard{}, nil
	}
	return h.e.o.Accept(in)
}

func (h host) Received(_ time.Duration, in Incoming, err error) {
	if h.e.o.Arrived != nil {
		h.e.o.Arrived(in, err)
	}
}

func (h host) CancelIncoming(now time.Duration, assoc uint32, message uint64) {
	h.e.receiver.Cancel(now, assoc, message)
	delete(h.e.incoming, incomingKey{assoc, message})
}

// SetRetransmitted and SetMarked note what the transport counted of a message.
func (m *Outgoing) SetRetransmitted(octets uint64) { m.result.Retransmitted = &octets }

// SetMarked notes how many packets arrived marked.
func (m *Outgoing) SetMarked(packets uint64) { m.result.CE = &packets }

type discard struct{}

func (discard) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (discard) Close(error) error                      { return nil }
