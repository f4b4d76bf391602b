package figures

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/experiments"
)

// writeRun makes the folder of a run as far as figures need it, manifest included.
func writeRun(t testing.TB, dir string, trial *experiments.Trial, seed uint64, level float64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	begin := time.Date(2026, 11, 30, 12, 0, int(seed), 0, time.UTC)
	d := analysis.Document{Schema: analysis.Schema, TimeScale: 50}
	d.Series = analysis.Series{BinNS: 20e6, StartNS: 1e9, Bins: 200}
	d.Aggregate.PerPhase = []analysis.PhaseSummary{{Name: "one", StartNS: 1e9, EndNS: 3e9}, {Name: "two", StartNS: 3e9, EndNS: 5e9}}
	for i := range 2 {
		id := fmt.Sprintf("192.0.2.%d>192.0.2.14:0x000001", 11+i)
		d.Flows = append(d.Flows, analysis.Flow{ID: id, Name: fmt.Sprintf("h%d", i+1)})
		s := analysis.FlowSeries{ID: id}
		for range 200 {
			s.GoodputBps = append(s.GoodputBps, level*2e8*(1+0.02*r.NormFloat64()))
			s.Packets, s.CE, s.CNPs, s.Retransmits = append(s.Packets, 100), append(s.CE, int64(r.IntN(3))), append(s.CNPs, int64(r.IntN(2))), append(s.Retransmits, 0)
		}
		d.Series.Flows = append(d.Series.Flows, s)
	}
	for range 200 {
		v := 0.99 + 0.005*r.Float64()
		d.Series.Jain = append(d.Series.Jain, &v)
	}
	for i := range 40 {
		d.Distributions.RTTNS = append(d.Distributions.RTTNS, analysis.Sample{Value: int64(1e5 * math.Pow(1.1, float64(i)) * level), Count: int64(1 + r.IntN(50))})
	}
	goodput, jain := level*4e8*(1+0.01*r.NormFloat64()), 0.99+0.002*r.NormFloat64()
	sum := &experiments.Summary{Schema: "pcmlab/summary/v1", Run: filepath.Base(dir), Playbook: "incast", Lab: "virtual-4", Trial: trial, State: experiments.StateComplete, Verdict: experiments.Pass, Began: begin,
		TimeScale: 50, Inputs: strings.Repeat("a", 64), Provenance: map[string]string{"pcmlab.version": "v0.1.0", "pcmlab.commit": "0123abc"},
		Scores: []experiments.Score{{Metric: "goodput", Unit: "bit/s", Value: &goodput}, {Metric: "jain", Value: &jain}, {Metric: "lost", Unit: "packets", Reason: "no tap before the queue"}}}
	files := map[string]any{"summary.json": sum, "analysis.json": d, "plan.json": map[string]any{}, "result.json": map[string]any{}, "command.json": map[string]any{"inputs_sha256": sum.Inputs}, "timeline.jsonl": experiments.Event{Event: "done"},
		"playbook.yaml": "playbook", "lab.yaml": "lab"}
	if trial != nil {
		files["trial.json"] = trial
	}
	m := experiments.Manifest{Schema: "pcmlab/manifest/v1", Run: sum.Run, State: sum.State, Began: begin}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string, v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, v := range files {
		h := sha256.Sum256(write(name, v))
		m.Files = append(m.Files, experiments.ManifestFile{Path: name, SHA256: hex.EncodeToString(h[:])})
	}
	write("manifest.json", m)
}

// writeRuns makes runs of two kinds and a sweep over buffers and ECN.
func writeRuns(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for i := range 3 {
		writeRun(t, filepath.Join(dir, "runs/on", fmt.Sprintf("run-on-%d", i)), nil, uint64(i), 1)
		writeRun(t, filepath.Join(dir, "runs/off", fmt.Sprintf("run-off-%d", i)), nil, uint64(10+i), 0.8)
	}
	for k, kmin := range []string{"100KiB", "1MiB"} {
		for b, buffer := range []string{"64KiB", "256KiB", "4MiB"} {
			for rep := range 6 {
				cell := fmt.Sprintf("c%d%d", k, b)
				trial := &experiments.Trial{Sweep: "sweep", Cell: cell, Repeat: rep + 1, Params: []experiments.Param{{Key: "link.buffer", Value: buffer}, {Key: "switch.ecn.kmin", Value: kmin}}}
				writeRun(t, filepath.Join(dir, "sweep", cell, fmt.Sprintf("%02d", rep+1)), trial, uint64(100*k+10*b+rep), 0.5+0.1*float64(b)+0.05*float64(k))
			}
		}
	}
	return dir
}

