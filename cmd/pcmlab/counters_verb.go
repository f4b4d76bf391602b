package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends/counters"
)

type countersOptions struct {
	lab    string
	length time.Duration
	output string
	all    bool
}

// countersDocument is what -o json prints of a lab: readings as they are. Two of them, or one with --for, give what moved.
type countersDocument struct {
	Schema string                  `json:"schema"` // pcmlab/counter-readings/v1
	Lab    string                  `json:"lab"`
	Hosts  map[string]hostReadings `json:"hosts"`
}

type hostReadings struct {
	NICs   []nicNames        `json:"nics"`
	Before *counters.Reading `json:"before"`
	After  *counters.Reading `json:"after"` // null without --for
	Moved  []counters.Change `json:"moved"` // between them, under names of ours; null without --for
	Clock  *counters.Clock   `json:"clock"`
}

type nicNames struct{ Device, Netdev string }

const readingsSchema = "pcmlab/counter-readings/v1"

func newCountersCommand(e *env) *cobra.Command {
	var o countersOptions
	cmd := &cobra.Command{
		Use:   "counters -i LAB [HOST...] | BEFORE AFTER",
		Short: "Read the counters of a lab's NICs, interfaces and queues, or say what they moved by",
		Long: "Read what the hosts of a lab have counted: RDMA devices, ethtool -S, interfaces, queueing disciplines. With --for they are read\n" +
			"again after that time, and what moved is shown under names that mean the same on every NIC, with the source of each; so it is with\n" +
			"two documents of -o json, BEFORE and AFTER. Counters that wrapped, began again, stand at their end or are not there are told apart:\n" +
			"only the first has moved by a number that is known. Nothing is changed on the hosts.",
		Example: "  pcmlab counters -i labs/testbed.yaml --for 10s\n" +
			"  pcmlab counters -i labs/testbed.yaml h1 -o json > before.json\n" +
			"  pcmlab counters before.json after.json",
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error { return e.counters(c.Context(), &o, args) },
	}
	cmd.Flags().StringVarP(&o.lab, "inventory", "i", "", "lab file, or the name of a virtual lab that is up")
	cmd.Flags().DurationVar(&o.length, "for", 0, "read again after this time, and say what moved")
	cmd.Flags().StringVarP(&o.output, "output", "o", "table", "table or json")
	cmd.Flags().BoolVar(&o.all, "all", false, "also what did not move")
	cmd.RegisterFlagCompletionFunc("inventory", completeFiles("yaml", "yml"))
	return cmd
}

func (e *env) counters(ctx context.Context, o *countersOptions, args []string) error {
	if err := checkOutput(o.output, "table", "json"); err != nil {
		return err
	}
	if o.length < 0 {
		return usagef("--for %v: need a positive time, such as 10s", o.length)
	}
	var doc *countersDocument
	var err error
	switch {
	case o.lab != "":
		doc, err = e.readLab(ctx, o, args)
	case len(args) == 2:
		if o.length > 0 {
			return usagef("--for belongs to -i LAB: two documents are of two times already")
		}
		doc, err = betweenDocuments(args[0], args[1])
	default:
		return usagef("pcmlab counters: need -i LAB, or two documents of -o json: BEFORE AFTER")
	}
	if doc == nil {
		return err
	}
	if o.output == "json" {
		return errors.Join(writeJSON(e.stdout, doc), err)
	}
	return errors.Join(e.printCounters(doc, o.all), err)
}

