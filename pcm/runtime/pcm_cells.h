/*
 * The cells of a flow that its two halves share, and what is done to them: the four accumulators, and how a snapshot is taken.
 *
 * In a synchronous shell a cell is a plain word, and an accumulator is one instruction (SUM, LAST) or two (MIN, MAX) when its operands
 * are in registers. With PCM_ASYNC it is an atomic one: what the datapath adds, and what the control plane takes away, cannot lose
 * each other. Nothing but the cell itself is exchanged through it, so relaxed order does. With PCM_COUNTED a snapshot also looks at
 * how many updates were under way (pcm_begin, pcm_end), and an update that it sees must have been counted before: then values are
 * released by the datapath and acquired by the snapshot.
 */
#ifndef PCM_CELLS_H
#define PCM_CELLS_H

#include <stdint.h>

#define PCM_CELL_INLINE inline __attribute__((always_inline, unused))

#ifndef PCM_ASYNC

typedef uint64_t pcm_cell;

static PCM_CELL_INLINE uint64_t pcm_load(const pcm_cell *c) { return *c; }
static PCM_CELL_INLINE void pcm_store(pcm_cell *c, uint64_t v) { *c = v; }
static PCM_CELL_INLINE uint64_t pcm_look(const pcm_cell *c) { return *c; }
static PCM_CELL_INLINE uint64_t pcm_swap(pcm_cell *c, uint64_t v)
{
	uint64_t old = *c;
	*c = v;
	return old;
}
static PCM_CELL_INLINE void pcm_sum(pcm_cell *c, uint64_t v) { *c += v; }
static PCM_CELL_INLINE void pcm_last(pcm_cell *c, uint64_t v) { *c = v; }
static PCM_CELL_INLINE void pcm_min(pcm_cell *c, uint64_t v) { *c = v < *c ? v : *c; }
static PCM_CELL_INLINE void pcm_max(pcm_cell *c, uint64_t v) { *c = v > *c ? v : *c; }

/* Two words that lie side by side, in one store where the machine has one: a flush is as fast as its stores. */
typedef uint64_t pcm_pair __attribute__((vector_size(16), aligned(8), may_alias));
static PCM_CELL_INLINE void pcm_store_two(void *at, uint64_t a, uint64_t b) { *(pcm_pair *)at = (pcm_pair){a, b}; }

#else

#include <stdatomic.h>

typedef _Atomic uint64_t pcm_cell;

#ifdef PCM_COUNTED
#define PCM_GIVES memory_order_release
#define PCM_TAKES memory_order_acquire
#else
#define PCM_GIVES memory_order_relaxed
#define PCM_TAKES memory_order_relaxed
#endif

/* Of what one half alone writes: controls, baselines. */
static PCM_CELL_INLINE uint64_t pcm_load(const pcm_cell *c) { return atomic_load_explicit((pcm_cell *)c, memory_order_relaxed); }
static PCM_CELL_INLINE void pcm_store(pcm_cell *c, uint64_t v) { atomic_store_explicit(c, v, memory_order_relaxed); }
/* A snapshot's look at a signal, and one that leaves v behind in the same step. */
static PCM_CELL_INLINE uint64_t pcm_look(const pcm_cell *c) { return atomic_load_explicit((pcm_cell *)c, PCM_TAKES); }
static PCM_CELL_INLINE uint64_t pcm_swap(pcm_cell *c, uint64_t v) { return atomic_exchange_explicit(c, v, PCM_TAKES); }
/* The accumulators. */
static PCM_CELL_INLINE void pcm_sum(pcm_cell *c, uint64_t v) { (void)atomic_fetch_add_explicit(c, v, PCM_GIVES); }
static PCM_CELL_INLINE void pcm_last(pcm_cell *c, uint64_t v) { atomic_store_explicit(c, v, PCM_GIVES); }
static PCM_CELL_INLINE void pcm_min(pcm_cell *c, uint64_t v)
{
	uint64_t seen = atomic_load_explicit(c, memory_order_relaxed);
	while (v < seen && !atomic_compare_exchange_weak_explicit(c, &seen, v, PCM_GIVES, memory_order_relaxed))
		;
}
static PCM_CELL_INLINE void pcm_max(pcm_cell *c, uint64_t v)
{
	uint64_t seen = atomic_load_explicit(c, memory_order_relaxed);
	while (v > seen && !atomic_compare_exchange_weak_explicit(c, &seen, v, PCM_GIVES, memory_order_relaxed))
		;
}
/* The value goes back where nothing newer came meanwhile. */
static PCM_CELL_INLINE void pcm_unless_newer(pcm_cell *c, uint64_t left, uint64_t v)
{
	(void)atomic_compare_exchange_strong_explicit(c, &left, v, memory_order_relaxed, memory_order_relaxed);
}
/* The count of updates that have begun goes up before what they do can be seen, the count of those that are done afterwards. */
static PCM_CELL_INLINE void pcm_begin(pcm_cell *begun) { (void)atomic_fetch_add_explicit(begun, 1, memory_order_relaxed); }
static PCM_CELL_INLINE void pcm_end(pcm_cell *done) { (void)atomic_fetch_add_explicit(done, 1, memory_order_release); }

#endif
#endif
