package engine

import (
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/qp"
)

// Program makes a policy for each queue pair: a congestion control that takes the place of the NIC's own reaction point. CNPs
// are sent to the peers as before.
type Program interface {
	// New makes the policy of a queue pair whose life begins at now; seed is that of its random numbers.
	New(now time.Duration, seed uint64) (Policy, error)
	// Poll is how often a policy wants to be called when nothing happens, while its queue pair has work; 0: never.
	Poll() time.Duration
	// Controls has a bit for each control that its policies set: inventory.ChooseHandlers tells by them what excludes each other.
	Controls() uint64
}

// Policy decides for one queue pair. All times and rates are those of hardware: the NIC applies its time scale.
type Policy interface {
	// Flush takes what happened since the last call and says what to do. Signals are shared with other policies of the queue pair.
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
	Waiting  int // bytes that wait to be sent
	MTU      int // bytes of payload in a full packet
}

// Decision is what a policy wants. Zero leaves a control alone.
type Decision struct {
	Window int64      // bytes in flight
	Rate   units.Rate // of the hardware
	Probe  bool       // the round trip of the next packet is to be measured (Feedback.Probe)
	Fired  uint64     // triggers that made it run, a bit each; 0: it did not
	Failed bool       // the policy has stopped: the queue pair goes on as it is
}

// Rule gives a program to the queue pairs that it matches.
type Rule struct {
	Match   inventory.HandlerMatch
	Program Program // nil: none, and no rule behind it is looked at
}

// PolicyCounters count what the policies of one rule did since it was set.
type PolicyCounters struct {
	Flows    uint64 // queue pairs that it was given to
	Runs     uint64 // invocations
	Changes  uint64 // invocations after which a window or rate was another
	Failures uint64 // queue pairs whose policy failed and stopped
}

// ruleState is a rule with what came of it.
type ruleState struct {
	Rule
	n PolicyCounters
}

// Call is one invocation of a policy.
type Call struct {
	At       time.Duration // time of the NIC
	QP       *QP
	Rule     int // its place among the rules
	ACKs     int // acknowledgements since its last invocation
	Packets  int // packets that they acknowledged
	Decision Decision
}

// policyState are a queue pair's policies with what has happened since they were last asked.
type policyState struct {
	parts  []policyPart
	next   Signals
	poll   time.Duration // the least of the parts; 0: never
	pollAt time.Duration
	calls  uint64
	last   Decision // of all parts together
}

// policyPart is one policy of a queue pair.
type policyPart struct {
	Policy
	rule    int
	last    Decision
	failed  bool
	acks    int
	packets int
}

// SetRules gives every queue pair, present and future, the policies of the rules that match it (inventory.ChooseHandlers); none
// takes them away. Queue pairs begin at line rate, and their windows at what the NIC has.
func (n *NIC) SetRules(now time.Duration, rules []Rule) error {
	n.rules, n.keys = nil, nil
	for i := range rules {
		n.rules = append(n.rules, &ruleState{Rule: rules[i]})
	}
	for _, r := range n.rules {
		k := inventory.Rule{Match: &r.Match}
		if r.Program != nil {
			k.Controls = r.Program.Controls()
		}
		n.keys = append(n.keys, k)
	}
	for _, q := range n.qps {
		if err := n.equip(now, q); err != nil {
			return err
		}
	}
	n.SetDCQCN(now, n.c.DCQCN)
	return nil
}

// PolicyCounters are those of each rule, in their order.
func (n *NIC) PolicyCounters() []PolicyCounters {
	out := make([]PolicyCounters, len(n.rules))
	for i, r := range n.rules {
		out[i] = r.n
	}
	return out
}

// SetTrace has every invocation told to f, on the NIC's thread; nil ends it.
func (n *NIC) SetTrace(f func(*Call)) { n.trace = f }

