package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/nicbackends/cpu"
	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/bench"
	"github.com/pcmlab/pcmlab/pcm/handlers"
)

type benchOptions struct {
	buildFlags
	all, fixed     bool
	mixes, modes   []string
	seed           uint64
	seeds          int
	flows, workers []int
	order          string
	events, repeat int
	time           time.Duration
	rates          []string
	output         string

	budget []units.Rate
}

func newHandlerBench(e *env) *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench [NAME...]",
		Short: "Measure what a call of a handler costs",
		Long: "Measure what a call of a handler costs, by replay of generated traces over many flows, in a program in C that is built with the flags of\n" +
			"the shells and pinned to cores. Beside each handler stand the empty call, what is only gathered, triggers that do not fire, a handler that\n" +
			"does nothing, and its law written by hand without the runtime where there is that (" + strings.Join(bench.Natives(), ", ") + "). Without a NAME it is swift.\n\n" +
			"All of them take turns: trust the ratios more than the times. A figure that is doubtful says why. See docs/handlers.md.",
		Example: "  pcmlab handler bench\n" +
			"  pcmlab handler bench swift dctcp --flows 1,1024,131072 --order interleaved\n" +
			"  pcmlab handler bench swift --fixed -o json\n" +
			"  pcmlab handler bench ./mycc --mix ecn --workers 2",
		Args: cobra.ArbitraryArgs, ValidArgsFunction: completeHandlers,
		RunE: func(c *cobra.Command, args []string) error { return e.runHandlerBench(c, &o, args) },
	}
	o.add(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "every handler of the library")
	f.BoolVar(&o.fixed, "fixed", false, "also Swift in fixed point: by reciprocals, digit by digit and by Newton's method, with and without a divide")
	f.StringSliceVar(&o.mixes, "mix", nil, "traces: ack, ecn, loss, mixed; for receivers pull0, pull25, pull50, pull75 (all of them)")
	f.StringSliceVar(&o.modes, "mode", nil, "where the handler runs: sync, alone (asynchronous, both halves in one thread), other (on another core) (all of them)")
	f.Uint64Var(&o.seed, "seed", 1, "first seed of the traces")
	f.IntVar(&o.seeds, "seeds", 3, "how many seeds")
	f.IntSliceVar(&o.flows, "flows", []int{1024}, "flows that take turns, 1 to 131072 and more")
	f.StringVar(&o.order, "order", bench.RoundRobin, "how they take turns: round-robin or interleaved")
	f.IntSliceVar(&o.workers, "workers", []int{1}, "threads that share the flows, each pinned to a core")
	f.IntVar(&o.events, "events", 0, "events in one measurement, of any row (as many as take --time)")
	f.DurationVar(&o.time, "time", 5*time.Millisecond, "how long one measurement takes")
	f.IntVar(&o.repeat, "repeat", 5, "measurements of each trace")
	f.StringSliceVar(&o.rates, "rate", []string{"100Gbps", "400Gbps", "800Gbps", "1.6Tbps"}, "link rates that the budget of reactions is worked out for")
	f.StringVarP(&o.output, "output", "o", "table", "table, json or csv")
	return cmd
}

