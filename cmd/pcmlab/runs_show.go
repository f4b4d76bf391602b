package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/store"
)

func newRunsShowCommand(e *env, flags *storeFlags) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "show RUN",
		Short:   "Show all that is known of a run: its state, checks, scores and provenance",
		Long:    "Show a run. RUN is its folder, or how its id begins.",
		Example: "  pcmlab runs show 20261130-0532\n  pcmlab runs show runs/20261130-053241.688-incast-3to1 -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			summary, folder, err := e.findSummary(c.Context(), flags, args[0])
			if err != nil {
				return err
			}
			if output == "json" {
				return writeJSON(e.stdout, summary)
			}
			return e.showRun(summary, folder)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// findSummary reads a run's folder; a run of another machine is told from the index. A folder that is given needs no index.
func (e *env) findSummary(ctx context.Context, flags *storeFlags, name string) (*experiments.Summary, string, error) {
	if experiments.IsRun(name) {
		summary, err := experiments.LoadSummary(name)
		return summary, name, err
	}
	s, err := e.openStore(ctx, flags, false)
	if err != nil {
		return nil, "", err
	}
	defer s.Close()
	row, dir, err := e.resolveRun(ctx, s, flags, name, false)
	switch {
	case err != nil:
		return nil, "", err
	case row != nil:
		summary, err := s.Summary(ctx, row.ID)
		return summary, dir, err
	}
	summary, err := experiments.LoadSummary(dir)
	return summary, relative(dir), err
}

func (e *env) showRun(s *experiments.Summary, folder string) error {
	t := e.newTable("run", s.Run)
	put := func(name, value string) {
		if value != "" {
			t.row(name, value)
		}
	}
	put("folder", folder)
	put("playbook", s.Playbook)
	put("lab", s.Lab)
	if s.Trial != nil {
		put("sweep", s.Trial.Sweep)
		put("cell", s.Trial.Cell)
		put("repeat", repeatText(&s.Trial.Repeat, s.Trial.Warmup))
		for _, p := range s.Trial.Params {
			put("param "+p.Key, p.Value)
		}
	}
	put("state", string(s.State))
	put("reason", s.Reason)
	put("verdict", string(s.Verdict))
	if !s.Began.IsZero() {
		put("began", s.Began.Local().Format(time.RFC3339))
		if !s.Ended.IsZero() {
			put("duration", s.Ended.Sub(s.Began).Round(100*time.Millisecond).String())
		}
	}
	put("time scale", fmt.Sprintf("%g", s.TimeScale))
	if s.LineRateBps != nil {
		put("line rate", fmt.Sprintf("%.4g Gb/s as built", *s.LineRateBps/1e9))
	}
	put("inputs", s.Inputs)
	if s.Trace != nil {
		put("trace", *s.Trace)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Provenance)) {
		put(k, s.Provenance[k])
	}
	if err := t.print(); err != nil {
		return err
	}
	if len(s.Checks) > 0 {
		t := e.newTable("check", "verdict", "that", "why")
		for _, c := range s.Checks {
			t.row(c.Name, string(c.Verdict), c.That, c.Reason)
		}
		if err := t.print(); err != nil {
			return err
		}
	}
	if len(s.Scores) == 0 {
		return nil
	}
	scores := e.newTable()
	scores.columns([]analysis.Column{{Name: "score"}, {Name: "value", Numeric: true}, {Name: "unit"}, {Name: "why not", Wrap: true}})
	for i := range s.Scores {
		v := &s.Scores[i]
		value := "-"
		if v.Value != nil {
			value = strconv.FormatFloat(*v.Value, 'g', 6, 64)
		}
		scores.row(v.Name(), value, v.Unit, v.Reason)
	}
	return scores.print()
}

func newRunsRmCommand(e *env, flags *storeFlags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "rm RUN...",
		Short: "Remove runs, or whole sweeps: their folders with everything in them",
		Long: "Remove the folders of runs or sweeps. RUN is a folder, or how the run's id begins. Nothing is removed without --yes;\n" +
			"without it the folders are named. Links are removed, never followed. A run that goes on is refused.",
		Example: "  pcmlab runs rm 20261130-053241 --yes",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return e.runsRm(c.Context(), flags, args, yes) },
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "remove them")
	return cmd
}

