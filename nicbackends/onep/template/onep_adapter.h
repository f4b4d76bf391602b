/*
 * A STAND-IN. Nothing about the programming interface of Microsoft's 1P NIC is public: neither its names, nor its types, nor what its
 * events carry. This header is the one place that would know them. It assumes only what the PCM paper says (section 6.3): C code runs
 * as an asynchronous callback of congestion control, on hardware threads beside the RDMA engine, with state for each flow.
 *
 * Whoever has the interface puts its names here; pcm_onep.c includes nothing else of it and need not change:
 *
 *	ONEP_TICK_PS         the clock that events carry
 *	ONEP_CONTEXT_BYTES   what the engine keeps for a flow, all zero when the flow begins
 *	ONEP_SUMS, ONEP_VALUES   which fields of an event are which sources of signals
 *	ONEP_CONTROLS        which functions take which controls
 */
#ifndef ONEP_ADAPTER_H
#define ONEP_ADAPTER_H

#include <stdint.h>

#ifndef ONEP_TICK_PS
#define ONEP_TICK_PS 1000 /* assumed: ns */
#endif
#ifndef ONEP_CONTEXT_BYTES
#define ONEP_CONTEXT_BYTES 1024 /* assumed */
#endif

struct onep_context {
	_Alignas(64) uint64_t words[ONEP_CONTEXT_BYTES / 8];
};

/* What the engine tells of an acknowledgement, or of several that it took together. */
struct onep_event {
	uint64_t packets; /* acknowledged */
	uint64_t bytes;
	uint64_t rtt; /* ticks; 0: no sample */
};

/* X(source of signals, field): counts are summed; of values, a flow has the last, the least and the largest since it was served. */
#define ONEP_SUMS(X) X(ack, packets) X(data_tx, bytes)
#define ONEP_VALUES(X) X(rtt, rtt)

/* X(control, function): bytes, and bits per 100 ns. */
#define ONEP_CONTROLS(X) X(cwnd, CWND, onep_set_window) X(rate, RATE, onep_set_rate)
void onep_set_window(struct onep_context *, uint64_t bytes);
void onep_set_rate(struct onep_context *, uint64_t bits);

/* A handler returned an error and is stopped for this flow. */
void onep_stopped(struct onep_context *, const char *package, int64_t returned);

/* What the engine calls: onep_user_event where packets are handled, on any thread; onep_user_control on a thread for congestion control,
 * one at a time for a flow, whenever the engine has time for it. seed is that of the flow's random numbers. */
void onep_user_event(struct onep_context *, const struct onep_event *);
void onep_user_control(struct onep_context *, uint64_t now, uint64_t seed);

#endif
