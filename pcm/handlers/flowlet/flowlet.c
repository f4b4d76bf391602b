/* LetFlow (Vanini et al., NSDI 2017). */
#include "pcmh.h"
#include "flowlet.h"

int algorithm_main()
{
	pcm_uint now = get_signal(NOW);

	if (!get_var_uint(STARTED) || now - get_var_uint(LAST_TX) > GAP) {
		set_var_uint(STARTED, 1);
		set_control(PATH, RAND() & EV_MASK);
	}
	set_var_uint(LAST_TX, now);
	return PCM_SUCCESS;
}
