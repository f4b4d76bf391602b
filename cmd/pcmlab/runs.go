package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/store"
)

// storeFlags say where runs lie and which index knows them.
type storeFlags struct{ out, store string }

const storeFlagHelp = "index of the runs: postgres://USER@HOST/DATABASE for a lab that is shared, or a SQLite file elsewhere (.index.sqlite in the folder of runs)"

func newRunsCommand(e *env) *cobra.Command {
	var o storeFlags
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List, show, remove and query the runs that were kept",
		Long: "Runs are folders, and stay the truth. An index of them (a SQLite file in the folder of runs, or a PostgreSQL database\n" +
			"that machines share) makes questions quick. It follows the folders by itself and can be made again at any time.",
		Example: "  pcmlab runs ls --playbook incast-3to1 --since 24h\n" +
			"  pcmlab runs show 20261130-0532\n" +
			"  pcmlab runs query \"SELECT cell, avg(value) FROM scores WHERE metric = 'jain' AND phase = '' GROUP BY cell\"",
	}
	cmd.PersistentFlags().StringVar(&o.out, "out", "runs", "folder of runs")
	cmd.PersistentFlags().StringVar(&o.store, "store", "", storeFlagHelp)
	cmd.AddCommand(newRunsLsCommand(e, &o), newRunsShowCommand(e, &o), newRunsRmCommand(e, &o), newRunsQueryCommand(e, &o), newRunsFetchCommand(e))
	return cmd
}

// openStore opens the index and brings it to what the folders say.
func (e *env) openStore(ctx context.Context, o *storeFlags, rebuild bool) (*store.Store, error) {
	s, err := store.Open(ctx, o.out, o.store)
	if errors.Is(err, store.ErrDamaged) && rebuild {
		if err := store.Reset(o.out, o.store); err != nil {
			return nil, err
		}
		s, err = store.Open(ctx, o.out, o.store)
	}
	switch {
	case errors.Is(err, store.ErrVersion):
		return nil, &codedError{exitUsage, err}
	case errors.Is(err, store.ErrDamaged):
		return nil, &codedError{exitData, err}
	case err != nil:
		return nil, err
	}
	bring := s.Sync
	if rebuild {
		bring = s.Rebuild
	}
	done, err := bring(ctx, o.out)
	if err != nil {
		s.Close()
		return nil, err
	}
	for _, w := range done.Warnings {
		fmt.Fprintln(e.stderr, "warning:", w)
	}
	e.log.Info("index", "added", done.Added, "changed", done.Changed, "removed", done.Removed)
	return s, nil
}

type runsLsOptions struct {
	filter  store.Filter
	since   string
	params  []string
	output  string
	rebuild bool
}

func newRunsLsCommand(e *env, flags *storeFlags) *cobra.Command {
	var o runsLsOptions
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List runs, the newest first",
		Example: "  pcmlab runs ls\n" +
			"  pcmlab runs ls --verdict fail --since 2026-11-30 --param senders=3 -n 0 -o csv\n" +
			"  pcmlab runs ls --store postgres://lab@db.example/pcmlab",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return e.runsLs(c.Context(), flags, &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.filter.Playbook, "playbook", "", "runs of this playbook")
	f.StringVar(&o.filter.Lab, "lab", "", "runs on this lab")
	f.StringVar(&o.filter.State, "state", "", "runs in this state: complete, partial, noisy, unfinished or unreadable")
	f.StringVar(&o.filter.Verdict, "verdict", "", "runs with this verdict: pass, fail or skip")
	f.StringVar(&o.since, "since", "", "runs that began then or later: 2026-11-30, 2026-11-30T05:32:00Z, or so long ago: 90m, 24h, 7d")
	f.StringArrayVar(&o.params, "param", nil, "runs of cells with this parameter, KEY=VALUE (may be repeated)")
	f.IntVarP(&o.filter.Limit, "limit", "n", 50, "show so many (0: all)")
	f.BoolVar(&o.rebuild, "rebuild", false, "make the index again from the folders")
	f.StringVarP(&o.output, "output", "o", "table", "table, json, jsonl or csv")
	return cmd
}

