// Package verbs carries RDCC's data over real RDMA NICs: binding kind 1 (RoCEv2) of the specification's Transport Bindings.
//
// A small C program over libibverbs (folder program, embedded here, compiled on the host by [Build]) owns the device; the
// endpoint steers it through a SEQPACKET UNIX socket:
//
//	rdcc/sender, rdcc/receiver         the two machines: credit
//	        |
//	   Transport  -- TCP, once per queue pair: QP numbers, PSNs, GIDs, rkey --  Transport of the peer
//	        |
//	   SEQPACKET socket (file descriptor 3 of the program)
//	        |
//	   pcmlab-verbs  -- RDMA WRITE with immediate, a segment each -->  pcmlab-verbs of the peer
//
// There is one queue pair for each receiver and class, whose RDCC messages go in order (decision 25). Each segment is an RDMA
// WRITE with immediate: its completion at the responder gives the receiver the octets (decision 14), which a plain WRITE does
// not, and NICs count requests per queue pair, not octets. The program ends when its socket ends and leaves nothing behind.
//
// # Steering protocol
//
// Version 1, one message a packet, byte order of the machine. Each begins with version (1 octet), type (1), length of the
// whole message (2) and tag (4). Commands have a tag that the answer repeats; tag 0 wants no OK. What does not parse is
// answered by ERROR and otherwise ignored.
//
//	type          octets  after the head
//	 1 OPEN          112  device[64] address[16] gid_index:i32 port:u32 region:u64 max_qps:u32 flags:u32 (1 spin, 2 no NIC rate)
//	 2 QP              8
//	 3 CONNECT        72  qp:u32 dest_qp:u32 psn:u32 dest_psn:u32 gid[16] address:u64 region:u64 rkey:u32 mtu:u32 tclass:u8 timeout:u8 retry:u8 hop_limit:u8 0:u32
//	 4 POST           48  qp:u32 immediate:u32 message:u64 from:u64 upto:u64 segment:u32 empty:u32
//	 5 PACE           24  qp:u32 window:u32 rate_bps:u64 (0: as fast as the NIC can)
//	 6 CLOSE          16  qp:u32 0:u32
//	65 OPENED        144  device[64] gid[16] gid_index:i32 mtu:u32 address:u64 region:u64 rkey:u32 max_qps:u32 depth:u32 0:u32 rate_min_bps:u64 rate_max_bps:u64
//	66 MADE           16  qp:u32 psn:u32
//	67 OK             16  qp:u32 value:u32 (of PACE: 1 when the NIC holds the rate)
//	68 ERROR         496  qp:u32 errno:i32 text[480]
//	69 POSTED         48  qp:u32 flight:u32 message:u64 upto:u64 at_ns:u64 rtt_ns:u64
//	70 ACKED          48  the same
//	71 ARRIVED        40  qp:u32 immediate:u32 octets:u64 at_ns:u64 messages:u32 0:u32
//	72 FAILED        496  qp:u32 status:i32 text[480]: the queue pair is dead
//
// POST posts the octets from..upto of a message in segments, and behind them empty RDMA messages without octets: those keep the
// message sequence numbers that later requests have promised when a message ends early. at_ns is CLOCK_MONOTONIC.
package verbs
