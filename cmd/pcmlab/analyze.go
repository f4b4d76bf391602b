package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/units"
)

type analyzeOptions struct {
	bin      time.Duration
	port     uint16
	phases   string
	upstream []string
	names    []string
	linkRate string
	scale    float64
	icrc     bool
	output   string
	html     string
}

func newAnalyzeCommand(e *env) *cobra.Command {
	var o analyzeOptions
	cmd := &cobra.Command{
		Use:   "analyze PCAP...|RUN",
		Short: "Say what captures of RoCEv2 traffic show: goodput, fairness, marks, CNPs, losses",
		Long: "Say what captures show. Several captures are several taps of the same traffic. The folder of a run is analysed as\n" +
			"the run did it, and gives the same document.\n\nExit status: 0 complete, 4 a capture is cut or blind (the table and document say where).",
		Example: "  pcmlab analyze receiver.pcapng\n  pcmlab analyze switch-out.pcap --upstream switch-in.pcap -o json --html page.html\n  pcmlab analyze runs/20261129-120000.000-incast-3to1",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return e.analyze(c, &o, args) },
	}
	f := cmd.Flags()
	f.DurationVar(&o.bin, "bin", 0, "bin of the time series (10ms)")
	f.Uint16Var(&o.port, "port", 4791, "UDP port of RoCEv2; mirrors may rewrite it")
	f.StringVar(&o.phases, "phases", "", "take the phases, names and rates from this run's folder")
	f.StringArrayVar(&o.upstream, "upstream", nil, "capture of a tap before the queue, to count what was lost between (may be repeated)")
	f.StringArrayVar(&o.names, "name", nil, "name a data address: 192.0.2.11=h1 (may be repeated)")
	f.StringVar(&o.linkRate, "link-rate", "", "rate of the captured link as built, such as 500Mbit/s; gives utilisation")
	f.Float64Var(&o.scale, "time-scale", 1, "time scale of the lab that the captures were made in")
	f.BoolVar(&o.icrc, "icrc", false, "check the ICRC of packets that were captured whole")
	f.StringVarP(&o.output, "output", "o", "table", "table, json, jsonl (a flow a line), csv or parquet (long form)")
	f.StringVar(&o.html, "html", "", "also write a page with plots: one file that needs no network")
	return cmd
}

func (e *env) analyze(c *cobra.Command, o *analyzeOptions, args []string) error {
	if err := checkOutput(o.output, "table", "json", "jsonl", "csv", "parquet"); err != nil {
		return err
	}
	doc, err := o.document(c, args)
	if err != nil {
		return err
	}
	if o.html != "" {
		if err := writePage(doc, o.html); err != nil {
			return err
		}
	}
	if err := e.printDocument(doc, o.output); err != nil {
		return err
	}
	if doc.Quality.Verdict != analysis.Complete {
		return &codedError{exitData, fmt.Errorf("the capture is %s: %s", doc.Quality.Verdict, strings.Join(doc.Quality.Notes, "; "))}
	}
	return nil
}

func (o *analyzeOptions) document(c *cobra.Command, args []string) (*analysis.Document, error) {
	if st, err := os.Stat(args[0]); err == nil && st.IsDir() {
		if len(args) > 1 || len(o.upstream) > 0 {
			return nil, usagef("analyze %s: the folder of a run is analysed alone", args[0])
		}
		return experiments.AnalyzeBundle(c.Context(), args[0])
	}
	opts := analysis.Options{Bin: o.bin, UDPPort: o.port, TimeScale: o.scale, CheckICRC: o.icrc, Names: map[netip.Addr]string{}}
	if o.linkRate != "" {
		rate, err := units.ParseRate(o.linkRate)
		if err != nil {
			return nil, usagef("--link-rate: %w", err)
		}
		opts.LinkRateBps = float64(rate)
	}
	if o.phases != "" {
		if err := phasesOf(o.phases, &opts); err != nil {
			return nil, err
		}
	}
	for _, n := range o.names {
		addr, name, ok := strings.Cut(n, "=")
		a, err := netip.ParseAddr(addr)
		if !ok || err != nil || name == "" {
			return nil, usagef("--name %q: need ADDRESS=NAME, such as 192.0.2.11=h1", n)
		}
		opts.Names[a] = name
	}
	var inputs []analysis.Input
	for _, p := range args {
		inputs = append(inputs, analysis.Input{Path: p, Tap: filepath.Base(p)})
	}
	for _, p := range o.upstream {
		inputs = append(inputs, analysis.Input{Path: p, Tap: filepath.Base(p), Role: analysis.Upstream})
	}
	for _, in := range inputs {
		if _, err := os.Stat(in.Path); err != nil {
			return nil, &codedError{exitUsage, err}
		}
	}
	doc, err := analysis.Run(c.Context(), inputs, opts)
	if err != nil {
		return nil, &codedError{exitData, err}
	}
	return doc, nil
}

func phasesOf(dir string, opts *analysis.Options) error {
	data, err := os.ReadFile(filepath.Join(dir, "analysis-input.json"))
	if err != nil {
		return usagef("--phases: %w", err)
	}
	var in experiments.AnalysisInput
	if err := json.Unmarshal(data, &in); err != nil {
		return usagef("--phases: %s: analysis-input.json: %w", dir, err)
	}
	opts.Phases, opts.TimeScale, opts.LinkRateBps = in.Phases, in.Scale, in.LinkBps
	if opts.Bin == 0 {
		opts.Bin = time.Duration(in.BinNS)
	}
	for addr, name := range in.Names {
		if a, err := netip.ParseAddr(addr); err == nil {
			opts.Names[a] = name
		}
	}
	return nil
}

func (e *env) printDocument(doc *analysis.Document, output string) error {
	switch output {
	case "json":
		return writeJSON(e.stdout, doc)
	case "jsonl":
		enc := json.NewEncoder(e.stdout)
		for i := range doc.Flows {
			if err := enc.Encode(&doc.Flows[i]); err != nil {
				return err
			}
		}
		return nil
	case "csv":
		return doc.WriteCSV(e.stdout, "")
	case "parquet":
		return e.writeParquet(doc)
	}
	for _, table := range doc.Tables() {
		t := e.newTable()
		t.columns(table.Columns)
		if table.Title != "" {
			t.title(table.Title)
		}
		for _, row := range table.Rows {
			t.row(row...)
		}
		if err := t.print(); err != nil {
			return err
		}
	}
	return nil
}
