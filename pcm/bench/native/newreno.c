/* TCP NewReno (RFC 5681, RFC 6582) for a transport that repeats lost packets one by one. */
#include "native.h"
#include "newreno.h"

struct pcm_flow {
	uint64_t cwnd, w, ssthresh, credit, recovering;
};

#include "reno.h"

struct pcm_flow *pcm_create(uint64_t now, uint64_t seed)
{
	struct pcm_flow *f = calloc(1, sizeof *f);
	(void)now;
	(void)seed;
	if (f)
		*f = (struct pcm_flow){.cwnd = MSS, .w = 1, .ssthresh = UINT32_MAX};
	return f;
}

void pcm_flush(struct pcm_flow *f, const struct pcm_input *in, struct pcm_output *out)
{
	if (COUNT(REFUSED, nack))
		reno_lost(f);
	else if (COUNT(TIMEOUTS, rto))
		reno_timeout(f);
	else if (COUNT(ACKED_PKTS, ack))
		reno_acked(f, in->ack);
	out->cwnd = f->cwnd = f->w * MSS;
}

static const struct native_word native_words[] = {
	{PCM_PART_CONTROL, PCM_INDEX_CWND, offsetof(struct pcm_flow, cwnd)},
	{PCM_PART_VARIABLE, PCM_INDEX_W, offsetof(struct pcm_flow, w)},
	{PCM_PART_VARIABLE, PCM_INDEX_SSTHRESH, offsetof(struct pcm_flow, ssthresh)},
	{PCM_PART_VARIABLE, PCM_INDEX_TOT_ACKED, offsetof(struct pcm_flow, credit)},
	{PCM_PART_VARIABLE, PCM_INDEX_IN_FR, offsetof(struct pcm_flow, recovering)},
};
NATIVE_INTERFACE("newreno")
