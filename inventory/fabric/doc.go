// Package fabric is the switch of a virtual lab: a sans-IO machine of an output-queued shared-buffer Ethernet switch
// with its links, and the process that drives it on the wall clock over TAP devices or packet sockets.
//
// # The machine
//
// A port is one full-duplex link of rate R and one-way delay D between a host and the switch. Everything happens in
// virtual time, which the caller passes in; when the caller was late, the machine still computes when things should
// have happened, in that order.
//
//		host ──Receive──> [ingress: serialise at R] ──D──> (arrival: ingress mirror, learn, look up, admit, mark)
//		     ──> [egress queue: serialise at R] ──> (departure: egress mirror) ──D──> delivery to the host
//
//	  - Ingress. A packet that the host sent at t reaches the switch at max(t, link free) + size/R + D. The link never
//	    drops: a host that bursts is shaped to its link's rate. The driver bounds the backlog by not reading from a host
//	    whose backlog is over its limit, as a NIC stops fetching work when its transmit queue is full.
//	  - Forwarding. Static MAC addresses from the configuration, then learned ones (never on top of static ones); group
//	    and unknown addresses are flooded to all other ports. Frames to 01:80:c2:00:00:0x (IEEE 802.1D reserved, among
//	    them PAUSE) and frames shorter than an Ethernet header are not forwarded.
//	  - Admission. A packet is dropped at the tail if its port's queue would exceed the port's limit or all queues
//	    together the shared buffer. A packet leaves the buffer when its last bit has been sent.
//	  - RED/ECN. The probability of a mark comes from the instantaneous egress queue that the packet finds (bytes waiting
//	    or being sent, without itself): none below kmin, linear up to pmax at kmax, all above. CE is set on ECT(0) and
//	    ECT(1) packets only (RFC 3168); Not-ECT packets are never dropped by RED, they queue until the tail drop. That
//	    differs from RFC 3168 section 7 on purpose: it is what data-center switches are set to for RDMA (DCQCN).
//	    The IPv4 header checksum is updated incrementally (RFC 1624).
//	  - Sizes. Buffers, limits and counters count frame bytes as a capture shows them (no FCS). Serialisation counts what
//	    the wire carries: at least 60 bytes, plus Overhead (preamble 8, FCS 4, interframe gap 12: 24 bytes). So a link
//	    full of RoCEv2 packets of 4096 payload bytes (4154-byte frames) shows 4096/4178 = 98.0 % of its rate as goodput.
//
// # The driver
//
// One thread, locked, with timer slack 1 ns, an absolute schedule and all that is due sent at each wake-up. Lateness is
// the time from a packet's delivery time to the hand-over to the kernel. When the thread was away for longer than the
// catch-up bound (a stopped virtual machine), virtual time is held back instead of sending the backlog in one burst;
// the lateness shows it and the counters name it a stall.
package fabric
