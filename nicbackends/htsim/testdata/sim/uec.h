// For tests. This is not the simulator's file of this name but one of ours: it declares the names of uet-htsim that pcm_htsim.h uses, and puts
// behind them as little as it takes to call its hook points in the simulator's order: an event list, a sender that holds its window
// and sends without delay, and a pacer that grants what is asked for.
#ifndef UEC_H
#define UEC_H

#include <cstdint>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "uec_mp.h"

typedef uint64_t simtime_picosec;
typedef long long mem_b;
typedef uint32_t flowid_t;
#define UEC_PULL_QUANTUM 256
static const unsigned uecMaxInFlightPkts = 1 << 14;

class EventList;

class Logged {
public:
	virtual ~Logged() {}
};

class EventSource : public Logged {
public:
	EventSource(EventList &events, const std::string &) : events_(events) {}
	virtual void doNextEvent() = 0;
	virtual bool isTraffic() { return true; }
	EventList &eventlist() const { return events_; }

private:
	EventList &events_;
};

class EventList {
public:
	static inline simtime_picosec time = 0;
	static inline std::multimap<simtime_picosec, EventSource *> pending;

	static simtime_picosec now() { return time; }
	typedef std::multimap<simtime_picosec, EventSource *>::iterator Handle;
	static Handle nullHandle() { return pending.end(); }
	static Handle sourceIsPendingGetHandle(EventSource &src, simtime_picosec when)
	{
		if (counts_traffic && !src.isTraffic() && !traffic)
			return pending.end();
		traffic += src.isTraffic();
		return pending.insert({when, &src});
	}
	static void sourceIsPending(EventSource &src, simtime_picosec when) { sourceIsPendingGetHandle(src, when); }
	static void sourceIsPendingRel(EventSource &src, simtime_picosec in) { sourceIsPending(src, time + in); }

	// Without pending traffic the simulator takes nothing else; most tests do without that.
	static inline bool counts_traffic = false;
	static inline int traffic = 0;

	static void run_one()
	{
		time = pending.begin()->first;
		EventSource *next = pending.begin()->second;
		traffic -= next->isTraffic();
		pending.erase(pending.begin());
		next->doNextEvent();
	}
	// Lets all happen that is due until then.
	static void run(simtime_picosec until)
	{
		while (!pending.empty() && pending.begin()->first <= until)
			run_one();
		time = until;
	}
	static void cancelPendingSourceByHandle(EventSource &src, Handle handle)
	{
		if (handle->second != &src || handle->first < time)
			std::abort();
		traffic -= src.isTraffic();
		pending.erase(handle);
	}
	static void cancelPendingSource(EventSource &src)
	{
		for (auto i = pending.begin(); i != pending.end();) {
			if (i->second != &src) {
				i++;
				continue;
			}
			traffic -= src.isTraffic();
			i = pending.erase(i);
		}
	}
};

enum packet_type { UECACK, UECNACK, UECPULL, UECDATA };

class Packet {
public:
	Packet(packet_type type, int size) : type_(type), size_(size) {}
	packet_type type() const { return type_; }
	uint16_t size() const { return size_; }

private:
	packet_type type_;
	uint16_t size_;
};

class TrafficLogger {
public:
	enum TrafficEvent { PKT_CREATESEND = 2, PKT_SEND = 6 };
	virtual ~TrafficLogger() {}
	virtual void logTraffic(Packet &, Logged &, TrafficEvent) = 0;
};

class PacketFlow {
public:
	explicit PacketFlow(TrafficLogger *logger) : logger_(logger) {}
	void set_logger(TrafficLogger *logger) { logger_ = logger; }
	void logTraffic(Packet &pkt, Logged &where, TrafficLogger::TrafficEvent ev)
	{
		if (logger_)
			logger_->logTraffic(pkt, where, ev);
	}
	flowid_t id = 0;

private:
	TrafficLogger *logger_;
};

class UecBasePacket : public Packet {
public:
	using Packet::Packet;
	typedef uint64_t seq_t;
	typedef uint64_t pull_quanta;
};

struct UecAckPacket : UecBasePacket {
	UecAckPacket() : UecBasePacket(UECACK, 64) {}
	uint64_t recvd_bytes_ = 0, acked_psn_ = 0;
	uint16_t ev_ = 0;
	bool ecn_ = false, rtx_echo_ = false, probe_ = false, rts_ = false;

