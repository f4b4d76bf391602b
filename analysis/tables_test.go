package analysis

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestDocument_tablesAndRows: every row has a cell for each column, no table is empty; the long form names units and ends
// where asked.
func TestDocument_tablesAndRows(t *testing.T) {
	g := smallIncast()
	path := writeFile(t, "x.pcap", g.pcap())
	doc := analyse(t, Options{Phases: []Phase{{Name: "all", StartNS: genEpoch, EndNS: genEpoch + 1e9}}}, Input{Path: path}, Input{Path: path, Role: Upstream})
	var titles []string
	for _, tab := range doc.Tables() {
		title, _, _ := strings.Cut(tab.Title, " (")
		titles = append(titles, title)
		for _, r := range tab.Rows {
			if len(r) != len(tab.Columns) {
				t.Errorf("table %q: row of %d cells under %d columns", tab.Title, len(r), len(tab.Columns))
			}
		}
		if len(tab.Rows) == 0 {
			t.Errorf("table %q is empty", tab.Title)
		}
	}
	for _, want := range []string{"Captures: complete", "Totals", "All flows together", "Phases", "Goodput by phase", "Flows", "Times", "Congestion", "Losses", "Loss between taps"} {
		if !slices.Contains(titles, want) {
			t.Errorf("no table %q among %q", want, titles)
		}
	}
	var b bytes.Buffer
	if err := doc.WriteCSV(&b, "run-1"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if lines[0] != "run,flow,metric,time_ns,value,unit" || lines[1] != "run-1,,packets,,"+integer(doc.Totals.Packets)+",packets" {
		t.Errorf("CSV begins %q, %q", lines[0], lines[1])
	}
	n := 0
	doc.Rows("", func(Row) bool { n++; return n < 3 })
	if n != 3 {
		t.Errorf("Rows went on for %d rows after it was told to stop at 3", n)
	}
}

// wideDocument has large but possible numbers everywhere.
func wideDocument() *Document {
	d, _ := filledDocument()
	ns := func(v int64) *int64 { return &v }
	bps := func(v float64) *float64 { return &v }
	lat := Latency{Samples: 999_999, Min: ns(123_000), P50: ns(12_300_000), P90: ns(23_400_000), P99: ns(123_000_000), P999: ns(123_000_000), Max: ns(999_000_000)}
	d.Series.StartNS = 1_790_000_000_000_000_000
	d.TimeScale = 1
	d.Quality.Verdict = Complete
	const id = "192.0.2.111>192.0.2.114:0x000025"
	for i := range d.Flows {
		f := &d.Flows[i]
		f.ID, f.Name, f.Service, f.Operations, f.State = id, "h1", "RC", Operations{Write: 12345}, StatePartial
		f.Packets, f.UniqueBytes, f.GoodputBps, f.RTTNS, f.CNPGapNS, f.CNPDelayNS = 99_999_999, 234<<30, bps(23.4e9), lat, lat, lat
		f.MessageNS = Messages{Count: 5, Until: "last_packet", P50: ns(12_300_000), P99: ns(123_000_000), Max: ns(1)}
		f.CEShare, f.CNPs, f.CNPRateHz = bps(0.123), ns(123_456), bps(12_345)
		f.Reaction = &Reaction{Episodes: 1234, Cut: 1234, Recovered: 1234, BeforeBps: &Rates{P50: 23.4e9}, LowestBps: &Rates{P50: 23.4e9}, RecoverNS: lat}
		f.Recovery = &Recovery{Restarts: 12345, ByNAK: 12345, DelayNS: lat}
		f.RetransmittedPackets, f.DuplicatePackets, f.LostBeforeTap = 123_456, 123_456, 123_456
	}
	for i := range d.Files {
		d.Files[i].Path, d.Files[i].FirstNS, d.Files[i].LastNS = "a.pcap", ns(d.Series.StartNS), ns(d.Series.StartNS+12e9)
	}
	for i := range d.Congestion.Pairs {
		d.Congestion.Pairs[i] = CNPCount{Src: "192.0.2.111", Dst: "192.0.2.114", CNPs: 123_456, RateHz: bps(12_345), GapNS: lat}
		d.Congestion.Ports[i] = CNPCount{Src: "02:00:00:00:00:01", CNPs: 123_456, RateHz: bps(12_345), GapNS: lat}
		d.Congestion.Receivers[i] = QueueAt{Dst: "192.0.2.114", BusyShare: bps(0.999), BusyNS: lat, QueueBytes: &Queue{1 << 20, 1 << 21, 1 << 22}}
		d.Congestion.Scopes[i] = CNPScope{Scope: ScopeDestination, Groups: 123, GapNS: lat}
		d.PFC[i].Src, d.PFC[i].PausedNS, d.PFC[i].LongestNS = "02:00:00:00:00:01", ns(123_000_000), ns(123_000_000)
		d.Connections[i] = Connection{Src: "192.0.2.111", Dst: "192.0.2.114", SrcQP: new(uint32), DstQP: new(uint32), SrcPSN: new(uint32), DstPSN: new(uint32), State: "disconnected", SetupNS: ns(123_000_000)}
		*d.Connections[i].SrcPSN, *d.Connections[i].DstPSN = 1<<24-1, 1<<24-1
		d.Aggregate.Convergence[i] = Convergence{AtNS: d.Series.StartNS + 12e9, Event: "leave", Flow: id, Active: 123, TimeNS: ns(123_000_000), LowestJain: bps(0.5)}
		d.Path.Flows[i].ID = id
	}
	d.Congestion.PacingReason = ""
	return d
}

// TestTables_fitATerminal: with IPv4 addresses and large numbers the tables of flows and of congestion stay within 100 columns.
func TestTables_fitATerminal(t *testing.T) {
	d := wideDocument()
	tables := append(d.FlowTables(), d.CongestionTables()...)
	tables = append(tables, d.ConvergenceTable(), d.ConnectionTable(), d.AggregateTable(), d.TotalsTable())
	for _, tab := range tables {
		if len(tab.Rows) == 0 {
			t.Errorf("table %q is empty for a document with everything in it", tab.Title)
		}
		width := 1
		for i, c := range tab.Columns {
			w := utf8.RuneCountInString(c.Name)
			for _, r := range tab.Rows {
				if !c.Wrap {
					w = max(w, utf8.RuneCountInString(r[i]))
				}
			}
			width += w + 3
		}
		if width > 100 {
			t.Errorf("table %q is %d columns wide", tab.Title, width)
		}
	}
}

// TestTables_notMeasured: a document in which only counts were possible shows dashes, not zeros, and leaves out what it does not know.
func TestTables_notMeasured(t *testing.T) {
	d := &Document{TimeScale: 1, Quality: Quality{Verdict: Complete}, Flows: []Flow{{ID: "a>b:0x000001", Service: "RC", Packets: 3, CEPackets: 1, State: StatePartial}}}
	d.Congestion.Receivers = []QueueAt{{Dst: "b"}}
	d.PFC = []PausedPort{{Src: "02:00:00:00:00:01", PauseFrames: 2}}
	for _, tab := range d.Tables() {
		title, _, _ := strings.Cut(tab.Title, " (")
		switch title {
		case "Times", "Reaction to CNPs", "Losses", "Recovery", "Convergence", "Phases", "Checks", "Connections by RDMA-CM":
			t.Errorf("table %q is there, though nothing of it was measured", tab.Title)
		case "Flows":
			if got := tab.Rows[0][4]; got != none {
				t.Errorf("goodput that is not known is %q", got)
			}
		case "Congestion":
			if got := strings.Join(tab.Rows[0][2:], " "); got != "- - - -" {
				t.Errorf("CNPs that were not captured are %q", got)
			}
		case "Arrivals by receiver":
			if got := strings.Join(tab.Rows[0][1:], " "); got != "- - - - - - -" {
				t.Errorf("arrivals without a rate are %q", got)
			}
		case "PFC and PAUSE":
			if got := strings.Join(tab.Rows[0][5:], " "); got != "- -" || tab.Rows[0][1] != "all" {
				t.Errorf("pauses without the link's rate are %q", tab.Rows[0])
			}
		}
	}
}
