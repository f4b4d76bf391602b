/* STrack's penalties (Le et al., 2024) in one bit a path: bad until an acknowledgement, or until it has been passed over once. */
#include "pcmh.h"
#include "strack_light.h"

#define MASK ((pcm_uint)PATHS - 1)

BITMAP_HELPERS_DEFINE(BAD)

static inline void note(ALGO_CTX_ARGS, pcm_uint path, bool bad) { BITMAP_HELPER_SET_ENTRY(BAD, path & MASK, bad); }

static inline pcm_uint path_here(ALGO_CTX_ARGS) { return (get_var_uint(INDEX) ^ get_var_uint(PATH_XOR)) & MASK; }

static inline void advance(ALGO_CTX_ARGS)
{
	set_var_uint(INDEX, (get_var_uint(INDEX) + 1) & MASK);
	if (get_var_uint(INDEX) == 0)
		set_var_uint(PATH_XOR, RAND() & MASK);
}

static inline pcm_uint next_path(ALGO_CTX_ARGS)
{
	pcm_uint path = path_here(ALGO_CTX_PASS);

	for (int i = 0; i < PATHS && BITMAP_HELPER_GET_ENTRY(BAD, path & MASK); i++) {
		if (i == 0)
			note(ALGO_CTX_PASS, path, false);
		advance(ALGO_CTX_PASS);
		path = path_here(ALGO_CTX_PASS);
	}
	advance(ALGO_CTX_PASS);
	return path;
}

int algorithm_main()
{
	pcm_uint fired = get_signal_trigger_mask();

	if (!get_var_uint(STARTED)) {
		set_var_uint(STARTED, 1);
		set_var_uint(PATH_RANDOM, RAND());
		set_var_uint(PATH_XOR, RAND() & MASK);
	}
	if (fired & ACK && !(fired & ECN))
		note(ALGO_CTX_PASS, get_signal(ACK_EV), false);
	if (fired & ECN)
		note(ALGO_CTX_PASS, get_signal(ECN_EV), true);
	if (fired & (NACK | RTO))
		note(ALGO_CTX_PASS, get_signal(NACK_EV), true);
	if (fired & TX_READY)
		set_control(PATH, next_path(ALGO_CTX_PASS) | (get_var_uint(PATH_RANDOM) & ~MASK & EV_MASK));
	return PCM_SUCCESS;
}
