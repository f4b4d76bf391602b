/*
 * An engine that calls the callbacks of a shell for onep, for tests:
 *
 *	engine                  records from standard input, one struct in each: an event is noted, or the flow is served; one struct out each
 *	engine THREADS EVENTS   so many threads note events of one flow while another one serves it; then what came of it
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "onep_adapter.h"

enum { FLOWS = 16 };

struct in {
	uint64_t flow, serve, now;
	struct onep_event event;
};

struct out {
	uint64_t window, rate, published, stopped;
};

static struct onep_context flows[FLOWS];
static struct out outs[FLOWS];

void onep_set_window(struct onep_context *c, uint64_t bytes)
{
	outs[c - flows].window = bytes;
	outs[c - flows].published++;
}

void onep_set_rate(struct onep_context *c, uint64_t bits)
{
	outs[c - flows].rate = bits;
	outs[c - flows].published++;
}

void onep_stopped(struct onep_context *c, const char *package, int64_t returned)
{
	outs[c - flows].stopped = (uint64_t)returned;
	fprintf(stderr, "%s stopped on flow %d: %d\n", package, (int)(c - flows), (int)returned);
}

static int events;
static int running;

static void *note(void *arg)
{
	const uint64_t bytes = (uint64_t)(uintptr_t)arg;

	for (int i = 0; i < events; i++) {
		const struct onep_event e = {.packets = 1, .bytes = bytes, .rtt = 1000 + (uint64_t)i};
		onep_user_event(&flows[0], &e);
	}
	__atomic_fetch_sub(&running, 1, __ATOMIC_RELEASE);
	return NULL;
}

int main(int argc, char **argv)
{
	struct in in;

	if (argc == 3) {
		pthread_t threads[16];
		uint64_t now = 1, served = 0;
		const int n = atoi(argv[1]);

		events = atoi(argv[2]);
		running = n;
		for (int i = 0; i < n; i++)
			pthread_create(&threads[i], NULL, note, (void *)(uintptr_t)(i + 1));
		while (__atomic_load_n(&running, __ATOMIC_ACQUIRE) > 0) {
			onep_user_control(&flows[0], now += 100, 1);
			served++;
		}
		for (int i = 0; i < n; i++)
			pthread_join(threads[i], NULL);
		/* What was noted between the taking of packets and that of bytes waits for the next packet. */
		const struct onep_event last = {.packets = 1, .bytes = 5};
		onep_user_event(&flows[0], &last);
		onep_user_control(&flows[0], now + 100, 1);
		printf("window %llu rate %llu served %llu\n", (unsigned long long)outs[0].window, (unsigned long long)outs[0].rate, (unsigned long long)served);
		return 0;
	}
	while (fread(&in, sizeof in, 1, stdin) == 1) {
		if (in.flow >= FLOWS)
			return 3;
		outs[in.flow].published = 0;
		if (in.serve)
			onep_user_control(&flows[in.flow], in.now, in.flow);
		else
			onep_user_event(&flows[in.flow], &in.event);
		if (fwrite(&outs[in.flow], sizeof outs[0], 1, stdout) != 1)
			return 3;
	}
	return 0;
}
