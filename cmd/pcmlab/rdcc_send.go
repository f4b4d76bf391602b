package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
)

type rdccSendOptions struct {
	rdccOptions
	size      string
	class     uint8
	weight    uint8
	hint      string
	count     int
	deadline  time.Duration
	scheduled bool
	socket    string
	output    string
}

func newRDCCSendCommand(e *env) *cobra.Command {
	var o rdccSendOptions
	cmd := &cobra.Command{
		Use:   "send --port PORT HOST [FILE|-]",
		Short: "Send messages to a host under its credit control, with progress and goodput",
		Long: "Send a file, what standard input has (-), or --size octets without meaning to a host on which `pcmlab rdcc recv` or\n" +
			"`pcmlab rdcc endpoint` runs. No octet goes before the receiver has granted it, but for short messages within the window\n" +
			"that it offers. What is shown: how long it took, how much of that without credit, and what had to be sent again.\n\n" +
			"A receiver that does not answer as one with RDCC is told apart from one that refuses, and from one that is gone.\n\n" +
			"Exit status: 0 the receiver has it all, 3 it does not speak RDCC, refuses, is unreachable or has ended the message,\n" +
			"130 interrupted (the receiver is told).",
		Example: "  pcmlab rdcc send --port 52001 --size 4MiB --class 2 192.0.2.2\n" +
			"  pcmlab rdcc send --config rdcc.yaml r1.lab model.bin\n" +
			"  tar c weights | pcmlab rdcc send --port 52001 2001:db8::2 -",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("rdcc send: to whom? Give the receiver's name or address, such as: pcmlab rdcc send --port 52001 --size 4MiB 192.0.2.2")
			case len(args) > 2:
				return usagef("rdcc send: one receiver and one file, not %q", args[2:])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return e.rdccSend(cmd, &o, args) },
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.size, "size", "", "send so many octets without meaning, such as 4MiB")
	f.Uint8Var(&o.class, "class", 0, "traffic class, 0 (served first) to 7")
	f.Uint8Var(&o.weight, "weight", 1, "within the class, 1 to 255")
	f.StringVar(&o.hint, "hint", "", "none, latency-sensitive or throughput-oriented")
	f.IntVar(&o.count, "count", 1, "send it so many times, one after the other")
	f.DurationVar(&o.deadline, "deadline", 0, "by when it should be there, such as 5ms; receivers give precedence to earlier ones")
	f.BoolVar(&o.scheduled, "scheduled", false, "wait for credit, however short the message is")
	f.StringVar(&o.socket, "socket", "", "hand it to the endpoint of this host that listens there, instead of being one")
	f.StringVarP(&o.output, "output", "o", "table", "table or json")
	return cmd
}

// rdccSent is the document of `rdcc send -o json`.
type rdccSent struct {
	Schema   string        `json:"schema"`
	To       string        `json:"to"`
	Messages []rdccOutcome `json:"messages"`
	Octets   uint64        `json:"octets"` // that the receiver has
	Elapsed  int64         `json:"elapsed_ns"`
	Goodput  *float64      `json:"goodput_bps"`
	Waited   int64         `json:"waited_for_credit_ns"`
	Again    *uint64       `json:"retransmitted_bytes"`
	Pacing   *string       `json:"pacing"` // how finely a NIC's data is paced: nic, segment, per message; null where the transport is no NIC's
	Error    *string       `json:"error"`
}

type rdccOutcome struct {
	endpoint.Result
	Goodput *float64 `json:"goodput_bps"`
	Error   *string  `json:"error"`
}

func (e *env) rdccSend(cmd *cobra.Command, o *rdccSendOptions, args []string) error {
	ctx := cmd.Context()
	if err := checkOutput(o.output, "table", "json"); err != nil {
		return err
	}
	if o.count < 1 {
		return usagef("--count %d: at least 1", o.count)
	}
	if o.class > rdcc.MaxClass {
		return usagef("--class %d: 0 to %d", o.class, rdcc.MaxClass)
	}
	f, err := o.file()
	if err != nil {
		return err
	}
	for flag, into := range map[string]func(){
		"class": func() { f.Class = o.class }, "weight": func() { f.Weight = o.weight }, "hint": func() { f.Hint = o.hint },
	} {
		if cmd.Flags().Changed(flag) {
			into()
		}
	}
	if err := f.Validate(); err != nil {
		return &codedError{exitUsage, err}
	}
	length, data, err := o.source(e, args)
	if err != nil {
		return err
	}
	if data != nil {
		defer data.Close()
		if o.verbs.on() {
			return usagef("--transport verbs carries octets without content, as ib_write_bw does: give --size, or take the transport udp for %s", args[1])
		}
	}
	if o.verbs.on() && o.socket != "" {
		return usagef("--transport verbs and --socket: the endpoint that listens there has a transport of its own (give it --transport verbs)")
	}
	addr, err := rdccResolve(ctx, args[0], f.Listen)
	if err != nil {
		return err
	}
	s := &rdccSending{e: e, o: o, f: f, to: netip.AddrPortFrom(addr, f.Port), length: length, data: data}
	return s.run(ctx)
}