// check finds what is wrong with the flags before anything is built.
func (o *benchOptions) check(args []string) ([]string, error) {
	if err := checkOutput(o.output, "table", "json", "csv"); err != nil {
		return nil, err
	}
	switch {
	case o.all && len(args) > 0:
		return nil, usagef("--all is every handler of the library: name none, or leave it out")
	case o.all:
		args = handlers.Names()
	case len(args) == 0:
		args = []string{"swift"}
	}
	for i, a := range args {
		if slices.Contains(args[:i], a) {
			return nil, usagef("handler %s is named twice", a)
		}
	}
	var known []string
	for _, k := range []bench.Kind{bench.Sender, bench.Receiver} {
		for _, m := range bench.Mixes(k) {
			known = append(known, m.Name)
		}
	}
	for _, m := range o.mixes {
		if !slices.Contains(known, m) {
			return nil, usagef("--mix %q: no such trace (%s)", m, spec.Suggest(m, known))
		}
	}
	modes := []string{string(bench.Sync), string(bench.Alone), string(bench.Other)}
	for _, m := range o.modes {
		if !slices.Contains(modes, m) {
			return nil, usagef("--mode %q: need sync, alone or other", m)
		}
	}
	if o.order != bench.RoundRobin && o.order != bench.Interleaved {
		return nil, usagef("--order %q: need %s or %s", o.order, bench.RoundRobin, bench.Interleaved)
	}
	most := len(usableCores())
	for _, n := range o.workers {
		if n < 1 || n > most {
			return nil, usagef("--workers %d: need 1 to %d, the hardware threads that this program may use", n, most)
		}
	}
	for _, n := range o.flows {
		if n < 1 || n > bench.MaxFlows {
			return nil, usagef("--flows %d: need 1 to %d", n, bench.MaxFlows)
		}
		if most := slices.Max(o.workers); n < most {
			return nil, usagef("--flows %d: %d workers share them, so there must be as many at least", n, most)
		}
	}
	for _, n := range []struct {
		flag          string
		v, least, top int
	}{{"events", o.events, 0, 1 << 30}, {"repeat", o.repeat, 1, 1000}, {"seeds", o.seeds, 1, 100}} {
		if n.v < n.least || n.v > n.top {
			return nil, usagef("--%s %d: need %d to %d", n.flag, n.v, n.least, n.top)
		}
	}
	if _, err := pcm.ParseFormat(o.frac); o.frac != "" && err != nil {
		return nil, usagef("--frac: %w", err)
	}
	if o.time < time.Microsecond || o.time > time.Minute {
		return nil, usagef("--time %v: need 1us to 1m", o.time)
	}
	o.budget = nil
	for _, text := range o.rates {
		r, err := units.ParseRate(text)
		if err != nil || r <= 0 {
			return nil, usagef("--rate %q: need a rate, such as 400Gbps", text)
		}
		o.budget = append(o.budget, r)
	}
	return args, nil
}

func (e *env) runHandlerBench(c *cobra.Command, o *benchOptions, args []string) error {
	names, err := o.check(args)
	if err != nil {
		return err
	}
	if runtime.GOOS != "linux" {
		return &codedError{exitInfra, errors.New("handler bench: needs Linux, which lets a program pin its threads to cores")}
	}
	return inFolder(func(dir string) error {
		b := &benchRun{env: e, c: c, o: o, dir: dir, natives: map[string]string{}}
		if err := b.build(names); err != nil {
			return err
		}
		if err := b.measure(c.Context()); err != nil {
			return err
		}
		return b.print()
	})
}

// form is one thing to measure: a shared object, and how it is called.
type form struct {
	what, form string // "swift", "shell"; form is also "base" or "hand-written"
	note       string
	object     string
	mode       bench.Mode
	kind       bench.Kind // "": of every kind
	beside     int        // index of the form that it is held against, or -1
	flowBytes  int
}

type benchRun struct {
	*env
	c       *cobra.Command
	o       *benchOptions
	dir     string
	program string
	forms   []form
	natives map[string]string
	path    bench.Path
	results []measured
	load    float64 // of others; negative: not known
	cores   []bench.Core
	skipped []string // what could not be measured, and why
}

func (o *benchOptions) has(m bench.Mode) bool {
	return len(o.modes) == 0 || slices.Contains(o.modes, string(m))
}

// compile makes a shared object of a folder that write fills.
func (b *benchRun) compile(name, unit string, program bool, write func(dir string) error) (string, error) {
	dir := filepath.Join(b.dir, name+".src")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if err := write(dir); err != nil {
		return "", err
	}
	out := filepath.Join(b.dir, name)
	return out, cpu.Compile(b.c.Context(), dir, unit, out, program, cpu.Options{CC: b.o.cc})
}

func (b *benchRun) build(names []string) (err error) {
	if b.program, err = b.compile("bench", "bench.c", true, bench.WriteProgram); err != nil {
		return err
	}
	call, err := b.compile("call.so", "native.c", false, func(dir string) error { return bench.WriteNative(nil, dir) })
	if err != nil {
		return err
	}
	b.cores = bench.Cores("/sys", usableCores())
	if len(bench.Placements(b.cores)) == 0 && b.o.has(bench.Other) {
		b.skipped = append(b.skipped, "the control plane on another core: this machine has one hardware thread")
	}
	for _, m := range []bench.Mode{bench.Sync, bench.Alone, bench.Other} {
		if m == bench.Sync || b.o.has(m) && (m == bench.Alone || len(bench.Placements(b.cores)) > 0) {
			b.add(form{what: "empty call", form: "base", object: call, mode: m, beside: -1})
		}
	}
	for _, name := range bench.Base {
		p, err := bench.LoadBase(name)
		if err != nil {
			return err
		}
		what := map[string]string{"accumulate": "gathered only", "idle": "idle triggers", "empty": "empty handler"}[name]
		modes := []bench.Mode{bench.Sync}
		if name == "empty" {
			modes = append(modes, bench.Alone, bench.Other)
		}
		if err := b.shells(p, form{what: what, form: "base", beside: -1}, modes, cpu.Options{CC: b.o.cc, Frac: b.o.frac}); err != nil {
			return err
		}
	}
	for i, name := range names {
		if err := b.handler(name, i == 0); err != nil {
			return err
		}
	}
	if b.o.fixed {
		return b.fractions()
	}
	return nil
}

