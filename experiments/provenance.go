package experiments

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/pcmlab/pcmlab/internal/build"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends/facts"
)

// Provenance is what the results of a sweep depend on besides its inputs: the build of pcmlab, this machine, and of hosts that are there
// already what they are.
func Provenance(ctx context.Context, lab *inventory.Lab, hosts map[string]remote.Host) (map[string]string, error) {
	b := build.Version()
	out := map[string]string{"pcmlab.version": b.Version, "pcmlab.commit": b.Commit, "pcmlab.dirty": fmt.Sprint(b.Dirty), "pcmlab.go": b.Go,
		"here.kernel": readLine("/proc/sys/kernel/osrelease"), "here.cpu": modelName(), "here.hostname": hostname()}
	if b.Dirty || b.Commit == "unknown" { // the commit does not say what runs
		out["pcmlab.binary_sha256"] = binaryHash()
	}
	var errs []error
	for name, h := range hosts {
		f, err := facts.Read(ctx, h, facts.Of(lab, name))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for k, v := range f.Flat() {
			out["host."+name+"."+k] = v
		}
	}
	return out, errors.Join(errs...)
}

func binaryHash() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

func hostname() string {
	name, _ := os.Hostname()
	return name
}

func readLine(path string) string {
	data, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

func modelName() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// TextDifference compares what decides the runs of two playbooks and labs, line by line: those of the first alone begin with "- ",
// those of the second with "+ ".
func TextDifference(oldBook, newBook *Playbook, oldLab, newLab *inventory.Lab) ([]string, error) {
	a, err1 := oldBook.canonical()
	b, err2 := newBook.canonical()
	c, err3 := canonicalLab(oldLab)
	d, err4 := canonicalLab(newLab)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	return append(lineDifference(string(a), string(b)), lineDifference(string(c), string(d))...), nil
}

// lineDifference is the shortest way from one text to another by whole lines.
func lineDifference(from, to string) []string {
	a, b := strings.Split(strings.TrimSuffix(from, "\n"), "\n"), strings.Split(strings.TrimSuffix(to, "\n"), "\n")
	common := make([][]int, len(a)+1) // longest common subsequence of a[i:] and b[j:]
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out []string
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			out = append(out, "- "+strings.TrimSpace(a[i]))
			i++
		default:
			out = append(out, "+ "+strings.TrimSpace(b[j]))
			j++
		}
	}
	return out
}

// CreateSweep makes the folder of a sweep with its inputs as they were given, sweep.json last.
func CreateSweep(dir string, s *Sweep, playbook, lab []byte) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("sweep folder: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !onlyBegun(dir) {
		return fmt.Errorf("sweep folder: %w", err)
	}
	s.Dir = dir
	return s.WriteInputs(playbook, lab)
}

// WriteInputs keeps the files that a sweep was made of, sweep.json last.
func (s *Sweep) WriteInputs(playbook, lab []byte) error {
	return errors.Join(writeAtomic(filepath.Join(s.Dir, "playbook.yaml"), playbook), writeAtomic(filepath.Join(s.Dir, "lab.yaml"), lab), s.Save())
}
