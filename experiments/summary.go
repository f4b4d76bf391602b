package experiments

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pcmlab/pcmlab/analysis"
)

// Summary is summary.json of a run's folder: the little that repeats, sweeps, baselines, the store and reports over many
// runs need of each. It follows from the other files of the folder, which stay the truth.
type Summary struct {
	Schema    string      `json:"schema"` // pcmlab/summary/v1
	Run       string      `json:"run"`
	Dir       string      `json:"-"` // where it was read
	Playbook  string      `json:"playbook"`
	Lab       string      `json:"lab"`
	Trial     *Trial      `json:"trial"` // null: no part of a sweep
	State     BundleState `json:"state"`
	Reason    string      `json:"reason,omitempty"`
	Verdict   Verdict     `json:"verdict"`
	Began     time.Time   `json:"began"`
	Ended     time.Time   `json:"ended"`
	TimeScale float64     `json:"time_scale"`
	// LineRateBps is the rate of the bottleneck as built; null when there is none to name.
	LineRateBps *float64 `json:"line_rate_bps"`
	// Inputs is InputsHash of the playbook and the lab as they were run: equal for repeats of one cell.
	Inputs string `json:"inputs_sha256"`
	// Trace is the SHA-256 of what the judged capture showed over time, counted from its first packet. Two measurements are
	// never equal; null when nothing was captured.
	Trace      *string           `json:"trace_sha256"`
	Checks     []CheckResult     `json:"checks"`     // expectations
	Scores     []Score           `json:"scores"`     // whole run first, then by phase and flow
	Provenance map[string]string `json:"provenance"` // what may differ between runs of the same inputs: "host.h1.kernel"
}

// SummaryFile is its name in a run's folder.
const SummaryFile = "summary.json"

// StateUnfinished is the state of a run's folder without a manifest: the run was killed, or goes on.
const StateUnfinished BundleState = "unfinished"

// Trial says which part of a sweep a run is. It is trial.json of its folder.
type Trial struct {
	Sweep  string  `json:"sweep"`
	Cell   string  `json:"cell"`
	Repeat int     `json:"repeat"` // from 1; a warm-up counts apart
	Warmup bool    `json:"warmup"`
	Params []Param `json:"params"` // of the cell, in the playbook's order
}

// Param is one parameter of a cell, as --set KEY=VALUE would give it.
type Param struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Score is one number of a run.
type Score struct {
	Metric string   `json:"metric"`
	Phase  string   `json:"phase,omitempty"`
	Flow   string   `json:"flow,omitempty"`
	Value  *float64 `json:"value"` // null: not measured
	Unit   string   `json:"unit"`
	Reason string   `json:"reason,omitempty"` // why it was not measured
}

// Name is the score as expectations write it: jain(phase="three").
func (s *Score) Name() string { return s.Metric + Query{s.Phase, s.Flow}.String() }

// LoadSummary reads the summary of a run's folder, and makes it where an older pcmlab left none or the run did not end.
func LoadSummary(dir string) (*Summary, error) {
	s := &Summary{}
	data, err := os.ReadFile(filepath.Join(dir, SummaryFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if s, err = Summarise(dir); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	default:
		if err := json.Unmarshal(data, s); err != nil {
			return nil, fmt.Errorf("%w: %s: %s: %w", ErrData, dir, SummaryFile, err)
		}
		s.Dir = dir
	}
	if s.State != StateUnfinished && !isFile(dir, "manifest.json") {
		s.State, s.Reason = StateUnfinished, "the run was killed as it ended"
	}
	return s, nil
}

// Summarise makes the summary of a run's folder from its other files.
func Summarise(dir string) (*Summary, error) {
	if !IsRun(dir) {
		return nil, fmt.Errorf("%w: %s is no folder of a run", ErrInput, dir)
	}
	s := &Summary{Schema: "pcmlab/summary/v1", Run: filepath.Base(dir), Dir: dir, State: StateUnfinished, Verdict: Skip, TimeScale: 1,
		Checks: []CheckResult{}, Scores: []Score{}, Provenance: map[string]string{}}
	var plan Plan
	var result Result
	var trial Trial
	var doc analysis.Document
	var manifest Manifest
	have := map[string]bool{}
	for name, into := range map[string]any{"plan.json": &plan, "result.json": &result, "trial.json": &trial, "analysis.json": &doc, "manifest.json": &manifest} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %s: %w", ErrData, dir, name, err)
		}
		have[name] = true
	}
	s.Playbook, s.Lab = plan.Playbook, plan.Lab
	if plan.Scale > 0 {
		s.TimeScale = plan.Scale
	}
	if plan.BottleneckRateBps > 0 {
		s.LineRateBps = &plan.BottleneckRateBps
	}
	if have["trial.json"] {
		s.Trial = &trial
	}
	if have["result.json"] {
		s.Run, s.State, s.Reason, s.Verdict, s.Checks = result.Run, result.State, result.Reason, result.Verdict, result.Checks
	} else {
		s.Reason = "the run was killed, could not write its folder, or goes on"
	}
	s.Began, s.Ended = manifest.Began, manifest.Ended
	if !have["manifest.json"] {
		s.Began = firstEvent(dir)
	}
	if have["analysis.json"] {
		result.Analysis = &doc
		s.Trace = traceOf(&doc)
	}
	s.Scores = scores(&plan, &result)
	s.provenance(dir, &plan)
	return s, nil
}

