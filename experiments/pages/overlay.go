package pages

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/analysis/report"
	"github.com/pcmlab/pcmlab/experiments"
)

// LoadDocument reads what the captures of a run showed.
func LoadDocument(dir string) (*analysis.Document, error) {
	data, err := os.ReadFile(filepath.Join(dir, "analysis.json"))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: the run has no analysis of its captures: %w", experiments.ErrData, dir, err)
	}
	d := &analysis.Document{}
	if err := json.Unmarshal(data, d); err != nil {
		return nil, fmt.Errorf("%w: %s: analysis.json: %w", experiments.ErrData, dir, err)
	}
	return d, nil
}

// Overlay lays curves of repeats over each other: for each bin of that width the median of the runs that have a value, and
// the lowest and highest of them. A bin that fewer than half of the curves reach is a gap (NaN).
func Overlay(lines []report.Line, width float64) (x, middle, low, high []float64) {
	bins := map[int][]float64{}
	first, last := math.MaxInt, math.MinInt
	for _, l := range lines {
		sum, n := map[int]float64{}, map[int]float64{}
		for i, at := range l.X {
			if !math.IsNaN(l.Y[i]) {
				bin := int(math.Floor(at/width + 1e-9))
				sum[bin], n[bin] = sum[bin]+l.Y[i], n[bin]+1
			}
		}
		for bin, total := range sum {
			bins[bin] = append(bins[bin], total/n[bin])
			first, last = min(first, bin), max(last, bin)
		}
	}
	for bin := first; bin <= last; bin++ {
		v := bins[bin]
		slices.Sort(v)
		x = append(x, (float64(bin)+0.5)*width)
		if 2*len(v) < len(lines) || len(v) == 0 {
			middle, low, high = append(middle, math.NaN()), append(low, math.NaN()), append(high, math.NaN())
			continue
		}
		middle, low, high = append(middle, (v[(len(v)-1)/2]+v[len(v)/2])/2), append(low, v[0]), append(high, v[len(v)-1])
	}
	return x, middle, low, high
}

// Pool adds the samples of several runs up, value by value.
func Pool(lists [][]analysis.Sample) []analysis.Sample {
	count := map[int64]int64{}
	for _, list := range lists {
		for _, s := range list {
			count[s.Value] += s.Count
		}
	}
	out := make([]analysis.Sample, 0, len(count))
	for v, n := range count {
		out = append(out, analysis.Sample{Value: v, Count: n})
	}
	slices.SortFunc(out, func(a, b analysis.Sample) int {
		if a.Value < b.Value {
			return -1
		}
		return 1
	})
	return out
}
