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
		"run": "Run a playbook on a lab", "lab": "Virtual labs", "capture": "Capture packets", "nic": "The software NIC", "cleanup": "Remove what runs left behind",
	} {
		verbs = append(verbs, &cobra.Command{
			Use: name, Short: short + " (Linux only)", DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error {
				return &codedError{exitInfra, fmt.Errorf("%s needs Linux; on %s: validate, plan, analyze, report, config, version", name, runtime.GOOS)}
			},
		})
	}
	return verbs
}

func personality([]string) (int, bool) { return 0, false }
