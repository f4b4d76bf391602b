/* The steering protocol between the endpoint and this program; the table is in the documentation of package verbs.
 * Messages go over a SEQPACKET UNIX socket, one a packet, in the byte order of the machine on which both run. */
#ifndef STEER_H
#define STEER_H

#include <stddef.h>
#include <stdint.h>

#define STEER_VERSION 1
#define STEER_DEVICE 64     /* octets of a device's name, the last one zero */
#define STEER_TEXT 480      /* octets of an error, the last one zero */
#define STEER_BUFFER 1024   /* no message is longer */
#define STEER_SEGMENT (1u << 30) /* most octets of an RDMA message */

enum steer_type {
	STEER_OPEN = 1,
	STEER_QP = 2,
	STEER_CONNECT = 3,
	STEER_POST = 4,
	STEER_PACE = 5,
	STEER_CLOSE = 6,

	STEER_OPENED = 65,
	STEER_MADE = 66,
	STEER_OK = 67,
	STEER_ERROR = 68,
	STEER_POSTED = 69,
	STEER_ACKED = 70,
	STEER_ARRIVED = 71,
	STEER_FAILED = 72,
};

enum { STEER_SPIN = 1, STEER_NO_NIC_RATE = 2 }; /* flags of OPEN */

struct steer_head {
	uint8_t version, type;
	uint16_t length; /* of all of the message */
	uint32_t tag;    /* of a command: repeated in the answer; 0 wants none, unless it is an error */
};

struct steer_open {
	struct steer_head head;
	char device[STEER_DEVICE]; /* "" is the one with the address, or the only one */
	uint8_t address[16];       /* IPv6 or IPv4 mapped, of this host; zeros when gid_index says it */
	int32_t gid_index;         /* -1: found by the address */
	uint32_t port;             /* of the device; from 1 */
	uint64_t region;           /* octets of the memory that is written from and into */
	uint32_t max_qps, flags;
};

struct steer_qp {
	struct steer_head head;
};

struct steer_connect {
	struct steer_head head;
	uint32_t qp, dest_qp, psn, dest_psn;
	uint8_t gid[16];
	uint64_t address, region; /* of the peer's memory */
	uint32_t rkey, mtu;
	uint8_t tclass, timeout, retry, hop_limit;
	uint32_t zero;
};

struct steer_post {
	struct steer_head head;
	uint32_t qp, immediate; /* of the first segment; each further one has one more, in 24 bits */
	uint64_t message;       /* the endpoint's name of it, which comes back */
	uint64_t from, upto;    /* its octets */
	uint32_t segment;       /* octets of each RDMA message but the last */
	uint32_t empty;         /* RDMA messages without an octet behind them: of a message that ended early */
};

struct steer_pace {
	struct steer_head head;
	uint32_t qp, window; /* octets that may leave within the time that they take at the rate: ten Credit Units */
	uint64_t rate;       /* bit/s; 0: as fast as the NIC can */
};

struct steer_close {
	struct steer_head head;
	uint32_t qp, zero;
};

union steer_command {
	struct steer_head head;
	struct steer_open open;
	struct steer_qp make;
	struct steer_connect connect;
	struct steer_post post;
	struct steer_pace pace;
	struct steer_close close;
};

struct steer_opened {
	struct steer_head head;
	char device[STEER_DEVICE];
	uint8_t gid[16];
	int32_t gid_index;
	uint32_t mtu; /* octets of payload in a packet */
	uint64_t address, region;
	uint32_t rkey, max_qps;
	uint32_t depth, zero;        /* segments in flight on a QP */
	uint64_t rate_min, rate_max; /* bit/s to which the NIC can limit a QP; 0: it cannot */
};

struct steer_made {
	struct steer_head head;
	uint32_t qp, psn;
};

struct steer_ok {
	struct steer_head head;
	uint32_t qp, value; /* of PACE: 1 when the NIC holds the rate, 0 when this program does */
};

struct steer_error {
	struct steer_head head;
	uint32_t qp;
	int32_t code; /* errno; of FAILED the status of the completion */
	char text[STEER_TEXT];
};

struct steer_progress { /* POSTED, ACKED */
	struct steer_head head;
	uint32_t qp, flight; /* RDMA messages posted and not acknowledged */
	uint64_t message, upto;
	uint64_t at, rtt; /* ns of CLOCK_MONOTONIC; rtt of a segment that was alone, else 0 */
};

struct steer_arrived {
	struct steer_head head;
	uint32_t qp, immediate; /* the last one's */
	uint64_t octets, at;
	uint32_t messages, zero;
};

/* steer_parse takes a command apart. NULL when it is one, otherwise what is wrong with it. */
const char *steer_parse(const void *data, size_t n, union steer_command *to);

#endif
