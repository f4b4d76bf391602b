package dcqcn

import (
	"encoding/json"
	"math"
	"os"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
)

type vectors struct {
	Constants map[string]float64
	Cases     []struct {
		Name  string
		Init  map[string]float64
		Steps []struct {
			I json.RawMessage
			O map[string]any
		}
	}
}

// TestGolden holds the machines against all vectors; an unknown case fails, so that none is passed over.
func TestGolden(t *testing.T) {
	b, err := os.ReadFile("testdata/dcqcn.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Cases) != 8 {
		t.Fatalf("testdata has %d cases, want 8", len(v.Cases))
	}
	mbit := func(x float64) units.Rate { return units.Rate(x * 1e6) }
	c := v.Constants
	p := Defaults()
	if p.G != c["G"] || p.AlphaTimer != time.Duration(c["ALPHA_TIMER"]) || p.RateTimer != time.Duration(c["RATE_TIMER"]) ||
		p.ByteCounter != int64(c["BYTES"]) || p.F != int(c["F"]) || p.AI != mbit(c["R_AI"]) || p.HAI != mbit(c["R_HAI"]) ||
		p.MinRate != mbit(c["R_MIN"]) || p.HAIScaled != (c["HAI_ITER"] != 0) {
		t.Errorf("Defaults() = %+v, differ from the vectors' constants %v", p, c)
	}
	for _, tc := range v.Cases {
		t.Run(tc.Name, func(t *testing.T) {
			switch tc.Name {
			case "nv_alpha_q10_and_rate_cut":
				for i, s := range tc.Steps {
					var in struct{ Alpha, Cnp int }
					must(t, json.Unmarshal(s.I, &in))
					alpha := nvAlpha(in.Alpha, int(tc.Init["G"]), in.Cnp == 1)
					rate := nvCut(100000, alpha, int(tc.Init["rpg_gd"]), int(tc.Init["min_dec_fac"]))
					if float64(alpha) != s.O["alpha"] || rate != s.O["rate_after_cut_from_100000"] {
						t.Errorf("step %d %s: alpha %d rate %v, want %v", i, s.I, alpha, rate, s.O)
					}
				}
			case "np_cnp_every_50us":
				var np NP
				gap := time.Duration(tc.Init["gap"])
				for i, s := range tc.Steps {
					var in struct {
						Now time.Duration
						Op  string
						CE  int
					}
					must(t, json.Unmarshal(s.I, &in))
					var got float64
					if in.Op == "timer" && np.Tick(in.Now, gap) || in.Op == "pkt" && in.CE == 1 && np.CE(in.Now, gap) {
						got = 1
					}
					if got != s.O["cnp_sent"] {
						t.Errorf("step %d %s: cnp_sent %v, want %v", i, s.I, got, s.O["cnp_sent"])
					}
				}
			default:
				r := NewRP(p, mbit(c["LINE"]))
				set := func(dst *float64, key string, factor float64) {
					if x, ok := tc.Init[key]; ok {
						*dst = x * factor
					}
				}
				set(&r.rc, "rc", 1e6)
				set(&r.rt, "rt", 1e6)
				set(&r.alpha, "al", 1)
				r.t, r.limited = int(tc.Init["T"]), true
				for i, s := range tc.Steps {
					phase := ""
					switch string(s.I) {
					case `"cnp"`:
						r.cut()
						phase = "cnp"
					case `"alpha_timer"`:
						r.alphaEvent()
						phase = "alpha_timer"
					case `"rate_timer"`:
						r.rateEvent()
						phase = r.phase.String()
					case `"byte_counter"`:
						r.byteEvent()
						phase = r.phase.String()
					default:
						t.Fatalf("step %d: unknown input %s", i, s.I)
					}
					got := map[string]float64{"rc": r.rc / 1e6, "rt": r.rt / 1e6, "alpha": r.alpha, "T": float64(r.t), "BC": float64(r.bc)}
					for k, g := range got {
						if want := s.O[k].(float64); math.Abs(g-want) > 1e-6*max(1, math.Abs(want)/1e4) {
							t.Errorf("step %d %s: %s = %v, want %v", i, s.I, k, g, want)
						}
					}
					if phase != s.O["phase"] {
						t.Errorf("step %d: phase %q, want %q", i, phase, s.O["phase"])
					}
				}
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
