package experiments

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/analysis/report"
)

// owner names whose run it is, for others who share the lab.
// Owner is who starts a run, from where: user@machine. Others see it in what is locked.
func Owner() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return name + "@" + host
}

// RemakeReport makes a run's page again from its folder alone. out "" means report.html in the folder.
func RemakeReport(dir, out string) (string, error) {
	var result Result
	var plan Plan
	for name, into := range map[string]any{"result.json": &result, "plan.json": &plan} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("%w: %s is no folder of a run: %w", ErrInput, dir, err)
		}
		if err := json.Unmarshal(data, into); err != nil {
			return "", fmt.Errorf("%w: %s: %s: %w", ErrInput, dir, name, err)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "analysis.json"))
	switch {
	case err == nil:
		result.Analysis = &analysis.Document{}
		if err := json.Unmarshal(data, result.Analysis); err != nil {
			return "", fmt.Errorf("%w: %s: analysis.json: %w", ErrInput, dir, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	about := ""
	if p, err := LoadPlaybook(filepath.Join(dir, "playbook.yaml")); err == nil {
		about = p.About
	}
	if out == "" {
		out = filepath.Join(dir, "report.html")
	}
	page, err := renderReport(dir, &result, about, &plan)
	if err != nil {
		return "", err
	}
	return out, writeAtomic(out, page)
}

func writeReport(b *Bundle, r *Result, p *Playbook, plan *Plan) error {
	page, err := renderReport(b.Dir, r, p.About, plan)
	if err != nil {
		return err
	}
	return b.Write("report.html", page)
}

// renderReport fills the page of a run.
func renderReport(dir string, r *Result, about string, plan *Plan) ([]byte, error) {
	doc := r.Analysis
	if doc == nil {
		doc = &analysis.Document{Schema: analysis.Schema, TimeScale: r.TimeScale}
	}
	page := report.Page{Title: r.Playbook + " on " + r.Lab, Subtitle: r.Run, Document: doc, Verdict: verdictOf(r), Warnings: r.Warnings,
		Checks: append(checksOf(r.Checks), checksOf(r.Agreement)...)}
	if about != "" {
		page.Subtitle += ": " + about
	}
	if r.TimeScale != 1 {
		page.Warnings = append([]string{fmt.Sprintf("time scale %g: rates and times are as measured in the virtual lab; columns and figures named \"hw\" are what they stand for on hardware", r.TimeScale)}, page.Warnings...)
	}
	page.Tables = append(page.Tables, flowTable(r), timingTable(r))
	page.Tables = append(page.Tables, rdccTables(dir, plan)...)
	page.Provenance = provenance(dir, r, plan)
	for _, name := range []string{"result.json", "analysis.json", "plan.json", "playbook.yaml", "lab.yaml", "timeline.jsonl", "manifest.json", "counters/before.json", "counters/after.json", RDCCFile} {
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name))); err == nil || name == "manifest.json" {
			page.Links = append(page.Links, report.Link{Text: name, Href: name})
		}
	}
	for _, l := range doc.HandlerLogs {
		page.Links = append(page.Links, report.Link{Text: l.Path, Href: l.Path})
	}
	for _, f := range doc.Files {
		page.Links = append(page.Links, report.Link{Text: f.Path, Href: f.Path})
	}
	var b bytes.Buffer
	if err := report.Render(&b, page); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func verdictOf(r *Result) report.Verdict {
	switch {
	case r.State == StateNoisy:
		return report.Verdict{Text: "not judged: the machine was too busy", State: report.Unsure}
	case r.State == StatePartial:
		return report.Verdict{Text: "partial run: " + r.Reason, State: report.Unsure}
	case r.Verdict == Fail:
		return report.Verdict{Text: "an expectation does not hold", State: report.Bad}
	}
	return report.Verdict{Text: "all expectations hold", State: report.Good}
}

func checksOf(checks []CheckResult) []analysis.Check {
	out := []analysis.Check{}
	for _, c := range checks {
		row := analysis.Check{Name: c.Name, Verdict: string(c.Verdict), Reason: c.Reason, Rows: []analysis.CheckRow{}}
		if c.That != "" && c.That != c.Name {
			row.Rows = append(row.Rows, analysis.CheckRow{Detail: c.That})
		}
		for _, v := range c.Values {
			detail := fmt.Sprintf("%s = %.6g", v.Call, v.Value)
			if v.Fails {
				detail += ": does not hold"
			}
			row.Rows = append(row.Rows, analysis.CheckRow{Detail: detail})
		}
		out = append(out, row)
	}
	return out
}

