/* The fixed-point half of pcm_arith.h, which says what is here. No floating point, no C library, no compiler library when freestanding. */
#ifndef PCM_FIXED_H
#define PCM_FIXED_H

#if PCM_FRAC_WORD == 32
typedef int32_t pcm_frac;
typedef uint32_t pcm_ufrac;
#elif PCM_FRAC_WORD == 64
typedef int64_t pcm_frac;
typedef uint64_t pcm_ufrac;
#else
#error "PCM_FRAC_WORD is 32 or 64"
#endif
_Static_assert(PCM_FRAC_BITS >= 16 && PCM_FRAC_BITS <= 32 && PCM_FRAC_BITS % 2 == 0 && PCM_FRAC_BITS < PCM_FRAC_WORD, "Q16.16, Q32.32 or Q42.22");

#define PCM_FRAC_ONE ((pcm_frac)1 << PCM_FRAC_BITS)
#define PCM_FRAC_MAX ((pcm_frac)((pcm_ufrac)-1 >> 1))
#define FRAC(X) ((pcm_frac)(pcm_int)((double)(X) * (double)((pcm_int)1 << PCM_FRAC_BITS) + ((double)(X) < 0 ? -0.5 : 0.5)))

#if defined __SIZEOF_INT128__ && !defined PCM_NO_INT128
#define PCM_INT128 1
#endif

/* Full product of two words. */
static PCM_FORCE_INLINE pcm_uint pcm_umul(pcm_uint a, pcm_uint b, pcm_uint *low)
{
#ifdef PCM_INT128
	unsigned __int128 p = (unsigned __int128)a * b;
	*low = (pcm_uint)p;
	return (pcm_uint)(p >> 64);
#else
	pcm_uint al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
	pcm_uint ll = al * bl, lh = al * bh, hl = ah * bl, mid = (ll >> 32) + (uint32_t)lh + (uint32_t)hl;
	*low = mid << 32 | (uint32_t)ll;
	return ah * bh + (lh >> 32) + (hl >> 32) + (mid >> 32);
#endif
}

/* The low word of (high, low) / d; d is not 0. */
#if defined PCM_SOFTDIV
static inline pcm_uint pcm_udiv(pcm_uint high, pcm_uint low, pcm_uint d)
{
	pcm_uint rest = 0, q = 0;
	for (int i = 63 + PCM_FRAC_BITS; i >= 0; i--) {
		pcm_uint bit = i >= 64 ? high >> (i - 64) & 1 : low >> i & 1, over = rest >> 63;
		rest = rest << 1 | bit;
		q <<= 1;
		if (over || rest >= d) {
			rest -= d;
			q |= 1;
		}
	}
	return q;
}
#elif defined PCM_INT128 && __STDC_HOSTED__
static PCM_FORCE_INLINE pcm_uint pcm_udiv(pcm_uint high, pcm_uint low, pcm_uint d)
{
	if (high == 0)
		return low / d;
	return (pcm_uint)(((unsigned __int128)high << 64 | low) / d);
}
#else
/* One digit of 32 bits: of rest and the next digit, by the upper half of the divisor, then put right (Knuth, 4.3.1 D). */
static PCM_FORCE_INLINE pcm_uint pcm_digit(pcm_uint *rest, pcm_uint next, pcm_uint d)
{
	pcm_uint dh = d >> 32, dl = (uint32_t)d, q = *rest / dh, r = *rest % dh;
	for (int i = 0; i < 2; i++)
		if (r >> 32 == 0 && (q >> 32 || q * dl > (r << 32 | next))) {
			q--;
			r += dh;
		}
	*rest = (*rest << 32 | next) - q * d;
	return q;
}

static inline pcm_uint pcm_udiv(pcm_uint high, pcm_uint low, pcm_uint d)
{
	if (high == 0)
		return low / d;
	high %= d; /* what it takes away is above the low word */
	for (int i = 32; i; i >>= 1) /* the divisor's highest bit to the top */
		if (d >> (64 - i) == 0) {
			d <<= i;
			high = high << i | low >> (64 - i);
			low <<= i;
		}
	pcm_uint q1 = pcm_digit(&high, low >> 32, d);
	return q1 << 32 | pcm_digit(&high, (uint32_t)low, d);
}
#endif

