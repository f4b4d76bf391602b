package experiments

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

// CapturesFile says in a run's folder what was captured and where it lies.
const CapturesFile = "captures/captures.json"

// Captured is what is known of the files of one tap.
type Captured struct {
	Tap     string    `json:"tap"`
	Host    string    `json:"host"`
	Program string    `json:"program"`
	Why     []string  `json:"why,omitempty"` // why not the programs before it
	There   bool      `json:"there"`         // the files stayed on the host, where they were analysed
	Resumed int       `json:"resumed,omitempty"`
	Files   []tapFile `json:"files"`
}

// bring fetches the files of all taps into the bundle, or analyses them where they lie.
func (r *Runner) bring(ctx context.Context) error {
	rc := r.captured
	if rc == nil {
		return nil
	}
	defer rc.keep()
	host, why := rc.there()
	if host != "" {
		err := rc.analyzeThere(ctx, host)
		if err == nil || r.Playbook.Analyze == AnalyzeThere {
			return errors.Join(err, rc.leave(ctx, host))
		}
		r.result.warn(fmt.Sprintf("captures were not analysed on %s but fetched: %v", host, err))
	} else if why != "" {
		r.result.warn("captures are fetched, although they are large: " + why)
	}
	var errs []error
	for _, tap := range rc.taps { // one after the other: a connection is not faster for two
		errs = append(errs, rc.fetch(ctx, tap))
	}
	return errors.Join(errs...)
}

// there is the host on which captures are analysed; "": here, and why although they are large.
func (rc *runningCaptures) there() (host, why string) {
	r := rc.r
	total := int64(0)
	var hosts []string
	for _, tap := range rc.taps {
		for _, f := range tap.files {
			total += f.Bytes
		}
		if len(tap.files) > 0 && !slices.Contains(hosts, tap.Host) {
			hosts = append(hosts, tap.Host)
		}
	}
	if total == 0 || r.Playbook.Analyze == AnalyzeHere || r.Playbook.Analyze != AnalyzeThere && (r.Playbook.FetchLimit == 0 || total <= r.Playbook.FetchLimit) {
		return "", ""
	}
	if len(hosts) > 1 {
		return "", "they lie on several hosts (" + strings.Join(hosts, ", ") + ")"
	}
	if ok, why := r.guarded(hosts[0]); !ok {
		return "", "pcmlab does not run on " + hosts[0] + ": " + why
	}
	return hosts[0], ""
}

// fetch brings the files of one tap.
func (rc *runningCaptures) fetch(ctx context.Context, tap *runningTap) error {
	r := rc.r
	var errs []error
	for i := range tap.files {
		f := &tap.files[i]
		to, err := r.bundle.Path("captures/" + f.Name)
		var got remote.Fetched
		if err == nil {
			got, err = remote.Fetch(ctx, r.hosts[tap.Host], path.Join(path.Dir(tap.options.File), f.made), to)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		f.Bytes, f.SHA256 = got.Bytes, got.SHA256
		if got.Resumed > 0 {
			r.event(Event{Event: "capture_resumed", Host: tap.Host, Text: fmt.Sprintf("%s went on %d times", f.Name, got.Resumed)})
		}
	}
	return errors.Join(errs...)
}

// keep writes what was captured.
func (rc *runningCaptures) keep() {
	list := []Captured{}
	for _, tap := range rc.taps {
		list = append(list, Captured{Tap: tap.Tap, Host: tap.Host, Program: string(tap.program), Why: tap.why, There: rc.left, Files: append([]tapFile{}, tap.files...)})
	}
	if err := rc.r.bundle.WriteJSON(CapturesFile, list); err != nil {
		rc.r.result.warn(err.Error())
	}
}

// analyzeThere has the captures' host analyse them, as this program would here, and fetches the document alone. Until leave the files are in the
// run's folder, which goes when the run is lost.
func (rc *runningCaptures) analyzeThere(ctx context.Context, host string) error {
	r, h := rc.r, rc.r.hosts[host]
	step := "analyse the captures where they lie"
	dir := path.Join(r.dirs[host], "there")
	args := []string{"sh", "-c", `set -e; d=$1/captures; shift; mkdir -p "$d"; while [ $# -gt 1 ]; do mv -- "$1" "$d/$2"; shift 2; done`, "keep", dir}
	for _, tap := range rc.taps {
		for _, f := range tap.files {
			args = append(args, path.Join(path.Dir(tap.options.File), f.made), f.Name)
		}
	}
	if err := mustRun(ctx, h, "put the captures together", args...); err != nil {
		return err
	}
	for _, tap := range rc.taps { // wherever it fails from here on, this is where they are
		tap.options.File = path.Join(dir, "captures", path.Base(tap.options.File))
		for i := range tap.files {
			tap.files[i].made = tap.files[i].Name
		}
	}
	rc.together = dir
	for _, tap := range rc.taps {
		for i := range tap.files {
			f := &tap.files[i]
			var err error
			if f.Bytes, f.SHA256, err = remote.Sum(ctx, h, path.Join(dir, "captures", f.Name)); err != nil {
				return err
			}
		}
	}
	in := r.analysisInput(true)
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if err := h.Put(ctx, path.Join(dir, "analysis-input.json"), 0o644, strings.NewReader(string(text))); err != nil {
		return err
	}
	for _, log := range in.Calls {
		f, err := os.Open(filepath.Join(r.bundle.Dir, filepath.FromSlash(log)))
		if err != nil {
			return err
		}
		err = errors.Join(h.Put(ctx, path.Join(dir, log), 0o644, f), f.Close())
		if err != nil {
			return err
		}
	}
	deadline := fetchTimeout
	if d, ok := ctx.Deadline(); ok {
		deadline = time.Until(d)
	}
	r.event(Event{Event: "analysing_there", Host: host})
	res, err := h.Run(ctx, remote.Cmd{Args: []string{"pcmlab", "analyze", dir, "-o", "json"}, Step: step, Deadline: deadline, MaxOut: 256 << 20})
	if err != nil {
		return err
	}
	doc := &analysis.Document{}
	// A status of 1 or 4 says something of the captures, and the document says it too.
	if err := json.Unmarshal(res.Stdout, doc); err != nil || doc.Schema != analysis.Schema || res.Dropped > 0 {
		if res.Signal != "" {
			return &remote.Error{Host: host, Step: step, Err: fmt.Errorf("ended by signal %s; find out who ended it: a user, or the kernel (dmesg: out of memory)", strings.TrimPrefix(res.Signal, "SIG"))}
		}
		return &remote.Error{Host: host, Step: step, Err: fmt.Errorf("exit status %d (%s)", res.Code, lastLine(res.Stderr))}
	}
	r.there, r.thereOf = doc, &in
	return nil
}

// leave has the captures stay on their host, with their hashes noted, in a folder of their own, which the end of the run does not remove. Where they
// will be is written here before they are moved: nothing may stay there that nobody knows of.
func (rc *runningCaptures) leave(ctx context.Context, host string) error {
	r := rc.r
	if rc.together == "" {
		return nil
	}
	dir := path.Join(path.Dir(path.Dir(r.dirs[host])), "captures", r.ID)
	for _, tap := range rc.taps {
		for i := range tap.files {
			tap.files[i].Path = path.Join(dir, "captures", tap.files[i].Name)
		}
	}
	rc.left = true
	rc.keep()
	if err := mustRun(ctx, r.hosts[host], "keep the captures", "sh", "-c", `mkdir -p "${2%/*}" && mv -- "$1" "$2"`, "keep", rc.together, dir); err != nil {
		rc.left = false
		return err
	}
	total := int64(0)
	for _, tap := range rc.taps {
		for _, f := range tap.files {
			total += f.Bytes
		}
	}
	said := "were not analysed on"
	if r.there != nil {
		said = "were analysed on"
		r.event(Event{Event: "analysed_there", Host: host, Text: dir})
	}
	r.result.warn(fmt.Sprintf("captures (%d bytes) %s %s and stay there in %s: pcmlab runs fetch %s -i %s brings them", total, said, host, dir, r.bundle.Dir, cmp.Or(r.Lab.File, r.Lab.Name)))
	return nil
}

// LoadCaptured reads what a run's folder says of its captures; nil when it says nothing.
func LoadCaptured(dir string) ([]Captured, error) {
	data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(CapturesFile)))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var list []Captured
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %s: %w", ErrData, dir, CapturesFile, err)
	}
	return list, nil
}

