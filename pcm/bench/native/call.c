/* The empty call: what the loop, the input and the call cost without anything behind them. */
#include "native.h"

struct pcm_flow {
	uint64_t cwnd;
};

struct pcm_flow *pcm_create(uint64_t now, uint64_t seed)
{
	(void)now;
	(void)seed;
	return calloc(1, sizeof(struct pcm_flow));
}

void pcm_flush(struct pcm_flow *f, const struct pcm_input *in, struct pcm_output *out)
{
	(void)f;
	(void)in;
	(void)out;
}

static const struct native_word native_words[] = {{PCM_PART_CONTROL, 0, offsetof(struct pcm_flow, cwnd)}};
NATIVE_INTERFACE("call")
