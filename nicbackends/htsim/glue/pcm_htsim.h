// Handlers in uet-htsim: PcmUecSrc and PcmUecPullPacer take the places of UecSrc and UecPullPacer, whose friends they are.
//
//	ACK, NACK     PcmUecSrc::arrived, before and within UecSrc::receivePacket
//	timeout       PcmUecSrc::doNextEvent, at the time of the timer
//	path wanted   PcmMultipath::nextEntropy
//	path told     PcmMultipath::processEv
//	packet sent   PcmUecSrc::Sent, where the simulator logs it
//	credit        PcmUecPullPacer::doNextEvent
//
// What an asynchronous handler decided counts from when the engine of its NIC (pcm_engine.h) says so: PcmUecSrc::told.
//
// The simulator's time is in picoseconds, a shell's in ns: fractions of a ns are cut off.
#ifndef PCM_HTSIM_H
#define PCM_HTSIM_H

#include <memory>
#include <unordered_map>

#include "pcm_engine.h"
#include "uec.h"
#include "uec_mp.h"

namespace pcm {

constexpr uint64_t ps_in_tick = 100000; // rates are bits in 100 ns
// The transport has no CNPs: the first marked acknowledgement in this time is taken for one, as DCQCN's receiver paces them.
constexpr uint64_t cnp_gap_ps = 50 * 1000000;
// What a flow without a window may have in flight: the receiver's bitmap ends there.
constexpr mem_b most_in_flight = mem_b(uecMaxInFlightPkts / 2);

} // namespace pcm

class PcmUecSrc;

// PcmMultipath asks a handler for paths when there is one that chooses them, and otherwise the simulator's own balancer.
class PcmMultipath : public UecMultipath {
public:
	explicit PcmMultipath(std::unique_ptr<UecMultipath> own) : UecMultipath(false), own_(std::move(own)) {}

	void set_debug_tag(std::string tag) override { own_->set_debug_tag(tag); }
	void processEv(uint16_t path, PathFeedback feedback) override;
	uint16_t nextEntropy(uint64_t seq, uint64_t cwnd_in_packets) override;

private:
	friend class PcmUecSrc;
	std::unique_ptr<UecMultipath> own_;
	PcmUecSrc *src_ = nullptr;
};

class PcmUecSrc : public UecSrc {
public:
	PcmUecSrc(TrafficLogger *logger, EventList &events, std::unique_ptr<UecMultipath> mp, UecNIC &nic, uint32_t ports, bool rts = false)
		: UecSrc(logger, events, std::make_unique<PcmMultipath>(std::move(mp)), nic, ports, rts), plane_(PcmEngine::of(nic, events), [this] { told(); }), sent_(logger, *this),
		  poll_(events, *this, false), pacer_(events, *this, true)
	{
		static_cast<PcmMultipath *>(_mp.get())->src_ = this;
		_flow.set_logger(&sent_);
		for (uint32_t i = 0; i < ports; i++) {
			delete _ports[i];
			_ports[i] = new Port(*this, i);
		}
		if (steers()) { // the window is the handler's alone
			updateCwndOnAck = &UecSrc::dontUpdateCwndOnAck;
			updateCwndOnNack = &UecSrc::dontUpdateCwndOnNack;
		}
	}

	void startConnection() override
	{
		pcm_.start(now(), flowId(), plane_);
		steer();
		UecSrc::startConnection();
		poll();
	}

	void doNextEvent() override
	{
		if (pcm_.running() && _rtx_timeout_pending && eventlist().now() == _rtx_timeout) {
			pcm_.flush_window(event().rto(1));
			steer();
			// The simulator is about to cut the window by the packet that was late, which is not for it to do: it is added before.
			if (steers() && !_send_times.empty())
				_cwnd += _tx_bitmap.find(_send_times.begin()->second)->second.pkt_size;
		}
		UecSrc::doNextEvent();
		steer();
	}

	// With whom it is: what the handlers decide for this flow.
	const pcm::Flow &handlers() const { return pcm_; }

private:
	friend class PcmMultipath;

	class Port : public UecSrcPort {
	public:
		Port(PcmUecSrc &src, uint32_t number) : UecSrcPort(src, number), src_(src), number_(number) {}
		void receivePacket(Packet &pkt) override { src_.arrived(pkt, number_); }

	private:
		PcmUecSrc &src_;
		uint32_t number_;
	};

	// Where the simulator logs traffic it says when a packet of data leaves.
	class Sent : public TrafficLogger {
	public:
		Sent(TrafficLogger *own, PcmUecSrc &src) : own_(own), src_(src) {}
		void logTraffic(Packet &pkt, Logged &location, TrafficEvent ev) override
		{
			if (own_)
				own_->logTraffic(pkt, location, ev);
			if (ev == PKT_CREATESEND)
				src_.sent(pkt.size());
		}

	private:
		TrafficLogger *own_;
		PcmUecSrc &src_;
	};

