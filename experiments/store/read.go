package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/experiments"
)

// Row is what the index says of a run in one line.
type Row struct {
	ID       int64
	Place    string // of a shared index: the folder of runs, with the machine in front
	Dir      string // the run's folder below its place, with slashes
	Run      string
	Playbook string
	Lab      string
	Trial    *experiments.Trial // nil: no part of a sweep
	State    experiments.BundleState
	Reason   string
	Verdict  experiments.Verdict
	Began    time.Time      // zero: not known
	Duration *time.Duration // nil: it did not end
}

// Filter says which runs are meant; what is empty means all.
type Filter struct {
	Playbook, Lab  string
	State, Verdict string
	Since          time.Time           // that began then or later
	Params         []experiments.Param // that have all of these values
	Name           string              // whose id, or folder below its place, begins so
	Limit          int                 // the newest of them; 0: all
}

// where is the filter as a condition on run_index r.
func (f *Filter) where() (string, []any) {
	conditions, args := []string{"1 = 1"}, []any{}
	add := func(condition string, values ...any) {
		conditions, args = append(conditions, condition), append(args, values...)
	}
	for _, equal := range []struct{ column, value string }{{"playbook", f.Playbook}, {"lab", f.Lab}, {"state", f.State}, {"verdict", f.Verdict}} {
		if equal.value != "" {
			add("r."+equal.column+" = ?", equal.value)
		}
	}
	if !f.Since.IsZero() {
		add("r.began >= ?", *timeText(f.Since))
	}
	for _, p := range f.Params {
		add("EXISTS (SELECT 1 FROM param_index p WHERE p.run = r.id AND p.key = ? AND p.value = ?)", p.Key, p.Value)
	}
	if f.Name != "" { // not LIKE: names may hold its wildcards
		add("(substr(r.run, 1, ?) = ? OR substr(r.dir, 1, ?) = ?)", len([]rune(f.Name)), f.Name, len([]rune(f.Name)), f.Name)
	}
	return strings.Join(conditions, " AND "), args
}

// List gives the runs that the filter means, the newest first, and how many they are without its limit.
func (s *Store) List(ctx context.Context, f Filter) (rows []Row, total int, err error) {
	rows, total, err = s.list(ctx, f)
	return rows, total, s.explain(err)
}

func (s *Store) list(ctx context.Context, f Filter) (rows []Row, total int, err error) {
	where, args := f.where()
	if err := s.db.QueryRowContext(ctx, s.dialect.query("SELECT count(*) FROM run_index r WHERE "+where), args...).Scan(&total); err != nil {
		return nil, 0, err
	}
	order := " ORDER BY r.began DESC NULLS LAST, r.id DESC" // as the index of began has them
	if f.Limit > 0 {
		order += fmt.Sprintf(" LIMIT %d", f.Limit)
	}
	at := map[int64]int{}
	err = each(ctx, s.db, s.dialect.query(`SELECT r.id, (SELECT p.name FROM places p WHERE p.id = r.place), r.dir, r.run, r.playbook, r.lab, r.state, r.reason, r.verdict, r.began, r.duration_ns,
		r.sweep, r.cell, r.repeat, r.warmup FROM run_index r WHERE `+where+order), args, func(scan func(...any) error) error {
		var r Row
		var began, sweep, cell *string
		var duration, repeat *int64
		var warmup *bool
		if err := scan(&r.ID, &r.Place, &r.Dir, &r.Run, &r.Playbook, &r.Lab, &r.State, &r.Reason, &r.Verdict, &began, &duration, &sweep, &cell, &repeat, &warmup); err != nil {
			return err
		}
		if r.Began, err = parseTime(began); err != nil {
			return err
		}
		if duration != nil {
			d := time.Duration(*duration)
			r.Duration = &d
		}
		r.Trial = trialOf(sweep, cell, repeat, warmup)
		at[r.ID] = len(rows)
		rows = append(rows, r)
		return nil
	})
	if err != nil || !slices.ContainsFunc(rows, func(r Row) bool { return r.Trial != nil }) {
		return rows, total, err
	}
	err = each(ctx, s.db, s.dialect.query("SELECT p.run, p.key, p.value FROM param_index p WHERE p.run IN (SELECT r.id FROM run_index r WHERE "+where+order+") ORDER BY p.run, p.pos"),
		args, func(scan func(...any) error) error {
			var id int64
			var p experiments.Param
			if err := scan(&id, &p.Key, &p.Value); err != nil {
				return err
			}
			if i, ok := at[id]; ok && rows[i].Trial != nil {
				rows[i].Trial.Params = append(rows[i].Trial.Params, p)
			}
			return nil
		})
	return rows, total, err
}

