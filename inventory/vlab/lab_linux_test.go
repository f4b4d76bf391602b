package vlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestUp_hostsAreHosts(t *testing.T) {
	before := lookAround(t)
	o := testOptions(t)
	inst := up(t, testLab("one", 3), o)
	lab := inst.Lab()

	seen := map[string]string{}
	for _, h := range lab.Hosts {
		if got := run(t, inst, h.Name, "hostname"); got != h.Name {
			t.Errorf("host %s: hostname %q", h.Name, got)
		}
		boot := run(t, inst, h.Name, "cat", "/proc/sys/kernel/random/boot_id")
		if other, dup := seen[boot]; dup || boot == machineBootID() || boot == "" {
			t.Errorf("host %s: boot id %q is also that of %q or the machine", h.Name, boot, other)
		}
		seen[boot] = h.Name
	}
	dirs := "~ /run /tmp /var/tmp /dev/shm /var/log"
	run(t, inst, "h1", "sh", "-c", "for d in "+dirs+"; do echo mine > $d/file-of-h1 || exit 1; done")
	if out := run(t, inst, "h2", "sh", "-c", "for d in "+dirs+"; do ls -d $d/file-of-h1 2>/dev/null; done; true"); out != "" {
		t.Errorf("h2 sees files of h1: %s", out)
	}
	if out := run(t, inst, "h1", "sh", "-c", "for d in "+dirs+"; do cat $d/file-of-h1; done"); strings.Count(out, "mine") != 6 {
		t.Errorf("h1 sees of its 6 files: %s", out)
	}
	if _, err := os.Stat("/tmp/file-of-h1"); err == nil {
		t.Error("a file that h1 wrote in /tmp is in the machine's /tmp")
	}
	// The folder of this test is the caller's own, so only the view of the host can keep a host from writing there.
	own, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if out := run(t, inst, "h1", "sh", "-c", "touch "+own+"/written-by-h1 2>&1 || true"); !strings.Contains(out, "Read-only file system") && !strings.Contains(out, "No such file") {
		os.Remove(filepath.Join(own, "written-by-h1"))
		t.Errorf("h1 can write into the caller's %s: %s", own, out)
	}
	if out := run(t, inst, "h1", "sh", "-c", "touch /usr/bin/written-by-h1 2>&1 || true"); !strings.Contains(out, "Read-only file system") {
		t.Errorf("h1 can write into /usr/bin: %s", out)
	}
	if out := run(t, inst, "h1", "sh", "-c", "ls "+o.StateDir+" 2>&1 || true"); strings.Contains(out, "one-") {
		t.Errorf("h1 sees the folders of labs: %s", out)
	}
	if got := run(t, inst, "h1", "ls", "/sys/class/net"); got != "eth0\nlo" {
		t.Errorf("/sys/class/net: %q", got)
	}
	if got := run(t, inst, "h1", "cat", "/sys/class/net/eth0/mtu", "/sys/class/net/eth0/address", "/sys/class/infiniband/softnic0/ports/1/state"); got != "4200\n02:70:c0:00:02:01\n4: ACTIVE" {
		t.Errorf("/sys: %q", got)
	}
	if got := run(t, inst, "sw", "ls", "/sys/class/net"); got != "lo\nmir0" {
		t.Errorf("sw: /sys/class/net: %q", got)
	}
	run(t, inst, "sw", "test", "-S", "/run/pcmlab/fabric.sock")
	names := append([]string{"pcmlab"}, toolNames...)
	want := binDir + "/" + strings.Join(names, "\n"+binDir+"/")
	if got := run(t, inst, "h1", "sh", "-c", "for n in "+strings.Join(names, " ")+"; do command -v $n; done"); got != want {
		t.Errorf("tools are found at %q, want %q", got, want)
	}
	if p := inst.Provenance(); p.Kernel == "" || p.IO == "" || p.FabricIO["sw"] == "" || len(p.Offloads) == 0 || p.SelfTest == "" || p.TimeScale != 50 {
		t.Errorf("provenance: %+v", p)
	}

	code, err := inst.Exec(t.Context(), "h1", []string{"sh", "-c", "exit 7"}, Stdio{})
	if code != 7 || err != nil {
		t.Errorf("exit 7: got %d, %v", code, err)
	}
	if _, err := inst.Exec(t.Context(), "h9", []string{"true"}, Stdio{}); err == nil || !strings.Contains(err.Error(), "it has h1, h2, h3, sw") {
		t.Errorf("unknown host: %v", err)
	}

	r, err := inst.Down(t.Context())
	if err != nil {
		t.Fatalf("down: %v", err)
	}
	for _, i := range r.Items {
		if i.Result != Removed {
			t.Errorf("%s: %s %s", i.What, i.Result, i.Why)
		}
	}
	if diff := cmp.Diff(before, lookAround(t)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
	if _, err := inst.Down(t.Context()); !errors.Is(err, ErrNotFound) {
		t.Errorf("second down: got %v, want ErrNotFound", err)
	}
}

func TestUp_sshWithTheSystemsClient(t *testing.T) {
	client, err := exec.LookPath("ssh")
	if err != nil {
		t.Skip("no ssh client on this machine")
	}
	inst := up(t, testLab("ssh", 2), testOptions(t))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, client, "-F", inst.SSHConfig, "h1", "hostname; ssh h2 hostname").CombinedOutput()
	if err != nil || string(out) != "h1\nh2\n" {
		t.Errorf("ssh h1, and from there ssh h2: %v\n%s", err, out)
	}
}

