package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/inventory/remote/knobs/mft"
)

func newPlanCommand(e *env) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:     "plan PLAYBOOK -i LAB",
		Short:   "Print exactly what a run would do, or what a sweep consists of and how long it takes, touching nothing",
		Example: "  pcmlab plan playbooks/incast-3to1.yaml -i labs/virtual-4.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkOutput(o.output, "table", "json"); err != nil {
				return err
			}
			p, l, _, err := loadBoth(args[0], o.lab, o.allSets(o.sets))
			if err != nil {
				return err
			}
			p = o.adjust(p)
			cells, err := resolve(p, l)
			if err != nil {
				return err
			}
			if p.IsSweep() {
				return e.printPreview(preview(&o, p, l.Name, cells), o.output)
			}
			plan := cells[0].Plan
			if o.output == "json" {
				return writeJSON(e.stdout, plan)
			}
			return e.printPlan(plan)
		},
	}
	cmd.Flags().StringVarP(&o.lab, "inventory", "i", "", "lab file, or the name of a virtual lab that is up")
	cmd.Flags().StringVar(&o.out, "out", "runs", "folder of former runs, from which the time is estimated")
	cmd.Flags().StringArrayVar(&o.sets, "set", nil, "change a value, as in run")
	cmd.Flags().IntVar(&o.repeat, "repeat", 0, "runs of each cell (what the playbook says)")
	cmd.Flags().Uint64Var(&o.seed, "seed", 0, "seed of a sweep's order (what the playbook says)")
	cmd.Flags().DurationVar(&o.budget, "budget", 0, "time of a sweep, as in run")
	cmd.Flags().StringVarP(&o.output, "output", "o", "table", "table or json")
	cmd.MarkFlagRequired("inventory")
	return cmd
}

func (e *env) printPlan(p *experiments.Plan) error {
	t := e.newTable("host", "reached at", "takes part by")
	for _, h := range p.Hosts {
		t.row(h.Name, h.Address, strings.Join(h.Parts, "\n"))
	}
	if err := t.print(); err != nil {
		return err
	}
	t = e.newTable("flow", "from", "to", "TCP port", "starts", "lasts")
	for _, f := range p.Flows {
		t.row(f.Name, f.From, f.To, fmt.Sprint(f.Port), f.Begin.String(), f.Duration.String())
	}
	if err := t.print(); err != nil {
		return err
	}
	if len(p.Settings) > 0 {
		t = e.newTable("setting of", "is changed, and put back", "to")
		for _, s := range p.Settings {
			to := s.Knob.Value
			if to == "" {
				to = s.Knob.TC
			}
			if to == "" {
				to = mft.Join(s.Knob.Set, ", ")
			}
			if to == "" {
				to = "-"
			}
			t.row(s.Host, s.Knob.String(), to)
		}
		if err := t.print(); err != nil {
			return err
		}
	}
	t = e.newTable("phase", "starts", "lasts", "flows", "measured")
	for _, ph := range p.Phases {
		t.row(ph.Name, ph.Begin.String(), ph.For.String(), strings.Join(ph.Flows, " "),
			fmt.Sprintf("%v to %v", ph.TrimStart, ph.For-ph.TrimEnd))
	}
	if err := t.print(); err != nil {
		return err
	}
	if len(p.Handlers) > 0 {
		t = e.newTable("handler", "on", "decides for", "match", "sets", "hash")
		for _, h := range p.Handlers {
			name, match := h.Name, h.Match
			if len(h.Set) > 0 {
				name += " (" + strings.Join(h.Set, ", ") + ")"
			}
			if match == "" {
				match = "all flows"
			}
			sets := strings.ReplaceAll(strings.Join(h.Controls, " "), "PCM_CTRL_", "")
			t.row(name, h.Host, strings.Join(h.Flows, " "), match, sets, h.Hash[:min(12, len(h.Hash))])
		}
		if err := t.print(); err != nil {
			return err
		}
	}
	if err := e.printPlannedRDCC(p.RDCC); err != nil {
		return err
	}
	fmt.Fprintln(e.stdout, "commands, each under a guard on its host:")
	for _, c := range p.Captures {
		fmt.Fprintf(e.stdout, "  %-4s %s\n", c.Host, shellLine(c.Command))
	}
	for _, f := range p.Flows {
		fmt.Fprintf(e.stdout, "  %-4s %s\n", f.ServerAt, strings.Join(f.Server, " "))
		fmt.Fprintf(e.stdout, "  %-4s %s\n", f.ClientAt, strings.Join(f.Client, " "))
	}
	for _, c := range p.Checks {
		if c.Skip != "" {
			fmt.Fprintf(e.stdout, "check %q will be skipped: %s\n", c.Name, c.Skip)
		}
	}
	for _, n := range p.Notes {
		fmt.Fprintln(e.stdout, "note:", n)
	}
	fmt.Fprintf(e.stdout, "phases take %v", p.Duration)
	if p.Scale != 1 {
		fmt.Fprintf(e.stdout, " (%v of hardware time at scale %g)", time.Duration(float64(p.Duration)/p.Scale), p.Scale)
	}
	fmt.Fprintln(e.stdout)
	return nil
}

