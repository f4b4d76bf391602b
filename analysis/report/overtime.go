package report

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
)

// namedFlows is how many flows get a line of their own. When there are more, one colour less is used for them, and the
// others share a band.
const namedFlows = paletteSize

// timeline turns the series of a document into charts.
type timeline struct {
	d      *analysis.Document
	origin int64 // the zero of the x axis
	bands  []Band
	group  int                    // bins of one point
	points int                    // of the whole capture
	named  []*analysis.FlowSeries // with lines of their own
	others []*analysis.FlowSeries
	labels map[string]string
	failed map[string]bool
}

// overTime makes the plots over time that a document can give.
func overTime(d *analysis.Document) []Chart {
	if d.Series.Bins == 0 || len(d.Series.Flows) == 0 {
		return nil
	}
	t := newTimeline(d)
	charts := t.goodput()
	if c, ok := t.jain(); ok {
		charts = append(charts, c)
	}
	if c, ok := t.ceShare(); ok {
		charts = append(charts, c)
	}
	if c, ok := t.counts("CNPs", "CNPs per second", "by the flow that they slow down", func(s *analysis.FlowSeries) []int64 { return s.CNPs }); ok {
		charts = append(charts, c)
	}
	if c, ok := t.counts("Retransmissions", "packets per second", "when recognised", func(s *analysis.FlowSeries) []int64 { return s.Retransmits }); ok {
		charts = append(charts, c)
	}
	charts = append(charts, t.handlers()...)
	if c, ok := t.pauses(); ok {
		charts = append(charts, c)
	}
	for i := range charts { // all begin and end alike, so that what is above another happened at the same time
		charts[i].Bands, charts[i].XRange = t.bands, [2]float64{t.at(0), t.at(float64(d.Series.Bins))}
	}
	return charts
}

func newTimeline(d *analysis.Document) *timeline {
	t := &timeline{d: d, origin: d.Series.StartNS, group: max(1, (d.Series.Bins+wide.points-1)/wide.points), labels: map[string]string{}}
	t.points = (d.Series.Bins + t.group - 1) / t.group
	if phases := d.Aggregate.PerPhase; len(phases) > 0 {
		t.origin = phases[0].StartNS
		for _, p := range phases {
			t.bands = append(t.bands, Band{p.Name, t.seconds(p.StartNS), t.seconds(p.EndNS)})
		}
	}
	unique := map[string]int64{}
	for i := range d.Flows {
		f := &d.Flows[i]
		t.labels[f.ID], unique[f.ID] = f.Label(), f.UniqueBytes
	}
	var all []*analysis.FlowSeries
	for i := range d.Series.Flows {
		all = append(all, &d.Series.Flows[i])
	}
	if len(all) <= namedFlows {
		t.named = all
		return t
	}
	bySize := slices.Clone(all)
	sort.SliceStable(bySize, func(i, j int) bool { return unique[bySize[i].ID] > unique[bySize[j].ID] })
	top := map[*analysis.FlowSeries]bool{}
	for _, s := range bySize[:namedFlows-1] {
		top[s] = true
	}
	for _, s := range all {
		if top[s] {
			t.named = append(t.named, s)
		} else {
			t.others = append(t.others, s)
		}
	}
	return t
}

func (t *timeline) seconds(ns int64) float64 { return float64(ns-t.origin) / 1e9 }

// at is the time of a bin of the capture, in seconds.
func (t *timeline) at(bin float64) float64 {
	return (float64(t.d.Series.StartNS-t.origin) + bin*float64(t.d.Series.BinNS)) / 1e9
}

// note says what a point is.
func (t *timeline) note(what string) string {
	note := what + ", per " + time.Duration(t.d.Series.BinNS).String()
	if t.group > 1 {
		note += fmt.Sprintf("; each point is the mean of %d bins (of more on a narrow page)", t.group)
	}
	return note
}

// overBins calls y for each point of s: bins [from, to) of its arrays, and the middle of them in bins of the capture.
func (t *timeline) overBins(s *analysis.FlowSeries, y func(point, from, to int)) {
	n := len(s.GoodputBps)
	for p := s.FirstBin / t.group; p*t.group < s.FirstBin+n; p++ {
		y(p, max(p*t.group-s.FirstBin, 0), min((p+1)*t.group-s.FirstBin, n))
	}
}

