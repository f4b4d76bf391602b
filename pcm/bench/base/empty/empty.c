#include "pcmh.h"
#include "empty.h"

int algorithm_main()
{
	return PCM_SUCCESS;
}
