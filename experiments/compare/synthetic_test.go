package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/experiments"
)

// runsOf makes complete runs of one cell from values by score; the traces are all different.
func runsOf(side string, n int, scores map[string][]float64) Group {
	g := Group{Name: "synthetic/cell"}
	var names []string
	for name := range scores {
		names = append(names, name)
	}
	slices.Sort(names)
	line := 500e6
	for i := range n {
		trace := fmt.Sprintf("%s-%d", side, i)
		s := &experiments.Summary{Run: trace, Playbook: "synthetic", Lab: "lab", State: experiments.StateComplete, Verdict: experiments.Pass, TimeScale: 1, LineRateBps: &line,
			Inputs: "same", Trace: &trace, Began: time.Unix(int64(i), 0), Provenance: map[string]string{}}
		for _, text := range names {
			name, _, err := ParseScoreName(text)
			if err != nil {
				panic(err)
			}
			info, _ := experiments.Metric(name.Metric)
			s.Scores = append(s.Scores, experiments.Score{Metric: name.Metric, Phase: name.Phase, Flow: name.Flow, Value: &scores[text][i], Unit: info.Unit})
		}
		g.Runs = append(g.Runs, s)
	}
	return g
}

func normal(r *rand.Rand, n int, mean, sd float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = mean + sd*r.NormFloat64()
	}
	return x
}

func compareOne(t *testing.T, before, after []float64, thresholds ...string) (*Report, *ScoreChange) {
	t.Helper()
	return compareScore(t, "goodput()", before, after, thresholds...)
}

func compareScore(t *testing.T, score string, before, after []float64, thresholds ...string) (*Report, *ScoreChange) {
	t.Helper()
	parsed, err := ParseThresholds(thresholds)
	if err != nil {
		t.Fatal(err)
	}
	r := Compare([]Group{runsOf("before", len(before), map[string][]float64{score: before})}, []Group{runsOf("after", len(after), map[string][]float64{score: after})},
		Options{Thresholds: parsed, noIntervals: true})
	if len(r.Cells) != 1 || len(r.Cells[0].Scores) != 1 {
		t.Fatalf("%d cells: %+v", len(r.Cells), r.Cells)
	}
	return r, &r.Cells[0].Scores[0]
}

// Five shapes of change, 20 runs a side around 450 Mb/s with a spread of 0.5 %, 100 draws each. All draws are seeded.
func TestShapesOfChange(t *testing.T) {
	const n, base = 20, 450e6
	shapes := []struct {
		name, why string
		after     func(*rand.Rand) []float64
		want      Verdict
		note      bool // the note tells the shape
	}{
		{"none", "nothing changed", func(r *rand.Rand) []float64 { return normal(r, n, base, 0.005*base) }, Same, false},
		{"shift", "every run is 5 % slower", func(r *rand.Rand) []float64 { return normal(r, n, 0.95*base, 0.005*base) }, Worse, false},
		{"spread", "as fast on the whole, but four times as erratic: no loss, and not the same", func(r *rand.Rand) []float64 {
			return normal(r, n, base, 0.02*base)
		}, Changed, false},
		{"two_groups", "every other run takes a path that is 15 % slower", func(r *rand.Rand) []float64 {
			x := normal(r, n, base, 0.005*base)
			for i := 0; i < n*3/5; i++ {
				x[i] *= 0.85
			}
			return x
		}, Worse, true},
		{"outliers", "two runs of twenty break in by a third: named, but no change of what is usual", func(r *rand.Rand) []float64 {
			x := normal(r, n, base, 0.005*base)
			x[4], x[11] = 0.66*base, 0.68*base
			return x
		}, Same, true},
	}
	for _, s := range shapes {
		r, got, noted := rand.New(rand.NewPCG(1, 1)), map[Verdict]int{}, 0
		for range 100 {
			_, score := compareOne(t, normal(r, n, base, 0.005*base), s.after(r))
			got[score.Verdict]++
			if len(score.Notes) > 0 {
				noted++
			}
		}
		t.Logf("%s: %v, %d with notes", s.name, got, noted)
		if got[s.want] < 90 {
			t.Errorf("%s (%s): verdicts %v, want %s in 90 of 100", s.name, s.why, got, s.want)
		}
		if s.note && noted < 90 {
			t.Errorf("%s: a note in %d of 100", s.name, noted)
		}
	}
}

