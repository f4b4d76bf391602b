package report

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/analysis/report/reporttest"
)

func sheet() Sheet {
	points := Points{Name: "median and 95 % interval", At: []Point{{1, 0.98, 0.97, 0.99, "cell a: 0.98"}, {2, 0.95, math.NaN(), math.NaN(), "cell b: 0.95"}}}
	runs := Points{Name: "single runs", Colour: Ink, Small: true, At: []Point{{1, 0.985, math.NaN(), math.NaN(), "run <1>"}, {2, math.NaN(), 0, 0, "no value here"}}}
	chart := Chart{Title: "Jain", YLabel: "index", XLabel: "link.buffer", FitY: true, Points: []Points{runs, points}, Places: []Place{{1, "64KiB"}, {2, "1MiB"}}, Events: []Place{{1.5, "step"}}}
	return Sheet{Title: "sweep <of> incast", Verdict: Verdict{"2 cells", Good}, Warnings: []string{"1 run was noisy"}, Tiles: []Tile{{"runs", "20"}},
		Alarm:    &Alarm{"1 cell has no run", []string{"cell c: both runs were partial"}},
		Sections: []Section{{Title: "Jain", Note: "by link.buffer", Charts: []Chart{chart}, Small: []Chart{chart}, Tables: []Table{{Table: analysis.Table{Title: "cells", Columns: []analysis.Column{{Name: "cell"}, {Name: "median", Numeric: true}, {Name: "verdict"}}, Rows: [][]string{{"a", "0.980", "✓ same"}, {"b", "0.950", "✗ worse"}}}, SparkName: "over time", Sparks: [][]float64{{1, 2, math.NaN(), 3}, {}}}}}},
		Links:    []Link{{"summary.json", "summary.json"}}}
}

// TestRenderSheet: the same sheet gives the same bytes, text is escaped, a value that was not measured is no point.
func TestRenderSheet(t *testing.T) {
	var one, two bytes.Buffer
	if err := RenderSheet(&one, sheet()); err != nil {
		t.Fatal(err)
	}
	if err := RenderSheet(&two, sheet()); err != nil {
		t.Fatal(err)
	}
	page := one.String()
	if page != two.String() {
		t.Error("two renderings of one sheet differ")
	}
	for _, want := range []string{"sweep &lt;of&gt; incast", "64KiB", "run &lt;1&gt;", `class="good">✓ same`, `class="bad">✗ worse`, "1 cell has no run", `class="spark"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	for _, not := range []string{"NaN", "no value here", "<of>"} {
		if strings.Contains(page, not) {
			t.Errorf("the page contains %q", not)
		}
	}
	if err := RenderSheet(&one, Sheet{}); err == nil {
		t.Error("a sheet without a title was rendered")
	}
}

// TestFitY: an axis for points shows differences where they count and makes none where there are none.
func TestFitY(t *testing.T) {
	for _, c := range []struct {
		why      string
		from, to float64
		lo, hi   [2]float64 // between which the edges must lie
	}{
		{"values near each other are told apart", 0.95, 0.99, [2]float64{0.93, 0.95}, [2]float64{0.99, 1.01}},
		{"equal values are not pulled apart", 500, 500, [2]float64{450, 499}, [2]float64{501, 550}},
		{"near zero the axis begins there", 1, 10, [2]float64{0, 0}, [2]float64{10, 11}},
		{"nothing but zero", 0, 0, [2]float64{0, 0}, [2]float64{1e-10, 2}},
	} {
		k := &canvas{shape: wide}
		k.ranges(Chart{FitY: true, Points: []Points{{At: []Point{{0, c.from, math.NaN(), math.NaN(), ""}, {1, c.to, math.NaN(), math.NaN(), ""}}}}})
		if k.yLo < c.lo[0] || k.yLo > c.lo[1] || k.yHi < c.hi[0] || k.yHi > c.hi[1] {
			t.Errorf("%s: values %v to %v get an axis from %v to %v", c.why, c.from, c.to, k.yLo, k.yHi)
		}
	}
}

// TestSheet_inChromium holds sheets to what pages of runs are held to.
func TestSheet_inChromium(t *testing.T) {
	ctx := reporttest.Browser(t)
	var b bytes.Buffer
	if err := RenderSheet(&b, sheet()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sheet.html")
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{390, 1280} {
			for _, problem := range reporttest.Open(t, ctx, file, scheme, width).Audit() {
				t.Errorf("%s, %d px: %s", scheme, width, problem)
			}
		}
	}
}
