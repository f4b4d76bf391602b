/*
 * Fractions whose representation the build chooses, under one spelling: double (the default), or fixed point with PCM_FRAC_BITS bits
 * behind the point in a word of PCM_FRAC_WORD bits: Q16.16 (32, 16), Q32.32 (64, 32), Q42.22 (64, 22).
 */
#ifndef PCM_ARITH_H
#define PCM_ARITH_H

#include "pcmh.h"

#ifndef PCM_FRAC_BITS

typedef double pcm_frac;
#define FRAC(X) ((pcm_frac)(X))

static PCM_FORCE_INLINE pcm_frac frac_of_uint(pcm_uint v) { return (pcm_frac)v; }
static PCM_FORCE_INLINE pcm_frac frac_of_int(pcm_int v) { return (pcm_frac)v; }
/* Towards zero; below zero gives 0. */
static PCM_FORCE_INLINE pcm_uint frac_to_uint(pcm_frac v) { return v > 0 ? (pcm_uint)v : 0; }
static PCM_FORCE_INLINE pcm_frac frac_mul(pcm_frac a, pcm_frac b) { return a * b; }
static PCM_FORCE_INLINE pcm_frac frac_div(pcm_frac a, pcm_frac b) { return a / b; }
static PCM_FORCE_INLINE pcm_frac frac_sqrt(pcm_frac a) { return __builtin_sqrt(a); }
static PCM_FORCE_INLINE pcm_frac frac_rsqrt(pcm_frac a) { return 1 / __builtin_sqrt(a); }
static PCM_FORCE_INLINE pcm_frac frac_recip(pcm_frac a) { return 1 / a; }
static PCM_FORCE_INLINE pcm_uint pcm_frac_word(pcm_frac v) { return pcm_bits_of(v); }
static PCM_FORCE_INLINE pcm_frac pcm_frac_of_word(pcm_uint w) { return pcm_float_of(w); }

#else
#error "fixed point is not there yet"
#endif

#define get_var_frac(X) pcm_frac_of_word(get_var(X))
#define set_var_frac(X, V) set_var(X, pcm_frac_word(V))

#endif
