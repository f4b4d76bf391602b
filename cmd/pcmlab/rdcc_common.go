package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/rdcc/domain"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
	"github.com/pcmlab/pcmlab/rdcc/opaque"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
)

// rdccOptions are the flags of the verbs that run an endpoint.
type rdccOptions struct {
	config   string
	port     uint16
	dataPort uint16
	listen   string
	lineRate string
	baseRTT  string
	set      []string
	verbs    rdccVerbsOptions
}

const (
	rdccLineRate = "10Gbit/s"
	rdccBaseRTT  = "100us"
	rdccPayload  = 1400
)

func (o *rdccOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "configuration file of the endpoint (docs/rdcc.md)")
	f.Uint16Var(&o.port, "port", 0, "UDP port of RDCC in this domain; there is no default")
	f.Uint16Var(&o.dataPort, "data-port", 0, "UDP port of the data; the one after --port when absent")
	f.StringVar(&o.listen, "listen", "", "address of this host to use; all of them when absent")
	f.StringVar(&o.lineRate, "line-rate", "", "rate of this host's link; "+rdccLineRate+" when neither this nor the file says")
	f.StringVar(&o.baseRTT, "base-rtt", "", "round-trip time of the domain without queues; "+rdccBaseRTT+" when neither this nor the file says")
	f.StringArrayVar(&o.set, "set", nil, "KEY=VALUE of the configuration, such as G=4*BDP or dscp.control=48; may be repeated")
	o.verbs.flags(cmd)
}

// file is the configuration with what the flags say; all mistakes at once.
func (o *rdccOptions) file() (endpoint.File, error) {
	var f endpoint.File
	if o.config != "" {
		var err error
		if f, err = endpoint.ReadFile(o.config); err != nil {
			return f, &codedError{exitUsage, err}
		}
	}
	var errs []error
	set := func(key, text string) {
		if err := f.Config.Set(key, text); err != nil {
			errs = append(errs, err)
		}
	}
	for _, kv := range o.set {
		key, text, ok := strings.Cut(kv, "=")
		if !ok {
			errs = append(errs, fmt.Errorf("--set %q: need KEY=VALUE, such as G=4*BDP", kv))
			continue
		}
		set(strings.TrimPrefix(key, "rdcc."), text)
	}
	if o.port != 0 {
		f.Port = o.port
	}
	if o.dataPort != 0 {
		f.DataPort = o.dataPort
	}
	if o.listen != "" {
		a, err := netip.ParseAddr(o.listen)
		if err != nil {
			errs = append(errs, fmt.Errorf("--listen %q: need an address of this host, such as 192.0.2.1 or 2001:db8::1", o.listen))
		}
		f.Listen = a
	}
	flag := func(name, given string, absent bool, or string, into any) {
		if given == "" && absent {
			given = or
		}
		if given == "" {
			return
		}
		if err := spec.Scan(given, into); err != nil {
			errs = append(errs, fmt.Errorf("--%s %q: %w", name, given, err))
		}
	}
	flag("line-rate", o.lineRate, f.LineRate == 0, rdccLineRate, &f.LineRate)
	flag("base-rtt", o.baseRTT, !f.BaseRTT.Given(), rdccBaseRTT, &f.BaseRTT)
	if err := o.verbs.check(o.dataPort != 0); err != nil {
		errs = append(errs, err)
	}
	if !o.verbs.on() { // with verbs the device says it
		if f.Payload == 0 {
			f.Payload = rdccPayload
		}
		if f.Wire == 0 {
			f.Wire = units.Size(opaque.Wire(int(f.Payload)))
		}
	}
	if f.Port == 0 {
		errs = append(errs, errors.New("no port: give --port, or a --config that has one. The operator of the domain chooses it (49152 to 65535); there is no default"))
	} else if err := f.Validate(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return f, &codedError{exitUsage, errors.Join(errs...)}
	}
	return f, nil
}

// transport is the opaque one of the configuration, or the NIC's. to is the receiver, not valid when this is one.
func (o *rdccOptions) transport(ctx context.Context, f *endpoint.File, to netip.AddrPort) (endpoint.Transport, error) {
	if o.verbs.on() {
		return o.verbs.open(ctx, f, to)
	}
	anyPort := to.IsValid()
	scale := f.Scale()
	t, err := opaque.New(opaque.Options{
		Listen: f.Listen, Port: f.Data(), AnyPort: anyPort, Payload: int(f.Payload), MinRTO: max(5*time.Millisecond, scale.Time(time.Millisecond)),
	})
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	return t, nil
}

// rdccLog is where an endpoint logs: warnings always, since it runs alone for long.
func (e *env) rdccLog() *slog.Logger {
	if e.quiet {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// resolve is the address of a host, of the family that the endpoint can use.
func rdccResolve(ctx context.Context, host string, listen netip.Addr) (netip.Addr, error) {
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		if listen.IsValid() && listen.Unmap().Is4() != a.Unmap().Is4() {
			return a, usagef("%v and --listen %v are of different families", a, listen)
		}
		return a.Unmap(), nil
	}
	network := "ip"
	switch {
	case listen.IsValid() && listen.Unmap().Is4():
		network = "ip4"
	case listen.IsValid():
		network = "ip6"
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, network, host)
	if err != nil || len(addrs) == 0 {
		return netip.Addr{}, &codedError{exitInfra, fmt.Errorf("host %q: %w", host, err)}
	}
	return addrs[0].Unmap(), nil
}

func warnings(e *env, c domain.Config) {
	if e.quiet {
		return
	}
	for _, w := range c.Warnings() {
		fmt.Fprintf(e.stderr, "warning: %v\n", w)
	}
}

// warnPort warns of a port that is not for RDCC, where nothing else of a domain is known.
func warnPort(e *env, port uint16) {
	if w := domain.PortWarning(port); w != nil && !e.quiet {
		fmt.Fprintf(e.stderr, "warning: %v\n", *w)
	}
}

// rdccEndpoint opens an endpoint; a mistake of the system's is one of infrastructure.
func rdccOpen(o endpoint.Options) (*endpoint.Endpoint, error) {
	o.Fabric = receiver.Fabric{}
	if err := o.Domain.Check(o.Fabric); err != nil {
		return nil, &codedError{exitUsage, err}
	}
	ep, err := endpoint.New(o)
	if err != nil {
		return nil, &codedError{exitInfra, err}
	}
	return ep, nil
}