// IsRun says that dir is the folder of a run, ended or not.
func IsRun(dir string) bool { return isFile(dir, "timeline.jsonl") && !isFile(dir, SweepFile) }

// SweepFile is what makes a folder one of a sweep.
const SweepFile = "sweep.json"

func isFile(dir, name string) bool {
	st, err := os.Stat(filepath.Join(dir, name))
	return err == nil && st.Mode().IsRegular()
}

// FindRuns lists the folders of runs at or below path, sorted: path itself, those of a sweep, those of a folder of runs and sweeps.
// Folders whose names begin with a dot are left out.
func FindRuns(path string) ([]string, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	var runs []string
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		case p != path && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case IsRun(p):
			runs = append(runs, p)
			return fs.SkipDir
		}
		return nil
	})
	return runs, err
}

// LoadRuns reads the summaries of all runs at or below paths, each once, in the order of paths. All that cannot be read is said
// at once.
func LoadRuns(paths ...string) ([]*Summary, error) {
	var dirs []string
	var errs []error
	seen := map[string]bool{}
	for _, p := range paths {
		found, err := FindRuns(p)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("%w: %s: no folder of a run is at or below it", ErrInput, p)
		}
		errs = append(errs, err)
		for _, dir := range found {
			abs, err := filepath.Abs(dir)
			if err != nil {
				abs = dir
			}
			if !seen[abs] {
				dirs = append(dirs, dir)
			}
			seen[abs] = true
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	runs := make([]*Summary, len(dirs))
	failed := make([]error, len(dirs))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, dir := range dirs {
		g.Go(func() error {
			runs[i], failed[i] = LoadSummary(dir)
			return nil
		})
	}
	g.Wait()
	return runs, errors.Join(failed...)
}

// scores are all metrics of a run, of the whole and of each phase and flow for which the metric exists.
func scores(plan *Plan, r *Result) []Score {
	m := &documentMetrics{doc: r.Analysis, flowIDs: map[string][]string{}, why: "nothing was captured"}
	for _, f := range r.Flows {
		m.flowIDs[f.Name] = f.AnalysisID
	}
	queries := []Query{{}}
	for _, ph := range plan.Phases {
		queries = append(queries, Query{Phase: ph.Name})
	}
	for _, f := range plan.Flows {
		queries = append(queries, Query{Flow: f.Name})
	}
	for _, ph := range plan.Phases {
		for _, f := range ph.Flows {
			queries = append(queries, Query{ph.Name, f})
		}
	}
	all := []Score{}
	for _, q := range queries {
		for _, info := range MetricCatalogue {
			if info.Derived || info.of&q.scope() == 0 {
				continue
			}
			s := Score{Metric: info.Name, Phase: q.Phase, Flow: q.Flow, Unit: info.Unit}
			v, err := m.Value(info.Name, q)
			var missing *NotMeasured
			switch {
			case err == nil:
				s.Value = &v
			case errors.As(err, &missing):
				s.Reason = missing.Reason
			default:
				s.Reason = err.Error()
			}
			all = append(all, s)
		}
	}
	return all
}

func traceOf(doc *analysis.Document) *string {
	data, err := json.Marshal([]any{doc.Totals, doc.Series.BinNS, doc.Series.Jain, doc.Series.Flows})
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(data)
	text := hex.EncodeToString(sum[:])
	return &text
}

func firstEvent(dir string) (at time.Time) {
	data, err := os.ReadFile(filepath.Join(dir, "timeline.jsonl"))
	if err != nil {
		return at
	}
	line, _, _ := strings.Cut(string(data), "\n")
	var e Event
	if json.Unmarshal([]byte(line), &e) == nil {
		at = e.At
	}
	return at
}

// provenance flattens what the run depended on besides its inputs.
func (s *Summary) provenance(dir string, plan *Plan) {
	var cmd struct {
		Inputs string `json:"inputs_sha256"`
		Build  map[string]any
	}
	if data, err := os.ReadFile(filepath.Join(dir, "command.json")); err == nil && json.Unmarshal(data, &cmd) == nil {
		s.Inputs = cmd.Inputs
		for k, v := range cmd.Build {
			s.Provenance["pcmlab."+k] = fmt.Sprint(v)
		}
	}
	for _, h := range plan.Handlers {
		key := "handler." + h.Host
		if s.Provenance[key] != "" || h.Match != "" { // of several, each has its own
			key += "." + h.Counter
		}
		s.Provenance[key] = h.Name + " " + h.Hash
	}
	for _, h := range plan.Hosts {
		data, err := os.ReadFile(filepath.Join(dir, "hosts", h.Name, "facts.json"))
		if err != nil {
			continue
		}
		var facts Facts
		if json.Unmarshal(data, &facts) != nil {
			continue
		}
		for k, v := range facts.Flat() {
			s.Provenance["host."+h.Name+"."+k] = v
		}
	}
}