func flowTable(r *Result) analysis.Table {
	t := analysis.Table{Title: "What the traffic tool measured", Columns: columns("flow", "from", "to", "state", "goodput Gb/s", "hw goodput Gb/s", "window s", "why")}
	for _, f := range r.Flows {
		why := ""
		if f.Failure != nil {
			why = f.Failure.Error()
		}
		t.Rows = append(t.Rows, []string{f.Name, f.From, f.To, f.State, scaled(f.ToolBps, 1e9), scaled(f.HWToolBps, 1e9), scaledInt(f.WindowNS, 1e9), why})
	}
	return t
}

func timingTable(r *Result) analysis.Table {
	t := analysis.Table{Title: "Lateness of software timers", Columns: columns("device", "p50 us", "p99 us", "max us", "samples", "bound us")}
	for _, name := range sortedKeys(r.Timing) {
		row := r.Timing[name]
		t.Rows = append(t.Rows, []string{name, scaledInt(row.P50, 1e3), scaledInt(row.P99, 1e3), scaledInt(row.Max, 1e3), fmt.Sprint(row.Samples), fmt.Sprintf("%.0f", float64(row.Bound)/1e3)})
	}
	return t
}

// columns makes heads of columns; those with a unit are numbers.
func columns(names ...string) []analysis.Column {
	var out []analysis.Column
	for _, n := range names {
		numeric := strings.HasSuffix(n, " Gb/s") || strings.HasSuffix(n, " us") || strings.HasSuffix(n, " s") || n == "samples"
		out = append(out, analysis.Column{Name: n, Numeric: numeric})
	}
	return out
}

func scaled(v *float64, by float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f", *v/by)
}

func scaledInt(v *int64, by float64) string {
	if v == nil {
		return "-"
	}
	x := float64(*v) / by
	if math.Abs(x) >= 1000 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.4g", x)
}

// provenance lists what the run depended on, from the bundle's own files.
func provenance(dir string, r *Result, plan *Plan) []report.KV {
	kv := []report.KV{{Key: "run", Value: r.Run}, {Key: "playbook", Value: r.Playbook}, {Key: "lab", Value: r.Lab}, {Key: "time scale", Value: fmt.Sprintf("%g", r.TimeScale)}}
	if plan.Bottleneck != "" {
		kv = append(kv, report.KV{Key: "bottleneck", Value: fmt.Sprintf("link into %s, %.4g Gb/s as built, %.4g Gb/s on hardware", plan.Bottleneck, plan.BottleneckRateBps/1e9, plan.BottleneckRateBps*plan.Scale/1e9)})
	}
	var cmd struct {
		Argv  []string
		Set   map[string]string
		Build struct{ Version, Commit string }
	}
	if data, err := os.ReadFile(filepath.Join(dir, "command.json")); err == nil && json.Unmarshal(data, &cmd) == nil {
		kv = append(kv, report.KV{Key: "command", Value: strings.Join(cmd.Argv, " ")}, report.KV{Key: "pcmlab", Value: cmd.Build.Version + " " + cmd.Build.Commit})
		for _, k := range sortedKeys(cmd.Set) {
			kv = append(kv, report.KV{Key: "set " + k, Value: cmd.Set[k]})
		}
	}
	for _, h := range plan.Handlers {
		var constants []string
		for _, k := range sortedKeys(h.Constants) {
			constants = append(constants, k+"="+h.Constants[k])
		}
		key := "handler on " + h.Host
		if h.Match != "" {
			key += " (" + h.Match + ")"
		}
		value := h.Name + " " + h.Hash + ": " + strings.Join(constants, ", ")
		if len(h.Set) > 0 {
			value += "; set: " + strings.Join(h.Set, ", ")
		}
		if len(h.Limits) > 0 {
			value += "; on this NIC: " + strings.Join(h.Limits, "; ")
		}
		kv = append(kv, report.KV{Key: key, Value: value})
	}
	for _, h := range plan.Hosts {
		var f Facts
		if data, err := os.ReadFile(filepath.Join(dir, "hosts", h.Name, "facts.json")); err == nil && json.Unmarshal(data, &f) == nil {
			kv = append(kv, report.KV{Key: "host " + h.Name, Value: fmt.Sprintf("%s, boot %s, Linux %s %s, %s, %s CPUs (%s)", f.Hostname, f.BootID, f.Kernel, f.Machine, f.System, f.CPUs, f.CPU)})
		}
	}
	return kv
}
