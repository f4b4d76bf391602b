package analysis

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Table is a table as data: whoever prints it chooses borders and colours. Cells carry their units; "-" is not measured.
type Table struct {
	Title   string
	Columns []Column
	Rows    [][]string
}

// Column is the head of a column.
type Column struct {
	Name    string
	Numeric bool // align right
	Wrap    bool // sentences: may be broken into lines
}

const none = "-"

// Tables are what `analyze` prints, and the page shows: each fits a terminal of 100 columns when its flows have IPv4
// addresses. What has nothing to say is left out.
func (d *Document) Tables() []Table {
	all := []Table{d.QualityTable(), d.ChecksTable(), d.TotalsTable(), d.AggregateTable()}
	if len(d.Aggregate.PerPhase) > 0 {
		all = append(all, d.PhaseTable(), d.PhaseFlowTable())
	}
	all = append(all, d.ConvergenceTable())
	all = append(all, d.FlowTables()...)
	all = append(all, d.CongestionTables()...)
	if d.Path != nil {
		all = append(all, d.PathTable())
	}
	all = append(all, d.ConnectionTable())
	all = append(all, d.RDCCTables()...)
	return slices.DeleteFunc(all, func(t Table) bool { return len(t.Rows) == 0 })
}

// columns makes heads: # before a name is a column of numbers, ~ one of sentences.
func columns(names ...string) []Column {
	c := make([]Column, len(names))
	for i, n := range names {
		c[i].Name, c[i].Numeric = strings.CutPrefix(n, "#")
		c[i].Name, c[i].Wrap = strings.CutPrefix(c[i].Name, "~")
	}
	return c
}

// QualityTable has one row a file.
func (d *Document) QualityTable() Table {
	t := Table{Title: "Captures: " + d.Quality.Verdict, Columns: columns("~file", "role", "#packets", "#RoCE", "#bytes", "#span", "#drops", "#late", "snapped", "cut at")}
	names := map[string]int{}
	roles := false
	for _, f := range d.Files {
		names[filepath.Base(f.Path)]++
		roles = roles || f.Role != d.Files[0].Role
	}
	for _, f := range d.Files {
		span, cut, snapped, name := none, none, "no", f.Path
		if base := filepath.Base(f.Path); names[base] == 1 {
			name = base
		}
		if f.FirstNS != nil {
			span = FormatDuration(float64(*f.LastNS - *f.FirstNS))
		}
		if f.TruncatedAt != nil {
			cut = "byte " + strconv.FormatInt(*f.TruncatedAt, 10)
		}
		if f.SnaplenLimited {
			snapped = "yes"
		}
		t.Rows = append(t.Rows, []string{name, f.Role, integer(f.Packets), integer(f.RoCEPackets), FormatSize(f.Bytes), span, integerOr(f.Drops),
			integer(f.OutOfOrder), snapped, cut})
	}
	if !roles { // one role of all says nothing
		t.Columns = slices.Delete(t.Columns, 1, 2)
		for i := range t.Rows {
			t.Rows[i] = slices.Delete(t.Rows[i], 1, 2)
		}
	}
	return t
}

// TotalsTable counts packets.
func (d *Document) TotalsTable() Table {
	t := d.Totals
	share := none
	if data := t.RoCEPackets - t.AckPackets - t.NAKPackets - t.RNRNAKPackets - t.CNPPackets; data > 0 {
		share = FormatShare(float64(t.CEDataPackets) / float64(data))
	}
	rows := [][]string{
		{"packets", integer(t.Packets)}, {"RoCE packets", integer(t.RoCEPackets)}, {"payload", FormatSize(t.PayloadBytes)}, {"unique payload", FormatSize(t.UniqueBytes)},
		{"CE-marked data packets", integer(t.CEDataPackets) + " (" + share + ")"}, {"CE-marked acknowledgements", integer(t.CEAckPackets)},
		{"CNPs", integer(t.CNPPackets)}, {"NAKs", integer(t.NAKPackets)}, {"RNR NAKs", integer(t.RNRNAKPackets)},
		{"retransmitted packets", integer(t.RetransmittedPackets)}, {"lost before the tap", integer(t.LostBeforeTap)}, {"missed by the tap", integer(t.MissedByTap)},
		{"PFC pause frames", integer(t.PFCPauseFrames)}, {"wrong ICRC", integerOr(t.ICRCBad)}, {"mirror copies removed", integer(d.Quality.DuplicatesRemoved)},
	}
	return Table{Title: "Totals", Columns: columns("what", "#count"), Rows: rows}
}

// String names what was done, such as "write 252".
func (o Operations) String() string {
	var parts []string
	for _, p := range []struct {
		name string
		n    int64
	}{{"write", o.Write}, {"send", o.Send}, {"read", o.Read}, {"atomic", o.Atomic}} {
		if p.n > 0 {
			parts = append(parts, p.name+" "+integer(p.n))
		}
	}
	if len(parts) == 0 {
		return none
	}
	return strings.Join(parts, " ")
}

