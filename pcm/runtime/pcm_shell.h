/*
 * The C interface of a compiled shell: one shared object per handler package and deployment.
 *
 * A caller creates a flow, flushes what happened to it, and reads what it is to do. Times are ticks of any clock that does not go
 * back, nanoseconds unless the shell was built for another tick; the shell converts them into the unit of the package.
 *
 * A synchronous shell's flow belongs to one thread at a time. An asynchronous one has two halves: any threads of the datapath call
 * pcm_note and pcm_read, while one thread of the control plane calls pcm_serve. pcm_flush is the three in one thread, which is then
 * the control plane's. Both kinds have all of these functions.
 */
#ifndef PCM_SHELL_H
#define PCM_SHELL_H

#include <stddef.h>
#include <stdint.h>

#define PCM_SHELL_ABI 3

#ifndef PCM_SHELL_EXPORT /* a shell's build says how its interface is made visible */
#define PCM_SHELL_EXPORT
#endif

/* Which fields of an input count: bit i is the i-th of them. */
struct pcm_input {
	uint64_t mask;
	uint64_t now; /* ticks, ns unless built otherwise */
	uint64_t ack, rto, nack, ecn, rtt, data_tx, data_nacked, in_flight, elapsed_time, ack_ev, ecn_ev, nack_ev, tx_ready_pkts, tx_backlog_bytes;
	uint64_t cnp, tx_bytes, queue, pull_target, loopback;
};

/*
 * What the flow is to do. A shell writes the controls that its package has, fired and failed; the others stay as they are, so that nothing
 * is written twice that never changes. Begin with PCM_OUTPUT_NONE, in which every control is all ones.
 */
struct pcm_output {
	uint64_t cwnd, rate, ev, pull_no, rtt_probe;
	uint64_t fired;  /* mask of the signals that made the handler run at this call; 0: it did not */
	uint64_t failed; /* what the handler returned when it failed, which stopped it for this flow; 0: it goes on */
};

#define PCM_OUTPUT_NONE {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, 0, 0}

struct pcm_flow;

struct pcm_event {
	struct pcm_flow *flow;
	struct pcm_input in;
};

/* How the handler gets its signals: in the thread of the datapath, or in one of its own under a policy of snapshots. */
enum pcm_kind {
	PCM_SYNCHRONOUS,
	PCM_RELAXED,      /* each signal for itself: they may be of different updates */
	PCM_ZERO_SKEW,    /* all signals of the same updates */
	PCM_BOUNDED_SKEW, /* at most so many updates apart */
};

struct pcm_info {
	uint32_t abi;
	uint32_t flow_bytes;
	const char *name;   /* of the package */
	const char *hash;   /* SHA-256 of its sources and constants, in hexadecimal */
	uint64_t sources;   /* mask of the inputs that it reads */
	uint64_t controls;  /* mask of the outputs that it sets */
	uint32_t kind;      /* enum pcm_kind */
	uint32_t reserved;  /* 0 */
	uint64_t skew;      /* of PCM_BOUNDED_SKEW, in updates */
	uint64_t tick_num, tick_den; /* a tick of the caller's clock is num / den ns */
};

#ifdef __cplusplus
extern "C" {
#endif

PCM_SHELL_EXPORT const struct pcm_info *pcm_get_info(void);
/* A new flow that begins now; seed is that of its random numbers. NULL: no memory. */
PCM_SHELL_EXPORT struct pcm_flow *pcm_create(uint64_t now, uint64_t seed);
PCM_SHELL_EXPORT void pcm_destroy(struct pcm_flow *);
/* Takes what happened, runs the handler if one of its triggers fires, and says what to do. */
PCM_SHELL_EXPORT void pcm_flush(struct pcm_flow *, const struct pcm_input *, struct pcm_output *);
/* pcm_flush of n events in order, of any flows. */
PCM_SHELL_EXPORT void pcm_batch(const struct pcm_event *, size_t n, struct pcm_output *);
/* What to do, without an event. */
PCM_SHELL_EXPORT void pcm_read(const struct pcm_flow *, struct pcm_output *);

/*
 * The datapath's half: takes what happened. Not 0 says that the handler is due: serve the flow. Triggers that look at the clock come
 * due without a call, so a control plane serves such flows from time to time, too.
 */
PCM_SHELL_EXPORT int pcm_note(struct pcm_flow *, const struct pcm_input *);
/*
 * The control plane's half: runs the handler if one of its triggers fires, and says what to do. Not 0 says that it is due again, or
 * still: updates came so fast that no snapshot was within its skew.
 */
PCM_SHELL_EXPORT int pcm_serve(struct pcm_flow *, uint64_t now, struct pcm_output *);

/* For tests and diagnostics: a control, in the package's order, and a 64-bit word of the variables. */
enum pcm_part { PCM_PART_CONTROL, PCM_PART_VARIABLE, PCM_PART_SIGNAL };
PCM_SHELL_EXPORT uint64_t pcm_peek(const struct pcm_flow *, enum pcm_part, uint32_t index);
PCM_SHELL_EXPORT void pcm_poke(struct pcm_flow *, enum pcm_part, uint32_t index, uint64_t value);

#ifdef __cplusplus
}
#endif
#endif
