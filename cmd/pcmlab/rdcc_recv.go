package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
)

type rdccRecvOptions struct {
	rdccOptions
	to      string
	count   int
	metrics string
	user    string
	output  string
}

func newRDCCEndpointCommand(e *env) *cobra.Command {
	var o rdccRecvOptions
	cmd := &cobra.Command{
		Use:   "endpoint --config FILE",
		Short: "Be an RDCC endpoint until interrupted: receive messages, and send those of this host's programs",
		Long: "Be an RDCC endpoint until interrupted: grant credit to those who want to send to this host, receive their messages into\n" +
			"the folder `to:`, and send what `pcmlab rdcc send --socket` hands in over the UNIX socket `socket:`. With `user:` it\n" +
			"drops root's privileges once its ports are open; with `metrics:` it tells its counters on a loopback address.\n" +
			"The first Ctrl-C ends it cleanly: messages under way are cancelled at both ends.",
		Example: "  pcmlab rdcc endpoint --config /etc/rdcc.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.rdccRecv(cmd.Context(), &o, true)
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVarP(&o.output, "output", "o", "table", "table or jsonl: a line for each message")
	cmd.MarkFlagRequired("config")
	return cmd
}

func newRDCCRecvCommand(e *env) *cobra.Command {
	var o rdccRecvOptions
	cmd := &cobra.Command{
		Use:   "recv --port PORT",
		Short: "Receive messages under credit control, into files or nowhere",
		Long: "Receive messages of `pcmlab rdcc send` under credit control until --count have arrived, or until interrupted. Each\n" +
			"becomes a file in --to, named by its sender, association and number; without --to they are counted and thrown away.\n\n" +
			"Exit status: 0 all arrived whole, 4 one did not, 130 interrupted before --count.",
		Example: "  pcmlab rdcc recv --port 52001 --line-rate 25Gbit/s --base-rtt 20us --count 8\n" +
			"  pcmlab rdcc recv --config rdcc.yaml --to /srv/messages -o jsonl",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.count < 0 {
				return usagef("--count %d: how many messages to wait for; 0 or nothing for no end", o.count)
			}
			return e.rdccRecv(cmd.Context(), &o, false)
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&o.to, "to", "", "folder for the messages, or discard")
	cmd.Flags().IntVar(&o.count, "count", 0, "end when so many messages have arrived")
	cmd.Flags().StringVar(&o.metrics, "metrics", "", "loopback address to tell counters on, such as 127.0.0.1:9464")
	cmd.Flags().StringVar(&o.user, "user", "", "become this user when the ports are open")
	cmd.Flags().StringVarP(&o.output, "output", "o", "table", "table or jsonl (a line for each message), or json (one document at the end)")
	return cmd
}

// rdccArrival is a message that has arrived, or has not.
type rdccArrival struct {
	From    string  `json:"from"`
	Message uint64  `json:"message"`
	Octets  uint64  `json:"octets"`
	File    *string `json:"file"`
	Error   *string `json:"error"`
}

// rdccReceived is the document of `rdcc recv -o json`.
type rdccReceived struct {
	Schema   string        `json:"schema"`
	Messages []rdccArrival `json:"messages"`
	Octets   uint64        `json:"octets"`
	Broken   int           `json:"broken"`
	Faults   uint64        `json:"misbehaving"`
}

func (e *env) rdccRecv(ctx context.Context, o *rdccRecvOptions, long bool) error {
	allowed := []string{"table", "jsonl", "json"}
	if long {
		allowed = allowed[:2]
	}
	if err := checkOutput(o.output, allowed...); err != nil {
		return err
	}
	if o.config == "" && long {
		return usagef("rdcc endpoint needs --config FILE (docs/rdcc.md has an example)")
	}
	f, err := o.file()
	if err != nil {
		return err
	}
	if o.verbs.on() && (o.to != "" && o.to != "discard" || f.To != "" && f.To != "discard") {
		return usagef("--transport verbs carries octets without content: there is nothing to write into %s (leave --to and to: out)", cmp.Or(o.to, f.To))
	}
	for _, s := range []struct{ flag, into *string }{{&o.to, &f.To}, {&o.metrics, &f.Metrics}, {&o.user, &f.User}} {
		if *s.flag != "" {
			*s.into = *s.flag
		}
	}
	if err := f.Validate(); err != nil {
		return &codedError{exitUsage, err}
	}
	warnings(e, f.Config)
	r := &rdccReceiving{e: e, o: o, f: f, doc: rdccReceived{Schema: "pcmlab/rdcc-recv/v1", Messages: []rdccArrival{}}, arrived: make(chan rdccArrival, 1024)}
	return r.run(ctx, long)
}

type rdccReceiving struct {
	e       *env
	o       *rdccRecvOptions
	f       endpoint.File
	ep      *endpoint.Endpoint
	doc     rdccReceived
	arrived chan rdccArrival
}

// open opens everything that may need privileges, and then drops them.
func (r *rdccReceiving) open(ctx context.Context) (metrics *endpoint.Metrics, socket *endpoint.Socket, err error) {
	f := r.f
	t, err := r.o.transport(ctx, &f, netip.AddrPort{})
	if err != nil {
		return nil, nil, err
	}
	o := endpoint.Options{
		Domain: f.Config, Listen: f.Listen, Transports: []endpoint.Transport{t}, Busy: f.BusyPoll, Log: r.e.rdccLog(),
		Arrived: func(in endpoint.Incoming, err error) { r.arrived <- r.arrival(in, err) },
	}
	if r.keeps() {
		o.Accept = endpoint.Folder(f.To)
	}
	if r.ep, err = rdccOpen(o); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			r.ep.Close()
			err = &codedError{exitInfra, err}
		}
	}()
	if f.Metrics != "" {
		if metrics, err = endpoint.OpenMetrics(f.Metrics); err != nil {
			return nil, nil, err
		}
	}
	if f.Socket != "" {
		if socket, err = endpoint.OpenSocket(f.Socket, f.User); err != nil {
			return nil, nil, err
		}
	}
	if f.User != "" {
		if err = endpoint.Drop(f.User); err != nil {
			return nil, nil, err
		}
	}
	if r.keeps() {
		err = endpoint.Writable(f.To)
	}
	return metrics, socket, err
}

