#include "pcmh.h"
#include "failing.h"

int algorithm_main()
{
	set_var_uint(CALLS, get_var_uint(CALLS) + 1);
	return get_var_uint(CALLS) < 3 ? PCM_SUCCESS : PCM_ERROR;
}
