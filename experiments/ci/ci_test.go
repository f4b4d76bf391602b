package ci

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/compare"
)

var update = flag.Bool("update", false, "write the golden files anew")

const playbookText = `playbook: incast
hosts: {senders: [h1, h2], receiver: r1}
flows:
  h1: {from: h1, to: r1}
  h2: {from: h2, to: r1}
phases:
  - {name: both, start: [h1, h2], for: 4s}
captures: [{tap: sw-out-r1}]
thresholds:
  utilisation(phase="both"): 5%
expect:
  - {name: fair, that: jain(phase="both") >= 0.9}
  - {name: "100%, or: nearly", that: utilisation(phase="both") >= 0.9}
  - {name: cnps, that: cnps(phase="both") > 0, needs: cnp}
`

var began = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// repeat is one repeat of a cell with its utilisation.
func repeat(n int, buffer string, utilisation float64) *experiments.Summary {
	check := func(name, that, call string, v float64, ok bool) experiments.CheckResult {
		c := experiments.CheckResult{Name: name, That: that, Verdict: experiments.Pass, Values: []experiments.MetricValue{{Call: call, Value: v}}}
		if !ok {
			c.Verdict, c.Reason = experiments.Fail, "does not hold"
		}
		return c
	}
	s := &experiments.Summary{Run: "run", Dir: "runs/x", Playbook: "incast", Lab: "virtual-4", State: experiments.StateComplete, Verdict: experiments.Pass, Began: began.Add(time.Duration(n) * time.Minute), Ended: began.Add(time.Duration(n)*time.Minute + 20*time.Second),
		TimeScale: 50, Inputs: "aa11", Trial: &experiments.Trial{Sweep: "s", Cell: "buffer-" + buffer, Repeat: n, Params: []experiments.Param{{Key: "link.buffer", Value: buffer}}},
		Checks: []experiments.CheckResult{check("fair", `jain(phase="both") >= 0.9`, `jain(phase="both")`, 0.99, true), check("100%, or: nearly", `utilisation(phase="both") >= 0.9`, `utilisation(phase="both")`, utilisation, utilisation >= 0.9),
			{Name: "cnps", That: `cnps(phase="both") > 0`, Verdict: experiments.Skip, Reason: "no NIC can cnp"}},
		Scores:     []experiments.Score{{Metric: "utilisation", Phase: "both", Value: &utilisation}, {Metric: "retransmissions", Unit: "packets", Reason: "nothing was captured"}},
		Provenance: map[string]string{"pcmlab.commit": "0123abc", "host.h1.kernel": "Linux 6.18 \x1b[31m<red>"}}
	if utilisation < 0.9 {
		s.Verdict = experiments.Fail
	}
	return s
}

