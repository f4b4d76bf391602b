package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
	"github.com/pcmlab/pcmlab/rdcc/verbs"
)

// rdccVerbsOptions are the flags of an endpoint whose data goes over a real NIC.
type rdccVerbsOptions struct {
	transport string
	device    string
	gidIndex  int
	spin      bool
}

func (o *rdccVerbsOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.transport, "transport", "udp", "what carries the data: udp, or verbs for RDMA WRITEs of this host's NIC")
	f.StringVar(&o.device, "device", "", "RDMA device for --transport verbs, as ibv_devices and rdma link name it, such as mlx5_0 or rxe0; the one with this host's address when absent")
	f.IntVar(&o.gidIndex, "gid-index", -1, "its GID; the one of RoCE v2 with this host's address when absent")
	f.BoolVar(&o.spin, "spin", false, "the program of --transport verbs polls instead of waiting: microseconds for a core")
}

func (o *rdccVerbsOptions) on() bool { return o.transport == "verbs" }

func (o *rdccVerbsOptions) kind() rdcc.BindingKind {
	if o.on() {
		return rdcc.BindingRoCEv2
	}
	return rdcc.BindingOpaque
}

// check finds flags that do not go together.
func (o *rdccVerbsOptions) check(dataPort bool) error {
	switch {
	case o.transport != "udp" && o.transport != "verbs":
		return fmt.Errorf("--transport %q: udp or verbs", o.transport)
	case !o.on() && (o.device != "" || o.gidIndex >= 0 || o.spin):
		return errors.New("--device, --gid-index and --spin are for --transport verbs")
	case o.on() && dataPort:
		return errors.New("--data-port is for --transport udp: RoCEv2 has its own port")
	case o.gidIndex < -1 || o.gidIndex > 255:
		return fmt.Errorf("--gid-index %d: 0 to 255 (see /sys/class/infiniband/*/ports/1/gids)", o.gidIndex)
	}
	return nil
}

// rdccPacing says how finely a NIC's data is paced; nil for transports that are no NIC's.
func rdccPacing(t endpoint.Transport) *string {
	p, ok := t.(interface{ Pacing() string })
	if !ok {
		return nil
	}
	text := p.Pacing()
	return &text
}

type rdccProgramOptions struct {
	lab string
}

func newRDCCProgramCommand(e *env) *cobra.Command {
	var o rdccProgramOptions
	cmd := &cobra.Command{
		Use:   "program [-i LAB [HOST...]]",
		Short: "Build the program of --transport verbs, here or on a lab's hosts",
		Long: "Build the small program over libibverbs that posts RDMA WRITEs for --transport verbs: on this host, or on hosts of a\n" +
			"lab, where `pcmlab rdcc send|recv|endpoint` finds it. It is compiled on the host (Debian: apt-get install " + verbs.Packages + ");\n" +
			"a host without a compiler takes the one that was compiled here. Where it is already there nothing is done.\n" +
			"`send`, `recv` and `endpoint` build it by themselves when it is missing.\n\n" +
			"Exit status: 0 it is there, 3 it is not.",
		Example: "  pcmlab rdcc program\n  pcmlab rdcc program -i labs/testbed.yaml h1 h2 r1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.lab == "" {
				if len(args) > 0 {
					return usagef("%s: hosts of which lab? Give -i LAB.yaml", strings.Join(args, " "))
				}
				file, err := verbs.Build(cmd.Context())
				if err != nil {
					return &codedError{exitInfra, err}
				}
				fmt.Fprintln(e.stdout, file)
				return nil
			}
			return e.rdccProgram(cmd.Context(), o.lab, args)
		},
	}
	cmd.Flags().StringVarP(&o.lab, "inventory", "i", "", "lab file")
	return cmd
}

func (e *env) rdccProgram(ctx context.Context, file string, hosts []string) error {
	lab, err := loadLab(file)
	if err != nil {
		return err
	}
	var names []string
	for _, h := range lab.Hosts {
		names = append(names, h.Name)
	}
	for _, h := range hosts {
		if !slices.Contains(names, h) {
			return usagef("host %q: %s has %s", h, file, strings.Join(names, ", "))
		}
	}
	if len(hosts) == 0 {
		hosts = names
	}
	pool, err := remote.NewPool(lab, remote.Options{Log: e.rdccLog()})
	if err != nil {
		return err
	}
	defer pool.Close()
	t := e.newTable("host", "program", "how")
	var errs []error
	for _, name := range hosts {
		h, err := pool.Host(ctx, name)
		if err == nil {
			var path, how string
			if path, how, err = verbs.BuildOn(ctx, h); err == nil {
				t.row(name, path, how)
				continue
			}
		}
		t.row(name, "-", "failed")
		errs = append(errs, err)
	}
	if err := t.print(); err != nil {
		return err
	}
	if err := errors.Join(errs...); err != nil {
		return &codedError{exitInfra, err}
	}
	return nil
}
