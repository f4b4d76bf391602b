package pages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/analysis/report"
	"github.com/pcmlab/pcmlab/analysis/report/reporttest"
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/compare"
)

var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// writeRun writes the folder of a run as far as pages read it.
func writeRun(t testing.TB, dir string, s *experiments.Summary) {
	t.Helper()
	s.Schema, s.Run = "pcmlab/summary/v1", filepath.Base(dir)
	if s.Trial != nil {
		s.Run = s.Trial.Cell + "-" + filepath.Base(dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string]any{"summary.json": s, "timeline.jsonl": experiments.Event{At: s.Began, Event: "phase_start"}}
	if s.State != experiments.StateUnfinished {
		files["manifest.json"] = experiments.Manifest{Run: s.Run, State: s.State}
	}
	if s.Trial != nil {
		files["trial.json"] = s.Trial
	}
	for name, v := range files {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// run is a complete run of the incast with the scores that pages show unasked.
func run(at time.Time, goodput, jain float64, cnps *float64) *experiments.Summary {
	s := &experiments.Summary{Playbook: "incast", Lab: "virtual-4", State: experiments.StateComplete, Verdict: experiments.Pass, Began: at, Ended: at.Add(time.Minute), TimeScale: 50, Inputs: "aa",
		Checks: []experiments.CheckResult{{Name: "fair", Verdict: experiments.Pass}}, Provenance: map[string]string{"pcmlab.commit": "0123abc"}}
	add := func(metric, phase, unit string, v *float64) {
		s.Scores = append(s.Scores, experiments.Score{Metric: metric, Phase: phase, Unit: unit, Value: v})
	}
	add("goodput", "", "bit/s", &goodput)
	add("jain", "", "", &jain)
	add("cnps", "", "packets", cnps)
	add("rtt_p99", "", "ns", ptr(1e6/jain))
	add("jain", "three", "", ptr(jain*0.99))
	for i := range 60 { // a real summary has scores of each phase and flow
		add("goodput", fmt.Sprintf("phase%d", i/4), "bit/s", ptr(goodput/float64(i%4+1)))
	}
	return s
}

func ptr[T any](v T) *T { return &v }

// writeSweep makes a sweep over buffers, ECN thresholds and handlers.
func writeSweep(t testing.TB, buffers, thresholds, repeats int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "20261130-120000.000-incast-sweep")
	r := rand.New(rand.NewPCG(1, 2))
	at := epoch
	type cellOf struct {
		ID     string              `json:"id"`
		Params []experiments.Param `json:"params"`
	}
	var plan struct {
		Cells  []cellOf            `json:"cells"`
		Trials []experiments.Trial `json:"trials"`
	}
	for b := range buffers {
		for k := range thresholds {
			c := cellOf{fmt.Sprintf("c%02d%02d", b, k), []experiments.Param{{Key: "link.buffer", Value: fmt.Sprintf("%dKiB", 16<<b)}, {Key: "switch.ecn.kmin", Value: fmt.Sprintf("%dKiB", 50*(k+1))}}}
			plan.Cells = append(plan.Cells, c)
			for rep := 1; rep <= repeats; rep++ {
				trial := &experiments.Trial{Sweep: filepath.Base(dir), Cell: c.ID, Repeat: rep, Params: c.Params}
				plan.Trials = append(plan.Trials, *trial)
				at = at.Add(time.Minute)
				s := run(at, 4.8e8+1e6*r.NormFloat64()-2e7/float64(b+1), 0.99-0.01*float64(k)/float64(thresholds)+0.001*r.NormFloat64(), ptr(float64(100*k+r.IntN(9))))
				s.Trial = trial
				writeRun(t, filepath.Join(dir, c.ID, fmt.Sprintf("%02d", rep)), s)
			}
		}
	}
	data, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, experiments.SweepFile), data, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// spoil makes runs of a sweep the kinds that do not count, and one an outlier.
func spoil(t testing.TB, dir string) {
	t.Helper()
	change := func(name string, f func(s *experiments.Summary)) {
		t.Helper()
		path := filepath.Join(dir, name)
		s, err := experiments.LoadSummary(path)
		if err != nil {
			t.Fatal(err)
		}
		f(s)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		writeRun(t, path, s)
	}
	change("c0000/01", func(s *experiments.Summary) { s.State, s.Reason = experiments.StateNoisy, "timers were 9 ms late" })
	change("c0000/02", func(s *experiments.Summary) {
		s.State, s.Reason = experiments.StatePartial, "host h1: <connection> lost"
	})
	change("c0001/01", func(s *experiments.Summary) { s.State, s.Reason = experiments.StateUnfinished, "killed" })
	change("c0001/02", func(s *experiments.Summary) { *s.Scores[0].Value = 1e8 })
	change("c0100/01", func(s *experiments.Summary) { s.Verdict, s.Checks[0].Verdict = experiments.Fail, experiments.Fail })
	for _, rep := range []string{"01", "02", "03", "04", "05", "06", "07", "08", "09", "10"} { // a cell without a result
		change("c0101/"+rep, func(s *experiments.Summary) { s.State, s.Reason = experiments.StateNoisy, "timers were 9 ms late" })
	}
	if err := os.RemoveAll(filepath.Join(dir, "c0102/10")); err != nil {
		t.Fatal(err)
	}
}

func sweepPageOf(t testing.TB, dir string, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := Sweep(&b, dir, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// row is the text of the first row of a table that begins with a cell.
func row(page, table, cell string) string {
	_, rest, _ := strings.Cut(page, `aria-label="`+table+`"`)
	i := strings.Index(rest, "<tr><td>"+cell+"<")
	if i < 0 {
		return ""
	}
	line, _, _ := strings.Cut(rest[i:], "</tr>")
	return line
}

// TestSweep: every run is counted once, where it belongs; outliers are named; the page is the same each time.
func TestSweep(t *testing.T) {
	t.Parallel()
	dir := writeSweep(t, 2, 3, 10)
	spoil(t, dir)
	page := sweepPageOf(t, dir, Options{})
	if page != sweepPageOf(t, dir, Options{}) {
		t.Error("two pages of one sweep differ")
	}
	for _, want := range []string{"Sweep of incast on virtual-4", "link.buffer (2), switch.ecn.kmin (3)", "1 of 6 cells have no result", "c0101: no complete run (10 noisy)", "46 of 60 runs count",
		"expectations failed in 1 runs", "goodput() by link.buffer", "switch.ecn.kmin = 100KiB", "host h1: &lt;connection&gt; lost", "time scale 50"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	for _, c := range []struct{ cell, want, why string }{
		{"c0000", "1 noisy, 1 partial", "two kinds apart"},
		{"c0001", "1 unfinished", "killed"},
		{"c0001", "c0001-02 (100 Mb/s)", "an outlier is named with its value"},
		{"c0001", `data-v="9">9<`, "and counted"},
		{"c0101", `data-v="0">0<`, "no run counts: no number at all"},
		{"c0102", "1 not run", "planned and not there"},
		{"c0102", `data-v="9">9<`, "the others count"},
	} {
		if got := row(page, "goodput(), by cell", c.cell); !strings.Contains(got, c.want) {
			t.Errorf("row of %s has no %q (%s): %s", c.cell, c.want, c.why, got)
		}
	}
	if one := sweepPageOf(t, dir, Options{Metrics: []string{`jain(phase="three")`}}); strings.Contains(one, "goodput() by") || !strings.Contains(one, "jain(phase=&#34;three&#34;) by link.buffer") {
		t.Error("a page of one metric has others, or not that one")
	}
}

// TestSweep_errors: what is no sweep is told apart, with what to do instead.
func TestSweep_errors(t *testing.T) {
	t.Parallel()
	single := t.TempDir()
	writeRun(t, filepath.Join(single, "a"), run(epoch, 1, 1, nil))
	two := t.TempDir()
	for _, name := range []string{"s1", "s2"} {
		s := run(epoch, 1, 1, nil)
		s.Trial = &experiments.Trial{Sweep: name, Cell: "c"}
		writeRun(t, filepath.Join(two, name), s)
	}
	sweep := writeSweep(t, 1, 2, 2)
	for _, c := range []struct {
		dir     string
		metrics []string
		want    string
	}{
		{single, nil, "part of no sweep"},
		{two, nil, "runs of 2 sweeps (s1, s2)"},
		{t.TempDir(), nil, "no folder of a run is at or below it"},
		{sweep, []string{"speed"}, `"speed": no such metric (known: jain,`},
		{sweep, []string{"jain(phase=\"nine\")"}, `no run has it (they have: jain(), jain(phase="three"))`},
	} {
		err := Sweep(&bytes.Buffer{}, c.dir, Options{Metrics: c.metrics})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
}

// writeHistory makes runs of one experiment whose goodput falls by 5 % after a third of them, with a new commit.
func writeHistory(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(5, 6))
	for i := range n {
		at := epoch.Add(time.Duration(i) * 7 * time.Hour)
		s := run(at, 4.8e8*(1+0.005*r.NormFloat64()), 0.99+0.001*r.NormFloat64(), nil)
		if i >= n/3 {
			*s.Scores[0].Value *= 0.95
			s.Provenance["pcmlab.commit"] = "4567def"
		}
		if i == n-1 {
			s.State, s.Reason = experiments.StateNoisy, "timers were late"
			*s.Scores[0].Value = 1
		}
		writeRun(t, filepath.Join(dir, at.Format("20060102-150405.000")+"-incast"), s)
	}
	return dir
}

// TestHistory: a step is marked where it came, with its size, its direction and what changed with it; a noisy run is
// counted apart; a metric that did not change has no step.
func TestHistory(t *testing.T) {
	t.Parallel()
	dir := writeHistory(t, 30)
	var b bytes.Buffer
	if err := History(&b, []string{dir}, Options{Metrics: []string{"goodput", "jain"}}); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{"History of goodput(), jain()", "30 runs, 2026-11-30 to 2026-12-08", "1 step<", "✗ worse", "pcmlab.commit: 0123abc, then 4567def", "20261203-100000.000-incast", `class="spark"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	got := row(page, "Steps", "goodput()")
	if !strings.Contains(got, "-5") && !strings.Contains(got, "-4.") {
		t.Errorf("the step of goodput is not about -5 %%: %s", got)
	}
	if row(page, "Steps", "jain()") != "" {
		t.Error("Jain's index has a step")
	}
}

// TestPages_inChromium holds the pages to what a run's page is held to.
func TestPages_inChromium(t *testing.T) {
	ctx := reporttest.Browser(t)
	sweep := writeSweep(t, 3, 3, 10)
	spoil(t, sweep)
	var history bytes.Buffer
	if err := History(&history, []string{writeHistory(t, 30)}, Options{Metrics: []string{"goodput", "jain"}}); err != nil {
		t.Fatal(err)
	}
	before, after := writeSides(t)
	for name, page := range map[string]string{"sweep": sweepPageOf(t, sweep, Options{}), "history": history.String(), "change": changePage(t, before, after)} {
		file := filepath.Join(t.TempDir(), name+".html")
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		if out := os.Getenv("PCMLAB_PAGES_SAMPLE"); out != "" { // to look at them
			if err := os.WriteFile(filepath.Join(out, name+".html"), []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{390, 1280} {
				for _, problem := range reporttest.Open(t, ctx, file, scheme, width).Audit() {
					t.Errorf("page %q, %s, %d px: %s", name, scheme, width, problem)
				}
			}
		}
	}
}

// BenchmarkSweep is the page of 100 cells with 10 runs each, from their folders.
func BenchmarkSweep(b *testing.B) {
	dir := writeSweep(b, 10, 10, 10)
	b.ReportAllocs()
	for b.Loop() {
		var page bytes.Buffer
		if err := Sweep(&page, dir, Options{}); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(page.Len()), "page-bytes")
	}
}

// writeDocument adds to the folder of a run what its captures showed.
func writeDocument(t testing.TB, dir string, level float64, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 9))
	d := analysis.Document{Schema: analysis.Schema, TimeScale: 50, Series: analysis.Series{BinNS: 20e6, StartNS: 1e9, Bins: 150}}
	d.Aggregate.PerPhase = []analysis.PhaseSummary{{Name: "one", StartNS: 1e9, EndNS: 2e9}, {Name: "two", StartNS: 2e9, EndNS: 4e9}}
	for i := range 2 {
		id := fmt.Sprintf("192.0.2.%d>192.0.2.14:0x000001", 11+i)
		d.Flows = append(d.Flows, analysis.Flow{ID: id, Name: fmt.Sprintf("h%d", i+1)})
		s := analysis.FlowSeries{ID: id}
		for range 150 {
			s.GoodputBps, s.Packets = append(s.GoodputBps, level*2e8*(1+0.05*r.NormFloat64())), append(s.Packets, 100)
			s.CE, s.CNPs, s.Retransmits = append(s.CE, int64(r.IntN(4))), append(s.CNPs, int64(r.IntN(2))), append(s.Retransmits, 0)
		}
		d.Series.Flows = append(d.Series.Flows, s)
	}
	for range 150 {
		d.Series.Jain = append(d.Series.Jain, ptr(0.95+0.05*r.Float64()))
	}
	for i := range 30 {
		d.Distributions.RTTNS = append(d.Distributions.RTTNS, analysis.Sample{Value: int64(1e5*level) * int64(i+1), Count: int64(1 + r.IntN(40))})
	}
	data, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "analysis.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// writeSides makes eight runs before and eight after, of which one is noisy; goodput falls by a tenth.
func writeSides(t testing.TB) (before, after string) {
	t.Helper()
	root := t.TempDir()
	r := rand.New(rand.NewPCG(8, 8))
	for i := range 8 {
		for j, side := range []string{"before", "after"} {
			level := 1 - 0.1*float64(j)
			at := epoch.Add(time.Duration(i) * time.Minute)
			s := run(at, level*4e8*(1+0.003*r.NormFloat64()), 0.99+0.001*r.NormFloat64(), ptr(float64(100+r.IntN(9))))
			s.Scores, s.LineRateBps = s.Scores[:4], ptr(5e8)
			s.Provenance["pcmlab.commit"] = side
			if side == "after" && i == 3 {
				s.State, s.Reason = experiments.StateNoisy, "timers were 9 ms late"
			}
			dir := filepath.Join(root, side, fmt.Sprintf("%s-%d", side, i))
			writeRun(t, dir, s)
			writeDocument(t, dir, level, uint64(i+100*j))
		}
	}
	return filepath.Join(root, "before"), filepath.Join(root, "after")
}

func changePage(t testing.TB, before, after string) string {
	t.Helper()
	limits, err := compare.ParseThresholds([]string{"goodput: 3%", "jain: 0.02"})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Change(&b, []string{before}, []string{after}, compare.Options{Thresholds: limits, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestChange: both sides over each other, of the runs that count; the verdict on each score; what else differs.
func TestChange(t *testing.T) {
	t.Parallel()
	before, after := writeSides(t)
	page := changePage(t, before, after)
	if page != changePage(t, before, after) {
		t.Error("two pages of one change differ")
	}
	for _, want := range []string{"Before and after", ">worse<", "before (8 runs)", "after (7 runs)", "Goodput of all flows", "CE-marked share", "CNPs per second", "Round-trip time", "before, lowest to highest run", "pcmlab.commit",
		"noisy: timers were 9 ms late", "after-3"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	_, scores, _ := strings.Cut(page, ": scores")
	for _, c := range []struct{ score, want, why string }{
		{"goodput()", "✗ worse", "a tenth less"}, {"goodput()", "400 Mb/s", "the median before"}, {"goodput()", "-9.8 % (-10 to -9.5)", "the change as a share, with its interval"},
		{"jain()", "✓ same", "it did not change"}, {"cnps()", ", not judged", "it has no threshold"},
	} {
		i := strings.Index(scores, "<td>"+c.score+"<")
		line, _, _ := strings.Cut(scores[max(i, 0):], "</tr>")
		if i < 0 || !strings.Contains(line, c.want) {
			t.Errorf("the row of %s has no %q (%s): %s", c.score, c.want, c.why, line)
		}
	}
}

// TestOverlay: the median of each bin, and a gap where most runs have nothing.
func TestOverlay(t *testing.T) {
	line := func(y ...float64) report.Line {
		l := report.Line{}
		for i, v := range y {
			l.X, l.Y = append(l.X, 0.5+float64(i)), append(l.Y, v)
		}
		return l
	}
	nan := math.NaN()
	x, y, low, high := Overlay([]report.Line{line(1, 2, nan, 4), line(3, 2, nan), line(2, 8, 5)}, 1)
	for _, c := range []struct {
		name      string
		got, want []float64
	}{{"x", x, []float64{0.5, 1.5, 2.5, 3.5}}, {"median", y, []float64{2, 2, nan, nan}}, {"low", low, []float64{1, 2, nan, nan}}, {"high", high, []float64{3, 8, nan, nan}}} {
		if diff := cmp.Diff(c.want, c.got, cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	if x, _, _, _ := Overlay(nil, 1); len(x) != 0 {
		t.Errorf("nothing over nothing has %d bins", len(x))
	}
}