// PhaseTable has one row a phase.
func (d *Document) PhaseTable() Table {
	t := Table{Title: "Phases", Columns: columns("phase", "#flows", "#goodput", "#on the wire", "#utilisation", "#Jain", "#Jain per bin", "#CE", "#CNP rate", "#resent", "~excluded")}
	if d.TimeScale != 1 {
		t.Title += fmt.Sprintf(" (time scale %g: multiply rates by it for hardware)", d.TimeScale)
	}
	for _, p := range d.Aggregate.PerPhase {
		var excluded []string
		for _, e := range p.Excluded {
			excluded = append(excluded, e.Flow+": "+e.Reason)
		}
		text := none
		if len(excluded) > 0 {
			text = strings.Join(excluded, "; ")
		}
		t.Rows = append(t.Rows, []string{p.Name, strconv.Itoa(len(p.Flows)), FormatRate(p.GoodputBps), FormatRate(p.WireBps), shareOr(p.Utilisation), index(p.Jain),
			index(p.JainMeanOfBins), shareOr(p.CEShare), hertz(p.CNPRateHz), integer(p.RetransmittedPackets), text})
	}
	return t
}

// PhaseFlowTable has one row a phase and one column a source, with goodputs; flows of one source are added up.
func (d *Document) PhaseFlowTable() Table {
	t := Table{Title: "Goodput by phase", Columns: columns("phase")}
	col := map[string]int{}
	var names []string
	label := func(f *PhaseFlow) string {
		if f.Name != "" {
			return f.Name
		}
		return f.Flow
	}
	for _, p := range d.Aggregate.PerPhase {
		for i := range p.Flows {
			if n := label(&p.Flows[i]); col[n] == 0 {
				col[n] = -1
				names = append(names, n)
			}
		}
	}
	sort.Strings(names)
	for i, n := range names {
		col[n] = i + 1
		t.Columns = append(t.Columns, Column{Name: n, Numeric: true})
	}
	t.Columns = append(t.Columns, Column{Name: "total", Numeric: true})
	for _, p := range d.Aggregate.PerPhase {
		sums := make([]float64, len(names))
		seen := make([]bool, len(names))
		for i := range p.Flows {
			c := col[label(&p.Flows[i])] - 1
			sums[c] += p.Flows[i].GoodputBps
			seen[c] = true
		}
		row := []string{p.Name}
		for i, v := range sums {
			if seen[i] {
				row = append(row, FormatRate(v))
			} else {
				row = append(row, none)
			}
		}
		t.Rows = append(t.Rows, append(row, FormatRate(p.GoodputBps)))
	}
	return t
}

// PathTable compares upstream taps with the judged ones.
func (d *Document) PathTable() Table {
	t := Table{Title: "Loss between taps", Columns: columns("direction", "#data upstream", "#data judged", "#data lost", "#control upstream", "#control judged", "#control lost")}
	row := func(name string, data, control PathCount) {
		t.Rows = append(t.Rows, []string{name, integer(data.UpstreamPackets), integerOr(data.JudgedPackets), integerOr(data.LostPackets),
			integer(control.UpstreamPackets), integerOr(control.JudgedPackets), integerOr(control.LostPackets)})
	}
	for _, f := range d.Path.Flows {
		row(f.ID, f.Data, f.Control)
	}
	row("all comparable", d.Path.Data, d.Path.Control)
	return t
}

// FormatRate prints bit/s with three significant digits and its unit, such as "23.4 Gb/s".
func FormatRate(bps float64) string {
	return scaled(bps, 1000, []string{"b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"})
}

// FormatSize prints bytes with an IEC prefix.
func FormatSize(bytes int64) string {
	if bytes < 1024 {
		return strconv.FormatInt(bytes, 10) + " B"
	}
	return scaled(float64(bytes), 1024, []string{"B", "KiB", "MiB", "GiB", "TiB"})
}

// FormatDuration prints ns with three significant digits and its unit.
func FormatDuration(ns float64) string {
	if ns < float64(time.Second) {
		return scaled(ns, 1000, []string{"ns", "us", "ms"})
	}
	return strconv.FormatFloat(ns/1e9, 'f', 3, 64) + " s"
}

// FormatShare prints a share in percent.
func FormatShare(v float64) string {
	if v != 0 && math.Abs(v) < 0.001 {
		return strconv.FormatFloat(100*v, 'g', 2, 64) + " %"
	}
	return strconv.FormatFloat(100*v, 'f', 1, 64) + " %"
}

func scaled(v, step float64, units []string) string {
	i := 0
	for math.Abs(v) >= step && i < len(units)-1 {
		v /= step
		i++
	}
	digits := 2
	switch {
	case math.Abs(v) >= 100 || v == math.Trunc(v) && i == 0:
		digits = 0
	case math.Abs(v) >= 10:
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + " " + units[i]
}

func integer(n int64) string { return strconv.FormatInt(n, 10) }

func integerOr(n *int64) string {
	if n == nil {
		return none
	}
	return integer(*n)
}

func rate(v *float64) string {
	if v == nil {
		return none
	}
	return FormatRate(*v)
}

func duration(v *int64) string {
	if v == nil {
		return none
	}
	return FormatDuration(float64(*v))
}

func shareOr(v *float64) string {
	if v == nil {
		return none
	}
	return FormatShare(*v)
}

func index(v *float64) string {
	if v == nil {
		return none
	}
	return strconv.FormatFloat(*v, 'f', 4, 64)
}

func hertz(v *float64) string {
	if v == nil {
		return none
	}
	return scaled(*v, 1000, []string{"/s", "k/s", "M/s"})
}
