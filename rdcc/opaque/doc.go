// Package opaque is a message transport over UDP whose data packets carry the 64-bit identifier of a message: Binding Kind 2
// of RDCC (Transport Bindings). The specification leaves such a transport to the domain; this one is pcmlab's own, and its
// packets are described in docs/rdcc.md.
//
// It is built of parts without sockets and clocks: Packet is the wire, Outbound one message at its sender, Path what all
// messages to a receiver share (round-trip time and congestion window), Inbound one message at its receiver. Transport
// joins them to an endpoint and a socket.
//
// Lost packets are found by acknowledgements with ranges, and sent again; each octet is handed to the receiver's sink once,
// and counted once (decision 14). The congestion window halves on loss and falls with the part of packets that arrive marked
// Congestion Experienced, as DCTCP's does: credit bounds what all senders have in flight together, the window what the
// path takes, and the smaller holds.
package opaque
