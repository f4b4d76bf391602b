package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"

	"github.com/pcmlab/pcmlab/experiments"
)

// progressView shows a run as it happens: bars on a terminal, one line a step elsewhere, nothing with --quiet.
type progressView struct {
	e     *env
	began time.Time

	mu     sync.Mutex
	bars   progress.Writer
	tracks map[string]*progress.Tracker
	ends   chan struct{}
	once   sync.Once
	phases map[string]time.Duration
}

func (e *env) newProgress(p *experiments.Playbook) *progressView {
	v := &progressView{e: e, began: time.Now(), tracks: map[string]*progress.Tracker{}, ends: make(chan struct{}), phases: map[string]time.Duration{}}
	for _, ph := range p.Phases {
		v.phases[ph.Name] = ph.For
	}
	if e.terminal && !e.quiet {
		w := e.newBars()
		go w.Render()
		v.bars = w
	}
	return v
}

// newBars is an empty set of progress bars on standard error.
func (e *env) newBars() progress.Writer {
	w := progress.NewWriter()
	w.SetOutputWriter(e.stderr)
	w.SetUpdateFrequency(100 * time.Millisecond)
	w.SetTrackerLength(28)
	w.SetMessageLength(36)
	w.SetAutoStop(false)
	style := progress.StyleDefault
	if e.colour {
		style.Colors = progress.StyleColorsExample
	}
	style.Visibility = progress.StyleVisibility{Percentage: true, Time: true, Tracker: true, TrackerOverall: false}
	w.SetStyle(style)
	return w
}

// step says what is going on.
func (v *progressView) step(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	switch {
	case v.e.quiet:
	case v.bars != nil:
		v.bars.Log("%6.1fs  %s", time.Since(v.began).Seconds(), text)
	default:
		fmt.Fprintf(v.e.stderr, "%6.1fs  %s\n", time.Since(v.began).Seconds(), text)
	}
}

// event shows one event of the run's timeline.
func (v *progressView) event(ev experiments.Event) {
	switch ev.Event {
	case "note":
		v.step("note: %s", ev.Text)
	case "host_reached":
		v.e.log.Info("host reached", "host", ev.Host)
	case "waiting":
		v.step("waiting: %s", ev.Text)
	case "capture_ready":
		v.step("capture %s listens on %s", ev.Text, ev.Host)
	case "traffic_ready":
		v.step("%s", ev.Text)
	case "phase_start":
		v.phase(ev)
	case "flow_started":
		v.e.log.Info("flow started", "flow", ev.Flow)
	case "flow_failed":
		v.step("flow %s FAILED: %s", ev.Flow, ev.Text)
	case "drained":
		v.finishPhases()
		v.step("traffic has come to rest")
	case "analysing":
		v.step("analysing the captures")
	}
}

func (v *progressView) phase(ev experiments.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	length := v.phases[ev.Phase]
	if v.bars == nil {
		v.step("phase %s (%v): %s", ev.Phase, length, ev.Text)
		return
	}
	for _, t := range v.tracks {
		t.MarkAsDone()
	}
	t := &progress.Tracker{Message: fmt.Sprintf("phase %s: %s", ev.Phase, ev.Text), Total: length.Milliseconds()}
	v.tracks[ev.Phase] = t
	v.bars.AppendTracker(t)
	began := time.Now()
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for !t.IsDone() {
			select {
			case <-v.ends:
				return
			case <-tick.C:
				t.SetValue(min(time.Since(began).Milliseconds(), length.Milliseconds()-1))
			}
		}
	}()
}

func (v *progressView) finishPhases() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, t := range v.tracks {
		t.MarkAsDone()
	}
}

func (v *progressView) stop() {
	v.once.Do(func() {
		close(v.ends)
		if v.bars != nil {
			stopBars(v.bars)
		}
	})
}

// stopBars waits until the last state is drawn.
func stopBars(w progress.Writer) {
	w.Stop()
	for w.IsRenderInProgress() {
		<-time.After(10 * time.Millisecond)
	}
}

func mustGetwd() string {
	wd, err := os.Getwd()
	if err != nil {
		return "/"
	}
	return wd
}
