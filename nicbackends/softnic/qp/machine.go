package qp

import (
	"fmt"
	"time"

	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/internal/units"
)

// maxPackets bounds a message so that its PSNs stay comparable in 24 bits.
const maxPackets = 1 << 22

// Machine is one RC queue pair. It is not safe for concurrent use, and it allocates only in New.
type Machine struct {
	c     Config
	mem   Memory
	n     *Counters
	state State
	peer  uint32 // remote QPN

	req  requester
	resp responder
	done ring[Completion]

	window   int // packets sent and not acknowledged, at most
	ackEvery int

	rate  units.Rate    // the smaller of the next two
	own   units.Rate    // of its congestion control
	cap   units.Rate    // 0: none
	slot  time.Duration // virtual time of the next data packet
	carry int64         // remainder of the last slot's division, in bit-nanoseconds
}

// New makes a queue pair in INIT. mem and counters must outlive it.
func New(c Config, mem Memory, counters *Counters) (*Machine, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	m := &Machine{c: c, mem: mem, n: counters, rate: c.Rate, own: c.Rate, window: c.Window, ackEvery: c.AckEvery}
	m.req.sq = newRing[wqe](c.SendDepth)
	m.resp.rq = newRing[RecvRequest](c.RecvDepth)
	m.done = newRing[Completion](c.SendDepth + c.RecvDepth)
	m.req.start(c.FirstPSN)
	return m, nil
}

// Connect moves INIT to READY: remote's number and the first PSN that it will send.
func (m *Machine) Connect(remoteQPN, remotePSN uint32) error {
	if m.state != Init {
		return fmt.Errorf("connect queue pair 0x%x in %v: %w", m.c.QPN, m.state, ErrState)
	}
	m.state, m.peer = Ready, remoteQPN
	m.resp.epsn = remotePSN & roce.PSNMask
	return nil
}

// State is the present state.
func (m *Machine) State() State { return m.state }

// MTU is the path MTU.
func (m *Machine) MTU() int { return m.c.MTU }

// QPN is the own number, Peer the remote one.
func (m *Machine) QPN() uint32  { return m.c.QPN }
func (m *Machine) Peer() uint32 { return m.peer }

// SetRate changes the rate of the congestion control at now.
func (m *Machine) SetRate(now time.Duration, r units.Rate) {
	m.own = max(r, 1)
	m.pace(now)
}

// SetCap bounds the sending rate besides, from now on; 0 takes the bound away.
func (m *Machine) SetCap(now time.Duration, r units.Rate) {
	m.cap = r
	m.pace(now)
}

// pace brings the sending rate up to date. What is left of the wait for the next slot is stretched or shortened with
// it, so that a queue pair that was slowed almost to a halt does not sit out its old gap.
func (m *Machine) pace(now time.Duration) {
	r := m.own
	if m.cap > 0 {
		r = min(r, m.cap)
	}
	if r == m.rate {
		return
	}
	if wait := m.slot - now; wait > 0 {
		m.slot = now + time.Duration(float64(wait)*float64(m.rate)/float64(r))
	}
	m.rate, m.carry = r, 0
}

// Rate is the present sending rate.
func (m *Machine) Rate() units.Rate { return m.rate }

// SetWindow bounds the packets that are sent and not acknowledged, to at least 1 and at most Config.Window, at now. A quarter of
// them asks for an acknowledgement, so that a small window is opened again before it is used up.
func (m *Machine) SetWindow(now time.Duration, packets int) {
	idle := !m.sendable(now)
	m.window = min(max(packets, 1), m.c.Window)
	m.ackEvery = min(max(m.window/4, 1), m.c.AckEvery)
	if idle && m.sendable(now) {
		m.slot = max(m.slot, now)
	}
}

// Barrier holds back all of the work requests from number request on, but for the first upTo bytes of that one; numbers count
// from 0 in the order of Post. What was sent once is not held back when it is sent again. NoBarrier lets all through.
func (m *Machine) Barrier(now time.Duration, request uint64, upTo uint32) {
	idle := !m.sendable(now)
	m.req.barrier, m.req.through = request, upTo
	if idle && m.sendable(now) {
		m.slot = max(m.slot, now)
	}
}

