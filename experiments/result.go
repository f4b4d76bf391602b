package experiments

import (
	"time"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

// Verdict of a check.
type Verdict string

// A check passes, fails, or is skipped with a reason; skipped is not passed.
const (
	Pass Verdict = "pass"
	Fail Verdict = "fail"
	Skip Verdict = "skip"
)

// CheckResult is one expectation or one agreement between two ways of counting.
type CheckResult struct {
	Name    string        `json:"name"`
	That    string        `json:"that,omitempty"`
	Verdict Verdict       `json:"verdict"`
	Reason  string        `json:"reason,omitempty"`
	Values  []MetricValue `json:"values,omitempty"`

	unmeasured bool // skipped because a metric was not measured: the data is not complete
}

// Result is what a run says. It is result.json of the bundle.
type Result struct {
	Schema    string               `json:"schema"` // pcmlab/result/v1
	Run       string               `json:"run"`
	Dir       string               `json:"-"`
	Playbook  string               `json:"playbook"`
	Lab       string               `json:"lab"`
	State     BundleState          `json:"state"`
	Reason    string               `json:"reason,omitempty"` // why it is not complete
	Verdict   Verdict              `json:"verdict"`          // skip: not judged
	TimeScale float64              `json:"time_scale"`
	Flows     []FlowResult         `json:"flows"`
	Checks    []CheckResult        `json:"checks"`
	Agreement []CheckResult        `json:"agreement"` // counters, captures and the tool's own numbers against each other
	Timing    map[string]TimingRow `json:"timing"`    // lateness of software switches and NICs
	Warnings  []string             `json:"warnings"`
	Analysis  *analysis.Document   `json:"-"` // analysis.json

	growth map[string]map[string]int64 // counters, after minus before
}

// FlowResult is one flow as its tool saw it.
type FlowResult struct {
	Name       string            `json:"name"`
	From       string            `json:"from"`
	To         string            `json:"to"`
	State      string            `json:"state"` // ok, failed, interrupted, not started
	ToolBps    *float64          `json:"tool_goodput_bps"`
	HWToolBps  *float64          `json:"hw_tool_goodput_bps"`
	AskedBps   *float64          `json:"asked_goodput_bps,omitempty"` // traffic.rate_limit
	WindowNS   *int64            `json:"tool_window_ns"`              // what the tool measured over
	AnalysisID []string          `json:"analysis_ids"`
	Failure    *perftest.Failure `json:"failure,omitempty"`

	began  time.Time // the client was released
	qpns   []uint32  // of the receiving side
	back   []uint32  // of the other, which receives too when a flow goes both ways
	margin time.Duration
}

// TimingRow is the lateness of one software device.
type TimingRow struct {
	P50     *int64 `json:"p50_ns"`
	P99     *int64 `json:"p99_ns"`
	Max     *int64 `json:"max_ns"`
	Samples uint64 `json:"samples"`
	Bound   int64  `json:"bound_ns"` // p99 above it: the run is not judged
	OK      bool   `json:"ok"`
}

func (r *Result) warn(text string) {
	for _, w := range r.Warnings {
		if w == text {
			return
		}
	}
	r.Warnings = append(r.Warnings, text)
}

// judge gives the verdict over all checks. A run that is noisy or partial is not judged.
func (r *Result) judge() {
	r.Verdict = Pass
	if r.State != StateComplete {
		r.Verdict = Skip
		return
	}
	for _, c := range append(append([]CheckResult{}, r.Checks...), r.Agreement...) {
		if c.Verdict == Fail {
			r.Verdict = Fail
			return
		}
	}
}
