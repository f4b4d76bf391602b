package analysis

import (
	"encoding/csv"
	"io"
	"maps"
	"slices"
	"strconv"
)

// Row is one number in long form, for CSV, Parquet and whoever wants to load it elsewhere. What was not measured has no row.
type Row struct {
	Run    string
	Flow   string // what the number is about, most often a flow; empty: all flows together
	Metric string
	TimeNS *int64 // start of the bin, phase or event; nil: about the whole capture
	Value  float64
	Unit   string
}

// RowHeader names the columns of Rows in CSV.
var RowHeader = []string{"run", "flow", "metric", "time_ns", "value", "unit"}

// rowEmitter hands out rows until yield has had enough.
type rowEmitter struct {
	run   string
	yield func(Row) bool
	done  bool
}

func (e *rowEmitter) row(flow, metric string, at *int64, v float64, unit string) {
	if !e.done && !e.yield(Row{e.run, flow, metric, at, v, unit}) {
		e.done = true
	}
}

// emit gives a row for each measure of v that has a value; prefix goes before the names.
func emit[T any](e *rowEmitter, measures []measure[T], prefix, flow string, at *int64, v *T) {
	for i := range measures {
		if e.done {
			return
		}
		m := &measures[i]
		if x, ok := number(m.of(v)); ok {
			e.row(flow, prefix+m.name, at, x, m.unit)
		}
	}
}

// counts emits a map of counters in the order of its keys.
func (e *rowEmitter) counts(flow, prefix string, m map[string]int64) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		e.row(flow, prefix+k, nil, float64(m[k]), unitPackets)
	}
}

// number is the value of an integer, a float or a pointer to one; nil pointers have none.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	case int:
		return float64(v), true
	case uint16:
		return float64(v), true
	case uint32:
		return float64(v), true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case *int64:
		return pointed(v)
	case *float64:
		return pointed(v)
	case *int:
		return pointed(v)
	case *uint16:
		return pointed(v)
	case *uint32:
		return pointed(v)
	}
	return 0, false
}

func pointed[N int | int64 | uint16 | uint32 | float64](v *N) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return float64(*v), true
}

// Rows calls yield for every number of the document until it returns false; run names the run in each row. The names, units
// and meanings are in docs/analysis.md, "Long form".
func (d *Document) Rows(run string, yield func(Row) bool) {
	e := &rowEmitter{run: run, yield: yield}
	emit(e, documentMeasures, "", "", nil, d)
	e.counts("", "opcode.", d.Totals.Opcodes)
	d.captureRows(e)
	for i := range d.Flows {
		flowRows(e, &d.Flows[i])
	}
	d.phaseRows(e)
	d.congestionRows(e)
	d.pathRows(e)
	d.rdccRows(e)
	for i := range d.Checks {
		emit(e, checkMeasures, "check.", d.Checks[i].Name, nil, &d.Checks[i])
	}
	d.distributionRows(e)
	d.seriesRows(e)
}

// SeriesRows are those of Rows that are numbers over time: series.*.
func (d *Document) SeriesRows(run string, yield func(Row) bool) {
	d.seriesRows(&rowEmitter{run: run, yield: yield})
}

func (d *Document) captureRows(e *rowEmitter) {
	for i := range d.Files {
		f := &d.Files[i]
		emit(e, fileMeasures, "file.", f.Path, f.FirstNS, f)
		for j := range f.Interfaces {
			name := f.Interfaces[j].Name
			if name == "" {
				name = strconv.Itoa(j)
			}
			emit(e, interfaceMeasures, "interface.", f.Path+"#"+name, nil, &f.Interfaces[j])
		}
	}
	for i := range d.Directions {
		r := &d.Directions[i]
		emit(e, directionMeasures, "direction.", r.ID, nil, r)
		e.counts(r.ID, "direction.opcode.", r.Opcodes)
	}
}

func flowRows(e *rowEmitter, f *Flow) {
	e.row(f.ID, "duration", &f.FirstNS, float64(f.LastNS-f.FirstNS), unitNS)
	emit(e, flowMeasures, "", f.ID, nil, f)
	for _, l := range []struct {
		metric string
		values []int
	}{{"dscp", f.DSCP}, {"pcp", f.PCP}, {"vlan", f.VLAN}} {
		for _, v := range l.values {
			e.row(f.ID, l.metric, nil, float64(v), unitNone)
		}
	}
	if f.Recovery == nil {
		return
	}
	for i := range f.Recovery.Events {
		event := &f.Recovery.Events[i]
		emit(e, recoveryMeasures, "recovery_event.", f.ID, &event.TimeNS, event)
	}
}

func (d *Document) phaseRows(e *rowEmitter) {
	a := &d.Aggregate
	if a.Common != nil {
		emit(e, commonMeasures, "common.", "", &a.Common.StartNS, a.Common)
	}
	for i := range a.Convergence {
		c := &a.Convergence[i]
		emit(e, convergenceMeasures, "convergence."+c.Event+".", c.Flow, &c.AtNS, c)
	}
	for i := range a.PerPhase {
		p := &a.PerPhase[i]
		prefix := "phase." + p.Name + "."
		emit(e, phaseMeasures, prefix, "", &p.StartNS, p)
		for j := range p.Flows {
			emit(e, phaseFlowMeasures, prefix, p.Flows[j].Flow, &p.StartNS, &p.Flows[j])
		}
	}
}

