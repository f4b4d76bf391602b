// The control plane of asynchronous handlers in UCCL: one thread serves the flows of all engines. Engines note what happens in a flow's
// shell and read what was published for it; neither waits for the other.
//
// In the environment, PCM_CORE=N keeps the thread on a core; PCM_WORKER=off does without it: handlers are then served in the engine's
// thread as soon as a trigger fires, which tells what the shell costs from what the other thread does.
#ifndef PCM_WORKER_H
#define PCM_WORKER_H

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include <pthread.h>
#include <sched.h>

#include "pcm_flow.h"

namespace uccl {

// A flow's clock. It begins when the flow does and counts ns, whose fractions are cut off.
struct PcmClock {
	double freq_ghz = 1;
	uint64_t (*tsc)() = nullptr; // ticks
	uint64_t start = 0;

	uint64_t ns(uint64_t ticks) const { return uint64_t(double(ticks) / freq_ghz); }
	uint64_t at(uint64_t now_tsc) const { return ns(now_tsc - start); }
	uint64_t now() const { return at(tsc()); }
};

class PcmWorker {
public:
	static PcmWorker &get()
	{
		static PcmWorker only;
		return only;
	}

	~PcmWorker()
	{
		{
			std::lock_guard<std::mutex> hold(mutex_);
			stop_ = true;
		}
		wake_.notify_all();
		if (thread_.joinable())
			thread_.join();
	}

	// In an engine's thread: a flow begins. The thread starts with the first one.
	void add(std::shared_ptr<pcm::Context> context, const PcmClock &clock)
	{
		if (!threaded_)
			return;
		std::lock_guard<std::mutex> hold(mutex_);
		come_.push_back({std::move(context), clock});
		more_.store(true, std::memory_order_release);
		if (!thread_.joinable())
			thread_ = std::thread([this] { run(); });
		wake_.notify_all();
	}

	bool threaded() const { return threaded_; }

	// How often it has been round: all that was noted before it began a round is served in it.
	uint64_t rounds() const { return rounds_.load(std::memory_order_acquire); }

private:
	struct Entry {
		std::shared_ptr<pcm::Context> context;
		PcmClock clock;
	};

	PcmWorker()
	{
		const char *worker = std::getenv("PCM_WORKER");
		if (worker && *worker && std::strcmp(worker, "off") && std::strcmp(worker, "on"))
			std::fprintf(stderr, "pcm: PCM_WORKER=%s is neither on nor off: taken for on\n", worker);
		threaded_ = !worker || std::strcmp(worker, "off");
	}

	void run()
	{
		stay();
		std::vector<Entry> all; // this thread's alone
		while (take(all)) {
			// A round takes each context once, so a flow that is always due keeps none from its turn.
			bool ran = false;
			for (size_t i = 0; i < all.size();) {
				pcm::Context &c = *all[i].context;
				if (c.ended()) {
					std::swap(all[i], all.back());
					all.pop_back();
					continue;
				}
				if (c.serve(all[i].clock.now()).ran) {
					c.publish();
					ran = true;
				}
				i++;
			}
			rounds_.fetch_add(1, std::memory_order_release);
			if (!ran)
				std::this_thread::yield();
		}
	}

	// Takes the contexts that have come, and waits for one when there is none. Says that there is something to do.
	bool take(std::vector<Entry> &all)
	{
		if (!all.empty() && !more_.load(std::memory_order_acquire) && !stop_.load(std::memory_order_relaxed))
			return true;
		std::unique_lock<std::mutex> hold(mutex_);
		wake_.wait(hold, [&] { return stop_ || !all.empty() || !come_.empty(); });
		std::move(come_.begin(), come_.end(), std::back_inserter(all));
		come_.clear();
		more_.store(false, std::memory_order_relaxed);
		return !stop_;
	}

	static void stay()
	{
		const char *core = std::getenv("PCM_CORE");
		if (!core || !*core)
			return;
		char *end;
		const unsigned long n = std::strtoul(core, &end, 10);
		cpu_set_t one;
		CPU_ZERO(&one);
		if (n < CPU_SETSIZE)
			CPU_SET(n, &one);
		if (*end || pthread_setaffinity_np(pthread_self(), sizeof one, &one))
			std::fprintf(stderr, "pcm: PCM_CORE=%s is no core of this process: the worker goes where the scheduler puts it\n", core);
	}

	bool threaded_;
	std::mutex mutex_;
	std::condition_variable wake_;
	std::vector<Entry> come_;
	std::atomic<bool> more_{false}, stop_{false};
	std::atomic<uint64_t> rounds_{0};
	std::thread thread_;
};

// A flow's way to the worker.
class PcmPlane : public pcm::ControlPlane {
public:
	PcmClock clock;

	void begins(const std::shared_ptr<pcm::Context> &c) override { PcmWorker::get().add(c, clock); }
	void due(pcm::Context &c) override
	{
		if (PcmWorker::get().threaded())
			return; // it comes round
		c.serve(clock.now());
		c.publish();
	}
	void ends(pcm::Context &) override {} // it sees that, and lets go
};

} // namespace uccl

#endif
