package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/docapcc"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
	"github.com/pcmlab/pcmlab/nicbackends/softnic"
)

// backends are the kinds of NIC that this pcmlab knows.
func backends() nicbackends.Registry {
	return nicbackends.NewRegistry(softnic.Backend{}, perftest.Plain{},
		perftest.Plain{Kind: "mlx5", Can: []nicbackends.Cap{nicbackends.ECN, nicbackends.CNP, nicbackends.CC, nicbackends.PFC}}, docapcc.Backend{Backend: perftest.Plain{}})
}

type runOptions struct {
	lab    string
	out    string
	sets   []string
	output string
	keep   bool
	store  string
	repeat int
	seed   uint64
	budget time.Duration
	wait   time.Duration
	resume string
	force  bool
	detach bool
	ci     ciOptions
}

func (o *runOptions) addFlags(c *cobra.Command) {
	c.Flags().StringVarP(&o.lab, "inventory", "i", "", "lab file, or the name of a virtual lab that is up")
	c.Flags().StringVar(&o.out, "out", "runs", "folder in which the run's folder is made")
	c.Flags().StringArrayVar(&o.sets, "set", nil, "change a value for this run, such as nic.dcqcn=off, link.buffer=64KiB, traffic.size=4KiB or senders=2 (may be repeated)")
	c.Flags().StringVarP(&o.output, "output", "o", "table", "table or json")
	c.Flags().BoolVar(&o.keep, "keep-lab", false, "leave a virtual lab that this run raised up (pcmlab lab down removes it)")
	addStoreFlag(c, &o.store)
	c.Flags().IntVar(&o.repeat, "repeat", 0, "runs of each cell (what the playbook says)")
	c.Flags().Uint64Var(&o.seed, "seed", 0, "seed of a sweep's order and of what the lab draws (what the playbook says)")
	c.Flags().DurationVar(&o.budget, "budget", 0, "begin no run of a sweep that would not end within this time")
	c.Flags().StringVar(&o.resume, "resume", "", "go on with the sweep in this folder: what is finished is not run again")
	c.Flags().BoolVar(&o.force, "force", false, "with --resume: also when playbook, lab or provenance changed; it is recorded")
	c.Flags().DurationVar(&o.wait, "wait", 0, "how long each run waits for hosts that others hold (pcmlab who)")
	c.Flags().BoolVar(&o.detach, "detach", false, "go on in the background, and print the run's id and folder (pcmlab status, pcmlab stop)")
	c.RegisterFlagCompletionFunc("inventory", completeFiles("yaml", "yml"))
	o.ci.addFlags(c)
	o.ci.addBaselineFlag(c)
}

func newRunCommand(e *env) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run PLAYBOOK -i LAB",
		Short: "Run a playbook on a lab: deploy, drive, capture, analyse, judge, report",
		Long: "Run a playbook on a lab. A lab with a virtual: section is raised first and taken down afterwards. A playbook with repeat:,\n" +
			"warmup: or matrix: is a sweep: each run raises a lab of its own, and a table per cell comes last (docs/sweeps.md).\n\n" +
			"First Ctrl-C: stop traffic, drain captures, restore, keep what was measured; a sweep can be resumed. Second: stop at once;\n" +
			"guards on the hosts still clean up.",
		Example: "  pcmlab run playbooks/incast-3to1.yaml -i labs/virtual-4.yaml\n" +
			"  pcmlab run playbooks/incast-3to1.yaml -i labs/virtual-4.yaml --set nic.dcqcn=off --set link.buffer=64KiB\n" +
			"  pcmlab run playbooks/incast-3to1.yaml -i labs/virtual-4.yaml --repeat 10 --detach\n" +
			"  pcmlab run playbooks/regression/incast.yaml -i playbooks/regression/lab.yaml --repeat 5 \\\n" +
			"      --baseline playbooks/regression/baselines/incast.json --junit junit.xml\n" +
			"  pcmlab run --resume runs/20261130-061823.123-incast-3to1-sweep",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeFiles("yaml", "yml"),
		RunE:              func(c *cobra.Command, args []string) error { return e.run(c.Context(), &o, args, c.UseLine()) },
	}
	o.addFlags(cmd)
	return cmd
}

