// For tests. This is not UCCL's file of this name but one of ours: it declares the names of the transport that pcm_context.h uses, and puts
// behind them as little as it takes to call its hook points: a clock that the driver of the tests sets, a flow, a context.
#ifndef TRANSPORT_H
#define TRANSPORT_H

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "pcm_uccl.h"

namespace uccl {

inline std::atomic<uint64_t> tsc{0}; // the time-stamp counter
inline uint64_t rdtsc() { return tsc; }
static constexpr double freq_ghz = 2.5;

inline uint32_t kMaxUnAckedBytesPerFlow = 128 << 10;
inline uint32_t kMaxUnAckedBytesPerEngineLowForRoCE = 512 << 10, kMaxUnAckedBytesPerEngineLowForIB = 1152 << 10;
inline uint32_t kMaxUnAckedBytesPerEngineHighForRoCE = 768 << 10, kMaxUnAckedBytesPerEngineHighForIB = 1536 << 10;

namespace eqds {
typedef uint8_t PullQuanta;
}

struct IMMData;

struct be16 {
	uint16_t v = 0;
	uint16_t value() const { return v; }
};

struct UcclSackHdr {
	be16 path;
};

struct wr_ex {
	struct {
		uint32_t length;
	} sge;
	uint32_t qpidx;
};

// As README.md has it in pcb.h.
struct PCB {
	explicit PCB(double link) : pcm_cc(freq_ghz, link, rdtsc) {}
	PcmCC pcm_cc;
	uint32_t stats_rto_rexmits = 0;
};

class SubUcclFlow {
public:
	SubUcclFlow(uint32_t fid, double link) : fid_(fid), pcb(link) {}
	uint32_t fid_;
	uint32_t unacked_bytes_ = 0, in_wheel_cnt_ = 0;
	PCB pcb;
	bool rto_armed = true;
};

struct TimingWheel {
	double rate = 0; // that was asked for last
	bool queue_on_timing_wheel(double target_rate, size_t *, size_t, void *, size_t, bool)
	{
		rate = target_rate;
		return true;
	}
};

class RDMAContext {
	friend class PcmRDMAContext;

public:
	explicit RDMAContext(uint32_t *engine_unacked) : engine_unacked_bytes_(engine_unacked) {}
	virtual ~RDMAContext() {}
	virtual uint32_t EventOnSelectPath(SubUcclFlow *, uint32_t) = 0;
	virtual uint32_t EventOnChunkSize(SubUcclFlow *, uint32_t) = 0;
	virtual bool EventOnQueueData(SubUcclFlow *, struct wr_ex *, uint32_t, uint64_t) = 0;
	virtual bool EventOnTxRTXData(SubUcclFlow *, struct wr_ex *) = 0;
	virtual void EventOnRxRTXData(SubUcclFlow *, IMMData *) = 0;
	virtual void EventOnRxData(SubUcclFlow *, IMMData *) = 0;
	virtual void EventOnRxNACK(SubUcclFlow *, UcclSackHdr *) = 0;
	virtual void EventOnRxACK(SubUcclFlow *, UcclSackHdr *) = 0;
	virtual void EventOnRxCredit(SubUcclFlow *, eqds::PullQuanta) = 0;

	double paced_at() const { return wheel_.rate; }

private:
	uint32_t select_qpidx_pot(uint32_t, void *) { return 31; } // what the transport would choose
	bool is_roce() { return true; }

	uint32_t port_entropy_ = 32, chunk_size_ = 64 << 10, mtu_bytes_ = 4096;
	uint32_t *engine_unacked_bytes_;
	TimingWheel wheel_;
};

} // namespace uccl

#endif
