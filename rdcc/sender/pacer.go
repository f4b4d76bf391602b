package sender

import (
	"math/bits"
	"time"
)

// paceUnits is the window of the pacing rule: the time that ten Credit Units take at the Pacing Rate.
const paceUnits = 10

// pacer remembers what was transmitted within the last window, so that no interval of its length has more than the rate
// allows (Credit Requests and Grants, rule 4). A token bucket would let a full bucket and a full window's flow through. Short
// transmissions are put together; the entry takes the later time, so that the window is never emptied too soon.
type pacer struct {
	entries [paceEntries]struct {
		at     time.Duration
		octets uint64
	}
	first, n int
	sum      uint64
}

const paceEntries = 32

// room is what may be transmitted now, of budget octets a window.
func (p *pacer) room(now, window time.Duration, budget uint64) uint64 {
	for p.n > 0 && p.entries[p.first].at <= now-window {
		p.sum -= p.entries[p.first].octets
		p.first = (p.first + 1) % paceEntries
		p.n--
	}
	return budget - min(p.sum, budget)
}

// sent notes a transmission.
func (p *pacer) sent(now time.Duration, octets, budget uint64) {
	last := &p.entries[(p.first+p.n+paceEntries-1)%paceEntries]
	if p.n > 0 && (last.octets+octets <= budget/(paceEntries/2-1) || p.n == paceEntries || last.at == now) {
		last.at = now
		last.octets += octets
	} else {
		e := &p.entries[(p.first+p.n)%paceEntries]
		e.at, e.octets = now, octets
		p.n++
	}
	p.sum += octets
}

// next is when there is room for more than now.
func (p *pacer) next(window time.Duration) time.Duration {
	if p.n == 0 {
		return never
	}
	return p.entries[p.first].at + window
}

// window is the time that octets take at a rate, rounded up.
func window(octets uint64, rate int64) time.Duration {
	if rate <= 0 {
		return time.Hour // a grant without a rate is ignored; this is for tests that switch that off
	}
	hi, lo := bits.Mul64(octets, 8*uint64(time.Second))
	if hi >= uint64(rate) {
		return never / 2
	}
	w, rest := bits.Div64(hi, lo, uint64(rate))
	if rest > 0 {
		w++
	}
	return time.Duration(min(w, uint64(never/2)))
}

// within is how many octets leave in a time at a rate, rounded down.
func within(d time.Duration, rate int64) uint64 {
	hi, lo := bits.Mul64(uint64(max(d, 0)), uint64(max(rate, 0)))
	if hi >= 8*uint64(time.Second) {
		return 1 << 63
	}
	n, _ := bits.Div64(hi, lo, 8*uint64(time.Second))
	return n
}