// perFlow makes the lines of the named flows and the band of the others. y is NaN where there is no value; with edges a
// flow visibly starts and ends at zero.
func (t *timeline) perFlow(c *Chart, edges bool, y func(s *analysis.FlowSeries, from, to int) float64) {
	for i, s := range t.named {
		l := Line{Name: t.labels[s.ID], Colour: i}
		point := func(x, y float64) { l.X, l.Y = append(l.X, x), append(l.Y, y) }
		first, end := float64(s.FirstBin), float64(s.FirstBin+len(s.GoodputBps))
		if edges {
			point(t.at(first), 0)
		}
		t.overBins(s, func(_, from, to int) { point(t.at(first+float64(from+to)/2), y(s, from, to)) })
		if edges {
			point(t.at(end), 0)
		}
		c.Lines = append(c.Lines, l)
	}
	if len(t.others) == 0 {
		return
	}
	values := make([][]float64, t.points)
	for _, s := range t.others {
		t.overBins(s, func(p, from, to int) {
			if v := y(s, from, to); !math.IsNaN(v) {
				values[p] = append(values[p], v)
			}
		})
	}
	a := Area{Name: fmt.Sprintf("%d other flows", len(t.others)), Colour: paletteSize - 1}
	for p, v := range values {
		if len(v) == 0 {
			continue
		}
		slices.Sort(v)
		a.X = append(a.X, t.at((float64(p)+0.5)*float64(t.group)))
		a.Lo, a.Hi = append(a.Lo, v[len(v)/10]), append(a.Hi, v[len(v)-1-len(v)/10])
	}
	c.Areas = append(c.Areas, a)
}

// total is a line about all flows: y of the sums of two numbers of each flow in each point, and of how many bins of the
// capture the point has.
func (t *timeline) total(of func(s *analysis.FlowSeries, from, to int) (a, b float64), y func(a, b, bins float64) float64) Line {
	sums := make([][2]float64, t.points)
	for i := range t.d.Series.Flows {
		s := &t.d.Series.Flows[i]
		t.overBins(s, func(p, from, to int) {
			a, b := of(s, from, to)
			sums[p][0], sums[p][1] = sums[p][0]+a, sums[p][1]+b
		})
	}
	l := Line{Name: "all flows", Colour: Ink}
	for p, v := range sums {
		end := min((p+1)*t.group, t.d.Series.Bins)
		l.X, l.Y = append(l.X, t.at(float64(p*t.group+end)/2)), append(l.Y, y(v[0], v[1], float64(end-p*t.group)))
	}
	return l
}

// together makes the chart of a total alone: of a crowd, single flows are in the tables.
func (t *timeline) together(c Chart, total Line) Chart {
	total.Name = ""
	c.Title, c.Lines, c.Areas = c.Title+", all flows together", []Line{total}, nil
	c.Note += fmt.Sprintf("; %d flows", len(t.d.Series.Flows))
	return c
}

// goodput has the total in the same chart where single flows can still be seen below it, else as a chart of its own.
func (t *timeline) goodput() (charts []Chart) {
	total := t.total(func(s *analysis.FlowSeries, from, to int) (float64, float64) { return add(s.GoodputBps[from:to]), 0 },
		func(a, _, bins float64) float64 { return a / bins })
	c := Chart{Title: "Throughput", Note: t.note("unique payload (goodput)")}
	if len(t.others) > 0 {
		charts = append(charts, t.together(c, total))
		c.Note += fmt.Sprintf("; the %d flows with most payload are named, the band holds the middle 80 %% of the other %d", len(t.named), len(t.others))
	}
	t.perFlow(&c, true, func(s *analysis.FlowSeries, from, to int) float64 {
		return add(s.GoodputBps[from:to]) / float64(to-from)
	})
	if len(t.others) == 0 && len(t.named) > 1 {
		c.Lines = append([]Line{total}, c.Lines...) // first: single flows are drawn over it
	}
	charts = append(charts, c)
	for i := range charts {
		inUnit(&charts[i])
	}
	return charts
}

// inUnit turns bit/s into the unit in which the chart's largest value reads well.
func inUnit(c *Chart) {
	top := 0.0
	for _, l := range c.Lines {
		top = max(top, slices.Max(append(l.Y, 0)))
	}
	for _, a := range c.Areas {
		top = max(top, slices.Max(append(a.Hi, 0)))
	}
	unit, name := 1.0, "b/s"
	switch {
	case top >= 1e9:
		unit, name = 1e9, "Gb/s"
	case top >= 1e6:
		unit, name = 1e6, "Mb/s"
	case top >= 1e3:
		unit, name = 1e3, "kb/s"
	}
	c.YLabel = name
	scale := func(v []float64) {
		for i := range v {
			v[i] /= unit
		}
	}
	for _, l := range c.Lines {
		scale(l.Y)
	}
	for _, a := range c.Areas {
		scale(a.Lo)
		scale(a.Hi)
	}
}

