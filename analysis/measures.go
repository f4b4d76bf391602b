package analysis

// measure is one number of a T in long form: its name, its unit and what it means. The tables here are the names that
// docs/analysis.md, "Long form", lists; a test holds both to each other, and to the fields of Document.
type measure[T any] struct {
	name, unit, meaning string
	of                  func(*T) any // an integer, a float, or a pointer to one: nil is not measured
	family              string       // set for the statistics of one distribution: the name without the statistic
}

// Units of long form.
const (
	unitNone     = "1"
	unitPackets  = "packets"
	unitMessages = "messages"
	unitBytes    = "bytes"
	unitBps      = "bit/s"
	unitHz       = "1/s"
	unitNS       = "ns"
	unitSamples  = "samples"
	unitFlows    = "flows"
)

// join makes one list of several.
func join[T any](lists ...[]measure[T]) (all []measure[T]) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// within makes measures of a T from those of one part of it; part may be nil.
func within[T, P any](prefix string, measures []measure[P], part func(*T) *P) (out []measure[T]) {
	for _, m := range measures {
		family := m.family
		if family != "" {
			family = prefix + family
		}
		of := m.of
		out = append(out, measure[T]{prefix + m.name, m.unit, m.meaning, func(v *T) any {
			if p := part(v); p != nil {
				return of(p)
			}
			return nil
		}, family})
	}
	return out
}

// latency are the statistics of one Latency.
func latency[T any](name, unit, meaning string, part func(*T) *Latency) []measure[T] {
	return within(name+"_", []measure[Latency]{
		{"samples", unitSamples, meaning, func(l *Latency) any { return l.Samples }, "STAT"},
		{"min", unit, meaning, func(l *Latency) any { return l.Min }, "STAT"},
		{"p50", unit, meaning, func(l *Latency) any { return l.P50 }, "STAT"},
		{"p90", unit, meaning, func(l *Latency) any { return l.P90 }, "STAT"},
		{"p99", unit, meaning, func(l *Latency) any { return l.P99 }, "STAT"},
		{"p999", unit, meaning, func(l *Latency) any { return l.P999 }, "STAT"},
		{"max", unit, meaning, func(l *Latency) any { return l.Max }, "STAT"},
	}, part)
}

func messages[T any](name, meaning string, part func(*T) *Messages) []measure[T] {
	return within(name+"_", []measure[Messages]{
		{"count", unitMessages, meaning, func(m *Messages) any { return m.Count }, "STAT"},
		{"p50", unitNS, meaning, func(m *Messages) any { return m.P50 }, "STAT"},
		{"p99", unitNS, meaning, func(m *Messages) any { return m.P99 }, "STAT"},
		{"max", unitNS, meaning, func(m *Messages) any { return m.Max }, "STAT"},
	}, part)
}

func bursts[T any](name, meaning string, part func(*T) *Bursts) []measure[T] {
	return within(name+"_", []measure[Bursts]{
		{"gap", unitNS, "a longer gap ends one: " + meaning, func(b *Bursts) any { return b.GapNS }, ""},
		{"count", unitNone, "how many: " + meaning, func(b *Bursts) any { return b.Count }, ""},
		{"p50", unitBytes, meaning, func(b *Bursts) any { return b.P50 }, "STAT"},
		{"p99", unitBytes, meaning, func(b *Bursts) any { return b.P99 }, "STAT"},
		{"max", unitBytes, meaning, func(b *Bursts) any { return b.Max }, "STAT"},
	}, part)
}

func rates[T any](name, meaning string, part func(*T) *Rates) []measure[T] {
	return within(name+"_", []measure[Rates]{
		{"min", unitBps, meaning, func(r *Rates) any { return r.Min }, "STAT"},
		{"p50", unitBps, meaning, func(r *Rates) any { return r.P50 }, "STAT"},
		{"max", unitBps, meaning, func(r *Rates) any { return r.Max }, "STAT"},
	}, part)
}

