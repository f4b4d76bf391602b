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

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/experiments"
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
	if out := h.run("analyze", moved, "-o", "json"); out.code != exitOK && out.code != exitCheckFailed || out.stdout != string(want) {
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

func (h *home) up() {
	h.t.Helper()
	if out := h.run("lab", "up", repo("labs/virtual-4.yaml"), "--id", "up"); out.code != 0 {
		h.t.Skipf("this machine raises no virtual lab: %s", out.stderr)
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
