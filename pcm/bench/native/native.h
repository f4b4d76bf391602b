/*
 * What a hand-written form needs to stand beside shells: their interface. Only pcm_flush does the law; a form has no asynchronous
 * half, so pcm_note and pcm_serve are empty, which is what the empty call measures. Each form has its state in
 * words of 64 bits, says in native_words which of them are the objects of the package of the same law, and takes its constants from
 * that package's header, where fractions are doubles here.
 */
#ifndef NATIVE_H
#define NATIVE_H

#include "pcm_shell.h"

#include <stdbool.h>
#include <stdlib.h>

#define FRAC(X) ((double)(X))
#define COUNT(SOURCE, FIELD) (in->mask & UINT64_C(1) << (SOURCE) ? in->FIELD : 0)

enum { ACKED_PKTS = 0, TIMEOUTS = 1, REFUSED = 2, MARKED = 3, DELAY = 4, ACKED_DATA = 5 }; /* bits of an input's mask */

struct native_word {
	enum pcm_part part;
	uint32_t index; /* in the package's order */
	size_t at;      /* in struct pcm_flow */
};

#define NATIVE_INTERFACE(NAME)                                                                             \
	void pcm_destroy(struct pcm_flow *f) { free(f); }                                                      \
	void pcm_batch(const struct pcm_event *ev, size_t n, struct pcm_output *out)                           \
	{                                                                                                      \
		for (size_t i = 0; i < n; i++)                                                                     \
			pcm_flush(ev[i].flow, &ev[i].in, &out[i]);                                                     \
	}                                                                                                      \
	int pcm_note(struct pcm_flow *f, const struct pcm_input *in)                                           \
	{                                                                                                      \
		(void)f;                                                                                           \
		(void)in;                                                                                          \
		return 1;                                                                                          \
	}                                                                                                      \
	int pcm_serve(struct pcm_flow *f, uint64_t now, struct pcm_output *out)                                \
	{                                                                                                      \
		(void)now;                                                                                         \
		(void)f;                                                                                           \
		out->fired = 1;                                                                                    \
		return 0;                                                                                          \
	}                                                                                                      \
	void pcm_read(const struct pcm_flow *f, struct pcm_output *out) { out->cwnd = f->cwnd; }               \
	static uint64_t *native_at(struct pcm_flow *f, enum pcm_part part, uint32_t i)                         \
	{                                                                                                      \
		for (size_t k = 0; k < sizeof native_words / sizeof native_words[0]; k++)                          \
			if (native_words[k].part == part && native_words[k].index == i)                                \
				return (uint64_t *)((char *)f + native_words[k].at);                                       \
		return NULL;                                                                                       \
	}                                                                                                      \
	uint64_t pcm_peek(const struct pcm_flow *f, enum pcm_part part, uint32_t i)                            \
	{                                                                                                      \
		uint64_t *p = native_at((struct pcm_flow *)f, part, i);                                            \
		return p ? *p : UINT64_MAX;                                                                        \
	}                                                                                                      \
	void pcm_poke(struct pcm_flow *f, enum pcm_part part, uint32_t i, uint64_t v)                          \
	{                                                                                                      \
		uint64_t *p = native_at(f, part, i);                                                               \
		if (p)                                                                                             \
			*p = v;                                                                                        \
	}                                                                                                      \
	const struct pcm_info *pcm_get_info(void)                                                              \
	{                                                                                                      \
		static const struct pcm_info info = {.abi = PCM_SHELL_ABI, .flow_bytes = sizeof(struct pcm_flow), .name = NAME, .hash = ""}; \
		return &info;                                                                                      \
	}

#endif
