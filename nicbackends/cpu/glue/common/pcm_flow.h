// The handlers of one flow: events go in, controls come out. A handler whose shell is synchronous runs where the event goes in; one whose
// shell is asynchronous runs when a control plane serves it, and the datapath reads what was published last.
#ifndef PCM_FLOW_H
#define PCM_FLOW_H

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
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

// Some handler of this program has an asynchronous shell.
inline bool asynchronous()
{
	return std::any_of(handlers().begin(), handlers().end(), [](const pcm_api *h) { return h->info()->kind != PCM_SYNCHRONOUS; });
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

class Context;

// ControlPlane serves a flow's handlers whose shells are asynchronous.
class ControlPlane {
public:
	virtual ~ControlPlane() = default;
	virtual void begins(const std::shared_ptr<Context> &) = 0;
	virtual void due(Context &) = 0; // a trigger fires on what the datapath has just noted
	virtual void ends(Context &) = 0;
};

// Context is one handler of one flow. The flow holds it, and so does who serves it.
class Context {
public:
	// Without a plane the shell is synchronous.
	Context(const pcm_api *api, uint64_t now_ns, uint64_t number, ControlPlane *plane) : api_(api), state_(api->create(now_ns, number)), plane_(plane), number_(number)
	{
		if (!state_) {
			std::fprintf(stderr, "pcm: no memory for another flow of %s\n", api->info()->name);
			std::abort();
		}
		api->read(state_, &out_);
		publish();
	}
	Context(const Context &) = delete;
	Context &operator=(const Context &) = delete;
	~Context() { api_->destroy(state_); }

	// The datapath's half.
	void give(const Event &e)
	{
		if (e.in.mask && !(e.in.mask & info()->sources))
			return;
		if (plane_) {
			if (api_->note(state_, &e.in))
				plane_->due(*this);
			return;
		}
		const uint64_t failed = out_.failed;
		api_->flush(state_, &e.in, &out_);
		said(e.in.now, failed);
	}

	// Only its maker may say so, and then gives it no more events.
	void end()
	{
		ended_.store(true, std::memory_order_relaxed);
		if (plane_)
			plane_->ends(*this);
	}

	// The control plane's half: runs the handler if a trigger fires. What it decided stays here until it is published.
	struct Served {
		bool ran, again; // again: it is due once more, or still
	};
	Served serve(uint64_t now_ns)
	{
		const uint64_t failed = out_.failed;
		const bool again = api_->serve(state_, now_ns, &out_);
		said(now_ns, failed);
		return {out_.fired != 0, again};
	}
	void publish()
	{
{{- range .Kinds}}
		renew(published_.{{.Field}}, out_.{{.Field}});
{{- end}}
	}
	bool ended() const { return ended_.load(std::memory_order_relaxed); }
	bool noted = false, again = false; // for the control plane's own use

	const pcm_info *info() const { return api_->info(); }
	bool only_paths() const { return (info()->controls & (sets_ev | sets_cwnd | sets_rate)) == sets_ev; }
{{range .Kinds}}
	uint64_t {{.Field}}() const { return plane_ ? published_.{{.Field}}.load(std::memory_order_relaxed) : out_.{{.Field}}; }{{end}}

private:
	// The line is written only when a control changes, so that until then the datapath has it in its cache.
	static void renew(std::atomic<uint64_t> &to, uint64_t v)
	{
		if (to.load(std::memory_order_relaxed) != v)
			to.store(v, std::memory_order_relaxed);
	}

	void said(uint64_t now_ns, uint64_t failed)
	{
		if (out_.failed && !failed)
			std::fprintf(stderr, "pcm: handler %s returned %" PRIu64 ", which stopped it for flow %" PRIu64 "\n", info()->name, out_.failed, number_);
		if (out_.fired && log())
			std::fprintf(log(), "%" PRIu64 ",%" PRIu64 ",%s,%#" PRIx64 "{{range .Kinds}},%" PRId64 "{{end}}\n", now_ns, number_, info()->name, out_.fired{{range .Kinds}}, out_.{{.Field}}{{end}});
	}

	// Each on a cache line of its own: what a control plane publishes, what nobody changes, and what the one that runs the handler writes.
	struct alignas(64) {
		std::atomic<uint64_t> {{range $i, $c := .Kinds}}{{if $i}}, {{end}}{{$c.Field}}{none}{{end}};
	} published_;
	alignas(64) const pcm_api *const api_;
	pcm_flow *const state_;
	ControlPlane *const plane_;
	const uint64_t number_;
	std::atomic<bool> ended_{false};
	alignas(64) pcm_output out_ = PCM_OUTPUT_NONE;
};

class Flow {
public:
	Flow() = default;
	Flow(const Flow &) = delete;
	Flow &operator=(const Flow &) = delete;
	~Flow() { stop(); }

	// Begins now. The number of the flow is the seed of its random numbers, too. Asynchronous handlers are the plane's to serve.
	void start(uint64_t now_ns, uint64_t number, ControlPlane &plane)
	{
		stop();
		for (const pcm_api *h : handlers()) {
			const bool apart = h->info()->kind != PCM_SYNCHRONOUS;
			all_.push_back(std::make_shared<Context>(h, now_ns, number, apart ? &plane : nullptr));
			if (apart)
				plane.begins(all_.back());
		}
	}

	void stop()
	{
		for (auto &one : all_)
			one->end();
		all_.clear();
	}

	bool running() const { return !all_.empty(); }

	// Gives an event to the handlers that read something of it; one without anything in it is for all, to look at their clocks.
	void flush(const Event &e)
	{
		for (auto &one : all_)
			one->give(e);
	}

	// For transports that say one thing of a window and another of a path: handlers that only choose paths, and the others.
	void flush_paths(const Event &e)
	{
		for (auto &one : all_)
			if (one->only_paths())
				one->give(e);
	}
	void flush_window(const Event &e)
	{
		for (auto &one : all_)
			if (!one->only_paths())
				one->give(e);
	}
{{range .Kinds}}
	uint64_t {{.Field}}() const { return value(sets_{{.Field}}, &Context::{{.Field}}); }{{end}}

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
	uint64_t value(uint64_t control, uint64_t (Context::*get)() const) const
	{
		for (const auto &one : all_)
			if (one->info()->controls & control)
				return ((*one).*get)();
		return none;
	}

	std::vector<std::shared_ptr<Context>> all_;
};

} // namespace pcm

#endif
