// Handlers in UCCL: a flow's PCB holds a PcmCC beside the transport's own algorithms, an EQDSCC a PcmPull. Both know nothing of the
// transport but its ticks: pcm_context.h and the lines of README.md feed them.
//
// Times are ticks of the time-stamp counter; a shell's are ns since the flow began: fractions of a ns are cut off. An asynchronous handler
// is served by the thread of pcm_worker.h, which reads that counter itself.
#ifndef PCM_UCCL_H
#define PCM_UCCL_H

#include <atomic>

#include "pcm_worker.h"

namespace uccl {

class PcmCC {
public:
	PcmCC() = default; // of a flow that never sends
	PcmCC(double freq_ghz, double link_bytes_per_s, uint64_t (*tsc)()) : link_(link_bytes_per_s)
	{
		static std::atomic<uint64_t> flows{0};
		plane_.clock = {freq_ghz, tsc, tsc()};
		flow_.start(0, flows++, plane_);
	}

	// An acknowledgement of bytes; delay is 0 when there is no sample. What is unacknowledged no longer counts them.
	void on_ack(uint64_t now_tsc, uint64_t delay_tsc, uint32_t bytes, uint32_t unacked)
	{
		pcm::Event e = event(now_tsc, unacked);
		if (bytes)
			e.ack(packets(bytes)).data_tx(bytes);
		if (delay_tsc)
			e.rtt(plane_.clock.ns(delay_tsc));
		if (acked_path_ != pcm::none)
			e.ack_ev(acked_path_);
		acked_path_ = pcm::none;
		flow_.flush(e);
	}

	// The queue pair that the acknowledgement names which is about to be dealt with.
	void on_ack_path(uint32_t path) { acked_path_ = path; }

	// A chunk is sent again because later ones arrived.
	void on_nack(uint64_t now_tsc, uint32_t bytes, uint32_t path, uint32_t unacked)
	{
		flow_.flush(event(now_tsc, unacked).nack(packets(bytes)).data_nacked(bytes).nack_ev(path));
	}

	// The flow's timer expired; timeouts counts those before. It may send several chunks again, which is one timeout all the same.
	void on_timeout(uint64_t now_tsc, uint32_t timeouts, uint32_t path, uint32_t unacked)
	{
		if (timeouts_ == uint64_t(timeouts) + 1)
			return;
		timeouts_ = uint64_t(timeouts) + 1;
		flow_.flush(event(now_tsc, unacked).rto(1).nack_ev(path));
	}

	// A chunk leaves, and so much of its message is left.
	void on_send(uint64_t now_tsc, uint32_t bytes, uint32_t left, uint32_t unacked)
	{
		flow_.flush(event(now_tsc, unacked + bytes).tx_bytes(bytes).tx_backlog_bytes(left));
	}

	// The transport is about to ask what may leave: handlers look at their clocks when it is time.
	void look(uint64_t now_tsc)
	{
		const uint64_t now = plane_.clock.at(now_tsc), every = pcm::Flow::poll_ns();
		if (!every || now - looked_ < every)
			return;
		looked_ = now;
		flow_.flush(pcm::Event(now));
	}

	// How much of the bytes that are left may leave: at least a packet, or all there is, so that no chunk is smaller than it need be.
	uint32_t budget(uint32_t left, uint32_t unacked) const
	{
		const uint64_t window = flow_.cwnd(), room = window > unacked ? window - unacked : 0, packet = std::min(left, mtu_);
		if (room >= packet)
			return uint32_t(std::min<uint64_t>(left, room));
		return unacked ? 0 : packet;
	}

	// Bytes a second; a handler's are bits in 100 ns.
	double rate() const { return flow_.rate() == pcm::none ? link_ : std::max<double>(1, double(flow_.rate())) * 1e7 / 8; }

	bool paces() const { return flow_.rate() != pcm::none; }
	bool chooses_paths() const { return flow_.ev() != pcm::none; }

	// A queue pair for the next chunk.
	uint32_t path(uint64_t now_tsc, uint32_t paths, uint32_t unacked)
	{
		flow_.flush(event(now_tsc, unacked).tx_ready_pkts(1));
		return uint32_t(flow_.ev() % paths);
	}

	void set_mtu(uint32_t bytes) { mtu_ = bytes; }
	const pcm::Flow &handlers() const { return flow_; }

	size_t prev_desired_tx_tsc_ = 0; // of the timing wheel

private:
	uint64_t packets(uint64_t bytes) const { return (bytes + mtu_ - 1) / mtu_; }
	pcm::Event event(uint64_t now_tsc, uint32_t unacked) const { return pcm::Event(plane_.clock.at(now_tsc)).in_flight(unacked); }

	PcmPlane plane_; // before the flow, which ends first
	pcm::Flow flow_;
	double link_ = 0;
	uint64_t looked_ = 0;
	uint64_t acked_path_ = pcm::none;
	uint64_t timeouts_ = 0; // one more than those before the last one that was seen
	uint32_t mtu_ = 4096;
};

// PcmPull is how much credit a sender gets whose turn it is at the pacer.
class PcmPull {
public:
	static constexpr uint64_t units = 64; // of 256 bytes in a quantum of the transport

	// Both counts begin where the handler has them begin, and what the transport granted unasked is not in them: the target is what the
	// handler granted plus what is still asked for. The transport's own counts are modulo 256. An asynchronous handler's grant is there at
	// a later turn.
	uint8_t grant(uint8_t backlog, uint64_t (*tsc)(), double freq_ghz)
	{
		if (!(pcm::controls() & pcm::sets_pull_no))
			return backlog;
		const uint64_t now_tsc = tsc();
		if (!flow_.running()) {
			static std::atomic<uint64_t> flows{0};
			plane_.clock = {freq_ghz, tsc, now_tsc};
			flow_.start(0, flows++, plane_);
			granted_ = flow_.pull_no();
		}
		flow_.flush(pcm::Event(plane_.clock.at(now_tsc)).pull_target(granted_ + backlog * units - kept_));
		const uint64_t granted = flow_.pull_no();
		kept_ += granted - granted_;
		granted_ = granted;
		const uint64_t quanta = std::min<uint64_t>(kept_ / units, backlog);
		kept_ -= quanta * units;
		return uint8_t(quanta);
	}

private:
	PcmPlane plane_;
	pcm::Flow flow_;
	uint64_t granted_ = 0; // by the handler, of what was seen
	uint64_t kept_ = 0;    // granted, and less than a quantum
};

} // namespace uccl

#endif
