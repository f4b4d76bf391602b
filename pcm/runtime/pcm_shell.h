/*
 * The C interface of a compiled shell: one shared object per handler package and deployment.
 *
 * A caller creates a flow, flushes what happened to it, and reads what it is to do. Times are nanoseconds of any clock that does
 * not go back; the shell converts them into the unit of the package. A flow belongs to one thread at a time, but for shells that
 * were built for an asynchronous control plane.
 */
#ifndef PCM_SHELL_H
#define PCM_SHELL_H

#include <stddef.h>
#include <stdint.h>

#define PCM_SHELL_ABI 1

#ifndef PCM_SHELL_EXPORT /* a shell's build says how its interface is made visible */
#define PCM_SHELL_EXPORT
#endif

/* Which fields of an input count: bit i is the i-th of them. */
struct pcm_input {
	uint64_t mask;
	uint64_t now; /* ns */
	uint64_t ack, rto, nack, ecn, rtt, data_tx, data_nacked, in_flight, elapsed_time, ack_ev, ecn_ev, nack_ev, tx_ready_pkts, tx_backlog_bytes;
	uint64_t cnp, tx_bytes, queue, pull_target, loopback;
};

/* What the flow is to do. A control that the package does not have is all ones. */
struct pcm_output {
	uint64_t cwnd, rate, ev, pull_no, rtt_probe;
	uint64_t fired;  /* mask of the signals that made the handler run at this flush; 0: it did not */
	uint64_t failed; /* what the handler returned when it failed, which stopped it for this flow; 0: it goes on */
};

struct pcm_flow;

struct pcm_event {
	struct pcm_flow *flow;
	struct pcm_input in;
};

struct pcm_info {
	uint32_t abi;
	uint32_t flow_bytes;
	const char *name;   /* of the package */
	const char *hash;   /* SHA-256 of its sources and constants, in hexadecimal */
	uint64_t sources;   /* mask of the inputs that it reads */
	uint64_t controls;  /* mask of the outputs that it sets */
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

/* For tests and diagnostics: a control, in the package's order, and a 64-bit word of the variables. */
enum pcm_part { PCM_PART_CONTROL, PCM_PART_VARIABLE, PCM_PART_SIGNAL };
PCM_SHELL_EXPORT uint64_t pcm_peek(const struct pcm_flow *, enum pcm_part, uint32_t index);
PCM_SHELL_EXPORT void pcm_poke(struct pcm_flow *, enum pcm_part, uint32_t index, uint64_t value);

#ifdef __cplusplus
}
#endif
#endif
