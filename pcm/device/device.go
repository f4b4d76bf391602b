// Package device writes the part of a shell for a NIC's processor that is no vendor's: pcm_core.h, in C11 without a C library, without
// floating point and without allocation, and what it includes. Backends put their glue around it.
//
//	files, err := device.Write(p, dir)          // pcm_core.h, NAME.h, the handler's C files, the runtime's headers
//	p, err := device.For("docapcc", p)          // refuses what the platform lacks, and picks a fixed-point format
//
// It is generated apart from the CPU's shell (pcm.Package.Shell), from a template of its own, so that the two can be held against
// each other.
package device

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/pcmlab/pcmlab/pcm"
)

//go:embed core.h.tmpl
var coreText string

var core = template.Must(template.New("pcm_core.h").Funcs(template.FuncMap{"word": word}).Parse(coreText))

func word(v uint64) string { return fmt.Sprintf("UINT64_C(%d)", v) }

// For is p as a processor without floating point runs it: fractions are Q32.32 unless p says another fixed-point format. The error
// lists every object that the platform refuses, with its place and what is missing.
func For(platform string, p *pcm.Package) (*pcm.Package, error) {
	pl, err := pcm.PlatformNamed(platform)
	if err != nil {
		return nil, err
	}
	var all []error
	refuse := func(path []any, format string, a ...any) {
		at := p.Pos(path...)
		all = append(all, fmt.Errorf("%s:%d:%d: platform %s: %s", p.File, max(1, at.Line), max(1, at.Col), platform, fmt.Sprintf(format, a...)))
	}
	for _, g := range pl.Gaps(p) {
		if g.Support == pcm.Refused {
			refuse([]any{g.Section, g.Index, "type"}, "%s %s (%s): %s", strings.TrimSuffix(g.Section, "s"), g.Name, g.Source, g.Why)
		}
	}
	if !pl.Wakes(p) {
		refuse([]any{"signals"}, "none of the signals with a trigger ever comes: the handler would never run")
	}
	for i, v := range p.Vars {
		if v.Type == pcm.Float {
			refuse([]any{"variables", i, "type"}, "variable %s: there is no floating point (declare it frac, which is fixed point there)", v.Name)
		}
	}
	if len(all) > 0 {
		return nil, errors.Join(all...)
	}
	q := *p
	if q.Format == pcm.FormatFloat {
		q.Format = pcm.Q32
	}
	return &q, nil
}

// Constant is a value of the deployment that a backend needs.
func Constant(p *pcm.Package, name string) (float64, error) {
	if p.Fabric != nil {
		if v, ok := p.Fabric.Values[name]; ok {
			return value(v), nil
		}
		return 0, fmt.Errorf("handler %s: %s has no %s", p.Name, p.Fabric.File, name)
	}
	return 0, fmt.Errorf("handler %s: it was loaded without a file of deployment constants, which gives %s", p.Name, name)
}

func value(n pcm.Number) float64 {
	if n.Int != nil {
		f, _ := n.Int.Float64()
		return f
	}
	return n.Float
}

// headers are those of the runtime that a device needs: the interface of the CPU's shells is not among them.
var headers = []string{"algo_utils.h", "pcm.h", "pcm_arith.h", "pcm_fixed.h", "pcmh.h"}

// Write puts pcm_core.h and all that it includes into dir and says which files.
func Write(p *pcm.Package, dir string) ([]string, error) {
	if p.Format == pcm.FormatFloat && fractions(p) {
		return nil, fmt.Errorf("handler %s: fractions are floating point, which a NIC's processor does not have", p.Name)
	}
	text, err := Core(p)
	if err != nil {
		return nil, err
	}
	files := map[string]string{"pcm_core.h": text, p.Name + ".h": p.Header()}
	runtime := pcm.RuntimeHeaders()
	for _, name := range headers {
		files[name] = runtime[name]
	}
	sources := map[string]string{}
	for _, f := range p.C {
		sources[filepath.Base(f)] = f
	}
	for name, path := range p.Headers() {
		sources[name] = path
	}
	for name, path := range sources {
		data, err := p.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("handler %s: %w", p.Name, err)
		}
		files[name] = string(data)
	}
	return WriteFiles(dir, files)
}

// WriteFiles writes texts by name, which may hold folders, into dir. Scripts can be run.
func WriteFiles(dir string, files map[string]string) ([]string, error) {
	var written []string
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		mode := os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			return nil, err
		}
		if err := os.Chmod(path, mode); err != nil {
			return nil, err
		}
		written = append(written, path)
	}
	slices.Sort(written)
	return written, nil
}

// signal is a signal as the template sees it.
type signal struct {
	pcm.Signal
	Index int
}

