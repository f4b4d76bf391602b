package main

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/experiments"
)

// printResult prints the table of phases, the checks, what agrees and what does not, and where the bundle lies.
func (e *env) printResult(r *experiments.Result, p *experiments.Playbook) error {
	if r.Analysis != nil && len(r.Analysis.Aggregate.PerPhase) > 0 {
		if err := e.printPhases(r, p); err != nil {
			return err
		}
	}
	if err := e.printChecks(r); err != nil {
		return err
	}
	for _, f := range r.Flows {
		if f.Failure != nil {
			fmt.Fprintf(e.stdout, "flow %s: %v\n", f.Name, f.Failure)
		}
	}
	for _, w := range r.Warnings {
		fmt.Fprintln(e.stdout, "warning:", w)
	}
	verdict := map[experiments.Verdict]string{experiments.Pass: "all checks hold", experiments.Fail: "a check does not hold", experiments.Skip: "not judged"}[r.Verdict]
	if r.State != experiments.StateComplete {
		verdict = fmt.Sprintf("%s run, not judged: %s", r.State, r.Reason)
	}
	fmt.Fprintf(e.stdout, "%s\nrun     %s\nreport  %s\n", verdict, relative(r.Dir), relative(filepath.Join(r.Dir, "report.html")))
	return nil
}

func (e *env) printPhases(r *experiments.Result, p *experiments.Playbook) error {
	header := []string{"phase"}
	for _, f := range p.Flows {
		header = append(header, f.Name+" Gb/s")
	}
	header = append(header, "total Gb/s")
	if r.TimeScale != 1 {
		header = append(header, "hw total")
	}
	t := e.newTable(append(header, "utilisation", "Jain", "CE", "CNP/s", "retrans.")...)
	if r.TimeScale != 1 {
		t.title(fmt.Sprintf("%s on %s, time scale %g: rates as measured here; \"hw\" is what they stand for on hardware", r.Playbook, r.Lab, r.TimeScale))
	} else {
		t.title(fmt.Sprintf("%s on %s", r.Playbook, r.Lab))
	}
	for _, ph := range r.Analysis.Aggregate.PerPhase {
		row := []string{ph.Name}
		for i, f := range p.Flows {
			if !runsIn(p, ph.Name, f.Name) {
				row = append(row, "-")
				continue
			}
			row = append(row, gbps(flowGoodput(ph, r.Flows, i)))
		}
		row = append(row, gbps(&ph.GoodputBps))
		if r.TimeScale != 1 {
			row = append(row, gbps(&ph.HWGoodputBps))
		}
		t.row(append(row, number(ph.Utilisation, "%.3f"), number(ph.Jain, "%.4f"), percent(ph.CEShare), number(ph.CNPRateHz, "%.1f"),
			fmt.Sprint(ph.RetransmittedPackets))...)
	}
	return t.print()
}

// runsIn says that a flow is scheduled in a phase.
func runsIn(p *experiments.Playbook, phase, flow string) bool {
	for _, ph := range p.Phases {
		if ph.Name == phase {
			return slices.Contains(ph.Flows, flow)
		}
	}
	return false
}

// flowGoodput sums over the queue pairs of a flow; nil when the flow was not seen in the phase.
func flowGoodput(ph analysis.PhaseSummary, flows []experiments.FlowResult, i int) *float64 {
	if i >= len(flows) {
		return nil
	}
	total, found := 0.0, false
	for _, f := range ph.Flows {
		if slices.Contains(flows[i].AnalysisID, f.Flow) && f.Packets > 0 {
			total += f.GoodputBps
			found = true
		}
	}
	if !found {
		return nil
	}
	return &total
}

func (e *env) printChecks(r *experiments.Result) error {
	if len(r.Checks) > 0 {
		t := e.newTable("check", "verdict", "measured", "why")
		for _, c := range r.Checks {
			t.row(c.Name, string(c.Verdict), values(c), c.Reason)
		}
		if err := t.print(); err != nil {
			return err
		}
	}
	agreed, skipped := 0, 0
	t := e.newTable("counts that should agree", "verdict", "values", "why")
	for _, c := range r.Agreement {
		switch {
		case c.Verdict == experiments.Pass:
			agreed++
		case c.Verdict == experiments.Skip:
			skipped++
		}
		if c.Verdict != experiments.Pass || e.verbose > 0 {
			t.row(c.Name, string(c.Verdict), values(c), c.Reason)
		}
	}
	if len(r.Agreement) == 0 {
		return nil
	}
	if agreed < len(r.Agreement) || e.verbose > 0 {
		if err := t.print(); err != nil {
			return err
		}
	}
	fmt.Fprintf(e.stdout, "%d of %d ways of counting (switch, NICs, captures, tool) agree", agreed, len(r.Agreement)-skipped)
	if skipped > 0 {
		fmt.Fprintf(e.stdout, ", %d could not be compared", skipped)
	}
	fmt.Fprintln(e.stdout)
	return nil
}

func values(c experiments.CheckResult) string {
	s := ""
	for i, v := range c.Values {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%s %.6g", v.Call, v.Value)
		if i == 2 && len(c.Values) > 3 {
			return s + ", ..."
		}
	}
	return s
}

func gbps(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f", *v/1e9)
}

func number(v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

func percent(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f %%", *v*100)
}

func relative(path string) string {
	if rel, err := filepath.Rel(mustGetwd(), path); err == nil && len(rel) < len(path) {
		return rel
	}
	return path
}
