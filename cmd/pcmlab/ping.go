package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends/check"
)

func newPingCommand(e *env) *cobra.Command {
	var lab, output, with, junit string
	var o check.MeshOptions
	var limits bars
	cmd := &cobra.Command{
		Use:   "ping -i LAB",
		Short: "Send datagrams to UDP 4791 between every pair of data addresses of a lab",
		Long: "Send datagrams to UDP 4791, small and of the lab's MTU, with its DSCP and ECT(0), between every pair of data addresses,\n" +
			"and look at the other end what arrives: a packet socket there sees them before whoever listens at 4791 (rdma_rxe, the\n" +
			"software NIC), and every NIC drops them without a word. A ConnectX takes RoCE packets from its kernel: paths to one are\n" +
			"probed with five small writes of ib_write_bw, as --with verbs does everywhere.\n\n" +
			"--max-rtt and --max-lost are bars: a path beyond one fails. Exit 1 when a path fails, 3 when a host could not be asked.",
		Example: "  pcmlab ping -i labs/testbed.yaml\n  pcmlab ping -i labs/testbed.yaml --with verbs\n  pcmlab ping -i labs/testbed.yaml --max-rtt 500us --max-lost 0",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			switch with {
			case "auto":
				with = ""
			case "packet", "verbs":
			default:
				return usagef("--with %q: need auto, packet or verbs", with)
			}
			if o.Count < 1 || o.Count > 1000 {
				return usagef("--count %d: need 1 to 1000", o.Count)
			}
			if err := errors.Join(limits.set(&o), (&ciOptions{annotations: "auto", junit: junit}).check()); err != nil {
				return err
			}
			o.With = with
			return e.ping(c.Context(), lab, output, junit, o)
		},
	}
	cmd.Flags().StringVarP(&lab, "inventory", "i", "", "lab file, or the name of a virtual lab that is up")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.Flags().StringVar(&with, "with", "auto", "packet, verbs (ib_write_bw), or auto")
	cmd.Flags().IntVar(&o.Count, "count", 3, "datagrams of each size on each path")
	cmd.Flags().StringVar(&junit, "junit", "", "write JUnit XML to this file: a suite for each host, in it a case for each path to it")
	limits.addFlags(cmd)
	cmd.MarkFlagRequired("inventory")
	return cmd
}

func (e *env) ping(ctx context.Context, file, output, junit string, o check.MeshOptions) error {
	lab, err := liveLab("ping", file)
	if err != nil {
		return err
	}
	pool, err := remote.NewPool(lab, fanOut(remote.Options{Log: e.log}))
	if err != nil {
		return err
	}
	defer pool.Close()
	answers := check.Ask(ctx, pool, lab, check.Options{Exchanges: 1})
	if err := ctx.Err(); err != nil {
		return err
	}
	var errs []error
	for _, a := range answers {
		if a.Err != nil {
			errs = append(errs, a.Err)
		}
	}
	paths := check.Mesh(ctx, pool, lab, answers, o)
	n := map[check.Verdict]int{}
	for _, p := range paths {
		n[p.Verdict]++
	}
	if output == "json" {
		errs = append(errs, writeJSON(e.stdout, map[string]any{"schema": "pcmlab/ping/v1", "lab": lab.Name, "counts": n, "paths": paths}))
	} else {
		errs = append(errs, e.printPaths(paths, n))
	}
	errs = append(errs, writeJUnit(junit, lab.Name, check.EachPath(paths)))
	return errors.Join(append(errs, ctx.Err(), checkError(n, false))...)
}

func (e *env) printPaths(paths []check.Path, n map[check.Verdict]int) error {
	t := e.newTable()
	t.columns([]analysis.Column{{Name: "from"}, {Name: "to"}, {Name: "verdict"}, {Name: "small", Numeric: true}, {Name: "full MTU", Numeric: true}, {Name: "RTT ms", Numeric: true}, {Name: "DSCP", Numeric: true}, {Name: "why, and what to do", Wrap: true}})
	of := func(in *int, sent int) string {
		if in == nil {
			return "-"
		}
		return fmt.Sprintf("%d/%d", *in, sent)
	}
	for _, p := range paths {
		rtt, dscp, why := "-", "-", p.Why
		if p.RTT != nil {
			rtt = fmt.Sprintf("%.2f", float64(*p.RTT)/1e6)
		}
		if p.DSCP != nil {
			dscp = fmt.Sprint(*p.DSCP)
		}
		if p.Fix != "" {
			why += "\n→ " + p.Fix
		}
		t.row(p.From, p.To, string(p.Verdict), of(p.Arrived, p.Sent), of(p.FullIn, p.Full), rtt, dscp, why)
	}
	if len(paths) > 0 {
		if err := t.print(); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(e.stdout, "%d paths: %d pass, %d fail, %d warn, %d skip\n", len(paths), n[check.Pass], n[check.Fail], n[check.Warn], n[check.Skip])
	return err
}

// newProbeCommand is what ping starts on hosts.
func newProbeCommand(e *env) *cobra.Command {
	probe := &cobra.Command{Use: "probe", Short: "One end of pcmlab ping (pcmlab starts this itself)", Hidden: true}
	var iface, nonce string
	var ip netip.Addr
	var o check.SendOptions
	flags := func(c *cobra.Command) {
		c.Flags().StringVar(&iface, "iface", "", "interface")
		c.Flags().TextVar(&ip, "ip", netip.Addr{}, "data address")
		c.Flags().StringVar(&nonce, "nonce", "", "16 hex digits that tell this probe from others")
	}
	listen := &cobra.Command{Use: "listen", Short: "See what arrives and answer", Hidden: true, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		return check.Listen(c.Context(), iface, ip, nonce, e.stdout)
	}}
	send := &cobra.Command{Use: "send TO...", Short: "Send and say who answered", Hidden: true, Args: cobra.MinimumNArgs(1), RunE: func(c *cobra.Command, args []string) error {
		for _, a := range args {
			to, err := netip.ParseAddr(a)
			if err != nil {
				return usagef("%w", err)
			}
			o.To = append(o.To, to)
		}
		o.From, o.Iface, o.Nonce = ip, iface, nonce
		sent, err := check.Send(c.Context(), o)
		if err != nil {
			return err
		}
		return writeJSON(e.stdout, sent)
	}}
	flags(listen)
	flags(send)
	send.Flags().IntVar(&o.TOS, "tos", 0, "type of service: DSCP and ECN bits")
	send.Flags().IntSliceVar(&o.Sizes, "sizes", nil, "UDP payloads, bytes")
	send.Flags().IntVar(&o.Count, "count", 3, "of each size to each address")
	send.Flags().DurationVar(&o.Wait, "wait", time.Second, "for the last answers")
	probe.AddCommand(listen, send)
	return probe
}
