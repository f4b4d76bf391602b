package analysis

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// checkFlow is an RC flow of 100 data packets between 1 s and 2 s, from 10.0.0.1 to 10.0.0.2.
func checkFlow(id string, change func(*Flow)) Flow {
	f := Flow{ID: id, Src: "10.0.0.1", Dst: "10.0.0.2", Service: "RC", Packets: 100, ECTPackets: 100, DSCP: []int{26}, FirstNS: 1e9, LastNS: 2e9,
		CNPs: ptr(int64(0)), State: StateOK, Notes: []string{}}
	if change != nil {
		change(&f)
	}
	return f
}

// checkDoc is a complete document of these flows, with marks in the given bins of 10 ms of every marked flow.
func checkDoc(bins []int, flows ...Flow) *Document {
	doc := &Document{Flows: flows, Series: Series{BinNS: 10_000_000, StartNS: 1e9, Bins: 100}}
	doc.Quality = Quality{Verdict: Complete, Notes: []string{}}
	for i := range flows {
		f := &flows[i]
		s := FlowSeries{ID: f.ID, CE: make([]int64, 100)}
		if f.CEPackets > 0 {
			for _, b := range bins {
				s.CE[b] = 1
			}
		}
		doc.Series.Flows = append(doc.Series.Flows, s)
		doc.Totals.RoCEPackets += f.Packets
		doc.Totals.CEDataPackets += f.CEPackets
		doc.Totals.MissedByTap += f.MissedByTap
		if f.CNPs == nil || *f.CNPs == 0 {
			continue
		}
		doc.Totals.CNPPackets += *f.CNPs
		g := &doc.Congestion
		g.Pairs = append(g.Pairs, CNPCount{Src: f.Dst, Dst: f.Src, CNPs: *f.CNPs, GapNS: f.CNPGapNS})
		g.Ports = append(g.Ports, CNPCount{Src: "02:00:00:00:00:0" + f.Dst[len(f.Dst)-1:], CNPs: *f.CNPs, GapNS: f.CNPGapNS})
		g.Scopes = append(g.Scopes, CNPScope{ScopeDestination, 1, f.CNPGapNS})
	}
	return doc
}

func flowMarked(ce, cnps int64) func(*Flow) {
	return func(f *Flow) { f.CEPackets, f.ECTPackets, f.CNPs = ce, f.Packets-ce, ptr(cnps) }
}

func gapsFrom(least int64) Latency {
	return Latency{Samples: 10, Min: ptr(least), P50: ptr(int64(60_000))}
}

func restartsOf(events ...RecoveryEvent) *Recovery {
	return &Recovery{Restarts: int64(len(events)), Events: events}
}

