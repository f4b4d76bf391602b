package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/dcqcn"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/qp"
)

// QP is a queue pair of a NIC.
type QP struct {
	Tag any // the driver's own

	nic    *NIC
	m      *qp.Machine
	pd     uint64
	local  []byte // memory that its work requests count in
	remote [4]byte
	sport  uint16
	tos    byte
	psn    uint32

	place  int          // among the queue pairs of its protection domain, from 1
	policy *policyState // nil: rp decides
	rp     dcqcn.RP
	np     limiter // scope qp
	cnp    bool    // a CNP is owed

	dueAt  time.Duration
	index  int  // in the heap, -1: not in it
	listed bool // among the finished
}

// domain is a protection domain: the queue pairs that it has made, and those that it has.
type domain struct{ made, live int }

// limiter is a CNP limiter and the queue pair that saw the last mark under it.
type limiter struct {
	dcqcn.NP
	owner *QP
}

// Options describe a queue pair; zero values are the NIC's.
type Options struct {
	PD           uint64
	Local        []byte // memory of its work and receive requests
	MTU          int    // path MTU; 0: the NIC's
	TrafficClass int    // DSCP<<2 | ECN; 0: the NIC's own DSCP and ECN
	Timeout      int    // five-bit field of the local ACK timeout, hardware time; 0: never
	RetryCount   int
	RNRRetry     int
	MinRNRTimer  int
	SendDepth    int
	RecvDepth    int
}

// CreateQP makes a queue pair in INIT.
func (n *NIC) CreateQP(o Options) (*QP, error) {
	if o.MTU == 0 {
		o.MTU = n.c.MTU
	}
	if o.MTU > n.c.MTU {
		return nil, fmt.Errorf("queue pair: MTU %d: the port allows at most %d", o.MTU, n.c.MTU)
	}
	if o.TrafficClass < 0 || o.TrafficClass > 255 || o.Timeout < 0 || o.Timeout > 31 || o.MinRNRTimer < 0 || o.MinRNRTimer > 31 {
		return nil, fmt.Errorf("queue pair: traffic class %d, timeout %d, RNR timer %d: out of range", o.TrafficClass, o.Timeout, o.MinRNRTimer)
	}
	tos := byte(o.TrafficClass)
	if tos == 0 {
		tos = byte(n.c.DSCP) << 2
		if n.c.ECN {
			tos |= ecnECT0
		}
	}
	const numbers = 1 << 24
	if len(n.qps) >= numbers/2 {
		return nil, fmt.Errorf("queue pair: %d exist already", len(n.qps))
	}
	number := n.nextQPN
	for n.qps[number] != nil || number < 2 { // 0 and 1 are the management queue pairs
		number = (number + 1) % numbers
	}
	q := &QP{nic: n, pd: o.PD, local: o.Local, tos: tos, psn: n.c.Random() & 0xffffff, index: -1}
	m, err := qp.New(qp.Config{
		QPN: number, FirstPSN: q.psn, MTU: o.MTU,
		Timeout: n.c.Scale.Time(qp.AckTimeout(o.Timeout)), RetryCount: o.RetryCount, RNRRetry: o.RNRRetry,
		MinRNRTimer: uint8(o.MinRNRTimer), RNRScale: n.c.Scale, SendDepth: o.SendDepth, RecvDepth: o.RecvDepth,
		AckEvery: n.c.AckEvery, Window: n.c.Window, CatchUp: n.c.CatchUp, Overhead: Overhead, Rate: n.c.Rate,
	}, q, &n.counters.Counters)
	if err != nil {
		return nil, err
	}
	q.m = m
	q.rp = dcqcn.NewRP(n.c.Params, n.c.Rate)
	n.nextQPN = (number + 1) % numbers
	n.qps[number] = q
	d := n.domains[o.PD]
	if d == nil {
		d = &domain{}
		n.domains[o.PD] = d
	}
	d.made++
	d.live++
	q.place = d.made
	return q, nil
}

// Destroy removes the queue pair at now. Packets for it are dropped from now on.
func (q *QP) Destroy(now time.Duration) {
	n := q.nic
	if n.gate != nil {
		n.gate.Gone(now, q)
	}
	if q.policy != nil {
		q.policy.close()
		q.policy = nil
	}
	if d := n.domains[q.pd]; d != nil && n.qps[q.m.QPN()] == q {
		if d.live--; d.live == 0 {
			delete(n.domains, q.pd)
		}
	}
	n.due.remove(q)
	delete(n.qps, q.m.QPN())
	n.finished = slices.DeleteFunc(n.finished, func(f *QP) bool { return f == q })
	for _, l := range n.limiters {
		if l.owner == q {
			*l = limiter{}
		}
	}
}

// Connect moves to RTS towards a queue pair at remote, at now. sport is the UDP source port of all it sends. The life of its policies
// begins.
func (q *QP) Connect(now time.Duration, remote [4]byte, qpn, psn uint32, sport uint16) error {
	q.remote, q.sport = remote, sport
	if err := q.m.Connect(qpn&0xffffff, psn); err != nil {
		return err
	}
	q.nic.watch(q)
	return q.nic.equip(now, q)
}

// QPN is the number, PSN the first one sent, State the state.
func (q *QP) QPN() uint32     { return q.m.QPN() }
func (q *QP) PSN() uint32     { return q.psn }
func (q *QP) State() qp.State { return q.m.State() }

// Remote is the peer's address and queue pair number.
func (q *QP) Remote() ([4]byte, uint32) { return q.remote, q.m.Peer() }