func (e *env) runsRm(ctx context.Context, flags *storeFlags, names []string, yes bool) error {
	s, err := e.openStore(ctx, flags, false)
	if err != nil {
		return err
	}
	defer s.Close()
	root, err := filepath.Abs(flags.out)
	if err != nil {
		return err
	}
	var dirs []string
	var mistakes []error
	for _, name := range names { // all of them are looked at before the first one is removed
		row, dir, err := e.resolveRun(ctx, s, flags, name, true)
		switch {
		case err != nil:
		case row != nil:
			err = usagef("run %q lies on another machine, at %s: remove it there", name, dir)
		default:
			var abs, rel string
			if abs, err = filepath.Abs(dir); err == nil {
				rel, err = filepath.Rel(root, abs)
			}
			if err == nil && !filepath.IsLocal(rel) {
				err = usagef("run %s does not lie in %s: give its folder of runs with --out %s", name, flags.out, filepath.Dir(dir))
			}
			if err == nil {
				err = store.CheckRemove(root, filepath.ToSlash(rel))
			}
			if err == nil && !slices.Contains(dirs, filepath.ToSlash(rel)) {
				dirs = append(dirs, filepath.ToSlash(rel))
			}
		}
		mistakes = append(mistakes, err)
	}
	if err := errors.Join(mistakes...); err != nil {
		return err
	}
	if !yes {
		for _, dir := range dirs {
			fmt.Fprintln(e.stderr, "would remove", relative(filepath.Join(root, filepath.FromSlash(dir))))
		}
		return usagef("nothing was removed: say --yes to remove what is named above")
	}
	for _, dir := range dirs {
		if err := store.Remove(root, dir); err != nil {
			return err
		}
		if err := s.Forget(ctx, flags.out, dir); err != nil {
			return err
		}
		fmt.Fprintln(e.stdout, relative(filepath.Join(root, filepath.FromSlash(dir))))
	}
	return nil
}

func newRunsQueryCommand(e *env, flags *storeFlags) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "query SQL",
		Short: "Ask the index in SQL: it only reads",
		Long: "Ask the index in SQL. The views are runs, scores, params, provenance and checks; docs/store.md lists their columns.\n" +
			"One statement, which cannot change anything.",
		Example: "  pcmlab runs query \"SELECT cell, count(*), avg(value) FROM scores WHERE metric = 'goodput' AND phase = '' AND flow = '' GROUP BY cell\"\n" +
			"  pcmlab runs query 'SELECT key, value, count(*) FROM provenance GROUP BY key, value' -o csv",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(output, "table", "json", "jsonl", "csv"); err != nil {
				return err
			}
			s, err := e.openStore(c.Context(), flags, false)
			if err != nil {
				return err
			}
			defer s.Close()
			return e.query(c.Context(), s, args[0], output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json, jsonl or csv")
	return cmd
}

func (e *env) query(ctx context.Context, s *store.Store, sql, output string) error {
	var names []string
	var t *tableOut
	all, lines := []map[string]any{}, [][]string{}
	object := func(values []any) map[string]any {
		m := map[string]any{}
		for i, n := range names {
			m[n] = values[i]
		}
		return m
	}
	err := s.Query(ctx, sql, func(columns []string) error {
		names = columns
		t = e.newTable(columns...)
		return nil
	}, func(values []any) error {
		switch output {
		case "json":
			all = append(all, object(values))
		case "jsonl":
			return writeJSONLine(e.stdout, object(values))
		default:
			absent := "-"
			if output == "csv" {
				absent = ""
			}
			cells := make([]string, len(values))
			for i, v := range values {
				cells[i] = cellOf(v, absent)
			}
			if output == "csv" {
				lines = append(lines, cells)
			} else {
				t.row(cells...)
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case output == "json":
		return writeJSON(e.stdout, map[string]any{"schema": "pcmlab/query/v1", "columns": names, "rows": all})
	case output == "csv":
		return e.writeCSV(names, lines)
	case output == "table":
		return t.print()
	}
	return nil
}

// cellOf is a value of a database as text; absent stands for NULL.
func cellOf(v any, absent string) string {
	switch v := v.(type) {
	case nil:
		return absent
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v)
}

func (e *env) writeCSV(header []string, rows [][]string) error {
	w := csv.NewWriter(e.stdout)
	return errors.Join(w.Write(header), w.WriteAll(rows))
}

func writeJSONLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
