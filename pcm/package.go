package pcm

import (
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/internal/spec"
)

// Package is a handler package whose constants are resolved for one deployment.
type Package struct {
	Name        string
	Description string
	Kind        string   // sender_cc, receiver_cc or lb
	File        string   // NAME.yaml
	C           []string // paths of the C files: NAME.c, then further ones
	Constants   []Constant
	Signals     []Signal
	Controls    []Control
	Vars        []Var
	Slots       int // 64-bit words of all variables
	Fabric      *Fabric
	FS          fs.FS  // that the files are in; nil: the operating system's
	Format      Format // of fractions, in a shell that is made of it

	doc *spec.Doc
}

// ReadFile reads one of the package's files.
func (p *Package) ReadFile(path string) ([]byte, error) {
	if p.FS != nil {
		return fs.ReadFile(p.FS, path)
	}
	return os.ReadFile(path)
}

// Constant is folded into the code.
type Constant struct {
	Name        string
	Type        Type
	Value       Number
	Description string
}

// Signal is what the handler reads.
type Signal struct {
	Name    string
	Source  Source
	Accum   Accum
	Trigger *Trigger // nil: does not make the handler run
	Reset   bool     // set to Initial when the handler runs
	Initial uint64
}

// Trigger makes the handler run.
type Trigger struct {
	Mode      Mode
	Op        Op
	Threshold uint64
}

// Control is what the handler sets.
type Control struct {
	Name    string
	Kind    ControlKind
	Initial uint64
}

// Var is what the handler keeps.
type Var struct {
	Name    string
	Type    Type
	Initial Number
	Len     int // 0: no array
	Slot    int // first word
}

// ops are the comparisons that a trigger may use. Those of bits and booleans hold where the result is not zero.
var ops = []Op{">", "<", ">=", "<=", "==", "!=", "&", "|", "^", "&&", "||"}

// Fabric are the constants of a deployment: one file, shared by all packages.
type Fabric struct {
	File   string
	Names  []string // in file order
	Values map[string]Number
	// TimeUnitPS is the unit of the packages' times in picoseconds. The key time_unit gives it: ps as in the SDK's own files,
	// ns, us, or tick (100 ns, the paper's). Without the key it is ns.
	TimeUnitPS int64
}

// microsecond is a constant that every deployment has: so many of its time units.
const microsecond = "FABRIC_US"

var timeUnits = map[string]int64{"ps": 1, "ns": 1000, "us": 1_000_000, "tick": 100_000}

// LoadFabric reads a file of deployment constants. The error lists all mistakes.
func LoadFabric(path string) (*Fabric, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseFabric(path, data)
}

// ParseFabric is LoadFabric for a text; file is the name in messages.
func ParseFabric(file string, data []byte) (*Fabric, error) {
	var entries spec.Map[spec.Scalar]
	doc, err := spec.DecodeTagged(file, data, &entries, evalTag)
	if doc == nil {
		return nil, err
	}
	f := &Fabric{File: file, Values: map[string]Number{}, TimeUnitPS: timeUnits["ns"]}
	r := resolver{doc: doc, known: f.Values}
	for _, e := range entries {
		if e.Key == "time_unit" {
			ps, ok := timeUnits[string(e.Value)]
			if !ok {
				doc.Errorf(spec.P("time_unit"), "one of ps, ns, us, tick (100 ns)", "no unit of time %q", e.Value)
			}
			f.TimeUnitPS = ps
			continue
		}
		if !isIdentifier(e.Key) {
			doc.KeyErrorf(spec.P(e.Key), "letters, digits and _", "%q is no name", e.Key)
			continue
		}
		f.Names = append(f.Names, e.Key)
		r.add(e.Key, string(e.Value), spec.P(e.Key))
	}
	r.resolve()
	return f, doc.Err()
}

// evalTag marks expressions in files of the SDK. Without it they are read all the same.
const evalTag = "!eval"

// Deployment is what a package is compiled for besides its platform.
type Deployment struct {
	Fabric *Fabric // nil: none
	// Set replaces values of constants, and initial values of variables and controls, by name. Like those they may be expressions.
	Set map[string]string
	// Sources are further C files besides those that the package names: packages of the SDK that share a file do not name it.
	Sources []string
	FS      fs.FS // that the package's path is in; nil: the operating system's
}

// Load reads NAME.yaml (or the folder NAME that holds it) and resolves its constants for a deployment. The error lists all
// mistakes of the file with their places.
func Load(file string, d Deployment) (*Package, error) {
	stat, read := os.Stat, os.ReadFile
	if d.FS != nil {
		stat = func(name string) (fs.FileInfo, error) { return fs.Stat(d.FS, name) }
		read = func(name string) ([]byte, error) { return fs.ReadFile(d.FS, name) }
	}
	if st, err := stat(file); err == nil && st.IsDir() {
		dir := path.Clean(filepath.ToSlash(file))
		if base := path.Base(dir); base == "." || base == ".." {
			if abs, err := filepath.Abs(file); err == nil {
				dir = filepath.ToSlash(abs)
			}
		}
		file = dir + "/" + path.Base(dir) + ".yaml"
	}
	data, err := read(file)
	if err != nil {
		return nil, err
	}
	return Parse(file, data, d)
}

