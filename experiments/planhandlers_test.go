package experiments

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/softnic"
)

// labWith is the lab of three senders whose h1 has further lines for its NIC; they begin in line 41.
func labWith(t *testing.T, lines string) *inventory.Lab {
	t.Helper()
	data, err := os.ReadFile("../labs/virtual-4.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const h1 = "  h1: {nics: [{ip: 192.0.2.11/24}]}\n"
	text := strings.Replace(string(data), h1, "  h1:\n    nics:\n      - ip: 192.0.2.11/24\n"+lines, 1)
	if text == string(data) {
		t.Fatal("the lab has no such line")
	}
	l, err := inventory.Parse("lab.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const threeFlows = `playbook: three
hosts: {senders: [h1, h2], receiver: r1, far: h3}
HANDLER
traffic: {qps: 2}
flows:
  a: {from: h1, to: r1}
  b: {from: h1, to: h3}
  c: {from: h2, to: r1}
phases: [{name: one, start: [a, b, c], for: 2s}]
`

func threeFlowsWith(t *testing.T, handler string, sets ...Param) *Playbook {
	t.Helper()
	p, err := ParsePlaybook("book.yaml", []byte(strings.Replace(threeFlows, "HANDLER", handler, 1)))
	if err == nil && len(sets) > 0 {
		p, err = p.With(sets)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var softBackends = nicbackends.NewRegistry(softnic.Backend{}, capsOnly{nil, "rxe", nil})

// Which handlers decide for which flows: those of a flow come before the playbook's, that before the lab's, and the lab's in their order.
func TestPlan_handlersOfFlows(t *testing.T) {
	const rules = `        handlers:
          - {handler: swift, match: {role: far}}
          - {handler: dcqcn, match: {to: 192.0.2.0/24, qp: 2}}
          - {handler: timely, match: {dscp: 3}}
          - {handler: bbr}
`
	// Said once, whatever NICs have the handler.
	const marks = "handler cubic on a softnic NIC: ECN (PCM_SIG_ECN): RoCE echoes no marks, so CNPs are counted: a queue pair has at most one in 50 us, however many of its packets were marked"
	for _, tc := range []struct {
		name, lab, book string
		sets            []Param
		want            []string
		notes           []string
	}{
		{name: "none", want: nil},
		{name: "lab", lab: rules, want: []string{
			"h1 swift [to 192.0.2.13/32] b", // role far
			"h1 dcqcn [to 192.0.2.0/24, qp 2] a b",
			"h1 bbr [] a"}, // its first queue pair; b has swift, which sets the window
			notes: []string{"handler timely on h1 (dscp 3) is left out: it decides for no flow of this playbook"}},
		{name: "short_form", lab: "        handler: swift\n", want: []string{"h1 swift [] a b"}},
		{name: "playbook", lab: rules, book: "handler: cubic", want: []string{"h1 cubic [] a b", "h2 cubic [] c"}, notes: []string{marks}},
		{name: "playbook_none", lab: rules, book: "handler: none"},
		{name: "set", lab: rules, sets: []Param{{"handler", "cubic"}, {"flows.c.handler", "none"}}, want: []string{"h1 cubic [] a b"},
			notes: []string{marks, "handler cubic on h2 (all flows) is left out: it decides for no flow of this playbook"}},
		{name: "flow", lab: "        handler: dcqcn\n", sets: []Param{{"flows.a.handler", "newreno"}}, want: []string{"h1 newreno [to 192.0.2.14/32] a", "h1 dcqcn [] b"}},
		{name: "flow_none", lab: "        handler: dcqcn\n", sets: []Param{{"flows.a.handler", "none"}}, want: []string{"h1 dcqcn [] b"}},
		{name: "twice", lab: "        handlers: [{handler: swift, match: {qp: 1}}, {handler: swift, set: {BETA: 0.5}}]\n", want: []string{"h1 swift [qp 1] a b", "h1 swift [] a b BETA=0.5 as swift_2"}},
		{name: "role_elsewhere", lab: "        handlers: [{handler: swift, match: {role: far, to: 198.51.100.0/24}}]\n", notes: []string{"handler swift on h1 decides for no flow: no host of role far is within its networks"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan, err := NewPlan(threeFlowsWith(t, tc.book, tc.sets...), labWith(t, tc.lab), softBackends)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, h := range plan.Handlers {
				text := h.Host + " " + h.Name + " [" + h.Match + "] " + strings.Join(append(h.Flows, h.Set...), " ")
				if h.Counter != h.Name {
					text += " as " + h.Counter
				}
				if len(h.Hash) != 64 || len(h.Constants) == 0 {
					t.Errorf("%s: hash %q, %d constants", text, h.Hash, len(h.Constants))
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("handlers (-want +got)\n%s", diff)
			}
			var notes []string
			for _, n := range plan.Notes {
				if strings.HasPrefix(n, "handler ") {
					notes = append(notes, n)
				}
			}
			if diff := cmp.Diff(tc.notes, notes); diff != "" {
				t.Errorf("notes (-want +got)\n%s", diff)
			}
		})
	}
}

// All mistakes of handlers come at once, each at the place in the file that it is in.
func TestPlan_mistakesOfHandlers(t *testing.T) {
	for _, tc := range []struct {
		name, lab, book string
		sets            []Param
		want            []string
	}{
		{name: "lab", lab: `        handlers:
          - {handler: swfit, match: {dscp: 1}}
          - {handler: swift, match: {dscp: 26}, set: {BETTA: 0.5, BETA: nonsense, AI: 2}}
          - {handler: dctcp, match: {dscp: 26, qp: 2}}
          - {handler: reps, match: {dscp: 2}}
          - {handler: eqds, match: {role: receivr}}
          - {handler: none, match: {dscp: 5}}
          - {handler: cubic, match: {dscp: 5, to: 192.0.2.0/24}}
`, want: []string{
			`lab.yaml:42:23: handler "swfit": not in the library (did you mean "swift"?`,
			`lab.yaml:43:62: handler "swift" has no constant "BETTA" (did you mean "BETA"?`,
			`lab.yaml:43:73: handler "swift": BETA = "nonsense": BETA = "nonsense": no constant "nonsense"`,
			`lab.yaml:44:13: handler "dctcp" sets PCM_CTRL_CWND, which handler "swift" sets for every flow that this rule matches (lab.yaml:43:23) (give the one before a narrower match, or leave one out)`,
			`lab.yaml:45:23: handler "reps" sets PCM_CTRL_EV, and it has no entropy: the software NIC does not choose paths`,
			`lab.yaml:46:23: handler "eqds" sets PCM_CTRL_PULL_NO, and it has no credit: receivers of the software NIC grant none`,
			`lab.yaml:46:43: handler "eqds": playbook "three" gives no host the role "receivr" (did you mean "receiver"? known: far, receiver, senders)`,
			`lab.yaml:48:13: handler "cubic" is given to no flow: a rule before leaves all that this one matches to the NIC (lab.yaml:47:23) (put it before that rule, or leave one out)`,
		}},
		{name: "two_that_set_the_same", lab: "        handlers: [{handler: swift}, {handler: bbr}]\n", want: []string{
			`lab.yaml:41:38: handler "bbr" sets PCM_CTRL_CWND, which handler "swift" sets for every flow that this rule matches (lab.yaml:41:30) (give`}},
		{name: "playbook", book: "handler: swfit", want: []string{`book.yaml:3:10: handler: handler "swfit": not in the library`}},
		{name: "set", sets: []Param{{"handler", "swfit"}, {"flows.a.handler", "reps"}}, want: []string{
			`flows.a.handler=reps: handler "reps" sets PCM_CTRL_EV`, `handler=swfit: handler "swfit": not in the library`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewPlan(threeFlowsWith(t, tc.book, tc.sets...), labWith(t, tc.lab), softBackends)
			if err == nil {
				t.Fatal("accepted")
			}
			lines := strings.Split(strings.TrimSuffix(strings.ReplaceAll(err.Error(), "\n(lab lab.yaml)", ""), "\n"), "\n")
			if len(lines) != len(tc.want) {
				t.Errorf("%d mistakes, want %d:\n%v", len(lines), len(tc.want), err)
			}
			for i, want := range tc.want {
				if i < len(lines) && !strings.HasPrefix(lines[i], want) {
					t.Errorf("got  %s\nwant %s", lines[i], want)
				}
			}
		})
	}
	t.Run("two_flows_to_one_host", func(t *testing.T) {
		text := strings.Replace(strings.Replace(threeFlows, "HANDLER", "", 1), "to: h3}", "to: r1, handler: swift}", 1)
		p, err := ParsePlaybook("book.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		want := `book.yaml:7:34: flows.b.handler: flow "b" goes from "h1" to the same host as flow "a", whose handler is that of the playbook or the lab: the NIC cannot tell them apart (give both the same)`
		if _, err := NewPlan(p, labWith(t, ""), softBackends); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	})
	t.Run("other_nic", func(t *testing.T) {
		lab := labWith(t, "")
		lab.Host("h2").NICs[0].Backend = "rxe"
		want := `book.yaml:3:10: handler: a rxe NIC runs no PCM handlers (handler: swift)`
		if _, err := NewPlan(threeFlowsWith(t, "handler: swift"), lab, softBackends); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	})
	t.Run("of_every_nic_once", func(t *testing.T) {
		lab := labWith(t, "")
		if err := inventory.OverrideAll(lab, []inventory.Setting{{Key: "nic.handler", Value: "swfit"}}); err != nil {
			t.Fatal(err)
		}
		want := `lab.yaml: host h1, NIC softnic0; h2, NIC softnic0: handler "swfit": not in the library`
		if _, err := NewPlan(threeFlowsWith(t, ""), lab, softBackends); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Count(err.Error(), "swfit") != 1 {
			t.Errorf("%v, want %s", err, want)
		}
	})
}

// A matrix varies the handler of the playbook, and a value that is no handler is a mistake at its place.
func TestCells_overHandlers(t *testing.T) {
	matrix := func(values string) string { return "matrix: {vary: {handler: [" + values + "]}}" }
	cells, err := threeFlowsWith(t, matrix("none, swift, dcqcn")).Cells(labWith(t, ""), softBackends)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	inputs := map[string]bool{}
	for _, c := range cells {
		got = append(got, c.Params[0].Value)
		inputs[c.Inputs] = true
		if n := len(c.Plan.Handlers); n != map[string]int{"none": 0, "swift": 2, "dcqcn": 2}[c.Params[0].Value] {
			t.Errorf("%s: %d handlers", c.ID, n)
		}
	}
	if diff := cmp.Diff([]string{"none", "swift", "dcqcn"}, got); diff != "" || len(inputs) != 3 {
		t.Errorf("cells (-want +got)\n%s\n%d kinds of inputs", diff, len(inputs))
	}
	_, err = threeFlowsWith(t, matrix("swift, swfit, reps")).Cells(labWith(t, ""), softBackends)
	if err == nil || !strings.Contains(err.Error(), `book.yaml:3:34: matrix.vary.handler[1]: cell handler=swfit: handler "swfit": not in the library`) ||
		!strings.Contains(err.Error(), `book.yaml:3:41: matrix.vary.handler[2]: cell handler=reps: handler "reps" sets PCM_CTRL_EV`) {
		t.Errorf("%v", err)
	}
}
