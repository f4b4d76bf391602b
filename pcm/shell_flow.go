package pcm

import "fmt"

// flow writes the state of a flow. What the two halves of an asynchronous shell write lies on cache lines apart, so that neither takes
// the other's away: the signals are the datapath's, controls and baselines the control plane's, and variables are its own alone.
func (w *shellWriter) flow() {
	signals, controls, variables := len(w.Signals), max(1, len(w.Controls)), max(1, w.Slots)
	w.line("\nstruct pcm_flow {")
	if w.Snapshot == Synchronous {
		w.line("\tpcm_cell start;  /* in the package's unit */\n\tpcm_cell failed, odd;")
		w.line("\tpcm_cell sig[%d];", signals)
		w.line("\tpcm_cell base[%d];  /* of triggers that compare changes */", signals)
		w.line("\tpcm_cell ctl[%d];", controls)
	} else {
		w.line("\t_Alignas(64) pcm_cell sig[%d];", signals)
		if w.Snapshot.counted() {
			w.line("\tpcm_cell begun, done;  /* updates */")
		}
		w.line("\t_Alignas(64) pcm_cell ctl[%d];", controls)
		w.line("\tpcm_cell failed;\n\tpcm_cell start;  /* in the package's unit */")
		w.line("\tpcm_cell base[%d];  /* of triggers that compare changes */", signals)
		w.line("\t_Alignas(64)")
	}
	w.line("\tuint64_t seed;\n\tuint64_t var[%d];\n};\n", variables)
}

func (w *shellWriter) create() {
	w.line("struct pcm_flow *pcm_create(uint64_t now, uint64_t seed)\n{")
	if w.Snapshot == Synchronous {
		w.line("\tstruct pcm_flow *f = calloc(1, sizeof *f);\n\tif (!f)\n\t\treturn NULL;")
	} else {
		w.line("\tstruct pcm_flow *f = aligned_alloc(64, sizeof *f);\n\tif (!f)\n\t\treturn NULL;\n\t__builtin_memset((void *)f, 0, sizeof *f);")
	}
	w.line("\tpcm_store(&f->start, pcm_time(now));\n\tf->seed = pcm_hash(seed);")
	for i, s := range w.Signals {
		if s.Initial != 0 {
			w.line("\tpcm_store(&f->sig[%d], %s);", i, wordLiteral(s.Initial))
			w.line("\tpcm_store(&f->base[%d], %s);", i, wordLiteral(s.Initial))
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
	w.line("void pcm_destroy(struct pcm_flow *f) { free(f); }\n")
}

func wordLiteral(v uint64) string { return fmt.Sprintf("UINT64_C(%d)", v) }
