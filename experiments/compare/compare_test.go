package compare

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pcmlab/pcmlab/experiments"
)

func TestDefaultThresholds(t *testing.T) {
	if _, err := ParseThresholds([]string{Default}); err != nil {
		t.Error(err)
	}
}

func TestParseThreshold(t *testing.T) {
	for _, row := range []struct {
		text string
		want Threshold
	}{
		{"goodput: 3%", Threshold{Name: ScoreName{Metric: "goodput"}, Bare: true, Limits: []Limit{{0.03, Relative}}, Better: "higher"}},
		{"goodput(): 2 % of line", Threshold{Name: ScoreName{Metric: "goodput"}, Limits: []Limit{{0.02, OfLine}}, Better: "higher"}},
		{`goodput(phase="a:b", flow="h1"): 5Mb/s`, Threshold{Name: ScoreName{"goodput", "a:b", "h1"}, Limits: []Limit{{5e6, Absolute}}, Better: "higher"}},
		{"rtt_p99: 200us", Threshold{Name: ScoreName{Metric: "rtt_p99"}, Bare: true, Limits: []Limit{{200e3, Absolute}}, Better: "lower"}},
		{`jain(phase="three"): 0.02`, Threshold{Name: ScoreName{Metric: "jain", Phase: "three"}, Limits: []Limit{{0.02, Absolute}}, Better: "higher"}},
		{`goodput(flow="*"):10%`, Threshold{Name: ScoreName{Metric: "goodput", Flow: "*"}, Limits: []Limit{{0.1, Relative}}, Better: "higher"}},
		{"retransmissions: 2% or 10", Threshold{Name: ScoreName{Metric: "retransmissions"}, Bare: true, Limits: []Limit{{0.02, Relative}, {10, Absolute}}, Better: "lower"}},
		{"cnps: 10%, lower is better", Threshold{Name: ScoreName{Metric: "cnps"}, Bare: true, Limits: []Limit{{0.1, Relative}}, Better: "lower"}},
		{"ce_share: 0.01", Threshold{Name: ScoreName{Metric: "ce_share"}, Bare: true, Limits: []Limit{{0.01, Absolute}}, Better: "neither"}},
	} {
		row.want.Text = row.text
		got, err := ParseThreshold(row.text)
		if err != nil {
			t.Errorf("%s: %v", row.text, err)
		} else if diff := cmp.Diff(row.want, got, cmpopts.EquateApprox(0, 1e-12)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.text, diff)
		}
	}
}

func TestParseThresholds_allMistakesAtOnce(t *testing.T) {
	bad := map[string]string{
		"goodput":                    "need SCORE: LIMIT",
		"godput: 3%":                 `no metric "godput"`,
		"hw_goodput: 3%":             `no metric "hw_goodput"`,
		"goodput: 3":                 "write 5Mb/s",
		"goodput: 5MB/s":             "write 5Mb/s",
		"rtt_p99: 200":               "write 200us",
		"rtt_p99: 2% of line":        "no share of the line rate",
		"goodput: 2 of line":         "write 2% of line",
		"jain: -0.1":                 "0 or more",
		"jain: NaN":                  "0 or more",
		"jain: x%":                   "no number before %",
		"jain: much":                 "write a number",
		"jain(phase=three): 0.1":     "write goodput",
		"jain: 0.1, smaller is nice": "write lower is better",
	}
	var texts []string
	for text := range bad {
		texts = append(texts, text)
	}
	_, err := ParseThresholds(texts)
	if err == nil {
		t.Fatal("no error")
	}
	for text, want := range bad {
		if !strings.Contains(err.Error(), fmt.Sprintf("threshold %q", text)) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want %q in\n%v", text, want, err)
		}
	}
}

