package dcqcn

import (
	"math"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
)

// Phase is what the reaction point did last.
type Phase uint8

// The phases of rate recovery, and the two events that are none.
const (
	Idle         Phase = iota // at line rate, no state kept
	Cut                       // a CNP lowered the rate
	FastRecovery              // half-way back to the target
	Additive                  // target raised by AI
	Hyper                     // target raised by HAI
)

// String is the phase in lower_snake.
func (p Phase) String() string {
	return [...]string{"idle", "cut", "fast_recovery", "additive", "hyper"}[min(p, Hyper)]
}

// RP is the reaction point of one QP (SIGCOMM'15, section 5 and figure 7).
//
//	                CNP: cut                       CNP: cut
//	   idle ---------------------> limited ---------------------+
//	(line rate) <----------------- (timers run) <---------------+
//	             rate back at line
//
// The zero value is not usable; take one from NewRP. Not safe for concurrent use.
type RP struct {
	p    Params
	line float64 // bit/s

	rc, rt float64 // current and target rate, bit/s
	alpha  float64
	q10    int   // alpha in 1/1024, NVIDIA form
	t, bc  int   // rate timer and byte counter events since the last cut
	bytes  int64 // sent since the last byte counter event
	phase  Phase

	limited bool // timers run
	alphaAt time.Duration
	rateAt  time.Duration
	cutAt   time.Duration
	wasCut  bool
}

// NewRP starts at line rate. p must be valid and in the time of the caller (see Params.Scale).
func NewRP(p Params, line units.Rate) RP {
	r := RP{p: p, line: float64(line)}
	r.release()
	return r
}

// release drops the limiter's state: the paper's RP keeps none for a flow at line rate, so the next CNP meets the
// initial alpha again.
func (r *RP) release() {
	r.rc, r.rt = r.line, r.line
	r.alpha, r.q10 = r.p.InitialAlpha, int(math.Round(r.p.InitialAlpha*1023))
	r.t, r.bc, r.bytes = 0, 0, 0
	r.limited, r.phase = false, Idle
}

// Rate is the rate that the QP may send at now, in bit/s.
func (r *RP) Rate() units.Rate { return units.Rate(r.rc) }

// Target is the rate that recovery heads for.
func (r *RP) Target() units.Rate { return units.Rate(r.rt) }

// Alpha is the congestion estimate, 0 to 1.
func (r *RP) Alpha() float64 {
	if r.p.Form == NVIDIA {
		return float64(r.q10) / 1024
	}
	return r.alpha
}

// Phase is what happened last.
func (r *RP) Phase() Phase { return r.phase }

// CNP handles one CNP that arrived at now; timers due before now run first, one due at now is restarted instead. It
// returns false, and changes nothing, when the last cut was less than ReducePeriod ago (or at the same instant).
func (r *RP) CNP(now time.Duration) bool {
	r.advance(now, false)
	if r.wasCut && (now <= r.cutAt || now-r.cutAt < r.p.ReducePeriod) {
		return false
	}
	r.cut()
	r.wasCut, r.cutAt = true, now
	r.limited = true
	r.alphaAt, r.rateAt = now+r.p.AlphaTimer, now+r.p.RateTimer
	return true
}

func (r *RP) cut() {
	r.rt = r.rc
	if r.p.Form == NVIDIA {
		r.q10 = nvAlpha(r.q10, r.p.DceTCPG, true)
		r.rc = nvCut(r.rc, r.q10, r.p.Gd, r.p.MinDecFac)
	} else {
		r.rc *= 1 - r.alpha/2
		r.alpha = float64((1-r.p.G)*r.alpha) + r.p.G
	}
	r.rc = max(r.rc, min(float64(r.p.MinRate), r.line))
	r.t, r.bc, r.bytes = 0, 0, 0
	r.phase = Cut
}

// nvAlpha is NVIDIA's update of alpha in 1/1024.
func nvAlpha(alpha, g int, cnp bool) int {
	alpha = alpha * g / 1024
	if cnp {
		alpha += 1024 - g
	}
	return alpha
}

// nvCut is NVIDIA's cut: rate*(1 - alpha/2^gd), at least minDecFac percent of it. The amount taken off is rounded
// down, as a shift does.
func nvCut(rate float64, alpha, gd, minDecFac int) float64 {
	off := math.Floor(rate * float64(alpha) / float64(uint(1)<<gd))
	return max(rate-off, rate*float64(minDecFac)/100)
}

// Sent counts n bytes put on the wire at now.
func (r *RP) Sent(now time.Duration, n int) {
	r.Tick(now)
	if !r.limited {
		return
	}
	for r.bytes += int64(n); r.limited && r.bytes >= r.p.ByteCounter; r.bytes -= r.p.ByteCounter {
		r.byteEvent()
	}
}

// Tick runs the timers due at now, in the order of their deadlines.
func (r *RP) Tick(now time.Duration) { r.advance(now, true) }

func (r *RP) advance(now time.Duration, inclusive bool) {
	due := func(at time.Duration) bool { return at < now || inclusive && at == now }
	for r.limited && (due(r.alphaAt) || due(r.rateAt)) {
		if r.alphaAt <= r.rateAt {
			r.alphaEvent()
			r.alphaAt += r.p.AlphaTimer
		} else {
			r.rateAt += r.p.RateTimer
			r.rateEvent()
		}
	}
}

// Deadline is when Tick has to be called; false at line rate.
func (r *RP) Deadline() (time.Duration, bool) {
	return min(r.alphaAt, r.rateAt), r.limited
}

func (r *RP) alphaEvent() {
	if r.p.Form == NVIDIA {
		r.q10 = nvAlpha(r.q10, r.p.DceTCPG, false)
		return
	}
	r.alpha *= 1 - r.p.G
}

func (r *RP) rateEvent() { r.t++; r.increase() }
func (r *RP) byteEvent() { r.bc++; r.increase() }

func (r *RP) increase() {
	switch {
	case max(r.t, r.bc) <= r.p.F:
		r.phase = FastRecovery
	case min(r.t, r.bc) > r.p.F:
		r.phase = Hyper
		step := float64(r.p.HAI)
		if r.p.HAIScaled {
			step *= float64(min(r.t, r.bc) - r.p.F)
		}
		r.rt += step
	default:
		r.phase = Additive
		r.rt += float64(r.p.AI)
	}
	r.rt = min(r.rt, r.line)
	r.rc = min((r.rt+r.rc)/2, r.line)
	// Halving the distance never closes it: within 1 bit/s of the line the limiter is released.
	if r.line-r.rc < 1 {
		r.release()
	}
}
