/*
 * Shell of a PCM handler for NVIDIA DOCA PCC: C11 for DPACC, run by the data-path accelerator (paper, section 6.2).
 *
 * The library calls doca_pcc_dev_user_algo for each event of a flow (an RC queue pair), always on the same hardware thread, with 48
 * bytes that it keeps for the flow. They hold the place of the flow's state in a pool, and what the shell itself needs; the
 * handler's state is in the pool. Events carry counts of what the hardware coalesced, which SUM signals take as they are.
 *
 * The device has no floating point, no allocation, and no compare-and-swap: places are given with fetch-and-add and exchange alone.
 */
#include <doca_pcc_dev.h>
#include <doca_pcc_dev_event.h>
#include <doca_pcc_dev_algo_access.h>

/* The handler's own, whatever the library's headers made of these names. */
#undef MAX
#undef MIN
#undef ABS
#undef POW
#undef HASH
#undef RAND
#include "pcm_core.h"
#include "pcm_config.h"

/* The 48 bytes of a flow: the paper's list, and then what is of use to who debugs. All zero: a flow that was not seen yet. */
enum pcm_context {
	PCM_CTX_PLACE,     /* in the pool, counted from 1; 0: none */
	PCM_CTX_RATE,      /* in 2^-20 of the line rate; 0: the flow is new */
	PCM_CTX_SENT_LOW,  /* outstanding bytes: an estimate, sent less acknowledged and refused */
	PCM_CTX_SENT_HIGH,
	PCM_CTX_PROBE,     /* struct pcm_probe, packed */
	PCM_CTX_RTT,       /* the last one, ticks */
	PCM_CTX_AVERAGE,   /* eight times the moving average of round trips, ticks */
	PCM_CTX_LEASE,     /* what the place's must be, or it was given to another flow */
	PCM_CTX_TRIED,     /* us; when a place was last looked for in vain */
	PCM_CTX_RUNS,      /* of the handler */
	PCM_CTX_FIRED,     /* the triggers of the last run, bits 0 to 31 */
	PCM_CTX_FAILED,    /* what the handler returned when it failed */
	PCM_CTX_WORDS
};
_Static_assert(PCM_CTX_WORDS * sizeof(uint32_t) == 48 && sizeof(doca_pcc_dev_algo_ctxt_t) == 48, "a flow has 48 bytes");

#define PCM_US_TICKS (1000000 / PCM_TICK_PS)    /* ticks of the device's clock in a microsecond */
#define PCM_RATE_TICKS (100000 / PCM_TICK_PS)   /* and in 100 ns, by which rates count */
#define PCM_STAMP ((1u << 28) - 1)              /* of a probe's timestamps: the bits that ConnectX-8 fills with time */
_Static_assert(PCM_US_TICKS * PCM_TICK_PS == 1000000 && PCM_RATE_TICKS * PCM_TICK_PS == 100000, "a tick that divides 100 ns");

/* Parameters that the register PPCC sets while it runs, and counters that it reads. */
enum pcm_parameter { PCM_PARAM_MTU, PCM_PARAM_LINE, PCM_PARAM_PROBE_TIMEOUT, PCM_PARAMS };
enum pcm_counter {
	PCM_COUNT_FLOWS, PCM_COUNT_RECLAIMED, PCM_COUNT_NO_PLACE, PCM_COUNT_FAILED, PCM_COUNT_RUNS,
	PCM_COUNT_RTT, PCM_COUNT_RTT_TIMEOUT, PCM_COUNT_RTT_NOT_VALID, PCM_COUNT_CHANGES, PCM_COUNTERS
};

static const struct {
	uint32_t value, most, least;
} pcm_parameters[PCM_PARAMS] = {{PCM_MTU, 16384, 64}, {0, 1u << 20, 0}, {PCM_PROBE_TIMEOUT, 1u << 23, 1}};

