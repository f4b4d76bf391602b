package experiments

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type fixedMetrics map[string]float64

func (m fixedMetrics) Value(metric string, q Query) (float64, error) {
	key := metric + "/" + q.Phase + "/" + q.Flow
	if v, ok := m[key]; ok {
		return v, nil
	}
	return 0, &NotMeasured{metric, "nothing said of " + key}
}

func (m fixedMetrics) Counter(name string) (float64, error) {
	if v, ok := m[name]; ok {
		return v, nil
	}
	return 0, &NotMeasured{name, "no such counter"}
}

func TestExpression(t *testing.T) {
	metrics := fixedMetrics{
		"jain/three/": 0.97, "goodput//h1": 123e6, "retransmissions//": 0, "cnps/two/h-1": 12,
		"nic.h1.packet_seq_err": 3, "switch.sw.r1.dropped_packets": 7, "utilisation/*/": 0.9,
	}
	for _, c := range []struct {
		name, text, why string
		want            bool
		values          []MetricValue
	}{
		{"phase", `jain(phase="three") >= 0.95`, "the form of the documentation", true, []MetricValue{{Call: `jain(phase="three")`, Value: 0.97}}},
		{"flow_and_unit", `goodput(flow="h1") > 100*Mb`, "units are constants", true, []MetricValue{{Call: `goodput(flow="h1")`, Value: 123e6}}},
		{"no_arguments", `retransmissions() == 0`, "== is not an argument", true, []MetricValue{{Call: "retransmissions()", Value: 0}}},
		{"both", `cnps(phase = "two", flow="h-1") == 12`, "blanks do not matter", true, []MetricValue{{Call: `cnps(phase="two", flow="h-1")`, Value: 12}}},
		{"counter", `nic.h1.packet_seq_err == 0`, "dotted names are counters", false, []MetricValue{{Call: "nic.h1.packet_seq_err", Value: 3}}},
		{"counter_of_port", `switch.sw.r1.dropped_packets > 0 and jain(phase="three") > 0.5`, "both kinds together", true,
			[]MetricValue{{Call: "switch.sw.r1.dropped_packets", Value: 7}, {Call: `jain(phase="three")`, Value: 0.97}}},
		{"nested", `abs(jain(phase="three") - 1) < (0.1)`, "calls inside calls", true, []MetricValue{{Call: `jain(phase="three")`, Value: 0.97}}},
		{"all_phases", `utilisation(phase="*") >= 0.85`, "the star is the lowest of all", true, []MetricValue{{Call: `utilisation(phase="*")`, Value: 0.9}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, err := CompileExpression(c.text)
			if err != nil {
				t.Fatalf("%s: %v", c.why, err)
			}
			got, values, err := x.Holds(metrics)
			if err != nil || got != c.want {
				t.Errorf("%s (%s): got %v, %v; want %v", c.text, c.why, got, err, c.want)
			}
			if diff := cmp.Diff(c.values, values); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
		})
	}
}

// flowMetrics are metrics of several flows.
type flowMetrics struct {
	fixedMetrics
	flows []string
}

func (m flowMetrics) FlowNames() []string { return m.flows }

