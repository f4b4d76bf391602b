package analysis

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Names of the checks, in the order in which the document has them.
const (
	CheckCapture = "capture_complete"
	CheckMarking = "marking"
	CheckCNPs    = "cnp_generation"
	CheckRestart = "go_back_n"
	CheckQPs     = "qp_error"
)

// checks holds a finished document to what was asked for, and to what RoCE promises. It adds nothing to doc.
func checks(doc *Document, o *Options) []Check {
	return []Check{checkCapture(doc), checkMarking(doc, o), checkCNPs(doc, o), checkRestarts(doc, o), checkQPs(doc)}
}

// findings gathers the rows of one check.
type findings struct {
	rows []finding
}

type finding struct {
	CheckRow
	flow int // its place among the document's flows; -1: not about one
}

// add notes something about flow i of doc; at is null when it has no time.
func (f *findings) add(doc *Document, i int, at *int64, format string, args ...any) {
	f.rows = append(f.rows, finding{CheckRow{doc.Flows[i].ID, at, fmt.Sprintf(format, args...)}, i})
}

// at is the row's time for sorting; rows without one come first.
func (f *finding) at() int64 {
	if f.TimeNS == nil {
		return math.MinInt64
	}
	return *f.TimeNS
}

// general notes something that is not about one flow.
func (f *findings) general(format string, args ...any) {
	f.rows = append(f.rows, finding{CheckRow{"", nil, fmt.Sprintf(format, args...)}, -1})
}

// check is the verdict with the rows, by flow and time, as far as a check has room for them.
func (f *findings) check(name, verdict, format string, args ...any) Check {
	slices.SortStableFunc(f.rows, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.flow, b.flow), cmp.Compare(a.at(), b.at()))
	})
	c := Check{Name: name, Verdict: verdict, Reason: fmt.Sprintf(format, args...), Rows: []CheckRow{}}
	for _, r := range f.rows[:min(len(f.rows), MaxCheckRows)] {
		c.Rows = append(c.Rows, r.CheckRow)
	}
	c.More = int64(len(f.rows) - len(c.Rows))
	return c
}

func skip(name, format string, args ...any) Check {
	return (&findings{}).check(name, Skip, format, args...)
}

// flows counts the flows that rows are about.
func (f *findings) flows() int {
	seen := map[int]bool{}
	for _, r := range f.rows {
		if r.flow >= 0 {
			seen[r.flow] = true
		}
	}
	return len(seen)
}

// checkCapture says whether the numbers are of all that was on the wire.
func checkCapture(doc *Document) Check {
	q := &doc.Quality
	if q.Verdict == Complete && doc.Totals.RoCEPackets == 0 {
		return skip(CheckCapture, "the captures hold no RoCE packet; without the NICs' counters a blind tap cannot be told from a quiet link")
	}
	var f findings
	for _, n := range q.Notes {
		f.general("%s", n)
	}
	if q.DuplicatesRemoved > 0 {
		f.general("%d copies made by mirrors were removed (the same packet was captured twice: one direction of one mirror is enough)", q.DuplicatesRemoved)
	}
	remarks := len(f.rows)
	for i := range doc.Flows {
		if n := doc.Flows[i].MissedByTap; n > 0 {
			f.add(doc, i, nil, "%d packets were acknowledged but never captured: the mirror or the capture lost them (counts and rates are too low by these)", n)
		}
	}
	missed := len(f.rows) - remarks
	switch {
	case q.Verdict == Blind:
		return f.check(CheckCapture, Fail, "the tap does not see RoCE packets that the NICs sent: nothing was measured")
	case q.Verdict != Complete:
		return f.check(CheckCapture, Fail, "captures are %s", q.Verdict)
	case q.Drops != nil && *q.Drops > 0:
		return f.check(CheckCapture, Fail, "the captures lost %d packets", *q.Drops)
	case doc.Totals.MissedByTap > 0 || missed > 0:
		return f.check(CheckCapture, Fail, "%d packets were acknowledged but never captured, of %d flows", doc.Totals.MissedByTap, missed)
	case remarks > 0:
		return f.check(CheckCapture, Pass, "complete, with remarks")
	}
	return f.check(CheckCapture, Pass, "complete: %d RoCE packets", doc.Totals.RoCEPackets)
}

