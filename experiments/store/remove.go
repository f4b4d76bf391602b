package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/pcmlab/pcmlab/experiments"
)

// removedFolder is where folders go before they are removed: a removal that is killed leaves no half of a run, and the next
// one completes it.
const removedFolder = ".removed"

// CheckRemove says why the folder dir, below root and with slashes, must not be removed.
func CheckRemove(root, dir string) error {
	full := filepath.Join(root, filepath.FromSlash(dir))
	if !filepath.IsLocal(filepath.FromSlash(dir)) || path.Clean(dir) == "." {
		return fmt.Errorf("%w: %s does not lie in %s", experiments.ErrInput, dir, root)
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer r.Close()
	at := ""
	for _, name := range strings.Split(path.Clean(dir), "/") { // a link on the way could lead to somebody else's files
		at = path.Join(at, name)
		st, err := r.Lstat(filepath.FromSlash(at))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%w: %s: no such folder", experiments.ErrInput, full)
		case err != nil:
			return err
		case st.Mode()&fs.ModeSymlink != 0:
			return fmt.Errorf("%w: %s is a link: what it points to is not removed; remove the link by hand", experiments.ErrInput, filepath.Join(root, at))
		}
	}
	runs := []string{full}
	if _, err := os.Lstat(filepath.Join(full, experiments.SweepFile)); err == nil {
		if runs, err = experiments.FindRuns(full); err != nil {
			return err
		}
	} else if !experiments.IsRun(full) {
		return fmt.Errorf("%w: %s is no folder of a run or sweep", experiments.ErrInput, full)
	}
	for _, run := range append(runs, full) {
		if experiments.GoesOn(run) {
			return fmt.Errorf("%w: %s goes on: stop it first (pcmlab stop, or Ctrl-C where it runs)", experiments.ErrBusy, run)
		}
	}
	return nil
}

// Remove removes the folder of a run or sweep and everything in it. Links are removed, never followed.
func Remove(root, dir string) error {
	if err := CheckRemove(root, dir); err != nil {
		return err
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.Mkdir(removedFolder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	to := filepath.Join(removedFolder, fmt.Sprintf("%d-%s", os.Getpid(), path.Base(dir)))
	if err := r.Rename(filepath.FromSlash(dir), to); err != nil {
		return err
	}
	return r.RemoveAll(removedFolder)
}

// Forget drops a folder, and what lies below it, from the index.
func (s *Store) Forget(ctx context.Context, root, dir string) error {
	abs, err := existingFolder(root)
	if err != nil {
		return err
	}
	place, err := s.place(ctx, abs)
	if err != nil {
		return s.explain(err)
	}
	_, err = s.db.ExecContext(ctx, s.dialect.query("DELETE FROM run_index WHERE place = ? AND (dir = ? OR substr(dir, 1, ?) = ?)"), place, dir,
		len([]rune(dir))+1, dir+"/")
	return s.explain(err)
}
