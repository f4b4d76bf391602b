package receiver

import (
	"math/bits"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// Params are what ASSOC_ACCEPT tells a sender, beside its U.
type Params struct {
	Jitter     time.Duration // J
	Backlog    uint32        // N_cu
	Lifetime   time.Duration // of grants
	CreditUnit uint32
}

// params is what senders should have, and how far the walk that tells them has come.
type params struct {
	Params
	version uint16 // of Params; one that is behind gets an update
	target  int64  // U that each association should have
	short   bool   // one got less than the target
	walking bool
	cursor  int32
	left    int32
}

// How many associations the walk looks at: never all at once (decision 19 has it for rates).
const (
	walkOnEvent   = 2
	walkOnAdvance = 256
)

func (p *params) init(c *Config) {
	p.Params = Params{Jitter: c.Jitter, Backlog: c.Backlog, Lifetime: c.Lifetime, CreditUnit: uint32(c.CreditUnit)}
}

// hold is how long unscheduled data can be on its way beside 2 D_max: J and the default lifetime.
func (p *Params) hold() time.Duration { return p.Jitter + p.Lifetime }

// Params are the current ones.
func (r *Receiver) Params() Params { return r.params.Params }

// SetParams changes the parameters; every association is told by a Parameter Update.
func (r *Receiver) SetParams(now time.Duration, p Params) {
	r.clock(now)
	r.params.Params = p
	r.params.version++
	r.params.walk(r)
	r.step()
}

func (p *params) walk(r *Receiver) {
	p.walking, p.left, p.short = true, int32(len(r.assocs)), false
}

// changed looks whether the number of associations asks for another U. It halves when they double, so that nearly all of
// them need no update when one comes.
func (p *params) changed(r *Receiver) {
	c := &r.cfg
	n := int64(max(r.live, c.ExpectedSenders, 1))
	each := c.Gu / n
	if n > int64(c.ExpectedSenders) {
		each = c.Gu >> bits.Len64(uint64(n-1))
	}
	each = max(each, c.MinU) // fewer get it, then
	if each = min(each, c.U, c.Gu); r.breaker.open {
		each = 0
	}
	if each == p.target {
		return
	}
	p.target = each
	p.walk(r)
}

// freed gives what others had to those who got less.
func (p *params) freed(r *Receiver) {
	p.changed(r)
	if p.short && !p.walking {
		p.walk(r)
	}
}

// walk brings the next n associations up to date.
func (r *Receiver) walk(n int) {
	p := &r.params
	for ; p.walking && n > 0; n-- {
		if p.left == 0 || len(r.assocs) == 0 {
			p.walking = false
			return
		}
		if !r.out.roomy() {
			return
		}
		p.left--
		if p.cursor++; int(p.cursor) >= len(r.assocs) {
			p.cursor = 0
		}
		if r.assocs[p.cursor].used {
			r.adjust(p.cursor)
		}
	}
}

// update is an association's U, and the Parameter Update that is under way.
type update struct {
	u, was   int64         // newest U that was sent, and what the sender may still act on
	born     time.Duration // of the association
	sent     time.Duration // last transmission
	retry    time.Duration // next one
	backoff  time.Duration
	hold     time.Duration // longest J and lifetime that the sender may still act on
	holdNew  time.Duration // of what was sent since the update began
	version  uint16
	tries    uint8
	inFlight bool
	wants    bool // another is due once 2 D_max have passed
	earliest time.Duration
}

func (u *update) next() (time.Duration, bool) {
	switch {
	case u.inFlight:
		return u.retry, true
	case u.wants:
		return u.earliest, true
	}
	return 0, false
}

// may is the U that the sender may act on: the larger of two while an update is unacknowledged (Association Establishment).
func (r *Receiver) may(a *association) int64 {
	if a.update.inFlight && r.on(rdcc.RuleLargerUntilAcked) {
		return max(a.update.u, a.update.was)
	}
	return a.update.u
}

// recount brings the association's share of sumU up to date: what it may send, or what it has announced.
func (r *Receiver) recount(a *association) {
	share := max(r.may(a), a.unscheduled)
	if share < a.share {
		defer r.params.freed(r)
	}
	r.sumU += share - a.share
	a.share = share
}

// affordU is the most that the association's U can be while the sum stays within G_u.
func (r *Receiver) affordU(a *association) int64 {
	if !r.on(rdcc.RuleSumU) {
		return r.params.target
	}
	free := r.cfg.Gu - r.sumU + a.share
	if free >= r.params.target {
		return r.params.target
	}
	r.params.short = true
	if free < r.cfg.MinU {
		return 0
	}
	return free
}

func (r *Receiver) firstU(a *association) {
	a.update.u = r.affordU(a)
	a.update.version = r.params.version
	r.recount(a)
}

// adjust starts an update when the association's parameters are not what they should be. There is one in flight at a time,
// and the next starts no sooner than the last acknowledgments of the previous can have come (decision 8).
func (r *Receiver) adjust(i int32) {
	a, u := &r.assocs[i], &r.assocs[i].update
	if u.inFlight && r.on(rdcc.RuleOneUpdate) {
		u.wants = true
		return
	}
	target := r.affordU(a)
	if target > u.u && target < r.params.target && u.u > 0 {
		target = u.u // not worth an update of its own
	}
	if target == u.u && u.version == r.params.version {
		u.wants = false
		return
	}
	if r.now < u.earliest && r.on(rdcc.RuleUpdateSpacing) {
		u.wants = true
		r.armAssoc(i)
		return
	}
	u.was, u.u = max(u.was, u.u), target
	u.inFlight, u.wants, u.tries = true, false, 0
	u.version = r.params.version
	u.holdNew = 0
	u.backoff = max(firstUpdateRetry, 2*r.cfg.Fabric.BaseRTT)
	r.recount(a)
	r.sendUpdate(i)
}

// firstUpdateRetry is when an update is sent again, at first: as for ASSOC_REQUEST, whose exchange it turns around.
const firstUpdateRetry = time.Millisecond

// maxUpdateRetry bounds the doubling.
const maxUpdateRetry = time.Second

func (r *Receiver) sendUpdate(i int32) {
	u := &r.assocs[i].update
	r.sendAccept(i, rdcc.FlagParameterUpdate)
	r.Counters.UpdatesSent++
	u.tries = min(u.tries+1, 100)
	u.sent, u.earliest = r.now, r.now+2*r.cfg.Fabric.DMax
	u.retry = r.now + u.backoff
	if r.on(rdcc.RuleUpdateBackoff) {
		u.backoff = min(2*u.backoff, maxUpdateRetry)
	}
	r.armAssoc(i)
}

func (r *Receiver) updateDue(i int32) {
	u := &r.assocs[i].update
	switch {
	case u.inFlight && r.now >= u.retry:
		if r.on(rdcc.RuleUpdateRetransmitted) {
			r.sendUpdate(i)
		} else {
			u.retry = r.now + maxUpdateRetry
		}
	case !u.inFlight && u.wants && r.now >= u.earliest:
		r.adjust(i)
	}
}

// acknowledged ends the update in flight.
func (r *Receiver) acknowledged(i int32) {
	a, u := &r.assocs[i], &r.assocs[i].update
	if !u.inFlight {
		r.Counters.AcksIgnored++
		return
	}
	r.Counters.UpdatesAcked++
	if u.tries == 1 { // else it is unknown which transmission it answers
		r.rttSample(a, r.now-u.sent)
	}
	u.inFlight, u.was, u.hold = false, 0, u.holdNew
	if u.version != r.params.version {
		u.wants = true
	}
	r.recount(a)
	if u.wants {
		r.adjust(i)
	}
}
