package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends/softnic"
)

func newNICCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "nic", Short: "The software RoCEv2 NIC of this host"}
	cmd.AddCommand(newNICServe(), newNICShow(e), newNICCounters(e), newNICSet(e), newNICCalls(e))
	return cmd
}

func newNICServe() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "serve --config FILE.json",
		Short: "Be a NIC until interrupted: own UDP port 4791 of the data address and serve local processes",
		Long: "Be a NIC until interrupted. The configuration names the device, its network interface and address, the line rate as\n" +
			"built, MTU, DSCP and DCQCN settings. Virtual labs start this on each of their hosts.",
		Example: "  pcmlab nic serve --config /run/pcmlab/nic/softnic0.json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := softnic.LoadConfig(config)
			if err != nil {
				return &codedError{exitUsage, err}
			}
			if loader := siblingNIC(); loader != "" { // it can load handlers, too
				return syscall.Exec(loader, []string{loader, "serve", "--config", config}, os.Environ())
			}
			return softnic.Serve(c.Context(), cfg, nil)
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration file")
	cmd.MarkFlagRequired("config")
	return cmd
}

// nicDevice picks the device that was named, or the only one there.
func nicDevice(name string) (string, error) {
	if name != "" {
		return name, nil
	}
	found, err := softnic.Verbs{}.Devices()
	if err != nil {
		return "", err
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("no software NIC runs on this host (none listens in %s)", softnic.RunDir())
	}
	return "", usagef("%d software NICs run on this host (%s): name one with --device", len(found), strings.Join(found, ", "))
}

func withNIC(device string, do func(*softnic.Control) error) error {
	name, err := nicDevice(device)
	if err != nil {
		return err
	}
	c, err := softnic.DialControl(softnic.SocketPath(name))
	if err != nil {
		return err
	}
	defer c.Close()
	return do(c)
}

func newNICShow(e *env) *cobra.Command {
	var device, output string
	cmd := &cobra.Command{
		Use: "show", Short: "Describe the NIC and its queue pairs", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			return withNIC(device, func(c *softnic.Control) error {
				s, err := c.Show()
				if err != nil {
					return err
				}
				if output == "json" {
					return writeJSON(e.stdout, s)
				}
				t := e.newTable("device", "netdev", "address", "rate", "path MTU", "DCQCN", "RDCC", "handler", "queue pairs")
				handler := "-"
				for i, h := range s.Handlers {
					if i == 0 {
						handler = ""
					}
					handler += strings.TrimSuffix(fmt.Sprintf("%s %s", h.Name, h.Hash[:min(12, len(h.Hash))]), " ")
					if h.Match != "" {
						handler += " (" + h.Match + ")"
					}
					if i < len(s.Handlers)-1 {
						handler += "\n"
					}
				}
				t.row(s.Device, s.Netdev, s.IP.String(), units.Rate(s.RateBps).String(), fmt.Sprint(s.PathMTU), onOff(s.DCQCN), rdccState(s.RDCC), handler, fmt.Sprint(s.QPCount))
				if err := t.print(); err != nil || len(s.QPs) == 0 {
					return err
				}
				t = e.newTable("QP", "state", "remote", "remote QP", "handlers", "paced", "window", "DCQCN rate", "target", "alpha", "queued")
				for _, q := range s.QPs {
					deciding, window := strings.Join(q.Handlers, " "), "-"
					if deciding == "" {
						deciding = "-"
					}
					if q.WindowBytes > 0 {
						window = fmt.Sprint(q.WindowBytes)
					}
					t.row(fmt.Sprintf("%#06x", q.QPN), q.State, q.RemoteIP.String(), fmt.Sprintf("%#06x", q.RemoteQPN), deciding, units.Rate(q.PacedBps).String(), window,
						units.Rate(q.RateBps).String(), units.Rate(q.TargetBps).String(), fmt.Sprintf("%.4f", q.Alpha), fmt.Sprint(q.Queued))
				}
				return t.print()
			})
		},
	}
	nicFlags(cmd, &device, &output)
	return cmd
}

func nicFlags(cmd *cobra.Command, device, output *string) {
	cmd.Flags().StringVar(device, "device", "", "RDMA device (the only one of this host)")
	cmd.Flags().StringVarP(output, "output", "o", "table", "table or json")
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

func newNICCounters(e *env) *cobra.Command {
	var device, output string
	cmd := &cobra.Command{
		Use: "counters", Short: "Print the NIC's cumulative counters under the names of hw_counters", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			return withNIC(device, func(c *softnic.Control) error {
				counters, err := c.Counters()
				if err != nil {
					return err
				}
				if output == "json" {
					name, _ := nicDevice(device)
					return writeJSON(e.stdout, softnic.CountersDocument{Schema: softnic.CountersSchema, Device: name, Counters: counters})
				}
				names := make([]string, 0, len(counters))
				for n := range counters {
					names = append(names, n)
				}
				sort.Strings(names)
				t := e.newTable("counter", "value")
				for _, n := range names {
					t.row(n, fmt.Sprint(counters[n]))
				}
				return t.print()
			})
		},
	}
	nicFlags(cmd, &device, &output)
	return cmd
}