// Elsewhere are the files of a run's captures that are not in its folder but on their host.
func Elsewhere(dir string, list []Captured) (missing []string) {
	for _, c := range list {
		for _, f := range c.Files {
			if _, err := os.Stat(filepath.Join(dir, "captures", f.Name)); err != nil && c.There {
				missing = append(missing, c.Host+":"+f.Path)
			}
		}
	}
	return missing
}

// FetchCaptures brings the captures of a run that were analysed on their host into its folder, going on where an earlier attempt broke off, and
// removes them there when they are here and have the hash that they had; keep leaves them.
func FetchCaptures(ctx context.Context, dir string, dial func(ctx context.Context, host string) (remote.Host, error), keep bool, say func(string)) error {
	list, err := LoadCaptured(dir)
	if err != nil {
		return err
	}
	if len(Elsewhere(dir, list)) == 0 {
		return fmt.Errorf("%w: %s: no capture of it lies elsewhere", ErrInput, dir)
	}
	var errs []error
	for _, c := range list {
		if !c.There {
			continue
		}
		h, err := dial(ctx, c.Host)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		here := 0
		for _, f := range c.Files {
			to := filepath.Join(dir, "captures", f.Name)
			if sum, err := remote.FileSHA256(to); err == nil && sum == f.SHA256 {
				here++
				continue
			}
			got, err := remote.Fetch(ctx, h, f.Path, to)
			if err == nil && got.SHA256 != f.SHA256 {
				err = fmt.Errorf("host %s: %s is not what was analysed: its SHA-256 is %s, it was %s", c.Host, f.Path, got.SHA256, f.SHA256)
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			here++
			say(fmt.Sprintf("%s: %d bytes from %s", f.Name, got.Bytes, c.Host))
			if !keep {
				errs = append(errs, mustRun(ctx, h, "remove "+f.Path, "rm", "-f", "--", f.Path))
			}
		}
		if !keep && here > 0 && here == len(c.Files) {
			// What the analysis was made from lies beside them. Folders go when they are empty: another tap's files may be there still.
			errs = append(errs, mustRun(ctx, h, "remove the folder of the captures", "sh", "-c", forgetCaptures, "sh", path.Dir(path.Dir(c.Files[0].Path))))
		}
	}
	return errors.Join(errs...)
}

// forgetCaptures removes the folder in which captures stayed, once they have gone.
const forgetCaptures = `cd -- "$1" 2>/dev/null && { ! [ -d captures ] || rmdir captures 2>/dev/null; } && rm -f analysis-input.json && rm -rf handlers && cd / && rmdir -- "$1" && rmdir -- "${1%/*}" 2>/dev/null; true`

// fetch copies a file of a host into the bundle.
func (r *Runner) fetch(ctx context.Context, host, from, to string) error {
	p, err := r.bundle.Path(to)
	if err != nil {
		return err
	}
	_, err = remote.Fetch(ctx, r.hosts[host], from, p)
	return err
}
