package softnic

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

// answers is a host that answers every command with the same result and keeps the commands.
type answers struct {
	remote.Host
	result remote.Result
	asked  []string
}

func (*answers) Name() string { return "h1" }

func (a *answers) Run(_ context.Context, c remote.Cmd) (remote.Result, error) {
	a.asked = append(a.asked, strings.Join(c.Args, " "))
	return a.result, nil
}

func TestBackend(t *testing.T) {
	nic := &inventory.NIC{Device: "softnic0"}
	off := false
	good := remote.Result{Stdout: []byte(`{"schema":"pcmlab/nic-counters/v1","device":"softnic0","counters":{"np_cnp_sent":18446744073709551615}}`)}
	h := &answers{result: good}
	m, err := Backend{}.Counters(t.Context(), h, nic)
	if diff := cmp.Diff(map[string]uint64{"np_cnp_sent": 18446744073709551615}, m); err != nil || diff != "" {
		t.Errorf("Counters: %v (-want +got)\n%s", err, diff)
	}
	if err := (Backend{}).Setup(t.Context(), h, nil, nic); err != nil {
		t.Error(err)
	}
	nic.DCQCN = &off
	if err := (Backend{}).Setup(t.Context(), h, nil, nic); err != nil {
		t.Error(err)
	}
	want := []string{"pcmlab nic counters --device softnic0 -o json", "pcmlab nic set --device softnic0 dcqcn=on handler=none lateness=reset", "pcmlab nic set --device softnic0 dcqcn=off handler=none lateness=reset"}
	if diff := cmp.Diff(want, h.asked); diff != "" {
		t.Errorf("commands (-want +got)\n%s", diff)
	}
	for _, tc := range []struct {
		name   string
		result remote.Result
		want   string
	}{
		{"failed", remote.Result{Code: 3, Stderr: []byte("no NIC listens there\n")}, "no NIC listens there"},
		{"empty", remote.Result{}, "unexpected end"},
		{"other_document", remote.Result{Stdout: []byte(`{"schema":"x","counters":{"a":1}}`)}, `schema "x"`},
		{"no_counters", remote.Result{Stdout: []byte(`{"schema":"pcmlab/nic-counters/v1"}`)}, "with 0 counters"},
	} {
		if m, err := (Backend{}).Counters(t.Context(), &answers{result: tc.result}, nic); err == nil || m != nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "h1") {
			t.Errorf("%s: %v, %v: want an error with %q", tc.name, m, err, tc.want)
		}
	}
}
