package ci

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/compare"
)

// Input is what a report is made of; each part may be absent.
type Input struct {
	Playbook    *experiments.Playbook  // for the lines of expectations and thresholds
	Runs        []*experiments.Summary // whose expectations are reported
	Comparisons []*compare.Report
	Root        string // folder that file names are relative to: the repository of the job; "" leaves them as they are
}

// Outcome of a case.
type Outcome string

// Outcomes. A broken case is one of which nothing is known because something went wrong; a skipped one could not be judged.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Broken  Outcome = "broken"
	Skipped Outcome = "skipped"
)

// Case is one check.
type Case struct {
	Name    string
	Outcome Outcome
	Message string // why, in one line; "" when it passed and nothing is to be said
	Detail  string // further lines: the numbers, run by run
	File    string // where the check is written; "" is not known
	Line    int    // 0 is not known

	score *compare.ScoreChange // of a baseline check
}

// Property is one fact about a suite.
type Property struct{ Name, Value string }

// Suite is the cases of one cell of parameters.
type Suite struct {
	Name       string
	Kind       string // in a few words: expectations, or how many runs were compared
	Began      time.Time
	Took       time.Duration
	Properties []Property
	Cases      []Case
}

// Report is what a job says.
type Report struct{ Suites []Suite }

// New makes the report.
func New(in Input) *Report {
	r := &Report{}
	b := builder{Input: in}
	if in.Playbook != nil {
		b.file = relative(in.Root, in.Playbook.File)
		b.expectations, b.thresholds = in.Playbook.ExpectationLines(), in.Playbook.ThresholdLines()
	}
	for _, g := range compare.GroupRuns(in.Runs) {
		r.Suites = append(r.Suites, b.expectationSuite(g))
	}
	for _, c := range in.Comparisons {
		for i := range c.Cells {
			r.Suites = append(r.Suites, b.comparisonSuite(c, &c.Cells[i]))
		}
	}
	return r
}

// Count says how many cases had an outcome.
func (r *Report) Count(o Outcome) (n int) {
	for _, s := range r.Suites {
		for _, c := range s.Cases {
			if c.Outcome == o {
				n++
			}
		}
	}
	return n
}

type builder struct {
	Input
	file                     string
	expectations, thresholds map[string]int
}

// relative names a file as the service knows it: from the root of the repository.
func relative(root, file string) string {
	if root == "" || file == "" {
		return filepath.ToSlash(file)
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return filepath.ToSlash(file)
	}
	if rel, err := filepath.Rel(root, abs); err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return filepath.ToSlash(rel)
	}
	return filepath.ToSlash(file)
}

// expectationSuite has a case for each expectation of a cell, over all of its repeats, and one that says whether the cell
// was measured at all.
func (b *builder) expectationSuite(g compare.Group) Suite {
	s := Suite{Name: title(g.Name, g.Params), Kind: "expectations"}
	var judged, broken, noisy, warm []*experiments.Summary
	for _, r := range g.Runs {
		if s.Began.IsZero() || r.Began.Before(s.Began) {
			s.Began = r.Began
		}
		if !r.Ended.IsZero() {
			s.Took += r.Ended.Sub(r.Began)
		}
		switch {
		case r.Trial != nil && r.Trial.Warmup:
			warm = append(warm, r)
		case r.State == experiments.StateComplete:
			judged = append(judged, r)
		case r.State == experiments.StateNoisy:
			noisy = append(noisy, r)
		default:
			broken = append(broken, r)
		}
	}
	s.Properties = properties(g.Params, append(slices.Clone(judged), append(noisy, broken...)...))
	s.Properties = append(s.Properties, Property{"runs.judged", fmt.Sprint(len(judged))}, Property{"runs.noisy", fmt.Sprint(len(noisy))}, Property{"runs.broken", fmt.Sprint(len(broken))}, Property{"runs.warmup", fmt.Sprint(len(warm))})

	measured := Case{Name: "measured", Outcome: Passed, File: b.file, Line: b.line(0), Detail: listing(append(broken, noisy...))}
	switch {
	case len(broken) > 0:
		measured.Outcome, measured.Message = Broken, fmt.Sprintf("%d of %d runs did not come to their end: %s", len(broken), len(broken)+len(noisy)+len(judged), oneLine(cmp.Or(broken[0].Reason, string(broken[0].State))))
	case len(judged) == 0:
		measured.Outcome, measured.Message = Skipped, fmt.Sprintf("none of %d runs can be judged: %s", len(noisy)+len(warm), reasonOf(noisy, warm))
	case len(noisy) > 0:
		measured.Message = fmt.Sprintf("%d of %d runs were too noisy to be judged", len(noisy), len(noisy)+len(judged))
	}
	s.Cases = append(s.Cases, measured)
	var names []string
	for _, r := range g.Runs {
		for _, c := range r.Checks {
			if !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
		}
	}
	for _, name := range names {
		s.Cases = append(s.Cases, b.expectation(name, judged))
	}
	// agreement of the ways of counting has no line in the playbook: it fails the run all the same
	for _, r := range judged {
		if r.Verdict == experiments.Fail && !slices.ContainsFunc(r.Checks, func(c experiments.CheckResult) bool { return c.Verdict == experiments.Fail }) {
			s.Cases = append(s.Cases, Case{Name: "ways of counting agree", Outcome: Failed, File: b.file, Line: b.line(0),
				Message: "switch, NICs, captures and tool do not count alike in run " + r.Run, Detail: "see `agreement` in " + filepath.ToSlash(filepath.Join(r.Dir, "result.json"))})
			break
		}
	}
	return s
}

