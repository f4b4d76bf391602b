package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/inventory"
)

func newValidateCommand(e *env) *cobra.Command {
	var schema string
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check playbooks and lab files: every mistake at once, with its line",
		Long: "Check playbooks and lab files, told apart by their first words. Touches no host. Exits 2 when a file has mistakes.\n" +
			"With --schema, prints the JSON Schema that editors can use.",
		Example: "  pcmlab validate playbooks/*.yaml labs/*.yaml\n  pcmlab validate --schema lab > lab.schema.json",
		Args: func(c *cobra.Command, args []string) error {
			if schema == "" && len(args) == 0 {
				return errors.New("need at least one file")
			}
			return nil
		},
		ValidArgsFunction: completeFiles("yaml", "yml"),
		RunE: func(_ *cobra.Command, args []string) error {
			switch schema {
			case "":
			case "lab":
				_, err := e.stdout.Write(inventory.SchemaJSON)
				return err
			case "playbook":
				_, err := e.stdout.Write(experiments.SchemaPlaybook())
				return err
			default:
				return usagef("--schema %q: need lab or playbook", schema)
			}
			var errs []error
			for _, path := range args {
				what, err := validateFile(path)
				if err != nil {
					errs = append(errs, err)
					continue
				}
				if !e.quiet {
					fmt.Fprintf(e.stdout, "%s: %s, no mistakes\n", path, what)
				}
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().StringVar(&schema, "schema", "", "print the JSON Schema of labs or playbooks: lab or playbook")
	return cmd
}

func validateFile(path string) (what string, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", &codedError{exitUsage, err}
	}
	if kindOf(path) == "playbook" {
		p, err := experiments.ParsePlaybook(path, data)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("playbook %s, %d flows, %d phases", p.Name, len(p.Flows), len(p.Phases)), nil
	}
	l, err := inventory.Parse(path, data)
	if err != nil {
		return "", &codedError{exitUsage, err}
	}
	return fmt.Sprintf("lab %s, %d hosts", l.Name, len(l.Hosts)), nil
}

// kindOf tells lab files and playbooks apart by the keys that only one of them has: "lab", "playbook", or "" when it
// cannot tell.
func kindOf(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	kinds := map[string]string{"playbook": "playbook", "phases": "playbook", "flows": "playbook", "traffic": "playbook", "expect": "playbook",
		"lab": "lab", "links": "lab", "switches": "lab", "taps": "lab", "virtual": "lab"}
	for line := range strings.Lines(string(data)) {
		key, _, _ := strings.Cut(line, ":")
		if kind, ok := kinds[key]; ok {
			return kind
		}
	}
	return ""
}

func newPlanCommand(e *env) *cobra.Command {
	var lab, output string
	var sets []string
	cmd := &cobra.Command{
		Use:     "plan PLAYBOOK -i LAB",
		Short:   "Print exactly what a run would do, touching nothing",
		Example: "  pcmlab plan playbooks/incast-3to1.yaml -i labs/virtual-4.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			p, l, _, err := loadBoth(args[0], lab, sets)
			if err != nil {
				return err
			}
			plan, err := experiments.NewPlan(p, l, backends())
			if err != nil {
				return err
			}
			if output == "json" {
				return writeJSON(e.stdout, plan)
			}
			return e.printPlan(plan)
		},
	}
	cmd.Flags().StringVarP(&lab, "inventory", "i", "", "lab file, or the name of a virtual lab that is up")
	cmd.Flags().StringArrayVar(&sets, "set", nil, "change a value, as in run")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
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
	t = e.newTable("phase", "starts", "lasts", "flows", "measured")
	for _, ph := range p.Phases {
		t.row(ph.Name, ph.Begin.String(), ph.For.String(), strings.Join(ph.Flows, " "),
			fmt.Sprintf("%v to %v", ph.TrimStart, ph.For-ph.TrimEnd))
	}
	if err := t.print(); err != nil {
		return err
	}
	fmt.Fprintln(e.stdout, "commands, each under a guard on its host:")
	for _, c := range p.Captures {
		fmt.Fprintf(e.stdout, "  %-4s %s\n", c.Host, strings.Join(c.Command, " "))
	}
	for _, f := range p.Flows {
		fmt.Fprintf(e.stdout, "  %-4s %s\n", f.To, strings.Join(f.Server, " "))
		fmt.Fprintf(e.stdout, "  %-4s %s\n", f.From, strings.Join(f.Client, " "))
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
