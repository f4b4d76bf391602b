package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/pcm"
)

// Options of a check.
type Options struct {
	Platform *pcm.Platform // nil: cpu, which has everything
	Strict   bool          // what cannot be proven is a mistake
	CC       string        // C compiler of the host; "" means cc
	Snapshot pcm.Snapshot  // of the shell that it is to run in
}

// Report is what was found.
type Report struct {
	Package  *pcm.Package // also with mistakes; nil when the file could not be read as a package at all
	Platform string
	Findings []Finding
	Notes    []string // what the platform adapts
}

// Count is the number of findings of a severity.
func (r *Report) Count(s Severity) int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

// File checks the package in a file or folder. The error says that it could not be looked at; mistakes are in the report.
func File(ctx context.Context, path string, d pcm.Deployment, o Options) (*Report, error) {
	p, err := pcm.Load(path, d)
	var mistakes *spec.Errors
	if err != nil && !errors.As(err, &mistakes) {
		return nil, err
	}
	return run(ctx, p, mistakes, o)
}

// Package checks one that is loaded.
func Package(ctx context.Context, p *pcm.Package, o Options) (*Report, error) {
	return run(ctx, p, nil, o)
}

// checker gathers the findings of one package.
type checker struct {
	p        *pcm.Package
	o        Options
	report   *Report
	objects  map[string]*object
	order    []*object
	low      *lowering
	unproven map[place]bool
}

func run(ctx context.Context, p *pcm.Package, mistakes *spec.Errors, o Options) (*Report, error) {
	if o.Platform == nil {
		o.Platform, _ = pcm.PlatformNamed("cpu")
	}
	c := &checker{p: p, o: o, report: &Report{Package: p, Platform: o.Platform.Name}}
	if mistakes != nil {
		for _, m := range mistakes.Problems {
			c.add(Mistake, place{m.File, spec.Pos{Line: m.Line, Col: m.Col}}, "yaml", m.Fix, "%s", m.Message)
		}
	}
	if p == nil {
		c.report.Findings = sorted(c.report.Findings)
		return c.report, nil
	}
	c.objects, c.order = objectsOf(p)
	c.platform()
	if err := c.code(ctx, mistakes == nil); err != nil {
		return nil, err
	}
	c.report.Findings = sorted(c.report.Findings)
	return c.report, nil
}

func (c *checker) add(s Severity, at place, rule, fix, format string, a ...any) {
	c.report.Findings = append(c.report.Findings, Finding{at.file, max(1, at.Line), max(1, at.Col), s, rule, fmt.Sprintf(format, a...), fix})
}

func (c *checker) mistake(at place, rule, fix, format string, a ...any) {
	c.add(Mistake, at, rule, fix, format, a...)
}

// doubt is what could not be proven.
func (c *checker) doubt(at place, rule, fix, format string, a ...any) {
	s := Warning
	if c.o.Strict {
		s = Mistake
	}
	c.add(s, at, rule, fix, format, a...)
}

// platform names what the platform lacks.
func (c *checker) platform() {
	pl := c.o.Platform
	for _, g := range pl.Gaps(c.p) {
		at := place{c.p.File, c.p.Pos(g.Section, g.Index, "type")}
		switch g.Support {
		case pcm.Refused:
			c.add(Refusal, at, "capability", "", "platform %s: %s %s (%s): %s", pl.Name, strings.TrimSuffix(g.Section, "s"), g.Name, g.Source, g.Why)
		case pcm.Silent:
			c.report.Notes = append(c.report.Notes, fmt.Sprintf("%s: %s (%s) keeps its initial value: %s", pl.Name, g.Name, g.Source, g.Why))
		case pcm.Adapted:
			c.report.Notes = append(c.report.Notes, fmt.Sprintf("%s: %s (%s): %s", pl.Name, g.Name, g.Source, g.Why))
		}
	}
	c.paths()
	has := func(s pcm.Signal) bool { return s.Trigger != nil }
	any := false
	for _, s := range c.p.Signals {
		any = any || has(s)
	}
	if any && !pl.Wakes(c.p) {
		c.add(Refusal, place{c.p.File, c.p.Pos("signals")}, "capability", "", "platform %s: none of the signals with a trigger ever comes: the handler would never run", pl.Name)
	}
	if pl.Float {
		return
	}
	for i, v := range c.p.Vars {
		if v.Type == pcm.Float {
			c.add(Refusal, place{c.p.File, c.p.Pos("variables", i, "type")}, "float", "declare it frac, which is fixed point there", "platform %s has no floating point: variable %s", pl.Name, v.Name)
		}
	}
}