// handler adds a package's shells, and its hand-written form.
func (b *benchRun) handler(name string, first bool) error {
	p, err := b.soundPackage(b.c, &b.o.handlerFlags, name, "cpu", b.o.options())
	if err != nil {
		return err
	}
	kind := bench.Kind(p.Kind)
	var mixes []string
	for _, m := range bench.Mixes(kind) {
		mixes = append(mixes, m.Name)
	}
	if len(b.o.mixes) > 0 && !slices.ContainsFunc(b.o.mixes, func(m string) bool { return slices.Contains(mixes, m) }) {
		return usagef("--mix %s: handler %s is a %s, whose traces are %s", strings.Join(b.o.mixes, ","), name, kind, strings.Join(mixes, ", "))
	}
	if first {
		b.path = bench.PathOf(p.Fabric)
	}
	beside := -1
	if bench.HasNative(p) {
		object, err := b.compile(fmt.Sprintf("native-%d.so", len(b.forms)), "native.c", false, func(dir string) error { return bench.WriteNative(p, dir) })
		if err != nil {
			return err
		}
		beside = b.add(form{what: p.Name, form: "hand-written", object: object, mode: bench.Sync, kind: kind, beside: -1})
	}
	return b.shells(p, form{what: p.Name, form: "shell", kind: kind, beside: beside}, []bench.Mode{bench.Sync, bench.Alone, bench.Other}, cpu.Options{CC: b.o.cc, Frac: b.o.frac})
}

func (b *benchRun) add(f form) int {
	b.forms = append(b.forms, f)
	return len(b.forms) - 1
}

// shells adds a package in the modes that were asked for.
func (b *benchRun) shells(p *pcm.Package, f form, modes []bench.Mode, o cpu.Options) error {
	objects := map[bool]string{} // by whether it is asynchronous
	for _, m := range modes {
		async := m != bench.Sync
		if !b.o.has(m) && !(m == bench.Sync && f.form == "base") || m == bench.Other && len(bench.Placements(b.cores)) == 0 {
			continue
		}
		if async {
			o.Snapshot = benchSnapshot
		}
		if objects[async] == "" {
			q, err := o.Package(p)
			if err != nil {
				return err
			}
			objects[async] = filepath.Join(b.dir, fmt.Sprintf("%d-%s.so", len(b.forms), p.Name))
			if err := cpu.Build(b.c.Context(), q, objects[async], o); err != nil {
				return err
			}
		}
		g := f
		g.mode, g.object = m, objects[async]
		b.add(g)
	}
	return nil
}

// benchSnapshot is the policy of the asynchronous shells: the paper's.
const benchSnapshot = "relaxed"

// fractions adds Swift in fixed point in the ways of the paper (figure 6 b), with the machine's divide and without one.
func (b *benchRun) fractions() error {
	for _, soft := range []bool{true, false} {
		beside := -1
		for _, way := range []struct {
			key, handler, what string
			flags              []string
		}{
			{"transformed", "swift", "reciprocals", nil},
			{"digit", "swift_divide", "digit by digit", nil},
			{"newton", "swift_divide", "Newton", []string{"-DPCM_SQRT_NEWTON"}},
		} {
			p, err := handlers.Load(way.handler, pcm.Deployment{})
			if err != nil {
				return err
			}
			o := cpu.Options{CC: b.o.cc, Frac: "q32.32", Flags: way.flags}
			what, note := way.what, ""
			if soft {
				o.Flags = append([]string{"-DPCM_SOFTDIV"}, o.Flags...)
				what, note = what+", soft", "Swift with divides in software; on the paper's core "+bench.PaperFractions[way.key]
			}
			before := len(b.forms)
			f := form{what: what, form: fixedPoint, kind: bench.Sender, note: note, beside: beside}
			if err := b.shells(p, f, []bench.Mode{bench.Sync}, o); err != nil {
				return err
			}
			if beside < 0 {
				beside = before
			}
		}
	}
	return nil
}

// measured is the figure of one form over one trace.
type measured struct {
	form
	mix            string
	traced         bench.Kind
	flows, workers int
	placement      string
	figure         bench.Figure
	ratio          float64 // to the form that it is held against; 0: none
	above          float64 // ns above the empty call
	sums           []uint64
}