func completeFiles(ext ...string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return ext, cobra.ShellCompDirectiveFilterFileExt
	}
}

// check finds flags that do not go together, before anything is read.
func (o *runOptions) check(args []string, use string) error {
	var errs []error
	if len(args) == 0 && o.resume == "" {
		errs = append(errs, usagef("pcmlab run: need a playbook (or --resume SWEEP)\nusage: %s", use))
	}
	if o.lab == "" && o.resume == "" {
		errs = append(errs, usagef("pcmlab run: required flag(s) \"inventory\" not set\nusage: %s", use))
	}
	if o.force && o.resume == "" {
		errs = append(errs, usagef("--force belongs to --resume"))
	}
	if o.repeat < 0 || o.budget < 0 || o.wait < 0 {
		errs = append(errs, usagef("--repeat, --budget and --wait cannot be below 0"))
	}
	return errors.Join(append(errs, checkOutput(o.output, "table", "json"), o.ci.check())...)
}

func (e *env) run(ctx context.Context, o *runOptions, args []string, use string) error {
	if err := o.check(args, use); err != nil {
		return err
	}
	j, err := e.prepare(ctx, o, args)
	if err != nil {
		return err
	}
	switch as := os.Getenv(detachedAs); {
	case as != "":
		os.Unsetenv(detachedAs)
		j.name(as)
	case o.detach:
		return e.detach(ctx, o, j)
	}
	said := context.AfterFunc(ctx, func() {
		if !e.quiet {
			fmt.Fprintln(e.stderr, "interrupted: traffic is stopped, what was measured is kept; once more ends at once, and guards on the hosts clean up")
		}
	})
	defer said()
	if j.sweep != nil {
		err = e.runSweep(ctx, o, j)
	} else {
		err = e.runOnce(ctx, o, j)
	}
	return o.ci.finishRun(e, err, j.playbook, j.dir, o.output)
}

// job is what one call of run does, read and checked.
type job struct {
	playbook *experiments.Playbook
	lab      *inventory.Lab
	sets     []experiments.Param
	cells    []experiments.Cell
	id       string
	dir      string             // of the run or sweep
	sweep    *experiments.Sweep // nil: one run
	resumed  *experiments.Resumption

	playbookText, labText []byte // of a sweep, as given
}

// name gives the run or sweep another id.
func (j *job) name(id string) {
	if j.resumed != nil {
		return
	}
	j.dir = filepath.Join(filepath.Dir(j.dir), id)
	j.id = id
	if j.sweep != nil {
		j.sweep.ID = id
		for i := range j.sweep.Trials {
			j.sweep.Trials[i].Sweep = id
		}
	}
}

// prepare reads, resolves and plans everything. It touches nothing, but asks hosts that are there already what they are when a sweep
// begins on them.
func (e *env) prepare(ctx context.Context, o *runOptions, args []string) (*job, error) {
	if o.resume != "" {
		return e.prepareResume(ctx, o, args)
	}
	p, lab, sets, err := loadBoth(args[0], o.lab, o.allSets(o.sets))
	if err != nil {
		return nil, err
	}
	p = o.adjust(p)
	out, err := filepath.Abs(o.out)
	if err != nil {
		return nil, err
	}
	j := &job{playbook: p, lab: lab, sets: sets}
	if j.cells, err = resolve(p, lab); err != nil {
		return nil, err
	}
	if !p.IsSweep() {
		if o.budget > 0 {
			return nil, usagef("--budget: this is one run, not a sweep (repeat:, matrix: or --repeat make one)")
		}
		j.id = experiments.NewRunID(p.Name, time.Now())
		j.dir = filepath.Join(out, j.id)
		return j, nil
	}
	if o.keep {
		return nil, usagef("--keep-lab: each run of a sweep raises a lab of its own; raise one with 'pcmlab lab up' and name it with -i")
	}
	j.id = experiments.NewRunID(p.Name+"-sweep", time.Now())
	j.dir = filepath.Join(out, j.id)
	return j, e.layOut(ctx, o, j, args[0], o.lab)
}

