package experiments

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/internal/process"
)

// StatusFile is where a run or sweep that goes on says how far it is; that of a sweep stays.
const StatusFile = "status.json"

// LogFile is where a run or sweep in the background prints.
const LogFile = "run.log"

// Status is status.json: how far a run or sweep is.
type Status struct {
	Schema   string     `json:"schema"` // pcmlab/status/v1
	Run      string     `json:"run"`
	Dir      string     `json:"-"`    // where it was read
	Kind     string     `json:"kind"` // run or sweep
	Playbook string     `json:"playbook"`
	Lab      string     `json:"lab"`
	State    LiveState  `json:"state"`
	Reason   string     `json:"reason,omitempty"`
	Process  process.ID `json:"process"`
	Began    time.Time  `json:"began"`
	Updated  time.Time  `json:"updated"`
	Ended    *time.Time `json:"ended"`
	Phase    string     `json:"phase"` // of the run that goes on; "" before the first
	Trial    *Trial     `json:"trial"` // that goes on; null for a run without sweep
	Number   int        `json:"trial_number"`
	Of       int        `json:"trials"`

	TrialBegan  time.Time `json:"trial_began"`
	TrialNS     int64     `json:"trial_expected_ns"` // what the trial that goes on is expected to take
	AfterNS     int64     `json:"after_expected_ns"` // and all after it
	OverheadsNS []int64   `json:"overheads_ns"`      // measured: what trials took besides their phases
	Basis       string    `json:"basis"`             // of what is expected
}

// LiveState says whether something goes on.
type LiveState string

// A run that goes on is running; one that came to its end, or was stopped, says so itself. Died: its process is gone and did not.
// Elsewhere: it was started on another machine, where alone one can tell.
const (
	LiveRunning     LiveState = "running"
	LiveEnded       LiveState = "ended"
	LiveInterrupted LiveState = "interrupted"
	LiveDied        LiveState = "died"
	LiveElsewhere   LiveState = "elsewhere"
)

// Save writes status.json into a folder.
func (s *Status) Save(dir string) error {
	s.Schema, s.Updated = "pcmlab/status/v1", time.Now().UTC()
	if s.OverheadsNS == nil {
		s.OverheadsNS = []int64{}
	}
	return writeJSONFile(filepath.Join(dir, StatusFile), s)
}

// LoadStatus reads the status of a run's or sweep's folder and sees whether its process is there.
func LoadStatus(dir string) (*Status, error) {
	s := &Status{}
	if err := readJSON(filepath.Join(dir, StatusFile), s); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, dir, err)
	}
	s.Dir = dir
	if s.State == LiveRunning {
		switch {
		case !s.Process.Here():
			s.State, s.Reason = LiveElsewhere, "it was started on "+s.Process.Host
		case s.Process.Alive():
		case s.Kind == "run" && s.wasWritten(): // it was killed when all was written
		default:
			s.State, s.Reason = LiveDied, "its process is gone; last heard of at "+s.Updated.UTC().Format(time.RFC3339)
		}
	}
	return s, nil
}

// wasWritten says that the folder of a run is whole, and then how the run ended.
func (s *Status) wasWritten() bool {
	var m Manifest
	if readJSON(filepath.Join(s.Dir, "manifest.json"), &m) != nil {
		return false
	}
	s.State, s.Phase, s.Ended, s.Reason = LiveEnded, "", &m.Ended, strings.TrimSuffix(string(m.State)+": "+m.Reason, ": ")
	if m.Reason == Interrupted {
		s.State = LiveInterrupted
	}
	return true
}

// FindStatus lists what has a status in a folder of runs, the latest first.
func FindStatus(out string) ([]*Status, error) {
	files, err := filepath.Glob(filepath.Join(out, "*", StatusFile))
	if err != nil {
		return nil, err
	}
	var all []*Status
	var errs []error
	for _, f := range files {
		s, err := LoadStatus(filepath.Dir(f))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just ended
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Status) int { return cmp.Compare(b.Began.UnixNano(), a.Began.UnixNano()) })
	return all, errors.Join(errs...)
}

// Remaining is how long it will still take: what is left of the trial that goes on, and those after it. nil when nothing goes on.
func (s *Status) Remaining(now time.Time) *time.Duration {
	if s.State != LiveRunning || s.TrialNS == 0 {
		return nil
	}
	left := max(0, time.Duration(s.TrialNS)-now.Sub(s.TrialBegan)) + time.Duration(s.AfterNS)
	return &left
}

// AssumedOverhead is what a trial takes besides its phases, before any was measured: raising the lab, connecting, drain and analysis.
const AssumedOverhead = 10 * time.Second

// Overhead is the median of what trials took besides their phases, and in words where the figure comes from.
func Overhead(measured []int64) (time.Duration, string) {
	if len(measured) == 0 {
		return AssumedOverhead, fmt.Sprintf("assumed: %v a run besides its phases; none was measured yet", AssumedOverhead)
	}
	sorted := slices.Clone(measured)
	slices.Sort(sorted)
	median := time.Duration(sorted[len(sorted)/2])
	runs := "1 run"
	if len(sorted) > 1 {
		runs = fmt.Sprintf("%d runs", len(sorted))
	}
	return median, fmt.Sprintf("measured: %v a run besides its phases, the median of %s", median.Round(100*time.Millisecond), runs)
}

// maxOverheads is how many measured overheads are kept: the latest tell most.
const maxOverheads = 50

// AddOverhead keeps a measured overhead.
func AddOverhead(measured []int64, d time.Duration) []int64 {
	measured = append(measured, int64(d))
	return measured[max(0, len(measured)-maxOverheads):]
}

// FormerOverheads are those measured before in a folder of runs for the same lab: of the latest sweep, or of runs of their own.
func FormerOverheads(out, lab string) []int64 {
	all, _ := FindStatus(out)
	for _, s := range all {
		if s.Lab == lab && len(s.OverheadsNS) > 0 {
			return s.OverheadsNS
		}
	}
	dirs, _ := filepath.Glob(filepath.Join(out, "*", "manifest.json"))
	slices.Sort(dirs)
	slices.Reverse(dirs)
	var measured []int64
	for _, f := range dirs[:min(len(dirs), maxOverheads)] {
		var m Manifest
		var plan struct {
			Lab      string        `json:"lab"`
			Duration time.Duration `json:"duration_ns"`
		}
		if readJSON(f, &m) == nil && readJSON(filepath.Join(filepath.Dir(f), "plan.json"), &plan) == nil && plan.Lab == lab && m.State != StatePartial {
			measured = append(measured, int64(m.Ended.Sub(m.Began)-plan.Duration))
		}
		if len(measured) == 10 {
			break
		}
	}
	return measured
}
