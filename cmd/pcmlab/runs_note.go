package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/store"
)

// addStoreFlag adds the index that a run notes itself in.
func addStoreFlag(c *cobra.Command, dsn *string) {
	c.Flags().StringVar(dsn, "store", "", storeFlagHelp)
}

// noteRun puts a run that has ended into the index of the folder of runs out. What goes wrong is a warning: the folder is
// the truth, and the next `runs ls` finds it.
func (e *env) noteRun(ctx context.Context, out, dsn, dir string) {
	summary, err := experiments.LoadSummary(dir)
	if err == nil {
		err = store.Note(context.WithoutCancel(ctx), out, dsn, summary)
	}
	if err != nil {
		fmt.Fprintf(e.stderr, "warning: %s is not in the index yet (pcmlab runs ls adds it): %v\n", relative(dir), err)
	}
}
