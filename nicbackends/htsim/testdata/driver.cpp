// Feeds the rows of a trace through the hook points of pcm_htsim.h and prints the controls after each; the other modes watch the pacer, the
// window, the turns of credit and the control engine. Row i is of flow i modulo the number of flows.
#include <cstring>

#include "pcm_htsim.h"
#include "rows.h"

#ifdef LINKED // one driver for all handlers: the table is linked in
extern "C" const pcm_api *const pcm_linked;
static const bool linked = pcm::use(*pcm_linked);
#endif

namespace {

// The simulator's clock is finer than a shell's: what is cut off must not show.
constexpr simtime_picosec fraction = 123;

// The balancer that the simulator would have.
class Fixed : public UecMultipath {
public:
	Fixed() : UecMultipath(false) {}
	void processEv(uint16_t, PathFeedback) override {}
	uint16_t nextEntropy(uint64_t, uint64_t) override { return 77; }
};

EventList events;
UecNIC nic;

struct Logger : TrafficLogger {
	int sent = 0;
	void logTraffic(Packet &, Logged &, TrafficEvent) override { sent++; }
} logger;

std::unique_ptr<PcmUecSrc> sender(flowid_t number)
{
	auto src = std::make_unique<PcmUecSrc>(&logger, events, std::make_unique<Fixed>(), nic, 1);
	src->number(number);
	return src;
}

void happen(PcmUecSrc &src, const Row &row)
{
	const uint64_t psn = 7;
	const mem_b in_flight = row.get("in_flight"), backlog = row.get("tx_backlog_bytes");
	src.set(in_flight, 0);
	if (row.has("rto")) {
		src.packet_sent(psn, 4150, 0);
		src.timer_expires();
		src.packet_gone(psn);
	} else if (row.has("nack")) {
		src.packet_sent(psn, row.get("data_nacked"), 0);
		UecNackPacket nack;
		nack.psn_ = psn;
		nack.ev_ = row.get("nack_ev");
		src.port(0)->receivePacket(nack);
		src.packet_gone(psn);
	} else if (row.has("ack_ev")) {
		UecAckPacket ack;
		ack.acked_psn_ = psn;
		ack.ev_ = row.get("ack_ev");
		ack.ecn_ = row.has("ecn");
		ack.recvd_bytes_ = src.received() + row.get("data_tx");
		src.set(in_flight + row.get("data_tx"), 0);
		if (row.has("rtt"))
			src.packet_sent(psn, 4150, events.now() - row.get("rtt") * 1000 - row.t_ns % 1000);
		src.port(0)->receivePacket(ack);
		src.packet_gone(psn);
	} else if (row.has("tx_ready_pkts")) {
		src.set(in_flight, backlog);
		src.paths().nextEntropy(0, 0);
	} else if (row.has("tx_bytes")) {
		src.set(in_flight, backlog);
		src.log_sent(row.get("tx_bytes"));
	}
	src.set(in_flight, 0);
}

int trace(size_t flows)
{
	const auto rows = read_rows(std::cin);
	std::vector<std::unique_ptr<PcmUecSrc>> senders;
	EventList::run(rows[0].t_ns * 1000 + fraction);
	for (size_t i = 0; i < flows; i++) {
		senders.push_back(sender(i + 1));
		senders[i]->startConnection();
	}
	for (size_t i = 0; i < rows.size(); i++) {
		PcmUecSrc &src = *senders[i % flows];
		EventList::run(rows[i].t_ns * 1000 + fraction);
		happen(src, rows[i]);
		const pcm::Flow &now = src.handlers();
		std::cout << now.cwnd() << ' ' << now.rate() << ' ' << now.ev() << ' ' << now.pull_no() << '\n';
	}
	return 0;
}

// Each row is a turn of its sender, whose sink has a pacer of its own.
int credit(size_t flows)
{
	const auto rows = read_rows(std::cin);
	PcmPlane plane(PcmEngine::of(nic, events), nullptr);
	pcm::Flow fresh;
	fresh.start(0, 1, plane);
	const uint64_t begin = fresh.pull_no();
	std::vector<std::unique_ptr<UecSink>> sinks;
	std::vector<std::unique_ptr<PcmUecPullPacer>> pacers;
	for (size_t i = 0; i < flows; i++) {
		sinks.push_back(std::make_unique<UecSink>(nic, i + 1));
		pacers.push_back(std::make_unique<PcmUecPullPacer>(events));
	}
	const uint64_t pulled = sinks[0]->pulled();
	for (size_t i = 0; i < rows.size(); i++) {
		UecSink &sink = *sinks[i % flows];
		PcmUecPullPacer &pacer = *pacers[i % flows];
		EventList::time = rows[i].t_ns * 1000 + fraction;
		sink.ask(rows[i].get("pull_target") - begin + pulled);
		if (!pacer.active())
			pacer.queue(&sink);
		pacer.doNextEvent();
		std::cout << pcm::none << ' ' << pcm::none << ' ' << pcm::none << ' ' << sink.pulled() - pulled + begin << '\n';
	}
	return 0;
}

// When packets of a message leave, ns, and how many were in flight at most, when each is acknowledged a round trip later.
int message(mem_b bytes, simtime_picosec rtt)
{
	auto src = sender(1);
	src->want(bytes);
	src->startConnection();
	mem_b most = 0;
	int seen = 0;
	std::multimap<simtime_picosec, int> back;
	while (true) {
		for (; seen < logger.sent; seen++) {
			std::cout << events.now() / 1000 << '\n';
			back.insert({events.now() + rtt, 1});
		}
		most = std::max(most, src->in_flight());
		simtime_picosec next = back.empty() ? UINT64_MAX : back.begin()->first;
		if (!EventList::pending.empty())
			next = std::min(next, EventList::pending.begin()->first);
		if (next == UINT64_MAX)
			break;
		EventList::run(next);
		if (!back.empty() && back.begin()->first == next) {
			back.erase(back.begin());
			UecAckPacket ack;
			ack.recvd_bytes_ = src->received() + 4150;
			src->port(0)->receivePacket(ack);
		}
	}
	std::cout << "most " << most << '\n';
	return 0;
}

// Three senders ask for credit at one pacer: what each pull packet brought its sender to, and when.
int turns()
{
	PcmUecPullPacer pacer(events);
	std::vector<std::unique_ptr<UecSink>> sinks;
	for (int i = 0; i < 3; i++) {
		sinks.push_back(std::make_unique<UecSink>(nic, i + 1));
		sinks[i]->ask(5000 + 100 * (i + 1));
		pacer.queue(sinks[i].get());
	}
	EventList::sourceIsPendingRel(pacer, 0);
	for (size_t before = 0; !EventList::pending.empty(); before = nic.pulls.size()) {
		EventList::run(EventList::pending.begin()->first);
		if (nic.pulls.size() > before)
			std::cout << events.now() << ' ' << nic.pulls.back() << '\n';
	}
	return 0;
}

// What comes before a flow has begun and after it has ended, and a timeout's cut, which is not the transport's to make.
int edges()
{
	auto src = sender(1);
	Row ack;
	ack.values = {{"ack", 1}, {"data_tx", 4150}, {"ack_ev", 1}, {"in_flight", 0}};
	happen(*src, ack);
	std::cout << "before " << src->handlers().running() << ' ' << src->paths().nextEntropy(0, 0) << '\n';
	src->startConnection();
	std::cout << "running " << src->handlers().running() << " window " << src->window() << '\n';
	Row rto;
	rto.values = {{"rto", 1}};
	happen(*src, rto);
	std::cout << "timeout " << src->handlers().cwnd() << ' ' << src->window_after_timeout << ' ' << src->window() << '\n';
	src->finish();
	happen(*src, ack);
	std::cout << "after " << src->handlers().running() << '\n';
	happen(*src, ack);
	happen(*src, rto);
	EventList::run(events.now() + 1000000000);
	return 0;
}

// Flows of one NIC are acknowledged, and end, at the times of the input ("t flow", "t flow end"): when which of them has a new window, ps.
int engine(size_t flows)
{
	std::vector<std::unique_ptr<PcmUecSrc>> senders;
	for (size_t i = 0; i < flows; i++) {
		senders.push_back(sender(i + 1));
		senders[i]->startConnection();
	}
	std::vector<uint64_t> seen(flows, senders[0]->handlers().cwnd());
	auto until = [&](simtime_picosec t) {
		while (!EventList::pending.empty() && EventList::pending.begin()->first <= t) {
			EventList::run_one();
			for (size_t i = 0; i < flows; i++) {
				const uint64_t now = senders[i]->handlers().cwnd();
				if (senders[i]->handlers().running() && now != seen[i])
					std::cout << events.now() << ' ' << i + 1 << ' ' << (seen[i] = now) << '\n';
			}
		}
		EventList::time = std::max(EventList::time, t);
	};
	std::string line, end;
	uint64_t t, flow;
	while (std::getline(std::cin, line)) {
		std::stringstream words(line);
		end.clear();
		words >> t >> flow >> end;
		until(t * 1000);
		if (end == "end")
			senders[flow - 1]->finish();
		Row ack;
		ack.t_ns = t;
		ack.values = {{"ack", 1}, {"data_tx", 4150}, {"ack_ev", 1}, {"in_flight", 0}};
		happen(*senders[flow - 1], ack);
	}
	until(events.now() + 1000000000);
	return 0;
}

// A handler that is always due, once it was told something, while there is traffic until a time: how long it goes on, ns.
int loops(simtime_picosec until)
{
	struct Traffic : EventSource {
		Traffic() : EventSource(events, "traffic") {}
		void doNextEvent() override {}
	} traffic;
	EventList::counts_traffic = true;
	auto src = sender(1);
	src->startConnection();
	EventList::sourceIsPending(traffic, until);
	Row ack;
	ack.values = {{"ack", 1}, {"data_tx", 4150}, {"ack_ev", 1}, {"in_flight", 0}};
	happen(*src, ack);
	for (int i = 0; !EventList::pending.empty(); i++) {
		if (i == 1000)
			std::abort();
		EventList::run_one();
	}
	std::cout << events.now() / 1000 << '\n';
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
	if (mode == "message")
		return message(std::stoll(argv[2]), std::stoull(argv[3]));
	if (mode == "turns")
		return turns();
	if (mode == "engine")
		return engine(std::stoul(argv[2]));
	if (mode == "loops")
		return loops(std::stoull(argv[2]));
	return mode == "edges" ? edges() : 2;
}
