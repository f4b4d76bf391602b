/*
 * The DOCA PCC library as a process of the host, for tests of device code: it knows the public callbacks and the 48 bytes of a flow,
 * and nothing of what is in them but the three words that name themselves in the paper (place, rate, and so on, in its order).
 *
 *	emulator TICKS_PER_US             events from standard input, one struct in each; results to standard output, one struct out each
 *	emulator TICKS_PER_US THREADS FLOWS EVENTS
 *	                                  flows on threads, as the hardware has them; then the 48 bytes and rate of each flow
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doca_pcc_dev.h"
#include "doca_pcc_dev_algo_access.h"
#include "doca_pcc_dev_event.h"

enum { FLOWS = 1 << 17, PARAMETERS = 64, COUNTERS = 64 };

/* What a record asks for: an event of the library's kinds, or one of these. */
enum { READ_COUNTER = 100, ENABLE_COUNTERS, NEW_FLOW, SET_PARAMETER, PORT_SPEED, OTHER_SLOT };

struct in {
	uint32_t flow, kind;
	uint64_t time; /* ticks */
	uint32_t count, flags; /* coalesced events, or units of 32 bytes; or number and value of what is set */
	uint32_t sent, received, answered; /* timestamps of a probe */
	uint32_t port;
};

struct out {
	uint32_t called, rate, probe, runs;
	uint64_t tag, fired, cwnd, control_rate, control_probe; /* of the diagnostic records, when the device code sends them */
	uint64_t value; /* of what was asked for */
	uint32_t ctx[12];
};

struct doca_pcc_dev_event {
	const struct in *in;
};

static struct {
	doca_pcc_dev_algo_ctxt_t ctx;
	uint32_t rate;
} flows[FLOWS];

static uint64_t ticks_per_us;
static uint32_t disabled, speed[DOCA_PCC_DEV_MAX_NUM_PORTS];
static struct {
	uint32_t n, counters, value[PARAMETERS], most[PARAMETERS], least[PARAMETERS], slots;
} algorithm;
static uint32_t parameters[DOCA_PCC_DEV_MAX_NUM_PORTS][PARAMETERS], counters[DOCA_PCC_DEV_MAX_NUM_PORTS][COUNTERS];
static int counting;
static __thread uint64_t now; /* ticks */
static __thread struct out *reply;

static void die(const char *why)
{
	fprintf(stderr, "emulator: %s\n", why);
	exit(3);
}

/* ---- what the library gives ---- */

doca_pcc_dev_event_general_attr_t doca_pcc_dev_get_ev_attr(doca_pcc_dev_event_t *e)
{
	return (doca_pcc_dev_event_general_attr_t){.ev_type = e->in->kind, .port_num = e->in->port,
		.flags = e->in->kind == DOCA_PCC_DEV_EVNT_ROCE_TX ? e->in->flags : 0};
}
uint32_t doca_pcc_dev_get_flowtag(doca_pcc_dev_event_t *e) { return e->in->flow; }
uint32_t doca_pcc_dev_get_timestamp(doca_pcc_dev_event_t *e) { return (uint32_t)e->in->time; }

doca_pcc_dev_roce_tx_cntrs_t doca_pcc_dev_get_roce_tx_cntrs(doca_pcc_dev_event_t *e)
{
	if (e->in->kind != DOCA_PCC_DEV_EVNT_ROCE_TX)
		die("bytes of an event that is no burst");
	return (doca_pcc_dev_roce_tx_cntrs_t){.sent_32bytes = e->in->count};
}

doca_pcc_dev_ack_nack_cnp_extra_t doca_pcc_dev_get_ack_nack_cnp_extra(doca_pcc_dev_event_t *e)
{
	if (e->in->kind != DOCA_PCC_DEV_EVNT_ROCE_ACK && e->in->kind != DOCA_PCC_DEV_EVNT_ROCE_NACK && e->in->kind != DOCA_PCC_DEV_EVNT_ROCE_CNP)
		die("a count of an event that has none");
	return (doca_pcc_dev_ack_nack_cnp_extra_t){.num_coalesced = e->in->count};
}

