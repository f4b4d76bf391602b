package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pcmlab/pcmlab/experiments"
)

// tree is a folder of runs that changes. Times of folders are set, for tests are faster than clocks.
type tree struct {
	root string
	tick int
}

func (f *tree) touch(dir string) {
	f.tick++
	at := time.Date(2026, 1, 1, 0, 0, 0, f.tick, time.UTC)
	os.Chtimes(filepath.Join(f.root, dir), at, at)
}

// TestSync_saysWhatTheFoldersSay: whatever happens to the folders between two syncs, the index then says what they say, as one
// that is made anew does.
func TestSync_saysWhatTheFoldersSay(t *testing.T) {
	names := []string{"a", "b", "c", "x-sweep/c1/01", "x-sweep/c1/02", "x-sweep/c2/01", "old/d", ".hidden/e", "x-sweep/.unfinished/f", "quo'te ?"}
	backends(t, func(t *testing.T, _, dsn string) {
		count := 0
		rapid.Check(t, func(rt *rapid.T) {
			count++
			f := tree{root: filepath.Join(t.TempDir(), fmt.Sprint(count))}
			if err := os.MkdirAll(f.root, 0o755); err != nil {
				t.Fatal(err)
			}
			s, err := Open(t.Context(), f.root, dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for range rapid.IntRange(1, 12).Draw(rt, "steps") {
				dir := rapid.SampledFrom(names).Draw(rt, "folder")
				full := filepath.Join(f.root, dir)
				what := rapid.SampledFrom([]string{"run", "run", "kill", "end", "remove", "remove all", "damage", "sync", "sync", "rebuild"}).Draw(rt, "what")
				switch what {
				case "run":
					err = writeRun(full, summaryWith(rapid.Uint64().Draw(rt, "seed")))
				case "kill":
					if err = writeRun(full, summaryWith(rapid.Uint64().Draw(rt, "seed"))); err == nil {
						err = os.Remove(filepath.Join(full, "manifest.json"))
					}
				case "end":
					if experiments.IsRun(full) {
						err = os.WriteFile(filepath.Join(full, "manifest.json"), []byte("{}"), 0o644)
					}
				case "remove":
					err = os.RemoveAll(full)
				case "remove all":
					err = os.RemoveAll(filepath.Join(f.root, "x-sweep"))
				case "damage":
					if experiments.IsRun(full) {
						err = os.WriteFile(filepath.Join(full, experiments.SummaryFile), []byte("{"), 0o644)
					}
				case "sync":
					_, err = s.Sync(t.Context(), f.root)
				case "rebuild":
					_, err = s.Rebuild(t.Context(), f.root)
				}
				if err != nil {
					t.Fatal(err)
				}
				f.touch(dir)
			}
			if _, err := s.Sync(t.Context(), f.root); err != nil {
				t.Fatal(err)
			}
			of := func(s *Store) map[string]*experiments.Summary {
				all := contents(t, s)
				return all
			}
			if dsn != "" { // others' folders are in the same database, and stay there
				of = func(s *Store) map[string]*experiments.Summary { return contentsOf(t, s, f.root) }
			}
			if diff := cmp.Diff(truth(t, f.root), of(s), sameSummary); diff != "" {
				rt.Fatalf("(-folders +index):\n%s", diff)
			}
			done, err := s.Sync(t.Context(), f.root)
			if err != nil || done.Added+done.Removed+done.Changed != 0 {
				rt.Fatalf("a second sync changed %+v, %v", done, err)
			}
			if _, err := s.Rebuild(t.Context(), f.root); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(truth(t, f.root), of(s), sameSummary); diff != "" {
				rt.Fatalf("rebuilt (-folders +index):\n%s", diff)
			}
		})
	})
}

// contentsOf are the contents of one folder of runs of a shared index.
func contentsOf(t testing.TB, s *Store, root string) map[string]*experiments.Summary {
	t.Helper()
	rows, _, err := s.List(t.Context(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*experiments.Summary{}
	for _, r := range rows {
		if r.Place != s.placeName(root) {
			continue
		}
		summary, err := s.Summary(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		summary.Dir = ""
		all[r.Dir] = summary
	}
	return all
}

// TestSync_readsOnlyWhatChanged: a folder that is as it was is not read again; its summary could say anything.
func TestSync_readsOnlyWhatChanged(t *testing.T) {
	f := tree{root: t.TempDir()}
	for i := range 3 {
		if err := writeRun(filepath.Join(f.root, fmt.Sprint(i)), summaryWith(uint64(i))); err != nil {
			t.Fatal(err)
		}
		f.touch(fmt.Sprint(i))
	}
	s := open(t, f.root, "")
	if done := syncOnce(t, s, f.root); done.Added != 3 {
		t.Fatalf("%+v", done)
	}
	for i := range 3 { // in place: the folders' times stay
		if err := os.WriteFile(filepath.Join(f.root, fmt.Sprint(i), experiments.SummaryFile), []byte(`{"run": "other"}`), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f.touch("1")
	if done := syncOnce(t, s, f.root); done.Changed != 1 || done.Added+done.Removed != 0 {
		t.Errorf("%+v, want one change", done)
	}
	if done, err := s.Rebuild(t.Context(), f.root); err != nil || done.Changed != 3 {
		t.Errorf("rebuild: %+v %v, want all three", done, err)
	}
}

// TestSync_fresh: what was indexed as it was written is read again, for it may change without its folder's time changing.
func TestSync_fresh(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "run")
	if err := writeRun(dir, summaryWith(1)); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, root, "")
	syncOnce(t, s, root)
	if err := os.WriteFile(filepath.Join(dir, experiments.SummaryFile), []byte(`{"schema": "pcmlab/summary/v1", "run": "later"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	os.Chtimes(dir, st.ModTime(), st.ModTime())
	syncOnce(t, s, root)
	checkContents(t, s, root)
}

// TestSync_blind: a folder that cannot be looked into keeps what the index has of it.
func TestSync_blind(t *testing.T) {
	root := t.TempDir()
	w := walk{root: root, known: knownRuns{{dir: "gone/x", stamp: 1}, {dir: "shut/x", stamp: 2}}, now: time.Now()}
	if err := os.WriteFile(filepath.Join(root, "shut"), nil, 0o644); err != nil { // no folder: listing it fails, also for root
		t.Fatal(err)
	}
	w.folder("")
	w.folder("shut")
	if got := w.gone(); len(got) != 1 || got["gone/x"] != 1 || len(w.warnings) != 1 {
		t.Errorf("gone %v, warnings %v", got, w.warnings)
	}
}

// TestNote: a run that has ended is in the index without a sync, and a sync changes nothing of it.
func TestNote(t *testing.T) {
	backends(t, func(t *testing.T, root, dsn string) {
		dir := filepath.Join(root, "x-sweep", "c1", "01")
		if err := writeRun(dir, summaryWith(3)); err != nil {
			t.Fatal(err)
		}
		summary, err := experiments.LoadSummary(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := Note(t.Context(), root, dsn, summary); err != nil {
			t.Fatal(err)
		}
		s := open(t, root, dsn)
		checkContents(t, s, root)
		syncOnce(t, s, root)
		checkContents(t, s, root)
		if err := Note(t.Context(), filepath.Join(root, "x-sweep", "c1", ".."), dsn, &experiments.Summary{Dir: t.TempDir()}); err == nil {
			t.Error("a run outside the folder was taken")
		}
	})
}

// TestSync_placesOfOthers: in a shared index each folder of runs is synced for itself.
func TestSync_placesOfOthers(t *testing.T) {
	dsn := postgres(t)
	one, two := t.TempDir(), t.TempDir()
	for i, root := range []string{one, two} {
		if err := writeRun(filepath.Join(root, "run"), summaryWith(uint64(i))); err != nil {
			t.Fatal(err)
		}
		syncOnce(t, open(t, root, dsn), root)
	}
	s := open(t, one, dsn)
	s.db.Exec("UPDATE places SET name = 'other:' || substr(name, strpos(name, ':') + 1) WHERE name = $1", s.placeName(two))
	os.RemoveAll(filepath.Join(one, "run"))
	if done := syncOnce(t, s, one); done.Removed != 1 {
		t.Errorf("%+v", done)
	}
	rows, _, err := s.List(t.Context(), Filter{})
	if err != nil || len(rows) != 1 {
		t.Fatalf("rows %v, %v", rows, err)
	}
	real, _ := filepath.EvalSymlinks(two)
	if dir, here := s.Folder(rows[0], one); here || dir != "other:"+real+"/run" {
		t.Errorf("folder %s, here %v", dir, here)
	}
}

// TestList_filters holds every filter against a plain loop over the folders.
func TestList_filters(t *testing.T) {
	backends(t, func(t *testing.T, root, dsn string) {
		for i := range 60 {
			if err := writeRun(filepath.Join(root, fmt.Sprintf("r%02d", i)), summaryWith(uint64(i))); err != nil {
				t.Fatal(err)
			}
		}
		s := open(t, root, dsn)
		syncOnce(t, s, root)
		since := time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC)
		for _, c := range []struct {
			name string
			f    Filter
			is   func(dir string, s *experiments.Summary) bool
		}{
			{"playbook", Filter{Playbook: "incast-1"}, func(_ string, s *experiments.Summary) bool { return s.Playbook == "incast-1" }},
			{"lab_of_none", Filter{Lab: "other"}, func(string, *experiments.Summary) bool { return false }},
			{"state", Filter{State: "partial"}, func(_ string, s *experiments.Summary) bool { return s.State == "partial" }},
			{"verdict", Filter{Verdict: "pass"}, func(_ string, s *experiments.Summary) bool { return s.Verdict == "pass" }},
			{"since", Filter{Since: since}, func(_ string, s *experiments.Summary) bool { return !s.Began.Before(since) }},
			{"params", Filter{Params: []experiments.Param{{Key: "senders", Value: "1"}, {Key: "nic.dcqcn", Value: "off"}}}, func(_ string, s *experiments.Summary) bool {
				return s.Trial != nil && s.Trial.Params[0].Value == "1"
			}},
			{"name_of_folder", Filter{Name: "r1"}, func(dir string, s *experiments.Summary) bool { return dir[:2] == "r1" }},
			{"name_of_run", Filter{Name: "2026112"}, func(_ string, s *experiments.Summary) bool { return s.Run[:7] == "2026112" }},
			{"wildcards_are_no_wildcards", Filter{Name: "r_"}, func(string, *experiments.Summary) bool { return false }},
			{"all_at_once", Filter{Playbook: "incast-1", State: "complete", Since: since}, func(_ string, s *experiments.Summary) bool {
				return s.Playbook == "incast-1" && s.State == "complete" && !s.Began.Before(since)
			}},
		} {
			var want []string
			all := truth(t, root)
			for dir, summary := range all {
				if c.is(dir, summary) {
					want = append(want, dir)
				}
			}
			slices.SortFunc(want, func(a, b string) int { return all[b].Began.Compare(all[a].Began) })
			for _, limit := range []int{0, 3} {
				c.f.Limit = limit
				rows, total, err := s.List(t.Context(), c.f)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, r := range rows {
					got = append(got, r.Dir)
				}
				expected := want
				if limit > 0 {
					expected = want[:min(limit, len(want))]
				}
				if total != len(want) || !slices.Equal(got, expected) {
					t.Errorf("%s, limit %d: %v of %d, want %v of %d", c.name, limit, got, total, expected, len(want))
				}
			}
		}
	})
}

// TestWalk_looksAtAPart: of many runs that ended only a part is looked at, of those that did not end every one, and what is new
// or gone is noticed all the same.
func TestWalk_looksAtAPart(t *testing.T) {
	const runs, look = 500, 50
	f := tree{root: t.TempDir()}
	known := knownRuns{{dir: "gone", stamp: 1, ended: true}}
	for i := range runs {
		dir := fmt.Sprintf("r%03d", i)
		if err := writeRun(filepath.Join(f.root, dir), summaryWith(1)); err != nil {
			t.Fatal(err)
		}
		if i != 7 {
			known = append(known, knownRun{dir: dir, stamp: 1, ended: i%10 != 0}) // as if all had changed since
		}
		f.touch(dir)
	}
	w := walk{root: f.root, known: known, now: time.Now(), lookedAt: look}
	w.folder("")
	todo := map[string]bool{}
	for _, e := range w.todo {
		todo[e.dir] = true
	}
	for i := 0; i < runs; i += 10 {
		if dir := fmt.Sprintf("r%03d", i); !todo[dir] {
			t.Errorf("%s did not end, and was not looked at", dir)
		}
	}
	if !todo["r007"] || len(w.gone()) != 1 || w.gone()["gone"] != 1 {
		t.Errorf("new: %v, gone: %v", todo["r007"], w.gone())
	}
	if n := len(todo) - runs/10 - 1; n == 0 || n > 3*look {
		t.Errorf("%d of the runs that ended were looked at, want some %d", n, look)
	}
	w = walk{root: f.root, known: known, now: time.Now(), lookedAt: look, again: true}
	if w.folder(""); len(w.todo) != runs {
		t.Errorf("a rebuild reads %d of %d", len(w.todo), runs)
	}
}
