package experiments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/inventory"
)

// AnalysisInput is analysis-input.json of a bundle: all that the analysis was given, so that `analyze RUN` gives the
// same document again.
type AnalysisInput struct {
	Schema   string                 `json:"schema"` // pcmlab/analysis-input/v1
	Captures []CaptureInput         `json:"captures"`
	Phases   []analysis.Phase       `json:"phases"`
	BinNS    int64                  `json:"bin_ns"`
	Scale    float64                `json:"time_scale"`
	LinkBps  float64                `json:"link_rate_bps"`
	Names    map[string]string      `json:"names"` // data address -> host
	Counters *analysis.CounterDelta `json:"counters"`
	Calls    []string               `json:"handler_calls,omitempty"` // logs of handlers' invocations
	RDCCPort uint16                 `json:"rdcc_port,omitempty"`     // 0: the run was not under credit control
}

// CaptureInput is one capture of a bundle.
type CaptureInput struct {
	File  string   `json:"file"`
	More  []string `json:"more,omitempty"` // of a ring of files, the others
	Tap   string   `json:"tap"`
	Judge bool     `json:"judge"`

	Host   string                `json:"host,omitempty"`
	Said   *capture.ToolCounts   `json:"said,omitempty"` // by the program that captured; null: nothing
	Stamps string                `json:"timestamps,omitempty"`
	Sync   string                `json:"clock_sync,omitempty"`
	PTP    *capture.PTP          `json:"ptp,omitempty"`
	Clock  []capture.ClockSample `json:"clock,omitempty"` // of the host, against this machine
}

// assess does all that needs no host: analysis, expectations, agreement of the counts.
func (r *Runner) assess(ctx context.Context) error {
	defer r.handlerChecks()
	defer r.rdccChecks()
	stayed := r.captured != nil && r.captured.left
	in := r.analysisInput(stayed)
	if r.there != nil { // the document is of this input, and not of what may be known by now
		in = *r.thereOf
	}
	if len(in.Captures) == 0 {
		r.result.warn("nothing was captured: what the wire carried is not measured")
		r.check(&documentMetrics{why: "nothing was captured", counters: r.result.growth})
		return nil
	}
	if err := r.bundle.WriteJSON("analysis-input.json", in); err != nil {
		return err
	}
	if stayed && r.there == nil {
		r.check(&documentMetrics{why: "the captures stayed on their host, and were not analysed there", counters: r.result.growth})
		return nil
	}
	r.event(Event{Event: "analysing"})
	doc, err := r.there, error(nil)
	if doc == nil {
		doc, err = analyzeBundle(ctx, r.bundle.Dir, in)
	}
	if err != nil {
		r.check(&documentMetrics{why: err.Error(), counters: r.result.growth})
		return fmt.Errorf("%w: %w", ErrData, err)
	}
	r.result.Analysis = doc
	if err := r.bundle.WriteJSON("analysis.json", doc); err != nil {
		return err
	}
	m := &documentMetrics{doc: doc, flowIDs: r.matchFlows(doc), counters: r.result.growth}
	r.check(m)
	r.agree(doc)
	return r.quality(doc)
}

// analysisInput describes what was captured, with paths as in the bundle; there: the captures are not in it but on their host.
func (r *Runner) analysisInput(there bool) AnalysisInput {
	in := AnalysisInput{Schema: "pcmlab/analysis-input/v1", Captures: []CaptureInput{}, Phases: []analysis.Phase{}, BinNS: int64(r.Playbook.Bin), Scale: r.plan.Scale,
		LinkBps: r.plan.BottleneckRateBps, Names: map[string]string{}, RDCCPort: r.plan.port()}
	if r.captured != nil {
		for _, tap := range r.captured.taps {
			if c, ok := r.captureInput(tap, there); ok {
				in.Captures = append(in.Captures, c)
			}
		}
	}
	for _, w := range r.windows {
		in.Phases = append(in.Phases, analysis.Phase{Name: w.phase.Name, StartNS: w.start.UnixNano(), EndNS: w.end.UnixNano(),
			TrimStart: trimOrNone(w.phase.TrimStart), TrimEnd: trimOrNone(w.phase.TrimEnd), Flows: r.sources(w.phase.Flows)})
	}
	for host, nic := range r.ends() {
		in.Names[nic.IP.Addr().String()] = host
	}
	for _, host := range slices.Sorted(maps.Keys(r.logged())) {
		if _, err := os.Stat(filepath.Join(r.bundle.Dir, filepath.FromSlash(callsFile(host)))); err == nil {
			in.Calls = append(in.Calls, callsFile(host))
		}
	}
	if n, source := r.movedByCounters(); source != "" {
		in.Counters = &analysis.CounterDelta{Packets: n, Source: source}
	}
	return in
}

