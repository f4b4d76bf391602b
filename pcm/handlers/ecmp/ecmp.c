/* ECMP: the path of a flow never changes. What others are held against. */
#include "pcmh.h"
#include "ecmp.h"

int algorithm_main()
{
	if (!get_var_uint(STARTED)) {
		set_var_uint(STARTED, 1);
		set_control(PATH, RAND() & EV_MASK);
	}
	return PCM_SUCCESS;
}
