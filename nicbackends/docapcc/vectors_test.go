package docapcc

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// vectors is a file of golden vectors.
type vectors struct {
	Cases []struct {
		Name, Profile string
		Init          map[string]any
		Steps         []struct {
			I any
			O map[string]any
		}
	}
}

func loadVectors(t *testing.T, name string) (v vectors) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "reference", "vectors", name))
	if err != nil {
		t.Skipf("golden vectors: %v", err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// initial are a case's first values as those of objects. The emulator cannot reach into the device, so that they are part of the build.
func initial(init map[string]any, names map[string]string) map[string]string {
	set := map[string]string{}
	for key, name := range names {
		if v, ok := init[key].(float64); ok {
			set[name] = fmt.Sprintf("%.0f", v)
		}
	}
	return set
}

// base is when flows of vectors begin; their times count from there.
const base = 1 << 20

// TestVectors_rttTemplate: the law of the library's own sample, by its own events, to the unit of 2^-20. The line has 2^20 bits in 100 ns, so
// that the handler's bits are shares.
func TestVectors_rttTemplate(t *testing.T) {
	v, f := loadVectors(t, "rtt_template.json"), fabric(t, "FABRIC_LINK_RATE_GBPS", "1310.72")
	for _, c := range v.Cases {
		t.Run(c.Name, func(t *testing.T) {
			p := load(t, "rtt_template", f, initial(c.Init, map[string]string{"rate": "FXP_RATE", "min_rtt": "MIN_RTT"}))
			trace := []record{{Kind: tx, Time: base}}
			for i, s := range c.Steps {
				step := s.I.(map[string]any)
				at := uint64(base + (i+1)<<20) // the law looks at the low bits of the time
				e := record{Kind: map[any]uint32{"rtt": rtt, "cnp": cnp, "nack": nack}[step["ev"]], Time: at, Count: 1}
				if e.Kind == rtt {
					e.Time += uint64(step["t_end"].(float64))
					e.Sent = uint32(e.Time) - uint32(step["rtt"].(float64))
				}
				trace = append(trace, e)
			}
			results := build(t, p).run(trace)
			for i, s := range c.Steps {
				if want := uint32(s.O["rate"].(float64)); results[i+1].Rate != want {
					t.Errorf("step %d, %v: rate %d, want %d", i, s.I, results[i+1].Rate, want)
				}
				if want := uint32(s.O["rtt_req"].(float64)); results[i+1].Probe != want {
					t.Errorf("step %d, %v: probe %d, want %d", i, s.I, results[i+1].Probe, want)
				}
			}
		})
	}
}

// TestVectors_ztr: four timestamps of each probe, of which the shell makes the round trip.
func TestVectors_ztr(t *testing.T) {
	v, f := loadVectors(t, "ztr_rtt.json"), fabric(t, "FABRIC_LINK_RATE_GBPS", "1310.72")
	for _, c := range v.Cases {
		t.Run(c.Name, func(t *testing.T) {
			set := initial(c.Init, map[string]string{"rate": "FXP_RATE", "topology_aware": "TOPOLOGY_AWARE"})
			set["RATE"] = set["FXP_RATE"] // until the first sample
			trace := []record{{Kind: tx, Time: base}}
			for _, s := range c.Steps {
				step := s.I.(map[string]any)
				e := record{Kind: map[any]uint32{"rtt": rtt, "cnp": cnp, "nack": nack}[step["ev"]], Time: base + uint64(step["now"].(float64)), Count: 1}
				if e.Kind == rtt {
					at := func(i int) uint32 { return base + uint32(int64(step["ts"].([]any)[i].(float64))) }
					e.Sent, e.Received, e.Answered = at(0), at(1), at(2)
					e.Time = base + uint64(step["ts"].([]any)[3].(float64))
				}
				trace = append(trace, e)
			}
			results, counts := build(t, load(t, "ztr_rtt", f, set)).counters(trace)
			var invalid uint64
			for i, s := range c.Steps {
				if want := uint32(s.O["rate"].(float64)); results[i+1].Rate != want {
					t.Errorf("step %d, %v: rate %d, want %d", i, s.I, results[i+1].Rate, want)
				}
				if strings.Contains(fmt.Sprint(s.O["phase"]), "not_valid") || strings.Contains(fmt.Sprint(s.O["phase"]), "invalid") {
					invalid++
				}
				if n, ok := s.O["counters"].(map[string]any); ok {
					invalid = max(invalid, uint64(n["NOT_VLD"].(float64)))
				}
			}
			if counts[rttNotValid] != invalid {
				t.Errorf("%d samples that are not valid, want %d", counts[rttNotValid], invalid)
			}
		})
	}
}

// TestVectors_swift: windows after a round trip and coalesced acknowledgements, within what Q32.32 may differ by (ALGORITHMS.md, C.5).
// Cases with timeouts, which the device does not report, are left out.
func TestVectors_swift(t *testing.T) {
	v := loadVectors(t, "swift.json")
	tested := 0
	for _, c := range v.Cases {
		if c.Profile != "P100" || strings.Contains(c.Name, "rto") {
			continue
		}
		tested++
		t.Run(c.Name, func(t *testing.T) {
			p := load(t, "swift", nil, initial(c.Init, map[string]string{"cwnd": "CWND", "rtt_est": "RTT_EST", "t_last_dec": "T_LAST_DEC", "retx": "RETX"}))
			trace := []record{{Kind: tx, Time: base}}
			var decided []int
			for _, s := range c.Steps {
				step := s.I.(map[string]any)
				at := base + uint64(step["now"].(float64))
				if r, ok := step["rtt"].(float64); ok {
					trace = append(trace, record{Kind: rtt, Time: at, Sent: uint32(at) - uint32(r)})
				}
				trace = append(trace, record{Kind: ack, Time: at, Count: uint32(step["ack_bytes"].(float64)) / 4096})
				decided = append(decided, len(trace)-1)
			}
			results := build(t, p, "-DPCM_DIAGNOSE").run(trace)
			for i, s := range c.Steps {
				if got, want := float64(results[decided[i]].CWND), s.O["cwnd"].(float64); math.Abs(got-want) > 2 {
					t.Errorf("step %d, %v: window %g, want %g", i, s.I, got, want)
				}
			}
		})
	}
	if tested < 4 {
		t.Errorf("only %d cases", tested)
	}
}

// TestVectors_timely: rates of a law in fractions, within a bit in 100 ns.
func TestVectors_timely(t *testing.T) {
	v, f := loadVectors(t, "timely.json"), fabric(t, "FABRIC_LINK_RATE_GBPS", "50")
	for _, c := range v.Cases {
		t.Run(c.Name, func(t *testing.T) {
			const bits = 8.0 / 1e7 // of bytes in a second
			p := load(t, "timely", f, map[string]string{"R": fmt.Sprintf("%.6f", c.Init["rate"].(float64)*bits)})
			trace := []record{{Kind: tx, Time: base}}
			for _, s := range c.Steps {
				step := s.I.(map[string]any)
				at := base + uint64(1000*step["now"].(float64))
				trace = append(trace, record{Kind: rtt, Time: at, Sent: uint32(at) - uint32(1000*step["rtt"].(float64))})
			}
			results := build(t, p, "-DPCM_DIAGNOSE").run(trace)
			for i, s := range c.Steps {
				if skipped, _ := s.O["skipped"].(float64); skipped == 1 {
					continue // the control keeps its initial value
				}
				got, want := float64(results[i+1].ControlRate), s.O["rate"].(float64)*bits
				if got > want+0.01 || got < want-1.01 {
					t.Errorf("step %d, %v: rate %g, want %g", i, s.I, got, want)
				}
			}
		})
	}
}

// TestVectors_dcqcn: CNPs cut the rate, one cut for each event however many it holds.
func TestVectors_dcqcn(t *testing.T) {
	v, f := loadVectors(t, "dcqcn.json"), fabric(t, "FABRIC_LINK_RATE_GBPS", "5")
	tested := false
	for _, c := range v.Cases {
		if c.Name != "three_cnps" {
			continue
		}
		tested = true
		trace := []record{{Kind: tx, Time: base}}
		for i := range c.Steps {
			trace = append(trace, record{Kind: cnp, Time: base + uint64(i+1)*1000, Count: uint32(i + 1)})
		}
		results := build(t, load(t, "dcqcn", f, map[string]string{}), "-DPCM_DIAGNOSE").run(trace)
		for i, s := range c.Steps {
			if got, want := results[i+1].ControlRate, s.O["rc"].(float64)/10; float64(got) != math.Floor(want) {
				t.Errorf("step %d: rate %d, want %g", i, got, want)
			}
			if got, want := results[i+1].Rate, uint32(s.O["rc"].(float64)/40000*(1<<20)); got != want {
				t.Errorf("step %d: share %d, want %d", i, got, want)
			}
		}
	}
	if !tested {
		t.Error("no such case")
	}
}
