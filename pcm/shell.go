package pcm

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"maps"
	"math/bits"
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
	for _, name := range []string{"pcmh.h", "pcm_arith.h", "pcm_fixed.h", "pcm_shell.h"} {
		data, err := runtime.ReadFile("runtime/" + name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(data), data)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Shell is the C source of the package's synchronous shell, one translation unit with the handler in it, so that accesses fold
// and what the handler has no object for leaves no code. It includes NAME.h, the handler's C files and the runtime headers.
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
	w.line(`#include "pcm_shell.h"`)
	w.line("#include <stdlib.h>")
	w.line("#define HANDLER_BUILD 1")
	w.line("#define BUILD_ALGO_%s 1", strings.ToUpper(p.Name))
	if f := formats[p.Format]; p.usesFrac() {
		if p.Format != FormatFloat {
			w.line("#define PCM_FRAC_WORD %d\n#define PCM_FRAC_BITS %d", f.word, f.bits)
		}
		w.line(`#include "pcm_arith.h"`)
	}
	w.line(`#include "pcmh.h"`)
	w.line(`#include "%s.h"`, p.Name)
	for _, f := range p.C {
		w.line("#include \"%s\"", filepath.Base(f))
	}
	w.flow()
	w.create()
	w.accumulate()
	w.triggers()
	w.run()
	w.read()
	w.entries(hash)
	return w.b.String()
}

type shellWriter struct {
	*Package
	b strings.Builder
}

func (w *shellWriter) line(format string, a ...any) { fmt.Fprintf(&w.b, format+"\n", a...) }

func (w *shellWriter) flow() {
	w.line("\nstruct pcm_flow {")
	w.line("\tuint64_t start;  /* in the package's unit */")
	w.line("\tuint64_t failed;")
	w.line("\tuint64_t sig[%d];", len(w.Signals))
	w.line("\tuint64_t base[%d];  /* of triggers that compare changes */", len(w.Signals))
	w.line("\tuint64_t ctl[%d];", max(1, len(w.Controls)))
	w.line("\tuint64_t seed;")
	w.line("\tuint64_t var[%d];", max(1, w.Slots))
	w.line("};\n")
	w.line("static inline uint64_t pcm_time(uint64_t ns) { return %s; }\n", w.timeOf("ns"))
}

// timeOf converts nanoseconds into the unit of the package; a remainder is cut off.
func (w *shellWriter) timeOf(ns string) string {
	unit := int64(1000)
	if w.Fabric != nil {
		unit = w.Fabric.TimeUnitPS
	}
	switch {
	case unit == 1000:
		return ns
	case unit < 1000:
		return fmt.Sprintf("%s * %d", ns, 1000/unit)
	}
	return fmt.Sprintf("%s / %d", ns, unit/1000)
}

func (w *shellWriter) create() {
	w.line("struct pcm_flow *pcm_create(uint64_t now, uint64_t seed)\n{")
	w.line("\tstruct pcm_flow *f = calloc(1, sizeof *f);\n\tif (!f)\n\t\treturn NULL;")
	w.line("\tf->start = pcm_time(now);\n\tf->seed = pcm_hash(seed);")
	for i, s := range w.Signals {
		if s.Initial != 0 {
			w.line("\tf->sig[%d] = f->base[%d] = %s;", i, i, wordLiteral(s.Initial))
		}
	}
	for i, c := range w.Controls {
		if c.Initial != 0 {
			w.line("\tf->ctl[%d] = %s;", i, wordLiteral(c.Initial))
		}
	}
	for _, v := range w.Vars {
		value, _ := v.Initial.Bits(v.Type)
		if v.Type == Frac {
			value = w.Format.Word(v.Initial.float())
		}
		switch {
		case value == 0:
		case v.Len == 0:
			w.line("\tf->var[%d] = %s;", v.Slot, wordLiteral(value))
		default:
			w.line("\tfor (int i = 0; i < %d; i++)\n\t\tf->var[%d + i] = %s;", v.Len, v.Slot, wordLiteral(value))
		}
	}
	w.line("\treturn f;\n}\n")
	w.line("void pcm_destroy(struct pcm_flow *f) { free(f); }\n")
}

