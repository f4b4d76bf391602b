package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/experiments"
)

// A run whose captures, in rings of files, are analysed on the host on which they lie: it holds all its counts, only the document travels, `runs fetch` brings the files and leaves nothing there, and
// the analysis here gives the same bytes.
func TestRun_analysedThere(t *testing.T) {
	h := newHome(t)
	h.needLab()
	book, err := os.ReadFile(h.playbook("3s"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("bin: 20ms", "bin: 20ms\n  analyze: there\n  sample: 1s", "snaplen: 128}", "snaplen: 128, file_size: 4MiB}").Replace(string(book))
	path := filepath.Join(h.dir, "there.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := h.run("lab", "up", repo("labs/virtual-4.yaml"), "--id", "there"); out.code != exitOK {
		t.Fatalf("%+v", out)
	}
	out := h.run("run", path, "-i", "there", "--out", filepath.Join(h.dir, "runs"))
	if out.code == exitInfra || out.code == exitUsage {
		t.Fatalf("exit %d\n%s\n%s", out.code, out.stdout, out.stderr)
	}
	dir, result, doc := h.bundle(out)
	h.counts(result)
	list, err := experiments.LoadCaptured(dir)
	if err != nil || len(list) != 2 || len(list[0].Files) < 2 || !list[0].There || list[0].Program != "pcmlab" {
		t.Fatalf("captures %+v, %v", list, err)
	}
	if got := experiments.Elsewhere(dir, list); len(got) != len(list[0].Files)+len(list[1].Files) {
		t.Errorf("elsewhere: %v", got)
	}
	// The clock was compared before, during and after the traffic. How many comparisons count is up to the machine: one that took long beside the quickest does not.
	if c := doc.Files[0].Clock; c == nil || c.Samples < 2 || c.Applied || c.Host != "sw" || len(doc.Files[0].More) == 0 {
		t.Errorf("the clock of the very same machine: %+v; files %v", c, doc.Files[0].More)
	}
	var moved experiments.CountersMoved
	data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(experiments.CountersFile)))
	if err == nil {
		err = json.Unmarshal(data, &moved)
	}
	if err != nil || len(moved.Phases) < 3 || len(moved.Run) != 4 { // a machine that is very busy may miss a border
		t.Errorf("counters moved: %d phases of %d NICs, %v", len(moved.Phases), len(moved.Run), err)
	}
	for _, host := range []string{"h1", "sw"} {
		raw, err := os.ReadFile(filepath.Join(dir, "counters", host+".jsonl"))
		for _, when := range []string{`"when":"idle"`, `"when":"before"`, `"when":"phase","phase":"`, `"when":"sample"`, `"when":"end"`, `"when":"after"`} {
			if err != nil || !bytes.Contains(raw, []byte(when)) {
				t.Errorf("raw readings of %s lack %s (%v)", host, when, err)
			}
		}
	}
	if out := h.run("analyze", dir); out.code != exitUsage || !strings.Contains(out.stderr, "pcmlab runs fetch "+dir) {
		t.Errorf("analysis without captures: %+v", out)
	}
	if out := h.run("runs", "fetch", dir, "-i", "there"); out.code != exitOK || !strings.Contains(out.stdout, "bytes from sw") {
		t.Fatalf("fetch: %+v", out)
	}
	again := h.run("analyze", dir, "-o", "json")
	want, err := os.ReadFile(filepath.Join(dir, "analysis.json"))
	if err != nil || again.stdout != string(want) {
		t.Errorf("the analysis here is %d bytes, that of the run %d (%v): %s", len(again.stdout), len(want), err, cmp.Diff(strings.Split(string(want), "\n"), strings.Split(again.stdout, "\n")))
	}
	if out := h.run("lab", "exec", "--lab", "there", "sw", "--", "sh", "-c", "ls -d $HOME/.cache/pcmlab/captures"); out.code == exitOK {
		t.Errorf("left on sw: %s", out.stdout)
	}
	if out := h.run("runs", "fetch", dir, "-i", "there"); out.code != exitUsage || !strings.Contains(out.stderr, "no capture of it lies elsewhere") {
		t.Errorf("fetch again: %+v", out)
	}
	// While the lab is up: the counters at any time.
	if out := h.run("counters", "-i", "there", "h1", "--for", "100ms"); out.code != exitOK {
		t.Errorf("counters: %+v", out)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{{nil, "need -i LAB"}, {[]string{"-i", "there", "h9"}, `has no host "h9"`}, {[]string{path, path}, "no document of pcmlab counters"}, {[]string{"-i", "there", "--for", "-1s"}, "need a positive time"}} {
		if out := h.run(append([]string{"counters"}, tt.args...)...); out.code != exitUsage || !strings.Contains(out.stderr, tt.want) {
			t.Errorf("counters %v: %+v, want %q", tt.args, out, tt.want)
		}
	}
}
