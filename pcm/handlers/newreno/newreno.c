/*
 * TCP NewReno (RFC 5681, RFC 6582) for a transport that repeats lost packets one by one: fast recovery ends at the first
 * acknowledgement, since there is no partial one.
 */
#include "pcmh.h"
#include "newreno.h"

/* Takes acknowledged packets; w is the window. */
static inline pcm_uint grown(ALGO_CTX_ARGS, pcm_uint w, pcm_uint acked)
{
	pcm_uint total = get_var_uint(TOT_ACKED);

	if (w < get_var_uint(SSTHRESH)) {
		pcm_uint n = MIN(acked, get_var_uint(SSTHRESH) - w);
		w += n;
		acked -= n;
	}
	if (acked) {
		if (total >= w) {
			total = 0;
			w++;
		}
		total += acked;
		if (total >= w) {
			pcm_uint more = total / w;
			total -= more * w;
			w += more;
		}
		set_var_uint(TOT_ACKED, total);
	}
	return w;
}

int algorithm_main()
{
	pcm_uint fired = get_signal_trigger_mask(), w = get_var_uint(W), half = MAX(w >> 1, (pcm_uint)MIN_SSTHRESH);
	pcm_uint acked = get_signal(ACK) - get_var_uint(PREV_ACK);

	set_var_uint(PREV_ACK, get_signal(ACK)); /* in any case: what came with a loss is not looked at again */

	if (fired & NACK) {
		if (!get_var_uint(IN_FR)) {
			set_var_uint(SSTHRESH, half);
			set_var_uint(IN_FR, 1);
			w = half + INFLATION;
		}
	} else if (fired & RTO) {
		set_var_uint(SSTHRESH, half);
		set_var_uint(IN_FR, 0);
		w = 1;
	} else {
		if (get_var_uint(IN_FR)) { /* this one takes the inflation back */
			set_var_uint(IN_FR, 0);
			w = get_var_uint(SSTHRESH);
			acked--;
		}
		w = MIN(grown(ALGO_CTX_PASS, w, acked), (pcm_uint)MAX_PKTS);
	}
	set_var_uint(W, w);
	set_control(CWND, w * MSS);
	return PCM_SUCCESS;
}