// source is what is to be sent.
func (o *rdccSendOptions) source(e *env, args []string) (length uint64, data *os.File, err error) {
	switch {
	case o.size != "" && len(args) > 1:
		return 0, nil, usagef("--size %s and %s: one of the two", o.size, args[1])
	case o.size != "":
		n, err := units.ParseSize(o.size)
		if err != nil || n <= 0 {
			return 0, nil, usagef("--size %q: need a size such as 4MiB", o.size)
		}
		return uint64(n), nil, nil
	case len(args) < 2:
		return 0, nil, usagef("nothing to send: give --size 4MiB, a FILE, or - for standard input")
	case args[1] == "-":
		// The length has to be known when credit is asked for.
		data, err = os.CreateTemp("", "pcmlab-rdcc-*")
		if err != nil {
			return 0, nil, &codedError{exitInfra, err}
		}
		os.Remove(data.Name())
		n, err := io.Copy(data, e.stdin)
		if err == nil && n == 0 {
			err = usagef("standard input has nothing to send")
		}
		if err != nil {
			data.Close()
			return 0, nil, err
		}
		return uint64(n), data, nil
	}
	if data, err = os.Open(args[1]); err != nil {
		return 0, nil, &codedError{exitUsage, err}
	}
	info, err := data.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = usagef("%s is no file (- sends standard input)", args[1])
	case info.Size() == 0:
		err = usagef("%s is empty: a message has an octet at least", args[1])
	}
	if err != nil {
		data.Close()
		return 0, nil, err
	}
	return uint64(info.Size()), data, nil
}

type rdccSending struct {
	e      *env
	o      *rdccSendOptions
	f      endpoint.File
	to     netip.AddrPort
	length uint64
	data   *os.File
	pacing *string
	lined  bool // a line of progress stands on the terminal
}

func (s *rdccSending) run(ctx context.Context) error {
	send := s.over
	if s.o.socket == "" {
		t, err := s.o.transport(ctx, &s.f, s.to)
		if err != nil {
			return err
		}
		s.pacing = rdccPacing(t)
		ep, err := rdccOpen(endpoint.Options{
			Domain: s.f.Config, Listen: s.f.Listen, AnyPort: true, NoReceiver: true, Transports: []endpoint.Transport{t},
			Busy: s.f.BusyPoll, Log: s.e.rdccLog(),
		})
		if err != nil {
			return err
		}
		running, end := context.WithCancel(context.WithoutCancel(ctx))
		ended := make(chan error, 1)
		go func() { ended <- ep.Run(running) }()
		defer func() {
			end()
			<-ended
		}()
		send = func(ctx context.Context) (endpoint.Result, error) { return s.directly(ctx, ep) }
	}
	doc := rdccSent{Schema: "pcmlab/rdcc-send/v1", To: s.to.String(), Messages: []rdccOutcome{}, Pacing: s.pacing}
	var failed error
	for range s.o.count {
		r, err := send(ctx)
		s.clear()
		if err != nil {
			r.Err = err
		}
		doc.add(r)
		if failed = r.Err; failed != nil {
			break
		}
	}
	doc.finish()
	if err := s.print(&doc); err != nil {
		return err
	}
	return s.explain(ctx, failed)
}

func (d *rdccSent) add(r endpoint.Result) {
	o := rdccOutcome{Result: r}
	if r.Err != nil {
		text := r.Err.Error()
		o.Error, d.Error = &text, &text
	} else {
		o.Goodput = goodput(r.Octets, r.Elapsed)
		d.Octets += r.Octets
	}
	d.Elapsed += int64(r.Elapsed)
	d.Waited += int64(r.Waited)
	if r.Retransmitted != nil {
		sum := *r.Retransmitted
		if d.Again != nil {
			sum += *d.Again
		}
		d.Again = &sum
	}
	d.Messages = append(d.Messages, o)
}

func (d *rdccSent) finish() {
	if d.Octets > 0 {
		d.Goodput = goodput(d.Octets, time.Duration(d.Elapsed))
	}
}

func goodput(octets uint64, in time.Duration) *float64 {
	if in <= 0 {
		return nil
	}
	bps := float64(octets) * 8 / in.Seconds()
	return &bps
}

