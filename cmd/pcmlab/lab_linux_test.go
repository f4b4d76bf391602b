package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/testwait"
)

// home is a place of its own for one test: labs, caches and runs of others are not seen there.
type home struct {
	t       testing.TB
	dir     string
	program string // "": the binary of all tests
}

func newHome(t testing.TB) *home {
	t.Helper()
	if testing.Short() {
		t.Skip("raises virtual labs; -short leaves it out")
	}
	dir, err := os.MkdirTemp("", "pl") // short: UNIX socket paths lie below it
	if err != nil {
		t.Fatal(err)
	}
	h := &home{t: t, dir: dir}
	t.Cleanup(func() {
		h.run("lab", "down", "--all")
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return h
}

type outcome struct {
	code           int
	stdout, stderr string
}

func (h *home) command(args ...string) *exec.Cmd {
	cmd := exec.Command(cmp.Or(h.program, binary), args...)
	cmd.Dir = h.dir
	cmd.Env = append(os.Environ(), "HOME="+h.dir, "XDG_CONFIG_HOME="+h.dir+"/config", "XDG_CACHE_HOME="+h.dir+"/.cache", "XDG_RUNTIME_DIR=")
	return cmd
}

func (h *home) run(args ...string) outcome {
	h.t.Helper()
	return h.finish(h.start(args...))
}

type started struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
}

func (h *home) start(args ...string) *started {
	h.t.Helper()
	s := &started{cmd: h.command(args...)}
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.err
	if err := s.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	return s
}

func (h *home) finish(s *started) outcome {
	h.t.Helper()
	err := s.cmd.Wait()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		h.t.Fatal(err)
	}
	return outcome{s.cmd.ProcessState.ExitCode(), s.out.String(), s.err.String()}
}

// needLab skips, with the reason that pcmlab itself gives, where this machine cannot raise labs.
func (h *home) needLab() {
	h.t.Helper()
	out := h.run("lab", "up", repo("labs/virtual-4.yaml"), "--id", "probe")
	if out.code != 0 {
		h.t.Skipf("this machine raises no virtual lab: %s", out.stderr)
	}
	if out := h.run("lab", "down", "probe"); out.code != 0 {
		h.t.Fatalf("lab down: %+v", out)
	}
}

func repo(path string) string {
	abs, err := filepath.Abs(filepath.Join("../..", path))
	if err != nil {
		panic(err)
	}
	return abs
}

// playbook writes the incast with phases of the given length.
func (h *home) playbook(phase string) string {
	h.t.Helper()
	data, err := os.ReadFile(repo("playbooks/incast-3to1.yaml"))
	if err != nil {
		h.t.Fatal(err)
	}
	path := filepath.Join(h.dir, "incast-"+phase+".yaml")
	if err := os.WriteFile(path, bytes.ReplaceAll(data, []byte("for: 8s"), []byte("for: "+phase)), 0o644); err != nil {
		h.t.Fatal(err)
	}
	return path
}

var runLine = regexp.MustCompile(`(?m)^run +(\S+)$`)

// bundle reads what a run left.
func (h *home) bundle(out outcome) (dir string, result experiments.Result, doc analysis.Document) {
	h.t.Helper()
	m := runLine.FindStringSubmatch(out.stdout)
	if m == nil {
		h.t.Fatalf("no run folder named in:\n%s\n%s", out.stdout, out.stderr)
	}
	dir = m[1]
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(h.dir, dir)
	}
	for name, into := range map[string]any{"result.json": &result, "analysis.json": &doc} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			h.t.Fatal(err)
		}
		if err := json.Unmarshal(data, into); err != nil {
			h.t.Fatalf("%s: %v", name, err)
		}
	}
	return dir, result, doc
}

