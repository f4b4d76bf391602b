package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/experiments"
)

// TestExport_realRun: a run of the virtual lab, exported, imported elsewhere, re-analysed and reported; and again redacted, where
// none of its addresses, hosts, users and home folders is left in any byte.
func TestExport_realRun(t *testing.T) {
	h := newHome(t)
	h.needLab()
	out := h.run("run", h.playbook("3s"), "-i", repo("labs/virtual-4.yaml"))
	if out.code != exitOK && out.code != exitCheckFailed && out.code != exitData {
		t.Fatalf("exit %d\n%s\n%s", out.code, out.stdout, out.stderr)
	}
	dir, result, _ := h.bundle(out)
	if ls := h.run("runs", "ls", "-o", "csv"); !strings.Contains(ls.stdout, result.Run) {
		t.Errorf("the run is not in the index: %+v", ls)
	}
	must := func(args ...string) string {
		t.Helper()
		o := h.run(args...)
		if o.code != exitOK {
			t.Fatalf("%v: exit %d\n%s\n%s", args, o.code, o.stdout, o.stderr)
		}
		return o.stdout
	}
	read := func(p ...string) []byte {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(p...))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	analyzed := func(dir string) string {
		t.Helper()
		o := h.run("analyze", dir, "-o", "json")
		if o.code != exitOK && o.code != exitCheckFailed {
			t.Fatalf("analyze: %+v", o)
		}
		return o.stdout
	}
	must("export", dir, "--archive", "plain.tar.zst")
	must("export", dir, "--archive", "again.tar.zst")
	if !bytes.Equal(read(h.dir, "plain.tar.zst"), read(h.dir, "again.tar.zst")) {
		t.Error("the same run gave two archives")
	}
	must("import", "plain.tar.zst", "--out", "theirs")
	theirs := filepath.Join(h.dir, "theirs", filepath.Base(dir))
	if got := analyzed(theirs); got != string(read(dir, "analysis.json")) || got != string(read(theirs, "analysis.json")) {
		t.Error("the imported run analyses to other bytes")
	}
	must("report", theirs) // exit 0: with it, the manifest holds
	if !bytes.Equal(read(dir, "report.html"), read(theirs, "report.html")) {
		t.Error("the imported run's page is another")
	}

	must("export", dir, "--archive", "redacted.tar.zst", "--redact", "--redact-key", "secret of the lab")
	must("export", dir, "--archive", "redacted2.tar.zst", "--redact", "--redact-key", "secret of the lab")
	must("export", dir, "--archive", "other.tar.zst", "--redact")
	if !bytes.Equal(read(h.dir, "redacted.tar.zst"), read(h.dir, "redacted2.tar.zst")) {
		t.Error("the same run and key gave two archives")
	}
	if bytes.Equal(read(h.dir, "redacted.tar.zst"), read(h.dir, "other.tar.zst")) {
		t.Error("another key gave the same pseudonyms")
	}
	must("import", "redacted.tar.zst", "--out", "public")
	public := filepath.Join(h.dir, "public", filepath.Base(dir))
	if got := analyzed(public); got != string(read(public, "analysis.json")) {
		t.Error("the redacted run analyses to other bytes than its analysis.json")
	}
	must("report", public)
	if m, differences, err := experiments.CheckManifest(public); err != nil || len(differences) > 0 || !m.Redacted {
		t.Errorf("manifest: redacted %v, differences %q, %v", m.Redacted, differences, err)
	}
	sameScores(t, dir, public)
	nothingLeft(t, h.dir, dir, public)
}

// sameScores: the numbers of both runs are the same, in the same places.
func sameScores(t *testing.T, dir, public string) {
	t.Helper()
	a, err := experiments.LoadSummary(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := experiments.LoadSummary(public)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Scores) != len(b.Scores) || len(a.Scores) < 50 || a.State != b.State || a.Verdict != b.Verdict {
		t.Fatalf("%d scores, %s, %s; redacted %d, %s, %s", len(a.Scores), a.State, a.Verdict, len(b.Scores), b.State, b.Verdict)
	}
	for i := range a.Scores {
		x, y := a.Scores[i], b.Scores[i]
		same := x.Metric == y.Metric && x.Phase == y.Phase && (x.Value == nil) == (y.Value == nil)
		if same && x.Value != nil {
			same = float32(*x.Value) == float32(*y.Value)
		}
		if !same {
			t.Errorf("%s became %s", x.Name(), y.Name())
		}
	}
}

// nothingLeft looks for what must not be left in every byte of a redacted run, and in the names of its files.
func nothingLeft(t *testing.T, home, dir, public string) {
	t.Helper()
	words := []string{home, filepath.Base(home), "/root", "root@"}
	var raw [][]byte
	seen := map[string]bool{}
	walk := func(dir string, f func(rel string, data []byte)) {
		err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(p)
			rel, _ := filepath.Rel(dir, p)
			f(rel, data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	address := regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}\b`)
	walk(dir, func(rel string, data []byte) {
		if strings.HasSuffix(rel, ".pcapng") || strings.HasSuffix(rel, ".html") {
			return
		}
		for _, m := range address.FindAllString(string(data), -1) {
			a, err := netip.ParseAddr(m)
			if err != nil || seen[m] || m == "127.0.0.1" || m == "0.0.0.0" {
				continue
			}
			seen[m] = true
			words = append(words, m)
			b := a.As4()
			words = append(words, fmt.Sprintf("%02d:%02d:%02d:%02d", b[0], b[1], b[2], b[3]))
			if b[0] == 192 { // of the data network: in captures
				raw = append(raw, b[:])
			}
		}
	})
	if len(raw) < 4 {
		t.Fatalf("%d data addresses were found: the test shows nothing", len(raw))
	}
	host := regexp.MustCompile(`\b(?:h1|h2|h3|r1|sw)\b`)
	walk(public, func(rel string, data []byte) {
		text := rel + "\n" + string(data)
		for _, w := range words {
			if strings.Contains(text, w) {
				t.Errorf("%s: %q is left", rel, w)
			}
		}
		if strings.HasSuffix(rel, ".pcapng") {
			for _, a := range raw {
				if n := bytes.Count(data, a); n > 2 { // four bytes of times and PSNs may look like one by chance, hardly ever
					t.Errorf("%s: address %v is left %d times", rel, a, n)
				}
			}
			return
		}
		if m := host.FindString(text); m != "" && !strings.HasSuffix(rel, ".html") { // pages have headings h1 to h3
			t.Errorf("%s: host %s is left", rel, m)
		}
	})
}
