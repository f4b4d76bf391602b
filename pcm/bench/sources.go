package bench

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/pcm"
)

//go:embed c native base
var sources embed.FS

// Base are the packages that measure the shell rather than a law: what is only gathered, triggers that do not fire, and a handler
// that runs and does nothing.
var Base = []string{"accumulate", "idle", "empty"}

// LoadBase reads one of them.
func LoadBase(name string) (*pcm.Package, error) {
	sub, err := fs.Sub(sources, "base")
	if err != nil {
		return nil, err
	}
	return pcm.Load(name, pcm.Deployment{FS: sub})
}

// Natives are the laws that there is a hand-written form of.
func Natives() []string {
	entries, _ := sources.ReadDir("native")
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".c"); ok && name != EmptyCall {
			names = append(names, name)
		}
	}
	return names
}

// EmptyCall names the form that does nothing.
const EmptyCall = "call"

// HasNative says whether there is a hand-written form of p as it is deployed: it is written for times in ns.
func HasNative(p *pcm.Package) bool {
	return slices.Contains(Natives(), p.Name) && (p.Fabric == nil || p.Fabric.TimeUnitPS == 1000)
}

// WriteNative writes the C files of a hand-written form into dir, where native.c is the unit to compile with the flags of a shell. Its
// constants are those of p, a package of the same law; nil is for the empty call.
func WriteNative(p *pcm.Package, dir string) error {
	files := pcm.RuntimeHeaders()
	name, unit := EmptyCall, ""
	if p != nil {
		if !HasNative(p) {
			return fmt.Errorf("%s: no hand-written form of it", p.Name)
		}
		name, unit = p.Name, fmt.Sprintf("#define FIRST_CWND UINT64_C(%d)\n", p.Controls[0].Initial)
		files[p.Name+".h"] = p.Header()
	}
	entries, err := sources.ReadDir("native")
	if err != nil {
		return err
	}
	for _, e := range entries {
		data, err := sources.ReadFile(path.Join("native", e.Name()))
		if err != nil {
			return err
		}
		files["native_"+e.Name()] = string(data)
		if strings.HasSuffix(e.Name(), ".h") {
			files[e.Name()] = string(data)
		}
	}
	files["native.c"] = unit + fmt.Sprintf("#include \"native_%s.c\"\n", name)
	return writeFiles(files, dir)
}

// WriteProgram writes the C files of the benchmark into dir, where bench.c is the unit to compile.
func WriteProgram(dir string) error {
	files := pcm.RuntimeHeaders()
	for _, name := range []string{"bench.c", "bench.h"} {
		data, err := sources.ReadFile(path.Join("c", name))
		if err != nil {
			return err
		}
		files[name] = string(data)
	}
	return writeFiles(files, dir)
}

func writeFiles(files map[string]string, dir string) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
