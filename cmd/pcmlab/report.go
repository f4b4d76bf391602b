package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/experiments"
)

func newReportCommand(e *env) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:     "report RUN",
		Short:   "Make a run's page again from its folder: one HTML file that needs no network",
		Example: "  pcmlab report runs/20261129-120000.000-incast-3to1",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			m, differences, err := experiments.CheckManifest(args[0])
			if err != nil && m == nil {
				fmt.Fprintln(e.stderr, "warning:", err)
			}
			page, err := experiments.RemakeReport(args[0], out)
			if err != nil {
				return err
			}
			fmt.Fprintln(e.stdout, relative(page))
			if len(differences) > 0 {
				return &codedError{exitData, fmt.Errorf("%s: the folder is not as the run left it:\n  %s", args[0], strings.Join(differences, "\n  "))}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write (report.html in the run's folder)")
	return cmd
}
