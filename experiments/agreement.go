package experiments

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/inventory"
)

// rateTolerance is how far two measurements of the same rate may lie apart.
const rateTolerance = 0.02

// toolTxDepth is how many messages the tool has under way when nobody says (perftest_parameters.h, DEF_TX_BW).
const toolTxDepth = 128

// minToolWindow is the shortest window of the tool that is compared: both ends are known to some milliseconds only.
const minToolWindow = 2 * time.Second

// agree holds the ways of counting against each other: the switch's and the NICs' counters, the captures, and the
// tool's own numbers. Counts must agree exactly, rates within rateTolerance. What a lab cannot tell is skipped.
func (r *Runner) agree(doc *analysis.Document) {
	r.agreeSwitch(doc)
	r.agreeLoss(doc)
	r.agreeNICs(doc)
	for i := range r.result.Flows {
		r.agreeRate(doc, &r.result.Flows[i])
	}
}

func (r *Runner) equal(name string, parts ...any) { // name, then pairs of what and count (int64; nil: not known)
	c := CheckResult{Name: name, Verdict: Pass}
	var first *int64
	for i := 0; i+1 < len(parts); i += 2 {
		what, v := parts[i].(string), parts[i+1].(*int64)
		if v == nil {
			c.Verdict, c.Reason = Skip, what+" is not known"
			break
		}
		c.Values = append(c.Values, MetricValue{Call: what, Value: float64(*v)})
		if first == nil {
			first = v
		} else if *first != *v && c.Verdict == Pass {
			c.Verdict = Fail
			c.Reason = fmt.Sprintf("%d and %d differ", *first, *v)
		}
	}
	r.result.Agreement = append(r.result.Agreement, c)
}

// noRoom skips a comparison whose last count is short of the others by no more than what found no room in the NICs that counted it: a software NIC
// on a machine that had no time for it. What those packets were nobody knows.
func noRoom(c *CheckResult, lost *int64) {
	n := len(c.Values)
	if c.Verdict != Fail || lost == nil || n < 2 {
		return
	}
	short := c.Values[0].Value - c.Values[n-1].Value
	for _, v := range c.Values[:n-1] {
		if v.Value != c.Values[0].Value {
			return
		}
	}
	if short > 0 && short <= float64(*lost) {
		c.Verdict, c.Reason = Skip, fmt.Sprintf("%d packets found no room in the NICs, and may be the %.0f that are missing", *lost, short)
	}
}

// counter is the growth of one counter, or nil when it was not read.
func (r *Runner) counter(owner, name string) *int64 {
	if v, ok := r.result.growth[owner][name]; ok {
		return &v
	}
	return nil
}

// sum adds counts; one that is not known makes the sum not known.
func sum(values ...*int64) *int64 {
	total := int64(0)
	for _, v := range values {
		if v == nil {
			return nil
		}
		total += *v
	}
	return &total
}

// agreeSwitch compares the judged capture with the counters of the mirrored ports.
func (r *Runner) agreeSwitch(doc *analysis.Document) {
	tap := r.judgedTap()
	if tap == nil || tap.Switch == "" {
		return
	}
	var tx, rx, ce []*int64
	for _, port := range tap.Ports {
		owner := "switch." + tap.Switch + "." + port
		tx = append(tx, r.counter(owner, "tx_roce_packets"))
		rx = append(rx, r.counter(owner, "rx_roce_packets"))
		left := r.counter(owner, "tx_ce_packets")
		if left == nil {
			left = r.counter(owner, "ce_marked_packets") // the same where packets come unmarked
		}
		ce = append(ce, left)
	}
	packets := sum(tx...)
	if tap.Direction == inventory.Both {
		packets = sum(append(tx, rx...)...)
	} else if tap.Direction == inventory.Ingress {
		packets = sum(rx...)
	}
	r.equal("packets: switch = capture", "switch", packets, "capture", &doc.Totals.RoCEPackets)
	if tap.Direction != inventory.Ingress {
		r.equal("CE marks: switch = capture", "switch", sum(ce...), "capture", &doc.Totals.CEPackets)
	}
	if doc.Quality.Drops != nil {
		none := int64(0)
		r.equal("the capture dropped nothing", "wanted", &none, "dropped", doc.Quality.Drops)
	}
}

// agreeLoss compares packets lost between the taps with the drops of the switch.
func (r *Runner) agreeLoss(doc *analysis.Document) {
	tap := r.judgedTap()
	if doc.Path == nil || tap == nil || tap.Switch == "" {
		return
	}
	var drops []*int64
	for _, port := range tap.Ports {
		drops = append(drops, r.counter("switch."+tap.Switch+"."+port, "dropped_roce_packets"))
	}
	lost := doc.Path.Data.LostPackets
	if doc.Path.Control.LostPackets != nil {
		lost = sum(lost, doc.Path.Control.LostPackets)
	}
	r.equal("packets lost: switch = taps", "switch", sum(drops...), "taps", lost)
}

