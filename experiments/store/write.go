package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/experiments"
)

type scoreName struct{ metric, phase, flow, unit string }

type fact struct{ key, value string }

// entry is one folder to be put into the index.
type entry struct {
	dir     string // below the root, with slashes
	stamp   int64  // see stampOf
	summary *experiments.Summary
}

// timeFormat has a fixed width, so that text sorts as time does.
const timeFormat = "2006-01-02T15:04:05.000000000Z"

func timeText(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	text := t.UTC().Format(timeFormat)
	return &text
}

// clean takes out what PostgreSQL cannot hold in a text.
func clean(s string) string { return strings.ReplaceAll(s, "\x00", "") }

// put writes entries, all of them or none. It replaces what the index had of the same folders.
func (s *Store) put(ctx context.Context, place int64, entries []entry) error {
	if len(entries) == 0 {
		return nil
	}
	// One order for all writers: two that wait for each other's rows would wait for ever.
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.dir, b.dir) })
	if err := s.intern(ctx, entries); err != nil {
		return err
	}
	return s.update(ctx, func(tx *sql.Tx) error {
		for _, e := range entries {
			if err := s.putOne(ctx, tx, place, e); err != nil {
				return fmt.Errorf("%s: %w", e.dir, err)
			}
		}
		return nil
	})
}

func (s *Store) putOne(ctx context.Context, tx *sql.Tx, place int64, e entry) error {
	r := e.summary
	columns := []string{"place", "dir", "stamp", "run", "playbook", "lab", "state", "reason", "verdict", "began", "ended", "duration_ns", "time_scale",
		"line_rate_bps", "inputs", "trace", "sweep", "cell", "repeat", "warmup"}
	values := []any{place, e.dir, e.stamp, clean(r.Run), clean(r.Playbook), clean(r.Lab), string(r.State), clean(r.Reason), string(r.Verdict), timeText(r.Began),
		timeText(r.Ended), durationOf(r), r.TimeScale, r.LineRateBps, r.Inputs, r.Trace}
	if t := r.Trial; t != nil {
		values = append(values, clean(t.Sweep), clean(t.Cell), t.Repeat, t.Warmup)
	} else {
		values = append(values, nil, nil, nil, nil)
	}
	set := make([]string, 0, len(columns))
	for _, c := range columns[2:] {
		set = append(set, c+" = excluded."+c)
	}
	var id int64
	err := tx.QueryRowContext(ctx, s.dialect.query(fmt.Sprintf("INSERT INTO run_index (%s) VALUES (%s) ON CONFLICT (place, dir) DO UPDATE SET %s RETURNING id",
		strings.Join(columns, ", "), marks(len(columns)), strings.Join(set, ", "))), values...).Scan(&id)
	if err != nil {
		return err
	}
	for _, table := range []string{"param_index", "score_index", "fact_index", "check_index"} {
		if _, err := tx.ExecContext(ctx, s.dialect.query("DELETE FROM "+table+" WHERE run = ?"), id); err != nil {
			return err
		}
	}
	var params, scores, facts, checks [][]any
	if r.Trial != nil {
		for i, p := range r.Trial.Params {
			params = append(params, []any{id, i, clean(p.Key), clean(p.Value)})
		}
	}
	for i := range r.Scores {
		v := &r.Scores[i]
		scores = append(scores, []any{id, i, s.names[nameOf(v)], v.Value, clean(v.Reason)})
	}
	for _, k := range slices.Sorted(maps.Keys(r.Provenance)) {
		facts = append(facts, []any{id, s.facts[fact{clean(k), clean(r.Provenance[k])}]})
	}
	for i, c := range r.Checks {
		measured, err := json.Marshal(c.Values)
		if err != nil {
			return err
		}
		checks = append(checks, []any{id, i, clean(c.Name), clean(c.That), string(c.Verdict), clean(c.Reason), clean(string(measured))})
	}
	for _, many := range []struct {
		into string
		rows [][]any
	}{{"param_index (run, pos, key, value)", params}, {"score_index (run, pos, name, value, reason)", scores}, {"fact_index (run, fact)", facts},
		{"check_index (run, pos, name, that, verdict, reason, measured)", checks}} {
		if err := s.insert(ctx, tx, many.into, many.rows, ""); err != nil {
			return err
		}
	}
	return nil
}