// The totals come first: who looks at the head of a file sees how much there was.
var documentMeasures = join(
	within("", totalMeasures, func(d *Document) *Totals { return &d.Totals }),
	within("", aggregateMeasures, func(d *Document) *Aggregate { return &d.Aggregate }), []measure[Document]{
		{"time_scale", unitNone, "time scale S of the lab; 1 on hardware", func(d *Document) any { return d.TimeScale }, ""},
		{"complete", unitNone, "1: quality.verdict is complete, else 0", func(d *Document) any { return d.Quality.Verdict == Complete }, ""},
		{"duplicates_removed", unitPackets, "copies made by mirrors that were removed", func(d *Document) any { return d.Quality.DuplicatesRemoved }, ""},
		{"records_out_of_order", unitPackets, "records older than the one before", func(d *Document) any { return d.Quality.OutOfOrder }, ""},
		{"capture_drops", unitPackets, "dropped by the captures' own statistics", func(d *Document) any { return d.Quality.Drops }, ""},
		{"offload_merged", unitPackets, "packets longer than any path MTU", func(d *Document) any { return d.Quality.OffloadMerged }, ""},
		{"cnp_pacing", unitNS, "interval that the notifier keeps between CNPs at its pacing scope", func(d *Document) any { return d.Congestion.PacingNS }, ""},
	})

var totalMeasures = []measure[Totals]{
	{"packets", unitPackets, "all packets, after the removal of copies", func(t *Totals) any { return t.Packets }, ""},
	{"roce_packets", unitPackets, "RoCEv2 packets", func(t *Totals) any { return t.RoCEPackets }, ""},
	{"payload_bytes", unitBytes, "payload", func(t *Totals) any { return t.PayloadBytes }, ""},
	{"unique_bytes", unitBytes, "payload of PSNs seen for the first time", func(t *Totals) any { return t.UniqueBytes }, ""},
	{"ce_packets", unitPackets, "CE-marked: data and acknowledgements", func(t *Totals) any { return t.CEPackets }, ""},
	{"ce_data_packets", unitPackets, "CE-marked, without acknowledgements", func(t *Totals) any { return t.CEDataPackets }, ""},
	{"ce_ack_packets", unitPackets, "CE-marked acknowledgements", func(t *Totals) any { return t.CEAckPackets }, ""},
	{"cnp_packets", unitPackets, "CNPs", func(t *Totals) any { return t.CNPPackets }, ""},
	{"ack_packets", unitPackets, "positive acknowledgements", func(t *Totals) any { return t.AckPackets }, ""},
	{"nak_packets", unitPackets, "NAKs without RNR", func(t *Totals) any { return t.NAKPackets }, ""},
	{"rnr_nak_packets", unitPackets, "RNR NAKs", func(t *Totals) any { return t.RNRNAKPackets }, ""},
	{"retransmitted_packets", unitPackets, "retransmitted data packets", func(t *Totals) any { return t.RetransmittedPackets }, ""},
	{"duplicate_packets", unitPackets, "data packets whose PSN was seen before", func(t *Totals) any { return t.DuplicatePackets }, ""},
	{"lost_before_tap", unitPackets, "PSNs jumped over that did not come late", func(t *Totals) any { return t.LostBeforeTap }, ""},
	{"missed_by_tap", unitPackets, "acknowledged, but never captured", func(t *Totals) any { return t.MissedByTap }, ""},
	{"mad_packets", unitPackets, "management datagrams", func(t *Totals) any { return t.MADPackets }, ""},
	{"cm_packets", unitPackets, "those of RDMA-CM", func(t *Totals) any { return t.CMPackets }, ""},
	{"fecn_packets", unitPackets, "with the FECN bit", func(t *Totals) any { return t.FECNPackets }, ""},
	{"becn_packets", unitPackets, "with the BECN bit", func(t *Totals) any { return t.BECNPackets }, ""},
	{"mirrored_packets", unitPackets, "came inside GRE or ERSPAN", func(t *Totals) any { return t.MirroredPackets }, ""},
	{"truncated_roce_packets", unitPackets, "cut before the end of their headers", func(t *Totals) any { return t.TruncatedRoCE }, ""},
	{"pfc_pause_frames", unitPackets, "PFC and PAUSE frames", func(t *Totals) any { return t.PFCPauseFrames }, ""},
	{"icrc_checked", unitPackets, "whose ICRC was checked", func(t *Totals) any { return t.ICRCChecked }, ""},
	{"icrc_bad", unitPackets, "whose ICRC was wrong", func(t *Totals) any { return t.ICRCBad }, ""},
	{"ecn.not_ect", unitPackets, "RoCE packets by ECN codepoint: Not-ECT", func(t *Totals) any { return t.ECN.NotECT }, ""},
	{"ecn.ect1", unitPackets, "ECT(1)", func(t *Totals) any { return t.ECN.ECT1 }, ""},
	{"ecn.ect0", unitPackets, "ECT(0)", func(t *Totals) any { return t.ECN.ECT0 }, ""},
	{"ecn.ce", unitPackets, "CE", func(t *Totals) any { return t.ECN.CE }, ""},
	{"unattributed.acks", unitPackets, "acknowledgements that belong to no flow seen", func(t *Totals) any { return t.Unattributed.Acks }, ""},
	{"unattributed.naks", unitPackets, "NAKs that belong to no flow seen", func(t *Totals) any { return t.Unattributed.NAKs }, ""},
	{"unattributed.cnps", unitPackets, "CNPs that belong to no flow seen", func(t *Totals) any { return t.Unattributed.CNPs }, ""},
}