/* 28 bits of time, and above them what the responder's port is, as on ConnectX-8. */
static uint32_t stamp(doca_pcc_dev_event_t *e, uint32_t t)
{
	if (e->in->kind != DOCA_PCC_DEV_EVNT_RTT)
		die("a probe's timestamp of another event");
	return (t & 0x0fffffff) | 0x30000000;
}
uint32_t doca_pcc_dev_get_rtt_req_send_timestamp(doca_pcc_dev_event_t *e) { return stamp(e, e->in->sent); }
uint32_t doca_pcc_dev_get_rtt_req_recv_timestamp(doca_pcc_dev_event_t *e) { return stamp(e, e->in->received); }
uint32_t doca_pcc_dev_get_rtt_resp_send_timestamp(doca_pcc_dev_event_t *e) { return stamp(e, e->in->answered); }
uint32_t doca_pcc_dev_get_timer_lo(void) { return (uint32_t)(now / ticks_per_us); }
uint32_t doca_pcc_dev_get_port_speed(uint32_t port) { return speed[port]; }

void doca_pcc_dev_printf(const char *format, ...)
{
	va_list a;
	va_start(a, format);
	vfprintf(stderr, format, a);
	va_end(a);
}

void doca_pcc_dev_trace_5(int format, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
	if (format != 0 || !reply)
		return;
	reply->runs++;
	reply->tag = a;
	reply->fired = b;
	reply->cwnd = c;
	reply->control_rate = d;
	reply->control_probe = e;
}
void doca_pcc_dev_trace_flush(void) {}

doca_pcc_dev_error_t doca_pcc_dev_algo_init_metadata(uint32_t algo, const struct doca_pcc_dev_algo_meta_data *m, uint32_t n, uint32_t c)
{
	if (algo >= 8 || n > 0x26 || c > 0x3f || m->algo_desc_size != strlen((const char *)(uintptr_t)m->algo_desc_addr) + 1)
		return DOCA_PCC_DEV_STATUS_FAIL;
	algorithm.n = n;
	algorithm.counters = c;
	fprintf(stderr, "algorithm %u: %s\n", algo, (const char *)(uintptr_t)m->algo_desc_addr);
	return DOCA_PCC_DEV_STATUS_OK;
}

doca_pcc_dev_error_t doca_pcc_dev_algo_init_param(uint32_t algo, uint32_t i, uint32_t value, uint32_t most, uint32_t least, uint32_t permissions,
						  uint32_t size, uint64_t text)
{
	(void)algo;
	if (i >= algorithm.n || value > most || permissions > 1 || strlen((const char *)(uintptr_t)text) >= size)
		die("a parameter out of range");
	algorithm.value[i] = value;
	algorithm.most[i] = most;
	algorithm.least[i] = least;
	return DOCA_PCC_DEV_STATUS_OK;
}

doca_pcc_dev_error_t doca_pcc_dev_algo_init_counter(uint32_t algo, uint32_t i, uint32_t most, uint32_t permissions, uint32_t size, uint64_t text)
{
	(void)algo;
	(void)most;
	(void)permissions;
	if (i >= algorithm.counters || strlen((const char *)(uintptr_t)text) >= size)
		die("a counter out of range");
	return DOCA_PCC_DEV_STATUS_OK;
}

doca_pcc_dev_error_t doca_pcc_dev_init_algo_slot(uint32_t port, uint32_t slot, uint32_t algo, uint32_t enabled)
{
	(void)algo;
	if (port >= DOCA_PCC_DEV_MAX_NUM_PORTS || slot != 0 || !enabled)
		die("a slot out of range");
	memcpy(parameters[port], algorithm.value, sizeof parameters[port]);
	algorithm.slots++;
	return DOCA_PCC_DEV_STATUS_OK;
}

uint32_t *doca_pcc_dev_get_algo_params(uint32_t port, uint32_t slot) { return slot == 0 ? parameters[port] : NULL; }
uint32_t *doca_pcc_dev_get_counters(uint32_t port, uint32_t slot) { return counting && slot == 0 ? counters[port] : NULL; }

void doca_pcc_dev_default_internal_algo(doca_pcc_dev_algo_ctxt_t *c, doca_pcc_dev_event_t *e, const doca_pcc_dev_attr_t *a, doca_pcc_dev_results_t *r)
{
	(void)c;
	(void)e;
	(void)a;
	r->rate = 12345;
	r->rtt_req = 0;
}

/* ---- what it does ---- */

