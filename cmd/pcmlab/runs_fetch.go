package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

func newRunsFetchCommand(e *env) *cobra.Command {
	var lab string
	var keep bool
	cmd := &cobra.Command{
		Use:   "fetch RUN -i LAB",
		Short: "Bring the captures of a run that were analysed on their host",
		Long: "Bring the captures of a run that were analysed where they lie (measure: analyze) into its folder. What breaks off goes on where it was, in this\n" +
			"call and in the next. A file is removed on its host when it is here and has the hash that it had when it was analysed.",
		Example: "  pcmlab runs fetch runs/20261130-061823.123-incast-3to1 -i labs/testbed.yaml",
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return e.fetchRun(c.Context(), args[0], lab, keep) },
	}
	cmd.Flags().StringVarP(&lab, "inventory", "i", "", "lab file, or the name of a virtual lab that is up")
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the files on their host")
	cmd.MarkFlagRequired("inventory")
	cmd.RegisterFlagCompletionFunc("inventory", completeFiles("yaml", "yml"))
	return cmd
}

func (e *env) fetchRun(ctx context.Context, dir, nameOrFile string, keep bool) error {
	if !experiments.IsRun(dir) {
		return usagef("runs fetch %s: no folder of a run", dir)
	}
	lab, err := liveLab("runs fetch", nameOrFile)
	if err != nil {
		return err
	}
	pool, err := remote.NewPool(lab, remote.Options{Log: e.log})
	if err != nil {
		return err
	}
	defer pool.Close()
	return experiments.FetchCaptures(ctx, dir, pool.Host, keep, func(text string) { fmt.Fprintln(e.stdout, text) })
}
