/*
 * Swift as it is written, with the window in fractions. It is here to be held against swift: its square root and divisions cost what
 * they cost, and in Q16.16 its window wraps at 32 KiB (ALGORITHMS.md, C.5).
 */
#include "pcmh.h"
#include "pcm_arith.h"
#include "swift_divide.h"

static inline pcm_frac target_delay(pcm_frac window)
{
	pcm_frac packets = INT_DIV ? frac_of_uint(frac_to_uint(window) / MSS) : frac_div(window, FRAC(MSS)), scaling = FRAC(FS_RANGE);

	if (window <= FRAC(0))
		scaling = FRAC(0);
	else if (packets > FRAC(0))
		scaling = MAX(MIN(frac_div(FS_ALPHA, frac_sqrt(packets)) + FS_BETA, FRAC(FS_RANGE)), FRAC(0));
	return FIXED_TARGET + scaling;
}

int algorithm_main()
{
	pcm_uint fired = get_signal_trigger_mask(), now = get_signal(NOW), rtt = get_signal(RTT), before = get_control(CWND), cwnd;
	pcm_frac window = frac_of_uint(before), acked = frac_of_uint(get_signal(ACKED_BYTES));
	bool can_decrease = now - get_var_uint(T_LAST_DEC) >= get_var_uint(RTT_EST); /* before the estimate moves */

	if (rtt)
		set_var_uint(RTT_EST, get_var_uint(RTT_EST) ? 7 * get_var_uint(RTT_EST) / 8 + rtt / 8 : rtt);

	if (fired & NACK) {
		set_var_uint(RETX, 0);
		if (can_decrease)
			window = frac_mul(window, FRAC(1) - MAX_MDF);
	} else if (fired & RTO) {
		set_var_uint(RETX, get_var_uint(RETX) + 1);
		if (get_var_uint(RETX) >= RETX_RESET)
			window = FRAC(MIN_CWND);
		else if (can_decrease)
			window = frac_mul(window, FRAC(1) - MAX_MDF);
	} else {
		pcm_frac delay = frac_of_uint(rtt), target = target_delay(window);

		set_var_uint(RETX, 0);
		if (delay < target)
			window += frac_mul(FRAC(AI), window < FRAC(MSS) ? acked : frac_mul(frac_div(acked, window), FRAC(MSS)));
		else if (can_decrease)
			window = frac_mul(window, MAX(FRAC(1) - frac_mul(BETA, frac_div(delay - target, delay)), FRAC(1) - MAX_MDF));
	}

	cwnd = MIN(MAX(frac_to_uint(window), (pcm_uint)MIN_CWND), (pcm_uint)MAX_CWND);
	if (cwnd < before)
		set_var_uint(T_LAST_DEC, now);
	set_control(CWND, cwnd);
	return PCM_SUCCESS;
}
