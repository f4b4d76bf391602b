package vlab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Report says what Down did with each part of a lab.
type Report struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Items []Item `json:"items"`
}

// Item is one part: a process with its namespaces and links, or a folder.
type Item struct {
	What   string `json:"what"`
	Result Result `json:"result"`
	Why    string `json:"why,omitempty"` // of Left
}

// Result is what became of a part.
type Result string

// Removed parts were there and are not any more; Gone ones were not there; Left ones still are.
const (
	Removed Result = "removed"
	Gone    Result = "already gone"
	Left    Result = "left"
)

func (r *Report) add(what string, was bool, err error) {
	i := Item{What: what, Result: Gone}
	switch {
	case err != nil:
		i.Result, i.Why = Left, err.Error()
	case was:
		i.Result = Removed
	}
	r.Items = append(r.Items, i)
}

func (r *Report) remove(what, dir string) {
	_, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		r.add(what+" "+dir, false, nil)
		return
	}
	r.add(what+" "+dir, true, removeAll(dir))
}

// removeAll is os.RemoveAll with the hosts' folders side by side: on a busy machine each of the hundreds of removals
// waits for its turn.
func removeAll(dir string) error {
	var wg sync.WaitGroup
	hosts, _ := filepath.Glob(filepath.Join(dir, "hosts", "*"))
	for _, h := range hosts {
		wg.Go(func() { os.RemoveAll(h) }) // what is left is found again below
	}
	wg.Wait()
	return os.RemoveAll(dir)
}

func (r *Report) err() error {
	var errs []error
	for _, i := range r.Items {
		if i.Result == Left {
			errs = append(errs, fmt.Errorf("lab %s: %s: %s", r.ID, i.What, i.Why))
		}
	}
	return errors.Join(errs...)
}

// Info is one lab of List.
type Info struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	File      string    `json:"file"`
	Dir       string    `json:"dir"`
	Status    Status    `json:"status"`
	Created   time.Time `json:"created"`
	Ephemeral bool      `json:"ephemeral"`
	Hosts     []string  `json:"hosts"`
	Problems  []string  `json:"problems,omitempty"`
}

// Status of a lab.
type Status string

// A damaged lab is up but lost a host or fabric; a dead one has only folders left, which Down removes.
const (
	StatusStarting Status = "starting"
	StatusUp       Status = "up"
	StatusDamaged  Status = "damaged"
	StatusDead     Status = "dead"
)
