package verbs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bed "github.com/pcmlab/pcmlab/internal/testbed"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

// The testbed: three senders, a receiver and a switch with real kernels and rdma_rxe. Times there are milliseconds, so that the
// domain's are scaled by 20: 100 Mbit/s, 5 ms, and D_max 60 ms since the machines share few cores.
const (
	bedPort   = "52041"
	bedDomain = "time_scale=20 line_rate=2Gbit/s base_rtt=250us dmax=3ms lifetime=10ms give_up=120s"
	bedDMax   = 60 * time.Millisecond
	bedG      = 2 * 62500
)

// testbed reaches the machines, or skips.
func testbed(t *testing.T) *remote.Pool {
	t.Helper()
	b := bed.Need(t)
	file := b.Lab(t)
	l, err := inventory.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "pcmlab")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", binary, "../../cmd/pcmlab")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	b.Place(t, binary, remote.CachePath(".", fmt.Sprintf("%x", sha256.Sum256(data))))
	pool, err := remote.NewPool(l, remote.Options{Binaries: map[string]string{"amd64": binary}, ConfigFiles: []string{}, ConnectTimeout: time.Minute,
		KeepAliveLost: 2 * time.Minute, SameMachine: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	return pool
}

func host(t *testing.T, pool *remote.Pool, name string) remote.Host {
	t.Helper()
	h, err := pool.Host(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestTestbed_withinCredit: one sender and three to one receiver over rdma_rxe; the capture at the switch has no octet beyond
// credit and unscheduled window.
func TestTestbed_withinCredit(t *testing.T) {
	pool := testbed(t)
	for _, name := range []string{"h1", "h2", "h3", "r1"} {
		_, how, err := BuildOn(t.Context(), host(t, pool, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", name, how)
	}
	for _, row := range []struct {
		senders  []string
		messages int
		size     string
	}{
		{[]string{"h1"}, 3, "4MiB"},
		{[]string{"h1", "h2", "h3"}, 2, "2MiB"},
	} {
		t.Run(fmt.Sprintf("%d_to_1", len(row.senders)), func(t *testing.T) { withinCredit(t, pool, row.senders, row.messages, row.size) })
	}
}

func withinCredit(t *testing.T, pool *remote.Pool, senders []string, messages int, size string) {
	ctx := t.Context()
	sw, r1 := host(t, pool, "sw"), host(t, pool, "r1")
	tap, err := sw.Start(ctx, remote.Cmd{Args: []string{"tcpdump", "-i", "p_r1", "-s", "160", "-B", "8192", "-U", "-w", "/tmp/credit.pcap", "udp port 4791 or udp port " + bedPort},
		Deadline: 20 * time.Minute, Step: "capture"})
	if err != nil {
		t.Fatal(err)
	}
	until(t, sw, "test -s /tmp/credit.pcap")
	recv, err := r1.Start(ctx, remote.Cmd{Args: verb("recv", "--device", "rxe0", "--listen", "192.0.2.14", "--count", fmt.Sprint(messages*len(senders)), "-o", "json"),
		Deadline: 20 * time.Minute, Step: "receive"})
	if err != nil {
		t.Fatal(err)
	}
	until(t, r1, "ss -Hlun sport = :"+bedPort+" | grep -q . && ss -Hltn sport = :"+bedPort+" | grep -q .")
	type sent struct {
		name string
		remote.Result
		err error
	}
	done := make(chan sent)
	for _, name := range senders {
		h := host(t, pool, name)
		go func() {
			r, err := h.Run(ctx, remote.Cmd{Args: append(verb("send", "--device", "rxe0", "--size", size, "--count", fmt.Sprint(messages), "-o", "json"), "192.0.2.14"),
				Deadline: 15 * time.Minute, Step: "send"})
			done <- sent{name, r, err}
		}()
	}
	for range senders {
		s := <-done
		if s.err != nil || s.Code != 0 {
			t.Errorf("%s: %v, exit status %d: %s", s.name, s.err, s.Code, s.Stderr)
			continue
		}
		var doc struct {
			Octets  uint64   `json:"octets"`
			Goodput *float64 `json:"goodput_bps"`
			Pacing  string   `json:"pacing"`
		}
		if err := json.Unmarshal(s.Stdout, &doc); err != nil || doc.Goodput == nil || doc.Pacing != "segment" {
			t.Errorf("%s: %v: %s", s.name, err, s.Stdout)
			continue
		}
		t.Logf("%s: %d octets, goodput %.1f Mbit/s, pacing: %s", s.name, doc.Octets, *doc.Goodput/1e6, doc.Pacing)
	}
	wait, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if r, err := recv.Wait(wait); err != nil || r.Code != 0 {
		t.Errorf("r1: %v, exit status %d: %s", err, r.Code, r.Stderr)
	} else if strings.Contains(string(r.Stdout), `"misbehaving": 0`) == false {
		t.Errorf("r1 saw senders that do not obey: %s", r.Stdout)
	}
	if err := tap.Stop(ctx, "INT"); err != nil {
		t.Error(err)
	}
	if r, err := tap.Wait(wait); err != nil || !strings.Contains(string(r.Stderr), "0 packets dropped by kernel") {
		t.Errorf("tcpdump: %v: %s", err, r.Stderr)
	}
	var pcap bytes.Buffer
	if err := sw.Get(ctx, "/tmp/credit.pcap", &pcap); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "credit.pcap")
	if keep := os.Getenv("PCMLAB_TESTBED_KEEP"); keep != "" {
		file = filepath.Join(keep, fmt.Sprintf("credit-%d-to-1.pcap", len(senders)))
	}
	if err := os.WriteFile(file, pcap.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	judge(t, file)
}

func judge(t *testing.T, file string) {
	t.Helper()
	count := func(forget uint64) *recount {
		r := newRecount(52041)
		r.slack, r.forget = 2*bedDMax, forget
		if err := r.file(file); err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := count(0)
	t.Logf("capture: %d data packets (%d ECT, %d CE), %d octets at %.1f Mbit/s, %d sent again, %d missing at the tap; %d RDCC messages in %v; "+
		"at most %d octets granted and not seen (G %d); %d octets later than lifetime + 2 D_max", r.Packets, r.ECT, r.Marked, r.Data,
		float64(r.Data)*8/(r.Last-r.First).Seconds()/1e6, r.Again, r.Lost, len(r.messages), r.Control, r.MostOut, bedG, r.Late)
	if len(r.Wrong) > 0 {
		t.Errorf("%q", r.Wrong)
	}
	if r.Data == 0 || len(r.messages) == 0 {
		t.Fatal("the capture has no data")
	}
	if r.Beyond != 0 || r.Unasked != 0 {
		t.Errorf("%d octets beyond credit and window, %d on queue pairs that no request named", r.Beyond, r.Unasked)
	}
	for k, m := range r.messages {
		if m.seen != m.length {
			t.Errorf("message %+v: %d of %d octets seen", k, m.seen, m.length)
		}
	}
	// The judge is awake: were each grant 20 KiB smaller, there would be octets beyond.
	if r := count(20 << 10); r.Beyond == 0 {
		t.Error("the recount finds nothing beyond credit even when grants are overlooked")
	}
}

func verb(name string, more ...string) []string {
	args := []string{"pcmlab", "rdcc", name, "--port", bedPort, "--transport", "verbs"}
	for kv := range strings.FieldsSeq(bedDomain) {
		args = append(args, "--set", kv)
	}
	return append(args, more...)
}

// until runs a command until it succeeds.
func until(t *testing.T, h remote.Host, script string) {
	t.Helper()
	late := time.After(2 * time.Minute)
	for {
		r, err := h.Run(t.Context(), remote.Cmd{Args: []string{"sh", "-c", script}, Deadline: time.Minute, Step: script})
		if err != nil {
			t.Fatal(err)
		}
		if r.Code == 0 {
			return
		}
		select {
		case <-late:
			t.Fatalf("%s: %s does not succeed: %s", h.Name(), script, r.Stderr)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