/* Texts that the register shows; the library takes their addresses as numbers. */
static const char pcm_about[] = "pcm " PCM_PACKAGE " " PCM_PACKAGE_HASH;
static const char pcm_parameter_names[PCM_PARAMS][80] = {
	"MTU, bytes of data in a packet",
	"LINE, bits per 100 ns that are the full rate; 0: the port's speed",
	"PROBE_TIMEOUT, ticks until a probe counts as lost",
};
static const char pcm_counter_names[PCM_COUNTERS][80] = {
	"FLOWS, that were given a place", "RECLAIMED, places of idle flows given to others", "NO_PLACE, flows left at line rate",
	"FAILED, handlers that were stopped", "RUNS, of handlers; above 256 of a flow in lots of 256", "RTT, samples",
	"RTT_TIMEOUT, probes without an answer", "RTT_NOT_VALID, samples that were not above 0",
	"CHANGES, of the rate by a run that RUNS counts",
};
#define PCM_TEXT(T) (uint32_t)sizeof(T), (uint64_t)(uintptr_t)(T)

struct pcm_place {
	uint32_t held;  /* atomic: somebody uses it */
	uint32_t lease; /* 0: never given; counts up when it is */
	uint32_t seen;  /* us; the last event */
	uint64_t now;   /* ticks: the device's 32 bits of time, continued */
	struct pcm_core core;
};

static struct pcm_place pcm_pool[PCM_FLOWS];
static uint32_t pcm_first;  /* lease: another one each time that the program is loaded, since what it left in the 48 bytes may outlive it */
static uint32_t pcm_given;  /* atomic: places that were given for the first time */
static uint32_t pcm_search; /* atomic: where the next search for an idle one begins */
static uint32_t pcm_speed[DOCA_PCC_DEV_MAX_NUM_PORTS]; /* bits per 100 ns of a port; 0: not known */

static inline void pcm_count(uint32_t *counters, enum pcm_counter which, uint32_t n)
{
	if (counters) /* not before somebody enables them */
		__atomic_fetch_add(&counters[which], n, __ATOMIC_RELAXED);
}

/* ---- the pool ---- */

static inline bool pcm_idle(struct pcm_place *p, uint32_t us)
{
	return us - __atomic_load_n(&p->seen, __ATOMIC_RELAXED) > PCM_IDLE_US;
}

static inline bool pcm_hold(struct pcm_place *p) { return __atomic_exchange_n(&p->held, 1, __ATOMIC_ACQUIRE) == 0; }
static inline void pcm_let_go(struct pcm_place *p) { __atomic_store_n(&p->held, 0, __ATOMIC_RELEASE); }

/* A place that the caller holds, or NULL. No event tells that a flow has ended, so that those whose flows are idle are given again. */
static struct pcm_place *pcm_find(uint32_t us, uint32_t *counters)
{
	uint32_t i = __atomic_load_n(&pcm_given, __ATOMIC_RELAXED);

	if (i < PCM_FLOWS) { /* looked at first, so that the count does not come round */
		i = __atomic_fetch_add(&pcm_given, 1, __ATOMIC_RELAXED);
		if (i < PCM_FLOWS && pcm_hold(&pcm_pool[i]))
			return &pcm_pool[i];
	}
	i = __atomic_fetch_add(&pcm_search, PCM_SEARCH, __ATOMIC_RELAXED);
	for (uint32_t n = 0; n < PCM_SEARCH; n++) {
		struct pcm_place *p = &pcm_pool[(i + n) % PCM_FLOWS];

		if (!__atomic_load_n(&p->lease, __ATOMIC_RELAXED) || !pcm_idle(p, us) || !pcm_hold(p))
			continue;
		if (pcm_idle(p, us)) { /* still, now that its flow cannot come in between */
			pcm_count(counters, PCM_COUNT_RECLAIMED, 1);
			return p;
		}
		pcm_let_go(p);
	}
	return NULL;
}

/* The flow's place, held; a new flow, and one that was idle for so long that it lost its own, are given one. NULL: there is none. */
static struct pcm_place *pcm_place_of(uint32_t *ctx, uint32_t stamp, uint32_t us, uint32_t tag, uint32_t *counters, bool *begun)
{
	struct pcm_place *p;

