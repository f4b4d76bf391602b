// Package glue writes folders that build into C++ projects: the CPU's shell of a handler, and around it the code that joins it to the
// project's hook points. What the projects have in common is here; nicbackends/htsim and nicbackends/uccl hold the rest.
//
//	DIR/README.md         what to do with the folder, and what each signal and control is there
//	DIR/NAME_handler.h    whoever includes it runs the handler
//	DIR/NAME_shell.c      the shell, synchronous or not, with its interface kept to itself
//	DIR/pcm_PROJECT.h     the hook points
//	DIR/pcm_flow.h        the handlers of one flow
//	DIR/shell/            the shell as it is built for the CPU (cpu.WriteSources)
package glue

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/pcmlab/pcmlab/nicbackends/cpu"
	"github.com/pcmlab/pcmlab/pcm"
)

//go:embed common
var common embed.FS

// Project is what handlers are built into.
type Project struct {
	Platform string // its name among pcm.Platforms
	Program  string // what people call it
	Glue     string // the header with its hook points
	// Templates are those of its own, in the root of the file system. A file is a template of the text it becomes; NAME in its name is
	// the handler's.
	Templates fs.FS
	Feeds     map[pcm.Source]string      // where each signal comes from
	Obeys     map[pcm.ControlKind]string // where each control goes to
}

// leastPoll is how often, at most, a handler's clock is looked at when nothing happens, ns.
const leastPoll = 1000

// data is what templates see.
type data struct {
	Name, Description, Hash, Program, Glue string
	PollNS                                 uint64
	Sources                                []string // fields of an input, in order
	Kinds                                  []pcm.ControlKind
	Signals, Controls                      []row
	Window, Rate, Path, Credit             bool // it sets one
	Async                                  bool // the shell is asynchronous
	Snapshot                               string
}

// row is a line of the README's tables.
type row struct{ Name, Source, Where string }

// Write makes the folder dir, which must not be there or be empty, and lists its files, relative to it. A package that the platform
// refuses is not written.
func (pr *Project) Write(p *pcm.Package, dir string) (files []string, err error) {
	pl, err := pcm.PlatformNamed(pr.Platform)
	if err != nil {
		return nil, err
	}
	if err := refusal(pl, p); err != nil {
		return nil, err
	}
	d, err := pr.data(pl, p)
	if err != nil {
		return nil, err
	}
	if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
		return nil, fmt.Errorf("folder %s is not empty (name another one, or remove it)", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	making, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dir)), ".pcmlab-handler-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(making)
	if err := os.Chmod(making, 0o755); err != nil {
		return nil, err
	}
	shell := filepath.Join(making, "shell")
	if err := os.Mkdir(shell, 0o755); err != nil {
		return nil, err
	}
	if err := cpu.WriteSources(p, shell); err != nil {
		return nil, err
	}
	ours, err := fs.Sub(common, "common")
	if err != nil {
		return nil, err
	}
	for _, from := range []fs.FS{ours, pr.Templates} {
		if err := d.write(from, making); err != nil {
			return nil, err
		}
	}
	err = filepath.WalkDir(making, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(making, path)
			files = append(files, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // an empty folder gives way
		return nil, err
	}
	slices.Sort(files)
	return files, os.Rename(making, dir)
}

// refusal says what the platform cannot do, in the words of the checker.
func refusal(pl *pcm.Platform, p *pcm.Package) error {
	var all []error
	for _, g := range pl.Gaps(p) {
		if g.Support == pcm.Refused {
			all = append(all, fmt.Errorf("platform %s: %s %s (%s): %s", pl.Name, strings.TrimSuffix(g.Section, "s"), g.Name, g.Source, g.Why))
		}
	}
	if len(all) == 0 && !pl.Wakes(p) {
		all = append(all, fmt.Errorf("platform %s: none of the signals with a trigger ever comes: %s would never run", pl.Name, p.Name))
	}
	return errors.Join(all...)
}

func (pr *Project) data(pl *pcm.Platform, p *pcm.Package) (*data, error) {
	hash, err := p.Hash()
	if err != nil {
		return nil, err
	}
	d := &data{Name: p.Name, Description: p.Description, Hash: hash, Program: pr.Program, Glue: pr.Glue, PollNS: pollNS(p), Kinds: pcm.Controls(),
		Async: p.Snapshot != pcm.Synchronous, Snapshot: snapshot(p)}
	for _, s := range pcm.Sources() {
		d.Sources = append(d.Sources, s.Field())
	}
	for _, s := range p.Signals {
		c := pl.Signals[s.Source]
		where := pr.Feeds[s.Source]
		switch {
		case c.Support == pcm.Silent:
			where = "never: " + c.Why
		case s.Source == pcm.ElapsedTime || s.Source == pcm.Loopback:
			where = "the shell's own"
		case where == "":
			return nil, fmt.Errorf("platform %s has no hook point for %s", pl.Name, s.Source)
		}
		d.Signals = append(d.Signals, row{s.Name, s.Source.String(), where})
	}
	for _, c := range p.Controls {
		where := pr.Obeys[c.Kind]
		if where == "" {
			return nil, fmt.Errorf("platform %s has no hook point for %s", pl.Name, c.Kind)
		}
		d.Controls = append(d.Controls, row{c.Name, c.Kind.String(), where})
		d.Window = d.Window || c.Kind == pcm.CWND
		d.Rate = d.Rate || c.Kind == pcm.Rate
		d.Path = d.Path || c.Kind == pcm.EV
		d.Credit = d.Credit || c.Kind == pcm.PullNo
	}
	return d, nil
}

// snapshot says how the shell gives the handler its signals.
func snapshot(p *pcm.Package) string {
	if p.Snapshot == pcm.BoundedSkew {
		return fmt.Sprintf("%v, at most %d updates apart", p.Snapshot, p.Skew)
	}
	return p.Snapshot.String()
}

// pollNS is how often the handler has to be looked at although nothing happens: a trigger on its clock or on its loopback signal.
func pollNS(p *pcm.Package) (ns uint64) {
	unit := int64(1000)
	if p.Fabric != nil {
		unit = p.Fabric.TimeUnitPS
	}
	for _, s := range p.Signals {
		if s.Trigger == nil || s.Source != pcm.ElapsedTime && s.Source != pcm.Loopback {
			continue
		}
		every := uint64(leastPoll)
		if s.Source == pcm.ElapsedTime {
			every = max(every, s.Trigger.Threshold*uint64(unit)/1000)
		}
		if ns == 0 || every < ns {
			ns = every
		}
	}
	return ns
}

func (d *data) write(from fs.FS, dir string) error {
	return fs.WalkDir(from, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(from, path)
		if err != nil {
			return err
		}
		t, err := template.New(path).Option("missingkey=error").Parse(string(text))
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := t.Execute(&out, d); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, strings.ReplaceAll(path, "NAME", d.Name)), out.Bytes(), 0o644)
	})
}
