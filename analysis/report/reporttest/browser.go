// Package reporttest looks at pages in a headless Chromium, for the tests of whoever makes them.
package reporttest

import (
	"context"
	_ "embed"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

//go:embed audit.js
var audit string

// Browser starts a headless Chromium for the test, or skips it.
func Browser(t *testing.T) context.Context {
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

// Tab is one page in the browser and what it complained about.
type Tab struct {
	ctx context.Context
	t   *testing.T

	mu       sync.Mutex
	problems []string
}

func (p *Tab) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}

// Do takes steps in the tab; one that cannot be taken fails the test.
func (p *Tab) Do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// Eval is the value of an expression of the page's script.
func Eval[T any](p *Tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// Command sends one command of the browser's protocol.
func Command[P, R any](p *Tab, c cdp.Command[P, R], params P) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, c, params); err != nil {
		p.t.Fatal(err)
	}
}

// Open loads a file in a tab of its own, in a window of that width and a scheme ("light" or "dark").
func Open(t *testing.T, ctx context.Context, file, scheme string, width int64) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	p := &Tab{ctx: ctx, t: t}
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
	Command(p, network.Enable, network.EnableParams{})
	Command(p, log.Enable, cdp.Empty{})
	Command(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1, Mobile: width < 600})
	Command(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	p.Do(chromedp.Navigate(page), chromedp.WaitReady("body"))
	return p
}

// Audit is all that is wrong with the page: what it asked for and complained about, and how it looks.
func (p *Tab) Audit() []string {
	p.t.Helper()
	looks := Eval[[]string](p, audit)
	p.mu.Lock()
	defer p.mu.Unlock()
	return append(slices.Clone(p.problems), looks...)
}