// sweepPreview is what `plan` says of a sweep.
type sweepPreview struct {
	Schema   string                  `json:"schema"` // pcmlab/sweep-plan/v1
	Playbook string                  `json:"playbook"`
	Lab      string                  `json:"lab"`
	Seed     uint64                  `json:"seed"`
	Order    string                  `json:"order"`
	Repeat   int                     `json:"repeat"`
	Warmup   int                     `json:"warmup"`
	BudgetNS *int64                  `json:"budget_ns"`
	Cells    []experiments.SweepCell `json:"cells"`
	Trials   []experiments.Trial     `json:"trials"`
	Skips    []previewSkip           `json:"skips"`
	TotalNS  int64                   `json:"expected_ns"`
	Basis    string                  `json:"expected_basis"`
	LeftOut  int                     `json:"expected_left_out"` // by the budget
}

// previewSkip is a check that will not be judged in a cell.
type previewSkip struct {
	Cell  string `json:"cell"`
	Check string `json:"check"`
	Why   string `json:"why"`
}

func preview(o *runOptions, p *experiments.Playbook, lab string, cells []experiments.Cell) sweepPreview {
	s := experiments.NewSweep("", p, lab, cells, time.Now())
	if o.budget > 0 {
		s.BudgetNS = int64(o.budget)
	}
	overhead, basis := experiments.Overhead(experiments.FormerOverheads(o.out, lab))
	v := sweepPreview{Schema: "pcmlab/sweep-plan/v1", Playbook: p.Name, Lab: lab, Seed: s.Seed, Order: s.OrderName(), Repeat: s.Repeat, Warmup: s.Warmup, Cells: s.Cells, Trials: s.Trials,
		Skips: []previewSkip{}, Basis: basis}
	if s.BudgetNS > 0 {
		v.BudgetNS = &s.BudgetNS
	}
	for _, t := range s.Trials {
		takes := s.Cell(t.Cell).PhasesNS + int64(overhead)
		if s.BudgetNS > 0 && (v.LeftOut > 0 || v.TotalNS+takes > s.BudgetNS) {
			v.LeftOut++
			continue
		}
		v.TotalNS += takes
	}
	for _, c := range cells {
		for _, check := range c.Plan.Checks {
			if check.Skip != "" {
				v.Skips = append(v.Skips, previewSkip{c.ID, check.Name, check.Skip})
			}
		}
	}
	return v
}

func (e *env) printPreview(v sweepPreview, output string) error {
	if output == "json" {
		return writeJSON(e.stdout, v)
	}
	s := &experiments.Sweep{Cells: v.Cells}
	keys := parameters(s)
	t := e.newTable(append(append([]string{"cell"}, keys...), "phases take")...)
	for _, c := range v.Cells {
		row := []string{c.ID}
		for _, k := range keys {
			row = append(row, paramOf(c.Params, k))
		}
		t.row(append(row, time.Duration(c.PhasesNS).String())...)
	}
	if err := t.print(); err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "%d cells, %s each: %d runs, %s, seed %d\n", len(v.Cells), runsEach(v), len(v.Trials), v.Order, v.Seed)
	const shown = 8
	for i, tr := range v.Trials[:min(len(v.Trials), shown)] {
		fmt.Fprintf(e.stdout, "  %d. %s\n", i+1, trialName(tr))
	}
	if len(v.Trials) > shown {
		fmt.Fprintf(e.stdout, "  and %d more (-o json lists them)\n", len(v.Trials)-shown)
	}
	for i, skip := range v.Skips {
		if i == shown {
			fmt.Fprintf(e.stdout, "and %d more checks that will be skipped\n", len(v.Skips)-shown)
			break
		}
		fmt.Fprintf(e.stdout, "%s: check %q will be skipped: %s\n", skip.Cell, skip.Check, skip.Why)
	}
	fmt.Fprintf(e.stdout, "takes about %s (%s)\n", roughly(time.Duration(v.TotalNS)), v.Basis)
	if v.LeftOut > 0 {
		fmt.Fprintf(e.stdout, "the budget of %v will leave out the last %d runs\n", time.Duration(*v.BudgetNS), v.LeftOut)
	}
	return nil
}

func runsEach(v sweepPreview) string {
	text := fmt.Sprintf("%d repeats", v.Repeat)
	if v.Repeat == 1 {
		text = "1 repeat"
	}
	if v.Warmup > 0 {
		text += fmt.Sprintf(" and %d warm-ups", v.Warmup)
	}
	return text
}
