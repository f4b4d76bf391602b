package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/process"
)

// TestOpen_newerVersion: an index that a newer pcmlab made is left as it is.
func TestOpen_newerVersion(t *testing.T) {
	backends(t, func(t *testing.T, root, dsn string) {
		s := open(t, root, dsn)
		if _, err := s.db.Exec("UPDATE schema_version SET version = 99"); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), root, dsn); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "version 99") {
			t.Errorf("error %v", err)
		}
		if v, err := s.version(t.Context(), s.db); v != 99 || err != nil {
			t.Errorf("version %d %v: it was touched", v, err)
		}
	})
}

// TestOpen_damaged: a file that is no index is refused with what helps, and Reset helps.
func TestOpen_damaged(t *testing.T) {
	root := t.TempDir()
	if err := writeRun(filepath.Join(root, "run"), summaryWith(1)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, IndexFile), []byte(strings.Repeat("no database ", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), root, ""); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "--rebuild") {
		t.Fatalf("error %v", err)
	}
	if err := Reset(root, ""); err != nil {
		t.Fatal(err)
	}
	s := open(t, root, "")
	syncOnce(t, s, root)
	checkContents(t, s, root)
}

func TestOpen_mistakes(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	if err := writeRun(run, summaryWith(1)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(run, "manifest.json")
	for _, c := range []struct{ name, root, dsn, want string }{
		{"no_folder", filepath.Join(run, "none"), "", "no such folder"},
		{"a_file", file, "", "is a file"},
		{"a_run", run, "", "folder of one run"},
		{"unknown_scheme", t.TempDir(), "mysql://x", "need postgres://"},
		{"no_server", t.TempDir(), "postgres://u@127.0.0.1:1/x?connect_timeout=2", "PostgreSQL"},
		{"no_folder_of_the_index", t.TempDir(), "/nowhere/index.sqlite", "cannot be written"},
	} {
		s, err := Open(t.Context(), c.root, c.dsn)
		if err == nil {
			_, err = s.Sync(t.Context(), c.root)
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// TestOpen_oddPaths: no character of a path means anything to the database.
func TestOpen_oddPaths(t *testing.T) {
	root := filepath.Join(t.TempDir(), "a?mode=ro&b#c %20 d'é")
	if err := writeRun(filepath.Join(root, "run"), summaryWith(1)); err != nil {
		t.Fatal(err)
	}
	s := open(t, root, "")
	syncOnce(t, s, root)
	checkContents(t, s, root)
	if _, err := os.Stat(filepath.Join(root, IndexFile)); err != nil {
		t.Error(err)
	}
}

// TestQuery_readsOnly: no statement changes the index or writes a file.
func TestQuery_readsOnly(t *testing.T) {
	backends(t, func(t *testing.T, root, dsn string) {
		for i := range 3 {
			if err := writeRun(filepath.Join(root, fmt.Sprint("r", i)), summaryWith(uint64(i))); err != nil {
				t.Fatal(err)
			}
		}
		s := open(t, root, dsn)
		syncOnce(t, s, root)
		run := func(text string) (rows [][]any, err error) {
			err = s.Query(t.Context(), text, func([]string) error { return nil }, func(v []any) error { rows = append(rows, append([]any{}, v...)); return nil })
			return rows, err
		}
		out := filepath.Join(t.TempDir(), "out.sqlite")
		for _, text := range []string{"DELETE FROM run_index", "SELECT 1; DELETE FROM run_index", "SELECT ';' /* ; */; DROP VIEW runs", "VACUUM INTO '" + out + "'", "ATTACH '" + out + "' AS x",
			"WITH x AS (SELECT 1) DELETE FROM run_index", "WITH x AS (DELETE FROM run_index RETURNING id) SELECT * FROM x", "PRAGMA query_only = 0", "COMMIT", "", "-- nothing",
			"SELECT no_such_column FROM runs", "EXPLAIN ANALYZE DELETE FROM run_index"} {
			if _, err := run(text); err == nil || !errors.Is(err, experiments.ErrInput) {
				t.Errorf("%s: error %v", text, err)
			}
		}
		if _, err := os.Stat(out); err == nil {
			t.Error("a file was written")
		}
		checkContents(t, s, root)
		for view, columns := range map[string]string{"runs": "id, place, folder, run, sweep, cell, repeat, warmup, playbook, lab, state, reason, verdict, began, ended, duration_s, time_scale, line_rate_bps, inputs_sha256, trace_sha256",
			"scores": "run_id, run, folder, cell, repeat, warmup, metric, phase, flow, value, unit, reason", "params": "run_id, run, folder, cell, key, value",
			"provenance": "run_id, run, folder, key, value", "checks": "run_id, run, folder, cell, repeat, name, that, verdict, reason"} {
			if _, err := run("SELECT " + columns + " FROM " + view); err != nil {
				t.Errorf("%s: %v", view, err)
			}
		}
		rows, err := run(" SELECT count(*), min(value) FROM scores -- of all runs; really\n WHERE metric = 'jain';")
		if err != nil || len(rows) != 1 || fmt.Sprint(rows[0][0]) != "9" {
			t.Errorf("rows %v, %v", rows, err)
		}
	})
}

func TestRemove(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	for _, dir := range []string{filepath.Join(root, "r1"), filepath.Join(root, "r2"), filepath.Join(outside, "theirs"), filepath.Join(root, "s-sweep", "c1", "01"), filepath.Join(root, "s-sweep", "c1", "02")} {
		if err := writeRun(dir, summaryWith(1)); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range map[string]string{filepath.Join(root, "s-sweep", experiments.SweepFile): "{}", filepath.Join(outside, "precious"): "x", filepath.Join(root, "notes.txt"): "x"} {
		if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	between := filepath.Join(root, "t-sweep") // a sweep between two of its runs
	if err := errors.Join(os.Mkdir(between, 0o755), os.WriteFile(filepath.Join(between, experiments.SweepFile), []byte("{}"), 0o644)); err != nil {
		t.Fatal(err)
	}
	status := experiments.Status{State: experiments.LiveRunning, Process: process.This()}
	if err := status.Save(between); err != nil {
		t.Fatal(err)
	}
	os.Symlink(outside, filepath.Join(root, "link"))
	os.Symlink(outside, filepath.Join(root, "r1", "link"))
	os.Mkdir(filepath.Join(root, "empty"), 0o755)
	b, err := experiments.CreateBundle(root, "live")
	if err != nil {
		t.Fatal(err)
	}
	inSweep, err := experiments.CreateBundle(filepath.Join(root, "s-sweep", "c2"), "01")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir  string
		want error
	}{
		{"link/theirs", experiments.ErrInput}, {"link", experiments.ErrInput}, {"../" + filepath.Base(outside) + "/theirs", experiments.ErrInput}, {".", experiments.ErrInput}, {"", experiments.ErrInput},
		{"none", experiments.ErrInput}, {"empty", experiments.ErrInput}, {"notes.txt", experiments.ErrInput}, {"live", experiments.ErrBusy}, {"s-sweep", experiments.ErrBusy}, {"t-sweep", experiments.ErrBusy},
	} {
		if err := Remove(root, c.dir); !errors.Is(err, c.want) {
			t.Errorf("%q: error %v, want %v", c.dir, err, c.want)
		}
	}
	status.State = experiments.LiveEnded
	if err := status.Save(between); err != nil {
		t.Fatal(err)
	}
	inSweep.Close(experiments.StateComplete, "", "test")
	b.Close(experiments.StateComplete, "", "test")
	s := open(t, root, "")
	syncOnce(t, s, root)
	for _, dir := range []string{"r1", "live", "s-sweep/c1/01", "s-sweep", "t-sweep"} {
		if err := Remove(root, dir); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		if err := s.Forget(t.Context(), root, dir); err != nil {
			t.Error(err)
		}
		checkContents(t, s, root)
	}
	if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
		t.Error("a link was followed")
	}
	left, _ := os.ReadDir(root)
	var names []string
	for _, e := range left {
		if !strings.HasPrefix(e.Name(), IndexFile) {
			names = append(names, e.Name())
		}
	}
	if got := strings.Join(names, " "); got != "empty link notes.txt r2" {
		t.Errorf("left: %s", got)
	}
}
