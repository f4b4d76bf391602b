package pcm

import (
	"fmt"
	"strings"
)

// one writes a flush of the synchronous shell: accumulate, check, run and read in one. Nearly all triggers need a look only when their signal was
// touched (Signal.waits), so that what did not happen costs nothing, and the values that did stay in registers. The flow is odd when that does
// not hold: the handler has failed or set a signal itself, or an update was noted and not served. Then everything is looked at.
func (w *shellWriter) one() {
	if w.Snapshot != Synchronous {
		w.line(`static inline void pcm_one(struct pcm_flow *f, const struct pcm_input *in, struct pcm_output *out)
{
	pcm_accumulate(f, in);
	const uint64_t fired = pcm_once(f, pcm_time(in->now));
	pcm_outputs(f, out);
	out->fired = fired;
}
`)
		return
	}
	if w.quick() {
		w.oneQuick()
		return
	}
	all := func(Signal) bool { return true }
	w.line("static inline void pcm_one(struct pcm_flow *restrict f, const struct pcm_input *restrict in, struct pcm_output *restrict out)\n{")
	w.line("\tconst uint64_t mask = in->mask, now = pcm_time(in->now);\n\tuint64_t sig[%d], fired = 0;", len(w.Signals))
	w.line("\tif (__builtin_expect(!f->odd, 1)) {")
	w.looks(all)
	for _, source := range Sources() {
		var body []string
		for i, s := range w.Signals {
			if s.Source != source || source == ElapsedTime {
				continue
			}
			body = append(body, fmt.Sprintf("%s(&sig[%d], %s); %s = sig[%d];", accumulators[s.Accum], i, w.valueOf(source), w.cell(i), i))
			if s.Trigger != nil && s.waits() {
				body = append(body, fires(i, s, w.baseCell(i)))
			}
		}
		if len(body) > 0 {
			w.line("\tif (mask & 1u << %d) {\n\t\t%s\n\t}", source, strings.Join(body, "\n\t\t"))
		}
	}
	for i, s := range w.Signals {
		if s.Trigger != nil && !s.waits() {
			w.line("\t%s", fires(i, s, w.baseCell(i)))
		}
	}
	w.line("\t} else {\n\tpcm_accumulate(f, in);")
	w.looks(all)
	w.line("\tif (!f->rest->failed) {\n\t\tfired = pcm_fired(sig, f->rest->base);\n\t\tf->odd = 0;\n\t}\n\t}")
	w.line("\tif (fired) {")
	for i, s := range w.Signals {
		if s.Reset && s.Source != ElapsedTime {
			w.line("\t\t%s = %s;", w.cell(i), wordLiteral(s.Initial))
		}
	}
	w.line("\t\tpcm_rebase(f, sig, fired);\n\t\tpcm_run(f, sig, fired, now);\n\t}")
	w.line("\tpcm_outputs(f, out);\n\tout->fired = fired;\n\t(void)mask;\n\t(void)now;\n}\n")
}
