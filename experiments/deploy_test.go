package experiments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/locks"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/docapcc"
)

// programs is the backend of NICs whose handlers are programs, without hosts: it notes what it is asked for.
type programs struct {
	docapcc.Backend
	mu      sync.Mutex
	asked   []string
	refuses string // host
	lacks   string // host
	report  nicbackends.DeployReport
}

func (b *programs) note(s string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, s)
}

func (b *programs) Claims(_ context.Context, h remote.Host, nic *inventory.NIC, sends bool) ([]locks.Resource, error) {
	if sends {
		return []locks.Resource{{Kind: locks.PCCRP, Name: h.Name()}}, nil
	}
	return []locks.Resource{{Kind: locks.PCCNP, Name: h.Name()}}, nil
}

func (b *programs) Ready(_ context.Context, d nicbackends.Deployment, sends bool) (r nicbackends.Readiness, err error) {
	b.note(fmt.Sprintf("ready %s %t", d.Host.Name(), sends))
	r.Notes = []string{"a note"}
	if strings.Contains(b.lacks, d.Host.Name()) {
		r.Conditions = []nicbackends.Condition{{What: "firmware"}, {What: "link type", State: nicbackends.Lacks, Why: "port 1 is InfiniBand", Fix: "mlxconfig"}}
	}
	return r, nil
}

func (b *programs) Deploy(_ context.Context, d nicbackends.Deployment) (nicbackends.Deployed, error) {
	on := "itself"
	if d.Build != nil {
		on = d.Build.Name()
	}
	b.note("deploy " + d.NIC.Handlers[0].Handler + " on " + d.Host.Name() + ", built on " + on)
	if d.Host.Name() == b.refuses {
		return nil, errors.New("refused")
	}
	return &programmed{b, d.Host.Name()}, nil
}

type programmed struct {
	b    *programs
	host string
}

func (p *programmed) Counters(context.Context) (map[string]uint64, error) { return nil, nil }

func (p *programmed) Remove(context.Context) (nicbackends.DeployReport, error) {
	p.b.note("remove from " + p.host)
	r := p.b.report
	r.Handler = "swift"
	return r, nil
}

type named struct {
	remote.Host
	name string
}

func (h named) Name() string { return h.name }