func durationOf(r *experiments.Summary) *int64 {
	if r.Began.IsZero() || r.Ended.IsZero() {
		return nil
	}
	d := r.Ended.Sub(r.Began).Nanoseconds()
	return &d
}

func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

// insertRows bounds a statement: databases take some 32,000 values in one.
const insertRows = 500

// insert writes rows with few statements, for the way to the database costs more than a row.
func (s *Store) insert(ctx context.Context, tx *sql.Tx, into string, rows [][]any, more string) error {
	for part := range slices.Chunk(rows, insertRows) {
		one := "(" + marks(len(part[0])) + ")"
		text := "INSERT INTO " + into + " VALUES " + strings.TrimSuffix(strings.Repeat(one+", ", len(part)), ", ") + more
		if _, err := tx.ExecContext(ctx, s.dialect.query(text), slices.Concat(part...)...); err != nil {
			return err
		}
	}
	return nil
}

func nameOf(v *experiments.Score) scoreName {
	return scoreName{clean(v.Metric), clean(v.Phase), clean(v.Flow), clean(v.Unit)}
}

// intern gives numbers to the names and facts of entries, in a transaction of its own: what is cached must be there even if the
// entries are not written after all.
func (s *Store) intern(ctx context.Context, entries []entry) error {
	names, facts := map[scoreName]bool{}, map[fact]bool{}
	for _, e := range entries {
		for i := range e.summary.Scores {
			if n := nameOf(&e.summary.Scores[i]); s.names[n] == 0 {
				names[n] = true
			}
		}
		for k, v := range e.summary.Provenance {
			if f := (fact{clean(k), clean(v)}); s.facts[f] == 0 {
				facts[f] = true
			}
		}
	}
	if len(names)+len(facts) == 0 {
		return nil
	}
	if s.names == nil { // most are known to the index already
		if err := s.loadNames(ctx, s.db); err != nil {
			return err
		}
		return s.intern(ctx, entries)
	}
	var nameRows, factRows [][]any
	for n := range names {
		nameRows = append(nameRows, []any{n.metric, n.phase, n.flow, n.unit})
	}
	for f := range facts {
		factRows = append(factRows, []any{f.key, f.value})
	}
	order := func(a, b []any) int { return cmp.Compare(fmt.Sprint(a...), fmt.Sprint(b...)) } // one for all writers
	slices.SortFunc(nameRows, order)
	slices.SortFunc(factRows, order)
	err := s.update(ctx, func(tx *sql.Tx) error {
		if err := s.insert(ctx, tx, "score_names (metric, phase, flow, unit)", nameRows, " ON CONFLICT DO NOTHING"); err != nil {
			return err
		}
		return s.insert(ctx, tx, "facts (key, value)", factRows, " ON CONFLICT DO NOTHING")
	})
	if err != nil {
		return err
	}
	return s.loadNames(ctx, s.db)
}

func (s *Store) loadNames(ctx context.Context, db *sql.DB) error {
	s.names, s.facts = map[scoreName]int64{}, map[fact]int64{}
	err := each(ctx, db, "SELECT id, metric, phase, flow, unit FROM score_names", nil, func(scan func(...any) error) error {
		var id int64
		var n scoreName
		err := scan(&id, &n.metric, &n.phase, &n.flow, &n.unit)
		s.names[n] = id
		return err
	})
	if err != nil {
		return err
	}
	return each(ctx, db, "SELECT id, key, value FROM facts", nil, func(scan func(...any) error) error {
		var id int64
		var f fact
		err := scan(&id, &f.key, &f.value)
		s.facts[f] = id
		return err
	})
}

// each calls f with every row of a query.
func each(ctx context.Context, db *sql.DB, query string, args []any, f func(scan func(...any) error) error) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