func wordLiteral(v uint64) string { return fmt.Sprintf("UINT64_C(%d)", v) }

// valueOf is the field of an input, in the package's units.
func (w *shellWriter) valueOf(s Source) string {
	field := "in->" + s.Field()
	if s == RTT {
		return "pcm_time(" + field + ")"
	}
	return field
}

func (w *shellWriter) accumulate() {
	w.line("static inline void pcm_accumulate(struct pcm_flow *f, const struct pcm_input *in)\n{")
	w.line("\tuint64_t mask = in->mask;")
	for _, source := range Sources() {
		var body []string
		for i, s := range w.Signals {
			if s.Source == source && source != ElapsedTime {
				body = append(body, accumulated(s.Accum, fmt.Sprintf("f->sig[%d]", i), w.valueOf(source)))
			}
		}
		if len(body) > 0 {
			w.line("\tif (mask & 1u << %d) { %s }", source, strings.Join(body, " "))
		}
	}
	w.line("\t(void)mask;\n\t(void)f;\n}\n")
}

func accumulated(a Accum, to, v string) string {
	switch a {
	case Sum:
		return fmt.Sprintf("%s += %s;", to, v)
	case Min:
		return fmt.Sprintf("{ uint64_t v = %s; %s = v < %s ? v : %s; }", v, to, to, to)
	case Max:
		return fmt.Sprintf("{ uint64_t v = %s; %s = v > %s ? v : %s; }", v, to, to, to)
	}
	return fmt.Sprintf("%s = %s;", to, v)
}

func (w *shellWriter) triggers() {
	w.line("static inline uint64_t pcm_check(struct pcm_flow *f, uint64_t now)\n{\n\tuint64_t fired = 0;")
	for i, s := range w.Signals {
		if s.Source == ElapsedTime {
			w.line("\tf->sig[%d] = now - f->start;", i)
		}
		t := s.Trigger
		if t == nil {
			continue
		}
		threshold := wordLiteral(t.Threshold)
		switch t.Mode {
		case Raw:
			w.line("\tif (f->sig[%d] %s %s)\n\t\tfired |= UINT64_C(1) << %d;", i, t.Op, threshold, i)
		default:
			change := fmt.Sprintf("f->sig[%d] - f->base[%d]", i, i)
			if t.Mode == Magnitude {
				w.line("\t{ int64_t d = (int64_t)(%s); uint64_t v = d < 0 ? -(uint64_t)d : (uint64_t)d;", change)
			} else {
				w.line("\t{ uint64_t v = %s;", change)
			}
			w.line("\tif (v %s %s) {\n\t\tfired |= UINT64_C(1) << %d;\n\t\tf->base[%d] = f->sig[%d];\n\t} }", t.Op, threshold, i, i, i)
		}
	}
	w.line("\t(void)now;\n\treturn fired;\n}\n")
}

func (w *shellWriter) run() {
	first := signalOffset + len(w.Signals)
	w.line("static inline void pcm_run(struct pcm_flow *f, uint64_t fired, uint64_t now)\n{")
	w.line("\tuint64_t snap[%d];\n\tsnap[0] = fired;\n\tsnap[1] = 0;", max(first+len(w.Controls), first+1))
	for i, s := range w.Signals {
		if s.Source != ElapsedTime {
			w.line("\tconst uint64_t old%d = f->sig[%d];\n\tsnap[%d] = old%d;", i, i, signalOffset+i, i)
			if s.Reset {
				w.line("\tf->sig[%d] = %s;", i, wordLiteral(s.Initial))
			}
			continue
		}
		w.line("\tsnap[%d] = f->sig[%d];", signalOffset+i, i)
	}
	for i := range w.Controls {
		w.line("\tsnap[%d] = f->ctl[%d];", first+i, i)
	}
	w.line("\tint rc = __algorithm_main(snap, f->var);")
	w.line("\tif (__builtin_expect(rc != PCM_SUCCESS, 0)) {\n\t\tf->failed = (uint64_t)(int64_t)rc;\n\t\treturn;\n\t}")
	for i, s := range w.Signals {
		v := fmt.Sprintf("snap[%d]", signalOffset+i)
		body := accumulated(s.Accum, fmt.Sprintf("f->sig[%d]", i), v)
		switch {
		case s.Source == ElapsedTime:
			body = fmt.Sprintf("f->start = now - %s;", v)
		case s.Accum == Sum && s.Reset:
			body = fmt.Sprintf("f->sig[%d] += %s - %s;", i, v, wordLiteral(s.Initial))
		case s.Accum == Sum:
			body = fmt.Sprintf("f->sig[%d] += %s - old%d;", i, v, i)
		}
		w.line("\tif (snap[1] & UINT64_C(1) << %d) { %s }", i, body)
	}
	for i := range w.Controls {
		w.line("\tf->ctl[%d] = snap[%d];", i, first+i)
	}
	w.line("\t(void)now;")
	for i, s := range w.Signals {
		if s.Source != ElapsedTime {
			w.line("\t(void)old%d;", i)
		}
	}
	w.line("}\n")
}