// agreeNICs compares the NICs' own counters with what the taps saw of each flow.
func (r *Runner) agreeNICs(doc *analysis.Document) {
	senders := map[string]*inventory.NIC{}
	receivers := map[string]*inventory.NIC{}
	for _, f := range r.plan.Flows {
		senders[f.From], receivers[f.To] = f.fromNIC, f.toNIC
	}
	lost := r.counterSum("dropped_roce_packets")
	lossless := lost != nil && *lost == 0
	var cnps, handled, retransmitted []*int64
	for _, host := range sortedKeys(receivers) {
		cnps = append(cnps, r.counter("nic."+host, "np_cnp_sent"))
		var unique int64
		addr := receivers[host].IP.Addr().String()
		for _, f := range doc.Flows {
			if f.Dst == addr {
				unique += f.UniqueBytes
			}
		}
		// Go-back-N throws away what arrives behind a gap; the capture has seen it, so only a run without loss compares.
		received, what := r.counter("nic."+host, "rx_payload_bytes"), "NIC (in a run without loss)"
		if !lossless {
			received = nil
		}
		if f := r.unseen(host); f != "" {
			received, what = nil, "what the judged capture does not see of "+f
		}
		r.equal("unique payload into "+host+": NIC = capture", what, received, "capture", &unique)
	}
	for _, host := range sortedKeys(senders) {
		handled = append(handled, r.counter("nic."+host, "rp_cnp_handled"), r.counter("nic."+host, "rp_cnp_ignored"))
		retransmitted = append(retransmitted, r.counter("nic."+host, "retransmitted_packets"))
		if sent := upstream(doc, senders[host].IP.Addr().String()); sent != nil {
			r.equal("data packets from "+host+": NIC = tap", "NIC", r.counter("nic."+host, "tx_data_packets"), "tap", sent)
		}
	}
	r.equal("CNPs: receivers = capture = senders", "sent", sum(cnps...), "capture", &doc.Totals.CNPPackets, "handled", sum(handled...))
	var full []*int64
	for _, host := range sortedKeys(senders) {
		full = append(full, r.counter("nic."+host, "rx_overflow_packets"))
	}
	noRoom(&r.result.Agreement[len(r.result.Agreement)-1], sum(full...))
	if lossless && r.unseen("") == "" {
		r.equal("retransmissions: NICs = capture", "NICs", sum(retransmitted...), "capture", &doc.Totals.RetransmittedPackets)
	}
}

// unseen is a flow to a host, or to any, that no judged capture sees, by where the lab file says that its tap is.
func (r *Runner) unseen(to string) string {
	for _, f := range r.plan.Flows {
		seen := slices.ContainsFunc(r.plan.Captures, func(c PlannedCapture) bool { return c.Judge && passes(c.tap, f.From, f.To) })
		if !seen && (to == "" || f.To == to) {
			return f.Name
		}
	}
	return ""
}

// passes says whether what one host sends to another passes a tap.
func passes(t *inventory.Tap, from, to string) bool {
	if t.Switch == "" {
		return t.Host == from || t.Host == to
	}
	return t.Direction != inventory.Egress && slices.Contains(t.Ports, from) || t.Direction != inventory.Ingress && slices.Contains(t.Ports, to)
}

// passesJudge says whether what a host sends, data or acknowledgements, passes a judged tap.
func (r *Runner) passesJudge(host string) bool {
	for _, f := range r.plan.Flows {
		to := f.To
		if f.To == host {
			to = f.From
		} else if f.From != host {
			continue
		}
		for _, c := range r.plan.Captures {
			if c.Judge && passes(c.tap, host, to) {
				return true
			}
		}
	}
	return false
}

func (r *Runner) counterSum(name string) *int64 {
	var all []*int64
	for _, s := range r.Lab.Switches {
		all = append(all, r.counter("switch."+s.Name, name))
	}
	return sum(all...)
}

func upstream(doc *analysis.Document, addr string) *int64 {
	if doc.Path == nil {
		return nil
	}
	n := int64(0)
	for _, f := range doc.Path.Flows {
		if f.Src == addr {
			n += f.Data.UpstreamPackets
		}
	}
	return &n
}