// captureInput describes one tap; ok is false when nothing of it is there.
func (r *Runner) captureInput(tap *runningTap, there bool) (c CaptureInput, ok bool) {
	c = CaptureInput{Tap: tap.Tap, Judge: tap.Judge, Host: tap.Host, Said: tap.said, Stamps: "software", Sync: r.syncs[tap.Host], PTP: r.ptps[tap.Host], Clock: r.readings.clockSamples(tap.Host)}
	if s := tap.stats; s != nil && s.Clock != nil {
		c.Stamps = "hardware"
		c.Sync, c.Clock = strings.TrimSuffix(s.Clock.String()+"; "+c.Sync, "; "), s.Clock.Onto(c.Clock)
	}
	for _, f := range tap.files {
		name := "captures/" + f.Name
		if st, err := os.Stat(filepath.Join(r.bundle.Dir, filepath.FromSlash(name))); !there && (err != nil || st.Size() == 0) {
			continue
		}
		if c.File == "" {
			c.File = name
		} else {
			c.More = append(c.More, name)
		}
	}
	return c, c.File != ""
}

func trimOrNone(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// sources are the hosts whose payload flows carry: both ends of those that go both ways.
func (r *Runner) sources(flows []string) []string {
	var out []string
	for _, f := range r.plan.Flows {
		if !slices.Contains(flows, f.Name) {
			continue
		}
		from := []string{f.From}
		if f.params.Bidirectional {
			from = append(from, f.To)
		}
		for _, h := range from {
			if !slices.Contains(out, h) {
				out = append(out, h)
			}
		}
	}
	return out
}

// AnalyzeBundle analyses the captures of a bundle again, exactly as the run did.
func AnalyzeBundle(ctx context.Context, dir string) (*analysis.Document, error) {
	data, err := os.ReadFile(filepath.Join(dir, "analysis-input.json"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	var in AnalysisInput
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("%w: %s: analysis-input.json: %w", ErrInput, dir, err)
	}
	if list, err := LoadCaptured(dir); err != nil {
		return nil, err
	} else if missing := Elsewhere(dir, list); len(missing) > 0 {
		return nil, fmt.Errorf("%w: %s: its captures were analysed on their host and are still there (%s): pcmlab runs fetch %s -i LAB brings them", ErrInput, dir, strings.Join(missing, ", "), dir)
	}
	return analyzeBundle(ctx, dir, in)
}

func analyzeBundle(ctx context.Context, dir string, in AnalysisInput) (*analysis.Document, error) {
	o := analysis.Options{Bin: time.Duration(in.BinNS), Phases: in.Phases, TimeScale: in.Scale, LinkRateBps: in.LinkBps,
		Names: map[netip.Addr]string{}, Counters: in.Counters, RDCCPort: in.RDCCPort}
	for addr, name := range in.Names {
		a, err := netip.ParseAddr(addr)
		if err != nil {
			return nil, err
		}
		o.Names[a] = name
	}
	for _, file := range in.Calls {
		o.Calls = append(o.Calls, filepath.Join(dir, filepath.FromSlash(file)))
	}
	var inputs []analysis.Input
	for _, c := range in.Captures {
		role := analysis.Upstream
		if c.Judge {
			role = analysis.Judged
		}
		input := analysis.Input{Path: filepath.Join(dir, filepath.FromSlash(c.File)), Tap: c.Tap, Role: role,
			Stamped: analysis.Stamped{Host: c.Host, By: c.Stamps, Sync: c.Sync, PTP: c.PTP, Clocks: capture.NewClockMap(c.Clock)}}
		for _, more := range c.More {
			input.More = append(input.More, filepath.Join(dir, filepath.FromSlash(more)))
		}
		if c.Said != nil {
			input.Said = *c.Said
		}
		inputs = append(inputs, input)
	}
	doc, err := analysis.Run(ctx, inputs, o)
	if err != nil {
		return nil, err
	}
	for i := range doc.Files { // the document must not depend on where the bundle lies
		if rel, err := filepath.Rel(dir, doc.Files[i].Path); err == nil {
			doc.Files[i].Path = filepath.ToSlash(rel)
		}
		for k, more := range doc.Files[i].More {
			if rel, err := filepath.Rel(dir, more); err == nil {
				doc.Files[i].More[k] = filepath.ToSlash(rel)
			}
		}
	}
	for i := range doc.HandlerLogs {
		if rel, err := filepath.Rel(dir, doc.HandlerLogs[i].Path); err == nil {
			doc.HandlerLogs[i].Path = filepath.ToSlash(rel)
		}
	}
	for i, n := range doc.Quality.Notes {
		doc.Quality.Notes[i] = strings.ReplaceAll(n, dir+string(filepath.Separator), "")
	}
	return doc, nil
}

// matchFlows joins the playbook's flows to the capture's: by the addresses and the queue pair numbers that the tool
// printed; where it printed none, by the addresses alone when only one flow has them.
func (r *Runner) matchFlows(doc *analysis.Document) map[string][]string {
	ids := map[string][]string{}
	pairs := map[[2]string]int{}
	for _, f := range r.plan.Flows {
		pairs[[2]string{f.fromNIC.IP.Addr().String(), f.toNIC.IP.Addr().String()}]++
	}
	for i, pf := range r.plan.Flows {
		fr := &r.result.Flows[i]
		fr.AnalysisID = []string{}
		src, dst := pf.fromNIC.IP.Addr().String(), pf.toNIC.IP.Addr().String()
		alone := len(fr.qpns) == 0 && pairs[[2]string{src, dst}] == 1
		for _, f := range doc.Flows {
			there := f.Src == src && f.Dst == dst && (alone || slices.Contains(fr.qpns, f.DstQP))
			back := pf.params.Bidirectional && f.Src == dst && f.Dst == src && (alone || slices.Contains(fr.back, f.DstQP))
			if there || back {
				fr.AnalysisID = append(fr.AnalysisID, f.ID)
			}
		}
		ids[pf.Name] = fr.AnalysisID
	}
	return ids
}

// check evaluates the expectations.
func (r *Runner) check(m Metrics) {
	for i, e := range r.Playbook.Expect {
		c := CheckResult{Name: e.Name, That: e.Expr.Text}
		if why := r.plan.Checks[i].Skip; why != "" {
			c.Verdict, c.Reason = Skip, why
			r.result.Checks = append(r.result.Checks, c)
			continue
		}
		ok, values, err := e.Expr.Holds(m)
		c.Values = values
		var missing *NotMeasured
		switch {
		case errors.As(err, &missing):
			c.Verdict, c.Reason, c.unmeasured = Skip, missing.Error(), true
		case err != nil:
			c.Verdict, c.Reason = Fail, err.Error()
		case ok:
			c.Verdict = Pass
		default:
			c.Verdict, c.Reason = Fail, "does not hold"+failing(values)
		}
		r.result.Checks = append(r.result.Checks, c)
	}
}

// failing names the values for which an expectation of each flow does not hold.
func failing(values []MetricValue) string {
	var rows []string
	for _, v := range values {
		if v.Fails {
			rows = append(rows, fmt.Sprintf("%s = %.5g", v.Call, v.Value))
		}
	}
	if rows == nil {
		return ""
	}
	return ": " + strings.Join(rows, ", ")
}

// quality turns what the captures lack into warnings and, where a verdict would rest on it, into an error.
func (r *Runner) quality(doc *analysis.Document) error {
	for _, n := range doc.Quality.Notes {
		r.result.warn("capture: " + n)
	}
	if doc.Quality.Verdict != analysis.Complete && r.result.State == StateComplete {
		return fmt.Errorf("%w: the judged capture is %s", ErrData, doc.Quality.Verdict)
	}
	for _, c := range r.result.Checks {
		if c.unmeasured && r.result.State == StateComplete {
			return fmt.Errorf("%w: %s", ErrData, c.Reason)
		}
	}
	return nil
}

// judgedTap is the tap that the metrics come from, or nil.
func (r *Runner) judgedTap() *inventory.Tap {
	for _, c := range r.plan.Captures {
		if c.Judge {
			return c.tap
		}
	}
	return nil
}
