package experiments

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/pcmlab/pcmlab/analysis"
)

// documentMetrics answers expectations from an analysis and the counters of a run.
type documentMetrics struct {
	doc      *analysis.Document          // nil: nothing was captured
	flowIDs  map[string][]string         // playbook flow -> analysis flow ids (one per QP)
	counters map[string]map[string]int64 // "nic.h1" -> counter -> growth over the run
	why      string                      // why doc is nil
}

// FlowNames are the flows that flow="*" stands for.
func (m *documentMetrics) FlowNames() []string { return slices.Sorted(maps.Keys(m.flowIDs)) }

// Value implements Metrics. A phase of "*" gives the lowest value of all phases.
func (m *documentMetrics) Value(metric string, q Query) (float64, error) {
	missing := func(format string, a ...any) (float64, error) {
		return 0, &NotMeasured{metric + q.String(), fmt.Sprintf(format, a...)}
	}
	if m.doc == nil {
		return missing("%s", m.why)
	}
	if q.Phase == "*" {
		lowest, found := 0.0, false
		for _, p := range m.doc.Aggregate.PerPhase {
			v, err := m.Value(metric, Query{Phase: p.Name, Flow: q.Flow})
			if err != nil {
				return 0, err
			}
			if !found || v < lowest {
				lowest, found = v, true
			}
		}
		if !found {
			return missing("the run has no phases")
		}
		return lowest, nil
	}
	if metric == "lost" {
		return m.lost(q)
	}
	if q.Phase == "" {
		return m.whole(metric, q)
	}
	for i := range m.doc.Aggregate.PerPhase {
		if p := &m.doc.Aggregate.PerPhase[i]; p.Name == q.Phase {
			if q.Flow != "" {
				return m.phaseFlow(p, metric, q)
			}
			return phaseValue(p, metric, q)
		}
	}
	return missing("phase %q did not take place", q.Phase)
}

func phaseValue(p *analysis.PhaseSummary, metric string, q Query) (float64, error) {
	switch metric {
	case "jain":
		return measured(metric, q, p.Jain)
	case "jain_mean_of_bins":
		return measured(metric, q, p.JainMeanOfBins)
	case "goodput":
		return p.GoodputBps, nil
	case "hw_goodput":
		return p.HWGoodputBps, nil
	case "utilisation":
		return measured(metric, q, p.Utilisation)
	case "ce_share":
		return measured(metric, q, p.CEShare)
	case "ce_packets":
		return float64(p.CEPackets), nil
	case "cnps":
		return measured(metric, q, asFloat(p.CNPs))
	case "cnp_rate":
		return measured(metric, q, p.CNPRateHz)
	case "retransmissions":
		return float64(p.RetransmittedPackets), nil
	case "flows":
		return float64(len(p.Flows)), nil
	}
	return 0, &NotMeasured{metric + q.String(), "is not known per phase"}
}

// flowNumbers are what is known of one queue pair, in a phase or over the whole capture; nil is not known there.
type flowNumbers struct {
	goodput, hwGoodput, utilisation, cnps, cnpRate *float64
	packets, ce, retransmitted                     int64
}

// phaseFlow sums over the queue pairs of one flow in one phase.
func (m *documentMetrics) phaseFlow(p *analysis.PhaseSummary, metric string, q Query) (float64, error) {
	var pairs []flowNumbers
	for _, f := range p.Flows {
		if slices.Contains(m.flowIDs[q.Flow], f.Flow) {
			pairs = append(pairs, flowNumbers{&f.GoodputBps, &f.HWGoodputBps, f.Utilisation, asFloat(f.CNPs), f.CNPRateHz, f.Packets, f.CEPackets, f.RetransmittedPackets})
		}
	}
	return flowValue(pairs, metric, q)
}

// wholeFlow is phaseFlow for the whole capture.
func (m *documentMetrics) wholeFlow(metric string, q Query) (float64, error) {
	var pairs []flowNumbers
	if isTime(metric) {
		var flows []analysis.Flow
		for _, f := range m.doc.Flows {
			if slices.Contains(m.flowIDs[q.Flow], f.ID) {
				flows = append(flows, f)
			}
		}
		return highestTime(flows, metric, q)
	}
	for _, f := range m.doc.Flows {
		if slices.Contains(m.flowIDs[q.Flow], f.ID) {
			pairs = append(pairs, flowNumbers{f.GoodputBps, f.HWGoodputBps, nil, asFloat(f.CNPs), f.CNPRateHz, f.Packets, f.CEPackets, f.RetransmittedPackets})
		}
	}
	return flowValue(pairs, metric, q)
}