// NoBarrier is the number for Barrier that no work request has.
const NoBarrier uint64 = noBarrier

// Fresh reports that the next data packet is one that was not sent before, of a work request that the barrier is in front of.
func (m *Machine) Fresh() bool {
	return m.req.cur >= m.req.barrier && roce.PSNDiff(m.req.next, m.req.top) == 0
}

// Posted is the number of work requests taken so far, and Acknowledged of those among them that the peer has all of.
func (m *Machine) Posted() uint64       { return m.req.sq.tail }
func (m *Machine) Acknowledged() uint64 { return m.req.done }

// Receiving is the message sequence number that this side will give to the message that it is receiving, or receives next (IBTA
// 9.7.5.1.2 counts from 1), and Missing how many packets were found missing in the sequence so far.
func (m *Machine) Receiving() uint32 { return (m.resp.msn + 1) & roce.PSNMask }
func (m *Machine) Missing() uint64   { return m.resp.missing }

// Abort moves to ERROR: the oldest work request ends with status, all others are flushed.
func (m *Machine) Abort(status Status) { m.failHead(status, 0) }

// Window is the present bound.
func (m *Machine) Window() int { return m.window }

// Outstanding is the number of packets sent and not acknowledged.
func (m *Machine) Outstanding() int { return roce.PSNDiff(m.req.top, m.req.una) }

// Queued is the number of work requests that have not completed.
func (m *Machine) Queued() int { return m.req.sq.len() }

// Waiting is the payload of its work requests that is to be sent, what is to be sent again included.
func (m *Machine) Waiting() int {
	r := &m.req
	if r.cur >= r.sq.tail {
		return 0
	}
	w := r.sq.at(r.cur)
	return int(r.posted - w.end + uint64(w.Length) - uint64(min(r.packet*m.c.MTU, int(w.Length))))
}

// Post takes a work request at now. A queue pair in ERROR takes it and flushes it, as verbs do.
func (m *Machine) Post(now time.Duration, w WorkRequest) error {
	if m.state == Init || w.Op == Recv {
		return fmt.Errorf("post %v on queue pair 0x%x in %v: %w", w.Op, m.c.QPN, m.state, ErrState)
	}
	// Completions that nobody fetched hold their place, so that the completion ring cannot overflow.
	if m.req.sq.len()+m.req.uncollected >= m.c.SendDepth {
		return fmt.Errorf("post %v on queue pair 0x%x: %d in the send queue: %w", w.Op, m.c.QPN, m.c.SendDepth, ErrFull)
	}
	if m.state == Error {
		m.n.ReqCQEFlush++
		m.complete(Completion{ID: w.ID, Op: w.Op, Status: FlushError, Length: w.Length})
		return nil
	}
	packets := max(1, (int(w.Length)+m.c.MTU-1)/m.c.MTU)
	if packets > maxPackets {
		return fmt.Errorf("post %v of %d bytes on queue pair 0x%x: %d packets, at most %d fit a message: %w",
			w.Op, w.Length, m.c.QPN, packets, maxPackets, ErrState)
	}
	idle := !m.sendable(now)
	m.req.posted += uint64(w.Length)
	m.req.sq.push(wqe{WorkRequest: w, packets: packets, end: m.req.posted})
	if idle {
		m.slot = max(m.slot, now)
	}
	return nil
}

// PostRecv takes a buffer for a SEND. It may be called before Connect.
func (m *Machine) PostRecv(r RecvRequest) error {
	if m.resp.rq.len()+m.resp.uncollected >= m.c.RecvDepth {
		return fmt.Errorf("post RECV on queue pair 0x%x: %d in the receive queue: %w", m.c.QPN, m.c.RecvDepth, ErrFull)
	}
	if m.state == Error {
		m.n.RespCQEFlush++
		m.complete(Completion{ID: r.ID, Op: Recv, Status: FlushError})
		return nil
	}
	m.resp.rq.push(r)
	return nil
}

// Poll takes the oldest completion.
func (m *Machine) Poll() (Completion, bool) {
	c, ok := m.done.pop()
	if ok {
		if c.Op == Recv {
			m.resp.uncollected--
		} else {
			m.req.uncollected--
		}
	}
	return c, ok
}

