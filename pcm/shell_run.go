package pcm

import "fmt"

// snapshotTries is how often a snapshot is taken again that was not within its skew, before the flow is left for another time: the
// control plane serves others meanwhile, and never waits for the datapath.
const snapshotTries = 16

// take writes how a snapshot is taken: the values, in one step with the reset of those that a run sets back. An asynchronous shell whose
// policy bounds the skew looks at what was under way meanwhile; a snapshot that it discards goes back where it came from.
func (w *shellWriter) take() {
	copies := func(indent string) {
		for i, s := range w.Signals {
			switch {
			case s.Source == ElapsedTime:
			case w.taken(i) != "":
				w.line("%ssig[%d] = %s;\n%spcm_store(&%s, pcm_load(&%s) + sig[%d] - %s);", indent, i, w.value(i), indent, w.taken(i), w.taken(i), i, wordLiteral(s.Initial))
			case s.Reset && w.Snapshot != Synchronous: // an exchange is dear: only of what has come
				w.line("%ssig[%d] = pcm_look(&%s);\n%sif (sig[%d] != %s)\n%s\tsig[%d] = pcm_swap(&%s, %s);", indent, i, w.cell(i), indent, i, wordLiteral(s.Initial), indent, i, w.cell(i), wordLiteral(s.Initial))
			case s.Reset:
				w.line("%ssig[%d] = pcm_swap(&%s, %s);", indent, i, w.cell(i), wordLiteral(s.Initial))
			default:
				w.line("%ssig[%d] = pcm_look(&%s);", indent, i, w.cell(i))
			}
		}
	}
	if w.Snapshot != Synchronous {
		w.line("static inline void pcm_put_back(struct pcm_flow *f, const uint64_t *sig)\n{")
		for i, s := range w.Signals {
			switch {
			case s.Source == ElapsedTime || !s.Reset:
			case s.Accum == Sum:
				w.line("\tpcm_store(&%s, pcm_load(&%s) - sig[%d] + %s);", w.taken(i), w.taken(i), i, wordLiteral(s.Initial))
			case s.Accum == Last:
				w.line("\tpcm_unless_newer(&%s, %s, sig[%d]);", w.cell(i), wordLiteral(s.Initial), i)
			default:
				w.line("\t%s", accumulated(s.Accum, w.cell(i), fmt.Sprintf("sig[%d]", i)))
			}
		}
		w.line("\t(void)f;\n\t(void)sig;\n}\n")
	}
	w.line("static inline int pcm_take(struct pcm_flow *f, uint64_t *sig, uint64_t now)\n{")
	for i, s := range w.Signals {
		if s.Source == ElapsedTime {
			w.line("\tsig[%d] = now - pcm_load(&f->start);", i)
		}
	}
	w.line("\t(void)now;")
	if !w.Snapshot.counted() {
		copies("\t")
		w.line("\treturn 1;\n}\n")
		return
	}
	w.line("\tfor (int i = 0; i < %d; i++) {\n\t\tconst uint64_t done = pcm_look(&f->done);", snapshotTries)
	copies("\t\t")
	w.line("\t\tif (pcm_load(&f->begun) - done <= %s)\n\t\t\treturn 1;\n\t\tpcm_put_back(f, sig);\n\t}\n\treturn 0;\n}\n", wordLiteral(w.skew()))
}

// skew is how many updates a snapshot may be apart.
func (w *shellWriter) skew() uint64 {
	if w.Snapshot == BoundedSkew {
		return w.Skew
	}
	return 0
}

