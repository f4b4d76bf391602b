#include "pcmh.h"
#include "idle.h"

int algorithm_main()
{
	return PCM_SUCCESS;
}