// Parse is Load for a text; C files are looked for beside file.
func Parse(file string, data []byte, d Deployment) (*Package, error) {
	var f packageFile
	doc, err := spec.DecodeTagged(file, data, &f, evalTag)
	if doc == nil {
		return nil, err
	}
	b := builder{Package: &Package{Name: f.Algorithm.Name, Description: f.Algorithm.Description, Kind: f.Algorithm.Kind, File: file, Fabric: d.Fabric, FS: d.FS, doc: doc},
		r: resolver{doc: doc, known: map[string]Number{}}, taken: map[string]string{}, set: d.Set}
	if d.Fabric != nil {
		for k, v := range d.Fabric.Values {
			b.r.known[k] = v
		}
		if _, ok := b.r.known[microsecond]; !ok {
			b.r.known[microsecond] = Number{Int: big.NewInt(max(1, 1_000_000/d.Fabric.TimeUnitPS))}
		}
	}
	b.constants(f.Constants)
	b.signals(f.Signals)
	b.controls(f.Controls)
	b.vars(f.Variables)
	b.sources(f.Sources)
	b.C = append(b.C, d.Sources...)
	b.unknownSets()
	if b.Kind == "" {
		b.Kind = b.kind()
	}
	return b.Package, doc.Err()
}

var localInclude = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]*"([^"]+)"`)

// Headers are the headers of the package's own that its C files include, beside them or in the folder above, by name. A name of the
// runtime's is never one of them, and neither is NAME.h.
func (p *Package) Headers() map[string]string {
	taken := RuntimeHeaders()
	taken[p.Name+".h"] = ""
	found := map[string]string{}
	var dirs []string
	for _, f := range p.C {
		for _, d := range []string{filepath.Dir(f), filepath.Join(filepath.Dir(f), "..")} {
			if !slices.Contains(dirs, d) {
				dirs = append(dirs, d)
			}
		}
	}
	var scan func(file string)
	scan = func(file string) {
		data, err := p.ReadFile(file)
		if err != nil {
			return
		}
		for _, m := range localInclude.FindAllSubmatch(data, -1) {
			name := string(m[1])
			if _, ok := taken[name]; ok || found[name] != "" || !filepath.IsLocal(name) {
				continue
			}
			for _, d := range append([]string{filepath.Dir(file)}, dirs...) {
				path := filepath.Join(d, name)
				if _, err := p.ReadFile(path); err == nil {
					found[name] = path
					scan(path)
					break
				}
			}
		}
	}
	for _, f := range p.C {
		scan(f)
	}
	return found
}

// Pos is the place in NAME.yaml of an object, or of one of its keys: Pos("signals", 2, "type"). What is left out has the place of what
// holds it.
func (p *Package) Pos(path ...any) spec.Pos { return p.doc.Pos(spec.P(path...)) }

// builder makes a package of its file.
type builder struct {
	*Package
	r     resolver
	taken map[string]string // name -> what it is
	set   map[string]string
}

// given is the text of a value, or what the deployment sets in its place.
func (b *builder) given(name string, text *spec.Scalar) *spec.Scalar {
	if v, ok := b.set[name]; ok {
		s := spec.Scalar(v)
		return &s
	}
	return text
}

// unknownSets refuses what sets nothing.
func (b *builder) unknownSets() {
	var known []string
	for name, what := range b.taken {
		if what != "signal" {
			known = append(known, name)
		}
	}
	slices.Sort(known)
	for name := range b.set {
		if !slices.Contains(known, name) {
			b.doc.Errorf(spec.P("constants"), spec.Suggest(name, known), "the deployment sets %s, which is no constant, variable or control of %s", name, b.Name)
		}
	}
}

// name notes a name, which no other object may have.
func (b *builder) name(name, what string, at spec.Path) {
	if name == "" {
		return
	}
	if other, ok := b.taken[name]; ok {
		b.doc.Errorf(at.With("name"), "give it another name", "%s %q: the name is taken by a %s", what, name, other)
		return
	}
	b.taken[name] = what
}

func (b *builder) constants(list []constantFile) {
	for i, c := range list {
		at := spec.P("constants", i)
		b.name(c.Name, "constant", at)
		b.r.add(c.Name, string(*b.given(c.Name, &c.Value)), at.With("value"))
	}
	b.r.resolve()
	for i, c := range list {
		t, _ := named(c.Type, numTypes)
		v := b.r.known[c.Name]
		if v.Int == nil && t == Uint || t == Int {
			if _, err := v.Bits(t); err != nil {
				b.doc.Errorf(spec.P("constants", i, "value"), "", "constant %q: %v", c.Name, err)
			}
		}
		b.Constants = append(b.Constants, Constant{c.Name, t, v, c.Description})
	}
}

