package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/pcmlab/pcmlab/inventory/remote/guard"
	"github.com/pcmlab/pcmlab/inventory/vlab"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
	"github.com/pcmlab/pcmlab/nicbackends/softnic"
)

// personality runs what this binary is besides the command line: the traffic tool under its own name, and the
// processes that pcmlab starts on hosts, which must not pay for the command line's start.
func personality(argv []string) (code int, ok bool) {
	switch name := filepath.Base(argv[0]); name {
	case perftest.WriteBW, perftest.SendBW, perftest.ReadBW:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return perftest.Tool(ctx, argv, softnic.Verbs{}, os.Stdin, os.Stdout, os.Stderr), true
	}
	if len(argv) < 2 {
		return 0, false
	}
	switch argv[1] {
	case "guard":
		if len(argv) > 2 && argv[2] != "--help" && argv[2] != "-h" {
			return guard.Main(context.Background(), argv[2:], os.Stdin, os.Stdout, os.Stderr), true
		}
	case "lab-host":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return vlab.HostMain(ctx, argv[2:], os.Stderr), true
	}
	return 0, false
}
