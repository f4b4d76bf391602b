// The handlers of one flow: events go in, controls come out.
#ifndef PCM_FLOW_H
#define PCM_FLOW_H

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "pcm_api.h"

namespace pcm {

// What a handler may set; bits of pcm_info.controls.
enum Control : uint64_t { {{range $i, $c := .Kinds}}{{if $i}}, {{end}}sets_{{$c.Field}} = 1u << {{$i}}{{end}} };

constexpr uint64_t none = UINT64_MAX; // a control that no handler of the flow sets

// Event is what happened at a time, in the units of a shell: ns, bytes, packets. Only what is given counts.
struct Event {
	pcm_input in{};

	explicit Event(uint64_t now_ns) { in.now = now_ns; }
{{range $i, $s := .Sources}}{{if ne $s "elapsed_time"}}
	Event &{{$s}}(uint64_t v)
	{
		in.{{$s}} = v;
		in.mask |= UINT64_C(1) << {{$i}};
		return *this;
	}
{{end}}{{end}}};

// The handlers of this program, in the order in which their headers were included.
inline std::vector<const pcm_api *> &handlers()
{
	static std::vector<const pcm_api *> all;
	return all;
}

inline bool use(const pcm_api &h)
{
	for (const pcm_api *other : handlers())
		if (h.info()->controls & other->info()->controls) {
			std::fprintf(stderr, "pcm: %s and %s set the same control: a flow can have one of them\n", h.info()->name, other->info()->name);
			std::abort();
		}
	handlers().push_back(&h);
	return true;
}

// What the handlers of this program set together.
inline uint64_t controls()
{
	uint64_t all = 0;
	for (const pcm_api *h : handlers())
		all |= h->info()->controls;
	return all;
}

// With PCM_LOG=FILE in the environment every call of a handler is a line there.
inline std::FILE *log()
{
	static std::FILE *file = [] {
		const char *name = std::getenv("PCM_LOG");
		std::FILE *f = name && *name ? std::fopen(name, "w") : nullptr;
		if (name && *name && !f)
			std::fprintf(stderr, "pcm: PCM_LOG=%s cannot be written\n", name);
		if (f)
			std::fprintf(f, "t_ns,flow,handler,fired{{range .Kinds}},{{.Field}}{{end}}\n");
		return f;
	}();
	return file;
}

class Flow {
public:
	Flow() = default;
	Flow(const Flow &) = delete;
	Flow &operator=(const Flow &) = delete;
	~Flow() { stop(); }

	// Begins now. The number of the flow is the seed of its random numbers, too.
	void start(uint64_t now_ns, uint64_t number)
	{
		stop();
		number_ = number;
		for (const pcm_api *h : handlers()) {
			One one{h, h->create(now_ns, number), PCM_OUTPUT_NONE};
			if (!one.state) {
				std::fprintf(stderr, "pcm: no memory for another flow of %s\n", h->info()->name);
				std::abort();
			}
			h->read(one.state, &one.out);
			all_.push_back(one);
		}
	}

	void stop()
	{
		for (One &one : all_)
			one.api->destroy(one.state);
		all_.clear();
	}

	bool running() const { return !all_.empty(); }

	// Gives an event to the handlers that read something of it; one without anything in it is for all, to look at their clocks.
	void flush(const Event &e)
	{
		for (One &one : all_)
			give(one, e);
	}

	// For transports that say one thing of a window and another of a path: handlers that only choose paths, and the others.
	void flush_paths(const Event &e)
	{
		for (One &one : all_)
			if (one.only_paths())
				give(one, e);
	}
	void flush_window(const Event &e)
	{
		for (One &one : all_)
			if (!one.only_paths())
				give(one, e);
	}
{{range .Kinds}}
	uint64_t {{.Field}}() const { return value(sets_{{.Field}}, &pcm_output::{{.Field}}); }{{end}}

	// How often handlers want to look at their clocks, ns; 0: none does.
	static uint64_t poll_ns()
	{
		uint64_t least = 0;
		for (const pcm_api *h : handlers())
			if (h->poll_ns && (!least || h->poll_ns < least))
				least = h->poll_ns;
		return least;
	}

private:
	struct One {
		const pcm_api *api;
		pcm_flow *state;
		pcm_output out;

		bool only_paths() const { return (api->info()->controls & (sets_ev | sets_cwnd | sets_rate)) == sets_ev; }
	};

	void give(One &one, const Event &e)
	{
		const pcm_info *info = one.api->info();
		if (e.in.mask && !(e.in.mask & info->sources))
			return;
		const uint64_t failed = one.out.failed;
		one.api->flush(one.state, &e.in, &one.out);
		if (one.out.failed && !failed)
			std::fprintf(stderr, "pcm: handler %s returned %" PRIu64 ", which stopped it for flow %" PRIu64 "\n", info->name, one.out.failed, number_);
		if (one.out.fired && log())
			std::fprintf(log(), "%" PRIu64 ",%" PRIu64 ",%s,%#" PRIx64 "{{range .Kinds}},%" PRId64 "{{end}}\n", e.in.now, number_, info->name, one.out.fired{{range .Kinds}}, one.out.{{.Field}}{{end}});
	}

	uint64_t value(uint64_t control, uint64_t pcm_output::*field) const
	{
		for (const One &one : all_)
			if (one.api->info()->controls & control)
				return one.out.*field;
		return none;
	}

	std::vector<One> all_;
	uint64_t number_ = 0;
};

} // namespace pcm

#endif
