package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/pcm/calls"
	"github.com/pcmlab/pcmlab/pcm/handlers"
)

// oneFlow is a playbook of one flow for a few seconds.
const oneFlow = `playbook: one-flow
hosts: {sender: h1, receiver: r1}
traffic: {size: 64KiB, margin: 0}
flows: {h1: {from: h1, to: r1}}
phases: [{name: one, start: h1, for: 3s}]
measure: {trim_start: 20%, trim_end: 10%}
captures: [{tap: sw-out-r1}]
`

// withHandler runs one flow whose sender's NIC runs a handler.
func (h *home) withHandler(handler string) (outcome, experiments.Result, float64) {
	h.t.Helper()
	path := filepath.Join(h.dir, "one-flow.yaml")
	if err := os.WriteFile(path, []byte(oneFlow), 0o644); err != nil {
		h.t.Fatal(err)
	}
	out := h.run("run", path, "-i", repo("labs/virtual-4.yaml"), "--set", "nic.h1.handler="+handler)
	if out.code == exitUsage || out.code == exitInfra {
		h.t.Fatalf("exit %d\n%s\n%s", out.code, out.stdout, out.stderr)
	}
	_, result, doc := h.bundle(out)
	rate := 0.0
	for _, p := range doc.Aggregate.PerPhase {
		rate = p.HWGoodputBps
	}
	return out, result, rate
}

func checkNamed(r experiments.Result, prefix string) *experiments.CheckResult {
	for i := range r.Checks {
		if strings.HasPrefix(r.Checks[i].Name, prefix) {
			return &r.Checks[i]
		}
	}
	return nil
}

// TestRun_handlerActs: a handler that sets a quarter of the line rate is compiled, shipped and loaded, and gives a quarter of it.
func TestRun_handlerActs(t *testing.T) {
	h := newHome(t)
	h.needLab()
	const line = 25e9
	for range 3 { // rates need a machine that is not busy with something else
		out, result, rate := h.withHandler(repo("cmd/pcmlab/testdata/handlers/quarter"))
		c := checkNamed(result, "handler ")
		if c == nil || c.Verdict != experiments.Pass {
			t.Fatalf("check of the handler: %+v\n%s", c, out.stdout)
		}
		if share := rate / line; share >= 0.23 && share <= 0.27 {
			t.Logf("a quarter of the line rate gives %.4f of it", share)
			return
		}
		t.Logf("goodput %.3f of the line rate, want 0.25 +- 0.02\n%s", rate/line, out.stdout)
		if result.State == experiments.StateComplete {
			t.Error("a complete run missed it")
		}
	}
	t.Skip("the machine was too busy in three runs")
}

// TestRun_handlerInert: a handler that is called and changes nothing, and one that fails, are reported, and the run says so.
func TestRun_handlerInert(t *testing.T) {
	h := newHome(t)
	h.needLab()
	for name, want := range map[string]string{"idle": "inert: none of its", "failing": "it failed and was stopped for 1 queue pairs"} {
		out, result, rate := h.withHandler(repo("cmd/pcmlab/testdata/handlers/" + name))
		c := checkNamed(result, "handler ")
		if c == nil || c.Verdict != experiments.Fail || !strings.HasPrefix(c.Reason, want) {
			t.Errorf("%s: check %+v, want a failure %q\n%s", name, c, want, out.stdout)
		}
		if rate == 0 {
			t.Errorf("%s: no traffic", name)
		}
	}
	out := h.run("plan", filepath.Join(h.dir, "one-flow.yaml"), "-i", repo("labs/virtual-4.yaml"))
	if out.code != exitOK {
		t.Errorf("plan: %+v", out)
	}
	out = h.run("run", filepath.Join(h.dir, "one-flow.yaml"), "-i", repo("labs/virtual-4.yaml"), "--set", "nic.handler=swfit")
	if out.code != exitUsage || !strings.Contains(out.stderr, `handler "swfit": not in the library`) {
		t.Errorf("a handler that does not exist: %+v", out)
	}
}

// twoFlows has a flow with a handler of its own, and one that the lab's rules give two handlers.
const twoFlows = `playbook: two-flows
hosts: {senders: [h1, h2], receiver: r1}
diagnostic: true
traffic: {size: 64KiB, margin: 0}
flows: {a: {from: h1, to: r1, handler: bbr}, b: {from: h2, to: r1}}
phases: [{name: both, start: [a, b], for: 2s}]
captures: [{tap: sw-out-r1}]
`

