package store

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestProcesses_atOnce: several processes make runs, note them and sync the same folder; every run is in the index.
func TestProcesses_atOnce(t *testing.T) {
	backends(t, func(t *testing.T, root, dsn string) {
		var all []*exec.Cmd
		for i := range 4 { // none finds an index: all of them make it
			all = append(all, child(t, "note", root, dsn, i), child(t, "sync", root, dsn, i))
		}
		for _, p := range all {
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range all {
			if err := p.Wait(); err != nil {
				t.Errorf("a process failed: %v", err)
			}
		}
		s := open(t, root, dsn)
		if before := contents(t, s); len(before) != 80 {
			t.Errorf("%d runs are in the index before a sync, want the 80 that were noted", len(before))
		}
		syncOnce(t, s, root)
		checkContents(t, s, root)
	})
}

// TestProcesses_killed: a sync is killed at any moment, again and again; the index is never damaged, never loses what was
// written, and the sync that is let live completes it.
func TestProcesses_killed(t *testing.T) {
	const runs, kills = 400, 15
	source := t.TempDir()
	for i := range runs {
		if err := writeRun(filepath.Join(source, fmt.Sprintf("r%03d", i)), summaryWith(uint64(i))); err != nil {
			t.Fatal(err)
		}
		(&tree{root: source, tick: i}).touch(fmt.Sprintf("r%03d", i))
	}
	backends(t, func(t *testing.T, _, dsn string) {
		root := source
		if dsn == "" {
			dsn = filepath.Join(t.TempDir(), "index.sqlite")
		}
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		killed, last := 0, 0
		for range kills {
			p := child(t, "sync", root, dsn, 0)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- p.Wait() }()
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(time.Duration(random.Int64N(int64(500 * time.Millisecond)))):
				p.Process.Kill()
				<-done
				killed++
			}
			s := open(t, root, dsn)
			_, n, err := s.List(t.Context(), Filter{})
			if err != nil {
				t.Fatal(err)
			}
			if n < last {
				t.Errorf("%d runs after a kill, %d before", n, last)
			}
			last = n
			s.Close()
		}
		if killed == 0 {
			t.Error("no sync was killed: the test shows nothing")
		}
		t.Logf("%d of %d killed, the last left %d of %d runs", killed, kills, last, runs)
		s := open(t, root, dsn)
		syncOnce(t, s, root)
		checkContents(t, s, root)
	})
}

// olderIndex makes an index as version had it, with one run of each kind, by hand: today's code writes today's schema.
func olderIndex(t *testing.T, root, dsn string, version int, dirs []string) {
	t.Helper()
	s, err := openVersion(t.Context(), root, dsn, version)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	real, _ := filepath.EvalSymlinks(root)
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := s.db.Exec(s.dialect.query(query), args...); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	exec("INSERT INTO places (id, name) VALUES (70, ?)", s.placeName(real))
	exec("INSERT INTO score_names VALUES (71, 'jain', 'one', '', '')")
	exec("INSERT INTO facts VALUES (72, 'host.h1.kernel', '6.1')")
	for i, dir := range dirs {
		st, err := os.Stat(filepath.Join(root, dir))
		if err != nil {
			t.Fatal(err)
		}
		id := 100 + i
		exec("INSERT INTO run_index VALUES (?, 70, ?, ?, 'a run', 'p', 'l', 'complete', '', 'pass', NULL, NULL, NULL, 1, NULL, '', NULL, 's', 'c', 1, ?)", id, dir, st.ModTime().UnixNano(), false)
		exec("INSERT INTO param_index VALUES (?, 0, 'k', 'v')", id)
		exec("INSERT INTO score_index VALUES (?, 0, 71, 0.5, '')", id)
		exec("INSERT INTO fact_index VALUES (?, 72)", id)
		if version >= 2 {
			exec("INSERT INTO check_index VALUES (?, 0, 'n', 't', 'pass', '', 'null')", id)
		}
	}
}

// TestUpgrade: an index of every older version is brought up to date by whoever comes first, several at once; what it had is
// still there, and after a sync it says what the folders say.
func TestUpgrade(t *testing.T) {
	for version := 1; version < len(migrations); version++ {
		t.Run(fmt.Sprintf("from_%d", version), func(t *testing.T) {
			backends(t, func(t *testing.T, root, dsn string) {
				var dirs []string
				f := tree{root: root}
				for i := range 5 {
					dirs = append(dirs, fmt.Sprintf("r%d", i))
					if err := writeRun(filepath.Join(root, dirs[i]), summaryWith(uint64(i))); err != nil {
						t.Fatal(err)
					}
					f.touch(dirs[i])
				}
				olderIndex(t, root, dsn, version, dirs)
				elsewhere := t.TempDir() // the processes sync another folder: none of them reads the runs again
				var all []*exec.Cmd
				for i := range 4 {
					p := child(t, "sync", elsewhere, dsn, i)
					if dsn == "" {
						p = child(t, "sync", elsewhere, filepath.Join(root, IndexFile), i)
					}
					if err := p.Start(); err != nil {
						t.Fatal(err)
					}
					all = append(all, p)
				}
				for _, p := range all {
					if err := p.Wait(); err != nil {
						t.Errorf("a process failed: %v", err)
					}
				}
				s := open(t, root, dsn)
				if n, err := s.version(t.Context(), s.db); err != nil || n != len(migrations) {
					t.Errorf("version %d, %v", n, err)
				}
				for _, summary := range contents(t, s) {
					if len(summary.Trial.Params) != 1 || len(summary.Scores) != 1 || *summary.Scores[0].Value != 0.5 || summary.Provenance["host.h1.kernel"] != "6.1" {
						t.Errorf("lost by the upgrade: %+v", summary)
					}
				}
				if done := syncOnce(t, s, root); done.Changed != len(dirs) {
					t.Errorf("%+v: what older versions did not index was not read", done)
				}
				checkContents(t, s, root)
			})
		})
	}
}

// TestUpgrade_schemaIsTheSame: an index that was upgraded step by step has the tables and views of one that was made at once.
func TestUpgrade_schemaIsTheSame(t *testing.T) {
	backends(t, func(t *testing.T, root, dsn string) {
		shape := func(s *Store) (all []string) {
			query := "SELECT coalesce(sql, name) FROM sqlite_master ORDER BY 1"
			if s.file == "" {
				query = "SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1"
			}
			rows, err := s.db.Query(query)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			for rows.Next() {
				var text sql.NullString
				if err := rows.Scan(&text); err != nil {
					t.Fatal(err)
				}
				all = append(all, text.String)
			}
			return all
		}
		for version := 1; version <= len(migrations); version++ {
			s, err := openVersion(t.Context(), root, dsn, version)
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
		}
		step := shape(open(t, root, dsn))
		other := t.TempDir()
		if dsn != "" {
			dsn = postgres(t)
		}
		atOnce := shape(open(t, other, dsn))
		if diff := cmp.Diff(atOnce, step); diff != "" || len(step) < 10 {
			t.Errorf("(-at once +step by step):\n%s", diff)
		}
	})
}
