//go:build !linux

package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// linuxVerbs names the verbs that need Linux, so that they say so instead of being unknown.
func linuxVerbs(*env) []*cobra.Command {
	var verbs []*cobra.Command
	for name, short := range map[string]string{
		"capture": "Capture packets", "nic": "The software NIC",
	} {
		verbs = append(verbs, &cobra.Command{
			Use: name, Short: short + " (Linux only)", DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error {
				return &codedError{exitInfra, fmt.Errorf("%s needs Linux; on %s it is not there", name, runtime.GOOS)}
			},
		})
	}
	return verbs
}

func personality([]string) (int, bool) { return 0, false }
