package fabric

import "math"

// never is a time that does not come.
const never = math.MaxInt64

// timeline finds the earliest of a fixed set of sources, each with at most one pending time, in a tournament tree. Of
// equal times the source with the lower number wins, which makes the order of events total.
type timeline struct {
	at     []int64
	winner []int32 // winner[1] is the root; leaves start at len(at)
}

func newTimeline(sources int) timeline {
	n := 1
	for n < sources {
		n *= 2
	}
	t := timeline{at: make([]int64, n), winner: make([]int32, 2*n)}
	for i := range t.at {
		t.at[i] = never
		t.winner[n+i] = int32(i)
	}
	for i := n - 1; i >= 1; i-- {
		t.winner[i] = t.winner[2*i]
	}
	return t
}

// set moves a source to time at.
func (t *timeline) set(source int, at int64) {
	t.at[source] = at
	for i := (len(t.at) + source) / 2; i >= 1; i /= 2 {
		a, b := t.winner[2*i], t.winner[2*i+1]
		if t.at[b] < t.at[a] {
			a = b
		}
		t.winner[i] = a
	}
}

func (t *timeline) first() (source int, at int64) {
	w := t.winner[1]
	return int(w), t.at[w]
}

// serialiser is the sending end of a link: when it is free, with the part of a nanosecond that integer times lose, so
// that the rate is exact over any number of packets.
type serialiser struct {
	free int64 // ns
	rem  int64 // 1/rate ns
}

// send returns when the last bit of size bytes is out that are ready at time at.
func (s *serialiser) send(at int64, size int, rate int64) int64 {
	if at > s.free {
		s.free, s.rem = at, 0
	}
	bits := int64(size)*8e9 + s.rem
	s.free += bits / rate
	s.rem = bits % rate
	return s.free
}
