/* REPS, recycled entropy packet spraying (Bonato et al., 2024). At most one path is kept for each call: that of the last acknowledgement. */
#include "pcmh.h"
#include "reps.h"

#define RING(I) ((I) & (SIZE - 1))
#define BIT(I) ((pcm_uint)1 << RING(I))

static inline void keep(ALGO_CTX_ARGS, pcm_uint ev)
{
	pcm_uint head = get_var_uint(HEAD);

	if (!(get_var_uint(VALID) & BIT(head)))
		set_var_uint(FRESH, MIN(get_var_uint(FRESH) + 1, (pcm_uint)SIZE));
	set_arr_uint(EVC, RING(head), ev);
	set_var_uint(VALID, get_var_uint(VALID) | BIT(head));
	set_var_uint(HEAD, RING(head + 1));
	set_var_uint(COUNT, MIN(get_var_uint(COUNT) + 1, (pcm_uint)SIZE));
}

static inline pcm_uint take(ALGO_CTX_ARGS, pcm_uint i)
{
	if (get_var_uint(VALID) & BIT(i)) {
		set_var_uint(VALID, get_var_uint(VALID) & ~BIT(i));
		set_var_uint(FRESH, get_var_uint(FRESH) - 1);
	}
	return get_arr_uint(EVC, RING(i));
}

static inline void received(ALGO_CTX_ARGS, pcm_uint fired)
{
	bool marked = get_signal(ECN) != get_var_uint(PREV_ECN);

	set_var_uint(PREV_ECN, get_signal(ECN));
	if (get_var_uint(FROZEN) && get_signal(NOW) > get_var_uint(THAW)) { /* first, so that the acknowledgement that thaws is kept */
		set_var_uint(FROZEN, 0);
		set_var_uint(VALID, 0);
		set_var_uint(HEAD, 0);
		set_var_uint(FRESH, 0);
		set_var_uint(COUNT, 0);
		set_var_uint(FROZEN_HEAD, 0);
		set_var_uint(EXPLORING, EXPLORE);
	}
	if (fired & ACK && !marked)
		keep(ALGO_CTX_PASS, get_signal(ACK_EV));
	if (fired & RTO && !get_var_uint(FROZEN) && !get_var_uint(EXPLORING)) {
		set_var_uint(FROZEN, 1);
		set_var_uint(THAW, get_signal(NOW) + FREEZE);
	}
}

static inline pcm_uint next_path(ALGO_CTX_ARGS)
{
	pcm_uint count = get_var_uint(COUNT), at = get_var_uint(FROZEN_HEAD);

	if (get_var_uint(EXPLORING)) {
		set_var_uint(EXPLORING, get_var_uint(EXPLORING) - 1);
		return RAND() % EVS;
	}
	if (get_var_uint(FROZEN) && count) { /* all that is kept, over and over */
		set_var_uint(FROZEN_HEAD, (at + 1) % count);
		return take(ALGO_CTX_PASS, at);
	}
	if (get_var_uint(FROZEN) || !get_var_uint(FRESH) || !count)
		return RAND() % EVS;
	return take(ALGO_CTX_PASS, get_var_uint(HEAD) - get_var_uint(FRESH));
}

int algorithm_main()
{
	pcm_uint fired = get_signal_trigger_mask();

	if (fired & (ACK | NACK | RTO))
		received(ALGO_CTX_PASS, fired);
	if (fired & TX_READY)
		set_control(PATH, next_path(ALGO_CTX_PASS));
	return PCM_SUCCESS;
}
