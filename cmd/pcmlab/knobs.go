package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/knobs"
	"github.com/pcmlab/pcmlab/nicbackends/docapcc/keeper"
)

// newKnobsCommand is what runs on a host.
func newKnobsCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "knobs", Hidden: true, Short: "Change settings of this host and put them back (pcmlab starts this itself)", DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			if code := knobs.Main(c.Context(), args, e.stdout, e.stderr); code != 0 {
				return &codedError{code, nil}
			}
			return nil
		},
	}
}

// newPCCCommand is what keeps a handler in a NIC, on its host.
func newPCCCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "pcc", Hidden: true, Short: "Keep a handler in the NIC of this host (pcmlab starts this itself)", DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			if code := keeper.Main(c.Context(), args, os.Stdin, e.stdout, e.stderr); code != 0 {
				return &codedError{code, nil}
			}
			return nil
		},
	}
}

// cleanKnobs puts back on a host what runs changed that go on no more: those of this user, or that of one run.
func cleanKnobs(ctx context.Context, h remote.Host, lh *inventory.Host, run, owner string, dry bool) ([]cleaned, error) {
	left, err := knobs.Left(ctx, h, lh.Sudo)
	if err != nil {
		return nil, err
	}
	var found []cleaned
	var errs []error
	for _, j := range left {
		if run != "" && j.Run != run || run == "" && j.Owner != owner {
			continue
		}
		result := "changed, not put back"
		if !dry {
			result = "put back"
			if err := knobs.Restore(ctx, h, lh.Sudo, j.Run); err != nil {
				errs = append(errs, err)
				result = "left: see the error"
			}
		}
		for _, s := range j.Steps {
			found = append(found, cleaned{h.Name(), j.Run, fmt.Sprintf("setting %v", s.Knob), result})
		}
	}
	return found, errors.Join(errs...)
}
