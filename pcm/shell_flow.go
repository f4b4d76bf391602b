package pcm

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// flow writes the state of a flow. What the two halves of an asynchronous shell write lies on cache lines apart, so that neither takes
// the other's away: the signals are the datapath's, controls and baselines the control plane's, and variables are its own alone.
func (w *shellWriter) flow() {
	signals, controls, variables := len(w.Signals), max(1, len(w.Controls)), max(1, w.Slots)
	w.line("\nstruct pcm_flow {")
	if w.Snapshot == Synchronous {
		w.syncFlow(controls, variables)
		return
	}
	w.line("\t_Alignas(64) pcm_cell sig[%d];", signals)
	if w.Snapshot.counted() {
		w.line("\tpcm_cell begun, done;  /* updates */")
	}
	w.line("\t_Alignas(64) pcm_cell ctl[%d];", controls)
	w.line("\tpcm_cell failed;\n\tpcm_cell start;  /* in the package's unit */")
	w.line("\tpcm_cell base[%d];  /* of triggers that compare changes */", w.numBases())
	if n := w.numTaken(); n > 0 {
		w.line("\tpcm_cell taken[%d];  /* of sums that are set back: what runs have had */", n)
	}
	w.line("\t_Alignas(64)")
	w.line("\tuint64_t seed;\n\tuint64_t var[%d];\n};\n", variables)
}

// syncFlow is that of a synchronous shell: what every flush touches is side by side and begins a cache line, and the rest lies apart: the
// signals that a run sets back of a shell that is quick, baselines, failure. The seed lies before the variables (RAND).
func (w *shellWriter) syncFlow(controls, variables int) {
	kept, left := 0, 0
	for i := range w.Signals {
		switch cell := w.cell(i); {
		case strings.HasPrefix(cell, "f->sig"):
			kept++
		case cell != "":
			left++
		}
	}
	w.line("\t_Alignas(64) pcm_cell odd;\n\tpcm_cell start;  /* in the package's unit */\n\tpcm_cell ctl[%d];", controls)
	if kept > 0 {
		w.line("\tpcm_cell sig[%d];", kept)
	}
	if w.draws() {
		w.line("\tuint64_t seed;")
	}
	w.line("\tuint64_t var[%d];\n\tstruct pcm_rest {", variables)
	if left > 0 {
		w.line("\t\tpcm_cell left[%d];  /* signals that are set back, when no run has taken them yet */", left)
	}
	w.line("\t\tpcm_cell base[%d];  /* of triggers that compare changes */", w.numBases())
	w.line("\t\tpcm_cell failed;\n\t\tstruct pcm_flow *next;  /* that is free */\n\t} *rest;\n};\n#include \"pcm_flows.h\"\n")
}

// cell is where the i-th signal is kept; the clock is nowhere.
func (w *shellWriter) cell(i int) string {
	if w.Snapshot != Synchronous {
		return fmt.Sprintf("f->sig[%d]", i)
	}
	if w.Signals[i].Source == ElapsedTime {
		return ""
	}
	apart := func(s Signal) bool { return s.Reset && w.quick() }
	n := 0
	for _, s := range w.Signals[:i] {
		if s.Source != ElapsedTime && apart(s) == apart(w.Signals[i]) {
			n++
		}
	}
	if apart(w.Signals[i]) {
		return fmt.Sprintf("f->rest->left[%d]", n)
	}
	return fmt.Sprintf("f->sig[%d]", n)
}

// taken is where an asynchronous shell keeps how much of the i-th signal runs have had, of a sum that is set back: the sum itself only grows
// and is the datapath's, and setting it back is a store of the control plane to a word of its own. "": it is no such signal.
func (w *shellWriter) taken(i int) string {
	if s := w.Signals[i]; w.Snapshot == Synchronous || !s.Reset || s.Accum != Sum || s.Source == ElapsedTime {
		return ""
	}
	n := 0
	for k := range i {
		if w.taken(k) != "" {
			n++
		}
	}
	return fmt.Sprintf("f->taken[%d]", n)
}

func (w *shellWriter) numTaken() (n int) {
	for i := range w.Signals {
		if w.taken(i) != "" {
			n++
		}
	}
	return n
}

// value is what the i-th signal is now.
func (w *shellWriter) value(i int) string {
	if taken := w.taken(i); taken != "" {
		return fmt.Sprintf("pcm_look(&%s) - pcm_load(&%s)", w.cell(i), taken)
	}
	return fmt.Sprintf("pcm_look(&%s)", w.cell(i))
}

// baseCell is where the i-th signal's baseline is kept; failedCell, what the handler returned when it failed.
func (w *shellWriter) baseCell(i int) string {
	return fmt.Sprintf("f->%sbase[%d]", w.rest(), w.base(i))
}
func (w *shellWriter) failedCell() string { return "f->" + w.rest() + "failed" }

// rest leads to what lies apart in a synchronous shell.
func (w *shellWriter) rest() string {
	if w.Snapshot == Synchronous {
		return "rest->"
	}
	return ""
}

// draws says that the handler may draw random numbers: its files speak of RAND.
func (w *shellWriter) draws() bool {
	files := slices.AppendSeq(slices.Clone(w.C), maps.Values(w.Headers()))
	for _, f := range files {
		if data, err := w.ReadFile(f); err != nil || bytes.Contains(data, []byte("RAND")) {
			return true
		}
	}
	return false
}

func (w *shellWriter) create() {
	w.line("struct pcm_flow *pcm_create(uint64_t now, uint64_t seed)\n{")
	if w.Snapshot == Synchronous {
		w.line("\tstruct pcm_flow *f = pcm_get_flow();\n\tif (!f)\n\t\treturn NULL;")
	} else {
		w.line("\tstruct pcm_flow *f = aligned_alloc(64, sizeof *f);\n\tif (!f)\n\t\treturn NULL;\n\t__builtin_memset((void *)f, 0, sizeof *f);")
	}
	w.line("\tpcm_store(&f->start, pcm_time(now));")
	if w.Snapshot != Synchronous || w.draws() {
		w.line("\tf->seed = pcm_hash(seed);")
	} else {
		w.line("\t(void)seed;")
	}
	for i, s := range w.Signals {
		if s.Initial != 0 {
			if cell := w.cell(i); cell != "" {
				w.line("\tpcm_store(&%s, %s);", cell, wordLiteral(s.Initial))
			}
			if s.counts() {
				w.line("\tpcm_store(&%s, %s);", w.baseCell(i), wordLiteral(s.Initial))
			}
		}
	}
	for i, c := range w.Controls {
		if c.Initial != 0 {
			w.line("\tpcm_store(&f->ctl[%d], %s);", i, wordLiteral(c.Initial))
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
	free := "free"
	if w.Snapshot == Synchronous {
		free = "pcm_put_flow"
	}
	w.line("void pcm_destroy(struct pcm_flow *f) { %s(f); }\n", free)
}

func wordLiteral(v uint64) string { return fmt.Sprintf("UINT64_C(%d)", v) }