	if (ctx[PCM_CTX_PLACE]) {
		p = &pcm_pool[(ctx[PCM_CTX_PLACE] - 1) % PCM_FLOWS]; /* whatever another program left there */
		if (pcm_hold(p)) {
			if (__atomic_load_n(&p->lease, __ATOMIC_RELAXED) == ctx[PCM_CTX_LEASE])
				return p;
			pcm_let_go(p);
		}
		ctx[PCM_CTX_PLACE] = ctx[PCM_CTX_RATE] = 0;
	}
	if (ctx[PCM_CTX_RATE] && us - ctx[PCM_CTX_TRIED] < PCM_RETRY_US)
		return NULL;
	p = pcm_find(us, counters);
	if (!p) {
		if (!ctx[PCM_CTX_RATE])
			pcm_count(counters, PCM_COUNT_NO_PLACE, 1);
		ctx[PCM_CTX_RATE] = DOCA_PCC_DEV_MAX_RATE;
		ctx[PCM_CTX_TRIED] = us;
		return NULL;
	}
	for (int i = 0; i < PCM_CTX_WORDS; i++)
		((volatile uint32_t *)ctx)[i] = 0;
	uint32_t lease = p->lease ? p->lease + 1 : pcm_first;
	lease += lease == 0;
	__atomic_store_n(&p->lease, lease, __ATOMIC_RELAXED);
	p->now = stamp;
	ctx[PCM_CTX_PLACE] = (uint32_t)(p - pcm_pool) + 1;
	ctx[PCM_CTX_LEASE] = lease;
	ctx[PCM_CTX_AVERAGE] = 8 * PCM_BASE_RTT;
	pcm_core_begin(&p->core, p->now, tag);
	pcm_count(counters, PCM_COUNT_FLOWS, 1);
	*begun = true;
	return p;
}

/* ---- time and rate ---- */

/* Continues the 32 bits of an event's time: by what they say, and as many wraps as the microseconds since the last event hold. What
 * comes out of order does not turn time back. */
static inline uint64_t pcm_clock(struct pcm_place *p, uint32_t stamp, uint32_t us, bool begun)
{
	if (!begun) {
		int64_t about = (int64_t)((uint64_t)(us - p->seen) * PCM_US_TICKS);
		int64_t passed = (uint32_t)(stamp - (uint32_t)p->now);

		passed += ((about - passed + ((int64_t)1 << 31)) >> 32) * ((int64_t)1 << 32);
		if (passed > 0)
			p->now += (uint64_t)passed;
	}
	__atomic_store_n(&p->seen, us, __ATOMIC_RELAXED);
	return p->now;
}

/* Bits per 100 ns in 2^-20 of the line rate, from 1 to all of it. */
static inline uint32_t pcm_share(uint64_t bits, uint64_t line)
{
	if (bits >= line)
		return DOCA_PCC_DEV_MAX_RATE;
	bits = (bits << DOCA_PCC_DEV_LOG_MAX_RATE) / line;
	return bits ? (uint32_t)bits : 1;
}

#if PCM_HAS_CWND_CONTROL
/* The rate adapter of windows: CWND / EWMA(RTT), rounded down once (paper, section 6.2). */
static inline uint32_t pcm_window_share(uint64_t window, uint32_t average, uint64_t line)
{
	const uint64_t most = (uint64_t)1 << 30; /* bytes, so that the product below has room */
	uint64_t eighths = (uint64_t)(average ? average : 1) * line;
	uint64_t share = (window < most ? window : most) * 64 * PCM_RATE_TICKS;

	_Static_assert(PCM_RATE_TICKS <= 256, "30 bits of window, 6 of bits and eighths, 8 of ticks and 20 of a share are 64");
	share = (share << DOCA_PCC_DEV_LOG_MAX_RATE) / eighths;
	if (share > DOCA_PCC_DEV_MAX_RATE)
		return DOCA_PCC_DEV_MAX_RATE;
	return share ? (uint32_t)share : 1;
}
#endif

static inline uint64_t pcm_line(uint32_t port, const uint32_t *params)
{
	if (params && params[PCM_PARAM_LINE])
		return params[PCM_PARAM_LINE];
	if (port < DOCA_PCC_DEV_MAX_NUM_PORTS && pcm_speed[port])
		return pcm_speed[port];
	return PCM_LINE;
}

