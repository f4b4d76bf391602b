package knobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/internal/process"
)

// Journal is what a host remembers of a run's changes until they are put back.
type Journal struct {
	Run    string     `json:"run"`
	Owner  string     `json:"owner"` // user@machine of the orchestrator
	Began  time.Time  `json:"began"`
	Part   string     `json:"part,omitempty"` // of a run that has several on one host
	Holder process.ID `json:"holder"`         // the process of this host whose end is the end of the changes
	Steps  []Step     `json:"steps"`

	file string
}

// Step is one change. After is nil until the change was made and read back.
type Step struct {
	Knob   Knob    `json:"knob"`
	Before string  `json:"before"`
	After  *string `json:"after"`
}

// Dir is where this host keeps journals: where they outlive a reboot, and each virtual host has its own.
func Dir() string {
	if dir := os.Getenv("PCMLAB_KNOBS_DIR"); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return filepath.Join(os.TempDir(), "pcmlab-knobs")
	}
	return filepath.Join(cache, "pcmlab", "knobs")
}

// journalFile is one a run, part and host: virtual hosts of one machine share its disk.
func journalFile(dir, run, part string) string {
	host, _ := os.Hostname()
	if part != "" {
		run += "+" + part
	}
	return filepath.Join(dir, url.PathEscape(run)+"@"+url.PathEscape(host)+".json")
}

// save replaces the file at once and waits until it is on disk: the change that it announces comes after.
func (j *Journal) save() error {
	data, err := json.MarshalIndent(j, "", " ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(j.file)
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(data, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), j.file); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// load reads the journal of a run; fs.ErrNotExist: it has none here.
func load(dir, run string) (*Journal, error) { return read(journalFile(dir, run, "")) }

// Promise notes a change that the caller is about to make and to undo itself, as a part of a run of its own: when it does not come to that, whoever
// comes next restores as for any other knob. before is what the knob shows now.
func Promise(dir, run, owner, part string, k Knob, before string) (*Journal, error) {
	if err := k.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder of journals: %w", err)
	}
	j := &Journal{Run: run, Owner: owner, Part: part, Began: time.Now().UTC(), Holder: process.This(), Steps: []Step{{Knob: k, Before: before}}, file: journalFile(dir, run, part)}
	if _, err := os.Stat(j.file); err == nil {
		return nil, fmt.Errorf("run %s has a part %s here already", run, part)
	}
	if err := j.save(); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return j, nil
}

// restoreRun puts back what a run changed, the last part first, but not what a living process still holds.
func restoreRun(ctx context.Context, dir, run string) error {
	all, err := List(dir)
	slices.SortStableFunc(all, func(a, b *Journal) int { return b.Began.Compare(a.Began) })
	errs := []error{err}
	for _, j := range all {
		if j.Run == run && !j.Holder.Alive() {
			errs = append(errs, j.Restore(ctx))
		}
	}
	return errors.Join(errs...)
}

func read(file string) (*Journal, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	j := &Journal{file: file}
	if err := json.Unmarshal(data, j); err != nil {
		return nil, fmt.Errorf("%s: %w (it says what a run changed on this host)", file, err)
	}
	return j, nil
}

// List is the journals of this host whose changes are not put back, those of runs that go on among them.
func List(dir string) ([]*Journal, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	var all []*Journal
	var errs []error
	for _, e := range files {
		if strings.HasPrefix(e.Name(), ".") || !strings.HasSuffix(e.Name(), "@"+url.PathEscape(host)+".json") {
			continue
		}
		j, err := read(filepath.Join(dir, e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, err)
		default:
			all = append(all, j)
		}
	}
	return all, errors.Join(errs...)
}
