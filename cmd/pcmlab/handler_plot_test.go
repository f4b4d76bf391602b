package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlot_draws: a value is kept until the next event, and a jump is a bar from one to the other.
func TestPlot_draws(t *testing.T) {
	p := plotted{"CWND", []uint64{0, 500_000, 1_000_000}, []float64{4096, 4096, 8192}}
	lines := strings.Split(p.chart(), "\n")
	if lines[0] != "CWND" || len(lines) != plotHeight+4 {
		t.Fatalf("%q", lines)
	}
	top, bottom := []rune(lines[1]), []rune(lines[plotHeight])
	if string(top[:6]) != "8192 ┤" || string(bottom[:6]) != "4096 ┤" {
		t.Errorf("scale: %q, %q", lines[1], lines[plotHeight])
	}
	if got := string(bottom[6:]); got != strings.Repeat("─", plotWidth-1)+"│" {
		t.Errorf("the value before the jump: %q", got)
	}
	if got := string(top[6:]); got != strings.Repeat(" ", plotWidth-1)+"│" {
		t.Errorf("the value behind it: %q", got)
	}
	if !strings.HasSuffix(lines[plotHeight+2], "1 ms") {
		t.Errorf("time: %q", lines[plotHeight+2])
	}
	flat := plotted{"RATE", []uint64{7}, []float64{100}}
	if c := flat.chart(); strings.Count(c, "100") != 1 || strings.Contains(c, "│") || strings.Count(c, strings.Repeat("─", plotWidth)) != 2 {
		t.Errorf("one event:\n%s", c)
	}
}

// TestPlot_thins: a long replay is drawn by few points that still reach its extremes.
func TestPlot_thins(t *testing.T) {
	p := plotted{name: "CWND"}
	for i := range 100_000 {
		p.t, p.values = append(p.t, uint64(i)), append(p.values, 1000)
	}
	p.values[12_345], p.values[77_777] = 1, 9999
	times, values := p.thinned()
	low, high := values[0], values[0]
	for i, v := range values {
		low, high = min(low, v), max(high, v)
		if i > 0 && times[i] < times[i-1] {
			t.Fatal("time goes back")
		}
	}
	if len(times) > svgPoints || low != 1 || high != 9999 {
		t.Errorf("%d points from %v to %v", len(times), low, high)
	}
	file := filepath.Join(t.TempDir(), "x.svg")
	if err := writeSVG(file, "a < b", []plotted{p}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "a &lt; b") || strings.Count(string(text), "<polyline") != 1 {
		t.Errorf("%v: %.300s", err, text)
	}
}
