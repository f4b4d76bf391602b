package experiments

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"
)

// Query selects what a metric is asked of: one phase and one flow, or all of them ("").
type Query struct{ Phase, Flow string }

// Metrics answers expectations. Value gives *NotMeasured for a metric that was not measured: never 0.
type Metrics interface {
	Value(metric string, q Query) (float64, error)
	// Counter gives a counter's growth over the run: "nic.h1.packet_seq_err", "switch.sw.dropped_packets".
	Counter(name string) (float64, error)
}

// NotMeasured says why a metric has no value.
type NotMeasured struct{ Metric, Reason string }

func (e *NotMeasured) Error() string { return e.Metric + ": not measured: " + e.Reason }

// counterRoots are the first words of dotted counter names.
var counterRoots = []string{"nic", "switch", "rdcc", "crn"}

// Expression is one compiled expectation.
type Expression struct {
	Text    string
	program *vm.Program
	uses    []string // counters it names

	ofEachFlow bool // it says flow="*"
}

// CompileExpression checks an expectation such as `jain(phase="three") >= 0.95`. Errors are *ExpressionError with
// the column in text.
func CompileExpression(text string) (*Expression, error) {
	rewritten, back, uses, err := rewrite(text)
	if err != nil {
		return nil, err
	}
	opts := []expr.Option{expr.Env(environment(nil)), expr.AsBool()}
	program, err := expr.Compile(rewritten, opts...)
	if err != nil {
		var fe *file.Error
		if errors.As(err, &fe) {
			return nil, &ExpressionError{Text: text, Col: back(fe.Column), Message: strings.TrimSpace(fe.Message)}
		}
		return nil, &ExpressionError{Text: text, Col: 0, Message: err.Error()}
	}
	x := &Expression{Text: text, program: program, uses: uses}
	_, asked := x.queries()
	x.ofEachFlow = slices.ContainsFunc(asked, func(q Query) bool { return q.Flow == "*" })
	return x, nil
}

// ExpressionError points at a column (from 0) of an expectation.
type ExpressionError struct {
	Text    string
	Col     int
	Message string
}

func (e *ExpressionError) Error() string {
	return fmt.Sprintf("expectation %q: column %d: %s", e.Text, e.Col+1, e.Message)
}

// Holds evaluates the expectation. values lists the metrics it asked for with what they were. One that says flow="*" must
// hold for each flow; values of those for which it does not are marked.
func (x *Expression) Holds(m Metrics) (ok bool, values []MetricValue, err error) {
	all, several := m.(interface{ FlowNames() []string })
	if !several || !x.ofEachFlow {
		return x.holds(m, "")
	}
	ok = true
	for _, flow := range all.FlowNames() {
		good, looked, err := x.holds(m, flow)
		if err != nil {
			return false, append(values, looked...), err
		}
		for _, v := range looked {
			v.Fails = !good
			values = append(values, v)
		}
		ok = ok && good
	}
	if len(values) == 0 {
		return false, nil, &NotMeasured{x.Text, "the run has no flows"}
	}
	return ok, values, nil
}

// holds evaluates it with flow in the place of "*".
func (x *Expression) holds(m Metrics, flow string) (ok bool, values []MetricValue, err error) {
	rec := &recorder{m: m, flow: flow}
	out, err := expr.Run(x.program, environment(rec))
	if rec.missing != nil { // expr wraps what a function returns; the first thing not measured is the reason
		return false, rec.values, rec.missing
	}
	if err != nil {
		return false, rec.values, fmt.Errorf("expectation %q: %w", x.Text, err)
	}
	return out.(bool), rec.values, nil
}

// MetricValue is one value that an expectation looked at.
type MetricValue struct {
	Call  string  `json:"call"` // jain(phase="three")
	Value float64 `json:"value"`
	Fails bool    `json:"fails,omitempty"` // of flow="*": the expectation does not hold for this flow
}

type recorder struct {
	m       Metrics
	flow    string // in the place of "*"
	values  []MetricValue
	missing error
}

func (r *recorder) note(call string, v float64, err error) (float64, error) {
	if err != nil {
		if r.missing == nil {
			r.missing = err
		}
		return 0, err
	}
	r.values = append(r.values, MetricValue{Call: call, Value: v})
	return v, nil
}

// environment has one function per metric, `counter` for dotted names, and the constants of rates and sizes.
func environment(r *recorder) map[string]any {
	env := map[string]any{"us": 1e3, "ms": 1e6, "kb": 1e3, "Mb": 1e6, "Gb": 1e9, "KiB": 1024.0, "MiB": 1048576.0}
	for _, m := range MetricCatalogue {
		env[m.Name] = func(args map[string]any) (float64, error) {
			q, call, err := query(m.Name, args)
			if err != nil || r == nil {
				return 0, err
			}
			if q.Flow == "*" && r.flow != "" {
				q.Flow = r.flow
				call = m.Name + q.String()
			}
			v, err := r.m.Value(m.Name, q)
			return r.note(call, v, err)
		}
	}
	env["counter"] = func(name string) (float64, error) {
		if r == nil {
			return 0, nil
		}
		v, err := r.m.Counter(name)
		return r.note(name, v, err)
	}
	return env
}

