package experiments

import (
	"math"

	"github.com/pcmlab/pcmlab/experiments/stats"
)

// Better says which way a metric improves.
type Better string

// For some metrics neither way is better: a change of them is a change.
const (
	HigherIsBetter Better = "higher"
	LowerIsBetter  Better = "lower"
	NeitherBetter  Better = "neither"
)

// scope says of what a metric is known.
type scope uint8

const (
	ofRun scope = 1 << iota
	ofPhase
	ofFlow
	ofPhaseFlow
	ofAll = ofRun | ofPhase | ofFlow | ofPhaseFlow
)

// scope of what is asked.
func (q Query) scope() scope {
	switch {
	case q.Phase != "" && q.Flow != "":
		return ofPhaseFlow
	case q.Flow != "":
		return ofFlow
	case q.Phase != "":
		return ofPhase
	}
	return ofRun
}

// MetricInfo is one metric of the expectation language, and of comparisons.
type MetricInfo struct {
	Name, Gives string
	Unit        string // of JSON values; "" for ratios
	Better      Better
	Most        float64 // the greatest value that there can be; 0 is no limit. The least is 0 for all
	Derived     bool    // follows from another metric: comparisons leave it out
	of          scope
}

// MetricCatalogue lists the metrics.
var MetricCatalogue = []MetricInfo{
	{Name: "jain", Gives: "Jain's index over the phase's mean goodputs", Most: 1, Better: HigherIsBetter, of: ofRun | ofPhase},
	{Name: "jain_mean_of_bins", Gives: "mean of Jain's indices per bin, trimmed as the paper does", Most: 1, Better: HigherIsBetter, of: ofPhase},
	{Name: "goodput", Gives: "unique payload, bit/s", Unit: "bit/s", Better: HigherIsBetter, of: ofAll},
	{Name: "hw_goodput", Gives: "goodput times the time scale, bit/s", Unit: "bit/s", Better: HigherIsBetter, Derived: true, of: ofAll},
	{Name: "utilisation", Gives: "wire rate over the rate of the bottleneck link", Better: HigherIsBetter, of: ofRun | ofPhase | ofPhaseFlow},
	{Name: "ce_share", Gives: "CE-marked share of the data packets", Most: 1, Better: NeitherBetter, of: ofAll},
	{Name: "ce_packets", Gives: "CE-marked packets", Unit: "packets", Better: NeitherBetter, of: ofAll},
	{Name: "cnps", Gives: "CNPs on the wire", Unit: "packets", Better: NeitherBetter, of: ofAll},
	{Name: "cnp_rate", Gives: "CNPs per second", Unit: "1/s", Better: NeitherBetter, of: ofPhase | ofFlow | ofPhaseFlow},
	{Name: "retransmissions", Gives: "retransmitted packets", Unit: "packets", Better: LowerIsBetter, of: ofAll},
	{Name: "lost", Gives: "packets lost between the taps before and behind the queue", Unit: "packets", Better: LowerIsBetter, of: ofRun},
	{Name: "naks", Gives: "NAKs on the wire", Unit: "packets", Better: LowerIsBetter, of: ofRun},
	{Name: "flows", Gives: "flows that were active", Unit: "flows", Better: NeitherBetter, of: ofRun | ofPhase},
	{Name: "rtt_p50", Gives: "median of data-to-ACK times, ns; of several flows the highest", Unit: "ns", Better: LowerIsBetter, of: ofRun | ofFlow},
	{Name: "rtt_p99", Gives: "99th percentile of data-to-ACK times, ns; of several flows the highest", Unit: "ns", Better: LowerIsBetter, of: ofRun | ofFlow},
	{Name: "message_p50", Gives: "median of message completion times, ns; of several flows the highest", Unit: "ns", Better: LowerIsBetter, of: ofRun | ofFlow},
	{Name: "message_p99", Gives: "99th percentile of message completion times, ns; of several flows the highest", Unit: "ns", Better: LowerIsBetter, of: ofRun | ofFlow},
}

// Describe gives the figures of a metric's values. Intervals end where no value can be.
func Describe(metric string, values []float64, seed uint64) stats.Description {
	most := math.Inf(1)
	if m, ok := Metric(metric); ok && m.Most > 0 {
		most = m.Most
	}
	return stats.Describe(values, seed).Within(0, most)
}

// Metric finds a metric by its name.
func Metric(name string) (MetricInfo, bool) {
	for _, m := range MetricCatalogue {
		if m.Name == name {
			return m, true
		}
	}
	return MetricInfo{}, false
}
