package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/testwait"
)

// TestTestbed_rdmaLinkRemoved: the RDMA device of a sender vanishes in the middle of a phase. The kernel ends the flow, or lets it come to its end before
// the device goes, or hangs, and then the host is lost: the run ends in a bounded time, names the host, keeps what was measured and leaves nothing on the others.
func TestTestbed_rdmaLinkRemoved(t *testing.T) {
	h, b, _ := bed(t)
	lab := b.Lab(t, [2]string{"  sw-out-r1: {", "  out: {"})
	s := h.start("run", repo("cmd/pcmlab/testdata/chaos/long.yaml"), "-i", lab, "--out", filepath.Join(h.dir, "runs"))
	c := &chaos{home: h}
	testwait.For(t, 5*time.Minute, "the phase", func() bool { return c.has(filepath.Join(h.dir, "runs"), `"event":"phase_start"`) })
	ssh := exec.Command("ssh", "-F", filepath.Join(b.State, "ssh_config"), "h1", "rdma link del rxe0")
	if err := ssh.Start(); err != nil { // it may not come back
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ssh.Process.Kill()
		ssh.Wait()
		b.Clean("h1", "rdma link show rxe0/1 >/dev/null 2>&1 || rdma link add rxe0 type rxe netdev eth0")
	})
	out := h.finish(s)
	if out.code != exitInfra || !strings.Contains(out.stderr, "h1") {
		t.Errorf("exit %d\n%s\n%s", out.code, out.stdout, out.stderr)
	}
	t.Logf("%s", out.stderr)
	_, result, _ := h.bundle(out)
	if result.State != experiments.StatePartial {
		t.Errorf("state %s (%s), flows %+v", result.State, result.Reason, result.Flows)
	}
	for _, host := range []string{"r1", "sw"} {
		left := b.Run(t, host, `for d in /proc/[0-9]*; do tr '\0' ' ' <$d/cmdline; echo; done | grep -E 'ib_write_bw|pcmlab' | grep -v grep; ls .cache/pcmlab/runs; true`)
		if strings.TrimSpace(left) != "" {
			t.Errorf("left on %s: %s", host, left)
		}
	}
}
