/*
 * What a snapshot does while updates are under way, without threads: the shell is part of this file, so that updates can be left
 * half done. Prints for 0, 1, ... updates under way whether the handler ran, how far apart it saw A and B, and what it said of being due;
 * then, after all of them are done, what it saw in all.
 */
#include "shell.c"
#include <inttypes.h>
#include <stdio.h>

int main(void)
{
	struct pcm_output out;

	for (int under_way = 0; under_way < 5; under_way++) {
		struct pcm_flow *f = pcm_create(0, 1);
		const struct pcm_input in = {.mask = 1 << 0 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 14 | 1 << 15, .ack = 1, .data_tx = 1, .tx_bytes = 3, .cnp = 2, .rtt = 40, .in_flight = 9};
		int due = pcm_note(f, &in);

		printf("%d", due);
		for (int i = 0; i < under_way; i++) {
#ifdef PCM_COUNTED
			pcm_begin(&f->begun);
#endif
			pcm_sum(&f->sig[0], 1); /* A, and not yet B */
			pcm_sum(&f->sig[1], 3);
			pcm_min(&f->sig[2], 30);
			pcm_max(&f->sig[3], 50);
			pcm_last(&f->sig[4], 8);
		}
		due = pcm_serve(f, 1, &out);
		printf(" %d %" PRIu64 " %d", out.fired != 0, pcm_peek(f, PCM_PART_VARIABLE, 1), due);
		for (uint32_t i = 0; i < 5; i++)
			printf(" %" PRIu64, pcm_peek(f, PCM_PART_SIGNAL, i));
		for (int i = 0; i < under_way; i++) {
			pcm_sum(&f->sig[7], 1);
#ifdef PCM_COUNTED
			pcm_end(&f->done);
#endif
		}
		due = pcm_note(f, &in);
		due |= pcm_serve(f, 2, &out) << 1;
		printf(" | %d %" PRIu64, due, out.cwnd);
		for (uint32_t v = 2; v < 6; v++)
			printf(" %" PRIu64, pcm_peek(f, PCM_PART_VARIABLE, v));
		printf("\n");
		pcm_destroy(f);
	}
	return 0;
}
