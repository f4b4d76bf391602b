#include "pcmh.h"
#include "accumulate.h"

int algorithm_main()
{
	return PCM_SUCCESS;
}
