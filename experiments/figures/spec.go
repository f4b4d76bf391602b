package figures

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/spec"
)

// specFile is the shape of a specification on disk.
type specFile struct {
	Figure  string                `yaml:"figure,required" pattern:"[a-z0-9][a-z0-9._-]*" example:"incast-goodput" doc:"name of the figure, and of its file"`
	About   string                `yaml:"about" doc:"what it shows, for people"`
	Kind    string                `yaml:"kind,required" enum:"timeline,cdf,bars,sweep" example:"timeline" doc:"timeline and cdf are drawn from captures, bars and sweep from the scores of runs"`
	Metric  string                `yaml:"metric,required" example:"goodput" doc:"timeline: goodput, jain, ce_share, cnp_rate, retransmissions; cdf: rtt, message, cnp_gap; bars and sweep: a score such as jain(phase=\"three\")"`
	Runs    []entrySpec           `yaml:"runs,required" minitems:"1" maxitems:"8" doc:"what is drawn: one line, or one kind of bar, for each entry"`
	X       string                `yaml:"x" example:"link.buffer" doc:"sweep and bars: the parameter on the x axis"`
	Where   spec.Map[spec.Scalar] `yaml:"where" doc:"sweep and bars: only cells with these values of other parameters"`
	By      string                `yaml:"by" enum:"total,flow" default:"total" doc:"timeline of goodput: all flows together, or a line for each flow"`
	Bin     time.Duration         `yaml:"bin" min:"1ms" max:"1h" example:"100ms" doc:"timeline: one point for each bin; the runs' own bin when absent"`
	Size    sizeSpec              `yaml:"size" doc:"size on paper"`
	Font    fontSpec              `yaml:"font" doc:"font of all text"`
	XLabel  string                `yaml:"xlabel" doc:"label of the x axis; made from kind and parameter when absent"`
	YLabel  string                `yaml:"ylabel" doc:"label of the y axis; made from the metric when absent"`
	XLimits []float64             `yaml:"xlimits" minitems:"2" maxitems:"2" doc:"lowest and highest of the x axis, in its unit"`
	YLimits []float64             `yaml:"ylimits" minitems:"2" maxitems:"2" doc:"lowest and highest of the y axis, in its unit"`
	Legend  string                `yaml:"legend" enum:"above,none" default:"above" doc:"names of the entries above the plot, or none"`
	Pins    []pin                 `yaml:"pins" doc:"what it is made from; pcmlab report --figure SPEC --repin writes them"`
}

type entrySpec struct {
	Label string                 `yaml:"label,required" example:"DCQCN" doc:"its name in the legend"`
	Of    spec.OneOrMany[string] `yaml:"of,required" example:"../runs/20261130-053241.688-incast-3to1" doc:"folders of runs, of sweeps, or that hold them, relative to this file"`
}

type sizeSpec struct {
	Columns int     `yaml:"columns" min:"1" max:"2" default:"1" doc:"1 is 84 mm wide, 2 is 174 mm"`
	Width   float64 `yaml:"width" min:"20" max:"1000" doc:"width in mm instead"`
	Height  float64 `yaml:"height" min:"20" max:"1000" default:"52" doc:"height in mm"`
}

type fontSpec struct {
	Family string  `yaml:"family" enum:"serif,sans" default:"serif" doc:"serif or sans"`
	Size   float64 `yaml:"size" min:"4" max:"24" default:"8" doc:"size in points"`
}

// pin says what one run was when the figure was made.
type pin struct {
	Run      string                `yaml:"run,required" doc:"id of the run"`
	Manifest string                `yaml:"manifest,required" pattern:"[0-9a-f]{64}" doc:"SHA-256 of its manifest.json, which has the hashes of all its files"`
	Inputs   string                `yaml:"inputs,required" pattern:"[0-9a-f]{64}" doc:"SHA-256 of its playbook and lab"`
	Pcmlab   string                `yaml:"pcmlab" doc:"version that ran it"`
	Params   spec.Map[spec.Scalar] `yaml:"params" doc:"parameters of its cell"`
}

// Figure is a specification that was read and checked.
type Figure struct {
	Name string
	File string

	spec    specFile
	doc     *spec.Doc
	source  []byte
	entries []entry
}

// Schema is the JSON Schema of specifications, for editors.
func Schema() []byte { return spec.SchemaJSON("pcmlab figure", specFile{}) }

var (
	timelines = []string{"goodput", "jain", "ce_share", "cnp_rate", "retransmissions"}
	cdfs      = []string{"rtt", "message", "cnp_gap"}
)

// Parse reads a specification and lists every mistake with its place. It does not look for the runs.
func Parse(name string, data []byte) (*Figure, error) {
	f := &Figure{File: name, source: data}
	doc, err := spec.Decode(name, data, &f.spec)
	f.doc, f.Name = doc, f.spec.Figure
	if err != nil && doc.Bad(spec.P()) && f.spec.Figure == "" {
		return nil, inputError(err)
	}
	f.check()
	if err := doc.Err(); err != nil {
		return nil, inputError(err)
	}
	return f, nil
}

