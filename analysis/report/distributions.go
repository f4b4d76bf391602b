package report

import (
	"fmt"

	"github.com/pcmlab/pcmlab/analysis"
)

// distributions are the cumulative distributions that the document has samples of.
func distributions(d *analysis.Document) (charts []Chart) {
	for _, c := range []struct {
		title   string
		samples []analysis.Sample
	}{
		{"Round-trip time", d.Distributions.RTTNS},
		{"Message completion time", d.Distributions.MessageNS},
		{"Time between CNPs of a flow", d.Distributions.CNPGapNS},
	} {
		if len(c.samples) > 0 {
			charts = append(charts, cdf(c.title, c.samples))
		}
	}
	return charts
}

// cdf is the share of samples that are not above a value. It rises in steps, as the samples do.
func cdf(title string, samples []analysis.Sample) Chart {
	var n, seen int64
	for _, s := range samples {
		n += s.Count
	}
	l := Line{Colour: 0, Step: true, X: []float64{float64(samples[0].Value)}, Y: []float64{0}}
	for _, s := range samples {
		seen += s.Count
		l.X, l.Y = append(l.X, float64(s.Value)), append(l.Y, float64(seen)/float64(n))
	}
	note := fmt.Sprintf("p50 %s, p99 %s, %d samples", analysis.FormatDuration(float64(quantile(samples, 1, 2))), analysis.FormatDuration(float64(quantile(samples, 99, 100))), n)
	return Chart{Title: title, Note: note, YLabel: "share of samples", YMax: 1, XLabel: "logarithmic scale", LogTime: true, Lines: []Line{l}}
}
