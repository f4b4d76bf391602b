package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/stats"
)

// spreadFrom is from which ratio on a significant change of the spread is worth a verdict of its own.
const spreadFrom = 2

// judge gives the verdict of a cell and of its scores.
func (c *Cell) judge(r *Report) {
	frozen := c.notApplied()
	for i := range c.Scores {
		c.Scores[i].judge(r)
		if frozen != "" {
			c.Scores[i].Verdict, c.Scores[i].Reason, c.Scores[i].NMore = NotApplied, frozen, nil
		}
	}
	switch {
	case frozen != "":
		c.Verdict, c.Reason = NotApplied, frozen
		return
	case c.Before.Group == "":
		c.Verdict, c.Reason = Incomplete, "there is no such cell before"
		return
	case c.After.Group == "":
		c.Verdict, c.Reason = Incomplete, "there is no such cell after"
		return
	case len(c.Before.used) == 0 || len(c.After.used) == 0:
		c.Verdict, c.Reason = Incomplete, "no run counts "+nobody(c)
		return
	}
	c.Verdict = Same
	var graves []string
	var most repeats
	judged := 0
	for i := range c.Scores {
		s := &c.Scores[i]
		if !s.Judged {
			continue
		}
		judged++
		if graver(s.Verdict, c.Verdict) {
			c.Verdict, graves = s.Verdict, nil
		}
		if s.Verdict == c.Verdict {
			graves = append(graves, s.Score+": "+s.Reason)
		}
		if s.Verdict == Insufficient {
			most.add(s.NMore)
		}
	}
	switch {
	case judged == 0:
		c.Verdict, c.Reason = Incomplete, "no judged score was measured"
	case c.Verdict == Same:
		c.Reason = fmt.Sprintf("every judged score (%d) is within its threshold", judged)
	default:
		c.Reason = strings.Join(graves, "; ")
	}
	if c.Verdict == Insufficient {
		c.NMore = most.total()
	}
}

// repeats is how many more would do for several scores: the most of them, or none when they would not do for one.
type repeats struct {
	most  int
	never bool
}

func (r *repeats) add(n *int) {
	if n == nil {
		r.never = true
	} else {
		r.most = max(r.most, *n)
	}
}

func (r *repeats) total() *int {
	if r.never || r.most == 0 {
		return nil
	}
	return &r.most
}

func nobody(c *Cell) string {
	var sides []string
	for _, s := range []struct {
		name string
		side *CellSide
	}{{"before", &c.Before}, {"after", &c.After}} {
		if len(s.side.used) == 0 {
			text := s.name
			if len(s.side.Excluded) > 0 {
				text += fmt.Sprintf(" (%s: %s)", s.side.Excluded[0].Run, s.side.Excluded[0].Why)
			}
			sides = append(sides, text)
		}
	}
	return strings.Join(sides, " and ")
}

// notApplied says why the runs of a cell are no measurement of a change; "" when they may be one.
func (c *Cell) notApplied() string {
	if len(c.Before.used) == 0 || len(c.After.used) == 0 {
		return ""
	}
	both, equal := []string{}, 0
	traces := map[string]bool{}
	for _, r := range c.Before.used {
		if r.Trace != nil {
			traces[*r.Trace] = true
		}
	}
	for i, r := range c.After.used {
		if slices.Contains(c.Before.Runs, c.After.Runs[i]) {
			both = append(both, c.After.Runs[i])
		}
		if r.Trace != nil && traces[*r.Trace] {
			equal++
		}
	}
	var declared []string
	for _, p := range c.Params {
		if p.Differs() {
			declared = append(declared, fmt.Sprintf("%s %s -> %s", p.Key, text(p.Before), text(p.After)))
		}
	}
	inert, acts := 0, ""
	for _, r := range c.After.used {
		for _, check := range r.Checks {
			if check.Verdict == experiments.Fail && strings.HasPrefix(check.Reason, "inert:") {
				inert++
				acts = check.Name + ": " + check.Reason
				break
			}
		}
	}
	switch {
	case inert > 0:
		return fmt.Sprintf("treatment not applied in %d of %d runs after: %s", inert, len(c.After.used), acts)
	case len(both) > 0:
		return "the same runs are on both sides: " + some(both)
	case equal == len(c.After.used) && len(declared) > 0:
		return "treatment not applied: every trace after equals one before, though " + strings.Join(declared, ", ")
	case equal == len(c.After.used):
		return "treatment not applied: every trace after equals one before, and two measurements are never equal"
	}
	return ""
}

