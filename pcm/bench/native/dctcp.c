/* DCTCP (Alizadeh et al., SIGCOMM 2010; RFC 8257) over NewReno. */
#include "native.h"
#include "dctcp.h"

struct pcm_flow {
	uint64_t cwnd, w, ssthresh, credit, recovering;
	double alpha;
	uint64_t acked, marked, window_end; /* of the window that runs */
};

#include "reno.h"

struct pcm_flow *pcm_create(uint64_t now, uint64_t seed)
{
	struct pcm_flow *f = calloc(1, sizeof *f);
	(void)now;
	(void)seed;
	if (f)
		*f = (struct pcm_flow){.cwnd = MSS, .w = 1, .ssthresh = UINT32_MAX, .alpha = 1, .window_end = 1};
	return f;
}

/* True: the window ended, and its marks cut it. */
static bool window_ended(struct pcm_flow *f)
{
	bool cut = f->marked > 0;

	f->alpha = (1 - G) * f->alpha + G * ((double)f->marked / (double)f->acked);
	if (cut) {
		uint64_t w = (uint64_t)((double)f->w * (1 - f->alpha / 2));
		f->w = f->ssthresh = w > MIN_PKTS ? w : MIN_PKTS;
		f->recovering = 0;
	}
	f->acked = f->marked = 0;
	f->window_end = f->w;
	return cut;
}

void pcm_flush(struct pcm_flow *f, const struct pcm_input *in, struct pcm_output *out)
{
	f->acked += COUNT(ACKED_PKTS, ack);
	f->marked += COUNT(MARKED, ecn);

	if (COUNT(REFUSED, nack))
		reno_lost(f);
	else if (COUNT(TIMEOUTS, rto))
		reno_timeout(f);
	else if (COUNT(ACKED_PKTS, ack) && !(f->acked >= f->window_end && window_ended(f)))
		reno_acked(f, in->ack);
	out->cwnd = f->cwnd = f->w * MSS;
}

static const struct native_word native_words[] = {
	{PCM_PART_CONTROL, PCM_INDEX_CWND, offsetof(struct pcm_flow, cwnd)},
	{PCM_PART_VARIABLE, PCM_INDEX_W, offsetof(struct pcm_flow, w)},
	{PCM_PART_VARIABLE, PCM_INDEX_SSTHRESH, offsetof(struct pcm_flow, ssthresh)},
	{PCM_PART_VARIABLE, PCM_INDEX_TOT_ACKED, offsetof(struct pcm_flow, credit)},
	{PCM_PART_VARIABLE, PCM_INDEX_IN_FR, offsetof(struct pcm_flow, recovering)},
	{PCM_PART_VARIABLE, PCM_INDEX_ALPHA, offsetof(struct pcm_flow, alpha)},
	{PCM_PART_VARIABLE, PCM_INDEX_EPOCH_ACKED, offsetof(struct pcm_flow, acked)},
	{PCM_PART_VARIABLE, PCM_INDEX_EPOCH_ECN, offsetof(struct pcm_flow, marked)},
	{PCM_PART_VARIABLE, PCM_INDEX_EPOCH_TARGET, offsetof(struct pcm_flow, window_end)},
};
NATIVE_INTERFACE("dctcp")