// input has every kind of outcome: a cell that got worse, one that did not, one without a result.
func input(t *testing.T) Input {
	t.Helper()
	root := t.TempDir()
	path := filepath.Join(root, "lab", "incast.yaml")
	p, err := experiments.ParsePlaybook(path, []byte(playbookText))
	if err != nil {
		t.Fatal(err)
	}
	in := Input{Playbook: p, Root: root}
	var before, after []*experiments.Summary
	for i, noise := range []float64{0, 0.002, -0.001, 0.003, -0.002, 0.001} {
		b, good, bad := repeat(i+1, "1MiB", 0.97+noise), repeat(i+1, "1MiB", 0.971+noise), repeat(i+1, "64KiB", 0.80+noise)
		worse := repeat(i+1, "64KiB", 0.96+noise)
		for _, s := range []*experiments.Summary{b, worse} {
			s.Trial.Sweep = "then"
			s.Provenance["pcmlab.commit"] = "9876fed"
		}
		before = append(before, b, worse)
		after = append(after, good, bad)
	}
	noisy := repeat(7, "1MiB", 0.2)
	noisy.State, noisy.Reason, noisy.Verdict = experiments.StateNoisy, "timers were 9 ms late", experiments.Skip
	partial := repeat(1, "0", 0.2)
	partial.State, partial.Reason, partial.Checks = experiments.StatePartial, "host h1: connection lost\nwhile it ran", nil
	in.Runs = append(after, noisy, partial)
	limits, err := compare.ParseThresholds([]string{`utilisation(phase="both"): 5%`})
	if err != nil {
		t.Fatal(err)
	}
	in.Comparisons = []*compare.Report{compare.Compare(compare.GroupRuns(before), compare.GroupRuns(after), compare.Options{Thresholds: limits, Before: "baseline main", After: "runs/now", Seed: 1})}
	return in
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if os.Getenv("CI") != "" {
			t.Fatal("golden files are not written on CI")
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// TestReport: one case for each expectation and each judged score of each cell, with the lines of the playbook.
func TestReport(t *testing.T) {
	r := New(input(t))
	for _, c := range []struct {
		suite, name string
		outcome     Outcome
		line        int
		message     string
		why         string
	}{
		{"incast/buffer-0 (link.buffer=0)", "measured", Broken, 1, "1 of 1 runs did not come to their end: host h1: connection lost", "a partial run is an error of its own"},
		{"incast/buffer-1MiB (link.buffer=1MiB)", "measured", Passed, 1, "1 of 7 runs were too noisy", "noise is no failure when other repeats are judged"},
		{"incast/buffer-1MiB (link.buffer=1MiB)", "fair", Passed, 12, "", "holds in all repeats"},
		{"incast/buffer-1MiB (link.buffer=1MiB)", "100%, or: nearly", Passed, 13, "", "the noisy repeat is not judged"},
		{"incast/buffer-1MiB (link.buffer=1MiB)", "cnps", Skipped, 14, "no NIC can cnp", "skipped is not passed"},
		{"incast/buffer-64KiB (link.buffer=64KiB)", "100%, or: nearly", Failed, 13, `utilisation(phase="both") >= 0.9 does not hold: utilisation(phase="both") = 0.8 (in 6 of 6 runs)`, "the number is in the message"},
		{"incast/buffer-64KiB against baseline main", `utilisation(phase="both")`, Failed, 10, `utilisation(phase="both") is worse: 0.9605 before, 0.8005 after, change`, "before, after, interval and threshold are in the message"},
		{"incast/buffer-1MiB against baseline main", `utilisation(phase="both")`, Passed, 10, "", "the same"},
	} {
		found := false
		for _, s := range r.Suites {
			for _, k := range s.Cases {
				if s.Name != c.suite || k.Name != c.name {
					continue
				}
				found = true
				if k.Outcome != c.outcome || k.Line != c.line || k.File != "lab/incast.yaml" || !strings.HasPrefix(k.Message, c.message) || c.message == "" && k.Message != "" {
					t.Errorf("%s: %s: %s at %s:%d: %q, want %s at lab/incast.yaml:%d: %q (%s)", c.suite, c.name, k.Outcome, k.File, k.Line, k.Message, c.outcome, c.line, c.message, c.why)
				}
			}
		}
		if !found {
			t.Errorf("no case %q in suite %q (%s)", c.name, c.suite, c.why)
		}
	}
}

// TestWriteJUnit holds the XML to the common schema, and its texts to what a reader needs.
func TestWriteJUnit(t *testing.T) {
	var b bytes.Buffer
	if err := New(input(t)).WriteJUnit(&b); err != nil {
		t.Fatal(err)
	}
	for _, p := range checkJUnit(b.Bytes()) {
		t.Error(p)
	}
	golden(t, "junit.xml", b.Bytes())
	var empty bytes.Buffer
	if err := New(Input{}).WriteJUnit(&empty); err != nil {
		t.Fatal(err)
	}
	for _, p := range checkJUnit(empty.Bytes()) {
		t.Errorf("nothing to report: %s", p)
	}
}

// TestCheckJUnit_findsFaults: the check that files must pass finds what is wrong with one.
func TestCheckJUnit_findsFaults(t *testing.T) {
	const bad = `<testsuites tests="2" colour="red"><testsuite name="" tests="x"><testcase name="a"/><properties/><testcase name="b" classname="c"><failure/><skipped/></testcase><note/></testsuite></testsuites>`
	found := strings.Join(checkJUnit([]byte(bad)), "\n")
	for _, want := range []string{"testsuites has attribute colour", `name="" is not`, `tests="x" is not`, "testcase lacks attribute classname", "properties comes too late", "skipped comes too late", "element note", "note within testsuite", `testsuite: failures="", it has 1`} {
		if !strings.Contains(found, want) {
			t.Errorf("the check does not find %q; it found:\n%s", want, found)
		}
	}
	if got := checkJUnit([]byte("<testsuites>")); len(got) == 0 {
		t.Error("a cut file passes")
	}
}

// TestWriteGitHub: one line for each finding, escaped as the runner reads it.
func TestWriteGitHub(t *testing.T) {
	var b bytes.Buffer
	if err := New(input(t)).WriteGitHub(&b); err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`^::(error|warning) file=[^,:]+,line=[0-9]+,title=[^,:]+::[^\r\n]+$`)
	for line := range strings.Lines(b.String()) {
		if !command.MatchString(strings.TrimSuffix(line, "\n")) {
			t.Errorf("not a workflow command: %s", line)
		}
	}
	for _, want := range []string{
		`::error file=lab/incast.yaml,line=13,title=incast/buffer-64KiB (link.buffer=64KiB)%3A 100%25%2C or%3A nearly::utilisation(phase="both") >= 0.9 does not hold`,
		`::warning file=lab/incast.yaml,line=14,title=`,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

// TestEscapes: what the runner would take for the end of a line, of a property or for an escape.
func TestEscapes(t *testing.T) {
	if got, want := message("50%\r\na: b, c"), "50%25%0D%0Aa: b, c"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	if got, want := property("50%\r\na: b, c"), "50%25%0D%0Aa%3A b%2C c"; got != want {
		t.Errorf("property %q, want %q", got, want)
	}
}

// TestWriteGitLab: the quality report has a place, a severity and a stable fingerprint for each finding; the log's sections
// are closed.
func TestWriteGitLab(t *testing.T) {
	r := New(input(t))
	read := func(r *Report) (issues []qualityIssue) {
		var b bytes.Buffer
		if err := r.WriteGitLabQuality(&b); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b.Bytes(), &issues); err != nil {
			t.Fatal(err)
		}
		return issues
	}
	issues := read(r)
	if want := r.Count(Failed) + r.Count(Broken) + r.Count(Skipped); len(issues) != want || want == 0 {
		t.Errorf("%d issues, want %d", len(issues), want)
	}
	seen := map[string]bool{}
	for _, i := range issues {
		if i.Location.Path != "lab/incast.yaml" || i.Location.Lines.Begin < 1 || len(i.Fingerprint) != 64 || seen[i.Fingerprint] || i.Description == "" {
			t.Errorf("issue %+v", i)
		}
		seen[i.Fingerprint] = true
	}
	in := input(t)
	for _, s := range in.Runs { // other numbers, the same finding
		for i := range s.Checks {
			for j := range s.Checks[i].Values {
				s.Checks[i].Values[j].Value *= 0.99
			}
		}
	}
	for i, other := range read(New(in)) {
		if other.Fingerprint != issues[i].Fingerprint {
			t.Errorf("issue %d has another fingerprint for other numbers", i)
		}
	}
	if got := read(New(Input{})); got == nil || len(got) != 0 {
		t.Errorf("no finding is %v, want an empty list", got)
	}
	var log bytes.Buffer
	if err := r.WriteGitLabLog(&log, began); err != nil {
		t.Fatal(err)
	}
	starts, ends := strings.Count(log.String(), "section_start:1796040000:pcmlab_"), strings.Count(log.String(), "section_end:1796040000:pcmlab_")
	if starts != len(r.Suites) || ends != starts {
		t.Errorf("%d sections begin, %d end, want %d", starts, ends, len(r.Suites))
	}
	if strings.Contains(log.String(), "\x1b[31m") {
		t.Error("what a host printed steers the log")
	}
}

// TestWriteMarkdown: the summary says what failed first, and text cannot become markup.
func TestWriteMarkdown(t *testing.T) {
	var b bytes.Buffer
	if err := New(input(t)).WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "summary.md", b.Bytes())
	if strings.Contains(b.String(), "<red>") {
		t.Error("text became markup")
	}
}

// A check of pcmlab itself, such as of what a handler did, has no expression: its message is its reason.
func TestNew_ownCheckSaysItsReason(t *testing.T) {
	run := repeat(1, "64KiB", 0.95)
	run.Checks = []experiments.CheckResult{{Name: "handler inert acts on h1", Verdict: experiments.Fail, Reason: "inert: none of its 5255 calls changed a window or a rate",
		Values: []experiments.MetricValue{{Call: "nic.h1.handler_runs", Value: 5255}}}}
	for _, c := range New(Input{Runs: []*experiments.Summary{run}}).Suites[0].Cases {
		if c.Name == "handler inert acts on h1" {
			if want := "handler inert acts on h1: inert: none of its 5255 calls changed a window or a rate (nic.h1.handler_runs = 5255)"; c.Outcome != Failed || c.Message != want {
				t.Errorf("%s: %q, want %q", c.Outcome, c.Message, want)
			}
			return
		}
	}
	t.Error("the check is no case")
}
