package pcm

import (
	"fmt"
	"slices"
	"strings"
)

// onChange says that the signal's trigger fires whenever a check finds the signal other than the check before left it. After a check, then,
// either nothing had changed or the trigger fired: the baseline is the value, or a signal that is set back is at its initial value.
func (s Signal) onChange() bool {
	t := s.Trigger
	if s.Source == ElapsedTime || s.Reset != (t.Mode == Raw) {
		return false
	}
	if t.Mode == Raw && s.Initial != 0 {
		return t.Op == "!=" && t.Threshold == s.Initial
	}
	return t.Op == ">=" && t.Threshold == 1 || t.Threshold == 0 && (t.Op == ">" || t.Op == "!=")
}

// quick says that a synchronous shell needs no memory of what waits for a run, as nothing does: every trigger fires on a change. Between
// flushes no baseline is kept, and signals that are set back are at their initial values, unless the flow is odd: see oneQuick.
func (p *Package) quick() bool {
	any := false
	for _, s := range p.Signals {
		if s.Trigger != nil {
			if any = true; !s.onChange() {
				return false
			}
		}
	}
	return any && p.Snapshot == Synchronous
}

// odd writes what makes a flow of a synchronous shell odd, which is that the next flush looks at everything in memory.
func (w *shellWriter) odd() {
	if w.Snapshot != Synchronous {
		return
	}
	w.line("static inline void pcm_odd(struct pcm_flow *f)\n{")
	if w.quick() {
		w.line("\tif (f->odd)\n\t\treturn;")
		for i, s := range w.Signals {
			if s.counts() {
				w.line("\t%s = %s;", w.baseCell(i), w.cell(i))
			}
		}
	}
	w.line("\tf->odd = 1;\n}\n")
}

// sources are those of the signals that are chosen, the likelier ones of feedback first.
func (w *shellWriter) sources(chosen func(Signal) bool) (list []Source, mask uint64) {
	for _, s := range w.Signals {
		if chosen(s) && s.Source != ElapsedTime && mask&(1<<s.Source) == 0 {
			list, mask = append(list, s.Source), mask|1<<s.Source
		}
	}
	rare := func(s Source) int { return slices.Index([]Source{DataNACKed, NACK, RTO}, s) }
	slices.SortStableFunc(list, func(a, b Source) int { return rare(a) - rare(b) })
	return list, mask
}

