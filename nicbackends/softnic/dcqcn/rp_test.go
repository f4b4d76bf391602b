package dcqcn

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pcmlab/pcmlab/internal/units"
)

// model is the reaction point written down slowly: exact rationals, one event at a time, a list of timers that is
// searched anew for each. It shares no arithmetic with RP.
type model struct {
	p                  Params
	line, rc, rt, a    *big.Rat
	t, bc              int
	bytes              int64
	limited            bool
	alphaAt, rateAt    time.Duration
	cutAt              time.Duration
	cuts               int
	one, two, g, lower *big.Rat
}

func newModel(p Params, line units.Rate) *model {
	m := &model{p: p, line: big.NewRat(int64(line), 1), one: big.NewRat(1, 1), two: big.NewRat(2, 1)}
	m.g = new(big.Rat).SetFloat64(p.G)
	m.lower = big.NewRat(min(int64(p.MinRate), int64(line)), 1)
	m.reset()
	return m
}

func (m *model) reset() {
	m.rc, m.rt = new(big.Rat).Set(m.line), new(big.Rat).Set(m.line)
	m.a = new(big.Rat).SetFloat64(m.p.InitialAlpha)
	m.t, m.bc, m.bytes, m.limited = 0, 0, 0, false
}

// round keeps the rationals from growing without bound; 2^-200 is far below what is compared.
func round(r *big.Rat) *big.Rat {
	f := new(big.Float).SetPrec(200).SetRat(r)
	out, _ := f.Rat(nil)
	return out
}

func (m *model) timers(now time.Duration, at bool) {
	for m.limited {
		next, alpha := m.rateAt, false
		if m.alphaAt <= m.rateAt {
			next, alpha = m.alphaAt, true
		}
		if next > now || next == now && !at {
			return
		}
		if alpha {
			m.a = round(new(big.Rat).Mul(m.a, new(big.Rat).Sub(m.one, m.g)))
			m.alphaAt += m.p.AlphaTimer
		} else {
			m.rateAt += m.p.RateTimer
			m.t++
			m.grow()
		}
	}
}

func (m *model) grow() {
	if m.t > m.p.F || m.bc > m.p.F {
		step := m.p.AI
		if m.t > m.p.F && m.bc > m.p.F {
			step = m.p.HAI
		}
		m.rt = new(big.Rat).Add(m.rt, big.NewRat(int64(step), 1))
	}
	if m.rt.Cmp(m.line) > 0 {
		m.rt = new(big.Rat).Set(m.line)
	}
	m.rc = round(new(big.Rat).Quo(new(big.Rat).Add(m.rt, m.rc), m.two))
	if new(big.Rat).Sub(m.line, m.rc).Cmp(m.one) < 0 {
		m.reset()
	}
}

func (m *model) cnp(now time.Duration) {
	m.timers(now, false)
	if m.cuts > 0 && (now == m.cutAt || now < m.cutAt+m.p.ReducePeriod) {
		return
	}
	m.rt = new(big.Rat).Set(m.rc)
	half := new(big.Rat).Quo(m.a, m.two)
	m.rc = round(new(big.Rat).Mul(m.rc, new(big.Rat).Sub(m.one, half)))
	if m.rc.Cmp(m.lower) < 0 {
		m.rc = new(big.Rat).Set(m.lower)
	}
	m.a = round(new(big.Rat).Add(new(big.Rat).Mul(m.a, new(big.Rat).Sub(m.one, m.g)), m.g))
	m.t, m.bc, m.bytes, m.limited = 0, 0, 0, true
	m.alphaAt, m.rateAt, m.cutAt = now+m.p.AlphaTimer, now+m.p.RateTimer, now
	m.cuts++
}

func (m *model) sent(now time.Duration, n int) {
	m.timers(now, true)
	if !m.limited {
		return
	}
	m.bytes += int64(n)
	for m.limited && m.bytes >= m.p.ByteCounter {
		m.bc++
		m.grow()
		m.bytes -= m.p.ByteCounter
	}
}

func drawParams(t *rapid.T) Params {
	p := Defaults()
	p.AlphaTimer = time.Duration(rapid.IntRange(1000, 200000).Draw(t, "alpha_timer"))
	p.RateTimer = time.Duration(rapid.IntRange(1000, 200000).Draw(t, "rate_timer"))
	p.ByteCounter = int64(rapid.IntRange(1000, 100000).Draw(t, "bytes"))
	p.F = rapid.IntRange(0, 6).Draw(t, "f")
	p.ReducePeriod = time.Duration(rapid.IntRange(0, 20000).Draw(t, "reduce"))
	return p
}

func TestRP_agreesWithTheSlowModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t)
		line := units.Rate(rapid.Int64Range(1e7, 4e11).Draw(t, "line"))
		r, m := NewRP(p, line), newModel(p, line)
		var now time.Duration
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 300000).Draw(t, "dt"))
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				r.CNP(now)
				m.cnp(now)
			case 1:
				n := rapid.IntRange(1, 9000).Draw(t, "n")
				r.Sent(now, n)
				m.sent(now, n)
			default:
				r.Tick(now)
				m.timers(now, true)
			}
			rc, _ := m.rc.Float64()
			rt, _ := m.rt.Float64()
			a, _ := m.a.Float64()
			// The release at line rate is a threshold that rounding may cross one step apart; the rates differ by
			// less than 1 bit/s there.
			if math.Abs(r.rc-rc) > 1.5+1e-9*rc || math.Abs(r.rt-rt) > 1.5+1e-9*rt {
				t.Fatalf("step %d: rc %v rt %v, model %v %v", i, r.rc, r.rt, rc, rt)
			}
			if r.limited == m.limited && math.Abs(r.alpha-a) > 1e-9 {
				t.Fatalf("step %d: alpha %v, model %v", i, r.alpha, a)
			}
		}
	})
}

