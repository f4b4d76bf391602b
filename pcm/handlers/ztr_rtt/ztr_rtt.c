/*
 * A reconstruction of ZTR-RTT. NVIDIA publishes its parameters and counters, not the law; the law here is ours (ALGORITHMS.md, B.15)
 * and must not be taken for what a NIC does.
 */
#include "pcmh.h"
#include "ztr_rtt.h"

#define COUNT(X) set_var_uint(X, get_var_uint(X) + 1)

static inline pcm_uint fxp16(pcm_uint factor, pcm_uint v) { return factor * v >> 16; }

static inline pcm_uint decreased(ALGO_CTX_ARGS, pcm_uint rate, pcm_uint delay)
{
	pcm_uint factor = MAX_DEC;

	set_var_uint(T_CONGESTED, get_signal(NOW));
	if (!get_var_uint(CONGESTED) && rate > RATE_ON_FIRST_CONGESTION) {
		set_var_uint(CONGESTED, 1);
		return RATE_ON_FIRST_CONGESTION;
	}
	set_var_uint(CONGESTED, 1);
	if (delay >= MAX_DELAY) {
		COUNT(HYPER_DEC);
		return fxp16(MAX_DEC, fxp16(MAX_DEC, rate));
	}
	COUNT(DEC);
	if (delay > CONGESTION_DELAY_THRESHOLD)
		factor = MAX(factor, 65536 - ALPHA * (delay - CONGESTION_DELAY_THRESHOLD) / delay);
	return fxp16(factor, rate);
}

static inline pcm_uint increased(ALGO_CTX_ARGS, pcm_uint rate)
{
	bool hyper = get_signal(NOW) - get_var_uint(T_CONGESTED) >= HAI_PERIOD;

	if (hyper)
		COUNT(HAI_INC);
	else
		COUNT(AI_INC);
	rate = MIN(rate + (hyper ? HAI : AI), MAX(fxp16(MAX_INC, rate), rate + 1));
	if (rate >= MAX_RATE)
		set_var_uint(CONGESTED, 0);
	return rate;
}

int algorithm_main()
{
	pcm_uint rtt = get_signal(RTT), rate = get_var_uint(FXP_RATE), delay = rtt;

	if (!(get_signal_trigger_mask() & RTT)) /* CNPs and NACKs wait for the next sample */
		return PCM_SUCCESS;
	if ((pcm_int)rtt <= 0) {
		COUNT(NOT_VLD_RTT);
		return PCM_SUCCESS;
	}
	COUNT(NUM_RTT);
	set_var_uint(SUM_RTT, get_var_uint(SUM_RTT) + rtt);
	set_var_uint(MIN_RTT, MIN(get_var_uint(MIN_RTT), rtt));
	set_var_uint(MAX_RTT, MAX(get_var_uint(MAX_RTT), rtt));
	if (TOPOLOGY_AWARE)
		delay = rtt - get_var_uint(MIN_RTT);

	bool told = (CNP_VALID && get_signal(CNP) != get_var_uint(PREV_CNP)) || get_signal(NACK) != get_var_uint(PREV_NACK);
	set_var_uint(PREV_CNP, get_signal(CNP));
	set_var_uint(PREV_NACK, get_signal(NACK));
	if (delay > CONGESTION_DELAY_THRESHOLD || (told && !DELAY_ONLY))
		rate = decreased(ALGO_CTX_PASS, rate, delay);
	else
		rate = increased(ALGO_CTX_PASS, rate);
	rate = MIN(MAX(rate, (pcm_uint)MIN_RATE), (pcm_uint)MAX_RATE);
	set_var_uint(FXP_RATE, rate);
	set_control(RATE, MAX(rate * LINE >> 20, (pcm_uint)1));
	return PCM_SUCCESS;
}