// allSets are --set, and --seed in its own words.
func (o *runOptions) allSets(sets []string) []string {
	if o.seed == 0 {
		return sets
	}
	sets = slices.DeleteFunc(slices.Clone(sets), func(s string) bool { return strings.HasPrefix(s, "seed=") })
	return append(sets, fmt.Sprintf("seed=%d", o.seed))
}

// adjust applies the flags that stand for how often a playbook is run.
func (o *runOptions) adjust(p *experiments.Playbook) *experiments.Playbook {
	changed := *p
	if o.repeat > 0 {
		changed.Repeat = o.repeat
	}
	return &changed
}

// runOnce does one run as a whole.
func (e *env) runOnce(ctx context.Context, o *runOptions, j *job) error {
	show := e.newProgress(j.playbook)
	defer show.stop()
	l := newLive(j, "run", 1)
	defer l.close()
	overhead, basis := experiments.Overhead(experiments.FormerOverheads(filepath.Dir(j.dir), j.lab.Name))
	l.begin(nil, 1, j.cells[0].Plan.Duration+overhead, 0, basis)
	result, runErr := e.launch(ctx, launch{playbook: j.cells[0].Playbook, lab: j.cells[0].Lab, out: filepath.Dir(j.dir), folder: j.id, id: j.id,
		sets: j.sets, seed: j.playbook.Seed, keep: o.keep, wait: o.wait, step: show.step, event: func(ev experiments.Event) { show.event(ev); l.event(ev) }})
	show.stop()
	l.end(ctx, result, runErr)
	if result == nil {
		return runErr
	}
	e.noteRun(ctx, filepath.Dir(j.dir), o.store, result.Dir)
	if o.output == "json" {
		if err := writeJSON(e.stdout, result); err != nil {
			return err
		}
	} else if err := e.printResult(result, j.playbook); err != nil {
		return err
	}
	return errors.Join(runErr, verdictError(result))
}

// launch is one run on a lab that is up, or that is raised for it.
type launch struct {
	playbook    *experiments.Playbook
	lab         *inventory.Lab
	out, folder string
	id          string
	trial       *experiments.Trial
	sets        []experiments.Param
	seed        uint64 // of what the lab draws
	keep        bool
	wait        time.Duration // for locks of others
	step        func(format string, a ...any)
	event       func(experiments.Event)
}

func (e *env) launch(ctx context.Context, l launch) (result *experiments.Result, ret error) {
	raised, made := l.lab, any(nil)
	if l.lab.Virtual != nil && !isUp(l.lab) {
		inst, down, err := e.raise(ctx, l.lab, l.keep, l.seed, l.step)
		if err != nil {
			return nil, err
		}
		defer func() { ret = errors.Join(ret, down()) }()
		raised, made = inst.Lab(), inst.Provenance()
	}
	pool, err := remote.NewPool(raised, remote.Options{Run: l.id, Log: e.log})
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	sets := map[string]string{}
	for _, s := range l.sets {
		sets[s.Key] = s.Value
	}
	r := &experiments.Runner{Playbook: l.playbook, Lab: raised, Backends: backends(), Switches: map[string]experiments.SwitchKind{"fabric": experiments.SoftwareSwitch{}},
		Dial: pool.Host, Out: l.out, Folder: l.folder, ID: pool.Run(), Command: os.Args, Sets: sets, Seed: l.seed, Trial: l.trial, Made: made, Wait: l.wait, Progress: l.event}
	return r.Run(ctx)
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
