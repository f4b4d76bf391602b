package guard

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

// Record is one line of a guard's file ~/.cache/pcmlab/guards/RUN/ID.json. A guard that has ended removes its file unless
// something is left that it could not stop or restore: files are of guards at work, of those with something to mend, and
// of those that went down with their host. What a guard had to do is a line of ~/.cache/pcmlab/guards.log.
type Record struct {
	Event    string     `json:"event"` // "guarding", then "ended"
	At       time.Time  `json:"at"`
	Run      string     `json:"run"`
	ID       string     `json:"id"`
	Host     string     `json:"host"`
	BootID   string     `json:"boot_id"`
	PID      int        `json:"pid"` // of the outer guard
	Start    uint64     `json:"start"`
	Token    string     `json:"token,omitempty"`
	Args     []string   `json:"args"`
	Restore  []string   `json:"restore,omitempty"`
	Deadline *time.Time `json:"deadline,omitempty"`
	Exit     *ExitInfo  `json:"exit,omitempty"` // with "ended"
}

// Dir is the folder with a folder per run.
func Dir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("folder of guards: %w", err)
	}
	return filepath.Join(cache, "pcmlab", "guards"), nil
}

// logLimit is how large the log of guards may grow before it becomes guards.log.1, whose place it takes.
const logLimit = 256 << 10

// logFile is where guards say what they had to do, for whoever asks later what became of a run.
func logFile() (string, error) {
	dir, err := Dir()
	return filepath.Join(filepath.Dir(dir), "guards.log"), err
}

// logEnd adds how a guard ended to the log.
func logEnd(r Record) error {
	file, err := logFile()
	if err != nil {
		return err
	}
	if st, err := os.Stat(file); err == nil && st.Size() > logLimit {
		os.Rename(file, file+".1") // of two that do this at once one fails, or moves a log that has just begun: nothing is lost but an older one
	}
	return appendRecord(file, r)
}

// Log is what guards of a run had to do on this host, as far as the log goes back.
func Log(run string) (ends []Record, err error) {
	file, err := logFile()
	if err != nil {
		return nil, err
	}
	for _, f := range []string{file + ".1", file} {
		recs, err := readRecords(f)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, r := range recs {
			if r.Run == run {
				ends = append(ends, r)
			}
		}
	}
	return ends, nil
}

// validRun keeps run ids usable as file names.
func validRun(id string) error {
	if id == "" || len(id) > 100 || strings.HasPrefix(id, ".") {
		return fmt.Errorf("run id %q: want 1 to 100 characters that do not begin with a dot", id)
	}
	for _, r := range id {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+:", r) {
			return fmt.Errorf("run id %q: %q is not a letter, digit or one of - _ . + :", id, r)
		}
	}
	return nil
}

// appendRecord adds a line to the guard's file.
func appendRecord(path string, r Record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

// readRecords reads a guard's file. A last line that was cut short is ignored.
func readRecords(path string) ([]Record, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []Record
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var r Record
		if json.Unmarshal(sc.Bytes(), &r) == nil {
			out = append(out, r)
		}
	}
	return out, sc.Err()
}

// State is one guard as List finds it.
type State struct {
	Record        // its first line
	Path   string // its file
	Alive  bool   // at work, on this host
	Ended  *Record
}

// List finds the guards of a run, or of all runs when run is empty, in the user's folder on this host. Records of
// other hosts (a shared home directory) and of earlier boots are reported as not alive.
func List(run string) ([]State, error) {
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	if run != "" {
		if err := validRun(run); err != nil {
			return nil, err
		}
	}
	runs := []string{run}
	if run == "" {
		runs = nil
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			runs = append(runs, e.Name())
		}
	}
	var out []State
	var errs []error
	for _, r := range runs {
		files, err := filepath.Glob(filepath.Join(dir, r, "*.json"))
		if err != nil {
			return nil, err
		}
		for _, path := range files {
			recs, err := readRecords(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue // ended meanwhile
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if len(recs) == 0 {
				continue
			}
			s := State{Record: recs[0], Path: path}
			if last := recs[len(recs)-1]; last.Event == "ended" {
				s.Ended = &last
			}
			s.Alive = guardAlive(s.Record)
			out = append(out, s)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].At.Before(out[j].At) })
	return out, errors.Join(errs...)
}