// checkMarking holds the data packets' DSCP and ECN field to what was asked for. It is the one proof that a traffic class
// reached the wire: verbs and rdma_cm lose it silently.
func checkMarking(doc *Document, o *Options) Check {
	want := &o.Expect
	if want.DSCP == nil && want.ECN == "" {
		return skip(CheckMarking, "no DSCP or ECN was asked for")
	}
	if len(doc.Flows) == 0 {
		return skip(CheckMarking, "no data packet was captured")
	}
	var f findings
	for i := range doc.Flows {
		flow := &doc.Flows[i]
		at := &flow.FirstNS
		if d := want.DSCP; d != nil && (len(flow.DSCP) != 1 || flow.DSCP[0] != *d) {
			f.add(doc, i, at, "%s", wrongDSCP(flow, *d))
		}
		marked := flow.CEPackets + flow.ECTPackets
		switch {
		case want.ECN == "ect" && marked < flow.Packets:
			f.add(doc, i, at, "Not-ECT on %d of %d data packets: a full queue drops them instead of marking them (set ECT(0): the last two bits of the traffic class are 2, 106 rather than 104 for DSCP 26; "+
				"some NICs set it themselves once ECN is on for the priority)", flow.Packets-marked, flow.Packets)
		case want.ECN == "not_ect" && marked > 0:
			f.add(doc, i, at, "ECT or CE on %d of %d data packets, asked for Not-ECT (the last two bits of the traffic class are not 0, or the NIC's ECN is on for this priority)", marked, flow.Packets)
		}
	}
	var asked []string
	if want.DSCP != nil {
		asked = append(asked, fmt.Sprintf("DSCP %d", *want.DSCP))
	}
	if want.ECN != "" {
		asked = append(asked, map[string]string{"ect": "ECT", "not_ect": "Not-ECT"}[want.ECN])
	}
	if n := f.flows(); n > 0 {
		return f.check(CheckMarking, Fail, "%d of %d flows are not marked as asked (%s)", n, len(doc.Flows), strings.Join(asked, ", "))
	}
	return f.check(CheckMarking, Pass, "all %d flows have %s", len(doc.Flows), strings.Join(asked, ", "))
}

// wrongDSCP says what a flow has instead of DSCP want, and what such a value usually comes from.
func wrongDSCP(flow *Flow, want int) string {
	seen := make([]string, len(flow.DSCP))
	for i, d := range flow.DSCP {
		seen[i] = fmt.Sprint(d)
	}
	text := fmt.Sprintf("DSCP %s on its %d data packets, asked for %d", strings.Join(seen, " and "), flow.Packets, want)
	switch {
	case len(flow.DSCP) > 1 && slices.Contains(flow.DSCP, want):
		return text + " (some were sent otherwise: two applications on one QP number, or a device on the way rewrites it)"
	case slices.Contains(flow.DSCP, want>>2):
		return fmt.Sprintf("%s (was %d given as the traffic class? That is DSCP*4 + ECN: %d, or %d with ECT(0))", text, want, want*4, want*4+2)
	case slices.Contains(flow.DSCP, 0):
		return fmt.Sprintf("%s (is the traffic class set to %d, or %d with ECT(0)? flows of rdma_cm leave with ToS 0 unless rdma_set_option with RDMA_OPTION_ID_TOS or the device's default, cma_roce_tos, is set)",
			text, want*4, want*4+2)
	}
	return text + " (does a device on the way rewrite it, or does the host trust PCP rather than DSCP?)"
}

// checkQPs finds queue pairs in error.
func checkQPs(doc *Document) Check {
	var f findings
	rc := 0
	for i := range doc.Flows {
		flow := &doc.Flows[i]
		if flow.Service != "RC" {
			continue
		}
		rc++
		if flow.State == StateFailed {
			f.add(doc, i, &flow.LastNS, "%s (last data packet at this time)", strings.Join(flow.Notes, "; "))
		}
	}
	switch {
	case rc == 0:
		return skip(CheckQPs, "no flow of the RC service: only RC tells its sender of errors")
	case len(f.rows) > 0:
		return f.check(CheckQPs, Fail, "%d of %d RC flows ended in error", len(f.rows), rc)
	}
	return f.check(CheckQPs, Pass, "none of %d RC flows ended in error", rc)
}