/* What the controls make of the rate. One that has both a rate and a window is held by the lower of the two. */
static uint32_t pcm_rate(const struct pcm_core *c, uint32_t average, uint64_t line)
{
	uint32_t rate = DOCA_PCC_DEV_MAX_RATE;
#if PCM_HAS_RATE_CONTROL
	rate = pcm_share(pcm_core_get_rate(c), line);
#endif
#if PCM_HAS_CWND_CONTROL
	uint32_t window = pcm_window_share(pcm_core_get_cwnd(c), average, line);

	if (window < rate)
		rate = window;
#endif
	(void)c;
	(void)average;
	(void)line;
	return rate;
}

/* ---- probes ---- */

/* A handler that has the control asks for probes itself. For others that need round trips the shell keeps one probe on its way. */
#define PCM_PROBES ((PCM_HAS_RTT || PCM_HAS_CWND_CONTROL) && !PCM_HAS_RTT_PROBE_CONTROL)

#if PCM_PROBES
struct pcm_probe {
	uint32_t sent;  /* 1: it left; 0: it was asked for */
	uint32_t bursts; /* sent since it was asked for, up to 3 */
	uint32_t losses; /* in a row, up to 8 */
	uint32_t since; /* when it was asked for, or left: 256 ticks, 24 bits */
};

static inline struct pcm_probe pcm_probe_of(uint32_t word)
{
	return (struct pcm_probe){word & 1, word >> 1 & 3, word >> 4 & 15, word >> 8};
}

static inline uint32_t pcm_probe_word(struct pcm_probe p) { return p.sent | p.bursts << 1 | p.losses << 4 | p.since << 8; }

static inline bool pcm_ask(struct pcm_probe *p, uint32_t stamp)
{
	p->sent = p->bursts = 0;
	p->since = stamp >> 8;
	return true;
}

/* A burst was sent, with the probe or without: true when another probe is to be asked for. One without an answer is lost after
 * the timeout, which doubles each time; one that did not leave with three bursts never will. */
static inline bool pcm_probe_burst(struct pcm_probe *p, bool left, uint32_t stamp, uint32_t timeout, uint32_t *counters)
{
	if (p->sent) {
		if ((uint32_t)(stamp - (p->since << 8)) <= timeout << p->losses)
			return false;
		pcm_count(counters, PCM_COUNT_RTT_TIMEOUT, 1);
		if (p->losses < 8)
			p->losses++;
		return pcm_ask(p, stamp);
	}
	if (left) {
		p->sent = 1;
		p->since = stamp >> 8;
		return false;
	}
	return ++p->bursts > 2 ? pcm_ask(p, stamp) : false;
}

/* An answer came to a probe that left at asked: true when the next one is to be asked for. A late answer to one that was given
 * up is a sample like others, but asks for nothing, or there would be two probes on their way for ever. */
static inline bool pcm_probe_answer(struct pcm_probe *p, uint32_t asked, uint32_t stamp, uint32_t timeout)
{
	int32_t before = (int32_t)(((p->since << 8) - asked) << 4) >> 4; /* of 28 bits */

	if (before > (p->sent ? (int32_t)timeout : 256))
		return false;
	p->losses = 0;
	return pcm_ask(p, stamp);
}
#endif

/* ---- events ---- */

static inline uint64_t pcm_sent(const uint32_t *ctx) { return (uint64_t)ctx[PCM_CTX_SENT_HIGH] << 32 | ctx[PCM_CTX_SENT_LOW]; }

static inline void pcm_set_sent(uint32_t *ctx, struct pcm_core *c, uint64_t bytes)
{
	ctx[PCM_CTX_SENT_LOW] = (uint32_t)bytes;
	ctx[PCM_CTX_SENT_HIGH] = (uint32_t)(bytes >> 32);
	pcm_core_in_flight(c, bytes);
}

/* Which events the handler has a use for. Bursts begin flows and carry probes. */
#define PCM_WANTS_ACK (PCM_HAS_ACK || PCM_HAS_DATA_TX || PCM_HAS_IN_FLIGHT)
#define PCM_WANTS_NACK (PCM_HAS_NACK || PCM_HAS_DATA_NACKED || PCM_HAS_IN_FLIGHT)
#define PCM_WANTS_CNP (PCM_HAS_CNP || PCM_HAS_ECN)
#define PCM_WANTS_RTT (PCM_HAS_RTT || PCM_HAS_CWND_CONTROL)

