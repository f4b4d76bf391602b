package analysis

import (
	"encoding/csv"
	"io"
	"strconv"
)

// Row is one number in long form, for CSV and for whoever wants to load it elsewhere. What was not measured has no row.
type Row struct {
	Run    string
	Flow   string // empty: about all flows
	Metric string
	TimeNS *int64 // start of the bin or phase; nil: about the whole capture
	Value  float64
	Unit   string
}

// RowHeader names the columns of Rows in CSV.
var RowHeader = []string{"run", "flow", "metric", "time_ns", "value", "unit"}

// Rows calls yield for every number of the document until it returns false; run names the run in each row.
func (d *Document) Rows(run string, yield func(Row) bool) {
	stop := false
	emit := func(flow, metric string, at *int64, v float64, unit string) {
		if !stop && !yield(Row{run, flow, metric, at, v, unit}) {
			stop = true
		}
	}
	count := func(flow, metric string, v int64) { emit(flow, metric, nil, float64(v), "packets") }
	maybe := func(flow, metric string, at *int64, v *float64, unit string) {
		if v != nil {
			emit(flow, metric, at, *v, unit)
		}
	}
	maybeInt := func(flow, metric string, at *int64, v *int64, unit string) {
		if v != nil {
			emit(flow, metric, at, float64(*v), unit)
		}
	}

	t := d.Totals
	count("", "packets", t.Packets)
	count("", "roce_packets", t.RoCEPackets)
	emit("", "payload_bytes", nil, float64(t.PayloadBytes), "bytes")
	emit("", "unique_bytes", nil, float64(t.UniqueBytes), "bytes")
	count("", "ce_data_packets", t.CEDataPackets)
	count("", "ce_ack_packets", t.CEAckPackets)
	count("", "cnp_packets", t.CNPPackets)
	count("", "nak_packets", t.NAKPackets)
	count("", "rnr_nak_packets", t.RNRNAKPackets)
	count("", "retransmitted_packets", t.RetransmittedPackets)
	count("", "lost_before_tap", t.LostBeforeTap)
	a := d.Aggregate
	maybe("", "goodput", nil, a.GoodputBps, "bit/s")
	maybe("", "hw_goodput", nil, a.HWGoodputBps, "bit/s")
	maybe("", "jain", nil, a.Jain, "1")
	maybe("", "utilisation", nil, a.Utilisation, "1")
	for i := range d.Flows {
		f := &d.Flows[i]
		count(f.ID, "packets", f.Packets)
		emit(f.ID, "payload_bytes", nil, float64(f.PayloadBytes), "bytes")
		emit(f.ID, "unique_bytes", nil, float64(f.UniqueBytes), "bytes")
		maybe(f.ID, "goodput", nil, f.GoodputBps, "bit/s")
		maybe(f.ID, "hw_goodput", nil, f.HWGoodputBps, "bit/s")
		count(f.ID, "ce_packets", f.CEPackets)
		maybeInt(f.ID, "cnps", nil, f.CNPs, "packets")
		maybe(f.ID, "cnp_rate", nil, f.CNPRateHz, "1/s")
		count(f.ID, "retransmitted_packets", f.RetransmittedPackets)
		count(f.ID, "out_of_order_packets", f.OutOfOrderPackets)
		count(f.ID, "lost_before_tap", f.LostBeforeTap)
		maybeInt(f.ID, "rtt_p50", nil, f.RTTNS.P50, "ns")
		maybeInt(f.ID, "rtt_p99", nil, f.RTTNS.P99, "ns")
		maybeInt(f.ID, "message_p50", nil, f.MessageNS.P50, "ns")
		maybeInt(f.ID, "message_p99", nil, f.MessageNS.P99, "ns")
	}
	for i := range a.PerPhase {
		p := &a.PerPhase[i]
		m := func(name string) string { return "phase." + p.Name + "." + name }
		emit("", m("goodput"), &p.StartNS, p.GoodputBps, "bit/s")
		emit("", m("hw_goodput"), &p.StartNS, p.HWGoodputBps, "bit/s")
		maybe("", m("utilisation"), &p.StartNS, p.Utilisation, "1")
		maybe("", m("jain"), &p.StartNS, p.Jain, "1")
		maybe("", m("jain_mean_of_bins"), &p.StartNS, p.JainMeanOfBins, "1")
		maybe("", m("ce_share"), &p.StartNS, p.CEShare, "1")
		maybe("", m("cnp_rate"), &p.StartNS, p.CNPRateHz, "1/s")
		emit("", m("retransmitted_packets"), &p.StartNS, float64(p.RetransmittedPackets), "packets")
		for j := range p.Flows {
			f := &p.Flows[j]
			emit(f.Flow, m("goodput"), &p.StartNS, f.GoodputBps, "bit/s")
			maybe(f.Flow, m("ce_share"), &p.StartNS, f.CEShare, "1")
			maybe(f.Flow, m("cnp_rate"), &p.StartNS, f.CNPRateHz, "1/s")
			emit(f.Flow, m("retransmitted_packets"), &p.StartNS, float64(f.RetransmittedPackets), "packets")
		}
	}
	for _, s := range d.Series.Flows {
		for i := range s.GoodputBps {
			if stop {
				return
			}
			at := d.Series.StartNS + int64(s.FirstBin+i)*d.Series.BinNS
			emit(s.ID, "series.goodput", &at, s.GoodputBps[i], "bit/s")
			emit(s.ID, "series.ce", &at, float64(s.CE[i]), "packets")
			if s.CNPs != nil {
				emit(s.ID, "series.cnps", &at, float64(s.CNPs[i]), "packets")
			}
			emit(s.ID, "series.retransmits", &at, float64(s.Retransmits[i]), "packets")
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
