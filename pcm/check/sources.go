package check

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"modernc.org/cc/v4"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/pcm"
)

// sources is a folder with what a compiler needs: copies of the package's C files, NAME.h, and the runtime's headers.
type sources struct {
	p       *pcm.Package
	dir     string
	outside map[string]string // name in dir -> path in the package
	lines   map[string][]string
}

func newSources(p *pcm.Package) (*sources, error) {
	dir, err := os.MkdirTemp("", "pcmlab-check-")
	if err != nil {
		return nil, err
	}
	s := &sources{p: p, dir: dir, outside: map[string]string{}, lines: map[string][]string{}}
	files := pcm.RuntimeHeaders()
	files[p.Name+".h"] = once(p).Header()
	main := s.preamble() + "#include \"pcmh.h\"\n#include \"" + p.Name + ".h\"\n"
	for _, f := range p.C {
		data, err := p.ReadFile(f)
		if err != nil {
			s.close()
			return nil, err
		}
		base := filepath.Base(f)
		files[base], s.outside[base] = string(data), f
		main += fmt.Sprintf("#include %q\n", base)
	}
	for name, path := range p.Headers() {
		data, err := p.ReadFile(path)
		if err != nil {
			s.close()
			return nil, err
		}
		files[name], s.outside[name] = string(data), path
	}
	files["check.c"] = main
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			s.close()
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// preamble is what a shell defines before the handler.
func (s *sources) preamble() string {
	return "#include <stdlib.h>\n#define HANDLER_BUILD 1\n#define BUILD_ALGO_" + strings.ToUpper(s.p.Name) + " 1\n"
}

func (s *sources) close() { os.RemoveAll(s.dir) }

// once is p without the names that were declared before: the checker has named them, and C need not say so again.
func once(p *pcm.Package) *pcm.Package {
	q := *p
	taken := map[string]bool{"": true}
	first := func(name string) bool { f := !taken[name]; taken[name] = true; return !f }
	q.Constants = slices.DeleteFunc(slices.Clone(p.Constants), func(c pcm.Constant) bool { return first(c.Name) })
	q.Signals = slices.DeleteFunc(slices.Clone(p.Signals), func(c pcm.Signal) bool { return first(c.Name) })
	q.Controls = slices.DeleteFunc(slices.Clone(p.Controls), func(c pcm.Control) bool { return first(c.Name) })
	q.Vars = slices.DeleteFunc(slices.Clone(p.Vars), func(c pcm.Var) bool { return first(c.Name) })
	return &q
}

// place is that of the package's file; ours is false for the runtime's headers and the system's.
func (s *sources) place(file string, line, col int) (place, bool) {
	at := place{file, spec.Pos{Line: line, Col: col}}
	name, err := filepath.Rel(s.dir, file)
	if err != nil || !filepath.IsLocal(name) {
		return at, false
	}
	if out, ok := s.outside[name]; ok {
		at.file = out
		return s.characters(at), true
	}
	return at, name == s.p.Name+".h"
}

// characters turns the column, which compilers count in bytes, into one of characters, as in messages about YAML.
func (s *sources) characters(at place) place {
	lines, ok := s.lines[at.file]
	if !ok {
		data, _ := s.p.ReadFile(at.file)
		lines = strings.Split(string(data), "\n")
		s.lines[at.file] = lines
	}
	if at.Line >= 1 && at.Line <= len(lines) {
		text := lines[at.Line-1]
		at.Col = utf8.RuneCountInString(text[:min(max(0, at.Col-1), len(text))]) + 1
	}
	return at
}

// hosts are the configurations of the host's compilers, which take a while to ask for.
var hosts struct {
	sync.Mutex
	known map[string]*cc.Config
}

func hostConfig(compiler string) (*cc.Config, error) {
	hosts.Lock()
	defer hosts.Unlock()
	if c := hosts.known[compiler]; c != nil {
		return c, nil
	}
	var c *cc.Config
	err := withCC(compiler, func() (err error) {
		c, err = cc.NewConfig(runtime.GOOS, runtime.GOARCH, "-std=gnu11")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("check: ask the C compiler for its headers: %w (install gcc)", err)
	}
	if hosts.known == nil {
		hosts.known = map[string]*cc.Config{}
	}
	hosts.known[compiler] = c
	return c, nil
}

// withCC names the compiler in the way that the front end asks for.
func withCC(compiler string, do func() error) error {
	if compiler == "" {
		return do()
	}
	old, had := os.LookupEnv("CC")
	os.Setenv("CC", compiler)
	defer func() {
		if had {
			os.Setenv("CC", old)
		} else {
			os.Unsetenv("CC")
		}
	}()
	return do()
}

var defined = regexp.MustCompile(`(?m)^#define ([A-Za-z_][A-Za-z0-9_]*)\(`)

// checkHeader is the runtime's header with every accessor a call that carries the name of its object.
func checkHeader(platform *pcm.Platform) string {
	headers := pcm.RuntimeHeaders()
	macros := map[string]bool{}
	for _, h := range []string{"pcmh.h", "pcm_arith.h"} {
		for _, m := range defined.FindAllStringSubmatch(headers[h], -1) {
			macros[m[1]] = true
		}
	}
	fraction := ""
	if !platform.Float {
		fraction = "#ifndef PCM_FRAC_BITS\n#define PCM_FRAC_WORD 64\n#define PCM_FRAC_BITS 32\n#endif\n"
	}
	return fraction + "#include \"pcmh.h\"\n#include \"pcm_arith.h\"\n" + declarations(func(name string) bool { return macros[name] })
}

var undefinedName = regexp.MustCompile(`(?m)undefined: ([A-Za-z_][A-Za-z0-9_]*)`)

// parse gives the typed tree of the package. Names that are declared nowhere, which the compiler has named, are declared here, so that
// the rest can be looked at.
func (s *sources) parse(compiler string, platform *pcm.Platform) (*cc.AST, error) {
	host, err := hostConfig(compiler)
	if err != nil {
		return nil, err
	}
	config := *host
	config.IncludePaths = append([]string{s.dir}, host.IncludePaths...)
	config.SysIncludePaths = append([]string{s.dir}, host.SysIncludePaths...)
	main := s.preamble() + checkHeader(platform)
	for _, f := range s.p.C {
		main += fmt.Sprintf("#include %q\n", filepath.Base(f))
	}
	missing := ""
	for range 8 {
		text := strings.Replace(main, "#include \"pcmh.h\"\n", "#include \"pcmh.h\"\n#include \""+s.p.Name+".h\"\n"+missing, 1)
		var ast *cc.AST
		ast, err = translate(&config, []cc.Source{{Name: "<predefined>", Value: config.Predefined}, {Name: "<builtin>", Value: cc.Builtin},
			{Name: filepath.Join(s.dir, "check_parse.c"), Value: text}})
		if err == nil {
			return ast, nil
		}
		more := false
		for _, m := range undefinedName.FindAllStringSubmatch(err.Error(), -1) {
			if line := "extern long long " + m[1] + ";\n"; !strings.Contains(missing, line) {
				missing += line
				more = true
			}
		}
		if !more {
			break
		}
	}
	return nil, err
}

// translate parses. The front end was written for programs that compile, so a panic of it is an error about one that does not.
func translate(config *cc.Config, list []cc.Source) (ast *cc.AST, err error) {
	defer func() {
		if p := recover(); p != nil {
			ast, err = nil, fmt.Errorf("the C front end gave up: %v", p)
		}
	}()
	return cc.Translate(config, list)
}

var failurePlace = regexp.MustCompile(`^(.+?):(\d+):(\d+): (.*)`)

// failure is the first thing that the front end said.
func (s *sources) failure(err error) (place, string) {
	first, _, _ := strings.Cut(err.Error(), "\n")
	if m := failurePlace.FindStringSubmatch(first); m != nil {
		line, _ := strconv.Atoi(m[2])
		col, _ := strconv.Atoi(m[3])
		at, ours := s.place(m[1], line, col)
		why, _, _ := strings.Cut(m[4], " (")
		if ours {
			return at, why
		}
		first = why
	}
	return place{s.p.C[0], spec.Pos{Line: 1, Col: 1}}, first
}