var specs = map[string]string{
	"timeline": "figure: timeline\nkind: timeline\nmetric: goodput\nbin: 100ms\nruns:\n  - {label: DCQCN, of: runs/on}\n  - {label: no control, of: runs/off}\n",
	"flows":    "figure: flows\nkind: timeline\nmetric: goodput\nby: flow\nruns: [{label: DCQCN, of: runs/on/run-on-0}]\nsize: {columns: 2}\n",
	"jain":     "figure: jain\nkind: timeline\nmetric: jain\nylimits: [0.9, 1]\nfont: {family: sans}\nruns: [{label: DCQCN, of: runs/on}]\n",
	"cdf":      "figure: cdf\nkind: cdf\nmetric: rtt\nruns:\n  - {label: DCQCN, of: runs/on}\n  - {label: no control, of: runs/off}\n",
	"bars":     "figure: bars\nkind: bars\nmetric: goodput\nruns:\n  - {label: DCQCN, of: runs/on}\n  - {label: no control, of: runs/off}\n",
	"grouped":  "figure: grouped\nkind: bars\nmetric: goodput\nx: link.buffer\nruns: [{label: low, of: [sweep/c00, sweep/c01, sweep/c02]}, {label: high, of: [sweep/c10, sweep/c11, sweep/c12]}]\n",
	"sweep":    "figure: sweep\nkind: sweep\nmetric: jain\nx: link.buffer\nwhere: {switch.ecn.kmin: 100KiB}\nruns: [{label: 100 KiB, of: sweep}]\n",
}

