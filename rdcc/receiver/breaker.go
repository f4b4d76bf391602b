package receiver

import (
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// breaker takes U away from all associations while unscheduled data gets lost (Congestion Control Considerations).
type breaker struct {
	threshold float64
	hold      time.Duration // of the next trip
	open      bool
	until     time.Duration // held open at least
	lastLoss  time.Duration

	buckets [breakerBuckets]lossBucket
	current int64 // number of the bucket that is being filled
}

const (
	breakerBuckets = 10
	bucketTime     = breakerWindow / breakerBuckets
)

type lossBucket struct{ announced, lost uint64 }

func (b *breaker) init(c *Config) { b.threshold, b.hold = c.BreakerThreshold, c.BreakerHold }

// roll empties the buckets that time has left behind.
func (b *breaker) roll(now time.Duration) {
	n := int64(now / bucketTime)
	for range min(n-b.current, breakerBuckets) {
		b.current++
		b.buckets[b.current%breakerBuckets] = lossBucket{}
	}
	if n > b.current {
		b.current = n
	}
}

// rate is the share of announced octets that was lost in the last second.
func (b *breaker) rate() float64 {
	var s lossBucket
	for _, x := range b.buckets {
		s.announced += x.announced
		s.lost += x.lost
	}
	if s.lost == 0 {
		return 0
	}
	return float64(s.lost) / float64(max(s.announced, s.lost))
}

// lost notes unscheduled octets whose fate is known.
func (b *breaker) lost(r *Receiver, announced, lost uint64) {
	b.roll(r.now)
	s := &b.buckets[b.current%breakerBuckets]
	s.announced += announced
	s.lost += lost
	if lost == 0 {
		return
	}
	r.Counters.UnscheduledLost += lost
	b.lastLoss = r.now
	if b.open || b.rate() <= b.threshold || !r.on(rdcc.RuleBreaker) {
		return
	}
	b.open, b.until = true, r.now+b.hold
	if r.on(rdcc.RuleBreakerDoubles) {
		b.hold = min(2*b.hold, breakerMaxHold)
	}
	r.Counters.BreakerTrips++
	r.emit(Event{Kind: BreakerOpened})
	r.params.changed(r)
}

// next is when the breaker may close.
func (b *breaker) next() (time.Duration, bool) {
	return max(b.until, b.lastLoss+breakerWindow), b.open
}

// breakerDue closes it once it was held long enough and a second was clean: with U at zero there is no loss to see, so that
// time stands in for a loss rate below a tenth (decision 22).
func (r *Receiver) breakerDue() {
	b := &r.breaker
	at, open := b.next()
	if !r.on(rdcc.RuleBreakerHolds) {
		at = 0
	}
	if !open || r.now < at {
		return
	}
	if b.roll(r.now); b.rate() >= b.threshold/10 && r.on(rdcc.RuleBreakerHolds) {
		b.lastLoss = r.now
		return
	}
	b.open = false
	r.emit(Event{Kind: BreakerClosed})
	r.params.changed(r)
}