func TestUp_twoInstancesOfOneLab(t *testing.T) {
	o := testOptions(t)
	a, b := up(t, testLab("twice", 2), o), up(t, testLab("twice", 2), o)
	if a.ID == b.ID {
		t.Fatalf("both are %s", a.ID)
	}
	if x, y := a.Lab().Hosts[0].SSH, b.Lab().Hosts[0].SSH; x.Address == y.Address && x.Port == y.Port {
		t.Errorf("both are at %s:%d", x.Address, x.Port)
	}
	if _, err := Down(t.Context(), "twice", o); err == nil || !strings.Contains(err.Error(), a.ID) || !strings.Contains(err.Error(), b.ID) {
		t.Errorf("down by a name that two have: %v", err)
	}
	if _, err := a.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := run(t, b, "h1", "hostname"); got != "h1" {
		t.Errorf("the other lab after down: %q", got)
	}
	again, err := Open("twice", o)
	if err != nil {
		t.Fatalf("open by name: %v", err)
	}
	if got := run(t, again, "h2", "hostname"); got != "h2" {
		t.Errorf("opened lab: %q", got)
	}
	infos, err := List(o)
	if err != nil || len(infos) != 1 || infos[0].Status != StatusUp || infos[0].ID != b.ID {
		t.Errorf("list: %+v, %v", infos, err)
	}
}

func TestFolder_ofSomeoneElseIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := makePrivate(dir); err == nil || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("folder that all can write: %v", err)
	}
}

// Wires and NICs are hardware elsewhere: a busy machine must delay the hosts' software first.
func TestUp_wiresGoFirst(t *testing.T) {
	inst := up(t, testLab("urgent", 2), testOptions(t))
	if !look().admin {
		if notes := strings.Join(inst.Provenance().Notes, "\n"); !strings.Contains(notes, "fabric sw: ordinary priority") {
			t.Errorf("provenance does not say that the fabric has ordinary priority: %q", notes)
		}
		return
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/autogroup", inst.state.Fabrics[0].Process.PID))
	if err != nil {
		t.Skipf("no autogroups in this kernel: %v", err)
	}
	if !strings.HasSuffix(strings.TrimSpace(string(b)), fmt.Sprintf("nice %d", fabricNice)) {
		t.Errorf("session of the fabric: %s, want nice %d", b, fabricNice)
	}
	if got := run(t, inst, "h1", "cat", "/proc/self/autogroup"); !strings.HasSuffix(got, "nice 0") {
		t.Errorf("session of a command: %s, want nice 0", got)
	}
}
