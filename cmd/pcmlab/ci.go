package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/ci"
	"github.com/pcmlab/pcmlab/experiments/compare"
)

// ciOptions are what run and compare tell continuous integration.
type ciOptions struct {
	junit       string
	summary     string
	annotations string
	baseline    string // run alone: compare has a flag of its own
}

func (o *ciOptions) addFlags(c *cobra.Command) {
	c.Flags().StringVar(&o.junit, "junit", "", "write JUnit XML to this file: a case for each expectation and each baseline check")
	c.Flags().StringVar(&o.summary, "summary", "", "write a summary in Markdown to this file")
	c.Flags().StringVar(&o.annotations, "annotations", "auto", "annotate for a CI service: auto, github, gitlab or none")
}

// addBaselineFlag is for run: what has been run is then compared at once.
func (o *ciOptions) addBaselineFlag(c *cobra.Command) {
	c.Flags().StringVar(&o.baseline, "baseline", "", "compare with a baseline afterwards: its file, or its name in the folder baselines")
	c.RegisterFlagCompletionFunc("baseline", completeFiles("json"))
}

// check finds what is wrong with the flags before anything is run.
func (o *ciOptions) check() error {
	var errs []error
	if !slices.Contains([]string{"auto", "github", "gitlab", "none"}, o.annotations) {
		errs = append(errs, usagef("--annotations %q: need one of auto, github, gitlab, none", o.annotations))
	}
	for _, f := range []struct{ flag, file string }{{"junit", o.junit}, {"summary", o.summary}} {
		if f.file == "" {
			continue
		}
		if st, err := os.Stat(filepath.Dir(f.file)); err != nil || !st.IsDir() {
			errs = append(errs, usagef("--%s %s: there is no folder %s", f.flag, f.file, filepath.Dir(f.file)))
		}
	}
	if o.baseline != "" {
		if _, err := compare.LoadBaseline(findBaseline(o.baseline)); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// service is the CI service that annotations are for; "" is none.
func (o *ciOptions) service() string {
	switch {
	case o.annotations != "auto":
		return strings.TrimPrefix(o.annotations, "none")
	case os.Getenv("GITHUB_ACTIONS") == "true":
		return "github"
	case os.Getenv("GITLAB_CI") == "true":
		return "gitlab"
	}
	return ""
}

// asked says that somebody wants to know.
func (o *ciOptions) asked() bool { return o.junit != "" || o.summary != "" || o.service() != "" }

// report writes all that was asked for. JSON on standard output stays alone there.
func (o *ciOptions) report(e *env, in ci.Input, output string) error {
	if !o.asked() {
		return nil
	}
	in.Root = cmp.Or(os.Getenv("GITHUB_WORKSPACE"), os.Getenv("CI_PROJECT_DIR"))
	if in.Root == "" || o.service() == "" {
		in.Root = mustGetwd()
	}
	r := ci.New(in)
	file := func(flag, name string, write func(io.Writer) error) error {
		if name == "" {
			return nil
		}
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return err
		}
		if err := experiments.WriteAtomic(name, b.Bytes()); err != nil {
			return usagef("--%s %s: %w", flag, name, err)
		}
		return nil
	}
	errs := []error{file("junit", o.junit, r.WriteJUnit), file("summary", o.summary, r.WriteMarkdown)}
	log := e.stdout
	if output == "json" {
		log = e.stderr
	}
	switch o.service() {
	case "github":
		errs = append(errs, r.WriteGitHub(log))
		if name := os.Getenv("GITHUB_STEP_SUMMARY"); name != "" {
			errs = append(errs, appendTo(name, r.WriteMarkdown))
		}
	case "gitlab":
		errs = append(errs, file("annotations", ci.GitLabQualityFile, r.WriteGitLabQuality), r.WriteGitLabLog(log, time.Now()))
	}
	return errors.Join(errs...)
}

// appendTo adds to a file that other steps of a job write to as well.
func appendTo(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// finishRun compares what a run or sweep left in dir with the baseline, and tells CI about both. It runs also when the run
// failed with err: what was measured is reported. The error that it gives is the verdict on all.
func (o *ciOptions) finishRun(e *env, err error, p *experiments.Playbook, dir, output string) error {
	if o.baseline == "" && !o.asked() {
		return err
	}
	found, findErr := experiments.FindRuns(dir)
	if findErr != nil || len(found) == 0 { // it broke before it began
		return err
	}
	in := ci.Input{Playbook: p}
	if fresh, err := experiments.LoadPlaybook(p.File); err == nil {
		in.Playbook = fresh // with the lines of the file, whatever flags changed
	}
	for _, d := range found {
		s, loadErr := experiments.LoadSummary(d)
		if loadErr != nil {
			return errors.Join(err, loadErr)
		}
		in.Runs = append(in.Runs, s)
	}
	var verdict error
	if o.baseline != "" {
		r, compareErr := againstBaseline(o.baseline, in.Playbook, in.Runs, dir)
		if compareErr != nil {
			return errors.Join(err, compareErr)
		}
		in.Comparisons = append(in.Comparisons, r)
		if output != "json" {
			verdict = e.printComparison(r, false)
		}
		verdict = errors.Join(verdict, comparisonError(in.Comparisons))
		if exitCode(err) == exitData && onlyNoise(in.Runs) {
			err = nil // whether the quiet repeats are enough is what the comparison says
		}
	}
	return errors.Join(err, verdict, o.report(e, in, output))
}

// onlyNoise says that some runs were measured and nothing worse happened to the others than a busy machine.
func onlyNoise(runs []*experiments.Summary) bool {
	measured := 0
	for _, r := range runs {
		switch r.State {
		case experiments.StateComplete:
			measured++
		case experiments.StateNoisy:
		default:
			return false
		}
	}
	return measured > 0
}

// againstBaseline judges by the thresholds of the playbook, else by those of the baseline.
func againstBaseline(name string, p *experiments.Playbook, runs []*experiments.Summary, dir string) (*compare.Report, error) {
	b, err := compare.LoadBaseline(findBaseline(name))
	if err != nil {
		return nil, err
	}
	texts := b.Thresholds
	if len(p.Thresholds) > 0 {
		texts = nil
		for _, t := range p.Thresholds {
			texts = append(texts, fmt.Sprintf("%s: %s", t.Key, t.Value))
		}
	}
	limits, err := compare.ParseThresholds(texts)
	if err != nil {
		return nil, err
	}
	return compare.Compare(b.Groups(), compare.GroupRuns(runs), compare.Options{Thresholds: limits, Seed: 1, Before: "baseline " + b.Name, After: relative(dir)}), nil
}

// finishCompare tells CI about comparisons. The lines are those of the playbook of the last side's sweep, where it is still
// there.
func (o *ciOptions) finishCompare(e *env, reports []*compare.Report, args []string, output string) error {
	if !o.asked() {
		return nil
	}
	in := ci.Input{Comparisons: reports}
	for _, dir := range splitAll(args[len(args)-1:]) {
		if s, err := experiments.LoadSweep(dir); err == nil {
			if p, err := experiments.LoadPlaybook(s.PlaybookFile); err == nil {
				in.Playbook = p
			}
		}
	}
	return o.report(e, in, output)
}