// SrcPort is the UDP source port.
func (q *QP) SrcPort() uint16 { return q.sport }

// RP is the reaction point, to look at.
func (q *QP) RP() *dcqcn.RP { return &q.rp }

// Rate is the present sending rate.
func (q *QP) Rate() units.Rate { return q.m.Rate() }

// Queued is the number of work requests that have not completed.
func (q *QP) Queued() int { return q.m.Queued() }

// Post takes a work request at now. Its bytes must lie in Options.Local.
func (q *QP) Post(now time.Duration, w qp.WorkRequest) error {
	if end := w.Local + uint64(w.Length); end < w.Local || end > uint64(len(q.local)) {
		return fmt.Errorf("post %v: %d bytes at %d: the buffer has %d", w.Op, w.Length, w.Local, len(q.local))
	}
	err := q.m.Post(now, w)
	if g := q.nic.gate; g != nil && err == nil && q.m.State() == qp.Ready {
		g.Posted(now, q, q.m.Posted()-1, w.Length)
	}
	q.nic.settle(q)
	return err
}

// PostRecv takes a receive buffer within Options.Local.
func (q *QP) PostRecv(r qp.RecvRequest) error {
	if end := r.Local + uint64(r.Length); end < r.Local || end > uint64(len(q.local)) {
		return fmt.Errorf("post RECV: %d bytes at %d: the buffer has %d", r.Length, r.Local, len(q.local))
	}
	err := q.m.PostRecv(r)
	q.nic.settle(q)
	return err
}

// Poll takes the oldest completion.
func (q *QP) Poll() (qp.Completion, bool) { return q.m.Poll() }

// Writable implements qp.Memory.
func (q *QP) Writable(rkey uint32, va uint64, length uint32) bool {
	r := q.nic.regions[rkey]
	return r != nil && r.PD == q.pd && va >= r.VA && va-r.VA <= uint64(len(r.Mem)) && uint64(length) <= uint64(len(r.Mem))-(va-r.VA)
}

// WriteRemote implements qp.Memory. A region that was closed inside a message takes no more of it.
func (q *QP) WriteRemote(rkey uint32, va uint64, b []byte) {
	if q.Writable(rkey, va, uint32(len(b))) {
		r := q.nic.regions[rkey]
		copy(r.Mem[va-r.VA:], b)
	}
}

// WriteLocal implements qp.Memory.
func (q *QP) WriteLocal(local uint64, b []byte) { copy(q.local[local:], b) }

// limiterOf is the CNP limiter that q's marks fall under.
func (n *NIC) limiterOf(q *QP) *limiter {
	var key [4]byte
	switch n.c.Params.CNPScope {
	case dcqcn.PerQP:
		return &q.np
	case dcqcn.PerIP:
		key = q.remote
	}
	l := n.limiters[key]
	if l == nil {
		l = &limiter{}
		n.limiters[key] = l
	}
	return l
}

// marked handles a CE mark on a packet for q. Under a shared limiter the CNP goes to the queue pair marked last.
func (n *NIC) marked(now time.Duration, q *QP) {
	l := n.limiterOf(q)
	before := l.owner
	l.owner = q
	if l.CE(now, n.c.Params.MinCNPInterval) {
		q.cnp = true
	}
	if before != nil && before != q {
		n.settle(before)
	}
	n.settle(q)
}

// congested handles a CNP for q.
func (n *NIC) congested(now time.Duration, q *QP) {
	if !n.c.DCQCN && q.policy == nil || q.m.State() != qp.Ready {
		n.counters.RPCNPIgnored++
		return
	}
	n.counters.RPCNPHandled++
	if q.policy != nil {
		q.policy.next.CNPs++
		n.consult(now, q)
		n.settle(q)
		return
	}
	if q.rp.CNP(now) {
		n.counters.RPCuts++
	}
	q.m.SetRate(now, q.rp.Rate())
	n.settle(q)
}

// tick runs q's timers due at now.
func (n *NIC) tick(now time.Duration, q *QP) {
	if p := q.policy; p != nil && p.poll > 0 && p.pollAt <= now && q.m.Queued() > 0 {
		n.consult(now, q)
	}
	if !n.c.DCQCN {
		return
	}
	if at, ok := q.rp.Deadline(); q.policy == nil && ok && at <= now {
		q.rp.Tick(now)
		q.m.SetRate(now, q.rp.Rate())
	}
	if l := n.limiterOf(q); l.owner == q {
		if at, ok := l.Deadline(); ok && at <= now && l.Tick(now, n.c.Params.MinCNPInterval) {
			q.cnp = true
		}
	}
}

// settle puts q into its place in the heap after anything about it has changed.
func (n *NIC) settle(q *QP) {
	if !q.listed && q.m.Completed() > 0 {
		q.listed = true
		n.finished = append(n.finished, q)
	}
	if q.cnp {
		n.due.put(q, 0)
		return
	}
	at, ok := q.m.Deadline()
	earlier := func(t time.Duration, has bool) {
		if has && (!ok || t < at) {
			at, ok = t, true
		}
	}
	if p := q.policy; p != nil && p.poll > 0 && q.m.Queued() > 0 {
		earlier(p.pollAt, true)
	}
	if n.c.DCQCN {
		if q.policy == nil {
			earlier(q.rp.Deadline())
		}
		if n.c.Params.CNPScope == dcqcn.PerQP {
			earlier(q.np.Deadline())
		} else if l := n.limiterOf(q); l.owner == q {
			earlier(l.Deadline())
		}
	}
	if !ok {
		n.due.remove(q)
		return
	}
	n.due.put(q, at)
}