func (b *builder) signals(list []signalFile) {
	triggers := false
	for i, s := range list {
		at := spec.P("signals", i)
		b.name(s.Name, "signal", at)
		out := Signal{Name: s.Name, Reset: true}
		var ok bool
		if out.Source, ok = named(s.Type, numSources); !ok && s.Type != "" {
			b.doc.Errorf(at.With("type"), spec.Suggest(s.Type, textsOf(Sources())), "no source %q", s.Type)
		}
		out.Accum, _ = named(s.Accum, numAccums)
		if out.Accum == Min {
			out.Initial = 1<<64 - 1
		}
		if v, ok := b.word(s.Initial, Uint, at.With("initial_value")); ok {
			out.Initial = v
		}
		switch strings.ToLower(string(s.Reset)) {
		case "true", "":
		case "false":
			out.Reset = false
		default:
			b.doc.Errorf(at.With("reset_upon_trigger"), `write "true" or "false"`, "%q is neither true nor false", s.Reset)
		}
		out.Trigger = b.trigger(s, at)
		triggers = triggers || out.Trigger != nil
		b.Signals = append(b.Signals, out)
	}
	if !triggers && len(list) > 0 {
		b.doc.Errorf(spec.P("signals"), "give one of them a trigger_threshold", "no signal has a trigger: the handler would never run (paper, section 5.1)")
	}
}

func (b *builder) trigger(s signalFile, at spec.Path) *Trigger {
	if s.Threshold == nil {
		for key, v := range map[string]string{"trigger_type": s.TriggerType, "trigger_op": s.TriggerOp} {
			if v != "" {
				b.doc.Errorf(at.With(key), "add trigger_threshold, or remove it", "signal %q: a %s without a threshold", s.Name, key)
			}
		}
		return nil
	}
	t := &Trigger{Mode: Raw, Op: ">="}
	if s.TriggerType != "" {
		t.Mode, _ = named(s.TriggerType, numModes)
	}
	if s.TriggerOp != "" {
		t.Op = Op(s.TriggerOp)
		if !slices.Contains(ops, t.Op) {
			b.doc.Errorf(at.With("trigger_op"), "one of > < >= <= == != & | ^ && ||", "no comparison %q", s.TriggerOp)
		}
	}
	t.Threshold, _ = b.word(s.Threshold, Uint, at.With("trigger_threshold"))
	if t.Mode == Delta && t.Op == ">=" && t.Threshold == 0 && !b.doc.Bad(at.With("trigger_threshold")) {
		b.doc.Errorf(at.With("trigger_threshold"), "write 1 or more", "signal %q: a change of 0 or more is always there: the handler would run at every check", s.Name)
	}
	if t.Mode != Raw && strings.EqualFold(string(s.Reset), "true") {
		b.doc.Errorf(at.With("trigger_type"), `add reset_upon_trigger: "false"`,
			"signal %q: it is reset when the handler runs, but the value that its change is counted from is not: the trigger would fire for ever", s.Name)
	}
	return t
}

func (b *builder) controls(list []controlFile) {
	kinds := map[ControlKind]string{}
	for i, c := range list {
		at := spec.P("controls", i)
		b.name(c.Name, "control", at)
		kind, ok := named(c.Type, numControls)
		switch {
		case !ok && c.Type != "":
			b.doc.Errorf(at.With("type"), spec.Suggest(c.Type, textsOf(Controls())), "no control %q", c.Type)
		case kinds[kind] != "":
			b.doc.Errorf(at.With("type"), "one control of a kind", "control %q: %s is set by %q already", c.Name, c.Type, kinds[kind])
		default:
			kinds[kind] = c.Name
		}
		initial, _ := b.word(b.given(c.Name, c.Initial), Uint, at.With("initial_value"))
		b.Controls = append(b.Controls, Control{c.Name, kind, initial})
	}
}

// maxSlots bounds the state of a flow.
const maxSlots = 1 << 16

func (b *builder) vars(list []variableFile) {
	for i, v := range list {
		at := spec.P("variables", i)
		b.name(v.Name, "variable", at)
		t, _ := named(v.Type, numTypes)
		out := Var{Name: v.Name, Type: t, Slot: b.Slots, Initial: IntNumber(0)}
		if text := b.given(v.Name, v.Initial); text != nil {
			out.Initial, _ = b.r.value(string(*text), at.With("initial_value"))
			if _, err := out.Initial.Bits(t); err != nil {
				b.doc.Errorf(at.With("initial_value"), "", "variable %q: %v", v.Name, err)
			}
		}
		slots := 1
		if v.Len != nil {
			n, ok := b.word(v.Len, Uint, at.With("arr_len"))
			if ok && (n == 0 || n > maxSlots) {
				b.doc.Errorf(at.With("arr_len"), fmt.Sprintf("1 to %d", maxSlots), "array %q of %d elements", v.Name, n)
			} else {
				out.Len, slots = int(n), int(n)
			}
		}
		b.Slots += slots
		b.Vars = append(b.Vars, out)
	}
}

