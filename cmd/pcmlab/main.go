// Command pcmlab runs congestion-management experiments on RDMA testbeds.
//
// The same binary is the orchestrator, what it pushes to the hosts (the guard, the capture, the software NIC), and,
// under the name ib_write_bw, the traffic tool of hosts whose NIC is the software NIC.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if code, ok := personality(os.Args); ok {
		os.Exit(code)
	}
	// First signal: ctx ends, and the verb stops cleanly. Second: the default action, at once; guards on the hosts
	// still clean up.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		stop()
	}()
	env := newEnv()
	root := newRoot(env)
	root.SetArgs(pairCounters(os.Args[1:]))
	err := root.ExecuteContext(ctx)
	if err != nil {
		env.printError(err)
	}
	os.Exit(exitCode(err))
}

func (e *env) printError(err error) {
	if text := describe(err); text != "" {
		fmt.Fprintln(e.stderr, text)
	}
}
