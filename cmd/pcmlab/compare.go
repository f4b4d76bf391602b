package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/compare"
)

type compareOptions struct {
	baseline   string
	thresholds []string
	alpha      float64
	seed       uint64
	noFailed   bool
	all        bool
	output     string
	ci         ciOptions
}

func (o *compareOptions) addFlags(c *cobra.Command) {
	c.Flags().StringVar(&o.baseline, "baseline", "", "compare with a baseline: its file, or its name in the folder baselines")
	c.Flags().StringArrayVar(&o.thresholds, "threshold", nil, `judge a score, with how far it may change: "goodput: 3%" (may be repeated; "default" are the default ones)`)
	c.Flags().Float64Var(&o.alpha, "alpha", 0.05, "highest chance of any false alarm")
	c.Flags().Uint64Var(&o.seed, "seed", 1, "seed of the bootstrap intervals")
	c.Flags().BoolVar(&o.noFailed, "exclude-failed", false, "leave out runs of which an expectation does not hold")
	c.Flags().BoolVar(&o.all, "all", false, "print every score, also those that are not judged and did not change; intervals of all medians")
	c.Flags().StringVarP(&o.output, "output", "o", "table", "table or json")
	c.RegisterFlagCompletionFunc("baseline", completeFiles("json"))
	o.ci.addFlags(c)
}

func newCompareCommand(e *env) *cobra.Command {
	var o compareOptions
	cmd := &cobra.Command{
		Use:   "compare RUN RUN... | compare --baseline FILE RUN...",
		Short: "Say whether runs got better, worse or stayed the same, with evidence",
		Long: "Compare runs cell by cell and score by score. A RUN is the folder of a run, of a sweep, or of many of them; commas join\n" +
			"several to one side. Every RUN is compared with the first; with --baseline, all of them together with the baseline.\n\n" +
			"A score is worse when its change is significant, corrected for the number of scores, and beyond its threshold; it is the\n" +
			"same when the interval of its change lies within the threshold; else the data is not enough, and what would do is said.\n" +
			"'pcmlab help expectations' lists the metrics, docs/compare.md the method.\n\n" +
			"Exit status: 0 same or better, 1 worse, 2 wrong use, 4 not enough data, treatment not applied, or nothing to compare.",
		Example: "  pcmlab compare runs/before runs/after\n" +
			"  pcmlab compare --baseline main runs/20261130-*-incast-sweep\n" +
			"  pcmlab compare runs/a1,runs/a2,runs/a3,runs/a4 runs/b --threshold 'goodput: 3%' --threshold 'rtt_p99: 200us'",
		Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(c *cobra.Command, args []string) error { return e.compare(&o, args) },
	}
	o.addFlags(cmd)
	return cmd
}

// comparison options and the first side, checked before anything is read at length.
func (o *compareOptions) prepare(args []string) (compare.Options, *compare.Baseline, error) {
	opts := compare.Options{Alpha: o.alpha, Seed: o.seed, ExcludeFailed: o.noFailed, All: o.all}
	if err := checkOutput(o.output, "table", "json"); err != nil {
		return opts, nil, err
	}
	if o.alpha <= 0 || o.alpha >= 1 {
		return opts, nil, usagef("--alpha %g: need a chance between 0 and 1, such as 0.05", o.alpha)
	}
	texts := o.thresholds
	var b *compare.Baseline
	switch {
	case o.baseline != "":
		var err error
		if b, err = compare.LoadBaseline(findBaseline(o.baseline)); err != nil {
			return opts, nil, err
		}
		if len(texts) == 0 {
			texts = b.Thresholds
		}
	case len(args) < 2:
		return opts, nil, usagef("compare %s: need something to compare it with: a second RUN, or --baseline FILE", args[0])
	}
	if len(texts) == 0 {
		var err error
		if texts, err = sweepThresholds(args); err != nil {
			return opts, nil, err
		}
	}
	var err error
	opts.Thresholds, err = compare.ParseThresholds(texts)
	return opts, b, err
}

