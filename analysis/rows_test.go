package analysis

import (
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fill gives every field of v a value of its own: numbers count up from next, pointers are set, lists and maps have two
// entries. paths remembers which field has which number.
func fill(v reflect.Value, path string, next *int64, paths map[int64]string) {
	number := func() int64 {
		*next += 7 // so that differences and counts of neighbours are not taken for another field's number
		paths[*next] = path
		return *next
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), path+"."+v.Type().Field(i).Name, next, paths)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path, next, paths)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), path, next, paths)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, k := range []string{"one", "two"} {
			e := reflect.New(v.Type().Elem()).Elem()
			fill(e, path, next, paths)
			v.SetMapIndex(reflect.ValueOf(k), e)
		}
	case reflect.Int, reflect.Int64:
		v.SetInt(number())
	case reflect.Uint16, reflect.Uint32:
		v.SetUint(uint64(number()))
	case reflect.Float64:
		v.SetFloat(float64(number()))
	case reflect.String:
		v.SetString(fmt.Sprintf("%s-%d", strings.ToLower(path[strings.LastIndexByte(path, '.')+1:]), *next))
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic("a document has no " + v.Kind().String() + " at " + path)
	}
}

// filledDocument has a number in every field, each another.
func filledDocument() (*Document, map[int64]string) {
	d := &Document{}
	next, paths := int64(1000), map[int64]string{}
	fill(reflect.ValueOf(d).Elem(), "", &next, paths)
	return d, paths
}

// notInRows are the numbers that have no row, each with its reason.
var notInRows = map[string]string{
	".Files.Clock.Samples":       "how the clock was compared: it is about the times of the others, and in the document and its notes",
	".Files.Clock.FirstOffsetNS": "likewise; it was taken off the times already",
	".Files.Clock.LastOffsetNS":  "likewise",
	".Files.Clock.ErrorNS":       "likewise: it bounds the error of times, and is none of the traffic's numbers",
	".Files.Clock.PTP.OffsetNS":  "likewise: of ptp4l, when the run began",
	".Quality.MergeErrorNS":      "likewise",
	".Flows.Incarnation":         "names the flow: it is in its id",
	".Flows.SrcPort":             "names the flow",
	".Flows.DstQP":               "names the flow: it is in its id",
	".Flows.SrcQP":               "names the flow",
	".Directions.DstQP":          "names the direction: it is in its id",
	".Path.Flows.DstQP":          "names the direction: it is in its id",
	".Flows.LastNS":              "as duration after first_ns: a float has too few digits for times since the epoch",
	".Files.LastNS":              "as file.duration after first_ns",
	".PFC.LastNS":                "as pfc.duration after first_ns",
	".Aggregate.Common.EndNS":    "as common.duration after start_ns",
	".Aggregate.PerPhase.EndNS":  "as phase duration after start_ns",
	".Connections.DisconnectNS":  "as connection.lifetime after request_ns",
	".Checks.Rows.TimeNS":        "a finding is text; check.rows counts them",
	".Checks.More":               "in check.rows, with the rows that are there",
	".RDCC.UDPPort":              "what was asked for",
	".RDCC.Associations.LastNS":  "as duration after first_ns",
	".RDCC.Reports.LastNS":       "as duration after first_ns",
	".Series.Flows.FirstBin":     "in the time of the series' rows",
	".HandlerLogs.Calls":         "about the log: series.acks_per_call and the NIC's counters tell of the calls",
	".HandlerLogs.Logged":        "about the log",
	".HandlerLogs.CutNS":         "about the log",
}

