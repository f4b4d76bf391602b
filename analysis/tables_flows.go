package analysis

import (
	"fmt"
	"strconv"
)

// FlowTables are about single flows: what they carried, how long it took, what congestion did, what was lost.
func (d *Document) FlowTables() []Table {
	return []Table{d.FlowTable(), d.TimesTable(), d.CongestionTable(), d.ReactionTable(), d.LossTable(), d.RecoveryTable()}
}

// FlowTable has one row a flow.
func (d *Document) FlowTable() Table {
	t := Table{Title: "Flows", Columns: columns("flow", "operations", "#packets", "#payload", "#goodput", "state")}
	for i := range d.Flows {
		f := &d.Flows[i]
		t.Rows = append(t.Rows, []string{f.Label(), f.Service + " " + f.Operations.String(), integer(f.Packets), FormatSize(f.UniqueBytes), rate(f.GoodputBps), f.State})
	}
	return t
}

// TimesTable has round-trip and completion times of the flows that have any.
func (d *Document) TimesTable() Table {
	t := Table{Title: "Times", Columns: columns("flow", "#RTT p50", "#p99", "#max", "#message p50", "#p99", "until")}
	for i := range d.Flows {
		f := &d.Flows[i]
		if f.RTTNS.Samples+f.MessageNS.Count == 0 {
			continue
		}
		until := map[string]string{"ack": "ack", "last_packet": "last"}[f.MessageNS.Until]
		if until == "" {
			until = none
		}
		t.Rows = append(t.Rows, []string{f.Label(), duration(f.RTTNS.P50), duration(f.RTTNS.P99), duration(f.RTTNS.Max), duration(f.MessageNS.P50), duration(f.MessageNS.P99), until})
	}
	return d.someFlows(t)
}

// CongestionTable says how flows were marked and told so.
func (d *Document) CongestionTable() Table {
	t := Table{Title: "Congestion", Columns: columns("flow", "#CE", "#CNPs", "#CNP rate", "#gap p50", "#delay p50")}
	for i := range d.Flows {
		f := &d.Flows[i]
		if f.CEPackets == 0 && (f.CNPs == nil || *f.CNPs == 0) {
			continue
		}
		t.Rows = append(t.Rows, []string{f.Label(), shareOr(f.CEShare), integerOr(f.CNPs), hertz(f.CNPRateHz), duration(f.CNPGapNS.P50), duration(f.CNPDelayNS.P50)})
	}
	return d.someFlows(t)
}

// ReactionTable says what senders did after CNPs.
func (d *Document) ReactionTable() Table {
	t := Table{Title: "Reaction to CNPs", Columns: columns("flow", "#cut", "#before", "#lowest", "#back", "#after p50")}
	for i := range d.Flows {
		f := &d.Flows[i]
		r := f.Reaction
		if r == nil || r.Episodes == 0 {
			continue
		}
		median := func(v *Rates) string {
			if v == nil {
				return none
			}
			return FormatRate(v.P50)
		}
		t.Rows = append(t.Rows, []string{f.Label(), fmt.Sprintf("%d of %d", r.Cut, r.Episodes), median(r.BeforeBps), median(r.LowestBps),
			integer(r.Recovered), duration(r.RecoverNS.P50)})
	}
	return d.someFlows(t)
}

// LossTable has the flows that something happened to.
func (d *Document) LossTable() Table {
	t := Table{Title: "Losses", Columns: columns("flow", "#resent", "#seen twice", "#late", "#lost", "#missed", "#NAKs")}
	for i := range d.Flows {
		f := &d.Flows[i]
		naks, n := none, int64(0)
		if f.NAKs != nil {
			n = f.NAKs.sum()
			naks = integer(n)
		}
		if f.RetransmittedPackets+f.DuplicatePackets+f.OutOfOrderPackets+f.LostBeforeTap+f.MissedByTap+n == 0 {
			continue
		}
		t.Rows = append(t.Rows, []string{f.Label(), integer(f.RetransmittedPackets), integer(f.DuplicatePackets), integer(f.OutOfOrderPackets),
			integer(f.LostBeforeTap), integer(f.MissedByTap), naks})
	}
	return d.someFlows(t)
}

// RecoveryTable says how lost packets were sent again.
func (d *Document) RecoveryTable() Table {
	t := Table{Title: "Recovery", Columns: columns("flow", "#restarts", "#NAK", "#RNR", "#timeout", "#alone", "#delay p50")}
	for i := range d.Flows {
		f := &d.Flows[i]
		if r := f.Recovery; r != nil {
			t.Rows = append(t.Rows, []string{f.Label(), integer(r.Restarts), integer(r.ByNAK), integer(r.ByRNR), integer(r.ByTimeout), integer(r.Selective),
				duration(r.DelayNS.P50)})
		}
	}
	return d.someFlows(t)
}

// someFlows says in the title of t that flows are left out, for nobody should look for them.
func (d *Document) someFlows(t Table) Table {
	if n := len(d.Flows) - len(t.Rows); n > 0 {
		t.Title += fmt.Sprintf(" (%d of %d flows; nothing to say of the others)", len(t.Rows), len(d.Flows))
	}
	return t
}

// Label is the flow's name and id in one.
func (f *Flow) Label() string {
	if f.Name == "" {
		return f.ID
	}
	return f.Name + " " + f.ID
}

// ConnectionTable has the handshakes of RDMA-CM.
func (d *Document) ConnectionTable() Table {
	t := Table{Title: "Connections by RDMA-CM", Columns: columns("connection", "QPs", "PSNs", "state", "#setup")}
	hex := func(v *uint32) string {
		if v == nil {
			return none
		}
		return fmt.Sprintf("0x%06x", *v)
	}
	decimal := func(v *uint32) string {
		if v == nil {
			return none
		}
		return strconv.FormatUint(uint64(*v), 10)
	}
	for _, c := range d.Connections {
		state := c.State
		if c.RejectReason != nil {
			state += fmt.Sprintf(" (%d)", *c.RejectReason)
		}
		t.Rows = append(t.Rows, []string{c.Src + ">" + c.Dst, hex(c.SrcQP) + " > " + hex(c.DstQP), decimal(c.SrcPSN) + " > " + decimal(c.DstPSN), state, duration(c.SetupNS)})
	}
	return t
}
