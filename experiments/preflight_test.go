package experiments

import (
	"errors"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends/facts"
)

// TestRunner_preflight: before any traffic a run says which of its hosts have another perftest, whose port is down, and what
// earlier runs left there, by owner and run; a host of which not all is known is not judged.
func TestRunner_preflight(t *testing.T) {
	lab, err := inventory.Load("../labs/testbed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	host := func(name, perftest, state string, left ...facts.Leftover) Facts {
		nic := facts.NIC{Device: "rxe0", Name: "eth0", Present: "yes", State: facts.Value(state), LinkLayer: "Ethernet", Netdev: "yes", Oper: "up", MTU: "1500"}
		return Facts{Hostname: facts.Value(name), BootID: facts.Value("boot of " + name), User: "root (0)", Perftest: facts.Value(perftest), NICs: []facts.NIC{nic},
			Tools: map[string]facts.Value{"ib_write_bw": "/usr/bin/ib_write_bw"}, Leftovers: left}
	}
	r := &Runner{Lab: lab, plan: &Plan{Hosts: []PlannedHost{{Name: "h1"}, {Name: "h2"}, {Name: "h3"}, {Name: "r1"}}}, result: &Result{}}
	if r.bundle, err = CreateBundle(t.TempDir(), "run"); err != nil {
		t.Fatal(err)
	}
	r.preflight([]Facts{
		host("h1", "6.12", "ACTIVE"),
		host("h2", "6.20", "ACTIVE", facts.Leftover{Run: "20261130-1-incast", Owner: "ann", What: "ib_write_bw -d rxe0"}, facts.Leftover{Run: "r9", Owner: "bob", What: "ib_write_bw", Alive: true, PID: 7}),
		host("h3", "6.20", "DOWN"),
		host("r1", "6.20", "DOWN"),
	}, []error{nil, nil, nil, errors.New("the answer was cut")})
	said := strings.Join(r.result.Warnings, "\n")
	for _, want := range []string{
		"host h1: perftest version: 6.12: 6.20 on h2, h3: both ends need the same version",
		"host h3 rxe0: port: DOWN: is not ACTIVE",
		"host h2: leftover: run 20261130-1-incast of ann", "pcmlab cleanup --run 20261130-1-incast",
		"host h2: run at work: run r9 of bob", "pcmlab stop r9",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in:\n%s", want, said)
		}
	}
	if strings.Contains(said, "host r1") {
		t.Errorf("a host that did not say all is judged:\n%s", said)
	}
}
