/*
 * The credit of an EQDS receiver (Olteanu et al., NSDI 2022). A target that comes late or out of order is below the largest one and
 * changes nothing. When grants leave, and whose turn it is, is the shell's business.
 */
#include "pcmh.h"
#include "eqds.h"

int algorithm_main()
{
	pcm_uint target = get_signal(PULL_TARGET), granted = get_control(PULL_NO), demand = target > granted ? target - granted : 0;

	granted += MIN(demand, (pcm_uint)CREDITS_PER_PULL);
	set_control(PULL_NO, granted);
	set_signal(NEEDS_MORE, target > granted);
	return PCM_SUCCESS;
}
