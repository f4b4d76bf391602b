/*
 * What a handler sees: types, accessors and helpers under the names of the published SDK.
 *
 * Objects are named, never indexed, by handlers. The accessors paste their names into those that the generated NAME.h
 * defines, so that a local variable of the same name does no harm, and each access is a load or store at a constant place.
 * Two pointers are passed through the handler's functions: the snapshot of signals and controls, which the compiler keeps in
 * registers where it can, and the variables, which nobody but the handler touches.
 */
#ifndef PCMH_H
#define PCMH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t pcm_uint;
typedef int64_t pcm_int;

#define PCM_SUCCESS 0
#define PCM_ERROR 1

#define PCM_FORCE_INLINE inline __attribute__((always_inline))

#define ALGO_CTX_ARGS pcm_uint *pcm_snapshot __attribute__((unused)), pcm_uint *pcm_vars __attribute__((unused))
#define ALGO_CTX_PASS pcm_snapshot, pcm_vars

/* int algorithm_main() { ... } defines the entry. */
#define algorithm_main() __algorithm_main(ALGO_CTX_ARGS)
#ifdef PCM_ENTRY_INLINE /* a shell that has several places where it runs wants it in each of them */
static PCM_FORCE_INLINE int __algorithm_main(ALGO_CTX_ARGS);
#else
static inline int __algorithm_main(ALGO_CTX_ARGS);
#endif

/* Signals. */
#define get_signal_trigger_mask() (pcm_snapshot[MASK_OFFSET])
#define get_signal(S) (pcm_snapshot[SIGNAL_OFFSET + PCM_INDEX_##S])
#define set_signal(S, V) pcm_set_signal(pcm_snapshot, SET_SIGNAL_MASK_OFFSET, SIGNAL_OFFSET, PCM_INDEX_##S, (pcm_uint)(V))
#define update_signal(S, D) pcm_set_signal(pcm_snapshot, SET_SIGNAL_MASK_OFFSET, SIGNAL_OFFSET, PCM_INDEX_##S, get_signal(S) + (pcm_uint)(D))

static PCM_FORCE_INLINE void pcm_set_signal(pcm_uint *snapshot, int mask, int offset, int i, pcm_uint v)
{
	snapshot[offset + i] = v;
	snapshot[mask] |= (pcm_uint)1 << i;
}

/* Controls. */
#define get_control(C) (pcm_snapshot[CONTROL_OFFSET + PCM_INDEX_##C])
#define set_control(C, V) ((void)(pcm_snapshot[CONTROL_OFFSET + PCM_INDEX_##C] = (pcm_uint)(V)))

/* Variables. */
#define get_var(X) (pcm_vars[PCM_INDEX_##X])
#define set_var(X, V) ((void)(pcm_vars[PCM_INDEX_##X] = (pcm_uint)(V)))
#define get_var_uint(X) get_var(X)
#define set_var_uint(X, V) set_var(X, V)
#define get_var_int(X) ((pcm_int)get_var(X))
#define set_var_int(X, V) set_var(X, (pcm_int)(V))
#define get_arr_uint(A, I) (pcm_vars[PCM_INDEX_##A + (I)])
#define set_arr_uint(A, I, V) ((void)(pcm_vars[PCM_INDEX_##A + (I)] = (pcm_uint)(V)))

#ifndef PCM_NO_FLOAT
typedef double pcm_float;
#define get_var_float(X) pcm_float_of(get_var(X))
#define set_var_float(X, V) set_var(X, pcm_bits_of(V))

static PCM_FORCE_INLINE pcm_float pcm_float_of(pcm_uint bits)
{
	pcm_float v;
	__builtin_memcpy(&v, &bits, sizeof v);
	return v;
}

static PCM_FORCE_INLINE pcm_uint pcm_bits_of(pcm_float v)
{
	pcm_uint bits;
	__builtin_memcpy(&bits, &v, sizeof bits);
	return bits;
}
#endif

/* HASH is XXH64 of the 8-byte value with seed 0. */
#define HASH(X) pcm_hash((pcm_uint)(X))

static PCM_FORCE_INLINE pcm_uint pcm_rotate(pcm_uint v, int n) { return v << n | v >> (64 - n); }

static PCM_FORCE_INLINE pcm_uint pcm_hash(pcm_uint v)
{
	const pcm_uint p1 = 0x9E3779B185EBCA87u, p2 = 0xC2B2AE3D27D4EB4Fu, p3 = 0x165667B19E3779F9u, p4 = 0x85EBCA77C2B2AE63u, p5 = 0x27D4EB2F165667C5u;
	pcm_uint h = p5 + sizeof v;
	h ^= pcm_rotate(v * p2, 31) * p1;
	h = pcm_rotate(h, 27) * p1 + p4;
	h = (h ^ h >> 33) * p2;
	h = (h ^ h >> 29) * p3;
	return h ^ h >> 32;
}

/*
 * RAND is deterministic: the flow's seed, which lies before its variables, counts up and is hashed. A build may draw elsewhere:
 * -DPCM_RAND=EXPRESSION, as tests do that give a handler the draws of a golden vector.
 */
#ifdef PCM_RAND
#define RAND() ((pcm_uint)(PCM_RAND))
#elif !defined RAND
#define RAND() pcm_hash(++pcm_vars[-1])
#endif

#define MAX(A, B) ({ __typeof__(A) pcm_a = (A); __typeof__(B) pcm_b = (B); pcm_a > pcm_b ? pcm_a : pcm_b; })
#define MIN(A, B) ({ __typeof__(A) pcm_a = (A); __typeof__(B) pcm_b = (B); pcm_a < pcm_b ? pcm_a : pcm_b; })
#define MIN_NOT_ZERO(A, B) ({ __typeof__(A) pcm_x = (A); __typeof__(B) pcm_y = (B); !pcm_x ? pcm_y : !pcm_y ? pcm_x : MIN(pcm_x, pcm_y); })
#define ABS(X) ((X) < 0 ? -(X) : (X))
#define POW(X, Y) pow((X), (Y))

/* Arrays of bits: BITMAP_HELPERS_DEFINE(NAME) makes the functions that the two macros below call. */
#define BITS_PER_UINT (sizeof(pcm_uint) * 8)
#define BITMAP_HELPERS_DEFINE(A)                                                                            \
	static PCM_FORCE_INLINE void A##_set_bitmap_entry(ALGO_CTX_ARGS, pcm_uint i, pcm_uint bit)              \
	{                                                                                                       \
		pcm_uint w = get_arr_uint(A, i / BITS_PER_UINT), m = (pcm_uint)1 << i % BITS_PER_UINT;              \
		(void)pcm_snapshot;                                                                                 \
		set_arr_uint(A, i / BITS_PER_UINT, bit ? w | m : w & ~m);                                           \
	}                                                                                                       \
	static PCM_FORCE_INLINE pcm_uint A##_get_bitmap_entry(ALGO_CTX_ARGS, pcm_uint i)                        \
	{                                                                                                       \
		(void)pcm_snapshot;                                                                                 \
		return get_arr_uint(A, i / BITS_PER_UINT) >> i % BITS_PER_UINT & 1;                                 \
	}
#define BITMAP_HELPER_SET_ENTRY(A, I, BIT) A##_set_bitmap_entry(ALGO_CTX_PASS, (I), (BIT))
#define BITMAP_HELPER_GET_ENTRY(A, I) A##_get_bitmap_entry(ALGO_CTX_PASS, (I))

#endif