// quiet runs a playbook until a run holds all its checks, at most three times: rates of a virtual lab need a machine that
// is not busy with something else. ok is false when every run was noisy. Exact counts must agree in each run.
func (h *home) quiet(args ...string) (out outcome, result experiments.Result, doc analysis.Document, ok bool) {
	h.t.Helper()
	for range 3 {
		out = h.run(args...)
		if out.code != exitOK && out.code != exitCheckFailed && out.code != exitData {
			h.t.Fatalf("exit %d\n%s\n%s", out.code, out.stdout, out.stderr)
		}
		_, result, doc = h.bundle(out)
		h.counts(result)
		ok = ok || result.State == experiments.StateComplete
		if result.Verdict == experiments.Pass {
			break
		}
		h.t.Logf("%s run, verdict %s: %s\n%s", result.State, result.Verdict, result.Reason, out.stdout)
	}
	return out, result, doc, ok
}

// counts: exact counts agree in every run, a noisy one included; rates are for runs that are judged.
func (h *home) counts(r experiments.Result) {
	h.t.Helper()
	compared := 0
	for _, c := range r.Agreement {
		switch {
		case c.Verdict == experiments.Pass:
			compared++
		case c.Verdict == experiments.Fail && !strings.HasPrefix(c.Name, "rate of"):
			h.t.Errorf("%s: %s %v", c.Name, c.Reason, c.Values)
		}
	}
	if compared < 5 {
		h.t.Errorf("only %d ways of counting could be compared: %+v", compared, r.Agreement)
	}
}

// TestRun_incast is the main job: one command, everything agrees, the folder stands alone.
func TestRun_incast(t *testing.T) {
	h := newHome(t)
	h.needLab()
	out, result, doc, ok := h.quiet("run", repo("playbooks/incast-3to1.yaml"), "-i", repo("labs/virtual-4.yaml"))
	if !ok {
		t.Skip("the machine was too busy in three runs for rates to be judged; their counts agreed")
	}
	if out.code != exitOK || result.Verdict != experiments.Pass {
		t.Errorf("exit %d, verdict %s\n%s", out.code, result.Verdict, out.stdout)
	}
	for _, p := range doc.Aggregate.PerPhase {
		if p.Jain == nil || *p.Jain < 0.95 || p.Utilisation == nil || *p.Utilisation < 0.85 {
			t.Errorf("phase %s: Jain %v, utilisation %v", p.Name, show(p.Jain), show(p.Utilisation))
		}
	}
	if doc.Totals.RetransmittedPackets != 0 || doc.Totals.CNPPackets == 0 {
		t.Errorf("%d retransmissions, %d CNPs", doc.Totals.RetransmittedPackets, doc.Totals.CNPPackets)
	}
	dir, _, _ := h.bundle(out)
	h.standsAlone(dir)
	if out := h.run("lab", "ls", "-o", "json"); !strings.Contains(out.stdout, `"labs": []`) {
		t.Errorf("the run left a lab: %s", out.stdout)
	}
}

func show(v *float64) string {
	if v == nil {
		return "not measured"
	}
	return fmt.Sprintf("%.4f", *v)
}