func TestThresholdOf_theMostPreciseNamesIt(t *testing.T) {
	all, err := ParseThresholds([]string{"goodput: 1%", `goodput(phase="*"): 2%`, `goodput(phase="two"): 3%`, "goodput(): 4%", `goodput(flow="*"): 5%`, "goodput: 6%"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[ScoreName]string{
		{"goodput", "", ""}:       "goodput(): 4%",
		{"goodput", "two", ""}:    `goodput(phase="two"): 3%`,
		{"goodput", "three", ""}:  `goodput(phase="*"): 2%`,
		{"goodput", "", "h1"}:     `goodput(flow="*"): 5%`,
		{"goodput", "two", "h1"}:  "",
		{"jain", "", ""}:          "",
		{"utilisation", "a", "b"}: "",
	} {
		got := ""
		if th := thresholdOf(all, name); th != nil {
			got = th.Text
		}
		if got != want {
			t.Errorf("%s: threshold %q, want %q", name, got, want)
		}
	}
	if th := thresholdOf(all[:1], ScoreName{Metric: "goodput"}); th == nil {
		t.Error("a bare metric does not name the whole run")
	}
}

// around gives n values about a centre, all different.
func around(centre, step float64, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = centre + step*(float64(i)-float64(n-1)/2)
	}
	return x
}

func TestVerdicts(t *testing.T) {
	for _, row := range []struct {
		name, why, score string
		before, after    []float64
		thresholds       []string
		want             Verdict
		reason           string
	}{
		{"loss", "beyond 2 % by default", "goodput()", around(100e6, 1e5, 10), around(96e6, 1e5, 10), nil, Worse, "-4 %"},
		{"gain", "the right way", "goodput()", around(100e6, 1e5, 10), around(104e6, 1e5, 10), nil, Better, "+4 %"},
		{"small_loss", "significant, yet within the threshold", "goodput()", around(100e6, 1e5, 10), around(99e6, 1e5, 10), nil, Same, "within 2 %"},
		{"smaller_threshold", "the same, with a threshold that it exceeds", "goodput()", around(100e6, 1e5, 10), around(99e6, 1e5, 10), []string{"goodput: 0.5%"}, Worse, "-1 %"},
		{"of_line", "1 Mb/s is 0.2 % of 500 Mb/s", "goodput()", around(100e6, 1e5, 10), around(99e6, 1e5, 10), []string{"goodput: 0.3% of line"}, Same, "within"},
		{"absolute", "100 us more", "rtt_p99()", around(1e6, 1e3, 10), around(1.1e6, 1e3, 10), []string{"rtt_p99: 50us"}, Worse, "+10 %"},
		{"lower_is_better", "times improve downwards", "rtt_p99()", around(1e6, 1e3, 10), around(0.5e6, 1e3, 10), nil, Better, "-50 %"},
		{"neither", "more marks are neither", "cnps()", around(100, 1, 10), around(300, 1, 10), nil, Changed, "+200 %"},
		{"neither_with_threshold", "a threshold makes any change a bad one", "cnps()", around(300, 1, 10), around(100, 1, 10), []string{"cnps: 10%"}, Worse, "-67 %"},
		{"neither_with_direction", "said to be better when lower", "cnps()", around(300, 1, 10), around(100, 1, 10), []string{"cnps: 10%, lower is better"}, Better, "-67 %"},
		{"three_repeats", "apart, and yet too few to tell", "goodput()", around(100e6, 1e5, 3), around(90e6, 1e5, 3), nil, Insufficient, "1 more repeat would do to show it"},
		{"single_runs", "no spread known", "goodput()", around(100e6, 0, 1), around(90e6, 0, 1), nil, Insufficient, "3 more repeats are the least"},
		{"wide", "nothing shown either way", "goodput()", around(100e6, 2e6, 6), around(100e6, 2e6, 6), nil, Insufficient, "to show that it is within 2 %"},
		{"zero_counts", "no retransmission before and after", "retransmissions()", around(0, 0, 5), around(0, 0, 5), nil, Same, "within 1"},
		{"new_retransmissions", "none before, many after", "retransmissions()", around(0, 0, 6), around(500, 3, 6), nil, Worse, "+500"},
		{"frozen", "five equal rates are no measurement", "goodput()", around(100e6, 1e5, 5), around(90e6, 0, 5), nil, NotApplied, "no variance where variance is expected: 90 Mb/s in each of 5 runs after"},
		{"idle_flow", "five times nothing is nothing", "goodput()", around(0, 0, 5), around(0, 0, 5), nil, Same, ""},
		{"equal_times", "times come in buckets: equal ones are measured", "message_p50()", around(2906680, 0, 6), around(2906680, 0, 6), nil, Same, "within 10 %"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, s := compareScore(t, row.score, row.before, row.after, row.thresholds...)
			if s.Verdict != row.want || !strings.Contains(s.Reason, row.reason) {
				t.Errorf("%s: %s (%s), want %s with %q", row.why, s.Verdict, s.Reason, row.want, row.reason)
			}
			if s.Judged && r.Verdict != s.Verdict {
				t.Errorf("the report says %s (%s), its only score %s", r.Verdict, r.Reason, s.Verdict)
			}
			if !s.Judged && r.Verdict == Worse {
				t.Errorf("a score that is not judged makes the report %s", r.Verdict)
			}
		})
	}
}

