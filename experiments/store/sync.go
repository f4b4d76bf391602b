package store

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/experiments"
)

// StateUnreadable is the state of a folder whose files cannot be read; its reason says why.
const StateUnreadable experiments.BundleState = "unreadable"

// Synced says what Sync changed in the index.
type Synced struct {
	Added, Changed, Removed int
	Warnings                []string // folders that could not be looked into; what the index has of them is kept
}

// batchSize is how many runs are written at once: other writers wait for it, and a killed one loses no more.
const batchSize = 64

// Sync brings the index to what the folders below root say: it reads the runs that are new or have changed, and drops those that
// are gone. A run whose folder has the modification time it was indexed with is not read. Several may sync at once, and
// one that is killed leaves an index that the next one completes.
func (s *Store) Sync(ctx context.Context, root string) (Synced, error) {
	done, err := s.sync(ctx, root, false)
	return done, s.explain(err)
}

// Rebuild reads every run again. Meanwhile the index can be used, and ends as one that was made anew.
func (s *Store) Rebuild(ctx context.Context, root string) (Synced, error) {
	done, err := s.sync(ctx, root, true)
	return done, s.explain(err)
}

func (s *Store) sync(ctx context.Context, root string, again bool) (done Synced, err error) {
	abs, err := existingFolder(root)
	if err != nil {
		return done, err
	}
	place, err := s.place(ctx, abs)
	if err != nil {
		return done, err
	}
	// What is known comes before the walk: what another process indexes meanwhile is none of what can be dropped.
	known, err := s.known(ctx, place)
	if err != nil {
		return done, err
	}
	w := walk{root: abs, known: known, again: again, now: time.Now(), lookedAt: lookedAt}
	w.folder("")
	done.Warnings = w.warnings
	if done.Removed, err = s.drop(ctx, place, w.gone()); err != nil {
		return done, err
	}
	err = s.read(ctx, abs, w.todo, func(batch []entry) error {
		if err := s.put(ctx, place, batch); err != nil {
			return err
		}
		for _, e := range batch {
			if known.find(e.dir) != nil {
				done.Changed++
			} else {
				done.Added++
			}
		}
		return nil
	})
	return done, err
}

// placeName names a folder of runs in the index.
func (s *Store) placeName(abs string) string {
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real // the same folder by another way is the same place
	}
	switch {
	case s.host != "":
		return s.host + ":" + abs
	case s.root != "":
		return "." // the file lies in it, and moves with it
	}
	return abs
}

// place is the number of a folder of runs.
func (s *Store) place(ctx context.Context, abs string) (id int64, err error) {
	name := s.placeName(abs)
	find := func() error {
		return s.db.QueryRowContext(ctx, s.dialect.query("SELECT id FROM places WHERE name = ?"), name).Scan(&id)
	}
	if err := find(); err != sql.ErrNoRows {
		return id, err
	}
	err = s.update(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, s.dialect.query("INSERT INTO places (name) VALUES (?) ON CONFLICT DO NOTHING"), name)
		return err
	})
	if err != nil {
		return 0, err
	}
	return id, find()
}

// knownRun is what the index has of a folder.
type knownRun struct {
	dir   string
	stamp int64
	ended bool
	seen  bool // by the walk
}

// knownRuns are sorted by folder. They are no map, for ten thousand entries of a map cost more than all else that a sync does.
type knownRuns []knownRun

func (k knownRuns) find(dir string) *knownRun {
	i, ok := slices.BinarySearchFunc(k, dir, func(r knownRun, dir string) int { return strings.Compare(r.dir, dir) })
	if !ok {
		return nil
	}
	return &k[i]
}

// known are the folders that the index has of a place.
func (s *Store) known(ctx context.Context, place int64) (knownRuns, error) {
	var all *string
	if err := s.db.QueryRowContext(ctx, s.dialect.query(s.dialect.gather), place).Scan(&all); err != nil || all == nil {
		return nil, err
	}
	known := make(knownRuns, 0, strings.Count(*all, "//")+1)
	for one := range strings.SplitSeq(*all, "//") { // no clean path has two slashes in a row
		text, dir, ok := strings.Cut(one, "/")
		text, hasEnded := strings.CutPrefix(text, "=")
		stamp, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("folder %q of the index cannot be read", one)
		}
		known = append(known, knownRun{dir: dir, stamp: stamp, ended: hasEnded})
	}
	order := func(a, b knownRun) int { return strings.Compare(a.dir, b.dir) }
	if !slices.IsSortedFunc(known, order) {
		slices.SortFunc(known, order)
	}
	return known, nil
}

// walk looks for the folders of runs that have to be read.
type walk struct {
	root     string
	known    knownRuns
	again    bool
	now      time.Time
	lookedAt int // see the constant

	todo     []entry
	blind    []string // folders that could not be looked into
	warnings []string
}

// lookedAt is how many folders of runs that ended are looked at in one sync.
const lookedAt = 2000

// trusted says that the folder of a run is not looked at this time.
func (w *walk) trusted(k *knownRun) bool {
	return k.ended && k.stamp != 0 && !w.again && len(w.known) > w.lookedAt && rand.IntN(len(w.known)) >= w.lookedAt
}

// settled is how long a folder must be unchanged until its modification time is trusted: within the resolution of the file
// system's clock it could change again and keep its time.
const settled = 2 * time.Second

// stampOf is the modification time of a folder, and 0 for one that is to be read again the next time.
func stampOf(modified int64, now time.Time) int64 {
	if now.UnixNano()-modified < settled.Nanoseconds() {
		return 0
	}
	return modified
}