// TestRun_severalHandlers: a handler that paces and one that bounds the window decide together for one flow, beside a flow with a handler of
// its own; each acts, and the log of their calls has as many of them, with as many changes, as the NIC counted.
func TestRun_severalHandlers(t *testing.T) {
	h := newHome(t)
	h.needLab()
	lab, err := os.ReadFile(repo("labs/virtual-4.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const rules = "    handlers:\n      - {handler: dcqcn, match: {role: receiver}}\n      - {handler: swift, match: {to: 192.0.2.0/24}, set: {BETA: 0.7}}\n      - {handler: cubic, match: {dscp: 5}}\n"
	files := map[string]string{"lab.yaml": strings.Replace(string(lab), "    priority: 3\n", "    priority: 3\n"+rules, 1), "two.yaml": twoFlows}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := h.run("run", filepath.Join(h.dir, "two.yaml"), "-i", filepath.Join(h.dir, "lab.yaml"))
	dir, result, doc := h.bundle(out)
	for _, name := range []string{"handler bbr acts on h1 (to 192.0.2.14/32)", "handler dcqcn acts on h2 (to 192.0.2.14/32)", "handler swift acts on h2 (to 192.0.2.0/24)"} {
		if c := checkNamed(result, name); c == nil || c.Verdict != experiments.Pass {
			t.Errorf("%s: %+v\n%s", name, c, out.stdout)
		}
	}
	type tally struct{ runs, changes int64 }
	logged := map[string]tally{}
	for _, host := range []string{"h1", "h2"} {
		f, err := os.Open(filepath.Join(dir, "handlers", host+".calls.csv.gz"))
		if err != nil {
			t.Fatal(err)
		}
		last := map[string][2]int64{}
		head, err := calls.Read(f, func(c *calls.Call) {
			key := "nic." + host + "." + c.Handler
			n := logged[key]
			set := [2]int64{}
			for i, v := range []*int64{c.Window, c.Rate} {
				if v != nil {
					set[i] = *v
				}
			}
			if before, ok := last[key]; ok && before != set {
				n.changes++
			}
			n.runs++
			last[key], logged[key] = set, n
			if c.Fired == "" || strings.HasPrefix(c.Fired, "s0") || (c.Window == nil) != (c.Handler == "dcqcn") || (c.Rate == nil) != (c.Handler == "swift") {
				t.Fatalf("%s: %+v", host, *c)
			}
		})
		f.Close()
		if err != nil || head.CutNS != 0 {
			t.Errorf("%s: %+v, %v", host, head, err)
		}
	}
	for key, n := range logged {
		nic, handler := key[:strings.LastIndexByte(key, '.')], key[strings.LastIndexByte(key, '.')+1:]
		c := checkNamed(result, "handler "+handler+" acts on "+strings.TrimPrefix(nic, "nic."))
		if c == nil {
			t.Fatalf("no check of %s", key)
		}
		counted := map[string]int64{}
		for _, v := range c.Values {
			counted[v.Call] = int64(v.Value)
		}
		// Before its first call a handler has its initial values, which the log does not know.
		changes := counted[nic+".handler_changes_"+handler] - n.changes
		if n.runs != counted[nic+".handler_runs_"+handler] || changes < 0 || changes > 1 {
			t.Errorf("%s: %d calls and %d changes in the log, the NIC counted %v", key, n.runs, n.changes, counted)
		}
	}
	if len(logged) != 3 {
		t.Errorf("the logs have the handlers %v", logged)
	}
	for _, f := range doc.Series.Flows {
		if f.PacerRateBps == nil || f.CwndBytes == nil || f.AcksPerCall == nil {
			t.Errorf("flow %s has no series of its handlers", f.ID)
		}
	}
	if p := doc.Aggregate.PerPhase[0]; p.JainPacer == nil {
		t.Error("no Jain's index of pacer rates")
	}
	report, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Pacer rate", "Window", "ACKs per call", "handler on h2 (to 192.0.2.0/24)", "set: BETA=0.7", "handlers/h1.calls.csv.gz"} {
		if !strings.Contains(string(report), want) {
			t.Errorf("the report has no %q", want)
		}
	}
	again := h.run("analyze", dir, "-o", "json")
	written, err := os.ReadFile(filepath.Join(dir, "analysis.json"))
	if err != nil || again.stdout != string(written) {
		t.Errorf("analyze of the folder gives another document (%v)", err)
	}
}

// TestRun_everyHandler runs each handler of the library that a software NIC can: it acts. Those that it cannot run are refused with the reason.
func TestRun_everyHandler(t *testing.T) {
	h := newHome(t)
	h.needLab()
	refused := map[string]string{"reps": "entropy", "ops": "entropy", "ecmp": "entropy", "strack": "entropy", "strack_light": "entropy", "plb": "entropy", "flowlet": "entropy",
		"eqds": "credit"}
	var run []string
	for _, name := range handlers.Names() {
		if refused[name] == "" {
			run = append(run, name)
			continue
		}
		out := h.run("plan", repo("playbooks/incast-3to1.yaml"), "-i", repo("labs/virtual-4.yaml"), "--set", "handler="+name)
		if out.code != exitUsage || !strings.Contains(out.stderr, "it has no "+refused[name]) {
			t.Errorf("%s is not refused because it has no %s: %+v", name, refused[name], out)
		}
	}
	if out := h.run("plan", repo("playbooks/incast-3to1.yaml"), "-i", repo("labs/virtual-4.yaml"), "--set", "handler=dctcp"); strings.Count(out.stdout, "note: handler dctcp on a softnic NIC: ECN (PCM_SIG_ECN): RoCE echoes no marks") != 1 {
		t.Errorf("the plan does not say what dctcp takes for marks: %+v", out)
	}
	if len(run) < 15 {
		t.Fatalf("only %v are run", run)
	}
	const book = `playbook: every-handler
hosts: {senders: [h1, h2], receiver: r1}
traffic: {size: 64KiB, margin: 0}
flows: {a: {from: h1, to: r1}, b: {from: h2, to: r1}}
phases: [{name: both, start: [a, b], for: 1s}]
captures: [{tap: sw-out-r1}]
matrix: {vary: {handler: [HANDLERS]}, order: listed}
`
	path := filepath.Join(h.dir, "every.yaml")
	if err := os.WriteFile(path, []byte(strings.Replace(book, "HANDLERS", strings.Join(run, ", "), 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := h.run("lab", "up", repo("labs/virtual-4.yaml"), "--id", "every"); out.code != exitOK {
		t.Fatalf("lab up: %+v", out)
	}
	out := h.run("run", path, "-i", "every", "--out", filepath.Join(h.dir, "runs"))
	results, err := filepath.Glob(filepath.Join(h.dir, "runs", "*", "*", "01", "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	var acted []string
	for _, file := range results {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r experiments.Result
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Checks {
			name, ok := strings.CutSuffix(c.Name, " acts on h2")
			if name, ok = strings.CutPrefix(name, "handler "); !ok || !strings.HasSuffix(c.Name, " acts on h2") {
				continue
			}
			acted = append(acted, name)
			if c.Verdict != experiments.Pass {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
	slices.Sort(acted)
	if !slices.Equal(acted, run) {
		t.Errorf("results of %v, want %v\n%s\n%s", acted, run, out.stdout, out.stderr)
	}
}

// TestRun_incastWithSwift: the demo's incast with Swift in place of DCQCN is fair and busy in every phase, and the report says what decided.
func TestRun_incastWithSwift(t *testing.T) {
	h := newHome(t)
	h.needLab()
	out, result, doc, ok := h.quiet("run", repo("playbooks/incast-3to1.yaml"), "-i", repo("labs/virtual-4.yaml"), "--set", "handler=swift")
	dir, _, _ := h.bundle(out)
	report, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"h1", "h2", "h3"} {
		if c := checkNamed(result, "handler swift acts on "+host); c == nil || c.Verdict != experiments.Pass {
			t.Errorf("%s: %+v", host, c)
		}
		if !strings.Contains(string(report), "handler on "+host) {
			t.Errorf("the report does not say what decided on %s", host)
		}
	}
	if !strings.Contains(string(report), "MAX_MDF=0.5") {
		t.Error("the report does not have the handler's parameters")
	}
	if !ok {
		t.Skip("the machine was too busy in three runs for rates to be judged; that the handler acted is held all the same")
	}
	for _, p := range doc.Aggregate.PerPhase {
		if p.Jain == nil || *p.Jain < 0.95 || p.Utilisation == nil || *p.Utilisation < 0.85 {
			t.Errorf("phase %s: Jain %v, utilisation %v", p.Name, show(p.Jain), show(p.Utilisation))
		}
	}
}
