package analysis

import (
	"fmt"
	"strings"
)

var rdccMeasures = []measure[RDCC]{
	{"datagrams", unitPackets, "to and from the RDCC port, copies left out", func(r *RDCC) any { return r.Datagrams }, ""},
	{"copies_removed", unitPackets, "copies made by mirrors", func(r *RDCC) any { return r.Copies }, ""},
	{"malformed", unitPackets, "that receivers must discard", func(r *RDCC) any { return r.Malformed }, ""},
	{"truncated", unitPackets, "cut when they were captured", func(r *RDCC) any { return r.Truncated }, ""},
}

var rdccAssociationMeasures = []measure[RDCCAssociation]{
	{"duration", unitNS, "from its first datagram, the time, to its last", func(a *RDCCAssociation) any { return a.LastNS - a.FirstNS }, ""},
	{"requests", unitMessages, "messages that were announced", func(a *RDCCAssociation) any { return a.Requests }, ""},
	{"requested_bytes", unitBytes, "their lengths", func(a *RDCCAssociation) any { return a.RequestedBytes }, ""},
	{"unscheduled_bytes", unitBytes, "announced as sent before there was credit", func(a *RDCCAssociation) any { return a.UnscheduledBytes }, ""},
	{"granted_bytes", unitBytes, "highest Grant Limit of each message and of the pool", func(a *RDCCAssociation) any { return a.GrantedBytes }, ""},
	{"done_messages", unitMessages, "that the receiver called done", func(a *RDCCAssociation) any { return a.DoneMessages }, ""},
	{"done_bytes", unitBytes, "octets of those, as the receiver counted them", func(a *RDCCAssociation) any { return a.DoneBytes }, ""},
}

var rdccReportMeasures = []measure[RDCCReport]{
	{"reports", unitPackets, "CONGESTION_REPORTs about the flow", func(r *RDCCReport) any { return r.Reports }, ""},
	{"duration", unitNS, "from the first, the time, to the last", func(r *RDCCReport) any { return r.LastNS - r.FirstNS }, ""},
	{"max_degree", unitNone, "largest Congestion Degree, 0 to 255", func(r *RDCCReport) any { return r.MaxDegree }, ""},
	{"max_queue", unitBytes, "largest Queue Depth", func(r *RDCCReport) any { return r.MaxBytes }, ""},
}

func (d *Document) rdccRows(e *rowEmitter) {
	r := d.RDCC
	if r == nil {
		return
	}
	emit(e, rdccMeasures, "rdcc.", "", nil, r)
	e.counts("", "rdcc.type.", r.Types)
	for i := range r.Associations {
		a := &r.Associations[i]
		emit(e, rdccAssociationMeasures, "rdcc_association.", a.Name(), &a.FirstNS, a)
		e.counts(a.Name(), "rdcc_association.type.", a.Types)
		for _, epoch := range a.Epochs {
			e.row(a.Name(), "rdcc_association.epoch", nil, float64(epoch), unitNone)
		}
	}
	for i := range r.Reports {
		p := &r.Reports[i]
		emit(e, rdccReportMeasures, "rdcc_report.", p.Reporter+"/"+p.Direction+"/"+p.Flow, &p.FirstNS, p)
	}
}

// RDCCTables are the associations beside the data between their addresses, and the reports; nil without an RDCC port.
func (d *Document) RDCCTables() []Table {
	r := d.RDCC
	if r == nil {
		return nil
	}
	var parts []string
	for _, name := range rdccTypes {
		if n := r.Types[name]; n > 0 {
			parts = append(parts, integer(n)+" "+name)
		}
	}
	said := [][]string{{"datagrams", integer(r.Datagrams)}, {"by type", strings.Join(parts, ", ")}, {"malformed", integer(r.Malformed)},
		{"cut when captured", integer(r.Truncated)}, {"copies removed", integer(r.Copies)}}
	for _, n := range r.Notes {
		said = append(said, []string{"note", n})
	}
	if len(parts) == 0 {
		said[1][1] = none
	}
	start := int64(0)
	for i := range d.Files {
		if f := d.Files[i].FirstNS; f != nil && (start == 0 || *f < start) {
			start = *f
		}
	}
	since := func(ns int64) string { return FormatDuration(float64(ns - start)) }
	return []Table{
		{Title: fmt.Sprintf("RDCC on UDP port %d", r.UDPPort), Columns: columns("what", "~count"), Rows: said},
		d.rdccAssociationTable(since), r.reportTable(since),
	}
}

var rdccTypes = []string{"ASSOC_REQUEST", "ASSOC_ACCEPT", "CREDIT_REQUEST", "CREDIT_GRANT", "SENDER_STATUS", "CONGESTION_REPORT", "MSG_DONE", "CANCEL", "CREDIT_RETURN", "ERROR"}

func (d *Document) rdccAssociationTable(since func(int64) string) Table {
	t := Table{Title: "RDCC: credit, and the data between the two addresses", Columns: columns("association", "~sender > receiver", "#requests", "#requested", "#grants",
		"#granted", "#done", "#data", "#first", "#last")}
	unique := map[string]int64{}
	for i := range d.Flows {
		unique[d.Flows[i].ID] = d.Flows[i].UniqueBytes
	}
	size := func(v *int64) string {
		if v == nil {
			return none
		}
		return FormatSize(*v)
	}
	for i := range d.RDCC.Associations {
		a := &d.RDCC.Associations[i]
		id, data := none, none
		if a.ID != nil {
			id = *a.ID
		}
		if len(a.Flows) > 0 {
			sum := int64(0)
			for _, f := range a.Flows {
				sum += unique[f]
			}
			data = FormatSize(sum)
		}
		t.Rows = append(t.Rows, []string{id, a.Sender + " > " + a.Receiver, integerOr(a.Requests), size(a.RequestedBytes), integer(a.Types["CREDIT_GRANT"]),
			size(a.GrantedBytes), size(a.DoneBytes), data, since(a.FirstNS), since(a.LastNS)})
	}
	return t
}

func (r *RDCC) reportTable(since func(int64) string) Table {
	t := Table{Title: "RDCC: congestion reports", Columns: columns("reporter", "~flow", "told", "#reports", "#max degree", "#max queue", "#first", "#last")}
	for _, p := range r.Reports {
		t.Rows = append(t.Rows, []string{p.Reporter, p.Flow, p.Direction, integer(p.Reports), integer(int64(p.MaxDegree)), FormatSize(p.MaxBytes), since(p.FirstNS), since(p.LastNS)})
	}
	return t
}
