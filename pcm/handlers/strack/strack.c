/*
 * The path penalties of STrack (Le et al., 2024), as htsim's bitmap. A batch punishes the path of its last mark once: which paths the
 * others took is not known.
 */
#include "pcmh.h"
#include "strack.h"

#define MASK ((pcm_uint)PATHS - 1)

static inline void punish(ALGO_CTX_ARGS, pcm_uint path, pcm_uint by)
{
	path &= MASK;
	set_arr_uint(PENALTY, path, MIN(get_arr_uint(PENALTY, path) + by, (pcm_uint)MAX_PENALTY));
}

static inline pcm_uint path_here(ALGO_CTX_ARGS) { return (get_var_uint(INDEX) ^ get_var_uint(PATH_XOR)) & MASK; }

static inline void advance(ALGO_CTX_ARGS)
{
	set_var_uint(INDEX, (get_var_uint(INDEX) + 1) & MASK);
	if (get_var_uint(INDEX) == 0)
		set_var_uint(PATH_XOR, RAND() & MASK);
}

/* The next path without a penalty. The first that is passed over serves a round of its own; when all are bad it is taken after all. */
static inline pcm_uint next_path(ALGO_CTX_ARGS)
{
	pcm_uint path = path_here(ALGO_CTX_PASS);

	for (int i = 0; i <= PATHS && get_arr_uint(PENALTY, path & MASK) > 0; i++) {
		if (i == 0)
			set_arr_uint(PENALTY, path & MASK, get_arr_uint(PENALTY, path & MASK) - 1);
		if (i == PATHS)
			break;
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
	if (fired & ECN)
		punish(ALGO_CTX_PASS, get_signal(ECN_EV), PENALTY_ECN);
	if (fired & NACK)
		punish(ALGO_CTX_PASS, get_signal(NACK_EV), PENALTY_NACK);
	if (fired & RTO)
		punish(ALGO_CTX_PASS, get_signal(NACK_EV), PENALTY_RTO);
	if (fired & TX_READY)
		set_control(PATH, next_path(ALGO_CTX_PASS) | (get_var_uint(PATH_RANDOM) & ~MASK & EV_MASK));
	return PCM_SUCCESS;
}