func (w *shellWriter) read() {
	w.line("static inline void pcm_outputs(const struct pcm_flow *f, struct pcm_output *out)\n{")
	for _, kind := range Controls() {
		value := "UINT64_MAX"
		for i, c := range w.Controls {
			if c.Kind == kind {
				value = fmt.Sprintf("f->ctl[%d]", i)
				break
			}
		}
		w.line("\tout->%s = %s;", kind.Field(), value)
	}
	w.line("\tout->failed = f->failed;\n}\n")
	w.line("void pcm_read(const struct pcm_flow *f, struct pcm_output *out)\n{\n\tpcm_outputs(f, out);\n\tout->fired = 0;\n}\n")
}

func (w *shellWriter) entries(hash string) {
	w.line(`static inline void pcm_one(struct pcm_flow *f, const struct pcm_input *in, struct pcm_output *out)
{
	uint64_t now = pcm_time(in->now), fired = 0;
	pcm_accumulate(f, in);
	if (__builtin_expect(!f->failed, 1)) {
		fired = pcm_check(f, now);
		if (fired)
			pcm_run(f, fired, now);
	}
	pcm_outputs(f, out);
	out->fired = fired;
}

void pcm_flush(struct pcm_flow *f, const struct pcm_input *in, struct pcm_output *out) { pcm_one(f, in, out); }

void pcm_batch(const struct pcm_event *ev, size_t n, struct pcm_output *out)
{
	for (size_t i = 0; i < n; i++)
		pcm_one(ev[i].flow, &ev[i].in, &out[i]);
}
`)
	w.line(`static inline uint64_t *pcm_part_of(struct pcm_flow *f, enum pcm_part part, uint32_t i)
{
	switch (part) {
	case PCM_PART_CONTROL:
		return i < sizeof f->ctl / sizeof f->ctl[0] ? &f->ctl[i] : NULL;
	case PCM_PART_VARIABLE:
		return i < sizeof f->var / sizeof f->var[0] ? &f->var[i] : NULL;
	case PCM_PART_SIGNAL:
		return i < sizeof f->sig / sizeof f->sig[0] ? &f->sig[i] : NULL;
	}
	return NULL;
}

uint64_t pcm_peek(const struct pcm_flow *f, enum pcm_part part, uint32_t i)
{
	const uint64_t *p = pcm_part_of((struct pcm_flow *)f, part, i);
	return p ? *p : UINT64_MAX;
}

void pcm_poke(struct pcm_flow *f, enum pcm_part part, uint32_t i, uint64_t value)
{
	uint64_t *p = pcm_part_of(f, part, i);
	if (p)
		*p = value;
}
`)
	var sources, controls uint64
	for _, s := range w.Signals {
		sources |= 1 << s.Source
	}
	for _, c := range w.Controls {
		controls |= 1 << c.Kind
	}
	w.line("const struct pcm_info *pcm_get_info(void)\n{\n\tstatic const struct pcm_info info = {PCM_SHELL_ABI, sizeof(struct pcm_flow), %q, %q, %s, %s}; /* %d sources */\n\treturn &info;\n}",
		w.Name, hash, wordLiteral(sources), wordLiteral(controls), bits.OnesCount64(sources))
}