var aggregateMeasures = []measure[Aggregate]{
	{"goodput", unitBps, "of all flows together", func(a *Aggregate) any { return a.GoodputBps }, ""},
	{"hw_goodput", unitBps, "what that stands for on hardware", func(a *Aggregate) any { return a.HWGoodputBps }, ""},
	{"wire_rate", unitBps, "whole frames of data packets", func(a *Aggregate) any { return a.WireBps }, ""},
	{"jain", unitNone, "Jain's index over the flows' goodputs", func(a *Aggregate) any { return a.Jain }, ""},
	{"utilisation", unitNone, "wire rate / link rate", func(a *Aggregate) any { return a.Utilisation }, ""},
	{"goodput_utilisation", unitNone, "goodput / link rate", func(a *Aggregate) any { return a.GoodputUtilisation }, ""},
	{"min_max", unitNone, "lowest goodput / highest", func(a *Aggregate) any { return a.MinMax }, ""},
	{"active_flows", unitFlows, "flows that took part", func(a *Aggregate) any { return a.ActiveFlows }, ""},
}

var commonMeasures = []measure[Common]{
	{"duration", unitNS, "of the interval in which all flows are active; its start is the time", func(c *Common) any { return c.EndNS - c.StartNS }, ""},
	{"flows", unitFlows, "flows in it", func(c *Common) any { return c.Flows }, ""},
	{"jain", unitNone, "Jain's index in it", func(c *Common) any { return c.Jain }, ""},
	{"min_max", unitNone, "lowest goodput / highest in it", func(c *Common) any { return c.MinMax }, ""},
}

var convergenceMeasures = []measure[Convergence]{
	{"time", unitNS, "until the flows shared fairly; the event is the time", func(c *Convergence) any { return c.TimeNS }, ""},
	{"active", unitFlows, "flows after the event", func(c *Convergence) any { return c.Active }, ""},
	{"lowest_jain", unitNone, "lowest index until then", func(c *Convergence) any { return c.LowestJain }, ""},
}

