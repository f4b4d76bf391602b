/* TCP CUBIC (RFC 9438), with marks taken as losses and one cut in a round trip. */
#include "pcmh.h"
#include "pcm_arith.h"
#include "cubic.h"

static inline pcm_frac plateau_after(pcm_frac w_max, pcm_frac w)
{
	return frac_cbrt(frac_div(w_max - w, CUBIC_C));
}

/* The curve at t seconds after the loss. */
static inline pcm_frac curve(pcm_frac t, pcm_frac k, pcm_frac w_max)
{
	pcm_frac d = MAX(MIN(t - k, HORIZON), -HORIZON);
	return frac_mul(CUBIC_C, frac_mul(d, frac_mul(d, d))) + w_max;
}

static inline pcm_frac cut(ALGO_CTX_ARGS, pcm_frac w, pcm_uint now, pcm_uint rtt)
{
	if (now - get_var_uint(T_DEC) < rtt)
		return w;
	/* Below the last plateau the flow makes room for others (fast convergence, section 4.7). */
	pcm_frac w_max = w < get_var_frac(W_MAX) ? frac_mul(w, (FRAC(1) + BETA) / 2) : w, less = frac_mul(BETA, w);

	w = MAX(less, MIN_W);
	set_var_frac(W_MAX, w_max);
	set_var_frac(SSTHRESH, MAX(less, MIN_SSTHRESH));
	set_var_frac(K, plateau_after(w_max, w));
	set_var_frac(W_EST, w);
	set_var_uint(EPOCH, now);
	set_var_uint(T_DEC, now);
	set_var_uint(STARTED, 1);
	return w;
}

static inline pcm_frac grown(ALGO_CTX_ARGS, pcm_frac w, pcm_frac n, pcm_uint now, pcm_uint rtt)
{
	if (w < get_var_frac(SSTHRESH)) {
		pcm_frac start = MIN(n, get_var_frac(SSTHRESH) - w);
		w += start;
		n -= start;
	}
	if (n <= FRAC(0))
		return w;
	if (!get_var_uint(STARTED)) {
		set_var_uint(STARTED, 1);
		set_var_uint(EPOCH, now);
		set_var_frac(W_MAX, MAX(get_var_frac(W_MAX), w));
		set_var_frac(K, plateau_after(get_var_frac(W_MAX), w));
		set_var_frac(W_EST, w);
	}
	pcm_uint t = now - get_var_uint(EPOCH);
	pcm_frac k = get_var_frac(K), w_max = get_var_frac(W_MAX), friendly = get_var_frac(W_EST) + frac_mul(FRIENDLY, frac_div(n, w));

	set_var_frac(W_EST, friendly);
	if (curve(frac_ratio(t, SECOND), k, w_max) < friendly)
		return MAX(w, friendly);
	pcm_frac target = MAX(MIN(curve(frac_ratio(t + rtt, SECOND), k, w_max), frac_mul(CAP, w)), w);
	return w + frac_mul(n, frac_div(target - w, w));
}

int algorithm_main()
{
	pcm_uint fired = get_signal_trigger_mask(), now = get_signal(NOW), rtt = get_signal(RTT), acked = get_signal(ACK) - get_var_uint(PREV_ACK);
	bool marked = get_signal(ECN) != get_var_uint(PREV_ECN);
	pcm_frac w = get_var_frac(W);

	set_var_uint(PREV_ACK, get_signal(ACK));
	set_var_uint(PREV_ECN, get_signal(ECN));
	if (fired & NACK || (marked && !(fired & RTO))) {
		w = cut(ALGO_CTX_PASS, w, now, rtt);
	} else if (fired & RTO) {
		set_var_frac(W_MAX, w);
		set_var_frac(SSTHRESH, MAX(frac_mul(BETA, w), MIN_SSTHRESH));
		set_var_frac(K, FRAC(0));
		set_var_uint(STARTED, 0);
		w = MIN_W;
	} else {
		w = MIN(grown(ALGO_CTX_PASS, w, frac_of_uint(acked), now, rtt), MAX_W);
	}
	set_var_frac(W, w);
	set_control(CWND, frac_scale(MSS, w));
	return PCM_SUCCESS;
}
