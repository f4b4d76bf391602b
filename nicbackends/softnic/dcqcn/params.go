// Package dcqcn is DCQCN (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015) as a NIC
// runs it: the notification point (NP), which answers CE marks with CNPs, and the reaction point (RP), which turns
// CNPs into a sending rate.
//
// Both are sans-IO machines: time is an argument, the next deadline is returned, nothing inside reads a clock. All
// arithmetic is float64 without fused operations, so that a trace is the same on every architecture.
package dcqcn

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
)

// Scope says which packets share one CNP limiter at the notification point.
type Scope string

// The scopes that NICs offer (NVIDIA: CNP_RES_PRIO_MODE and per-QP/IP/port rate limits).
const (
	PerQP   Scope = "qp"
	PerIP   Scope = "ip"
	PerPort Scope = "port"
)

// Form chooses the arithmetic of the reaction point.
type Form string

// Paper is the form of the SIGCOMM paper with a real-valued alpha; NVIDIA the published firmware form with alpha in
// 1/1024 and a floor on each cut.
const (
	Paper  Form = "paper"
	NVIDIA Form = "nvidia"
)

// Params are the constants of NP and RP in the time and rate of the world they run in. Defaults gives hardware
// values; Scale is the one place where they are turned into those of a slowed lab.
type Params struct {
	Form Form `json:"form"`

	// Reaction point.
	G            float64       `json:"g"`              // weight of alpha (paper form)
	InitialAlpha float64       `json:"initial_alpha"`  // alpha at the first CNP
	AlphaTimer   time.Duration `json:"alpha_timer_ns"` // K: without a CNP for this long alpha decays
	RateTimer    time.Duration `json:"rate_timer_ns"`  // rpg_time_reset
	ByteCounter  int64         `json:"byte_counter"`   // rpg_byte_reset, bytes; never scaled
	F            int           `json:"f"`              // rpg_threshold: steps of fast recovery
	AI           units.Rate    `json:"ai_rate"`        // rpg_ai_rate
	HAI          units.Rate    `json:"hai_rate"`       // rpg_hai_rate
	HAIScaled    bool          `json:"hai_scaled"`     // hyper increase grows with min(T,BC)-F, as in QCN
	MinRate      units.Rate    `json:"min_rate"`       // rpg_min_rate
	ReducePeriod time.Duration `json:"reduce_period_ns"`
	// ReducePeriod (rate_reduce_monitor_period) allows at most one cut in so long a time, so that CNPs that were
	// delivered in one batch do not cut twice.

	// NVIDIA form only.
	DceTCPG   int `json:"dce_tcp_g"`       // of 1024
	Gd        int `json:"rpg_gd"`          // rate *= 1 - alpha/2^Gd
	MinDecFac int `json:"rpg_min_dec_fac"` // a cut leaves at least this many percent

	// Notification point.
	MinCNPInterval time.Duration `json:"min_time_between_cnps_ns"`
	CNPScope       Scope         `json:"cnp_scope"`
	CNPDSCP        int           `json:"cnp_dscp"`
}

// Defaults are the paper's hardware values; those it does not give are NVIDIA's (CNP DSCP 48, reduce period) or
// commonly used (R_HAI 400 Mbit/s).
func Defaults() Params {
	return Params{
		Form: Paper, G: 1.0 / 256, InitialAlpha: 1,
		AlphaTimer: 55 * time.Microsecond, RateTimer: 55 * time.Microsecond, ByteCounter: 10_000_000, F: 5,
		AI: 40 * units.MbitPerSec, HAI: 400 * units.MbitPerSec, MinRate: units.MbitPerSec,
		ReducePeriod: 4 * time.Microsecond,
		DceTCPG:      1019, Gd: 11, MinDecFac: 50,
		MinCNPInterval: 50 * time.Microsecond, CNPScope: PerQP, CNPDSCP: 48,
	}
}

// Scale turns hardware values into those of a lab slowed by s: times are multiplied, rates divided, bytes kept.
func (p Params) Scale(s units.Scale) Params {
	for _, d := range []*time.Duration{&p.AlphaTimer, &p.RateTimer, &p.ReducePeriod, &p.MinCNPInterval} {
		*d = s.Time(*d)
	}
	for _, r := range []*units.Rate{&p.AI, &p.HAI, &p.MinRate} {
		*r = s.Rate(*r)
	}
	return p
}

// Validate reports every value that the machines cannot run with.
func (p Params) Validate() error {
	var errs []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("dcqcn: "+format, args...))
		}
	}
	bad(p.Form == Paper || p.Form == NVIDIA, "form %q: want %q or %q", p.Form, Paper, NVIDIA)
	bad(p.G > 0 && p.G <= 1, "g %v: want above 0 and at most 1", p.G)
	bad(p.InitialAlpha >= 0 && p.InitialAlpha <= 1 && !math.IsNaN(p.InitialAlpha), "initial_alpha %v: want 0 to 1", p.InitialAlpha)
	bad(p.AlphaTimer > 0, "alpha_timer_ns %d: want above 0", p.AlphaTimer)
	bad(p.RateTimer > 0, "rate_timer_ns %d: want above 0", p.RateTimer)
	bad(p.ByteCounter > 0, "byte_counter %d: want above 0", p.ByteCounter)
	bad(p.F >= 0, "f %d: want 0 or more", p.F)
	bad(p.AI >= 0, "ai_rate %v: want 0 or more", p.AI)
	bad(p.HAI >= 0, "hai_rate %v: want 0 or more", p.HAI)
	bad(p.MinRate > 0, "min_rate %v: want above 0", p.MinRate)
	bad(p.ReducePeriod >= 0, "reduce_period_ns %d: want 0 or more", p.ReducePeriod)
	bad(p.MinCNPInterval >= 0, "min_time_between_cnps_ns %d: want 0 or more", p.MinCNPInterval)
	bad(p.CNPScope == PerQP || p.CNPScope == PerIP || p.CNPScope == PerPort, "cnp_scope %q: want qp, ip or port", p.CNPScope)
	bad(p.CNPDSCP >= 0 && p.CNPDSCP < 64, "cnp_dscp %d: want 0 to 63", p.CNPDSCP)
	if p.Form == NVIDIA {
		bad(p.DceTCPG >= 0 && p.DceTCPG <= 1024, "dce_tcp_g %d: want 0 to 1024", p.DceTCPG)
		bad(p.Gd >= 0 && p.Gd <= 15, "rpg_gd %d: want 0 to 15", p.Gd)
		bad(p.MinDecFac >= 0 && p.MinDecFac <= 100, "rpg_min_dec_fac %d: want 0 to 100", p.MinDecFac)
	}
	return errors.Join(errs...)
}
