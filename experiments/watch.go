package experiments

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/nicbackends/counters"
)

// Readings are what hosts said of clocks and counters before, during and after the traffic.
type readings struct {
	r       *Runner
	watches map[string]*counters.Watch

	mu     sync.Mutex
	clocks map[string][]counters.Clock
	marks  []mark // of all hosts, as they came
	files  map[string]*os.File
	last   map[string]*counters.Reading // of a host, as written
	failed map[string]bool
	cost   map[string]time.Duration // what a reading took before the traffic
	warned []string
	spawn  func(do func(context.Context)) // something that goes on beside the phases, until the watches are closed
	cancel context.CancelFunc
	ticks  func() // ends the samples; nil: there are none
	wg     sync.WaitGroup
}

// mark is a reading at a moment that matters: before, the begin of a phase, the end of the last one, after.
type mark struct {
	host    string
	when    string // "idle", "before", "phase", "end", "after"
	phase   string
	reading *counters.Reading
}

// How often clocks are compared before and after, and how long one question may take.
const (
	clockRounds   = 6
	askTimeout    = 5 * time.Second  // while traffic flows
	aroundTimeout = 20 * time.Second // before and after it
)

// DefaultSample is how often counters and clocks are read during the phases on hardware.
const DefaultSample = time.Second

// startReadings starts a watch on each host and reads for the first time. A host that cannot be watched has a warning: what it would have
// said is not known, and the run is what it is.
func (r *Runner) startReadings(ctx context.Context) *readings {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	rd := &readings{r: r, cancel: cancel, watches: map[string]*counters.Watch{}, clocks: map[string][]counters.Clock{}, files: map[string]*os.File{}, last: map[string]*counters.Reading{}, failed: map[string]bool{}, cost: map[string]time.Duration{}}
	rd.spawn = func(do func(context.Context)) { rd.wg.Go(func() { do(life) }) }
	rd.each(r.plan.hostNames(), func(host string) {
		q := counters.Question{Netdevs: r.plan.netdevs(host), Tools: r.Lab.Virtual == nil, Deadline: r.plan.Duration + 20*time.Minute}
		w, err := counters.Start(ctx, r.hosts[host], q)
		if err != nil {
			rd.fail(host, err)
			return
		}
		rd.mu.Lock()
		rd.watches[host] = w
		rd.mu.Unlock()
	})
	r.onUndo("end the watches of clocks and counters", rd.close)
	rd.compare(ctx)
	rd.mark(ctx, "idle", "")
	return rd
}

// each calls do for hosts at once.
func (rd *readings) each(hosts []string, do func(host string)) {
	var wg sync.WaitGroup
	for _, h := range hosts {
		wg.Go(func() { do(h) })
	}
	wg.Wait()
}

// fail notes a host that does not answer, once.
func (rd *readings) fail(host string, err error) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if !rd.failed[host] {
		rd.failed[host] = true
		rd.warned = append(rd.warned, fmt.Sprintf("clock and counters of %s over time are not known: %v", host, err))
	}
}