// jain is the index of each bin, and each phase's mean of them.
func (t *timeline) jain() (Chart, bool) {
	c := Chart{Title: "Jain's fairness index", Note: t.note("over the flows that are active"), YLabel: "index", YMax: 1}
	l := Line{Colour: 0}
	measured := false
	for from := 0; from < len(t.d.Series.Jain); from += t.group {
		to := min(from+t.group, len(t.d.Series.Jain))
		var sum, n float64
		for _, v := range t.d.Series.Jain[from:to] {
			if v != nil {
				sum, n = sum+*v, n+1
			}
		}
		l.X, l.Y = append(l.X, t.at(float64(from+to)/2)), append(l.Y, sum/n) // NaN where no bin has an index
		measured = measured || n > 0
	}
	if measured {
		c.Lines = []Line{l}
	}
	for _, p := range t.d.Aggregate.PerPhase {
		if p.JainMeanOfBins != nil {
			c.Marks = append(c.Marks, Mark{t.seconds(p.StartNS + p.TrimNS), t.seconds(p.EndNS - p.TrimEndNS), *p.JainMeanOfBins, fmt.Sprintf("%.3f", *p.JainMeanOfBins)})
			measured = true
		}
	}
	if len(c.Marks) > 0 && len(c.Lines) > 0 {
		c.Lines[0].Name = "index of each bin"
	}
	return c, measured && len(t.d.Flows) > 1
}

// ceShare has gaps where no packets were: no packets, no share. Without a mark there is no chart.
func (t *timeline) ceShare() (Chart, bool) {
	marked := slices.ContainsFunc(t.d.Series.Flows, func(s analysis.FlowSeries) bool { return add(s.CE) > 0 })
	c := Chart{Title: "CE-marked share", Note: t.note("of data packets"), YLabel: "% of packets"}
	of := func(s *analysis.FlowSeries, from, to int) (ce, all float64) {
		return float64(add(s.CE[from:to])), float64(add(s.Packets[from:to]))
	}
	if len(t.others) > 0 {
		return t.together(c, t.total(of, func(ce, all, _ float64) float64 { return 100 * ce / all })), marked
	}
	t.perFlow(&c, false, func(s *analysis.FlowSeries, from, to int) float64 {
		ce, all := of(s, from, to)
		return 100 * ce / all
	})
	return c, marked
}

// counts is a chart of events per second; there is none if none happened or none could be seen.
func (t *timeline) counts(title, unit, note string, of func(*analysis.FlowSeries) []int64) (Chart, bool) {
	perSecond := 1e9 / float64(t.d.Series.BinNS)
	happened := false
	for i := range t.d.Series.Flows {
		happened = happened || add(of(&t.d.Series.Flows[i])) > 0
	}
	c := Chart{Title: title, Note: t.note(note), YLabel: unit}
	count := func(s *analysis.FlowSeries, from, to int) float64 {
		if of(s) == nil { // not captured
			return 0
		}
		return float64(add(of(s)[from:to]))
	}
	if len(t.others) > 0 {
		return t.together(c, t.total(func(s *analysis.FlowSeries, from, to int) (float64, float64) { return count(s, from, to), 0 },
			func(n, _, bins float64) float64 { return n / bins * perSecond })), happened
	}
	t.perFlow(&c, false, func(s *analysis.FlowSeries, from, to int) float64 {
		if of(s) == nil {
			return math.NaN()
		}
		return count(s, from, to) / float64(to-from) * perSecond
	})
	c.Lines = slices.DeleteFunc(c.Lines, func(l Line) bool { return !slices.ContainsFunc(l.Y, func(v float64) bool { return !math.IsNaN(v) }) })
	return c, happened
}

// pauses has a row for each sender and priority; the document has their sums, not each of them.
func (t *timeline) pauses() (Chart, bool) {
	c := Chart{Title: "PFC and PAUSE", Note: "from the first to the last frame of each sender"}
	for i := range t.d.PFC {
		p := &t.d.PFC[i]
		what := "all priorities"
		if p.Priority != nil {
			what = fmt.Sprintf("priority %d", *p.Priority)
		}
		text := fmt.Sprintf("%s, %s: %d pauses", p.Src, what, p.Pauses)
		if p.PausedNS != nil {
			text += ", " + analysis.FormatDuration(float64(*p.PausedNS)) + " in all"
		}
		c.Spans = append(c.Spans, Span{text, t.seconds(p.FirstNS), t.seconds(p.LastNS)})
	}
	if len(c.Spans) > 12 {
		c.Note += fmt.Sprintf("; 12 of %d, the table has all", len(c.Spans))
		c.Spans = c.Spans[:12]
	}
	return c, len(c.Spans) > 0
}

func add[N int64 | float64](v []N) (sum N) {
	for _, x := range v {
		sum += x
	}
	return sum
}
