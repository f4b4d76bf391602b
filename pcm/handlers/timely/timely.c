/* TIMELY (Mittal et al., SIGCOMM 2015) with the patch of Zhu et al., CoNEXT 2016. Delays are in microseconds, to be small numbers. */
#include "pcmh.h"
#include "pcm_arith.h"
#include "timely.h"

static inline pcm_frac next_rate(pcm_frac rate, pcm_frac rtt, pcm_frac diff, pcm_frac share)
{
	pcm_frac more = frac_mul(share, ADD_RATE), less = frac_mul(share, BETA);

	if (rtt < T_LOW)
		return rate + more;
	if (rtt > T_HIGH)
		return frac_mul(rate, FRAC(1) - frac_mul(less, FRAC(1) - frac_div(T_HIGH, rtt)));
	pcm_frac weight = MAX(MIN(2 * frac_div(diff, MIN_RTT) + FRAC(0.5), FRAC(1)), FRAC(0));
	pcm_frac excess = frac_div(rtt - T_LOW, T_LOW);
	return frac_mul(rate, FRAC(1) - frac_mul(less, frac_mul(weight, excess))) + frac_mul(more, FRAC(1) - weight);
}

int algorithm_main()
{
	pcm_uint since = get_signal(NOW) - get_var_uint(LAST);
	pcm_frac rtt = frac_ratio(get_signal(RTT), MICROSECOND), rate = get_var_frac(R), diff;

	if ((rate >= LINE && rtt <= T_LOW) || rtt < MIN_RTT)
		return PCM_SUCCESS;
	diff = frac_mul(FRAC(1) - EWMA, get_var_frac(AVG_DIFF)) + frac_mul(EWMA, rtt - get_var_frac(PREV_RTT));
	/* Samples that come faster than the least round trip change the rate by as much less. */
	rate = MAX(next_rate(rate, rtt, diff, MIN(frac_div(frac_ratio(since, MICROSECOND), MIN_RTT), FRAC(1))), rate / 2);
	rate = MAX(MIN(rate, LINE), MIN_RATE);
	set_var_frac(R, rate);
	set_var_frac(AVG_DIFF, diff);
	set_var_frac(PREV_RTT, rtt);
	set_var_uint(LAST, get_signal(NOW));
	set_control(RATE, frac_to_uint(rate));
	return PCM_SUCCESS;
}
