// The transport's hook points, as a context of its own beside those of the algorithms that it brings.
#ifndef PCM_CONTEXT_H
#define PCM_CONTEXT_H

#include "transport.h"

namespace uccl {

class PcmRDMAContext : public RDMAContext {
public:
	using RDMAContext::RDMAContext;

	uint32_t EventOnSelectPath(SubUcclFlow *flow, uint32_t chunk_bytes) override
	{
		PcmCC &cc = flow->pcb.pcm_cc;
		if (!cc.chooses_paths())
			return select_qpidx_pot(chunk_bytes, flow);
		return cc.path(rdtsc(), port_entropy_, flow->unacked_bytes_);
	}

	uint32_t EventOnChunkSize(SubUcclFlow *flow, uint32_t left) override
	{
		const uint64_t now = rdtsc();
		PcmCC &cc = flow->pcb.pcm_cc;
		cc.set_mtu(mtu_bytes_);
		cc.look(now);
		const uint32_t bytes = std::min(cc.budget(left, flow->unacked_bytes_), chunk_size_);
		if (!bytes || !engine_has_room(flow, bytes))
			return 0;
		cc.on_send(now, bytes, left - bytes, flow->unacked_bytes_);
		return bytes;
	}

	bool EventOnQueueData(SubUcclFlow *flow, struct wr_ex *wr, uint32_t bytes, uint64_t now) override
	{
		PcmCC &cc = flow->pcb.pcm_cc;
		return cc.paces() && wheel_.queue_on_timing_wheel(cc.rate(), &cc.prev_desired_tx_tsc_, now, wr, bytes, flow->in_wheel_cnt_ == 0);
	}

	// A chunk is about to be sent again. While a timer's expiry is dealt with, the flow has none.
	bool EventOnTxRTXData(SubUcclFlow *flow, struct wr_ex *wr) override
	{
		PcmCC &cc = flow->pcb.pcm_cc;
		if (flow->rto_armed)
			cc.on_nack(rdtsc(), wr->sge.length, wr->qpidx, flow->unacked_bytes_);
		else
			cc.on_timeout(rdtsc(), flow->pcb.stats_rto_rexmits, wr->qpidx, flow->unacked_bytes_);
		return true;
	}

	// Comes before the acknowledgement is dealt with. A path beyond the last one is that of a chunk that was sent again.
	void EventOnRxACK(SubUcclFlow *flow, UcclSackHdr *sack) override
	{
		const uint32_t path = sack->path.value();
		if (path < port_entropy_)
			flow->pcb.pcm_cc.on_ack_path(path);
	}

	void EventOnRxNACK(SubUcclFlow *, UcclSackHdr *) override {} // a duplicate acknowledgement: paths differ in length, nothing is lost yet
	void EventOnRxData(SubUcclFlow *, IMMData *) override {}
	void EventOnRxRTXData(SubUcclFlow *, IMMData *) override {}
	void EventOnRxCredit(SubUcclFlow *, eqds::PullQuanta) override {}

private:
	// The transport's own bounds of what an engine and each of its flows may have in flight.
	bool engine_has_room(SubUcclFlow *flow, uint32_t bytes)
	{
		const uint32_t engine = *engine_unacked_bytes_ + bytes;
		if (engine > (is_roce() ? kMaxUnAckedBytesPerEngineHighForRoCE : kMaxUnAckedBytesPerEngineHighForIB))
			return false;
		return engine <= (is_roce() ? kMaxUnAckedBytesPerEngineLowForRoCE : kMaxUnAckedBytesPerEngineLowForIB) || flow->unacked_bytes_ + bytes <= kMaxUnAckedBytesPerFlow;
	}
};

} // namespace uccl

#endif