// hardwareRun is fig7 on the hardware example, up to where hosts are asked.
func hardwareRun(t *testing.T, b *programs) *Runner {
	t.Helper()
	p, err := LoadPlaybook("../playbooks/fig7.yaml")
	if err != nil {
		t.Fatal(err)
	}
	lab, err := inventory.Load("../labs/hardware-example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	backends := nicbackends.NewRegistry(b)
	plan, err := NewPlan(p, lab, backends)
	if err != nil {
		t.Fatal(err)
	}
	r := &Runner{Playbook: p, Lab: lab, Backends: backends, ID: "run-1", plan: plan, result: &Result{}, hosts: map[string]remote.Host{}}
	if r.bundle, err = CreateBundle(t.TempDir(), "run-1"); err != nil {
		t.Fatal(err)
	}
	for _, h := range plan.Hosts {
		r.hosts[h.Name] = named{name: h.Name}
	}
	return r
}

// Handlers that are programs: receivers are looked at, all senders loaded, and what became of each is a check of the run.
func TestRunner_deploysPrograms(t *testing.T) {
	for _, tc := range []struct {
		name   string
		report nicbackends.DeployReport
		want   string
	}{
		{"runs_to_the_end", nicbackends.DeployReport{Start: "active", End: "active"}, "pass "},
		{"stopped", nicbackends.DeployReport{Start: "active", End: "active", Stopped: "the loader ended: exit status 9", At: time.Date(2026, 11, 30, 12, 0, 20, 0, time.UTC)},
			"fail it stopped at 2026-11-30T12:00:20Z, and what was measured from then on is the NIC's own control loop: the loader ended: exit status 9"},
		{"other_state", nicbackends.DeployReport{Start: "active", End: "standby"}, `fail its state was "active" at the start and "standby" at the end`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &programs{report: tc.report}
			r := hardwareRun(t, b)
			if err := r.deployHandlers(t.Context()); err != nil {
				t.Fatal(err)
			}
			slices.Sort(b.asked)
			if diff := cmp.Diff([]string{"deploy swift on h1, built on build1", "deploy swift on h2, built on build1", "deploy swift on h3, built on build1",
				"ready h1 true", "ready h2 true", "ready h3 true", "ready r1 false"}, b.asked); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			b.asked = nil
			if err := r.removeHandlers(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := r.unwind(t.Context()); err != nil { // as a run does at its end: it is removed once
				t.Fatal(err)
			}
			slices.Sort(b.asked)
			if diff := cmp.Diff([]string{"remove from h1", "remove from h2", "remove from h3"}, b.asked); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if len(r.result.Checks) != 3 {
				t.Fatalf("%+v", r.result.Checks)
			}
			for i, c := range r.result.Checks {
				if got := string(c.Verdict) + " " + c.Reason; got != tc.want || c.Name != "handler swift runs on "+[]string{"h1", "h2", "h3"}[i]+" from start to end" {
					t.Errorf("%s: %q, want %q", c.Name, got, tc.want)
				}
			}
			if _, err := os.Stat(filepath.Join(r.bundle.Dir, "handlers", "h1.deployment.json")); err != nil {
				t.Error(err)
			}
		})
	}
}

// One NIC that refuses: the others are taken out again.
func TestRunner_deploysAllProgramsOrNone(t *testing.T) {
	b := &programs{refuses: "h2", report: nicbackends.DeployReport{Start: "active", End: "active"}}
	r := hardwareRun(t, b)
	if err := r.deployHandlers(t.Context()); err == nil || err.Error() != "refused" {
		t.Fatal(err)
	}
	b.asked = nil
	if err := r.unwind(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(b.asked)
	if diff := cmp.Diff([]string{"remove from h1", "remove from h3"}, b.asked); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// What NICs lack, senders and receivers, is said at once, and then nothing is built or loaded.
func TestRunner_looksAtAllNICsFirst(t *testing.T) {
	b := &programs{lacks: "h2 r1"}
	r := hardwareRun(t, b)
	err := r.deployHandlers(t.Context())
	for _, want := range []string{"host h2: look at a NIC that is to run swift: mlx5_0: link type: port 1 is InfiniBand (mlxconfig)", "host r1: look at a NIC that answers probes: mlx5_0: link type: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if slices.ContainsFunc(b.asked, func(s string) bool { return strings.HasPrefix(s, "deploy") }) || len(b.asked) != 4 {
		t.Errorf("asked %q", b.asked)
	}
	if len(r.result.Warnings) != 1 || r.result.Warnings[0] != "NIC mlx5_0 of r1: a note" {
		t.Errorf("warnings %q", r.result.Warnings)
	}
}

// What a program has of a NIC is locked with its host: the reaction point of senders, the notification point of receivers.
func TestRunner_claims(t *testing.T) {
	r := hardwareRun(t, &programs{})
	for host, want := range map[string]string{"h1": "pcc-rp h1", "r1": "pcc-np r1", "build1": "", "capture1": ""} {
		got, err := r.claims(t.Context(), host)
		if err != nil || len(got) > 1 || len(got) == 1 && got[0].String() != want || len(got) == 0 && want != "" {
			t.Errorf("%s: %v, %v, want %q", host, got, err, want)
		}
	}
	r.plan.Handlers = nil
	if got, err := r.claims(t.Context(), "r1"); err != nil || got != nil {
		t.Errorf("without handlers: %v, %v", got, err)
	}
}

// A handler that lives on round trips and measured none is blind, and counts tell why.
func TestRunner_blindHandlers(t *testing.T) {
	for _, tc := range []struct {
		rtt, timeout int64
		want         string
	}{{5, 0, ""}, {0, 0, "blind: no probe was sent"}, {0, 7, "blind: all of 7 probes were lost"}} {
		r := hardwareRun(t, &programs{})
		r.result.growth = map[string]map[string]int64{}
		for _, h := range []string{"h1", "h2", "h3"} {
			r.result.growth["nic."+h] = map[string]int64{"handler_flows_swift": 1, "handler_runs_swift": 9, "handler_changes_swift": 2, "handler_failures_swift": 0, "handler_rtt_swift": tc.rtt, "handler_rtt_timeout_swift": tc.timeout}
		}
		r.handlerChecks()
		for _, c := range r.result.Checks {
			if (c.Verdict == Pass) != (tc.want == "") || !strings.Contains(c.Reason, tc.want) {
				t.Errorf("%d samples, %d lost: %s %q, want %q", tc.rtt, tc.timeout, c.Verdict, c.Reason, tc.want)
			}
		}
	}
}

// Figure 7 on the hardware example: who takes part, what is built where, and what decides for which flow; the incast of the virtual lab runs there unchanged.
func TestPlan_fig7(t *testing.T) {
	r := hardwareRun(t, &programs{})
	var parts []string
	for _, h := range r.plan.Hosts {
		parts = append(parts, h.Name+": "+strings.Join(h.Parts, ", "))
	}
	if diff := cmp.Diff([]string{"h1: sends h1", "h2: sends h2", "h3: sends h3", "r1: receives h1, receives h2, receives h3", "build1: builds the handler of h1, builds the handler of h2, builds the handler of h3",
		"capture1: captures sw-out-r1", "capture2: captures sw-in"}, parts); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if r.plan.BottleneckRateBps != 100e9 || r.plan.Bottleneck != "r1.ens1f0np0" || len(r.plan.Handlers) != 3 || !r.plan.Handlers[0].Probes {
		t.Errorf("bottleneck %s with %g bit/s, handlers %+v", r.plan.Bottleneck, r.plan.BottleneckRateBps, r.plan.Handlers)
	}
	if rtt := r.plan.Handlers[0].Constants["BASE_RTT"]; rtt != "" && rtt < "14" {
		t.Errorf("base round trip %s", rtt)
	}
	for _, ph := range r.plan.Phases {
		if ph.TrimStart != time.Second || ph.TrimEnd != time.Second {
			t.Errorf("phase %s is measured from %v to %v before its end; the paper leaves out the first and the last second", ph.Name, ph.TrimStart, ph.TrimEnd)
		}
	}
	for _, c := range r.plan.Checks {
		if c.Skip != "" {
			t.Errorf("check %s would be skipped: %s", c.Name, c.Skip)
		}
	}
	p, err := LoadPlaybook(incast)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewPlan(p, r.Lab, r.Backends); err != nil {
		t.Errorf("%s: %v", incast, err)
	}
	if p, err = LoadPlaybook("../playbooks/fig7.yaml"); err != nil {
		t.Fatal(err)
	}
	if plan, err := NewPlan(p, loadLab(t, "virtual-4.yaml"), softBackends); err != nil || len(plan.Handlers) != 3 {
		t.Errorf("on the virtual lab: %v", err)
	}
}

// What a ConnectX cannot do with handlers is said at its line, before anything starts.
func TestPlan_programsMistakes(t *testing.T) {
	lab, err := inventory.Load("../labs/hardware-example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		sets []Param
		want string
	}{
		{[]Param{{"handler", "reps"}}, `handler: handler "reps" sets PCM_CTRL_EV, and the device has no entropy`},
		{[]Param{{"handler", "swft"}}, "not in the library"},
		{[]Param{{"handler", "none"}, {"flows.h1.handler", "swift"}}, "a ConnectX gives all its flows to one program"},
		{[]Param{{"diagnostic", "true"}}, "a docapcc NIC does not log the calls of its handlers"},
	} {
		p, err := LoadPlaybook("../playbooks/fig7.yaml")
		if err == nil {
			p, err = p.With(tc.sets)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err = NewPlan(p, lab, nicbackends.NewRegistry(&programs{})); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q", tc.sets, err, tc.want)
		}
	}
}
