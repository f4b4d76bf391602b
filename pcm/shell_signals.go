package pcm

import (
	"fmt"
	"strings"
)

// valueOf is the field of an input, in the package's units.
func (w *shellWriter) valueOf(s Source) string {
	field := "in->" + s.Field()
	if s == RTT {
		return "pcm_time(" + field + ")"
	}
	return field
}

// accumulate writes what the datapath does with an input.
func (w *shellWriter) accumulate() {
	w.line("static inline void pcm_accumulate(struct pcm_flow *f, const struct pcm_input *in)\n{")
	w.line("\tuint64_t mask = in->mask;")
	if w.Snapshot.counted() {
		w.line("\tpcm_begin(&f->begun);")
	}
	for _, source := range Sources() {
		var body []string
		for i, s := range w.Signals {
			if s.Source == source && source != ElapsedTime {
				body = append(body, accumulated(s.Accum, i, w.valueOf(source)))
			}
		}
		if len(body) > 0 {
			w.line("\tif (mask & 1u << %d) { %s }", source, strings.Join(body, " "))
		}
	}
	if w.Snapshot.counted() {
		w.line("\tpcm_end(&f->done);")
	}
	w.line("\t(void)mask;\n\t(void)f;\n}\n")
}

var accumulators = [numAccums]string{"pcm_sum", "pcm_min", "pcm_max", "pcm_last"}

func accumulated(a Accum, i int, v string) string {
	return fmt.Sprintf("%s(&f->sig[%d], %s);", accumulators[a], i, v)
}

// triggers writes the trigger check, which changes nothing, and what firing does to the baselines.
func (w *shellWriter) triggers() {
	w.line("static inline uint64_t pcm_fired(const uint64_t *sig, const uint64_t *base)\n{\n\tuint64_t fired = 0;")
	for i, s := range w.Signals {
		t := s.Trigger
		if t == nil {
			continue
		}
		threshold := wordLiteral(t.Threshold)
		change := fmt.Sprintf("sig[%d] - base[%d]", i, i)
		switch t.Mode {
		case Raw:
			w.line("\tif (sig[%d] %s %s)\n\t\tfired |= UINT64_C(1) << %d;", i, t.Op, threshold, i)
			continue
		case Magnitude:
			w.line("\t{ int64_t d = (int64_t)(%s); uint64_t v = d < 0 ? -(uint64_t)d : (uint64_t)d;", change)
		default:
			w.line("\t{ uint64_t v = %s;", change)
		}
		w.line("\tif (v %s %s)\n\t\tfired |= UINT64_C(1) << %d; }", t.Op, threshold, i)
	}
	w.line("\t(void)sig;\n\t(void)base;\n\treturn fired;\n}\n")
	w.line("static inline void pcm_rebase(struct pcm_flow *f, const uint64_t *sig, uint64_t fired)\n{")
	for i, s := range w.Signals {
		if s.Trigger != nil && s.Trigger.Mode != Raw {
			w.line("\tif (fired & UINT64_C(1) << %d)\n\t\tpcm_store(&f->base[%d], sig[%d]);", i, i, i)
		}
	}
	w.line("\t(void)f;\n\t(void)sig;\n\t(void)fired;\n}\n")
	w.line("static inline uint64_t pcm_due(const struct pcm_flow *f, uint64_t now)\n{\n\tuint64_t sig[%d], base[%d];", len(w.Signals), len(w.Signals))
	w.looks(func(s Signal) bool { return s.Trigger != nil })
	w.bases()
	w.line("\t(void)now;\n\treturn pcm_fired(sig, base);\n}\n")
}

// looks reads the signals that are chosen into sig.
func (w *shellWriter) looks(chosen func(Signal) bool) {
	for i, s := range w.Signals {
		switch {
		case !chosen(s):
		case s.Source == ElapsedTime:
			w.line("\tsig[%d] = now - pcm_load(&f->start);", i)
		default:
			w.line("\tsig[%d] = pcm_look(&f->sig[%d]);", i, i)
		}
	}
}

// bases reads the baselines into base.
func (w *shellWriter) bases() {
	for i, s := range w.Signals {
		if s.Trigger != nil && s.Trigger.Mode != Raw {
			w.line("\tbase[%d] = pcm_load(&f->base[%d]);", i, i)
		}
	}
}