func flowValue(pairs []flowNumbers, metric string, q Query) (float64, error) {
	if len(pairs) == 0 {
		return 0, &NotMeasured{metric + q.String(), "the flow was not seen"}
	}
	total, packets, ce := 0.0, int64(0), int64(0)
	for _, n := range pairs {
		packets, ce = packets+n.packets, ce+n.ce
		var v *float64
		switch metric {
		case "goodput":
			v = n.goodput
		case "hw_goodput":
			v = n.hwGoodput
		case "utilisation":
			v = n.utilisation
		case "cnps":
			v = n.cnps
		case "cnp_rate":
			v = n.cnpRate
		case "ce_packets", "ce_share":
			v = asFloat(&n.ce)
		case "retransmissions":
			v = asFloat(&n.retransmitted)
		default:
			return 0, &NotMeasured{metric + q.String(), "is not known per flow"}
		}
		if v == nil {
			return 0, &NotMeasured{metric + q.String(), "the capture does not show it"}
		}
		total += *v
	}
	if metric != "ce_share" {
		return total, nil
	}
	if packets == 0 {
		return 0, &NotMeasured{metric + q.String(), "no data packet was captured"}
	}
	return float64(ce) / float64(packets), nil
}

func (m *documentMetrics) whole(metric string, q Query) (float64, error) {
	a, t := &m.doc.Aggregate, &m.doc.Totals
	if q.Flow != "" {
		return m.wholeFlow(metric, q)
	}
	switch metric {
	case "jain":
		return measured(metric, q, a.Jain)
	case "goodput":
		return measured(metric, q, a.GoodputBps)
	case "hw_goodput":
		return measured(metric, q, a.HWGoodputBps)
	case "utilisation":
		return measured(metric, q, a.Utilisation)
	case "ce_share":
		var packets int64
		for _, f := range m.doc.Flows {
			packets += f.Packets
		}
		if packets == 0 {
			return 0, &NotMeasured{metric + "()", "no data packet was captured"}
		}
		return float64(t.CEDataPackets) / float64(packets), nil
	case "ce_packets":
		return float64(t.CEPackets), nil
	case "cnps":
		return float64(t.CNPPackets), nil
	case "retransmissions":
		return float64(t.RetransmittedPackets), nil
	case "naks":
		return float64(t.NAKPackets), nil
	case "flows":
		return float64(a.ActiveFlows), nil
	case "rtt_p50", "rtt_p99", "message_p50", "message_p99":
		return highestTime(m.doc.Flows, metric, q)
	}
	return 0, &NotMeasured{metric + "()", "is known per phase only: give phase=\"...\""}
}

// times are the metrics that are quantiles of times, which neither add up over flows nor are kept per phase.
var times = map[string]func(*analysis.Flow) *int64{
	"rtt_p50":     func(f *analysis.Flow) *int64 { return f.RTTNS.P50 },
	"rtt_p99":     func(f *analysis.Flow) *int64 { return f.RTTNS.P99 },
	"message_p50": func(f *analysis.Flow) *int64 { return f.MessageNS.P50 },
	"message_p99": func(f *analysis.Flow) *int64 { return f.MessageNS.P99 },
}

func isTime(metric string) bool { return times[metric] != nil }

// highestTime is the highest of the flows' quantiles.
func highestTime(flows []analysis.Flow, metric string, q Query) (float64, error) {
	var highest *float64
	for i := range flows {
		if v := times[metric](&flows[i]); v != nil && (highest == nil || float64(*v) > *highest) {
			highest = asFloat(v)
		}
	}
	return measured(metric, q, highest)
}

func (m *documentMetrics) lost(q Query) (float64, error) {
	if q.Phase != "" || q.Flow != "" {
		return 0, &NotMeasured{"lost" + q.String(), "is known for the whole run only: write lost()"}
	}
	if m.doc.Path == nil {
		return 0, &NotMeasured{"lost()", "no tap before the queue was captured"}
	}
	return measured("lost", q, asFloat(m.doc.Path.Data.LostPackets))
}

// Counter implements Metrics. `switch.sw.dropped_packets` sums over the switch's ports, `switch.sw.r1.dropped_packets`
// is that of the port towards r1.
func (m *documentMetrics) Counter(name string) (float64, error) {
	owner, counter := name, ""
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		owner, counter = name[:i], name[i+1:]
	}
	set, ok := m.counters[owner]
	if !ok {
		var known []string
		for k := range m.counters {
			known = append(known, k)
		}
		sort.Strings(known)
		return 0, &NotMeasured{name, fmt.Sprintf("no counters of %s were read (read: %s)", owner, strings.Join(known, ", "))}
	}
	v, ok := set[counter]
	if !ok {
		return 0, &NotMeasured{name, fmt.Sprintf("%s has no counter %s", owner, counter)}
	}
	return float64(v), nil
}

// String is the argument list of a metric: (phase="two", flow="h1").
func (q Query) String() string {
	var parts []string
	if q.Phase != "" {
		parts = append(parts, fmt.Sprintf("phase=%q", q.Phase))
	}
	if q.Flow != "" {
		parts = append(parts, fmt.Sprintf("flow=%q", q.Flow))
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

func measured(metric string, q Query, v *float64) (float64, error) {
	if v == nil {
		return 0, &NotMeasured{metric + q.String(), "the capture does not show it"}
	}
	return *v, nil
}

func asFloat(v *int64) *float64 {
	if v == nil {
		return nil
	}
	f := float64(*v)
	return &f
}
