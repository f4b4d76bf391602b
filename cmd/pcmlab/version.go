package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/internal/build"
)

func newVersionCommand(e *env) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version of pcmlab", Args: cobra.NoArgs,
		Example: "  pcmlab version\n  pcmlab version -o json",
		RunE: func(*cobra.Command, []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			v := build.Version()
			if output == "json" {
				return writeJSON(e.stdout, v)
			}
			_, err := fmt.Fprintf(e.stdout, "pcmlab %s (%s/%s, %s)\n", v, runtime.GOOS, runtime.GOARCH, runtime.Version())
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}
