/* Oblivious packet spraying (Dixit et al., INFOCOM 2013): a round of as many packets as there are paths takes each of them once. */
#include "pcmh.h"
#include "ops.h"

int algorithm_main()
{
	pcm_uint index = get_var_uint(INDEX), mask = PATHS - 1;

	if (!get_var_uint(STARTED)) {
		set_var_uint(STARTED, 1);
		set_var_uint(PATH_RANDOM, RAND());
		set_var_uint(PATH_XOR, RAND() & mask);
	}
	set_control(PATH, ((index ^ get_var_uint(PATH_XOR)) & mask) | (get_var_uint(PATH_RANDOM) & ~mask & EV_MASK));
	index = (index + 1) & mask;
	if (index == 0)
		set_var_uint(PATH_XOR, RAND() & mask);
	set_var_uint(INDEX, index);
	return PCM_SUCCESS;
}
