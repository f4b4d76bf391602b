package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/vlab"
)

// downTimeout bounds taking a lab down, also after an interrupt.
const downTimeout = 20 * time.Second

// runningLab finds a virtual lab that is up.
func runningLab(name string) (*inventory.Lab, error) {
	inst, err := vlab.Open(name, vlab.Options{})
	if err != nil {
		return nil, usagef("no lab file %q, and no virtual lab of that name is up: %w", name, err)
	}
	return inst.Lab(), nil
}

// isUp says that a lab's hosts are reachable already: it was found running, not read from a file.
func isUp(l *inventory.Lab) bool {
	return len(l.Hosts) > 0 && l.Hosts[0].SSH.KnownHosts != "" && l.Hosts[0].SSH.Port != 0
}

// raise brings up a lab for one run. It dies with this process unless keep is set.
func (e *env) raise(ctx context.Context, lab *inventory.Lab, keep bool, seed uint64, step func(string, ...any)) (*vlab.Instance, func() error, error) {
	step("raising virtual lab %s: %d hosts, time scale %g", lab.Name, len(lab.Hosts), lab.Scale().Factor())
	inst, err := vlab.Up(ctx, lab, vlab.Options{Ephemeral: !keep, Seed: seed, Progress: func(s vlab.Step) { e.log.Info("lab", "step", s.What, "after", s.At) }})
	if err != nil {
		return nil, nil, err
	}
	step("lab %s is up", inst.ID)
	down := func() error {
		if keep {
			fmt.Fprintf(e.stderr, "lab %s stays up; 'pcmlab lab down %s' removes it\n", inst.ID, inst.ID)
			return nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTimeout)
		defer cancel()
		_, err := inst.Down(ctx)
		return err
	}
	return inst, down, nil
}

func newLabCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "lab", Short: "Virtual labs: network namespaces with software NICs and a software switch"}
	cmd.AddCommand(newLabUp(e), newLabDown(e), newLabList(e), newLabExec(e), newLabSSH(e), newLabInventory(e))
	return cmd
}

func newLabUp(e *env) *cobra.Command {
	var id string
	var sets []string
	cmd := &cobra.Command{
		Use:     "up LAB.yaml",
		Short:   "Raise a virtual lab; it stays up until lab down",
		Example: "  pcmlab lab up labs/virtual-4.yaml\n  pcmlab run playbooks/incast-3to1.yaml -i virtual-4",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			lab, err := inventory.Load(args[0])
			if err != nil {
				return &codedError{exitUsage, err}
			}
			settings, err := parseSets(sets)
			if err != nil {
				return err
			}
			if err := inventory.OverrideAll(lab, labSettings(settings)); err != nil {
				return &codedError{exitUsage, err}
			}
			if lab.Virtual == nil {
				return usagef("%s: lab %q has no virtual: section: its hosts exist already", args[0], lab.Name)
			}
			began := time.Now()
			inst, err := vlab.Up(c.Context(), lab, vlab.Options{ID: id, Progress: func(s vlab.Step) {
				if e.verbose > 0 {
					fmt.Fprintf(e.stderr, "%8.3fs  %s\n", s.At.Seconds(), s.What)
				}
			}})
			if err != nil {
				return err
			}
			if !e.quiet {
				fmt.Fprintf(e.stderr, "lab %s is up after %v\n", inst.ID, time.Since(began).Round(time.Millisecond))
			}
			fmt.Fprintln(e.stdout, inst.ID)
			return nil
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "name this lab (the lab's name and six digits)")
	cmd.Flags().StringArrayVar(&sets, "set", nil, "change a value, as in run")
	return cmd
}

func newLabDown(e *env) *cobra.Command {
	var all bool
	var output string
	cmd := &cobra.Command{
		Use:   "down [LAB]",
		Short: "Take a virtual lab down, whatever state it is in, and say what became of each part",
		Long:  "Take down the lab of that id or name; without one, the only lab that is up. Safe to repeat.",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			labs, err := vlab.List(vlab.Options{})
			if err != nil {
				return err
			}
			var ids []string
			switch {
			case all && len(args) > 0:
				return usagef("lab down: --all and %q exclude each other", args[0])
			case len(args) == 1:
				ids = args
			case all || len(labs) == 1:
				for _, l := range labs {
					ids = append(ids, l.ID)
				}
			case len(labs) == 0:
				fmt.Fprintln(e.stderr, "no virtual lab of yours is there")
				return nil
			default:
				return usagef("lab down: %d labs are there (%s): name one, or give --all", len(labs), labIDs(labs))
			}
			return e.takeDown(c.Context(), ids, output)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every virtual lab of this user")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func (e *env) takeDown(ctx context.Context, ids []string, output string) error {
	var errs []error
	var reports []vlab.Report
	for _, id := range ids {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTimeout)
		report, err := vlab.Down(ctx, id, vlab.Options{})
		cancel()
		if errors.Is(err, vlab.ErrNotFound) {
			err = &codedError{exitUsage, err}
		}
		errs = append(errs, err)
		reports = append(reports, report)
	}
	if output == "json" {
		errs = append(errs, writeJSON(e.stdout, reports))
		return errors.Join(errs...)
	}
	t := e.newTable("lab", "part", "result", "why")
	rows := 0
	for _, r := range reports {
		for _, item := range r.Items {
			t.row(r.ID, item.What, string(item.Result), item.Why)
			rows++
		}
	}
	if rows > 0 && !e.quiet {
		errs = append(errs, t.print())
	}
	return errors.Join(errs...)
}

