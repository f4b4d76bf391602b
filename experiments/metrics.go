package experiments

import (
	"fmt"
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

// phaseFlow sums over the queue pairs of one flow.
func (m *documentMetrics) phaseFlow(p *analysis.PhaseSummary, metric string, q Query) (float64, error) {
	sum, packets, ce, found := 0.0, 0.0, 0.0, false
	for _, f := range p.Flows {
		if !contains(m.flowIDs[q.Flow], f.Flow) {
			continue
		}
		found = true
		var v float64
		var err error
		switch metric {
		case "goodput":
			v = f.GoodputBps
		case "hw_goodput":
			v = f.HWGoodputBps
		case "utilisation":
			v, err = measured(metric, q, f.Utilisation)
		case "cnps":
			v, err = measured(metric, q, asFloat(f.CNPs))
		case "cnp_rate":
			v, err = measured(metric, q, f.CNPRateHz)
		case "ce_packets":
			v = float64(f.CEPackets)
		case "ce_share":
			packets, ce = packets+float64(f.Packets), ce+float64(f.CEPackets)
		case "retransmissions":
			v = float64(f.RetransmittedPackets)
		default:
			return 0, &NotMeasured{metric + q.String(), "is not known per flow"}
		}
		if err != nil {
			return 0, err
		}
		sum += v
	}
	switch {
	case !found:
		return 0, &NotMeasured{metric + q.String(), "the flow was not seen in this phase"}
	case metric == "ce_share" && packets > 0:
		return ce / packets, nil
	}
	return sum, nil
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
	}
	return 0, &NotMeasured{metric + "()", "is known per phase only: give phase=\"...\""}
}

func (m *documentMetrics) wholeFlow(metric string, q Query) (float64, error) {
	sum, found := 0.0, false
	for i := range m.doc.Flows {
		f := &m.doc.Flows[i]
		if !contains(m.flowIDs[q.Flow], f.ID) {
			continue
		}
		found = true
		var v float64
		var err error
		switch metric {
		case "goodput":
			v, err = measured(metric, q, f.GoodputBps)
		case "hw_goodput":
			v, err = measured(metric, q, f.HWGoodputBps)
		case "ce_packets":
			v = float64(f.CEPackets)
		case "cnps":
			v, err = measured(metric, q, asFloat(f.CNPs))
		case "cnp_rate":
			v, err = measured(metric, q, f.CNPRateHz)
		case "retransmissions":
			v = float64(f.RetransmittedPackets)
		case "ce_share":
			if f.Packets > 0 {
				v = float64(f.CEPackets) / float64(f.Packets)
			}
		default:
			return 0, &NotMeasured{metric + q.String(), "is not known per flow"}
		}
		if err != nil {
			return 0, err
		}
		sum += v
	}
	if !found {
		return 0, &NotMeasured{metric + q.String(), "the flow was not seen"}
	}
	return sum, nil
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

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}
