package compare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/experiments"
)

// BaselineSchema is the first line of every baseline file.
const BaselineSchema = "pcmlab/baseline/v1"

// Baseline is what later runs are held against: the samples, not only their figures, so that the comparison is the same as
// with the runs themselves. It is a small JSON file that belongs into the repository of who keeps it.
type Baseline struct {
	Schema     string         `json:"schema"`
	Name       string         `json:"name"`
	Thresholds []string       `json:"thresholds"` // none: the default ones
	Cells      []BaselineCell `json:"cells"`      // by name
}

// BaselineCell is one cell. All lists of values are in the order of Runs; null was not measured.
type BaselineCell struct {
	Cell        string                `json:"cell"` // PLAYBOOK/CELL, as Group.Name
	Playbook    string                `json:"playbook"`
	Lab         string                `json:"lab"`
	TimeScale   float64               `json:"time_scale"`
	LineRateBps *float64              `json:"line_rate_bps"`
	Inputs      string                `json:"inputs_sha256"`
	Params      []experiments.Param   `json:"params"`
	Runs        []string              `json:"runs"`
	Traces      []string              `json:"traces"`     // SHA-256; "" when nothing was captured
	Provenance  map[string][]string   `json:"provenance"` // every value that the runs had
	Scores      map[string][]*float64 `json:"scores"`     // six significant digits
}

// NewBaseline makes a baseline of runs. Those that do not count are left out and returned, cell by cell; a cell in which no
// run counts is an error.
func NewBaseline(name string, groups []Group, thresholds []string, o Options) (*Baseline, []Excluded, error) {
	b := &Baseline{Schema: BaselineSchema, Name: name, Thresholds: append([]string{}, thresholds...), Cells: []BaselineCell{}}
	var left []Excluded
	var errs []error
	if _, err := ParseThresholds(thresholds); err != nil {
		errs = append(errs, err)
	}
	for i := range groups {
		side := newSide(&groups[i], &o)
		left = append(left, side.Excluded...)
		if len(side.used) == 0 {
			why := ""
			for _, x := range side.Excluded {
				why += fmt.Sprintf("\n  %s: %s", x.Run, x.Why)
			}
			errs = append(errs, fmt.Errorf("%w: cell %s: no run counts:%s", experiments.ErrData, groups[i].Name, why))
			continue
		}
		b.Cells = append(b.Cells, baselineCell(&groups[i], &side))
	}
	slices.SortFunc(b.Cells, func(x, y BaselineCell) int { return strings.Compare(x.Cell, y.Cell) })
	return b, left, errors.Join(errs...)
}

func baselineCell(g *Group, side *CellSide) BaselineCell {
	first := side.used[0]
	c := BaselineCell{Cell: g.Name, Playbook: first.Playbook, Lab: first.Lab, TimeScale: first.TimeScale, Inputs: first.Inputs, Params: append([]experiments.Param{}, g.Params...),
		Runs: side.Runs, Provenance: map[string][]string{}, Scores: map[string][]*float64{}}
	if first.LineRateBps != nil {
		c.LineRateBps = short(*first.LineRateBps)
	}
	for i, r := range side.used {
		c.Traces = append(c.Traces, text0(r.Trace))
		for k, v := range r.Provenance {
			if !slices.Contains(c.Provenance[k], v) {
				c.Provenance[k] = append(c.Provenance[k], v)
			}
		}
		for j := range r.Scores {
			s := &r.Scores[j]
			if s.Value == nil {
				continue
			}
			name := s.Name()
			if c.Scores[name] == nil {
				c.Scores[name] = make([]*float64, len(side.used))
			}
			c.Scores[name][i] = short(*s.Value)
		}
	}
	for _, v := range c.Provenance {
		slices.Sort(v)
	}
	return c
}

func text0(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// short keeps six significant digits.
func short(v float64) *float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	return &v
}

// Groups are the runs of a baseline as far as it knows them.
func (b *Baseline) Groups() []Group {
	var all []Group
	for i := range b.Cells {
		c := &b.Cells[i]
		g := Group{Name: c.Cell, Params: c.Params}
		names := make([]string, 0, len(c.Scores))
		for n := range c.Scores {
			names = append(names, n)
		}
		slices.Sort(names)
		for k, run := range c.Runs {
			s := &experiments.Summary{Run: run, Playbook: c.Playbook, Lab: c.Lab, State: experiments.StateComplete, Verdict: experiments.Pass, TimeScale: c.TimeScale,
				LineRateBps: c.LineRateBps, Inputs: c.Inputs, Provenance: map[string]string{}}
			if c.Traces[k] != "" {
				s.Trace = &c.Traces[k]
			}
			for key, values := range c.Provenance { // each value comes up once, whichever run had it
				if len(values) > 0 {
					s.Provenance[key] = values[k%len(values)]
				}
			}
			for _, n := range names {
				name, _, err := ParseScoreName(n)
				if err != nil { // Load refuses it
					continue
				}
				info, _ := experiments.Metric(name.Metric)
				s.Scores = append(s.Scores, experiments.Score{Metric: name.Metric, Phase: name.Phase, Flow: name.Flow, Value: c.Scores[n][k], Unit: info.Unit, Reason: "not measured in the baseline"})
			}
			g.Runs = append(g.Runs, s)
		}
		all = append(all, g)
	}
	return all
}