// agreeRate compares the tool's own rate with the capture's, over the tool's own window: from its first data packet
// plus the margin that it leaves out, for as long as it measured. What crossed the tap and was sent again, because the
// receiver had dropped it behind a gap, counts for the tool only when it arrived in order: that much later.
func (r *Runner) agreeRate(doc *analysis.Document, f *FlowResult) {
	c := CheckResult{Name: "rate of " + f.Name + ": tool = capture"}
	defer func() { r.result.Agreement = append(r.result.Agreement, c) }()
	skip := func(format string, a ...any) { c.Verdict, c.Reason = Skip, fmt.Sprintf(format, a...) }
	if f.ToolBps == nil || f.WindowNS == nil {
		skip("the tool gave no number")
		return
	}
	if len(f.AnalysisID) == 0 {
		skip("the flow was not found in the capture")
		return
	}
	if window := time.Duration(*f.WindowNS); window < minToolWindow {
		skip("the tool's window of %v is shorter than %v: the two ends weigh too much", window, minToolWindow)
		return
	}
	total, again, measured := 0.0, 0.0, time.Duration(0)
	for _, id := range f.AnalysisID {
		if i := slices.IndexFunc(doc.Flows, func(f analysis.Flow) bool { return f.ID == id }); i >= 0 {
			again += float64(8*doc.Flows[i].RetransmittedBytes) / time.Duration(*f.WindowNS).Seconds()
		}
		bps, over := windowRate(doc, id, f.margin, time.Duration(*f.WindowNS))
		total += bps
		measured = over
	}
	if measured < time.Duration(*f.WindowNS)/2 {
		skip("the capture holds only %v of the tool's window of %v", measured, time.Duration(*f.WindowNS))
		return
	}
	c.Values = []MetricValue{{Call: "tool", Value: *f.ToolBps}, {Call: "capture", Value: total}}
	whole := float64(8*r.edgeBytes(f.Name)) / time.Duration(*f.WindowNS).Seconds()
	rounded := r.toolDigit(f.Name) / 2
	if off, allowed := math.Abs(total-*f.ToolBps) / *f.ToolBps, rateTolerance + (again+whole+rounded) / *f.ToolBps; off > allowed {
		c.Verdict, c.Reason = Fail, fmt.Sprintf("%.1f %% apart, allowed %.1f %%", off*100, allowed*100)
		return
	}
	c.Verdict = Pass
}

// toolDigit is what the last digit that the tool prints stands for, in bit/s: 0.000001 Gbit/s, or 0.01 MiB/s. Small messages, one at a
// time, are slow enough for it to matter.
func (r *Runner) toolDigit(flow string) float64 {
	for _, f := range r.plan.Flows {
		if f.Name == flow && f.params.MebiBytes {
			return 8 * (1 << 20) / 100.
		}
	}
	return 1e3
}

// edgeBytes is by how much the ends of the tool's window may differ from the capture's. The tool counts whole messages when they are complete: one of
// each queue pair may be in at one end, or out at the other. A flow that the tool holds back has few messages under way or, while the
// receiver is slow to acknowledge, as many as its depth; one that it does not hold back has that many at either end.
func (r *Runner) edgeBytes(flow string) int {
	for _, f := range r.plan.Flows {
		if f.Name == flow {
			edge := f.params.MessageSize() * max(f.params.QPs, 1)
			if f.params.Bidirectional {
				edge *= 2
			}
			if f.params.RateLimitGbps > 0 {
				edge *= cmp.Or(f.params.TxDepth, toolTxDepth)
			}
			return edge
		}
	}
	return 0
}

// windowRate is the mean goodput of a flow over [first packet + margin, + window), from the series.
func windowRate(doc *analysis.Document, id string, margin, window time.Duration) (bps float64, over time.Duration) {
	i := slices.IndexFunc(doc.Flows, func(f analysis.Flow) bool { return f.ID == id })
	j := slices.IndexFunc(doc.Series.Flows, func(s analysis.FlowSeries) bool { return s.ID == id })
	if i < 0 || j < 0 || doc.Series.BinNS == 0 {
		return 0, 0
	}
	s := doc.Series.Flows[j]
	from := doc.Flows[i].FirstNS + int64(margin)
	to := from + int64(window)
	bits, covered := 0.0, int64(0)
	for k, v := range s.GoodputBps {
		begin := doc.Series.StartNS + int64(s.FirstBin+k)*doc.Series.BinNS
		// A bin that the window cuts counts with its part: leaving it out would favour one end of a rate that changes.
		if part := min(begin+doc.Series.BinNS, to) - max(begin, from); part > 0 {
			bits += v * float64(part)
			covered += part
		}
	}
	if covered == 0 {
		return 0, 0
	}
	return bits / float64(covered), time.Duration(covered)
}

// movedByCounters is how many RoCE packets must have passed the judged tap, by the NICs' counters less what the
// switches dropped; it tells a quiet link from a blind tap.
func (r *Runner) movedByCounters() (int64, string) {
	total, known := int64(0), false
	for owner, set := range r.result.growth {
		host, isNIC := strings.CutPrefix(owner, "nic.")
		if v, ok := set["tx_roce_packets"]; ok && isNIC && r.passesJudge(host) {
			total += v
			known = true
		}
	}
	if !known {
		return 0, ""
	}
	if dropped := r.counterSum("dropped_roce_packets"); dropped != nil {
		total -= *dropped
	}
	return total, "tx_roce_packets of the NICs"
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