func (b *builder) sources(more []string) {
	dir := filepath.Dir(b.File)
	b.C = append(b.C, strings.TrimSuffix(b.File, filepath.Ext(b.File))+".c")
	for i, s := range more {
		if filepath.IsAbs(s) || !filepath.IsLocal(s) || filepath.Ext(s) != ".c" {
			b.doc.Errorf(spec.P("sources", i), "a .c file beside this one", "%q is no C file of this folder", s)
			continue
		}
		b.C = append(b.C, filepath.Join(dir, s))
	}
}

// kind follows from the controls.
func (b *builder) kind() string {
	for _, c := range b.Controls {
		switch c.Kind {
		case EV:
			return "lb"
		case PullNo:
			return "receiver_cc"
		}
	}
	return "sender_cc"
}

// word is the value of an optional scalar as a 64-bit word.
func (b *builder) word(s *spec.Scalar, t Type, at spec.Path) (v uint64, ok bool) {
	if s == nil {
		return 0, false
	}
	n, ok := b.r.value(string(*s), at)
	if !ok {
		return 0, false
	}
	v, err := n.Bits(t)
	if err != nil {
		b.doc.Errorf(at, "", "%v", err)
		return 0, false
	}
	return v, true
}

// Controls lists all kinds in order.
func Controls() []ControlKind {
	all := make([]ControlKind, numControls)
	for i := range all {
		all[i] = ControlKind(i)
	}
	return all
}

func textsOf[T fmt.Stringer](all []T) []string {
	var out []string
	for _, v := range all {
		out = append(out, v.String())
	}
	return out
}

func isIdentifier(s string) bool {
	for i := range len(s) {
		if !word(s[i]) || i == 0 && s[i] >= '0' && s[i] <= '9' {
			return false
		}
	}
	return s != ""
}

// resolver gives values to names that may refer to each other in any order.
type resolver struct {
	doc   *spec.Doc
	known map[string]Number // resolved
	open  []unresolved
}

type unresolved struct {
	name string
	x    *expression
	at   spec.Path
}

// add takes a definition.
func (r *resolver) add(name, text string, at spec.Path) {
	x, err := parseExpression(text)
	if err != nil {
		if text != "" {
			r.doc.Errorf(at, "pcmlab help handlers", "%q: %v", text, err)
		}
		r.known[name] = IntNumber(0)
		return
	}
	r.open = append(r.open, unresolved{name, x, at})
}

// resolve goes on until nothing is left. What never resolves is named, with what it waits for.
func (r *resolver) resolve() {
	for {
		var rest []unresolved
		for _, u := range r.open {
			v, err := u.x.value(r.known)
			var missing *undefined
			switch {
			case errors.As(err, &missing):
				rest = append(rest, u)
				continue
			case err != nil:
				r.doc.Errorf(u.at, "", "%q: %v", u.x.text, err)
			}
			r.known[u.name] = v
		}
		if len(rest) == len(r.open) {
			break
		}
		r.open = rest
	}
	waiting := map[string]bool{}
	for _, u := range r.open {
		waiting[u.name] = true
	}
	for _, u := range r.open {
		for _, n := range u.x.names {
			if _, ok := r.known[n]; ok {
				continue
			}
			if waiting[n] {
				r.doc.Errorf(u.at, "break the circle", "%s = %q never resolves: it waits for %s, which waits too", u.name, u.x.text, n)
			} else {
				r.doc.Errorf(u.at, spec.Suggest(n, r.names()), "%s = %q: no constant %q", u.name, u.x.text, n)
			}
			break
		}
	}
	for _, u := range r.open {
		r.known[u.name] = IntNumber(0) // said already
	}
	r.open = nil
}

func (r *resolver) names() []string {
	var out []string
	for n := range r.known {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// value evaluates an expression over what is resolved; mistakes go to the document.
func (r *resolver) value(text string, at spec.Path) (Number, bool) {
	x, err := parseExpression(text)
	if err == nil {
		var v Number
		if v, err = x.value(r.known); err == nil {
			return v, true
		}
	}
	fix := ""
	var missing *undefined
	if errors.As(err, &missing) {
		fix = spec.Suggest(missing.name, r.names())
	}
	r.doc.Errorf(at, fix, "%q: %v", text, err)
	return IntNumber(0), false
}
