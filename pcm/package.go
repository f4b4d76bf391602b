package pcm

import (
	"io/fs"
	"math/big"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"

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
	FS          fs.FS    // that the files are in; nil: the operating system's
	Format      Format   // of fractions, in a shell that is made of it
	Snapshot    Snapshot // of its shell
	Skew        uint64   // of BoundedSkew, in updates
	Tick        Tick     // of its shell's caller

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
