package vlab

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
)

// ErrNotFound says that no lab has that id or name.
var ErrNotFound = errors.New("no such lab")

// stateSchema names the state file's form.
const stateSchema = "pcmlab/lab-state/v1"

// state is the lab's state file. It is written before each thing that it names is made, so that whatever exists is
// named: a lab can be taken down from any half-made state.
type state struct {
	Schema    string         `json:"schema"`
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Phase     string         `json:"phase"` // what is being made; "ready" when all is
	Created   time.Time      `json:"created"`
	Machine   string         `json:"machine"`  // boot id of the machine: process numbers of an earlier boot mean nothing
	DataDir   string         `json:"data_dir"` // the hosts' files
	Ephemeral bool           `json:"ephemeral"`
	Owner     process        `json:"owner"`  // who called Up
	Keeper    process        `json:"keeper"` // zero until it exists
	Hosts     []hostState    `json:"hosts"`
	Fabrics   []fabricState  `json:"fabrics"`
	Lab       *inventory.Lab `json:"lab"` // as given
	Made      Provenance     `json:"provenance"`
}

const phaseReady = "ready"

// hostState is how a host is reached and which process it is, seen from the caller.
type hostState struct {
	Name    string  `json:"name"`
	Address string  `json:"address"`
	Port    int     `json:"port"`
	HostKey string  `json:"host_key"` // public, authorized_keys form
	BootID  string  `json:"boot_id"`
	Init    process `json:"init"`
}

type fabricState struct {
	Switch  string  `json:"switch"`
	Process process `json:"process"`
}

// process is a process by number and start time (clock ticks since boot), which together are never used twice.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

func stateFile(dir string) string { return filepath.Join(dir, "state.json") }

// save replaces the state file. The folder must exist: a lab that was taken down meanwhile stays down.
func (s *state) save(dir string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writeAtomic(stateFile(dir), append(b, '\n'), 0o600)
}

func writeAtomic(path string, b []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if e := f.Chmod(mode); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

func loadState(dir string) (*state, error) {
	b, err := os.ReadFile(stateFile(dir))
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	s := &state{}
	if err := d.Decode(s); err != nil {
		return nil, fmt.Errorf("%s: %w", stateFile(dir), err)
	}
	if s.Schema != stateSchema {
		return nil, fmt.Errorf("%s: schema %q: need %q (made by another version of pcmlab)", stateFile(dir), s.Schema, stateSchema)
	}
	return s, nil
}

// validID says whether id can be a folder's name here: letters, digits, and - _ . inside, at most 63.
func validID(id string) bool {
	if id == "" || len(id) > 63 {
		return false
	}
	for i, r := range id {
		if !idRune(r) || i == 0 && (r == '-' || r == '_' || r == '.') {
			return false
		}
	}
	return true
}

func idRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.'
}

// newID is the lab's name, made fit for file names, and six random hexadecimal digits.
func newID(name string) string {
	var b [3]byte
	rand.Read(b[:])
	clean := strings.Map(func(r rune) rune {
		if idRune(r) {
			return r
		}
		return '-'
	}, name)
	clean = strings.TrimLeft(clean, "-._")
	if clean == "" {
		clean = "lab"
	}
	return clean[:min(len(clean), 40)] + "-" + hex.EncodeToString(b[:])
}

// newBootID is a random UUID (RFC 9562 version 4), as the kernel's own.
func newBootID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// found is a lab's folder. State is nil when nothing was written there yet or it cannot be read.
type found struct {
	ID    string
	Dir   string
	State *state
	Err   error
}

// labs lists the folders of a state directory, sorted by id.
func labs(stateDir string) ([]found, error) {
	entries, err := os.ReadDir(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []found
	for _, e := range entries {
		if !e.IsDir() || !validID(e.Name()) {
			continue
		}
		f := found{ID: e.Name(), Dir: filepath.Join(stateDir, e.Name())}
		f.State, f.Err = loadState(f.Dir)
		out = append(out, f)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out, nil
}

// find looks a lab up by id, then by name, which must be the name of one lab only.
func find(stateDir, idOrName string) (found, error) {
	all, err := labs(stateDir)
	if err != nil {
		return found{}, err
	}
	var named []found
	var ids []string
	for _, f := range all {
		if f.ID == idOrName {
			return f, nil
		}
		if f.State != nil && f.State.Name == idOrName {
			named = append(named, f)
			ids = append(ids, f.ID)
		}
	}
	switch len(named) {
	case 1:
		return named[0], nil
	case 0:
		return found{}, fmt.Errorf("lab %q in %s: %w", idOrName, stateDir, ErrNotFound)
	}
	return found{}, fmt.Errorf("lab %q: several are up: name one of %s", idOrName, strings.Join(ids, ", "))
}