func (d *Document) congestionRows(e *rowEmitter) {
	for i := range d.Congestion.Scopes {
		s := &d.Congestion.Scopes[i]
		emit(e, scopeMeasures, "cnp_scope.", s.Scope, nil, s)
	}
	for i := range d.Congestion.Pairs {
		c := &d.Congestion.Pairs[i]
		emit(e, cnpCountMeasures, "cnp_pair.", c.Src+">"+c.Dst, nil, c)
	}
	for i := range d.Congestion.Ports {
		c := &d.Congestion.Ports[i]
		emit(e, cnpCountMeasures, "cnp_port.", c.Src, nil, c)
	}
	for i := range d.Congestion.Receivers {
		r := &d.Congestion.Receivers[i]
		emit(e, receiverMeasures, "receiver.", r.Dst, nil, r)
	}
	for i := range d.PFC {
		p := &d.PFC[i]
		emit(e, pauseMeasures, "pfc.", p.Src+"/"+p.priority(), &p.FirstNS, p)
	}
	for i := range d.Connections {
		c := &d.Connections[i]
		emit(e, connectionMeasures, "connection.", c.Src+">"+c.Dst, c.RequestNS, c)
	}
}

// priority names what is paused: a priority, or all of them.
func (p *PausedPort) priority() string {
	if p.Priority == nil {
		return "all"
	}
	return strconv.Itoa(*p.Priority)
}

func (d *Document) pathRows(e *rowEmitter) {
	if d.Path == nil {
		return
	}
	emit(e, pathMeasures, "path.data.", "", nil, &d.Path.Data)
	emit(e, pathMeasures, "path.control.", "", nil, &d.Path.Control)
	for i := range d.Path.Flows {
		f := &d.Path.Flows[i]
		emit(e, pathMeasures, "path.data.", f.ID, nil, &f.Data)
		emit(e, pathMeasures, "path.control.", f.ID, nil, &f.Control)
	}
}

// distributionRows puts the sample's value where other rows have the flow: a row has one number, and the count is it.
func (d *Document) distributionRows(e *rowEmitter) {
	for _, l := range []struct {
		metric  string
		samples []Sample
	}{{"distribution.rtt", d.Distributions.RTTNS}, {"distribution.message", d.Distributions.MessageNS}, {"distribution.cnp_gap", d.Distributions.CNPGapNS}} {
		for _, s := range l.samples {
			e.row(strconv.FormatInt(s.Value, 10), l.metric, nil, float64(s.Count), "samples")
		}
	}
}

func (d *Document) seriesRows(e *rowEmitter) {
	s := &d.Series
	if s.Bins > 0 {
		e.row("", "series.bin", &s.StartNS, float64(s.BinNS), unitNS)
		e.row("", "series.bins", &s.StartNS, float64(s.Bins), unitNone)
	}
	for i, v := range s.Jain {
		if v != nil {
			at := s.StartNS + int64(i)*s.BinNS
			e.row("", "series.jain", &at, *v, unitNone)
		}
	}
	for i := range s.Flows {
		f := &s.Flows[i]
		for j := range f.GoodputBps {
			if e.done {
				return
			}
			at := s.StartNS + int64(f.FirstBin+j)*s.BinNS
			e.row(f.ID, "series.goodput", &at, f.GoodputBps[j], unitBps)
			if j < len(f.SentBps) {
				e.row(f.ID, "series.sent", &at, f.SentBps[j], unitBps)
			}
			for _, l := range []struct {
				metric string
				values []int64
			}{{"series.packets", f.Packets}, {"series.ce", f.CE}, {"series.cnps", f.CNPs}, {"series.retransmits", f.Retransmits}} {
				if j < len(l.values) { // cnps is null where answers were not captured
					e.row(f.ID, l.metric, &at, float64(l.values[j]), unitPackets)
				}
			}
			for _, l := range []struct {
				metric, unit string
				values       []*float64
			}{{"series.pacer_rate", unitBps, f.PacerRateBps}, {"series.cwnd", unitBytes, f.CwndBytes}, {"series.acks_per_call", unitPackets, f.AcksPerCall}} {
				if j < len(l.values) && l.values[j] != nil {
					e.row(f.ID, l.metric, &at, *l.values[j], l.unit)
				}
			}
		}
	}
}

// WriteCSV writes Rows with a header.
func (d *Document) WriteCSV(w io.Writer, run string) error {
	c := csv.NewWriter(w)
	if err := c.Write(RowHeader); err != nil {
		return err
	}
	var err error
	d.Rows(run, func(r Row) bool {
		at := ""
		if r.TimeNS != nil {
			at = strconv.FormatInt(*r.TimeNS, 10)
		}
		err = c.Write([]string{r.Run, r.Flow, r.Metric, at, strconv.FormatFloat(r.Value, 'g', -1, 64), r.Unit})
		return err == nil
	})
	if err != nil {
		return err
	}
	c.Flush()
	return c.Error()
}