func (b *builder) line(line int) int {
	if b.file == "" {
		return 0
	}
	return max(line, 1)
}

func reasonOf(lists ...[]*experiments.Summary) string {
	for _, list := range lists {
		for _, r := range list {
			return oneLine(cmp.Or(r.Reason, "it was a warm-up"))
		}
	}
	return "there is none"
}

// oneLine makes a message of what may be an error of several lines; the detail has all.
func oneLine(s string) string {
	line, rest, more := strings.Cut(strings.TrimSpace(s), "\n")
	if more && strings.TrimSpace(rest) != "" {
		line += " ..."
	}
	return line
}

// expectation is one check over all repeats of a cell: it fails when it fails in any, and passes when it was judged in all.
func (b *builder) expectation(name string, runs []*experiments.Summary) Case {
	c := Case{Name: name, Outcome: Passed, File: b.file, Line: b.line(b.expectations[name])}
	var failed, skipped, lines []string
	for _, r := range runs {
		for _, k := range r.Checks {
			if k.Name != name {
				continue
			}
			text := fmt.Sprintf("%s: %s", label(r), k.Verdict)
			for _, v := range k.Values {
				text += fmt.Sprintf(", %s = %.6g", v.Call, v.Value)
			}
			if k.Reason != "" {
				text += " (" + k.Reason + ")"
			}
			lines = append(lines, text)
			switch k.Verdict {
			case experiments.Fail:
				if k.That == "" { // no expectation: pcmlab's own check says what is wrong
					failed = append(failed, fmt.Sprintf("%s: %s (%s)", name, k.Reason, values(k)))
				} else {
					failed = append(failed, fmt.Sprintf("%s does not hold: %s", k.That, values(k)))
				}
			case experiments.Skip:
				skipped = append(skipped, k.Reason)
			}
		}
	}
	c.Detail = strings.Join(lines, "\n")
	switch {
	case len(failed) > 0:
		c.Outcome, c.Message = Failed, failed[0]
		if len(runs) > 1 {
			c.Message += fmt.Sprintf(" (in %d of %d runs)", len(failed), len(runs))
		}
	case len(lines) == 0:
		c.Outcome, c.Message = Skipped, "no run of this cell can be judged"
	case len(skipped) > 0:
		c.Outcome, c.Message = Skipped, skipped[0]
		if len(skipped) < len(lines) {
			c.Message += fmt.Sprintf(" (in %d of %d runs)", len(skipped), len(runs))
		}
	}
	return c
}

// values are the numbers that decided, or why there are none.
func values(k experiments.CheckResult) string {
	var parts []string
	some := slices.ContainsFunc(k.Values, func(v experiments.MetricValue) bool { return v.Fails })
	for _, v := range k.Values {
		if some && !v.Fails {
			continue // of each flow: only those that fail it
		}
		parts = append(parts, fmt.Sprintf("%s = %.6g", v.Call, v.Value))
	}
	if len(parts) == 0 {
		return k.Reason
	}
	return strings.Join(parts, ", ")
}

// label names a run among the repeats of its cell.
func label(r *experiments.Summary) string {
	if r.Trial != nil {
		return fmt.Sprintf("repeat %d", r.Trial.Repeat)
	}
	return r.Run
}

// listing says of each run why it does not count.
func listing(runs []*experiments.Summary) string {
	var lines []string
	for _, r := range runs {
		lines = append(lines, fmt.Sprintf("%s: %s: %s", label(r), r.State, r.Reason))
	}
	return strings.Join(lines, "\n")
}

// title names a cell with its parameters.
func title(name string, params []experiments.Param) string {
	var parts []string
	for _, p := range params {
		parts = append(parts, p.Key+"="+p.Value)
	}
	if len(parts) == 0 {
		return name
	}
	return name + " (" + strings.Join(parts, ", ") + ")"
}

// properties are the parameters of a cell, and all that its runs depended on; values that differ between them are joined.
func properties(params []experiments.Param, runs []*experiments.Summary) (list []Property) {
	for _, p := range params {
		list = append(list, Property{"param." + p.Key, p.Value})
	}
	found := map[string][]string{}
	note := func(k, v string) {
		if v != "" && !slices.Contains(found[k], v) {
			found[k] = append(found[k], v)
		}
	}
	for _, r := range runs {
		note("playbook", r.Playbook)
		note("lab", r.Lab)
		note("time_scale", fmt.Sprintf("%g", r.TimeScale))
		note("inputs_sha256", r.Inputs)
		for k, v := range r.Provenance {
			note(k, v)
		}
	}
	keys := make([]string, 0, len(found))
	for k := range found {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		list = append(list, Property{k, strings.Join(found[k], "; ")})
	}
	return list
}