// noise are complete runs of playbooks/incast-3to1.yaml with phases of 2 s on labs/virtual-4.yaml, on a machine of two cores:
// virtual-4-noise began when it had little else to do, virtual-4-busy ran beside 2 to 20 other processes.
func noise(t testing.TB, name string) *Baseline {
	t.Helper()
	b, err := LoadBaseline("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Cells) != 1 || len(b.Cells[0].Runs) < 10 {
		t.Fatalf("%d cells", len(b.Cells))
	}
	return b
}

// draw makes n runs as the lab might have given them: whole runs drawn with replacement, so that their scores go together
// as measured, each value moved by a little noise, so that none comes twice.
func draw(r *rand.Rand, b *Baseline, side string, n int, keep func(ScoreName) bool, change func(ScoreName, float64) float64) Group {
	c := &b.Cells[0]
	scores := map[string][]float64{}
	rows := make([]int, n)
	for i := range rows {
		rows[i] = r.IntN(len(c.Runs))
	}
	for text, values := range c.Scores {
		if slices.Contains(values, nil) {
			continue
		}
		name, _, _ := ParseScoreName(text)
		if !keep(name) {
			continue
		}
		x := make([]float64, n)
		low, high := math.Inf(1), math.Inf(-1)
		for _, v := range values {
			low, high = min(low, *v), max(high, *v)
		}
		for i, row := range rows {
			x[i] = change(name, *values[row]+0.02*(high-low)*r.NormFloat64())
		}
		scores[text] = x
	}
	g := runsOf(side, n, scores)
	g.Name = c.Cell
	return g
}

func everything(ScoreName) bool { return true }

func unchanged(_ ScoreName, v float64) float64 { return v }

// At the noise of the lab, with ten repeats a side: no false alarm in 95 of 100 comparisons with nothing changed, a loss of
// 3 % of all goodput found in 90 of 100. Beside other work the noise is twice that: then goodput has to be what is judged,
// for among all default scores it would have to be more significant.
func TestCompare_atTheNoiseOfTheVirtualLab(t *testing.T) {
	slower := func(n ScoreName, v float64) float64 {
		if n.Metric == "goodput" || n.Metric == "utilisation" {
			return 0.97 * v
		}
		return v
	}
	for _, row := range []struct {
		lab, threshold string
		least          float64 // share of draws in which the loss is found
	}{{"virtual-4-noise", Default, 0.90}, {"virtual-4-busy", "goodput: 2%", 0.90}, {"virtual-4-busy", Default, 0.75}} {
		b := noise(t, row.lab)
		const alarmDraws, lossDraws = 200, 100
		thresholds, err := ParseThresholds([]string{row.threshold})
		if err != nil {
			t.Fatal(err)
		}
		judged := func(n ScoreName) bool { return thresholdOf(thresholds, n) != nil } // the others can turn nothing red
		r, alarms := rand.New(rand.NewPCG(2, 2)), 0
		for range alarmDraws {
			if Compare([]Group{draw(r, b, "before", 10, judged, unchanged)}, []Group{draw(r, b, "after", 10, judged, unchanged)}, Options{Thresholds: thresholds, noIntervals: true}).Verdict == Worse {
				alarms++
			}
		}
		found := 0
		for range lossDraws {
			report := Compare([]Group{draw(r, b, "before", 10, judged, unchanged)}, []Group{draw(r, b, "after", 10, judged, slower)}, Options{Thresholds: thresholds, noIntervals: true})
			if slices.ContainsFunc(report.Cells[0].Scores, func(s ScoreChange) bool { return s.Verdict == Worse && s.Metric == "goodput" }) {
				found++
			}
		}
		t.Logf("%s, %s: nothing changed: %d of %d called worse; 3 %% of goodput lost: found in %d of %d", row.lab, row.threshold, alarms, alarmDraws, found, lossDraws)
		if alarms > alarmDraws/20 {
			t.Errorf("%s, %s: nothing changed: %d of %d comparisons called worse, want at most 5 %%", row.lab, row.threshold, alarms, alarmDraws)
		}
		if share := float64(found) / lossDraws; share < row.least {
			t.Errorf("%s, %s: a loss of 3 %% found in %d of %d draws, want %.0f %%", row.lab, row.threshold, found, lossDraws, 100*row.least)
		}
	}
}

