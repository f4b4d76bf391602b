package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/pcmlab/pcmlab/experiments"
)

// madeAgain are files of a run that are not translated but made anew from the others.
var madeAgain = []string{"analysis.json", "report.html", experiments.SummaryFile, "manifest.json"}

// Redacted is a copy with pseudonyms.
type Redacted struct {
	Dir     string
	LeftOut []LeftOut // files that could not be redacted
	Kept    []string  // names that stay, with the reason: "server: a word of pcmlab's files"
}

// Redact copies the folder of a run or a sweep to a folder below into, with pseudonyms in the place of addresses, hosts, users and home
// folders; secret decides them, "" makes a new one. Captures are rewritten, and the analysis, the summary, the page and the manifest
// are made from what was rewritten, so that they are what the copy shows. Its numbers are held against the original's: a redaction
// that would change them is an error.
func Redact(ctx context.Context, dir, into, secret string) (*Redacted, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if _, err := kindOf(abs); err != nil {
		return nil, err
	}
	if err := checkQuiet(abs); err != nil {
		return nil, err
	}
	runs, err := experiments.FindRuns(abs)
	if err != nil {
		return nil, err
	}
	r := newRedactor(newPseudonyms(secret))
	kept, err := r.gather(abs)
	if err != nil {
		return nil, err
	}
	w := &redaction{redactor: r, from: abs, runs: runs}
	w.out = &Redacted{Dir: filepath.Join(into, r.text(filepath.Base(abs))), Kept: kept}
	if err := w.files(ctx); err != nil {
		return nil, err
	}
	for _, run := range runs {
		if err := w.finish(ctx, run); err != nil {
			return nil, err
		}
	}
	return w.out, nil
}

type redaction struct {
	*redactor
	from string
	runs []string // folders, absolute
	out  *Redacted
}

func (w *redaction) leave(rel, format string, a ...any) {
	w.out.LeftOut = append(w.out.LeftOut, LeftOut{w.text(rel), w.text(fmt.Sprintf(format, a...))})
}

// madeAgain says that a file belongs to a run and follows from its other files.
func (w *redaction) madeAgain(rel string) bool {
	full := filepath.Join(w.from, filepath.FromSlash(rel))
	return slices.Contains(madeAgain, path.Base(rel)) && slices.Contains(w.runs, filepath.Dir(full))
}

// files translates all files but those that are made again.
func (w *redaction) files(ctx context.Context) error {
	return eachFile(w.from, func(rel string) error {
		if err := ctx.Err(); err != nil || w.madeAgain(rel) {
			return err
		}
		to := w.target(rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return w.file(rel, filepath.Join(w.from, filepath.FromSlash(rel)), to)
	})
}

func (w *redaction) file(rel, from, to string) error {
	ext := path.Ext(rel)
	switch ext {
	case ".pcapng", ".pcap":
		if err := w.capture(from, to); err != nil {
			os.Remove(to)
			w.leave(rel, "its addresses cannot be replaced: %v", err)
		}
		return nil
	case ".html", ".svg", ".pdf", ".png":
		w.leave(rel, "pcmlab report makes it again")
		return nil
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	switch {
	case !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0:
		w.leave(rel, "it is no text, and what is in it is not known")
		return nil
	case ext == ".json" || ext == ".jsonl":
		if data, err = w.jsonText(data); err != nil {
			w.leave(rel, "it cannot be read as JSON: %v", err)
			return nil
		}
	default:
		data = []byte(w.text(string(data)))
	}
	return os.WriteFile(to, data, 0o644)
}

// target is where a file goes: names of hosts in paths are replaced, too.
func (w *redaction) target(rel string) string {
	if rel == "." {
		return w.out.Dir
	}
	return filepath.Join(w.out.Dir, filepath.FromSlash(w.text(filepath.ToSlash(rel))))
}

// finish makes the analysis, summary, page and manifest of a run from what was translated.
func (w *redaction) finish(ctx context.Context, run string) error {
	rel, err := filepath.Rel(w.from, run)
	if err != nil {
		return err
	}
	b := &experiments.Bundle{Dir: w.target(rel)}
	if err := w.analysis(ctx, run, b); err != nil {
		return err
	}
	before, err := experiments.LoadSummary(run)
	if err != nil {
		return err
	}
	after, err := experiments.Summarise(b.Dir)
	if err != nil {
		return fmt.Errorf("redact: %w", err)
	}
	if err := w.same(before, after); err != nil {
		return err
	}
	if before.State == experiments.StateUnfinished {
		return nil // it has neither summary nor manifest
	}
	after.Began, after.Ended, after.State, after.Reason = before.Began, before.Ended, before.State, w.text(before.Reason)
	var m experiments.Manifest
	if err := readJSON(run, "manifest.json", &m); err != nil {
		return err
	}
	if err := b.WriteJSON(experiments.SummaryFile, after); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(run, "report.html")); err == nil {
		if _, err := experiments.RemakeReport(b.Dir, ""); err != nil {
			return err
		}
	}
	m.Run, m.Reason, m.Redacted = w.text(m.Run), w.text(m.Reason), true
	return experiments.Seal(b.Dir, m)
}

// analysis makes analysis.json again from the captures; where those were left out, the old one is translated.
func (w *redaction) analysis(ctx context.Context, run string, b *experiments.Bundle) error {
	data, err := os.ReadFile(filepath.Join(run, "analysis.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var in experiments.AnalysisInput
	if err := readJSON(b.Dir, "analysis-input.json", &in); err != nil {
		return err
	}
	for _, c := range in.Captures {
		if _, err := os.Stat(filepath.Join(b.Dir, filepath.FromSlash(c.File))); err != nil {
			if data, err = w.jsonText(data); err != nil {
				return err
			}
			return b.Write("analysis.json", data)
		}
	}
	doc, err := experiments.AnalyzeBundle(ctx, b.Dir)
	if err != nil {
		return fmt.Errorf("redact: %s: %w", run, err)
	}
	return b.WriteJSON("analysis.json", doc)
}

// sameWithin is how far sums may differ: flows are added up in another order when their addresses sort otherwise.
const sameWithin = 1e-9

// same holds the numbers of the copy against those of the run.
func (w *redaction) same(before, after *experiments.Summary) error {
	scores := func(s *experiments.Summary, name func(string) string) map[string]*float64 {
		all := map[string]*float64{}
		for _, v := range s.Scores {
			v.Phase, v.Flow = name(v.Phase), name(v.Flow)
			all[v.Name()] = v.Value
		}
		return all
	}
	was, is := scores(before, w.text), scores(after, func(s string) string { return s })
	wrong := func(format string, a ...any) error {
		return fmt.Errorf("redact: %s: %s (a host or user may have the name of something else); nothing was written: export it without --redact", before.Run, fmt.Sprintf(format, a...))
	}
	if len(was) != len(is) {
		return wrong("%d numbers became %d", len(was), len(is))
	}
	for name, x := range was {
		y, ok := is[name]
		switch {
		case !ok || (x == nil) != (y == nil):
			return wrong("%s is lost", name)
		case x != nil && math.Abs(*x-*y) > sameWithin*max(math.Abs(*x), math.Abs(*y)):
			return wrong("%s would change from %g to %g", name, *x, *y)
		}
	}
	if len(before.Checks) != len(after.Checks) {
		return wrong("%d checks became %d", len(before.Checks), len(after.Checks))
	}
	for i := range before.Checks {
		if before.Checks[i].Verdict != after.Checks[i].Verdict {
			return wrong("check %q would change", before.Checks[i].Name)
		}
	}
	return nil
}
