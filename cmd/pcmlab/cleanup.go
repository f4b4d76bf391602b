package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/guard"
	"github.com/pcmlab/pcmlab/inventory/vlab"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

// cleaned is one thing that cleanup found and what became of it.
type cleaned struct {
	Host   string `json:"host"`
	Run    string `json:"run"`
	What   string `json:"what"`
	Result string `json:"result"`
}

func newCleanupCommand(e *env) *cobra.Command {
	var run, lab, output string
	var mine, dry bool
	cmd := &cobra.Command{
		Use:   "cleanup [--run ID|--all-mine] [-i LAB]",
		Short: "Stop and remove what a run that died left behind, here and on a lab's hosts",
		Long: "Guards clean up by themselves within ten seconds after a run dies. This stops those that are still at work, removes\n" +
			"their records, puts back settings that a run changed on hosts of -i, gives its TCP ports there back, and takes down virtual labs that lost their owner\n" +
			"or parts of themselves. Only things of your own are touched, and only by their run id: nothing is found by name.\n" +
			"Without --run or --all-mine it lists what it would do.",
		Example: "  pcmlab cleanup\n  pcmlab cleanup --run 20261129-120000.000-incast-3to1\n  pcmlab cleanup --all-mine -i labs/testbed.yaml",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			if run != "" && mine {
				return usagef("cleanup: --run and --all-mine exclude each other")
			}
			found, err := cleanHere(c.Context(), run, dry || run == "" && !mine)
			if lab != "" {
				more, lerr := e.cleanHosts(c.Context(), lab, run, mine, dry)
				found, err = append(found, more...), errors.Join(err, lerr)
			}
			if output == "json" {
				if found == nil {
					found = []cleaned{}
				}
				return errors.Join(err, writeJSON(e.stdout, map[string]any{"schema": "pcmlab/cleanup/v1", "found": found}))
			}
			if len(found) == 0 {
				if err == nil && !e.quiet {
					fmt.Fprintln(e.stderr, "nothing of yours is left behind")
				}
				return err
			}
			t := e.newTable("host", "run", "what", "result")
			for _, f := range found {
				t.row(f.Host, f.Run, f.What, f.Result)
			}
			return errors.Join(err, t.print())
		},
	}
	cmd.Flags().StringVar(&run, "run", "", "id of the run")
	cmd.Flags().BoolVar(&mine, "all-mine", false, "every run of this user")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "list, change nothing")
	cmd.Flags().StringVarP(&lab, "inventory", "i", "", "lab whose hosts are cleaned too")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// cleanHere cleans this machine: guards, and virtual labs that are not whole.
func cleanHere(ctx context.Context, run string, dry bool) ([]cleaned, error) {
	var found []cleaned
	states, err := guard.List(run)
	if err == nil && !dry {
		states, err = guard.Cleanup(ctx, run)
	}
	for _, s := range states {
		result := "record removed"
		switch {
		case dry && s.Alive:
			result = "still at work"
		case dry:
			result = "left a record"
		case s.Alive:
			result = "stopped"
		}
		found = append(found, cleaned{s.Host, s.Run, fmt.Sprintf("guard of %q", s.Args), result})
	}
	if run != "" {
		ends, lerr := guard.Log(run)
		for _, r := range ends {
			found = append(found, cleaned{r.Host, r.Run, fmt.Sprintf("guard of %q", r.Args), "had cleaned up: " + ended(r.Exit)})
		}
		return found, errors.Join(err, lerr)
	}
	labs, lerr := vlab.List(vlab.Options{})
	err = errors.Join(err, lerr)
	for _, l := range labs {
		if l.Status == vlab.StatusUp || l.Status == vlab.StatusStarting {
			continue
		}
		c := cleaned{"this machine", l.ID, "virtual lab " + l.Name, "is " + string(l.Status)}
		if !dry {
			if _, derr := vlab.Down(ctx, l.ID, vlab.Options{}); derr != nil {
				err = errors.Join(err, derr)
				c.Result = "left: " + derr.Error()
			} else {
				c.Result = "removed"
			}
		}
		found = append(found, c)
	}
	return found, err
}

// ended is why a guard had to clean up.
func ended(x *guard.ExitInfo) string {
	switch {
	case x == nil:
		return "its end is not known"
	case x.Cause == guard.CauseLost:
		return "its owner was lost"
	case x.Cause == "":
		return "it ended by itself, and its owner was not there to be told"
	}
	return strings.ReplaceAll(string(x.Cause), "_", " ")
}

// cleanHosts runs cleanup on every host of a lab.
func (e *env) cleanHosts(ctx context.Context, lab, run string, mine, dry bool) ([]cleaned, error) {
	l, err := loadLab(lab)
	if err != nil {
		return nil, err
	}
	pool, err := remote.NewPool(l, remote.Options{Log: e.log})
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	args := []string{"pcmlab", "cleanup", "-o", "json"}
	if run != "" {
		args = append(args, "--run", run)
	}
	if mine {
		args = append(args, "--all-mine")
	}
	if dry {
		args = append(args, "--dry-run")
	}
	perHost := make([][]cleaned, len(l.Hosts))
	errs := make([]error, len(l.Hosts))
	done := make(chan struct{})
	for i, host := range l.Hosts {
		go func() {
			defer func() { done <- struct{}{} }()
			h, err := pool.Host(ctx, host.Name)
			if err != nil {
				errs[i] = err
				return
			}
			res, err := h.Run(ctx, remote.Cmd{Args: args, Step: "clean up", Deadline: time.Minute})
			if err != nil {
				errs[i] = err
				return
			}
			var doc struct{ Found []cleaned }
			if err := json.Unmarshal(res.Stdout, &doc); err != nil {
				errs[i] = &remote.Error{Host: host.Name, Step: "clean up", Err: fmt.Errorf("exit status %d (%s)", res.Code, res.Stderr)}
				return
			}
			for _, c := range doc.Found {
				c.Host = host.Name
				perHost[i] = append(perHost[i], c)
			}
			settings, err := cleanKnobs(ctx, h, host, run, experiments.Owner(), dry || run == "" && !mine)
			ports, perr := cleanPorts(ctx, h, host.Name, run, mine, dry)
			perHost[i], errs[i] = append(append(perHost[i], settings...), ports...), errors.Join(err, perr)
		}()
	}
	for range l.Hosts {
		<-done
	}
	var all []cleaned
	for _, c := range perHost {
		all = append(all, c...)
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Host < all[j].Host })
	return all, errors.Join(errs...)
}

// cleanPorts gives back the TCP ports that a run, or all of this user's, still claims on a host.
func cleanPorts(ctx context.Context, h remote.Host, host, run string, mine, dry bool) ([]cleaned, error) {
	if run == "" && !mine {
		return nil, nil
	}
	held, err := perftest.ListPorts(ctx, h)
	var found []cleaned
	var errs []error
	for _, p := range held {
		if of := strings.TrimSuffix(p.Run, ".pool"); run != "" && of != run || run == "" && p.Owner != experiments.Owner() {
			continue
		} else if !dry {
			_, err := h.Run(ctx, remote.Cmd{Args: perftest.ForgetPorts(of), Step: "give TCP ports back", Plain: true})
			errs = append(errs, err)
			found = append(found, cleaned{host, of, fmt.Sprintf("TCP port %d", p.Port), "given back"})
		} else {
			found = append(found, cleaned{host, of, fmt.Sprintf("TCP port %d", p.Port), "claimed"})
		}
	}
	return found, errors.Join(append(errs, err)...)
}
