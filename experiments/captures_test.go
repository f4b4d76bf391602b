package experiments

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
	"github.com/pcmlab/pcmlab/inventory/remote/sshserver"
)

// plainHost is a host over SSH on which pcmlab does not run, with programs of the test's own.
func plainHost(t *testing.T, programs map[string]string) remote.Host {
	t.Helper()
	bin := t.TempDir()
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := remotetest.Start(t, "", sshserver.Options{SFTP: true, Env: []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + bin, "TMPDIR=" + bin, "BIN=" + bin}})
	pool, err := remote.NewPool(s.Lab(t), remote.Options{NoGuard: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	h, err := pool.Host(t.Context(), "h3")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Binary(t.Context()); err == nil {
		t.Fatal("a host without guards took the binary")
	}
	return h
}

func captureRunner(t *testing.T, h remote.Host, c Capture) *Runner {
	t.Helper()
	b, err := CreateBundle(t.TempDir(), "run")
	if err != nil {
		t.Fatal(err)
	}
	lab := &inventory.Lab{Name: "l", Hosts: []*inventory.Host{{Name: "h3"}}, Taps: []*inventory.Tap{{Name: "tap", Host: "h3", Iface: "eth0"}}}
	c.Tap, c.Snaplen = "tap", 128
	p := &Playbook{Captures: []Capture{c}, FetchLimit: 1 << 30}
	plan := &Plan{}
	(&planner{plan, p, lab, nil, map[string][]string{}}).captures()
	dir, err := (&Runner{}).plainDir(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	return &Runner{Playbook: p, Lab: lab, plan: plan, bundle: b, result: &Result{}, hosts: map[string]remote.Host{"h3": h}, dirs: map[string]string{"h3": dir}, syncs: map[string]string{}}
}

// fakeTcpdump writes a capture as tcpdump does: what it has when it is told to end, and what it counted on standard error.
func fakeTcpdump(t *testing.T, packets int, counts string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "canned.pcap")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := capture.NewPcapWriter(f, roce.LinkEthernet, 128)
	for i := range packets {
		if err := w.Write(&capture.Packet{TimeNS: int64(i+1) * 1e9, Data: make([]byte, 60), OrigLen: 60}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	return `while [ "$1" != -w ]; do shift; done
cat ` + path + ` >"$2"
sleep 60 &
p=$!
trap 'printf "` + counts + `" >&2; kill $p; exit 0' INT
echo "tcpdump: listening on eth0, link-type EN10MB (Ethernet), snapshot length 128 bytes" >&2
wait
`
}

// On a host where pcmlab may not run the next program captures: one that has no right is passed over and named, its file is fetched with what it counted, and the
// analysis is told both.
func TestCaptures_whereOursMayNotRun(t *testing.T) {
	t.Parallel()
	h := plainHost(t, map[string]string{
		"dumpcap": "echo \"Capturing on 'eth0'\" >&2; echo \"dumpcap: You don't have permission to capture on that device\" >&2; exit 1\n",
		"tcpdump": fakeTcpdump(t, 3, `3 packets captured\n5 packets received by filter\n0 packets dropped by kernel\n`),
	})
	r := captureRunner(t, h, Capture{Judge: true})
	rc, err := r.startCaptures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.result.Warnings) != 1 || !strings.Contains(r.result.Warnings[0], "tap tap on h3 is captured by tcpdump: ") || !strings.Contains(r.result.Warnings[0], "permission") {
		t.Errorf("warnings %q", r.result.Warnings)
	}
	if err := rc.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.bring(t.Context()); err != nil {
		t.Fatal(err)
	}
	in := r.analysisInput(false)
	if len(in.Captures) != 1 || in.Captures[0].File != "captures/tap.pcap" || in.Captures[0].Said == nil || *in.Captures[0].Said.Captured != 3 || in.Captures[0].Stamps != "software" {
		t.Fatalf("%+v", in.Captures)
	}
	doc, err := analyzeBundle(t.Context(), r.bundle.Dir, in)
	if err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(doc.Quality.Notes, "\n"); doc.Files[0].Packets != 3 || !strings.Contains(notes, "2 packets were still in the kernel's buffer") || strings.Contains(notes, r.bundle.Dir) {
		t.Errorf("%d packets, notes %q", doc.Files[0].Packets, notes)
	}
	var list []Captured
	data, err := os.ReadFile(filepath.Join(r.bundle.Dir, filepath.FromSlash(CapturesFile)))
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil || len(list) != 1 || list[0].Program != "tcpdump" || len(list[0].Files) != 1 || len(list[0].Files[0].SHA256) != 64 || list[0].There || len(list[0].Why) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := r.unwind(t.Context()); err != nil {
		t.Error(err)
	}
}

// What is wrong for one program is wrong for the next: they are not tried through, and the error is the program's own.
func TestCaptures_mistakesAreNotTriedThrough(t *testing.T) {
	t.Parallel()
	h := plainHost(t, map[string]string{
		"dumpcap": "echo \"dumpcap: There is no device named eth0\" >&2; exit 1\n",
		"tcpdump": "echo tried >>$BIN/tried; exit 1\n",
	})
	r := captureRunner(t, h, Capture{Judge: true})
	_, err := r.startCaptures(t.Context())
	if err == nil || !strings.Contains(err.Error(), "capture tap on eth0 with dumpcap") || !strings.Contains(err.Error(), "There is no device named eth0") {
		t.Errorf("%v", err)
	}
	if res, err := h.Run(t.Context(), remote.Cmd{Args: []string{"sh", "-c", "cat $BIN/tried"}}); err != nil || len(res.Stdout) > 0 {
		t.Errorf("tcpdump was tried: %q, %v", res.Stdout, err)
	}
	r = captureRunner(t, h, Capture{Judge: true, Program: capture.Own})
	if _, err := r.startCaptures(t.Context()); err == nil || !strings.Contains(err.Error(), "pcmlab cannot capture here") {
		t.Errorf("the playbook asks for pcmlab: %v", err)
	}
}

// S05: traffic ends first, then the wire is quiet, then captures end: stopping a sniffer while traffic flows breaks some NICs. The order is the run's own list of steps.
func TestMeasure_capturesOutliveTraffic(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("run.go")
	if err != nil {
		t.Fatal(err)
	}
	last := -1
	for _, what := range []string{`"stop the flows"`, `"wait for the wire to be quiet"`, `"read counters after"`, `"stop captures"`, `"fetch captures, or analyse them where they lie"`} {
		at := strings.Index(string(data), what)
		if at <= last {
			t.Errorf("%s comes too early, or not at all", what)
		}
		last = at
	}
}

// Where captures are analysed follows size and choice.
func TestCaptures_where(t *testing.T) {
	t.Parallel()
	guardedHosts := map[string]remote.Host{"a": nil, "b": nil}
	for _, tt := range []struct {
		name    string
		analyze string
		limit   int64
		sizes   map[string]int64
		host    string
		why     string
	}{
		{"small", AnalyzeAuto, 100, map[string]int64{"a": 100}, "", ""},
		{"large", AnalyzeAuto, 100, map[string]int64{"a": 101}, "a", ""},
		{"large_together", AnalyzeAuto, 100, map[string]int64{"a": 60, "b": 60}, "", "they lie on several hosts (a, b)"},
		{"wanted_there", AnalyzeThere, 100, map[string]int64{"a": 1}, "a", ""},
		{"wanted_here", AnalyzeHere, 100, map[string]int64{"a": 1000}, "", ""},
		{"nothing", AnalyzeThere, 100, map[string]int64{"a": 0}, "", ""},
	} {
		r := &Runner{Playbook: &Playbook{Analyze: tt.analyze, FetchLimit: tt.limit}, hosts: guardedHosts}
		rc := &runningCaptures{r: r}
		for _, host := range sortedKeys(tt.sizes) {
			rc.taps = append(rc.taps, &runningTap{PlannedCapture: &PlannedCapture{Tap: host, Host: host}, files: []tapFile{{Name: host, Bytes: tt.sizes[host]}}})
		}
		if host, why := rc.there(); host != tt.host || why != tt.why {
			t.Errorf("%s: %q, %q; want %q, %q", tt.name, host, why, tt.host, tt.why)
		}
	}
}

// The keys of a playbook for captures, and what is wrong with them.
func TestParsePlaybook_captures(t *testing.T) {
	t.Parallel()
	p, err := ParsePlaybook("x.yaml", []byte(captureBook("file_size: 256MiB, files: 8, filter: roce or pfc, program: tcpdump", "sample: 2s, analyze: there, fetch_limit: 1GiB")))
	if err != nil {
		t.Fatal(err)
	}
	want := Capture{Tap: "sw-out-r1", Judge: true, Snaplen: 128, Filter: "roce or pfc", FileSize: 256 << 20, Files: 8, Program: capture.Tcpdump}
	if d := cmp.Diff([]Capture{want}, p.Captures); d != "" || *p.Sample != 2*time.Second || p.Analyze != AnalyzeThere || p.FetchLimit != 1<<30 {
		t.Errorf("%s\n%v %v %v", d, p.Sample, p.Analyze, p.FetchLimit)
	}
	plan, err := NewPlan(p, loadLab(t, "virtual-4.yaml"), testBackends())
	if err != nil {
		t.Fatal(err)
	}
	if c := plan.Captures[0]; c.File != "captures/sw-out-r1.pcap" || !slices.Contains(c.Command, "tcpdump") || !slices.Contains(c.Command, "-W") || plan.Sample != 2*time.Second {
		t.Errorf("%+v, sample %v", c, plan.Sample)
	}
	for _, tt := range []struct{ capture, measure, want string }{
		{"files: 8", "", "8 files of no size"},
		{"filter: tcp", "", `term "tcp"`},
		{"timestamps: hardware, program: tcpdump", "", "hardware timestamps are taken by pcmlab alone"},
		{"", "analyze: elsewhere", "analyze"},
		{"program: wireshark", "", "program"},
	} {
		if _, err := ParsePlaybook("x.yaml", []byte(captureBook(tt.capture, tt.measure))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want %q", tt.capture, tt.measure, err, tt.want)
		}
	}
}

func captureBook(capture, measure string) string {
	if capture != "" {
		capture = ", " + capture
	}
	return "playbook: x\nhosts: {a: h1, b: r1}\nflows: {f: {from: h1, to: r1}}\nphases: [{name: one, start: f, for: 3s}]\nmeasure: {" + measure + "}\ncaptures: [{tap: sw-out-r1, judge: true" + capture + "}]\n"
}
