/*
 * A row of the benchmark that is the published SDK's runtime: the tests build it where that is unpacked, and nowhere else is it needed.
 * -DSDK_FACTORY names the function that makes a flow, -DSDK_LIBRARY the library that it is in. Times are picoseconds there.
 */
#include "pcm_vm.hpp"

#include "bench.h"

using Flow = pcm_vm::PcmHandlerVmDesc;

#define STRING(X) STRING_OF(X)
#define STRING_OF(X) #X
#define EXPORT extern "C" __attribute__((visibility("default")))

static pcm_uint clock_now;
static pcm_uint clock_read() { return clock_now; }

EXPORT pcm_flow *pcm_create(uint64_t, uint64_t)
{
	static auto factory = reinterpret_cast<Flow *(*)()>(dlsym(dlopen(STRING(SDK_LIBRARY), RTLD_NOW | RTLD_LOCAL), STRING(SDK_FACTORY)));
	clock_now = 0;
	Flow *f = factory();
	f->add_get_time_source(clock_read);
	return reinterpret_cast<pcm_flow *>(f);
}

EXPORT void pcm_destroy(pcm_flow *f) { delete reinterpret_cast<Flow *>(f); }

EXPORT void bench_loop(bench_work *w)
{
	uint64_t calls = 0, sum = 0;
	for (uint64_t i = 0; i < w->n; i++) {
		bench_step s = bench_next(w);
		const bench_event *e = s.event;
		Flow *f = static_cast<Flow *>(w->flows[s.flow]);
		auto *slab = f->get_signal_io_slab();
		clock_now = w->now * 1000;
		slab->in.ack = slab->in.nack = slab->in.ecn = slab->in.tx_ready_pkts = 1;
		slab->in.rtt = uint64_t{e->rtt} * 1000;
		slab->in.data_tx = slab->in.data_nacked = e->bytes;
		slab->in.in_flight = e->flying;
		slab->in.tx_backlog_bytes = e->backlog;
		slab->in.ack_ev = slab->in.ecn_ev = slab->in.nack_ev = e->path;
		slab->in.mask = e->mask & ((1u << PCM_SIG_UNKNOWN) - 1);
		f->flush_slab_input();
		calls += f->invoke_cc_algorithm_on_trigger();
		f->fetch_slab_output();
		/* As rows of shells do: what the package does not set is all ones, and there are no pulls. */
		sum += slab->out.cwnd + slab->out.rate + slab->out.ev + UINT64_MAX;
	}
	w->calls = calls;
	w->sum = sum;
}
