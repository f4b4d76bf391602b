package report

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/pcmlab/pcmlab/analysis"
)

// browser starts a headless Chromium for the test, or skips it.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := os.Getenv("PCMLAB_CHROMIUM")
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); path == "" && err == nil {
			path = p
		}
	}
	if path == "" {
		t.Skip("no Chromium on this machine (.ci/setup installs Debian's; PCMLAB_CHROMIUM names another)")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.DisableGPU)
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses to run as root with it
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return ctx
}

// tab is one page in the browser and what it complained about.
type tab struct {
	ctx context.Context
	t   *testing.T

	mu       sync.Mutex
	problems []string
}

func (p *tab) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// eval is the value of an expression of the page's script.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// command sends one command of the browser's protocol.
func command[P, R any](p *tab, c cdp.Command[P, R], params P) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, c, params); err != nil {
		p.t.Fatal(err)
	}
}

// open loads a file in a tab of its own, in a window of that width and a scheme ("light" or "dark").
func open(t *testing.T, ctx context.Context, file, scheme string, width int64) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	p := &tab{ctx: ctx, t: t}
	page := (&url.URL{Scheme: "file", Path: file}).String()
	if err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			p.say("script: %s", e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			p.say("console: %s", e.Type)
		case *log.EventEntryAdded:
			p.say("console: %s", e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if e.Request.URL != page {
				p.say("request: %s", e.Request.URL)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	command(p, network.Enable, network.EnableParams{})
	command(p, log.Enable, cdp.Empty{})
	command(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1, Mobile: width < 600})
	command(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	p.do(chromedp.Navigate(page), chromedp.WaitReady("body"))
	return p
}

// audit is all that is wrong with the page: what it asked for and complained about, and how it looks.
func (p *tab) audit() []string {
	p.t.Helper()
	script, err := os.ReadFile("testdata/audit.js")
	if err != nil {
		p.t.Fatal(err)
	}
	looks := eval[[]string](p, string(script))
	p.mu.Lock()
	defer p.mu.Unlock()
	return append(slices.Clone(p.problems), looks...)
}

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
	ctx := browser(t)
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
				tab := open(t, ctx, file, scheme, width)
				for _, problem := range tab.audit() {
					t.Errorf("page %q, %s, %d px: %s", name, scheme, width, problem)
				}
				grounds[scheme] = eval[string](tab, `getComputedStyle(document.body).backgroundColor`)
			}
		}
		if grounds["light"] == grounds["dark"] {
			t.Errorf("page %q: the background is %s in both schemes", name, grounds["light"])
		}
	}
}

// TestPage_prints: on paper a reader of the dark page has dark text on white, and all rows of long tables.
func TestPage_prints(t *testing.T) {
	ctx := browser(t)
	tab := open(t, ctx, writePage(t, Page{Title: "many flows", Document: crowd(60)}), "dark", 1280)
	const boxes = `[...document.querySelectorAll(".scroll")].filter(e => e.scrollHeight > e.clientHeight + 1).length`
	if n := eval[int](tab, boxes); n == 0 {
		t.Error("on screen no table scrolls: this test looks at nothing")
	}
	command(tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print", Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
	for _, problem := range tab.audit() {
		t.Errorf("printed: %s", problem)
	}
	if ground := eval[string](tab, `getComputedStyle(document.body).backgroundColor`); ground != "rgb(255, 255, 255)" {
		t.Errorf("printed on %s", ground)
	}
	if n := eval[int](tab, boxes); n != 0 {
		t.Errorf("%d tables are cut off on paper", n)
	}
}

// TestAudit_findsFaults: the audit that pages must pass finds each fault of a page that has all of them.
func TestAudit_findsFaults(t *testing.T) {
	ctx := browser(t)
	bad, err := filepath.Abs("testdata/bad.html")
	if err != nil {
		t.Fatal(err)
	}
	tab := open(t, ctx, bad, "light", 1280)
	found := strings.Join(tab.audit(), "\n")
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
	ctx := browser(t)
	d := &analysis.Document{TimeScale: 1, Quality: analysis.Quality{Verdict: analysis.Complete}}
	for i, bps := range []float64{999e6, 1.2e9, 0, 2.5e3, 30e9, 1.1e9} {
		f := analysis.Flow{ID: fmt.Sprintf("192.0.2.%d>192.0.2.200:0x000001", 5+3*i), Service: "RC", State: analysis.StateOK, Packets: int64(i)}
		if bps > 0 {
			f.GoodputBps = ptr(bps)
		}
		d.Flows = append(d.Flows, f)
	}
	tab := open(t, ctx, writePage(t, Page{Title: "sort", Document: d}), "light", 1280)
	// heads are named by their text, rows by the last byte of the flow's address
	head := func(name string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('[aria-label="Flows"] th button')].find(b => b.textContent === %q)`, name)
	}
	check := func(how, column, wantOrder, wantSort string) {
		t.Helper()
		order := eval[string](tab, `[...document.querySelectorAll('[aria-label="Flows"] tbody tr')].map(r => r.cells[0].textContent.split(">")[0].split(".")[3]).join(" ")`)
		sort := eval[string](tab, `[...document.querySelectorAll('[aria-label="Flows"] th')].map(h => h.textContent + " " + h.getAttribute("aria-sort")).filter(s => !s.endsWith("null")).join(", ")`)
		if order != wantOrder || sort != column+" "+wantSort {
			t.Errorf("%s: rows %s, sorted by %q; want %s, by %q", how, order, sort, wantOrder, column+" "+wantSort)
		}
	}
	click := func(name string) { tab.do(chromedp.Click(chromedp.JSPath(head(name)))) }
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
	press := func(key string) { tab.do(chromedp.KeyEvent(key)) }
	tab.do(chromedp.Focus(chromedp.JSPath(head("payload"))))
	press(kb.Tab)
	if focused := eval[string](tab, `document.activeElement.textContent`); focused != "goodput" {
		t.Fatalf("Tab after payload is at %q, want goodput", focused)
	}
	press(kb.Enter)
	check("Enter on goodput", "goodput", descending, "descending")
	press(" ")
	check("Space on goodput", "goodput", ascending, "ascending")
	for _, problem := range tab.audit() {
		t.Errorf("after sorting: %s", problem)
	}
}