func (s signal) At() string    { return fmt.Sprintf("c->signal[%d]", s.Index) }
func (s signal) Base() string  { return fmt.Sprintf("c->base[%d]", s.Index) }
func (s signal) Bit() string   { return fmt.Sprintf("(pcm_uint)1 << %d", s.Index) }
func (s signal) Elapsed() bool { return s.Source == pcm.ElapsedTime }
func (s signal) Sum() bool     { return s.Accum == pcm.Sum }

// Reset: the clock is not set back by a run.
func (s signal) Reset() bool { return s.Signal.Reset && !s.Elapsed() }

// Mode is RAW, DELTA or MAGNITUDE, and nothing of a signal without a trigger.
func (s signal) Mode() string {
	if s.Trigger == nil {
		return ""
	}
	return strings.TrimPrefix(s.Trigger.Mode.String(), "PCM_SIG_TRIGGER_")
}

func (s signal) Op() string        { return string(s.Trigger.Op) }
func (s signal) Threshold() uint64 { return s.Trigger.Threshold }

// Accumulate is the statement that takes a value.
func (s signal) Accumulate(v string) string {
	switch s.Accum {
	case pcm.Sum:
		return fmt.Sprintf("%s += %s;", s.At(), v)
	case pcm.Min:
		return fmt.Sprintf("%s = %s < %s ? %s : %s;", s.At(), v, s.At(), v, s.At())
	case pcm.Max:
		return fmt.Sprintf("%s = %s > %s ? %s : %s;", s.At(), v, s.At(), v, s.At())
	}
	return fmt.Sprintf("%s = %s;", s.At(), v)
}

// input is a source of signals, with those that read it.
type input struct {
	Field   string
	Time    bool
	Signals []signal
}

func (i input) Upper() string { return strings.ToUpper(i.Field) }

// control is one that the handler sets; output is a kind of them.
type control struct {
	pcm.Control
	Index int
}

type output struct {
	Field string
	Has   bool
	Index int
}

func (o output) Upper() string { return strings.ToUpper(o.Field) }

// variable has the word that it begins with.
type variable struct {
	pcm.Var
	Word uint64
}

// Core is the text of pcm_core.h.
func Core(p *pcm.Package) (string, error) {
	hash, err := p.Hash()
	if err != nil {
		return "", err
	}
	data := struct {
		*pcm.Package
		File, Upper, Hash                     string
		FracWord, FracBits                    int
		UnitPS                                int64
		Sources                               []string
		Inputs                                []input
		Outputs                               []output
		Signals                               []signal
		Controls                              []control
		Vars                                  []variable
		ControlSlots, VarSlots, SnapshotSlots int
	}{Package: p, File: filepath.Base(p.File), Upper: strings.ToUpper(p.Name), Hash: hash, UnitPS: 1000,
		ControlSlots: max(1, len(p.Controls)), VarSlots: max(1, p.Slots), SnapshotSlots: 2 + len(p.Signals) + max(1, len(p.Controls))}
	if fractions(p) {
		data.FracWord, data.FracBits = p.Format.Words()
	}
	if p.Fabric != nil {
		data.UnitPS = p.Fabric.TimeUnitPS
	}
	for _, f := range p.C {
		data.Sources = append(data.Sources, filepath.Base(f))
	}
	for i, s := range p.Signals {
		data.Signals = append(data.Signals, signal{s, i})
	}
	for _, source := range pcm.Sources() {
		if source == pcm.ElapsedTime {
			continue // read from the clock
		}
		in := input{Field: source.Field(), Time: source == pcm.RTT}
		for _, s := range data.Signals {
			if s.Source == source {
				in.Signals = append(in.Signals, s)
			}
		}
		data.Inputs = append(data.Inputs, in)
	}
	for i, c := range p.Controls {
		data.Controls = append(data.Controls, control{c, i})
	}
	for _, kind := range pcm.Controls() {
		i := slices.IndexFunc(p.Controls, func(c pcm.Control) bool { return c.Kind == kind })
		data.Outputs = append(data.Outputs, output{kind.Field(), i >= 0, max(0, i)})
	}
	for _, v := range p.Vars {
		w, err := v.Initial.Bits(v.Type)
		if err != nil {
			return "", fmt.Errorf("handler %s: variable %s: %w", p.Name, v.Name, err)
		}
		if v.Type == pcm.Frac {
			w = p.Format.Word(value(v.Initial))
		}
		data.Vars = append(data.Vars, variable{v, w})
	}
	var b strings.Builder
	if err := core.Execute(&b, data); err != nil {
		return "", fmt.Errorf("handler %s: %w", p.Name, err)
	}
	return b.String(), nil
}

// fractions: the package has a constant or variable whose representation the build chooses.
func fractions(p *pcm.Package) bool {
	return slices.ContainsFunc(p.Constants, func(c pcm.Constant) bool { return c.Type == pcm.Frac }) ||
		slices.ContainsFunc(p.Vars, func(v pcm.Var) bool { return v.Type == pcm.Frac })
}
