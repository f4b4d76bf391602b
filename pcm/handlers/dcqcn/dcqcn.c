/* The reaction point of DCQCN (Zhu et al., SIGCOMM 2015, section 5). A batch of CNPs cuts once: the notifier spaces them already. */
#include "pcmh.h"
#include "pcm_arith.h"
#include "dcqcn.h"

/* One step up, after the count that led to it. */
static inline void increase(ALGO_CTX_ARGS)
{
	pcm_uint most = MAX(get_var_uint(T), get_var_uint(BC)), least = MIN(get_var_uint(T), get_var_uint(BC));
	pcm_frac target = get_var_frac(R_T);

	if (least > F)
		target += R_HAI;
	else if (most > F)
		target += R_AI;
	target = MIN(target, LINE);
	set_var_frac(R_T, target);
	set_var_frac(R_C, MIN((target + get_var_frac(R_C)) / 2, LINE));
}

int algorithm_main()
{
	pcm_uint now = get_signal(NOW), sent = get_signal(TX_BYTES);

	if (get_signal_trigger_mask() & CNP) { /* before timers that are due, which it restarts */
		pcm_frac alpha = get_var_frac(ALPHA), rate = get_var_frac(R_C);

		set_var_frac(R_T, rate);
		set_var_frac(R_C, MAX(frac_mul(rate, FRAC(1) - alpha / 2), R_MIN));
		set_var_frac(ALPHA, frac_mul(FRAC(1) - G, alpha) + G);
		set_var_uint(T, 0);
		set_var_uint(BC, 0);
		set_var_uint(T_ALPHA, now);
		set_var_uint(T_RATE, now);
		set_var_uint(BYTES_FROM, sent);
	}
	/* At most one expiry of each in a call; what is late is made good in the next ones. */
	if (now - get_var_uint(T_ALPHA) >= ALPHA_TIMER) {
		set_var_uint(T_ALPHA, get_var_uint(T_ALPHA) + ALPHA_TIMER);
		set_var_frac(ALPHA, frac_mul(FRAC(1) - G, get_var_frac(ALPHA)));
	}
	if (now - get_var_uint(T_RATE) >= RATE_TIMER) {
		set_var_uint(T_RATE, get_var_uint(T_RATE) + RATE_TIMER);
		set_var_uint(T, get_var_uint(T) + 1);
		increase(ALGO_CTX_PASS);
	}
	if (sent - get_var_uint(BYTES_FROM) >= BYTES) {
		set_var_uint(BYTES_FROM, get_var_uint(BYTES_FROM) + BYTES);
		set_var_uint(BC, get_var_uint(BC) + 1);
		increase(ALGO_CTX_PASS);
	}
	set_control(RATE, MAX(frac_to_uint(get_var_frac(R_C)), (pcm_uint)1));
	return PCM_SUCCESS;
}