static void event(const struct in *in, struct out *out, uint32_t slot)
{
	struct doca_pcc_dev_event e = {in};
	const doca_pcc_dev_attr_t attr = {.algo_slot = slot};
	doca_pcc_dev_results_t results = {.rate = DOCA_PCC_DEV_MAX_RATE >> 8};

	now = in->time;
	reply = out;
	if (!(disabled >> in->kind & 1)) {
		doca_pcc_dev_user_algo(&flows[in->flow].ctx, &e, &attr, &results);
		flows[in->flow].rate = results.rate;
		if (out)
			out->called = 1;
	}
	if (out) {
		out->rate = flows[in->flow].rate;
		out->probe = results.rtt_req;
		memcpy(out->ctx, flows[in->flow].ctx.data, sizeof out->ctx);
	}
}

static uint64_t command(const struct in *in)
{
	switch (in->kind) {
	case READ_COUNTER:
		return counters[in->port][in->count];
	case ENABLE_COUNTERS:
		counting = 1;
		return 0;
	case NEW_FLOW:
		for (int i = 0; i < 12; i++)
			flows[in->flow].ctx.data[i] = in->flags; /* 0, as the library has it */
		return 0;
	case SET_PARAMETER:
		return doca_pcc_dev_user_set_algo_params(in->port, 0, in->count, 1, &in->flags, &parameters[in->port][in->count < PARAMETERS ? in->count : 0]);
	case PORT_SPEED:
		speed[in->port] = in->flags;
		doca_pcc_dev_user_port_info_changed(in->port);
		return 0;
	}
	die("a record that means nothing");
	return 0;
}

/* ---- flows on threads ---- */

struct worker {
	pthread_t thread;
	uint32_t first, flows, events;
};

/* Each flow sends and is acknowledged in turn. Half way the clock jumps, so that every place may be given to another flow: flows of the
 * second half begin then, while those of the first go on. */
static void *work(void *arg)
{
	const struct worker *w = arg;
	uint64_t t = 1;

	for (uint32_t n = 0; n < w->events; n++) {
		uint32_t half = w->flows / 2 ? w->flows / 2 : 1, late = n >= w->events / 2;
		uint32_t flow = w->first + n % half + (late && n / half % 2 ? half : 0);
		struct in in = {.flow = flow, .kind = DOCA_PCC_DEV_EVNT_ROCE_TX, .time = t, .count = 128};

		if (n == w->events / 2)
			t += 3000000 * ticks_per_us;
		in.time = t += 100;
		event(&in, NULL, 0);
		in.kind = DOCA_PCC_DEV_EVNT_ROCE_ACK;
		in.count = 1;
		in.time = t += 100;
		event(&in, NULL, 0);
	}
	return NULL;
}

static void threads(int n, int count, int events)
{
	struct worker w[64];

	counting = 1;
	for (int i = 0; i < n; i++) {
		w[i].first = i * (count / n);
		w[i].flows = count / n;
		w[i].events = events;
		if (pthread_create(&w[i].thread, NULL, work, &w[i]))
			die("no thread");
	}
	for (int i = 0; i < n; i++)
		pthread_join(w[i].thread, NULL);
	for (int i = 0; i < count; i++) {
		printf("flow %d rate %u", i, flows[i].rate);
		for (int k = 0; k < 12; k++)
			printf(" %u", flows[i].ctx.data[k]);
		printf("\n");
	}
	for (uint32_t i = 0; i < algorithm.counters; i++)
		printf("counter %u %u\n", i, counters[0][i]);
}

int main(int argc, char **argv)
{
	struct in in;

	if (argc != 2 && argc != 5)
		die("arguments: TICKS_PER_US [THREADS FLOWS EVENTS]");
	ticks_per_us = strtoul(argv[1], NULL, 10);
	now = 987654321 * ticks_per_us; /* a program is not loaded when the clock begins */
	doca_pcc_dev_user_init(&disabled);
	if (algorithm.slots != DOCA_PCC_DEV_MAX_NUM_PORTS)
		die("not every port has the algorithm");
	if (argc == 5) {
		threads(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
		return 0;
	}
	while (fread(&in, sizeof in, 1, stdin) == 1) {
		struct out out = {0};

		if (in.flow >= FLOWS || in.port >= DOCA_PCC_DEV_MAX_NUM_PORTS)
			die("a record out of range");
		if (in.kind == OTHER_SLOT) {
			struct in tx = in;
			tx.kind = DOCA_PCC_DEV_EVNT_ROCE_TX;
			event(&tx, &out, 5);
		} else if (in.kind >= READ_COUNTER)
			out.value = command(&in);
		else
			event(&in, &out, 0);
		if (fwrite(&out, sizeof out, 1, stdout) != 1)
			die("nobody reads");
	}
	return 0;
}
