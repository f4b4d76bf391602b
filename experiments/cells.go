package experiments

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends"
)

// Cell is one combination of parameters, ready to be run.
type Cell struct {
	ID       string
	Params   []Param
	Playbook *Playbook
	Lab      *inventory.Lab
	Plan     *Plan
	Inputs   string // InputsHash
}

// IsSweep says that a playbook is run more than once.
func (p *Playbook) IsSweep() bool { return p.Matrix != nil || p.Repeat > 1 || p.Warmup > 0 }

// CellCount is how many cells there are.
func (p *Playbook) CellCount() int {
	if p.Matrix == nil {
		return 1
	}
	return len(p.Matrix.cells)
}

// Cells resolves and plans every cell, in the order of the file. The error lists every mistake at its place in the matrix, with its
// cell.
func (p *Playbook) Cells(lab *inventory.Lab, backends nicbackends.Registry) ([]Cell, error) {
	raw := []matrixCell{{at: spec.P("repeat")}}
	if p.Matrix != nil {
		raw = p.Matrix.cells
		if _, err := NewPlan(p, lab, backends); err != nil { // at its own place, not once for each cell
			return nil, err
		}
	}
	copied := *p.doc
	doc := &copied
	said := map[string]bool{} // one value that is wrong is one mistake, whatever cells have it
	var cells []Cell
	for _, c := range raw {
		cell, mistakes, err := p.cell(c.params, lab, backends)
		if err != nil && len(c.params) == 0 {
			return nil, err // of the playbook itself, at its own places
		} else if err != nil {
			mistakes = append(mistakes, plain(err)...)
		}
		var fresh []string
		for _, m := range mistakes {
			if !said[m] {
				fresh = append(fresh, m)
			}
			said[m] = true
		}
		p.cellMistakes(doc, c, fresh, func(one Param) bool {
			_, bad, err := p.cell([]Param{one}, lab, backends)
			return len(bad) > 0 || err != nil
		})
		if cell != nil {
			cells = append(cells, *cell)
		}
	}
	if err := doc.Err(); err != nil {
		return nil, inputError(fmt.Errorf("%w\n(lab %s)", err, lab.File))
	}
	return cells, nil
}

// cell resolves one combination. Mistakes begin with the setting concerned; the error is one of the plan.
func (p *Playbook) cell(params []Param, lab *inventory.Lab, backends nicbackends.Registry) (*Cell, []string, error) {
	own, labParams := splitParams(params)
	variant, mistakes := p.variant(own, true)
	changed := *lab
	var settings []inventory.Setting
	for _, s := range labParams {
		settings = append(settings, inventory.Setting{Key: s.Key, Value: s.Value})
	}
	if len(settings) > 0 {
		if err := inventory.OverrideAll(&changed, settings); err != nil {
			for line := range strings.Lines(err.Error()) {
				mistakes = append(mistakes, strings.TrimSpace(strings.TrimPrefix(line, "--set ")))
			}
		}
	}
	if len(mistakes) > 0 {
		return nil, mistakes, nil
	}
	plan, err := NewPlan(variant, &changed, backends)
	if err != nil {
		return nil, nil, err
	}
	inputs, err := plan.inputs(variant, &changed)
	if err != nil {
		return nil, nil, err
	}
	return &Cell{ID: CellID(params), Params: listedParams(params), Playbook: variant, Lab: &changed, Plan: plan, Inputs: inputs}, nil, nil
}

func listedParams(p []Param) []Param {
	if p == nil {
		return []Param{}
	}
	return p
}

// plain is an error without places in a file.
func plain(err error) []string {
	var e *spec.Errors
	if !errors.As(err, &e) {
		return []string{err.Error()}
	}
	var out []string
	for _, p := range e.Problems {
		text := p.Message
		if p.Fix != "" {
			text += " (" + p.Fix + ")"
		}
		out = append(out, text)
	}
	return out
}