func TestChecks(t *testing.T) {
	t.Parallel()
	dscp26 := Options{TimeScale: 1, Expect: Expect{DSCP: ptr(26)}}
	declared := func(scope string) Options {
		return Options{TimeScale: 1, Expect: Expect{CNPScope: scope, CNPInterval: 50 * time.Microsecond}}
	}
	to3 := func(f *Flow) { f.Dst = "10.0.0.3" }
	nak := func(ts int64, psn, from, high uint32, delay int64) RecoveryEvent {
		return RecoveryEvent{TimeNS: ts, Trigger: "nak", NAKPSN: &psn, FromPSN: from, HighPSN: high, DelayNS: &delay, Packets: psnPackets(from, high)}
	}
	for _, tc := range []struct {
		check, name, why string
		doc              *Document
		o                Options
		verdict          string
		reason           string
		rows             []string // flow and a part of the detail, in order; all of them
	}{
		{CheckCapture, "empty", "quiet or blind: not told", checkDoc(nil), Options{}, Skip, "blind tap cannot be told", nil},
		{CheckCapture, "complete", "", checkDoc(nil, checkFlow("a", nil)), Options{}, Pass, "complete: 100", nil},
		{CheckCapture, "remarks", "copies do not spoil numbers", docWith(checkDoc(nil, checkFlow("a", nil)), func(d *Document) { d.Quality.DuplicatesRemoved = 7 }), Options{}, Pass, "with remarks", []string{": 7 copies"}},
		{CheckCapture, "blind", "counters moved", docWith(checkDoc(nil), func(d *Document) { d.Quality.Verdict, d.Quality.Notes = Blind, []string{"NIC moved"} }), Options{}, Fail, "does not see", []string{": NIC moved"}},
		{CheckCapture, "cut", "the good prefix is not all", docWith(checkDoc(nil, checkFlow("a", nil)), func(d *Document) { d.Quality.Verdict, d.Quality.Notes = Incomplete, []string{"x: cut at byte 9"} }), Options{}, Fail, "incomplete", []string{": x: cut at byte 9"}},
		{CheckCapture, "drops", "by statistics", docWith(checkDoc(nil, checkFlow("a", nil)), func(d *Document) { d.Quality.Drops = ptr(int64(3)) }), Options{}, Fail, "lost 3", nil},
		{CheckCapture, "missed", "acknowledged, not captured", checkDoc(nil, checkFlow("a", nil), checkFlow("b", func(f *Flow) { f.MissedByTap = 4 })), Options{}, Fail, "4 packets were acknowledged but never captured, of 1 flows", []string{"b: 4 packets"}},

		{CheckMarking, "not_asked", "", checkDoc(nil, checkFlow("a", nil)), Options{}, Skip, "no DSCP or ECN", nil},
		{CheckMarking, "no_data", "nothing to look at", checkDoc(nil), dscp26, Skip, "no data packet", nil},
		{CheckMarking, "as_asked", "", checkDoc(nil, checkFlow("a", nil)), Options{Expect: Expect{DSCP: ptr(26), ECN: "ect"}}, Pass, "all 1 flows have DSCP 26, ECT", nil},
		{CheckMarking, "tos_0", "rdma_cm loses it", checkDoc(nil, checkFlow("a", func(f *Flow) { f.DSCP = []int{0} })), dscp26, Fail, "1 of 1 flows", []string{"a: DSCP 0 on its 100 data packets, asked for 26 (is the traffic class set to 104, or 106"}},
		{CheckMarking, "dscp_as_class", "26 >> 2", checkDoc(nil, checkFlow("a", func(f *Flow) { f.DSCP = []int{6} })), dscp26, Fail, "", []string{"a: DSCP 6 on its 100 data packets, asked for 26 (was 26 given as the traffic class?"}},
		{CheckMarking, "mixed", "some of them", checkDoc(nil, checkFlow("a", func(f *Flow) { f.DSCP = []int{0, 26} })), dscp26, Fail, "", []string{"a: DSCP 0 and 26"}},
		{CheckMarking, "rewritten", "another value", checkDoc(nil, checkFlow("a", func(f *Flow) { f.DSCP = []int{48} })), dscp26, Fail, "", []string{"a: DSCP 48 on its 100 data packets, asked for 26 (does a device"}},
		{CheckMarking, "not_ect", "", checkDoc(nil, checkFlow("a", func(f *Flow) { f.ECTPackets = 60 })), Options{Expect: Expect{ECN: "ect"}}, Fail, "", []string{"a: Not-ECT on 40 of 100"}},
		{CheckMarking, "ect", "", checkDoc(nil, checkFlow("a", nil)), Options{Expect: Expect{ECN: "not_ect"}}, Fail, "(Not-ECT)", []string{"a: ECT or CE on 100 of 100"}},

		{CheckCNPs, "quiet", "neither marks nor CNPs", checkDoc(nil, checkFlow("a", nil)), Options{TimeScale: 1}, Skip, "no CE mark and no CNP", nil},
		{CheckCNPs, "answered", "", checkDoc([]int{1, 50}, checkFlow("a", flowMarked(40, 10))), Options{TimeScale: 1}, Pass, "10 CNPs for 40 marked", nil},
		{CheckCNPs, "missing", "marks for half a second", checkDoc([]int{1, 50}, checkFlow("a", flowMarked(40, 0))), Options{TimeScale: 1}, Skip, "not one CNP", []string{"a: no CNP for 40 marked packets of 100"}},
		{CheckCNPs, "missing_of_declared", "the same, with a pacing to hold it to", checkDoc([]int{1, 50}, checkFlow("a", flowMarked(40, 0))),
			Options{TimeScale: 1, Expect: Expect{CNPScope: ScopeQP, CNPInterval: 50 * time.Microsecond}}, Fail, "declared", []string{"a: no CNP for 40 marked packets of 100"}},
		{CheckCNPs, "missing_in_one_bin", "many marks, and time enough to answer", checkDoc([]int{50}, checkFlow("a", flowMarked(40, 0))), Options{TimeScale: 1}, Skip, "not one CNP", []string{"a: no CNP"}},
		{CheckCNPs, "few_in_one_bin", "three marks may lie within one interval of another QP", checkDoc([]int{50}, checkFlow("a", flowMarked(3, 0))), Options{TimeScale: 1}, Pass, "", nil},
		{CheckCNPs, "at_the_end", "the answer may come after the capture", checkDoc([]int{99}, checkFlow("a", flowMarked(40, 0))), Options{TimeScale: 1}, Pass, "", nil},
		{CheckCNPs, "way_back_not_captured", "not measured is not 0", checkDoc([]int{1, 50}, checkFlow("a", func(f *Flow) { flowMarked(40, 0)(f); f.CNPs = nil })), Options{TimeScale: 1}, Skip, "the way back of the 1 marked flows", nil},
		{CheckCNPs, "shared", "another QP of the same receiver was told", checkDoc([]int{1, 50}, checkFlow("a", flowMarked(40, 0)), checkFlow("b", flowMarked(40, 20))), Options{TimeScale: 1}, Pass, "", nil},
		{CheckCNPs, "shared_but_per_qp", "declared per QP", checkDoc([]int{1, 50}, checkFlow("a", flowMarked(40, 0)), checkFlow("b", flowMarked(40, 20))), declared(ScopeQP), Fail, "declared: one per 50000 ns and qp", []string{"a: no CNP"}},
		{CheckCNPs, "shared_per_pair", "b has another receiver", checkDoc([]int{1, 50}, checkFlow("a", flowMarked(40, 0)), checkFlow("b", func(f *Flow) { flowMarked(40, 20)(f); to3(f) })), declared(ScopeIPPair), Fail, "", []string{"a: no CNP"}},
		{CheckCNPs, "shared_per_destination", "told by another address, perhaps of the same port", checkDoc([]int{1, 50}, checkFlow("a", flowMarked(40, 0)), checkFlow("b", func(f *Flow) { flowMarked(40, 20)(f); to3(f) })), declared(ScopeDestination), Pass, "", nil},
		{CheckCNPs, "spurious", "a mark is needed", checkDoc([]int{1}, checkFlow("a", flowMarked(0, 5)), checkFlow("b", flowMarked(9, 5))), Options{TimeScale: 1}, Fail, "", []string{"a: 5 CNPs, but none of its 100"}},
		{CheckCNPs, "too_many", "more than one a mark", checkDoc([]int{1}, checkFlow("a", flowMarked(5, 6))), Options{TimeScale: 1}, Fail, "", []string{"a: 6 CNPs for 5 marked packets"}},
		{CheckCNPs, "too_many_but_cut", "the marks may be in what was lost", docWith(checkDoc([]int{1}, checkFlow("a", flowMarked(5, 6))), func(d *Document) { d.Quality.Verdict = Incomplete }), Options{TimeScale: 1}, Pass, "", nil},
		{CheckCNPs, "before_the_queue", "marks are set after this tap", checkDoc(nil, checkFlow("a", flowMarked(0, 5))), Options{TimeScale: 1}, Skip, "before the queue", nil},
		{CheckCNPs, "other_way", "the tap sees marks one way only", checkDoc([]int{1}, checkFlow("a", flowMarked(9, 5)), checkFlow("b", func(f *Flow) { flowMarked(0, 5)(f); f.Src, f.Dst = f.Dst, f.Src })), Options{TimeScale: 1}, Pass, "CNPs of 1 flows have no marks", nil},
		{CheckCNPs, "too_close_qp", "", checkDoc([]int{1}, checkFlow("a", func(f *Flow) { flowMarked(90, 50)(f); f.CNPGapNS = gapsFrom(44_999) })), declared(ScopeQP), Fail, "", []string{"a: CNPs as close as 44999 ns (median 60000 ns), declared are 50000 ns per qp"}},
		{CheckCNPs, "kept_qp", "a tenth is the tap's", checkDoc([]int{1}, checkFlow("a", func(f *Flow) { flowMarked(90, 50)(f); f.CNPGapNS = gapsFrom(45_000) })), declared(ScopeQP), Pass, "", nil},
		{CheckCNPs, "too_close_pair", "", checkDoc([]int{1}, checkFlow("a", func(f *Flow) { flowMarked(90, 50)(f); f.CNPGapNS = gapsFrom(9) })), declared(ScopeIPPair), Fail, "", []string{": 10.0.0.2 to 10.0.0.1: CNPs as close as 9 ns"}},
		{CheckCNPs, "too_close_port", "", checkDoc([]int{1}, checkFlow("a", func(f *Flow) { flowMarked(90, 50)(f); f.CNPGapNS = gapsFrom(9) })), declared(ScopePort), Fail, "", []string{": 02:00:00:00:00:02: CNPs as close as 9 ns"}},
		{CheckCNPs, "too_close_destination", "", checkDoc([]int{1}, checkFlow("a", func(f *Flow) { flowMarked(90, 50)(f); f.CNPGapNS = gapsFrom(9) })), declared(ScopeDestination), Fail, "", []string{": CNPs as close as 9 ns"}},
		{CheckCNPs, "inferred", "what was seen is said", docWith(checkDoc([]int{1}, checkFlow("a", flowMarked(40, 10))), func(d *Document) {
			d.Congestion.PacingScope, d.Congestion.PacingNS = ptr(ScopePort), ptr(int64(50_000))
		}), Options{TimeScale: 1}, Pass, "inferred: one per 50000 ns and port", nil},

		{CheckRestart, "nothing_resent", "", checkDoc(nil, checkFlow("a", nil)), Options{TimeScale: 1}, Skip, "nothing was sent again", nil},
		{CheckRestart, "as_named", "", docRecovered(restartsOf(nak(1e9, 0x120, 0x120, 0x130, 5000))), Options{TimeScale: 1}, Pass, "1 restarts", nil},
		{CheckRestart, "too_early", "the receiver had them", docRecovered(restartsOf(nak(1e9, 0x120, 0x11d, 0x130, 5000))), Options{TimeScale: 1}, Fail, "", []string{"a: resumed at PSN 0x00011d, the NAK named 0x000120: 3 packets that the receiver had"}},
		{CheckRestart, "too_late_a_psn", "across the wrap", docRecovered(restartsOf(nak(1e9, 0xfffffe, 0x000002, 0x10, 5000))), Options{TimeScale: 1}, Fail, "", []string{"a: resumed at PSN 0x000002, the NAK named 0xfffffe: the 4 packets between were never sent again"}},
		{CheckRestart, "lost_again", "the sender comes back to them: the tap did not see them", docRecovered(restartsOf(nak(1e9, 0x120, 0x123, 0x130, 5000), nak(2e9, 0x120, 0x120, 0x131, 5000))), Options{TimeScale: 1}, Pass, "lost again before the tap", nil},
		{CheckRestart, "skipped", "", docRecovered(restartsOf(leavingOut(nak(1e9, 0x120, 0x120, 0x130, 5000), 3))), Options{TimeScale: 1}, Fail, "", []string{"a: resumed at PSN 0x000120, but 3 of the packets up to 0x000130 were never sent again"}},
		{CheckRestart, "skipped_at_the_end", "the capture ends: not known", docWith(docRecovered(restartsOf(leavingOut(nak(1e9, 0x120, 0x120, 0x130, 5000), 3))), func(d *Document) { d.Flows[0].State = StatePartial }), Options{TimeScale: 1}, Pass, "not judged", nil},
		{CheckRestart, "more_than_kept", "later events were not kept", docRecovered(&Recovery{Restarts: 40, Events: []RecoveryEvent{leavingOut(nak(1e9, 0x120, 0x120, 0x130, 5000), 3)}}), Options{TimeScale: 1}, Pass, "1 that left numbers out are not judged", nil},
		{CheckRestart, "slow", "more than 100 ms", docRecovered(restartsOf(nak(1e9, 0x120, 0x120, 0x130, 100_000_001))), Options{TimeScale: 1}, Fail, "", []string{"a: went on from PSN 0x000120 100000001 ns after the NAK"}},
		{CheckRestart, "slow_in_a_slowed_lab", "10 times slower", docRecovered(restartsOf(nak(1e9, 0x120, 0x120, 0x130, 100_000_001))), Options{TimeScale: 10}, Pass, "", nil},
		{CheckRestart, "rnr_waits", "an RNR timer may be long", docRecovered(restartsOf(RecoveryEvent{TimeNS: 1, Trigger: "rnr", NAKPSN: ptr(uint32(5)), FromPSN: 5, HighPSN: 9, DelayNS: ptr(int64(4e8)), Packets: 5})), Options{TimeScale: 1}, Pass, "", nil},
		{CheckRestart, "timeout", "no NAK names a number", docRecovered(restartsOf(RecoveryEvent{TimeNS: 1, Trigger: "timeout", FromPSN: 5, HighPSN: 5, Packets: 1})), Options{TimeScale: 1}, Pass, "", nil},
		{CheckRestart, "selective", "one packet alone", docRecovered(&Recovery{Selective: 2, Events: []RecoveryEvent{{TimeNS: 7, Trigger: "nak", NAKPSN: ptr(uint32(5)), FromPSN: 5, HighPSN: 9, Packets: 1, Skipped: 4}}}), Options{TimeScale: 1}, Fail, "", []string{"a: 2 packets were sent again alone"}},

		{CheckQPs, "no_rc", "", checkDoc(nil, checkFlow("a", func(f *Flow) { f.Service = "UD" })), Options{}, Skip, "no flow of the RC service", nil},
		{CheckQPs, "ok", "", checkDoc(nil, checkFlow("a", nil)), Options{}, Pass, "none of 1 RC", nil},
		{CheckQPs, "error", "", checkDoc(nil, checkFlow("a", nil), checkFlow("b", func(f *Flow) { f.State, f.Notes = StateFailed, []string{"not acknowledged after 7 restarts"} })), Options{}, Fail, "1 of 2 RC flows", []string{"b: not acknowledged after 7 restarts (last data packet"}},
	} {
		t.Run(tc.check+"/"+tc.name, func(t *testing.T) {
			var c Check
			for _, x := range checks(tc.doc, &tc.o) {
				if x.Name == tc.check {
					c = x
				}
			}
			if c.Verdict != tc.verdict || !strings.Contains(c.Reason, tc.reason) {
				t.Errorf("%s: %s (%s), want %s (%s)", tc.why, c.Verdict, c.Reason, tc.verdict, tc.reason)
			}
			if len(c.Rows) != len(tc.rows) {
				t.Fatalf("%s: rows %+v, want %q", tc.why, c.Rows, tc.rows)
			}
			for i, want := range tc.rows {
				if got := c.Rows[i].Flow + ": " + c.Rows[i].Detail; !strings.HasPrefix(got, want) {
					t.Errorf("row %d: %q, want %q", i, got, want)
				}
			}
		})
	}
}

