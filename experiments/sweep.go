package experiments

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"
)

// Sweep is sweep.json: what is to be run. It makes a folder that of a sweep.
type Sweep struct {
	Schema   string    `json:"schema"` // pcmlab/sweep/v1
	ID       string    `json:"id"`
	Dir      string    `json:"-"` // where it was read
	Playbook string    `json:"playbook"`
	Lab      string    `json:"lab"`
	Created  time.Time `json:"created"`
	Seed     uint64    `json:"seed"` // of the order and of what labs draw
	Shuffled bool      `json:"shuffled"`
	Repeat   int       `json:"repeat"`
	// RepeatFlag is --repeat, 0 when the playbook said how often.
	RepeatFlag int         `json:"repeat_flag"`
	Warmup     int         `json:"warmup"`
	BudgetNS   int64       `json:"budget_ns"` // 0: none
	Cells      []SweepCell `json:"cells"`     // in the order of the file
	Trials     []Trial     `json:"trials"`    // in the order in which they are run

	Thresholds   []Param           `json:"thresholds"` // score and limit, as the playbook has them
	PlaybookFile string            `json:"playbook_file"`
	LabFile      string            `json:"lab_file"` // or the name of a virtual lab that was up
	Sets         []Param           `json:"set"`      // --set, which cells may change further
	Command      []string          `json:"command"`
	Provenance   map[string]string `json:"provenance"`
	Resumed      []Resumption      `json:"resumed"`
}

// SweepCell is one combination of parameters.
type SweepCell struct {
	ID       string  `json:"id"`
	Params   []Param `json:"params"`
	Inputs   string  `json:"inputs_sha256"`
	PhasesNS int64   `json:"phases_ns"` // how long one run's phases take
}

// Resumption is one --resume.
type Resumption struct {
	At          time.Time `json:"at"`
	Forced      bool      `json:"forced"`      // differences were overridden
	Differences []string  `json:"differences"` // from what the sweep was made of
}

// NewSweep lays out a sweep of cells. The caller fills in what it was made of.
func NewSweep(id string, p *Playbook, lab string, cells []Cell, now time.Time) *Sweep {
	s := &Sweep{Schema: "pcmlab/sweep/v1", ID: id, Playbook: p.Name, Lab: lab, Created: now.UTC(), Seed: p.Seed, Shuffled: true, Repeat: p.Repeat, Warmup: p.Warmup,
		Cells: []SweepCell{}, Thresholds: listedParams(p.Thresholds), Sets: []Param{}, Command: []string{}, Provenance: map[string]string{}, Resumed: []Resumption{}}
	if p.Matrix != nil {
		s.Shuffled, s.BudgetNS = p.Matrix.Shuffled, int64(p.Matrix.Budget)
	}
	for _, c := range cells {
		s.Cells = append(s.Cells, SweepCell{c.ID, c.Params, c.Inputs, int64(c.Plan.Duration)})
	}
	s.Trials = s.order()
	return s
}

// order is the trials in the order in which they are run: warm-ups first, then one block of all cells for each repeat, so that cells are
// interleaved and drift hits all of them. Of a sweep with more repeats it is a beginning.
func (s *Sweep) order() []Trial {
	rng := rand.New(rand.NewPCG(s.Seed, 0x73776565702d6f72))
	cells := make([]int, len(s.Cells))
	trials := make([]Trial, 0, len(cells)*(s.Warmup+s.Repeat))
	block := func(repeat int, warmup bool) {
		for i := range cells {
			cells[i] = i
		}
		if s.Shuffled {
			for i := len(cells) - 1; i > 0; i-- {
				j := rng.IntN(i + 1)
				cells[i], cells[j] = cells[j], cells[i]
			}
		}
		for _, c := range cells {
			trials = append(trials, Trial{Sweep: s.ID, Cell: s.Cells[c].ID, Repeat: repeat, Warmup: warmup, Params: s.Cells[c].Params})
		}
	}
	for i := range s.Warmup {
		block(i+1, true)
	}
	for i := range s.Repeat {
		block(i+1, false)
	}
	return trials
}

// Folder is where the run of a trial lies in the folder of its sweep: CELL/03 or CELL/warmup-01.
func (t *Trial) Folder() string { return filepath.Join(t.Cell, t.Name()) }

