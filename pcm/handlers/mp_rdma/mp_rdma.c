/* The window law of MP-RDMA (Lu et al., NSDI 2018), on bytes: paths are a load balancer's business. */
#include "pcmh.h"
#include "mp_rdma.h"

static inline pcm_uint less(pcm_uint cwnd, pcm_uint bytes)
{
	return cwnd > bytes ? MAX(cwnd - bytes, (pcm_uint)MSS) : (pcm_uint)MSS;
}

int algorithm_main()
{
	pcm_uint cwnd = get_control(CWND);

	if (get_signal_trigger_mask() & NACKED_BYTES) {
		/* What was acknowledged with it is left to the next call: only the baseline of losses moves. */
		pcm_uint lost = get_signal(NACKED_BYTES) - get_var_uint(PREV_NACKED_BYTES);

		set_var_uint(PREV_NACKED_BYTES, get_signal(NACKED_BYTES));
		cwnd = less(cwnd, lost);
	} else {
		pcm_uint acked = get_signal(ACKED_BYTES) - get_var_uint(PREV_ACKED_BYTES);
		bool marked = get_signal(ECN) != get_var_uint(PREV_ECN);

		set_var_uint(PREV_ACKED_BYTES, get_signal(ACKED_BYTES));
		set_var_uint(PREV_ECN, get_signal(ECN));
		cwnd = marked ? less(cwnd, acked / ECN_DIV) : cwnd + acked * MSS / cwnd;
	}
	set_control(CWND, MIN(cwnd, (pcm_uint)MAX_CWND));
	return PCM_SUCCESS;
}
