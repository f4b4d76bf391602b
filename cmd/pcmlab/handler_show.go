package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/pcm"
)

func newHandlerShow(e *env) *cobra.Command {
	var flags handlerFlags
	var output string
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Describe a package: objects, constants as resolved, hash, what makes it run",
		Example: "  pcmlab handler show swift\n  pcmlab handler show swift --set BETA=0.4 --fabric my-fabric.yaml",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: completeHandlers,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			p, err := flags.load(args[0])
			if err != nil {
				return err
			}
			d, err := described(p)
			if err != nil {
				return err
			}
			if output == "json" {
				return writeJSON(e.stdout, d)
			}
			return e.printHandler(d)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

type handlerDocument struct {
	Schema      string            `json:"schema"`
	Name        string            `json:"name"`
	Kind        string            `json:"kind"`
	Description string            `json:"description"`
	Hash        string            `json:"hash"`
	File        string            `json:"file"`
	Sources     []string          `json:"sources"`
	Fabric      string            `json:"fabric"`
	TimeUnit    string            `json:"time_unit"`
	FlowBytes   int               `json:"state_bytes"` // of signals, controls and variables
	Constants   []shownConstant   `json:"constants"`
	Signals     []shownSignal     `json:"signals"`
	Controls    []shownControl    `json:"controls"`
	Variables   []shownVariable   `json:"variables"`
	Platforms   map[string]string `json:"platforms"`
}

type shownConstant struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Value       string `json:"value"`
	Description string `json:"description"`
}

type shownSignal struct {
	Name    string `json:"name"`
	Source  string `json:"source"`
	Accum   string `json:"accumulation"`
	Trigger string `json:"trigger"`
	Reset   bool   `json:"reset_upon_trigger"`
}

type shownControl struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Initial uint64 `json:"initial"`
}

type shownVariable struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Initial string `json:"initial"`
	Length  *int   `json:"length"`
}

func described(p *pcm.Package) (*handlerDocument, error) {
	hash, err := p.Hash()
	if err != nil {
		return nil, &codedError{exitUsage, fmt.Errorf("handler %s: %w", p.Name, err)}
	}
	d := &handlerDocument{Schema: "pcmlab/handler/v1", Name: p.Name, Kind: p.Kind, Description: p.Description, Hash: hash, File: p.File, Fabric: p.Fabric.File,
		TimeUnit: timeUnit(p.Fabric.TimeUnitPS), FlowBytes: 8 * (len(p.Signals) + len(p.Controls) + p.Slots), Platforms: map[string]string{},
		Constants: []shownConstant{}, Signals: []shownSignal{}, Controls: []shownControl{}, Variables: []shownVariable{}}
	if p.FS != nil {
		d.File = "library: " + p.File
	}
	for _, c := range p.C {
		d.Sources = append(d.Sources, filepath.Base(c))
	}
	for _, c := range p.Constants {
		d.Constants = append(d.Constants, shownConstant{c.Name, c.Type.String(), c.Value.String(), c.Description})
	}
	for _, s := range p.Signals {
		d.Signals = append(d.Signals, shownSignal{s.Name, s.Source.Field(), lastWord(s.Accum.String()), triggerInWords(s), s.Reset})
	}
	for _, c := range p.Controls {
		d.Controls = append(d.Controls, shownControl{c.Name, c.Kind.Field(), c.Initial})
	}
	for _, v := range p.Vars {
		s := shownVariable{Name: v.Name, Type: v.Type.String(), Initial: v.Initial.String()}
		if v.Len > 0 {
			s.Length = &v.Len
		}
		d.Variables = append(d.Variables, s)
	}
	runs := map[string]bool{}
	for _, name := range listed(p).Platforms {
		runs[name] = true
	}
	for _, pl := range pcm.Platforms() {
		d.Platforms[pl.Name] = "yes"
		if !runs[pl.Name] {
			d.Platforms[pl.Name] = "no"
		}
		var gaps []string
		for _, g := range pl.Gaps(p) {
			gaps = append(gaps, g.Name+": "+g.Why)
		}
		if len(gaps) > 0 {
			d.Platforms[pl.Name] += " (" + strings.Join(gaps, "; ") + ")"
		}
	}
	return d, nil
}

func lastWord(s string) string { return s[strings.LastIndexByte(s, '_')+1:] }

func timeUnit(ps int64) string {
	return map[int64]string{1: "ps", 1000: "ns", 1_000_000: "us", 100_000: "tick (100 ns)"}[ps]
}

// triggerInWords says what makes the handler run.
func triggerInWords(s pcm.Signal) string {
	t := s.Trigger
	if t == nil {
		return "none: it is only read"
	}
	value := "it is"
	switch t.Mode {
	case pcm.Delta:
		value = "it has grown, since it last did, by"
	case pcm.Magnitude:
		value = "it has moved, since it last did, by"
	}
	words := map[pcm.Op]string{">": "more than", "<": "less than", ">=": "at least", "<=": "at most", "==": "exactly", "!=": "anything but"}
	if w, ok := words[t.Op]; ok {
		return fmt.Sprintf("runs when %s %s %d", value, w, t.Threshold)
	}
	return fmt.Sprintf("runs when %s such that x %s %d holds", value, t.Op, t.Threshold)
}

func (e *env) printHandler(d *handlerDocument) error {
	fmt.Fprintf(e.stdout, "%s (%s): %s\nhash %s\nof %s and %s, deployed with %s, times in %s, %d bytes of state a flow\n",
		d.Name, d.Kind, d.Description, d.Hash, d.File, strings.Join(d.Sources, " "), d.Fabric, d.TimeUnit, d.FlowBytes)
	t := e.newTable()
	t.columns([]analysis.Column{{Name: "signal"}, {Name: "reads"}, {Name: "gathers"}, {Name: "trigger", Wrap: true}, {Name: "then"}})
	for _, s := range d.Signals {
		then := "stays"
		if s.Reset {
			then = "is reset"
		}
		t.row(s.Name, s.Source, s.Accum, s.Trigger, then)
	}
	if err := t.print(); err != nil {
		return err
	}
	if len(d.Controls) > 0 {
		t = e.newTable("control", "sets", "begins with")
		for _, c := range d.Controls {
			t.row(c.Name, c.Kind, fmt.Sprint(c.Initial))
		}
		if err := t.print(); err != nil {
			return err
		}
	}
	if len(d.Constants) > 0 {
		t = e.newTable()
		t.columns([]analysis.Column{{Name: "constant"}, {Name: "type"}, {Name: "value"}, {Name: "meaning", Wrap: true}})
		for _, c := range d.Constants {
			t.row(c.Name, c.Type, c.Value, c.Description)
		}
		if err := t.print(); err != nil {
			return err
		}
	}
	if len(d.Variables) > 0 {
		t = e.newTable("variable", "type", "begins with", "elements")
		for _, v := range d.Variables {
			n := "-"
			if v.Length != nil {
				n = fmt.Sprint(*v.Length)
			}
			t.row(v.Name, v.Type, v.Initial, n)
		}
		if err := t.print(); err != nil {
			return err
		}
	}
	for _, pl := range pcm.Platforms() {
		fmt.Fprintf(e.stdout, "runs on %-8s %s\n", pl.Name+":", d.Platforms[pl.Name])
	}
	return nil
}
