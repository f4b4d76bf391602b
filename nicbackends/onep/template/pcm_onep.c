/*
 * Shell of a PCM handler for a NIC that calls C code for congestion control asynchronously, beside its datapath (paper, section 6.3).
 *
 * The datapath's half notes what happened, by atomics alone, and never waits. The control plane's half takes what was noted, runs the
 * handler if a trigger fires, and hands its controls to the engine. What comes while the handler runs is noted for the next time.
 */
#include "onep_adapter.h"

#define PCM_TICK_PS ONEP_TICK_PS
#include "pcm_core.h"

/* Noted since the flow was served. Each word is exchanged for its empty value, so that nothing is lost and nothing counts twice; words of
 * one event may be taken in two servings (a relaxed snapshot: paper, section 5.3). */
struct pcm_noted {
#define PCM_SUM(SOURCE, FIELD) uint64_t SOURCE;
#define PCM_VALUE(SOURCE, FIELD) uint64_t SOURCE##_last, SOURCE##_least, SOURCE##_most;
	ONEP_SUMS(PCM_SUM)
	ONEP_VALUES(PCM_VALUE)
#undef PCM_SUM
#undef PCM_VALUE
};

struct pcm_onep {
	struct pcm_noted noted; /* atomic; shared with the datapath */
	_Alignas(64) uint64_t begun;
	struct pcm_core core;
};
_Static_assert(sizeof(struct pcm_onep) <= sizeof(struct onep_context), "the engine keeps too little for a flow of this handler: ONEP_CONTEXT_BYTES");

static inline struct pcm_onep *pcm_flow_of(struct onep_context *ctx) { return (struct pcm_onep *)(void *)ctx; }

/* ---- the datapath ---- */

/* The least value is kept as its complement, so that the empty value of all words is 0, which is what a new flow has. */
static inline void pcm_raise(uint64_t *most, uint64_t v)
{
	uint64_t old = __atomic_load_n(most, __ATOMIC_RELAXED);

	while (v > old && !__atomic_compare_exchange_n(most, &old, v, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

void onep_user_event(struct onep_context *ctx, const struct onep_event *event)
{
	struct pcm_noted *n = &pcm_flow_of(ctx)->noted;

#define PCM_SUM(SOURCE, FIELD)                                                       \
	if (event->FIELD)                                                            \
		__atomic_fetch_add(&n->SOURCE, event->FIELD, __ATOMIC_RELAXED);
#define PCM_VALUE(SOURCE, FIELD)                                                     \
	if (event->FIELD) {                                                          \
		pcm_raise(&n->SOURCE##_least, ~event->FIELD);                        \
		pcm_raise(&n->SOURCE##_most, event->FIELD);                          \
		__atomic_store_n(&n->SOURCE##_last, event->FIELD, __ATOMIC_RELEASE); \
	}
	ONEP_VALUES(PCM_VALUE)
	ONEP_SUMS(PCM_SUM)
#undef PCM_SUM
#undef PCM_VALUE
}

/* ---- the control plane ---- */

static inline uint64_t pcm_take(uint64_t *word) { return __atomic_exchange_n(word, 0, __ATOMIC_ACQUIRE); }

/* Signals of values take the least, the largest and the last: each keeps what its accumulator is for. */
static inline void pcm_take_all(struct pcm_noted *n, struct pcm_core *c)
{
#define PCM_SUM(SOURCE, FIELD)                            \
	{                                                 \
		const uint64_t v = pcm_take(&n->SOURCE);  \
		if (v)                                    \
			pcm_core_##SOURCE(c, v);          \
	}
#define PCM_VALUE(SOURCE, FIELD)                                                                                                  \
	{                                                                                                                         \
		const uint64_t last = pcm_take(&n->SOURCE##_last), least = pcm_take(&n->SOURCE##_least), most = pcm_take(&n->SOURCE##_most); \
		if (least)                                                                                                        \
			pcm_core_##SOURCE(c, ~least);                                                                             \
		if (most)                                                                                                         \
			pcm_core_##SOURCE(c, most);                                                                               \
		if (last)                                                                                                         \
			pcm_core_##SOURCE(c, last);                                                                               \
	}
	ONEP_SUMS(PCM_SUM)
	ONEP_VALUES(PCM_VALUE)
#undef PCM_SUM
#undef PCM_VALUE
}

static inline void pcm_publish(struct onep_context *ctx, const struct pcm_core *c)
{
#define PCM_CONTROL(CONTROL, UPPER, FUNCTION) \
	if (PCM_HAS_##UPPER##_CONTROL)        \
		FUNCTION(ctx, pcm_core_get_##CONTROL(c));
	ONEP_CONTROLS(PCM_CONTROL)
#undef PCM_CONTROL
}

void onep_user_control(struct onep_context *ctx, uint64_t now, uint64_t seed)
{
	struct pcm_onep *f = pcm_flow_of(ctx);
	struct pcm_core *c = &f->core;

	if (!f->begun) {
		pcm_core_begin(c, now, seed);
		f->begun = 1;
		pcm_publish(ctx, c);
	}
	if (c->failed)
		return;
	pcm_take_all(&f->noted, c);
	if (!pcm_core_step(c, now))
		return;
	if (c->failed)
		onep_stopped(ctx, PCM_PACKAGE, (int64_t)c->failed);
	else
		pcm_publish(ctx, c);
}