static inline uint32_t pcm_coalesced(doca_pcc_dev_event_t *event)
{
	uint32_t n = doca_pcc_dev_get_ack_nack_cnp_extra(event).num_coalesced;

	return n ? n : 1; /* there is the event itself */
}

/* The round trip of a probe without the time that the responder took, which two further timestamps tell; 0: it is not valid. */
static inline uint32_t pcm_round_trip(doca_pcc_dev_event_t *event, uint32_t stamp)
{
	uint32_t received = doca_pcc_dev_get_rtt_req_recv_timestamp(event) & PCM_STAMP;
	uint32_t answered = doca_pcc_dev_get_rtt_resp_send_timestamp(event) & PCM_STAMP;
	uint32_t all = (stamp - doca_pcc_dev_get_rtt_req_send_timestamp(event)) & PCM_STAMP;
	uint32_t there = received && answered ? (answered - received) & PCM_STAMP : 0;

	return all > there ? all - there : 0;
}

static inline void pcm_data(uint32_t *ctx, struct pcm_core *c, uint64_t bytes)
{
	uint64_t sent = pcm_sent(ctx);

	pcm_set_sent(ctx, c, sent > bytes ? sent - bytes : 0);
}

#ifdef PCM_DIAGNOSE
/* Diagnostic mode: every run with its outputs and what came since the last event, at a cost of several PCIe round trips. */
enum pcm_trace { PCM_TRACE_RUN, PCM_TRACE_EVENT };

static void pcm_diagnose(uint32_t tag, uint32_t type, uint32_t count, uint64_t fired, const struct pcm_place *p, const uint32_t *ctx)
{
	const struct pcm_core *c = &p->core;

	doca_pcc_dev_trace_5(PCM_TRACE_RUN, (uint64_t)tag, fired, pcm_core_get_cwnd(c), pcm_core_get_rate(c), pcm_core_get_rtt_probe(c));
	doca_pcc_dev_trace_5(PCM_TRACE_EVENT, (uint64_t)tag, (uint64_t)type << 32 | count, p->now, ctx[PCM_CTX_RTT], ctx[PCM_CTX_RATE]);
	doca_pcc_dev_trace_flush();
}
#endif

