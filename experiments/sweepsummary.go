package experiments

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/pcmlab/pcmlab/experiments/stats"
)

// SweepSummary is summary.json of a sweep's folder: statistics per cell. It follows from the folders of its runs, which stay the truth.
type SweepSummary struct {
	Schema   string        `json:"schema"` // pcmlab/sweep-summary/v1
	Sweep    string        `json:"sweep"`
	Dir      string        `json:"-"`
	Playbook string        `json:"playbook"`
	Lab      string        `json:"lab"`
	Made     time.Time     `json:"made"`
	Counts   TrialCounts   `json:"counts"` // of all cells
	Cells    []CellSummary `json:"cells"`
	Partial  []PartialRun  `json:"partial_runs,omitempty"`
	LeftOut  []string      `json:"left_out"` // folders of trials that have no run
}

// PartialRun is a run whose figures are in no cell, with the checks that could be judged all the same: that so much was lost that no
// message ended can be what a cell is there to show.
type PartialRun struct {
	Folder string        `json:"folder"`
	Checks []CheckResult `json:"checks"`
}

// TrialCounts say what became of the trials of a cell or sweep, warm-ups apart.
type TrialCounts struct {
	Planned    int `json:"planned"`
	Complete   int `json:"complete"`
	Noisy      int `json:"noisy"`
	Partial    int `json:"partial"`
	Unfinished int `json:"unfinished"`
	Missing    int `json:"missing"` // no folder
	Passed     int `json:"passed"`  // of the complete: all checks hold
	Failed     int `json:"failed"`  // of the complete: a check does not hold
	Warmups    int `json:"warmups"` // complete ones
}

// CellSummary is one cell. Scores are of its complete runs alone.
type CellSummary struct {
	ID     string         `json:"id"`
	Params []Param        `json:"params"`
	Counts TrialCounts    `json:"counts"`
	Scores []ScoreSummary `json:"scores"`
}

// ScoreSummary is one score over the complete runs of a cell.
type ScoreSummary struct {
	Metric      string   `json:"metric"`
	Phase       string   `json:"phase,omitempty"`
	Flow        string   `json:"flow,omitempty"`
	Unit        string   `json:"unit"`
	NotMeasured int      `json:"not_measured"` // complete runs without a value
	Runs        []string `json:"runs"`         // folders of the values, which outliers point into
	stats.Description
}

// Name is the score as expectations write it.
func (s *ScoreSummary) Name() string { return s.Metric + Query{s.Phase, s.Flow}.String() }

// Score finds a score of a cell by its name, or nil.
func (c *CellSummary) Score(name string) *ScoreSummary {
	for i := range c.Scores {
		if c.Scores[i].Name() == name {
			return &c.Scores[i]
		}
	}
	return nil
}

// Summarise reads the runs of the sweep and describes each cell.
func (s *Sweep) Summarise(now time.Time) (*SweepSummary, error) {
	out := &SweepSummary{Schema: "pcmlab/sweep-summary/v1", Sweep: s.ID, Dir: s.Dir, Playbook: s.Playbook, Lab: s.Lab, Made: now.UTC(),
		Cells: []CellSummary{}, LeftOut: []string{}}
	runs := map[string][]*Summary{}
	counts := map[string]*TrialCounts{}
	var errs []error
	for _, t := range s.Trials {
		n := counts[t.Cell]
		if n == nil {
			n = &TrialCounts{}
			counts[t.Cell] = n
		}
		if !t.Warmup {
			n.Planned++
		}
		dir := filepath.Join(s.Dir, t.Folder())
		var run *Summary
		if IsRun(dir) {
			var err error
			if run, err = LoadSummary(dir); err != nil {
				errs = append(errs, err)
			}
		}
		n.add(t, run)
		switch {
		case run == nil:
			out.LeftOut = append(out.LeftOut, t.Folder())
		case t.Warmup:
		case run.State == StateComplete:
			runs[t.Cell] = append(runs[t.Cell], run)
		case run.State == StatePartial:
			judged := slices.DeleteFunc(slices.Clone(run.Checks), func(c CheckResult) bool { return c.Verdict == Skip })
			if len(judged) > 0 {
				out.Partial = append(out.Partial, PartialRun{t.Folder(), judged})
			}
		}
	}
	for _, c := range s.Cells {
		n := counts[c.ID]
		if n == nil {
			n = &TrialCounts{}
		}
		out.Cells = append(out.Cells, CellSummary{ID: c.ID, Params: c.Params, Counts: *n, Scores: describe(s.Dir, runs[c.ID], s.Seed)})
		out.Counts.sum(n)
	}
	return out, errors.Join(errs...)
}

func (n *TrialCounts) add(t Trial, run *Summary) {
	switch {
	case t.Warmup:
		if run != nil && run.State == StateComplete {
			n.Warmups++
		}
	case run == nil:
		n.Missing++
	case run.State == StateComplete:
		n.Complete++
		switch run.Verdict {
		case Pass:
			n.Passed++
		case Fail:
			n.Failed++
		}
	case run.State == StateNoisy:
		n.Noisy++
	case run.State == StatePartial:
		n.Partial++
	default:
		n.Unfinished++
	}
}

func (n *TrialCounts) sum(o *TrialCounts) {
	n.Planned += o.Planned
	n.Complete += o.Complete
	n.Noisy += o.Noisy
	n.Partial += o.Partial
	n.Unfinished += o.Unfinished
	n.Missing += o.Missing
	n.Passed += o.Passed
	n.Failed += o.Failed
	n.Warmups += o.Warmups
}

// describe gives the figures of each score, in the order of the first run that has it.
func describe(root string, runs []*Summary, seed uint64) []ScoreSummary {
	out := []ScoreSummary{}
	at := map[string]int{}
	var values [][]float64
	for _, r := range runs {
		folder, _ := filepath.Rel(root, r.Dir)
		for _, s := range r.Scores {
			i, ok := at[s.Name()]
			if !ok {
				i = len(out)
				at[s.Name()] = i
				out = append(out, ScoreSummary{Metric: s.Metric, Phase: s.Phase, Flow: s.Flow, Unit: s.Unit, Runs: []string{}})
				values = append(values, nil)
			}
			if s.Value != nil {
				values[i] = append(values[i], *s.Value)
				out[i].Runs = append(out[i].Runs, folder)
			}
		}
	}
	for i := range out {
		out[i].Description = Describe(out[i].Metric, values[i], seed)
		out[i].NotMeasured = len(runs) - len(values[i])
	}
	return out
}

// Save writes summary.json into the sweep's folder.
func (s *SweepSummary) Save() error { return writeJSONFile(filepath.Join(s.Dir, SummaryFile), s) }