func TestNotMeasured_isNotZero(t *testing.T) {
	before, after := runsOf("before", 5, map[string][]float64{"goodput()": around(100e6, 1e5, 5)}), runsOf("after", 5, map[string][]float64{"goodput()": around(100e6, 1e5, 5)})
	for _, s := range after.Runs {
		s.Scores[0].Value, s.Scores[0].Reason = nil, "the capture does not show it"
	}
	s := Compare([]Group{before}, []Group{after}, Options{}).Cells[0].Scores[0]
	if s.Verdict != Insufficient || !strings.Contains(s.Reason, "not measured after (the capture does not show it)") || s.After.Median != nil || s.Change != nil {
		t.Errorf("%s: %s, median after %v", s.Verdict, s.Reason, s.After.Median)
	}
}

// Traces of runs that were really made are never equal.
func TestTreatmentNotApplied(t *testing.T) {
	x := map[string][]float64{"goodput()": around(100e6, 1e5, 5)}
	before, after := runsOf("run", 5, x), runsOf("run", 5, x)
	for i, s := range after.Runs {
		s.Run = fmt.Sprintf("copy-%d", i)
	}
	r := Compare([]Group{before}, []Group{after}, Options{})
	if r.Verdict != NotApplied || !strings.Contains(r.Reason, "two measurements are never equal") {
		t.Errorf("equal traces: %s (%s)", r.Verdict, r.Reason)
	}
	before.Params, after.Params = []experiments.Param{{Key: "nic.handler", Value: "a"}}, []experiments.Param{{Key: "nic.handler", Value: "b"}}
	if r = Compare([]Group{before}, []Group{after}, Options{}); r.Verdict != NotApplied || !strings.Contains(r.Reason, "though nic.handler a -> b") {
		t.Errorf("equal traces of a parameter declared different: %s (%s)", r.Verdict, r.Reason)
	}
	if r = Compare([]Group{before}, []Group{before}, Options{}); r.Verdict != NotApplied || !strings.Contains(r.Reason, "the same runs are on both sides") {
		t.Errorf("the same runs: %s (%s)", r.Verdict, r.Reason)
	}
	other := "another"
	after.Runs[2].Trace = &other
	after.Runs[1].Checks = []experiments.CheckResult{{Name: "handler x acts on h1", Verdict: experiments.Fail, Reason: "inert: it was never called (no trigger fired)"}}
	if r = Compare([]Group{before}, []Group{after}, Options{}); r.Verdict != NotApplied || !strings.Contains(r.Reason, "in 1 of 5 runs after: handler x acts on h1: inert") {
		t.Errorf("an inert handler: %s (%s)", r.Verdict, r.Reason)
	}
	after.Runs[1].Checks = nil
	if r = Compare([]Group{before}, []Group{after}, Options{}); r.Verdict != Same {
		t.Errorf("one trace differs: %s (%s)", r.Verdict, r.Reason)
	}
}

