package check

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends"
)

// What a sender lacks fails, what a receiver lacks warns, what both need is said once, and what cannot be judged is no pass.
func TestProgramFindings(t *testing.T) {
	both := nicbackends.Condition{What: "link type", State: nicbackends.Lacks, Why: "port 1 is InfiniBand", Fix: "mlxconfig"}
	sends := nicbackends.Readiness{Conditions: []nicbackends.Condition{both, {What: "firmware", State: nicbackends.NotKnown, Found: "40.1.1, floor: unknown", Why: "none is published"},
		{What: "USER_PROGRAMMABLE_CC", Found: "runs 1, staged 1"}, {What: "REAL_TIME_CLOCK_ENABLE", State: nicbackends.HoldsNow, Found: "runs 1, staged 0", Why: "the next boot changes it"}}}
	answers := nicbackends.Readiness{Conditions: []nicbackends.Condition{both, {What: "PCC_INT_EN", State: nicbackends.Lacks, Found: "runs 1, staged 1", Why: "is 1, need 0"}}}
	want := []Finding{
		{Host: "h1", NIC: "mlx5_0", What: "handlers: link type", Verdict: Fail, Why: "port 1 is InfiniBand", Fix: "mlxconfig"},
		{Host: "h1", NIC: "mlx5_0", What: "handlers: firmware", Verdict: Skip, Found: "40.1.1, floor: unknown", Why: "none is published"},
		{Host: "h1", NIC: "mlx5_0", What: "handlers: USER_PROGRAMMABLE_CC", Verdict: Pass, Found: "runs 1, staged 1"},
		{Host: "h1", NIC: "mlx5_0", What: "handlers: REAL_TIME_CLOCK_ENABLE", Verdict: Warn, Found: "runs 1, staged 0", Why: "the next boot changes it"},
		{Host: "h1", NIC: "mlx5_0", What: "handlers: PCC_INT_EN", Verdict: Warn, Found: "runs 1, staged 1", Why: "where it receives from a NIC that runs a handler: is 1, need 0"},
	}
	if diff := cmp.Diff(want, programFindings("h1", "mlx5_0", sends, nil, answers, nil)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	lost := &remote.Error{Host: "h1", Step: "look at NIC mlx5_0", Err: errors.New("no room"), Fix: "make some"}
	want = []Finding{{Host: "h1", NIC: "mlx5_0", What: "handlers", Verdict: Fail, Why: "look at NIC mlx5_0: no room", Fix: "make some"}}
	if diff := cmp.Diff(want, programFindings("h1", "mlx5_0", sends, lost, answers, nil)); diff != "" {
		t.Errorf("a host that cannot be asked (-want +got)\n%s", diff)
	}
}
