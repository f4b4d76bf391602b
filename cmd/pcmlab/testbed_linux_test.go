package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/testbed"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends/check"
	"github.com/pcmlab/pcmlab/nicbackends/facts"
)

// bed is a home beside the testbed, or a skip.
func bed(t *testing.T) (*home, *testbed.Bed, string) {
	b := testbed.Need(t)
	placed.Do(func() {
		data, err := os.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		b.Place(t, binary, remote.CachePath(".", fmt.Sprintf("%x", sha256.Sum256(data))))
	})
	h := newHome(t)
	return h, b, b.Lab(t)
}

var placed sync.Once // the binary of all tests, on the testbed

// TestTestbed_check: every host, NIC, tap and path of the testbed is as its lab file says.
func TestTestbed_check(t *testing.T) {
	h, _, lab := bed(t)
	o := h.run("check", "-i", lab, "-o", "json")
	var doc checkDocument
	if err := json.Unmarshal([]byte(o.stdout), &doc); err != nil {
		t.Fatalf("%v: %d %s%s", err, o.code, o.stdout, o.stderr)
	}
	for _, f := range doc.Findings {
		if f.Verdict == check.Fail {
			t.Errorf("%+v", f)
		}
	}
	if o.code != exitOK || len(doc.Hosts) != 5 || len(doc.Paths) != 12 || doc.Counts[check.Pass] < 60 {
		t.Errorf("exit %d, %d hosts, %d paths, %v\n%s", o.code, len(doc.Hosts), len(doc.Paths), doc.Counts, o.stderr)
	}
	for _, p := range doc.Paths {
		if p.DSCP == nil || *p.DSCP != 26 || p.ECN == nil || *p.ECN != 2 || *p.FullIn == 0 {
			t.Errorf("path %+v, want datagrams of full MTU with DSCP 26 and ECT(0)", p)
		}
	}
}

// provenance are the facts that a bundle must have of every sender and receiver of the testbed. Its machines are virtual:
// firmware, cpufreq, NUMA and PFC are of hardware (nicbackends/facts holds those of a ConnectX).
var provenance = []string{
	"hostname", "boot_id", "kernel", "machine", "system", "cpus", "cpu", "clock_source", "memlock", "rdma_core", "perftest", "rdma_netns", "user",
	"nic.rxe0.state", "nic.rxe0.link_layer", "nic.rxe0.rdma_rate", "nic.rxe0.model", "nic.rxe0.driver", "nic.rxe0.gid_index", "nic.rxe0.mtu", "nic.rxe0.offloads",
	"nic.rxe0.qdiscs", "nic.rxe0.operstate",
}

// shape makes the switch's port to r1 a bottleneck of some Mbit/s. These machines share two cores: without one, traffic of many small packets takes all
// of them, and the capture on the switch has no time to write.
func shape(t *testing.T, b *testbed.Bed, mbit int) {
	b.Run(t, "sw", fmt.Sprintf("tc qdisc replace dev p_r1 root tbf rate %dmbit burst 20k limit 600000", mbit))
	t.Cleanup(func() { b.Clean("sw", "tc qdisc del dev p_r1 root") })
}

// TestTestbed_incast is the virtual lab's playbook, unchanged, over the real tool and the real stack. What the switch's queue
// says of its packets and drops is what the capture and the senders' counters say.
func TestTestbed_incast(t *testing.T) {
	h, b, lab := bed(t)
	shape(t, b, 200)
	out, dir, result, _ := h.bedRun(repo("playbooks/incast-3to1.yaml"), lab)
	h.agrees(out, result)
	for _, name := range []string{"cnps with two senders", "cnps with three senders", "no retransmission"} {
		i := slices.IndexFunc(result.Checks, func(c experiments.CheckResult) bool { return c.Name == name })
		if i < 0 || result.Checks[i].Verdict != experiments.Skip || !strings.Contains(result.Checks[i].Reason, "the rxe NIC of r1 has no c") {
			t.Errorf("%q is to be skipped with the reason:\n%s", name, out.stdout)
		}
	}
	for _, host := range []string{"h1", "h2", "h3", "r1"} {
		var f facts.Facts
		read(t, filepath.Join(dir, "hosts", host, "facts.json"), &f)
		flat := f.Flat()
		flat["boot_id"] = string(f.BootID)
		for _, name := range provenance {
			if v := flat[name]; v == "" || strings.HasPrefix(v, "unavailable") {
				t.Errorf("%s: %s has no value: %q", host, name, v)
			}
		}
	}
	var command struct {
		Build struct{ Version, Commit string } `json:"build"`
		Seed  *uint64                          `json:"seed"`
	}
	read(t, filepath.Join(dir, "command.json"), &command)
	if command.Build.Version == "" || command.Seed == nil {
		t.Errorf("command.json: %+v", command)
	}
	h.standsAlone(dir)
}

