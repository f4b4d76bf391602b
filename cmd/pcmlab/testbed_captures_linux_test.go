package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/testwait"
)

const bedCaptures = `playbook: captures
hosts: {sender: h1, receiver: r1}
traffic: {size: 16KiB, qps: 1, margin: 1, timeout: 18, rate_limit: 24Mbit/s, tx_depth: 8}
measure: {MEASURE}
flows: {h1: {from: h1, to: r1}}
phases: [{name: one, start: h1, for: 3s}, {name: two, for: 3s}]
`

// TestTestbed_captures: on machines with kernels and clocks of their own. First tcpdump in a ring of files at the switch beside our own tap on the receiver, whose clock is 2 s ahead: both hold the
// same packets, on one clock. Then the capture is analysed on the switch, whose clock is set in the middle, which makes it incomplete and says when; its file is fetched afterwards, and rxe's
// counters are there for each phase under names of ours.
func TestTestbed_captures(t *testing.T) {
	h, b, _ := bed(t)
	lab := b.Lab(t, [2]string{"taps:\n", "taps:\n  r1-eth0: {host: r1, iface: eth0}\n"})
	play := func(name, measure, rest string) string {
		path := filepath.Join(h.dir, name+".yaml")
		if err := os.WriteFile(path, []byte(strings.Replace(bedCaptures, "MEASURE", measure, 1)+rest), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	shifted := func(host string, do func()) {
		b.Run(t, host, "date -s '+2 seconds'")
		defer b.Run(t, host, "date -s '-2 seconds'")
		do()
	}
	var out outcome
	var dir string
	var doc analysis.Document
	shifted("r1", func() {
		out, dir, _, doc = h.bedRun(play("ahead", "sample: 0s", "captures:\n  - {tap: sw-out-r1, judge: true, program: tcpdump, file_size: 1MiB}\n  - {tap: r1-eth0}\n"), lab)
	})
	sw, r1 := doc.Files[0], doc.Files[1]
	if sw.Tap != "sw-out-r1" {
		sw, r1 = r1, sw
	}
	if len(sw.More) == 0 || sw.Packets == 0 || sw.RoCEPackets != r1.RoCEPackets || sw.Drops == nil || *sw.Drops != 0 || doc.Quality.Verdict != analysis.Complete {
		t.Errorf("tcpdump in %d files: %d packets, drops %v; our tap: %d; %s %q\n%s", 1+len(sw.More), sw.RoCEPackets, sw.Drops, r1.RoCEPackets, doc.Quality.Verdict, doc.Quality.Notes, out.stdout)
	}
	c := r1.Clock
	if c == nil || !c.Applied || c.Samples < 2 || c.ErrorNS == nil || time.Duration(*c.FirstOffsetNS)-2*time.Second > time.Second || time.Duration(*c.FirstOffsetNS) < time.Second {
		t.Fatalf("clock of r1: %+v", c)
	}
	if apart := time.Duration(*sw.FirstNS - *r1.FirstNS).Abs(); apart > 200*time.Millisecond+time.Duration(*c.ErrorNS) {
		t.Errorf("the first packets of both taps are %v apart", apart)
	}
	var moved experiments.CountersMoved
	read(t, filepath.Join(dir, filepath.FromSlash(experiments.CountersFile)), &moved)
	for nic, name := range map[string]string{"nic.h1": "tx_roce_packets", "nic.r1": "rx_roce_packets"} {
		i := slices.IndexFunc(moved.Run[nic], func(row experiments.CounterRow) bool { return row.Name == name })
		if i < 0 || moved.Run[nic][i].Growth == nil || *moved.Run[nic][i].Growth == 0 {
			t.Errorf("%s of %s did not move: %+v", name, nic, moved.Run[nic])
		}
	}

	out2 := h.start("run", play("there", "analyze: there", "captures: [{tap: sw-out-r1, judge: true}]\n"), "-i", lab, "--out", filepath.Join(h.dir, "there"))
	testwait.For(t, 5*time.Minute, "the second phase", func() bool {
		lines, _ := filepath.Glob(filepath.Join(h.dir, "there", "*", "timeline.jsonl"))
		if len(lines) == 0 {
			return false
		}
		data, _ := os.ReadFile(lines[0])
		return strings.Contains(string(data), `"phase":"two"`)
	})
	var o outcome
	shifted("sw", func() { o = h.finish(out2) })
	if o.code != exitData {
		t.Errorf("exit %d, want %d: the clock was set\n%s\n%s", o.code, exitData, o.stdout, o.stderr)
	}
	dirs, _ := filepath.Glob(filepath.Join(h.dir, "there", "*", "analysis.json"))
	if len(dirs) != 1 {
		t.Fatalf("%v\n%s\n%s", dirs, o.stdout, o.stderr)
	}
	dir = filepath.Dir(dirs[0])
	var there analysis.Document
	read(t, dirs[0], &there)
	if k := there.Files[0].Clock; there.Quality.Verdict != analysis.Incomplete || k == nil || len(k.Steps) != 1 || there.Totals.RoCEPackets == 0 {
		text, _ := json.Marshal(there.Files)
		t.Errorf("a clock that was set: %s %q\n%s", there.Quality.Verdict, there.Quality.Notes, text)
	}
	if o := h.run("runs", "fetch", dir, "-i", lab); o.code != exitOK {
		t.Errorf("fetch: %+v", o)
	}
	again := h.run("analyze", dir, "-o", "json")
	want, err := os.ReadFile(dirs[0])
	if err != nil || again.stdout != string(want) {
		t.Errorf("the analysis here is %d bytes, that of the run %d (%v)", len(again.stdout), len(want), err)
	}
	if left := b.Run(t, "sw", "find .cache/pcmlab/captures -name '*.pcapng'; ls -d .cache/pcmlab/runs/* 2>/dev/null || true"); left != "" {
		t.Errorf("left on sw: %s", left)
	}
}
