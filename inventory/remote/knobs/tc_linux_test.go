package knobs

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestApply_tc works on a real interface, in a network namespace of this test's thread.
func TestApply_tc(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	run := func(words string) {
		t.Helper()
		f := strings.Fields(words)
		if out, err := exec.Command(f[0], f[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v (%s)", words, err, out)
		}
	}
	run("ip link add va type veth peer name vb")
	dir := t.TempDir()
	before, err := command(t.Context(), Knob{Dev: "va", TC: "x"}.show())
	if err != nil {
		t.Fatal(err)
	}
	j := apply(t, dir, Knob{Dev: "va", TC: "tbf rate 1mbit burst 10kb latency 10ms"})
	if j.Steps[0].After == nil || !strings.Contains(*j.Steps[0].After, "qdisc tbf") {
		t.Errorf("%+v", j.Steps[0])
	}
	if err := j.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after, _ := command(t.Context(), Knob{Dev: "va", TC: "x"}.show()); after != before {
		t.Errorf("before %q, after %q", before, after)
	}
	run("tc qdisc add dev va root handle 7: tbf rate 2mbit burst 10kb latency 10ms")
	if _, err := Apply(t.Context(), dir, "run-2", "a@b", []Knob{{Dev: "va", TC: "tbf rate 1mbit burst 10kb latency 10ms"}}); err == nil || !strings.Contains(err.Error(), "somebody made") {
		t.Errorf("over a qdisc of somebody's: %v", err)
	}
	if _, err := Apply(t.Context(), dir, "run-3", "a@b", []Knob{{Dev: "vb", TC: "no-such-discipline"}}); err == nil || !strings.Contains(err.Error(), "tc qdisc replace dev vb root no-such-discipline") {
		t.Errorf("an unknown discipline: %v", err)
	}
	if len(left(t, dir)) != 0 {
		t.Errorf("left: %+v", left(t, dir))
	}
}

// What is run for RoCE alone; the testbed's switch runs it (playbooks/testbed), since prio is not in every kernel.
func TestKnob_disciplines(t *testing.T) {
	k := Knob{Dev: "p_r1", TC: "tbf rate 100mbit burst 20k limit 2000000 | red limit 2000000 ecn", Only: "roce"}
	want := `set -e
tc qdisc replace dev p_r1 root handle 1: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
tc qdisc add dev p_r1 parent 1:1 handle 2: pfifo limit 1000
tc filter add dev p_r1 parent 1: protocol ip prio 1 u32 match ip dport 4791 0xffff flowid 1:2
tc filter add dev p_r1 parent 1: protocol ipv6 prio 2 u32 match ip6 dport 4791 0xffff flowid 1:2
tc qdisc add dev p_r1 parent 1:2 handle 4791: tbf rate 100mbit burst 20k limit 2000000
tc qdisc add dev p_r1 parent 4791:1 handle 4792: red limit 2000000 ecn`
	if got := k.disciplines(); len(got) != 3 || got[2] != want {
		t.Errorf("%q, want %q", got, want)
	}
	k.Only = ""
	want = `set -e
tc qdisc replace dev p_r1 root handle 10: tbf rate 100mbit burst 20k limit 2000000
tc qdisc add dev p_r1 parent 10:1 handle 11: red limit 2000000 ecn`
	if got := k.disciplines(); len(got) != 3 || got[2] != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestKnob_tcMistakes(t *testing.T) {
	for _, k := range []Knob{{Dev: "va", TC: "tbf |"}, {Dev: "va", TC: "pfifo", Only: "tcp"}, {File: "/x", Value: "1", Only: "roce"}} {
		if k.Validate() == nil {
			t.Errorf("%+v is taken", k)
		}
	}
}