// parse turns the flags into the filter, and returns every mistake in them.
func (o *runsLsOptions) parse(now time.Time) error {
	mistakes := []error{checkOutput(o.output, "table", "json", "jsonl", "csv")}
	oneOf := func(flag, got string, allowed ...string) {
		for _, a := range allowed {
			if got == "" || got == a {
				return
			}
		}
		mistakes = append(mistakes, usagef("--%s %q: need one of %s", flag, got, strings.Join(allowed, ", ")))
	}
	oneOf("state", o.filter.State, string(experiments.StateComplete), string(experiments.StatePartial), string(experiments.StateNoisy),
		string(experiments.StateUnfinished), string(store.StateUnreadable))
	oneOf("verdict", o.filter.Verdict, string(experiments.Pass), string(experiments.Fail), string(experiments.Skip))
	if o.filter.Limit < 0 {
		mistakes = append(mistakes, usagef("-n %d: need how many runs to show, or 0 for all", o.filter.Limit))
	}
	if o.since != "" {
		since, err := parseSince(o.since, now)
		if err != nil {
			mistakes = append(mistakes, err)
		}
		o.filter.Since = since
	}
	for _, p := range o.params {
		key, value, ok := strings.Cut(p, "=")
		if !ok || key == "" {
			mistakes = append(mistakes, usagef("--param %q: need KEY=VALUE, such as senders=3", p))
			continue
		}
		o.filter.Params = append(o.filter.Params, experiments.Param{Key: key, Value: value})
	}
	return errors.Join(mistakes...)
}

// parseSince reads a time, or how long ago it was. A date is midnight where the user is.
func parseSince(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{"2006-01-02", "2006-01-02 15:04", time.RFC3339} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, usagef("--since %q: need a date (2026-11-30), a time (2026-11-30T05:32:00Z) or how long ago (90m, 24h, 7d)", text)
}

// runRow is a run of `runs ls -o json`.
type runRow struct {
	Run        string                  `json:"run"`
	Folder     string                  `json:"folder"` // HOST:PATH on another machine
	Began      *time.Time              `json:"began"`
	Playbook   *string                 `json:"playbook"`
	Lab        *string                 `json:"lab"`
	Sweep      *string                 `json:"sweep"`
	Cell       *string                 `json:"cell"`
	Params     []experiments.Param     `json:"params"`
	Repeat     *int                    `json:"repeat"`
	Warmup     bool                    `json:"warmup"`
	State      experiments.BundleState `json:"state"`
	Reason     *string                 `json:"reason"`
	Verdict    experiments.Verdict     `json:"verdict"`
	DurationNS *int64                  `json:"duration_ns"`
}

func (e *env) runsLs(ctx context.Context, flags *storeFlags, o *runsLsOptions) error {
	if err := o.parse(time.Now()); err != nil {
		return err
	}
	s, err := e.openStore(ctx, flags, o.rebuild)
	if err != nil {
		return err
	}
	defer s.Close()
	found, total, err := s.List(ctx, o.filter)
	if err != nil {
		return err
	}
	rows := make([]runRow, 0, len(found))
	for _, r := range found {
		dir, here := s.Folder(r, flags.out)
		if here {
			dir = relative(dir)
		}
		row := runRow{Run: r.Run, Folder: dir, Playbook: nullable(r.Playbook), Lab: nullable(r.Lab), Params: []experiments.Param{}, State: r.State,
			Reason: nullable(r.Reason), Verdict: r.Verdict}
		if !r.Began.IsZero() {
			row.Began = &r.Began
		}
		if r.Duration != nil {
			ns := r.Duration.Nanoseconds()
			row.DurationNS = &ns
		}
		if t := r.Trial; t != nil {
			row.Sweep, row.Cell, row.Repeat, row.Warmup = &t.Sweep, &t.Cell, &t.Repeat, t.Warmup
			row.Params = append(row.Params, t.Params...)
		}
		rows = append(rows, row)
	}
	return e.printRuns(rows, total, o.output, flags)
}

