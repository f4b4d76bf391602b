package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/units"
)

type analyzeOptions struct {
	bin         time.Duration
	port        uint16
	rdccPort    uint16
	phases      string
	upstream    []string
	names       []string
	linkRate    string
	scale       float64
	icrc        bool
	sequence    bool
	counters    []string
	logs        []string
	reorder     time.Duration
	workers     int
	dscp        optionalInt
	ecn         string
	cnpScope    string
	cnpInterval time.Duration
	output      string
	html        string
}

func newAnalyzeCommand(e *env) *cobra.Command {
	var o analyzeOptions
	cmd := &cobra.Command{
		Use:   "analyze PCAP...|-|RUN",
		Short: "Say what captures of RoCEv2 traffic show: goodput, fairness, marks, CNPs, losses",
		Long: "Say what captures show: pcap and pcapng, also inside gzip or zstd; - reads standard input. Several captures are several\n" +
			"taps of the same traffic. The files of a ring buffer (tcpdump -C, dumpcap -b) are one tap: give them as a quoted\n" +
			"pattern, or with --sequence. The folder of a run is analysed as the run did it, and gives the same document.\n\n" +
			"Exit status: 0 complete and all checks hold, 1 a check failed, 4 a capture is cut or blind (the table and document say where).",
		Example: "  pcmlab analyze receiver.pcapng\n" +
			"  pcmlab analyze switch-out.pcap --upstream switch-in.pcap -o json --html page.html\n" +
			"  pcmlab analyze 'ring_*.pcapng'\n" +
			"  tcpdump -i eth1 -w - udp port 4791 | pcmlab analyze -\n" +
			"  pcmlab analyze host.pcap --counters before.json after.json      # rdma -j statistic > before.json\n" +
			"  pcmlab analyze host.pcap --expect-dscp 26 --expect-ecn ect\n" +
			"  pcmlab analyze runs/20261129-120000.000-incast-3to1",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return e.analyze(c, &o, args) },
	}
	f := cmd.Flags()
	f.DurationVar(&o.bin, "bin", 0, "bin of the time series (10ms)")
	f.Uint16Var(&o.port, "port", 4791, "UDP port of RoCEv2; mirrors may rewrite it")
	f.Uint16Var(&o.rdccPort, "rdcc-port", 0, "UDP port of RDCC; gives its associations, credit and reports beside the data (there is no default)")
	f.StringVar(&o.phases, "phases", "", "take the phases, names and rates from this run's folder")
	f.StringArrayVar(&o.upstream, "upstream", nil, "capture of a tap before the queue, to count what was lost between (may be repeated)")
	f.StringArrayVar(&o.names, "name", nil, "name a data address: 192.0.2.11=h1 (may be repeated)")
	f.StringVar(&o.linkRate, "link-rate", "", "rate of the captured link as built, such as 500Mbit/s; gives utilisation")
	f.Float64Var(&o.scale, "time-scale", 1, "time scale of the lab that the captures were made in")
	f.BoolVar(&o.icrc, "icrc", false, "check the ICRC of packets that were captured whole")
	f.BoolVar(&o.sequence, "sequence", false, "the captures are files of one tap that follow each other, in any order")
	f.StringSliceVar(&o.counters, "counters", nil, "counters of the NICs before and after the capture (two files or folders: BEFORE AFTER); tells a quiet link from a blind tap")
	f.StringArrayVar(&o.logs, "capture-log", nil, "what tcpdump, dumpcap or tshark printed on standard error: its counts are held against the file (repeated: for the captures in their order)")
	f.DurationVar(&o.reorder, "reorder-window", 0, "records that are late by less are put into order (10ms); negative: take the file's order")
	f.IntVar(&o.workers, "workers", 0, "goroutines that analyse (one a processor); the result is the same")
	f.Var(&o.dscp, "expect-dscp", "DSCP that data packets must carry, 0 to 63 (the traffic class is DSCP*4 + ECN)")
	f.StringVar(&o.ecn, "expect-ecn", "", "ECN that data packets must carry: ect (ECT(0), ECT(1) or CE) or not_ect")
	f.StringVar(&o.cnpScope, "cnp-scope", "", "how the notifier paces CNPs: qp, ip_pair, destination or port; needs --cnp-interval")
	f.DurationVar(&o.cnpInterval, "cnp-interval", 0, "least time between two CNPs of one group of --cnp-scope")
	f.StringVarP(&o.output, "output", "o", "table", "table, json, jsonl (a flow a line), csv or parquet (long form)")
	f.StringVar(&o.html, "html", "", "also write a page with plots: one file that needs no network")
	return cmd
}

