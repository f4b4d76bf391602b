package experiments

import (
	"errors"
	"testing"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/inventory/fabric"
)

func ptr[T any](v T) *T { return &v }

func testDocument() *documentMetrics {
	doc := &analysis.Document{
		Totals: analysis.Totals{CNPPackets: 30, CEPackets: 11, CEDataPackets: 10, RetransmittedPackets: 4},
		Flows: []analysis.Flow{
			{ID: "a1", Packets: 60, CEPackets: 6, CNPs: ptr(int64(20)), GoodputBps: ptr(1e6)},
			{ID: "a2", Packets: 40, CEPackets: 4, CNPs: ptr(int64(10)), GoodputBps: ptr(2e6)},
			{ID: "b", Packets: 100, CNPs: nil},
		},
		Aggregate: analysis.Aggregate{PerPhase: []analysis.PhaseSummary{
			{Name: "one", Jain: ptr(1.0), Utilisation: ptr(0.9), GoodputBps: 5, CNPs: ptr(int64(0)), Flows: []analysis.PhaseFlow{{Flow: "a1", GoodputBps: 5, Packets: 10, CEPackets: 1}}},
			{Name: "two", Jain: ptr(0.8), Utilisation: nil, GoodputBps: 7, CNPs: ptr(int64(3)), Flows: []analysis.PhaseFlow{{Flow: "a1", GoodputBps: 3}, {Flow: "a2", GoodputBps: 4}}},
		}},
		Path: &analysis.Path{Data: analysis.PathCount{LostPackets: ptr(int64(14))}},
	}
	return &documentMetrics{doc: doc, flowIDs: map[string][]string{"a": {"a1", "a2"}, "b": {"b"}, "gone": {}},
		counters: map[string]map[string]int64{"nic.h1": {"packet_seq_err": 2}, "switch.sw": {"dropped_packets": 9}, "switch.sw.r1": {"dropped_packets": 5}}}
}

func TestDocumentMetrics(t *testing.T) {
	m := testDocument()
	for _, c := range []struct {
		metric string
		q      Query
		want   float64
		why    string
	}{
		{"jain", Query{Phase: "two"}, 0.8, "of one phase"},
		{"jain", Query{Phase: "*"}, 0.8, "the star is the lowest"},
		{"cnps", Query{}, 30, "of the whole capture"},
		{"cnps", Query{Phase: "one"}, 0, "measured and none is 0"},
		{"goodput", Query{Phase: "two", Flow: "a"}, 7, "queue pairs of a flow add up"},
		{"goodput", Query{Flow: "a"}, 3e6, "over the whole capture too"},
		{"ce_share", Query{Flow: "a"}, 0.1, "marks over packets, not a mean of shares"},
		{"ce_share", Query{}, 0.05, "of all data packets; acknowledgements do not count"},
		{"lost", Query{}, 14, "between the taps"},
	} {
		got, err := m.Value(c.metric, c.q)
		if err != nil || got != c.want {
			t.Errorf("%s%v = %v, %v; want %v (%s)", c.metric, c.q, got, err, c.want, c.why)
		}
	}
	for _, c := range []struct {
		metric string
		q      Query
		why    string
	}{
		{"utilisation", Query{Phase: "two"}, "null in the document"},
		{"utilisation", Query{Phase: "*"}, "one phase without makes the lowest unknown"},
		{"cnps", Query{Flow: "b"}, "the answers were not captured"},
		{"goodput", Query{Phase: "one", Flow: "b"}, "the flow was not there"},
		{"goodput", Query{Flow: "gone"}, "never seen"},
		{"jain", Query{Phase: "one", Flow: "a"}, "an index of one flow means nothing"},
		{"jain", Query{Phase: "three"}, "a phase that did not take place"},
		{"lost", Query{Phase: "one"}, "known for the whole run only"},
	} {
		v, err := m.Value(c.metric, c.q)
		var missing *NotMeasured
		if !errors.As(err, &missing) {
			t.Errorf("%s%v = %v, %v; want not measured (%s)", c.metric, c.q, v, err, c.why)
		}
	}
	blind := &documentMetrics{why: "nothing was captured"}
	if _, err := blind.Value("cnps", Query{}); err == nil {
		t.Error("no capture, and yet a number of CNPs")
	}
}

func TestDocumentMetrics_counters(t *testing.T) {
	m := testDocument()
	for name, want := range map[string]float64{"nic.h1.packet_seq_err": 2, "switch.sw.dropped_packets": 9, "switch.sw.r1.dropped_packets": 5} {
		if got, err := m.Counter(name); err != nil || got != want {
			t.Errorf("%s = %v, %v; want %v", name, got, err, want)
		}
	}
	for _, name := range []string{"nic.h9.packet_seq_err", "nic.h1.no_such_counter", "rdcc.invariant_violations"} {
		if v, err := m.Counter(name); err == nil {
			t.Errorf("%s = %v: a counter that is not there is not 0", name, v)
		}
	}
}

// TestGrowth: what counters moved by, also when a counter appears or a switch has several ports.
func TestGrowth(t *testing.T) {
	before := &counterSet{NICs: map[string]map[string]uint64{"h1": {"a": 5}}, Switches: map[string]*fabric.Counters{"sw": {Ports: []fabric.PortCounters{
		{Name: "h1", TxPackets: 1, DroppedPackets: 1, PeakQueueBytes: 10}, {Name: "r1", TxPackets: 2}}}}}
	after := &counterSet{NICs: map[string]map[string]uint64{"h1": {"a": 7, "new": 3}}, Switches: map[string]*fabric.Counters{"sw": {Ports: []fabric.PortCounters{
		{Name: "h1", TxPackets: 4, DroppedPackets: 1, PeakQueueBytes: 20}, {Name: "r1", TxPackets: 12, PeakQueueBytes: 90}}}}}
	g := growth(before, after)
	if g["nic.h1"]["a"] != 2 || g["switch.sw.h1"]["tx_packets"] != 3 || g["switch.sw"]["tx_packets"] != 13 || g["switch.sw"]["dropped_packets"] != 0 {
		t.Errorf("growth %v", g)
	}
	if _, ok := g["nic.h1"]["new"]; ok {
		t.Error("a counter without a reading before has no growth")
	}
	if g["switch.sw"]["peak_queue_bytes"] != 90 {
		t.Errorf("the peak of a switch is its highest port's, got %d", g["switch.sw"]["peak_queue_bytes"])
	}
	if g := growth(nil, after); len(g) != 0 {
		t.Errorf("without a reading before: %v", g)
	}
}
