package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/nicbackends/cpu"
	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/check"
)

type checkOptions struct {
	handlerFlags
	platforms []string
	strict    bool
	together  bool
	cc        string
	output    string
	snapshot  string
}

func newHandlerCheck(e *env) *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check NAME...",
		Short: "Check packages: every mistake at once, with its place, in YAML and C",
		Long: "Check packages: objects and their accessors, triggers, constants, C, recursion, heap, loops without a bound, array indices that are not\n" +
			"proven to be in bounds, and what the platform does not have. Exits 2 when a package has mistakes, 1 when it has none but a platform must\n" +
			"refuse it. What cannot be proven is a warning, and a mistake with --strict.",
		Example: "  pcmlab handler check mycc\n  pcmlab handler check swift --platform docapcc\n  pcmlab handler check swift reps --same-flow",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: completeHandlers,
		RunE: func(c *cobra.Command, args []string) error { return e.runHandlerCheck(c, &o, args) },
	}
	o.add(cmd)
	cmd.Flags().StringSliceVar(&o.platforms, "platform", []string{"cpu"}, "platforms that it is to run on: cpu, softnic, uccl, htsim, docapcc, onep, or all")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "what cannot be proven is a mistake")
	cmd.Flags().BoolVar(&o.together, "same-flow", false, "the packages are to run on one flow: they must not set the same control")
	cmd.Flags().StringVar(&o.snapshot, "snapshot", "synchronous", "how its shell gives it signals: synchronous, relaxed, zero-skew or bounded-skew")
	cmd.Flags().StringVar(&o.cc, "cc", "", "C compiler (cc)")
	cmd.Flags().StringVarP(&o.output, "output", "o", "table", "table (lines) or json")
	return cmd
}

func platformsNamed(names []string) ([]*pcm.Platform, error) {
	var out []*pcm.Platform
	for _, n := range names {
		if n == "all" {
			return pcm.Platforms(), nil
		}
		pl, err := pcm.PlatformNamed(n)
		if err != nil {
			return nil, usagef("--platform: %w", err)
		}
		out = append(out, pl)
	}
	return out, nil
}

// checkedPackage is what was found in one package for one platform.
type checkedPackage struct {
	Package  string          `json:"package"`
	Platform string          `json:"platform"`
	Verdict  string          `json:"verdict"` // good, refused or wrong
	Findings []check.Finding `json:"findings"`
	Notes    []string        `json:"notes"`
}

func (e *env) runHandlerCheck(c *cobra.Command, o *checkOptions, args []string) error {
	if err := checkOutput(o.output, "table", "json"); err != nil {
		return err
	}
	platforms, err := platformsNamed(o.platforms)
	if err != nil {
		return err
	}
	snapshot, err := pcm.ParseSnapshot(o.snapshot)
	if err != nil {
		return usagef("--snapshot: %w", err)
	}
	var all []checkedPackage
	var packages []*pcm.Package
	var failed []error
	for _, name := range args {
		w, err := findHandler(name)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		d, err := o.deployment(w)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		for i, pl := range platforms {
			r, err := check.File(c.Context(), w.path, d, check.Options{Platform: pl, Strict: o.strict, CC: o.cc, Snapshot: snapshot})
			if err != nil {
				failed = append(failed, err)
				break
			}
			all = append(all, checked(name, r))
			if i == 0 && r.Package != nil {
				packages = append(packages, r.Package)
			}
		}
	}
	if o.together {
		if found := check.Overlaps(packages...); len(found) > 0 {
			all = append(all, checkedPackage{Package: "one flow", Platform: "all", Verdict: "wrong", Findings: found, Notes: []string{}})
		}
	}
	if o.output == "json" {
		err := writeJSON(e.stdout, struct {
			Schema  string           `json:"schema"`
			Checked []checkedPackage `json:"checked"`
		}{"pcmlab/handler-check/v1", append([]checkedPackage{}, all...)})
		if err != nil {
			return err
		}
	} else {
		e.printChecked(all)
	}
	return errors.Join(append(failed, verdict(all))...)
}

func checked(name string, r *check.Report) checkedPackage {
	out := checkedPackage{Package: name, Platform: r.Platform, Verdict: "good", Findings: append([]check.Finding{}, r.Findings...), Notes: append([]string{}, r.Notes...)}
	switch {
	case r.Count(check.Mistake) > 0:
		out.Verdict = "wrong"
	case r.Count(check.Refusal) > 0:
		out.Verdict = "refused"
	}
	return out
}

// verdict is the exit code: mistakes before refusals.
func verdict(all []checkedPackage) error {
	code := exitOK
	for _, p := range all {
		switch {
		case p.Verdict == "wrong":
			return &codedError{exitUsage, nil}
		case p.Verdict == "refused":
			code = exitCheckFailed
		}
	}
	if code == exitOK {
		return nil
	}
	return &codedError{code, nil}
}

func (e *env) printChecked(all []checkedPackage) {
	seen := map[check.Finding]bool{}
	for _, p := range all {
		warnings := 0
		for _, f := range p.Findings {
			if f.Severity == check.Warning {
				warnings++
			}
			if !seen[f] { // the same for every platform
				seen[f] = true
				fmt.Fprintln(e.stdout, f)
			}
		}
		if e.quiet {
			continue
		}
		for _, n := range p.Notes {
			fmt.Fprintf(e.stdout, "note: %s\n", n)
		}
		switch {
		case p.Verdict == "good" && warnings == 0:
			fmt.Fprintf(e.stdout, "%s for %s: no mistakes\n", p.Package, p.Platform)
		case p.Verdict == "good":
			fmt.Fprintf(e.stdout, "%s for %s: no mistakes, %s\n", p.Package, p.Platform, count(warnings, "warning"))
		case p.Verdict == "refused":
			fmt.Fprintf(e.stdout, "%s for %s: the platform must refuse it\n", p.Package, p.Platform)
		default:
			fmt.Fprintf(e.stdout, "%s for %s: %s\n", p.Package, p.Platform, count(len(p.Findings)-warnings, "mistake"))
		}
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// soundPackage reads and checks a package that is to be built. Warnings go to standard error.
func (e *env) soundPackage(c *cobra.Command, f *handlerFlags, name, platform string, o cpu.Options) (*pcm.Package, error) {
	w, err := findHandler(name)
	if err != nil {
		return nil, err
	}
	d, err := f.deployment(w)
	if err != nil {
		return nil, err
	}
	pl, err := pcm.PlatformNamed(platform)
	if err != nil {
		return nil, usagef("--platform: %w", err)
	}
	snapshot, err := pcm.ParseSnapshot(o.Snapshot)
	if err != nil {
		return nil, err
	}
	r, err := check.File(c.Context(), w.path, d, check.Options{Platform: pl, CC: o.CC, Snapshot: snapshot})
	if err != nil {
		return nil, err
	}
	for i, f := range r.Findings {
		if i == spec.MaxPrinted {
			fmt.Fprintf(e.stderr, "and %d more\n", len(r.Findings)-i)
			break
		}
		if f.Severity != check.Warning || !e.quiet {
			fmt.Fprintln(e.stderr, f)
		}
	}
	return r.Package, verdict([]checkedPackage{checked(name, r)})
}