// optionalInt is the value of a flag that may be left out: zero is a value like others.
type optionalInt struct{ v *int }

func (o *optionalInt) Type() string { return "int" }

func (o *optionalInt) String() string {
	if o.v == nil {
		return ""
	}
	return strconv.Itoa(*o.v)
}

func (o *optionalInt) Set(text string) error {
	v, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("%q: need a number", text)
	}
	o.v = &v
	return nil
}

func (e *env) analyze(c *cobra.Command, o *analyzeOptions, args []string) error {
	doc, err := o.document(e, c, args)
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
	var failed []error
	if doc.Quality.Verdict != analysis.Complete {
		failed = append(failed, &codedError{exitData, fmt.Errorf("the capture is %s: %s", doc.Quality.Verdict, strings.Join(doc.Quality.Notes, "; "))})
	}
	for _, check := range doc.Checks {
		if check.Verdict == analysis.Fail {
			failed = append(failed, &codedError{exitCheckFailed, fmt.Errorf("check %s failed: %s", check.Name, check.Reason)})
		}
	}
	return errors.Join(failed...)
}

func (o *analyzeOptions) document(e *env, c *cobra.Command, args []string) (*analysis.Document, error) {
	if st, err := os.Stat(args[0]); err == nil && st.IsDir() {
		return o.ofRun(e, c, args)
	}
	opts, mistakes := o.options()
	mistakes = append(mistakes, checkOutput(o.output, "table", "json", "jsonl", "csv", "parquet"))
	inputs, more := o.inputs(args)
	if err := errors.Join(append(mistakes, more...)...); err != nil {
		return nil, err
	}
	doc, err := analysis.Run(c.Context(), inputs, opts)
	if err != nil {
		return nil, &codedError{exitData, err}
	}
	return doc, nil
}

// ofRun analyses the folder of a run, whose options are the run's.
func (o *analyzeOptions) ofRun(e *env, c *cobra.Command, args []string) (*analysis.Document, error) {
	mistakes := []error{checkOutput(o.output, "table", "json", "jsonl", "csv", "parquet")}
	if len(args) > 1 {
		mistakes = append(mistakes, usagef("analyze %s: the folder of a run is analysed alone", args[0]))
	}
	var given []string
	for _, v := range e.settings.values {
		if name, ok := strings.CutPrefix(v.Key, "analyze."); ok && v.Origin == "flag" && name != "output" && name != "html" {
			given = append(given, "--"+name)
		}
	}
	if len(given) > 0 {
		mistakes = append(mistakes, usagef("analyze %s: %s cannot be given: the folder of a run is analysed as the run did it (give its captures by name to change that)",
			args[0], strings.Join(given, ", ")))
	}
	if _, err := os.Stat(filepath.Join(args[0], "analysis-input.json")); err != nil {
		mistakes = append(mistakes, usagef("analyze %s: no folder of a run (it has no analysis-input.json); for the files of a ring buffer give a quoted pattern: '%s'",
			args[0], filepath.Join(args[0], "*.pcap*")))
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	return experiments.AnalyzeBundle(c.Context(), args[0])
}

// options turns the flags into options, and returns every mistake in them.
func (o *analyzeOptions) options() (opts analysis.Options, mistakes []error) {
	opts = analysis.Options{Bin: o.bin, UDPPort: o.port, RDCCPort: o.rdccPort, TimeScale: o.scale, CheckICRC: o.icrc, Names: map[netip.Addr]string{},
		ReorderWindow: o.reorder, Workers: o.workers,
		Expect: analysis.Expect{DSCP: o.dscp.v, ECN: o.ecn, CNPScope: o.cnpScope, CNPInterval: o.cnpInterval}}
	if o.phases != "" {
		if err := phasesOf(o.phases, &opts); err != nil {
			mistakes = append(mistakes, err)
		}
	}
	if o.linkRate != "" {
		if rate, err := units.ParseRate(o.linkRate); err != nil {
			mistakes = append(mistakes, usagef("--link-rate: %w", err))
		} else {
			opts.LinkRateBps = float64(rate)
		}
	}
	for _, n := range o.names {
		addr, name, ok := strings.Cut(n, "=")
		a, err := netip.ParseAddr(addr)
		if !ok || err != nil || name == "" {
			mistakes = append(mistakes, usagef("--name %q: need ADDRESS=NAME, such as 192.0.2.11=h1", n))
			continue
		}
		opts.Names[a] = name
	}
	switch len(o.counters) {
	case 0:
	case 2:
		moved, err := movedCounters(o.counters[0], o.counters[1])
		if err != nil {
			mistakes = append(mistakes, err)
		}
		opts.Counters = moved
	default:
		mistakes = append(mistakes, usagef("--counters wants two files or folders, BEFORE and AFTER, and got %s", strings.Join(o.counters, " ")))
	}
	if joined, ok := opts.Check().(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			mistakes = append(mistakes, &codedError{exitUsage, err})
		}
	}
	return opts, mistakes
}