static PCM_FORCE_INLINE pcm_frac frac_of_uint(pcm_uint v) { return (pcm_frac)(v << PCM_FRAC_BITS); }
static PCM_FORCE_INLINE pcm_frac frac_of_int(pcm_int v) { return frac_of_uint((pcm_uint)v); }
static PCM_FORCE_INLINE pcm_uint frac_to_uint(pcm_frac v) { return v > 0 ? (pcm_uint)v >> PCM_FRAC_BITS : 0; }
static PCM_FORCE_INLINE pcm_ufrac pcm_magnitude(pcm_frac v) { return v < 0 ? -(pcm_ufrac)v : (pcm_ufrac)v; }
static PCM_FORCE_INLINE pcm_uint pcm_frac_word(pcm_frac v) { return (pcm_uint)(pcm_int)v; }
static PCM_FORCE_INLINE pcm_frac pcm_frac_of_word(pcm_uint w) { return (pcm_frac)w; }

static PCM_FORCE_INLINE pcm_frac frac_ratio(pcm_uint n, pcm_uint d)
{
	return d ? (pcm_frac)pcm_udiv(n >> (64 - PCM_FRAC_BITS), n << PCM_FRAC_BITS, d) : PCM_FRAC_MAX;
}

static PCM_FORCE_INLINE pcm_uint frac_scale(pcm_uint n, pcm_frac f)
{
	pcm_uint low, high = pcm_umul(n, f > 0 ? (pcm_uint)f : 0, &low);
	return high << (64 - PCM_FRAC_BITS) | low >> PCM_FRAC_BITS;
}

/* Rounds down, as a shift does. */
static PCM_FORCE_INLINE pcm_frac frac_mul(pcm_frac a, pcm_frac b)
{
#if PCM_FRAC_WORD == 32
	return (pcm_frac)((pcm_int)a * b >> PCM_FRAC_BITS);
#elif defined PCM_INT128
	return (pcm_frac)((__int128)a * b >> PCM_FRAC_BITS);
#else
	pcm_uint low, high = pcm_umul((pcm_uint)a, (pcm_uint)b, &low);
	high -= (a < 0 ? (pcm_uint)b : 0) + (b < 0 ? (pcm_uint)a : 0); /* of the signed product */
	return (pcm_frac)(high << (64 - PCM_FRAC_BITS) | low >> PCM_FRAC_BITS);
#endif
}

/* Rounds towards zero. */
static PCM_FORCE_INLINE pcm_frac frac_div(pcm_frac a, pcm_frac b)
{
	pcm_uint n = pcm_magnitude(a), d = pcm_magnitude(b);
	if (d == 0)
		return a < 0 ? -PCM_FRAC_MAX : PCM_FRAC_MAX;
	pcm_ufrac q = (pcm_ufrac)pcm_udiv(n >> (64 - PCM_FRAC_BITS), n << PCM_FRAC_BITS, d);
	return (pcm_frac)((a < 0) != (b < 0) ? -q : q);
}

/* Place of the highest bit; v is not 0. The builtin is a library call where there is no such instruction. */
static PCM_FORCE_INLINE int pcm_top(pcm_uint v)
{
#if defined __x86_64__ || defined __aarch64__ || defined __riscv_zbb
	return 63 - __builtin_clzll(v);
#else
	int top = 0;
	for (int i = 32; i; i >>= 1)
		if (v >> i) {
			v >>= i;
			top += i;
		}
	return top;
#endif
}

static PCM_FORCE_INLINE pcm_frac pcm_shifted(pcm_frac v, int left)
{
	return left >= 0 ? (pcm_frac)((pcm_ufrac)v << left) : v >> -left;
}

/* The largest root whose square is not above a: one bit a step, none of them divides. */
static inline pcm_frac frac_sqrt_digit(pcm_frac a)
{
	pcm_uint root = 0, rest = 0;
	if (a <= 0)
		return 0;
	for (int i = PCM_FRAC_WORD - 2; i >= -PCM_FRAC_BITS; i -= 2) {
		pcm_uint next = root << 2 | 1;
		rest = rest << 2 | (i >= 0 ? (pcm_uint)a >> i & 3 : 0);
		root <<= 1;
		if (rest >= next) {
			rest -= next;
			root |= 1;
		}
	}
	return (pcm_frac)root;
}

