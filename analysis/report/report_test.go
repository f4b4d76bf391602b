package report

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/analysis"
)

func page() Page {
	return Page{Title: "incast-3to1 <on> virtual-4", Subtitle: "virtual lab, 25 Gbit/s at time scale 50", Verdict: Verdict{"2 of 3 checks hold", Bad},
		Warnings: []string{"timers were up to 3.1 ms late"}, Document: incast(), Checks: []analysis.Check{{Name: "fair", Verdict: analysis.Pass, Rows: []analysis.CheckRow{{Detail: "jain() = 0.99"}}}},
		Provenance: []KV{{"pcmlab", "v0.1.0 (0123abc)"}, {"kernel", "Linux 6.12"}}, Links: []Link{{"analysis.json", "analysis.json"}, {"captures", "captures/"}}}
}

func render(t *testing.T, p Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := Render(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestRender_isDeterministicAndSelfContained: the same page twice gives the same bytes, and none of them asks the network.
func TestRender_isDeterministicAndSelfContained(t *testing.T) {
	one, two := render(t, page()), render(t, page())
	if one != two {
		t.Error("two renderings of one page differ")
	}
	if m := regexp.MustCompile(`(?i)https?://|src=|@import|url\(|<link|<iframe`).FindString(one); m != "" {
		t.Errorf("the page refers to something outside of it: %q", m)
	}
	if len(one) > 400_000 {
		t.Errorf("page of %d bytes, expected at most 400 kB", len(one))
	}
	for _, want := range []string{"Throughput", "Jain&#39;s fairness index", "CE-marked share", "CNPs", "Retransmissions", "PFC and PAUSE", "Round-trip time", "Message completion time", "Time between CNPs of a flow",
		"three", "h2 192.0.2.12", "prefers-color-scheme:dark", "timers were up to 3.1 ms late", "v0.1.0", "1 check failed", "1 expectation passed", "<h2>Expectations</h2>", "<h2>Checks</h2>", "captures complete", "What was not measured", "at 1.000000 s: 3 packets", "and 2 more"} {
		if !strings.Contains(one, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	if out := os.Getenv("PCMLAB_REPORT_SAMPLE"); out != "" { // to look at it
		if err := os.WriteFile(out, []byte(one), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRender_escapes: text that hosts printed cannot become markup.
func TestRender_escapes(t *testing.T) {
	p := page()
	evil := `<script>alert("x")</script>`
	p.Title, p.Warnings, p.Provenance = evil, []string{evil}, []KV{{evil, evil}}
	p.Document.Flows[0].Name = evil
	p.Document.Aggregate.PerPhase[0].Name = evil
	p.Charts = []Chart{{Title: evil, YLabel: evil, Lines: []Line{{Name: evil, X: []float64{0, 1}, Y: []float64{1, 2}}}, Bands: []Band{{evil, 0, 1}}}}
	p.Links = []Link{{"x", "javascript:alert(1)"}}
	out := render(t, p)
	if strings.Contains(out, evil) || strings.Contains(out, `href="javascript:`) {
		t.Error("text became markup")
	}
}

// TestRender_empty: a page of a capture without flows, phases and checks renders, without empty sections.
func TestRender_empty(t *testing.T) {
	out := render(t, Page{Title: "nothing", Document: &analysis.Document{Quality: analysis.Quality{Verdict: analysis.Blind}}})
	for _, not := range []string{"<h2>Checks", "<h2>Over time", "<h2>Files", "<h2>Provenance"} {
		if strings.Contains(out, not) {
			t.Errorf("an empty page has %q", not)
		}
	}
	if !strings.Contains(out, "The captures are blind") {
		t.Error("the page does not say that the capture was blind")
	}
	if err := Render(&bytes.Buffer{}, Page{}); err == nil {
		t.Error("a page without a document was rendered")
	}
}

// TestRender_manyFlows: a thousand flows of a thousand bins stay a page that opens at once; the flows that have no line of
// their own are in a band, and the page says so.
func TestRender_manyFlows(t *testing.T) {
	out := render(t, Page{Title: "crowd", Document: crowd(1000)})
	if len(out) > 5_000_000 {
		t.Errorf("page of %d bytes, expected at most 5 MB", len(out))
	}
	for _, want := range []string{"the 7 flows with most payload are named", "993 other flows", "Throughput, all flows together", "The captures are incomplete", "ends at byte 4096"} {
		if !strings.Contains(out, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	t.Logf("%d bytes", len(out))
	if out2 := os.Getenv("PCMLAB_REPORT_CROWD"); out2 != "" { // to look at it
		if err := os.WriteFile(out2, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSortKey: what columns sort by.
func TestSortKey(t *testing.T) {
	for _, c := range []struct {
		less, more string
		why        string
	}{
		{"999 us", "1.00 ms", "units of time"}, {"1023 B", "1.00 KiB", "binary units"}, {"999 KiB", "1.00 MiB", "binary units"}, {"999 Mb/s", "1.20 Gb/s", "rates"},
		{"9.5 %", "10.1 %", "shares"}, {"9 of 10", "10 of 10", "counts of counts"}, {"-1 us", "0 ns", "negative"}, {"999 /s", "1.20 k/s", "frequencies"}, {"9", "10", "counts"},
	} {
		a, ok1 := sortKey(c.less)
		b, ok2 := sortKey(c.more)
		if !ok1 || !ok2 || a >= b {
			t.Errorf("%s: %q sorts as %g, %q as %g", c.why, c.less, a, c.more, b)
		}
	}
	if v, ok := sortKey("-"); ok {
		t.Errorf("what was not measured sorts as %g", v)
	}
}

// TestTicks: round, within the axis, few.
func TestTicks(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		n      int
		want   string
	}{
		{0, 1, 5, "0.0 0.2 0.4 0.6 0.8 1.0"}, {0, 10, 5, "0 2 4 6 8 10"}, {0, 0.003, 5, "0.000 0.001 0.002 0.003"}, {-1, 1, 5, "-1.0 -0.5 0.0 0.5 1.0"}, {0, 25.2, 6, "0 5 10 15 20 25"},
	} {
		var got []string
		for _, x := range ticks(c.lo, c.hi, c.n) {
			got = append(got, x.text)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("ticks(%g, %g, %d) = %s, want %s", c.lo, c.hi, c.n, s, c.want)
		}
	}
	for _, c := range []struct {
		lo, hi float64
		n      int
		want   string
	}{
		{900, 12_000, 5, "1 us 2 us 5 us 10 us"}, {1e3, 1e9, 7, "1 us 10 us 100 us 1 ms 10 ms 100 ms 1 s"}, {1e3, 1e9, 4, "1 us 100 us 10 ms 1 s"}, {2e5, 6e5, 5, "200 us 300 us 400 us 500 us 600 us"},
	} {
		var got []string
		for _, x := range logTicks(c.lo, c.hi, c.n) {
			got = append(got, x.text)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("logTicks(%g, %g, %d) = %s, want %s", c.lo, c.hi, c.n, s, c.want)
		}
	}
}