// inputs are the taps that the arguments name: a file each, or a pattern whose files are one tap's in sequence.
func (o *analyzeOptions) inputs(args []string) (inputs []analysis.Input, mistakes []error) {
	stdins := 0
	add := func(arg string, role analysis.Role) {
		in := analysis.Input{Path: arg, Tap: filepath.Base(arg), Role: role}
		if arg == capture.Stdin {
			in.Tap = "stdin"
			if stdins++; stdins == 2 {
				mistakes = append(mistakes, usagef("standard input (-) is given twice: it can be read once"))
			} else if term.IsTerminal(int(os.Stdin.Fd())) {
				mistakes = append(mistakes, usagef("standard input (-) is a terminal: pipe a capture into it, such as: tcpdump -i eth1 -w - udp port 4791 | pcmlab analyze -"))
			}
		} else if st, err := os.Stat(arg); err == nil && st.IsDir() {
			mistakes = append(mistakes, usagef("%s is a folder: give the captures in it by name", arg))
		} else if err != nil {
			files, _ := filepath.Glob(arg)
			if len(files) == 0 {
				mistakes = append(mistakes, noCapture(arg, err))
				return
			}
			in.Path, in.More = files[0], files[1:]
		}
		inputs = append(inputs, in)
	}
	for _, a := range args {
		add(a, analysis.Judged)
	}
	if o.sequence && len(inputs) > 0 {
		var files []string
		for _, in := range inputs {
			files = append(append(files, in.Path), in.More...)
		}
		if stdins > 0 {
			mistakes = append(mistakes, usagef("--sequence: standard input (-) cannot be one of the files"))
		}
		inputs = []analysis.Input{{Path: files[0], More: files[1:], Tap: inputs[0].Tap}}
	}
	for _, a := range o.upstream {
		add(a, analysis.Upstream)
	}
	seen := map[string]bool{}
	for _, in := range inputs {
		for _, file := range append([]string{in.Path}, in.More...) {
			if clean := filepath.Clean(file); !seen[clean] {
				seen[clean] = true
			} else if file != capture.Stdin {
				mistakes = append(mistakes, usagef("%s: given twice", file))
			}
		}
	}
	if len(mistakes) == 0 && len(o.logs) > len(inputs) {
		mistakes = append(mistakes, usagef("--capture-log is given %d times for %d captures", len(o.logs), len(inputs)))
	}
	for i, name := range o.logs {
		text, err := os.ReadFile(name)
		var said capture.ToolCounts
		if err == nil {
			if said, err = capture.ParseToolCounts(string(text)); err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
		}
		if err != nil {
			mistakes = append(mistakes, usagef("--capture-log: %w", err))
		} else if i < len(inputs) {
			inputs[i].Said = said
		}
	}
	return inputs, mistakes
}

// noCapture says why an argument names no file.
func noCapture(arg string, err error) error {
	switch arg {
	case "json", "jsonl", "csv", "parquet", "table":
		return usagef("%s: no such file (for the output give: -o %s)", arg, arg)
	}
	if strings.ContainsAny(arg, "*?[") {
		return usagef("%s: no file matches", arg)
	}
	return &codedError{exitUsage, err}
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