func (b *benchRun) measure(ctx context.Context) error {
	kinds := []bench.Kind{}
	for _, f := range b.forms {
		if f.kind != "" && !slices.Contains(kinds, f.kind) {
			kinds = append(kinds, f.kind)
		}
	}
	before, readErr := bench.ReadTicks("/proc/stat")
	own := ownSeconds()
	for _, kind := range kinds {
		for _, workers := range b.o.workers {
			for _, flows := range b.o.flows {
				for _, mix := range bench.Mixes(kind) {
					if len(b.o.mixes) > 0 && !slices.Contains(b.o.mixes, mix.Name) {
						continue
					}
					if err := b.mix(ctx, kind, mix, flows, workers); err != nil {
						return err
					}
				}
			}
		}
	}
	b.load = -1
	if after, err := bench.ReadTicks("/proc/stat"); err == nil && readErr == nil {
		b.load = bench.Load(before, after, ownSeconds()-own, clockTicks)
	}
	return nil
}

// traceEvents is the length of a trace: far beyond what a branch predictor learns by heart.
const traceEvents = 1 << 16

// mix measures all forms of a kind over the seeds of one mix.
func (b *benchRun) mix(ctx context.Context, kind bench.Kind, mix bench.Mix, flows, workers int) error {
	order, err := bench.Order(flows, b.o.order, b.o.seed, traceEvents)
	if err != nil {
		return err
	}
	job := bench.Job{Trace: filepath.Join(b.dir, "trace"), Order: filepath.Join(b.dir, "order"), Flows: flows, Least: 2 * flows, Time: b.o.time, Repeat: b.o.repeat}
	if b.o.events > 0 {
		job.Least, job.Time = b.o.events, 0
	}
	if err := os.WriteFile(job.Order, bench.AppendOrder(nil, order), 0o644); err != nil {
		return err
	}
	var of []int // forms of the rows
	var where []string
	threads, err := bench.Spread(b.cores, workers)
	if err != nil {
		return usagef("--workers: %w", err)
	}
	for i, f := range b.forms {
		switch {
		case f.kind != "" && f.kind != kind:
		case f.mode != bench.Other:
			job.Rows, of, where = append(job.Rows, bench.Row{Object: f.object, Mode: f.mode, Cores: threads}), append(of, i), append(where, coresText(threads))
		case workers == 1:
			for _, p := range bench.Placements(b.cores) {
				job.Rows, of = append(job.Rows, bench.Row{Object: f.object, Mode: f.mode, Cores: []int{p.Datapath, p.Control}}), append(of, i)
				where = append(where, fmt.Sprintf("%s %d+%d", p.Name, p.Datapath, p.Control))
			}
		case len(b.cores) >= 2*workers:
			all, err := bench.Spread(b.cores, 2*workers)
			if err != nil {
				return err
			}
			job.Rows, of, where = append(job.Rows, bench.Row{Object: f.object, Mode: f.mode, Cores: all}), append(of, i), append(where, coresText(all))
		}
	}
	samples := make([][]bench.Sample, len(job.Rows))
	for s := range b.o.seeds {
		events := bench.Generate(kind, mix, b.path, b.o.seed+uint64(s), traceEvents)
		if err := os.WriteFile(job.Trace, bench.AppendEvents(nil, events), 0o644); err != nil {
			return err
		}
		all, err := bench.Run(ctx, b.program, job)
		if err != nil {
			return err
		}
		for _, one := range all {
			samples[one.Row] = append(samples[one.Row], one)
		}
	}
	for i, row := range job.Rows {
		f := b.forms[of[i]]
		m := measured{form: f, mix: mix.Name, traced: kind, flows: flows, workers: workers, placement: where[i], figure: bench.Summary(samples[i], row)}
		if f.beside >= 0 {
			j := slices.Index(of, f.beside)
			m.ratio = bench.Ratio(samples[i], samples[j], row, job.Rows[j])
		}
		m.above = m.figure.Median - bench.Summary(samples[0], job.Rows[0]).Median
		for _, s := range samples[i] {
			m.sums = append(m.sums, s.Sum)
		}
		b.results = append(b.results, m)
	}
	return nil
}

func coresText(cores []int) string {
	if len(cores) == 1 {
		return fmt.Sprintf("core %d", cores[0])
	}
	var all []string
	for _, c := range cores {
		all = append(all, fmt.Sprint(c))
	}
	return "cores " + strings.Join(all, ",")
}