// Load is Parse of a file; then it finds the runs.
func Load(path string) (*Figure, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("figure: %w: %w", experiments.ErrInput, err)
	}
	f, err := Parse(path, data)
	if err != nil {
		return nil, err
	}
	return f, f.find()
}

// check finds the mistakes that the shape of the file does not show.
func (f *Figure) check() {
	s, d := &f.spec, f.doc
	oneOf := func(known []string) {
		if s.Metric != "" && !contains(known, s.Metric) {
			d.Errorf(spec.P("metric"), spec.Suggest(s.Metric, known), "%q: a %s shows one of %s", s.Metric, s.Kind, strings.Join(known, ", "))
		}
	}
	switch s.Kind {
	case "timeline":
		oneOf(timelines)
	case "cdf":
		oneOf(cdfs)
	case "bars", "sweep":
		metric, _, _ := strings.Cut(s.Metric, "(")
		if _, ok := experiments.Metric(metric); !ok && s.Metric != "" {
			d.Errorf(spec.P("metric"), spec.Suggest(metric, metricNames()), "%q: no such metric", s.Metric)
		}
	}
	scores := s.Kind == "bars" || s.Kind == "sweep"
	for _, key := range []string{"x", "where"} {
		if s.Kind != "" && !scores && d.Has(spec.P(key)) {
			d.Errorf(spec.P(key), "leave it out", "a %s has no parameters on its axes", s.Kind)
		}
	}
	if s.Kind == "sweep" && s.X == "" {
		d.Errorf(spec.P("kind"), "add x: link.buffer, or whatever the sweep varies", "a sweep needs the parameter of its x axis")
	}
	if s.By == "flow" && (s.Kind != "timeline" || s.Metric != "goodput") {
		d.Errorf(spec.P("by"), "leave it out", "only the timeline of goodput has a line for each flow")
	}
	if s.By == "flow" && len(s.Runs) > 1 {
		d.Errorf(spec.P("runs"), "give one entry, or by: total", "lines for each flow are drawn of one entry, not of %d", len(s.Runs))
	}
	if d.Has(spec.P("bin")) && s.Kind != "timeline" {
		d.Errorf(spec.P("bin"), "leave it out", "only a timeline has bins")
	}
	for _, key := range []string{"xlimits", "ylimits"} {
		v := map[string][]float64{"xlimits": s.XLimits, "ylimits": s.YLimits}[key]
		switch {
		case len(v) == 2 && v[0] >= v[1]:
			d.Errorf(spec.P(key), "the lower one first", "nothing lies between %g and %g", v[0], v[1])
		case key == "xlimits" && len(v) == 2 && s.Kind == "cdf" && v[0] <= 0:
			d.Errorf(spec.P(key), "begin above zero", "the x axis of a cdf is logarithmic: it cannot begin at %g", v[0])
		}
	}
	labels := map[string]bool{}
	for i, e := range s.Runs {
		if labels[e.Label] && e.Label != "" {
			d.Errorf(spec.P("runs", i, "label"), "give each entry its own", "%q is taken", e.Label)
		}
		labels[e.Label] = true
		f.printable(spec.P("runs", i, "label"), e.Label)
	}
	f.printable(spec.P("xlabel"), s.XLabel)
	f.printable(spec.P("ylabel"), s.YLabel)
	pinned := map[string]bool{}
	for i, p := range s.Pins {
		if pinned[p.Run] {
			d.Errorf(spec.P("pins", i, "run"), "leave it out", "%q is pinned already", p.Run)
		}
		pinned[p.Run] = true
	}
}

// printable refuses what the PDF's fonts cannot show: it would be wrong letters there.
func (f *Figure) printable(at spec.Path, text string) {
	for _, r := range text {
		if !inFont(r) {
			f.doc.Errorf(at, "use letters of Western European languages; u for micro is fine", "%q cannot be shown in a PDF", string(r))
			return
		}
	}
}

// entry is one thing that is drawn, with its runs.
type entry struct {
	label string
	runs  []*experiments.Summary
}

// find loads the runs of all entries; what is missing is said for all at once.
func (f *Figure) find() error {
	var errs []error
	for i, e := range f.spec.Runs {
		var paths []string
		for _, of := range e.Of {
			if !filepath.IsAbs(of) {
				of = filepath.Join(filepath.Dir(f.File), of)
			}
			paths = append(paths, of)
		}
		runs, err := load(paths)
		if err != nil {
			pos := f.doc.Pos(spec.P("runs", i, "of"))
			errs = append(errs, fmt.Errorf("%s:%d:%d: %w", f.File, pos.Line, pos.Col, err))
			continue
		}
		f.entries = append(f.entries, entry{e.Label, runs})
	}
	return errors.Join(errs...)
}

// inputErr marks an error as one of input without changing its text.
type inputErr struct{ error }

func (e inputErr) Is(target error) bool { return target == experiments.ErrInput }
func (e inputErr) Unwrap() error        { return e.error }

func inputError(err error) error { return inputErr{err} }
