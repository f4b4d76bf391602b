/*
 * SMaRTT (Bonato et al., 2024). In htsim's form of it what is ignored after a quick adaptation never ends, and an acknowledgement
 * counts as one packet however much it acknowledges; both are put right here.
 */
#include "pcmh.h"
#include "pcm_arith.h"
#include "smartt.h"

static inline pcm_uint bounded(pcm_uint cwnd) { return MAX(MIN(cwnd, (pcm_uint)MAX_CWND), (pcm_uint)MIN_CWND); }

/* Once in a target round trip: a window in which something was lost becomes what arrived during the last one. */
static inline pcm_uint quick_adapt(ALGO_CTX_ARGS, pcm_uint cwnd, bool loss)
{
	pcm_uint now = get_signal(NOW), end = get_var_uint(WINDOW_END), acked = get_var_uint(ACKED);

	if (now < end)
		return cwnd;
	set_var_uint(ACKED, 0);
	set_var_uint(WINDOW_END, now + TRTT);
	if (!end || !(loss || get_var_uint(NEED_QA)))
		return cwnd;
	set_var_uint(IGNORE_FOR, get_signal(IN_FLIGHT));
	set_var_uint(IGNORED, 0);
	set_var_uint(NEED_QA, 0);
	return bounded(acked * TRTT / (now - end + TRTT));
}

static inline bool ignoring(ALGO_CTX_ARGS) { return get_var_uint(IGNORED) < get_var_uint(IGNORE_FOR); }

static inline pcm_uint lost(ALGO_CTX_ARGS, pcm_uint cwnd, pcm_uint n)
{
	if (ignoring(ALGO_CTX_PASS)) {
		set_var_uint(IGNORED, get_var_uint(IGNORED) + n);
		return cwnd;
	}
	set_var_uint(NEED_QA, 1);
	return quick_adapt(ALGO_CTX_PASS, bounded(cwnd > n ? cwnd - n : 0), true);
}

/* The four reactions to n bytes; fractions of a byte are kept until the end. */
static inline pcm_uint adjusted(pcm_uint cwnd, pcm_uint n, bool marked, pcm_uint rtt)
{
	pcm_frac w = frac_of_uint(cwnd), all = frac_of_uint(n);
	bool slow = rtt >= TRTT;

	if (marked && slow)
		w -= MIN(all, frac_mul(MD, frac_mul(all, frac_ratio(rtt - TRTT, rtt))));
	if (!marked && !slow)
		w += MIN(all, frac_mul(frac_mul(MI, FRAC(MTU)), frac_mul(frac_ratio(TRTT - rtt, rtt), frac_ratio(n, cwnd))));
	if (marked)
		w -= frac_mul(w, frac_mul(FD, frac_ratio(n, MAX_CWND)));
	else
		w += frac_mul(frac_mul(FI, FRAC(MTU)), frac_div(all, w));
	return frac_to_uint(w);
}

static inline pcm_uint acknowledged(ALGO_CTX_ARGS, pcm_uint cwnd, pcm_uint n, bool marked)
{
	pcm_uint rtt = get_signal(RTT), fast = get_var_uint(FAST_CNT) + n;

	set_var_uint(ACKED, get_var_uint(ACKED) + n);
	if (ignoring(ALGO_CTX_PASS))
		set_var_uint(IGNORED, get_var_uint(IGNORED) + n);
	if (!ignoring(ALGO_CTX_PASS))
		cwnd = quick_adapt(ALGO_CTX_PASS, cwnd, false);
	if (ignoring(ALGO_CTX_PASS) || rtt == 0)
		return cwnd;
	if (rtt >= BRTT + FAST_DELAY || marked) {
		fast = 0;
		set_var_uint(TRIGGER_WIN, cwnd);
	}
	set_var_uint(FAST_CNT, fast);
	if (fast > get_var_uint(TRIGGER_WIN))
		return cwnd + FAST_INC_MTUS * MTU;
	return adjusted(cwnd, n, marked, rtt);
}

int algorithm_main()
{
	pcm_uint fired = get_signal_trigger_mask(), cwnd = get_control(CWND);

	if (fired & (NACKED_BYTES | RTO)) { /* what was acknowledged with it is left to the next call */
		pcm_uint n = get_signal(NACKED_BYTES) - get_var_uint(PREV_NACKED_BYTES) + (get_signal(RTO) - get_var_uint(PREV_RTO)) * MTU;

		set_var_uint(PREV_NACKED_BYTES, get_signal(NACKED_BYTES));
		set_var_uint(PREV_RTO, get_signal(RTO));
		cwnd = lost(ALGO_CTX_PASS, cwnd, n);
	} else {
		pcm_uint n = get_signal(ACKED_BYTES) - get_var_uint(PREV_ACKED_BYTES);
		bool marked = get_signal(ECN) != get_var_uint(PREV_ECN);

		set_var_uint(PREV_ACKED_BYTES, get_signal(ACKED_BYTES));
		set_var_uint(PREV_ECN, get_signal(ECN));
		cwnd = acknowledged(ALGO_CTX_PASS, cwnd, n, marked);
	}
	set_control(CWND, bounded(cwnd));
	return PCM_SUCCESS;
}
