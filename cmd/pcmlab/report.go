package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/compare"
	"github.com/pcmlab/pcmlab/experiments/figures"
	"github.com/pcmlab/pcmlab/experiments/pages"
)

type reportOptions struct {
	out        string
	history    []string
	metrics    []string
	thresholds []string
	figure     string
	write      string
	repin      bool
	seed       uint64
}

func (o *reportOptions) addFlags(c *cobra.Command) {
	c.Flags().StringVar(&o.out, "out", "", "page to write (report.html in the folder of a run or sweep; change.html, history.html)")
	c.Flags().StringArrayVar(&o.history, "history", nil, "show this metric over all runs in time, with its steps (may be repeated)")
	c.Flags().StringArrayVar(&o.metrics, "metric", nil, `of a sweep: this metric instead of the usual ones, such as 'jain(phase="three")' (may be repeated)`)
	c.Flags().StringArrayVar(&o.thresholds, "threshold", nil, `of two sides: judge a score, with how far it may change: "goodput: 3%" (may be repeated)`)
	c.Flags().StringVar(&o.figure, "figure", "", "draw the figure of this specification (pcmlab help figures)")
	c.Flags().StringVarP(&o.write, "write", "w", "", "file of the figure, .svg or .pdf (its name.svg)")
	c.Flags().BoolVar(&o.repin, "repin", false, "write into the specification of the figure what its runs are now")
	c.Flags().Uint64Var(&o.seed, "seed", 1, "seed of intervals and of the search for steps")
	c.RegisterFlagCompletionFunc("figure", completeFiles("yaml", "yml"))
}

func newReportCommand(e *env) *cobra.Command {
	var o reportOptions
	cmd := &cobra.Command{
		Use:   "report RUN | report SWEEP | report BEFORE AFTER | report --history METRIC RUNS... | report --figure SPEC",
		Short: "Make pages and figures of runs: of one, of a sweep, of a change, of a history",
		Long: "Make a page from the folders of runs: one HTML file that needs no network.\n\n" +
			"  report RUN                     a run's page again, from its folder alone\n" +
			"  report SWEEP                   metrics against the sweep's parameters, with every cell in a table\n" +
			"  report BEFORE AFTER            both laid over each other, with the verdict on every score; commas join runs to a side\n" +
			"  report --history METRIC RUNS   a metric over runs in time, with the steps that it took\n" +
			"  report --figure SPEC -w F.pdf  a figure for a paper, SVG or PDF, pinned to its runs ('pcmlab help figures')\n\n" +
			"docs/reports.md says what the pages show and how steps are told from chance.",
		Example: "  pcmlab report runs/20261129-120000.000-incast-3to1\n" +
			"  pcmlab report runs/20261129-120000.000-incast-3to1-sweep --metric 'jain(phase=\"three\")'\n" +
			"  pcmlab report --history goodput --history jain runs\n" +
			"  pcmlab report --figure figure-7.yaml -w figure-7.pdf",
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(c, args); err != nil {
				return err
			}
			return e.report(&o, args)
		},
	}
	o.addFlags(cmd)
	return cmd
}