func TestRP_staysWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t)
		p.Form = rapid.SampledFrom([]Form{Paper, NVIDIA}).Draw(t, "form")
		line := units.Rate(rapid.Int64Range(1e5, 4e11).Draw(t, "line"))
		r := NewRP(p, line)
		var now time.Duration
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			before := r
			now += time.Duration(rapid.IntRange(0, 300000).Draw(t, "dt"))
			r.Tick(now - 1)
			ticked := r.Rate()
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				if r.CNP(now); r.Rate() > ticked {
					t.Fatalf("a CNP raised the rate from %v to %v", ticked, r.Rate())
				}
			case 1:
				r.Sent(now, rapid.IntRange(1, 9000).Draw(t, "n"))
			default:
				r.Tick(now)
			}
			if r.Rate() > line || r.Rate() < min(p.MinRate, line) {
				t.Fatalf("rate %v outside [%v, %v]", r.Rate(), p.MinRate, line)
			}
			if r.Target() > line || r.Rate() > r.Target() && r.limited {
				t.Fatalf("rate %v target %v line %v", r.Rate(), r.Target(), line)
			}
			if at, ok := r.Deadline(); ok && at <= now-1 {
				t.Fatalf("deadline %v is not after %v: was %+v", at, now, before)
			}
		}
	})
}

func TestRP_tickOftenOrSeldomIsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t)
		often, seldom := NewRP(p, 25*units.GbitPerSec), NewRP(p, 25*units.GbitPerSec)
		var now time.Duration
		for range 10 {
			end := now + time.Duration(rapid.IntRange(1, 3000000).Draw(t, "dt"))
			for ; now < end; now += 700 {
				often.Tick(now)
			}
			now = end
			often.CNP(now)
			seldom.CNP(now)
			if diff := cmp.Diff(seldom.state(), often.state()); diff != "" {
				t.Fatalf("(-seldom +often)\n%s", diff)
			}
		}
	})
}

func (r *RP) state() []float64 {
	return []float64{r.rc, r.rt, r.alpha, float64(r.t), float64(r.alphaAt), float64(r.rateAt)}
}

func TestRP_oneBatchOfCNPsCutsOnce(t *testing.T) {
	r := NewRP(Defaults(), 40*units.GbitPerSec)
	for i, want := range []bool{true, false, false} {
		if got := r.CNP(time.Millisecond); got != want {
			t.Errorf("CNP %d at the same instant: cut %v, want %v", i, got, want)
		}
	}
	if r.Rate() != 20*units.GbitPerSec {
		t.Errorf("rate %v, want 20Gbit/s", r.Rate())
	}
}

func TestScale_keepsTheTraceInHardwareTerms(t *testing.T) {
	const s = 50
	hw, lab := NewRP(Defaults(), 25*units.GbitPerSec), NewRP(Defaults().Scale(s), 25*units.GbitPerSec/s)
	for i := range 2000 {
		now := time.Duration(i) * 10 * time.Microsecond
		if i%97 == 3 {
			hw.CNP(now)
			lab.CNP(now * s)
		}
		hw.Sent(now, 4096)
		lab.Sent(now*s, 4096)
		if got := lab.rc * s; math.Abs(got-hw.rc) > 1e-6*hw.rc {
			t.Fatalf("at %v: scaled rate is %v in hardware terms, hardware has %v", now, got, hw.rc)
		}
	}
}

func TestNP_neverCloserThanTheInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := time.Duration(rapid.IntRange(0, 100000).Draw(t, "interval"))
		var np NP
		var now, marked time.Duration
		last, sent := time.Duration(-1<<62), false
		waiting := false
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 60000).Draw(t, "dt"))
			sent = false
			if at, ok := np.Deadline(); ok && at <= now {
				sent = np.Tick(now, interval)
				if !sent {
					t.Fatal("a due deadline sent nothing")
				}
			} else if rapid.Bool().Draw(t, "ce") {
				marked = now
				if sent = np.CE(now, interval); !sent {
					waiting = true
				}
			}
			if sent {
				if now-last < interval {
					t.Fatalf("CNPs %v apart, interval %v", now-last, interval)
				}
				last, waiting = now, false
			}
			if at, ok := np.Deadline(); waiting != ok || ok && at > marked+interval {
				t.Fatalf("mark at %v waits %v, deadline %v %v", marked, waiting, at, ok)
			}
		}
	})
}

func TestParams_validate(t *testing.T) {
	if err := Defaults().Validate(); err != nil {
		t.Errorf("Defaults(): %v", err)
	}
	if err := (Params{}).Validate(); err == nil {
		t.Error("the zero Params passed")
	}
}

func BenchmarkRP_sent(b *testing.B) {
	r := NewRP(Defaults(), 25*units.GbitPerSec)
	b.ReportAllocs()
	var now time.Duration
	for b.Loop() {
		now += 1300
		if now%1000000 < 1300 {
			r.CNP(now)
		}
		r.Sent(now, 4096)
	}
}
