package pcm

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

func (w *shellWriter) read() {
	w.line("static inline void pcm_outputs(const struct pcm_flow *f, struct pcm_output *out)\n{")
	w.controls()
	w.line("\tout->failed = pcm_load(&%s);\n}\n", w.failedCell())
}

// controls writes those that the package has into out: the first one of each kind.
func (w *shellWriter) controls() {
	for i, c := range w.Controls {
		if !slices.ContainsFunc(w.Controls[:i], func(other Control) bool { return other.Kind == c.Kind }) {
			w.line("\tout->%s = pcm_load(&f->ctl[%d]);", c.Kind.Field(), i)
		}
	}
}

// entries writes the functions of pcm_shell.h that callers use.
func (w *shellWriter) entries() {
	w.line(`void pcm_read(const struct pcm_flow *f, struct pcm_output *out)
{
	pcm_outputs(f, out);
	out->fired = 0;
}

`)
	w.one()
	note := ""
	if w.Snapshot == Synchronous {
		note = "\tpcm_odd(f);\n"
	}
	w.line(`void pcm_flush(struct pcm_flow *f, const struct pcm_input *in, struct pcm_output *out) { pcm_one(f, in, out); }

void pcm_batch(const struct pcm_event *ev, size_t n, struct pcm_output *out)
{
	for (size_t i = 0; i < n; i++)
		pcm_one(ev[i].flow, &ev[i].in, &out[i]);
}

int pcm_note(struct pcm_flow *f, const struct pcm_input *in)
{
%s	pcm_accumulate(f, in);
	return !pcm_load(&%s) && pcm_due(f, pcm_time(in->now));
}

int pcm_serve(struct pcm_flow *f, uint64_t now, struct pcm_output *out)
{
	now = pcm_time(now);
	const uint64_t fired = pcm_once(f, now);
	pcm_outputs(f, out);
	out->fired = fired;
	return !out->failed && pcm_due(f, now);
}
`, note, w.failedCell())
}

// diagnostics writes how tests and diagnostics reach the words of a flow.
func (w *shellWriter) diagnostics() {
	plain, poked := "*(pcm_cell *)&f->var[i]", "" // not shared: any access does
	if w.Snapshot == Synchronous {
		plain, poked = "f->var[i]", "\n\tpcm_odd(f);"
	}
	var cells, offsets []string
	for i := range w.Signals {
		cell := w.cell(i)
		if cell == "" {
			continue
		}
		cells = append(cells, fmt.Sprintf("\t\tcase %d:\n\t\t\treturn &%s;\n", i, cell))
		if taken := w.taken(i); taken != "" {
			offsets = append(offsets, fmt.Sprintf("\tif (part == PCM_PART_SIGNAL && i == %d)\n\t\treturn pcm_load(&%s);\n", i, taken))
		}
	}
	w.line(`static inline pcm_cell *pcm_part_of(struct pcm_flow *f, enum pcm_part part, uint32_t i)
{
	switch (part) {
	case PCM_PART_CONTROL:
		return i < sizeof f->ctl / sizeof f->ctl[0] ? &f->ctl[i] : NULL;
	case PCM_PART_VARIABLE:
		return i < sizeof f->var / sizeof f->var[0] ? &%s : NULL;
	case PCM_PART_SIGNAL:
		switch (i) {
%s		}
	}
	return NULL;
}

/* How far the cell of a signal is above its value. */
static inline uint64_t pcm_above(const struct pcm_flow *f, enum pcm_part part, uint32_t i)
{
%s	(void)f;
	(void)part;
	(void)i;
	return 0;
}

uint64_t pcm_peek(const struct pcm_flow *f, enum pcm_part part, uint32_t i)
{
	const pcm_cell *p = pcm_part_of((struct pcm_flow *)f, part, i);
	return p ? pcm_load(p) - pcm_above(f, part, i) : UINT64_MAX;
}

void pcm_poke(struct pcm_flow *f, enum pcm_part part, uint32_t i, uint64_t value)
{
	pcm_cell *p = pcm_part_of(f, part, i);%s
	if (p)
		pcm_store(p, value + pcm_above(f, part, i));
}
`, plain, strings.Join(cells, ""), strings.Join(offsets, ""), poked)
}

// info writes what the shell says of itself.
func (w *shellWriter) info(hash string) {
	var sources, controls uint64
	for _, s := range w.Signals {
		sources |= 1 << s.Source
	}
	for _, c := range w.Controls {
		controls |= 1 << c.Kind
	}
	kind := [numSnapshots]string{"PCM_SYNCHRONOUS", "PCM_RELAXED", "PCM_ZERO_SKEW", "PCM_BOUNDED_SKEW"}[w.Snapshot]
	tick := w.Tick.orNS()
	size := "sizeof(struct pcm_flow)"
	if w.Snapshot == Synchronous {
		size += " + sizeof(struct pcm_rest)"
	}
	w.line("const struct pcm_info *pcm_get_info(void)\n{\n\tstatic const struct pcm_info info = {PCM_SHELL_ABI, %s, %q, %q, %s, %s, %s, 0, %s, %s, %s}; /* %d sources */\n\treturn &info;\n}",
		size, w.Name, hash, wordLiteral(sources), wordLiteral(controls), kind, wordLiteral(w.skew()), wordLiteral(tick.Num), wordLiteral(tick.Den), bits.OnesCount64(sources))
}
