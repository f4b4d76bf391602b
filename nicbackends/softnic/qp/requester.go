package qp

import (
	"math"
	"time"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// wqe is a work request in the send queue. first is its first PSN, known when it is started.
type wqe struct {
	WorkRequest
	packets int
	first   uint32
	started bool
	end     uint64 // payload posted up to its own
}

// requester is the sending half. PSNs: una <= next <= top, where [una, top) was sent and is not acknowledged and
// next < top only after going back.
type requester struct {
	sq          ring[wqe]
	uncollected int
	posted      uint64 // payload of all work requests so far

	una, next, top uint32
	cur            uint64 // absolute number in sq of the work request that next belongs to
	packet         int    // packet of it

	asked     uint32 // highest PSN sent with an acknowledgement request
	sinceAsk  int    // packets sent since
	anyAsked  bool
	armed     bool // the timeout runs
	timeoutAt time.Duration
	retries   int // without progress
	rnr       int
	waiting   bool // an RNR NAK's time runs
	rnrUntil  time.Duration

	barrier uint64 // the first work request that waits to be let through; noBarrier: none does
	through uint32 // so many bytes of it may be sent
	done    uint64 // work requests that were acknowledged: all before this number

	watch    bool // fb is kept
	fb       Feedback
	credited int          // bytes of the oldest work request that fb has counted
	asks     [maxAsks]ask // packets that asked for an acknowledgement, oldest first
	nAsks    int
	probe    bool // the next packet is to be one
}

// Feedback is what the network said about the packets sent, since it was last taken. It is what a congestion control is fed with.
type Feedback struct {
	Acks     int           // acknowledgements that brought something new
	Packets  int           // acknowledged
	Bytes    int           // acknowledged payload
	Naks     int           // out-of-sequence NAKs
	Timeouts int           // local ACK timeouts
	RTT      time.Duration // from the newest packet that asked for an acknowledgement to its answer; 0: none. Resent ones give none (Karn)
	Probe    time.Duration // likewise, from the newest packet that was a probe
}

// ask is a packet that asked for an acknowledgement.
type ask struct {
	psn   uint32
	at    time.Duration
	probe bool
}

// maxAsks bounds the round trips that are measured at a time.
const maxAsks = 32

// Watch makes the machine keep Feedback from now on.
func (m *Machine) Watch() { m.req.watch, m.req.fb = true, Feedback{} }

// TakeFeedback gives what has come since the last call; false: nothing.
func (m *Machine) TakeFeedback() (f Feedback, ok bool) {
	f, m.req.fb = m.req.fb, Feedback{}
	return f, f != Feedback{}
}

// RoundTrip is a round trip that was measured since TakeFeedback was called; 0: none.
func (m *Machine) RoundTrip() time.Duration { return m.req.fb.RTT }

// HasFeedback says that TakeFeedback has something to give.
func (m *Machine) HasFeedback() bool { return m.req.watch && m.req.fb != Feedback{} }

// asking notes a packet that asks for an acknowledgement.
func (r *requester) asking(psn uint32, now time.Duration) {
	if r.watch && r.nAsks < maxAsks {
		r.asks[r.nAsks] = ask{psn, now, r.probe}
		r.nAsks++
		r.probe = false
	}
}

// Probe makes the next packet that is sent for the first time ask for an acknowledgement: Feedback.Probe is the time to its answer.
func (m *Machine) Probe() { m.req.probe = true }

// answered measures the round trip of the newest packet that is acknowledged now, and forgets the older ones.
func (r *requester) answered(una uint32, now time.Duration) {
	n := 0
	for n < r.nAsks && roce.PSNDiff(r.asks[n].psn, una) < 0 {
		n++
	}
	if n > 0 {
		r.fb.RTT = max(now-r.asks[n-1].at, 1)
		for _, a := range r.asks[:n] {
			if a.probe {
				r.fb.Probe = max(now-a.at, 1)
			}
		}
		copy(r.asks[:], r.asks[n:r.nAsks])
		r.nAsks -= n
	}
}

// noBarrier is a number that no work request reaches.
const noBarrier = math.MaxUint64

func (r *requester) start(psn uint32) {
	r.una, r.next, r.top = psn&roce.PSNMask, psn&roce.PSNMask, psn&roce.PSNMask
	r.barrier = noBarrier
}

func (r *requester) stop() {
	r.armed, r.waiting, r.anyAsked = false, false, false
	r.cur, r.packet = r.sq.tail, 0
	r.next, r.una = r.top, r.top
}

// pending reports whether a packet is left to send within the window and before the barrier. One more than the window goes when none of
// those that fill it has asked for an acknowledgement, as after a window that shrank: it asks, and without it nothing would ever open
// the window.
func (m *Machine) pending() bool {
	r := &m.req
	if r.cur >= r.sq.tail {
		return false
	}
	silent := !r.anyAsked || roce.PSNDiff(r.asked, r.una) < 0
	return (silent || roce.PSNDiff(r.next, r.una) < m.window) && (r.cur < r.barrier || m.letThrough())
}

// letThrough reports whether the packet at next, which lies at the barrier or behind it, may be sent: one that was sent
// before may be.
func (m *Machine) letThrough() bool {
	r := &m.req
	if roce.PSNDiff(r.next, r.top) < 0 {
		return true
	}
	return r.cur == r.barrier && min((r.packet+1)*m.c.MTU, int(r.sq.at(r.cur).Length)) <= int(r.through)
}

// nextData builds the packet at next. The caller has checked pending.
func (m *Machine) nextData(now time.Duration, p *Out) {
	r := &m.req
	w := r.sq.at(r.cur)
	again := roce.PSNDiff(r.next, r.top) < 0
	if !w.started {
		w.first, w.started = r.next, true
	}
	offset := r.packet * m.c.MTU
	length := min(m.c.MTU, int(w.Length)-offset)
	first, last := r.packet == 0, r.packet == w.packets-1

	*p = Out{Request: r.cur, Local: w.Local + uint64(offset), Length: length, Retransmit: again}
	p.BTH = roce.BTH{Opcode: opcode(w.Op, first, last), Pad: uint8(-length & 3), DestQP: m.peer, PSN: r.next, PKey: roce.DefaultPKey, MigReq: true}
	if first && w.Op == Write {
		p.RETH = roce.RETH{VA: w.RemoteVA, RKey: w.RKey, DMALen: w.Length}
	}

	r.next = roce.PSNAdd(r.next, 1)
	if !again {
		r.top = r.next
	}
	if r.packet++; last {
		r.cur++
		r.packet = 0
	}
	// An acknowledgement is asked for at the end of each message, inside long ones, and where the window would
	// otherwise close, or the barrier stop it, without an answer on its way. (Of the barrier once a round trip is enough: what is lost
	// behind the last question shows with the next packet.)
	r.sinceAsk++
	if last || r.sinceAsk >= m.ackEvery || r.probe && !again || roce.PSNDiff(r.next, r.una) >= m.window || !r.armed && r.cur >= r.barrier && !m.letThrough() {
		p.BTH.AckReq = true
		if !again {
			r.asking(p.BTH.PSN, now)
		}
		r.sinceAsk = 0
		if !r.anyAsked || roce.PSNDiff(p.BTH.PSN, r.asked) > 0 {
			r.asked, r.anyAsked = p.BTH.PSN, true
		}
		if !r.armed && m.c.Timeout > 0 {
			r.armed, r.timeoutAt = true, now+m.c.Timeout
		}
	}

	m.n.TxDataPackets++
	m.n.TxPayloadBytes += uint64(length)
	if again {
		m.n.RetransmittedPackets++
		m.n.RetransmittedBytes += uint64(length)
	}
}

func opcode(op Op, first, last bool) roce.Opcode {
	base := roce.RCSendFirst
	if op == Write {
		base = roce.RCWriteFirst
	}
	switch {
	case first && last:
		return base + 4
	case first:
		return base
	case last:
		return base + 2
	}
	return base + 1
}

// acknowledge handles an ACK, NAK or RNR NAK (IBTA 9.7.5).
func (m *Machine) acknowledge(now time.Duration, in *In) {
	r := &m.req
	psn := in.BTH.PSN
	// Only what was sent and is not yet acknowledged can be answered; anything else is a ghost: a duplicate, late, or
	// forged.
	if roce.PSNDiff(psn, r.una) < 0 || roce.PSNDiff(psn, r.top) >= 0 {
		return
	}
	switch in.AETH.Kind() {
	case roce.Ack:
		m.n.RxAckPackets++
		m.advance(now, roce.PSNAdd(psn, 1))
	case roce.RNRNak:
		m.n.RxNakPackets++
		m.n.RNRNakReceived++
		m.advance(now, psn)
		if m.c.RNRRetry != 7 {
			if r.rnr++; r.rnr > m.c.RNRRetry {
				m.n.RNRNakRetryErr++
				m.failHead(RNRRetryExceeded, in.AETH.Syndrome)
				return
			}
		}
		r.armed = false
		r.waiting = true
		r.rnrUntil = now + m.c.RNRScale.Time(in.AETH.RNRTimer())
		m.goBack(psn)
	case roce.Nak:
		m.n.RxNakPackets++
		m.advance(now, psn)
		switch in.AETH.Code() {
		case roce.NakSequence:
			m.n.PacketSeqErr++
			r.fb.Naks++
			m.retry(now, psn)
		case roce.NakRemoteAccess:
			m.n.ReqRemoteAccess++
			m.failHead(RemoteAccessError, in.AETH.Syndrome)
		case roce.NakRemoteOperational:
			m.n.ReqRemoteOperation++
			m.failHead(RemoteOperation, in.AETH.Syndrome)
		default: // invalid request, and codes of services that RC does not have
			m.n.ReqInvalid++
			m.failHead(RemoteInvalidRequest, in.AETH.Syndrome)
		}
	}
}

// advance takes all PSNs before una as acknowledged and completes the work requests they end.
func (m *Machine) advance(now time.Duration, una uint32) {
	r := &m.req
	packets := roce.PSNDiff(una, r.una)
	if packets <= 0 {
		return
	}
	r.una = una
	r.retries, r.rnr = 0, 0
	if r.watch {
		r.fb.Acks++
		r.fb.Packets += packets
		r.answered(una, now)
	}
	for r.sq.len() > 0 {
		w := r.sq.at(r.sq.head)
		if !w.started || roce.PSNDiff(roce.PSNAdd(w.first, w.packets), una) > 0 {
			break
		}
		m.complete(Completion{ID: w.ID, Op: w.Op, Status: Success, Length: w.Length})
		r.fb.Bytes += int(w.Length) - r.credited
		r.credited = 0
		r.sq.pop()
		r.done = r.sq.head
	}
	if r.sq.len() > 0 {
		if w := r.sq.at(r.sq.head); w.started {
			bytes := max(roce.PSNDiff(una, w.first), 0) * m.c.MTU
			r.fb.Bytes += bytes - r.credited
			r.credited = bytes
		}
	}
	if roce.PSNDiff(r.next, una) < 0 || r.cur < r.sq.head {
		m.seek(una)
	}
	if r.anyAsked && roce.PSNDiff(r.asked, una) >= 0 && m.c.Timeout > 0 {
		r.armed, r.timeoutAt = true, now+m.c.Timeout
	} else {
		r.armed = false
	}
}

// retry goes back to psn, or gives up when the retries are used.
func (m *Machine) retry(now time.Duration, psn uint32) bool {
	r := &m.req
	if r.retries++; r.retries > m.c.RetryCount {
		m.n.ReqTransportRetriesExceeded++
		m.failHead(RetryExceeded, 0)
		return false
	}
	r.armed = false
	r.waiting = false
	m.goBack(psn)
	return true
}

// goBack makes psn the next to be sent.
func (m *Machine) goBack(psn uint32) {
	m.seek(psn)
	m.req.sinceAsk = 0
	m.req.anyAsked = false
	m.req.nAsks = 0
}

// seek puts the send position at psn, una <= psn <= top.
func (m *Machine) seek(psn uint32) {
	r := &m.req
	r.next = psn
	for r.cur, r.packet = r.sq.head, 0; r.cur < r.sq.tail; r.cur++ {
		w := r.sq.at(r.cur)
		if !w.started {
			return
		}
		if n := roce.PSNDiff(psn, w.first); n < w.packets {
			r.packet = n
			return
		}
	}
}

// failHead ends the oldest work request with status and flushes the rest.
func (m *Machine) failHead(status Status, syndrome uint8) {
	if w, ok := m.req.sq.pop(); ok {
		m.n.ReqCQEError++
		m.complete(Completion{ID: w.ID, Op: w.Op, Status: status, Syndrome: syndrome, Length: w.Length})
	}
	m.Fail()
}
