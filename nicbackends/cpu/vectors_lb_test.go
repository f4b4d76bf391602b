package cpu

import (
	"fmt"
	"math"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/shell"
)

// never is longer than any flow of a test.
const never = "1000000000000000"

// moreLaws are the handlers whose steps are events, which need more than a table of names.
var moreLaws = []law{
	{
		file: "eqds_rx.json", handler: "eqds",
		init: map[string]string{"pull_no": "PULL_NO"},
		out:  map[string]string{"mask": fired, "pull_no": "PULL_NO", "needs_more": "NEEDS_MORE"},
		feed: func(r *run, step any) *shell.Input {
			if step == "poll" {
				in := r.adds
				r.adds = nil
				if in == nil {
					in = &shell.Input{}
				}
				return in
			}
			r.adds = &shell.Input{}
			give(r.adds, pcm.PullTarget, uint64(step.(map[string]any)["pull_target"].(float64)))
			return nil
		},
	},
	{
		file: "lb_reps.json", handler: "reps",
		set:  func(_ vectors, c vectorCase) map[string]string { return sizes(c, "size", "SIZE") },
		init: map[string]string{"explore": "EXPLORING"},
		out:  map[string]string{"ev": "PATH", "fresh": "FRESH", "head": "HEAD", "frozen": "FROZEN", "explore": "EXPLORING"},
		feed: pathEvent,
	},
	{
		file: "lb_ops.json", handler: "ops",
		set:    func(_ vectors, c vectorCase) map[string]string { return sizes(c, "paths", "PATHS") },
		init:   map[string]string{"path_random": "PATH_RANDOM", "path_xor": "PATH_XOR"},
		before: func(r *run, _ vectorCase) { r.set("STARTED", 1) },
		out:    map[string]string{"ev": "PATH"},
		feed:   pathEvent,
	},
	{
		file: "lb_ops.json", handler: "ecmp",
		only: func(c vectorCase) string {
			if c.Name == "one_path_is_ecmp" {
				return ""
			}
			return "several paths"
		},
		before: func(r *run, c vectorCase) { r.set("STARTED", 1); r.set("PATH", c.Init["path_random"].(float64)) },
		out:    map[string]string{"ev": "PATH"},
		feed:   pathEvent,
	},
	{
		file: "lb_flowlet.json", handler: "flowlet",
		set:  func(_ vectors, c vectorCase) map[string]string { return map[string]string{"GAP": text(c.Init["gap"])} },
		out:  map[string]string{"ev": "PATH"},
		feed: pathEvent,
	},
	{
		file: "lb_plb.json", handler: "plb",
		set: func(_ vectors, c vectorCase) map[string]string {
			return map[string]string{"CONGESTED": text(c.Init["K"]), "ROUNDS": text(c.Init["M"])}
		},
		init: map[string]string{"ev": "PATH"},
		in:   map[string]pcm.Source{"acked": pcm.ACK, "marked": pcm.ECN},
		out:  map[string]string{"ev": "PATH", "cong": "STREAK"},
	},
	{
		file: "lb_strack.json", handler: "strack",
		set:    func(_ vectors, c vectorCase) map[string]string { return sizes(c, "n", "PATHS") },
		before: func(r *run, _ vectorCase) { r.set("STARTED", 1) },
		out:    map[string]string{"ev": "PATH"},
		feed:   pathEvent,
		after: func(r *run, step any, want map[string]any) {
			for i, p := range want["penalties"].([]any) {
				if got := r.get(fmt.Sprintf("PENALTY[%d]", i)); got != p.(float64) {
					r.Errorf("after %v: penalty of path %d is %g, want %g", step, i, got, p)
				}
			}
		},
	},
	{
		file: "lb_strack_light.json", handler: "strack_light",
		set:    func(_ vectors, c vectorCase) map[string]string { return sizes(c, "n", "PATHS") },
		before: func(r *run, _ vectorCase) { r.set("STARTED", 1) },
		out:    map[string]string{"ev": "PATH"},
		feed:   pathEvent,
		after: func(r *run, step any, want map[string]any) {
			for i, p := range want["penalties"].([]any) {
				if got := uint64(r.get("BAD[0]")) >> i & 1; float64(got) != p.(float64) {
					r.Errorf("after %v: path %d is bad: %d, want %g", step, i, got, p)
				}
			}
		},
	},
	{
		file: "dcqcn.json", handler: "dcqcn",
		only: func(c vectorCase) string {
			switch c.Name {
			case "nv_alpha_q10_and_rate_cut", "np_cnp_every_50us":
				return "the NIC's own integers, and the notifier: nicbackends/softnic/dcqcn has them"
			}
			return ""
		},
		set: func(v vectors, c vectorCase) map[string]string { // the file's events name one timer each; the other one would expire with it
			set := map[string]string{"LINE": text(v.Constants["LINE"].(float64) / 10), "ALPHA_TIMER": never}
			for _, s := range c.Steps {
				if s.I == "alpha_timer" {
					set["ALPHA_TIMER"], set["RATE_TIMER"] = text(v.Constants["ALPHA_TIMER"]), never
				}
			}
			return set
		},
		init:  map[string]string{"rc": "R_C", "rt": "R_T", "al": "ALPHA", "T": "T", "BC": "BC"},
		out:   map[string]string{"rc": "R_C", "rt": "R_T", "alpha": "ALPHA", "T": "T", "BC": "BC"},
		scale: map[string]float64{"rc": 0.1, "rt": 0.1}, // Mbit/s
		feed: func(r *run, step any) *shell.Input {
			in := &shell.Input{}
			switch step {
			case "cnp":
				give(in, pcm.CNP, 1)
			case "alpha_timer":
				r.now = uint64(r.get("T_ALPHA")) + 55_000
			case "rate_timer":
				r.now = uint64(r.get("T_RATE")) + 55_000
			case "byte_counter":
				r.now += 5_000 // the next look at the timers
				give(in, pcm.TXBytes, 10_000_000)
			}
			in.Now = r.now
			return in
		},
	},
	{
		file: "scala_nic.json", handler: "scala_nic",
		set: func(v vectors, _ vectorCase) map[string]string {
			return map[string]string{"LINE": text(v.Constants["LINE"].(float64) * 100), "MTU": "1000"}
		},
		out:       map[string]string{"rc": "R_C", "rt": "R_T", "est": "EST", "count": "COUNT", "step": "STEP", "congested": "CONGESTED"},
		scale:     map[string]float64{"rc": 100, "rt": 100, "step": 100}, // Gbit/s
		tolerance: func(string, float64) float64 { return 1e-6 },         // six digits in the file
		feed: func(r *run, step any) *shell.Input {
			given := step.(map[string]any)
			in := &shell.Input{}
			if given["op"] == "tick" {
				r.now = uint64(r.get("T_HALF")) + 22_500
			} else {
				r.now += 1000
			}
			in.Now = r.now
			give(in, pcm.CNP, uint64(given["cnps"].(float64)))
			give(in, pcm.TXBytes, uint64(given["pkts"].(float64))*1000)
			return in
		},
	},
	{
		file: "rtt_template.json", handler: "rtt_template",
		init: map[string]string{"rate": "FXP_RATE", "min_rtt": "MIN_RTT"},
		out:  map[string]string{"rate": "FXP_RATE", "min_rtt": "MIN_RTT", "was_nack": "WAS_NACK", "was_cnp": "WAS_CNP", "rtt_req": "PROBE"},
		feed: probeEvent,
	},
	{
		file: "ztr_rtt.json", handler: "ztr_rtt",
		set: func(_ vectors, c vectorCase) map[string]string {
			return map[string]string{"TOPOLOGY_AWARE": text(c.Init["topology_aware"])}
		},
		init: map[string]string{"rate": "FXP_RATE"},
		out:  map[string]string{"rate": "FXP_RATE", "min_rtt": "MIN_RTT", "congested": "CONGESTED"},
		feed: probeEvent,
		after: func(r *run, step any, want map[string]any) {
			for name, object := range map[string]string{"CNP": "CNP", "NACK": "NACK", "AI": "AI_INC", "HAI": "HAI_INC", "DEC": "DEC", "HYPER": "HYPER_DEC",
				"NUM_RTT": "NUM_RTT", "NOT_VLD": "NOT_VLD_RTT"} {
				if got, want := r.get(object), want["counters"].(map[string]any)[name].(float64); got != want {
					r.Errorf("after %v: counter %s is %g, want %g", step, name, got, want)
				}
			}
		},
	},
	{
		file: "timely.json", handler: "timely",
		set: func(v vectors, _ vectorCase) map[string]string {
			return map[string]string{"LINE": text(v.Constants["LINK"].(float64) * 8e-7)}
		},
		init:  map[string]string{"rate": "R"},
		out:   map[string]string{"rate": "R", "avg_diff": "AVG_DIFF", "prev_rtt": "PREV_RTT"},
		scale: map[string]float64{"rate": 8e-7}, // byte/s
		feed: func(r *run, step any) *shell.Input {
			in := &shell.Input{Now: uint64(step.(map[string]any)["now"].(float64)) * 1000}
			give(in, pcm.RTT, uint64(step.(map[string]any)["rtt"].(float64))*1000)
			return in
		},
	},
}

