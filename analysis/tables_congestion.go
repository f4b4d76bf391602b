package analysis

import (
	"fmt"
	"strconv"
	"strings"
)

// checkRowsShown bounds the findings of one check in a table; the document has more.
const checkRowsShown = 8

// ChecksTable has each check with its first findings below it.
func (d *Document) ChecksTable() Table {
	t := Table{Title: "Checks", Columns: columns("check", "verdict", "~what")}
	for i := range d.Checks {
		c := &d.Checks[i]
		verdict := c.Verdict
		if verdict == Fail {
			verdict = "FAIL"
		}
		t.Rows = append(t.Rows, []string{c.Name, verdict, c.Reason})
		shown := c.Rows[:min(len(c.Rows), checkRowsShown)]
		for _, r := range shown {
			t.Rows = append(t.Rows, []string{"", "", "  " + d.Finding(r)})
		}
		if more := int64(len(c.Rows)-len(shown)) + c.More; more > 0 {
			t.Rows = append(t.Rows, []string{"", "", fmt.Sprintf("  and %d more", more)})
		}
	}
	return t
}

// Finding is a row of a check in words: whose, when after the capture's start, what.
func (d *Document) Finding(r CheckRow) string {
	var parts []string
	if r.Flow != "" {
		parts = append(parts, r.Flow)
	}
	if r.TimeNS != nil {
		parts = append(parts, "at "+d.since(*r.TimeNS))
	}
	if len(parts) == 0 {
		return r.Detail
	}
	return strings.Join(parts, " ") + ": " + r.Detail
}

// since is a time after the first RoCE packet.
func (d *Document) since(ns int64) string {
	return strconv.FormatFloat(float64(ns-d.Series.StartNS)/1e9, 'f', 6, 64) + " s"
}

// AggregateTable is about all flows together.
func (d *Document) AggregateTable() Table {
	t := Table{Title: "All flows together", Columns: columns("what", "#value")}
	if len(d.Flows) == 0 {
		return t
	}
	a := &d.Aggregate
	t.Rows = [][]string{{"flows", strconv.Itoa(len(d.Flows))}, {"that take part below", strconv.Itoa(a.ActiveFlows)}, {"goodput", rate(a.GoodputBps)}, {"on the wire", rate(a.WireBps)},
		{"utilisation of the link", shareOr(a.Utilisation)}, {"Jain's index", index(a.Jain)}, {"lowest goodput / highest", index(a.MinMax)}}
	if c := a.Common; c != nil {
		t.Rows = append(t.Rows, []string{"time in which all are active", FormatDuration(float64(c.EndNS - c.StartNS))},
			[]string{"Jain's index in it", index(c.Jain)}, []string{"lowest goodput / highest in it", index(c.MinMax)})
	}
	return t
}

// ConvergenceTable says how long it took to share fairly after a flow came or went.
func (d *Document) ConvergenceTable() Table {
	t := Table{Title: fmt.Sprintf("Convergence: %d bins in a row with Jain's index of %g", ConvergedBins, ConvergedJain),
		Columns: columns("#at", "event", "flow", "#flows", "#lowest", "#fair after", "~why not")}
	for _, c := range d.Aggregate.Convergence {
		reason := c.Reason
		if reason == "" {
			reason = none
		}
		t.Rows = append(t.Rows, []string{strconv.FormatFloat(float64(c.AtNS-d.Series.StartNS)/1e9, 'f', 3, 64) + " s", c.Event, c.Flow, strconv.Itoa(c.Active), index(c.LowestJain), duration(c.TimeNS), reason})
	}
	return t
}

// CongestionTables are about congestion beyond single flows.
func (d *Document) CongestionTables() []Table {
	c := &d.Congestion
	scopes := Table{Title: d.pacing(), Columns: columns("scope", "#groups", "#gaps", "#min", "#p50", "#p99")}
	for _, s := range c.Scopes {
		if s.Groups > 0 {
			scopes.Rows = append(scopes.Rows, []string{strings.ReplaceAll(s.Scope, "_", " "), strconv.Itoa(s.Groups), integer(s.GapNS.Samples), duration(s.GapNS.Min), duration(s.GapNS.P50), duration(s.GapNS.P99)})
		}
	}
	count := func(title string, list []CNPCount) Table {
		t := Table{Title: title, Columns: columns("notifier", "to", "#CNPs", "#rate", "#gap p50", "#p99")}
		for _, p := range list {
			to := p.Dst
			if to == "" {
				to = "all"
			}
			t.Rows = append(t.Rows, []string{p.Src, to, integer(p.CNPs), hertz(p.RateHz), duration(p.GapNS.P50), duration(p.GapNS.P99)})
		}
		return t
	}
	receivers := Table{Title: "Arrivals by receiver", Columns: columns("receiver", "#busy", "#busy p50", "#p99", "#bytes p99", "#queue p50", "#p99", "#max")}
	for _, r := range c.Receivers {
		queue := [3]string{none, none, none}
		if q := r.QueueBytes; q != nil {
			queue = [3]string{FormatSize(q.P50), FormatSize(q.P99), FormatSize(q.Max)}
		}
		receivers.Rows = append(receivers.Rows, []string{r.Dst, shareOr(r.BusyShare), duration(r.BusyNS.P50), duration(r.BusyNS.P99), sizeOr(r.BusyBytes.P99), queue[0], queue[1], queue[2]})
	}
	pauses := Table{Title: "PFC and PAUSE", Columns: columns("from", "priority", "#pause frames", "#resume frames", "#pauses", "#paused", "#longest")}
	for i := range d.PFC {
		p := &d.PFC[i]
		pauses.Rows = append(pauses.Rows, []string{p.Src, p.priority(), integer(p.PauseFrames), integer(p.ResumeFrames), integer(p.Pauses), duration(p.PausedNS), duration(p.LongestNS)})
	}
	return []Table{scopes, count("CNPs by address pair", c.Pairs), count("CNPs by port", c.Ports), receivers, pauses}
}

// pacing says how CNPs are paced, or that it cannot be told.
func (d *Document) pacing() string {
	c := &d.Congestion
	text := "CNP pacing: cannot be told"
	if c.PacingScope != nil {
		text = "CNP pacing: by " + strings.ReplaceAll(*c.PacingScope, "_", " ")
		if c.PacingNS != nil {
			text += ", one in " + FormatDuration(float64(*c.PacingNS))
		}
	}
	if c.PacingReason != "" {
		text += " (" + c.PacingReason + ")"
	}
	return text
}

func sizeOr(v *int64) string {
	if v == nil {
		return none
	}
	return FormatSize(*v)
}
