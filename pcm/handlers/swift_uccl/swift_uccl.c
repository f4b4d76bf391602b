/*
 * Swift in the profile of the UCCL transport. What differs from Swift is meant: the increase lacks the packet's size, so that large
 * windows hardly grow; no decrease is remembered, so that each one may follow the other at once; the target is that of the window
 * before the last change; there are no losses.
 */
#include "pcmh.h"
#include "pcm_arith.h"
#include "swift_uccl.h"

static inline pcm_frac target_delay(pcm_uint packets)
{
	pcm_frac scaling = FRAC(FS_RANGE);

	if (packets)
		scaling = MAX(MIN(frac_mul(FS_ALPHA, frac_rsqrt(frac_of_uint(packets))) + FS_BETA, scaling), FRAC(0));
	return FRAC(BASE) + scaling;
}

int algorithm_main()
{
	pcm_uint cwnd = get_control(CWND), before = cwnd, acked = get_signal(ACKED_BYTES) - get_var_uint(PREV_ACKED_BYTES);
	pcm_frac delay = frac_of_uint(get_signal(RTT)), target = target_delay(get_var_uint(PREV_CWND) / MSS), estimate = get_var_frac(RTT_EST);

	set_var_uint(PREV_ACKED_BYTES, get_signal(ACKED_BYTES));
	set_var_frac(RTT_EST, estimate - estimate / 8 + delay / 8);
	if (delay < target)
		cwnd += AI * acked / cwnd;
	else if (frac_of_uint(get_signal(NOW)) >= estimate)
		cwnd = frac_scale(cwnd, MAX(FRAC(1) - frac_mul(BETA, frac_div(delay - target, delay)), FRAC(1) - MAX_MDF));
	set_var_uint(PREV_CWND, before);
	set_control(CWND, MIN(MAX(cwnd, (pcm_uint)MIN_CWND), (pcm_uint)MAX_CWND));
	return PCM_SUCCESS;
}