// answering are the hosts that have answered so far.
func (rd *readings) answering() []string {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	var hosts []string
	for _, h := range slices.Sorted(maps.Keys(rd.watches)) {
		if !rd.failed[h] {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// compare compares all clocks a few times; of each host the comparison that knows best is kept.
func (rd *readings) compare(ctx context.Context) {
	rd.each(rd.answering(), func(host string) {
		ctx, cancel := context.WithTimeout(ctx, aroundTimeout)
		defer cancel()
		c, err := rd.watches[host].Clocks(ctx, clockRounds)
		if err != nil {
			rd.fail(host, err)
			return
		}
		rd.mu.Lock()
		defer rd.mu.Unlock()
		rd.clocks[host] = append(rd.clocks[host], c)
	})
}

// mark reads the counters of all hosts at a moment that matters.
func (rd *readings) mark(ctx context.Context, when, phase string) {
	rd.each(rd.answering(), func(host string) { rd.read(ctx, host, when, phase) })
}

func (rd *readings) read(ctx context.Context, host, when, phase string) {
	limit := aroundTimeout
	if when == "phase" || when == "sample" {
		limit = askTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	reading, clock, err := rd.watches[host].Read(ctx)
	took := time.Since(began)
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded): // a busy host: it is asked again at the next occasion
		rd.mu.Lock()
		defer rd.mu.Unlock()
		rd.warned = append(rd.warned, fmt.Sprintf("clock and counters of %s were not read in time (%s)", host, strings.TrimSpace(when+" "+phase)))
		return
	default:
		rd.fail(host, err)
		return
	}
	rd.mu.Lock()
	defer rd.mu.Unlock()
	rd.clocks[host] = append(rd.clocks[host], clock)
	if when == "idle" || when == "before" {
		rd.cost[host] = took
	}
	if when != "sample" {
		rd.marks = append(rd.marks, mark{host, when, phase, reading})
	}
	rd.write(host, when, phase, reading, clock)
}

// line is one line of counters/HOST.jsonl.
type readingLine struct {
	When  string          `json:"when"` // idle, before, phase, sample, end, after
	Phase string          `json:"phase,omitempty"`
	Clock *counters.Clock `json:"clock"`
	counters.Reading
}

// write keeps a reading as it is; of a sample, what has changed since the line before.
func (rd *readings) write(host, when, phase string, reading *counters.Reading, clock counters.Clock) {
	f := rd.files[host]
	if f == nil {
		p, err := rd.r.bundle.Path("counters/" + host + ".jsonl")
		if err == nil {
			f, err = os.Create(p)
		}
		if err != nil {
			rd.warned = append(rd.warned, err.Error())
			return
		}
		rd.files[host] = f
	}
	line := readingLine{when, phase, &clock, *reading}
	if when == "sample" {
		line.Sets = changedSets(rd.last[host], reading)
	}
	rd.last[host] = reading
	text, err := json.Marshal(line)
	if err == nil {
		_, err = f.Write(append(text, '\n'))
	}
	if err != nil {
		rd.warned = append(rd.warned, fmt.Sprintf("counters of %s: %v", host, err))
	}
}

// changedSets are the values of a reading that differ from an earlier one.
func changedSets(before, after *counters.Reading) []counters.Set {
	out := []counters.Set{}
	for _, a := range after.Sets {
		if before != nil {
			if b := before.Set(a.Source, a.Object); b != nil && b.Birth == a.Birth {
				values := map[string]uint64{}
				for name, v := range a.Values {
					if was, ok := b.Values[name]; !ok || was != v {
						values[name] = v
					}
				}
				a.Values = values
			}
		}
		if len(a.Values) > 0 {
			out = append(out, a)
		}
	}
	return out
}

// follow reads at the borders of phases, without holding them up, and between them as often as the playbook says.
func (rd *readings) follow(e Event) {
	if rd == nil {
		return
	}
	switch e.Event {
	case "phase_start":
		rd.spawn(func(ctx context.Context) {
			rd.each(rd.quick(), func(host string) { rd.read(ctx, host, "phase", e.Phase) })
		})
		if every := rd.r.plan.Sample; rd.ticks == nil && every > 0 {
			stop := make(chan struct{})
			rd.ticks = sync.OnceFunc(func() { close(stop) })
			rd.spawn(func(ctx context.Context) { rd.sample(ctx, stop, every) })
		}
	case "phases_end":
		rd.spawn(func(ctx context.Context) { rd.each(rd.quick(), func(host string) { rd.read(ctx, host, "end", "") }) })
	}
}

// sampleShare is the part of a host's time that samples may take, one in: they are there to show the traffic, not to slow it.
const sampleShare = 20

// quick are the hosts that can be read at the borders of phases. Of the others it is known what moved in all of the run.
func (rd *readings) quick() []string {
	shortest := rd.r.plan.Duration
	for _, ph := range rd.r.plan.Phases {
		shortest = min(shortest, ph.For)
	}
	return slices.DeleteFunc(rd.answering(), func(host string) bool {
		rd.mu.Lock()
		defer rd.mu.Unlock()
		cost := rd.cost[host]
		if cost <= shortest { // what is read over more than a phase says nothing of its border
			return false
		}
		rd.warn(fmt.Sprintf("counters of %s are not read at the borders of phases: a reading takes %v there, longer than a phase", host, cost.Round(time.Millisecond)))
		return true
	})
}

// warn is called with mu held.
func (rd *readings) warn(text string) {
	if !slices.Contains(rd.warned, text) {
		rd.warned = append(rd.warned, text)
	}
}

// sample reads each host as often as the playbook says. Where that would take too much of its time, it is read less often, and the
// run says so.
func (rd *readings) sample(ctx context.Context, stop <-chan struct{}, every time.Duration) {
	rd.each(rd.answering(), func(host string) {
		took := time.Duration(0) // what one took before the traffic, when all hosts were asked at once, is no measure
		for said := false; ; {
			pause := pauseAfter(took, every)
			if pause > every && !said {
				said = true
				rd.mu.Lock()
				rd.warn(fmt.Sprintf("counters of %s are sampled less often than each %v: a reading takes %v there, and samples may take a twentieth of the time", host, every, took.Round(time.Millisecond)))
				rd.mu.Unlock()
			}
			t := time.NewTimer(pause)
			select {
			case <-ctx.Done():
				t.Stop()
				return
			case <-stop:
				t.Stop()
				return
			case <-t.C:
			}
			began := time.Now()
			rd.read(ctx, host, "sample", "")
			took = time.Since(began)
		}
	})
}

// pauseAfter is when the next sample begins after one that took a while, so that they come at the asked interval or take their share.
func pauseAfter(took, every time.Duration) time.Duration {
	return max(every-took, (sampleShare-1)*took)
}

// end reads for the last time. What the traffic left behind must be at rest.
func (rd *readings) end(ctx context.Context) error {
	if rd.ticks != nil {
		rd.ticks()
	}
	rd.wg.Wait()
	rd.mark(ctx, "after", "")
	rd.compare(ctx)
	rd.mu.Lock()
	defer rd.mu.Unlock()
	for _, text := range rd.warned {
		rd.r.result.warn(text)
	}
	return nil
}

func (rd *readings) close(ctx context.Context) error {
	if rd.ticks != nil {
		rd.ticks()
	}
	rd.cancel()
	rd.wg.Wait()
	rd.each(slices.Collect(maps.Keys(rd.watches)), func(host string) { rd.watches[host].Close(ctx) })
	for _, f := range rd.files {
		f.Close()
	}
	return nil
}

// clockSamples are the comparisons of a host's clock, in order.
func (rd *readings) clockSamples(host string) []capture.ClockSample {
	if rd == nil {
		return nil
	}
	rd.mu.Lock()
	defer rd.mu.Unlock()
	var out []capture.ClockSample
	for _, c := range rd.clocks[host] {
		out = append(out, capture.ClockSample{AtNS: c.At.UnixNano(), OffsetNS: c.OffsetNS, ErrorNS: c.ErrorNS})
	}
	slices.SortFunc(out, func(a, b capture.ClockSample) int { return cmp.Compare(a.AtNS, b.AtNS) })
	return out
}

func (p *Plan) hostNames() []string {
	var out []string
	for _, h := range p.Hosts {
		out = append(out, h.Name)
	}
	return out
}

// netdevs are the interfaces of a host that take part: of its NICs and of its taps.
func (p *Plan) netdevs(host string) []string {
	var out []string
	add := func(at, name string) {
		if at == host && name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for _, f := range p.Flows {
		add(f.From, f.fromNIC.Netdev)
		add(f.To, f.toNIC.Netdev)
	}
	for _, c := range p.Captures {
		add(c.Host, c.Iface)
	}
	return out
}
