#include "pcmh.h"
#include "quarter.h"

int algorithm_main()
{
	set_control(RATE, QUARTER);
	return PCM_SUCCESS;
}