func TestVectors_ofEvents(t *testing.T) {
	for _, l := range moreLaws {
		t.Run(l.handler, func(t *testing.T) { l.test(t) })
	}
}

// sizes sets the length of a ring or the number of paths: that of the case, or 8 as the files have it.
func sizes(c vectorCase, key, name string) map[string]string {
	if v, ok := c.Init[key]; ok {
		return map[string]string{name: text(v)}
	}
	return map[string]string{name: "8"}
}

// pathEvent is a step of a load balancer: what happened to a packet and its path, or a packet that wants one.
func pathEvent(r *run, step any) *shell.Input {
	given := step.(map[string]any)
	in := &shell.Input{}
	number := func(key string) uint64 { v, _ := given[key].(float64); return uint64(v) }
	if _, ok := given["now"]; ok {
		r.now = number("now")
	}
	in.Now = r.now
	ev := number("ev")
	switch given["op"] {
	case "good":
		give(in, pcm.ACK, 1)
		give(in, pcm.ACKEV, ev)
	case "ecn":
		give(in, pcm.ACK, 1)
		give(in, pcm.ACKEV, ev)
		give(in, pcm.ECN, 1)
		give(in, pcm.ECNEV, ev)
	case "nack":
		give(in, pcm.NACK, 1)
		give(in, pcm.NACKEV, ev)
	case "timeout":
		give(in, pcm.RTO, 1)
		give(in, pcm.NACKEV, ev)
	default: // of files without other events
		r.inject(number("rnd"))
		give(in, pcm.TXReadyPackets, 1)
	}
	return in
}

// probeEvent is a step of a handler that is driven by round trips.
func probeEvent(r *run, step any) *shell.Input {
	given := step.(map[string]any)
	in := &shell.Input{}
	for _, key := range []string{"now", "t_end"} {
		if v, ok := given[key].(float64); ok {
			r.now = uint64(v)
		}
	}
	in.Now = r.now
	switch given["ev"] {
	case "cnp":
		give(in, pcm.CNP, 1)
	case "nack":
		give(in, pcm.NACK, 1)
	case "rtt":
		rtt, ok := given["rtt"].(float64)
		if ts, four := given["ts"].([]any); four {
			at := func(i int) float64 { return ts[i].(float64) }
			rtt, ok = at(3)-at(0)-(at(2)-at(1)), true
		}
		if !ok || rtt != math.Trunc(rtt) {
			r.Fatalf("no round trip in %v", given)
		}
		give(in, pcm.RTT, uint64(int64(rtt)))
	}
	return in
}
