/* Protective load balancing (Qureshi et al., SIGCOMM 2022). A round is a round trip by the clock. */
#include "pcmh.h"
#include "pcm_arith.h"
#include "plb.h"

int algorithm_main()
{
	pcm_uint acked = get_signal(ACK) - get_var_uint(PREV_ACK), marked = get_signal(ECN) - get_var_uint(PREV_ECN), streak = get_var_uint(STREAK);

	if (get_signal_trigger_mask() & RTO) {
		streak = ROUNDS;
	} else if (acked && get_signal(NOW) >= get_var_uint(ROUND_END)) {
		streak = frac_ratio(marked, acked) > CONGESTED ? streak + 1 : 0;
		set_var_uint(PREV_ACK, get_signal(ACK));
		set_var_uint(PREV_ECN, get_signal(ECN));
		set_var_uint(ROUND_END, get_signal(NOW) + get_signal(RTT));
	}
	if (streak >= ROUNDS) {
		set_control(PATH, RAND() & EV_MASK);
		streak = 0;
	}
	set_var_uint(STREAK, streak);
	return PCM_SUCCESS;
}