// standsAlone: the bundle moved elsewhere gives the same numbers, byte for byte, and its page is made again.
func (h *home) standsAlone(dir string) {
	t := h.t
	t.Helper()
	moved := filepath.Join(h.dir, "elsewhere")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	defer os.Rename(moved, dir)
	want, err := os.ReadFile(filepath.Join(moved, "analysis.json"))
	if err != nil {
		t.Fatal(err)
	}
	if out := h.run("analyze", moved, "-o", "json"); out.code != 0 || out.stdout != string(want) {
		t.Errorf("analyze of the folder differs from the run's analysis.json (exit %d, %d and %d bytes) %s", out.code, len(out.stdout), len(want), out.stderr)
	}
	page, err := os.ReadFile(filepath.Join(moved, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	if out := h.run("report", moved, "--out", filepath.Join(h.dir, "again.html")); out.code != 0 {
		t.Errorf("report: %+v", out)
	}
	again, err := os.ReadFile(filepath.Join(h.dir, "again.html"))
	if err != nil || !bytes.Equal(page, again) {
		t.Errorf("the page made again differs (%d and %d bytes, %v)", len(page), len(again), err)
	}
	for _, forbidden := range []string{"http://", "https://", "src=\"//"} {
		for _, line := range strings.Split(string(page), "\n") {
			if strings.Contains(line, forbidden) && !strings.Contains(line, "www.w3.org") {
				t.Errorf("the page asks the network: %.120s", line)
			}
		}
	}
	if _, differences, err := experiments.CheckManifest(moved); err != nil || len(differences) > 0 {
		t.Errorf("manifest: %v %v", differences, err)
	}
}

// TestRun_withoutControl: no stage set. Without DCQCN and with a shallow buffer packets are dropped and sent again, and
// the taps lose exactly what the switch dropped.
func TestRun_withoutControl(t *testing.T) {
	h := newHome(t)
	h.needLab()
	out := h.run("run", h.playbook("3s"), "-i", repo("labs/virtual-4.yaml"), "--set", "nic.dcqcn=off", "--set", "link.buffer=64KiB")
	_, result, doc := h.bundle(out)
	h.counts(result)
	if doc.Path == nil || doc.Path.Data.LostPackets == nil || *doc.Path.Data.LostPackets == 0 || doc.Totals.RetransmittedPackets == 0 {
		t.Errorf("no loss: path %+v, %d retransmissions\n%s", doc.Path, doc.Totals.RetransmittedPackets, out.stdout)
	}
	if doc.Totals.CNPPackets != 0 {
		t.Errorf("%d CNPs although DCQCN is off", doc.Totals.CNPPackets)
	}
	agreed := false
	for _, c := range result.Agreement {
		if c.Name == "packets lost: switch = taps" {
			agreed = c.Verdict == experiments.Pass
		}
	}
	if !agreed {
		t.Errorf("packets lost between the taps and dropped by the switch were not shown to be equal:\n%s", out.stdout)
	}
}

// timeline waits until the timeline of the only run in a folder holds a word.
func (h *home) timeline(out, word string) {
	h.t.Helper()
	testwait.For(h.t, 60*time.Second, "timeline: "+word, func() bool {
		files, _ := filepath.Glob(filepath.Join(out, "*", "timeline.jsonl"))
		if len(files) == 0 {
			return false
		}
		data, _ := os.ReadFile(files[len(files)-1])
		return bytes.Contains(data, []byte(word))
	})
}

// processes lists what runs on a virtual host besides its own init, NIC and the command that asks.
func (h *home) processes(host string) []string {
	h.t.Helper()
	out := h.run("lab", "exec", "--lab", "up", host, "--", "sh", "-c", `for d in /proc/[0-9]*; do [ "$d" = "/proc/$$" ] || tr '\0' ' ' < $d/cmdline 2>/dev/null; echo; done`)
	if out.code != 0 {
		h.t.Fatalf("list processes of %s: %+v", host, out)
	}
	var found []string
	for line := range strings.Lines(out.stdout) {
		line = strings.TrimSpace(line)
		switch {
		case line == "", strings.Contains(line, "lab-host"), strings.Contains(line, "pcmlab-nic serve"), strings.Contains(line, "fabric --config"), strings.HasPrefix(line, "sh -c for d"), strings.HasPrefix(line, "tr "):
		default:
			found = append(found, line)
		}
	}
	return found
}

func (h *home) up() {
	h.t.Helper()
	if out := h.run("lab", "up", repo("labs/virtual-4.yaml"), "--id", "up"); out.code != 0 {
		h.t.Skipf("this machine raises no virtual lab: %s", out.stderr)
	}
}

// TestRun_interrupted: the first Ctrl-C stops traffic, drains captures and keeps what was measured.
func TestRun_interrupted(t *testing.T) {
	h := newHome(t)
	h.up()
	s := h.start("run", h.playbook("4s"), "-i", "up", "--out", h.dir+"/runs")
	h.timeline(h.dir+"/runs", `"phase":"three"`)
	s.cmd.Process.Signal(os.Interrupt)
	out := h.finish(s)
	if out.code != exitInterrupted {
		t.Errorf("exit %d, want %d\n%s%s", out.code, exitInterrupted, out.stdout, out.stderr)
	}
	dir, result, doc := h.bundle(out)
	if result.State != experiments.StatePartial || result.Reason != "interrupted" {
		t.Errorf("state %s (%s)", result.State, result.Reason)
	}
	if doc.Totals.RoCEPackets == 0 || len(doc.Aggregate.PerPhase) < 2 {
		t.Errorf("what was measured is not kept: %d packets, %d phases", doc.Totals.RoCEPackets, len(doc.Aggregate.PerPhase))
	}
	if _, _, err := experiments.CheckManifest(dir); err != nil {
		t.Error(err)
	}
	for _, host := range []string{"h1", "r1", "sw"} {
		testwait.For(t, 10*time.Second, "processes left on "+host, func() bool { return len(h.processes(host)) == 0 })
	}
}

// TestRun_clientDies: a flow that fails in the middle of a phase is named with host, step and both sides' last lines;
// the others go on, and the run is kept and marked.
func TestRun_clientDies(t *testing.T) {
	h := newHome(t)
	h.up()
	s := h.start("run", h.playbook("3s"), "-i", "up", "--out", h.dir+"/runs")
	h.timeline(h.dir+"/runs", `"phase":"two"`)
	if out := h.run("lab", "exec", "--lab", "up", "h2", "--", "sh", "-c",
		`for d in /proc/[0-9]*; do case "$(readlink $d/exe) $(tr '\0' ' ' < $d/cmdline)" in *guard*) ;; *ib_write_bw*) kill -9 ${d#/proc/};; esac; done`); out.code != 0 {
		t.Fatalf("kill the client: %+v", out)
	}
	out := h.finish(s)
	if out.code != exitInfra {
		t.Errorf("exit %d, want %d", out.code, exitInfra)
	}
	_, result, _ := h.bundle(out)
	if result.State != experiments.StatePartial || !strings.Contains(out.stderr, "flow h2") || !strings.Contains(out.stderr, "h2") {
		t.Errorf("state %s, stderr:\n%s", result.State, out.stderr)
	}
	for _, f := range result.Flows {
		if want := map[bool]string{true: "failed", false: "ok"}[f.Name == "h2"]; f.State != want {
			t.Errorf("flow %s is %s, want %s", f.Name, f.State, want)
		}
	}
}

// TestRun_diskFull: a capture that cannot be written is one clear error with host and step; what it wrote is kept.
func TestRun_diskFull(t *testing.T) {
	h := newHome(t)
	h.up()
	if out := h.run("lab", "exec", "--lab", "up", "sw", "--", "sh", "-c", "mkdir -p ~/.cache/pcmlab/runs && mount -t tmpfs -o size=2m none ~/.cache/pcmlab/runs"); out.code != 0 {
		t.Skipf("no small disk can be mounted on the host: %s", out.stderr)
	}
	out := h.run("run", h.playbook("3s"), "-i", "up")
	if out.code != exitInfra || !strings.Contains(out.stderr, "host sw") || !strings.Contains(out.stderr, "capture") || !strings.Contains(out.stderr, "no space left") {
		t.Errorf("exit %d, stderr:\n%s", out.code, out.stderr)
	}
	if _, result, _ := h.bundle(out); result.State != experiments.StatePartial {
		t.Errorf("state %s", result.State)
	}
}

// TestRun_unreachable: hosts that do not answer, wrong keys and changed host keys are each one clear error, exit 3.
func TestRun_unreachable(t *testing.T) {
	h := newHome(t)
	h.up()
	text := h.run("lab", "inventory", "up").stdout
	known := regexp.MustCompile(`known_hosts: (\S+)`).FindStringSubmatch(text)
	key := regexp.MustCompile(`key: (\S+)`).FindStringSubmatch(text)
	if known == nil || key == nil {
		t.Fatalf("no keys in:\n%s", text)
	}
	hosts, err := os.ReadFile(known[1])
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(hosts)), "\n")
	keyOf := func(line string) string { f := strings.Fields(line); return f[len(f)-1] }
	swapped := strings.Replace(string(hosts), keyOf(lines[0]), keyOf(lines[len(lines)-1]), 1)
	write := func(name, text string) string {
		p := filepath.Join(h.dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	otherKey := filepath.Join(h.dir, "other")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", otherKey).CombinedOutput(); err != nil {
		t.Skipf("no ssh-keygen: %v %s", err, out)
	}
	for _, c := range []struct{ name, text, want string }{
		{"changed_host_key", strings.ReplaceAll(text, known[1], write("known_hosts", swapped)), "CHANGED"},
		{"wrong_key", strings.ReplaceAll(text, key[1], otherKey), "key"},
		{"host_does_not_answer", regexp.MustCompile(`port: \d+`).ReplaceAllString(text, "port: 9"), "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := h.run("run", h.playbook("3s"), "-i", write(c.name+".yaml", c.text))
			if out.code != exitInfra || !strings.Contains(strings.ToLower(out.stderr), strings.ToLower(c.want)) || !strings.Contains(out.stderr, "host ") {
				t.Errorf("exit %d, stderr:\n%s", out.code, out.stderr)
			}
		})
	}
}