// Encode writes a baseline so that it can be read and compared line by line: cells and scores sorted, a score a line.
func (b *Baseline) Encode() ([]byte, error) {
	var out bytes.Buffer
	var failed error
	text := func(v any) string {
		var one bytes.Buffer
		enc := json.NewEncoder(&one)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			failed = errors.Join(failed, err)
		}
		return strings.TrimSpace(one.String())
	}
	list := func(indent string, items []string) {
		if len(items) > 0 {
			fmt.Fprintf(&out, "\n%s%s\n%s", indent, strings.Join(items, ",\n"+indent), indent[2:])
		}
	}
	fmt.Fprintf(&out, "{\n  \"schema\": %s,\n  \"name\": %s,\n  \"thresholds\": [", text(b.Schema), text(b.Name))
	var thresholds []string
	for _, t := range b.Thresholds {
		thresholds = append(thresholds, text(t))
	}
	list("    ", thresholds)
	out.WriteString("],\n  \"cells\": [")
	for i, c := range b.Cells {
		if i > 0 {
			out.WriteString(",")
		}
		out.WriteString("\n    {\n")
		for _, f := range []struct {
			key   string
			value any
		}{{"cell", c.Cell}, {"playbook", c.Playbook}, {"lab", c.Lab}, {"time_scale", c.TimeScale}, {"line_rate_bps", c.LineRateBps}, {"inputs_sha256", c.Inputs}, {"params", c.Params}} {
			fmt.Fprintf(&out, "      %s: %s,\n", text(f.key), text(f.value))
		}
		for _, l := range []struct {
			key   string
			items []string
		}{{"runs", c.Runs}, {"traces", c.Traces}} {
			fmt.Fprintf(&out, "      %s: [", text(l.key))
			var items []string
			for _, s := range l.items {
				items = append(items, text(s))
			}
			list("        ", items)
			out.WriteString("],\n")
		}
		out.WriteString("      \"provenance\": {")
		list("        ", sortedLines(c.Provenance, text))
		out.WriteString("},\n      \"scores\": {")
		list("        ", sortedLines(c.Scores, text))
		out.WriteString("}\n    }")
	}
	if len(b.Cells) > 0 {
		out.WriteString("\n  ")
	}
	out.WriteString("]\n}\n")
	return out.Bytes(), failed
}

func sortedLines[V any](m map[string]V, text func(any) string) []string {
	var lines []string
	for k, v := range m {
		lines = append(lines, text(k)+": "+text(v))
	}
	slices.Sort(lines)
	return lines
}

// Save writes the file whole or not at all.
func (b *Baseline) Save(path string) error {
	data, err := b.Encode()
	if err != nil {
		return fmt.Errorf("baseline %s: %w", b.Name, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("baseline %s: %w", b.Name, err)
	}
	return experiments.WriteAtomic(path, data)
}

// LoadBaseline reads a file that Save wrote, or that was edited since: all that is wrong with it comes at once.
func LoadBaseline(path string) (*Baseline, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: baseline %s: no such file", experiments.ErrInput, path)
	}
	if err != nil {
		return nil, fmt.Errorf("baseline: %w", err)
	}
	b := &Baseline{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(b); err != nil {
		return nil, fmt.Errorf("%w: baseline %s: %w", experiments.ErrInput, path, err)
	}
	if err := b.check(); err != nil {
		return nil, fmt.Errorf("%w: baseline %s:\n%w", experiments.ErrInput, path, err)
	}
	return b, nil
}

func (b *Baseline) check() error {
	if b.Schema != BaselineSchema {
		return fmt.Errorf("schema %q: this pcmlab reads %q", b.Schema, BaselineSchema)
	}
	_, err := ParseThresholds(b.Thresholds)
	errs := []error{err}
	if len(b.Cells) == 0 {
		errs = append(errs, errors.New("cells: there is none"))
	}
	for _, c := range b.Cells {
		if len(c.Runs) == 0 || len(c.Traces) != len(c.Runs) {
			errs = append(errs, fmt.Errorf("cell %s: %d runs and %d traces: each run has one", c.Cell, len(c.Runs), len(c.Traces)))
		}
		for name, values := range c.Scores {
			if _, _, err := ParseScoreName(name); err != nil {
				errs = append(errs, fmt.Errorf("cell %s: %w", c.Cell, err))
			}
			if len(values) != len(c.Runs) {
				errs = append(errs, fmt.Errorf("cell %s: %s: %d values for %d runs: write null where it was not measured", c.Cell, name, len(values), len(c.Runs)))
			}
		}
	}
	return errors.Join(errs...)
}
