package main

import (
	"github.com/spf13/cobra"
)

func newRDCCCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rdcc",
		Short: "Receiver-driven credit control: endpoints, messages and datagrams",
		Long: "Receiver-Driven Credit Control (RDCC) lets a receiver bound the octets that all senders may have in flight toward it.\n" +
			"docs/rdcc.md says what it is and what is here.",
	}
	cmd.AddCommand(newRDCCEndpointCommand(e), newRDCCSendCommand(e), newRDCCRecvCommand(e), newRDCCProgramCommand(e), newRDCCDecodeCommand(e))
	return cmd
}
