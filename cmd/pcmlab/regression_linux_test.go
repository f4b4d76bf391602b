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

// suiteTime is how long one of the suite's two playbooks may take on two cores that have nothing else to do: the suite has four minutes.
const suiteTime = 2 * time.Minute

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

// regressionRun runs a playbook of the suite as docs/ci.md says, with further flags, and gives its exit status and its JUnit cases.
func regressionRun(t *testing.T, playbook string, flags ...string) (status int, cases map[string]junitCase) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "junit.xml")
	const suite = "playbooks/regression/"
	args := []string{"run", suite + playbook + ".yaml", "-i", suite + "lab.yaml", "--repeat", "5", "--baseline", suite + "baselines/" + playbook + ".json", "--junit", file, "--out", filepath.Join(dir, "runs")}
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
	t.Logf("%s %v: exit status %d after %v", playbook, flags, status, took)
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

// folder makes one for a package of this name.
func folder(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// damaged is a copy of the handler Swift with a line of its specification changed.
func damaged(t *testing.T, old, new string) string {
	t.Helper()
	dir := folder(t, "swift")
	for _, name := range []string{"swift.yaml", "swift.c"} {
		text, err := os.ReadFile(filepath.Join("../../pcm/handlers/swift", name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "swift.yaml" && strings.Count(string(text), old) != 1 {
			t.Fatalf("swift.yaml has %q %d times", old, strings.Count(string(text), old))
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Replace(string(text), old, new, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// inert is a package that is called and changes nothing.
func inert(t *testing.T) string {
	t.Helper()
	dir := folder(t, "inert")
	for name, text := range map[string]string{
		"inert.yaml": "algorithm: {name: inert}\nsignals:\n  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1, reset_upon_trigger: \"false\"}\ncontrols:\n  - {name: CWND, type: PCM_CTRL_CWND, initial_value: FABRIC_MAX_CWND}\n",
		"inert.c":    "#include \"pcmh.h\"\n#include \"inert.h\"\n\nint algorithm_main()\n{\n\treturn PCM_SUCCESS;\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestRegressionSuite: on unchanged code the suite is green twice in a row. A change of ECN, a cut buffer, congestion control that is
// off, a handler with a broken constant and one that does nothing are red each time, in the case that shows them, with the numbers or the
// reason in the JUnit text.
func TestRegressionSuite(t *testing.T) {
	if os.Getenv("PCMLAB_REGRESSION") == "" {
		t.Skip("takes some fifteen minutes of a machine that has nothing else to do: set PCMLAB_REGRESSION=1")
	}
	for _, playbook := range []string{"incast", "swift", "incast", "swift"} {
		if status, _ := regressionRun(t, playbook); status != 0 {
			t.Errorf("%s, unchanged: exit status %d, want 0", playbook, status)
		}
	}
	const ce, lost, retransmissions = `ce_share(phase="all")`, "lost()", "retransmissions()"
	worse := []string{"is worse", "before     ", "after      ", "change     ", "allowed    "}
	for _, c := range []struct {
		name, why string
		playbook  string
		set       []string
		status    int
		red       []string // cases
		text      []string // that each of them has
	}{
		{"ecn_tenfold", "ECN acts when the buffer is full already: nothing is marked, packets are lost", "incast", []string{"switch.ecn.kmin=2000KiB", "switch.ecn.kmax=8000KiB"}, exitCheckFailed, []string{ce, lost}, worse},
		{"buffer_cut", "the buffer ends below where ECN begins", "incast", []string{"link.buffer=128KiB"}, exitCheckFailed, []string{lost, retransmissions}, worse},
		{"dcqcn_off", "senders ignore the marks: the queue stays full", "incast", []string{"nic.dcqcn=off"}, exitCheckFailed, []string{ce, lost}, worse},
		{"handler_constant", "windows end at one packet: the link is idle most of the time", "swift", []string{"handler=" + damaged(t, "value: FABRIC_MAX_CWND}", "value: FABRIC_LINK_MSS}")}, exitCheckFailed, []string{`utilisation(phase="all")`}, worse},
		{"handler_inert", "windows stay as wide as they began", "swift", []string{"handler=" + inert(t)}, exitData, []string{"handler inert acts on h1", "handler inert acts on h3"}, []string{"inert: none of its ", "changed a window or a rate"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var flags []string
			for _, s := range c.set {
				flags = append(flags, "--set", s)
			}
			status, cases := regressionRun(t, c.playbook, flags...)
			if status != c.status {
				t.Errorf("%s: exit status %d, want %d", c.why, status, c.status)
			}
			for _, name := range c.red {
				k := cases[name]
				if k.Failure == nil {
					t.Errorf("%s: case %s did not fail", c.why, name)
					continue
				}
				for _, want := range append(c.text, "playbooks/regression/"+c.playbook+".yaml:") {
					if !strings.Contains(k.Failure.Message+k.Failure.Text, want) {
						t.Errorf("%s: the text of %s has no %q:\n%s", c.why, name, want, k.Failure.Text)
					}
				}
			}
		})
	}
}
