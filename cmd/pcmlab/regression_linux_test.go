package main

import (
	"encoding/xml"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// suiteTime is how long the regression suite may take on two cores that have nothing else to do.
const suiteTime = 4 * time.Minute

type junitCase struct {
	Name    string       `xml:"name,attr"`
	Failure *junitResult `xml:"failure"`
	Error   *junitResult `xml:"error"`
	Skipped *junitResult `xml:"skipped"`
}

type junitResult struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// regressionRun runs the suite as docs/ci.md says, with further flags, and gives its exit status and its JUnit cases.
func regressionRun(t *testing.T, flags ...string) (status int, cases map[string]junitCase) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "junit.xml")
	args := []string{"run", "playbooks/regression/incast.yaml", "-i", "playbooks/regression/lab.yaml", "--repeat", "5", "--baseline", "playbooks/regression/baselines/incast.json", "--junit", file, "--out", filepath.Join(dir, "runs")}
	cmd := exec.CommandContext(t.Context(), binary, append(args, flags...)...)
	cmd.Dir = "../.."
	began := time.Now()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		status = exit.ExitCode()
	case err != nil:
		t.Fatal(err)
	}
	took := time.Since(began).Round(time.Second)
	t.Logf("%v: exit status %d after %v", flags, status, took)
	if took > suiteTime {
		t.Errorf("the suite took %v, want less than %v", took, suiteTime)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var doc struct {
		Suites []struct {
			Cases []junitCase `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	cases = map[string]junitCase{}
	for _, s := range doc.Suites {
		for _, c := range s.Cases {
			cases[c.Name] = c
			switch {
			case c.Failure != nil:
				t.Logf("  failed  %s: %s", c.Name, c.Failure.Message)
			case c.Error != nil:
				t.Logf("  broken  %s: %s", c.Name, c.Error.Message)
			case c.Skipped != nil:
				t.Logf("  skipped %s: %s", c.Name, c.Skipped.Message)
			}
		}
	}
	return status, cases
}

// TestRegressionSuite: on unchanged code the suite is green twice in a row. A change of ECN, a cut buffer and congestion
// control that is off are red each time, for the score that shows them, with the numbers in the JUnit text.
func TestRegressionSuite(t *testing.T) {
	if os.Getenv("PCMLAB_REGRESSION") == "" {
		t.Skip("takes some ten minutes of a machine that has nothing else to do: set PCMLAB_REGRESSION=1")
	}
	for _, again := range []string{"once", "again"} {
		if status, _ := regressionRun(t); status != 0 {
			t.Errorf("unchanged, %s: exit status %d, want 0", again, status)
		}
	}
	for _, c := range []struct {
		name, why string
		flags     []string
		red       []string // cases
	}{
		{"ecn_tenfold", "ECN acts when the buffer is full already: nothing is marked, packets are lost", []string{"--set", "switch.ecn.kmin=2000KiB", "--set", "switch.ecn.kmax=8000KiB"}, []string{`ce_share(phase="all")`, "lost()"}},
		{"buffer_cut", "the buffer ends below where ECN begins", []string{"--set", "link.buffer=128KiB"}, []string{"lost()", "retransmissions()"}},
		{"dcqcn_off", "senders ignore the marks: the queue stays full", []string{"--set", "nic.dcqcn=off"}, []string{`ce_share(phase="all")`, "lost()"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, cases := regressionRun(t, c.flags...)
			if status != 1 {
				t.Errorf("%s: exit status %d, want 1", c.why, status)
			}
			for _, name := range c.red {
				k := cases[name]
				if k.Failure == nil {
					t.Errorf("%s: case %s did not fail", c.why, name)
					continue
				}
				for _, want := range []string{"is worse", "before     ", "after      ", "change     ", "allowed    ", "playbooks/regression/incast.yaml:"} {
					if !strings.Contains(k.Failure.Text, want) {
						t.Errorf("%s: the text of %s has no %q:\n%s", c.why, name, want, k.Failure.Text)
					}
				}
			}
		})
	}
}