func text(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func some(names []string) string {
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}

// judge gives the verdict of one score.
func (s *ScoreChange) judge(r *Report) {
	s.Verdict, s.Reason, s.NMore = s.verdict(r)
	s.Notes = s.shape()
}

func (s *ScoreChange) verdict(r *Report) (Verdict, string, *int) {
	switch missing := s.notMeasured(); {
	case missing != "":
		return Insufficient, missing, nil
	case s.Limit == nil:
		return Insufficient, "the limit is a share of the line rate, which is not known", nil
	}
	if why := s.frozen(); why != "" {
		return NotApplied, why, nil
	}
	change, limit := *s.Change, *s.Limit
	measured := s.changeText()
	significant := *s.PCorrected <= r.Alpha
	switch {
	case significant && math.Abs(change) > limit:
		return s.direction(), fmt.Sprintf("%s, beyond %s (p %.2g)", measured, s.limitText(), *s.PCorrected), nil
	case s.Interval != nil && s.Interval.Within(limit):
		if s.SpreadP != nil && *s.SpreadP <= r.Alpha && (*s.SpreadRatio >= spreadFrom || *s.SpreadRatio <= 1/float64(spreadFrom)) {
			return Changed, fmt.Sprintf("%s, but spread %.2g times as wide (p %.2g)", measured, *s.SpreadRatio, *s.SpreadP), nil
		}
		return Same, fmt.Sprintf("%s, within %s", measured, s.limitText()), nil
	}
	if !s.Judged {
		return Insufficient, measured + ": not enough data", nil
	}
	more, plan := s.plan(r)
	return Insufficient, measured + ": " + plan, more
}

func (s *ScoreChange) notMeasured() string {
	var sides []string
	for _, side := range []struct {
		name string
		of   *sample
	}{{"before", &s.before}, {"after", &s.after}} {
		if len(side.of.values) == 0 {
			why := side.of.missing
			if why == "" {
				why = "no run has it"
			}
			sides = append(sides, fmt.Sprintf("not measured %s (%s)", side.name, why))
		}
	}
	return strings.Join(sides, ", ")
}

// frozen says that repeats of a rate are all equal. Rates are counted to the bit and timed to the nanosecond: repeats of a
// measurement differ. Times do not count here, for the analysis counts them in buckets.
func (s *ScoreChange) frozen() string {
	if s.Unit != "bit/s" {
		return ""
	}
	for _, side := range []struct {
		name string
		of   stats.Description
	}{{"before", s.Before}, {"after", s.After}} {
		if side.of.N >= 3 && *side.of.Min == *side.of.Max && *side.of.Min != 0 {
			return fmt.Sprintf("no variance where variance is expected: %s in each of %d runs %s", Number(*side.of.Min, s.Unit), side.of.N, side.name)
		}
	}
	return ""
}

func (s *ScoreChange) direction() Verdict {
	switch {
	case s.eitherBad:
		return Worse
	case s.Better == experiments.NeitherBetter:
		return Changed
	case (*s.Change < 0) == s.lowerGood:
		return Better
	}
	return Worse
}

// plan says how many more repeats would do, if the truth is what was observed.
func (s *ScoreChange) plan(r *Report) (*int, string) {
	have := min(s.Before.N, s.After.N)
	variance, freedom := 0.0, 0
	for _, d := range []stats.Description{s.Before, s.After} {
		if d.SD != nil {
			variance += *d.SD * *d.SD * float64(d.N-1)
			freedom += d.N - 1
		}
	}
	if freedom == 0 {
		more := max(s.fewRepeats, 4) - have
		return &more, fmt.Sprintf("single runs show no spread; %d more repeats are the least", more)
	}
	sd := math.Sqrt(variance / float64(freedom))
	aim, alpha := "to show it", r.Alpha/float64(max(1, r.Tested))
	n, ok := stats.RepeatsToDetect(sd, *s.Change, *s.Limit, alpha)
	if math.Abs(*s.Change) <= *s.Limit {
		aim = "to show that it is within " + s.limitText()
		n, ok = stats.RepeatsToRuleOut(sd, *s.Change, *s.Limit)
	}
	if !ok {
		return nil, fmt.Sprintf("not enough data, and not even %d repeats would do: too near the threshold of %s for a spread of %s", stats.MaxRepeats, s.limitText(), Number(sd, s.Unit))
	}
	more := max(1, n-have)
	if more == 1 {
		return &more, "not enough data, 1 more repeat would do " + aim
	}
	return &more, fmt.Sprintf("not enough data, %d more repeats would do %s", more, aim)
}

// shape describes what the verdict alone does not tell.
func (s *ScoreChange) shape() []string {
	notes := []string{}
	for _, side := range []struct {
		name string
		of   *sample
		d    stats.Description
	}{{"before", &s.before, s.Before}, {"after", &s.after, s.After}} {
		low, high, two := stats.TwoGroups(side.of.values)
		if two {
			notes = append(notes, fmt.Sprintf("%s falls into two groups: %d of %d about %s, %d about %s", side.name, low.N, side.d.N, Number(low.Mean, s.Unit), high.N, Number(high.Mean, s.Unit)))
			continue
		}
		var out []string
		for _, i := range side.d.Outliers {
			out = append(out, fmt.Sprintf("%s %s", side.of.runs[i], Number(side.of.values[i], s.Unit)))
		}
		if len(out) > 0 {
			notes = append(notes, fmt.Sprintf("outliers %s (they count): %s", side.name, some(out)))
		}
	}
	return notes
}

// judge gives the verdict of the report.
func (r *Report) judge() {
	if len(r.Cells) == 0 {
		r.Verdict, r.Reason = Incomplete, "there are no runs"
		return
	}
	r.Verdict = Same
	count := map[Verdict]int{}
	var reasons []string
	var most repeats
	for _, c := range r.Cells {
		if c.Before.Group == "" && len(r.Cells) > 1 { // a cell that is new is no part of the question
			r.Warnings = append(r.Warnings, fmt.Sprintf("cell %s: %s; not compared", c.Name, c.Reason))
			continue
		}
		count[c.Verdict]++
		if graver(c.Verdict, r.Verdict) {
			r.Verdict, reasons = c.Verdict, nil
		}
		if c.Verdict == r.Verdict {
			reasons = append(reasons, c.Name+": "+c.Reason)
		}
		if c.Verdict == Insufficient {
			most.add(c.NMore)
		}
	}
	if len(count) == 0 {
		r.Verdict, reasons = Incomplete, []string{"no cell is on both sides"}
	}
	if len(r.Warnings) > 0 && graver(Incomplete, r.Verdict) && slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.HasPrefix(w, "threshold") }) {
		r.Verdict, reasons = Incomplete, r.Warnings
	}
	r.Reason = strings.Join(reasons, "; ")
	if r.Verdict == Same {
		r.Reason = fmt.Sprintf("every judged score (%d) is within its threshold", r.Judged)
	}
	if r.Verdict == Insufficient {
		r.NMore = most.total()
	}
}
