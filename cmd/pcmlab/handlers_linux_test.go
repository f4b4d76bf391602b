package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/experiments"
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