// TestRows_everyNumberHasARow: a document with another number in each field gives rows with all of them, as value, time or name.
func TestRows_everyNumberHasARow(t *testing.T) {
	d, paths := filledDocument()
	seen := map[int64]bool{}
	d.Rows("", func(r Row) bool {
		seen[int64(r.Value)] = true
		if r.TimeNS != nil {
			seen[*r.TimeNS] = true
		}
		for _, word := range strings.FieldsFunc(r.Flow, func(c rune) bool { return c < '0' || c > '9' }) {
			if n, err := strconv.ParseInt(word, 10, 64); err == nil && r.Flow != "" && (word == r.Flow || strings.HasSuffix(r.Flow, "/"+word)) {
				seen[n] = true
			}
		}
		return true
	})
	missing := map[string]bool{}
	for n, path := range paths {
		if !seen[n] && notInRows[path] == "" {
			missing[path] = true
		}
	}
	for path := range missing {
		t.Errorf("%s has no row: add a measure for it, or a reason to notInRows", path)
	}
	for path := range notInRows {
		found := false
		for _, p := range paths {
			found = found || p == path
		}
		if !found {
			t.Errorf("notInRows: %s: no such number in a document", path)
		}
	}
}

// family takes the statistic off the name of one of a distribution's metrics, and the names of things out of it.
func metricFamily(name string) string {
	for _, p := range [][2]string{{"opcode.", "OPCODE"}, {"direction.opcode.", "OPCODE"}, {"rdcc.type.", "TYPE"}, {"rdcc_association.type.", "TYPE"}} {
		if strings.HasPrefix(name, p[0]) {
			return p[0] + p[1]
		}
	}
	if strings.HasPrefix(name, "phase.") {
		return "phase.NAME." + name[strings.LastIndexByte(name, '.')+1:]
	}
	if strings.HasPrefix(name, "convergence.") {
		return "convergence.EVENT." + name[strings.LastIndexByte(name, '.')+1:]
	}
	return name
}

type metricDoc struct{ name, about, unit, meaning string }

// describe lists measures as the documentation does: the statistics of one distribution in one line.
func describe[T any](about, prefix string, measures []measure[T]) (out []metricDoc) {
	for _, m := range measures {
		d := metricDoc{prefix + m.name, about, m.unit, m.meaning}
		if m.family != "" {
			d.name = prefix + m.family
			if n := len(out); n > 0 && out[n-1].name == d.name {
				out[n-1].unit = m.unit // that of the values, not of their number
				continue
			}
		}
		out = append(out, d)
	}
	return out
}

// metricDocs are all metrics. The few that Rows makes without a table of measures are written here.
func metricDocs() (all []metricDoc) {
	add := func(list []metricDoc) { all = append(all, list...) }
	add(describe("", "", documentMeasures))
	add([]metricDoc{{"opcode.OPCODE", "", unitPackets, "packets by opcode"}})
	add(describe("file", "file.", fileMeasures))
	add(describe("file#interface", "interface.", interfaceMeasures))
	add(describe("direction", "direction.", directionMeasures))
	add([]metricDoc{{"direction.opcode.OPCODE", "direction", unitPackets, "packets by opcode"}})
	add([]metricDoc{{"duration", "flow", unitNS, "from its first data packet, the time, to its last"}})
	add(describe("flow", "", flowMeasures))
	add([]metricDoc{{"dscp", "flow", unitNone, "each DSCP that its data packets had"}, {"pcp", "flow", unitNone, "each VLAN priority"}, {"vlan", "flow", unitNone, "each VLAN"}})
	add(describe("flow", "recovery_event.", recoveryMeasures))
	add(describe("", "common.", commonMeasures))
	add(describe("flow", "convergence.EVENT.", convergenceMeasures))
	add(describe("", "phase.NAME.", phaseMeasures))
	add(describe("flow", "phase.NAME.", phaseFlowMeasures))
	add(describe("scope", "cnp_scope.", scopeMeasures))
	add(describe("notifier>address", "cnp_pair.", cnpCountMeasures))
	add(describe("notifier", "cnp_port.", cnpCountMeasures))
	add(describe("receiver", "receiver.", receiverMeasures))
	add(describe("MAC address/priority", "pfc.", pauseMeasures))
	add(describe("src>dst", "connection.", connectionMeasures))
	add(describe("direction, or all", "path.data.", pathMeasures))
	add(describe("direction, or all", "path.control.", pathMeasures))
	add(describe("", "rdcc.", rdccMeasures))
	add([]metricDoc{{"rdcc.type.TYPE", "", unitPackets, "RDCC datagrams by type"}})
	add(describe("sender>receiver#id", "rdcc_association.", rdccAssociationMeasures))
	add([]metricDoc{
		{"rdcc_association.type.TYPE", "sender>receiver#id", unitPackets, "its datagrams by type"},
		{"rdcc_association.epoch", "sender>receiver#id", unitNone, "each epoch that its receiver had"},
	})
	add(describe("reporter/told/flow", "rdcc_report.", rdccReportMeasures))
	add(describe("check", "check.", checkMeasures))
	add([]metricDoc{
		{"distribution.rtt", "value in ns", unitSamples, "how often the round-trip time of the flow column was seen"},
		{"distribution.message", "value in ns", unitSamples, "the same of completion times"},
		{"distribution.cnp_gap", "value in ns", unitSamples, "the same of gaps between CNPs of a flow"},
		{"series.bin", "", unitNS, "width of a bin; the start of the first is the time"},
		{"series.bins", "", unitNone, "bins of the longest series"},
		{"series.jain", "", unitNone, "Jain's index over the flows that are active in the bin"},
		{"series.goodput", "flow", unitBps, "unique payload in the bin"},
		{"series.sent", "flow", unitBps, "whole frames of data packets in the bin, retransmissions included"},
		{"series.packets", "flow", unitPackets, "data packets in the bin"},
		{"series.ce", "flow", unitPackets, "CE-marked ones"},
		{"series.cnps", "flow", unitPackets, "CNPs"},
		{"series.retransmits", "flow", unitPackets, "retransmitted ones, when recognised"},
		{"series.pacer_rate", "flow", unitBps, "what the sender's handler paces with in the bin, as built; with a run's diagnostic log"},
		{"series.cwnd", "flow", unitBytes, "window of the sender's handler in the bin"},
		{"series.acks_per_call", "flow", unitPackets, "acknowledged packets that a call of the handler was told of, mean of the bin"},
	})
	return all
}

