package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/compare"
)

// baselineDir is where baselines lie unless --dir says otherwise: in the user's repository, beside what they judge.
const baselineDir = "baselines"

func newBaselineCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "baseline", Short: "Keep results that later runs are compared with, as small files for your repository"}
	cmd.AddCommand(newBaselineSave(e), newBaselineLs(e), newBaselineShow(e))
	return cmd
}

var baselineName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

func newBaselineSave(e *env) *cobra.Command {
	var dir string
	var thresholds []string
	var noFailed bool
	cmd := &cobra.Command{
		Use:   "save NAME RUN...",
		Short: "Write the samples of runs, of sweeps or of folders of them to DIR/NAME.json",
		Long: "Write the samples of runs to DIR/NAME.json, six digits a value and a score a line, for 'compare --baseline NAME'. Runs that\n" +
			"did not end, were noisy or are warm-ups are left out by name. An existing baseline of that name is replaced: your\n" +
			"repository keeps the old one.",
		Example: "  pcmlab baseline save main runs/20261130-*-incast-sweep\n" +
			"  pcmlab baseline save main runs/nightly --threshold 'goodput: 3%' --threshold 'jain: 0.02'",
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			name := args[0]
			if !baselineName.MatchString(name) {
				return usagef("baseline save %q: a name is of letters, digits, '.', '-' and '_'; the folder is --dir's", name)
			}
			groups, err := compare.Gather(splitAll(args[1:]))
			if err != nil {
				return err
			}
			if len(thresholds) == 0 {
				if thresholds, err = sweepThresholds(args[1:]); err != nil {
					return err
				}
			}
			b, left, err := compare.NewBaseline(name, groups, thresholds, compare.Options{ExcludeFailed: noFailed})
			if err != nil {
				return err
			}
			path := filepath.Join(dir, name+".json")
			_, statErr := os.Stat(path)
			if err := b.Save(path); err != nil {
				return err
			}
			runs := 0
			for _, c := range b.Cells {
				runs += len(c.Runs)
			}
			did := "saved"
			if statErr == nil {
				did = "replaced"
			}
			fmt.Fprintf(e.stdout, "%s %s: %s, %s\n", did, relative(path), plural(len(b.Cells), "cell"), plural(runs, "run"))
			for _, x := range left {
				fmt.Fprintf(e.stdout, "not counted: %s: %s\n", x.Run, x.Why)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", baselineDir, "folder of the baselines")
	cmd.Flags().StringArrayVar(&thresholds, "threshold", nil, `thresholds that the baseline brings along, such as "goodput: 3%" (may be repeated; else those of the playbook)`)
	cmd.Flags().BoolVar(&noFailed, "exclude-failed", false, "leave out runs of which an expectation does not hold")
	return cmd
}

func splitAll(args []string) []string {
	return strings.Split(strings.Join(args, ","), ",")
}

func newBaselineLs(e *env) *cobra.Command {
	var dir, output string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the baselines of a folder",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && c.Flags().Changed("dir") {
				return usagef("--dir %s: no such folder", dir)
			}
			paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
			if err != nil {
				return usagef("--dir %s: %w", dir, err)
			}
			type row struct {
				Name  string `json:"name"`
				File  string `json:"file"`
				Cells int    `json:"cells"`
				Runs  int    `json:"runs"`
			}
			rows := []row{}
			var errs []error
			t := e.newTable("baseline", "cells", "runs", "playbooks", "file")
			for _, p := range paths {
				b, err := compare.LoadBaseline(p)
				if err != nil {
					errs = append(errs, err)
					continue
				}
				r, playbooks := row{Name: b.Name, File: p, Cells: len(b.Cells)}, []string{}
				for _, c := range b.Cells {
					r.Runs += len(c.Runs)
					if len(playbooks) == 0 || playbooks[len(playbooks)-1] != c.Playbook {
						playbooks = append(playbooks, c.Playbook)
					}
				}
				rows = append(rows, r)
				t.row(b.Name, fmt.Sprint(r.Cells), fmt.Sprint(r.Runs), strings.Join(playbooks, ", "), p)
			}
			switch {
			case output == "json":
				err = writeJSON(e.stdout, map[string]any{"schema": "pcmlab/baselines/v1", "baselines": rows})
			case len(rows) == 0:
				fmt.Fprintf(e.stderr, "no baselines in %s ('pcmlab baseline save NAME RUN...' makes one)\n", dir)
			default:
				err = t.print()
			}
			return errors.Join(append(errs, err)...)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", baselineDir, "folder of the baselines")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func newBaselineShow(e *env) *cobra.Command {
	var dir, output string
	cmd := &cobra.Command{
		Use:     "show NAME|FILE",
		Short:   "Print a baseline's cells and scores",
		Example: "  pcmlab baseline show main",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			path := args[0]
			if baselineName.MatchString(path) && !strings.HasSuffix(path, ".json") {
				path = filepath.Join(dir, path+".json")
			}
			b, err := compare.LoadBaseline(path)
			if err != nil {
				return err
			}
			if output == "json" {
				data, err := b.Encode()
				if err != nil {
					return err
				}
				_, err = e.stdout.Write(data)
				return err
			}
			return e.printBaseline(b)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", baselineDir, "folder of the baselines")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func (e *env) printBaseline(b *compare.Baseline) error {
	for _, g := range b.Groups() {
		t := e.newTable()
		t.columns([]analysis.Column{{Name: "score"}, {Name: "n", Numeric: true}, {Name: "median", Numeric: true}, {Name: "95 %", Numeric: true}, {Name: "sd", Numeric: true},
			{Name: "min", Numeric: true}, {Name: "max", Numeric: true}})
		t.title(fmt.Sprintf("%s: %s", g.Name, plural(len(g.Runs), "run")))
		for i, s := range g.Runs[0].Scores {
			var values []float64
			for _, r := range g.Runs {
				if v := r.Scores[i].Value; v != nil {
					values = append(values, *v)
				}
			}
			d := experiments.Describe(s.Metric, values, 1)
			show := func(v *float64) string {
				if v == nil {
					return "-"
				}
				return compare.Number(*v, s.Unit)
			}
			interval := "-"
			if d.MedianCI != nil {
				interval = show(&d.MedianCI.Low) + " to " + show(&d.MedianCI.High)
			}
			t.row(s.Name(), fmt.Sprint(d.N), show(d.Median), interval, show(d.SD), show(d.Min), show(d.Max))
		}
		if err := t.print(); err != nil {
			return err
		}
	}
	if len(b.Thresholds) == 0 {
		fmt.Fprintf(e.stdout, "thresholds: the default ones (%s)\n", strings.Join(compare.DefaultTexts, ", "))
	} else {
		fmt.Fprintf(e.stdout, "thresholds: %s\n", strings.Join(b.Thresholds, ", "))
	}
	return nil
}
