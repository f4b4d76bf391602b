/*
 * Fractions whose representation the build chooses, under one spelling: double (the default), or fixed point with PCM_FRAC_BITS bits
 * behind the point in a word of PCM_FRAC_WORD bits: Q16.16 (32, 16), Q32.32 (64, 32), Q42.22 (64, 22).
 *
 *	FRAC(1.5)                        a constant, folded by the compiler: no floating point is left of it
 *	frac_of_uint, frac_of_int        of integers; frac_to_uint goes back, towards zero, and gives 0 for what is below it
 *	frac_ratio(n, d)                 n / d of integers: keeps what frac_div of two converted integers loses to their range
 *	frac_scale(n, f)                 n * f of an integer, towards zero: n may be beyond the range of a fraction
 *	frac_mul, frac_div               a * b, a / b
 *	frac_sqrt, frac_rsqrt, frac_recip, frac_cbrt
 *	                                 square root, 1 / square root, 1 / a, cube root
 *	frac_mul_rsqrt, frac_mul_recip   a / square root of x, a / x: the fastest way of the representation
 *	get_var_frac, set_var_frac       variables of type frac
 *
 * Fractions are added, subtracted, compared, and multiplied and divided by small integers with C's own operators. As in C, what does
 * not fit wraps; what is divided by zero gives the largest value, in fixed point, and infinity in floating point.
 *
 * Flags of a fixed-point build: PCM_SQRT_NEWTON takes square roots by Newton's method, with one divide a step, in place of digit by
 * digit without any; PCM_SOFTDIV divides by shifting and subtracting, as a core without a wide divide does; PCM_NO_INT128 does
 * without the compiler's 128-bit integers.
 */
#ifndef PCM_ARITH_H
#define PCM_ARITH_H

#include "pcmh.h"

#ifndef PCM_FRAC_BITS

typedef double pcm_frac;
#define FRAC(X) ((pcm_frac)(X))

static PCM_FORCE_INLINE pcm_frac frac_of_uint(pcm_uint v) { return (pcm_frac)v; }
static PCM_FORCE_INLINE pcm_frac frac_of_int(pcm_int v) { return (pcm_frac)v; }
static PCM_FORCE_INLINE pcm_uint frac_to_uint(pcm_frac v) { return v > 0 ? (pcm_uint)v : 0; }
static PCM_FORCE_INLINE pcm_frac frac_ratio(pcm_uint n, pcm_uint d) { return (pcm_frac)n / (pcm_frac)d; }
static PCM_FORCE_INLINE pcm_uint frac_scale(pcm_uint n, pcm_frac f) { return frac_to_uint((pcm_frac)n * f); }
static PCM_FORCE_INLINE pcm_frac frac_mul(pcm_frac a, pcm_frac b) { return a * b; }
static PCM_FORCE_INLINE pcm_frac frac_div(pcm_frac a, pcm_frac b) { return a / b; }
static PCM_FORCE_INLINE pcm_frac frac_sqrt(pcm_frac a) { return __builtin_sqrt(a); }
static PCM_FORCE_INLINE pcm_frac frac_rsqrt(pcm_frac a) { return 1 / __builtin_sqrt(a); }
static PCM_FORCE_INLINE pcm_frac frac_recip(pcm_frac a) { return 1 / a; }
static PCM_FORCE_INLINE pcm_frac frac_cbrt(pcm_frac a) { return __builtin_cbrt(a); }
static PCM_FORCE_INLINE pcm_frac frac_mul_rsqrt(pcm_frac a, pcm_frac x) { return a / __builtin_sqrt(x); }
static PCM_FORCE_INLINE pcm_frac frac_mul_recip(pcm_frac a, pcm_frac x) { return a / x; }
static PCM_FORCE_INLINE pcm_uint pcm_frac_word(pcm_frac v) { return pcm_bits_of(v); }
static PCM_FORCE_INLINE pcm_frac pcm_frac_of_word(pcm_uint w) { return pcm_float_of(w); }

#else
#include "pcm_fixed.h"

static PCM_FORCE_INLINE pcm_frac frac_mul_rsqrt(pcm_frac a, pcm_frac x) { return frac_mul(a, frac_rsqrt(x)); }
static PCM_FORCE_INLINE pcm_frac frac_mul_recip(pcm_frac a, pcm_frac x) { return frac_mul(a, frac_recip(x)); }
#endif

#define get_var_frac(X) pcm_frac_of_word(get_var(X))
#define set_var_frac(X, V) set_var(X, pcm_frac_word(V))

#endif
