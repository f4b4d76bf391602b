/*
 * Swift (Kumar et al., SIGCOMM 2020, algorithm 1), in the order of events of the htsim simulator. Nothing is divided in fixed
 * point: an inverse square root and a reciprocal, which only multiply, take the places of the law's divisions, for cores whose divide
 * is slow (ALGORITHMS.md, C.4). swift_divide has the law as it is written.
 */
#include "pcmh.h"
#include "pcm_arith.h"
#include "swift.h"

/* The delay that is aimed at: fixed, plus what flow scaling adds for small windows. */
static inline pcm_frac target_delay(pcm_uint cwnd)
{
	pcm_frac packets = INT_DIV ? frac_of_uint(cwnd / MSS) : frac_mul(frac_of_uint(cwnd), FRAC(1.0 / MSS));
	pcm_frac scaling = FRAC(FS_RANGE);

	if (cwnd == 0)
		scaling = FRAC(0);
	else if (packets > FRAC(0))
		scaling = MAX(MIN(frac_mul_rsqrt(FS_ALPHA, packets) + FS_BETA, FRAC(FS_RANGE)), FRAC(0));
	return FIXED_TARGET + scaling;
}

/* What a delay beyond the target leaves of the window. Both are made small first, or the reciprocal would have few bits. */
static inline pcm_frac share_left(pcm_frac delay, pcm_frac target)
{
	pcm_frac ratio = frac_mul_recip(target / NEAR_BASE, delay / NEAR_BASE);
	return MAX(FRAC(1) - BETA + frac_mul(BETA, ratio), FRAC(1) - MAX_MDF);
}

int algorithm_main()
{
	pcm_uint fired = get_signal_trigger_mask(), now = get_signal(NOW), rtt = get_signal(RTT), before = get_control(CWND), cwnd = before;
	bool can_decrease = now - get_var_uint(T_LAST_DEC) >= get_var_uint(RTT_EST); /* before the estimate moves */

	if (rtt)
		set_var_uint(RTT_EST, get_var_uint(RTT_EST) ? 7 * get_var_uint(RTT_EST) / 8 + rtt / 8 : rtt);

	if (fired & NACK) {
		set_var_uint(RETX, 0);
		if (can_decrease)
			cwnd = frac_scale(cwnd, FRAC(1) - MAX_MDF);
	} else if (fired & RTO) {
		set_var_uint(RETX, get_var_uint(RETX) + 1);
		if (get_var_uint(RETX) >= RETX_RESET)
			cwnd = MIN_CWND;
		else if (can_decrease)
			cwnd = frac_scale(cwnd, FRAC(1) - MAX_MDF);
	} else {
		pcm_frac delay = frac_of_uint(rtt), target = target_delay(cwnd);

		set_var_uint(RETX, 0);
		if (delay < target)
			cwnd += cwnd < MSS ? AI * get_signal(ACKED_BYTES) : AI * MSS * get_signal(ACKED_BYTES) / cwnd;
		else if (can_decrease)
			cwnd = frac_scale(cwnd, share_left(delay, target));
	}

	cwnd = MIN(MAX(cwnd, (pcm_uint)MIN_CWND), (pcm_uint)MAX_CWND);
	if (cwnd < before)
		set_var_uint(T_LAST_DEC, now);
	set_control(CWND, cwnd);
	return PCM_SUCCESS;
}