func TestRunsThatDoNotCount_areNamed(t *testing.T) {
	g := runsOf("run", 9, map[string][]float64{"goodput()": around(100e6, 1e5, 9)})
	fail := []experiments.CheckResult{{Name: "fair", Verdict: experiments.Fail}}
	g.Runs[0].State, g.Runs[0].Reason = experiments.StateNoisy, "nic.h1 was late"
	g.Runs[1].State = experiments.StateUnfinished
	g.Runs[2].State = experiments.StatePartial
	g.Runs[3].Trial = &experiments.Trial{Sweep: "s", Cell: "c", Repeat: 1, Warmup: true}
	g.Runs[4].Verdict, g.Runs[4].Checks = experiments.Fail, fail
	g.Runs[5].Verdict = experiments.Fail
	g.Runs[6].Trace = g.Runs[7].Trace
	want := []Excluded{{"run-0", "noisy: nic.h1 was late"}, {"run-1", "unfinished"}, {"run-2", "partial"}, {"s/c warm-up 1", "warm-up"}, {"run-5", "failed: ways of counting disagree"},
		{"run-7", "a copy: its trace is that of run-6"}}
	r := Compare([]Group{g}, []Group{g}, Options{})
	if diff := cmp.Diff(want, r.Cells[0].Before.Excluded); diff != "" {
		t.Errorf("excluded (-want +got):\n%s", diff)
	}
	if got := r.Cells[0].Before; !slices.Equal(got.Runs, []string{"run-4", "run-6", "run-8"}) || !slices.Equal(got.FailedChecks, []string{"run-4"}) {
		t.Errorf("count: %v, of which checks failed: %v", got.Runs, got.FailedChecks)
	}
	r = Compare([]Group{g}, []Group{g}, Options{ExcludeFailed: true})
	if got := r.Cells[0].Before.Excluded; !slices.Contains(got, Excluded{"run-4", "failed: an expectation does not hold"}) {
		t.Errorf("with failed runs left out: %v", got)
	}
	for _, s := range g.Runs {
		s.State = experiments.StateNoisy
	}
	if r = Compare([]Group{g}, []Group{g}, Options{}); r.Verdict != Incomplete || !strings.Contains(r.Reason, "no run counts before (run-0: noisy") {
		t.Errorf("none counts: %s (%s)", r.Verdict, r.Reason)
	}
}

func TestMatch(t *testing.T) {
	groups := func(names ...string) (all []Group) {
		for _, n := range names {
			all = append(all, Group{Name: n})
		}
		return all
	}
	for _, row := range []struct {
		name, why     string
		before, after []Group
		want          []string
	}{
		{"by_name", "cells of two sweeps", groups("p/a", "p/b"), groups("p/b", "p/a"), []string{"p/a = p/a", "p/b = p/b"}},
		{"by_playbook", "other inputs, the only cell of the playbook", groups("p/1", "q/1"), groups("p/2", "q/2"), []string{"p/1 = p/2", "q/1 = q/2"}},
		{"the_only_ones", "two groups that are called differently", groups("p/1"), groups("q/2"), []string{"p/1 = q/2"}},
		{"left_over", "a cell that is new, one that is gone", groups("p/a", "p/b"), groups("p/a", "p/c", "p/d"), []string{"p/a = p/a", "p/b = -", "- = p/c", "- = p/d"}},
		{"ambiguous", "which of two is meant cannot be told", groups("p/1"), groups("p/2", "p/3"), []string{"p/1 = -", "- = p/2", "- = p/3"}},
	} {
		var got []string
		for _, p := range match(row.before, row.after) {
			name := func(g *Group) string {
				if g == nil {
					return "-"
				}
				return g.Name
			}
			got = append(got, name(p.before)+" = "+name(p.after))
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s (%s) (-want +got):\n%s", row.name, row.why, diff)
		}
	}
}

