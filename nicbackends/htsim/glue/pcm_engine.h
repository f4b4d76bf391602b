// The control plane of asynchronous handlers in uet-htsim: each NIC has an engine that looks at its flows in turn and runs the handlers that
// are due, in a chain of events of its own. Packets go on meanwhile; what they tell gathers in the shells, and what a handler decides counts
// when its time is over.
//
//	PCM_POLL_NS=P        a look at a flow takes so long, and
//	PCM_HANDLER_NS=T     a run of its handler so long: a round of F flows that are all due takes F * (P + T)
//	PCM_MULTIPLIER=N     every flow stands for N that share the engine: it waits for the runs of the other N - 1 before it goes on
//
// An engine without delays is done before the simulator goes on: it decides as a synchronous shell does.
#ifndef PCM_ENGINE_H
#define PCM_ENGINE_H

#include <cmath>
#include <functional>
#include <unordered_map>

#include "pcm_flow.h"
#include "uec.h"

namespace pcm {

constexpr uint64_t ps_in_ns = 1000;
inline uint64_t ns(simtime_picosec t) { return t / ps_in_ns; }

// Delays are the engines'; a program may set them itself before its flows begin.
struct Delays {
	simtime_picosec poll = setting("PCM_POLL_NS", 0, 0) * ps_in_ns + 0.5;
	simtime_picosec handler = setting("PCM_HANDLER_NS", 0, 0) * ps_in_ns + 0.5;
	uint64_t multiplier = setting("PCM_MULTIPLIER", 1, 1);

	static Delays &get()
	{
		static Delays all;
		return all;
	}
	bool none() const { return !poll && !handler; }

private:
	static double setting(const char *name, double least, double otherwise)
	{
		const char *text = std::getenv(name);
		if (!text || !*text)
			return otherwise;
		char *end;
		const double v = std::strtod(text, &end);
		if (*end || !(v >= least && v <= 1e12)) {
			std::fprintf(stderr, "pcm: %s=%s is no number from %g to 1e12\n", name, text, least);
			std::exit(2);
		}
		if (!asynchronous())
			std::fprintf(stderr, "pcm: %s has no effect: no handler of this program is asynchronous (pcmlab handler build --snapshot relaxed)\n", name);
		return v;
	}
};

} // namespace pcm

class PcmEngine : public EventSource {
public:
	// That of a NIC.
	static PcmEngine &of(const UecNIC &nic, EventList &events)
	{
		static std::unordered_map<const UecNIC *, std::unique_ptr<PcmEngine>> all;
		std::unique_ptr<PcmEngine> &one = all[&nic];
		if (!one)
			one.reset(new PcmEngine(events));
		return *one;
	}

	// A flow begins; told is called when something was decided for it.
	void begins(const std::shared_ptr<pcm::Context> &context, std::function<void()> told)
	{
		settle();
		if (ring_.empty())
			look_from_ = std::max(look_from_, eventlist().now());
		ring_.push_back({context, std::move(told)});
	}

	void due(pcm::Context &context)
	{
		if (delays_.none()) { // the hook goes on with what was decided
			context.serve(pcm::ns(eventlist().now()));
			context.publish();
			return;
		}
		context.noted = true;
		schedule();
	}

	void ends(const pcm::Context &context)
	{
		settle();
		for (size_t i = 0; i < ring_.size(); i++)
			if (ring_[i].context.get() == &context) {
				ring_.erase(ring_.begin() + i);
				next_ -= i < next_;
				break;
			}
		next_ = ring_.empty() ? 0 : next_ % ring_.size();
		schedule();
	}

	// What a handler wants to go on with although nothing happens does not keep the simulation going.
	bool isTraffic() override { return traffic_; }

	void doNextEvent() override
	{
		pending_ = false;
		running_.context ? finish() : look();
		schedule();
	}

private:
	struct Entry {
		std::shared_ptr<pcm::Context> context;
		std::function<void()> told;
	};

	explicit PcmEngine(EventList &events) : EventSource(events, "pcmEngine"), delays_(pcm::Delays::get()) {}

	// Looks that find nothing are no events: they are made up for here. A look at ring_[next_] begins at look_from_.
	void settle()
	{
		const simtime_picosec now = eventlist().now();
		if (running_.context || ring_.empty() || !delays_.poll || now <= look_from_)
			return;
		const uint64_t looks = (now - look_from_ - 1) / delays_.poll; // that ended before now
		next_ = (next_ + looks) % ring_.size();
		look_from_ += looks * delays_.poll;
	}

	// How many looks it takes until one finds something to do; that many as there are flows: none does.
	size_t until_due() const
	{
		size_t k = 0;
		for (; k < ring_.size(); k++) {
			const pcm::Context &c = *ring_[(next_ + k) % ring_.size()].context;
			if (c.noted || c.again)
				break;
		}
		return k;
	}
	simtime_picosec look_ends(size_t k) const
	{
		return delays_.poll ? look_from_ + (k + 1) * delays_.poll : std::max(look_from_, eventlist().now());
	}

	void schedule()
	{
		if (running_.context)
			return;
		settle();
		const size_t k = until_due();
		if (k == ring_.size()) {
			cancel();
			return;
		}
		at(look_ends(k), std::any_of(ring_.begin(), ring_.end(), [](const Entry &e) { return e.context->noted; }));
	}

	void look()
	{
		settle();
		const size_t k = until_due();
		if (k == ring_.size() || look_ends(k) > eventlist().now())
			return;
		const Entry one = ring_[(next_ + k) % ring_.size()];
		next_ = (next_ + k + 1) % ring_.size();
		look_from_ = eventlist().now();
		const bool noted = one.context->noted;
		one.context->noted = false;
		const pcm::Context::Served served = one.context->serve(pcm::ns(eventlist().now()));
		one.context->again = served.again;
		if (!served.ran)
			return;
		running_ = one;
		if (!delays_.handler || !at(eventlist().now() + delays_.handler, noted))
			finish();
	}

	// The handler's time is over.
	void finish()
	{
		const Entry one = std::move(running_);
		running_ = {};
		look_from_ = eventlist().now() + (delays_.multiplier - 1) * delays_.handler;
		if (one.context->ended())
			return;
		one.context->publish();
		if (one.told)
			one.told();
	}

	// Says that the simulator takes it: not behind its end, nor when all that keeps it going has ended.
	bool at(simtime_picosec when, bool traffic)
	{
		if (pending_ && handle_->first == when && traffic_ == traffic)
			return true;
		cancel();
		traffic_ = traffic;
		handle_ = eventlist().sourceIsPendingGetHandle(*this, when);
		return pending_ = handle_ != eventlist().nullHandle();
	}

	void cancel()
	{
		if (pending_)
			eventlist().cancelPendingSourceByHandle(*this, handle_);
		pending_ = false;
	}

	const pcm::Delays delays_;
	std::vector<Entry> ring_;
	size_t next_ = 0;
	simtime_picosec look_from_ = 0;
	Entry running_;
	bool pending_ = false, traffic_ = true;
	EventList::Handle handle_;
};

// A flow's way to the engine of its NIC.
class PcmPlane : public pcm::ControlPlane {
public:
	PcmPlane(PcmEngine &engine, std::function<void()> told) : engine_(engine), told_(std::move(told)) {}

	void begins(const std::shared_ptr<pcm::Context> &c) override { engine_.begins(c, told_); }
	void due(pcm::Context &c) override { engine_.due(c); }
	void ends(pcm::Context &c) override { engine_.ends(c); }

private:
	PcmEngine &engine_;
	std::function<void()> told_;
};

#endif
