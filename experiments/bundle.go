package experiments

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"syscall"
	"time"
)

// Bundle is the folder of one run. Everything that the result depends on is written below it; the manifest is written
// last, so that a folder without one is a run that did not end.
type Bundle struct {
	Dir string
	ID  string

	mu       sync.Mutex
	timeline *os.File
	began    time.Time
	broken   error    // why the timeline lacks lines
	reserve  *os.File // has no name: its room is free again when this process ends, however it does
}

// reserveBytes are kept back until the last files are written: a disk that fills up during a run must leave room to say so.
const reserveBytes = 256 << 10

// BundleState says how far a run came.
type BundleState string

// A complete run was measured to its end; a partial one kept what was measured before something broke or it was
// interrupted; a noisy one was complete, but the machine was too busy for its figures to be judged.
const (
	StateComplete BundleState = "complete"
	StatePartial  BundleState = "partial"
	StateNoisy    BundleState = "noisy"
)

// Manifest lists a bundle's files with their hashes. It is the last thing written.
type Manifest struct {
	Schema  string      `json:"schema"` // pcmlab/manifest/v1
	Run     string      `json:"run"`
	State   BundleState `json:"state"`
	Reason  string      `json:"reason,omitempty"` // why it is not complete
	Began   time.Time   `json:"began"`
	Ended   time.Time   `json:"ended"`
	Version string      `json:"version"` // of pcmlab
	// Redacted says that names and addresses are pseudonyms: `export --redact` wrote this folder.
	Redacted bool           `json:"redacted,omitempty"`
	Files    []ManifestFile `json:"files"`
}

// ManifestFile is one file of a bundle.
type ManifestFile struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// CreateBundle makes the folder parent/id. An existing folder is an error: runs are never overwritten. One that holds nothing but
// the status and the log of a run that has just begun is that run's own.
func CreateBundle(parent, id string) (*Bundle, error) {
	dir := filepath.Join(parent, id)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !onlyBegun(dir) {
		if errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("run folder %s: exists already; give another --out", dir)
		}
		return nil, fmt.Errorf("run folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "timeline.jsonl"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	// The lock says that the run goes on, for as long as this process lives: see GoesOn.
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil && !errors.Is(err, syscall.ENOTSUP) && !errors.Is(err, syscall.ENOLCK) {
		return nil, errors.Join(fmt.Errorf("run folder %s: lock timeline.jsonl: %w", dir, err), f.Close())
	}
	reserve, err := keepBack(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("run folder: %w", err), f.Close())
	}
	return &Bundle{Dir: dir, ID: id, timeline: f, reserve: reserve, began: time.Now()}, nil
}

func keepBack(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".reserve-*")
	if err != nil {
		return nil, err
	}
	_, err = f.Write(make([]byte, reserveBytes))
	if err := errors.Join(err, os.Remove(f.Name())); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Last gives the room back that was kept for the last files, and says why the timeline lacks lines, if it does.
func (b *Bundle) Last() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reserve != nil {
		b.reserve.Close()
		b.reserve = nil
	}
	return b.broken
}

// GoesOn says that a process on this machine (or, where the file system has such locks, on another) is writing the folder of a run or
// sweep. One that was killed does not go on.
func GoesOn(dir string) bool {
	if status, err := LoadStatus(dir); err == nil && status.State == LiveRunning {
		return true // also a sweep between two runs
	}
	f, err := os.Open(filepath.Join(dir, "timeline.jsonl"))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

func onlyBegun(dir string) bool {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != StatusFile && e.Name() != LogFile {
			return false
		}
	}
	return err == nil && len(entries) > 0
}

// Event is one line of the timeline, written as it happens.
type Event struct {
	At    time.Time `json:"at"`
	Event string    `json:"event"` // phase_start, flow_started, capture_ready, ...
	Host  string    `json:"host,omitempty"`
	Flow  string    `json:"flow,omitempty"`
	Phase string    `json:"phase,omitempty"`
	Text  string    `json:"text,omitempty"`
}

// Note writes an event to the timeline. A timeline that cannot be written is reported when the bundle is closed.
func (b *Bundle) Note(e Event) Event {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	e.At = e.At.UTC()
	line, _ := json.Marshal(e)
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.timeline.Write(append(line, '\n')); err != nil && b.broken == nil {
		b.broken = err
	}
	return e
}

// Path is the path of a file of the bundle; its folder is made.
func (b *Bundle) Path(name string) (string, error) {
	p := filepath.Join(b.Dir, filepath.FromSlash(name))
	return p, os.MkdirAll(filepath.Dir(p), 0o755)
}

// Write puts a file into the bundle: all of it or nothing.
func (b *Bundle) Write(name string, data []byte) error {
	p, err := b.Path(name)
	if err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	return writeAtomic(p, data)
}

// WriteJSON is Write with the document indented as every JSON file of a bundle is.
func (b *Bundle) WriteJSON(name string, v any) error {
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetIndent("", " ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("bundle: %s: %w", name, err)
	}
	return b.Write(name, data.Bytes())
}

// Close writes the manifest.
func (b *Bundle) Close(state BundleState, reason, version string) (Manifest, error) {
	broken := b.Last()
	b.mu.Lock()
	syncErr := errors.Join(broken, b.timeline.Sync())
	closeErr := b.timeline.Close()
	b.mu.Unlock()
	m := Manifest{Schema: "pcmlab/manifest/v1", Run: b.ID, State: state, Reason: reason,
		Began: b.began.UTC(), Ended: time.Now().UTC(), Version: version}
	files, err := listFiles(b.Dir)
	if err != nil {
		return m, fmt.Errorf("bundle: %w", err)
	}
	m.Files = files
	return m, errors.Join(syncErr, closeErr, b.WriteJSON("manifest.json", m))
}

// notListed are files that go on changing after the manifest is written, or are no part of the result.
var notListed = []string{"manifest.json", StatusFile, LogFile}

// Seal writes a manifest with the files as they are now: for a folder that is made from another one.
func Seal(dir string, m Manifest) (err error) {
	if m.Files, err = listFiles(dir); err != nil {
		return err
	}
	return (&Bundle{Dir: dir}).WriteJSON("manifest.json", m)
}

func listFiles(dir string) ([]ManifestFile, error) {
	var files []ManifestFile
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || slices.Contains(notListed, d.Name()) {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		h := sha256.New()
		n, err := io.Copy(h, f)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		files = append(files, ManifestFile{filepath.ToSlash(rel), n, hex.EncodeToString(h.Sum(nil))})
		return err
	})
	sort.Slice(files, func(i, j int) bool { return files[i].Path < files[j].Path })
	return files, err
}

// CheckManifest compares a bundle's files with its manifest and names every difference.
func CheckManifest(dir string) (*Manifest, []string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%s: no manifest.json: the run did not end (or this is no run folder)", dir)
	}
	if err != nil {
		return nil, nil, err
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, nil, fmt.Errorf("%s: manifest.json: %w", dir, err)
	}
	have, err := listFiles(dir)
	if err != nil {
		return &m, nil, err
	}
	sums := map[string]string{}
	for _, f := range have {
		sums[f.Path] = f.SHA256
	}
	var differences []string
	for _, f := range m.Files {
		switch sum, ok := sums[f.Path]; {
		case !ok:
			differences = append(differences, f.Path+": missing")
		case sum != f.SHA256:
			differences = append(differences, f.Path+": changed since the run")
		}
	}
	return &m, differences, nil
}

// writeAtomic is the one place that puts files on disk: temporary name, sync, rename.
func writeAtomic(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}
