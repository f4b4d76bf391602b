/* Swift (Kumar et al., SIGCOMM 2020, algorithm 1) as one would write it into a transport: no snapshot, no triggers. */
#include "native.h"
#include "swift.h"

struct pcm_flow {
	uint64_t start, cwnd, rtt_est, last_decrease, timeouts;
};

static double target_delay(uint64_t cwnd)
{
	double packets = INT_DIV ? (double)(cwnd / MSS) : (double)cwnd * (1.0 / MSS), scaling = FS_RANGE;

	if (cwnd == 0)
		scaling = 0;
	else if (packets > 0) {
		scaling = FS_ALPHA / __builtin_sqrt(packets) + FS_BETA;
		scaling = scaling > FS_RANGE ? FS_RANGE : scaling < 0 ? 0 : scaling;
	}
	return FIXED_TARGET + scaling;
}

struct pcm_flow *pcm_create(uint64_t now, uint64_t seed)
{
	struct pcm_flow *f = calloc(1, sizeof *f);
	(void)seed;
	if (f)
		*f = (struct pcm_flow){.start = now, .cwnd = FIRST_CWND, .rtt_est = BASE};
	return f;
}

void pcm_flush(struct pcm_flow *f, const struct pcm_input *in, struct pcm_output *out)
{
	uint64_t now = in->now - f->start, before = f->cwnd, cwnd = before;
	bool can_decrease = now - f->last_decrease >= f->rtt_est; /* before the estimate moves */

	if (COUNT(DELAY, rtt))
		f->rtt_est = f->rtt_est ? 7 * f->rtt_est / 8 + in->rtt / 8 : in->rtt;

	if (COUNT(REFUSED, nack)) {
		f->timeouts = 0;
		if (can_decrease)
			cwnd = (uint64_t)((double)cwnd * (1 - MAX_MDF));
	} else if (COUNT(TIMEOUTS, rto)) {
		if (++f->timeouts >= RETX_RESET)
			cwnd = MIN_CWND;
		else if (can_decrease)
			cwnd = (uint64_t)((double)cwnd * (1 - MAX_MDF));
	} else if (COUNT(ACKED_DATA, data_tx)) {
		double delay = (double)in->rtt, target = target_delay(cwnd);

		f->timeouts = 0;
		if (delay < target)
			cwnd += cwnd < MSS ? AI * in->data_tx : AI * MSS * in->data_tx / cwnd;
		else if (can_decrease) {
			double left = 1 - BETA * (delay - target) / delay;
			cwnd = (uint64_t)((double)cwnd * (left < 1 - MAX_MDF ? 1 - MAX_MDF : left));
		}
	}

	cwnd = cwnd < MIN_CWND ? MIN_CWND : cwnd > MAX_CWND ? MAX_CWND : cwnd;
	if (cwnd < before)
		f->last_decrease = now;
	f->cwnd = cwnd;
	out->cwnd = cwnd;
}

static const struct native_word native_words[] = {
	{PCM_PART_CONTROL, PCM_INDEX_CWND, offsetof(struct pcm_flow, cwnd)},
	{PCM_PART_VARIABLE, PCM_INDEX_RTT_EST, offsetof(struct pcm_flow, rtt_est)},
	{PCM_PART_VARIABLE, PCM_INDEX_T_LAST_DEC, offsetof(struct pcm_flow, last_decrease)},
	{PCM_PART_VARIABLE, PCM_INDEX_RETX, offsetof(struct pcm_flow, timeouts)},
};
NATIVE_INTERFACE("swift")
