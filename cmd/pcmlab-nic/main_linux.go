// pcmlab-nic runs what loads compiled handlers into its own process: the software NIC, and traces that are replayed. It is dynamically linked for that, so
// it is a program of its own beside pcmlab, which stays static; `pcmlab nic serve` starts it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/pcmlab/pcmlab/nicbackends/softnic"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/handler"
)

const usage = `usage: pcmlab-nic serve --config FILE.json
       pcmlab-nic replay --shell FILE.so --trace FILE

pcmlab starts this program where handlers are loaded: use pcmlab nic serve, and pcmlab handler run.
`

func main() {
	verb := ""
	if len(os.Args) > 1 {
		verb = os.Args[1]
	}
	switch verb {
	case "serve":
		os.Exit(serve(os.Args[2:]))
	case "replay":
		os.Exit(replay(os.Args[2:]))
	}
	fmt.Fprint(os.Stderr, usage)
	os.Exit(2)
}

func serve(args []string) int {
	flags := flag.NewFlagSet("pcmlab-nic serve", flag.ContinueOnError)
	config := flags.String("config", "", "configuration file")
	if err := flags.Parse(args); err != nil || *config == "" || flags.NArg() > 0 {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	c, err := softnic.LoadConfig(*config)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := softnic.Serve(ctx, c, handler.Load); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 3
	}
	return 0
}