func writeSpec(t testing.TB, dir, text string) string {
	t.Helper()
	path := filepath.Join(dir, "figure.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func drawn(t testing.TB, path string, format Format) []byte {
	t.Helper()
	f, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Verify(); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := f.Draw(&b, format); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestDraw: each kind in both formats; the same input gives the same bytes, of the size asked for, with nothing of when and
// where it was made.
func TestDraw(t *testing.T) {
	dir := writeRuns(t)
	for name, text := range specs {
		t.Run(name, func(t *testing.T) {
			path := writeSpec(t, dir, text)
			svg, pdf := drawn(t, path, SVG), drawn(t, path, PDF)
			if out := os.Getenv("PCMLAB_FIGURES_SAMPLE"); out != "" { // to look at them
				if err := errors.Join(os.WriteFile(filepath.Join(out, name+".svg"), svg, 0o644), os.WriteFile(filepath.Join(out, name+".pdf"), pdf, 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				if !bytes.Equal(svg, drawn(t, path, SVG)) || !bytes.Equal(pdf, drawn(t, path, PDF)) {
					t.Fatal("drawn twice, the bytes differ")
				}
			}
			for dec := xml.NewDecoder(bytes.NewReader(svg)); ; {
				if _, err := dec.Token(); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("SVG: %v", err)
				}
			}
			width := "238.11" // 84 mm in points
			if name == "flows" {
				width = "493.2"
			}
			if !bytes.Contains(pdf, []byte("/MediaBox [0 0 "+width)) && !bytes.Contains(pdf, []byte("/MediaBox [0 0 "+width[:5])) {
				t.Errorf("the PDF is not %s points wide: %s", width, regexp.MustCompile(`/MediaBox \[[^]]*\]`).Find(pdf))
			}
			if !bytes.HasPrefix(pdf, []byte("%PDF-1.")) || !bytes.Contains(pdf, []byte("D:19700101")) {
				t.Error("the PDF has a date of its own")
			}
			if bytes.Contains(svg, []byte("NaN")) || bytes.Contains(pdf, []byte("NaN")) {
				t.Error("a gap was drawn")
			}
		})
	}
}

// TestStyles_inGrey: entries beside each other are told apart without colour: bars by lightness, lines by dashes and marks.
func TestStyles_inGrey(t *testing.T) {
	grey := func(r, g, b uint8) float64 { return 0.2126*float64(r) + 0.7152*float64(g) + 0.0722*float64(b) }
	for i := range styles {
		for j := range i {
			a, b := styles[i], styles[j]
			if fmt.Sprint(a.dashes) == fmt.Sprint(b.dashes) || fmt.Sprintf("%T", a.mark) == fmt.Sprintf("%T", b.mark) {
				t.Errorf("lines %d and %d have the same dashes or marks", j, i)
			}
			if j == i-1 && math.Abs(grey(a.fill.R, a.fill.G, a.fill.B)-grey(b.fill.R, b.fill.G, b.fill.B)) < 60 {
				t.Errorf("bars %d and %d are alike in grey", j, i)
			}
		}
	}
}

// TestParse_mistakes: all mistakes at once, each with its place.
func TestParse_mistakes(t *testing.T) {
	_, err := Parse("f.yaml", []byte("figure: f\nkind: timeline\nmetric: speed\nx: link.buffer\nbin: 100ms\nruns:\n  - {label: a, of: r1}\n  - {label: a, of: r2}\n  - {label: Ω, of: r3}\nxlimits: [3, 1]\nwidth: 3\n"))
	if err == nil {
		t.Fatal("no mistake was found")
	}
	for _, want := range []string{`f.yaml:3:9: metric: "speed": a timeline shows`, "f.yaml:4:4: x: a timeline has no parameters", `f.yaml:8:13: runs[1].label: "a" is taken`, `f.yaml:9:13: runs[2].label: "Ω" cannot be shown`,
		"f.yaml:10:10: xlimits: nothing lies between 3 and 1", `f.yaml:11:1: unknown key "width"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	if !errors.Is(err, experiments.ErrInput) {
		t.Error("the error is not one of input")
	}
}

// TestPins: a pinned figure is drawn again from the same runs, and from no others. What differs or is missing is named
// (USERS S16: a figure cannot be regenerated because a parameter is not in the artefact).
func TestPins(t *testing.T) {
	sweepSpec := specs["sweep"]
	edit := func(t *testing.T, path string, f func(string) string) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, []byte(f(string(data))), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, why string
		spoil     func(t *testing.T, dir string)
		want      []string // empty: no error
	}{
		{"untouched", "the same runs", func(*testing.T, string) {}, nil},
		{"parameter_missing", "a parameter of the run is gone from the bundle", func(t *testing.T, dir string) {
			drop := func(s string) string { return strings.Replace(s, `{"key":"link.buffer","value":"64KiB"},`, "", 1) }
			edit(t, filepath.Join(dir, "sweep/c00/02/summary.json"), drop)
			edit(t, filepath.Join(dir, "sweep/c00/02/trial.json"), drop)
		}, []string{"run sweep/c00/02", "parameter link.buffer: pinned 64KiB, is missing", "trial.json: changed since the run"}},
		{"command_missing", "the file with the command and its settings is gone", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "sweep/c01/01/command.json")); err != nil {
				t.Fatal(err)
			}
		}, []string{"run sweep/c01/01", "command.json: missing"}},
		{"run_again", "the folder holds another run of the same name", func(t *testing.T, dir string) {
			trial := &experiments.Trial{Sweep: "sweep", Cell: "c00", Repeat: 1, Params: []experiments.Param{{Key: "link.buffer", Value: "128KiB"}, {Key: "switch.ecn.kmin", Value: "100KiB"}}}
			writeRun(t, filepath.Join(dir, "sweep/c00/01"), trial, 77, 1)
		}, []string{"run sweep/c00/01", "manifest.json: pinned ", "parameter link.buffer: pinned 64KiB, is 128KiB"}},
		{"result_edited", "a number was changed by hand", func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "sweep/c02/03/summary.json"), func(s string) string {
				return strings.Replace(s, `{"metric":"jain","value":0.9`, `{"metric":"jain","value":0.8`, 1)
			})
		}, []string{"run sweep/c02/03", "summary.json: changed since the run"}},
		{"run_gone", "a repeat is missing", func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "sweep/c00/06")); err != nil {
				t.Fatal(err)
			}
		}, []string{"run sweep/c00/06: pinned, and not in the folders of this figure"}},
		{"run_added", "a repeat that the figure did not have", func(t *testing.T, dir string) {
			trial := &experiments.Trial{Sweep: "sweep", Cell: "c00", Repeat: 7, Params: []experiments.Param{{Key: "link.buffer", Value: "64KiB"}, {Key: "switch.ecn.kmin", Value: "100KiB"}}}
			writeRun(t, filepath.Join(dir, "sweep/c00/07"), trial, 7, 1)
		}, []string{"run sweep/c00/07", "is not among the pins"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := writeRuns(t)
			path := writeSpec(t, dir, "# a comment that stays\n"+sweepSpec)
			before := drawn(t, path, PDF)
			f, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			pinned, err := f.Repin()
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(pinned), "# a comment that stays\n"+strings.TrimRight(sweepSpec, "\n")) {
				t.Errorf("pinning changed what was written:\n%s", pinned)
			}
			writeSpec(t, dir, string(pinned))
			c.spoil(t, dir)
			if f, err = Load(path); err != nil {
				t.Fatal(err)
			}
			err = f.Verify()
			if len(c.want) == 0 {
				if err != nil {
					t.Fatalf("%s: %v", c.why, err)
				}
				if again, err := f.Repin(); err != nil || !bytes.Equal(again, pinned) {
					t.Errorf("pinned again, the specification is another one (%v)", err)
				}
				if !bytes.Equal(before, drawn(t, path, PDF)) {
					t.Error("pinned, the figure is another one")
				}
				return
			}
			if err == nil {
				t.Fatalf("%s: not noticed", c.why)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: no %q in:\n%v", c.why, want, err)
				}
			}
			if n := strings.Count(err.Error(), "\nrun "); n != 1 {
				t.Errorf("%s: %d runs are complained about:\n%v", c.why, n, err)
			}
		})
	}
}

// TestDraw_errors: what cannot be drawn honestly is not drawn.
func TestDraw_errors(t *testing.T) {
	dir := writeRuns(t)
	for _, c := range []struct{ name, spec, want string }{
		{"mixed cells", "figure: f\nkind: sweep\nmetric: jain\nx: link.buffer\nruns: [{label: a, of: sweep}]\n", "differ in switch.ecn.kmin too (100KiB, 1MiB): choose one by where"},
		{"no such parameter", "figure: f\nkind: sweep\nmetric: jain\nx: link.delay\nwhere: {switch.ecn.kmin: 100KiB}\nruns: [{label: a, of: sweep}]\n", `has no parameter "link.delay" (it has link.buffer, switch.ecn.kmin)`},
		{"no sweep", "figure: f\nkind: sweep\nmetric: jain\nx: link.buffer\nruns: [{label: a, of: runs/on}]\n", "none: it is part of no sweep"},
		{"no such cell", "figure: f\nkind: sweep\nmetric: jain\nx: link.buffer\nwhere: {switch.ecn.kmin: 5KiB}\nruns: [{label: a, of: sweep}]\n", "f.yaml:5:8: no run has these parameters"},
		{"not measured", "figure: f\nkind: bars\nmetric: lost\nruns: [{label: a, of: runs/on}]\n", "lost() was measured by none of its runs"},
		{"no such phase", "figure: f\nkind: bars\nmetric: jain(phase=\"nine\")\nruns: [{label: a, of: runs/on}]\n", "no run has it (they have: jain())"},
		{"no completion times", "figure: f\nkind: cdf\nmetric: message\nruns: [{label: a, of: runs/on}]\n", "message was not measured"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			path := filepath.Join(dir, "f.yaml")
			if err := os.WriteFile(path, []byte(c.spec), 0o644); err != nil {
				t.Fatal(err)
			}
			f, err := Load(path)
			if err == nil {
				err = f.Draw(io.Discard, SVG)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}
