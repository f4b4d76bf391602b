package experiments

import (
	"testing"

	"github.com/pcmlab/pcmlab/inventory"
)

// Where the hosts of a lab are reached differs each time a virtual lab is raised; what is run does not.
func TestInputsHash_isThatOfWhatIsRun(t *testing.T) {
	p, err := LoadPlaybook("../playbooks/incast-3to1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	lab, err := inventory.Load("../labs/virtual-4.yaml")
	if err != nil {
		t.Fatal(err)
	}
	hash := func() string {
		t.Helper()
		h, err := InputsHash(p, lab)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	first := hash()
	lab.Host("h1").SSH.Port = 4711
	if hash() != first {
		t.Error("the port of SSH changed it")
	}
	lab.Host("h1").NICs[0].DSCP++
	if hash() == first {
		t.Error("another DSCP did not change it")
	}
}

// A metric that was not measured says why, and metrics that do not exist for a phase or flow are not there at all.
func TestScores_ofARunWithoutCapture(t *testing.T) {
	plan := &Plan{Phases: []PlannedPhase{{Name: "one", Flows: []string{"h1"}}}, Flows: []PlannedFlow{{Name: "h1"}}}
	seen := map[string]bool{}
	for _, s := range scores(plan, &Result{}) {
		seen[s.Name()] = true
		if s.Value != nil || s.Reason != "nothing was captured" {
			t.Errorf("%s: value %v, reason %q", s.Name(), s.Value, s.Reason)
		}
	}
	for name, want := range map[string]bool{`goodput()`: true, `goodput(phase="one", flow="h1")`: true, `jain(phase="one")`: true, `jain(flow="h1")`: false,
		`rtt_p99(phase="one")`: false, `rtt_p99(flow="h1")`: true, `hw_goodput()`: false} {
		if seen[name] != want {
			t.Errorf("%s: there is %v, want %v", name, seen[name], want)
		}
	}
}
