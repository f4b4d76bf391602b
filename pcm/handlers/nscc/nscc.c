/* NSCC of the Ultra Ethernet specification 1.0, as htsim has it. Every assignment is cut to whole bytes and time units. */
#include "pcmh.h"
#include "pcm_arith.h"
#include "nscc.h"

static inline pcm_uint bounded(ALGO_CTX_ARGS, pcm_uint cwnd) { return MAX(MIN(cwnd, get_var_uint(MAXWND)), (pcm_uint)MIN_CWND); }

static inline void average(ALGO_CTX_ARGS, pcm_uint sample)
{
	pcm_frac rest = frac_mul(FRAC(1) - DELAY_ALPHA, frac_of_uint(get_var_uint(AVG_DELAY)));
	set_var_uint(AVG_DELAY, frac_to_uint(frac_mul(DELAY_ALPHA, frac_of_uint(sample)) + rest));
}

/* True: this event is dealt with. After a fall what was on its way then is ignored as long as it comes marked. */
static inline bool quick_adapt(ALGO_CTX_ARGS, pcm_uint *cwnd, bool loss, bool marked, pcm_uint delay)
{
	pcm_uint now = get_signal(NOW), end = get_var_uint(QA_END), achieved = get_var_uint(ACHIEVED);
	bool done = false;

	if (marked && get_var_uint(IGNORED) < get_var_uint(TO_IGNORE)) {
		done = true;
	} else if (now > end) {
		bool bad = loss || get_var_uint(TRIGGER_QA) || delay > QA_THRESHOLD;
		if (end && bad && achieved < get_var_uint(MAXWND) >> QA_GATE) {
			*cwnd = MAX(achieved, (pcm_uint)MTU);
			set_var_uint(TO_IGNORE, get_signal(IN_FLIGHT));
			set_var_uint(IGNORED, 0);
			set_var_uint(TRIGGER_QA, 0);
			done = true;
		}
		set_var_uint(ACHIEVED, 0);
		set_var_uint(QA_END, now + get_var_uint(BASE_RTT) + TARGET_QDELAY);
	}
	if (done) {
		set_var_uint(INC, 0);
		set_var_uint(RECEIVED, 0);
	}
	return done;
}

/* True: the path is idle, and the window has grown for it. */
static inline bool fast_increase(ALGO_CTX_ARGS, pcm_uint *cwnd, pcm_uint n, pcm_uint delay)
{
	pcm_uint count = delay < FAST_DELAY ? get_var_uint(FI_COUNT) + n : 0;
	bool on = count && (count > *cwnd || get_var_uint(INCREASE));

	set_var_uint(FI_COUNT, count);
	set_var_uint(INCREASE, on);
	if (on)
		*cwnd += frac_scale(n, FI_SCALE);
	return on;
}

static inline pcm_uint decreased(ALGO_CTX_ARGS, pcm_uint cwnd)
{
	pcm_uint avg = get_var_uint(AVG_DELAY), now = get_signal(NOW);

	set_var_uint(INCREASE, 0);
	set_var_uint(FI_COUNT, 0);
	if (avg <= TARGET_QDELAY || now - get_var_uint(T_DEC) <= get_var_uint(BASE_RTT))
		return cwnd;
	set_var_uint(T_DEC, now);
	return frac_scale(cwnd, MAX(FRAC(1) - frac_mul(GAMMA, frac_ratio(avg - TARGET_QDELAY, avg)), MD_FLOOR));
}

/* Increases are added up and applied once for a few packets or a period. */
static inline pcm_uint fulfilled(ALGO_CTX_ARGS, pcm_uint cwnd)
{
	pcm_uint since = get_signal(NOW) - get_var_uint(T_ADJ);

	if (get_var_uint(RECEIVED) <= ADJ_BYTES && since <= ADJ_PERIOD)
		return cwnd;
	cwnd += get_var_uint(INC) / cwnd;
	if (since >= ADJ_PERIOD) {
		cwnd += frac_to_uint(ETA);
		set_var_uint(T_ADJ, get_signal(NOW));
	}
	set_var_uint(INC, 0);
	set_var_uint(RECEIVED, 0);
	return cwnd;
}

static inline pcm_uint acknowledged(ALGO_CTX_ARGS, pcm_uint cwnd, pcm_uint n, bool marked)
{
	pcm_uint rtt = get_signal(RTT), delay = get_var_uint(AVG_DELAY);

	set_var_uint(ACHIEVED, get_var_uint(ACHIEVED) + n);
	set_var_uint(RECEIVED, get_var_uint(RECEIVED) + n);
	set_var_uint(IGNORED, get_var_uint(IGNORED) + n);
	if (rtt && rtt < get_var_uint(BASE_RTT)) {
		set_var_uint(BASE_RTT, rtt);
		set_var_uint(MAXWND, frac_scale(rtt, LINK_BYTES) * 3 / 2);
	}
	if (rtt) {
		delay = rtt - get_var_uint(BASE_RTT);
		/* Long delay without a mark is not the switch's: it counts as a quarter of the path's own. */
		average(ALGO_CTX_PASS, !marked && delay > TARGET_QDELAY ? get_var_uint(BASE_RTT) / 4 : delay);
	}
	if (quick_adapt(ALGO_CTX_PASS, &cwnd, false, marked, delay))
		return cwnd;
	if (marked && delay >= TARGET_QDELAY)
		cwnd = decreased(ALGO_CTX_PASS, cwnd);
	else if (!marked && delay >= TARGET_QDELAY)
		set_var_uint(INC, get_var_uint(INC) + frac_scale(n, FI));
	else if (!marked && !fast_increase(ALGO_CTX_PASS, &cwnd, n, delay))
		set_var_uint(INC, get_var_uint(INC) + frac_scale(n * (TARGET_QDELAY - delay), ALPHA));
	/* Marked without delay: the load balancer moves the packet's path. */
	return fulfilled(ALGO_CTX_PASS, bounded(ALGO_CTX_PASS, cwnd));
}

int algorithm_main()
{
	pcm_uint cwnd = get_control(CWND);

	if (get_signal_trigger_mask() & NACKED_BYTES) { /* what was acknowledged with it is left to the next call */
		pcm_uint n = get_signal(NACKED_BYTES) - get_var_uint(PREV_NACKED_BYTES);

		set_var_uint(PREV_NACKED_BYTES, get_signal(NACKED_BYTES));
		set_var_uint(IGNORED, get_var_uint(IGNORED) + n);
		average(ALGO_CTX_PASS, NETWORK_RTT);
		set_var_uint(TRIGGER_QA, 1);
		if (!quick_adapt(ALGO_CTX_PASS, &cwnd, true, true, 0))
			cwnd = cwnd > n ? cwnd - n : 0;
	} else {
		pcm_uint n = get_signal(ACKED_BYTES) - get_var_uint(PREV_ACKED_BYTES);
		bool marked = get_signal(ECN) != get_var_uint(PREV_ECN);

		set_var_uint(PREV_ACKED_BYTES, get_signal(ACKED_BYTES));
		set_var_uint(PREV_ECN, get_signal(ECN));
		cwnd = acknowledged(ALGO_CTX_PASS, cwnd, n, marked);
	}
	set_control(CWND, bounded(ALGO_CTX_PASS, cwnd));
	return PCM_SUCCESS;
}
