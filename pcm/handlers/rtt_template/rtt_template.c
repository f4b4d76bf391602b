/*
 * The law of NVIDIA's RTT template for programmable congestion control, in integers. Kept as it is: the first sample below the least
 * one counts whole as queueing delay, so that an idle flow may decrease once; CNPs and NACKs wait for the next sample.
 */
#include "pcmh.h"
#include "rtt_template.h"

static inline pcm_uint less(pcm_uint rate, pcm_uint factors) { return (65536 - factors * UPDATE_FACTOR) * rate >> 16; }

static inline pcm_uint sampled(ALGO_CTX_ARGS, pcm_uint rate, pcm_uint rtt)
{
	pcm_uint delay;

	if ((get_signal(NOW) & 0xff) == 0)
		set_var_uint(MIN_RTT, INITIAL_MIN_RTT); /* now and then, since paths change */
	if (get_var_uint(WAS_NACK) && rtt >= MAX_DELAY) {
		set_var_uint(WAS_NACK, 0);
		rate = less(rate, 5);
	} else if (get_var_uint(WAS_CNP) || rtt >= MAX_DELAY) {
		set_var_uint(WAS_CNP, 0);
		rate = less(rate, 2);
	} else {
		if (rtt >= get_var_uint(MIN_RTT)) {
			delay = rtt - get_var_uint(MIN_RTT);
		} else {
			set_var_uint(MIN_RTT, rtt);
			delay = rtt;
		}
		rate = delay > BASE_RELATIVE_RTT ? less(rate, 1) : rate + AI;
	}
	return MIN(MAX(rate, (pcm_uint)MIN_RATE), (pcm_uint)MAX_RATE);
}

/* A burst was sent: true when another probe is to go. */
static inline bool probe_again(ALGO_CTX_ARGS)
{
	pcm_uint aborts = get_var_uint(ABORTS);
	bool late = get_signal(NOW) - get_var_uint(T_PROBE) > (pcm_uint)ABORT_TIME << aborts;

	set_var_uint(BURSTS, get_var_uint(BURSTS) + 1);
	if (get_var_uint(PROBED) && late)
		set_var_uint(ABORTS, MIN(aborts + 1, (pcm_uint)MAX_ABORTS));
	return !get_var_uint(PROBED) || late || get_var_uint(BURSTS) > MAX_TX;
}

int algorithm_main()
{
	pcm_uint fired = get_signal_trigger_mask(), rate = get_var_uint(FXP_RATE);
	bool probe = false;

	if (fired & CNP)
		set_var_uint(WAS_CNP, 1);
	if (fired & NACK)
		set_var_uint(WAS_NACK, 1);
	if (fired & TX_BYTES) {
		if (rate == 0)
			rate = NEW_FLOW_RATE;
		probe = probe_again(ALGO_CTX_PASS);
	}
	if (fired & RTT) {
		rate = sampled(ALGO_CTX_PASS, rate, get_signal(RTT));
		set_var_uint(ABORTS, 0);
		probe = true;
	}
	if (probe) {
		set_var_uint(PROBED, 1);
		set_var_uint(T_PROBE, get_signal(NOW));
		set_var_uint(BURSTS, 0);
	}
	set_var_uint(FXP_RATE, rate);
	set_control(PROBE, probe);
	set_control(RATE, MAX(rate * LINE >> 20, (pcm_uint)1));
	return PCM_SUCCESS;
}