func (r *rdccReceiving) keeps() bool { return r.f.To != "" && r.f.To != "discard" }

func (r *rdccReceiving) arrival(in endpoint.Incoming, err error) rdccArrival {
	a := rdccArrival{From: in.From.String(), Message: in.Message, Octets: in.Length}
	if err != nil {
		text := err.Error()
		a.Error = &text
	} else if r.keeps() {
		name := endpoint.FileName(in)
		a.File = &name
	}
	return a
}

func (r *rdccReceiving) run(ctx context.Context, long bool) error {
	metrics, socket, err := r.open(ctx)
	if err != nil {
		return err
	}
	// What is printed last is what happened while the endpoint ended, so it has a context of its own.
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	failed := make(chan error, 3)
	go func() { failed <- r.ep.Run(running) }()
	if metrics != nil {
		go func() {
			if err := metrics.Serve(running, r.ep); err != nil {
				failed <- err
			}
		}()
		r.say("counters on http://%v/metrics", metrics.Addr())
	}
	if socket != nil {
		template := r.f
		go func() {
			if err := socket.Serve(running, r.ep, func(m *endpoint.Outgoing) { fillOutgoing(m, template); m.Kind = r.o.verbs.kind() }); err != nil {
				failed <- err
			}
		}()
	}
	data := fmt.Sprintf("data on %d", r.f.Data())
	if r.o.verbs.on() {
		data = "queue pairs are arranged in TCP on the same port"
	}
	r.say("ready: RDCC on UDP port %d of %v, %s", r.ep.Addr().Port(), listens(r.ep.Addr().Addr()), data)
	interrupted := false
	n := 0
wait:
	for r.o.count == 0 || n < r.o.count {
		select {
		case a := <-r.arrived:
			n++
			r.print(a)
		case err := <-failed:
			end()
			return &codedError{exitInfra, err}
		case <-ctx.Done():
			interrupted = true
			break wait
		}
	}
	if !interrupted {
		r.linger(ctx)
	}
	r.ep.Call(func(time.Duration) { r.doc.Faults = r.ep.Stats().Misbehaving })
	end()
	// Messages that are cut off by the end are told, too.
	for done := false; !done; {
		select {
		case a := <-r.arrived:
			r.print(a)
		case <-r.ep.Done():
			done = true
		}
	}
	for {
		select {
		case a := <-r.arrived:
			r.print(a)
			continue
		default:
		}
		break
	}
	return r.verdict(ctx, interrupted && !long && r.o.count > 0)
}

// linger answers those who did not hear that their message has arrived, until nobody asks.
func (r *rdccReceiving) linger(ctx context.Context) {
	quiet := 250 * time.Millisecond // more than the longest request timeout, twice
	limit, tick := time.After(4*time.Second), time.NewTicker(quiet)
	defer tick.Stop()
	heard := func() (n uint64) {
		r.ep.Call(func(time.Duration) { n = r.ep.Stats().Datagrams })
		return n
	}
	for before := heard(); ; {
		select {
		case <-tick.C:
			now := heard()
			if now == before {
				return
			}
			before = now
		case <-limit:
			return
		case <-ctx.Done():
			return
		}
	}
}

func listens(a netip.Addr) string {
	if a.IsUnspecified() {
		return "all addresses"
	}
	return a.String()
}

func (r *rdccReceiving) say(format string, a ...any) {
	if !r.e.quiet {
		fmt.Fprintf(r.e.stderr, format+"\n", a...)
	}
}

func (r *rdccReceiving) print(a rdccArrival) {
	if a.Error != nil {
		r.doc.Broken++
	} else {
		r.doc.Octets += a.Octets
	}
	switch r.o.output {
	case "json":
		r.doc.Messages = append(r.doc.Messages, a)
	case "jsonl":
		_ = writeJSONLine(r.e.stdout, a)
	default:
		what := "-"
		if a.File != nil {
			what = *a.File
		}
		if a.Error != nil {
			what = "not whole: " + *a.Error
		}
		fmt.Fprintf(r.e.stdout, "%-28s message %-6d %10s  %s\n", a.From, a.Message, units.Size(a.Octets), what)
	}
}

func (r *rdccReceiving) verdict(ctx context.Context, interrupted bool) error {
	if r.o.output == "json" {
		if err := writeJSON(r.e.stdout, r.doc); err != nil {
			return err
		}
	}
	var errs []error
	if r.doc.Broken > 0 {
		errs = append(errs, &codedError{exitData, fmt.Errorf("%d of the messages did not arrive whole", r.doc.Broken)})
	}
	if interrupted {
		errs = append(errs, context.Cause(ctx))
	}
	return errors.Join(errs...)
}
