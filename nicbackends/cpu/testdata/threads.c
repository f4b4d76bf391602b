/*
 * Two flows of the package counted. Two threads of the datapath note each event in both of them, and one control plane serves the flows
 * meanwhile. In the second flow the handler fails half way. Everything is printed in the end, when it is quiet; the test judges it.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include "pcm_shell.h"

enum { ACK = 1 << 0, RTO = 1 << 1, RTT = 1 << 4, DATA_TX = 1 << 5, IN_FLIGHT = 1 << 7, CNP = 1 << 14, TX_BYTES = 1 << 15 };

static struct pcm_flow *flows[2];
static uint64_t events;
static atomic_uint running = 2;

static void *datapath(void *arg)
{
	uint64_t me = (uint64_t)(uintptr_t)arg, seen = 0;

	for (uint64_t i = 0; i < events; i++) {
		struct pcm_input in = {.mask = ACK | RTT | DATA_TX | IN_FLIGHT | CNP | TX_BYTES, .now = i, .ack = 1, .data_tx = 1, .cnp = 2, .tx_bytes = 3, .in_flight = i};
		struct pcm_output out;

		in.rtt = 1000 + 2 * ((i * 7919 + me * 31) % 5000) + me; /* 1000 to 10999, each thread has its own */
		pcm_note(flows[0], &in);
		if (me == 0 && i == events / 2) {
			in.mask |= RTO;
			in.rto = 1;
		}
		pcm_note(flows[1], &in);
		pcm_read(flows[0], &out);
		if (out.cwnd < seen)
			abort(); /* a control that went back */
		seen = out.cwnd;
	}
	atomic_fetch_sub(&running, 1);
	return NULL;
}

static void *control(void *arg)
{
	struct pcm_output out;

	(void)arg;
	while (atomic_load(&running))
		for (int i = 0; i < 2; i++)
			pcm_serve(flows[i], 1, &out);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[3];

	events = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
	for (int i = 0; i < 2; i++)
		flows[i] = pcm_create(0, 1);
	pthread_create(&t[0], NULL, control, NULL);
	pthread_create(&t[1], NULL, datapath, (void *)0);
	pthread_create(&t[2], NULL, datapath, (void *)1);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < 2; i++) {
		struct pcm_output out;

		pcm_serve(flows[i], 2, &out); /* what was left */
		printf("%" PRIu64 " %" PRIu64, out.failed, out.cwnd);
		for (uint32_t v = 0; v < 6; v++) {
			uint64_t n = pcm_peek(flows[i], PCM_PART_VARIABLE, v);

			/* A relaxed run may fall between the parts of an update: what follows the trigger stays for the next run, and is not lost. */
			if (v == 2)
				n += pcm_peek(flows[i], PCM_PART_SIGNAL, 1) - 5;
			if (v == 3)
				n += pcm_peek(flows[i], PCM_PART_SIGNAL, 5);
			printf(" %" PRIu64, n);
		}
		printf(" %" PRIu64 " %" PRIu64 "\n", pcm_peek(flows[i], PCM_PART_SIGNAL, 0), pcm_peek(flows[i], PCM_PART_SIGNAL, 7));
		pcm_destroy(flows[i]);
	}
	return 0;
}
