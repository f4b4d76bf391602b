package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/locks"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

func newLockCommand(e *env) *cobra.Command {
	var lab, reason string
	var length, wait time.Duration
	cmd := &cobra.Command{
		Use:   "lock -i LAB [HOST...]",
		Short: "Keep hosts of a shared lab for yourself for a while",
		Long: "Keep hosts (all of the lab, or those named) for yourself: runs and locks of others are refused there by name until it expires or\n" +
			"you unlock. Your own runs go on as before. The lock lies on the hosts, so that all who share them see it. All hosts are\n" +
			"locked, or none. Locking again changes reason and time.",
		Example: "  pcmlab lock -i labs/testbed.yaml --for 2h --reason 'firmware update'\n  pcmlab lock -i labs/testbed.yaml h1 r1 --for 30m --reason debugging --wait 10m",
		RunE: func(c *cobra.Command, hosts []string) error {
			switch {
			case strings.TrimSpace(reason) == "":
				return usagef("lock: --reason is what others see when they are refused: say in a few words what for")
			case length <= 0 || length > 7*24*time.Hour:
				return usagef("--for %v: need a time up to a week (168h)", length)
			case wait < 0:
				return usagef("--wait cannot be below 0")
			}
			now := time.Now()
			l := locks.Lock{ID: experiments.Owner(), Owner: experiments.Owner(), Reason: strings.TrimSpace(reason), Since: now.UTC(), Expires: now.Add(length).UTC(),
				Resources: []locks.Resource{{Kind: locks.Host}}}
			return e.onHosts(c.Context(), lab, hosts, func(ctx context.Context, pool *remote.Pool, hosts []string) error {
				if err := e.takeAll(ctx, pool, hosts, l, wait); err != nil {
					return err
				}
				if !e.quiet {
					fmt.Fprintf(e.stderr, "locked %s until %s for %s\n", strings.Join(hosts, ", "), l.Expires.Format(time.RFC3339), l.Owner)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&lab, "inventory", "i", "", "lab file, or the name of a virtual lab that is up")
	cmd.Flags().StringVar(&reason, "reason", "", "what for, in words for others")
	cmd.Flags().DurationVar(&length, "for", time.Hour, "how long")
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for locks of others")
	cmd.MarkFlagRequired("inventory")
	return cmd
}

// takeAll locks all hosts or none; what others hold is waited for.
func (e *env) takeAll(ctx context.Context, pool *remote.Pool, hosts []string, l locks.Lock, wait time.Duration) error {
	until := time.Now().Add(wait)
	told := ""
	for {
		var mu sync.Mutex
		got := map[string]*locks.Lock{} // by host: what was there before
		busy := &locks.BusyError{}
		err := pool.Each(ctx, hosts, func(ctx context.Context, h remote.Host) error {
			before, err := locks.Take(ctx, h, l)
			mu.Lock()
			defer mu.Unlock()
			var b *locks.BusyError
			switch {
			case err == nil:
				got[h.Name()] = before
			case errors.As(err, &b):
				busy.Held = append(busy.Held, b.Held...)
				return nil
			}
			return err
		})
		if err == nil && len(busy.Held) == 0 {
			return nil
		}
		// Not half: what was taken goes back, to an older lock of the same person where there was one.
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		if len(got) > 0 {
			err = errors.Join(err, pool.Each(back, slices.Collect(maps.Keys(got)), func(ctx context.Context, h remote.Host) error {
				if before := got[h.Name()]; before != nil {
					_, err := locks.Take(ctx, h, *before)
					return err
				}
				return locks.Drop(ctx, h, l.ID)
			}))
		}
		cancel()
		if err != nil {
			return err
		}
		slices.SortFunc(busy.Held, func(a, b locks.Held) int { return cmp.Compare(a.HostName, b.HostName) })
		if time.Now().Add(time.Second).After(until) {
			return fmt.Errorf("%w: %w", experiments.ErrBusy, busy)
		}
		if text := busy.Error(); text != told {
			told = text
			fmt.Fprintf(e.stderr, "waiting: %s\n", text)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func newUnlockCommand(e *env) *cobra.Command {
	var lab, of string
	cmd := &cobra.Command{
		Use:   "unlock -i LAB [HOST...]",
		Short: "Give hosts back that you locked",
		Long: "Give hosts back (all of the lab, or those named). Without a lock there, nothing happens. --force OWNER takes away what somebody else\n" +
			"locked, as `pcmlab who` names the owner; the hosts let only root and the owner's own account do that. Locks of runs end with their run:\n" +
			"pcmlab stop ends a run, pcmlab cleanup what it left.",
		Example: "  pcmlab unlock -i labs/testbed.yaml\n  pcmlab unlock -i labs/testbed.yaml h1 --force alice@gateway",
		RunE: func(c *cobra.Command, hosts []string) error {
			id := cmp.Or(of, experiments.Owner())
			return e.onHosts(c.Context(), lab, hosts, func(ctx context.Context, pool *remote.Pool, hosts []string) error {
				return pool.Each(ctx, hosts, func(ctx context.Context, h remote.Host) error { return locks.Drop(ctx, h, id) })
			})
		},
	}
	cmd.Flags().StringVarP(&lab, "inventory", "i", "", "lab file, or the name of a virtual lab that is up")
	cmd.Flags().StringVar(&of, "force", "", "owner whose locks are taken away")
	cmd.MarkFlagRequired("inventory")
	return cmd
}

// whoRow is a resource that somebody holds, in `who -o json`.
type whoRow struct {
	Host     string     `json:"host"`
	Resource string     `json:"resource"`
	Owner    string     `json:"owner"`
	Run      *string    `json:"run"`
	Reason   string     `json:"reason"`
	Since    *time.Time `json:"since"` // null: not known, of a port
	Expires  time.Time  `json:"expires"`
}

func newWhoCommand(e *env) *cobra.Command {
	var lab, output string
	cmd := &cobra.Command{
		Use:     "who -i LAB [HOST...]",
		Short:   "Say who holds what of a shared lab, why and how long",
		Long:    "Say who holds what of a lab's hosts: locks of people (pcmlab lock), and the network interfaces and ports of runs that go on.",
		Example: "  pcmlab who -i labs/testbed.yaml\n  pcmlab who -i labs/testbed.yaml -o json",
		RunE: func(c *cobra.Command, hosts []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			rows := []whoRow{}
			var mu sync.Mutex
			err := e.onHosts(c.Context(), lab, hosts, func(ctx context.Context, pool *remote.Pool, hosts []string) error {
				return pool.Each(ctx, hosts, func(ctx context.Context, h remote.Host) error {
					found, err := locks.List(ctx, h)
					claims, portErr := perftest.ListPorts(ctx, h)
					mu.Lock()
					defer mu.Unlock()
					for _, c := range claims {
						rows = append(rows, whoRow{Host: h.Name(), Resource: fmt.Sprintf("port %d", c.Port), Owner: c.Owner, Run: &c.Run, Expires: c.Expires.UTC()})
					}
					for _, l := range found {
						row := whoRow{Host: h.Name(), Owner: l.Owner, Reason: l.Reason, Since: &l.Since, Expires: l.Expires.UTC()}
						if l.Run {
							row.Run = &l.ID
						}
						for _, r := range l.Resources {
							row.Resource = r.String()
							rows = append(rows, row)
						}
					}
					return errors.Join(err, portErr)
				})
			})
			slices.SortStableFunc(rows, func(a, b whoRow) int { return cmp.Compare(a.Host, b.Host) })
			if output == "json" {
				return errors.Join(err, writeJSON(e.stdout, map[string]any{"schema": "pcmlab/who/v1", "held": rows}))
			}
			if len(rows) == 0 {
				if err == nil && !e.quiet {
					fmt.Fprintln(e.stderr, "nobody holds anything")
				}
				return err
			}
			t := e.newTable("host", "holds", "owner", "run", "reason", "since", "until")
			for _, r := range rows {
				run, since := "-", "-"
				if r.Run != nil {
					run = *r.Run
				}
				if r.Since != nil {
					since = r.Since.UTC().Format(time.DateTime)
				}
				t.row(r.Host, r.Resource, r.Owner, run, r.Reason, since, r.Expires.Format(time.DateTime))
			}
			return errors.Join(err, t.print())
		},
	}
	cmd.Flags().StringVarP(&lab, "inventory", "i", "", "lab file, or the name of a virtual lab that is up")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.MarkFlagRequired("inventory")
	return cmd
}

// onHosts runs f with the hosts of a lab that were named, or all of them.
func (e *env) onHosts(ctx context.Context, lab string, names []string, f func(context.Context, *remote.Pool, []string) error) error {
	l, err := loadLab(lab)
	if err != nil {
		return err
	}
	if l.Virtual != nil && !isUp(l) {
		return usagef("lab %s is virtual and not up: it exists for its run alone and needs no lock (pcmlab lab up %s raises it)", l.Name, lab)
	}
	names, err = chooseHosts(l, names)
	if err != nil {
		return err
	}
	pool, err := remote.NewPool(l, remote.Options{Log: e.log})
	if err != nil {
		return err
	}
	defer pool.Close()
	return f(ctx, pool, names)
}

func chooseHosts(l *inventory.Lab, names []string) ([]string, error) {
	var all, unknown []string
	for _, h := range l.Hosts {
		all = append(all, h.Name)
	}
	if len(names) == 0 {
		return all, nil
	}
	for _, n := range names {
		if !slices.Contains(all, n) {
			unknown = append(unknown, n)
		}
	}
	if len(unknown) > 0 {
		return nil, usagef("no host %s in lab %s: it has %s", strings.Join(unknown, ", "), l.Name, strings.Join(all, ", "))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// newLocksCommand is what runs on a host.
func newLocksCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "locks", Hidden: true, Short: "Take, hold and list locks of this host (pcmlab starts this itself)", DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			if code := locks.Main(c.Context(), args, e.stdout, e.stderr); code != 0 {
				return &codedError{code, nil}
			}
			return nil
		},
	}
}
