// Package capture is the eyes of a run: it reads and writes capture files and takes packets from an interface.
//
//	Open, NewReader   pcap (microseconds and nanoseconds, both byte orders) and pcapng, also inside gzip
//	NewWriter         pcapng with nanoseconds, interface names and drop statistics
//	NewPcapWriter     plain pcap with nanoseconds
//	RunTap            a tap of its own: TPACKET_V3 ring to pcapng file (Linux)
//
// A file that was cut or is corrupt gives its good prefix and then an *IncompleteError with the offset at which the first
// record stands that could not be read. Times are int64 nanoseconds since 1970. Lengths in a file are never trusted: no
// record makes the reader hold more than maxRecord bytes.
//
// The package computes no metric, and it does not reassemble, reorder or merge.
package capture
