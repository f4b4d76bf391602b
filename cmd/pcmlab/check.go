package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/ci"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends/check"
	"github.com/pcmlab/pcmlab/nicbackends/facts"
)

type labCheckOptions struct {
	lab    string
	output string
	all    bool
	noPing bool
	within time.Duration
	junit  string
	bars   bars
}

func newCheckCommand(e *env) *cobra.Command {
	var o labCheckOptions
	cmd := &cobra.Command{
		Use:   "check -i LAB",
		Short: "Look at every host, NIC, tap and path of a lab before a run; each problem with its fix",
		Long: "Ask every host of a lab, in parallel, what it is, and hold that against the lab file: clocks, tools and versions, RDMA\n" +
			"devices, links, MTU, GIDs, PFC, ECN and DSCP maps, limits, disk, rights, what earlier runs left; then send datagrams to UDP\n" +
			"4791 between every pair of data addresses (pcmlab ping). Reading changes nothing on the hosts, and pushes nothing to them but\n" +
			"to those whose NICs take handlers as programs (backend: docapcc): pcmlab itself reads there what the firmware runs and has staged.\n\n" +
			"A skip could not be judged, and says why: it is no pass. Exit 1 when something fails, 3 when a host could not be asked.",
		Example: "  pcmlab check -i labs/testbed.yaml\n  pcmlab check -i labs/testbed.yaml --all\n  pcmlab check -i labs/testbed.yaml -o json",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return e.check(c.Context(), &o) },
	}
	cmd.Flags().StringVarP(&o.lab, "inventory", "i", "", "lab file, or the name of a virtual lab that is up")
	cmd.Flags().StringVarP(&o.output, "output", "o", "table", "table or json")
	cmd.Flags().BoolVar(&o.all, "all", false, "list what passed, too")
	cmd.Flags().BoolVar(&o.noPing, "no-ping", false, "send nothing between the data addresses")
	cmd.Flags().DurationVar(&o.within, "timeout", 30*time.Second, "wait this long for one host")
	cmd.Flags().StringVar(&o.junit, "junit", "", "write JUnit XML to this file: a suite for each host, skips with their reason")
	o.bars.addFlags(cmd)
	cmd.MarkFlagRequired("inventory")
	cmd.RegisterFlagCompletionFunc("inventory", completeFiles("yaml", "yml"))
	return cmd
}

// bars are what paths must reach.
type bars struct {
	rtt  time.Duration
	lost int
}

func (b *bars) addFlags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&b.rtt, "max-rtt", 0, "a path with a longer round trip fails; no bar when 0")
	cmd.Flags().IntVar(&b.lost, "max-lost", -1, "a path that loses more datagrams fails; when -1 one that loses all fails, and others are warnings")
}

// set puts them into the options of a mesh, or says what is wrong with them.
func (b *bars) set(o *check.MeshOptions) error {
	if b.rtt < 0 {
		return usagef("--max-rtt %v: need a positive time, such as 500us", b.rtt)
	}
	if b.lost < -1 {
		return usagef("--max-lost %d: need a number of datagrams, such as 0", b.lost)
	}
	o.MaxRTT = b.rtt
	if b.lost >= 0 {
		o.MaxLost = &b.lost
	}
	return nil
}

// writeJUnit tells continuous integration what a check found.
func writeJUnit(file string, lab string, findings []check.Finding) error {
	if file == "" {
		return nil
	}
	var b bytes.Buffer
	if err := ci.OfCheck(lab, findings).WriteJUnit(&b); err != nil {
		return err
	}
	if err := experiments.WriteAtomic(file, b.Bytes()); err != nil {
		return usagef("--junit %s: %w", file, err)
	}
	return nil
}

// liveLab reads a lab whose hosts can be asked now: real ones, or a virtual lab that is up.
func liveLab(verb, nameOrFile string) (*inventory.Lab, error) {
	if kindOf(nameOrFile) == "playbook" {
		return nil, usagef("-i %s is a playbook: -i wants a lab file, or the name of a virtual lab that is up", nameOrFile)
	}
	l, err := loadLab(nameOrFile)
	if err != nil || l.Virtual == nil || isUp(l) {
		return l, err
	}
	up, err := runningLab(l.Name)
	if err != nil {
		return nil, usagef("pcmlab %s: lab %s is virtual, and is not up: pcmlab lab up %s, then pcmlab %s -i %s", verb, l.Name, nameOrFile, verb, l.Name)
	}
	return up, nil
}