func (w *walk) folder(dir string) {
	full, prefix := w.root, ""
	if dir != "" {
		full, prefix = filepath.Join(w.root, filepath.FromSlash(dir)), dir+"/"
	}
	folders, err := w.subfolders(full, prefix)
	if err != nil { // and what was read before it is used
		w.blind = append(w.blind, dir)
		w.warnings = append(w.warnings, err.Error())
	}
	for _, f := range folders {
		at := prefix + f.name
		stamp := stampOf(f.modified, w.now)
		switch {
		case f.known != nil && !w.again && stamp != 0 && stamp == f.known.stamp:
			f.known.seen = true
		case experiments.IsRun(filepath.Join(full, f.name)):
			if !utf8.ValidString(at) {
				w.warnings = append(w.warnings, fmt.Sprintf("%q: left out: its name is no UTF-8", at))
				continue
			}
			if f.known != nil {
				f.known.seen = true
			}
			w.todo = append(w.todo, entry{dir: at, stamp: stamp})
		default:
			w.folder(at)
		}
	}
}

// subfolder is a folder that may hold runs, or be one.
type subfolder struct {
	name     string
	known    *knownRun
	modified int64 // ns
}

// subfolders lists the folders in a folder that have to be looked at, without those whose names begin with a dot. Links to
// folders are none. Folders that are trusted are seen by their names alone; a file system call is all that another one costs.
func (w *walk) subfolders(full, prefix string) ([]subfolder, error) {
	d, err := os.Open(full)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, readErr := d.Readdirnames(-1)
	var found []subfolder
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			continue
		}
		k := w.known.find(prefix + name)
		if k != nil && w.trusted(k) {
			k.seen = true
		} else {
			found = append(found, subfolder{name: name, known: k})
		}
	}
	fd := int(d.Fd())
	var wg sync.WaitGroup
	for part := range slices.Chunk(found, max(256, len(found)/runtime.GOMAXPROCS(0)+1)) {
		wg.Go(func() {
			var st unix.Stat_t
			for i := range part {
				if unix.Fstatat(fd, part[i].name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
					part[i].modified = time.Unix(st.Mtim.Unix()).UnixNano()
				} else {
					part[i].name = "" // a file, a link, or gone meanwhile
				}
			}
		})
	}
	wg.Wait()
	found = slices.DeleteFunc(found, func(f subfolder) bool { return f.name == "" })
	slices.SortFunc(found, func(a, b subfolder) int { return strings.Compare(a.name, b.name) })
	return found, readErr
}

// gone are known folders that are no longer there, with their stamps.
func (w *walk) gone() map[string]int64 {
	gone := map[string]int64{}
	for i := range w.known {
		k := &w.known[i]
		hidden := slices.ContainsFunc(w.blind, func(b string) bool { return b == "" || k.dir == b || strings.HasPrefix(k.dir, b+"/") })
		if !k.seen && !hidden {
			gone[k.dir] = k.stamp
		}
	}
	return gone
}

// drop removes folders from the index, but not those that another process has indexed again meanwhile.
func (s *Store) drop(ctx context.Context, place int64, gone map[string]int64) (n int, err error) {
	if len(gone) == 0 {
		return 0, nil
	}
	dirs := make([]string, 0, len(gone))
	for dir := range gone {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	err = s.update(ctx, func(tx *sql.Tx) error {
		n = 0
		for _, dir := range dirs {
			res, err := tx.ExecContext(ctx, s.dialect.query("DELETE FROM run_index WHERE place = ? AND dir = ? AND stamp = ?"), place, dir, gone[dir])
			if err != nil {
				return err
			}
			if k, err := res.RowsAffected(); err == nil {
				n += int(k)
			}
		}
		return nil
	})
	return n, err
}

// read reads the summaries of folders, several at once, and hands them over in batches.
func (s *Store) read(ctx context.Context, root string, todo []entry, write func([]entry) error) error {
	for batch := range slices.Chunk(todo, batchSize) {
		var g errgroup.Group
		g.SetLimit(runtime.GOMAXPROCS(0))
		for i := range batch {
			g.Go(func() error {
				batch[i].summary = summaryOf(filepath.Join(root, filepath.FromSlash(batch[i].dir)))
				return nil
			})
		}
		g.Wait()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := write(batch); err != nil {
			return err
		}
		for i := range batch {
			batch[i].summary = nil // ten thousand of them are not held
		}
	}
	return nil
}

// summaryOf is the summary of a folder; one that cannot be read is in the index as what it is.
func summaryOf(dir string) *experiments.Summary {
	summary, err := experiments.LoadSummary(dir)
	if err != nil {
		return &experiments.Summary{Schema: "pcmlab/summary/v1", Run: filepath.Base(dir), Dir: dir, State: StateUnreadable, Reason: err.Error(),
			Verdict: experiments.Skip, TimeScale: 1, Checks: []experiments.CheckResult{}, Scores: []experiments.Score{}, Provenance: map[string]string{}}
	}
	return summary
}

// Note puts one run that has ended into the index of root, so that the next question need not read it.
func Note(ctx context.Context, root, dsn string, summary *experiments.Summary) (err error) {
	s, err := Open(ctx, root, dsn)
	if err != nil {
		return err
	}
	defer func() {
		if e := s.Close(); err == nil {
			err = s.explain(e)
		}
	}()
	abs, err := existingFolder(root)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(summary.Dir)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(abs, dir)
	if err != nil || !filepath.IsLocal(rel) {
		return fmt.Errorf("%w: run %s does not lie in %s", experiments.ErrInput, summary.Dir, root)
	}
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	place, err := s.place(ctx, abs)
	if err != nil {
		return s.explain(err)
	}
	return s.explain(s.put(ctx, place, []entry{{filepath.ToSlash(rel), stampOf(st.ModTime().UnixNano(), time.Now()), summary}}))
}