	uint64_t recvd_bytes() const { return recvd_bytes_; }
	uint64_t acked_psn() const { return acked_psn_; }
	uint16_t ev() const { return ev_; }
	bool ecn_echo() const { return ecn_; }
	bool rtx_echo() const { return rtx_echo_; }
	bool is_probe_ack() const { return probe_; }
	bool is_rts() const { return rts_; }
};

struct UecNackPacket : UecBasePacket {
	UecNackPacket() : UecBasePacket(UECNACK, 64) {}
	uint64_t psn_ = 0;
	uint16_t ev_ = 0;
	bool last_hop_ = false;

	uint64_t ref_ack() const { return psn_; }
	uint16_t ev() const { return ev_; }
};

struct UecPullPacket : UecBasePacket {
	UecPullPacket() : UecBasePacket(UECPULL, 64), flow_(nullptr) {}
	PacketFlow &flow() { return flow_; }
	PacketFlow flow_;
};

class UecSrc;
class UecSink;

class UecNIC {
public:
	std::vector<uint64_t> pulls; // what each pull packet granted
	void sendControlPacket(UecBasePacket *pkt, UecSrc *, UecSink *sink);
};

class UecSrcPort : public Logged {
public:
	UecSrcPort(UecSrc &, uint32_t) {}
	virtual void receivePacket(Packet &) {} // a port that was not replaced loses what comes
};

class UecSrc : public EventSource {
	friend class PcmUecSrc;
	friend class PcmMultipath;

public:
	UecSrc(TrafficLogger *logger, EventList &events, std::unique_ptr<UecMultipath> mp, UecNIC &, uint32_t ports, bool) : EventSource(events, "uecSrc"), _mp(std::move(mp)), _flow(logger)
	{
		for (uint32_t i = 0; i < ports; i++)
			_ports.push_back(new UecSrcPort(*this, i));
		updateCwndOnAck = &UecSrc::ownUpdateCwndOnAck;
		updateCwndOnNack = &UecSrc::ownUpdateCwndOnNack;
	}
	~UecSrc()
	{
		for (UecSrcPort *p : _ports)
			delete p;
	}

	// What the driver of the tests does to it.
	UecSrcPort *port(uint32_t i) { return _ports[i]; }
	void number(flowid_t id) { _flow.id = id; }
	void want(mem_b bytes) { _backlog = bytes; }
	void set(mem_b in_flight, mem_b backlog) { _in_flight = in_flight, _backlog = backlog; }
	void packet_sent(uint64_t psn, mem_b size, simtime_picosec when) { _tx_bitmap[psn] = {size, when}, _send_times.insert({when, psn}); }
	void packet_gone(uint64_t psn) { _send_times.clear(), _tx_bitmap.erase(psn); }
	void timer_expires() { _rtx_timeout_pending = true, _rtx_timeout = eventlist().now(), doNextEvent(); }
	void log_sent(mem_b size)
	{
		Packet pkt(UECDATA, size);
		_flow.logTraffic(pkt, *this, TrafficLogger::PKT_CREATESEND);
	}
	void finish() { _done_sending = true; }
	UecMultipath &paths() { return *_mp; }
	mem_b window() const { return _cwnd; }
	mem_b in_flight() const { return _in_flight; }
	uint64_t received() const { return _recvd_bytes; }

	void receivePacket(Packet &pkt, uint32_t)
	{
		if (pkt.type() == UECACK) {
			auto &ack = static_cast<UecAckPacket &>(pkt);
			mem_b bytes = ack.recvd_bytes() > _recvd_bytes ? ack.recvd_bytes() - _recvd_bytes : 0;
			_recvd_bytes += bytes;
			_in_flight -= bytes;
			_mp->processEv(ack.ev(), ack.ecn_echo() ? UecMultipath::PATH_ECN : UecMultipath::PATH_GOOD);
			(this->*updateCwndOnAck)(ack.ecn_echo(), 0, bytes);
		} else if (pkt.type() == UECNACK) {
			auto &nack = static_cast<UecNackPacket &>(pkt);
			auto sent = _tx_bitmap.find(nack.ref_ack());
			if (sent == _tx_bitmap.end())
				return;
			(this->*updateCwndOnNack)(false, sent->second.pkt_size, nack.last_hop_);
			_in_flight -= sent->second.pkt_size;
			_mp->processEv(nack.ev(), nack.last_hop_ ? UecMultipath::PATH_GOOD : UecMultipath::PATH_NACK);
		}
		sendIfPermitted();
	}