func docWith(doc *Document, change func(*Document)) *Document {
	change(doc)
	return doc
}

func docRecovered(r *Recovery) *Document {
	return checkDoc(nil, checkFlow("a", func(f *Flow) { f.Recovery = r }))
}

func leavingOut(e RecoveryEvent, n int64) RecoveryEvent {
	e.Skipped = n
	e.Packets -= n
	return e
}

func psnPackets(from, high uint32) int64 { return psnAhead(from, high) + 1 }

// TestChecks_rowsAreBoundedAndInOrder holds any document's checks to what readers of rows rely on.
func TestChecks_rowsAreBoundedAndInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var flows []Flow
		place := map[string]int{"": -1}
		for i := range rapid.IntRange(0, 80).Draw(t, "flows") {
			id := fmt.Sprintf("10.0.0.%d", 90-i) // not in the order of the text
			place[id] = i
			flows = append(flows, checkFlow(id, func(f *Flow) {
				flowMarked(rapid.SampledFrom([]int64{0, 5, 50}).Draw(t, "CE"), rapid.SampledFrom([]int64{0, 5, 50}).Draw(t, "CNPs"))(f)
				f.DSCP = []int{rapid.SampledFrom([]int{0, 26}).Draw(t, "DSCP")}
				f.State = rapid.SampledFrom([]string{StateOK, StateFailed}).Draw(t, "state")
				f.MissedByTap = rapid.Int64Range(0, 1).Draw(t, "missed")
				if rapid.Bool().Draw(t, "selective") { // its row comes first in time, last in the making
					f.Recovery = &Recovery{Selective: 1, Events: []RecoveryEvent{{TimeNS: -1, Trigger: "nak", FromPSN: 1, HighPSN: 3, Packets: 1, Skipped: 2}}}
				}
				for k := range rapid.IntRange(0, 3).Draw(t, "restarts") {
					if f.Recovery == nil {
						f.Recovery = &Recovery{}
					}
					f.Recovery.Restarts++
					psn := rapid.Uint32Range(0, psnTop).Draw(t, "from")
					f.Recovery.Events = append(f.Recovery.Events, RecoveryEvent{TimeNS: int64(k), Trigger: "nak", NAKPSN: ptr((psn + rapid.Uint32Range(0, 2).Draw(t, "off") - 1) & psnTop),
						DelayNS: ptr(rapid.SampledFrom([]int64{5, 1e9}).Draw(t, "delay")), FromPSN: psn, HighPSN: (psn + 9) & psnTop, Packets: 10})
				}
			}))
		}
		doc := checkDoc([]int{3, 9}, flows...)
		o := Options{TimeScale: 1, Expect: Expect{DSCP: ptr(26), ECN: "ect", CNPScope: rapid.SampledFrom([]string{ScopeQP, ScopePort}).Draw(t, "scope"), CNPInterval: 50_000}}
		before := asJSON(t, doc)
		all := checks(doc, &o)
		if asJSON(t, doc) != before {
			t.Fatal("the checks changed the document")
		}
		if asJSON(t, all) != asJSON(t, checks(doc, &o)) {
			t.Fatal("two runs differ")
		}
		for _, c := range all {
			if c.Rows == nil || len(c.Rows) > MaxCheckRows || (c.More > 0 && len(c.Rows) < MaxCheckRows) {
				t.Fatalf("%s: %d rows and %d more", c.Name, len(c.Rows), c.More)
			}
			if c.Verdict == Skip && len(c.Rows) > 0 || c.Reason == "" {
				t.Fatalf("%s: %s (%q) with %d rows", c.Name, c.Verdict, c.Reason, len(c.Rows))
			}
			for i := 1; i < len(c.Rows); i++ {
				a, b := c.Rows[i-1], c.Rows[i]
				if place[a.Flow] > place[b.Flow] || (a.Flow == b.Flow && a.TimeNS != nil && b.TimeNS != nil && *a.TimeNS > *b.TimeNS) {
					t.Fatalf("%s: row %+v comes after %+v", c.Name, b, a)
				}
			}
		}
	})
}

const psnTop = 1<<24 - 1

func asJSON(t *rapid.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPSNAhead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Uint32Range(0, psnTop).Draw(t, "a")
		d := rapid.Int64Range(-1<<23, 1<<23-1).Draw(t, "distance")
		b := uint32((int64(a) + d + 1<<24) % (1 << 24))
		if got := psnAhead(a, b); got != d {
			t.Fatalf("%#x to %#x: %d, want %d", a, b, got, d)
		}
	})
}
