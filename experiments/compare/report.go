package compare

import (
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/stats"
)

// Report is one comparison of two sides.
type Report struct {
	Schema  string  `json:"schema"` // pcmlab/compare/v1
	Before  string  `json:"before"`
	After   string  `json:"after"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"`
	// NMore is how many more repeats of each cell and side would do; null when that is not the question, or more than
	// stats.MaxRepeats would not.
	NMore *int `json:"n_more"`
	// Alpha is the highest chance of any false alarm among the judged scores; p is corrected for their number.
	Alpha      float64          `json:"alpha"`
	Correction string           `json:"correction"` // holm
	Judged     int              `json:"judged"`     // scores with a threshold
	Tested     int              `json:"tested"`     // of which not all values are equal: what p is corrected for
	Seed       uint64           `json:"seed"`       // of the bootstrap
	Provenance []ProvenanceDiff `json:"provenance"`
	Warnings   []string         `json:"warnings"`
	Cells      []Cell           `json:"cells"`
}

// ProvenanceDiff is something besides the measurements that differs between the sides: every value that each side has.
type ProvenanceDiff struct {
	Key    string   `json:"key"`
	Before []string `json:"before"`
	After  []string `json:"after"`
}

// Cell is the comparison of one cell.
type Cell struct {
	Name    string        `json:"name"`
	Params  []ParamChange `json:"params"`
	Before  CellSide      `json:"before"`
	After   CellSide      `json:"after"`
	Verdict Verdict       `json:"verdict"`
	Reason  string        `json:"reason"`
	NMore   *int          `json:"n_more"`
	Scores  []ScoreChange `json:"scores"`
}

// ParamChange is a parameter of a cell on both sides; null where a side does not name it.
type ParamChange struct {
	Key    string  `json:"key"`
	Before *string `json:"before"`
	After  *string `json:"after"`
}

// Differs says that the sides declare the parameter differently.
func (p ParamChange) Differs() bool {
	return (p.Before == nil) != (p.After == nil) || p.Before != nil && *p.Before != *p.After
}

// ScoreChange is the comparison of one score. All values are in Unit, what was not measured is null.
type ScoreChange struct {
	Score     string             `json:"score"`
	Metric    string             `json:"metric"`
	Phase     string             `json:"phase,omitempty"`
	Flow      string             `json:"flow,omitempty"`
	Unit      string             `json:"unit"`
	Better    experiments.Better `json:"better"`
	Judged    bool               `json:"judged"`              // false: shown, and no part of any other verdict
	Threshold string             `json:"threshold,omitempty"` // as written
	Limit     *float64           `json:"limit"`               // what the threshold comes to
	Before    stats.Description  `json:"before"`
	After     stats.Description  `json:"after"`
	// Change is the Hodges-Lehmann shift, ChangeShare its share of the median before.
	Change      *float64        `json:"change"`
	ChangeShare *float64        `json:"change_share"`
	Interval    *stats.Interval `json:"change_ci95"`
	Superiority *float64        `json:"superiority"` // chance that a value after exceeds one before
	P           *float64        `json:"p"`
	PCorrected  *float64        `json:"p_corrected"`
	SpreadRatio *float64        `json:"spread_ratio"` // after over before; of judged scores
	SpreadP     *float64        `json:"spread_p_corrected"`
	Verdict     Verdict         `json:"verdict"`
	Reason      string          `json:"reason"`
	Notes       []string        `json:"notes"` // outliers, and samples that fall into two groups
	NMore       *int            `json:"n_more"`

	name       ScoreName
	before     sample
	after      sample
	spread     *float64 // p of the spread, uncorrected
	lowerGood  bool
	eitherBad  bool
	fewRepeats int // that the test needs at all
}

// sample is the values of a score on one side, and of which runs they are.
type sample struct {
	values  []float64
	runs    []string
	missing string // why the first run without a value has none
}
