package engine

import "github.com/pcmlab/pcmlab/nicbackends/softnic/qp"

// Counters of a NIC, cumulative since it was made.
type Counters struct {
	qp.Counters

	RxRoCEPackets, RxRoCEBytes uint64 // datagrams at UDP 4791; bytes of their frames without FCS
	TxRoCEPackets, TxRoCEBytes uint64
	RxDataPackets              uint64 // requests, before any check of sequence
	RxICRCErrors               uint64
	RxMalformed, RxUnknownQP   uint64

	NPECNMarked, NPCNPSent     uint64
	RPCNPHandled, RPCNPIgnored uint64
	RPCuts                     uint64 // CNPs that lowered a rate: the rest fell into a reduce period
	PolicyRuns, PolicyFailures uint64 // invocations of handlers; queue pairs whose handler failed and stopped
	PolicyChanges              uint64 // invocations after which a window or rate was another
	TxDiscards                 uint64 // datagrams that the driver could not hand to the network
	RxOverflow                 uint64 // datagrams that the socket had no room for (they are in no other counter)
}
