// Feeds the rows of a trace through the hook points of pcm_context.h and prints the controls after each; the other modes watch what may leave,
// the pace, the paths, credit, and the worker beside several engines. Row i is of flow i modulo the number of flows.
#include <chrono>
#include <memory>
#include <thread>

#include "pcm_context.h"
#include "rows.h"

#ifdef LINKED // one driver for all handlers: the table is linked in
extern "C" const pcm_api *const pcm_linked;
static const bool linked = pcm::use(*pcm_linked);
#endif

using namespace uccl;

namespace {

constexpr double link_rate = 50e9;   // bytes a second
constexpr uint64_t begin = 1ull << 50; // flows begin when the counter has run for days

uint32_t engine_unacked = 0;
PcmRDMAContext context(&engine_unacked);

// The counter when so many ns have passed, and a little more: what is cut off must not show.
uint64_t ticks(uint64_t ns) { return uint64_t(ns * freq_ghz) + 1; }

// Waits until the worker has seen all that was noted.
void settle()
{
	if (!pcm::asynchronous() || !PcmWorker::get().threaded())
		return;
	const uint64_t from = PcmWorker::get().rounds();
	const auto late = std::chrono::steady_clock::now() + std::chrono::minutes(2);
	while (PcmWorker::get().rounds() < from + 2) {
		if (std::chrono::steady_clock::now() > late)
			std::abort();
		std::this_thread::yield();
	}
}

void happen(SubUcclFlow &flow, const Row &row)
{
	tsc = begin + ticks(row.t_ns);
	flow.unacked_bytes_ = row.get("in_flight");
	wr_ex chunk{{uint32_t(row.get("data_nacked"))}, uint32_t(row.get("nack_ev"))};
	if (row.has("rto")) { // two chunks are sent again by one timeout
		flow.rto_armed = false;
		context.EventOnTxRTXData(&flow, &chunk);
		context.EventOnTxRTXData(&flow, &chunk);
		flow.rto_armed = true;
		flow.pcb.stats_rto_rexmits++;
	} else if (row.has("nack")) {
		context.EventOnTxRTXData(&flow, &chunk);
	} else if (row.has("ack")) {
		UcclSackHdr sack;
		sack.path.v = row.has("ack_ev") ? row.get("ack_ev") : 32; // the path of a chunk that was sent again
		context.EventOnRxACK(&flow, &sack);
		context.EventOnRxNACK(&flow, &sack); // a duplicate says nothing
		flow.pcb.pcm_cc.on_ack(rdtsc(), row.has("rtt") ? ticks(row.get("rtt")) : 0, row.get("data_tx"), flow.unacked_bytes_);
	} else if (row.has("tx_ready_pkts")) {
		context.EventOnSelectPath(&flow, 4096);
	} else if (row.has("tx_bytes")) {
		flow.unacked_bytes_ = 0; // so that all of it may leave
		if (context.EventOnChunkSize(&flow, row.get("tx_bytes")) != row.get("tx_bytes"))
			std::abort();
	} else {
		context.EventOnChunkSize(&flow, 0); // nothing is left to send
	}
}

int trace(size_t flows)
{
	std::vector<std::unique_ptr<SubUcclFlow>> all;
	tsc = begin;
	for (size_t i = 0; i < flows; i++)
		all.push_back(std::make_unique<SubUcclFlow>(i, link_rate));
	size_t i = 0;
	for (const Row &row : read_rows(std::cin)) {
		SubUcclFlow &flow = *all[i++ % flows];
		happen(flow, row);
		settle();
		const pcm::Flow &now = flow.pcb.pcm_cc.handlers();
		std::cout << now.cwnd() << ' ' << now.rate() << ' ' << now.ev() << ' ' << now.pull_no() << '\n';
	}
	return 0;
}

// Each row is a turn of its sender at the pacer. The transport's counts are modulo 256, a handler's are not.
int credit(size_t flows)
{
	PcmPlane plane;
	plane.clock = {freq_ghz, rdtsc, 0};
	pcm::Flow fresh;
	fresh.start(0, 0, plane);
	const uint64_t from = fresh.pull_no();
	struct Sender {
		PcmPull pull;
		uint64_t quanta = 0;
	};
	std::vector<std::unique_ptr<Sender>> all;
	for (size_t i = 0; i < flows; i++)
		all.push_back(std::make_unique<Sender>());
	tsc = begin;
	size_t i = 0;
	for (const Row &row : read_rows(std::cin)) {
		Sender &s = *all[i++ % flows];
		const uint64_t asked = (row.get("pull_target") - from) / PcmPull::units;
		tsc = begin + ticks(row.t_ns);
		s.quanta += s.pull.grant(uint8_t(asked - s.quanta), rdtsc, freq_ghz);
		std::cout << pcm::none << ' ' << pcm::none << ' ' << pcm::none << ' ' << from + s.quanta * PcmPull::units << '\n';
	}
	return 0;
}

// What may leave when so much is left and so much is in flight, of the flow and of the engine.
int budget(int n, char **v)
{
	SubUcclFlow flow(0, link_rate);
	for (int i = 0; i + 2 < n; i += 3) {
		flow.unacked_bytes_ = std::stoul(v[i + 1]);
		engine_unacked = std::stoul(v[i + 2]);
		std::cout << context.EventOnChunkSize(&flow, std::stoul(v[i])) << '\n';
	}
	wr_ex chunk{{4096}, 0};
	const bool queued = context.EventOnQueueData(&flow, &chunk, 4200, rdtsc());
	std::cout << "queued " << queued << " at " << uint64_t(context.paced_at()) << " path " << context.EventOnSelectPath(&flow, 4096) << '\n';
	return 0;
}

// Engines on threads of their own acknowledge packets of their flows, and make and drop flows, while the worker serves all. Each line is a flow:
// the packets and bytes that were acknowledged, its window and its rate when all is quiet.
int threads(int engines, int flows, int events)
{
	tsc = begin;
	std::mutex print;
	auto engine = [&](int number) {
		uint32_t unacked = 0;
		PcmRDMAContext own(&unacked);
		struct One {
			std::unique_ptr<SubUcclFlow> flow;
			uint64_t packets = 0, bytes = 0, window = 0;
		};
		std::vector<One> all(flows);
		for (One &one : all)
			one.flow = std::make_unique<SubUcclFlow>(number, link_rate);
		for (int i = 0; i < events; i++) {
			One &one = all[i % flows];
			const uint32_t packets = 1 + i % 16;
			one.flow->pcb.pcm_cc.on_ack(rdtsc(), ticks(10000 + i % 100), packets * 4096, 0);
			one.packets += packets;
			one.bytes += packets * 4096;
			own.EventOnChunkSize(one.flow.get(), 1 << 20);
			const uint64_t window = one.flow->pcb.pcm_cc.handlers().cwnd();
			if (window < one.window || window > one.packets)
				std::abort(); // a window that goes back, or counts what has not come
			one.window = window;
			if (number == 0)
				tsc += 100;
			if (i % 64 == 0) // a short flow
				SubUcclFlow(number, link_rate).pcb.pcm_cc.on_ack(rdtsc(), 1, 4096, 0);
		}
		settle();
		std::lock_guard<std::mutex> hold(print);
		for (One &one : all)
			std::cout << one.packets << ' ' << one.bytes << ' ' << one.flow->pcb.pcm_cc.handlers().cwnd() << ' ' << one.flow->pcb.pcm_cc.handlers().rate() << '\n';
	};
	std::vector<std::thread> all;
	for (int i = 0; i < engines; i++)
		all.emplace_back(engine, i);
	for (std::thread &t : all)
		t.join();
	return 0;
}

} // namespace

int main(int argc, char **argv)
{
	const std::string mode = argc > 1 ? argv[1] : "";
	if (mode == "trace")
		return trace(std::stoul(argv[2]));
	if (mode == "credit")
		return credit(std::stoul(argv[2]));
	if (mode == "threads")
		return threads(std::stoi(argv[2]), std::stoi(argv[3]), std::stoi(argv[4]));
	return mode == "budget" ? budget(argc - 2, argv + 2) : 2;
}
