package sender

import (
	"fmt"
)

// invariants looks whether what the machine keeps agrees with itself.
func (x *Machine) invariants() error {
	for i, t := range x.timers {
		if t.pos != i+1 || i > 0 && x.timers[(i-1)/4].at > t.at {
			return fmt.Errorf("timer %d of %d is out of place", i, len(x.timers))
		}
	}
	held, shares, messages, least := uint64(0), uint64(0), 0, uint64(noThreshold)
	for n, s := range x.slots {
		if s.a == nil {
			continue
		}
		if s.a.slot != n || x.byAddr[s.a.to] != s.a {
			return fmt.Errorf("association %d is not where it should be", n)
		}
		if err := x.assocInvariants(s.a); err != nil {
			return fmt.Errorf("association %d: %w", n, err)
		}
		if s.a.state == assocOpen {
			least = min(least, s.a.ncu)
		}
		held += s.a.held
		shares += s.a.share
		messages += s.a.messages
	}
	b := &x.backlog
	if held != b.held || shares != b.shares || messages != x.messages.n {
		return fmt.Errorf("held %d and %d, shares %d and %d, messages %d and %d", held, b.held, shares, b.shares, messages, x.messages.n)
	}
	if b.threshold != least {
		return fmt.Errorf("threshold %d, the least of all is %d", b.threshold, least)
	}
	if b.over != (b.held > b.threshold) {
		return fmt.Errorf("held %d, threshold %d, over is %t", b.held, b.threshold, b.over)
	}
	return nil
}

func (x *Machine) assocInvariants(a *assoc) error {
	p := &a.pool
	sum, divided, remaining, n, unsched := uint64(0), uint64(0), uint64(0), 0, 0
	hints := [3]int{}
	highestWanting, lowestHaving := 99, -1
	for m := a.first; m != nil; m = m.next {
		n++
		if x.messages.get(m.id) != m || m.a != a {
			return fmt.Errorf("message %d is not found", m.id)
		}
		if m.transmitted > m.limit || m.limit > m.Length {
			return fmt.Errorf("message %d of %d: transmitted %d, limit %d", m.id, m.Length, m.transmitted, m.limit)
		}
		ahead := m.limit - m.transmitted
		switch {
		case a.kind == grantsPool:
			divided += ahead
		default:
			sum += ahead
			if m.having || m.wanting {
				return fmt.Errorf("message %d is in a pool that is not there", m.id)
			}
			if ahead > 0 && m.grantEnd == never && a.state == assocOpen {
				return fmt.Errorf("message %d holds %d for ever", m.id, ahead)
			}
		}
		if m.having != (a.kind == grantsPool && ahead > 0) {
			return fmt.Errorf("message %d holds %d, having is %t", m.id, ahead, m.having)
		}
		if (m.state == StateScheduled) != (ahead > 0) && m.state != StateUnsched {
			return fmt.Errorf("message %d in %s holds %d", m.id, m.state, ahead)
		}
		if m.state == StateDrained && m.transmitted != m.Length {
			return fmt.Errorf("message %d in DRAINED transmitted %d of %d", m.id, m.transmitted, m.Length)
		}
		remaining += m.Length - m.transmitted
		if m.state.pending() {
			hints[hintOf(m.Hint)]++
		}
		if m.state == StateUnsched {
			unsched++
		}
		if m.wanting && m.Segment == 0 {
			highestWanting = min(highestWanting, int(m.Class))
		}
		if m.having {
			lowestHaving = max(lowestHaving, int(m.Class))
		}
		if m.timer.pos == 0 {
			return fmt.Errorf("message %d in %s has no timer", m.id, m.state)
		}
		if a.state == assocOpen && m.state != StateNew && m.requestAt == never && !m.requestOut && !(m.state == StateScheduled && a.kind != grantsPool) {
			return fmt.Errorf("message %d in %s asks for nothing any more", m.id, m.state)
		}
	}
	if a.kind == grantsPool {
		sum = p.limit - p.used
		if p.used+p.divided > p.limit {
			return fmt.Errorf("pool: used %d, divided %d, limit %d", p.used, p.divided, p.limit)
		}
		if lowestHaving > highestWanting {
			return fmt.Errorf("pool: class %d wants credit while class %d has some", highestWanting, lowestHaving)
		}
		if highestWanting < 99 && p.used+p.divided < p.limit && !x.segmentBlocks(a) {
			return fmt.Errorf("pool: %d are left over, and class %d wants credit", p.limit-p.used-p.divided, highestWanting)
		}
	}
	if sum != a.held || divided != p.divided || remaining != p.remaining || n != a.messages || hints != a.hints || unsched != len(a.unscheduled) {
		return fmt.Errorf("held %d and %d, divided %d and %d, remaining %d and %d, messages %d and %d, hints %v and %v, unscheduled %d and %d",
			sum, a.held, divided, p.divided, remaining, p.remaining, n, a.messages, hints, a.hints, unsched, len(a.unscheduled))
	}
	if (a.holding != 0) != (a.held > 0) {
		return fmt.Errorf("held %d, but the place among the holders is %d", a.held, a.holding)
	}
	return nil
}

// segmentBlocks says that free credit waits until it is a whole segment.
func (x *Machine) segmentBlocks(a *assoc) bool {
	for c := range a.pool.want {
		if m := a.pool.want[c].head; m != nil {
			return m.Segment > 0
		}
	}
	return false
}
