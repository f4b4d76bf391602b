package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/trace"
)

type replayOptions struct {
	buildFlags
	output string
	seed   uint64
	all    bool
	plot   bool
	svg    string
}

func newHandlerRun(e *env) *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "run NAME TRACE",
		Short: "Replay a trace of one flow through a handler and print its controls over time",
		Long: "Replay a trace of one flow through a handler and print its controls over time. The trace is CSV with a heading, or JSON lines: t_ns and\n" +
			"any of the fields of an input (" + strings.Join(trace.Columns()[1:], ", ") + ").\n" +
			"Times are ns; what is left out did not happen. The table has the lines at which a control changed; --all, json and csv have all.",
		Example: "  pcmlab handler run swift trace.csv\n  pcmlab handler run ./mycc trace.jsonl --set MIN_CWND=8192 -o csv > out.csv\n  pcmlab handler run swift trace.csv --plot --svg swift.svg",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: completeHandlers,
		RunE: func(c *cobra.Command, args []string) error { return e.runHandlerRun(c, &o, args[0], args[1]) },
	}
	o.add(cmd)
	o.addSnapshot(cmd)
	cmd.Flags().Uint64Var(&o.seed, "seed", 1, "seed of the handler's random numbers")
	cmd.Flags().BoolVar(&o.all, "all", false, "every line of the trace in the table")
	cmd.Flags().BoolVar(&o.plot, "plot", false, "draw the controls over time in place of the table")
	cmd.Flags().StringVar(&o.svg, "svg", "", "draw them into this file, too")
	cmd.Flags().StringVarP(&o.output, "output", "o", "table", "table, json or csv")
	return cmd
}

// replayed is a line of what pcmlab-nic says of a replay: what a flow is to do after an event.
type replayed struct {
	TNS      uint64 `json:"t_ns"`
	Fired    uint64 `json:"fired"`
	Failed   uint64 `json:"failed"`
	CWND     uint64 `json:"cwnd"`
	Rate     uint64 `json:"rate"`
	EV       uint64 `json:"ev"`
	PullNo   uint64 `json:"pull_no"`
	RTTProbe uint64 `json:"rtt_probe"`
}

func (r *replayed) control(k pcm.ControlKind) uint64 {
	return [...]uint64{r.CWND, r.Rate, r.EV, r.PullNo, r.RTTProbe}[k]
}

func (e *env) runHandlerRun(c *cobra.Command, o *replayOptions, name, file string) error {
	if err := checkOutput(o.output, "table", "json", "csv"); err != nil {
		return err
	}
	if o.plot && (o.output != "table" || o.all) {
		return usagef("--plot: it draws in place of the table, so neither --output %s nor --all goes with it", o.output)
	}
	if st, err := os.Stat(filepath.Dir(o.svg)); o.svg != "" && (err != nil || !st.IsDir()) {
		return usagef("--svg %s: there is no folder %s", o.svg, filepath.Dir(o.svg))
	}
	loader := siblingNIC()
	if loader == "" {
		return &codedError{exitInfra, errors.New("handler run: there is no pcmlab-nic beside this pcmlab, and it alone can load handlers (make build makes both; or go build ./cmd/pcmlab-nic)")}
	}
	if err := checkTrace(file); err != nil {
		return err
	}
	return inFolder(func(dir string) error {
		object := filepath.Join(dir, "shell.so")
		p, err := e.shell(c, &o.buildFlags, name, object)
		if err != nil {
			return err
		}
		rows, err := replay(c.Context(), loader, object, file, o.seed, false, e.stderr)
		if err != nil {
			return err
		}
		if o.svg != "" {
			if err := writeSVG(o.svg, p.Name+" over "+filepath.Base(file), plots(p, rows)); err != nil {
				return err
			}
		}
		return e.printReplay(p, o, file, rows)
	})
}

// checkTrace finds all mistakes of a trace before anything is built.
func checkTrace(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	defer f.Close()
	if err := trace.Read(file, f, func(*trace.Event) error { return nil }); err != nil {
		return &codedError{exitUsage, err}
	}
	return nil
}

// replay has pcmlab-nic run the handler in a process of its own, since one that crashes takes its process along. What the handler prints
// goes to printed.
func replay(ctx context.Context, loader, object, file string, seed uint64, each bool, printed io.Writer) ([]replayed, error) {
	args := []string{"replay", "--shell", object, "--trace", file, "--seed", fmt.Sprint(seed)}
	if each {
		args = append(args, "--each")
	}
	cmd := exec.CommandContext(ctx, loader, args...)
	var said, out bytes.Buffer
	cmd.Stderr, cmd.Stdout = &said, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	rows, broken := parseReplay(&out)
	if err == nil && broken == nil {
		_, _ = said.WriteTo(printed)
		return rows, nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && (exit.ExitCode() == 2 && bytes.Contains(said.Bytes(), []byte("SIG")) || exit.ExitCode() < 0) {
		if !each { // once more, to know where
			return replay(ctx, loader, object, file, seed, true, printed)
		}
		signal := exit.ProcessState.String()
		for _, s := range []string{"SIGFPE", "SIGSEGV", "SIGILL", "SIGBUS", "SIGABRT"} {
			if bytes.Contains(said.Bytes(), []byte(s)) {
				signal = s
			}
		}
		why := map[string]string{"SIGFPE": ": a division by zero", "SIGSEGV": ": memory that is not there", "SIGABRT": ": an assertion does not hold"}[signal]
		return nil, &codedError{exitCheckFailed, fmt.Errorf("handler run: the handler crashed at event %d of the trace (%s%s)", len(rows)+1, signal, why)}
	}
	if err == nil {
		err = broken
	}
	return nil, &codedError{exitInfra, fmt.Errorf("handler run: %s: %w: %s", loader, err, strings.TrimSpace(said.String()))}
}

func parseReplay(r io.Reader) (rows []replayed, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var row replayed
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return rows, fmt.Errorf("read what it says: %w", err)
		}
		rows = append(rows, row)
	}
	return rows, lines.Err()
}

