package counters

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
	"github.com/pcmlab/pcmlab/inventory/remote/sshserver"
)

const nonce = "0123456789abcdef0123456789abcdef"

// runScript asks the script here, in this machine's sh, over a tree.
func runScript(t testing.TB, root string, netdevs ...string) *Reading {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", script, "watch", nonce, root, "1"}, netdevs...)...)
	cmd.Env = []string{"PATH=" + filepath.Join(root, "bin") + ":/usr/bin:/bin"}
	cmd.Stdin = strings.NewReader("c 1\n")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	p := parser{nonce: nonce}
	for line := range strings.Lines(string(out)) {
		if p.line(strings.TrimSuffix(line, "\n")) {
			return &p.reading
		}
	}
	t.Fatalf("no end in %q", out)
	return nil
}

func host(t *testing.T, o sshserver.Options) remote.Host {
	t.Helper()
	s := remotetest.Start(t, "", o)
	pool, err := remote.NewPool(s.Lab(t), remote.Options{NoGuard: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	h, err := pool.Host(t.Context(), "h3")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A watch over SSH: it compares clocks and reads counters as often as it is asked, and ends when it is closed.
func TestWatch_answersWhenAsked(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	v := vendors["mlx5"]
	v.tree(t, root, truth{cnpReceived: 1, txPackets: 5})
	h := host(t, sshserver.Options{})
	w, err := Start(t.Context(), h, Question{Netdevs: []string{v.netdev}, Root: root, Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	c, err := w.Clocks(t.Context(), 3)
	if err != nil || c.ErrorNS <= 0 || c.OffsetNS > c.ErrorNS || c.OffsetNS < -c.ErrorNS || c.HostNS == 0 {
		t.Errorf("clock of this very machine: %+v, %v: want an offset within its error", c, err)
	}
	before, _, err := w.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v.tree(t, root, truth{cnpReceived: 1, txPackets: 12})
	after, _, err := w.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, c := range Named(Compare(before, after), "mlx5_0/1", v.netdev) {
		found = found || c.Name == "tx_roce_packets" && *c.Growth == 7
	}
	if !found || before.BootID == "" || before.Set(HWCounters, "mlx5_0/1").Birth == "" || !after.At.After(before.At) {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := w.Clock(t.Context()); err == nil {
		t.Error("a watch that was closed answers")
	}
}

// A host whose date knows no nanoseconds has no clock; one that ends says what it printed; one that hangs is given up with the question.
func TestWatch_hostsThatFail(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("date", "echo 1700000000")
	h := host(t, sshserver.Options{Env: []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + bin}})
	start := func() *Watch {
		t.Helper()
		w, err := Start(t.Context(), h, Question{Deadline: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := start()
	if _, err := w.Clock(t.Context()); err == nil || !strings.Contains(err.Error(), "knows no nanoseconds") {
		t.Errorf("a clock of seconds: %v", err)
	}
	write("date", "kill $PPID")
	if _, err := start().Clock(t.Context()); err == nil || !errors.Is(err, errWatchEnded) {
		t.Errorf("a host that ends: %v", err)
	}
	// One that is late answers the question before, and that is not taken for an answer to the next.
	write("date", "[ -e "+bin+"/second ] || { : >"+bin+"/second; sleep 1; exec /bin/date -d @1700000000 +%s%N; }; exec /bin/date +%s%N")
	w = start()
	late, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	if _, err := w.Clock(late); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a host that is late: %v", err)
	}
	if c, err := w.Clock(t.Context()); err != nil || c.OffsetNS.Abs() > time.Hour {
		t.Errorf("after it: %+v, %v", c, err)
	}
	write("date", "exec sleep 60")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := start().Clock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a host that hangs: %v", err)
	}
}