func TestCells_missingAndNew(t *testing.T) {
	side := func(name string, cells ...string) (all []Group) {
		for i, c := range cells {
			g := runsOf(name+c, 5, map[string][]float64{"goodput()": around(100e6+float64(i)*1e5, 1e5, 5)})
			g.Name = "p/" + c
			all = append(all, g)
		}
		return all
	}
	if r := Compare(side("b", "one", "two"), side("a", "one"), Options{}); r.Verdict != Incomplete || !strings.Contains(r.Reason, "p/two: there is no such cell after") {
		t.Errorf("a cell is gone: %s (%s)", r.Verdict, r.Reason)
	}
	if r := Compare(side("b", "one"), side("a", "one", "two"), Options{}); r.Verdict != Same || len(r.Warnings) != 1 {
		t.Errorf("a cell is new: %s (%s), warnings %v", r.Verdict, r.Reason, r.Warnings)
	}
	th, _ := ParseThresholds([]string{"goodput: 2%", `goodput(phase="tow"): 2%`})
	if r := Compare(side("b", "one"), side("a", "one"), Options{Thresholds: th}); r.Verdict != Incomplete || !strings.Contains(r.Reason, `phase=\"tow\"`) {
		t.Errorf("a threshold without a score: %s (%s)", r.Verdict, r.Reason)
	}
	if r := Compare(nil, nil, Options{}); r.Verdict != Incomplete {
		t.Errorf("nothing at all: %s", r.Verdict)
	}
}

func TestProvenance_whatDiffers(t *testing.T) {
	x := map[string][]float64{"goodput()": around(100e6, 1e5, 5)}
	before, after := runsOf("b", 5, x), runsOf("a", 5, x)
	for i := range before.Runs {
		before.Runs[i].Provenance = map[string]string{"pcmlab.commit": "abc", "host.h1.kernel": "6.1"}
		after.Runs[i].Provenance = map[string]string{"pcmlab.commit": "def", "host.h1.kernel": "6.1", "host.h2.kernel": "6.1"}
		after.Runs[i].TimeScale = 50
	}
	want := []ProvenanceDiff{{"host.h2.kernel", []string{}, []string{"6.1"}}, {"lab.time_scale", []string{"1"}, []string{"50"}}, {"pcmlab.commit", []string{"abc"}, []string{"def"}}}
	if diff := cmp.Diff(want, Compare([]Group{before}, []Group{after}, Options{}).Provenance); diff != "" {
		t.Errorf("provenance (-want +got):\n%s", diff)
	}
}

// TestProvenance_ofEarlierVersions: hosts were asked for less once; what nobody asked for did not change.
func TestProvenance_ofEarlierVersions(t *testing.T) {
	x := map[string][]float64{"goodput()": around(100e6, 1e5, 5)}
	before, after := runsOf("b", 5, x), runsOf("a", 5, x)
	for i := range before.Runs {
		before.Runs[i].Provenance = map[string]string{"host.h1.kernel": "6.1"}
		after.Runs[i].Provenance = map[string]string{"host.h1.kernel": "6.2", "host.h1.user": "lab (1000)", "host.h1.nic.mlx5_0.mtu": "4200"}
	}
	want := []ProvenanceDiff{{"host.h1.kernel", []string{"6.1"}, []string{"6.2"}}}
	if diff := cmp.Diff(want, Compare([]Group{before}, []Group{after}, Options{}).Provenance); diff != "" {
		t.Errorf("provenance (-want +got):\n%s", diff)
	}
	for i := range before.Runs {
		before.Runs[i].Provenance["host.h1.user"] = "lab (1000)"
	}
	want = append(want, ProvenanceDiff{"host.h1.nic.mlx5_0.mtu", []string{}, []string{"4200"}})
	if diff := cmp.Diff(want, Compare([]Group{before}, []Group{after}, Options{}).Provenance); diff != "" {
		t.Errorf("of one version (-want +got):\n%s", diff)
	}
}

func TestNumber(t *testing.T) {
	for want, got := range map[string]string{
		"4.123 Mb/s": Number(4123456, "bit/s"), "-1.5 Gb/s": Number(-1.5e9, "bit/s"), "12 bit/s": Number(12, "bit/s"), "1.235ms": Number(1234567, "ns"),
		"17": Number(17, "packets"), "0.9712": Number(0.97123, ""), "35.5/s": Number(35.5, "1/s"), "7200 s": Number(7.2e12, "ns"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
