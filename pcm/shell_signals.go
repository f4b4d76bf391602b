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
				body = append(body, accumulated(s.Accum, w.cell(i), w.valueOf(source)))
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

func accumulated(a Accum, cell, v string) string {
	return fmt.Sprintf("%s(&%s, %s);", accumulators[a], cell, v)
}

// triggers writes the trigger check, which changes nothing, and what firing does to the baselines.
func (w *shellWriter) triggers() {
	w.line("static inline uint64_t pcm_fired(const uint64_t *sig, const uint64_t *base)\n{\n\tuint64_t fired = 0;")
	for i, s := range w.Signals {
		if s.Trigger != nil {
			w.line("\t%s", fires(i, s, fmt.Sprintf("base[%d]", w.base(i))))
		}
	}
	w.line("\t(void)sig;\n\t(void)base;\n\treturn fired;\n}\n")
	w.line("static inline void pcm_rebase(struct pcm_flow *f, const uint64_t *sig, uint64_t fired)\n{")
	for i, s := range w.Signals {
		if s.counts() {
			w.line("\tif (fired & UINT64_C(1) << %d)\n\t\tpcm_store(&%s, sig[%d]);", i, w.baseCell(i), i)
		}
	}
	w.line("\t(void)f;\n\t(void)sig;\n\t(void)fired;\n}\n")
	w.line("static inline uint64_t pcm_due(const struct pcm_flow *f, uint64_t now)\n{\n\tuint64_t sig[%d], base[%d];", len(w.Signals), w.numBases())
	w.looks(func(s Signal) bool { return s.Trigger != nil })
	w.bases()
	w.line("\t(void)now;\n\treturn pcm_fired(sig, base);\n}\n")
}

// fires writes the check of the i-th signal's trigger, whose value is in sig.
func fires(i int, s Signal, base string) string {
	t := s.Trigger
	v := fmt.Sprintf("sig[%d]", i)
	if t.Mode != Raw {
		v += " - " + base
	}
	then := fmt.Sprintf("if (v %s %s) fired |= UINT64_C(1) << %d; }", t.Op, wordLiteral(t.Threshold), i)
	if t.Mode == Magnitude {
		return fmt.Sprintf("{ const int64_t d = (int64_t)(%s); const uint64_t v = d < 0 ? -(uint64_t)d : (uint64_t)d; %s", v, then)
	}
	return fmt.Sprintf("{ const uint64_t v = %s; %s", v, then)
}

// counts says that the signal's trigger compares a change, and so has a baseline.
func (s Signal) counts() bool { return s.Trigger != nil && s.Trigger.Mode != Raw }

// base is the place of the i-th signal's baseline.
func (w *shellWriter) base(i int) int {
	n := 0
	for _, s := range w.Signals[:i] {
		if s.counts() {
			n++
		}
	}
	return n
}

func (w *shellWriter) numBases() int { return max(1, w.base(len(w.Signals))) }

// waits says that the signal's trigger, once it has been checked, cannot fire before the signal is touched: it does not hold for what checks
// and runs leave behind, which is no change since it fired, or the initial value.
func (s Signal) waits() bool {
	switch {
	case s.Source == ElapsedTime:
		return false
	case s.Trigger.Mode == Raw:
		return s.Reset && !s.Trigger.holds(s.Initial)
	}
	return !s.Reset && !s.Trigger.holds(0)
}

// holds is the comparison, as C has it.
func (t *Trigger) holds(v uint64) bool {
	switch t.Op {
	case ">":
		return v > t.Threshold
	case "<":
		return v < t.Threshold
	case ">=":
		return v >= t.Threshold
	case "<=":
		return v <= t.Threshold
	case "==":
		return v == t.Threshold
	case "&":
		return v&t.Threshold != 0
	case "|":
		return v|t.Threshold != 0
	case "&&":
		return v != 0 && t.Threshold != 0
	case "||":
		return v != 0 || t.Threshold != 0
	}
	return v != t.Threshold // != and ^
}

// looks reads the signals that are chosen into sig.
func (w *shellWriter) looks(chosen func(Signal) bool) {
	for i, s := range w.Signals {
		switch {
		case !chosen(s):
		case s.Source == ElapsedTime:
			w.line("\tsig[%d] = now - pcm_load(&f->start);", i)
		default:
			w.line("\tsig[%d] = %s;", i, w.value(i))
		}
	}
}

// bases reads the baselines into base.
func (w *shellWriter) bases() {
	for i, s := range w.Signals {
		if s.counts() {
			w.line("\tbase[%d] = pcm_load(&%s);", w.base(i), w.baseCell(i))
		}
	}
}