/* One event of a flow. */
static void pcm_event(uint32_t *ctx, doca_pcc_dev_event_t *event, uint32_t slot, doca_pcc_dev_results_t *results)
{
	const doca_pcc_dev_event_general_attr_t ev = doca_pcc_dev_get_ev_attr(event);
	const uint32_t stamp = doca_pcc_dev_get_timestamp(event), us = doca_pcc_dev_get_timer_lo(), tag = doca_pcc_dev_get_flowtag(event);
	const uint32_t *params = doca_pcc_dev_get_algo_params(ev.port_num, slot);
	uint32_t *counters = doca_pcc_dev_get_counters(ev.port_num, slot);
	const uint32_t mtu = params ? params[PCM_PARAM_MTU] : PCM_MTU;
	bool begun = false, probe = false, sampled = false;
	uint32_t count = 0;
	struct pcm_place *p = pcm_place_of(ctx, stamp, us, tag, counters, &begun);

	results->rate = DOCA_PCC_DEV_MAX_RATE;
	results->rtt_req = 0;
	if (!p)
		return;

	struct pcm_core *c = &p->core;
	const uint64_t now = pcm_clock(p, stamp, us, begun);
#if PCM_PROBES
	const uint32_t timeout = params ? params[PCM_PARAM_PROBE_TIMEOUT] : PCM_PROBE_TIMEOUT;
	struct pcm_probe at = pcm_probe_of(ctx[PCM_CTX_PROBE]);

	if (begun)
		probe = pcm_ask(&at, stamp);
#endif

	switch (ev.ev_type) {
	case DOCA_PCC_DEV_EVNT_ROCE_TX:
		count = doca_pcc_dev_get_roce_tx_cntrs(event).sent_32bytes * 32;
		pcm_core_tx_bytes(c, count);
#if PCM_WANTS_ACK
		pcm_set_sent(ctx, c, pcm_sent(ctx) + count);
#endif
#if PCM_PROBES
		if (!begun)
			probe = pcm_probe_burst(&at, ev.flags & DOCA_PCC_DEV_TX_FLAG_RTT_REQ_SENT, stamp, timeout, counters);
#endif
		break;
	case DOCA_PCC_DEV_EVNT_ROCE_ACK:
		count = pcm_coalesced(event);
		pcm_core_ack(c, count);
		pcm_core_data_tx(c, (uint64_t)count * mtu);
		pcm_data(ctx, c, (uint64_t)count * mtu);
		break;
	case DOCA_PCC_DEV_EVNT_ROCE_NACK:
		count = pcm_coalesced(event);
		pcm_core_nack(c, count);
		pcm_core_data_nacked(c, (uint64_t)count * mtu);
		pcm_data(ctx, c, (uint64_t)count * mtu);
		break;
	case DOCA_PCC_DEV_EVNT_ROCE_CNP:
		count = pcm_coalesced(event);
		pcm_core_cnp(c, count);
		pcm_core_ecn(c, count);
		break;
	case DOCA_PCC_DEV_EVNT_RTT:
		count = pcm_round_trip(event, stamp);
		sampled = count != 0;
		if (sampled) {
			ctx[PCM_CTX_RTT] = count;
			ctx[PCM_CTX_AVERAGE] += count - ctx[PCM_CTX_AVERAGE] / 8;
			pcm_core_rtt(c, count);
		}
		pcm_count(counters, sampled ? PCM_COUNT_RTT : PCM_COUNT_RTT_NOT_VALID, 1);
#if PCM_PROBES
		if (!begun)
			probe = pcm_probe_answer(&at, doca_pcc_dev_get_rtt_req_send_timestamp(event), stamp, timeout);
#endif
		break;
	}

	const bool stopped = c->failed;
	const uint32_t was = ctx[PCM_CTX_RATE];
	bool counted = false; /* this run, by RUNS */
	const uint64_t fired = pcm_core_step(c, now);

	if (fired) {
		const uint32_t runs = ++ctx[PCM_CTX_RUNS];

		ctx[PCM_CTX_FIRED] = (uint32_t)fired;
		counted = runs <= 256 || runs % 256 == 0; /* a counter of all threads is not for every run */
		if (counted)
			pcm_count(counters, PCM_COUNT_RUNS, runs <= 256 ? 1 : 256);
	}
	if (c->failed && !stopped) {
		ctx[PCM_CTX_FAILED] = (uint32_t)c->failed;
		pcm_count(counters, PCM_COUNT_FAILED, 1);
		doca_pcc_dev_printf("pcm: handler " PCM_PACKAGE " failed on flow 0x%x: it returned %d, and is stopped for this flow\n", tag, (int)c->failed);
	}
#if PCM_PROBES
	ctx[PCM_CTX_PROBE] = pcm_probe_word(at);
	probe = probe && !c->failed;
#elif PCM_HAS_RTT_PROBE_CONTROL
	probe = (fired || begun) && !c->failed && pcm_core_get_rtt_probe(c) != 0;
#endif
	if (begun || (!c->failed && (fired || sampled)))
		ctx[PCM_CTX_RATE] = pcm_rate(c, ctx[PCM_CTX_AVERAGE], pcm_line(ev.port_num, params));
	if (counted && !begun && ctx[PCM_CTX_RATE] != was)
		pcm_count(counters, PCM_COUNT_CHANGES, 1);
	results->rate = ctx[PCM_CTX_RATE];
	results->rtt_req = probe;
#ifdef PCM_DIAGNOSE
	pcm_diagnose(tag, ev.ev_type, count, fired, p, ctx);
#endif
	pcm_let_go(p);
}

/* ---- what the library calls ---- */

void doca_pcc_dev_user_algo(doca_pcc_dev_algo_ctxt_t *algo_ctxt, doca_pcc_dev_event_t *event, const doca_pcc_dev_attr_t *attr,
			    doca_pcc_dev_results_t *results)
{
	if (attr->algo_slot != PCM_ALGO_SLOT) { /* flows of an algorithm that is not ours */
		doca_pcc_dev_default_internal_algo(algo_ctxt, event, attr, results);
		return;
	}
	pcm_event((uint32_t *)algo_ctxt, event, attr->algo_slot, results);
}

