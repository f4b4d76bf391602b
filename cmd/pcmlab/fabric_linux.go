package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/inventory/fabric"
)

// newFabricCommand is the software switch as a process; virtual labs start it with the descriptors of its ports.
func newFabricCommand() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use: "fabric", Short: "Be a software switch (started by lab up)", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := fabric.LoadConfig(config)
			if err != nil {
				return &codedError{exitUsage, err}
			}
			return fabric.Main(c.Context(), cfg)
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration file")
	cmd.MarkFlagRequired("config")
	return cmd
}

// newFabricCounters asks the software switch of this host.
func newFabricCounters(e *env) *cobra.Command {
	var socket string
	var reset bool
	cmd := &cobra.Command{
		Use: "fabric-counters", Short: "Print the software switch's counters as JSON", Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if reset {
				a, err := fabric.Ask(socket, fabric.Request{Op: "reset_lateness"})
				if err == nil && a.Error != "" {
					err = fmt.Errorf("fabric %s: %s", socket, a.Error)
				}
				return err
			}
			c, err := fabric.Query(socket)
			if err != nil {
				return err
			}
			return writeJSON(e.stdout, c)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "/run/pcmlab/fabric.sock", "control socket of the switch")
	cmd.Flags().BoolVar(&reset, "reset-lateness", false, "forget the lateness and peaks seen so far")
	return cmd
}