// fanOut are limits for asking many hosts for little: what costs time is waiting.
func fanOut(o remote.Options) remote.Options {
	o.Parallel, o.Handshakes = 128, 32
	o.SameMachine = true // check finds that by itself, and names it
	return o
}

// checkDocument is what -o json prints.
type checkDocument struct {
	Schema   string                 `json:"schema"`
	Lab      string                 `json:"lab"`
	Verdict  check.Verdict          `json:"verdict"`
	Counts   map[check.Verdict]int  `json:"counts"`
	Findings []check.Finding        `json:"findings"`
	Hosts    map[string]facts.Facts `json:"hosts"`
	Paths    []check.Path           `json:"paths"` // empty when nothing was sent
}

func (e *env) check(ctx context.Context, o *labCheckOptions) error {
	if err := checkOutput(o.output, "table", "json"); err != nil {
		return err
	}
	if o.within <= 0 {
		return usagef("--timeout %v: need a positive time, such as 30s", o.within)
	}
	var paths check.MeshOptions
	if err := errors.Join(o.bars.set(&paths), (&ciOptions{annotations: "auto", junit: o.junit}).check()); err != nil {
		return err
	}
	lab, err := liveLab("check", o.lab)
	if err != nil {
		return err
	}
	pool, err := remote.NewPool(lab, fanOut(remote.Options{Log: e.log, ConnectTimeout: min(o.within, 10*time.Second)}))
	if err != nil {
		return err
	}
	defer pool.Close()
	answers := check.Ask(ctx, pool, lab, check.Options{Within: o.within})
	if err := ctx.Err(); err != nil {
		return err
	}
	doc := checkDocument{Schema: "pcmlab/check/v1", Lab: lab.Name, Findings: check.Judge(lab, answers), Hosts: map[string]facts.Facts{}, Paths: []check.Path{}}
	for _, a := range answers {
		if a.Facts.Hostname != "" {
			doc.Hosts[a.Host] = a.Facts
		}
	}
	doc.Findings = append(doc.Findings, check.Programs(ctx, pool, lab, answers, backends(), o.within)...)
	if !o.noPing {
		doc.Paths = check.Mesh(ctx, pool, lab, answers, paths)
		doc.Findings = append(doc.Findings, check.PathFindings(doc.Paths)...)
	}
	doc.Counts = check.Count(doc.Findings)
	doc.Verdict = worst(doc.Counts)
	if o.output == "json" {
		err = writeJSON(e.stdout, doc)
	} else {
		err = e.printFindings(doc, o.all, len(lab.Hosts))
	}
	return errors.Join(err, writeJUnit(o.junit, lab.Name, doc.Findings), ctx.Err(), checkError(doc.Counts, check.NotAsked(answers)))
}

func worst(n map[check.Verdict]int) check.Verdict {
	for _, v := range []check.Verdict{check.Fail, check.Warn, check.Skip} {
		if n[v] > 0 {
			return v
		}
	}
	return check.Pass
}

// checkError is the exit code of findings: 3 when a host could not be asked, 1 when something else failed.
func checkError(n map[check.Verdict]int, notAsked bool) error {
	switch {
	case notAsked:
		return &codedError{exitInfra, nil}
	case n[check.Fail] > 0:
		return &codedError{exitCheckFailed, nil}
	}
	return nil
}

func (e *env) printFindings(doc checkDocument, all bool, hosts int) error {
	t := e.newTable()
	t.columns([]analysis.Column{{Name: "host"}, {Name: "what"}, {Name: "verdict"}, {Name: "found", Wrap: true}, {Name: "why, and what to do", Wrap: true}})
	rows := 0
	for _, f := range doc.Findings {
		if f.Verdict == check.Pass && !all || f.Verdict == check.Skip && !all {
			continue
		}
		rows++
		where := f.Host
		if f.NIC != "" {
			where += " " + f.NIC
		}
		text := f.Why
		if f.Fix != "" {
			text = strings.TrimPrefix(text+"\n→ "+f.Fix, "\n")
		}
		t.row(where, f.What, string(f.Verdict), f.Found, text)
	}
	if rows > 0 {
		if err := t.print(); err != nil {
			return err
		}
	}
	n := doc.Counts
	line := fmt.Sprintf("%d hosts: %d pass, %d fail, %d warn, %d skip", hosts, n[check.Pass], n[check.Fail], n[check.Warn], n[check.Skip])
	if !all && n[check.Skip]+n[check.Pass] > 0 {
		line += " (--all lists them; a skip is no pass)"
	}
	_, err := fmt.Fprintln(e.stdout, line)
	return err
}