// fillOutgoing gives a message what the configuration says of this host's messages.
func fillOutgoing(m *endpoint.Outgoing, f endpoint.File) {
	of := f.Message(receiver.Fabric{}, m.To, m.Length)
	if m.Class == 0 {
		m.Class = of.Class
	}
	if m.Weight == 0 {
		m.Weight = of.Weight
	}
	if m.Hint == rdcc.HintNone {
		m.Hint = of.Hint
	}
	m.Scheduled = m.Scheduled || of.Scheduled
	m.Segment = of.Segment
}

func (s *rdccSending) message() *endpoint.Outgoing {
	m := &endpoint.Outgoing{To: s.to, Kind: s.o.verbs.kind(), Length: s.length, Deadline: s.o.deadline, Scheduled: s.o.scheduled}
	if s.data != nil {
		m.Data = s.data
	}
	fillOutgoing(m, s.f)
	return m
}

// directly sends a message by an endpoint of this process.
func (s *rdccSending) directly(ctx context.Context, ep *endpoint.Endpoint) (endpoint.Result, error) {
	done := make(chan endpoint.Result, 1)
	m := s.message()
	m.Ended = func(r endpoint.Result) { done <- r }
	if err := ep.Send(m); err != nil {
		return endpoint.Result{}, err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	interrupted := ctx.Done()
	for {
		select {
		case r := <-done:
			if ctx.Err() != nil && r.Err != nil {
				r.Err = ctx.Err()
			}
			return r, nil
		case <-ep.Done():
			return endpoint.Result{}, endpoint.ErrClosed
		case <-tick.C:
			if p, ok := ep.Progress(m); ok {
				s.progress(p)
			}
		case <-interrupted:
			interrupted = nil
			ep.Cancel(m)
		}
	}
}

// over hands a message to the endpoint of this host.
func (s *rdccSending) over(ctx context.Context) (endpoint.Result, error) {
	m := s.message()
	return endpoint.SendOver(ctx, s.o.socket, endpoint.Order{
		To: m.To, Length: m.Length, Class: m.Class, Weight: m.Weight, Hint: m.Hint, Scheduled: m.Scheduled,
	}, s.data, s.progress)
}

func (s *rdccSending) progress(p endpoint.Progress) {
	if !s.e.terminal || s.e.quiet {
		return
	}
	s.lined = true
	rate := "-"
	if g := goodput(p.Transmitted, p.Elapsed); g != nil {
		rate = units.Rate(*g).String()
	}
	fmt.Fprintf(s.e.stderr, "\r\x1b[K%3d %%  %v of %v  %s  %s, %v waited for credit", 100*p.Transmitted/max(p.Length, 1), units.Size(p.Transmitted), units.Size(p.Length),
		rate, strings.ToLower(p.State), p.Waited.Round(time.Millisecond))
}

func (s *rdccSending) clear() {
	if s.lined {
		fmt.Fprint(s.e.stderr, "\r\x1b[K")
		s.lined = false
	}
}

func (s *rdccSending) print(d *rdccSent) error {
	if s.o.output == "json" {
		return writeJSON(s.e.stdout, d)
	}
	t := s.e.newTable("message", "octets", "time", "goodput", "waited for credit", "without credit", "sent again", "RTT", "result")
	for i, m := range d.Messages {
		again, rtt, rate, result := "-", "-", "-", "done"
		if m.Retransmitted != nil {
			again = units.Size(*m.Retransmitted).String()
		}
		if m.RTT != nil {
			rtt = m.RTT.String()
		}
		if m.Goodput != nil {
			rate = fmt.Sprintf("%.3f Gb/s", *m.Goodput/1e9)
		}
		if m.Error != nil {
			result = "failed"
		}
		t.row(fmt.Sprint(i+1), units.Size(s.length).String(), m.Elapsed.Round(time.Microsecond).String(), rate, m.Waited.Round(time.Microsecond).String(),
			units.Size(m.Unscheduled).String(), again, rtt, result)
	}
	return t.print()
}

// explain says what an error means and what can be done.
func (s *rdccSending) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, endpoint.ErrWithout):
		err = fmt.Errorf("%v does not speak RDCC: eight ASSOC_REQUEST in 255 ms were not answered, so nothing was sent (is `pcmlab rdcc recv --port %d` running there, is that the domain's port, "+
			"and do filters let it through?)", s.to, s.to.Port())
	case errors.Is(err, endpoint.ErrRefused):
		err = fmt.Errorf("%v refuses the association (its bound of associations is reached: max_associations, max_per_address), so nothing was sent", s.to)
	case errors.Is(err, endpoint.ErrGaveUp):
		err = fmt.Errorf("%v: %w (give_up says for how long; the receiver stopped answering, or has no credit for this class)", s.to, err)
	default:
		err = fmt.Errorf("%v: %w", s.to, err)
	}
	return &codedError{exitInfra, err}
}
