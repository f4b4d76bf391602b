package experiments

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the checks of credit control say of counters, and what expectations see of them.
func TestRunner_rdccChecks(t *testing.T) {
	plan, err := rdccPlan(t, rdccBook, loadLab(t, "virtual-9.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	type counters = map[string]int64
	good := func() map[string]counters {
		sends := func() counters {
			return counters{"rdcc_requests": 5, "rdcc_without": 0, "rdcc_refused": 0, "rdcc_beyond_credit": 0}
		}
		return map[string]counters{"nic.h1": sends(), "nic.h2": sends(),
			"nic.r1": {"rdcc_receiver_granted_octets": 1000, "rdcc_receiver_unscheduled_octets": 7, "rdcc_invariant_violations": 0, "rdcc_excess_octets": 0, "tx_packets": 3}}
	}
	for _, tc := range []struct {
		name, nic, counter string
		value              int64
		verdict            Verdict
		reason             string
	}{
		{"good", "nic.r1", "tx_packets", 1, Pass, ""},
		{"granted_nothing_but_unscheduled", "nic.r1", "rdcc_receiver_granted_octets", 0, Pass, ""},
		{"beyond", "nic.h1", "rdcc_beyond_credit", 4, Fail, "4 octets were sent beyond their credit"},
		{"without", "nic.h1", "rdcc_without", 2, Fail, "2 messages of a went without RDCC: the receiver did not answer, or refused"},
		{"without_to_a_host_that_grants_nothing", "nic.h2", "rdcc_without", 2, Pass, ""}, // flow c goes to h3
		{"refused", "nic.h1", "rdcc_refused", 3, Fail, "3 messages of a failed: the receiver refused them"},
		{"asked_nothing", "nic.h1", "rdcc_requests", 0, Fail, "treatment not applied: no message asked for credit"},
		{"above_G", "nic.r1", "rdcc_invariant_violations", 1, Fail, "1 times more was granted than G"},
		{"excess", "nic.r1", "rdcc_excess_octets", 9, Fail, "9 octets came beyond their credit"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			growth := good()
			growth[tc.nic][tc.counter] = tc.value
			plan.addRDCC(growth)
			r := &Runner{plan: plan, result: &Result{growth: growth}}
			r.rdccChecks()
			var found []CheckResult
			for _, c := range r.result.Checks {
				if c.Verdict != Pass {
					found = append(found, c)
				}
			}
			if tc.verdict == Pass && len(found) > 0 || tc.verdict == Fail && (len(found) != 1 || found[0].Reason != tc.reason || found[0].Verdict != Fail) {
				t.Errorf("got %+v, want %s %q", found, tc.verdict, tc.reason)
			}
			if len(r.result.Checks) != 3 {
				t.Errorf("%d checks, want one for each part of h1, h2 and r1", len(r.result.Checks))
			}
			if diff := cmp.Diff([]string{"flow c went without RDCC: rdcc names no receiver h3"}, r.result.Warnings); diff != "" {
				t.Errorf("warnings (-want +got)\n%s", diff)
			}
		})
	}
	nothing := good()
	nothing["nic.r1"]["rdcc_receiver_granted_octets"], nothing["nic.r1"]["rdcc_receiver_unscheduled_octets"] = 0, 0
	delete(nothing["nic.h1"], "rdcc_requests")
	plan.addRDCC(nothing)
	r := &Runner{plan: plan, result: &Result{growth: nothing}}
	r.rdccChecks()
	var got []string
	for _, c := range r.result.Checks {
		got = append(got, string(c.Verdict)+" "+c.Name+": "+c.Reason)
	}
	want := []string{"skip rdcc waits for credit on h1: its NIC has no counter rdcc_requests", "fail rdcc grants on r1: treatment not applied: it granted nothing", "pass rdcc waits for credit on h2: "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}

	growth := good()
	plan.addRDCC(growth)
	m := &documentMetrics{counters: growth}
	for name, want := range map[string]float64{"rdcc.granted": 1000, "rdcc.r1.granted": 1000, "rdcc.receiver_granted_octets": 1000, "rdcc.requests": 10, "rdcc.h2.requests": 5, "rdcc.unscheduled": 7,
		"rdcc.invariant_violations": 0, "rdcc.G": 249706, "rdcc.r1.segment": 8192, "rdcc.senders": 2} {
		if v, err := m.Counter(name); err != nil || v != want {
			t.Errorf("%s = %v, %v: want %v", name, v, err, want)
		}
	}
	if _, err := m.Counter("rdcc.h1.G"); err == nil {
		t.Error("h1 grants nothing and has no G")
	}
}
