package softnic

import "github.com/pcmlab/pcmlab/nicbackends/softnic/engine"

// counterKind is where a counter is published.
type counterKind uint8

const (
	hwCounter   counterKind = iota // ports/1/hw_counters
	portCounter                    // ports/1/counters
	ownCounter                     // control socket alone: no kernel driver has that name
)

type namedCounter struct {
	name  string
	kind  counterKind
	value func(c *engine.Counters) uint64
}

// counterNames lists all counters: those of hw_counters under the names of the mlx5 driver (drivers/infiniband/hw/mlx5/
// counters.c), those of counters under the names of the InfiniBand core (drivers/infiniband/core/sysfs.c), and the
// NIC's own. What this NIC cannot do (READ, atomics, adaptive retransmission) has no counter rather than a zero.
var counterNames = []namedCounter{
	{"rx_write_requests", hwCounter, func(c *engine.Counters) uint64 { return c.RxWriteRequests }},
	{"out_of_buffer", hwCounter, func(c *engine.Counters) uint64 { return c.OutOfBuffer }},
	{"out_of_sequence", hwCounter, func(c *engine.Counters) uint64 { return c.OutOfSequence }},
	{"duplicate_request", hwCounter, func(c *engine.Counters) uint64 { return c.DuplicateRequest }},
	{"rnr_nak_retry_err", hwCounter, func(c *engine.Counters) uint64 { return c.RNRNakReceived }},
	{"packet_seq_err", hwCounter, func(c *engine.Counters) uint64 { return c.PacketSeqErr }},
	{"local_ack_timeout_err", hwCounter, func(c *engine.Counters) uint64 { return c.LocalAckTimeoutErr }},
	{"resp_local_length_error", hwCounter, func(c *engine.Counters) uint64 { return c.RespLocalLength }},
	{"resp_cqe_error", hwCounter, func(c *engine.Counters) uint64 { return c.RespCQEError }},
	{"resp_cqe_flush_error", hwCounter, func(c *engine.Counters) uint64 { return c.RespCQEFlush }},
	{"resp_remote_access_errors", hwCounter, func(c *engine.Counters) uint64 { return c.RespRemoteAccess }},
	{"req_cqe_error", hwCounter, func(c *engine.Counters) uint64 { return c.ReqCQEError }},
	{"req_cqe_flush_error", hwCounter, func(c *engine.Counters) uint64 { return c.ReqCQEFlush }},
	{"req_remote_invalid_request", hwCounter, func(c *engine.Counters) uint64 { return c.ReqInvalid }},
	{"req_remote_access_errors", hwCounter, func(c *engine.Counters) uint64 { return c.ReqRemoteAccess }},
	{"req_transport_retries_exceeded", hwCounter, func(c *engine.Counters) uint64 { return c.ReqTransportRetriesExceeded }},
	{"req_rnr_retries_exceeded", hwCounter, func(c *engine.Counters) uint64 { return c.RNRNakRetryErr }},
	{"np_ecn_marked_roce_packets", hwCounter, func(c *engine.Counters) uint64 { return c.NPECNMarked }},
	{"np_cnp_sent", hwCounter, func(c *engine.Counters) uint64 { return c.NPCNPSent }},
	{"rp_cnp_handled", hwCounter, func(c *engine.Counters) uint64 { return c.RPCNPHandled }},
	{"rp_cnp_ignored", hwCounter, func(c *engine.Counters) uint64 { return c.RPCNPIgnored }},
	{"rx_icrc_encapsulated", hwCounter, func(c *engine.Counters) uint64 { return c.RxICRCErrors }},

	// Data counters of the InfiniBand core count words of four bytes.
	{"port_xmit_packets", portCounter, func(c *engine.Counters) uint64 { return c.TxRoCEPackets }},
	{"port_xmit_data", portCounter, func(c *engine.Counters) uint64 { return c.TxRoCEBytes / 4 }},
	{"port_rcv_packets", portCounter, func(c *engine.Counters) uint64 { return c.RxRoCEPackets }},
	{"port_rcv_data", portCounter, func(c *engine.Counters) uint64 { return c.RxRoCEBytes / 4 }},
	{"port_rcv_errors", portCounter, func(c *engine.Counters) uint64 { return c.RxICRCErrors + c.RxMalformed }},
	{"port_xmit_discards", portCounter, func(c *engine.Counters) uint64 { return c.TxDiscards }},

	{"icrc_errors", ownCounter, func(c *engine.Counters) uint64 { return c.RxICRCErrors }},
	{"tx_roce_packets", ownCounter, func(c *engine.Counters) uint64 { return c.TxRoCEPackets }},
	{"tx_roce_bytes", ownCounter, func(c *engine.Counters) uint64 { return c.TxRoCEBytes }},
	{"rx_roce_packets", ownCounter, func(c *engine.Counters) uint64 { return c.RxRoCEPackets }},
	{"rx_roce_bytes", ownCounter, func(c *engine.Counters) uint64 { return c.RxRoCEBytes }},
	{"tx_data_packets", ownCounter, func(c *engine.Counters) uint64 { return c.TxDataPackets }},
	{"tx_payload_bytes", ownCounter, func(c *engine.Counters) uint64 { return c.TxPayloadBytes }},
	{"retransmitted_packets", ownCounter, func(c *engine.Counters) uint64 { return c.RetransmittedPackets }},
	{"retransmitted_bytes", ownCounter, func(c *engine.Counters) uint64 { return c.RetransmittedBytes }},
	{"rx_data_packets", ownCounter, func(c *engine.Counters) uint64 { return c.RxDataPackets }},
	{"rx_payload_bytes", ownCounter, func(c *engine.Counters) uint64 { return c.RxPayloadBytes }},
	{"rx_send_requests", ownCounter, func(c *engine.Counters) uint64 { return c.RxSendRequests }},
	{"tx_ack_packets", ownCounter, func(c *engine.Counters) uint64 { return c.TxAckPackets }},
	{"tx_nak_packets", ownCounter, func(c *engine.Counters) uint64 { return c.TxNakPackets }},
	{"rx_ack_packets", ownCounter, func(c *engine.Counters) uint64 { return c.RxAckPackets }},
	{"rx_nak_packets", ownCounter, func(c *engine.Counters) uint64 { return c.RxNakPackets }},
	{"handler_runs", ownCounter, func(c *engine.Counters) uint64 { return c.PolicyRuns }},
	{"handler_changes", ownCounter, func(c *engine.Counters) uint64 { return c.PolicyChanges }},
	{"handler_failures", ownCounter, func(c *engine.Counters) uint64 { return c.PolicyFailures }},
	{"rp_rate_cuts", ownCounter, func(c *engine.Counters) uint64 { return c.RPCuts }},
	{"rx_malformed_packets", ownCounter, func(c *engine.Counters) uint64 { return c.RxMalformed }},
	{"rx_unknown_qp_packets", ownCounter, func(c *engine.Counters) uint64 { return c.RxUnknownQP }},
	{"rx_overflow_packets", ownCounter, func(c *engine.Counters) uint64 { return c.RxOverflow }},
	{"tx_discards", ownCounter, func(c *engine.Counters) uint64 { return c.TxDiscards }},
}

func counterMap(c *engine.Counters) map[string]uint64 {
	m := make(map[string]uint64, len(counterNames))
	for _, n := range counterNames {
		m[n.name] = n.value(c)
	}
	return m
}
