// Package cpu compiles handler packages into shells for the CPU: shared objects with the C interface of pcm_shell.h.
package cpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pcmlab/pcmlab/pcm"
)

// Options of a build.
type Options struct {
	CC    string   // compiler; "" means cc
	Flags []string // added to ours
	// Frac is the representation of fractions: float (also when empty), q16.16, q32.32 or q42.22. It is part of the package's hash.
	Frac string
	// Snapshot makes the shell asynchronous, with the policy relaxed, zero-skew or bounded-skew; "" and synchronous do not. Skew is the
	// most updates that a snapshot of bounded-skew may be apart. Both are part of the hash.
	Snapshot string
	Skew     uint64
	Tick     pcm.Tick // of the times that callers give; the zero value is 1 ns. It is part of the hash
}

// Package is p as the options want it built, whose hash is that of the shell.
func (o Options) Package(p *pcm.Package) (*pcm.Package, error) {
	format, err := pcm.ParseFormat(o.Frac)
	if err != nil {
		return p, err
	}
	snapshot, err := pcm.ParseSnapshot(o.Snapshot)
	if err != nil {
		return p, err
	}
	if (o.Skew != 0) != (snapshot == pcm.BoundedSkew) {
		return p, fmt.Errorf("a skew of %d with snapshots that are %s: bounded-skew wants one of at least 1 update, and nothing else has one", o.Skew, snapshot)
	}
	if o.Frac == "" && o.Snapshot == "" && o.Tick == (pcm.Tick{}) {
		return p, nil
	}
	q := *p
	if o.Tick != (pcm.Tick{}) {
		q.Tick = o.Tick
		if err := q.CheckTick(); err != nil {
			return p, err
		}
	}
	if o.Frac != "" {
		q.Format = format
	}
	if o.Snapshot != "" {
		q.Snapshot, q.Skew = snapshot, o.Skew
	}
	return &q, nil
}

// flags are those of every build. No fast mathematics: results must not depend on the compiler's mood.
var flags = []string{"-std=gnu11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-math-errno", "-ffp-contract=off", "-Wall", "-Wno-unused-function", "-Wno-unknown-pragmas"}

// Build compiles p and writes the shared object to out, which appears whole or not at all. The error holds what the compiler said.
func Build(ctx context.Context, p *pcm.Package, out string, o Options) error {
	p, err := o.Package(p)
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	dir, err := os.MkdirTemp("", "pcmlab-shell-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := WriteSources(p, dir); err != nil {
		return err
	}
	cc := o.CC
	if cc == "" {
		cc = "cc"
	}
	object, err := os.CreateTemp(filepath.Dir(out), ".shell-*")
	if err != nil {
		return err
	}
	object.Close()
	defer os.Remove(object.Name())
	args := append(append([]string{}, flags...), "-I", dir)
	args = append(append(args, o.Flags...), "-DPCM_SHELL_EXPORT=__attribute__((visibility(\"default\")))", "-o", object.Name(), filepath.Join(dir, "shell.c"), "-lm")
	cmd := exec.CommandContext(ctx, cc, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return fmt.Errorf("build %s: no C compiler %q (install gcc, or name one with --cc)", p.Name, cc)
		}
		return fmt.Errorf("build %s: %s: %w\n%s", p.Name, cc, err, strings.TrimSpace(said.String()))
	}
	return os.Rename(object.Name(), out)
}

// WriteSources puts all that the compiler needs into dir: shell.c, NAME.h, the runtime headers, copies of the C files and of the headers
// that they include. A header of ours comes before one of the same name beside the C files.
func WriteSources(p *pcm.Package, dir string) error {
	shell, err := p.Shell()
	if err != nil {
		return err
	}
	files := pcm.RuntimeHeaders()
	files["shell.c"], files[p.Name+".h"] = shell, p.Header()
	for _, f := range p.C {
		data, err := p.ReadFile(f)
		if err != nil {
			return fmt.Errorf("handler %s: %w", p.Name, err)
		}
		files[filepath.Base(f)] = string(data)
	}
	for name, path := range p.Headers() {
		data, err := p.ReadFile(path)
		if err != nil {
			return fmt.Errorf("handler %s: %w", p.Name, err)
		}
		files[name] = string(data)
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