func newNICSet(e *env) *cobra.Command {
	var device string
	cmd := &cobra.Command{
		Use:   "set KEY=VALUE...",
		Short: "Change the running NIC: dcqcn=on|off, rate=RATE, handler=SHELL.so|none, diagnostic=on|off, rdcc=on|off, lateness=reset",
		Long: "Change the running NIC. handler=SHELL.so[,to=NETWORK][,dscp=N][,qp=N-M] may be given several times: the handlers decide for\n" +
			"the queue pairs that they match, and the first that sets a control of one keeps it. They take the place of all before;\n" +
			"handler=none takes them away. diagnostic=on keeps a log of their calls from now on, which 'pcmlab nic calls' writes.\n\n" +
			"rdcc=on makes all traffic obey receiver-driven credit control; rdcc.KEY=VALUE are the keys of docs/rdcc.md, in figures of\n" +
			"hardware. The port and base_rtt have no default, and all hosts of a domain need the same port.",
		Example: "  pcmlab nic set dcqcn=off\n  pcmlab nic set handler=swift.so,to=192.0.2.0/24 handler=bbr.so\n" +
			"  pcmlab nic set rdcc=on rdcc.port=52001 rdcc.base_rtt=8us rdcc.G=2*BDP rdcc.protection=filtered",
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var s softnic.Settings
			rdcc, err := rdccSettings(args)
			if err != nil {
				return err
			}
			if s.RDCC = rdcc; rdcc != nil {
				for _, w := range rdcc.Warnings() {
					fmt.Fprintf(e.stderr, "warning: %v\n", w)
				}
			}
			for _, a := range args {
				key, value, _ := strings.Cut(a, "=")
				if key == "rdcc" || strings.HasPrefix(key, "rdcc.") {
					continue
				}
				switch key {
				case "dcqcn":
					on := value == "on"
					if !on && value != "off" {
						return usagef("nic set %s: need dcqcn=on or dcqcn=off", a)
					}
					s.DCQCN = &on
				case "rate":
					r, err := units.ParseRate(value)
					if err != nil {
						return usagef("nic set: %w", err)
					}
					bps := int64(r)
					s.RateBps = &bps
				case "handler":
					if s.Handlers == nil {
						s.Handlers = &[]softnic.HandlerSetting{}
					}
					h, err := softnic.ParseHandlerSetting(value)
					if err != nil {
						return usagef("nic set %s: want handler=SHELL.so[,to=NETWORK][,dscp=N][,qp=N-M]: %w", a, err)
					}
					if abs, err := filepath.Abs(h.Shell); err == nil && h.Shell != inventory.NoHandler {
						h.Shell = abs
					}
					*s.Handlers = append(*s.Handlers, h)
				case "diagnostic":
					on := value == "on"
					if !on && value != "off" {
						return usagef("nic set %s: need diagnostic=on or diagnostic=off", a)
					}
					s.Diagnostic = &on
				case "lateness":
					if value != "reset" {
						return usagef("nic set %s: need lateness=reset", a)
					}
					s.ResetLateness = true
				default:
					return usagef("nic set %s: known keys are dcqcn, rate, handler, diagnostic, rdcc, rdcc.KEY and lateness", a)
				}
			}
			if h := s.Handlers; h != nil && len(*h) == 1 && (*h)[0].Shell == inventory.NoHandler {
				*h = []softnic.HandlerSetting{} // null would say nothing
			}
			return withNIC(device, func(c *softnic.Control) error { return c.Set(s) })
		},
	}
	cmd.Flags().StringVar(&device, "device", "", "RDMA device (the only one of this host)")
	return cmd
}

func newNICCalls(e *env) *cobra.Command {
	var device, output, file string
	cmd := &cobra.Command{
		Use:   "calls -w FILE.csv.gz",
		Short: "Write the log of handlers' calls that diagnostic=on keeps",
		Long: "Write the log of handlers' calls that 'pcmlab nic set diagnostic=on' keeps: gzipped CSV, one line a call, with the triggers\n" +
			"that fired, the acknowledgements that it was given, and the window and rate that it set. The log goes on.",
		Example: "  pcmlab nic set diagnostic=on\n  pcmlab nic calls -w calls.csv.gz && zcat calls.csv.gz | head",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			path, err := filepath.Abs(file)
			if err != nil {
				return err
			}
			return withNIC(device, func(c *softnic.Control) error {
				h, err := c.WriteCalls(path)
				if err != nil {
					return err
				}
				if output == "json" {
					return writeJSON(e.stdout, h)
				}
				fmt.Fprintf(e.stdout, "%s: %d of %d calls\n", file, h.Logged, h.Calls)
				return nil
			})
		},
	}
	nicFlags(cmd, &device, &output)
	cmd.Flags().StringVarP(&file, "write", "w", "", "file, on this host")
	cmd.MarkFlagRequired("write")
	return cmd
}
