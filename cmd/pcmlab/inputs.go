package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/inventory"
)

// loadBoth reads a playbook and a lab and applies --set values; mistakes of both files come at once.
func loadBoth(playbook, lab string, sets []string) (*experiments.Playbook, *inventory.Lab, []experiments.Param, error) {
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
	settings, err := parseSets(sets)
	if err != nil {
		return nil, nil, nil, err
	}
	p, err = applySets(p, l, settings)
	return p, l, settings, err
}

// applySets changes a playbook and a lab as --set says.
func applySets(p *experiments.Playbook, l *inventory.Lab, sets []experiments.Param) (*experiments.Playbook, error) {
	var own, labs []experiments.Param
	var errs []error
	for _, s := range sets {
		switch {
		case experiments.IsPlaybookKey(s.Key):
			own = append(own, s)
		case inventory.IsOverride(s.Key):
			labs = append(labs, s)
		default:
			errs = append(errs, usagef("--set %s=%s: %w", s.Key, s.Value, experiments.CheckKey(s.Key)))
		}
	}
	if p.Matrix != nil {
		for _, s := range sets {
			if slices.Contains(p.Matrix.Keys(), s.Key) {
				errs = append(errs, usagef("--set %s=%s: the playbook's matrix has this parameter", s.Key, s.Value))
			}
		}
	}
	errs = append(errs, checkLive(l, labs, "--set ")...)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(labs) > 0 {
		if err := inventory.OverrideAll(l, labSettings(labs)); err != nil {
			errs = append(errs, &codedError{exitUsage, err})
		}
	}
	if len(own) > 0 {
		changed, err := p.With(own)
		errs = append(errs, err)
		p = changed
	}
	return p, errors.Join(errs...)
}

// parseSets takes --set KEY=VALUE apart.
func parseSets(sets []string) ([]experiments.Param, error) {
	out := []experiments.Param{}
	var errs []error
	for _, s := range sets {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			errs = append(errs, usagef("--set %q: need KEY=VALUE, such as nic.dcqcn=off", s))
			continue
		}
		out = append(out, experiments.Param{Key: key, Value: value})
	}
	return out, errors.Join(errs...)
}

func labSettings(params []experiments.Param) []inventory.Setting {
	var out []inventory.Setting
	for _, p := range params {
		out = append(out, inventory.Setting{Key: p.Key, Value: p.Value})
	}
	return out
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

// resolve plans every cell before anything is raised.
func resolve(p *experiments.Playbook, lab *inventory.Lab) ([]experiments.Cell, error) {
	cells, err := p.Cells(lab, backends())
	if err != nil {
		return nil, err
	}
	if n := len(cells) * (p.Repeat + p.Warmup); n > experiments.MaxTrials {
		return nil, usagef("%d cells of %d runs each are %d trials: at most %d", len(cells), p.Repeat+p.Warmup, n, experiments.MaxTrials)
	}
	var errs []error
	said := map[string]bool{}
	for _, c := range cells {
		for _, param := range c.Params {
			if (inventory.IsOverride(param.Key) || param.Key == "seed") && !said[param.Key] { // a lab that is up draws as it was raised
				said[param.Key] = true
				errs = append(errs, checkLive(lab, []experiments.Param{param}, p.File+": matrix: ")...)
			}
		}
	}
	return cells, errors.Join(errs...)
}

// livePerRun are settings of a NIC that each run applies itself.
var livePerRun = []string{"dcqcn", "ecn", "dscp", "gid_index", "port", "handler"}

// checkLive finds settings that a lab which is there already does not take: they would be written down and have no effect.
func checkLive(l *inventory.Lab, params []experiments.Param, prefix string) []error {
	matrix := prefix != "--set "
	if !isUp(l) && (l.Virtual != nil || !matrix) { // --set describes hardware where the file is wrong
		return nil
	}
	where, fix := "lab "+l.Name+" is up", "give the lab's file with -i: each run then raises its own"
	if l.Virtual == nil {
		where, fix = "the lab's hosts are there already", "set it on the devices, and describe each setting in a lab file of its own"
	}
	var errs []error
	for _, p := range params {
		kind, rest, _ := strings.Cut(p.Key, ".")
		field := rest[strings.LastIndexByte(rest, '.')+1:]
		if kind == "nic" && slices.Contains(livePerRun, field) && (field != "dcqcn" && field != "handler" || allSoft(l)) {
			continue
		}
		errs = append(errs, &codedError{exitUsage, fmt.Errorf("%s%s=%s: %s, and does not take this setting (%s)", prefix, p.Key, p.Value, where, fix)})
	}
	return errs
}

// allSoft says that every NIC is one whose DCQCN and handler pcmlab sets itself.
func allSoft(l *inventory.Lab) bool {
	for _, h := range l.Hosts {
		for _, n := range h.NICs {
			if n.Backend != "softnic" {
				return false
			}
		}
	}
	return true
}