	void doNextEvent() override
	{
		if (!_rtx_timeout_pending || eventlist().now() != _rtx_timeout)
			return;
		_rtx_timeout_pending = false;
		_mp->processEv(UecMultipath::UNKNOWN_EV, UecMultipath::PATH_TIMEOUT);
		if (!_send_times.empty())
			_cwnd = std::max<mem_b>(_cwnd - _tx_bitmap.find(_send_times.begin()->second)->second.pkt_size, _mtu);
		window_after_timeout = _cwnd;
	}
	mem_b window_after_timeout = 0; // in force when the transport sends again what was late

	virtual void startConnection() { sendIfPermitted(); }
	flowid_t flowId() const { return _flow.id; }

	static inline uint16_t _mtu = 4150;

private:
	struct sendRecord {
		mem_b pkt_size;
		simtime_picosec send_time;
	};
	struct Stats {
		int32_t _sleek_counter;
	};

	void sendIfPermitted()
	{
		while (_backlog > 0) {
			mem_b size = std::min<mem_b>(_backlog, _mtu);
			if (_cwnd < _in_flight + size)
				return;
			_backlog -= size;
			_in_flight += size;
			_mp->nextEntropy(_seq++, _cwnd / _mtu);
			log_sent(size);
		}
	}
	bool validateSendTs(uint64_t, bool rtx_echo) { return !rtx_echo; }
	void ownUpdateCwndOnAck(bool, simtime_picosec, mem_b) { _cwnd = -1; } // nobody may see what it does
	void ownUpdateCwndOnNack(bool, mem_b, bool) { _cwnd = -1; }
	void dontUpdateCwndOnAck(bool, simtime_picosec, mem_b) {}
	void dontUpdateCwndOnNack(bool, mem_b, bool) {}
	void (UecSrc::*updateCwndOnAck)(bool, simtime_picosec, mem_b);
	void (UecSrc::*updateCwndOnNack)(bool, mem_b, bool);

	std::unique_ptr<UecMultipath> _mp;
	std::vector<UecSrcPort *> _ports;
	PacketFlow _flow;
	std::map<uint64_t, sendRecord> _tx_bitmap;
	std::multimap<simtime_picosec, uint64_t> _send_times;
	std::optional<int> _msg_tracker;
	Stats _stats{};
	bool _rtx_timeout_pending = false, _done_sending = false;
	simtime_picosec _rtx_timeout = 0;
	mem_b _cwnd = 0, _in_flight = 0, _backlog = 0, _rtx_backlog = 0;
	uint64_t _recvd_bytes = 0, _seq = 0;
};

class UecSink {
public:
	explicit UecSink(UecNIC &nic, flowid_t id) : nic_(nic), id_(id) {}
	typedef UecBasePacket::pull_quanta pull_quanta;

	void ask(pull_quanta target) { target_ = target; }
	pull_quanta backlog() { return target_ > pulled_ ? target_ - pulled_ : 0; }
	pull_quanta pulled() const { return pulled_; }
	UecPullPacket *pull(pull_quanta &credit)
	{
		pulled_ += credit;
		return &packet_;
	}
	flowid_t flowId() const { return id_; }
	UecNIC *getNIC() const { return &nic_; }
	void removeFromPullQueue() {}
	void addToSlowPullQueue() {}

private:
	UecNIC &nic_;
	flowid_t id_;
	pull_quanta target_ = 5000, pulled_ = 5000;
	UecPullPacket packet_;
};

inline void UecNIC::sendControlPacket(UecBasePacket *, UecSrc *, UecSink *sink) { pulls.push_back(sink->pulled()); }

class UecPullPacer : public EventSource {
	friend class PcmUecPullPacer;

public:
	explicit UecPullPacer(EventList &events) : EventSource(events, "uecPull") {}
	void doNextEvent() override { _active = false; }
	void queue(UecSink *sink) { _active_senders.push_back(sink); }
	size_t active() const { return _active_senders.size(); }

private:
	std::list<UecSink *> _active_senders, _idle_senders;
	bool _active = false;
	simtime_picosec _actual_time_per_quanta = 20480;
};

#endif
