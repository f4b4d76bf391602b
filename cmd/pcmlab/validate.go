package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/figures"
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
			case "figure":
				_, err := e.stdout.Write(figures.Schema())
				return err
			default:
				return usagef("--schema %q: need lab, playbook or figure", schema)
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
	cmd.Flags().StringVar(&schema, "schema", "", "print the JSON Schema of labs, playbooks or figures: lab, playbook or figure")
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
		what := fmt.Sprintf("playbook %s, %d flows, %d phases", p.Name, len(p.Flows), len(p.Phases))
		if p.IsSweep() {
			what += fmt.Sprintf(", a sweep of %d cells, %d runs each", p.CellCount(), p.Repeat+p.Warmup)
		}
		return what, nil
	}
	if kindOf(path) == "figure" {
		f, err := figures.Parse(path, data)
		if err != nil {
			return "", err
		}
		return "figure " + f.Name, nil
	}
	l, err := inventory.Parse(path, data)
	if err != nil {
		return "", &codedError{exitUsage, err}
	}
	if err := experiments.CheckHandlers(l, backends()); err != nil {
		return "", err
	}
	return fmt.Sprintf("lab %s, %d hosts", l.Name, len(l.Hosts)), nil
}

// kindOf tells lab files, playbooks and figures apart by the keys that only one of them has: "lab", "playbook", "figure", or
// "" when it cannot tell.
func kindOf(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	kinds := map[string]string{"playbook": "playbook", "phases": "playbook", "flows": "playbook", "traffic": "playbook", "expect": "playbook",
		"figure": "figure", "pins": "figure",
		"lab": "lab", "links": "lab", "switches": "lab", "taps": "lab", "virtual": "lab"}
	for line := range strings.Lines(string(data)) {
		key, _, _ := strings.Cut(line, ":")
		if kind, ok := kinds[key]; ok {
			return kind
		}
	}
	return ""
}
