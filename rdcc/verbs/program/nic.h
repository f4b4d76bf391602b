/* What the parts of the program share: one device, its queue pairs, and the socket to the endpoint. */
#ifndef NIC_H
#define NIC_H

#include <infiniband/verbs.h>

#include "steer.h"

enum {
	CHAIN = 16,      /* work requests for one doorbell */
	JOBS = 1024,     /* ranges of messages that wait on a queue pair */
	SEND_DEPTH = 64, /* segments in flight on a queue pair */
	RECV_DEPTH = 256,
	PACED = 32, /* transmissions that the pacing window remembers */
	TABLE = 4096,
};

/* A range of a message that is to be posted. Ranges of a queue pair go in order. */
struct job {
	uint64_t message, next, upto;
	uint32_t segment, immediate, empty;
};

/* A work request that the NIC has. */
struct flight {
	uint64_t message, upto, at;
	uint8_t alone;
};

struct qp {
	struct ibv_qp *qp;
	struct qp *next;               /* in the table */
	struct qp *after;              /* in the list of those with jobs */
	uint64_t address, region;      /* the peer's memory */
	uint32_t rkey, max_inline;
	uint8_t connected, dead, busy; /* busy: in the list */
	uint8_t nic_rate;              /* the NIC holds the rate */

	struct job jobs[JOBS];
	uint32_t job, njobs;

	struct flight flights[SEND_DEPTH];
	uint32_t first, nflights;
	uint64_t serial; /* of the next work request */

	uint64_t rate, window;
	struct {
		uint64_t at, until, octets;
	} paced[PACED];
	uint32_t pfirst, npaced;
	uint64_t psum, not_before;

	uint64_t octets; /* arrived and not yet reported */
	uint32_t arrived, immediate;
	struct qp *heard; /* in the list of those with something to report */
};

struct nic {
	int sock;
	char name[STEER_DEVICE];
	struct ibv_context *ctx;
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	uint8_t *memory;
	uint64_t region;
	uint8_t port;
	int gid_index;
	union ibv_gid gid;
	uint32_t mtu, max_qps, nqps, flags;
	uint64_t rate_min, rate_max;
	struct qp *table[TABLE];
	struct qp *busy, *heard;
	unsigned int unacked; /* CQ events */
};

uint64_t now_ns(void);

/* device.c */
void nic_open(struct nic *n, const struct steer_open *c);
void nic_shut(struct nic *n);

/* qp.c */
struct qp *qp_find(struct nic *n, uint32_t number);
void qp_make(struct nic *n, const struct steer_qp *c);
void qp_connect(struct nic *n, const struct steer_connect *c);
void qp_close(struct nic *n, const struct steer_close *c);
int qp_receive(struct qp *q, uint32_t many);

/* post.c */
void post_add(struct nic *n, const struct steer_post *c);
void post_pace(struct nic *n, const struct steer_pace *c);
/* post_due posts what may leave; the time of the next one, UINT64_MAX when something else must happen first. */
uint64_t post_due(struct nic *n);

/* complete.c */
int complete(struct nic *n); /* how many completions there were */
int complete_wait(struct nic *n); /* an event for the next one is asked for; how many came meanwhile */
void complete_event(struct nic *n);

/* report.c: the end of the socket ends the program */
void report(struct nic *n, void *message, uint8_t type, size_t length, uint32_t tag);
void report_ok(struct nic *n, uint32_t tag, uint32_t qp, uint32_t value);
/* report_error says that call gave err; fix is what to do about it, or NULL. */
void report_error(struct nic *n, uint32_t tag, uint32_t qp, const char *call, int err, const char *fix);
void report_refused(struct nic *n, uint32_t tag, uint32_t qp, int err, const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
