package analysis

import (
	"math"
	"slices"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// Pause times are given in quanta of 512 bit times at the rate of the link (IEEE 802.3 annex 31B, 802.1Qbb).
const pauseQuantum = 512

// pauses follows PFC and PAUSE frames, in order of time: who asked for a pause of which priority, and for how long the other
// side had to be quiet. Nothing is allocated for a frame of a known sender.
type pauses struct {
	nsOfQuantum float64 // 0: the link's rate is not known
	index       map[pauseKey]int32
	all         []paused
}

type pauseKey struct {
	src      [6]byte
	priority int8 // allPriorities for PAUSE
}

const allPriorities = -1

// paused is one sender of pause frames and one priority.
type paused struct {
	pauseKey
	frames, resumes, pauses int64
	firstNS, lastNS         int64
	on                      bool
	since, until            int64
	sum, longest            int64
}

func newPauses(linkRate float64) *pauses {
	p := &pauses{index: map[pauseKey]int32{}}
	if linkRate > 0 {
		p.nsOfQuantum = pauseQuantum * 1e9 / linkRate
	}
	return p
}

// see takes a frame of kind KindPFC or KindPause at ts.
func (p *pauses) see(ts int64, kind roce.Kind, f *roce.Pause) {
	if kind == roce.KindPause {
		p.of(pauseKey{f.Src, allPriorities}, ts).see(ts, f.Quanta[0], p.nsOfQuantum)
		return
	}
	for i, quanta := range f.Quanta {
		if f.ClassEnable>>i&1 != 0 {
			p.of(pauseKey{f.Src, int8(i)}, ts).see(ts, quanta, p.nsOfQuantum)
		}
	}
}

func (p *pauses) of(key pauseKey, ts int64) *paused {
	i, ok := p.index[key]
	if !ok {
		i = int32(len(p.all))
		p.index[key] = i
		p.all = append(p.all, paused{pauseKey: key, firstNS: ts})
	}
	return &p.all[i]
}

func (x *paused) see(ts int64, quanta uint16, nsOfQuantum float64) {
	x.lastNS = ts
	if x.on && nsOfQuantum > 0 && ts > x.until { // it ran out before this frame
		x.end(x.until)
	}
	if quanta == 0 {
		x.resumes++
		if x.on {
			x.end(ts)
		}
		return
	}
	x.frames++
	if !x.on {
		x.on, x.since = true, ts
		x.pauses++
	}
	x.until = ts + int64(math.Round(float64(quanta)*nsOfQuantum)) // a frame replaces the time that is left
}

// end ends the pause that is going on.
func (x *paused) end(at int64) {
	length := max(at-x.since, 0)
	x.sum += length
	x.longest = max(x.longest, length)
	x.on = false
}

// finish gives the senders by address and priority, PAUSE first; lastNS is the end of the capture, and of pauses. p takes no
// frame afterwards.
func (p *pauses) finish(lastNS int64) []PausedPort {
	out := make([]PausedPort, 0, len(p.all))
	slices.SortFunc(p.all, func(a, b paused) int {
		if c := slices.Compare(a.src[:], b.src[:]); c != 0 {
			return c
		}
		return int(a.priority) - int(b.priority)
	})
	for i := range p.all {
		x := &p.all[i]
		port := PausedPort{Src: macString(macNumber(x.src)), PauseFrames: x.frames, ResumeFrames: x.resumes, Pauses: x.pauses, FirstNS: x.firstNS, LastNS: x.lastNS}
		if x.priority != allPriorities {
			port.Priority = ptr(int(x.priority))
		}
		if p.nsOfQuantum > 0 {
			if x.on {
				x.end(min(x.until, lastNS))
			}
			port.PausedNS, port.LongestNS = ptr(x.sum), ptr(x.longest)
		}
		out = append(out, port)
	}
	return out
}

// macNumber is a MAC address as a number, as cnpScopes takes it.
func macNumber(a [6]byte) (n uint64) {
	for _, b := range a {
		n = n<<8 | uint64(b)
	}
	return n
}
