package figures

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/spec"
)

// artefacts are the files of a run that a figure rests on. All but trial.json must be there.
var artefacts = []string{"playbook.yaml", "lab.yaml", "plan.json", "command.json", "result.json", "summary.json", "analysis.json", "trial.json"}

// Pinned says whether the specification says what it is made from.
func (f *Figure) Pinned() bool { return len(f.spec.Pins) > 0 }

// Runs are the runs that the figure is made from, each once, by their ids.
func (f *Figure) Runs() (runs []*experiments.Summary) {
	seen := map[string]bool{}
	for _, e := range f.entries {
		for _, r := range e.runs {
			if !seen[r.Dir] {
				seen[r.Dir] = true
				runs = append(runs, r)
			}
		}
	}
	slices.SortFunc(runs, func(a, b *experiments.Summary) int { return strings.Compare(pinName(a), pinName(b)) })
	return runs
}

// pinName is the id of a run; within a sweep with its cell and repeat, as the folders are named.
func pinName(r *experiments.Summary) string {
	if r.Trial == nil {
		return r.Run
	}
	return r.Trial.Sweep + "/" + r.Trial.Cell + "/" + filepath.Base(r.Dir)
}

// Verify holds the runs against their own manifests and, where the specification has pins, against those. The error says
// of each run what differs or is missing.
func (f *Figure) Verify() error {
	pins := map[string]pin{}
	for _, p := range f.spec.Pins {
		pins[p.Run] = p
	}
	var errs []error
	for _, r := range f.Runs() {
		now, differences := inspect(r)
		if p, ok := pins[now.Run]; ok {
			differences = append(compare(p, now), differences...)
		} else if f.Pinned() {
			differences = append(differences, "is not among the pins")
		}
		delete(pins, now.Run)
		if len(differences) > 0 {
			errs = append(errs, fmt.Errorf("run %s (%s):\n  %s", now.Run, r.Dir, strings.Join(differences, "\n  ")))
		}
	}
	for _, p := range f.spec.Pins {
		if _, left := pins[p.Run]; left {
			errs = append(errs, fmt.Errorf("run %s: pinned, and not in the folders of this figure", p.Run))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	fix := "restore them, or write --repin if the figure is to be made from what is there"
	if !f.Pinned() {
		fix = "restore them: a figure is drawn from runs that are as they ended"
	}
	return fmt.Errorf("%w: %s: the runs are not what this figure was made from (%s):\n%w", experiments.ErrData, f.File, fix, errors.Join(errs...))
}

// inspect pins a run as it is now, and says what of it is missing or not as the run left it.
func inspect(r *experiments.Summary) (now pin, differences []string) {
	now = pin{Run: pinName(r), Inputs: r.Inputs, Pcmlab: version(r)}
	if r.Trial != nil {
		for _, p := range r.Trial.Params {
			now.Params = append(now.Params, spec.Entry[spec.Scalar]{Key: p.Key, Value: spec.Scalar(p.Value)})
		}
	}
	data, err := os.ReadFile(filepath.Join(r.Dir, "manifest.json"))
	if err != nil {
		return now, []string{"manifest.json: missing: the run did not end"}
	}
	now.Manifest = sum(data)
	var m experiments.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return now, []string{"manifest.json: " + err.Error()}
	}
	for _, name := range artefacts {
		i := slices.IndexFunc(m.Files, func(f experiments.ManifestFile) bool { return f.Path == name })
		data, err := os.ReadFile(filepath.Join(r.Dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist) && i < 0 && name == "trial.json": // no part of a sweep
		case errors.Is(err, fs.ErrNotExist):
			differences = append(differences, name+": missing")
		case err != nil:
			differences = append(differences, name+": "+err.Error())
		case i < 0:
			differences = append(differences, name+": not in the run's manifest")
		case sum(data) != m.Files[i].SHA256:
			differences = append(differences, name+": changed since the run")
		}
	}
	if r.Inputs == "" {
		differences = append(differences, "inputs_sha256 of command.json: missing: it cannot be told which playbook and lab were run")
	}
	return now, differences
}

// compare says what differs between a pin and what is there.
func compare(p, now pin) (differences []string) {
	differ := func(what, pinned, is string) {
		if pinned != is {
			differences = append(differences, fmt.Sprintf("%s: pinned %s, is %s", what, short(pinned), short(is)))
		}
	}
	for _, e := range p.Params {
		i := now.Params.Index(e.Key)
		if i < 0 {
			differences = append(differences, fmt.Sprintf("parameter %s: pinned %s, is missing", e.Key, e.Value))
			continue
		}
		differ("parameter "+e.Key, string(e.Value), string(now.Params[i].Value))
	}
	for _, e := range now.Params {
		if p.Params.Index(e.Key) < 0 {
			differences = append(differences, fmt.Sprintf("parameter %s: is %s, and not pinned", e.Key, e.Value))
		}
	}
	differ("playbook and lab (inputs)", p.Inputs, now.Inputs)
	differ("pcmlab", p.Pcmlab, now.Pcmlab)
	differ("manifest.json", p.Manifest, now.Manifest)
	return differences
}

// short keeps hashes readable.
func short(s string) string {
	switch {
	case s == "":
		return "missing"
	case len(s) == 64:
		return s[:12] + "…"
	}
	return s
}

func sum(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

// version of pcmlab that ran it.
func version(r *experiments.Summary) string {
	return strings.TrimSpace(r.Provenance["pcmlab.version"] + " " + r.Provenance["pcmlab.commit"])
}

// Repin is the text of the specification with the runs pinned as they are now. Everything else stays as it is written. Runs
// that are not as they ended cannot be pinned.
func (f *Figure) Repin() ([]byte, error) {
	var b bytes.Buffer
	b.Write(bytes.TrimRight(withoutPins(f.source), "\n"))
	b.WriteString("\n\npins: # written by pcmlab report --figure --repin\n")
	var errs []error
	for _, r := range f.Runs() {
		now, differences := inspect(r)
		if len(differences) > 0 {
			errs = append(errs, fmt.Errorf("run %s (%s):\n  %s", now.Run, r.Dir, strings.Join(differences, "\n  ")))
			continue
		}
		fmt.Fprintf(&b, "  - run: %s\n    manifest: %s\n    inputs: %s\n", quote(now.Run), quote(now.Manifest), quote(now.Inputs))
		if now.Pcmlab != "" {
			fmt.Fprintf(&b, "    pcmlab: %s\n", quote(now.Pcmlab))
		}
		if len(now.Params) > 0 {
			b.WriteString("    params: {")
			for i, e := range now.Params {
				if i > 0 {
					b.WriteString(", ")
				}
				fmt.Fprintf(&b, "%s: %s", quote(e.Key), quote(string(e.Value)))
			}
			b.WriteString("}\n")
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: %s: cannot be pinned to runs that are not as they ended:\n%w", experiments.ErrData, f.File, err)
	}
	return b.Bytes(), nil
}

// withoutPins cuts the list of pins out of a specification: from its key to the next one.
func withoutPins(source []byte) []byte {
	var out []byte
	within := false
	for line := range bytes.Lines(source) {
		key := len(line) > 0 && line[0] != ' ' && line[0] != '-' && line[0] != '\n' && line[0] != '\r' && line[0] != '#'
		if key {
			within = bytes.HasPrefix(line, []byte("pins:"))
		}
		if !within {
			out = append(out, line...)
		}
	}
	return out
}

// quote writes text as YAML and JSON both read it.
func quote(s string) string {
	data, _ := json.Marshal(s)
	return string(data)
}
