/*
 * What the benchmark and the things that it measures have in common.
 *
 * A thing to measure is a shared object with the interface of pcm_shell.h. One with another interface brings its own loop,
 * bench_loop, which does with its flows what the loops of bench.c do with those of a shell.
 */
#ifndef BENCH_H
#define BENCH_H

#include "pcm_shell.h"

struct bench_event { /* as pcm/bench writes it */
	uint32_t mask, gap, rtt, bytes, flying, path, pull, backlog;
};

/* The part of one worker: events are gone over again and again, flows in the order that is given, time goes on. */
struct bench_work {
	const struct bench_event *events;
	const uint32_t *order;
	uint64_t n_events, n_order;
	void **flows;
	uint64_t *pulls; /* pull target of each flow */
	uint64_t now;    /* ns */
	uint64_t at, turn;
	uint64_t n;     /* events to do */
	uint64_t calls; /* of handlers; what was done */
	uint64_t sum;   /* of what the flows were to do: forms of one law have the same one */
};

struct bench_step {
	const struct bench_event *event;
	uint32_t flow;
};

static inline struct bench_step bench_next(struct bench_work *w)
{
	struct bench_step s = {&w->events[w->at], w->order[w->turn]};
	if (++w->at == w->n_events)
		w->at = 0;
	if (++w->turn == w->n_order)
		w->turn = 0;
	w->now += s.event->gap;
	return s;
}

/* What a datapath does with a completion before it calls. The mask says which fields count, so the others may be anything. */
static inline void bench_fill(struct pcm_input *in, struct bench_work *w, struct bench_step s)
{
	const struct bench_event *e = s.event;
	in->mask = e->mask;
	in->now = w->now;
	in->rtt = e->rtt;
	in->data_tx = in->data_nacked = in->tx_bytes = e->bytes;
	in->in_flight = e->flying;
	in->tx_backlog_bytes = e->backlog;
	in->ack_ev = in->ecn_ev = in->nack_ev = e->path;
	in->pull_target = w->pulls[s.flow] += e->pull;
}

#define BENCH_ONES {.ack = 1, .rto = 1, .nack = 1, .ecn = 1, .tx_ready_pkts = 1, .cnp = 1}

#endif