func labIDs(labs []vlab.Info) string {
	var ids []string
	for _, l := range labs {
		ids = append(ids, l.ID)
	}
	return strings.Join(ids, ", ")
}

func newLabList(e *env) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "ls", Short: "List the virtual labs of this user", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			labs, err := vlab.List(vlab.Options{})
			if err != nil {
				return err
			}
			if output == "json" {
				if labs == nil {
					labs = []vlab.Info{}
				}
				return writeJSON(e.stdout, map[string]any{"schema": "pcmlab/labs/v1", "labs": labs})
			}
			t := e.newTable("lab", "file", "status", "up since", "hosts", "problems")
			for _, l := range labs {
				t.row(l.ID, l.File, string(l.Status), l.Created.Local().Format(time.DateTime), strings.Join(l.Hosts, " "), strings.Join(l.Problems, "; "))
			}
			return t.print()
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// theLab opens the lab named by --lab, or the only one that is up.
func theLab(name string) (*vlab.Instance, error) {
	if name == "" {
		labs, err := vlab.List(vlab.Options{})
		if err != nil {
			return nil, err
		}
		switch len(labs) {
		case 0:
			return nil, usagef("no virtual lab is up; 'pcmlab lab up LAB.yaml' raises one")
		case 1:
			name = labs[0].ID
		default:
			return nil, usagef("%d labs are up (%s): name one with --lab", len(labs), labIDs(labs))
		}
	}
	inst, err := vlab.Open(name, vlab.Options{})
	if errors.Is(err, vlab.ErrNotFound) {
		return nil, &codedError{exitUsage, err}
	}
	return inst, err
}

func newLabExec(e *env) *cobra.Command {
	var lab string
	cmd := &cobra.Command{
		Use:     "exec HOST -- COMMAND [ARG...]",
		Short:   "Run a command on a virtual host; the exit status is the command's",
		Example: "  pcmlab lab exec h1 -- cat /sys/class/infiniband/softnic0/ports/1/hw_counters/np_cnp_sent",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			inst, err := theLab(lab)
			if err != nil {
				return err
			}
			code, err := inst.Exec(c.Context(), args[0], args[1:], vlab.Stdio{In: e.stdin, Out: e.stdout, Err: e.stderr})
			if err != nil {
				return err
			}
			if code != 0 {
				return &codedError{code, nil}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&lab, "lab", "", "id or name of the lab (the only one that is up)")
	return cmd
}

func newLabSSH(e *env) *cobra.Command {
	var lab string
	cmd := &cobra.Command{
		Use: "ssh HOST [COMMAND...]", Short: "Log in to a virtual host with the system's ssh",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			inst, err := theLab(lab)
			if err != nil {
				return err
			}
			path, err := exec.LookPath("ssh")
			if err != nil {
				return fmt.Errorf("lab ssh: %w (install openssh-client, or use pcmlab lab exec)", err)
			}
			ssh := exec.CommandContext(c.Context(), path, append([]string{"-F", inst.SSHConfig}, args...)...)
			ssh.Stdin, ssh.Stdout, ssh.Stderr = os.Stdin, os.Stdout, os.Stderr
			var exit *exec.ExitError
			if err := ssh.Run(); errors.As(err, &exit) {
				return &codedError{exit.ExitCode(), nil}
			} else if err != nil {
				return err
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&lab, "lab", "", "id or name of the lab (the only one that is up)")
	return cmd
}

func newLabInventory(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "inventory NAME",
		Short:   "Print the lab file of a virtual lab that is up, with addresses, keys and known_hosts filled in",
		Example: "  pcmlab lab inventory virtual-4 > up.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			inst, err := theLab(args[0])
			if err != nil {
				return err
			}
			b, err := inventory.Marshal(inst.Lab())
			if err == nil {
				_, err = e.stdout.Write(b)
			}
			return err
		},
	}
}
