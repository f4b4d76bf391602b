package sender

import (
	"math"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// never is the time of what is not to happen.
const never time.Duration = math.MaxInt64

// timer is an entry of the machine's heap: the earliest of a message's or an association's deadlines.
type timer struct {
	at  time.Duration
	pos int // in the heap, plus one; zero when it is not there
	m   *message
	a   *assoc
}

// timers is a heap with four children a node: the tree is flat, and moving a deadline away touches few lines of cache.
type timers []*timer

func (h *timers) set(t *timer, at time.Duration) {
	if at == never {
		if t.pos != 0 {
			h.remove(t)
		}
		t.at = never
		return
	}
	if t.pos == 0 {
		t.at = at
		*h = append(*h, t)
		t.pos = len(*h)
		h.up(t.pos - 1)
		return
	}
	old := t.at
	t.at = at
	if at < old {
		h.up(t.pos - 1)
	} else if at > old {
		h.down(t.pos - 1)
	}
}

func (h *timers) remove(t *timer) {
	s := *h
	i, last := t.pos-1, s[len(s)-1]
	s[len(s)-1] = nil
	*h = s[:len(s)-1]
	t.pos = 0
	if last == t {
		return
	}
	(*h)[i], last.pos = last, i+1
	h.up(i)
	h.down(last.pos - 1)
}

func (h *timers) up(i int) {
	s := *h
	t := s[i]
	for i > 0 {
		p := (i - 1) / 4
		if s[p].at <= t.at {
			break
		}
		s[i] = s[p]
		s[i].pos = i + 1
		i = p
	}
	s[i], t.pos = t, i+1
}

func (h *timers) down(i int) {
	s := *h
	t := s[i]
	for {
		c := 4*i + 1
		if c >= len(s) {
			break
		}
		for k := c + 1; k < min(c+4, len(s)); k++ {
			if s[k].at < s[c].at {
				c = k
			}
		}
		if t.at <= s[c].at {
			break
		}
		s[i] = s[c]
		s[i].pos = i + 1
		i = c
	}
	s[i], t.pos = t, i+1
}

// Deadline is when Advance has something to do next, if nothing else happens.
func (x *Machine) Deadline() (at time.Duration, ok bool) {
	if len(x.timers) == 0 {
		return 0, false
	}
	return x.timers[0].at, true
}

// Advance moves the machine's time on and does what is due.
func (x *Machine) Advance(now time.Duration) {
	x.clock(now)
	x.due()
	x.settle()
}

// clock takes the caller's time; it never runs back.
func (x *Machine) clock(now time.Duration) { x.now = max(x.now, now) }

func (x *Machine) due() {
	for len(x.timers) > 0 && x.timers[0].at <= x.now {
		t := x.timers[0]
		if t.m != nil {
			x.messageDue(t.m)
		} else {
			x.assocDue(t.a)
		}
	}
}

// messageDue does what is due of a message, and sets its timer anew.
func (x *Machine) messageDue(m *message) {
	if m.progressAt+x.c.Timing.GiveUp <= x.now && x.on(rdcc.RuleGiveUp) {
		x.giveUp(m)
		return
	}
	if m.state == StateUnsched && m.startAt <= x.now {
		x.start(m)
	}
	if m.grantEnd <= x.now {
		x.expire(m)
	}
	if m.requestAt <= x.now {
		x.requestTimeout(m)
	}
	x.arm(m)
}

// arm sets the message's timer to its earliest deadline.
func (x *Machine) arm(m *message) {
	at := min(m.grantEnd, m.requestAt)
	if m.state == StateUnsched {
		at = min(at, m.startAt)
	}
	if x.on(rdcc.RuleGiveUp) {
		at = min(at, m.progressAt+x.c.Timing.GiveUp)
	}
	x.timers.set(&m.timer, at)
}

// RTTSample gives a measured round trip to a receiver: of the transport's acknowledgements, never from request to grant,
// which contains the wait for credit (decision 12).
func (x *Machine) RTTSample(now time.Duration, to Addr, rtt time.Duration) {
	x.clock(now)
	if a := x.byAddr[unmap(to)]; a != nil {
		a.sample(rtt)
	}
}

// sample smooths the round trip as TCP does (RFC 6298).
func (a *assoc) sample(rtt time.Duration) {
	switch {
	case rtt <= 0:
	case a.srtt == 0:
		a.srtt = rtt
	default:
		a.srtt += (rtt - a.srtt) / 8
	}
}

// timeout is the first request timeout: twice the smoothed round trip, within bounds (Credit Requests and Grants).
func (x *Machine) timeout(a *assoc) time.Duration {
	t := x.c.Timing.FirstTimeout
	if a.srtt > 0 && x.on(rdcc.RuleTimeoutTwiceRTT) {
		t = 2 * a.srtt
	}
	if x.on(rdcc.RuleTimeoutLeast) {
		t = max(t, x.c.Timing.MinTimeout)
	}
	return min(t, x.c.Timing.MaxTimeout)
}

// interval is how often SENDER_STATUS is repeated: the smoothed round trip.
func (x *Machine) interval(a *assoc) time.Duration {
	if a.srtt > 0 {
		return a.srtt
	}
	return x.c.Timing.FirstTimeout / 2
}
