package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/analysis/report/reporttest"
)

func writePage(t *testing.T, p Page) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, []byte(render(t, p)), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPage_inChromium loads pages from disk at the widths of a phone and a desktop, light and dark: nothing is asked of the
// network, nothing complained about, nothing too wide, cut off, on top of other text or hard to read.
func TestPage_inChromium(t *testing.T) {
	ctx := reporttest.Browser(t)
	long := incast()
	for i := range long.Flows { // IPv6 addresses and long names
		long.Flows[i].Name = strings.Repeat("a-long-name-of-a-host", 3)
		long.Flows[i].ID = fmt.Sprintf("2001:db8:1234:5678:9abc:def0:1234:%04x>2001:db8:1234:5678:9abc:def0:1234:5678:0x00001%d", i, i)
		long.Series.Flows[i].ID = long.Flows[i].ID
		long.Aggregate.PerPhase[i].Name = strings.Repeat("phase", 9)
	}
	for name, p := range map[string]Page{
		"incast": page(),
		"crowd":  {Title: "many flows", Document: crowd(200)},
		"long":   {Title: strings.Repeat("unbroken", 30), Document: long, Checks: []analysis.Check{{Name: strings.Repeat("check", 20), Verdict: analysis.Fail, Reason: strings.Repeat("reason", 40)}}},
		"blind":  {Title: "blind", Document: &analysis.Document{Quality: analysis.Quality{Verdict: analysis.Blind, Notes: []string{"NIC counters moved by 9 packets"}}}},
	} {
		file := writePage(t, p)
		grounds := map[string]string{}
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{390, 1280} {
				tab := reporttest.Open(t, ctx, file, scheme, width)
				for _, problem := range tab.Audit() {
					t.Errorf("page %q, %s, %d px: %s", name, scheme, width, problem)
				}
				grounds[scheme] = reporttest.Eval[string](tab, `getComputedStyle(document.body).backgroundColor`)
			}
		}
		if grounds["light"] == grounds["dark"] {
			t.Errorf("page %q: the background is %s in both schemes", name, grounds["light"])
		}
	}
}

// TestPage_prints: on paper a reader of the dark page has dark text on white, and all rows of long tables.
func TestPage_prints(t *testing.T) {
	ctx := reporttest.Browser(t)
	tab := reporttest.Open(t, ctx, writePage(t, Page{Title: "many flows", Document: crowd(60)}), "dark", 1280)
	const boxes = `[...document.querySelectorAll(".scroll")].filter(e => e.scrollHeight > e.clientHeight + 1).length`
	if n := reporttest.Eval[int](tab, boxes); n == 0 {
		t.Error("on screen no table scrolls: this test looks at nothing")
	}
	reporttest.Command(tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print", Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
	for _, problem := range tab.Audit() {
		t.Errorf("printed: %s", problem)
	}
	if ground := reporttest.Eval[string](tab, `getComputedStyle(document.body).backgroundColor`); ground != "rgb(255, 255, 255)" {
		t.Errorf("printed on %s", ground)
	}
	if n := reporttest.Eval[int](tab, boxes); n != 0 {
		t.Errorf("%d tables are cut off on paper", n)
	}
}

// TestAudit_findsFaults: the audit that pages must pass finds each fault of a page that has all of them.
func TestAudit_findsFaults(t *testing.T) {
	ctx := reporttest.Browser(t)
	bad, err := filepath.Abs("testdata/bad.html")
	if err != nil {
		t.Fatal(err)
	}
	tab := reporttest.Open(t, ctx, bad, "light", 1280)
	found := strings.Join(tab.Audit(), "\n")
	for _, want := range []string{"console: error", "script: ", "request: http://192.0.2.1/nowhere", "the body is 3000 px wide", `"one" and "two" overlap`, `"outside" is cut off`,
		`"tiny" is smaller than 10 px`, `"cut off here" is wider than its box`, `p "pale text" has a contrast of 2.8`, `a curve of "bad plot" has a contrast of 1.1`} {
		if !strings.Contains(found, want) {
			t.Errorf("the audit does not find %q; it found:\n%s", want, found)
		}
	}
}

// TestPage_sortsInChromium sorts the table of flows by mouse and by keyboard: by number with units, by text with the numbers
// in it, and keeps what was not measured last.
func TestPage_sortsInChromium(t *testing.T) {
	ctx := reporttest.Browser(t)
	d := &analysis.Document{TimeScale: 1, Quality: analysis.Quality{Verdict: analysis.Complete}}
	for i, bps := range []float64{999e6, 1.2e9, 0, 2.5e3, 30e9, 1.1e9} {
		f := analysis.Flow{ID: fmt.Sprintf("192.0.2.%d>192.0.2.200:0x000001", 5+3*i), Service: "RC", State: analysis.StateOK, Packets: int64(i)}
		if bps > 0 {
			f.GoodputBps = ptr(bps)
		}
		d.Flows = append(d.Flows, f)
	}
	tab := reporttest.Open(t, ctx, writePage(t, Page{Title: "sort", Document: d}), "light", 1280)
	// heads are named by their text, rows by the last byte of the flow's address
	head := func(name string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('[aria-label="Flows"] th button')].find(b => b.textContent === %q)`, name)
	}
	check := func(how, column, wantOrder, wantSort string) {
		t.Helper()
		order := reporttest.Eval[string](tab, `[...document.querySelectorAll('[aria-label="Flows"] tbody tr')].map(r => r.cells[0].textContent.split(">")[0].split(".")[3]).join(" ")`)
		sort := reporttest.Eval[string](tab, `[...document.querySelectorAll('[aria-label="Flows"] th')].map(h => h.textContent + " " + h.getAttribute("aria-sort")).filter(s => !s.endsWith("null")).join(", ")`)
		if order != wantOrder || sort != column+" "+wantSort {
			t.Errorf("%s: rows %s, sorted by %q; want %s, by %q", how, order, sort, wantOrder, column+" "+wantSort)
		}
	}
	click := func(name string) { tab.Do(chromedp.Click(chromedp.JSPath(head(name)))) }
	const descending, ascending = "17 8 20 5 14 11", "14 5 20 8 17 11"
	click("goodput")
	check("first click on goodput", "goodput", descending, "descending")
	click("goodput")
	check("second click on goodput", "goodput", ascending, "ascending")
	click("flow")
	check("click on flow", "flow", "5 8 11 14 17 20", "ascending")
	click("flow")
	check("second click on flow", "flow", "20 17 14 11 8 5", "descending")
	// by keyboard alone: the head is reached with Tab and pressed with Enter and with Space
	press := func(key string) { tab.Do(chromedp.KeyEvent(key)) }
	tab.Do(chromedp.Focus(chromedp.JSPath(head("payload"))))
	press(kb.Tab)
	if focused := reporttest.Eval[string](tab, `document.activeElement.textContent`); focused != "goodput" {
		t.Fatalf("Tab after payload is at %q, want goodput", focused)
	}
	press(kb.Enter)
	check("Enter on goodput", "goodput", descending, "descending")
	press(" ")
	check("Space on goodput", "goodput", ascending, "ascending")
	for _, problem := range tab.Audit() {
		t.Errorf("after sorting: %s", problem)
	}
}