// Without the help of thresholds, correction alone keeps the alarms of a family of scores at 5 %.
func TestCompare_falseAlarmsWithoutThresholds(t *testing.T) {
	var thresholds []Threshold
	scores := []string{}
	for _, phase := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		scores = append(scores, fmt.Sprintf("goodput(phase=%q)", phase), fmt.Sprintf("jain(phase=%q)", phase))
	}
	for _, s := range scores {
		th, err := ParseThreshold(s + ": 0%")
		if err != nil {
			t.Fatal(err)
		}
		th.Better = experiments.NeitherBetter // any change is an alarm
		thresholds = append(thresholds, th)
	}
	const draws = 2000
	r, alarms := rand.New(rand.NewPCG(3, 3)), 0
	for range draws {
		side := func(name string) []Group {
			x := map[string][]float64{}
			for _, s := range scores {
				x[s] = normal(r, 10, 100, 1)
			}
			return []Group{runsOf(name, 10, x)}
		}
		o := Options{Thresholds: thresholds, noIntervals: true}
		report := Compare(side("before"), side("after"), o)
		if report.Verdict == Worse {
			alarms++
		}
	}
	t.Logf("%d of %d", alarms, draws)
	if alarms > draws/20 {
		t.Errorf("%d of %d comparisons without a change called worse, want at most 5 %%", alarms, draws)
	}
}

// "n more repeats would do": draws at the planned number, from the truth that was observed, reach a verdict in 80 % of them.
func TestInsufficient_planHolds(t *testing.T) {
	const base = 450e6
	for _, row := range []struct {
		name      string
		shift, sd float64 // of base
		n         int
		want      []Verdict
	}{
		{"no_change", 0, 0.03, 5, []Verdict{Same, Changed}},
		{"loss_of_five_percent", -0.05, 0.03, 5, []Verdict{Worse}},
		{"loss_of_ten_percent", -0.10, 0.02, 3, []Verdict{Worse}},
	} {
		// A sample whose median, mean and spread are exactly those of the truth.
		exact := func(mean float64) []float64 {
			x := make([]float64, row.n)
			ss := 0.0
			for i := range x {
				x[i] = float64(i) - float64(row.n-1)/2
				ss += x[i] * x[i]
			}
			for i := range x {
				x[i] = mean + x[i]*row.sd*base/math.Sqrt(ss/float64(row.n-1))
			}
			return x
		}
		_, s := compareOne(t, exact(base), exact(base*(1+row.shift)))
		if s.Verdict != Insufficient || s.NMore == nil {
			t.Errorf("%s: %s (%s), want insufficient with a plan", row.name, s.Verdict, s.Reason)
			continue
		}
		n := row.n + *s.NMore
		r, reached := rand.New(rand.NewPCG(4, 4)), 0
		const draws = 300
		for range draws {
			_, d := compareOne(t, normal(r, n, base, row.sd*base), normal(r, n, base*(1+row.shift), row.sd*base))
			if slices.Contains(row.want, d.Verdict) {
				reached++
			}
		}
		t.Logf("%s: %s; with %d a side: %d of %d", row.name, s.Reason, n, reached, draws)
		if share := float64(reached) / draws; share < 0.72 {
			t.Errorf("%s: %d more repeats lead to %v in %.0f %% of draws, planned for 80 %%", row.name, *s.NMore, row.want, 100*share)
		}
	}
}