var phaseMeasures = []measure[PhaseSummary]{
	{"duration", unitNS, "of the phase; its start is the time", func(p *PhaseSummary) any { return p.EndNS - p.StartNS }, ""},
	{"trim", unitNS, "cut off at the start before rates are taken", func(p *PhaseSummary) any { return p.TrimNS }, ""},
	{"trim_end", unitNS, "cut off at the end", func(p *PhaseSummary) any { return p.TrimEndNS }, ""},
	{"goodput", unitBps, "of all flows in the trimmed window", func(p *PhaseSummary) any { return p.GoodputBps }, ""},
	{"hw_goodput", unitBps, "what that stands for on hardware", func(p *PhaseSummary) any { return p.HWGoodputBps }, ""},
	{"wire_rate", unitBps, "whole frames of data packets", func(p *PhaseSummary) any { return p.WireBps }, ""},
	{"jain", unitNone, "Jain's index over the flows' means", func(p *PhaseSummary) any { return p.Jain }, ""},
	{"jain_mean_of_bins", unitNone, "mean of the bins' indices", func(p *PhaseSummary) any { return p.JainMeanOfBins }, ""},
	{"jain_bins", unitNone, "bins in that mean", func(p *PhaseSummary) any { return p.JainBins }, ""},
	{"jain_pacer", unitNone, "Jain's index over the NICs' pacer rates", func(p *PhaseSummary) any { return p.JainPacer }, ""},
	{"min_max", unitNone, "lowest goodput / highest", func(p *PhaseSummary) any { return p.MinMax }, ""},
	{"utilisation", unitNone, "wire rate / link rate", func(p *PhaseSummary) any { return p.Utilisation }, ""},
	{"goodput_utilisation", unitNone, "goodput / link rate", func(p *PhaseSummary) any { return p.GoodputUtilisation }, ""},
	{"ce_share", unitNone, "CE-marked data packets / data packets", func(p *PhaseSummary) any { return p.CEShare }, ""},
	{"cnp_rate", unitHz, "CNPs per second", func(p *PhaseSummary) any { return p.CNPRateHz }, ""},
	{"hw_cnp_rate", unitHz, "what that stands for on hardware", func(p *PhaseSummary) any { return p.HWCNPRateHz }, ""},
	{"packets", unitPackets, "data packets, whole phase", func(p *PhaseSummary) any { return p.Packets }, ""},
	{"ce_packets", unitPackets, "CE-marked ones, whole phase", func(p *PhaseSummary) any { return p.CEPackets }, ""},
	{"cnps", unitPackets, "CNPs, whole phase", func(p *PhaseSummary) any { return p.CNPs }, ""},
	{"retransmitted_packets", unitPackets, "retransmitted, whole phase", func(p *PhaseSummary) any { return p.RetransmittedPackets }, ""},
}

var phaseFlowMeasures = []measure[PhaseFlow]{
	{"goodput", unitBps, "of the flow in the trimmed window", func(f *PhaseFlow) any { return f.GoodputBps }, ""},
	{"hw_goodput", unitBps, "what that stands for on hardware", func(f *PhaseFlow) any { return f.HWGoodputBps }, ""},
	{"wire_rate", unitBps, "whole frames of its data packets", func(f *PhaseFlow) any { return f.WireBps }, ""},
	{"utilisation", unitNone, "wire rate / link rate", func(f *PhaseFlow) any { return f.Utilisation }, ""},
	{"ce_share", unitNone, "CE-marked data packets / data packets", func(f *PhaseFlow) any { return f.CEShare }, ""},
	{"cnp_rate", unitHz, "CNPs per second", func(f *PhaseFlow) any { return f.CNPRateHz }, ""},
	{"packets", unitPackets, "data packets, whole phase", func(f *PhaseFlow) any { return f.Packets }, ""},
	{"ce_packets", unitPackets, "CE-marked ones, whole phase", func(f *PhaseFlow) any { return f.CEPackets }, ""},
	{"cnps", unitPackets, "CNPs, whole phase", func(f *PhaseFlow) any { return f.CNPs }, ""},
	{"retransmitted_packets", unitPackets, "retransmitted, whole phase", func(f *PhaseFlow) any { return f.RetransmittedPackets }, ""},
}

var checkMeasures = []measure[Check]{
	{"pass", unitNone, "1: passed, 0: failed; a skipped check has no row", func(c *Check) any {
		if c.Verdict == Skip {
			return nil
		}
		return c.Verdict == Pass
	}, ""},
	{"rows", unitNone, "findings, those left out of the document included", func(c *Check) any { return int64(len(c.Rows)) + c.More }, ""},
}