// readLab reads the hosts at once. Those that could not be asked are an error beside the others.
func (e *env) readLab(ctx context.Context, o *countersOptions, hosts []string) (*countersDocument, error) {
	lab, err := liveLab("counters", o.lab)
	if err != nil {
		return nil, err
	}
	var mistakes []error
	for _, name := range hosts {
		if lab.Host(name) == nil {
			mistakes = append(mistakes, usagef("lab %s has no host %q", lab.Name, name))
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	if len(hosts) == 0 {
		for _, h := range lab.Hosts {
			hosts = append(hosts, h.Name)
		}
	}
	pool, err := remote.NewPool(lab, fanOut(remote.Options{Log: e.log}))
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	doc := &countersDocument{Schema: readingsSchema, Lab: lab.Name, Hosts: map[string]hostReadings{}}
	var mu sync.Mutex
	err = pool.Each(ctx, hosts, func(ctx context.Context, h remote.Host) error {
		read, err := readHost(ctx, lab, h, o.length)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		doc.Hosts[h.Name()] = read
		return nil
	})
	return doc, err
}

func readHost(ctx context.Context, lab *inventory.Lab, h remote.Host, length time.Duration) (hostReadings, error) {
	var out hostReadings
	var netdevs []string
	for _, n := range lab.Host(h.Name()).NICs {
		out.NICs = append(out.NICs, nicNames{fmt.Sprintf("%s/%d", n.Device, max(n.Port, 1)), n.Netdev})
		netdevs = append(netdevs, n.Netdev)
	}
	for _, t := range lab.Taps {
		if t.Host == h.Name() && !slices.Contains(netdevs, t.Iface) {
			netdevs = append(netdevs, t.Iface)
			out.NICs = append(out.NICs, nicNames{"", t.Iface})
		}
	}
	w, err := counters.Start(ctx, h, counters.Question{Netdevs: netdevs, Tools: true, Deadline: length + time.Minute})
	if err != nil {
		return out, err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		w.Close(end)
	}()
	var clock counters.Clock
	if out.Before, clock, err = w.Read(ctx); err != nil {
		return out, err
	}
	out.Clock = &clock
	if length == 0 {
		return out, nil
	}
	t := time.NewTimer(length)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return out, ctx.Err()
	}
	if out.After, _, err = w.Read(ctx); err == nil {
		out.move()
	}
	return out, err
}

// move says what moved.
func (h *hostReadings) move() {
	raw := counters.Compare(h.Before, h.After)
	h.Moved = []counters.Change{}
	for _, n := range h.NICs {
		h.Moved = append(h.Moved, counters.Named(raw, n.Device, n.Netdev)...)
	}
	for _, c := range raw { // queues have no names of ours: each kind has its own
		if c.Source == counters.Qdisc {
			h.Moved = append(h.Moved, c)
		}
	}
}

func betweenDocuments(before, after string) (*countersDocument, error) {
	var docs [2]countersDocument
	var mistakes []error
	for i, name := range []string{before, after} {
		data, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(data, &docs[i])
		}
		if err == nil && docs[i].Schema != readingsSchema {
			err = fmt.Errorf("schema %q: want %q", docs[i].Schema, readingsSchema)
		}
		if err != nil {
			mistakes = append(mistakes, usagef("%s: no document of pcmlab counters -i LAB -o json: %w", name, err))
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	out := &countersDocument{Schema: readingsSchema, Lab: docs[0].Lab, Hosts: map[string]hostReadings{}}
	for name, h := range docs[0].Hosts {
		later, ok := docs[1].Hosts[name]
		if !ok {
			mistakes = append(mistakes, usagef("%s: has no host %s, which %s has", after, name, before))
			continue
		}
		h.After = later.Before
		if later.After != nil {
			h.After = later.After
		}
		h.move()
		out.Hosts[name] = h
	}
	return out, errors.Join(mistakes...)
}

func (e *env) printCounters(doc *countersDocument, all bool) error {
	t := e.newTable("host", "object", "counter", "moved", "unit", "source", "scope", "why")
	rows := 0
	for _, host := range slices.Sorted(maps.Keys(doc.Hosts)) {
		h := doc.Hosts[host]
		if h.After == nil {
			for _, s := range h.Before.Sets {
				if s.Missing != "" {
					t.row(host, s.Object, "-", "-", "", string(s.Source), "", s.Missing)
				}
				for _, name := range slices.Sorted(maps.Keys(s.Values)) {
					if v := s.Values[name]; v > 0 || all {
						t.row(host, s.Object, name, fmt.Sprint(v), "", string(s.Source), "", "since it began")
						rows++
					}
				}
			}
			continue
		}
		for _, c := range h.Moved {
			moved := "-"
			if c.Growth != nil {
				moved = fmt.Sprint(*c.Growth)
			}
			if !all && c.Kind == counters.Counted && moved == "0" {
				continue
			}
			why := c.Why
			if c.Kind == counters.Wrapped {
				why = "passed the end of its bits"
			}
			source := string(c.Source)
			if len(c.Raw) > 0 {
				source += " " + strings.Join(c.Raw, " + ")
			}
			t.row(host, c.Object, c.Name, moved, c.Unit, source, string(c.Scope), why)
			rows++
		}
	}
	if rows == 0 {
		fmt.Fprintln(e.stdout, "no counter moved (--all shows them)")
		return nil
	}
	return t.print()
}