// sweepThresholds are those that the playbooks of the sweeps among args bring along.
func sweepThresholds(args []string) ([]string, error) {
	var texts []string
	for _, dir := range splitAll(args) {
		if parent := filepath.Dir(filepath.Clean(dir)); !experiments.IsSweepDir(dir) && experiments.IsSweepDir(parent) {
			dir = parent // a cell of a sweep
		}
		if !experiments.IsSweepDir(dir) {
			continue
		}
		s, err := experiments.LoadSweep(dir)
		if err != nil {
			return nil, err
		}
		for _, t := range s.Thresholds {
			if text := t.Key + ": " + t.Value; !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
	}
	return texts, nil
}

// findBaseline lets a baseline be called by its name.
func findBaseline(given string) string {
	if _, err := os.Stat(given); err != nil && !strings.ContainsAny(given, `/\`) && !strings.HasSuffix(given, ".json") {
		return filepath.Join(baselineDir, given+".json")
	}
	return given
}

func (e *env) compare(o *compareOptions, args []string) error {
	if err := o.ci.check(); err != nil {
		return err
	}
	reports, err := o.reports(args)
	if err != nil {
		return err
	}
	if o.output == "json" {
		var doc any = reports[0]
		if len(reports) > 1 {
			doc = map[string]any{"schema": "pcmlab/compare-set/v1", "reports": reports}
		}
		if err := writeJSON(e.stdout, doc); err != nil {
			return err
		}
	} else {
		for _, r := range reports {
			if err := e.printComparison(r, o.all); err != nil {
				return err
			}
		}
	}
	return errors.Join(comparisonError(reports), o.ci.finishCompare(e, reports, args, o.output))
}

// reports makes the comparisons that the command line asks for.
func (o *compareOptions) reports(args []string) ([]*compare.Report, error) {
	opts, b, err := o.prepare(args)
	if err != nil {
		return nil, err
	}
	var before []compare.Group
	sides := args
	if b != nil {
		before, opts.Before = b.Groups(), "baseline "+b.Name
		sides = []string{strings.Join(args, ",")}
	} else {
		if before, err = compare.Gather(strings.Split(args[0], ",")); err != nil {
			return nil, err
		}
		opts.Before, sides = args[0], args[1:]
	}
	var reports []*compare.Report
	for _, side := range sides {
		after, err := compare.Gather(strings.Split(side, ","))
		if err != nil {
			return nil, err
		}
		opts.After = side
		reports = append(reports, compare.Compare(before, after, opts))
	}
	return reports, nil
}

// comparisonError is the exit code of comparisons; what is wrong has been printed already.
func comparisonError(reports []*compare.Report) error {
	code := exitOK
	for _, r := range reports {
		switch r.Verdict {
		case compare.Worse:
			return &codedError{exitCheckFailed, nil}
		case compare.Insufficient, compare.NotApplied, compare.Incomplete:
			code = exitData
		}
	}
	if code != exitOK {
		return &codedError{code, nil}
	}
	return nil
}

func (e *env) printComparison(r *compare.Report, all bool) error {
	for i := range r.Cells {
		if err := e.printCell(&r.Cells[i], all); err != nil {
			return err
		}
	}
	if len(r.Provenance) > 0 {
		t := e.newTable()
		t.columns([]analysis.Column{{Name: "what differs besides"}, {Name: "before", Wrap: true}, {Name: "after", Wrap: true}})
		for _, d := range r.Provenance {
			t.row(d.Key, dashed(d.Before), dashed(d.After))
		}
		if err := t.print(); err != nil {
			return err
		}
	}
	for _, w := range r.Warnings {
		fmt.Fprintln(e.stdout, "warning:", w)
	}
	fmt.Fprintf(e.stdout, "before   %s\nafter    %s\nverdict  %s\n", brief(r.Before), brief(r.After), r.Verdict)
	e.printWhy(r)
	if r.NMore != nil {
		fmt.Fprintf(e.stdout, "         %s of each cell and side would do\n", plural(*r.NMore, "more repeat"))
	}
	fmt.Fprintf(e.stdout, "%s judged, at most %g %% false alarms in all (Holm over the %d that vary); intervals are of 95 %%\n", plural(r.Judged, "score"), 100*r.Alpha, r.Tested)
	return nil
}

func (e *env) printCell(c *compare.Cell, all bool) error {
	t := e.newTable()
	t.columns([]analysis.Column{{Name: "score"}, {Name: "before", Numeric: true}, {Name: "after", Numeric: true}, {Name: "change"}, {Name: "limit", Numeric: true}, {Name: "p", Numeric: true}, {Name: "verdict"}})
	title := fmt.Sprintf("%s: %s and %s", c.Name, plural(len(c.Before.Runs), "run"), plural(len(c.After.Runs), "run"))
	for _, p := range c.Params {
		if p.Differs() {
			title += fmt.Sprintf(", %s %s -> %s", p.Key, *orDash(p.Before), *orDash(p.After))
		}
	}
	t.title(title)
	hidden, notes := 0, []string{}
	for i := range c.Scores {
		s := &c.Scores[i]
		quiet := s.Verdict == compare.Same || s.Verdict == compare.Insufficient || s.Verdict == compare.NotApplied
		if !s.Judged && quiet && !all {
			hidden++
			continue
		}
		verdict := string(s.Verdict)
		if !s.Judged {
			verdict += " (shown)"
		}
		t.row(s.Score, median(s.Before.Median, s.Before.N, s.Unit), median(s.After.Median, s.After.N, s.Unit), s.ChangeText(), s.LimitText(), number(s.PCorrected, "%.2g"), verdict)
		if s.Judged || all {
			for _, n := range s.Notes {
				notes = append(notes, s.Score+": "+n)
			}
		}
	}
	if len(c.Scores) > 0 {
		if err := t.print(); err != nil {
			return err
		}
	}
	if hidden > 0 {
		fmt.Fprintf(e.stdout, "not judged and without a change: %s (--all prints them)\n", plural(hidden, "more score"))
	}
	for _, n := range notes {
		fmt.Fprintln(e.stdout, "note:", n)
	}
	for _, s := range []struct {
		name string
		side *compare.CellSide
	}{{"before", &c.Before}, {"after", &c.After}} {
		e.printExcluded(s.name, s.side.Excluded)
		if n := len(s.side.FailedChecks); n > 0 {
			fmt.Fprintf(e.stdout, "an expectation does not hold in %d of %d runs %s (they count): %s\n", n, len(s.side.Runs), s.name, e.some(s.side.FailedChecks))
		}
	}
	if c.Verdict != compare.Same {
		fmt.Fprintf(e.stdout, "cell %s: %s\n", c.Name, c.Verdict)
	}
	return nil
}

// printExcluded names the runs that do not count, by what they are.
func (e *env) printExcluded(side string, excluded []compare.Excluded) {
	by, kinds := map[string][]string{}, []string{}
	for _, x := range excluded {
		kind, _, _ := strings.Cut(x.Why, ":")
		name := x.Run
		if e.verbose > 0 {
			kind, name = x.Why, x.Run
		}
		if by[kind] == nil {
			kinds = append(kinds, kind)
		}
		by[kind] = append(by[kind], name)
	}
	for _, k := range kinds {
		fmt.Fprintf(e.stdout, "not counted %s, %d %s: %s\n", side, len(by[k]), k, e.some(by[k]))
	}
}

// some names the first few, or all with -v.
func (e *env) some(names []string) string {
	if len(names) > 4 && e.verbose == 0 {
		return fmt.Sprintf("%s and %d more (-v names all)", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}

// printWhy prints what decided: the scores of the gravest verdict, else the reason as it is.
func (e *env) printWhy(r *compare.Report) {
	printed := false
	for _, c := range r.Cells {
		for i := range c.Scores {
			s := &c.Scores[i]
			if c.Verdict != r.Verdict || !s.Judged || s.Verdict != r.Verdict || r.Verdict == compare.Same || c.Reason == s.Reason {
				continue
			}
			where := ""
			if len(r.Cells) > 1 {
				where = c.Name + ": "
			}
			fmt.Fprintf(e.stdout, "         %s%s: %s\n", where, s.Score, s.Reason)
			printed = true
		}
	}
	if !printed {
		fmt.Fprintln(e.stdout, "        ", r.Reason)
	}
}

// brief keeps a long list of folders on one line.
func brief(side string) string {
	if names := strings.Split(side, ","); len(names) > 3 {
		return fmt.Sprintf("%s,%s and %d more", names[0], names[1], len(names)-2)
	}
	return side
}

func median(v *float64, n int, unit string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%s (%d)", compare.Number(*v, unit), n)
}

func dashed(values []string) string {
	if len(values) == 0 {
		return "-"
	}
	return strings.Join(values, ", ")
}

func orDash(s *string) *string {
	if s == nil {
		dash := "-"
		return &dash
	}
	return s
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