// Name is the last part of Folder.
func (t *Trial) Name() string {
	if t.Warmup {
		return fmt.Sprintf("warmup-%02d", t.Repeat)
	}
	return fmt.Sprintf("%02d", t.Repeat)
}

// LabSeed is the seed of what the lab of a trial draws: the same for a repeat of every cell, another for each repeat.
func (s *Sweep) LabSeed(seed uint64, t Trial) uint64 {
	stream := uint64(t.Repeat) << 1
	if t.Warmup {
		stream |= 1
	}
	return rand.NewPCG(seed, stream).Uint64()
}

// Cell finds a cell by its id, or nil.
func (s *Sweep) Cell(id string) *SweepCell {
	for i := range s.Cells {
		if s.Cells[i].ID == id {
			return &s.Cells[i]
		}
	}
	return nil
}

// IsSweepDir says that dir is the folder of a sweep.
func IsSweepDir(dir string) bool { return isFile(dir, SweepFile) }

// LoadSweep reads sweep.json of a sweep's folder.
func LoadSweep(dir string) (*Sweep, error) {
	data, err := os.ReadFile(filepath.Join(dir, SweepFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is no folder of a sweep: it has no %s", ErrInput, dir, SweepFile)
	}
	if err != nil {
		return nil, err
	}
	s := &Sweep{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("%w: %s: %s: %w", ErrData, dir, SweepFile, err)
	}
	s.Dir = dir
	return s, nil
}

// Save writes sweep.json into s.Dir.
func (s *Sweep) Save() error { return writeJSONFile(filepath.Join(s.Dir, SweepFile), s) }

// writeJSONFile puts a document into a file as those of bundles are written: all of it or nothing.
func writeJSONFile(path string, v any) error {
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetIndent("", " ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return writeAtomic(path, data.Bytes())
}

// Differences says in what another sweep is not the same as s: what makes its results those of another experiment. The number of repeats
// and the budget may differ; fewer repeats than s has may not.
func (s *Sweep) Differences(other *Sweep) []string {
	var out []string
	add := func(what, was, is string) {
		if was != is {
			out = append(out, fmt.Sprintf("%s: was %s, is %s", what, was, is))
		}
	}
	add("playbook", s.Playbook, other.Playbook)
	add("lab", s.Lab, other.Lab)
	add("--set", shown(ParamText(s.Sets)), shown(ParamText(other.Sets)))
	add("seed", fmt.Sprint(s.Seed), fmt.Sprint(other.Seed))
	add("order", orderName(s.Shuffled), orderName(other.Shuffled))
	add("warmup", fmt.Sprint(s.Warmup), fmt.Sprint(other.Warmup))
	if other.Repeat < s.Repeat {
		add("repeat", fmt.Sprint(s.Repeat), fmt.Sprint(other.Repeat))
	}
	for _, c := range s.Cells {
		if other.Cell(c.ID) == nil {
			out = append(out, "cell "+c.ID+": is gone")
		}
	}
	for _, c := range other.Cells {
		if was := s.Cell(c.ID); was == nil {
			out = append(out, "cell "+c.ID+": is new")
		} else if was.Inputs != c.Inputs {
			out = append(out, "cell "+c.ID+": what is run in it changed")
		}
	}
	if len(out) == 0 && !slices.EqualFunc(s.Cells, other.Cells, func(a, b SweepCell) bool { return a.ID == b.ID }) {
		out = append(out, "the matrix lists its cells in another order")
	}
	keys := map[string]bool{}
	for k := range s.Provenance {
		keys[k] = true
	}
	for k := range other.Provenance {
		keys[k] = true
	}
	sorted := make([]string, 0, len(keys))
	for k := range keys {
		sorted = append(sorted, k)
	}
	sort.Strings(sorted)
	for _, k := range sorted {
		add(k, shown(s.Provenance[k]), shown(other.Provenance[k]))
	}
	return out
}

func shown(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// OrderName is shuffled or listed.
func (s *Sweep) OrderName() string { return orderName(s.Shuffled) }

func orderName(shuffled bool) string {
	if shuffled {
		return "shuffled"
	}
	return "listed"
}