	// A clock that looks at the handlers again, or opens the pacer's gate. Pending looks at clocks do not keep the simulation going.
	class Clock : public EventSource {
	public:
		Clock(EventList &events, PcmUecSrc &src, bool pacer) : EventSource(events, pacer ? "pcmPacer" : "pcmPoll"), src_(src), pacer_(pacer) {}
		~Clock()
		{
			if (pending_)
				eventlist().cancelPendingSource(*this);
		}
		bool isTraffic() override { return pacer_; }
		void at(simtime_picosec when)
		{
			if (!pending_) // the simulator takes none behind its end, or of its own when all else has ended
				pending_ = eventlist().sourceIsPendingGetHandle(*this, when) != eventlist().nullHandle();
		}
		void doNextEvent() override
		{
			pending_ = false;
			pacer_ ? src_.open() : src_.look();
		}

	private:
		PcmUecSrc &src_;
		bool pacer_, pending_ = false;
	};

	uint64_t now() const { return pcm::ns(eventlist().now()); }
	static bool steers() { return pcm::controls() & (pcm::sets_cwnd | pcm::sets_rate); }

	static uint64_t bytes(mem_b b) { return b > 0 ? b : 0; }
	pcm::Event event() const { return pcm::Event(now()).in_flight(bytes(_in_flight)); }

	// Puts into force what the handlers decide.
	void steer()
	{
		if (!pcm_.running() || !steers())
			return;
		if (pcm_.rate() != pcm::none && eventlist().now() < next_send_) {
			_cwnd = 0; // the pacer's gate is shut
			return;
		}
		// Never less than a packet, as with the simulator's own algorithms: the flow would stand still.
		_cwnd = std::clamp<uint64_t>(pcm_.cwnd(), _mtu, pcm::most_in_flight * _mtu);
	}

	// The pacer: one packet, and then the gate is shut for as long as it takes at the rate.
	void sent(mem_b size)
	{
		if (!pcm_.running())
			return;
		pcm_.flush(event().tx_bytes(size).tx_backlog_bytes(bytes(_backlog + _rtx_backlog)));
		const uint64_t rate = pcm_.rate();
		if (rate != pcm::none) {
			next_send_ = std::max(next_send_, eventlist().now()) + size * 8 * pcm::ps_in_tick / std::max<uint64_t>(rate, 1);
			pacer_.at(next_send_);
		}
		steer();
	}

	void open()
	{
		if (!pcm_.running())
			return;
		steer();
		if (eventlist().now() < next_send_)
			pacer_.at(next_send_);
		sendIfPermitted();
	}

	void look()
	{
		if (!pcm_.running())
			return;
		pcm_.flush(pcm::Event(now()));
		steer();
		poll();
		sendIfPermitted();
	}

	// The engine has run a handler of this flow.
	void told()
	{
		steer();
		sendIfPermitted();
	}

	void poll()
	{
		if (pcm::Flow::poll_ns() && pcm_.running())
			poll_.at(eventlist().now() + pcm::Flow::poll_ns() * pcm::ps_in_ns);
	}

	void arrived(Packet &pkt, uint32_t port)
	{
		const int lost = _stats._sleek_counter;
		if (pkt.type() == UECACK)
			before(static_cast<const UecAckPacket &>(pkt));
		else if (pkt.type() == UECNACK)
			before(static_cast<const UecNackPacket &>(pkt));
		UecSrc::receivePacket(pkt, port);
		acked_ = false;
		acked_bytes_ = 0;
		rtt_ = pcm::none;
		if (const uint64_t n = _stats._sleek_counter - lost) // what its recovery of losses found missing
			pcm_.flush_window(event().nack(n).data_nacked(n * _mtu));
		steer();
		if (_done_sending && !_msg_tracker.has_value())
			pcm_.stop();
		poll();
	}

	// What an acknowledgement says is known before it is dealt with; what is in flight, after: path() flushes both.
	void before(const UecAckPacket &ack)
	{
		const uint64_t received = ack.recvd_bytes();
		acked_ = true;
		acked_bytes_ = received > _recvd_bytes ? received - _recvd_bytes : 0;
		auto record = _tx_bitmap.find(ack.acked_psn());
		if (record != _tx_bitmap.end() && validateSendTs(ack.acked_psn(), ack.rtx_echo()) && !ack.is_probe_ack() && !ack.is_rts())
			rtt_ = pcm::ns(eventlist().now() - record->second.send_time);
	}

	// A packet was trimmed. Its bytes still count as in flight, as they do for the simulator's own algorithms.
	void before(const UecNackPacket &nack)
	{
		auto record = _tx_bitmap.find(nack.ref_ack());
		if (record == _tx_bitmap.end())
			return;
		pcm_.flush_window(event().nack(1).data_nacked(record->second.pkt_size).nack_ev(nack.ev()));
		steer();
	}

