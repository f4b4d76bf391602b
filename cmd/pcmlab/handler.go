package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers"
)

func newHandlerCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "handler",
		Short: "Handler packages of the PCM programming model: look, write, check, build, run, measure",
		Long: "A handler package is a congestion-control or load-balancing policy: NAME.yaml names the signals that it reads, the controls that\n" +
			"it sets, its variables and constants; NAME.c is the policy. NAME is one of the library ('pcmlab handler ls'), a folder that\n" +
			"holds NAME.yaml, or that file. See docs/handlers.md.",
		Example: "  pcmlab handler ls\n  pcmlab handler new mycc && pcmlab handler check mycc",
	}
	cmd.AddCommand(newHandlerLs(e), newHandlerShow(e), newHandlerNew(e), newHandlerCheck(e), newHandlerBuild(e), newHandlerRun(e), newHandlerBench(e))
	return cmd
}

// handlerFlags say for which deployment a package is read.
type handlerFlags struct {
	fabric  string
	sets    []string
	sources []string
}

func (f *handlerFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.fabric, "fabric", "", "file of deployment constants (fabric.yaml beside the package or in the folder above; otherwise the library's)")
	cmd.Flags().StringArrayVar(&f.sets, "set", nil, "set a constant, or the initial value of a variable or control: NAME=EXPRESSION")
	cmd.Flags().StringArrayVar(&f.sources, "with", nil, "compile this C file, too (packages that share one do not name it)")
}

// where is the file of a package, in the library or outside.
type where struct {
	path    string
	library bool
}

// findHandler takes a folder or file of that name, and otherwise one of the library.
func findHandler(name string) (where, error) {
	st, err := os.Stat(name)
	switch {
	case err == nil && !st.IsDir():
		return where{path: name}, nil
	case err == nil:
		base := filepath.Base(filepath.Clean(name))
		if abs, err := filepath.Abs(name); err == nil {
			base = filepath.Base(abs)
		}
		file := filepath.Join(name, base+".yaml")
		if _, err := os.Stat(file); err == nil {
			return where{path: file}, nil
		}
		if found, _ := filepath.Glob(filepath.Join(name, "*.yaml")); len(found) == 1 {
			return where{path: found[0]}, nil
		}
		if !slices.Contains(handlers.Names(), name) {
			return where{}, usagef("handler %s: the folder holds no %s.yaml", name, base)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return where{}, &codedError{exitUsage, err}
	case strings.ContainsAny(name, `/\`) || strings.HasSuffix(name, ".yaml"):
		return where{}, usagef("handler %s: no such file", name)
	}
	if !slices.Contains(handlers.Names(), name) {
		return where{}, usagef("no handler %q here or in the library (%s)", name, spec.Suggest(name, handlers.Names()))
	}
	return where{name, true}, nil
}

// deployment reads the flags for a package.
func (f *handlerFlags) deployment(w where) (pcm.Deployment, error) {
	d := pcm.Deployment{Sources: f.sources}
	for _, s := range f.sets {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" || v == "" {
			return d, usagef("--set %q: need NAME=VALUE", s)
		}
		if d.Set == nil {
			d.Set = map[string]string{}
		}
		d.Set[k] = v
	}
	file := f.fabric
	if file == "" && !w.library {
		for _, dir := range []string{filepath.Dir(w.path), filepath.Join(filepath.Dir(w.path), "..")} {
			if _, err := os.Stat(filepath.Join(dir, "fabric.yaml")); err == nil {
				file = filepath.Join(dir, "fabric.yaml")
				break
			}
		}
	}
	if w.library {
		d.FS = handlers.FS()
		if len(f.sources) > 0 {
			return d, usagef("--with: packages of the library have all their sources")
		}
	}
	d.Fabric = handlers.Fabric()
	if file == "" {
		return d, nil
	}
	fabric, err := pcm.LoadFabric(file)
	if err != nil {
		return d, &codedError{exitUsage, err}
	}
	d.Fabric = fabric
	return d, nil
}

// load finds and reads a package.
func (f *handlerFlags) load(name string) (*pcm.Package, error) {
	w, err := findHandler(name)
	if err != nil {
		return nil, err
	}
	d, err := f.deployment(w)
	if err != nil {
		return nil, err
	}
	p, err := pcm.Load(w.path, d)
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	return p, nil
}

// completeHandlers offers the library's names and files.
func completeHandlers(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return handlers.Names(), cobra.ShellCompDirectiveDefault
}

func newHandlerLs(e *env) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "ls", Short: "List the library of handler packages", Args: cobra.NoArgs,
		Example: "  pcmlab handler ls",
		RunE: func(*cobra.Command, []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			var list []listedHandler
			for _, name := range handlers.Names() {
				p, err := handlers.Load(name, pcm.Deployment{})
				if err != nil {
					return err
				}
				list = append(list, listed(p))
			}
			if output == "json" {
				return writeJSON(e.stdout, struct {
					Schema   string          `json:"schema"`
					Handlers []listedHandler `json:"handlers"`
				}{"pcmlab/handlers/v1", list})
			}
			t := e.newTable()
			t.columns([]analysis.Column{{Name: "handler"}, {Name: "kind"}, {Name: "sets"}, {Name: "what it is", Wrap: true}})
			for _, h := range list {
				t.row(h.Name, h.Kind, strings.Join(h.Controls, " "), h.Description)
			}
			return t.print()
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

type listedHandler struct {
	Name        string   `json:"name"`
	Kind        string   `json:"kind"`
	Description string   `json:"description"`
	Controls    []string `json:"controls"`
	Platforms   []string `json:"platforms"` // by its objects; 'handler check --platform' looks at the C code, too
}

func listed(p *pcm.Package) listedHandler {
	h := listedHandler{Name: p.Name, Kind: p.Kind, Description: p.Description, Controls: []string{}, Platforms: []string{}}
	for _, c := range p.Controls {
		h.Controls = append(h.Controls, c.Kind.Field())
	}
	for _, pl := range pcm.Platforms() {
		refused := slices.ContainsFunc(pl.Gaps(p), func(g pcm.Gap) bool { return g.Support == pcm.Refused })
		floats := !pl.Float && slices.ContainsFunc(p.Vars, func(v pcm.Var) bool { return v.Type == pcm.Float })
		if !refused && !floats && pl.Wakes(p) {
			h.Platforms = append(h.Platforms, pl.Name)
		}
	}
	return h
}