func query(name string, args map[string]any) (Query, string, error) {
	var q Query
	var parts []string
	for _, k := range []string{"phase", "flow"} {
		v, ok := args[k]
		if !ok {
			continue
		}
		s, isText := v.(string)
		if !isText {
			return q, "", fmt.Errorf("%s: %s must be a name in quotes", name, k)
		}
		if k == "phase" {
			q.Phase = s
		} else {
			q.Flow = s
		}
		parts = append(parts, fmt.Sprintf("%s=%q", k, s))
	}
	return q, fmt.Sprintf("%s(%s)", name, strings.Join(parts, ", ")), nil
}

// rewrite turns the two conveniences of the expectation language into plain expressions of the library:
// `jain(phase="x")` becomes `jain({phase:"x"})`, and `nic.h1.packet_seq_err` becomes `counter("nic.h1.packet_seq_err")`.
// back maps a column of the result to one of text.
func rewrite(text string) (out string, back func(int) int, uses []string, err error) {
	var b strings.Builder
	var origin []int // for each byte written, the column it came from
	emit := func(s string, col int) {
		b.WriteString(s)
		for range len(s) {
			origin = append(origin, col)
		}
	}
	fail := func(col int, format string, a ...any) (string, func(int) int, []string, error) {
		return "", nil, nil, &ExpressionError{Text: text, Col: col, Message: fmt.Sprintf(format, a...)}
	}
	var calls []int // depth of parentheses at which each open metric call began
	depth := 0
	for i := 0; i < len(text); {
		c := text[i]
		inCall := len(calls) > 0 && calls[len(calls)-1] == depth
		switch {
		case c == '"' || c == '\'':
			end := strings.IndexByte(text[i+1:], c)
			if end < 0 {
				return fail(i, "the quoted text does not end")
			}
			emit(text[i:i+end+2], i)
			i += end + 2
		case isWord(c) && !(c >= '0' && c <= '9'):
			end := i
			for end < len(text) && (isWord(text[end]) || text[end] == '.' || text[end] == '-' && end+1 < len(text) && isWord(text[end+1]) && dotted(text[i:end])) {
				end++
			}
			word := text[i:end]
			next := strings.TrimLeft(text[end:], " ")
			switch {
			case isMetric(word) && strings.HasPrefix(next, "("):
				depth++
				calls = append(calls, depth)
				emit(word, i)
				emit("({", end)
				end += len(text[end:]) - len(next) + 1
			case isMetric(word):
				return fail(i, "%s is a function: write %s() or %s(phase=\"...\")", word, word, word)
			case dotted(word) && slices.Contains(counterRoots, word[:strings.IndexByte(word, '.')]):
				uses = append(uses, word)
				emit(fmt.Sprintf("counter(%q)", word), i)
			case strings.HasPrefix(next, "(") && !slices.Contains([]string{"abs", "min", "max", "round", "floor", "ceil", "not"}, word):
				return fail(i, "no metric %q%s", word, suggestMetric(word))
			case inCall:
				if word != "phase" && word != "flow" {
					return fail(i, "no argument %q: a metric takes phase and flow", word)
				}
				if !strings.HasPrefix(next, "=") {
					return fail(i, "write %s=\"...\"", word)
				}
				emit(word, i)
			default:
				emit(word, i)
			}
			i = end
		case c == '=' && inCall && !strings.HasPrefix(text[i:], "=="):
			emit(":", i)
			i++
		case c == '(':
			depth++
			emit("(", i)
			i++
		case c == ')':
			if inCall {
				emit("})", i)
				calls = calls[:len(calls)-1]
			} else {
				emit(")", i)
			}
			depth--
			i++
		default:
			emit(text[i:i+1], i)
			i++
		}
	}
	return b.String(), func(col int) int {
		if col >= 0 && col < len(origin) {
			return origin[col]
		}
		return len(text)
	}, uses, nil
}

func isWord(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func dotted(s string) bool { return strings.Contains(s, ".") }

func isMetric(s string) bool {
	_, ok := Metric(s)
	return ok
}

func suggestMetric(word string) string {
	names := make([]string, len(MetricCatalogue))
	for i, m := range MetricCatalogue {
		names[i] = m.Name
	}
	for _, n := range names {
		if strings.HasPrefix(n, word[:min(len(word), 3)]) {
			return fmt.Sprintf(" (did you mean %s?)", n)
		}
	}
	return " (known: " + strings.Join(names, ", ") + ")"
}

// queries runs the expectation against nothing to learn which phases and flows it names. Alternatives that are not
// reached (`a or b`) are found because every metric is given as both 0 and 1.
func (x *Expression) queries() (counters []string, asked []Query) {
	for _, v := range []float64{0, 1} {
		s := &spy{value: v}
		x.Holds(s)
		asked = append(asked, s.asked...)
	}
	return x.uses, asked
}

// speaksOf says that the expectation asks for a metric.
func (x *Expression) speaksOf(metric string) bool {
	for _, v := range []float64{0, 1} {
		s := &spy{value: v}
		x.Holds(s)
		if slices.Contains(s.metrics, metric) {
			return true
		}
	}
	return false
}

type spy struct {
	value   float64
	asked   []Query
	metrics []string
}

func (s *spy) Value(metric string, q Query) (float64, error) {
	s.metrics = append(s.metrics, metric)
	if !slices.Contains(s.asked, q) {
		s.asked = append(s.asked, q)
	}
	return s.value, nil
}

func (s *spy) Counter(string) (float64, error) { return s.value, nil }
