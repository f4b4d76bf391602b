package engine

import (
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/qp"
)

// Gate holds back what may not be transmitted yet, beside the congestion control of each queue pair, and is told what was
// transmitted and what arrived: see package gate. Its methods may call QP.Barrier, QP.NoBarrier and QP.Abort.
type Gate interface {
	// Posted tells of a work request of length bytes that q has taken. Requests have numbers from 0, in their order.
	Posted(now time.Duration, q *QP, request uint64, length uint32)
	// Allow is asked at the instant in which a packet behind the barrier would leave that was never sent before.
	Allow(now time.Duration, q *QP)
	// Sent tells of a data packet that leaves at this instant, and says with which TOS; again: it was sent before.
	Sent(now time.Duration, q *QP, request uint64, length int, again bool, tos byte) byte
	// Arrived tells of a request packet that q has processed.
	Arrived(now time.Duration, q *QP, a Arrival)
	// RoundTrip tells of a measured one to q's peer.
	RoundTrip(now time.Duration, q *QP, rtt time.Duration)
	// Gone tells that q will transmit nothing any more: it is destroyed or in ERROR. It may be told again.
	Gone(now time.Duration, q *QP)
}

// Arrival is a request packet.
type Arrival struct {
	MSN    uint32 // message sequence number of the message that it belongs to
	Octets uint64 // payload that was taken, which is each byte once: 0 when it came again or behind a gap
	Gap    uint64 // octets in front of it found missing, as far as packets tell
	CE     bool
}

// SetGate puts a gate in front of all queue pairs; nil takes it away, and lets everything through. The gate sets barriers for
// what it holds back.
func (n *NIC) SetGate(now time.Duration, g Gate) {
	n.gate = g
	for _, q := range n.qps {
		n.watch(q)
		q.NoBarrier(now)
	}
}

// watch has q measure round trips, if the gate wants them.
func (n *NIC) watch(q *QP) {
	if n.gate != nil && q.policy == nil {
		q.m.Watch()
	}
}

// Barrier holds back q's work requests from number request on, but for upTo bytes of that one, which leave no faster than rate
// payload bytes a second times eight.
func (q *QP) Barrier(now time.Duration, request uint64, upTo uint32, rate units.Rate) {
	// The rate is of payload and the machine paces packets: full ones, which is what nearly all are.
	mtu := int64(q.m.MTU())
	wire := float64(mtu+Overhead+16) / float64(mtu)
	q.m.SetCap(now, units.Rate(min(float64(rate)*wire, 1<<62)))
	q.m.Barrier(now, request, upTo)
	q.nic.settle(q)
}

// NoBarrier lets everything through at the queue pair's own rate.
func (q *QP) NoBarrier(now time.Duration) {
	q.m.SetCap(now, 0)
	q.m.Barrier(now, qp.NoBarrier, 0)
	q.nic.settle(q)
}

// Abort moves to ERROR: the oldest work request ends with status.
func (q *QP) Abort(now time.Duration, status qp.Status) {
	if q.m.State() != qp.Ready {
		return
	}
	q.m.Abort(status)
	q.nic.settle(q)
}

// Posted is the number of work requests taken so far, Acknowledged how many of them the peer has all of.
func (q *QP) Posted() uint64       { return q.m.Posted() }
func (q *QP) Acknowledged() uint64 { return q.m.Acknowledged() }

// QP is the queue pair of a number, or nil.
func (n *NIC) QP(number uint32) *QP { return n.qps[number] }

// receiveGated hands a packet to its queue pair and tells the gate what came of it.
func (n *NIC) receiveGated(now time.Duration, q *QP, ce bool) {
	request := n.in.BTH.Opcode.IsRequest()
	a := Arrival{MSN: q.m.Receiving(), CE: ce}
	taken, missing := n.counters.RxPayloadBytes, q.m.Missing()
	q.m.Receive(now, &n.in)
	if request {
		a.Octets = n.counters.RxPayloadBytes - taken
		a.Gap = (q.m.Missing() - missing) * uint64(q.m.MTU())
		n.gate.Arrived(now, q, a)
	} else if rtt := q.m.RoundTrip(); rtt > 0 {
		n.gate.RoundTrip(now, q, rtt)
		if q.policy == nil { // otherwise that takes it
			q.m.TakeFeedback()
		}
	}
	if q.m.State() == qp.Error {
		n.gate.Gone(now, q)
	}
}

// sendGated tells the gate of the packet in n.out.
func (n *NIC) sendGated(now time.Duration, q *QP) byte {
	o := &n.out
	return n.gate.Sent(now, q, o.Request, o.Length, o.Retransmit, q.tos)
}