	// What the simulator says of a path. A packet that was trimmed at the last hop says nothing bad of its path.
	void path(uint16_t ev, UecMultipath::PathFeedback feedback)
	{
		if (!pcm_.running())
			return;
		if (feedback == UecMultipath::PATH_NACK) {
			pcm_.flush_paths(event().nack(1).nack_ev(ev));
		} else if (feedback == UecMultipath::PATH_TIMEOUT) { // the simulator gives path 0 for those that it does not know
			pcm_.flush_paths(event().rto(1).nack_ev(ev));
			return; // doNextEvent has set the window, and more: see there
		} else {
			const bool marked = feedback == UecMultipath::PATH_ECN;
			const uint64_t packets = (acked_bytes_ + _mtu - 1) / _mtu;
			const bool cnp = acked_ && marked && cnp_due();
			if (acked_)
				pcm_.flush_window(acknowledged(packets, ev, marked, cnp));
			pcm_.flush_paths(acknowledged(std::max<uint64_t>(1, packets), ev, marked, cnp));
		}
		steer();
	}

	pcm::Event acknowledged(uint64_t packets, uint16_t ev, bool marked, bool cnp) const
	{
		pcm::Event e = event().ack_ev(ev);
		if (packets)
			e.ack(packets);
		if (acked_bytes_)
			e.data_tx(acked_bytes_);
		if (rtt_ != pcm::none)
			e.rtt(rtt_);
		if (marked)
			e.ecn(1).ecn_ev(ev);
		if (cnp)
			e.cnp(1);
		return e;
	}

	bool cnp_due()
	{
		if (cnp_sent_ && eventlist().now() - last_cnp_ < pcm::cnp_gap_ps)
			return false;
		cnp_sent_ = true;
		last_cnp_ = eventlist().now();
		return true;
	}

	PcmPlane plane_; // before the flow, which ends first
	pcm::Flow pcm_;
	Sent sent_;
	Clock poll_, pacer_;
	simtime_picosec next_send_ = 0, last_cnp_ = 0;
	bool cnp_sent_ = false;
	bool acked_ = false; // an acknowledgement is being dealt with:
	uint64_t acked_bytes_ = 0, rtt_ = pcm::none;
};

inline void PcmMultipath::processEv(uint16_t path, PathFeedback feedback)
{
	own_->processEv(path, feedback);
	src_->path(path, feedback);
}

inline uint16_t PcmMultipath::nextEntropy(uint64_t seq, uint64_t cwnd_in_packets)
{
	PcmUecSrc &s = *src_;
	s.pcm_.flush(s.event().tx_ready_pkts(1).tx_backlog_bytes(s.bytes(s._backlog + s._rtx_backlog)));
	const uint64_t path = s.pcm_.ev();
	return path == pcm::none ? own_->nextEntropy(seq, cwnd_in_packets) : uint16_t(path);
}

// PcmUecPullPacer asks a handler how much credit a sender gets whose turn it is. Turns, the pace and credit that nobody asked for stay
// the simulator's.
class PcmUecPullPacer : public UecPullPacer {
public:
	using UecPullPacer::UecPullPacer;

	void doNextEvent() override
	{
		static_assert(UEC_PULL_QUANTUM == 256, "a unit of credit is 256 bytes in handlers");
		UecSink *sink = _active_senders.empty() ? nullptr : _active_senders.front();
		if (!(pcm::controls() & pcm::sets_pull_no) || !sink || sink->backlog() == 0) {
			UecPullPacer::doNextEvent();
			return;
		}
		UecBasePacket::pull_quanta credit = grant(*sink, sink->backlog());
		if (credit) {
			_active_senders.pop_front();
			UecPullPacket *pull = sink->pull(credit);
			pull->flow().logTraffic(*pull, *this, TrafficLogger::PKT_SEND);
			sink->getNIC()->sendControlPacket(pull, nullptr, sink);
			if (sink->backlog() > 0) {
				_active_senders.push_back(sink);
			} else {
				_idle_senders.push_back(sink);
				sink->removeFromPullQueue();
				sink->addToSlowPullQueue();
			}
		} else { // the handler gives nothing now: the next one's turn
			_active_senders.splice(_active_senders.end(), _active_senders, _active_senders.begin());
			credit = 1024 / UEC_PULL_QUANTUM;
		}
		_active = true;
		eventlist().sourceIsPendingRel(*this, _actual_time_per_quanta * credit);
	}

private:
	struct Credit {
		PcmPlane plane;
		pcm::Flow flow;
		uint64_t granted; // by the handler, of what was seen
		explicit Credit(PcmEngine &engine) : plane(engine, nullptr) {}
	};

	// Both counts begin where the handler has them begin, and what the simulator granted unasked is not in them: the target is what the
	// handler granted plus what is still asked for. An asynchronous handler's grant is there at a later turn.
	UecBasePacket::pull_quanta grant(UecSink &sink, UecBasePacket::pull_quanta backlog)
	{
		std::unique_ptr<Credit> &one = credits_[&sink];
		const uint64_t now = pcm::ns(eventlist().now());
		if (!one) {
			one = std::make_unique<Credit>(PcmEngine::of(*sink.getNIC(), eventlist()));
			one->flow.start(now, sink.flowId(), one->plane);
			one->granted = one->flow.pull_no();
		}
		one->flow.flush(pcm::Event(now).pull_target(one->granted + backlog));
		const uint64_t before = one->granted;
		one->granted = one->flow.pull_no();
		return std::min<uint64_t>(one->granted - before, backlog);
	}

	std::unordered_map<UecSink *, std::unique_ptr<Credit>> credits_;
};

#endif
