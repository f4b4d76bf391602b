package locks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Dir is where this host keeps its locks. /run/lock is for all users and empty after a boot, when no run is left either;
// PCMLAB_LOCK_DIR is for hosts that have none.
func Dir() string {
	if dir := os.Getenv("PCMLAB_LOCK_DIR"); dir != "" {
		return dir
	}
	return "/run/lock/pcmlab"
}

const suffix = ".json"

// Store is the locks of this host.
type Store struct {
	Dir string
	Now func() time.Time // nil: time.Now
}

func (s *Store) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// Take makes a lock, or says in a *BusyError whose are in the way; a lock of the same holder is replaced, and returned.
func (s *Store) Take(l Lock) (before *Lock, err error) {
	if l.ID == "" || l.Owner == "" || len(l.Resources) == 0 {
		return nil, fmt.Errorf("lock: id %q, owner %q, %d resources: need all three", l.ID, l.Owner, len(l.Resources))
	}
	err = s.alone(func() error {
		all, err := s.sweep()
		if err != nil {
			return err
		}
		busy := &BusyError{}
		for _, o := range all {
			if o.Run == l.Run && o.ID == l.ID {
				before = &o
			}
			for _, r := range l.conflicts(&o) {
				busy.Held = append(busy.Held, Held{Resource: r, Lock: o})
			}
		}
		if len(busy.Held) > 0 {
			return busy
		}
		return s.write(l)
	})
	return before, err
}

// Drop takes a lock away; it is no mistake when there is none.
func (s *Store) Drop(id string, run bool) error {
	return s.alone(func() error {
		if err := os.Remove(s.file(id, run)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("lock of %s: %w (its owner or root can remove it)", id, err)
		}
		return nil
	})
}

// List is the locks that count, oldest first.
func (s *Store) List() (all []Lock, err error) {
	if _, err := os.Stat(s.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	err = s.alone(func() error { all, err = s.sweep(); return err })
	return all, err
}

// file keeps any id to one name in the folder.
func (s *Store) file(id string, run bool) string {
	kind := "person-"
	if run {
		kind = "run-"
	}
	return filepath.Join(s.Dir, kind+url.PathEscape(id)+suffix)
}

// write puts the lock in place at once: a reader without the flock never sees half of it.
func (s *Store) write(l Lock) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	file := s.file(l.ID, l.Run)
	f, err := os.CreateTemp(s.Dir, ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(data, '\n'))
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// sweep reads all locks and removes those that count no more, as far as it may.
func (s *Store) sweep() ([]Lock, error) {
	files, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil, err
	}
	var all []Lock
	for _, e := range files {
		if strings.HasPrefix(e.Name(), ".") || !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		file := filepath.Join(s.Dir, e.Name())
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var l Lock
		if err == nil {
			err = json.Unmarshal(data, &l)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w (remove it when it is nobody's)", file, err)
		}
		if !l.Live(s.now()) {
			_ = os.Remove(file) // another user's may stay: it counts for nothing
			continue
		}
		all = append(all, l)
	}
	slices.SortStableFunc(all, func(a, b Lock) int { return a.Since.Compare(b.Since) })
	return all, nil
}

// alone runs f while nobody else changes locks here. The folder is one for all users, as /tmp is: sticky.
func (s *Store) alone(f func() error) error {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return fmt.Errorf("folder of locks: %w (PCMLAB_LOCK_DIR names another)", err)
	}
	if info, err := os.Stat(s.Dir); err == nil && info.Mode().Perm() != 0o777 {
		_ = os.Chmod(s.Dir, 0o777|os.ModeSticky) // only its maker can, who is the first here
	}
	file := filepath.Join(s.Dir, ".lock")
	fd, err := os.OpenFile(file, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		// Not made in one step with opening: in sticky folders Linux refuses that for files of others.
		if fd, err = os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o666); err == nil {
			_ = fd.Chmod(0o666)
		}
	}
	if err != nil {
		return fmt.Errorf("folder of locks: %w (PCMLAB_LOCK_DIR names another)", err)
	}
	defer fd.Close()
	if err := syscall.Flock(int(fd.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return f()
}