// comparisonSuite has a case for each judged score of a cell.
func (b *builder) comparisonSuite(r *compare.Report, c *compare.Cell) Suite {
	s := Suite{Name: c.Name + " against " + r.Before, Kind: fmt.Sprintf("%d runs before, %d after", len(c.Before.Runs), len(c.After.Runs))}
	for _, p := range c.Params {
		value := "-"
		if p.After != nil {
			value = *p.After
		}
		s.Properties = append(s.Properties, Property{"param." + p.Key, value})
	}
	s.Properties = append(s.Properties, Property{"before", r.Before}, Property{"after", r.After}, Property{"runs.before", fmt.Sprint(len(c.Before.Runs))}, Property{"runs.after", fmt.Sprint(len(c.After.Runs))},
		Property{"alpha", fmt.Sprintf("%g", r.Alpha)}, Property{"correction", r.Correction})
	for _, d := range r.Provenance {
		s.Properties = append(s.Properties, Property{"differs." + d.Key, dashed(d.Before) + " -> " + dashed(d.After)})
	}
	said := false // a score says why the cell's verdict is what it is
	for i := range c.Scores {
		if sc := &c.Scores[i]; sc.Judged {
			s.Cases = append(s.Cases, b.scoreCase(r, sc))
			said = said || sc.Verdict == c.Verdict
		}
	}
	if !said {
		k := Case{Name: "comparable", Message: c.Reason, File: b.file, Line: b.line(0), Detail: excluded(c)}
		switch c.Verdict {
		case compare.NotApplied, compare.Incomplete, compare.Worse:
			k.Outcome = Broken
			k.Message = string(c.Verdict) + ": " + c.Reason
		case compare.Insufficient:
			k.Outcome = Skipped
		default:
			k.Outcome = Passed
		}
		s.Cases = append(s.Cases, k)
	}
	return s
}

// excluded says which runs of a cell did not count.
func excluded(c *compare.Cell) string {
	var lines []string
	for _, side := range []struct {
		name string
		list []compare.Excluded
	}{{"before", c.Before.Excluded}, {"after", c.After.Excluded}} {
		for _, x := range side.list {
			lines = append(lines, fmt.Sprintf("not counted %s: %s: %s", side.name, x.Run, x.Why))
		}
	}
	return strings.Join(lines, "\n")
}

// scoreCase is one baseline check: its message has the metric, before and after, the change with its interval, and what is
// allowed.
func (b *builder) scoreCase(r *compare.Report, s *compare.ScoreChange) Case {
	c := Case{Name: s.Score, File: b.file, Line: b.line(b.threshold(s)), score: s}
	numbers := fmt.Sprintf("%s before, %s after, change %s, allowed %s", median(s.Before.Median, s.Unit), median(s.After.Median, s.Unit), s.ChangeText(), s.LimitText())
	lines := []string{
		"score      " + s.Score,
		fmt.Sprintf("before     %s (median of %d)", median(s.Before.Median, s.Unit), s.Before.N),
		fmt.Sprintf("after      %s (median of %d)", median(s.After.Median, s.Unit), s.After.N),
		"change     " + s.ChangeText() + ", with its 95 % interval",
		"allowed    " + s.LimitText(),
		"better is  " + string(s.Better),
	}
	if s.PCorrected != nil {
		lines = append(lines, fmt.Sprintf("p          %.2g (Holm over %d)", *s.PCorrected, r.Tested))
	}
	lines = append(lines, "why        "+s.Reason)
	for _, n := range s.Notes {
		lines = append(lines, "note       "+n)
	}
	for _, d := range r.Provenance {
		lines = append(lines, fmt.Sprintf("differs    %s: %s -> %s", d.Key, dashed(d.Before), dashed(d.After)))
	}
	c.Detail = strings.Join(lines, "\n")
	switch s.Verdict {
	case compare.Worse:
		c.Outcome, c.Message = Failed, s.Score+" is worse: "+numbers
	case compare.NotApplied, compare.Incomplete:
		c.Outcome, c.Message = Broken, s.Score+": "+string(s.Verdict)+": "+s.Reason
	case compare.Insufficient:
		c.Outcome, c.Message = Skipped, "not enough data: "+s.Reason
	case compare.Same:
		c.Outcome = Passed
	default:
		c.Outcome, c.Message = Passed, s.Score+" "+string(s.Verdict)+": "+numbers
	}
	return c
}

// threshold is the line of the threshold that judged a score: that of the score itself, else of its metric.
func (b *builder) threshold(s *compare.ScoreChange) int {
	for _, key := range []string{s.Score, strings.TrimSuffix(s.Score, "()"), s.Metric} {
		if line, ok := b.thresholds[key]; ok {
			return line
		}
	}
	return 0
}

func median(v *float64, unit string) string {
	if v == nil {
		return "-"
	}
	return compare.Number(*v, unit)
}

func dashed(values []string) string {
	if len(values) == 0 {
		return "-"
	}
	return strings.Join(values, ", ")
}