// TestExpression_barOfEachFlow is USERS S01: a bar that each flow must reach, of which the rows that do not are named.
func TestExpression_barOfEachFlow(t *testing.T) {
	metrics := flowMetrics{fixedMetrics{"goodput//h1": 95e9, "goodput//h2": 8e9, "rtt_p99//h1": 1e6, "rtt_p99//h2": 3e6, "goodput/two/h1": 1, "goodput/two/h2": 1, "cnps//": 0}, []string{"h1", "h2"}}
	for _, c := range []struct {
		name, text, why string
		want            bool
		failing         string
	}{
		{"one_under_the_bar", `goodput(flow="*") >= 90*Gb`, "two rows, one under", false, `: goodput(flow="h2") = 8e+09`},
		{"both_over", `goodput(flow="*") >= 7*Gb`, "two rows, none under", true, ""},
		{"both_under", `goodput(flow="*") >= 99*Gb`, "each is named", false, `: goodput(flow="h1") = 9.5e+10, goodput(flow="h2") = 8e+09`},
		{"most", `rtt_p99(flow="*") < 2*ms`, "the worst must hold, whichever way is bad", false, `: rtt_p99(flow="h2") = 3e+06`},
		{"each_against_its_own", `goodput(flow="*") > 10*rtt_p99(flow="*")`, "both sides of one flow", true, ""},
		{"phase_too", `goodput(phase="two", flow="*") > 0`, "with a phase", true, ""},
	} {
		x, err := CompileExpression(c.text)
		if err != nil {
			t.Fatal(err)
		}
		got, values, err := x.Holds(metrics)
		if err != nil || got != c.want || failing(values) != c.failing {
			t.Errorf("%s (%s): %v, %q, %v; want %v, %q", c.name, c.why, got, failing(values), err, c.want, c.failing)
		}
	}
	x, err := CompileExpression(`goodput(flow="*") > 0`)
	if err != nil {
		t.Fatal(err)
	}
	var missing *NotMeasured
	metrics.flows = append(metrics.flows, "h3")
	if ok, _, err := x.Holds(metrics); ok || !errors.As(err, &missing) || !strings.Contains(missing.Metric, `goodput`) {
		t.Errorf("a flow that was not measured: %v, %v", ok, err)
	}
	if ok, _, err := x.Holds(flowMetrics{metrics.fixedMetrics, nil}); ok || !errors.As(err, &missing) {
		t.Errorf("without flows: %v, %v; nothing measured is no pass", ok, err)
	}
	// The run: the check fails and names the row, and so does the run.
	p, err := ParsePlaybook("x.yaml", []byte(strings.Replace(goodPlaybook, `jain(phase="two") >= 0.9`, `goodput(flow="*") >= 90*Gb`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	r := &Runner{Playbook: p, plan: &Plan{Checks: []PlannedCheck{{}}}, result: &Result{State: StateComplete}}
	r.check(flowMetrics{metrics.fixedMetrics, []string{"h1", "h2"}})
	r.result.judge()
	if c := r.result.Checks[0]; c.Verdict != Fail || c.Reason != `does not hold: goodput(flow="h2") = 8e+09` || r.result.Verdict != Fail {
		t.Errorf("%+v, run %s", c, r.result.Verdict)
	}
}

func TestExpression_notMeasuredIsNotZero(t *testing.T) {
	for _, text := range []string{`lost() == 0`, `nic.h9.packet_seq_err == 0`, `lost() == 0 or cnps() == 0`} {
		x, err := CompileExpression(text)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = x.Holds(fixedMetrics{"cnps//": 0})
		var missing *NotMeasured
		if !errors.As(err, &missing) {
			t.Errorf("%s: got %v, want a *NotMeasured", text, err)
		}
	}
}

func TestExpression_mistakesNameTheColumn(t *testing.T) {
	for _, c := range []struct {
		text string
		col  int
		part string
	}{
		{`jian(phase="x") > 1`, 0, "no metric"},
		{`jain >= 0.9`, 0, "is a function"},
		{`jain(fase="x") > 1`, 5, "no argument"},
		{`jain(phase) > 1`, 5, `write phase="..."`},
		{`jain(phase="x) > 1`, 11, "does not end"},
		{`jain(phase="x")`, 0, "bool"},
		{`1 > "a"`, 2, "invalid operation"},
		{`jain(phase="x") >= `, 17, "unexpected"},
	} {
		_, err := CompileExpression(c.text)
		var e *ExpressionError
		if !errors.As(err, &e) {
			t.Errorf("%s: got %v, want an *ExpressionError", c.text, err)
			continue
		}
		if !strings.Contains(e.Message, c.part) || (e.Col != c.col && c.col != 17 && c.part != "bool") {
			t.Errorf("%s: got column %d %q, want %d with %q", c.text, e.Col, e.Message, c.col, c.part)
		}
	}
}

func FuzzExpression(f *testing.F) {
	for _, s := range []string{`jain(phase="three") >= 0.95`, `nic.h1.x == 0`, `a(b(c`, `"`, `jain(jain()) = 3`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		x, err := CompileExpression(text)
		if err != nil {
			var e *ExpressionError
			if !errors.As(err, &e) {
				t.Fatalf("%q: error is no *ExpressionError: %v", text, err)
			}
			if e.Col < 0 || e.Col > len(text) {
				t.Fatalf("%q: column %d outside", text, e.Col)
			}
			return
		}
		// What compiles either holds, does not hold, or says why not; nothing panics.
		if _, _, err := x.Holds(fixedMetrics{}); err == nil && len(x.uses) > 0 && !strings.ContainsAny(text, "&|?") &&
			!strings.Contains(text, "and") && !strings.Contains(text, "or") && !strings.Contains(text, "if") {
			t.Logf("%q: names counters and yet holds or not", text)
		}
	})
}
