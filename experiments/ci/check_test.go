package ci

import (
	"bytes"
	"encoding/xml"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/nicbackends/check"
)

// TestOfCheck_skipIsNotPass is USERS S11: a port that is down is a failure and what could not be judged for it a skip with
// its reason, in the file that a nightly job reads.
func TestOfCheck_skipIsNotPass(t *testing.T) {
	r := OfCheck("lab", []check.Finding{
		{Host: "h1", What: "reach", Verdict: check.Pass, Found: "node1"},
		{Host: "h1", NIC: "mlx5_0", What: "port", Verdict: check.Fail, Found: "DOWN", Why: "is not ACTIVE", Fix: "on h1: ip link set ens1 up"},
		{Host: "h1", NIC: "mlx5_0", What: "link rate", Verdict: check.Skip, Why: "the driver does not know the link's speed"},
		{Host: "h1", What: "CPU governor", Verdict: check.Warn, Found: "powersave", Why: "CPUs that change their speed make rates vary", Fix: "on h1: cpupower"},
		{Host: "h2", What: "reach", Verdict: check.Fail, Why: "connection refused"},
		{Host: "h1", What: "path from h2", Verdict: check.Skip, Found: "packet", Why: "host h2 could not be asked"},
	})
	var out bytes.Buffer
	if err := r.WriteJUnit(&out); err != nil {
		t.Fatal(err)
	}
	type say struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	var doc struct {
		Suites []struct {
			Name  string `xml:"name,attr"`
			Cases []struct {
				Name    string `xml:"name,attr"`
				Failure *say   `xml:"failure"`
				Error   *say   `xml:"error"`
				Skipped *say   `xml:"skipped"`
				Out     string `xml:"system-out"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	var got []string
	for _, s := range doc.Suites {
		for _, c := range s.Cases {
			line := s.Name + " | " + c.Name
			for what, x := range map[string]*say{"failure": c.Failure, "error": c.Error, "skipped": c.Skipped} {
				if x != nil {
					line += " | " + what + " " + x.Message
				}
			}
			if c.Out != "" {
				line += " | out " + strings.ReplaceAll(c.Out, "\n", " ")
			}
			if c.Failure != nil && !strings.Contains(c.Failure.Text, "ip link set ens1 up") {
				t.Errorf("failure without its fix: %q", c.Failure.Text)
			}
			got = append(got, line)
		}
	}
	want := []string{
		"lab.h1 | reach | out node1",
		"lab.h1 | mlx5_0 port | failure DOWN: is not ACTIVE",
		"lab.h1 | mlx5_0 link rate | skipped the driver does not know the link's speed",
		"lab.h1 | CPU governor | out warning: powersave: CPUs that change their speed make rates vary → on h1: cpupower",
		"lab.h1 | path from h2 | skipped packet: host h2 could not be asked",
		"lab.h2 | reach | error connection refused",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