// Completed is the number of completions to Poll.
func (m *Machine) Completed() int { return m.done.len() }

func (m *Machine) complete(c Completion) {
	if c.Op == Recv {
		m.resp.uncollected++
	} else {
		m.req.uncollected++
	}
	m.done.push(c)
}

// Fail moves to ERROR and flushes all work, as ibv_modify_qp to IBV_QPS_ERR does.
func (m *Machine) Fail() {
	if m.state == Error {
		return
	}
	m.state = Error
	for {
		w, ok := m.req.sq.pop()
		if !ok {
			break
		}
		m.n.ReqCQEFlush++
		m.complete(Completion{ID: w.ID, Op: w.Op, Status: FlushError, Length: w.Length})
	}
	for {
		r, ok := m.resp.rq.pop()
		if !ok {
			break
		}
		m.n.RespCQEFlush++
		m.complete(Completion{ID: r.ID, Op: Recv, Status: FlushError})
	}
	m.req.stop()
	m.resp.ack = false
}

// Receive handles one packet. Packets in a state or with an opcode that has no use for them are ignored.
func (m *Machine) Receive(now time.Duration, in *In) {
	if m.state != Ready {
		return
	}
	idle := !m.sendable(now)
	switch op := in.BTH.Opcode; {
	case op.Transport() != roce.RC:
		return
	case op.IsRequest():
		m.request(in)
	case op.IsAck():
		m.acknowledge(now, in)
	}
	if idle && m.sendable(now) {
		m.slot = max(m.slot, now)
	}
}

// Next fills p with the next packet to send at now and reports whether there was one. Acknowledgements come before
// data, and data only when its slot has come.
func (m *Machine) Next(now time.Duration, p *Out) bool {
	if m.nextAck(p) {
		return true
	}
	m.Tick(now)
	if !m.sendable(now) || m.slot > now {
		return false
	}
	m.nextData(now, p)
	m.takeSlot(now, p.WireLen()+m.c.Overhead)
	return true
}

// takeSlot moves the virtual send time on by the packet's time at the present rate.
func (m *Machine) takeSlot(now time.Duration, bytes int) {
	if m.slot < now-m.c.CatchUp {
		m.slot = now - m.c.CatchUp
	}
	t := int64(bytes)*8e9 + m.carry
	m.slot += time.Duration(t / int64(m.rate))
	m.carry = t % int64(m.rate)
}

// Slot is the virtual time of the next data packet.
func (m *Machine) Slot() time.Duration { return m.slot }

// Hold puts the next data packet off until at: the port is busy so long.
func (m *Machine) Hold(at time.Duration) { m.slot = max(m.slot, at) }

// DataReady reports whether a data packet waits for nothing but its slot.
func (m *Machine) DataReady(now time.Duration) bool { return m.sendable(now) }

// Tick runs the timers due at now.
func (m *Machine) Tick(now time.Duration) {
	if m.state != Ready {
		return
	}
	r := &m.req
	if r.waiting && now >= r.rnrUntil {
		r.waiting = false
		m.slot = max(m.slot, now)
	}
	if r.armed && now >= r.timeoutAt {
		r.armed = false
		m.n.LocalAckTimeoutErr++
		r.fb.Timeouts++
		idle := !m.sendable(now)
		if m.retry(now, r.una) && idle {
			m.slot = max(m.slot, now)
		}
	}
}

// Deadline is when Next or Tick has something to do; false means only after a Post or Receive. It may lie in the past.
func (m *Machine) Deadline() (time.Duration, bool) {
	if m.resp.ack || m.resp.nak != 0 {
		return 0, true
	}
	if m.state != Ready {
		return 0, false
	}
	at, ok := time.Duration(0), false
	earlier := func(t time.Duration) {
		if !ok || t < at {
			at, ok = t, true
		}
	}
	r := &m.req
	if r.armed {
		earlier(r.timeoutAt)
	}
	if r.waiting {
		earlier(r.rnrUntil)
	} else if m.pending() {
		earlier(m.slot)
	}
	return at, ok
}

func (m *Machine) sendable(now time.Duration) bool {
	return m.state == Ready && !(m.req.waiting && now < m.req.rnrUntil) && m.pending()
}