// run writes a run of the handler on a snapshot, and the commit of what it set.
func (w *shellWriter) run() {
	first := signalOffset + len(w.Signals)
	w.line("static PCM_CELL_INLINE int pcm_run(struct pcm_flow *f, const uint64_t *sig, uint64_t fired, uint64_t now)\n{")
	w.line("\tuint64_t snap[%d];\n\tsnap[0] = fired;\n\tsnap[1] = 0;", max(first+len(w.Controls), first+1))
	for i := range w.Signals {
		w.line("\tsnap[%d] = sig[%d];", signalOffset+i, i)
	}
	for i := range w.Controls {
		w.line("\tsnap[%d] = pcm_load(&f->ctl[%d]);", first+i, i)
	}
	w.line("\tint rc = __algorithm_main(snap, f->var);")
	odd := ""
	if w.Snapshot == Synchronous {
		odd = "\n\t\tpcm_odd(f);"
	}
	w.line("\tif (__builtin_expect(rc != PCM_SUCCESS, 0)) {\n\t\tpcm_store(&%s, (uint64_t)(int64_t)rc);%s\n\t\treturn rc;\n\t}", w.failedCell(), odd)
	switch {
	case w.quick(): // not of what the handler took away itself, as those of the published SDK do: nothing is left then
		for i, s := range w.Signals {
			was := wordLiteral(s.Initial)
			if !s.Reset {
				was = fmt.Sprintf("sig[%d]", i)
			}
			if s.Source != ElapsedTime && (s.Reset || s.Trigger != nil) {
				w.line("\tif (snap[1] & UINT64_C(1) << %d && snap[%d] != %s)%s", i, signalOffset+i, was, odd)
			}
		}
	case odd != "":
		w.line("\tif (snap[1])%s", odd)
	}
	for i, s := range w.Signals {
		v := fmt.Sprintf("snap[%d]", signalOffset+i)
		body := accumulated(s.Accum, w.cell(i), v)
		switch {
		case s.Source == ElapsedTime:
			body = fmt.Sprintf("pcm_store(&f->start, now - %s);", v)
		case s.Accum == Sum && s.Reset:
			body = fmt.Sprintf("pcm_sum(&%s, %s - %s);", w.cell(i), v, wordLiteral(s.Initial))
		case s.Accum == Sum:
			body = fmt.Sprintf("pcm_sum(&%s, %s - sig[%d]);", w.cell(i), v, i)
		}
		w.line("\tif (snap[1] & UINT64_C(1) << %d) { %s }", i, body)
	}
	for i := range w.Controls {
		w.line("\tpcm_store(&f->ctl[%d], snap[%d]);", i, first+i)
	}
	w.line("\t(void)now;\n\treturn 0;\n}\n")
	w.line("/* The same, once in the code, for calls that are seldom. */\nstatic __attribute__((noinline)) int pcm_run_apart(struct pcm_flow *f, const uint64_t *sig, uint64_t fired, uint64_t now)\n{\n\treturn pcm_run(f, sig, fired, now);\n}\n")
}

// serve writes a check and, when a trigger fires, the run. In an asynchronous shell the mask is that of the snapshot: it is what the handler
// sees the signals of, and what fired at the look before it may have changed.
func (w *shellWriter) serve() {
	w.line("static inline uint64_t pcm_once(struct pcm_flow *f, uint64_t now)\n{\n\tuint64_t sig[%d];", len(w.Signals))
	w.line("\tif (__builtin_expect(pcm_load(&%s) != 0, 0))\n\t\treturn 0;", w.failedCell())
	if w.Snapshot == Synchronous {
		w.line("\tpcm_odd(f);")
		w.looks(func(s Signal) bool { return s.Trigger != nil })
		w.line("\tconst uint64_t fired = pcm_fired(sig, f->rest->base);\n\tif (!fired)\n\t\treturn 0;")
		w.line("\tpcm_take(f, sig, now);")
	} else {
		w.line("\tif (!pcm_due(f, now) || !pcm_take(f, sig, now))\n\t\treturn 0;")
		w.line("\tuint64_t base[%d];", w.numBases())
		w.bases()
		w.line("\tconst uint64_t fired = pcm_fired(sig, base);")
		w.line("\tif (__builtin_expect(!fired, 0)) {\n\t\tpcm_put_back(f, sig);\n\t\treturn 0;\n\t}")
	}
	run := "pcm_run"
	if w.Snapshot == Synchronous {
		run = "pcm_run_apart"
	}
	w.line("\tpcm_rebase(f, sig, fired);\n\t%s(f, sig, fired, now);\n\treturn fired;\n}\n", run)
}
