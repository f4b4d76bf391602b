// Package roce reads and writes the RoCEv2 wire: the InfiniBand transport headers in UDP, their invariant CRC, and the
// Ethernet pause frames that go with them. It keeps no state, allocates nothing per packet and reads no clock.
//
//	Ethernet [VLAN [VLAN]] | IPv4 or IPv6 | UDP 4791 | BTH | extended headers | payload | pad | ICRC
//	                         \------------- covered by the ICRC, some fields masked -------/
//
// The layout is that of the InfiniBand Architecture Specification volume 1 (chapter 9) and its Annex A17 (RoCEv2). All
// fields are big-endian, except the ICRC, whose bytes are sent lowest first. Reserved bits are zero when written and ignored when
// read. Opcodes without a defined header layout are decoded up to the BTH.
//
// A capture loop reuses one Frame:
//
//	var f roce.Frame
//	for each packet {
//		if err := f.Decode(linkType, data, origLen, roce.Port); err != nil { ... } // only: link type not known
//		if f.Kind == roce.KindRoCE { use f.BTH, f.PayloadLen ... }
//	}
//
// Payload and all else that is a slice aliases the input. Snapped packets are understood as far as they go: lengths come
// from the IP and UDP headers, never from what was captured.
//
// It refuses to reassemble IP fragments (RoCEv2 forbids them; they are flagged) and does not read RoCEv1.
package roce
