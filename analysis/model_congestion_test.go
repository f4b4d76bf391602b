package analysis

import (
	"encoding/binary"
	"math"
	"sort"
)

// modelScaled is d ns at time scale s (0 means 1).
func modelScaled(d int64, s float64) int64 {
	if s == 0 {
		return d
	}
	return int64(float64(d) * s)
}

// modelGaps are the times between one of ts and the next.
func modelGaps(ts []int64) (gaps []int64) {
	for i := 1; i < len(ts); i++ {
		gaps = append(gaps, ts[i]-ts[i-1])
	}
	return gaps
}

// modelDelays gives, for each CNP from known on, the time since the first CE-marked data packet since the CNP before it.
func modelDelays(list, answers []*modelPacket, known int64) (delays []int64) {
	before := int64(math.MinInt64)
	for _, c := range answers {
		if !c.isCNP() {
			continue
		}
		for _, p := range list {
			if p.isData() && p.ecn == 3 && p.order > before && p.order < c.order {
				if c.order >= known {
					delays = append(delays, c.t-p.t)
				}
				break
			}
		}
		before = c.order
	}
	return delays
}

type modelReaction struct {
	episodes, cut, noCut, recovered, interrupted, unfinished int64
	before, lowest                                           []int64 // bit/s
	recover                                                  []int64 // ns
	seen                                                     int64   // CNPs known to be for the flow
}

// modelReactions follows each episode window by window, with all windows at hand.
func modelReactions(list, answers []*modelPacket, origin int64, scale float64, known int64) (r modelReaction) {
	width := modelScaled(100_000, scale)
	window := func(t int64) int64 { return (t - origin) / width }
	bytes := map[int64]int64{}
	end := int64(-1) // the window of the last packet: those before it are complete
	for _, p := range list {
		if p.isData() {
			bytes[window(p.t)] += int64(p.wire)
			end = max(end, window(p.t))
		}
	}
	var e struct { // the episode
		on, cut                         bool
		t, k, next, before, low, packet int64
	}
	stop := func(kind *int64) {
		e.on = false
		*kind++
		if e.cut {
			r.cut++
			r.before = append(r.before, int64(math.Round(float64(e.before)*8e9/float64(width))))
			r.lowest = append(r.lowest, int64(math.Round(float64(e.low)*8e9/float64(width))))
		}
	}
	follow := func(end int64) { // through all windows before end
		for ; e.on && e.next < end; e.next++ {
			w := e.next
			below := bytes[w]*100 < e.before*95 && e.before-bytes[w] > e.packet
			switch {
			case !e.cut && below:
				e.cut, e.low = true, bytes[w]
			case !e.cut && w == e.k+4:
				stop(&r.noCut)
			case e.cut:
				e.low = min(e.low, bytes[w])
				if !below {
					r.recover = append(r.recover, origin+(w+1)*width-e.t)
					stop(&r.recovered)
				}
			}
		}
	}
	last := int64(0) // window of the CNP before
	for _, c := range answers {
		if !c.isCNP() || c.order < known {
			continue
		}
		r.seen++
		k := window(c.t)
		end = max(end, k)
		follow(k)
		if e.on && e.cut && k >= last+5 {
			stop(&r.interrupted)
		}
		last = k
		if e.on || bytes[k-1] == 0 {
			continue
		}
		r.episodes++
		e.on, e.cut, e.t, e.k, e.next, e.before, e.packet = true, false, c.t, k, k+1, bytes[k-1], 0
		for _, p := range list {
			if p.isData() && p.order < c.order {
				e.packet = max(e.packet, int64(p.wire))
			}
		}
	}
	follow(end)
	if e.on {
		stop(&r.unfinished)
	}
	return r
}

// modelBursts gives the bytes of runs of packets with no gap above gap(packet) between it and the one before, and how long
// each run took.
func modelBursts(list []*modelPacket, gap func(*modelPacket) int64) (sizes, lengths []int64) {
	var before *modelPacket
	var start int64
	for _, p := range list {
		if !p.isData() {
			continue
		}
		if before == nil || p.t-before.t > gap(p) {
			if before != nil {
				lengths = append(lengths, before.t-start)
			}
			sizes = append(sizes, 0)
			start = p.t
		}
		sizes[len(sizes)-1] += int64(p.wire)
		before = p
	}
	if before != nil {
		lengths = append(lengths, before.t-start)
	}
	return sizes, lengths
}

// modelQueue is the queue after each arrival, drained at rate bit/s.
func modelQueue(list []*modelPacket, rate float64) (queue []int64) {
	q := 0.0
	var before int64
	for _, p := range list {
		if !p.isData() {
			continue
		}
		if len(queue) > 0 {
			q = math.Max(0, q-rate/8*float64(p.t-before)/1e9)
		}
		q += float64(p.wire)
		queue = append(queue, int64(q))
		before = p.t
	}
	return queue
}

var modelScopes = []string{ScopeQP, ScopeIPPair, ScopeDestination, ScopePort}

// modelScopeKey says with which other CNPs p is counted.
func modelScopeKey(p *modelPacket, scope string) string {
	port := p.mac
	if port == "" {
		port = p.src
	}
	switch scope {
	case ScopeQP:
		return p.key()
	case ScopeIPPair:
		return p.src + ">" + p.dst
	case ScopeDestination:
		return port + ">" + p.dst
	}
	return port
}

// modelCNPs groups the CNPs of all packets by scope.
func modelCNPs(ps []modelPacket, scope string) map[string][]int64 {
	groups := map[string][]int64{}
	for i := range ps {
		if p := &ps[i]; p.isCNP() {
			k := modelScopeKey(p, scope)
			groups[k] = append(groups[k], p.t)
		}
	}
	return groups
}

// modelPause is one PFC or PAUSE frame for one priority (8 is all: PAUSE).
type modelPause struct {
	t        int64
	src      string
	priority int
	quanta   int
}

// modelPauses reads the pause frames among captured frames.
func modelPauses(p modelPacket) (out []modelPause) {
	be := binary.BigEndian
	switch op := be.Uint16(p.pause); op {
	case 1:
		out = append(out, modelPause{p.t, p.mac, 8, int(be.Uint16(p.pause[2:]))})
	case 0x101:
		for i := range 8 {
			if p.pause[3]>>i&1 == 1 {
				out = append(out, modelPause{p.t, p.mac, i, int(be.Uint16(p.pause[4+2*i:]))})
			}
		}
	}
	return out
}

type modelPaused struct {
	frames, resumes, pauses int64
	paused, longest         int64
	first, last             int64
}

// modelPausePort follows the frames of one port and priority: stretches of pause, then their union.
func modelPausePort(fs []modelPause, rate float64, end int64) (m modelPaused) {
	m.first, m.last = fs[0].t, fs[len(fs)-1].t
	until := int64(math.MinInt64) // the pause that is going on ends then
	var start int64
	closeAt := func(t int64) {
		if until == math.MinInt64 {
			return
		}
		t = min(t, until)
		m.paused += t - start
		m.longest = max(m.longest, t-start)
		until = math.MinInt64
	}
	for _, f := range fs {
		if rate > 0 && until != math.MinInt64 && until <= f.t {
			closeAt(until)
		}
		if f.quanta == 0 {
			m.resumes++
			closeAt(f.t)
			continue
		}
		m.frames++
		if until == math.MinInt64 {
			m.pauses++
			start = f.t
		}
		until = math.MaxInt64 // no rate: until a frame ends it
		if rate > 0 {
			until = f.t + int64(math.Round(float64(f.quanta)*512e9/rate))
		}
	}
	closeAt(end)
	return m
}

func sortedKeys[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
