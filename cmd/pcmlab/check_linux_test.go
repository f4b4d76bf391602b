package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/nicbackends/check"
)

// TestCheck_virtualLab: a virtual lab that is up passes its check, paths included, over the NICs that listen at 4791
// already; then a host's MTU is lowered, and check and ping say so, name the host and tell what to type.
func TestCheck_virtualLab(t *testing.T) {
	h := newHome(t)
	if o := h.run("lab", "up", repo("labs/virtual-4.yaml"), "-q"); o.code != 0 {
		t.Fatalf("lab up: %d %s", o.code, o.stderr)
	}
	look := func() (check.Finding, checkDocument, outcome) {
		t.Helper()
		o := h.run("check", "-i", "virtual-4", "-o", "json")
		var doc checkDocument
		if err := json.Unmarshal([]byte(o.stdout), &doc); err != nil {
			t.Fatalf("%v: %d %s%s", err, o.code, o.stdout, o.stderr)
		}
		for _, f := range doc.Findings {
			if f.Verdict == check.Fail {
				return f, doc, o
			}
		}
		return check.Finding{}, doc, o
	}
	bad, doc, o := look()
	if o.code != 0 || bad.What != "" {
		t.Fatalf("exit %d, %+v %s", o.code, bad, o.stderr)
	}
	if len(doc.Hosts) != 5 || len(doc.Paths) != 12 || doc.Counts[check.Pass] < 40 || doc.Counts[check.Skip] == 0 {
		t.Errorf("%d hosts, %d paths, %v", len(doc.Hosts), len(doc.Paths), doc.Counts)
	}
	for _, p := range doc.Paths {
		if p.Verdict != check.Pass && p.Verdict != check.Warn || p.DSCP == nil || *p.DSCP != 26 || p.ECN == nil || *p.ECN != 2 || *p.FullIn == 0 {
			t.Errorf("path %+v, want datagrams of full MTU with DSCP 26 and ECT(0)", p)
		}
	}
	// Bars (USERS S01): each path is held against them, and the exit code says so.
	o = h.run("ping", "-i", "virtual-4", "--max-rtt", "1ns", "-o", "json")
	if o.code != 1 || strings.Count(o.stdout, "at most 1ns may pass") != 12 {
		t.Errorf("ping over the bar: exit %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	if o := h.run("lab", "exec", "h2", "--", "ip", "link", "set", "eth0", "mtu", "1500"); o.code != 0 {
		t.Fatalf("lower the MTU: %s", o.stderr)
	}
	bad, _, o = look()
	if o.code != 1 || bad.Host != "h2" || bad.What != "MTU" || !strings.Contains(bad.Fix, "ip link set eth0 mtu 4200") {
		t.Errorf("exit %d, %+v, want the MTU of h2 with its fix", o.code, bad)
	}
	// A port that is down (USERS S11): one table, and for nightly jobs a file in which it is a failure and what could not be
	// judged a skip with its reason.
	if o := h.run("lab", "exec", "h3", "--", "ip", "link", "set", "eth0", "down"); o.code != 0 {
		t.Fatalf("put the port down: %s", o.stderr)
	}
	junit := filepath.Join(t.TempDir(), "junit.xml")
	o = h.run("check", "-i", "virtual-4", "--junit", junit)
	if o.code != 1 || !regexp.MustCompile(`h3 softnic0 .* interface .* fail .* eth0 down`).MatchString(o.stdout) {
		t.Errorf("port down: exit %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	data, err := os.ReadFile(junit)
	if err != nil || !regexp.MustCompile(`(?s)<testsuite name="virtual-4.h3".*<failure message="[^"]*down`).Match(data) || !strings.Contains(string(data), "<skipped message=") {
		t.Errorf("%v\n%s", err, data)
	}
	o = h.run("ping", "-i", "virtual-4", "-o", "json")
	if o.code != 1 || !strings.Contains(o.stdout, "larger than the interface's MTU here") {
		t.Errorf("ping: exit %d\n%s%s", o.code, o.stdout, o.stderr)
	}
}