func (e *env) printRuns(rows []runRow, total int, output string, flags *storeFlags) error {
	switch output {
	case "json":
		return writeJSON(e.stdout, map[string]any{"schema": "pcmlab/runs/v1", "total": total, "runs": rows})
	case "jsonl":
		for _, r := range rows {
			if err := writeJSONLine(e.stdout, r); err != nil {
				return err
			}
		}
		return nil
	case "csv":
		out := [][]string{}
		for _, r := range rows {
			began, duration, repeat := "", "", ""
			if r.Began != nil {
				began = r.Began.Format(time.RFC3339Nano)
			}
			if r.DurationNS != nil {
				duration = fmt.Sprint(*r.DurationNS)
			}
			if r.Repeat != nil {
				repeat = fmt.Sprint(*r.Repeat)
			}
			out = append(out, []string{r.Run, r.Folder, began, orEmpty(r.Playbook), orEmpty(r.Lab), orEmpty(r.Sweep), orEmpty(r.Cell), paramsText(r.Params), repeat,
				fmt.Sprint(r.Warmup), string(r.State), orEmpty(r.Reason), string(r.Verdict), duration})
		}
		return e.writeCSV([]string{"run", "folder", "began", "playbook", "lab", "sweep", "cell", "params", "repeat", "warmup", "state", "reason", "verdict", "duration_ns"}, out)
	}
	t := e.newTable("run", "when", "playbook", "lab", "cell", "repeat", "state", "verdict", "duration")
	for _, r := range rows {
		t.row(shortFolder(r.Folder, flags.out), whenText(r.Began), dash(orEmpty(r.Playbook)), dash(orEmpty(r.Lab)), cellText(r.Cell, r.Params), repeatText(r.Repeat, r.Warmup),
			string(r.State), string(r.Verdict), durationText(r.DurationNS))
	}
	if len(rows) > 0 {
		if err := t.print(); err != nil {
			return err
		}
	}
	switch {
	case total == 0 && !e.quiet:
		fmt.Fprintf(e.stderr, "no such run in %s\n", flags.out)
	case len(rows) < total && !e.quiet:
		fmt.Fprintf(e.stderr, "%d of %d runs; -n 0 shows all\n", len(rows), total)
	}
	return nil
}

// shortFolder is a folder as show and rm take it: below the folder of runs.
func shortFolder(folder, out string) string {
	abs, err := filepath.Abs(folder)
	root, err2 := filepath.Abs(out)
	if err == nil && err2 == nil {
		if rel, err := filepath.Rel(root, abs); err == nil && filepath.IsLocal(rel) {
			return filepath.ToSlash(rel)
		}
	}
	return folder
}

func whenText(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func cellText(cell *string, params []experiments.Param) string {
	switch {
	case cell == nil:
		return "-"
	case len(params) == 0:
		return *cell
	}
	return paramsText(params)
}

func paramsText(params []experiments.Param) string {
	var all []string
	for _, p := range params {
		all = append(all, p.Key+"="+p.Value)
	}
	return strings.Join(all, " ")
}

func repeatText(repeat *int, warmup bool) string {
	switch {
	case repeat == nil:
		return "-"
	case warmup:
		return fmt.Sprintf("warm-up %d", *repeat)
	}
	return fmt.Sprint(*repeat)
}

func durationText(ns *int64) string {
	if ns == nil {
		return "-"
	}
	return time.Duration(*ns).Round(100 * time.Millisecond).String()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// resolveRun finds the run that a user means: the path of its folder, or how its id or folder begins. A sweep is found
// where sweeps are wanted.
func (e *env) resolveRun(ctx context.Context, s *store.Store, flags *storeFlags, name string, sweeps bool) (*store.Row, string, error) {
	for _, dir := range []string{name, filepath.Join(flags.out, name)} {
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			_, err := os.Stat(filepath.Join(dir, experiments.SweepFile))
			if experiments.IsRun(dir) || sweeps && err == nil {
				return nil, dir, nil
			}
		}
	}
	if name == "" {
		return nil, "", usagef("a run has no empty name: need a folder, or how its id begins (pcmlab runs ls)")
	}
	rows, _, err := s.List(ctx, store.Filter{Name: name})
	if err != nil {
		return nil, "", err
	}
	exact := -1
	for i, r := range rows {
		if r.Run == name || r.Dir == name {
			if exact >= 0 {
				exact = -1 // a run that was copied: which one is meant is not known
				break
			}
			exact = i
		}
	}
	switch {
	case exact >= 0:
		rows = rows[exact : exact+1]
	case len(rows) == 0:
		return nil, "", usagef("run %q: no folder, and no run in %s whose id or folder begins so (pcmlab runs ls lists them)", name, flags.out)
	case len(rows) > 1:
		var all []string
		for _, r := range rows[:min(len(rows), 10)] {
			all = append(all, r.Dir)
		}
		if len(rows) > 10 {
			all = append(all, fmt.Sprintf("and %d more", len(rows)-10))
		}
		return nil, "", usagef("run %q: %d runs begin so; give more of the name:\n  %s", name, len(rows), strings.Join(all, "\n  "))
	}
	dir, here := s.Folder(rows[0], flags.out)
	if !here {
		return &rows[0], dir, nil
	}
	return nil, dir, nil
}