// TestLab_killed: kill -9 of a lab's own processes; down and cleanup still remove everything, and touch nothing else.
func TestLab_killed(t *testing.T) {
	h := newHome(t)
	h.up()
	if out := h.run("lab", "up", repo("labs/virtual-4.yaml"), "--id", "other"); out.code != 0 {
		t.Fatalf("a second lab beside the first: %+v", out)
	}
	out := h.run("lab", "exec", "--lab", "up", "h1", "--", "sh", "-c", "kill -9 $(cat /proc/[0-9]*/stat | awk '$2 ~ /pcmlab/ {print $1}') ")
	_ = out // the session dies with what it killed
	if out := h.run("lab", "down", "up"); out.code != 0 {
		t.Errorf("lab down: %+v", out)
	}
	ls := h.run("lab", "ls", "-o", "json").stdout
	if strings.Contains(ls, `"id": "up"`) || !strings.Contains(ls, `"id": "other"`) {
		t.Errorf("after down:\n%s", ls)
	}
	if out := h.run("lab", "exec", "--lab", "other", "h1", "--", "true"); out.code != 0 {
		t.Errorf("the other lab was touched: %+v", out)
	}
	if out := h.run("cleanup", "--all-mine"); out.code != 0 {
		t.Errorf("cleanup: %+v", out)
	}
}

// TestAnalyze_cut: a capture that is cut in a record gives its good part, says where, and exits 4 (O18).
func TestAnalyze_cut(t *testing.T) {
	h := newHome(t)
	whole := filepath.Join("testdata", "write.pcap")
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(h.dir, "cut.pcap")
	if err := os.WriteFile(cut, data[:len(data)-50], 0o644); err != nil {
		t.Fatal(err)
	}
	out := h.run("analyze", cut, "-o", "json")
	if out.code != exitData || !strings.Contains(out.stderr, "incomplete") {
		t.Errorf("exit %d, stderr %s", out.code, out.stderr)
	}
	var doc analysis.Document
	if err := json.Unmarshal([]byte(out.stdout), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Quality.Verdict != analysis.Incomplete || doc.Files[0].TruncatedAt == nil || doc.Totals.RoCEPackets == 0 {
		t.Errorf("quality %+v, %d packets", doc.Quality, doc.Totals.RoCEPackets)
	}
}
