/*
 * The rate loop of the Scala NIC. Published are its defaults and the course of an episode; the weight of the estimate, the length of
 * fast recovery and what a cut makes of the estimate are ours (ALGORITHMS.md, B.14).
 */
#include "pcmh.h"
#include "pcm_arith.h"
#include "scala_nic.h"

/* Since the last half that may cut. */
static inline pcm_uint cnps(ALGO_CTX_ARGS) { return get_signal(CNP) - get_var_uint(PREV_CNP); }

/* Of this half alone. */
static inline void estimate(ALGO_CTX_ARGS)
{
	pcm_uint marked = get_signal(CNP) - get_var_uint(HALF_CNP), packets = (get_signal(TX_BYTES) - get_var_uint(HALF_TX)) / MTU;
	pcm_frac share = marked < packets ? frac_ratio(marked, packets) : marked ? FRAC(1) : FRAC(0);

	set_var_frac(EST, frac_mul(FRAC(1) - W, get_var_frac(EST)) + frac_mul(W, share));
	set_var_uint(HALF_CNP, get_signal(CNP));
	set_var_uint(HALF_TX, get_signal(TX_BYTES));
}

static inline void set_rate(ALGO_CTX_ARGS, pcm_frac rate) { set_var_frac(R_C, MAX(rate, MIN_RATE)); }

static inline void cut(ALGO_CTX_ARGS)
{
	set_var_uint(COUNT, 0);
	set_rate(ALGO_CTX_PASS, frac_mul(get_var_frac(R_C), FRAC(1) - get_var_frac(EST) / 2));
}

static inline void begin(ALGO_CTX_ARGS)
{
	set_var_uint(CONGESTED, 1);
	set_var_uint(SKIPPED, 0);
	set_var_uint(INCREASE_NEXT, 1);
	set_var_frac(R_T, get_var_frac(R_C));
	set_var_frac(STEP, frac_mul(get_var_frac(R_T), (FRAC(1) - INIT_TARGET) / N_STEPS));
	estimate(ALGO_CTX_PASS);
	cut(ALGO_CTX_PASS);
	set_var_uint(PREV_CNP, get_signal(CNP));
}

static inline void reduce(ALGO_CTX_ARGS)
{
	if (cnps(ALGO_CTX_PASS) && get_var_uint(COUNT) < FRA) {
		cut(ALGO_CTX_PASS);
	} else if (cnps(ALGO_CTX_PASS)) { /* in the additive phase: gently, whatever the estimate says */
		set_var_frac(R_T, get_var_frac(R_T) - get_var_frac(STEP));
		set_var_uint(COUNT, get_var_uint(COUNT) - 1);
		set_rate(ALGO_CTX_PASS, (get_var_frac(R_C) + get_var_frac(R_T)) / 2);
	}
	set_var_uint(PREV_CNP, get_signal(CNP));
}

static inline void increase(ALGO_CTX_ARGS)
{
	if (cnps(ALGO_CTX_PASS) && get_var_uint(SKIPPED) < LOOPS_PER_INC) {
		set_var_uint(SKIPPED, get_var_uint(SKIPPED) + 1);
		return;
	}
	set_var_uint(SKIPPED, 0);
	if (get_var_uint(COUNT) >= FRA)
		set_var_frac(R_T, MIN(get_var_frac(R_T) + get_var_frac(STEP), LINE));
	else
		set_var_uint(COUNT, get_var_uint(COUNT) + 1);
	set_rate(ALGO_CTX_PASS, (get_var_frac(R_C) + get_var_frac(R_T)) / 2);
	if (LINE - get_var_frac(R_C) <= END_EPS) {
		set_var_frac(R_C, LINE);
		set_var_uint(CONGESTED, 0);
	}
}

int algorithm_main()
{
	pcm_uint now = get_signal(NOW);
	bool due = now - get_var_uint(T_HALF) >= HALF;

	if (!get_var_uint(CONGESTED)) {
		if (cnps(ALGO_CTX_PASS))
			begin(ALGO_CTX_PASS);
		else if (due)
			set_var_uint(HALF_TX, get_signal(TX_BYTES)); /* so that the first CNP is held against packets of late */
		else
			return PCM_SUCCESS;
		set_var_uint(T_HALF, now);
	} else if (due) {
		set_var_uint(T_HALF, get_var_uint(T_HALF) + HALF);
		estimate(ALGO_CTX_PASS);
		if (get_var_uint(INCREASE_NEXT))
			increase(ALGO_CTX_PASS);
		else
			reduce(ALGO_CTX_PASS);
		set_var_uint(INCREASE_NEXT, !get_var_uint(INCREASE_NEXT));
	}
	set_control(RATE, frac_to_uint(get_var_frac(R_C)));
	return PCM_SUCCESS;
}
