package pcm

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed runtime/*.h
var runtime embed.FS

// RuntimeHeaders are the headers that a handler and a shell include, by name.
func RuntimeHeaders() map[string]string {
	all := map[string]string{}
	entries, _ := runtime.ReadDir("runtime")
	for _, e := range entries {
		data, _ := runtime.ReadFile("runtime/" + e.Name())
		all[e.Name()] = string(data)
	}
	return all
}

// Hash identifies what a shell is made of: the C files, the specification as resolved for its deployment, and the runtime headers.
func (p *Package) Hash() (string, error) {
	h := sha256.New()
	for _, f := range p.C {
		data, err := p.ReadFile(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(f), len(data), data)
	}
	headers := p.Headers()
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		data, err := p.ReadFile(headers[name])
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(data), data)
	}
	shell := p.shell("")
	header := p.Header()
	fmt.Fprintf(h, "%d %s %d %s", len(header), header, len(shell), shell)
	for _, name := range []string{"pcmh.h", "pcm_arith.h", "pcm_fixed.h", "pcm_cells.h", "pcm_flows.h", "pcm_shell.h"} {
		data, err := runtime.ReadFile("runtime/" + name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(data), data)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Shell is the C source of the package's shell, synchronous or not as its Snapshot says: one translation unit with the handler in it, so
// that accesses fold and what the handler has no object for leaves no code. It includes NAME.h, the handler's C files and the runtime
// headers.
func (p *Package) Shell() (string, error) {
	hash, err := p.Hash()
	if err != nil {
		return "", err
	}
	return p.shell(hash), nil
}

// shell writes it. What is in capitals may be a macro of the package, so the code after its header has names of its own.
func (p *Package) shell(hash string) string {
	w := &shellWriter{Package: p}
	w.line("/* Shell of %s: do not edit. */", p.base())
	if w.Snapshot != Synchronous {
		w.line("#define PCM_ASYNC 1")
	}
	if w.Snapshot.counted() {
		w.line("#define PCM_COUNTED 1")
	}
	w.line(`#include "pcm_shell.h"`)
	w.line(`#include "pcm_cells.h"`)
	w.line("#include <stdlib.h>")
	w.line("#define HANDLER_BUILD 1")
	w.line("#define BUILD_ALGO_%s 1", strings.ToUpper(p.Name))
	if f := formats[p.Format]; p.usesFrac() {
		if p.Format != FormatFloat {
			w.line("#define PCM_FRAC_WORD %d\n#define PCM_FRAC_BITS %d", f.word, f.bits)
		}
		w.line(`#include "pcm_arith.h"`)
	}
	w.line("#define PCM_ENTRY_INLINE 1")
	w.line(`#include "pcmh.h"`)
	w.line(`#include "%s.h"`, p.Name)
	for _, f := range p.C {
		w.line("#include \"%s\"", filepath.Base(f))
	}
	w.flow()
	w.time()
	w.create()
	w.accumulate()
	w.triggers()
	w.odd()
	w.take()
	w.run()
	w.serve()
	w.read()
	w.entries()
	w.diagnostics()
	w.info(hash)
	return w.b.String()
}

type shellWriter struct {
	*Package
	b strings.Builder
}

func (w *shellWriter) line(format string, a ...any) { fmt.Fprintf(&w.b, format+"\n", a...) }
