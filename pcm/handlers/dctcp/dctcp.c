/* DCTCP (Alizadeh et al., SIGCOMM 2010; RFC 8257): losses are those of NewReno, marks shrink the window once in each of its lengths. */
#include "pcmh.h"
#include "pcm_arith.h"
#include "dctcp.h"

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

/* At the end of a window: its share of marks joins the average, which cuts the window if there were any. */
static inline pcm_uint window_ended(ALGO_CTX_ARGS, pcm_uint w, pcm_uint acked, pcm_uint marked)
{
	pcm_frac alpha = frac_mul(FRAC(1) - G, get_var_frac(ALPHA)) + frac_mul(G, frac_ratio(marked, acked));

	set_var_frac(ALPHA, alpha);
	return marked ? MAX(frac_scale(w, FRAC(1) - alpha / 2), (pcm_uint)MIN_PKTS) : w;
}

int algorithm_main()
{
	pcm_uint fired = get_signal_trigger_mask(), w = get_var_uint(W), half = MAX(w >> 1, (pcm_uint)MIN_SSTHRESH);
	pcm_uint acked = get_signal(ACK) - get_var_uint(PREV_ACK), marked = get_var_uint(EPOCH_ECN) + get_signal(ECN) - get_var_uint(PREV_ECN);
	pcm_uint seen = get_var_uint(EPOCH_ACKED) + acked;
	bool cut = false;

	set_var_uint(PREV_ACK, get_signal(ACK)); /* in any case: what came with a loss is not looked at again */
	set_var_uint(PREV_ECN, get_signal(ECN));

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
		if (seen >= get_var_uint(EPOCH_TARGET)) {
			cut = marked > 0;
			w = window_ended(ALGO_CTX_PASS, w, seen, marked);
			if (cut) {
				set_var_uint(SSTHRESH, w);
				set_var_uint(IN_FR, 0);
			}
			seen = marked = 0;
			set_var_uint(EPOCH_TARGET, w);
		}
		if (get_var_uint(IN_FR)) { /* this one takes the inflation back */
			set_var_uint(IN_FR, 0);
			w = get_var_uint(SSTHRESH);
			acked--;
		}
		if (!cut)
			w = MIN(grown(ALGO_CTX_PASS, w, acked), (pcm_uint)MAX_PKTS);
	}
	set_var_uint(EPOCH_ACKED, seen);
	set_var_uint(EPOCH_ECN, marked);
	set_var_uint(W, w);
	set_control(CWND, w * MSS);
	return PCM_SUCCESS;
}
