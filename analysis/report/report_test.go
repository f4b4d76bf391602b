package report

import (
	"bytes"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/analysis"
)

func ptr[T any](v T) *T { return &v }

// incast is a document like that of the demo: three senders, five phases of two seconds.
func incast() *analysis.Document {
	const bin, second, start = int64(1e7), int64(1e9), int64(1_790_000_000_000_000_000)
	d := &analysis.Document{Schema: analysis.Schema, TimeScale: 50, Quality: analysis.Quality{Verdict: analysis.Complete, Notes: []string{"drops are known"}}}
	d.Series = analysis.Series{BinNS: bin, StartNS: start, Bins: 1000}
	spans := [][2]int{{0, 1000}, {200, 800}, {400, 600}}
	share := func(b int) float64 { return []float64{1, 2, 3, 2, 1}[min(b/200, 4)] }
	for i, sp := range spans {
		id := "192.0.2.1" + string(rune('1'+i)) + ">192.0.2.14:0x00001" + string(rune('1'+i))
		f := analysis.Flow{ID: id, Name: "h" + string(rune('1'+i)), Service: "RC", State: analysis.StateOK, Packets: 10000, UniqueBytes: 4 << 20,
			GoodputBps: ptr(480e6 / 2), CEPackets: 700, CNPs: ptr(int64(120)), NAKs: &analysis.NAKs{}, Operations: analysis.Operations{Write: 640},
			RTTNS: analysis.Latency{Samples: 5, P50: ptr(int64(812_000)), P99: ptr(int64(1_900_000))}}
		d.Flows = append(d.Flows, f)
		s := analysis.FlowSeries{ID: id, FirstBin: sp[0]}
		for b := sp[0]; b < sp[1]; b++ {
			n := share(b)
			s.GoodputBps = append(s.GoodputBps, 480e6/n*(1+0.05*math.Sin(float64(b*(i+2))/7)))
			s.Packets = append(s.Packets, 50)
			s.CE = append(s.CE, int64((n-1)*4+float64(b%3)))
			s.CNPs = append(s.CNPs, int64(n-1)*int64(b%2))
			s.Retransmits = append(s.Retransmits, 0)
		}
		d.Series.Flows = append(d.Series.Flows, s)
	}
	for i, name := range []string{"one", "two", "three", "two-again", "one-again"} {
		n := share(i * 200)
		p := analysis.PhaseSummary{Name: name, StartNS: start + int64(i)*2*second, EndNS: start + int64(i+1)*2*second, GoodputBps: 480e6, WireBps: 492e6,
			Jain: ptr(1 - n/300), JainMeanOfBins: ptr(1 - n/100), Utilisation: ptr(0.984), CEShare: ptr((n - 1) / 30), CNPRateHz: ptr(50 * n)}
		for j, sp := range spans {
			if sp[0] <= i*200 && i*200 < sp[1] {
				p.Flows = append(p.Flows, analysis.PhaseFlow{Flow: d.Flows[j].ID, Name: d.Flows[j].Name, GoodputBps: 480e6 / n})
			}
		}
		d.Aggregate.PerPhase = append(d.Aggregate.PerPhase, p)
	}
	d.Checks = []analysis.Check{
		{Name: "jain(phase=\"three\") >= 0.95", Verdict: analysis.Pass, Reason: "0.990"},
		{Name: "retransmissions() == 0", Verdict: analysis.Fail, Reason: "3 packets", Rows: []analysis.CheckRow{{Flow: "h2", Detail: "3 packets"}}},
		{Name: "pfc_pause() == 0", Verdict: analysis.Skip, Reason: "needs pfc: the switch of this lab has none"},
	}
	return d
}

func page() Page {
	return Page{Title: "incast-3to1 <on> virtual-4", Subtitle: "virtual lab, 25 Gbit/s at time scale 50", Verdict: Verdict{"2 of 3 checks hold", Bad},
		Warnings: []string{"timers were up to 3.1 ms late"}, Document: incast(),
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
	for _, want := range []string{"Goodput of each flow", "Jain&#39;s fairness index", "CE-marked share", "CNPs", "three", "h2 192.0.2.12", "prefers-color-scheme:dark", "timers were up to 3.1 ms late", "v0.1.0"} {
		if !strings.Contains(one, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	if strings.Contains(one, "#0102") || strings.Contains(one, "#0103") || strings.Contains(one, "Liberation Sans;") {
		t.Error("a marker colour or font of the drawing was left in the page")
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