// TestRows_documented: docs/analysis.md lists every metric with its unit, and none that is not there.
// PCMLAB_UPDATE_DOCS=1 writes the table anew.
func TestRows_documented(t *testing.T) {
	var b strings.Builder
	b.WriteString("| metric | flow column | unit | meaning |\n|---|---|---|---|\n")
	unit := map[string]string{}
	for _, m := range metricDocs() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.about, m.unit, m.meaning)
		unit[m.name] = m.unit
	}
	const file, from, to = "../docs/analysis.md", "<!-- metrics -->\n", "<!-- end of metrics -->\n"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(data), from)
	table, tail, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		t.Fatalf("%s: no lines %q and %q", file, from, to)
	}
	if os.Getenv("PCMLAB_UPDATE_DOCS") != "" {
		if err := os.WriteFile(file, []byte(head+from+b.String()+to+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(b.String(), table); diff != "" {
		t.Errorf("%s: the table of metrics is not that of the code (-code +docs); PCMLAB_UPDATE_DOCS=1 writes it:\n%s", file, diff)
	}

	d, _ := filledDocument()
	emitted := map[string]bool{}
	stat := strings.NewReplacer("_samples", "_STAT", "_count", "_STAT", "_min", "_STAT", "_p50", "_STAT", "_p90", "_STAT", "_p99", "_STAT", "_p999", "_STAT", "_max", "_STAT")
	d.Rows("", func(r Row) bool {
		name := metricFamily(r.Metric)
		want, ok := unit[name]
		if !ok {
			name = strings.TrimSuffix(stat.Replace(name), "9") // _p999 begins with _p99
			want, ok = unit[name]
			if r.Unit == unitSamples || r.Unit == unitMessages {
				want = r.Unit // the number of samples has a unit of its own
			}
		}
		emitted[name] = true
		if !ok || want != r.Unit {
			t.Errorf("metric %q has the unit %q, the table says %q", r.Metric, r.Unit, want)
		}
		return !t.Failed()
	})
	for name := range unit {
		if !emitted[name] {
			t.Errorf("metric %q is in the table, but a filled document has no row of it", name)
		}
	}
}