void doca_pcc_dev_user_init(uint32_t *disable_event_bitmask)
{
	struct doca_pcc_dev_algo_meta_data about;

	about.algo_id = PCM_ALGO_ID;
	about.algo_major_version = 1;
	about.algo_minor_version = 0;
	about.algo_desc_size = sizeof(pcm_about);
	about.algo_desc_addr = (uint64_t)(uintptr_t)pcm_about;
	doca_pcc_dev_algo_init_metadata(PCM_ALGO_SLOT, &about, PCM_PARAMS, PCM_COUNTERS);
	for (uint32_t i = 0; i < PCM_PARAMS; i++)
		doca_pcc_dev_algo_init_param(PCM_ALGO_SLOT, i, pcm_parameters[i].value, pcm_parameters[i].most, pcm_parameters[i].least, 1,
					     PCM_TEXT(pcm_parameter_names[i]));
	for (uint32_t i = 0; i < PCM_COUNTERS; i++)
		doca_pcc_dev_algo_init_counter(PCM_ALGO_SLOT, i, UINT32_MAX, 2, PCM_TEXT(pcm_counter_names[i]));
	for (uint32_t port = 0; port < DOCA_PCC_DEV_MAX_NUM_PORTS; port++)
		doca_pcc_dev_init_algo_slot(port, PCM_ALGO_SLOT, PCM_ALGO_SLOT, 1);

	pcm_first = doca_pcc_dev_get_timer_lo();
	*disable_event_bitmask = 0;
	if (!PCM_WANTS_ACK)
		*disable_event_bitmask |= 1u << DOCA_PCC_DEV_EVNT_ROCE_ACK;
	if (!PCM_WANTS_NACK)
		*disable_event_bitmask |= 1u << DOCA_PCC_DEV_EVNT_ROCE_NACK;
	if (!PCM_WANTS_CNP)
		*disable_event_bitmask |= 1u << DOCA_PCC_DEV_EVNT_ROCE_CNP;
	if (!PCM_WANTS_RTT)
		*disable_event_bitmask |= 1u << DOCA_PCC_DEV_EVNT_RTT;
#if DOCA_PCC_DEV_ACK_NACK_TX_EVENT_DISABLED_SUPPORTED
	*disable_event_bitmask |= 1u << DOCA_PCC_DEV_EVNT_ROCE_TX_FOR_ACK_NACK;
#endif
	doca_pcc_dev_printf("pcm: handler " PCM_PACKAGE ", hash " PCM_PACKAGE_HASH ", room for %u flows\n", (unsigned)PCM_FLOWS);
}

doca_pcc_dev_error_t doca_pcc_dev_user_set_algo_params(uint32_t port_num, uint32_t algo_slot, uint32_t param_id_base, uint32_t param_num,
						       const uint32_t *new_param_values, uint32_t *params)
{
	(void)port_num;
	if (algo_slot != PCM_ALGO_SLOT)
		return DOCA_PCC_DEV_STATUS_OK;
	if (!new_param_values || !params || param_id_base >= PCM_PARAMS || param_num > PCM_PARAMS - param_id_base)
		return DOCA_PCC_DEV_STATUS_FAIL;
	for (uint32_t i = 0; i < param_num; i++)
		if (new_param_values[i] < pcm_parameters[param_id_base + i].least || new_param_values[i] > pcm_parameters[param_id_base + i].most)
			return DOCA_PCC_DEV_STATUS_FAIL;
	for (uint32_t i = 0; i < param_num; i++)
		((volatile uint32_t *)params)[i] = new_param_values[i];
	return DOCA_PCC_DEV_STATUS_OK;
}

#if PCM_PORT_SPEED
/* Gbit/s of a port whose link came up or changed. */
void doca_pcc_dev_user_port_info_changed(uint32_t portid)
{
	if (portid < DOCA_PCC_DEV_MAX_NUM_PORTS)
		pcm_speed[portid] = doca_pcc_dev_get_port_speed(portid) * 100;
}
#endif
