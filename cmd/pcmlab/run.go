package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
	"github.com/pcmlab/pcmlab/nicbackends/softnic"
)

// backends are the kinds of NIC that this pcmlab knows.
func backends() nicbackends.Registry {
	return nicbackends.NewRegistry(softnic.Backend{}, perftest.Plain{},
		perftest.Plain{Kind: "mlx5", Can: []nicbackends.Cap{nicbackends.ECN, nicbackends.CNP, nicbackends.CC, nicbackends.PFC}})
}

type runOptions struct {
	lab    string
	out    string
	sets   []string
	output string
	keep   bool
	store  string
}

func (o *runOptions) addFlags(c *cobra.Command) {
	c.Flags().StringVarP(&o.lab, "inventory", "i", "", "lab file, or the name of a virtual lab that is up")
	c.Flags().StringVar(&o.out, "out", "runs", "folder in which the run's folder is made")
	c.Flags().StringArrayVar(&o.sets, "set", nil, "change a value for this run, such as nic.dcqcn=off or link.buffer=64KiB (may be repeated)")
	c.Flags().StringVarP(&o.output, "output", "o", "table", "table or json")
	c.Flags().BoolVar(&o.keep, "keep-lab", false, "leave a virtual lab that this run raised up (pcmlab lab down removes it)")
	addStoreFlag(c, &o.store)
	c.MarkFlagRequired("inventory")
	c.RegisterFlagCompletionFunc("inventory", completeFiles("yaml", "yml"))
}

func newRunCommand(e *env) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run PLAYBOOK -i LAB",
		Short: "Run a playbook on a lab: deploy, drive, capture, analyse, judge, report",
		Long: "Run a playbook on a lab. A lab with a virtual: section is raised first and taken down afterwards.\n\n" +
			"First Ctrl-C: stop traffic, drain captures, restore, keep what was measured. Second: stop at once; guards on the\nhosts still clean up.",
		Example: "  pcmlab run playbooks/incast-3to1.yaml -i labs/virtual-4.yaml\n" +
			"  pcmlab run playbooks/incast-3to1.yaml -i labs/virtual-4.yaml --set nic.dcqcn=off --set link.buffer=64KiB",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeFiles("yaml", "yml"),
		RunE:              func(c *cobra.Command, args []string) error { return e.run(c.Context(), &o, args[0]) },
	}
	o.addFlags(cmd)
	return cmd
}

func completeFiles(ext ...string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return ext, cobra.ShellCompDirectiveFilterFileExt
	}
}

// loadBoth reads a playbook and a lab and applies --set values; mistakes of both files come at once.
func loadBoth(playbook, lab string, sets []string) (*experiments.Playbook, *inventory.Lab, map[string]string, error) {
	if kindOf(playbook) == "lab" {
		return nil, nil, nil, usagef("%s is a lab file: the playbook comes first, the lab behind -i", playbook)
	}
	if kindOf(lab) == "playbook" {
		return nil, nil, nil, usagef("-i %s is a playbook: -i wants a lab file, or the name of a virtual lab that is up", lab)
	}
	p, perr := experiments.LoadPlaybook(playbook)
	l, lerr := loadLab(lab)
	if err := errors.Join(perr, lerr); err != nil {
		return nil, nil, nil, err
	}
	settings, applied, err := parseSets(sets)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := inventory.OverrideAll(l, settings); err != nil {
		return nil, nil, nil, &codedError{exitUsage, err}
	}
	return p, l, applied, nil
}

// parseSets takes --set KEY=VALUE apart.
func parseSets(sets []string) ([]inventory.Setting, map[string]string, error) {
	applied := map[string]string{}
	var errs []error
	var settings []inventory.Setting
	for _, s := range sets {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			errs = append(errs, usagef("--set %q: need KEY=VALUE, such as nic.dcqcn=off", s))
			continue
		}
		settings = append(settings, inventory.Setting{Key: key, Value: value})
		applied[key] = value
	}
	return settings, applied, errors.Join(errs...)
}

// loadLab reads a lab file, or finds a virtual lab that is up by its name.
func loadLab(nameOrFile string) (*inventory.Lab, error) {
	if _, err := os.Stat(nameOrFile); err != nil && !strings.ContainsAny(nameOrFile, "/.") {
		return runningLab(nameOrFile)
	}
	l, err := inventory.Load(nameOrFile)
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	return l, nil
}

func (e *env) run(ctx context.Context, o *runOptions, playbook string) (ret error) {
	if err := checkOutput(o.output, "table", "json"); err != nil {
		return err
	}
	p, lab, sets, err := loadBoth(playbook, o.lab, o.sets)
	if err != nil {
		return err
	}
	if _, err := experiments.NewPlan(p, lab, backends()); err != nil { // before anything is raised
		return err
	}
	if p.IsSweep() {
		return usagef("%s: has repeat:, warmup: or matrix:, which this build reads and does not run", playbook)
	}
	show := e.newProgress(p)
	defer show.stop()
	raised, made := lab, any(nil)
	if lab.Virtual != nil && !isUp(lab) {
		inst, down, err := e.raise(ctx, lab, o.keep, show)
		if err != nil {
			return err
		}
		defer func() { ret = errors.Join(ret, down()) }()
		raised, made = inst.Lab(), inst.Provenance()
	}
	pool, err := remote.NewPool(raised, remote.Options{Run: experiments.NewRunID(p.Name, time.Now()), Log: e.log})
	if err != nil {
		return err
	}
	defer pool.Close()
	out, err := filepath.Abs(o.out)
	if err != nil {
		return err
	}
	r := &experiments.Runner{Playbook: p, Lab: raised, Backends: backends(), Switches: map[string]experiments.SwitchKind{"fabric": experiments.SoftwareSwitch{}},
		Dial: pool.Host, Out: out, ID: pool.Run(), Command: os.Args, Sets: sets, Made: made, Progress: show.event}
	result, runErr := r.Run(ctx)
	show.stop()
	if result == nil {
		return runErr
	}
	e.noteRun(ctx, out, o.store, result.Dir)
	if o.output == "json" {
		if err := writeJSON(e.stdout, result); err != nil {
			return err
		}
	} else if err := e.printResult(result, p); err != nil {
		return err
	}
	return errors.Join(runErr, verdictError(result))
}

// verdictError turns the state and verdict of a run into an exit code; what is wrong has been printed already.
func verdictError(r *experiments.Result) error {
	switch {
	case r.State == experiments.StateNoisy:
		return &codedError{exitData, nil}
	case r.State == experiments.StatePartial:
		return nil // the error that made it partial says it
	case r.Verdict == experiments.Fail:
		return &codedError{exitCheckFailed, nil}
	}
	return nil
}