func trialOf(sweep, cell *string, repeat *int64, warmup *bool) *experiments.Trial {
	if sweep == nil || cell == nil || repeat == nil || warmup == nil {
		return nil
	}
	return &experiments.Trial{Sweep: *sweep, Cell: *cell, Repeat: int(*repeat), Warmup: *warmup}
}

func parseTime(text *string) (time.Time, error) {
	if text == nil {
		return time.Time{}, nil
	}
	return time.Parse(timeFormat, *text)
}

// Folder is where a run of the index lies, and whether that is on this machine: in a shared index a run of another machine
// is HOST:PATH. root is the folder of runs that the index was synced with.
func (s *Store) Folder(r Row, root string) (dir string, here bool) {
	below := filepath.FromSlash(r.Dir)
	switch {
	case s.root != "":
		return filepath.Join(root, below), true
	case s.host == "":
		return filepath.Join(r.Place, below), true
	}
	host, place, _ := strings.Cut(r.Place, ":")
	if host == s.host {
		return filepath.Join(place, below), true
	}
	return r.Place + "/" + r.Dir, false
}

// Summary is a run's summary as the index has it, for runs whose folders lie on other machines.
func (s *Store) Summary(ctx context.Context, id int64) (*experiments.Summary, error) {
	summary, err := s.summary(ctx, id)
	return summary, s.explain(err)
}

func (s *Store) summary(ctx context.Context, id int64) (*experiments.Summary, error) {
	r := &experiments.Summary{Schema: "pcmlab/summary/v1", Checks: []experiments.CheckResult{}, Scores: []experiments.Score{}, Provenance: map[string]string{}}
	var began, ended, sweep, cell *string
	var repeat *int64
	var warmup *bool
	err := s.db.QueryRowContext(ctx, s.dialect.query(`SELECT run, dir, playbook, lab, state, reason, verdict, began, ended, time_scale, line_rate_bps, inputs, trace,
		sweep, cell, repeat, warmup FROM run_index WHERE id = ?`), id).Scan(&r.Run, &r.Dir, &r.Playbook, &r.Lab, &r.State, &r.Reason, &r.Verdict, &began, &ended,
		&r.TimeScale, &r.LineRateBps, &r.Inputs, &r.Trace, &sweep, &cell, &repeat, &warmup)
	if err == sql.ErrNoRows {
		return nil, fmt.Errorf("%w: run %d is not in the index", experiments.ErrInput, id)
	}
	if err != nil {
		return nil, err
	}
	if r.Began, err = parseTime(began); err != nil {
		return nil, err
	}
	if r.Ended, err = parseTime(ended); err != nil {
		return nil, err
	}
	if r.Trial = trialOf(sweep, cell, repeat, warmup); r.Trial != nil {
		r.Trial.Params = []experiments.Param{}
	}
	for _, part := range []struct {
		query string
		row   func(scan func(...any) error) error
	}{
		{"SELECT key, value FROM param_index WHERE run = ? ORDER BY pos", func(scan func(...any) error) error {
			var p experiments.Param
			err := scan(&p.Key, &p.Value)
			if r.Trial != nil {
				r.Trial.Params = append(r.Trial.Params, p)
			}
			return err
		}},
		{"SELECT n.metric, n.phase, n.flow, s.value, n.unit, s.reason FROM score_index s JOIN score_names n ON n.id = s.name WHERE s.run = ? ORDER BY s.pos", func(scan func(...any) error) error {
			var v experiments.Score
			err := scan(&v.Metric, &v.Phase, &v.Flow, &v.Value, &v.Unit, &v.Reason)
			r.Scores = append(r.Scores, v)
			return err
		}},
		{"SELECT f.key, f.value FROM fact_index i JOIN facts f ON f.id = i.fact WHERE i.run = ?", func(scan func(...any) error) error {
			var key, value string
			err := scan(&key, &value)
			r.Provenance[key] = value
			return err
		}},
		{"SELECT name, that, verdict, reason, measured FROM check_index WHERE run = ? ORDER BY pos", func(scan func(...any) error) error {
			var c experiments.CheckResult
			var measured string
			if err := scan(&c.Name, &c.That, &c.Verdict, &c.Reason, &measured); err != nil {
				return err
			}
			err := json.Unmarshal([]byte(measured), &c.Values)
			r.Checks = append(r.Checks, c)
			return err
		}},
	} {
		if err := each(ctx, s.db, s.dialect.query(part.query), []any{id}, part.row); err != nil {
			return nil, err
		}
	}
	return r, nil
}