// oneQuick writes the flush of a shell that is quick: events of one triggering source each have a function of their own, in which the
// mask of what fired is a constant and what waits is in registers. Whatever is not like that (nothing fired after all, updates that were
// noted or left, signals that the handler set itself, failure) makes the flow odd, and everything is looked at in memory.
func (w *shellWriter) oneQuick() {
	watched, triggers := w.sources(func(s Signal) bool { return s.Trigger != nil })
	_, left := w.sources(func(s Signal) bool { return s.Reset })
	const arguments = "(struct pcm_flow *restrict f, const struct pcm_input *restrict in, struct pcm_output *restrict out)"
	w.oddOne(arguments)
	w.line("static PCM_CELL_INLINE int pcm_quick(struct pcm_flow *restrict f, const struct pcm_input *restrict in, uint64_t mask, struct pcm_output *restrict out)\n{")
	w.line("\tconst uint64_t now = pcm_time(in->now);\n\tuint64_t sig[%d], fired = 0;", len(w.Signals))
	var kept []string
	for i, s := range w.Signals {
		switch {
		case s.Source == ElapsedTime:
			w.line("\tsig[%d] = now - f->start;", i)
		case s.Reset:
			w.line("\tsig[%d] = %s;", i, wordLiteral(s.Initial))
		default:
			w.line("\tsig[%d] = %s;", i, w.cell(i))
			kept = append(kept, fmt.Sprintf("\tif (mask & 1u << %d)\n\t\t%s = sig[%d];", s.Source, w.cell(i), i))
		}
	}
	for _, source := range Sources() {
		var body []string
		for i, s := range w.Signals {
			if s.Source != source || source == ElapsedTime {
				continue
			}
			update := fmt.Sprintf("%s(&sig[%d], %s);", accumulators[s.Accum], i, w.valueOf(source))
			switch {
			case s.Trigger == nil:
			case s.Accum == Sum:
				update += fmt.Sprintf(" if (%s) fired |= UINT64_C(1) << %d;", w.valueOf(source), i)
			default:
				update = fmt.Sprintf("{ const uint64_t old = sig[%d]; %s if (sig[%d] != old) fired |= UINT64_C(1) << %d; }", i, update, i, i)
			}
			body = append(body, update)
		}
		if len(body) > 0 {
			w.line("\tif (mask & 1u << %d) {\n\t\t%s\n\t}", source, strings.Join(body, "\n\t\t"))
		}
	}
	w.line("\tif (__builtin_expect(!fired, 0))\n\t\treturn 0;")
	for _, line := range kept {
		w.line("%s", line)
	}
	w.line("\tconst int rc = pcm_run(f, sig, fired, now);")
	w.controls()
	w.line("\t_Static_assert(offsetof(struct pcm_output, failed) == offsetof(struct pcm_output, fired) + 8, \"\");\n\tpcm_store_two((char *)out + offsetof(struct pcm_output, fired), fired, (uint64_t)(int64_t)rc);\n\treturn 1;\n}\n")
	for _, s := range watched {
		w.line("static __attribute__((noinline)) void pcm_alone_%d%s\n{\n\tif (__builtin_expect(!pcm_quick(f, in, (in->mask & ~%s) | 1u << %d, out), 0))\n\t\tpcm_odd_one(f, in, out);\n}\n",
			s, arguments, wordLiteral(triggers), s)
	}
	if len(watched) > 1 {
		w.line("static __attribute__((noinline)) void pcm_several%s\n{\n\tif (!pcm_quick(f, in, in->mask, out))\n\t\tpcm_odd_one(f, in, out);\n}\n", arguments)
	}
	w.line("static __attribute__((noinline)) void pcm_none%s\n{\n\tif (in->mask & %s)\n\t\tpcm_odd(f);\n\tpcm_accumulate(f, in);\n\tpcm_outputs(f, out);\n\tout->fired = 0;\n}\n", arguments, wordLiteral(left))
	w.line("static inline void pcm_one%s\n{\n\tif (__builtin_expect(f->odd != 0, 0)) {\n\t\tpcm_odd_one(f, in, out);\n\t\treturn;\n\t}\n\tconst uint64_t seen = in->mask & %s;", arguments, wordLiteral(triggers))
	for _, s := range watched {
		w.line("\tif (seen == 1u << %d) {\n\t\tpcm_alone_%d(f, in, out);\n\t\treturn;\n\t}", s, s)
	}
	if len(watched) > 1 {
		w.line("\tif (seen) {\n\t\tpcm_several(f, in, out);\n\t\treturn;\n\t}")
	}
	w.line("\tpcm_none(f, in, out);\n}\n")
}

// oddOne writes the flush that looks at everything.
func (w *shellWriter) oddOne(arguments string) {
	w.line("static __attribute__((noinline)) void pcm_odd_one%s\n{\n\tconst uint64_t now = pcm_time(in->now);\n\tuint64_t sig[%d], fired = 0;\n\tpcm_odd(f);\n\tpcm_accumulate(f, in);", arguments, len(w.Signals))
	w.line("\tif (!f->rest->failed) {")
	w.looks(func(Signal) bool { return true })
	w.line("\tfired = pcm_fired(sig, f->rest->base);\n\tf->odd = 0;\n\tif (fired) {")
	var waits []string
	for i, s := range w.Signals {
		if s.Reset && s.Source != ElapsedTime {
			w.line("\t\t%s = %s;", w.cell(i), wordLiteral(s.Initial))
			if s.Trigger == nil {
				waits = append(waits, fmt.Sprintf("sig[%d] != %s", i, wordLiteral(s.Initial)))
			}
		}
	}
	w.line("\t\tpcm_rebase(f, sig, fired);\n\t\tpcm_run_apart(f, sig, fired, now);\n\t}")
	if len(waits) > 0 {
		w.line("\telse if (%s)\n\t\tf->odd = 1;", strings.Join(waits, " || "))
	}
	w.line("\t}\n\tpcm_outputs(f, out);\n\tout->fired = fired;\n\t(void)now;\n}\n")
}
