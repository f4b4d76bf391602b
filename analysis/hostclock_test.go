package analysis_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
)

// taken are packets of one host whose clock is ahead by an offset.
func taken(t *testing.T, ahead time.Duration, psns ...int) string {
	t.Helper()
	var packets []packet
	for _, n := range psns {
		packets = append(packets, packet{atNS: int64(n)*1e6 + int64(ahead), ipID: uint16(n), bth: write(uint32(n), roce.RCWriteMiddle), payload: 1024})
	}
	path := filepath.Join(t.TempDir(), "tap")
	if err := os.WriteFile(path, pcapOf(t, packets...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func samples(offset, err time.Duration, at ...time.Duration) (out []capture.ClockSample) {
	for _, a := range at {
		out = append(out, capture.ClockSample{AtNS: int64(a) + epoch, OffsetNS: offset, ErrorNS: err})
	}
	return out
}

// Two captures of one flow, every other packet in each, by hosts whose clocks are 2 s apart: merged they are in order, and the document says within what.
func TestRun_clocksOfHosts(t *testing.T) {
	even, odd := taken(t, 0, 0, 2, 4, 6, 8), taken(t, 2*time.Second, 1, 3, 5, 7, 9)
	s := time.Second
	inputs := func(clock []capture.ClockSample) []analysis.Input {
		return []analysis.Input{
			{Path: even, Tap: "a", Stamped: analysis.Stamped{Host: "ha", By: "software", Sync: "system clock: chrony", Clocks: capture.NewClockMap(samples(0, 100*time.Microsecond, -s, s))}},
			{Path: odd, Tap: "b", Stamped: analysis.Stamped{Host: "hb", By: "software", Clocks: capture.NewClockMap(clock)}}}
	}
	doc, err := analysis.Run(t.Context(), inputs(samples(2*s, 150*time.Microsecond, -s, s)), analysis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := doc.Directions[0]
	if doc.Quality.Verdict != analysis.Complete || d.PSNBackwardSteps != 0 || d.PSNGaps != 0 || doc.Totals.RetransmittedPackets != 0 {
		t.Errorf("merged: verdict %s, %d steps back, %d gaps, %d retransmitted", doc.Quality.Verdict, d.PSNBackwardSteps, d.PSNGaps, doc.Totals.RetransmittedPackets)
	}
	if e := doc.Quality.MergeErrorNS; e == nil || *e != 250_000 {
		t.Errorf("merged within %v, want the errors of both", e)
	}
	a, b := doc.Files[0].Clock, doc.Files[1].Clock
	if a == nil || b == nil || a.Applied || !b.Applied || *b.FirstOffsetNS != int64(2*s) || *b.ErrorNS != 150_000 || b.Samples != 2 || a.Sync != "system clock: chrony" || a.Timestamps != "software" {
		t.Fatalf("clocks %+v, %+v", a, b)
	}
	if first := *doc.Files[1].FirstNS; first != epoch+1e6 {
		t.Errorf("the first packet of b is at %d ns after the first of a, want 1 ms", first-epoch)
	}
	for _, want := range []string{"b: the clock of hb was ahead by 2s at first and 2s at last; times were put right, within 150µs", "captures of 2 hosts were merged by time within 250µs"} {
		if !strings.Contains(strings.Join(doc.Quality.Notes, "\n"), want) {
			t.Errorf("notes %q lack %q", doc.Quality.Notes, want)
		}
	}

	// What stamped the packets, and whether PTP keeps that clock, is part of the capture's quality.
	in := inputs(samples(2*s, 150*time.Microsecond, -s, s))
	in[0].Stamped.By, in[0].Stamped.Sync, in[0].Stamped.PTP = "hardware", "ptp2, ahead of the host by 37s", capture.ParsePTP("SLAVE, offset -12 ns")
	in[1].Stamped.PTP = capture.ParsePTP("UNCALIBRATED")
	if doc, err = analysis.Run(t.Context(), in, analysis.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a: packets have times of the NIC's own clock: ptp2, ahead of the host by 37s", "a: the clock of ha is kept by PTP (SLAVE, -12ns off its master)",
		"b: PTP on hb: no port of ptp4l follows a master (UNCALIBRATED): its times are no better"} {
		if !strings.Contains(strings.Join(doc.Quality.Notes, "\n"), want) {
			t.Errorf("notes %q lack %q", doc.Quality.Notes, want)
		}
	}
	if c := doc.Files[0].Clock; c.Timestamps != "hardware" || c.PTP == nil || *c.PTP.OffsetNS != -12 {
		t.Errorf("%+v", c)
	}

	stepped := append(samples(0, time.Millisecond, -s, 0), samples(2*s, time.Millisecond, 5*time.Millisecond, s)...)
	if doc, err = analysis.Run(t.Context(), inputs(stepped), analysis.Options{}); err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(doc.Quality.Notes, "\n"); doc.Quality.Verdict != analysis.Incomplete || !strings.Contains(notes, "b: the clock of hb was set by 2s between ") || len(doc.Files[1].Clock.Steps) != 1 {
		t.Errorf("a clock that was set: verdict %s, %q", doc.Quality.Verdict, notes)
	}

	if doc, err = analysis.Run(t.Context(), inputs(nil), analysis.Options{}); err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(doc.Quality.Notes, "\n"); !strings.Contains(notes, "the clock of hb was never compared: the order of their packets is not known") || doc.Quality.MergeErrorNS != nil {
		t.Errorf("a clock that nobody compared: %q", notes)
	}
}

// What the capturing program had not read, and what its ring replaced, is missing, and is told apart from what it never wrote.
func TestRun_whatTheProgramDidNotKeep(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	for _, tt := range []struct {
		name string
		said capture.ToolCounts
		want string
	}{
		{"all", capture.ToolCounts{Captured: n(3), Dropped: n(0), Received: n(3)}, ""},
		{"in_the_kernel", capture.ToolCounts{Captured: n(3), Dropped: n(1), Received: n(6)}, "2 packets were still in the kernel's buffer when its capturing program ended"},
		{"ring", capture.ToolCounts{Captured: n(10), Dropped: n(0), Ring: true}, "its ring of files replaced 7 of 10 packets by newer ones"},
		{"never_written", capture.ToolCounts{Captured: n(10), Dropped: n(0)}, "the last 7 were never written"},
	} {
		doc, err := analysis.Run(t.Context(), []analysis.Input{{Path: taken(t, 0, 1, 2, 3), Said: tt.said}}, analysis.Options{})
		if err != nil {
			t.Fatal(err)
		}
		notes := strings.Join(doc.Quality.Notes, "\n")
		if (doc.Quality.Verdict == analysis.Incomplete) != (tt.want != "") || !strings.Contains(notes, tt.want) {
			t.Errorf("%s: %s, %q, want %q", tt.name, doc.Quality.Verdict, notes, tt.want)
		}
	}
}