// check finds flags and arguments that do not go together, all at once.
func (o *reportOptions) check(c *cobra.Command, args []string) error {
	what := "a run"
	allowed := []string{"out"}
	need := "the folder of a run or of a sweep, or two of them to compare"
	switch {
	case o.figure != "" && len(o.history) > 0:
		return usagef("pcmlab report: --figure and --history are two things: ask for one")
	case o.figure != "":
		what, allowed = "a figure", []string{"figure", "write", "repin"}
		if len(args) > 0 {
			return usagef("pcmlab report: --figure takes its runs from the specification, not from the command line (%s)", strings.Join(args, " "))
		}
	case len(o.history) > 0:
		what, allowed, need = "a history", []string{"out", "history", "seed"}, "folders of runs, such as runs"
	case len(args) == 2:
		what, allowed = "a change", []string{"out", "threshold", "seed"}
	case len(args) == 1 && !experiments.IsRun(args[0]):
		what, allowed = "a sweep", []string{"out", "metric", "seed"}
	case len(args) > 2:
		return usagef("pcmlab report: %d folders: give one, or two sides, each of which may be several folders joined by commas", len(args))
	}
	if len(args) == 0 && o.figure == "" {
		return usagef("pcmlab report: need %s\nusage: %s", need, c.UseLine())
	}
	var errs []error
	for _, name := range []string{"out", "metric", "threshold", "write", "repin", "seed"} {
		if c.Flags().Changed(name) && !slices.Contains(allowed, name) {
			errs = append(errs, usagef("pcmlab report: --%s has no meaning for the page of %s", name, what))
		}
	}
	if o.write != "" {
		if _, err := formatOf(o.write); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (e *env) report(o *reportOptions, args []string) error {
	sides := func(i int) []string { return strings.Split(args[i], ",") }
	switch {
	case o.figure != "":
		return e.figure(o)
	case len(o.history) > 0:
		return e.writePageOf(o.out, "history.html", func(w io.Writer) error {
			return pages.History(w, args, pages.Options{Metrics: o.history, Seed: o.seed})
		})
	case len(args) == 2:
		limits, err := compare.ParseThresholds(o.thresholds)
		if err != nil {
			return err
		}
		return e.writePageOf(o.out, "change.html", func(w io.Writer) error {
			return pages.Change(w, sides(0), sides(1), compare.Options{Thresholds: limits, Seed: o.seed})
		})
	case experiments.IsRun(args[0]):
		return e.runPage(o, args[0])
	}
	return e.writePageOf(o.out, filepath.Join(args[0], "report.html"), func(w io.Writer) error {
		return pages.Sweep(w, args[0], pages.Options{Metrics: o.metrics, Seed: o.seed})
	})
}

// writePageOf writes a page whole or not at all, and prints where it lies.
func (e *env) writePageOf(out, usual string, make func(io.Writer) error) error {
	if out == "" {
		out = usual
	}
	var b bytes.Buffer
	if err := make(&b); err != nil {
		return err
	}
	if err := experiments.WriteAtomic(out, b.Bytes()); err != nil {
		return usagef("--out %s: %w", out, err)
	}
	fmt.Fprintln(e.stdout, relative(out))
	return nil
}

// runPage makes a run's page again.
func (e *env) runPage(o *reportOptions, dir string) error {
	m, differences, err := experiments.CheckManifest(dir)
	if err != nil && m == nil {
		fmt.Fprintln(e.stderr, "warning:", err)
	}
	page, err := experiments.RemakeReport(dir, o.out)
	if err != nil {
		return err
	}
	fmt.Fprintln(e.stdout, relative(page))
	if len(differences) > 0 {
		return &codedError{exitData, fmt.Errorf("%s: the folder is not as the run left it:\n  %s", dir, strings.Join(differences, "\n  "))}
	}
	return nil
}

func formatOf(file string) (figures.Format, error) {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".svg":
		return figures.SVG, nil
	case ".pdf":
		return figures.PDF, nil
	}
	return "", usagef("--write %s: need a name that ends in .svg or .pdf", file)
}

// figure draws a figure, if its runs are those that it is pinned to.
func (e *env) figure(o *reportOptions) error {
	f, err := figures.Load(o.figure)
	if err != nil {
		return err
	}
	if o.repin {
		text, err := f.Repin()
		if err != nil {
			return err
		}
		if err := experiments.WriteAtomic(o.figure, text); err != nil {
			return usagef("--figure %s: %w", o.figure, err)
		}
		if f, err = figures.Load(o.figure); err != nil {
			return err
		}
	}
	if err := f.Verify(); err != nil {
		return err
	}
	if !f.Pinned() {
		fmt.Fprintf(e.stderr, "warning: %s: not pinned: other runs in these folders would be drawn without a word; --repin writes down what they are\n", o.figure)
	}
	file := o.write
	if file == "" {
		file = f.Name + ".svg"
	}
	format, err := formatOf(file)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := f.Draw(&b, format); err != nil {
		return err
	}
	if err := experiments.WriteAtomic(file, b.Bytes()); err != nil {
		return usagef("--write %s: %w", file, err)
	}
	fmt.Fprintln(e.stdout, relative(file))
	return nil
}