/* Newton's method with one divide a step, as many as a has digits of base four; small values through their reciprocal. */
static inline pcm_frac frac_sqrt_newton(pcm_frac a)
{
	if (a <= 0)
		return 0;
	bool inverted = a < PCM_FRAC_ONE && a > 6;
	if (inverted)
		a = frac_div(PCM_FRAC_ONE, a);
	int steps = a > PCM_FRAC_ONE ? pcm_top((pcm_uint)a) / 2 + 1 : PCM_FRAC_BITS;
	pcm_frac root = (a >> 1) + 1;
	for (int i = 0; i < steps && i < 32; i++)
		root = (root + frac_div(a, root)) / 2;
	return inverted ? frac_div(PCM_FRAC_ONE, root) : root;
}

static PCM_FORCE_INLINE pcm_frac frac_sqrt(pcm_frac a)
{
#ifdef PCM_SQRT_NEWTON
	return frac_sqrt_newton(a);
#else
	return frac_sqrt_digit(a);
#endif
}

/* How often the two below go over their first guess; three are enough for 22 bits (ALGORITHMS.md, C.3). */
#define PCM_NEWTON_STEPS 4

/* Newton's method for 1 / sqrt(m), which only multiplies; a = m * 4^k with m in [1, 4). The first guess is at most 17 % off. */
static PCM_FORCE_INLINE pcm_frac frac_rsqrt(pcm_frac a)
{
	if (a <= 0)
		return PCM_FRAC_MAX;
	int k = (pcm_top((pcm_uint)a) - PCM_FRAC_BITS) >> 1;
	pcm_frac m = pcm_shifted(a, -2 * k), y = FRAC(1.1877) - frac_mul(FRAC(0.18387), m);
	for (int i = 0; i < PCM_NEWTON_STEPS; i++)
		y = frac_mul(y, FRAC(3) - frac_mul(frac_mul(m, y), y)) >> 1;
	return pcm_shifted(y, -k);
}

/* Newton's method for 1 / m, which only multiplies; a = m * 2^k with m in [1/2, 1). The first guess is at most 1/17 off. */
static PCM_FORCE_INLINE pcm_frac frac_recip(pcm_frac a)
{
	if (a == 0)
		return PCM_FRAC_MAX;
	int k = pcm_top(pcm_magnitude(a)) - (PCM_FRAC_BITS - 1);
	pcm_frac m = pcm_shifted((pcm_frac)pcm_magnitude(a), -k), y = FRAC(48.0 / 17) - frac_mul(FRAC(32.0 / 17), m);
	for (int i = 0; i < PCM_NEWTON_STEPS; i++)
		y = frac_mul(y, FRAC(2) - frac_mul(m, y));
	y = k > 0 ? ((y >> (k - 1)) + 1) >> 1 : pcm_shifted(y, -k); /* rounds to the nearest: a large a leaves few bits */
	return a < 0 ? -y : y;
}

/* Twenty bits digit by digit and one step of Newton's method, which doubles them; a = m * 8^k with m in [1, 8). */
static inline pcm_frac frac_cbrt(pcm_frac a)
{
	if (a == 0)
		return 0;
	int k = (pcm_top(pcm_magnitude(a)) - PCM_FRAC_BITS + 63) / 3 - 21; /* rounds down */
	pcm_frac m = pcm_shifted((pcm_frac)pcm_magnitude(a), -3 * k);
	pcm_uint rest = (pcm_uint)m << (57 - PCM_FRAC_BITS), root = 0;
	for (int i = 57; i >= 0; i -= 3) {
		root <<= 1;
		pcm_uint next = 3 * root * (root + 1) + 1;
		if (rest >> i >= next) {
			rest -= next << i;
			root++;
		}
	}
	pcm_frac y = pcm_shifted((pcm_frac)root, PCM_FRAC_BITS - 19);
	y = (2 * y + frac_div(m, frac_mul(y, y))) / 3;
	y = pcm_shifted(y, k);
	return a < 0 ? -y : y;
}

#endif
