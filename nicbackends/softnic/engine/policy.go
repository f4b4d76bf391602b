package engine

import (
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/qp"
)

// Program makes a policy for each queue pair: a congestion control that takes the place of the NIC's own reaction point. CNPs
// are sent to the peers as before.
type Program interface {
	// New makes the policy of a queue pair whose life begins at now; seed is that of its random numbers.
	New(now time.Duration, seed uint64) (Policy, error)
	// Poll is how often a policy wants to be called when nothing happens, while its queue pair has work; 0: never.
	Poll() time.Duration
}

// Policy decides for one queue pair. All times and rates are those of hardware: the NIC applies its time scale.
type Policy interface {
	// Flush takes what happened since the last call and says what to do.
	Flush(*Signals) Decision
	// Close ends the policy's life.
	Close()
}

// Signals are what a policy is told.
type Signals struct {
	Now      time.Duration // since the NIC began
	Feedback qp.Feedback
	CNPs     int // RoCE echoes no marks: a CNP is all that the sender learns of them
	Sent     int // bytes of payload sent since the last call
	InFlight int // bytes sent and not acknowledged
	Backlog  int // work requests that have not completed
	MTU      int // bytes of payload in a full packet
}

// Decision is what a policy wants. Zero leaves a control alone.
type Decision struct {
	Window int64      // bytes in flight
	Rate   units.Rate // of the hardware
	Ran    bool       // a trigger fired
	Failed bool       // the policy has stopped: the queue pair goes on as it is
}

// policyState is a queue pair's policy with what has happened since it was last asked.
type policyState struct {
	Policy
	next   Signals
	pollAt time.Duration
	last   Decision
	calls  uint64
	failed bool
}

// SetProgram gives every queue pair, present and future, a policy of p; nil takes them away. Queue pairs begin at line rate.
func (n *NIC) SetProgram(now time.Duration, p Program) error {
	n.program = p
	for _, q := range n.qps {
		if err := n.equip(now, q); err != nil {
			return err
		}
	}
	n.SetDCQCN(now, n.c.DCQCN)
	return nil
}

// Program is the one that is set; nil: none.
func (n *NIC) Program() Program { return n.program }

// equip gives q its policy.
func (n *NIC) equip(now time.Duration, q *QP) error {
	if q.policy != nil {
		q.policy.Close()
		q.policy = nil
		q.m.SetWindow(now, n.c.Window)
	}
	if n.program == nil {
		return nil
	}
	p, err := n.program.New(n.hardware(now), uint64(n.c.Random())<<32|uint64(n.c.Random()))
	if err != nil {
		return err
	}
	q.policy = &policyState{Policy: p, pollAt: now}
	q.m.Watch()
	n.consult(now, q)
	return nil
}

// hardware is a time of this NIC as hardware would count it.
func (n *NIC) hardware(t time.Duration) time.Duration {
	return time.Duration(float64(t) / n.c.Scale.Factor())
}

// consult asks the policy of q what to do after something happened.
func (n *NIC) consult(now time.Duration, q *QP) {
	p := q.policy
	s := &p.next
	s.Now, s.MTU, s.Backlog = n.hardware(now), q.m.MTU(), q.m.Queued()
	s.InFlight = q.m.Outstanding() * q.m.MTU()
	s.Feedback, _ = q.m.TakeFeedback()
	s.Feedback.RTT = n.hardware(s.Feedback.RTT)
	d := p.Flush(s)
	p.next = Signals{}
	if d.Ran {
		p.calls++
		n.counters.PolicyRuns++
		if d.Window != p.last.Window || d.Rate != p.last.Rate {
			n.counters.PolicyChanges++
		}
	}
	if d.Failed && !p.failed {
		p.failed = true
		n.counters.PolicyFailures++
	}
	p.last = d
	if d.Window > 0 {
		q.m.SetWindow(now, int(min(d.Window/int64(q.m.MTU()), 1<<20)))
	}
	if d.Rate > 0 {
		q.m.SetRate(now, max(min(n.c.Scale.Rate(d.Rate), n.c.Rate), 1))
	}
	if every := n.program.Poll(); every > 0 {
		p.pollAt = now + n.c.Scale.Time(every)
	}
}

// Policy says how often q's policy ran, what it wants, and whether it has failed; ok is false without one.
func (q *QP) Policy() (calls uint64, last Decision, ok bool) {
	if q.policy == nil {
		return 0, Decision{}, false
	}
	return q.policy.calls, q.policy.last, true
}