// equip gives q its policies. It has to be connected: rules ask where it goes.
func (n *NIC) equip(now time.Duration, q *QP) error {
	if q.policy != nil {
		q.policy.close()
		q.policy = nil
		q.m.SetWindow(now, n.c.Window)
		q.m.SetRate(now, n.c.Rate)
	}
	if len(n.rules) == 0 || q.m.State() != qp.Ready {
		return nil
	}
	chosen := inventory.ChooseHandlers(n.keys, inventory.FlowKey{To: netip.AddrFrom4(q.remote), DSCP: int(q.tos >> 2), QP: q.place})
	if len(chosen) == 0 {
		return nil
	}
	s := &policyState{pollAt: now}
	for _, i := range chosen {
		p, err := n.rules[i].Program.New(n.hardware(now), uint64(n.c.Random())<<32|uint64(n.c.Random()))
		if err != nil {
			s.close()
			return err
		}
		s.parts = append(s.parts, policyPart{Policy: p, rule: i})
		if every := n.rules[i].Program.Poll(); every > 0 && (s.poll == 0 || every < s.poll) {
			s.poll = every
		}
		n.rules[i].n.Flows++
	}
	q.policy = s
	q.m.Watch()
	n.consult(now, q)
	return nil
}

func (s *policyState) close() {
	for i := range s.parts {
		s.parts[i].Close()
	}
}

// hardware is a time of this NIC as hardware would count it.
func (n *NIC) hardware(t time.Duration) time.Duration {
	return time.Duration(float64(t) / n.c.Scale.Factor())
}

// consult asks the policies of q what to do after something happened. Each is told all of it.
func (n *NIC) consult(now time.Duration, q *QP) {
	p := q.policy
	s := &p.next
	s.Now, s.MTU, s.Waiting = n.hardware(now), q.m.MTU(), q.m.Waiting()
	s.InFlight = q.m.Outstanding() * q.m.MTU()
	s.Feedback, _ = q.m.TakeFeedback()
	s.Feedback.RTT, s.Feedback.Probe = n.hardware(s.Feedback.RTT), n.hardware(s.Feedback.Probe)
	p.last = Decision{}
	for i := range p.parts {
		d := n.flush(now, q, &p.parts[i])
		if d.Window > 0 {
			p.last.Window = d.Window
		}
		if d.Rate > 0 {
			p.last.Rate = d.Rate
		}
		p.last.Probe = p.last.Probe || d.Probe
		p.last.Fired |= d.Fired
		p.last.Failed = p.last.Failed || d.Failed
	}
	p.next = Signals{}
	if w := p.last.Window; w > 0 {
		q.m.SetWindow(now, int(min(w/int64(q.m.MTU()), 1<<20)))
	}
	if r := p.last.Rate; r > 0 {
		q.m.SetRate(now, max(min(n.c.Scale.Rate(r), n.c.Rate), 1))
	}
	if p.last.Probe {
		q.m.Probe()
	}
	if p.poll > 0 {
		p.pollAt = now + n.c.Scale.Time(p.poll)
	}
}

// flush asks one policy of q, and counts what it did.
func (n *NIC) flush(now time.Duration, q *QP, part *policyPart) Decision {
	s := &q.policy.next
	part.acks += s.Feedback.Acks
	part.packets += s.Feedback.Packets
	d := part.Flush(s)
	counts := &n.rules[part.rule].n
	if d.Fired != 0 {
		q.policy.calls++
		n.counters.PolicyRuns++
		counts.Runs++
		if d.Window != part.last.Window || d.Rate != part.last.Rate {
			n.counters.PolicyChanges++
			counts.Changes++
		}
		if n.trace != nil {
			n.trace(&Call{At: now, QP: q, Rule: part.rule, ACKs: part.acks, Packets: part.packets, Decision: d})
		}
		part.acks, part.packets = 0, 0
	}
	if d.Failed && !part.failed {
		part.failed = true
		n.counters.PolicyFailures++
		counts.Failures++
	}
	part.last = d
	return d
}

// Policy says how often q's policies ran, what they want together, and whether one has failed; ok is false without any.
func (q *QP) Policy() (calls uint64, last Decision, ok bool) {
	if q.policy == nil {
		return 0, Decision{}, false
	}
	return q.policy.calls, q.policy.last, true
}

// Rules are the places of the rules whose policies decide for q.
func (q *QP) Rules() []int {
	out := []int{}
	if q.policy != nil {
		for i := range q.policy.parts {
			out = append(out, q.policy.parts[i].rule)
		}
	}
	return out
}
