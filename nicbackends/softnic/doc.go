// Package softnic is a software RoCEv2 NIC: a daemon per host that speaks RC over UDP 4791, and the client with which
// processes of that host use it.
//
// The layers, each usable alone:
//
//	softnic          Serve (sockets, thread, clock), control, sysfs view, client (Verbs), Backend
//	softnic/engine   the NIC without IO: queue pairs, memory regions, DCQCN, line-rate pacing, counters, datagrams
//	softnic/qp       the RC queue pair machine
//	softnic/dcqcn    DCQCN notification and reaction point
//	softnic/handler  PCM handlers in its place, several a NIC, each for the queue pairs that its rule matches
//
// # Sending
//
// Each queue pair has a UDP socket of its own, bound to a source port that follows from the two queue pair numbers, as
// NICs choose it for ECMP. It is unconnected and probes the path MTU, which makes the kernel send IP identification 0
// and DF: that is what the ICRC is computed for. Data carries the queue pair's DSCP and ECT(0); ACKs and NAKs the same
// DSCP without ECT, CNPs the CNP DSCP without ECT, so that marks mean data.
//
// # Receiving
//
// From UDP 4791, or from a packet socket's ring where the UDP receive buffer cannot be made large (a plain user) or the
// configuration says so. Only the ring sees the IP identification, which the ICRC covers: on the UDP socket, packets of
// foreign senders that set one (such as rdma_rxe) fail the check and are dropped and counted as icrc_errors.
//
// # Time
//
// One thread runs the NIC. Departure times are the engine's virtual time; how late the thread woke for them is kept as
// a histogram, so that a run on a machine that was too busy can be told.
package softnic