// TestTestbed_playbooks: each playbook runs, its expectations hold, and all ways of counting that the testbed has agree: the
// tool with the capture, the switch with the taps.
func TestTestbed_playbooks(t *testing.T) {
	h, b, lab := bed(t)
	files, err := filepath.Glob(repo("playbooks/testbed/*.yaml"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%v, %v", files, err)
	}
	tc := b.Run(t, "sw", "tc qdisc show; tc filter show dev p_r1")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			h := &home{t: t, dir: h.dir}
			if name == "size-sweep" {
				shape(t, b, 150)
			}
			out, dir, result, doc := h.bedRun(file, lab)
			h.agrees(out, result)
			if result.Verdict != experiments.Pass {
				t.Errorf("verdict %s\n%s", result.Verdict, out.stdout)
			}
			for _, f := range result.Flows {
				if v := agreement(result, "rate of "+f.Name+": tool = capture"); v != experiments.Pass {
					t.Errorf("rate of %s: %s", f.Name, v)
				}
			}
			for _, want := range map[string][]string{
				"marking-queue": {"CE marks: switch = capture", "packets lost: switch = taps"}, "lossy-path": {"packets lost: switch = taps"},
			}[name] {
				if v := agreement(result, want); v != experiments.Pass {
					t.Errorf("%s: %s", want, v)
				}
			}
			if now := b.Run(t, "sw", "tc qdisc show; tc filter show dev p_r1"); now != tc && name != "size-sweep" {
				t.Errorf("the switch is left as\n%s\nit was\n%s", now, tc)
			}
			switch name {
			case "marking-queue", "lossy-path", "ipv6":
				likeTshark(t, filepath.Join(dir, "captures", "sw-out-r1.pcapng"), doc)
			}
		})
	}
}

// bedRun runs a playbook on the testbed and shows what it said where something is wrong.
func (h *home) bedRun(playbook, lab string) (out outcome, dir string, result experiments.Result, doc analysis.Document) {
	h.t.Helper()
	out = h.run("run", playbook, "-i", lab)
	if out.code != exitOK && out.code != exitCheckFailed {
		h.t.Fatalf("exit %d\n%s\n%s", out.code, out.stdout, out.stderr)
	}
	dir, result, doc = h.bundle(out)
	failed := result.State != experiments.StateComplete
	for _, f := range result.Flows {
		failed = failed || f.State != "ok"
	}
	if failed {
		h.t.Errorf("%s, verdict %s: %s\n%s\n%s", result.State, result.Verdict, result.Reason, out.stdout, out.stderr)
	}
	return out, dir, result, doc
}

// agrees shows what a run said when two of its ways of counting differ.
func (h *home) agrees(out outcome, result experiments.Result) {
	h.t.Helper()
	if slices.ContainsFunc(result.Agreement, func(c experiments.CheckResult) bool { return c.Verdict == experiments.Fail }) {
		h.t.Errorf("not all ways of counting agree:\n%s\n%s", out.stdout, out.stderr)
	}
}

func agreement(r experiments.Result, name string) experiments.Verdict {
	for _, c := range r.Agreement {
		if c.Name == name {
			return c.Verdict
		}
	}
	return "not compared"
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// likeTshark holds the analysis against what Wireshark's dissectors see in the same file.
func likeTshark(t *testing.T, file string, doc analysis.Document) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "tshark", "-n", "-r", file, "-Y", "udp.dstport == 4791", "-T", "fields", "-E", "occurrence=f",
		"-e", "ip.src", "-e", "ipv6.src", "-e", "ip.dsfield.ecn", "-e", "ipv6.tclass.ecn", "-e", "infiniband.bth.opcode", "-e", "infiniband.bth.destqp", "-e", "infiniband.aeth.syndrome.opcode")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	packets, ce, cnp, naks := int64(0), int64(0), int64(0), int64(0)
	data := map[string]int64{} // by source and queue pair
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(f) != 7 {
			t.Fatalf("tshark: %q", line)
		}
		packets++
		if f[2] == "3" || f[3] == "3" || f[2] == "0x03" || f[3] == "0x03" {
			ce++
		}
		var op int
		fmt.Sscan(f[4], &op)
		switch {
		case op == 0x81:
			cnp++
		case op >= 6 && op <= 11: // RC RDMA WRITE
			data[f[0]+f[1]+" "+strings.ToLower(f[5])]++
		}
		if f[6] == "3" {
			naks++
		}
	}
	totals := doc.Totals
	if packets != totals.RoCEPackets || ce != totals.CEPackets || cnp != totals.CNPPackets || naks != totals.NAKPackets {
		t.Errorf("tshark: %d RoCE packets, %d CE, %d CNPs, %d NAKs; analysis: %d, %d, %d, %d", packets, ce, cnp, naks, totals.RoCEPackets, totals.CEPackets, totals.CNPPackets, totals.NAKPackets)
	}
	if len(data) != len(doc.Flows) {
		t.Errorf("tshark: %v, analysis: %d flows", data, len(doc.Flows))
	}
	for _, f := range doc.Flows {
		if got := data[fmt.Sprintf("%s 0x%06x", f.Src, f.DstQP)]; got != f.Packets {
			t.Errorf("flow %s: tshark has %d data packets, analysis %d (of %v)", f.ID, got, f.Packets, data)
		}
	}
}