func (e *env) printReplay(p *pcm.Package, o *replayOptions, file string, rows []replayed) error {
	runs, failed := 0, uint64(0)
	for _, r := range rows {
		if r.Fired != 0 {
			runs++
		}
		failed = r.Failed
	}
	var err error
	switch o.output {
	case "json":
		err = e.replayJSON(p, file, rows, runs, failed)
	case "csv":
		err = e.replayCSV(p, rows)
	default:
		if o.plot {
			for _, one := range plots(p, rows) {
				fmt.Fprintln(e.stdout, one.chart())
			}
			break
		}
		err = e.replayTable(p, o.all, rows, runs)
	}
	if err == nil && failed != 0 {
		return &codedError{exitCheckFailed, fmt.Errorf("handler %s: returned %d, which stopped it for this flow", p.Name, failed)}
	}
	if err == nil && runs == 0 && !e.quiet {
		fmt.Fprintf(e.stderr, "note: the handler never ran: no trigger fired on this trace ('pcmlab handler show %s' says what makes it run)\n", p.Name)
	}
	return err
}

// firedNames are the signals in the mask.
func firedNames(p *pcm.Package, mask uint64) []string {
	names := []string{}
	for i, s := range p.Signals {
		if mask&(1<<i) != 0 {
			names = append(names, s.Name)
		}
	}
	return names
}

func (e *env) replayTable(p *pcm.Package, all bool, rows []replayed, runs int) error {
	heads := []string{"t_ns", "fired"}
	for _, c := range p.Controls {
		heads = append(heads, c.Name)
	}
	t := e.newTable(heads...)
	changes := 0
	for i, r := range rows {
		changed := i == 0 || r.Failed != rows[i-1].Failed
		cells := []string{fmt.Sprint(r.TNS), strings.Join(firedNames(p, r.Fired), " ")}
		for _, c := range p.Controls {
			changed = changed || r.control(c.Kind) != rows[i-1].control(c.Kind)
			cells = append(cells, fmt.Sprint(r.control(c.Kind)))
		}
		if changed && i > 0 {
			changes++
		}
		if all || changed {
			t.row(cells...)
		}
	}
	if err := t.print(); err != nil {
		return err
	}
	if !e.quiet {
		fmt.Fprintf(e.stdout, "%s, the handler ran at %d of them, and changed what it sets at %d\n", count(len(rows), "event"), runs, changes)
	}
	return nil
}

func (e *env) replayCSV(p *pcm.Package, rows []replayed) error {
	w := csv.NewWriter(e.stdout)
	head := []string{"t_ns", "fired", "failed"}
	for _, c := range p.Controls {
		head = append(head, strings.ToLower(c.Name))
	}
	w.Write(head)
	for _, r := range rows {
		cells := []string{fmt.Sprint(r.TNS), strings.Join(firedNames(p, r.Fired), " "), fmt.Sprint(r.Failed)}
		for _, c := range p.Controls {
			cells = append(cells, fmt.Sprint(r.control(c.Kind)))
		}
		w.Write(cells)
	}
	w.Flush()
	return w.Error()
}

func (e *env) replayJSON(p *pcm.Package, file string, rows []replayed, runs int, failed uint64) error {
	hash, err := p.Hash()
	if err != nil {
		return err
	}
	type row struct {
		TNS      uint64             `json:"t_ns"`
		Fired    []string           `json:"fired"`
		Controls map[string]*uint64 `json:"controls"`
	}
	doc := struct {
		Schema string `json:"schema"`
		Name   string `json:"handler"`
		Hash   string `json:"hash"`
		Trace  string `json:"trace"`
		Events int    `json:"events"`
		Runs   int    `json:"invocations"`
		Failed uint64 `json:"failed"` // what it returned; 0: it goes on
		Rows   []row  `json:"rows"`
	}{"pcmlab/handler-run/v1", p.Name, hash, file, len(rows), runs, failed, []row{}}
	for _, r := range rows {
		out := row{r.TNS, firedNames(p, r.Fired), map[string]*uint64{}}
		for _, c := range p.Controls {
			v := r.control(c.Kind)
			if v != math.MaxUint64 {
				out.Controls[c.Name] = &v
			} else {
				out.Controls[c.Name] = nil
			}
		}
		doc.Rows = append(doc.Rows, out)
	}
	return writeJSON(e.stdout, doc)
}

// siblingNIC is pcmlab-nic beside this program; "" where it is not there.
func siblingNIC() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	path := filepath.Join(filepath.Dir(exe), "pcmlab-nic")
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	return path
}
