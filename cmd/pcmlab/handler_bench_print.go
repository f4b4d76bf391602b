package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/pcm/bench"
)

// fixedPoint is the form of the rows of --fixed.
const fixedPoint = "fixed point"

func (b *benchRun) print() error {
	switch b.o.output {
	case "json":
		return b.printJSON()
	case "csv":
		return b.printCSV()
	}
	return b.printTables()
}

// benchGroup is what is in one table: the same flows and workers, and traces of one kind.
type benchGroup struct {
	kind           bench.Kind
	flows, workers int
	fixed          bool
}

func (m *measured) group() benchGroup {
	return benchGroup{m.traced, m.flows, m.workers, m.form.form == fixedPoint}
}

func (b *benchRun) printTables() error {
	if !b.quiet {
		each := b.o.time.String()
		if b.o.events > 0 {
			each = count(b.o.events, "event")
		}
		fmt.Fprintf(b.stdout, "%s, %s; %s, %s of %s of %s\n", machineText(), b.compiler(), b.o.order, count(b.o.seeds, "seed"), count(b.o.repeat, "measurement"), each)
		fmt.Fprintf(b.stdout, "ns an event of one worker, call and loop included; calls/s of all workers; x by hand: times as long as the law written by hand\n")
	}
	var groups []benchGroup
	for _, m := range b.results {
		if g := m.group(); !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	for _, g := range groups {
		if err := b.printGroup(g); err != nil {
			return err
		}
	}
	if b.quiet {
		return nil
	}
	b.printBudget()
	b.printDoubts()
	fmt.Fprintln(b.stdout, "\nThe paper's, of the paper's machines:")
	for _, p := range bench.Paper {
		fmt.Fprintf(b.stdout, "  %s: %s\n", p.What, p.Text)
	}
	return nil
}

func (b *benchRun) printGroup(g benchGroup) error {
	var mixes []string
	var lines [][]*measured // of one form at one place, by mix
	for i := range b.results {
		m := &b.results[i]
		if m.group() != g {
			continue
		}
		if !slices.Contains(mixes, m.mix) {
			mixes = append(mixes, m.mix)
		}
		at := slices.IndexFunc(lines, func(l []*measured) bool {
			return l[0].object == m.object && l[0].mode == m.mode && l[0].placement == m.placement
		})
		if at < 0 {
			at = len(lines)
			lines = append(lines, nil)
		}
		lines[at] = append(lines[at], m)
	}
	t := b.newTable()
	columns := []analysis.Column{{Name: "what"}, {Name: "runs"}}
	for _, m := range mixes {
		columns = append(columns, analysis.Column{Name: m, Numeric: true})
	}
	columns = append(columns, analysis.Column{Name: "M calls/s", Numeric: true}, analysis.Column{Name: "x by hand", Numeric: true}, analysis.Column{Name: "spread", Numeric: true})
	title := fmt.Sprintf("%s, %s, %s", g.kind, count(g.flows, "flow"), count(g.workers, "worker"))
	if g.fixed {
		columns[len(columns)-2].Name = "x reciprocals"
		title = "Swift in Q32.32, " + title
	}
	t.columns(columns)
	t.title(title)
	for _, l := range lines {
		cells := []string{l[0].name(), l[0].runs()}
		calls, ratios, spread := []float64{}, []float64{}, 0.0
		for _, m := range l {
			cells = append(cells, fmt.Sprintf("%.1f", m.figure.Median))
			if m.figure.Each > 0 {
				calls = append(calls, m.figure.Calls/1e6)
			}
			if m.ratio > 0 {
				ratios = append(ratios, m.ratio)
			}
			spread = max(spread, m.figure.Spread())
		}
		mark := ""
		if spread > bench.NoisySpread {
			mark = "!"
		}
		t.row(append(cells, rangeText(calls, "%.1f"), rangeText(ratios, "%.2f"), fmt.Sprintf("%.0f%%%s", 100*spread, mark))...)
	}
	return t.print()
}

// name is the form in words.
func (f *form) name() string {
	if f.form == "hand-written" {
		return f.what + " by hand"
	}
	return f.what
}

// runs is where it does.
func (m *measured) runs() string {
	if m.mode == bench.Sync {
		return "sync " + m.placement
	}
	return "async " + m.placement
}

func rangeText(values []float64, format string) string {
	if len(values) == 0 {
		return "-"
	}
	lo, hi := fmt.Sprintf(format, slices.Min(values)), fmt.Sprintf(format, slices.Max(values))
	if lo == hi {
		return lo
	}
	return lo + "-" + hi
}

// printBudget says in words what the calls are enough for: the slowest trace counts.
func (b *benchRun) printBudget() {
	type key struct {
		name, runs     string
		flows, workers int
	}
	slowest := map[key]float64{}
	var order []key
	for i := range b.results {
		m := &b.results[i]
		if m.form.form != "shell" || m.figure.Each == 0 {
			continue
		}
		k := key{m.name(), m.runs(), m.flows, m.workers}
		if _, ok := slowest[k]; !ok {
			order = append(order, k)
			slowest[k] = math.Inf(1)
		}
		slowest[k] = min(slowest[k], m.figure.Calls)
	}
	if len(order) == 0 {
		return
	}
	fmt.Fprintln(b.stdout, "\nReactions to packets of 4 KiB, by the slowest of the traces:")
	for _, k := range order {
		var parts []string
		for _, r := range b.o.budget {
			parts = append(parts, fmt.Sprintf("%s at %v", bench.Budget(float64(r), slowest[k]), r))
		}
		fmt.Fprintf(b.stdout, "  %s, %s, %s, %s: a reaction to %s\n", k.name, k.runs, count(k.flows, "flow"), count(k.workers, "worker"), strings.Join(parts, ", "))
	}
}

// printDoubts says why figures may not hold, and what is not there.
func (b *benchRun) printDoubts() {
	doubtful := 0
	why := map[string]int{}
	for _, m := range b.results {
		d := m.figure.Doubts(-1)
		if len(d) > 0 {
			doubtful++
		}
		for _, text := range d {
			why[strings.Fields(text)[0]]++
		}
	}
	if b.load > bench.NoisyLoad {
		fmt.Fprintf(b.stdout, "\nNOISY: other programs used %.0f %% of the machine meanwhile: trust ratios only, and measure again when it is quiet.\n", 100*b.load)
	}
	if doubtful > 0 {
		fmt.Fprintf(b.stdout, "\nNOISY: %d of %d figures are doubtful: %d spread by more than %.0f %%, in %d a thread was kept from its core for more than %.0f %% of the time.\n",
			doubtful, len(b.results), why["spread"], 100*bench.NoisySpread, why["kept"], 100*bench.NoisyLost)
	}
	notes := map[string]bool{}
	for _, m := range b.results {
		if m.note != "" && !notes[m.what+m.note] {
			notes[m.what+m.note] = true
			if len(notes) == 1 {
				fmt.Fprintln(b.stdout)
			}
			fmt.Fprintf(b.stdout, "%s: %s\n", m.what, m.note)
		}
	}
	for _, s := range b.skipped {
		fmt.Fprintf(b.stdout, "\nNot measured: %s\n", s)
	}
}

// machineText names the processor.
func machineText() string {
	name := runtime.GOARCH
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for _, line := range strings.Split(string(data), "\n") {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				name = strings.TrimSpace(v)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %s usable", name, count(len(usableCores()), "hardware thread"))
}

// compiler is the name of the compiler, with its flags being those of the shells.
func (b *benchRun) compiler() string {
	if b.o.cc != "" {
		return b.o.cc
	}
	return "cc"
}

// benchJSON is a figure of pcmlab/handler-bench/v1.
type benchJSON struct {
	What          string   `json:"what"`
	Form          string   `json:"form"` // base, hand-written, shell or fixed point
	Mode          string   `json:"mode"` // sync; alone: asynchronous in one thread; other: the control plane on another core
	Placement     string   `json:"placement"`
	Workers       int      `json:"workers"`
	Flows         int      `json:"flows"`
	Order         string   `json:"order"`
	Trace         string   `json:"trace"`
	NS            float64  `json:"ns_per_event"`
	Low           float64  `json:"ns_p10"`
	High          float64  `json:"ns_p90"`
	Spread        float64  `json:"spread"`
	AboveEmpty    float64  `json:"ns_above_empty_call"`
	CallsPerS     *float64 `json:"calls_per_s"`     // of the handler; null: it was never called
	EventsPerCall *float64 `json:"events_per_call"` // above 1 where events came together
	VsHandWritten *float64 `json:"x_hand_written"`
	VsReciprocals *float64 `json:"x_reciprocals"` // of fixed point
	Full          bool     `json:"datapath_waited"`
	Note          *string  `json:"note"`
	Doubts        []string `json:"doubts"`
}

func (b *benchRun) figures() []benchJSON {
	all := []benchJSON{}
	for i := range b.results {
		m := &b.results[i]
		f := benchJSON{m.what, m.form.form, string(m.mode), m.placement, m.workers, m.flows, b.o.order, m.mix, round(m.figure.Median), round(m.figure.Low), round(m.figure.High),
			round(m.figure.Spread()), round(m.above), nil, nil, nil, nil, m.figure.Full, nullable(m.note), append([]string{}, m.figure.Doubts(b.load)...)}
		if m.figure.Each > 0 {
			calls, each := math.Round(m.figure.Calls), round(m.figure.Each)
			f.CallsPerS, f.EventsPerCall = &calls, &each
		}
		if m.ratio > 0 {
			ratio := round(m.ratio)
			if m.form.form == fixedPoint {
				f.VsReciprocals = &ratio
			} else {
				f.VsHandWritten = &ratio
			}
		}
		all = append(all, f)
	}
	return all
}

func round(v float64) float64 { return math.Round(v*1000) / 1000 }

func (b *benchRun) printJSON() error {
	type reactions struct {
		RateBPS     int64   `json:"rate_bps"`
		PacketsEach float64 `json:"packets_per_reaction"`
	}
	type budget struct {
		What      string      `json:"what"`
		Mode      string      `json:"mode"`
		Placement string      `json:"placement"`
		Trace     string      `json:"trace"`
		Flows     int         `json:"flows"`
		Workers   int         `json:"workers"`
		At        []reactions `json:"at"`
	}
	doc := struct {
		Schema   string              `json:"schema"`
		Machine  string              `json:"machine"`
		Compiler string              `json:"compiler"`
		Seeds    []uint64            `json:"seeds"`
		Repeat   int                 `json:"repeat"`
		Events   *int                `json:"events"` // of a measurement; null: as many as take time_ns
		Time     *int64              `json:"time_ns"`
		Load     *float64            `json:"load_of_others"` // share of the machine; null: not known
		Figures  []benchJSON         `json:"figures"`
		Budget   []budget            `json:"reactions"` // packets of 4 KiB
		Skipped  []string            `json:"not_measured"`
		Paper    []bench.PaperNumber `json:"paper"` // the paper's, of the paper's machines
	}{"pcmlab/handler-bench/v1", machineText(), b.compiler(), nil, b.o.repeat, nil, nil, nil, b.figures(), []budget{}, append([]string{}, b.skipped...), bench.Paper}
	if ns := b.o.time.Nanoseconds(); b.o.events > 0 {
		doc.Events = &b.o.events
	} else {
		doc.Time = &ns
	}
	for s := range b.o.seeds {
		doc.Seeds = append(doc.Seeds, b.o.seed+uint64(s))
	}
	if b.load >= 0 {
		load := round(b.load)
		doc.Load = &load
	}
	for i := range b.results {
		m := &b.results[i]
		if m.form.form != "shell" || m.figure.Each == 0 {
			continue
		}
		one := budget{m.what, string(m.mode), m.placement, m.mix, m.flows, m.workers, nil}
		for _, r := range b.o.budget {
			one.At = append(one.At, reactions{int64(r), round(bench.PacketsEach(float64(r), m.figure.Calls))})
		}
		doc.Budget = append(doc.Budget, one)
	}
	return writeJSON(b.stdout, doc)
}

func (b *benchRun) printCSV() error {
	w := csv.NewWriter(b.stdout)
	w.Write([]string{"what", "form", "mode", "placement", "workers", "flows", "order", "trace", "ns_per_event", "ns_p10", "ns_p90", "ns_above_empty_call", "calls_per_s", "events_per_call", "x_hand_written", "x_reciprocals"})
	opt := func(v *float64) string {
		if v == nil {
			return ""
		}
		return fmt.Sprint(*v)
	}
	for _, f := range b.figures() {
		w.Write([]string{f.What, f.Form, f.Mode, f.Placement, fmt.Sprint(f.Workers), fmt.Sprint(f.Flows), f.Order, f.Trace, fmt.Sprint(f.NS), fmt.Sprint(f.Low), fmt.Sprint(f.High),
			fmt.Sprint(f.AboveEmpty), opt(f.CallsPerS), opt(f.EventsPerCall), opt(f.VsHandWritten), opt(f.VsReciprocals)})
	}
	w.Flush()
	return w.Error()
}
