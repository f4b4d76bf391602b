#include "pcmh.h"
#include "counted.h"

int algorithm_main()
{
	pcm_uint a = get_signal(A), b = get_signal(B), apart = a > b ? a - b : b - a;

	set_var_uint(RUNS, get_var_uint(RUNS) + 1);
	set_var_uint(WORST, MAX(get_var_uint(WORST), apart));
	set_var_uint(TOTAL, get_var_uint(TOTAL) + get_signal(RESET) - 5);
	set_var_uint(TAKEN, get_var_uint(TAKEN) + get_signal(GIVEN));
	update_signal(GIVEN, -get_signal(GIVEN));
	set_var_uint(LEAST, MIN(get_var_uint(LEAST), get_signal(LOWEST)));
	set_var_uint(MOST, MAX(get_var_uint(MOST), get_signal(HIGHEST)));
	set_control(CWND, a);
	return get_signal(STOP) ? 7 : PCM_SUCCESS;
}