// paths warns of what one value cannot say (section 5.4 of the paper): an asynchronous shell gathers what several packets brought before the
// handler runs, and of their paths a LAST signal keeps one.
func (c *checker) paths() {
	if c.o.Snapshot == pcm.Synchronous {
		return
	}
	for i, s := range c.p.Signals {
		path := s.Source == pcm.ACKEV || s.Source == pcm.ECNEV || s.Source == pcm.NACKEV
		if support := c.o.Platform.Signals[s.Source].Support; path && s.Accum == pcm.Last && (support == pcm.Native || support == pcm.Adapted) {
			c.add(Warning, place{c.p.File, c.p.Pos("signals", i, "accumulation")}, "last-path", "a synchronous shell calls it for each packet",
				"a %s shell may gather several packets in one call: of their paths, %s keeps the last one alone, while counts are of all", c.o.Snapshot, s.Name)
		}
	}
}

// Overlaps names controls that more than one of the packages sets: handlers of one flow must not.
func Overlaps(packages ...*pcm.Package) []Finding {
	var out []Finding
	first := map[pcm.ControlKind]*pcm.Package{}
	for _, p := range packages {
		for i, ctl := range p.Controls {
			other := first[ctl.Kind]
			if other == nil {
				first[ctl.Kind] = p
				continue
			}
			at := p.Pos("controls", i, "type")
			out = append(out, Finding{p.File, at.Line, at.Col, Mistake, "overlap", fmt.Sprintf("control %s (%s) is set by %s, too: handlers of one flow must not share a control", ctl.Name, ctl.Kind, other.Name),
				"let one of them do it"})
		}
	}
	return sorted(out)
}

// code checks the C files.
func (c *checker) code(ctx context.Context, sound bool) error {
	whole := c.p.Name != ""
	for i, f := range c.p.C {
		if !whole && i == 0 {
			return nil // this is no package at all
		}
		if _, err := c.p.ReadFile(f); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			at := place{c.p.File, c.p.Pos("algorithm", "name")}
			if i > 0 {
				at = place{c.p.File, c.p.Pos("sources", i-1)}
			}
			c.mistake(at, "no-source", "write it, or name the package like its file", "there is no %s", f)
			whole = false
		}
	}
	if !whole {
		return nil
	}
	s, err := newSources(c.p)
	if err != nil {
		return err
	}
	defer s.close()
	if err := c.compile(ctx, s); err != nil {
		return err
	}
	ast, err := s.parse(c.o.CC, c.o.Platform)
	if err != nil {
		if c.report.Count(Mistake) == 0 { // nobody else said why
			at, why := s.failure(err)
			c.doubt(at, "not-read", "write it more simply", "the compiler takes this, but the checker cannot read it, so that accessors, loops and indices were not checked: %s", why)
		}
		return nil
	}
	c.tree(ast, s)
	if sound {
		c.unused()
	}
	return nil
}

// unused names objects that the package declares and the handler leaves alone.
func (c *checker) unused() {
	for _, o := range c.order {
		switch {
		case o.section == inControls && !o.written:
			c.add(Warning, o.at, "unused", "", "the handler never sets control %s: it keeps its initial value", o.name)
		case o.section == inSignals && !o.trigger && !o.read && !o.tested:
			c.add(Warning, o.at, "unused", "", "signal %s neither makes the handler run nor is read", o.name)
		}
	}
}
